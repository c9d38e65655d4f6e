//! The ledger: counts the bytes and runs that every stream and every device has moved.
//!
//! A *switch* is a request that does not continue where its device's last request ended; a *run*
//! is the transfer between two switches. Both are counted when a request is issued, in the order of issue; bytes and
//! time are counted when it completes. A request takes one short lock. Pipes and the bytes of the program are on no
//! device: they have no runs and cost no switch.
//!
//! ```text
//!   device   a0 a1 a2 | b0 b1 | a3      3 runs (two of stream a, one of stream b)
//!   file a   a0 a1 a2 ......... a3      1 sequential run in the file
//! ```
//!
//! [`Ledger::account`] gives the counts by stream name, [`Ledger::files`] by file. A [`RequestObserver`] sees every
//! request.

mod files;
mod observer;
mod pace;

use crate::clocks::Union;
use crate::sync::Unpoisoned;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ascot_model::volume_pace::VolumePace;

pub use files::FileAccount;
use files::{Files, Row};
pub use observer::{Direction, FileNumber, IssuedRequest, Occupancies, RequestObserver, SharingStreams};
use pace::DevicePace;

/// The number of no device, as that of pipes, terminals and the program's bytes.
pub const NO_DEVICE: u64 = u64::MAX;

/// The bytes moved by one stream (all streams of one name, direction and device).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamAccount {
    /// The name given when the stream was opened.
    pub name: String,
    /// The device's number (`st_dev`), or [`NO_DEVICE`].
    pub device: u64,
    /// Reading or writing.
    pub direction: Direction,
    /// Streams opened under this name.
    pub streams: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Requests to the device.
    pub requests: u64,
    /// Runs on the device that belong to this stream: the number of switches to it.
    pub runs: u64,
    /// Sequential runs within the stream's own files.
    pub file_runs: u64,
    /// Time with at least one request in flight.
    pub busy: Duration,
}

/// The sums over all streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests to all devices.
    pub requests: u64,
    /// Runs, summed over devices.
    pub runs: u64,
    /// Time with at least one request in flight, summed over devices.
    pub busy: Duration,
}

/// Counts for one job; clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    books: Arc<Mutex<Books>>,
    observer: Option<Arc<dyn RequestObserver>>,
}

#[derive(Debug, Default)]
struct Books {
    streams: Vec<Entry>,
    by_key: HashMap<StreamKey, usize>,
    devices: Vec<Device>,
    files: Files,
}

/// All streams of one name, device and direction share an account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StreamKey {
    name: String,
    /// The device's number (`st_dev`).
    device: u64,
    direction: Direction,
}

#[derive(Debug)]
struct Entry {
    account: StreamAccount,
    device_at: usize,
    busy: Union,
}

#[derive(Debug)]
struct Device {
    number: u64,
    /// The file (inode) and byte where the last request ended.
    head: Option<(u64, u64)>,
    busy: Union,
    pace: DevicePace,
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty ledger, with an observer of the requests.
    pub fn observed(observer: Option<Arc<dyn RequestObserver>>) -> Self {
        Self { books: Arc::default(), observer }
    }

    /// The observer of the requests, if there is one.
    pub fn observer(&self) -> Option<&Arc<dyn RequestObserver>> {
        self.observer.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unpoisoned()
    }

    /// Opens (or joins) the account of a stream on `device`, reading or writing file `inode` at `path`.
    pub(crate) fn meter(
        &self,
        name: &str,
        path: &Path,
        device: u64,
        inode: u64,
        direction: Direction,
    ) -> Meter {
        let mut books = self.lock();
        let key = StreamKey { name: name.to_owned(), device, direction };
        let stream = match books.by_key.get(&key) {
            Some(at) => *at,
            None => books.open(key),
        };
        books.streams[stream].account.streams += 1;
        let row = books.files.row(name, path);
        Meter { ledger: self.clone(), stream, row, direction, inode, file_end: None, observed: None }
    }

    /// Notes that a file has been renamed.
    pub(crate) fn renamed(&self, from: &Path, to: &Path) {
        let mut books = self.lock();
        books.files.renamed(from, to);
        self.observer.iter().for_each(|observer| observer.renamed(from, to));
    }

