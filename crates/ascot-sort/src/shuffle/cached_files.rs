//! Files whose bytes wait in the page cache until the schedule hands them to the device.
//!
//! ```text
//!   append ──▶ page cache ─ ─ ranges ─ ─▶ queue ──▶ begun (a few) ──▶ written: their memory is free
//!              WriteBehind says which      a thread of its own
//! ```
//!
//! What is appended outlives the process at once, and the power supply after [`CachedFiles::sync`].
//!
//! Invariants: what waits never exceeds the memory, except for a part of an append. Ranges are begun in the order in
//! which they came. After an error of the device every call returns it: the system reports it only once.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ascot_bowtie::engine::{WaitingMemory, Write, WriteBehind};
use ascot_io::threads::{Thread, spawn};
use ascot_io::{Action, During, IoError, Unpoisoned, await_written, begin_writing};

use crate::api::Result;

/// Longer appends are written in parts of this size, or of a share of the memory, so that each part waits for memory.
const PART_BYTES: u64 = 1 << 20;
const PART_SHARE: u64 = 16;
const MIN_PART_BYTES: u64 = 4096;
/// The device gets longer ranges in several, so that none of them takes long.
const RANGE_BYTES: u64 = 16 << 20;
/// Ranges that the device has at a time: the one it writes, and those that follow.
const BEGUN_MAX: usize = 4;

/// The limits of what waits for the device, and what came of them. Neither waits while a batch is appended.
#[derive(Debug, Default)]
pub struct WaitingControl {
    /// New limits, which hold from the next batch on: the least mean length of runs, and the most that waits, bytes.
    limits: Mutex<Option<(u64, u64)>>,
    runs: AtomicU64,
    waited_ns: AtomicU64,
}

impl WaitingControl {
    /// Sets the least mean length of the runs in which the device gets the files, and what waits for it at most, bytes.
    /// Runs are longer on a volume whose switches cost more, and shorter if the memory does not suffice.
    pub fn limit(&self, write_bytes: u64, max_bytes: u64) {
        *self.limits.lock().unpoisoned() = Some((write_bytes, max_bytes));
    }

    /// Times that the device turned to another file.
    pub fn runs(&self) -> u64 {
        self.runs.load(Relaxed)
    }

    /// The time in which appends and syncs waited for the device.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns.load(Relaxed))
    }

    /// The limits, if they are new.
    pub(super) fn changed(&self) -> Option<(u64, u64)> {
        self.limits.lock().unpoisoned().take()
    }

    pub(super) fn note(&self, files: &CachedFiles) {
        self.runs.store(files.behind.runs(), Relaxed);
        self.waited_ns.store(files.waited.as_nanos() as u64, Relaxed);
    }
}

/// Files that are appended to.
pub(super) struct CachedFiles {
    behind: WriteBehind,
    /// None: closed.
    files: Vec<Option<OpenFile>>,
    device: DeviceWriter,
    part_bytes: usize,
    /// The time in which calls waited for the device.
    waited: Duration,
}

struct OpenFile {
    file: Arc<File>,
    path: PathBuf,
    bytes: u64,
}

impl CachedFiles {
    /// No files yet.
    ///
    /// # Errors
    /// That of the system if it refuses a thread.
    pub fn new(limits: WaitingMemory) -> Result<CachedFiles> {
        let behind = WriteBehind::new(limits);
        let device = DeviceWriter::start()?;
        let part_bytes = part_bytes(limits);
        Ok(CachedFiles { behind, files: Vec::new(), device, part_bytes, waited: Duration::ZERO })
    }

    /// Sets other limits. They hold from the next append on.
    pub fn limit(&mut self, limits: WaitingMemory) {
        self.behind.limit(limits);
        self.part_bytes = part_bytes(limits);
    }

    /// Adds a file of which `bytes` are kept. Returns its number.
    pub fn add(&mut self, file: File, path: PathBuf, bytes: u64) -> usize {
        self.files.push(Some(OpenFile { file: Arc::new(file), path, bytes }));
        self.behind.add_output(bytes)
    }

