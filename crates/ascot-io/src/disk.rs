//! The storage seam: all file work of a job goes through a [`Disk`].
//!
//! It picks the back-end for each file, connects every stream to the ledger and the fault hook, and keeps the notices
//! for the user (such as that of a volume that refuses direct access).

mod read_range;
mod write;

pub use read_range::read_range;

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use ascot_model::measurement::{Requests, VolumeRequests};

use crate::backend::{Backend, Calls, SyncRead};
use crate::clocks::{State, call};
use crate::direct::{Descriptor, DirectRead, QueuedFile};
use crate::error::{Action, During, IoError, Result};
use crate::io_queue::IoQueue;
use crate::ledger::{Direction, FileNumber, Ledger, Meter, NO_DEVICE};
use crate::pipe::{PipeRead, PipeWrite};
use crate::program_streams::{ProgramStreams, ProgramWrite};
use crate::removal::{RemovedFiles, wait_until_freed};
use crate::space_reservation::SpaceReservation;
use crate::stream::{ReadStream, WriteStream};
use crate::stream_context::{FaultHook, StreamContext, inject_fault};
use crate::sync::Unpoisoned;
use crate::system::{self, device_of};
use crate::threads;

/// Smaller files are read through the page cache: setting up direct access costs more.
const SMALL_FILE_BYTES: u64 = 1 << 20;
/// If the page cache holds at least this share of a range, copying from it beats the device.
const MOSTLY_CACHED: f64 = 0.75;

/// Options of a [`Disk`].
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// How files are read and written.
    pub backend: Backend,
    /// Requests in flight, for each direction (direct back-end).
    pub depth: usize,
    /// Largest request to the device in bytes; buffers above it move as several requests at once
    /// (direct back-end).
    pub request_bytes: usize,
    /// Depth and request size of measured devices, by device number; they replace the defaults above.
    pub measured: Vec<(u64, VolumeRequests)>,
    /// Counts all bytes moved.
    pub ledger: Ledger,
    /// Called before every operation; tests use it to make some fail.
    pub faults: Option<Arc<dyn FaultHook>>,
    /// The streams whose other end is in this process.
    pub program: ProgramStreams,
}

/// Default for [`DiskOptions::depth`].
pub const DEFAULT_DEPTH: usize = 8;
/// Default for [`DiskOptions::request_bytes`].
pub const DEFAULT_REQUEST_BYTES: usize = 1 << 20;

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            backend: Backend::Direct,
            depth: DEFAULT_DEPTH,
            request_bytes: DEFAULT_REQUEST_BYTES,
            measured: Vec::new(),
            ledger: Ledger::new(),
            faults: None,
            program: ProgramStreams::default(),
        }
    }
}

/// Opens, creates, renames and removes files; clones share all state.
#[derive(Clone)]
pub struct Disk {
    inner: Arc<Inner>,
}

