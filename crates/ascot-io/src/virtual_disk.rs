//! A virtual disk: files in memory, and a clock that shows how long a device would have taken.
//!
//! Only requests advance the clock: by their bytes over the rate of their direction, and by the cost of a switch if
//! they do not continue where the last request of their channel ended. Computing takes no virtual time. A request is
//! performed when it begins, so runs and seconds do not depend on the timing of threads.
//!
//! A *channel* is a device with its own position and its own clock; channels work side by side. A request starts when
//! it is issued, or when the earlier requests of its channel are complete. A caller that waits for a block waits
//! until its request is complete and issues none meanwhile.
//!
//! A *cache* of C bytes is shared by the open streams: once a device has switched to a stream, it moves C / streams
//! bytes of it before it must switch to that stream again, whatever it does in between. Shorter runs are joined, as
//! in the published bound ((n + m) L < C, Stella and Loguinov, section VII.B). The ledger counts runs as they are
//! requested, and [`VirtualDisk::switches`] as the device performs them.
//!
//! To run the scenario of a large machine at a smaller scale, divide memory, data, cache, blocks and the switch cost by
//! the same factor; the rates stay the same.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use ascot_model::volume::VolumeProfile;

use crate::buf::Buf;
use crate::error::IoError;
use crate::ledger::{Direction, Ledger, Meter};
use crate::stream::{Filled, ReadStream, WriteStream};
use crate::sync::Unpoisoned;

/// A disk in memory, with a clock; clones are the same disk.
#[derive(Clone)]
pub struct VirtualDisk {
    state: Arc<Mutex<State>>,
    ledger: Ledger,
}

/// The transfer of a device between two switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualRun {
    /// The file.
    pub file: String,
    /// Reading or writing.
    pub direction: Direction,
    /// Bytes moved.
    pub bytes: u64,
}

struct State {
    volume: VolumeProfile,
    files: Vec<VirtualFile>,
    by_name: HashMap<String, usize>,
    channels: Vec<Channel>,
    /// Streams open now.
    streams: u64,
    switches: u64,
    /// The runs in order, if they are to be kept.
    runs: Option<Vec<VirtualRun>>,
    /// The time of the caller that requests blocks and waits for them, in seconds.
    now: f64,
}

#[derive(Default)]
struct VirtualFile {
    data: Vec<u8>,
    channel: usize,
}

#[derive(Clone, Default)]
struct Channel {
    seconds: f64,
    /// The file and byte where the last request ended.
    head: Option<(usize, u64)>,
}

impl VirtualDisk {
    /// An empty disk with the rates, the switch cost and the cache of `volume`.
    pub fn new(volume: VolumeProfile) -> Self {
        let state = State {
            volume,
            files: Vec::new(),
            by_name: HashMap::new(),
            channels: vec![Channel::default()],
            streams: 0,
            switches: 0,
            runs: None,
            now: 0.0,
        };
        VirtualDisk { state: Arc::new(Mutex::new(state)), ledger: Ledger::new() }
    }

    /// Like [`new`](Self::new), but keeps a list of all runs.
    #[must_use]
    pub fn keeping_runs(self) -> Self {
        self.state().runs = Some(Vec::new());
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Stores a file in no virtual time; it replaces a file of the same name.
    pub fn store(&self, name: &str, data: Vec<u8>) {
        let mut state = self.state();
        let file = state.named(name);
        state.files[file].data = data;
    }

    /// Assigns a file, which need not exist yet, to a channel; by default files are on channel 0.
    pub fn assign(&self, name: &str, channel: usize) {
        let mut state = self.state();
        let file = state.named(name);
        state.files[file].channel = channel;
        let channels = state.channels.len().max(channel + 1);
        state.channels.resize(channels, Channel::default());
    }

    /// The contents of a file, read in no virtual time; empty if it does not exist.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.by_name.get(name).map(|&file| state.files[file].data.clone()).unwrap_or_default()
    }

    /// Releases the memory of a file in no virtual time.
    pub fn remove(&self, name: &str) {
        self.store(name, Vec::new());
    }