    /// Appends to a file. Returns the offset.
    ///
    /// # Errors
    /// Those of the file system, also of earlier writes. The file may have some of the bytes then, and later ones
    /// follow these.
    pub fn append(&mut self, file: usize, bytes: &[u8]) -> Result<u64, IoError> {
        let start = self.bytes(file);
        for part in bytes.chunks(self.part_bytes) {
            self.make_room(part.len() as u64)?;
            let Some(OpenFile { file: open, path, bytes: end }) = &mut self.files[file] else {
                let what = "a file is appended to that was closed";
                return Err(IoError::Misuse { path: PathBuf::new(), offset: start, what });
            };
            let written = open.write_all_at(part, *end).during_at(Action::Write, path, *end);
            written.map_err(|error| error.needing(start + bytes.len() as u64 - *end))?;
            *end += part.len() as u64;
            self.behind.append(file, part.len() as u64);
        }
        Ok(start)
    }

    /// Bytes of a file; 0 if it is closed.
    pub fn bytes(&self, file: usize) -> u64 {
        self.files[file].as_ref().map_or(0, |open| open.bytes)
    }

    /// Closes a file. What waits of it is left to the system.
    pub fn close(&mut self, file: usize) {
        self.behind.forget(file);
        self.files[file] = None;
    }

    /// Hands everything to the device, and makes it durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync(&mut self) -> Result<(), IoError> {
        while let Some(write) = self.behind.rest() {
            self.begin(write);
        }
        self.behind.written(self.device.written()?);
        while self.behind.waiting_bytes() > 0 {
            self.wait()?;
        }
        let began = Instant::now();
        for OpenFile { file, path, .. } in self.files.iter().flatten() {
            let synced = file.sync_data().during(Action::Sync, path);
            synced.inspect_err(|error| self.device.fail(error))?;
        }
        self.waited += began.elapsed();
        Ok(())
    }

    fn make_room(&mut self, bytes: u64) -> Result<(), IoError> {
        self.behind.written(self.device.written()?);
        loop {
            while let Some(write) = self.behind.next(bytes) {
                self.begin(write);
            }
            if self.behind.has_room(bytes) {
                return Ok(());
            }
            self.wait()?;
        }
    }

    fn wait(&mut self) -> Result<(), IoError> {
        let began = Instant::now();
        let written = self.device.wait();
        self.waited += began.elapsed();
        self.behind.written(written?);
        Ok(())
    }

    fn begin(&mut self, Write { output, range }: Write) {
        if let Some(OpenFile { file, path, .. }) = &self.files[output] {
            let mut start = range.start;
            while start < range.end {
                let end = range.end.min(start + RANGE_BYTES);
                self.device.write(FileRange {
                    file: Arc::clone(file),
                    path: path.clone(),
                    range: start..end,
                });
                start = end;
            }
        }
    }
}

fn part_bytes(limits: WaitingMemory) -> usize {
    PART_BYTES.min(limits.max_bytes / PART_SHARE).max(MIN_PART_BYTES) as usize
}

/// A range of a file.
struct FileRange {
    file: Arc<File>,
    path: PathBuf,
    range: Range<u64>,
}

impl FileRange {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn is_followed_by(&self, next: &FileRange) -> bool {
        let is_adjacent = Arc::ptr_eq(&self.file, &next.file) && self.range.end == next.range.start;
        is_adjacent && self.bytes() + next.bytes() <= RANGE_BYTES
    }

    fn begin(&self) {
        begin_writing(&self.file, self.range.start, self.bytes());
    }

    fn wait(&self) -> Result<(), IoError> {
        let Range { start, .. } = self.range;
        await_written(&self.file, start, self.bytes()).during_at(Action::Write, &self.path, start)
    }
}

/// Hands ranges to the device until it is dropped.
struct DeviceWriter {
    shared: Arc<Shared>,
    thread: Option<Thread<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<FileRange>,
    /// Bytes written since the last call.
    written: u64,
    failed: Option<IoError>,
    ended: bool,
}