struct Inner {
    options: DiskOptions,
    /// The queue for all requests, if one was given.
    given: OnceLock<IoQueue>,
    /// Otherwise one queue per device, started on first use: devices do not wait for each other.
    queues: Mutex<HashMap<u64, IoQueue>>,
    space: SpaceReservation,
    /// If it is set, streams stop waiting for the other end of a pipe.
    stop: OnceLock<Arc<AtomicBool>>,
    notices: Mutex<Vec<String>>,
    noticed: Mutex<HashSet<(u64, &'static str)>>,
    /// Dropped last: as long as it holds a file, no thread of a queue frees its blocks.
    removed: Mutex<RemovedFiles>,
}

impl Default for Disk {
    fn default() -> Self {
        Self::new(DiskOptions::default())
    }
}

impl Disk {
    /// A disk with these options. Threads start with the first stream that needs them.
    pub fn new(options: DiskOptions) -> Self {
        let inner = Inner {
            options,
            given: OnceLock::new(),
            queues: Mutex::default(),
            space: SpaceReservation::default(),
            stop: OnceLock::new(),
            notices: Mutex::default(),
            noticed: Mutex::default(),
            removed: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Uses `queue` for everything instead of starting one for each device; false if one was given before.
    pub fn use_io_queue(&self, queue: IoQueue) -> bool {
        self.inner.given.set(queue).is_ok()
    }

    /// The queue of a device's direct back-end, started on first use.
    pub fn io_queue(&self, device: u64) -> IoQueue {
        if let Some(queue) = self.inner.given.get() {
            return queue.clone();
        }
        let mut queues = self.inner.queues.lock().unpoisoned();
        let [reads, writes] =
            [Direction::Read, Direction::Write].map(|direction| self.requests(device, direction).0);
        queues.entry(device).or_insert_with(|| IoQueue::start(reads, writes)).clone()
    }

    /// The number of requests in flight on a device in one direction, and the bytes of the largest.
    fn requests(&self, device: u64, direction: Direction) -> (usize, usize) {
        let DiskOptions { depth, request_bytes, measured, .. } = &self.inner.options;
        let Some((_, requests)) = measured.iter().find(|(number, _)| *number == device) else {
            return (*depth, *request_bytes);
        };
        let Requests { bytes, depth } = match direction {
            Direction::Read => requests.read,
            Direction::Write => requests.write,
        };
        (depth as usize, usize::try_from(bytes).unwrap_or(*request_bytes))
    }

    /// Once `flag` is set, streams opened after this call stop waiting for the other end of a pipe: waits end with
    /// [`IoError::Stopped`]. A disk belongs to one job, and has one flag.
    pub fn stop_when(&self, flag: Arc<AtomicBool>) {
        let first = self.inner.stop.get_or_init(|| Arc::clone(&flag));
        assert!(Arc::ptr_eq(first, &flag), "a disk has one flag that stops it");
    }

    /// The options this disk was made with.
    pub fn options(&self) -> &DiskOptions {
        &self.inner.options
    }

    /// Counts all bytes moved.
    pub fn ledger(&self) -> &Ledger {
        &self.inner.options.ledger
    }

    /// Notices for the user about how files were opened and the job ran.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = self.inner.notices.lock().unpoisoned().clone();
        notices.extend(threads::notice());
        notices
    }

    /// The space that the written files take, and may take.
    pub fn space(&self) -> &SpaceReservation {
        &self.inner.space
    }

    /// Notes a file that is not written through a stream, or was written by a job that was killed.
    pub fn note_written(&self, path: &Path) -> Result<()> {
        let stat = std::fs::metadata(path).during(Action::Inspect, path)?;
        self.inner.space.note_stat(&stat);
        Ok(())
    }

    fn notice(&self, device: u64, what: &'static str, path: &Path) {
        let mut noticed = self.inner.noticed.lock().unpoisoned();
        if noticed.insert((device, what)) {
            let text = format!("the volume of {} {what}", path.display());
            self.inner.notices.lock().unpoisoned().push(text);
        }
    }

    fn inject_fault(&self, action: Action, path: &Path, offset: u64) -> Result<()> {
        inject_fault(self.inner.options.faults.as_deref(), action, path, offset).map(|_| ())
    }

    /// Opens or creates a file with `options`.
    pub(crate) fn open(
        &self,
        options: &OpenOptions,
        action: Action,
        path: &Path,
        offset: u64,
    ) -> Result<(File, Metadata)> {
        self.inject_fault(action, path, offset)?;
        let file = options.open(path).during_at(action, path, offset)?;
        let stat = file.metadata().during_at(action, path, offset)?;
        Ok((file, stat))
    }

    pub(crate) fn context(
        &self,
        path: &Path,
        name: &str,
        stat: &Metadata,
        direction: Direction,
    ) -> StreamContext {
        let has_offsets = stat.is_file() || stat.file_type().is_block_device();
        let device = if has_offsets { device_of(stat) } else { NO_DEVICE };
        let mut meter = self.ledger().meter(name, path, device, stat.ino(), direction);
        if has_offsets {
            meter.observe(device, path);
        }
        self.context_with(path, meter)
    }

    fn context_with(&self, path: &Path, meter: Meter) -> StreamContext {
        StreamContext {
            path: path.to_path_buf(),
            meter,
            faults: self.inner.options.faults.clone(),
            space: self.inner.space.clone(),
            stop: self.inner.stop.get().cloned(),
        }
    }

    /// Opens a file to read the bytes of `range`, clipped to its size. Pipes and other streams are read from their
    /// current position to their end; the range must then start at 0.
    pub fn open_read(&self, path: &Path, range: Range<u64>, name: &str) -> Result<Box<dyn ReadStream>> {
        let (file, stat) = self.open(OpenOptions::new().read(true), Action::Open, path, range.start)?;
        let size = match size_of(&file, &stat).during_at(Action::Open, path, range.start)? {
            Some(size) => size,
            None if range.start > 0 => {
                return Err(IoError::Misuse {
                    path: path.to_path_buf(),
                    offset: range.start,
                    what: "a pipe can only be read from its start",
                });
            }
            None => {
                let context = self.context(path, name, &stat, Direction::Read);
                return Ok(Box::new(PipeRead::start(context, file, Vec::new())?));
            }
        };
        let end = range.end.min(size);
        let range = range.start.min(end)..end;
        let context = self.context(path, name, &stat, Direction::Read);
        Ok(self.reader(context, file, range, &stat))
    }

    fn reader(
        &self,
        context: StreamContext,
        file: File,
        range: Range<u64>,
        stat: &Metadata,
    ) -> Box<dyn ReadStream> {
        let Range { start, end } = range;
        match self.inner.options.backend {
            Backend::Sized(bytes) => {
                let calls = Calls { file: Arc::new(file), bytes: bytes.max(1) };
                Box::new(SyncRead::new(context, calls, start, end))
            }
            Backend::Direct => {
                let direct = self.prefers_direct(&file, start, end - start)
                    && self.enter_direct(&file, &context.path, stat);
                let base = self.queued_file(context, Direction::Read, Arc::new(file), direct, stat);
                Box::new(DirectRead::new(base, start, end))
            }
        }
    }

    /// Opens a descriptor for random reads of a file, through an I/O queue for every back-end. It bypasses the page
    /// cache if `direct` is set, the file is large, and the page cache does not hold most of it.
    pub(crate) fn open_random(&self, path: &Path, name: &str, direct: bool) -> Result<Descriptor> {
        let (file, stat) = self.open(OpenOptions::new().read(true), Action::Open, path, 0)?;
        let direct =
            direct && self.prefers_direct(&file, 0, stat.len()) && self.enter_direct(&file, path, &stat);
        let context = self.context(path, name, &stat, Direction::Read);
        let base = self.queued_file(context, Direction::Read, Arc::new(file), direct, &stat);
        Ok(Descriptor::new(base, device_of(&stat), stat.len()))
    }

    /// Whether to read `bytes` at `offset` past the page cache: if they are many and not cached.
    pub(crate) fn prefers_direct(&self, file: &File, offset: u64, bytes: u64) -> bool {
        self.inner.options.backend == Backend::Direct
            && bytes >= SMALL_FILE_BYTES
            && system::cached_share(file, offset, bytes) < MOSTLY_CACHED
    }

    pub(crate) fn queued_file(
        &self,
        context: StreamContext,
        direction: Direction,
        file: Arc<File>,
        direct: bool,
        stat: &Metadata,
    ) -> QueuedFile {
        let device = device_of(stat);
        let (_, request_bytes) = self.requests(device, direction);
        QueuedFile { context, queue: self.io_queue(device), file, direct, request_bytes }
    }

    /// Turns O_DIRECT on if the volume allows it.
    pub(crate) fn enter_direct(&self, file: &File, path: &Path, stat: &Metadata) -> bool {
        let entered = system::enter_direct(file).is_ok();
        if !entered {
            self.notice(
                stat.dev(),
                "does not allow direct access; its files go through the page cache",
                path,
            );
        }
        entered
    }

    /// Reads a descriptor (such as standard input) to its end: the bytes `peeked`, which were read before, and then
    /// from its position. `path` names it in errors.
    pub fn from_reader(
        &self,
        source: impl Into<OwnedFd>,
        peeked: Vec<u8>,
        path: &Path,
        name: &str,
    ) -> Result<Box<dyn ReadStream>> {
        let file = File::from(source.into());
        let stat = file.metadata().during(Action::Inspect, path)?;
        let context = self.context(path, name, &stat, Direction::Read);
        system::widen_pipe(&file);
        Ok(Box::new(PipeRead::start(context, file, peeked)?))
    }

    /// Writes to a descriptor (such as standard output) from its position. `path` names it in errors.
    pub fn to_writer(
        &self,
        sink: impl Into<OwnedFd>,
        path: &Path,
        name: &str,
    ) -> Result<Box<dyn WriteStream>> {
        let file = File::from(sink.into());
        let stat = file.metadata().during(Action::Inspect, path)?;
        let context = self.context(path, name, &stat, Direction::Write);
        let writing = self.context(path, name, &stat, Direction::Write);
        system::widen_pipe(&file);
        Ok(Box::new(PipeWrite::new(context, writing, file)))
    }

    /// Reads the bytes that this program makes for its input `number`. `path` names them in errors.
    ///
    /// # Errors
    /// The program makes none, or they are being read.
    pub fn open_program_source(&self, number: usize, path: &Path, name: &str) -> Result<Box<dyn ReadStream>> {
        let context = self.program_context(path, name, Direction::Read);
        match self.inner.options.program.take_source(number) {
            Some(source) => Ok(Box::new(PipeRead::from_source(context, source)?)),
            None => Err(context.misuse(0, "the program passes no records")),
        }
    }

    /// Hands blocks to this program. `path` names them in errors.
    ///
    /// # Errors
    /// The program takes none.
    pub fn open_program_sink(&self, path: &Path, name: &str) -> Result<Box<dyn WriteStream>> {
        let context = self.program_context(path, name, Direction::Write);
        match self.inner.options.program.take_sink() {
            Some(sink) => Ok(Box::new(ProgramWrite::new(context, sink))),
            None => Err(context.misuse(0, "the program takes no records")),
        }
    }

    fn program_context(&self, path: &Path, name: &str, direction: Direction) -> StreamContext {
        // No file has this number.
        self.context_with(path, self.ledger().meter(name, path, NO_DEVICE, 0, direction))
    }

    /// Renames a file within its volume, replacing any file with the new name.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inject_fault(Action::Rename, to, 0)?;
        let replaced = std::fs::symlink_metadata(to);
        std::fs::rename(from, to).during(Action::Rename, to)?;
        if let Ok(stat) = replaced {
            self.inner.space.forget(&stat);
        }
        self.ledger().renamed(from, to);
        Ok(())
    }

