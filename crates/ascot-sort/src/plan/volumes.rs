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
use std::sync::Arc;

use ascot_io::{DEFAULT_DEPTH, DEFAULT_REQUEST_BYTES, Disk, DiskOptions, FaultHook};
use ascot_model::measurement::{Requests, VolumeRequests};

use crate::api::error::SortError;
use crate::api::request::{Input, Output, SortRequest};
use crate::plan::budget::Budget;

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

/// How a job is run, beside what it does.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Sees every operation on files beforehand; tests make some of them fail.
    pub faults: Option<Arc<dyn FaultHook>>,
    /// The cap of a resumed job, bytes, instead of the one it began with.
    pub memory_bytes: Option<u64>,
}

/// A disk as whatever is no job of one volume uses it.
pub fn job_disk(options: &RunOptions) -> Disk {
    Disk::new(DiskOptions { faults: options.faults.clone(), ..DiskOptions::default() })
}

/// Requests in flight for a disk of small blocks: together as long as few large ones.
const MANY_REQUESTS: usize = 32;

/// A disk for views, whose blocks are small: they are written as fast as large ones, and a place in a view is
/// a small read of every run at once.
pub fn view_disk(options: &RunOptions) -> Disk {
    let faults = options.faults.clone();
    Disk::new(DiskOptions { depth: MANY_REQUESTS, faults, ..DiskOptions::default() })
}

/// The directories for spills: those asked for, or the environment's, or the output's own.
pub fn temp_dirs(request: &SortRequest) -> Vec<PathBuf> {
    let mut dirs = request.temp_dirs.clone();
    if dirs.is_empty() {
        let [own, common] = environment_temp_dirs();
        let named = if own.is_empty() { common } else { own };
        let beside = match &request.output {
            Output::Path(path) if path.is_file() || !path.exists() => path.parent().map(Path::to_path_buf),
            Output::Parts(parts) => parts.path(0).parent().map(Path::to_path_buf),
            _ => None,
        };
        let here = |dir: PathBuf| if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
        dirs =
            if named.is_empty() { vec![beside.map(here).unwrap_or_else(std::env::temp_dir)] } else { named };
    }
    let mut seen = Vec::new();
    dirs.retain(|dir| {
        let real = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let new = !seen.contains(&real);
        seen.push(real);
        new
    });
    dirs
}

/// The directories of `ASCOT_TMPDIR`, which colons separate, and that of `TMPDIR`.
pub fn environment_temp_dirs() -> [Vec<PathBuf>; 2] {
    let value = |name| std::env::var_os(name).unwrap_or_default();
    let (own, common) = (value("ASCOT_TMPDIR"), PathBuf::from(value("TMPDIR")));
    [std::env::split_paths(&own).collect(), vec![common]]
        .map(|dirs| dirs.into_iter().filter(|dir| !dir.as_os_str().is_empty()).collect())
}
