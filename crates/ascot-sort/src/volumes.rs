//! The volumes a job is on: which devices its profiles are of, and how each is driven.
//!
//! ```text
//!   inputs          volume of the inputs, where one of its own is described; else as below
//!   spills, output  volume
//! ```
//!
//! Invariant: what is measured of a volume is followed within the memory of the job; without a measurement
//! everything is as usual.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ascot_io::{DEFAULT_DEPTH, DEFAULT_REQUEST_BYTES, Disk, DiskOptions};
use ascot_model::measurement::{Requests, VolumeRequests};

use crate::budget::Budget;
use crate::error::SortError;
use crate::job::{RunOptions, temp_dirs};
use crate::request::{Input, Output, SortRequest};

/// A disk as a job uses it, its requests as the volumes were measured to be fastest with.
pub fn disk_for(request: &SortRequest, budget: &Budget, options: &RunOptions) -> Disk {
    let faults = options.faults.clone();
    Disk::new(DiskOptions { measured: measured(request, budget), faults, ..DiskOptions::default() })
}

/// The requests of a volume, within the memory of the job and the blocks it moves.
pub fn within_memory(budget: &Budget, requests: VolumeRequests) -> VolumeRequests {
    let usual = Requests { bytes: DEFAULT_REQUEST_BYTES as u64, depth: DEFAULT_DEPTH as u32 };
    let within = |way: Requests| way.within(budget.memory as u64, budget.block as u64, usual);
    VolumeRequests { read: within(requests.read), write: within(requests.write) }
}

/// An error where the inputs are said to be on a volume of their own, and are not. `spills`: whether the job may
/// write any.
pub fn check_apart(request: &SortRequest, spills: bool) -> Result<(), SortError> {
    if request.input_volume.is_none() {
        return Ok(());
    }
    let dirs = if spills { written_dirs(request) } else { output_dir(&request.output).into_iter().collect() };
    let written = devices(&dirs);
    match input_paths(request).into_iter().find(|path| device(path).is_some_and(|at| written.contains(&at))) {
        None => Ok(()),
        Some(path) => Err(SortError::Request(format!(
            "{} is on the volume that spills or output are on, which is not a volume of its own\n  describe that \
             volume alone (--volume), or write elsewhere (-o, --temp)",
            path.display()
        ))),
    }
}

/// Of each device what was measured, the inputs' own first.
fn measured(request: &SortRequest, budget: &Budget) -> Vec<(u64, VolumeRequests)> {
    let of = |devices: Vec<u64>, requests: Option<VolumeRequests>| {
        let requests = requests.map(|requests| within_memory(budget, requests));
        devices.into_iter().filter_map(move |device| Some((device, requests?))).collect::<Vec<_>>()
    };
    let (inputs, written) = (devices(&input_paths(request)), devices(&written_dirs(request)));
    match request.input_volume {
        Some(_) => [of(inputs, request.input_requests), of(written, request.requests)].concat(),
        None => of([inputs, written].concat(), request.requests),
    }
}

fn input_paths(request: &SortRequest) -> Vec<PathBuf> {
    let path = |input: &Input| match input {
        Input::Path(path) => Some(path.clone()),
        Input::Stdin => None,
    };
    request.inputs.iter().filter_map(path).collect()
}

/// The directories of spills and of the output.
fn written_dirs(request: &SortRequest) -> Vec<PathBuf> {
    let mut dirs = temp_dirs(request);
    dirs.extend(output_dir(&request.output));
    dirs
}

/// Where an output goes, if to files.
pub fn output_dir(output: &Output) -> Option<PathBuf> {
    let path = match output {
        Output::Path(path) => path.clone(),
        Output::Parts(parts) => parts.path(0),
        Output::Stdout => return None,
    };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(dir.to_path_buf())
}

fn device(path: &PathBuf) -> Option<u64> {
    std::fs::metadata(path).ok().map(|stat| stat.dev())
}

fn devices(paths: &[PathBuf]) -> Vec<u64> {
    let mut devices: Vec<u64> = paths.iter().filter_map(device).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}