    /// Notes that the only name of a file has been removed.
    pub(crate) fn removed(&self, file: FileNumber) {
        let _books = self.lock();
        self.observer.iter().for_each(|observer| observer.removed(file));
    }

    /// Notes that the space of the first `end` bytes of a file has been given back.
    pub(crate) fn freed(&self, file: FileNumber, end: u64) {
        let _books = self.lock();
        self.observer.iter().for_each(|observer| observer.freed(file, end));
    }

    /// The account of each file so far, by kind in the order first opened; the files of a kind beyond the number
    /// listed come last, as one sum.
    pub fn files(&self) -> Vec<FileAccount> {
        self.lock().files.accounts()
    }

    /// The account of each stream so far, in the order first opened.
    pub fn account(&self) -> Vec<StreamAccount> {
        let now = Instant::now();
        let mut books = self.lock();
        let accounts = books.streams.iter_mut().map(|entry| {
            let mut account = entry.account.clone();
            account.busy = entry.busy.open_until(now);
            account
        });
        accounts.collect()
    }

    /// The time of the requests to some devices so far, divided by kind.
    pub fn pace(&self, devices: &[u64]) -> VolumePace {
        let books = self.lock();
        let mut seen = VolumePace::default();
        let asked = books.devices.iter().filter(|device| devices.contains(&device.number));
        asked.for_each(|device| seen.add(&device.pace.seen()));
        seen
    }

    /// The sums so far.
    pub fn totals(&self) -> Totals {
        let now = Instant::now();
        let mut books = self.lock();
        let mut totals = Totals::default();
        for Entry { account, .. } in &books.streams {
            match account.direction {
                Direction::Read => totals.read_bytes += account.bytes,
                Direction::Write => totals.written_bytes += account.bytes,
            }
            totals.requests += account.requests;
            totals.runs += account.runs;
        }
        totals.busy = books.devices.iter_mut().map(|device| device.busy.open_until(now)).sum();
        totals
    }
}

impl Books {
    fn open(&mut self, key: StreamKey) -> usize {
        let number = key.device;
        let device_at = match self.devices.iter().position(|device| device.number == number) {
            Some(at) => at,
            None => {
                let device =
                    Device { number, head: None, busy: Union::default(), pace: DevicePace::default() };
                self.devices.push(device);
                self.devices.len() - 1
            }
        };
        let account = StreamAccount {
            name: key.name.clone(),
            device: number,
            direction: key.direction,
            streams: 0,
            bytes: 0,
            requests: 0,
            runs: 0,
            file_runs: 0,
            busy: Duration::ZERO,
        };
        self.streams.push(Entry { account, device_at, busy: Union::default() });
        self.by_key.insert(key, self.streams.len() - 1);
        self.streams.len() - 1
    }
}

/// Notes one stream's requests in the ledger.
#[derive(Debug)]
pub(crate) struct Meter {
    ledger: Ledger,
    stream: usize,
    row: Row,
    direction: Direction,
    inode: u64,
    file_end: Option<u64>,
    /// The file, if an observer sees its requests.
    observed: Option<FileNumber>,
}

impl Meter {
    /// Shows the requests to the file from now on to the ledger's observer.
    pub(crate) fn observe(&mut self, device: u64, path: &Path) {
        let Some(observer) = &self.ledger.observer else { return };
        let file = FileNumber { device, inode: self.inode };
        let _books = self.ledger.lock();
        observer.opened(file, path);
        self.observed = Some(file);
    }

    /// Notes that `requests` requests are moving `bytes` at `offset`; the receipt notes their completion.
    pub(crate) fn issue(&mut self, offset: u64, bytes: u64, requests: u64) -> Receipt {
        let now = Instant::now();
        let end = offset + bytes;
        let mut books = self.ledger.lock();
        let books = &mut *books;
        let entry = &mut books.streams[self.stream];
        let device = &mut books.devices[entry.device_at];
        let switched = device.number != NO_DEVICE && device.head != Some((self.inode, offset));
        if switched {
            entry.account.runs += 1;
            books.files.at(self.row).count_run(self.direction);
        }
        device.head = Some((self.inode, end));
        if self.file_end != Some(offset) {
            entry.account.file_runs += 1;
        }
        self.file_end = Some(end);
        if let (Some(observer), Some(file)) = (&self.ledger.observer, self.observed) {
            observer.issued(&IssuedRequest { at: now, file, direction: self.direction, offset, bytes });
        }
        entry.account.requests += requests;
        entry.busy.begin(now);
        device.busy.begin(now);
        device.pace.start(self.direction, now);
        let Meter { stream, row, direction, .. } = *self;
        Receipt { ledger: self.ledger.clone(), stream, row, direction, switched, since: now }
    }
}

