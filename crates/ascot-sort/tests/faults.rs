//! A fault at every operation, or at many spread evenly, of jobs that spill twice: whatever fails, the
//! outcome is the right output, or an error that names a file with the old output as it was; nothing is
//! left behind, and nothing hangs.
//!
//! ```text
//!   count   the job once, only counting its operations on files: n
//!   fail    the job again for k in 0..n, its k-th operation failing: once, or from then on
//!   lie     the same for writes to spills that claim to have succeeded
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use ascot_io::{Action, Compression, Effect};
use ascot_model::volume::VolumeProfile;
use ascot_record::layout::Endian;
use ascot_sort::{Method, SortError, SortRequest};
use ascot_testing::faults::{FaultPlan, Faults};
use common::kinds::{Kind, csv, fixed, lines, lines_by_fields, numbers, prefixed};
use common::shapes::{Shape, data, sort};
use common::{JobDirs, Random, Wanted, assert_same, expected, run};

const MIB: usize = 1 << 20;
const OLD: &[u8] = b"the old output\n";

/// Everything but removing: what cannot be removed stays.
const LASTING: [Action; 6] =
    [Action::Open, Action::Create, Action::Read, Action::Write, Action::Sync, Action::Rename];

/// A job with its inputs on disk and the output it should have.
struct Job {
    name: &'static str,
    dirs: JobDirs,
    request: SortRequest,
    wanted: Vec<u8>,
    operations: u64,
    spill_writes: u64,
}

impl Job {
    fn new(name: &'static str, dirs: JobDirs, request: SortRequest, wanted: Vec<u8>) -> Job {
        let mut job = Job { name, dirs, request, wanted, operations: 0, spill_writes: 0 };
        let faults = Faults::counting();
        job.check(&faults, run(&job.request, Some(faults.clone())), "no fault");
        job.operations = faults.counted();
        let never = FaultPlan { at: u64::MAX, ..spill_write(0, Effect::Eio) };
        let faults = Faults::new(never);
        job.check(&faults, run(&job.request, Some(faults.clone())), "no fault");
        job.spill_writes = faults.counted();
        assert!(job.spill_writes > 0, "{name} does not spill");
        job
    }

    /// Inputs of a sort.
    fn sorting(name: &'static str, kind: &Kind, shape: Shape, bytes: usize, method: Method) -> Job {
        let dirs = JobDirs::new();
        let data = data(kind, shape, bytes, 5);
        let wanted = expected(kind, &data.records(), Wanted::default());
        let header = kind.header.unwrap_or_default();
        let inputs = vec![dirs.input(0, &[header, &data.bytes])];
        let request = dirs.request(kind, inputs, 8 * MIB as u64);
        let request = SortRequest { method, batch_size: Some(2), ..request };
        Job::new(name, dirs, request, wanted)
    }

    /// Sorted inputs, merged two at a time.
    fn merging(name: &'static str, kind: &Kind, bytes: usize) -> Job {
        let dirs = JobDirs::new();
        let data = data(kind, Shape::Random, bytes, 6);
        let wanted = expected(kind, &data.records(), Wanted::default());
        let mut random = Random::new(7);
        let mut files: Vec<Vec<&[u8]>> = vec![Vec::new(); 5];
        data.records().into_iter().for_each(|record| files[random.below(5) as usize].push(record));
        let mut inputs = Vec::new();
        for (number, file) in files.iter_mut().enumerate() {
            sort(kind, file);
            inputs.push(dirs.input(number, &[&file.concat()]));
        }
        let request = dirs.request(kind, inputs, 8 * MIB as u64);
        let request = SortRequest { merge_only: true, batch_size: Some(2), ..request };
        Job::new(name, dirs, request, wanted)
    }

    /// Runs the job over an old output with faults, and judges what came of it.
    fn suffer(&self, plan: FaultPlan) -> Result<(), SortError> {
        let what = format!("{plan:?}");
        fs::write(self.dirs.out(), OLD).unwrap();
        let faults = Faults::new(plan);
        let result = run(&self.request, Some(faults.clone())).map(|_| ());
        match &result {
            Ok(()) => self.check(&faults, Ok::<_, SortError>(()), &what),
            Err(error) => self.check_failed(&faults, error, &what),
        }
        let litter = self.dirs.litter();
        assert!(litter.is_empty(), "{} {what}: left behind: {litter:?}", self.name);
        result
    }

