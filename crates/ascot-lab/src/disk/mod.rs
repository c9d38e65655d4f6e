//! DiskBench: reads one set of volumes and writes another at the same time, with the requests of the phases of a sort
//! and without sorting.
//!
//! The study follows Conley, Vahdat and Porter ("Sorting 100 TB on Google Compute Engine", sections 4.2 and 5.1.1).
//! Every phase runs with and without preallocated outputs; reading and writing also run alone.
//!
//! ```text
//!   phase       the passes: directions, depths, preallocation
//!   volume      directories, and nameless files on them
//!   prediction  bytes, space and time before the start
//!   lane        one volume in one direction: requests in flight, rate from the first buffer to the last
//!   bench       a pass: all lanes at once, with buffers from one pool
//!   report      rates of all volumes: mean, deviation, slowest
//! ```
//!
//! Invariants: nothing is written before the free space is checked. Files have no names. All buffers come from one
//! pool. Inputs are on their devices before they are read, and the page cache has none of their bytes.

mod bench;
mod error;
mod lane;
mod phase;
mod prediction;
mod report;
mod volume;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ascot_device::VolumeFinder;
use ascot_model::known_volume::Origin;
use ascot_model::units;
use ascot_model::volume::VolumeProfile;

use bench::{Bench, LAYOUT_DEPTH, PassResult, Sizes};
use prediction::DeviceShare;
use volume::Volume;

pub use error::DiskError;
pub use phase::{DEFAULT_REQUEST_BYTES, Directions, Pass, Phase, READS};
pub use prediction::{Prediction, Space};
pub use report::{DiskReport, PassReport, VolumeFacts};

/// Default bytes of each input.
pub const DEFAULT_BYTES: u64 = 1 << 30;
/// Default number of rounds.
pub const DEFAULT_ROUNDS: u32 = 3;
/// Maximum bytes of a request.
pub const MAX_REQUEST_BYTES: u64 = 64 << 20;
/// Minimum requests of an input: the first and the last ones weigh less among more.
const MIN_REQUESTS: u64 = 8;
/// The default of the memory: this many times the requests in flight.
const USUAL_MEMORY: u64 = 2;
const PAGE_BYTES: u64 = 4096;
/// Requests of each volume in the first short measurement.
const PILOT_REQUESTS: u64 = 16;

/// A request to measure volumes.
#[derive(Clone, Debug)]
pub struct DiskRequest {
    /// Directories on the volumes that are read.
    pub inputs: Vec<PathBuf>,
    /// Directories on the volumes that are written.
    pub outputs: Vec<PathBuf>,
    /// Bytes of each input; rounded down to whole requests.
    pub bytes: u64,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Bytes of the buffers; `None`: twice the requests in flight.
    pub memory_bytes: Option<u64>,
    /// Rounds over all passes.
    pub rounds: u32,
    /// The time that the measurement should take at most, in seconds: inputs are shortened to fit.
    pub seconds: Option<f64>,
}

/// Receives what is known while DiskBench runs.
pub trait DiskObserver: Sync {
    /// The prediction, before the first pass.
    fn predicted(&self, _prediction: &Prediction) {}
    /// A pass begins; `done` is the share of the bytes moved so far.
    fn progress(&self, _pass: Option<&Pass>, _done: f64) {}
}

