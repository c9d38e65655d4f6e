//! Measures the speeds of the processors by small jobs on generated records. The accounts of these jobs give the speed
//! of each step, by which other jobs are planned.
//!
//! ```text
//!   records of a kind ─▶ form runs (sort, merge chunks) ─▶ merge runs ─▶ nowhere
//!                     └▶ split by key, sort parts ─▶ nowhere
//! ```
//!
//! The time of a step depends on the length of a record and the number of its keys, so several kinds are measured.
//! Memory, threads and queues are those of real jobs: records come from a device into memory that no cache holds, and
//! all threads work at the same time. The inputs have no names, and spills are those of any job.
//!
//! The time of a request, of a processor and of the device, and the time of a byte follow from two sorts with blocks of
//! different size. So they are those of requests as jobs with little memory issue them: small, and few at a time.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ascot_io::{Action, Compression, During};
use ascot_model::host::RecordClass;
use ascot_model::host_measurement::{HostMeasurement, KernelMeasurement};
use ascot_model::measurement::Figure;
use ascot_model::random::SplitMix64;
use ascot_model::report::Report;
use ascot_record::keys::{ByteRangeKey, KeyOptions, parse_csv_keys};
use ascot_record::layout::Layout;

use crate::api::observe::Silent;
use crate::api::request::InputChecks;
use crate::api::{Cancel, Input, Keys, Method, Output, Result, SortError, SortRequest};
use crate::jobs::sort::sort;
use crate::plan::{RunOptions, budget_of};

/// Bytes of records of a job; fewer if time is short.
const BYTES: usize = 48 << 20;
const BYTES_IN_HASTE: usize = 20 << 20;
const HASTE: Duration = Duration::from_secs(2);
/// Memory of the jobs, and of one with smaller blocks, bytes.
const MEMORY_BYTES: u64 = 16 << 20;
const SMALL_MEMORY_BYTES: u64 = 8 << 20;
/// Maximum number of repetitions.
const MAX_REPEATS: usize = 3;
/// Less time is noise of the clock, seconds.
const MIN_SECONDS: f64 = 1e-6;

/// A kind of record.
struct Subject {
    format: &'static str,
    class: RecordClass,
    /// Length of a record, bytes; of rows and lines the mean.
    bytes: usize,
    /// Columns or bytes of the keys.
    keys: &'static str,
    count: u32,
}

const SUBJECTS: [Subject; 7] = [
    Subject { format: "u64-le", class: RecordClass::Number, bytes: 8, keys: "", count: 1 },
    Subject { format: "fixed:16", class: RecordClass::Fixed, bytes: 16, keys: "", count: 1 },
    Subject { format: LONG_FORMAT, class: RecordClass::Fixed, bytes: 2000, keys: "", count: 1 },
    Subject { format: "lines", class: RecordClass::Line, bytes: 20, keys: "", count: 1 },
    Subject { format: "lines", class: RecordClass::Line, bytes: 300, keys: "", count: 1 },
    Subject { format: "csv", class: RecordClass::Computed, bytes: 50, keys: "#1:number", count: 1 },
    Subject { format: "csv", class: RecordClass::Computed, bytes: 50, keys: "#2:text,#1:number", count: 2 },
];

/// Long records take little time to compute: their jobs mostly take the time of requests.
const LONG_FORMAT: &str = "fixed:2000";

/// Bytes of the keys of fixed records.
const FIXED_KEY: std::ops::Range<usize> = 0..10;

/// Figures of one kind, by repetition.
#[derive(Default)]
struct Steps {
    sort: Vec<f64>,
    merge: Vec<f64>,
    merge_runs: Vec<f64>,
    split: Vec<f64>,
}

/// Measures the processors with files in `directory` for about `seconds`, with `threads` threads. `progress` receives
/// the completed share.
///
/// # Errors
/// Those of a sort, among them a full disk and [`SortError::Cancelled`].
pub fn measure_host(
    directory: &Path,
    threads: usize,
    seconds: f64,
    cancel: &Cancel,
    progress: &dyn Fn(f64),
) -> Result<MeasuredJobs> {
    let began = Instant::now();
    let budget = Duration::from_secs_f64(seconds);
    let bytes = if budget < HASTE { BYTES_IN_HASTE } else { BYTES };
    let jobs = Jobs { directory, threads, cancel };
    let mut steps: Vec<Steps> = SUBJECTS.iter().map(|_| Steps::default()).collect();
    let mut costs: Vec<MovingCosts> = Vec::new();
    for repeat in 0..MAX_REPEATS {
        // Another repetition takes as long as those before did in the mean.
        if repeat > 0 && began.elapsed() * (repeat as u32 + 1) / repeat as u32 > budget {
            break;
        }
        for (number, (subject, steps)) in SUBJECTS.iter().zip(&mut steps).enumerate() {
            let input = jobs.input(&subject.records(bytes))?;
            let sorted = jobs.sort(subject, &input, MEMORY_BYTES, Method::Merge)?;
            steps.add_sort(&sorted.report);
            let distributed = jobs.sort(subject, &input, MEMORY_BYTES, Method::Distribute)?;
            steps.split.extend(rate(&distributed.report, "split", "split"));
            if subject.format == LONG_FORMAT {
                let small = jobs.sort(subject, &input, SMALL_MEMORY_BYTES, Method::Merge)?;
                costs.extend(small.costs(&sorted));
            }
            let done = (repeat * SUBJECTS.len() + number + 1) as f64 / (MAX_REPEATS * SUBJECTS.len()) as f64;
            progress(done.max(began.elapsed().as_secs_f64() / seconds.max(1e-3)).min(1.0));
        }
    }
    let figure = |value: fn(&MovingCosts) -> f64| {
        let found: Vec<f64> = costs.iter().map(value).collect();
        (!found.is_empty()).then(|| Figure::new(&found))
    };
    let kernels = SUBJECTS.iter().zip(&steps).map(|(subject, steps)| steps.kernel(subject)).collect();
    let request_seconds = figure(|costs| costs.request_seconds);
    let moving = figure(|costs| 1.0 / costs.byte_seconds);
    Ok(MeasuredJobs {
        host: HostMeasurement { threads, fresh_memory: None, request_seconds, moving, kernels },
        device_request_seconds: figure(|costs| costs.device_request_seconds),
    })
}