    fn check<T>(&self, _: &Faults, result: Result<T, SortError>, what: &str) {
        if let Err(error) = result {
            panic!("{} {what}: {error}", self.name);
        }
        let name = format!("{} {what}", self.name);
        assert_same(&fs::read(self.dirs.out()).unwrap(), &self.wanted, &name);
    }

    fn check_failed(&self, faults: &Faults, error: &SortError, what: &str) {
        let (name, text) = (self.name, error.to_string());
        assert!(faults.fired() > 0, "{name} {what}: fails by itself: {text}");
        let named = text.contains(self.dirs.path().to_str().unwrap());
        assert!(named, "{name} {what}: the error names no file: {text}");
        let found = fs::read(self.dirs.out()).unwrap();
        // Only the directory's sync comes after the rename.
        assert!(found == OLD || found == self.wanted, "{name} {what}: the old output is gone: {text}");
    }

    /// About `most` of the operations, or every one of them (see [`at_most`]).
    fn suffer_all(&self, most: u64, effects: &[Effect]) {
        let most = at_most(most);
        for (round, &effect) in effects.iter().enumerate() {
            for lasting in [false, true] {
                let stride = self.operations.div_ceil(most).max(1);
                let first = (round as u64 * 2 + u64::from(lasting)) * 7 % stride;
                for at in (first..self.operations).step_by(stride as usize) {
                    let operations = if lasting { LASTING.to_vec() } else { Vec::new() };
                    let plan = FaultPlan { at, effect, operations, path_contains: String::new(), lasting };
                    let result = self.suffer(plan);
                    if let (Effect::Short, Err(error)) = (effect, &result) {
                        panic!("{}: short transfers at {at} are an error: {error}", self.name);
                    }
                }
            }
        }
    }

    /// Writes of spills that lie: found out, or without consequence.
    fn be_lied_to(&self, most: u64) {
        let most = at_most(most);
        for effect in [Effect::Torn, Effect::Zeroed, Effect::Misdirected] {
            let stride = self.spill_writes.div_ceil(most).max(1);
            for at in (0..self.spill_writes).step_by(stride as usize) {
                let result = self.suffer(spill_write(at, effect));
                let text = result.err().map(|error| error.to_string()).unwrap_or_default();
                let named = text.is_empty() || text.contains(".run");
                assert!(named, "{} {effect:?} at {at}: does not name the spill: {text}", self.name);
            }
        }
    }
}

fn spill_write(at: u64, effect: Effect) -> FaultPlan {
    FaultPlan { at, effect, operations: vec![Action::Write], path_contains: ".run".into(), lasting: false }
}

/// Operations tried: `usual`, spread over the job, or with `ASCOT_TEST_EVERY_FAULT=1` each of them,
/// which takes a while.
fn at_most(usual: u64) -> u64 {
    if std::env::var_os("ASCOT_TEST_EVERY_FAULT").is_some() { u64::MAX } else { usual }
}

const FAILING: [Effect; 4] = [Effect::Eio, Effect::NoSpace, Effect::TooManyOpen, Effect::Short];

fn records() -> Kind {
    fixed(100, &[(0, 10, false)])
}

#[test]
fn merge_of_many_runs_of_fixed_records() {
    let job = Job::sorting("merge, fixed", &records(), Shape::Random, 14 * MIB, Method::Merge);
    job.suffer_all(6, &FAILING);
    job.be_lied_to(6);
}

#[test]
fn merge_of_many_runs_of_lines() {
    let job = Job::sorting("merge, lines", &lines(false), Shape::Zipf, 14 * MIB, Method::Merge);
    job.suffer_all(6, &FAILING);
    job.be_lied_to(6);
}

#[test]
fn distribution_of_fixed_records() {
    let job = Job::sorting("distribute, fixed", &records(), Shape::Random, 300 << 10, Method::Distribute);
    job.suffer_all(20, &FAILING);
    job.be_lied_to(30);
}

#[test]
fn distribution_of_lines() {
    let job = Job::sorting("distribute, lines", &lines(false), Shape::Random, 300 << 10, Method::Distribute);
    job.suffer_all(20, &FAILING);
    job.be_lied_to(30);
}

/// One of the parts does not fit in memory and is sorted by runs and merges.
#[test]
fn distribution_with_a_part_too_large() {
    let kind = lines_by_fields(false);
    let job = Job::sorting("large part", &kind, Shape::AllEqual, 12 * MIB, Method::Distribute);
    job.suffer_all(6, &FAILING);
    job.be_lied_to(6);
}