/// A request in flight, completed once.
#[derive(Debug)]
pub(crate) struct Receipt {
    ledger: Ledger,
    stream: usize,
    row: Row,
    direction: Direction,
    switched: bool,
    since: Instant,
}

impl Receipt {
    /// Notes that the request has ended with `bytes` moved.
    pub(crate) fn complete(self, bytes: u64) {
        let now = Instant::now();
        let mut books = self.ledger.lock();
        let books = &mut *books;
        let entry = &mut books.streams[self.stream];
        entry.account.bytes += bytes;
        books.files.at(self.row).count(self.direction, bytes);
        entry.busy.end(now);
        let device = &mut books.devices[entry.device_at];
        device.busy.end(now);
        device.pace.stop(self.direction, self.switched, bytes, self.since, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_and_runs() {
        let ledger = Ledger::new();
        let mut a = ledger.meter("a", Path::new("a 10"), 1, 10, Direction::Read);
        let mut b = ledger.meter("b", Path::new("b 11"), 1, 11, Direction::Write);
        for at in 0..3 {
            a.issue(at * 100, 100, 1).complete(100);
        }
        b.issue(0, 50, 2).complete(50);
        b.issue(50, 50, 2).complete(50);
        a.issue(300, 100, 1).complete(90);
        let account = ledger.account();
        assert_eq!((account[0].runs, account[0].file_runs, account[0].requests), (2, 1, 4));
        assert_eq!((account[1].runs, account[1].file_runs, account[1].requests), (1, 1, 4));
        let totals = ledger.totals();
        assert_eq!((totals.read_bytes, totals.written_bytes), (390, 100));
        assert_eq!((totals.runs, totals.requests), (3, 8));
    }

    #[test]
    fn streams_of_one_name_share_an_account_and_devices_do_not_switch_each_other() {
        let ledger = Ledger::new();
        let mut first = ledger.meter("part", Path::new("part 10"), 1, 10, Direction::Write);
        let mut second = ledger.meter("part", Path::new("part 11"), 1, 11, Direction::Write);
        let mut other = ledger.meter("part", Path::new("part 10"), 2, 10, Direction::Write);
        first.issue(0, 10, 1).complete(10);
        other.issue(0, 10, 1).complete(10);
        first.issue(10, 10, 1).complete(10);
        second.issue(0, 10, 1).complete(10);
        let account = ledger.account();
        assert_eq!(account.len(), 2);
        assert_eq!((account[0].streams, account[0].bytes, account[0].runs), (2, 30, 2));
        assert_eq!((account[1].device, account[1].runs), (2, 1));
    }

    #[test]
    fn streams_without_a_device_cost_no_switch() {
        let ledger = Ledger::new();
        let mut input = ledger.meter("input", Path::new("-"), NO_DEVICE, 7, Direction::Read);
        let mut output = ledger.meter("output", Path::new("-"), NO_DEVICE, 8, Direction::Write);
        for at in 0..5 {
            input.issue(at * 100, 100, 1).complete(100);
            output.issue(at * 100, 100, 1).complete(100);
        }
        let runs: Vec<_> = ledger.account().iter().map(|stream| (stream.runs, stream.file_runs)).collect();
        assert_eq!(runs, [(0, 1), (0, 1)]);
    }

    #[test]
    fn busy_is_the_union_of_requests_in_flight() {
        let ledger = Ledger::new();
        let mut meter = ledger.meter("a", Path::new("a 10"), 1, 10, Direction::Read);
        let start = Instant::now();
        let first = meter.issue(0, 10, 1);
        let second = meter.issue(10, 10, 1);
        std::thread::sleep(Duration::from_millis(5));
        first.complete(10);
        assert!(ledger.totals().busy >= Duration::from_millis(5));
        second.complete(10);
        let busy = ledger.account()[0].busy;
        assert!(busy >= Duration::from_millis(5) && busy <= start.elapsed());
    }
}