    /// Opens a file to read the bytes of `range`, clipped to its size.
    pub fn open_read(&self, name: &str, range: Range<u64>) -> Box<dyn ReadStream> {
        let context = self.context(name, Direction::Read);
        let size = self.state().files[context.file].data.len() as u64;
        let start = range.start.min(size);
        let end = range.end.min(size);
        Box::new(VirtualRead {
            context,
            next: start,
            end,
            len: end.saturating_sub(start),
            done: VecDeque::new(),
        })
    }

    /// Creates a file, or empties an existing one, to write it from the start.
    pub fn create(&self, name: &str) -> Box<dyn WriteStream> {
        self.remove(name);
        Box::new(VirtualWrite {
            context: self.context(name, Direction::Write),
            next: 0,
            begun: VecDeque::new(),
        })
    }

    /// Opens a stream that moves no data: a device's time for requests at any offsets, such as those of a trace.
    pub fn open_timed(&self, name: &str, direction: Direction) -> TimedStream {
        TimedStream(self.context(name, direction))
    }

    fn context(&self, name: &str, direction: Direction) -> VirtualContext {
        let mut state = self.state();
        let file = state.named(name);
        state.streams += 1;
        let channel = state.files[file].channel;
        let meter = self.ledger.meter(name, Path::new(name), channel as u64, file as u64, direction);
        VirtualContext { disk: self.clone(), name: name.to_owned(), file, direction, meter, in_cache: 0 }
    }

    /// Counts all bytes moved.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Seconds on the clock of the channel that was busy longest.
    pub fn seconds(&self) -> f64 {
        self.state().channels.iter().map(|channel| channel.seconds).fold(0.0, f64::max)
    }

    /// Switches that the devices performed, without those that the cache avoided.
    pub fn switches(&self) -> u64 {
        self.state().switches
    }

    /// The runs in order, if they were kept.
    pub fn runs(&self) -> Vec<VirtualRun> {
        self.state().runs.clone().unwrap_or_default()
    }
}

impl State {
    fn named(&mut self, name: &str) -> usize {
        if let Some(&file) = self.by_name.get(name) {
            return file;
        }
        self.files.push(VirtualFile::default());
        self.by_name.insert(name.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }
}

/// A stream's connection to the disk.
struct VirtualContext {
    disk: VirtualDisk,
    name: String,
    file: usize,
    direction: Direction,
    meter: Meter,
    /// Bytes that the device moves without a switch, because the cache holds them.
    in_cache: u64,
}

impl VirtualContext {
    /// Performs a request: advances the clock, and lets `copy` move the bytes of the file. Returns its completion
    /// time.
    fn request(&mut self, offset: u64, bytes: u64, copy: impl FnOnce(&mut Vec<u8>)) -> f64 {
        self.meter.issue(offset, bytes, 1).complete(bytes);
        let mut state = self.disk.state();
        let state = &mut *state;
        let file = &mut state.files[self.file];
        copy(&mut file.data);
        let channel = &mut state.channels[file.channel];
        let continues = channel.head == Some((self.file, offset));
        channel.head = Some((self.file, offset + bytes));
        channel.seconds = channel.seconds.max(state.now);
        if !continues && self.in_cache < bytes {
            state.switches += 1;
            channel.seconds += state.volume.switch_seconds.seconds(state.streams as f64);
            self.in_cache = state.volume.cache_bytes / state.streams.max(1);
        }
        self.in_cache = self.in_cache.saturating_sub(bytes);
        channel.seconds += bytes as f64
            / match self.direction {
                Direction::Read => state.volume.read_bytes_per_s,
                Direction::Write => state.volume.write_bytes_per_s,
            };
        let done = channel.seconds;
        match state.runs.as_mut().map(|runs| (runs.last_mut(), continues)) {
            Some((Some(last), true)) => last.bytes += bytes,
            Some(_) => {
                let run = VirtualRun { file: self.name.clone(), direction: self.direction, bytes };
                state.runs.get_or_insert_default().push(run);
            }
            None => {}
        }
        done
    }