/// The measurements of the small jobs.
#[derive(Clone, Debug)]
pub struct MeasuredJobs {
    /// The speeds of the processors.
    pub host: HostMeasurement,
    /// Seconds of the device for a request beyond those of its bytes; `None`: noise is larger.
    pub device_request_seconds: Option<Figure>,
}

/// The jobs of a measurement.
struct Jobs<'a> {
    directory: &'a Path,
    threads: usize,
    cancel: &'a Cancel,
}

/// A sort, and the bytes of its blocks.
struct Sorted {
    report: Report,
    block: usize,
}

impl Jobs<'_> {
    /// A file without a name with these records.
    fn input(&self, records: &[u8]) -> Result<File> {
        let mut file = tempfile::tempfile_in(self.directory).during(Action::Write, self.directory)?;
        file.write_all(records).during(Action::Write, self.directory)?;
        Ok(file)
    }

    fn request(
        &self,
        subject: &Subject,
        input: &File,
        memory_bytes: u64,
        method: Method,
    ) -> Result<SortRequest> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", input.as_raw_fd()));
        let layout =
            subject.format.parse::<Layout>().map_err(|_| SortError::Internal("a format of the probe"))?;
        Ok(SortRequest {
            checks: InputChecks { any_format: true, strict: false },
            memory_bytes: Some(memory_bytes),
            temp_dirs: vec![self.directory.to_path_buf()],
            method,
            compression: Compression::None,
            threads: Some(self.threads),
            ..SortRequest::new(
                vec![Input::Path(path)],
                Output::Path(PathBuf::from("/dev/null")),
                layout,
                subject.keys()?,
            )
        })
    }

    fn sort(&self, subject: &Subject, input: &File, memory_bytes: u64, method: Method) -> Result<Sorted> {
        let request = self.request(subject, input, memory_bytes, method)?;
        let report = sort(&request, &RunOptions::default(), &Silent, self.cancel)?;
        let block = budget_of(&request, Some(report.bytes_in))?.block;
        Ok(Sorted { report, block })
    }
}

/// Stages whose time is that of the records.
const KERNELS: [&str; 3] = ["sort", "merge", "split"];

/// The costs of moving bytes between a device and the steps of a job.
struct MovingCosts {
    /// Of a processor.
    request_seconds: f64,
    /// Of a processor.
    byte_seconds: f64,
    /// Of the device, beyond the time of the bytes.
    device_request_seconds: f64,
}

impl Sorted {
    /// Processor seconds of all threads but those of the kernels.
    fn moving_seconds(&self) -> f64 {
        let stages = self.report.passes.iter().flat_map(|pass| &pass.stages);
        let moving = stages.filter(|stage| !KERNELS.contains(&stage.name.as_str()));
        moving.map(|stage| stage.time.processor_seconds).sum()
    }

    /// Bytes read and written.
    fn moved_bytes(&self) -> f64 {
        (self.report.moved.read_bytes + self.report.moved.written_bytes) as f64
    }

    /// Seconds with requests in flight.
    fn device_seconds(&self) -> f64 {
        self.report.passes.iter().map(|pass| pass.device_seconds).sum()
    }

    /// The costs that explain the times of this sort and of one with larger blocks; none if noise is larger.
    fn costs(&self, larger: &Sorted) -> Option<MovingCosts> {
        let requests = |sorted: &Sorted| sorted.moved_bytes() / sorted.block as f64;
        let request_seconds =
            (self.moving_seconds() - larger.moving_seconds()) / (requests(self) - requests(larger));
        let byte_seconds =
            (larger.moving_seconds() - requests(larger) * request_seconds) / larger.moved_bytes();
        // The larger memory holds more records, so that fewer bytes move.
        let share = self.moved_bytes() / larger.moved_bytes();
        let device_request_seconds = (self.device_seconds() - share * larger.device_seconds())
            / (requests(self) - share * requests(larger));
        let possible = [request_seconds, byte_seconds, device_request_seconds];
        possible.iter().all(|seconds| seconds.is_finite() && *seconds > 0.0).then_some(MovingCosts {
            request_seconds,
            byte_seconds,
            device_request_seconds,
        })
    }
}

