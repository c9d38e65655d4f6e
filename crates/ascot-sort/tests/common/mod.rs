//! What the tests of whole sorts share: record kinds, key shapes, an oracle, and jobs under a watchdog.
//!
//! A test makes records of a [`kinds::Kind`] with keys of a [`shapes::Shape`], sorts their files with
//! the library and in memory with [`expected`], and compares byte for byte. Jobs run on a thread of
//! their own: one that does not end fails its test instead of stopping all of them.
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

pub mod kinds;
pub mod shapes;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use ascot_io::Compression;
use ascot_model::random::SplitMix64;
use ascot_model::report::Report;
use ascot_sort::{Cancel, Input, Output, RunOptions, Silent, SortError, SortRequest, sort};
use ascot_testing::faults::Faults;

use kinds::Kind;

/// No job of these tests takes nearly as long on a machine that is not stuck.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Random numbers that are the same in every run.
#[derive(Clone)]
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Records in memory, back to back.
#[derive(Clone, Default)]
pub struct Data {
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
}

impl Data {
    pub fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
    }

    pub fn records(&self) -> Vec<&[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end]).collect()
    }

    pub fn of(records: &[&[u8]]) -> Data {
        let mut data = Data::default();
        records.iter().for_each(|record| data.push(record));
        data
    }
}

/// What a sort is asked beside its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub unique: bool,
    pub stable: bool,
    pub top: Option<usize>,
}

/// The result of a sort, by the standard library's stable sort.
pub fn expected(kind: &Kind, records: &[&[u8]], wanted: Wanted) -> Vec<u8> {
    let mut records = records.to_vec();
    let resort = kind.last_resort && !wanted.unique && !wanted.stable;
    if resort {
        records.sort_by(|a, b| (kind.order)(a, b).then_with(|| (kind.tie_break)(a, b)));
    } else {
        records.sort_by(|a, b| (kind.order)(a, b));
    }
    if wanted.unique {
        records.dedup_by(|later, first| (kind.order)(later, first).is_eq());
    }
    records.truncate(wanted.top.unwrap_or(usize::MAX));
    kind.header.iter().copied().chain(records).collect::<Vec<_>>().concat()
}

/// A directory for a job: `in-*` inputs, `out` output, `temp` for spills.
pub struct JobDirs {
    dir: tempfile::TempDir,
}

impl JobDirs {
    pub fn new() -> JobDirs {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("temp")).unwrap();
        JobDirs { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn temp(&self) -> PathBuf {
        self.path().join("temp")
    }

    pub fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    /// Writes an input file.
    pub fn input(&self, number: usize, bytes: &[&[u8]]) -> Input {
        let path = self.path().join(format!("in-{number:03}"));
        fs::write(&path, bytes.concat()).unwrap();
        Input::Path(path)
    }

    /// A request with nothing special in it.
    pub fn request(&self, kind: &Kind, inputs: Vec<Input>, memory_bytes: u64) -> SortRequest {
        SortRequest {
            header: kind.header.is_some(),
            memory_bytes: Some(memory_bytes),
            temp_dirs: vec![self.temp()],
            compression: Compression::None,
            threads: Some(2),
            ..SortRequest::new(inputs, Output::Path(self.out()), kind.layout, kind.keys.clone())
        }
    }

    /// What a job left that it should not have: spills, and files that are neither input nor output.
    pub fn litter(&self) -> Vec<PathBuf> {
        let list =
            |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let known = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name == "temp" || name == "out" || name.starts_with("in-")
        };
        let mut found = list(&self.temp());
        found.extend(list(self.path()).into_iter().filter(|path| !known(path)));
        found
    }
}

/// Sorts on a thread of its own. A job that hangs or panics fails the test.
pub fn run(request: &SortRequest, faults: Option<Faults>) -> Result<Report, SortError> {
    let (send, receive) = channel();
    let job = request.clone();
    std::thread::spawn(move || {
        let options = RunOptions { faults: faults.map(Into::into), ..RunOptions::default() };
        // The receiver is gone when the watchdog has barked.
        let _ = send.send(sort(&job, &options, &Silent, &Cancel::new()));
    });
    match receive.recv_timeout(WATCHDOG) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("the job hangs: {request:?}"),
        Err(RecvTimeoutError::Disconnected) => panic!("the job panicked: {request:?}"),
    }
}

/// Fails with the first difference rather than with megabytes.
pub fn assert_same(found: &[u8], wanted: &[u8], what: &dyn std::fmt::Display) {
    if found == wanted {
        return;
    }
    let at = found.iter().zip(wanted).take_while(|(a, b)| a == b).count();
    let show = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(40).min(bytes.len())..(at + 40).min(bytes.len())];
        part.escape_ascii().to_string()
    };
    let (lengths, found, wanted) = ((found.len(), wanted.len()), show(found), show(wanted));
    panic!("{what}: {} bytes, {} wanted; differ at {at}:\n  {found}\n  {wanted}", lengths.0, lengths.1);
}