    fn misuse(&self, offset: u64, what: &'static str) -> IoError {
        IoError::Misuse { path: PathBuf::from(&self.name), offset, what }
    }
}

impl Drop for VirtualContext {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        state.streams = state.streams.saturating_sub(1);
    }
}

/// A stream of requests without data. Its caller waits for each of them.
pub struct TimedStream(VirtualContext);

impl TimedStream {
    /// Moves `bytes` from or to `offset`.
    pub fn request(&mut self, offset: u64, bytes: u64) {
        // Streams that were opened meanwhile have their share, too.
        let share = {
            let state = self.0.disk.state();
            state.volume.cache_bytes / state.streams.max(1)
        };
        self.0.in_cache = self.0.in_cache.min(share);
        let done = self.0.request(offset, bytes, |_| {});
        let mut state = self.0.disk.state();
        state.now = state.now.max(done);
    }
}

struct VirtualRead {
    context: VirtualContext,
    next: u64,
    end: u64,
    len: u64,
    /// Blocks, with their arrival times.
    done: VecDeque<(Filled, f64)>,
}

impl ReadStream for VirtualRead {
    fn begin(&mut self, mut buf: Buf) -> Result<(), IoError> {
        let bytes = (self.end - self.next).min(buf.len() as u64);
        let at = self.next as usize;
        let end = bytes as usize;
        let mut arrives = 0.0;
        if bytes > 0 {
            let mut whole = false;
            arrives = self.context.request(self.next, bytes, |data| {
                if let Some(data) = data.get(at..at + end) {
                    buf[..end].copy_from_slice(data);
                    whole = true;
                }
            });
            if !whole {
                let path = PathBuf::from(&self.context.name);
                return Err(IoError::Truncated { path, offset: self.next, expected: self.end });
            }
        }
        self.next += bytes;
        self.done.push_back((Filled { buf, start: 0, end }, arrives));
        Ok(())
    }

    fn complete(&mut self) -> Result<Filled, IoError> {
        let nothing = || self.context.misuse(self.next, crate::backend::NOTHING_BEGUN);
        let (filled, arrives) = self.done.pop_front().ok_or_else(nothing)?;
        let mut state = self.context.disk.state();
        state.now = state.now.max(arrives);
        Ok(filled)
    }

    fn ready(&mut self) -> bool {
        let now = self.context.disk.state().now;
        self.done.front().is_some_and(|(_, arrives)| *arrives <= now)
    }

    fn channel(&self) -> Option<u64> {
        self.context.disk.state().files.get(self.context.file).map(|file| file.channel as u64)
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn len_hint(&self) -> Option<u64> {
        Some(self.len)
    }
}

struct VirtualWrite {
    context: VirtualContext,
    next: u64,
    /// Completion times of the blocks begun and not waited for.
    begun: VecDeque<f64>,
}

impl WriteStream for VirtualWrite {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        if len > buf.len() {
            return Err(self.context.misuse(self.next, crate::backend::TOO_LONG));
        }
        if len > 0 {
            let done =
                self.context.request(self.next, len as u64, |data| data.extend_from_slice(&buf[..len]));
            self.begun.push_back(done);
            self.next += len as u64;
        }
        Ok(())
    }

    fn in_flight(&mut self) -> usize {
        let now = self.context.disk.state().now;
        while self.begun.front().is_some_and(|done| *done <= now) {
            self.begun.pop_front();
        }
        self.begun.len()
    }

    fn complete(&mut self) -> Result<(), IoError> {
        if let Some(done) = self.begun.pop_front() {
            let mut state = self.context.disk.state();
            state.now = state.now.max(done);
        }
        Ok(())
    }

    fn channel(&self) -> Option<u64> {
        self.context.disk.state().files.get(self.context.file).map(|file| file.channel as u64)
    }