#[test]
fn merges_in_several_passes() {
    let job = Job::merging("merge only, fixed", &records(), 100 << 10);
    job.suffer_all(40, &FAILING);
    job.be_lied_to(60);
    let job = Job::merging("merge only, lines", &lines(false), 100 << 10);
    job.suffer_all(20, &FAILING);
}

#[test]
fn compressed_spills_of_numbers() {
    let kind = numbers(common::kinds::number_formats()[2], false);
    let mut job = Job::sorting("distribute, u64", &kind, Shape::Zipf, 300 << 10, Method::Distribute);
    job.request.compression = Compression::Lz4;
    job.suffer_all(30, &[Effect::Eio]);
    job.be_lied_to(30);
}

/// The layouts the others have not: one method each, fewer places.
#[test]
fn csv_and_prefixed_records() {
    for (name, kind) in [("csv", csv(false)), ("prefixed", prefixed(4, Endian::Little, &[(0, 8, false)]))] {
        for (method, bytes) in [(Method::Merge, 10 * MIB), (Method::Distribute, 300 << 10)] {
            let job = Job::sorting(name, &kind, Shape::Random, bytes, method);
            job.suffer_all(2, &[Effect::Eio, Effect::NoSpace, Effect::Short]);
        }
    }
}

/// On a volume where reading and writing take turns, a thread that fails gives its turn back.
#[test]
fn in_turns() {
    for (name, method, bytes) in
        [("merge in turns", Method::Merge, 14 * MIB), ("distribute in turns", Method::Distribute, 300 << 10)]
    {
        let mut job = Job::sorting(name, &records(), Shape::Random, bytes, method);
        job.request.volumes.volume = Some(VolumeProfile::simple("an array", 3.5e9, 3.5e9, 0.0155));
        let faults = Faults::counting();
        job.check(&faults, run(&job.request, Some(faults.clone())), "no fault");
        job.operations = faults.counted();
        job.suffer_all(10, &FAILING);
    }
}

/// After a power failure the job's directories are there, and the manifest names no run that is not.
#[test]
fn names_are_durable_before_the_manifest_has_them() {
    for (method, bytes) in [(Method::Merge, 14 * MIB), (Method::Distribute, 14 * MIB)] {
        let mut job = Job::sorting("durable", &records(), Shape::Random, bytes, method);
        let temps = ["one", "other"].map(|name| job.dirs.path().join(name));
        temps.iter().for_each(|temp| fs::create_dir(temp).unwrap());
        job.request.temp_dirs = temps.to_vec();
        let faults = Faults::recording();
        job.check(&faults, run(&job.request, Some(faults.clone())), "no fault");
        let done = faults.recorded();
        let synced = |from: usize, end: usize, path: &Path| {
            done[from..end].iter().any(|(operation, of)| *operation == Action::Sync && of == path)
        };
        let is_run = |path: &PathBuf| path.extension().is_some_and(|end| end == "run");
        let renamed_to = |name: &str| {
            let found = done.iter().enumerate().filter(move |(_, (operation, path))| {
                *operation == Action::Rename && path.to_string_lossy().ends_with(name)
            });
            found.map(|(at, _)| at).collect::<Vec<_>>()
        };
        let created = |(operation, path): &(Action, PathBuf)| *operation == Action::Create && is_run(path);
        let first_run = done.iter().position(created).unwrap();
        let home = done.iter().position(|(operation, path)| {
            *operation == Action::Rename && path.parent() == Some(&temps[0]) && !is_run(path)
        });
        let home = home.expect("the directory gets its name");
        for temp in &temps {
            assert!(synced(home, first_run, temp), "{} is not durable in {}", home, temp.display());
        }
        let mut stored = 0;
        for manifest in renamed_to("manifest.json").into_iter().filter(|at| *at > first_run) {
            for (at, (_, run)) in done[stored..manifest].iter().enumerate().filter(|(_, one)| created(one)) {
                let directory = run.parent().unwrap();
                assert!(synced(stored + at, manifest, directory), "{} has no durable name", run.display());
            }
            let home = done[manifest].1.parent().unwrap();
            assert!(synced(manifest, done.len(), home), "a manifest is not durable");
            stored = manifest;
        }
        assert!(stored > 0, "no run was stored");
        let runs = done.iter().filter(|one| created(one)).map(|(_, path)| path);
        for run in runs {
            let last = |wanted| done.iter().rposition(|(it, path)| *it == wanted && path == run);
            assert!(last(Action::Sync) > last(Action::Write), "the end of {} is lost", run.display());
        }
    }
}
