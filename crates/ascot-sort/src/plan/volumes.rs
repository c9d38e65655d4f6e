//! The directories and devices that a job uses, and the requests with which each device is driven.
//!
//! Invariant: measured requests are reduced to what fits in the memory of the job; without a measurement the usual
//! requests are used.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::{
    DEFAULT_DEPTH, DEFAULT_REQUEST_BYTES, Disk, DiskOptions, FaultHook, Ledger, ProgramStreams,
    RequestObserver, directory_of,
};
use ascot_model::measurement::{Requests, VolumeRequests};

use crate::api::{Input, Output, Result, SortError, SortRequest, Volumes};
use crate::plan::budget::Budget;
use crate::resources::device_of;

/// The disk of a job; its requests are those with which its volumes are fastest.
pub fn disk_for(request: &SortRequest, budget: &Budget, options: &RunOptions) -> Disk {
    Disk::new(DiskOptions { measured: measured(request, budget), ..options.of_disks() })
}

/// The volumes of a job, their requests reduced to its memory and blocks.
pub fn within_memory(budget: &Budget, volumes: &Volumes) -> Volumes {
    let usual = Requests { bytes: DEFAULT_REQUEST_BYTES as u64, depth: DEFAULT_DEPTH as u32 };
    let within = |requests: Requests| requests.within(budget.memory as u64, budget.block as u64, usual);
    let both = |requests: VolumeRequests| VolumeRequests {
        read: within(requests.read),
        write: within(requests.write),
    };
    Volumes {
        requests: volumes.requests.map(both),
        input_requests: volumes.input_requests.map(both),
        ..volumes.clone()
    }
}

/// Refuses inputs that share a volume with the output or the spills although their volume is described separately.
/// `spills`: the job may write spills.
pub fn check_apart(request: &SortRequest, spills: bool) -> Result<()> {
    if request.volumes.input_volume.is_none() {
        return Ok(());
    }
    let dirs = if spills { written_dirs(request) } else { output_dir(&request.output).into_iter().collect() };
    let written = devices(&dirs);
    let shared = |path: &PathBuf| device_of(path).is_some_and(|device| written.contains(&device));
    match input_paths(request).into_iter().find(shared) {
        None => Ok(()),
        Some(path) => Err(SortError::Request(format!(
            "{} is on the volume of spills or output, not on a volume of its own\n  describe that \
             volume alone (--volume), or write elsewhere (-o, --temp)",
            path.display()
        ))),
    }
}

/// The measured requests of each device, those of the inputs' own volume first.
fn measured(request: &SortRequest, budget: &Budget) -> Vec<(u64, VolumeRequests)> {
    let Volumes { requests, input_volume, input_requests, .. } = within_memory(budget, &request.volumes);
    let input_requests = if input_volume.is_some() { input_requests } else { requests };
    let inputs = devices(&input_paths(request)).into_iter().map(|device| (device, input_requests));
    let written = devices(&written_dirs(request)).into_iter().map(|device| (device, requests));
    inputs.chain(written).filter_map(|(device, requests)| Some((device, requests?))).collect()
}

pub(crate) fn input_paths(request: &SortRequest) -> Vec<PathBuf> {
    request.inputs.iter().filter_map(Input::path).map(Path::to_path_buf).collect()
}

/// The directories of spills and of the output.
pub(crate) fn written_dirs(request: &SortRequest) -> Vec<PathBuf> {
    let mut dirs = temp_dirs(request);
    dirs.extend(output_dir(&request.output));
    dirs
}

/// The directory of an output, if it is a file or several.
pub fn output_dir(output: &Output) -> Option<PathBuf> {
    let path = match output {
        Output::Path(path) => path.clone(),
        Output::Parts(parts) => parts.path(0),
        Output::Stdout | Output::Program => return None,
    };
    Some(directory_of(&path).to_path_buf())
}

pub(crate) fn devices(paths: &[PathBuf]) -> Vec<u64> {
    let mut devices: Vec<u64> = paths.iter().filter_map(|path| device_of(path)).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// Options of a run that are not part of the request.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Called before every operation on files; tests use it to make some of them fail.
    pub faults: Option<Arc<dyn FaultHook>>,
    /// The cap of a resumed job, bytes, instead of the one it began with.
    pub memory_bytes: Option<u64>,
    /// Sees every request of the job to its files.
    pub requests: Option<Arc<dyn RequestObserver>>,
    /// The ends of the job in this process, for `Input::Program` and `Output::Program`.
    pub program: ProgramStreams,
    /// The header of the output, if records of the program, which come without one, have one.
    pub header: Option<Vec<u8>>,
}

impl RunOptions {
    /// The options of a disk, with a ledger of its own.
    pub(crate) fn of_disks(&self) -> DiskOptions {
        let ledger = Ledger::observed(self.requests.clone());
        let program = self.program.clone();
        DiskOptions { faults: self.faults.clone(), ledger, program, ..DiskOptions::default() }
    }
}

/// A disk without measured requests.
pub fn job_disk(options: &RunOptions) -> Disk {
    Disk::new(options.of_disks())
}

/// A disk for an output, which counts in the ledger of its source.
pub fn output_disk(options: &RunOptions, ledger: &Ledger) -> Disk {
    Disk::new(DiskOptions { ledger: ledger.clone(), ..options.of_disks() })
}

/// Requests in flight for small blocks: their total length is that of a few large ones.
const MANY_REQUESTS: usize = 32;

/// A disk for views, whose blocks are small. Many requests in flight write them as fast as large ones, and entering a
/// view is one small read of every run.
pub fn view_disk(options: &RunOptions) -> Disk {
    Disk::new(DiskOptions { depth: MANY_REQUESTS, ..options.of_disks() })
}

/// The spill directories: those of the request, or of the environment, or that of the output.
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

/// The directories of `ASCOT_TMPDIR`, separated by colons, and the one of `TMPDIR`.
pub fn environment_temp_dirs() -> [Vec<PathBuf>; 2] {
    let value = |name| std::env::var_os(name).unwrap_or_default();
    let own = std::env::split_paths(&value("ASCOT_TMPDIR")).collect();
    [own, vec![PathBuf::from(value("TMPDIR"))]]
        .map(|dirs| dirs.into_iter().filter(|dir| !dir.as_os_str().is_empty()).collect())
}