    fn drain(&mut self) -> Result<(), IoError> {
        while !self.begun.is_empty() {
            self.complete()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64, IoError> {
        Ok(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_model::volume::SwitchCost;

    fn write(stream: &mut Box<dyn WriteStream>, bytes: usize) {
        stream.begin(Buf::heap(bytes), bytes).expect("it is written");
    }

    fn near(told: f64, wanted: f64) {
        assert!((told - wanted).abs() < 1e-9, "{told} for {wanted}");
    }

    #[test]
    fn only_requests_take_time() {
        let disk = VirtualDisk::new(VolumeProfile::simple("disk", 1000.0, 500.0, 0.25)).keeping_runs();
        disk.store("in", (0..100).collect());
        near(disk.seconds(), 0.0);
        let mut input = disk.open_read("in", 0..u64::MAX);
        let mut output = disk.create("out");
        assert_eq!(input.len_hint(), Some(100));
        for _ in 0..2 {
            input.begin(Buf::heap(50)).expect("it is read");
        }
        near(disk.seconds(), 0.25 + 0.1);
        write(&mut output, 50);
        near(disk.seconds(), 0.25 + 0.1 + 0.25 + 0.1);
        assert_eq!(input.complete().expect("it is there").bytes()[49], 49);
        assert_eq!(input.complete().expect("it is there").bytes()[0], 50);
        input.begin(Buf::heap(50)).expect("nothing is read");
        assert!(input.complete().expect("the end").is_empty() && input.complete().is_err());
        assert_eq!(output.finish().expect("it is written"), 50);
        let runs: Vec<_> = disk.runs().into_iter().map(|run| (run.file, run.bytes)).collect();
        assert_eq!(runs, [("in".to_owned(), 100), ("out".to_owned(), 50)]);
        let totals = disk.ledger().totals();
        assert_eq!((totals.read_bytes, totals.written_bytes, totals.runs, disk.switches()), (100, 50, 2, 2));
        assert_eq!(disk.contents("out").len(), 50);
    }

    #[test]
    fn requests_without_data_take_the_same_time() {
        let disk = VirtualDisk::new(VolumeProfile::simple("disk", 1000.0, 500.0, 0.25));
        let mut reading = disk.open_timed("volume", Direction::Read);
        let mut writing = disk.open_timed("volume", Direction::Write);
        reading.request(100, 100);
        writing.request(200, 100);
        near(disk.seconds(), 0.25 + 0.1 + 0.2);
        reading.request(0, 100);
        assert_eq!((disk.switches(), disk.contents("volume").len()), (2, 0));
        near(disk.seconds(), 0.25 + 0.1 + 0.2 + 0.25 + 0.1);
    }

    /// The cost of a switch follows the number of open streams.
    #[test]
    fn switches_cost_what_the_curve_says() {
        let curve = SwitchCost::Curve(vec![(1.0, 1.0), (2.0, 5.0)]);
        let disk = VirtualDisk::new(VolumeProfile {
            switch_seconds: curve,
            ..VolumeProfile::simple("disk", 1000.0, 1000.0, 0.0)
        });
        let mut first = disk.create("first");
        write(&mut first, 100);
        near(disk.seconds(), 1.1);
        let mut second = disk.create("second");
        write(&mut second, 100);
        near(disk.seconds(), 1.1 + 5.1);
        drop(second);
        write(&mut first, 100);
        near(disk.seconds(), 1.1 + 5.1 + 1.1);
    }

    #[test]
    fn channels_do_not_switch_each_other() {
        let disk = VirtualDisk::new(VolumeProfile::simple("disks", 100.0, 100.0, 1.0));
        disk.assign("other", 1);
        let (mut here, mut there) = (disk.create("here"), disk.create("other"));
        for _ in 0..10 {
            write(&mut here, 10);
            write(&mut there, 20);
        }
        assert_eq!(disk.switches(), 2);
        near(disk.seconds(), 1.0 + 2.0);
    }

    /// Runs of 10 bytes count like runs of 50, the share of the cache of each of two streams.
    #[test]
    fn a_cache_joins_short_runs() {
        let volume = VolumeProfile { cache_bytes: 100, ..VolumeProfile::simple("disk", 1000.0, 1000.0, 1.0) };
        let disk = VirtualDisk::new(volume);
        let (mut one, mut other) = (disk.create("one"), disk.create("other"));
        for _ in 0..20 {
            write(&mut one, 10);
            write(&mut other, 10);
        }
        assert_eq!((disk.switches(), disk.ledger().totals().runs), (8, 40));
    }
}