impl Steps {
    fn add_sort(&mut self, report: &Report) {
        self.sort.extend(rate(report, "form runs", "sort"));
        self.merge.extend(rate(report, "form runs", "merge"));
        self.merge_runs.extend(rate(report, "merge", "merge"));
    }

    fn kernel(&self, subject: &Subject) -> KernelMeasurement {
        KernelMeasurement {
            layout: subject.format.into(),
            class: subject.class,
            record_bytes: subject.bytes as f64,
            keys: subject.count,
            sort: Figure::new(&self.sort),
            merge: Figure::new(&self.merge),
            merge_runs: Some(Figure::new(&self.merge_runs)),
            split: Some(Figure::new(&self.split)),
            wide_merge: None,
        }
    }
}

/// Bytes/s of one thread of a stage, on a processor; none if the job has no such stage.
fn rate(report: &Report, pass: &str, stage: &str) -> Option<f64> {
    let passes = report.passes.iter().filter(|found| found.name == pass);
    let stage = passes.flat_map(|pass| &pass.stages).find(|found| found.name == stage)?;
    Some(stage.bytes as f64 / stage.time.processor_seconds.max(MIN_SECONDS))
}

impl Subject {
    fn keys(&self) -> Result<Keys> {
        let bad = |_| SortError::Internal("keys of the probe");
        Ok(match self.class {
            RecordClass::Number => Keys::Value { descending: false },
            RecordClass::Fixed => {
                let start = FIXED_KEY.start;
                let end = FIXED_KEY.end;
                Keys::Ranges(vec![ByteRangeKey { start, end, descending: false }])
            }
            RecordClass::Line => Keys::Command(KeyOptions::default()),
            RecordClass::Computed => Keys::Columns(parse_csv_keys(self.keys).map_err(bad)?),
        })
    }

    /// About `bytes` of records with random keys.
    fn records(&self, bytes: usize) -> Vec<u8> {
        let mut noise = SplitMix64(1);
        let mut records = Vec::with_capacity(bytes + self.bytes);
        match self.class {
            RecordClass::Number | RecordClass::Fixed => {
                let bytes = bytes / self.bytes * self.bytes;
                while records.len() < bytes {
                    records.extend_from_slice(&noise.next_u64().to_le_bytes());
                }
                records.truncate(bytes);
            }
            RecordClass::Line => {
                while records.len() < bytes {
                    // Lengths from a half to one and a half of the mean.
                    let len = self.bytes / 2 + noise.below(self.bytes as u64) as usize;
                    records.extend((1..len).map(|_| b'a' + noise.below(26) as u8));
                    records.push(b'\n');
                }
            }
            RecordClass::Computed => {
                while records.len() < bytes {
                    let number = noise.below(1 << 40);
                    let row = format!("{number},name{},", noise.below(1 << 12));
                    let rest = self.bytes.saturating_sub(row.len() + 1);
                    records.extend_from_slice(row.as_bytes());
                    records.resize(records.len() + rest, b'x');
                    records.push(b'\n');
                }
            }
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_speeds_and_nothing_is_left() {
        let directory = tempfile::tempdir_in(".").expect("a directory");
        let measured = measure_host(directory.path(), 2, 0.1, &Cancel::new(), &|_| {}).expect("measured");
        let host = measured.host;
        assert_eq!(host.check(), Ok(()));
        assert!(host.threads == 2);
        for kernel in &host.kernels {
            assert!(kernel.sort.value > 1e5 && kernel.merge.value > 1e5, "{kernel:?}");
            let measured = |figure: Option<Figure>| figure.is_some_and(|figure| figure.value > 1e5);
            assert!(measured(kernel.merge_runs) && measured(kernel.split), "{kernel:?}");
        }
        let left = std::fs::read_dir(directory.path()).expect("read").count();
        assert_eq!(left, 0);
    }

    #[test]
    fn records_have_their_length() {
        for subject in &SUBJECTS {
            let records = subject.records(1 << 20);
            let found = match subject.class {
                RecordClass::Number | RecordClass::Fixed => records.len() % subject.bytes,
                _ => {
                    let lines = records.iter().filter(|byte| **byte == b'\n').count();
                    (records.len() / lines).abs_diff(subject.bytes) * 10 / subject.bytes
                }
            };
            assert_eq!(found, 0, "{}", subject.format);
        }
    }

    #[test]
    fn it_can_be_stopped() {
        let directory = tempfile::tempdir_in(".").expect("a directory");
        let cancel = Cancel::new();
        cancel.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        let found = measure_host(directory.path(), 1, 0.1, &cancel, &|_| {});
        assert!(matches!(found, Err(SortError::Cancelled)));
        assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0);
    }
}