/// Measures the volumes. `cancel` ends it early with [`DiskError::Cancelled`].
pub fn run(
    request: &DiskRequest,
    cancel: &AtomicBool,
    observer: &dyn DiskObserver,
) -> Result<DiskReport, DiskError> {
    let inputs = find_all(&request.inputs, "read", "input")?;
    let outputs = find_all(&request.outputs, "write", "output")?;
    let passes = Pass::all();
    let memory_bytes = memory_bytes(request, inputs.len(), outputs.len(), &passes)?;
    let mut notices = notices_about(&inputs, &outputs);
    let mut sizes = sizes(request, inputs.len(), outputs.len())?;
    check_space(&DeviceShare::all(&inputs, &outputs, &sizes))?;

    let began = Instant::now();
    let (profiles, origin) = profiles(&inputs, &outputs, &sizes, memory_bytes, cancel)?;
    let predicted_seconds = |sizes: &Sizes| {
        prediction::seconds(&DeviceShare::all(&inputs, &outputs, sizes), &profiles, &passes, request.rounds)
    };
    if let Some(shorter) = within_seconds(request, &sizes, predicted_seconds(&sizes)) {
        notices.push(format!(
            "--seconds {}: {} of each input instead of {}",
            request.seconds.unwrap_or_default(),
            units::memory(shorter.input_bytes()),
            units::memory(sizes.input_bytes())
        ));
        sizes = shorter;
    }
    let space = DeviceShare::all(&inputs, &outputs, &sizes);
    let space = space.iter().map(|share| Space { directory: share.first.name.clone(), bytes: share.bytes() });
    let prediction = Prediction {
        moved_bytes: prediction::moved_bytes(&sizes, &passes, request.rounds),
        space: space.collect(),
        seconds: predicted_seconds(&sizes),
        origin,
    };
    observer.predicted(&prediction);

    let bench = Bench::new(&inputs, &outputs, sizes, memory_bytes as usize, cancel)?;
    observer.progress(None, 0.0);
    bench.lay_out()?;
    let results = rounds(&bench, &passes, request.rounds, prediction.moved_bytes, observer)?;
    append_refused_allocations(&mut notices, &results, &outputs);
    let reports =
        passes.iter().zip(&results).map(|(pass, rounds)| PassReport::new(*pass, rounds, &bench)).collect();
    Ok(DiskReport {
        inputs: inputs.iter().map(VolumeFacts::of).collect(),
        outputs: outputs.iter().map(VolumeFacts::of).collect(),
        request_bytes: sizes.request_bytes,
        memory_bytes,
        input_bytes: sizes.input_bytes(),
        rounds: request.rounds,
        prediction,
        seconds: began.elapsed().as_secs_f64(),
        passes: reports,
        notices,
    })
}

/// The results of each pass in all rounds. Every other round runs backward, so that a slow drift favours no pass.
fn rounds(
    bench: &Bench<'_>,
    passes: &[Pass],
    count: u32,
    all_bytes: u64,
    observer: &dyn DiskObserver,
) -> Result<Vec<Vec<PassResult>>, DiskError> {
    let mut results = vec![Vec::new(); passes.len()];
    for round in 0..count {
        for step in 0..passes.len() {
            let at = if round % 2 == 0 { step } else { passes.len() - 1 - step };
            let (Some(pass), Some(of_pass)) = (passes.get(at), results.get_mut(at)) else { continue };
            let done = bench.moved.load(Ordering::Relaxed) as f64 / all_bytes.max(1) as f64;
            observer.progress(Some(pass), done);
            of_pass.push(bench.pass(pass)?);
        }
    }
    Ok(results)
}

fn find_all(paths: &[PathBuf], doing: &'static str, role: &'static str) -> Result<Vec<Volume>, DiskError> {
    if paths.is_empty() {
        return Err(DiskError::NoVolume { doing, role });
    }
    for (number, path) in paths.iter().enumerate() {
        if paths.iter().take(number).any(|earlier| earlier == path) {
            return Err(DiskError::Twice { path: path.clone(), role });
        }
    }
    paths.iter().map(|path| Volume::find(path)).collect()
}

/// The memory of the buffers: all requests in flight of the busiest pass, or more.
fn memory_bytes(
    request: &DiskRequest,
    inputs: usize,
    outputs: usize,
    passes: &[Pass],
) -> Result<u64, DiskError> {
    let request_bytes = request.request_bytes;
    if request_bytes == 0 || !request_bytes.is_multiple_of(PAGE_BYTES) || request_bytes > MAX_REQUEST_BYTES {
        return Err(DiskError::Request { asked: request_bytes, max: MAX_REQUEST_BYTES });
    }
    let in_flight = passes.iter().map(|pass| pass.reads * inputs + pass.writes * outputs).max().unwrap_or(1);
    let blocks = in_flight.max(inputs * LAYOUT_DEPTH) as u64;
    let needed = blocks * request_bytes;
    match request.memory_bytes {
        Some(asked) if asked < needed => Err(DiskError::Memory { asked, needed, blocks }),
        Some(asked) => Ok(asked / request_bytes * request_bytes),
        None => Ok(USUAL_MEMORY * needed),
    }
}