impl DeviceWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// That of the system if it refuses the thread.
    fn start() -> Result<DeviceWriter> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = Some(spawn("write", move || own.run())?);
        Ok(DeviceWriter { shared, thread })
    }

    /// Queues a range.
    fn write(&self, range: FileRange) {
        let mut state = self.shared.lock();
        match state.queue.back_mut().filter(|last| last.is_followed_by(&range)) {
            Some(last) => last.range.end = range.range.end,
            None => state.queue.push_back(range),
        }
        self.shared.changed.notify_all();
    }

    /// Keeps an error of the device, if it is the first.
    fn fail(&self, error: &IoError) {
        self.shared.lock().failed.get_or_insert_with(|| error.clone());
    }

    /// Bytes written since the last call.
    ///
    /// # Errors
    /// That of a write that failed.
    fn written(&self) -> Result<u64, IoError> {
        self.shared.lock().take()
    }

    /// The same; waits until there are any. Some must be queued.
    ///
    /// # Errors
    /// The same.
    fn wait(&self) -> Result<u64, IoError> {
        let mut state = self.shared.lock();
        while state.written == 0 && state.failed.is_none() {
            state = self.shared.changed.wait(state).unpoisoned();
        }
        state.take()
    }
}

impl State {
    fn take(&mut self) -> Result<u64, IoError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(std::mem::take(&mut self.written)),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    fn run(&self) {
        let mut begun: VecDeque<FileRange> = VecDeque::new();
        loop {
            let mut state = self.lock();
            while begun.is_empty() && state.queue.is_empty() && !state.ended {
                state = self.changed.wait(state).unpoisoned();
            }
            if state.ended {
                return;
            }
            let next = if begun.len() < BEGUN_MAX { state.queue.pop_front() } else { None };
            drop(state);
            if let Some(next) = next {
                next.begin();
                begun.push_back(next);
            } else if let Some(oldest) = begun.pop_front() {
                let result = oldest.wait();
                let mut state = self.lock();
                match result {
                    Ok(()) => state.written += oldest.bytes(),
                    Err(error) => _ = state.failed.get_or_insert(error),
                }
                self.changed.notify_all();
            }
        }
    }
}

impl Drop for DeviceWriter {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to do.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    fn file(path: &std::path::Path) -> File {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).expect("a file")
    }

    /// The system reports a failed write once; every call after it does.
    #[test]
    fn an_error_of_the_device_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        let mut files =
            CachedFiles::new(WaitingMemory { run_bytes: 1, max_bytes: 1 << 20 }).expect("a thread");
        let good = files.add(file(&path), path.clone(), 0);
        files.append(good, &[1; 100]).expect("appended");
        files.sync().expect("synced");
        // A descriptor of a name only: nothing can be written through it.
        let broken = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&path).expect("a name");
        files.device.write(FileRange { file: Arc::new(broken), path: path.clone(), range: 0..100 });
        let error = files.device.wait().expect_err("a broken file").to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        assert_eq!(files.append(good, &[1; 100]).expect_err("broken").to_string(), error);
        assert_eq!(files.device.wait().expect_err("broken").to_string(), error);
        assert!(files.sync().is_err());
    }

    /// Appends that find memory do not wait for the device, and all others do.
    #[test]
    fn what_waits_for_the_device_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        for (max_bytes, waits) in [(8 << 20, false), (1 << 20, true)] {
            let path = dir.path().join(max_bytes.to_string());
            let limits = WaitingMemory { run_bytes: 1 << 20, max_bytes };
            let mut files = CachedFiles::new(limits).expect("a thread");
            let own = files.add(file(&path), path, 0);
            files.append(own, &[1; 4 << 20]).expect("appended");
            assert_eq!(files.waited > Duration::ZERO, waits, "{max_bytes}");
            let before = files.waited;
            files.sync().expect("synced");
            assert!(files.waited > before);
            let control = WaitingControl::default();
            control.note(&files);
            assert_eq!(control.waited(), files.waited);
        }
    }

    /// A closed file frees its space, also if some of it still waits.
    #[test]
    fn a_closed_file_is_let_go_of() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        let mut files =
            CachedFiles::new(WaitingMemory { run_bytes: 1 << 20, max_bytes: 1 << 20 }).expect("a thread");
        let first = files.add(file(&path), path, 0);
        let path = dir.path().join("b");
        let second = files.add(file(&path), path.clone(), 0);
        files.append(first, &[1; 300_000]).expect("appended");
        let handle = Arc::downgrade(&files.files[first].as_ref().expect("open").file);
        files.close(first);
        assert!(handle.upgrade().is_none(), "its descriptor is closed");
        assert_eq!((files.bytes(first), files.behind.waiting_bytes()), (0, 0));
        files.append(second, &[2; 3 << 20]).expect("appended");
        files.sync().expect("synced");
        assert_eq!(std::fs::read(path).expect("a file"), [2; 3 << 20]);
    }
}