    /// Removes a file.
    pub fn remove_file(&self, path: &Path) -> Result<()> {
        self.inject_fault(Action::Remove, path, 0)?;
        let stat = std::fs::symlink_metadata(path);
        call(State::Device, || std::fs::remove_file(path)).during(Action::Remove, path)?;
        if let Ok(stat) = stat {
            self.inner.space.forget(&stat);
            if stat.nlink() <= 1 {
                self.ledger().removed(FileNumber { device: device_of(&stat), inode: stat.ino() });
            }
        }
        Ok(())
    }

    /// Removes the name of a file. Blocks of a large one are freed on a thread of their own after this disk was
    /// dropped.
    ///
    /// # Errors
    /// The name could not be removed.
    pub fn remove_name(&self, path: &Path) -> io::Result<()> {
        self.inner.removed.lock().unpoisoned().remove(path)
    }

    /// Frees the blocks of a file whose name was removed as those of [`remove_name`](Self::remove_name).
    pub(crate) fn free_later(&self, file: File) {
        self.inner.removed.lock().unpoisoned().hold(file);
    }

    /// Makes the names in a directory durable: files created, renamed and removed in it.
    pub fn sync_dir(&self, directory: &Path) -> Result<()> {
        self.inject_fault(Action::Sync, directory, 0)?;
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let synced = call(State::Device, || File::open(directory).and_then(|file| file.sync_all()));
        match synced {
            // Some file systems cannot sync a directory, and need not.
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTSUP)) => {
                Err(IoError::from_os(Action::Sync, directory, 0, error))
            }
            _ => Ok(()),
        }
    }

    /// Bytes still free on the volume of `path`, which need not exist yet.
    pub fn free_space(&self, path: &Path) -> Result<u64> {
        wait_until_freed();
        system::free_space(path).during(Action::Inspect, path)
    }

    /// Gives the blocks of `[0, end)` back to the volume; the file keeps its length and reads zeros there. False if
    /// the volume cannot.
    pub fn punch(&self, path: &Path, end: u64) -> Result<bool> {
        let failed = |error| IoError::from_os(Action::Resize, path, 0, error);
        let mut options = OpenOptions::new();
        let file = options.write(true).custom_flags(libc::O_NOFOLLOW).open(path).map_err(failed)?;
        if end == 0 {
            return Ok(true);
        }
        let punched = call(State::Device, || system::punch(&file, end));
        self.inner.space.note(&file);
        match punched {
            Ok(()) => {
                if let Ok(stat) = file.metadata() {
                    self.ledger().freed(FileNumber { device: device_of(&stat), inode: stat.ino() }, end);
                }
                Ok(true)
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

/// The size of a file that can be read at offsets; `None` for pipes, terminals and character devices.
fn size_of(file: &File, stat: &Metadata) -> io::Result<Option<u64>> {
    let kind = stat.file_type();
    if kind.is_file() {
        Ok(Some(stat.len()))
    } else if kind.is_block_device() {
        let mut file = file;
        io::Seek::seek(&mut file, io::SeekFrom::End(0)).map(Some)
    } else if kind.is_dir() {
        Err(io::Error::from_raw_os_error(libc::EISDIR))
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_a_device_was_measured() {
        let requests = |bytes, depth| Requests { bytes, depth };
        let volume = VolumeRequests { read: requests(4 << 20, 16), write: requests(1 << 18, 2) };
        let disk = Disk::new(DiskOptions { measured: vec![(7, volume)], ..DiskOptions::default() });
        assert_eq!(disk.requests(7, Direction::Read), (16, 4 << 20));
        assert_eq!(disk.requests(7, Direction::Write), (2, 1 << 18));
        assert_eq!(disk.requests(8, Direction::Write), (DEFAULT_DEPTH, DEFAULT_REQUEST_BYTES));
    }

    #[test]
    fn devices_have_queues_of_their_own() {
        let disk = Disk::default();
        assert!(disk.io_queue(1).is(&disk.io_queue(1)));
        assert!(!disk.io_queue(1).is(&disk.io_queue(2)));
        let given = IoQueue::start_threads(1);
        assert!(disk.use_io_queue(given.clone()));
        assert!(disk.io_queue(1).is(&given) && disk.io_queue(2).is(&given));
    }

    #[test]
    fn a_replaced_file_takes_no_space_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::default();
        let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
        for path in [&old, &new] {
            std::fs::write(path, vec![1; 1 << 20]).unwrap();
            File::open(path).unwrap().sync_all().unwrap();
            disk.note_written(path).unwrap();
        }
        disk.space().limit(8 << 20);
        assert_eq!(disk.space().left(), Some(6 << 20));
        disk.rename(&new, &old).unwrap();
        assert_eq!(disk.space().left(), Some(7 << 20));
    }
}