fn sizes(request: &DiskRequest, inputs: usize, outputs: usize) -> Result<Sizes, DiskError> {
    let request_bytes = request.request_bytes;
    let input_requests = request.bytes / request_bytes;
    if input_requests < MIN_REQUESTS {
        let needed = MIN_REQUESTS * request_bytes;
        return Err(DiskError::TooFewBytes { asked: request.bytes, needed, request: request_bytes });
    }
    let sizes = Sizes { request_bytes, input_requests, inputs: inputs as u64, outputs: outputs as u64 };
    if sizes.output_requests(sizes.outputs - 1) < MIN_REQUESTS {
        let needed = (MIN_REQUESTS * sizes.outputs).div_ceil(sizes.inputs) * request_bytes;
        return Err(DiskError::TooFewBytes { asked: request.bytes, needed, request: request_bytes });
    }
    Ok(sizes)
}

/// Shorter inputs, if `predicted` seconds are more than the request allows.
fn within_seconds(request: &DiskRequest, sizes: &Sizes, predicted: f64) -> Option<Sizes> {
    let allowed = request.seconds.filter(|allowed| predicted > *allowed)?;
    let requests = (sizes.input_requests as f64 * allowed / predicted) as u64;
    // Enough requests for the minimum of every output.
    let least = (MIN_REQUESTS * sizes.outputs).div_ceil(sizes.inputs).max(MIN_REQUESTS);
    Some(Sizes { input_requests: requests.max(least), ..*sizes })
        .filter(|shorter| shorter.input_requests < sizes.input_requests)
}

/// An error if a device lacks the space for its files.
fn check_space(shares: &[DeviceShare]) -> Result<(), DiskError> {
    for share in shares {
        let needed = share.needed_bytes();
        let free = share.first.free_bytes()?;
        if free < needed {
            return Err(DiskError::NoSpace { path: share.first.directory.clone(), needed, free });
        }
    }
    Ok(())
}

/// The profiles of the devices, and their origin.
fn profiles(
    inputs: &[Volume],
    outputs: &[Volume],
    sizes: &Sizes,
    memory_bytes: u64,
    cancel: &AtomicBool,
) -> Result<(Vec<VolumeProfile>, &'static str), DiskError> {
    let shares = DeviceShare::all(inputs, outputs, sizes);
    let mut finder = VolumeFinder::here();
    let mut stored = |share: &DeviceShare| {
        let known = finder.volume_of(&share.first.directory)?;
        known.profile.filter(|_| matches!(known.origin, Origin::Probed(_)))
    };
    if let Some(profiles) = shares.iter().map(&mut stored).collect::<Option<Vec<_>>>() {
        return Ok((profiles, "stored profiles"));
    }
    let measured = shares.iter().map(|share| pilot(share, sizes, memory_bytes, cancel));
    Ok((measured.collect::<Result<_, _>>()?, "a first short measurement"))
}

/// Approximate rates of a device: some requests are written, and read again. It takes no more space than the
/// measurement.
fn pilot(
    share: &DeviceShare,
    sizes: &Sizes,
    memory_bytes: u64,
    cancel: &AtomicBool,
) -> Result<VolumeProfile, DiskError> {
    let volume = &share.first;
    // Its input and its output are on one volume.
    let input_requests = (share.bytes() / sizes.request_bytes / 2).clamp(1, PILOT_REQUESTS);
    let sizes = Sizes { input_requests, inputs: 1, outputs: 1, ..*sizes };
    let volumes = std::slice::from_ref(volume);
    let bench = Bench::new(volumes, volumes, sizes, memory_bytes as usize, cancel)?;
    bench.lay_out()?;
    let rate = |directions: Directions| {
        let pass = Pass::all().into_iter().find(|pass| pass.directions == directions);
        let moved = pass.map(|pass| bench.pass(&pass)).transpose()?.unwrap_or_default();
        let lane = moved.read.first().or(moved.written.first()).copied().unwrap_or_default();
        Ok::<_, DiskError>(lane.rate().max(1.0))
    };
    let read = rate(Directions::Reading)?;
    let write = rate(Directions::Writing)?;
    Ok(VolumeProfile::simple(&volume.name, read, write, 0.0))
}

