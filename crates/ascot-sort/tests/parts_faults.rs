//! A fault at many operations of jobs that write several files: each of them is then wholly new or wholly
//! as it was, and all are as they were unless it was naming them that failed. Nothing else is left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use ascot_io::{Action, Effect};
use ascot_model::report::Report;
use ascot_sort::request::{Parts, SplitBy};
use ascot_sort::{Cancel, Input, Method, Output, RunOptions, Silent, SortError, SortRequest, sort, split};
use ascot_testing::faults::{FaultPlan, Faults};
use common::kinds::{Kind, fixed, lines};
use common::shapes::{Shape, data, sort as in_order};
use common::{JobDirs, Random};

const MIB: usize = 1 << 20;
const PARTS: u32 = 5;
const OLD: &[u8] = b"an old part\n";
/// Operations of a job that fail, about.
const TRIED: u64 = 40;

/// What is done before files are named, and after.
const OPERATIONS: [Action; 5] = [Action::Open, Action::Create, Action::Read, Action::Write, Action::Sync];

struct Job {
    name: &'static str,
    dirs: JobDirs,
    request: SortRequest,
    by: Option<SplitBy>,
    wanted: Vec<Vec<u8>>,
}

impl Job {
    fn new(name: &'static str, kind: &Kind, by: Option<SplitBy>, merge_only: bool) -> Job {
        Self::by_method(name, kind, by, merge_only, Method::Auto)
    }

    fn by_method(
        name: &'static str,
        kind: &Kind,
        by: Option<SplitBy>,
        merge_only: bool,
        method: Method,
    ) -> Job {
        let dirs = JobDirs::new();
        let data = data(kind, Shape::Random, 600 << 10, 11);
        let mut random = Random::new(3);
        let mut files: Vec<Vec<&[u8]>> = vec![Vec::new(); 3];
        data.records().into_iter().for_each(|record| files[random.below(3) as usize].push(record));
        let mut inputs: Vec<Input> = Vec::new();
        for (number, file) in files.iter_mut().enumerate() {
            if merge_only {
                in_order(kind, file);
            }
            inputs.push(dirs.input(number, &[&file.concat()]));
        }
        let pattern = dirs.path().join("part-{}");
        let output = Output::Parts(Parts::new(pattern.to_str().unwrap(), PARTS).unwrap());
        let request =
            SortRequest { output, merge_only, method, ..dirs.request(kind, inputs, 8 * MIB as u64) };
        let mut job = Job { name, dirs, request, by, wanted: Vec::new() };
        job.run(None).unwrap();
        job.wanted = job.found();
        let bytes: usize = job.wanted.iter().map(Vec::len).sum();
        assert_eq!(bytes, data.bytes.len(), "{name}");
        job
    }

    fn paths(&self) -> Vec<PathBuf> {
        (0..PARTS).map(|number| self.dirs.path().join(format!("part-{number}"))).collect()
    }

    fn found(&self) -> Vec<Vec<u8>> {
        self.paths().iter().map(|path| fs::read(path).unwrap()).collect()
    }

    /// Runs it on a thread of its own: what hangs fails the test.
    fn run(&self, faults: Option<Faults>) -> Result<Report, SortError> {
        let (send, receive) = channel();
        let (request, by) = (self.request.clone(), self.by);
        std::thread::spawn(move || {
            let options = RunOptions { faults: faults.map(Into::into), ..RunOptions::default() };
            let cancel = Cancel::new();
            let result = match by {
                Some(by) => split(&request, by, &options, &Silent, &cancel),
                None => sort(&request, &options, &Silent, &cancel),
            };
            let _ = send.send(result);
        });
        receive.recv_timeout(Duration::from_secs(60)).expect("the job hangs or has panicked")
    }

    fn suffer(&self, plan: FaultPlan) {
        let what = format!("{} {plan:?}", self.name);
        let renaming = plan.operations == [Action::Rename];
        self.paths().iter().for_each(|path| fs::write(path, OLD).unwrap());
        let faults = Faults::new(plan);
        let result = self.run(Some(faults.clone()));
        let found = self.found();
        if let Err(error) = &result {
            let text = error.to_string();
            assert!(faults.fired() > 0, "{what}: fails by itself: {text}");
            let named = text.contains(self.dirs.path().to_str().unwrap());
            assert!(named, "{what}: the error names no file: {text}");
            if renaming {
                let whole = |(found, wanted): (&Vec<u8>, &Vec<u8>)| found == OLD || found == wanted;
                assert!(found.iter().zip(&self.wanted).all(whole), "{what}: a part is neither old nor new");
            } else {
                // Only the directory's sync comes after the last has its name.
                let none = found.iter().all(|found| found == OLD);
                assert!(none || found == self.wanted, "{what}: some parts are new: {text}");
            }
        } else {
            assert!(found == self.wanted, "{what}: done, but other than it should be");
        }
        let litter: Vec<PathBuf> = self
            .dirs
            .litter()
            .into_iter()
            .filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with("part-"))
            .collect();
        assert!(litter.is_empty(), "{what}: left behind: {litter:?}");
    }

    fn suffer_all(&self) {
        let counting = Faults::counting();
        self.run(Some(counting.clone())).unwrap();
        let every = std::env::var_os("ASCOT_TEST_EVERY_FAULT").is_some();
        let stride = if every { 1 } else { (counting.counted() / TRIED).max(1) };
        for (round, effect) in
            [Effect::Eio, Effect::NoSpace, Effect::TooManyOpen, Effect::Short].into_iter().enumerate()
        {
            for at in (round as u64 * 3 % stride..counting.counted()).step_by(stride as usize) {
                let operations = OPERATIONS.to_vec();
                let lasting = at % 2 == 1;
                self.suffer(FaultPlan { at, effect, operations, path_contains: String::new(), lasting });
            }
        }
        for at in 0..u64::from(PARTS) {
            let operations = vec![Action::Rename];
            let (effect, path_contains) = (Effect::Eio, "part-".to_string());
            self.suffer(FaultPlan { at, effect, operations, path_contains, lasting: false });
        }
    }
}

fn records() -> Kind {
    fixed(100, &[(0, 10, false)])
}

#[test]
fn splitting_by_range() {
    Job::new("range, fixed", &records(), Some(SplitBy::Range), false).suffer_all();
    Job::new("range, lines", &lines(false), Some(SplitBy::Range), false).suffer_all();
}

#[test]
fn splitting_by_hash() {
    Job::new("hash, fixed", &records(), Some(SplitBy::Hash), false).suffer_all();
    Job::new("hash, lines", &lines(false), Some(SplitBy::Hash), false).suffer_all();
}

#[test]
fn splitting_by_size() {
    Job::new("size, lines", &lines(false), Some(SplitBy::Size), false).suffer_all();
}

#[test]
fn reshaping() {
    Job::new("reshape, fixed", &records(), None, true).suffer_all();
    Job::new("reshape, lines", &lines(false), None, true).suffer_all();
}

#[test]
fn sorting_into_parts() {
    Job::new("sort, fixed", &records(), None, false).suffer_all();
}

#[test]
fn spilling_and_sorting_into_parts() {
    Job::by_method("distribution, fixed", &records(), None, false, Method::Distribute).suffer_all();
    Job::by_method("distribution, lines", &lines(false), None, false, Method::Distribute).suffer_all();
}
