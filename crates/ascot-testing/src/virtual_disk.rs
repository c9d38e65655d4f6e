//! A virtual disk: files in memory on a [`VirtualDevice`], whose clock shows how long a device would have taken.
//!
//! A request is performed when it begins, so runs do not depend on the timing of threads.

use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use ascot_io::{
    Buf, Direction, Filled, IoError, ReadStream, Unpoisoned, VirtualDevice, VirtualStream, WriteStream,
};
use ascot_model::volume::VolumeProfile;

/// A disk in memory, with the clock of a device; clones are the same disk.
#[derive(Clone)]
pub struct VirtualDisk {
    device: VirtualDevice,
    state: Arc<Mutex<State>>,
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

#[derive(Default)]
struct State {
    files: HashMap<String, Vec<u8>>,
    /// The runs in order, if they are to be kept.
    runs: Option<Vec<VirtualRun>>,
    /// The file and byte where the last request ended.
    head: Option<(String, u64)>,
}

impl Deref for VirtualDisk {
    type Target = VirtualDevice;

    fn deref(&self) -> &VirtualDevice {
        &self.device
    }
}

impl VirtualDisk {
    /// An empty disk with the rates, the switch cost and the cache of `volume`.
    pub fn new(volume: VolumeProfile) -> Self {
        VirtualDisk { device: VirtualDevice::new(volume), state: Arc::default() }
    }

    /// Like [`new`](Self::new), but keeps a list of all runs of a disk with one channel.
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
        self.state().files.insert(name.to_owned(), data);
    }

    /// The contents of a file, read in no virtual time; empty if it does not exist.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        self.state().files.get(name).cloned().unwrap_or_default()
    }

    /// Releases the memory of a file in no virtual time.
    pub fn remove(&self, name: &str) {
        self.store(name, Vec::new());
    }

    /// Opens a file to read the bytes of `range`, clipped to its size.
    pub fn open_read(&self, name: &str, range: Range<u64>) -> Box<dyn ReadStream> {
        let stream = self.stream(name, Direction::Read);
        let size = self.state().files.get(name).map_or(0, Vec::len) as u64;
        let start = range.start.min(size);
        let end = range.end.min(size);
        let len = end.saturating_sub(start);
        Box::new(VirtualRead { stream, next: start, end, len, done: VecDeque::new() })
    }

    /// Creates a file, or empties an existing one, to write it from the start.
    pub fn create(&self, name: &str) -> Box<dyn WriteStream> {
        self.remove(name);
        let stream = self.stream(name, Direction::Write);
        Box::new(VirtualWrite { stream, next: 0, begun: VecDeque::new() })
    }

    fn stream(&self, name: &str, direction: Direction) -> FileStream {
        let timed = self.device.open(name, direction);
        FileStream { disk: self.clone(), name: name.to_owned(), direction, timed }
    }

    /// The runs in order, if they were kept.
    pub fn runs(&self) -> Vec<VirtualRun> {
        self.state().runs.clone().unwrap_or_default()
    }
}

/// A stream's connection to the disk.
struct FileStream {
    disk: VirtualDisk,
    name: String,
    direction: Direction,
    timed: VirtualStream,
}

impl FileStream {
    /// Performs a request: advances the clock, and lets `copy` move the bytes of the file. Returns its completion
    /// time.
    fn request(&mut self, offset: u64, bytes: u64, copy: impl FnOnce(&mut Vec<u8>)) -> f64 {
        let mut state = self.disk.state();
        let state = &mut *state;
        copy(state.files.entry(self.name.clone()).or_default());
        let continues = state.head.as_ref().is_some_and(|(file, end)| *file == self.name && *end == offset);
        state.head = Some((self.name.clone(), offset + bytes));
        if let Some(runs) = &mut state.runs {
            match runs.last_mut().filter(|_| continues) {
                Some(last) => last.bytes += bytes,
                None => runs.push(VirtualRun { file: self.name.clone(), direction: self.direction, bytes }),
            }
        }
        self.timed.begin(offset, bytes)
    }

    fn misuse(&self, offset: u64, what: &'static str) -> IoError {
        IoError::Misuse { path: PathBuf::from(&self.name), offset, what }
    }
}

struct VirtualRead {
    stream: FileStream,
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
            arrives = self.stream.request(self.next, bytes, |data| {
                if let Some(data) = data.get(at..at + end) {
                    buf[..end].copy_from_slice(data);
                    whole = true;
                }
            });
            if !whole {
                let path = PathBuf::from(&self.stream.name);
                return Err(IoError::Truncated { path, offset: self.next, expected: self.end });
            }
        }
        self.next += bytes;
        self.done.push_back((Filled { buf, start: 0, end }, arrives));
        Ok(())
    }

    fn complete(&mut self) -> Result<Filled, IoError> {
        let nothing = || self.stream.misuse(self.next, "no read was begun");
        let (filled, arrives) = self.done.pop_front().ok_or_else(nothing)?;
        self.stream.timed.wait(arrives);
        Ok(filled)
    }

    fn ready(&mut self) -> bool {
        self.done.front().is_some_and(|(_, arrives)| self.stream.timed.is_complete(*arrives))
    }

    fn channel(&self) -> Option<u64> {
        Some(self.stream.timed.channel())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn len_hint(&self) -> Option<u64> {
        Some(self.len)
    }
}

struct VirtualWrite {
    stream: FileStream,
    next: u64,
    /// Completion times of the blocks begun and not waited for.
    begun: VecDeque<f64>,
}

impl WriteStream for VirtualWrite {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        if len > buf.len() {
            return Err(self.stream.misuse(self.next, "more bytes than the block has"));
        }
        if len > 0 {
            let done = self.stream.request(self.next, len as u64, |data| data.extend_from_slice(&buf[..len]));
            self.begun.push_back(done);
            self.next += len as u64;
        }
        Ok(())
    }

    fn in_flight(&mut self) -> usize {
        while self.begun.front().is_some_and(|done| self.stream.timed.is_complete(*done)) {
            self.begun.pop_front();
        }
        self.begun.len()
    }

    fn complete(&mut self) -> Result<(), IoError> {
        if let Some(done) = self.begun.pop_front() {
            self.stream.timed.wait(done);
        }
        Ok(())
    }

    fn channel(&self) -> Option<u64> {
        Some(self.stream.timed.channel())
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