fn notices_about(inputs: &[Volume], outputs: &[Volume]) -> Vec<String> {
    let mut notices: Vec<String> = Vec::new();
    for volume in inputs.iter().chain(outputs) {
        let notice = if volume.is_memory {
            format!("{} is memory: no device is behind its figures", volume.name)
        } else if volume.is_direct {
            continue;
        } else {
            format!(
                "{} refuses O_DIRECT: its figures are those of the page cache, with a sync after the last buffer",
                volume.name
            )
        };
        if !notices.contains(&notice) {
            notices.push(notice);
        }
    }
    notices
}

fn append_refused_allocations(notices: &mut Vec<String>, results: &[Vec<PassResult>], outputs: &[Volume]) {
    for (number, volume) in outputs.iter().enumerate() {
        if results.iter().flatten().any(|result| result.not_allocated.contains(&number)) {
            notices.push(format!(
                "{} cannot allocate files in advance: its passes with preallocation are as those without",
                volume.name
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;
    impl DiskObserver for Silent {}

    fn request(directory: &std::path::Path) -> DiskRequest {
        DiskRequest {
            inputs: vec![directory.to_path_buf()],
            outputs: vec![directory.to_path_buf()],
            bytes: 1 << 20,
            request_bytes: 64 << 10,
            memory_bytes: None,
            rounds: 2,
            seconds: None,
        }
    }

    fn run_quietly(request: &DiskRequest) -> Result<DiskReport, DiskError> {
        run(request, &AtomicBool::new(false), &Silent)
    }

    #[test]
    fn a_report_has_every_pass_with_its_rates() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let report = run_quietly(&request(directory.path())).unwrap();
        assert_eq!(
            (report.passes.len(), report.input_bytes, report.memory_bytes),
            (9, 1 << 20, 12 * (64 << 10))
        );
        for pass in &report.passes {
            let of_pass = &pass.pass;
            assert_eq!(pass.reading.is_some(), of_pass.reads_inputs());
            assert_eq!(pass.writing.is_some(), of_pass.writes_outputs());
            let rates = pass.reading.iter().chain(&pass.writing);
            assert!(rates.into_iter().all(|rates| rates.mean > 0.0 && rates.deviation == 0.0));
        }
        assert_eq!(report.prediction.space[0].bytes, 2 << 20);
        assert!(report.prediction.seconds > 0.0 && report.seconds > 0.0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn impossible_requests_are_refused_with_numbers() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let good = request(directory.path());
        for (bad, told) in [
            (DiskRequest { request_bytes: 1000, ..good.clone() }, "--request"),
            (DiskRequest { request_bytes: 1 << 30, ..good.clone() }, "64 MiB"),
            (DiskRequest { bytes: 65536, ..good.clone() }, "512 KiB is the least"),
            (DiskRequest { memory_bytes: Some(65536), ..good.clone() }, "384 KiB is the least"),
            (DiskRequest { bytes: 1 << 60, ..good.clone() }, "nothing was written"),
            (DiskRequest { inputs: Vec::new(), ..good.clone() }, "--input"),
            (
                DiskRequest { outputs: [&good.outputs[..], &good.outputs[..]].concat(), ..good.clone() },
                "twice",
            ),
        ] {
            let error = run_quietly(&bad).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_time_limit_shortens_the_inputs() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let limited = DiskRequest { seconds: Some(10.0), ..request(directory.path()) };
        let sizes = Sizes { request_bytes: 4096, input_requests: 1000, inputs: 1, outputs: 1 };
        assert_eq!(within_seconds(&limited, &sizes, 40.0).unwrap().input_requests, 250);
        assert_eq!(within_seconds(&limited, &sizes, 9.0), None);
        assert_eq!(within_seconds(&limited, &sizes, 1e9).unwrap().input_requests, MIN_REQUESTS);
    }
}
