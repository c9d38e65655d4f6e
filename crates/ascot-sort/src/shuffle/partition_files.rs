//! A destination: a directory with one file for each of its partitions, and a log of the batches that are in them.
//!
//! ```text
//!   destination/
//!     batches             magic "ASCOTBAT", version 1, destination, job (16), CRC-32C of these       36 bytes
//!                         for each batch: length, CRC-32C, chunk, number, last, pieces (4 each), and
//!                                         for each piece: partition, CRC-32C (4), offset, bytes (8)
//!     partition-00012     pieces, in the order in which they arrived
//! ```
//!
//! A batch is appended to the files first and to the log then. A log that ends within an entry is cut there; the bytes
//! that the lost entry named are overwritten. The device gets the bytes in runs that its switches need
//! (`cached_files.rs`).
//!
//! Invariants: one process writes to a destination at a time. A batch counts once, however often it arrives. Only files
//! that the log of this job names are read or removed. Memory grows by a few words for each chunk, not with the bytes;
//! what waits for the device has a cap.

use std::collections::btree_map::{BTreeMap, Entry};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascot_bowtie::engine::WaitingMemory;
use ascot_io::{Action, During, IoError, O_NOFOLLOW, crc32c};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::batch::{BATCHES_MAX, Batch, BatchNumber, BatchPiece, JobId};
use super::cached_files::{CachedFiles, WaitingControl};
use super::entries::Entries;
use super::received::Received;
use crate::api::{Result, SortError};
use crate::plan::find_volumes::volumes_of;

const LOG: &str = "batches";
const MAGIC: &[u8; 8] = b"ASCOTBAT";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 36;
/// The writer of a driver that was killed ends within seconds.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// The log is read in blocks of this size: it grows with the chunks of the job.
const LOG_BUFFER_BYTES: usize = 1 << 20;
/// The least mean length of the runs in which the device gets the files, bytes, unless a job has another.
const WRITE_BYTES: u64 = 4 << 20;
/// What waits for the device at most, bytes, unless a job has another: on flash, what the runs of 14 partitions need.
const WAITING_BYTES: u64 = 32 << 20;
/// Switches may take this share of the time of writing.
const SWITCH_SHARE: f64 = 0.05;
/// Length and checksum before an entry.
const FRAME_BYTES: usize = 8;
/// An entry without its pieces, and a piece.
const ENTRY_BYTES: usize = 16;
const PIECE_BYTES: usize = 24;

/// A destination that batches are appended to.
pub struct PartitionFiles {
    dir: PathBuf,
    job: JobId,
    destination: u32,
    log: File,
    log_bytes: u64,
    /// The file of each partition, by its number in `cached`.
    files: BTreeMap<u32, usize>,
    cached: CachedFiles,
    chunks: BTreeMap<u32, Received>,
    /// The length of run that the volume needs, bytes.
    volume_run_bytes: u64,
    control: Arc<WaitingControl>,
}

/// A piece in a file of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredPiece {
    pub partition: u32,
    pub sum: u32,
    pub offset: u64,
    pub bytes: u64,
}

/// An entry of the log.
pub(super) struct LogEntry {
    pub number: BatchNumber,
    pub pieces: Vec<StoredPiece>,
}

/// The file of a partition.
pub(super) fn partition_path(dir: &Path, partition: u32) -> PathBuf {
    dir.join(format!("partition-{partition:05}"))
}

fn damaged(path: &Path, offset: u64, what: &'static str) -> IoError {
    IoError::Corrupt { path: path.to_path_buf(), offset, block: 0, what }
}

/// The length of run that the volume of a directory needs, bytes, by the cost of a switch between two files: how many
/// partitions there will be is not known yet.
fn run_bytes_of(dir: &Path) -> u64 {
    let volume = volumes_of(dir).0.and_then(|volumes| volumes.volume);
    volume.map_or(0, |volume| volume.run_bytes(SWITCH_SHARE, 2.0) as u64)
}

fn open_private(path: &Path) -> Result<File, IoError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(O_NOFOLLOW)
        .open(path)
        .during(Action::Create, path)
}

/// Keeps other processes from writing to the destination of this log, until the file is closed.
fn lock(log: &File, path: &Path, wait: Duration) -> Result<(), IoError> {
    let deadline = Instant::now() + wait;
    loop {
        match flock(log, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(error) if error == Errno::WOULDBLOCK && Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(error) if error == Errno::WOULDBLOCK => {
                let what = "another process writes to this destination\n  end that process, or wait for it";
                return Err(IoError::Misuse { path: path.to_path_buf(), offset: 0, what });
            }
            Err(error) => return Err(IoError::from_os(Action::Open, path, 0, error.into())),
        }
    }
}

fn header(job: JobId, destination: u32) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(destination.to_le_bytes());
    bytes.extend(job);
    bytes.extend(crc32c(&[&bytes]).to_le_bytes());
    bytes
}

/// Whether these bytes are the header of a log, of any job.
fn is_header(bytes: &[u8]) -> bool {
    let (fields, sum) = bytes.split_at(HEADER_BYTES - 4);
    fields.starts_with(MAGIC) && sum == crc32c(&[fields]).to_le_bytes()
}

/// Reads the log of a destination. Returns its whole entries and their end.
///
/// # Errors
/// [`SortError::Request`] for the log of another job or destination, [`IoError::Corrupt`] for one without a header.
pub(super) fn read_log(
    dir: &Path,
    job: JobId,
    destination: u32,
    mut take: impl FnMut(LogEntry),
) -> Result<u64> {
    let path = dir.join(LOG);
    let log = File::open(&path).during(Action::Read, &path)?;
    let size = log.metadata().during(Action::Read, &path)?.len();
    if size == 0 {
        return Ok(0);
    }
    let mut log = BufReader::with_capacity(LOG_BUFFER_BYTES, log);
    let mut own_header = [0; HEADER_BYTES];
    let whole = read_or_end(&mut log, &mut own_header).during(Action::Read, &path)?;
    if !whole || !is_header(&own_header) {
        return Err(damaged(&path, 0, "the log of a destination has no valid header").into());
    }
    if own_header[..] != header(job, destination)[..] {
        return Err(SortError::Request(format!(
            "{}: this is the directory of another job\n  name other directories for temporary files (temp=)",
            dir.display()
        )));
    }
    let mut end = HEADER_BYTES as u64;
    let mut bytes = Vec::new();
    while let Some(entry) =
        next_entry(&mut log, size - end, &mut bytes).during_at(Action::Read, &path, end)?
    {
        end += (FRAME_BYTES + bytes.len()) as u64;
        take(entry);
    }
    Ok(end)
}

/// Fills `out`; false if the file ends before.
fn read_or_end(log: &mut impl Read, out: &mut [u8]) -> std::io::Result<bool> {
    match log.read_exact(out) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| true),
    }
}

/// Reads the next entry to `bytes`. None if it is not whole: the log has `left` more bytes.
fn next_entry(log: &mut impl Read, left: u64, bytes: &mut Vec<u8>) -> std::io::Result<Option<LogEntry>> {
    let mut frame = [0; FRAME_BYTES];
    if !read_or_end(log, &mut frame)? {
        return Ok(None);
    }
    let mut fields = Entries(&frame);
    let (Some(length), Some(sum)) = (fields.u32(), fields.u32()) else { return Ok(None) };
    if u64::from(length) + FRAME_BYTES as u64 > left {
        return Ok(None);
    }
    bytes.resize(length as usize, 0);
    Ok((read_or_end(log, bytes)? && crc32c(&[bytes]) == sum).then(|| entry_of(bytes)).flatten())
}

fn entry_of(bytes: &[u8]) -> Option<LogEntry> {
    let mut entry = Entries(bytes);
    let chunk = entry.u32()?;
    let number = entry.u32()?;
    let last = entry.u32()?;
    let count = entry.u32()?;
    if number >= BATCHES_MAX || entry.0.len() != (count as usize).checked_mul(PIECE_BYTES)? {
        return None;
    }
    let mut pieces = Vec::with_capacity(count as usize);
    while let (Some(partition), Some(sum)) = (entry.u32(), entry.u32()) {
        pieces.push(StoredPiece { partition, sum, offset: entry.u64()?, bytes: entry.u64()? });
    }
    let number = BatchNumber { chunk, destination: 0, number, last: last != 0 };
    Some(LogEntry { number, pieces })
}

impl PartitionFiles {
    /// Opens a destination, or creates it. Batches that are in its files count.
    ///
    /// # Errors
    /// Those of the file system, also if another process has the destination open for longer than `LOCK_WAIT`;
    /// [`SortError::Request`] for the directory of another job; [`IoError::Corrupt`] if the log has no header.
    pub fn open(dir: &Path, job: JobId, destination: u32) -> Result<PartitionFiles> {
        Self::open_within(dir, job, destination, LOCK_WAIT)
    }

    fn open_within(dir: &Path, job: JobId, destination: u32, wait: Duration) -> Result<PartitionFiles> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).during(Action::Create, dir)?;
        let path = dir.join(LOG);
        let log = open_private(&path)?;
        lock(&log, &path, wait)?;
        let mut chunks: BTreeMap<u32, Received> = BTreeMap::new();
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        let mut log_bytes = read_log(dir, job, destination, |entry| {
            chunks.entry(entry.number.chunk).or_default().note(entry.number);
            for piece in entry.pieces {
                let end = ends.entry(piece.partition).or_default();
                *end = (*end).max(piece.offset.saturating_add(piece.bytes));
            }
        })?;
        if log_bytes == 0 {
            let header = header(job, destination);
            log.write_all_at(&header, 0).during(Action::Write, &path)?;
            log_bytes = header.len() as u64;
        }
        log.set_len(log_bytes).during(Action::Resize, &path)?;
        let volume_run_bytes = run_bytes_of(dir);
        let run_bytes = volume_run_bytes.max(WRITE_BYTES);
        let mut cached = CachedFiles::new(WaitingMemory { run_bytes, max_bytes: WAITING_BYTES })?;
        let mut files = BTreeMap::new();
        for (partition, bytes) in ends {
            // The file of a partition that is done is gone.
            let path = partition_path(dir, partition);
            if path.exists() {
                files.insert(partition, cached.add(open_private(&path)?, path, bytes));
            }
        }
        let dir = dir.to_path_buf();
        let control = Arc::default();
        Ok(PartitionFiles {
            dir,
            job,
            destination,
            log,
            log_bytes,
            files,
            cached,
            chunks,
            volume_run_bytes,
            control,
        })
    }

    /// What sets the limits of what waits for the device.
    pub fn control(&self) -> Arc<WaitingControl> {
        Arc::clone(&self.control)
    }

    /// Appends the bytes of a batch, as [`PartitionFiles::append_batch`] does.
    ///
    /// # Errors
    /// The same, and [`IoError::Corrupt`] for a batch that was damaged on its way.
    pub fn append(&mut self, bytes: &[u8]) -> Result<bool> {
        let batch = Batch::parse(bytes).map_err(|what| damaged(&self.dir.join(LOG), self.log_bytes, what))?;
        self.append_batch(&batch)
    }

    /// Appends a batch. Returns whether it is new: one that is in the files already changes nothing.
    ///
    /// # Errors
    /// [`IoError::Corrupt`] for a batch of another destination, and the errors of the file system. The batch does not
    /// count then, and may be appended again.
    pub fn append_batch(&mut self, batch: &Batch<'_>) -> Result<bool> {
        let path = self.dir.join(LOG);
        if batch.job != self.job || batch.number.destination != self.destination {
            return Err(damaged(&path, self.log_bytes, "a batch is for another destination").into());
        }
        if let Some((write_bytes, max_bytes)) = self.control.changed() {
            let run_bytes = self.volume_run_bytes.max(write_bytes);
            self.cached.limit(WaitingMemory { run_bytes, max_bytes });
        }
        let received = self.chunks.get(&batch.number.chunk).copied().unwrap_or_default();
        if received.has(batch.number) {
            return Ok(false);
        }
        if !received.takes(batch.number) {
            return Err(damaged(&path, self.log_bytes, "batches before this one are missing").into());
        }
        self.check_place(&path)?;
        let mut stored = Vec::with_capacity(batch.pieces.len());
        for piece in &batch.pieces {
            stored.push(self.append_piece(piece, &batch.bytes[piece.range.clone()])?);
        }
        self.log_batch(&path, batch.number, &stored)?;
        self.chunks.entry(batch.number.chunk).or_default().note(batch.number);
        self.control.note(&self.cached);
        Ok(true)
    }

    /// Checks that the log has its name: files of a volume that was unmounted can be written on, and nobody finds them.
    fn check_place(&self, path: &Path) -> Result<(), IoError> {
        let own = self.log.metadata().during(Action::Inspect, path)?;
        let named = std::fs::symlink_metadata(path).during(Action::Open, path)?;
        let is_own = (own.dev(), own.ino()) == (named.dev(), named.ino());
        is_own.then_some(()).ok_or(Errno::NOENT).during(Action::Open, path)
    }

    fn append_piece(&mut self, piece: &BatchPiece, bytes: &[u8]) -> Result<StoredPiece, IoError> {
        let file = match self.files.entry(piece.partition) {
            Entry::Occupied(file) => *file.get(),
            Entry::Vacant(new) => {
                let path = partition_path(&self.dir, piece.partition);
                *new.insert(self.cached.add(open_private(&path)?, path, 0))
            }
        };
        let offset = self.cached.append(file, bytes)?;
        Ok(StoredPiece { partition: piece.partition, sum: piece.sum, offset, bytes: bytes.len() as u64 })
    }

    fn log_batch(&mut self, path: &Path, number: BatchNumber, pieces: &[StoredPiece]) -> Result<(), IoError> {
        let mut entry = Vec::with_capacity(ENTRY_BYTES + pieces.len() * PIECE_BYTES);
        for field in [number.chunk, number.number, u32::from(number.last), pieces.len() as u32] {
            entry.extend(field.to_le_bytes());
        }
        for piece in pieces {
            entry.extend(piece.partition.to_le_bytes());
            entry.extend(piece.sum.to_le_bytes());
            entry.extend(piece.offset.to_le_bytes());
            entry.extend(piece.bytes.to_le_bytes());
        }
        let mut framed = Vec::with_capacity(FRAME_BYTES + entry.len());
        framed.extend((entry.len() as u32).to_le_bytes());
        framed.extend(crc32c(&[&entry]).to_le_bytes());
        framed.extend(entry);
        self.log.write_all_at(&framed, self.log_bytes).during_at(Action::Write, path, self.log_bytes)?;
        self.log_bytes += framed.len() as u64;
        Ok(())
    }

    /// The chunks all of whose batches are in the files, ascending.
    pub fn complete_chunks(&self) -> Vec<u32> {
        self.chunks.iter().filter(|(_, received)| received.is_complete()).map(|(&chunk, _)| chunk).collect()
    }

    /// Bytes in the files.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|&file| self.cached.bytes(file)).sum()
    }

    /// Makes all batches durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync(&mut self) -> Result<()> {
        self.cached.sync()?;
        self.control.note(&self.cached);
        let path = self.dir.join(LOG);
        Ok(self.log.sync_data().during(Action::Sync, &path)?)
    }

    /// Removes the file of a partition that is done.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove_partition(&mut self, partition: u32) -> Result<()> {
        match self.files.remove(&partition) {
            None => Ok(()),
            Some(file) => {
                self.cached.close(file);
                remove(&partition_path(&self.dir, partition))
            }
        }
    }

    /// Removes the destination with all files of its log.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(mut self) -> Result<()> {
        while let Some((partition, _)) = self.files.pop_first() {
            remove(&partition_path(&self.dir, partition))?;
        }
        remove(&self.dir.join(LOG))?;
        // Other files in the directory are not ours; they and the directory stay.
        let _stays = std::fs::remove_dir(&self.dir);
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(IoError::from_os(Action::Remove, path, 0, error).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::{batch_bytes, write_batch};
    use super::*;

    const JOB: JobId = [5; 16];

    fn batch(chunk: u32, number: u32, last: bool, pieces: &[(u32, &[u8])]) -> Vec<u8> {
        let lengths: Vec<(u32, usize)> = pieces.iter().map(|(part, bytes)| (*part, bytes.len())).collect();
        let mut bytes = vec![0; batch_bytes(&lengths)];
        let number = BatchNumber { chunk, destination: 2, number, last };
        write_batch(JOB, number, &lengths, &mut bytes, |at, out| out.copy_from_slice(pieces[at].1));
        bytes
    }

    fn open(dir: &Path) -> PartitionFiles {
        PartitionFiles::open(dir, JOB, 2).expect("a destination")
    }

    #[test]
    fn a_repeated_batch_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = open(dir.path());
        let first = batch(0, 0, false, &[(3, b"abc"), (4, b"de")]);
        assert!(files.append(&first).expect("appended"));
        assert!(files.append(&batch(0, 1, true, &[(3, b"fg")])).expect("appended"));
        assert!(!files.append(&first).expect("known"));
        assert_eq!(std::fs::read(partition_path(dir.path(), 3)).expect("a file"), b"abcfg");
        // Also after the writer was started again.
        drop(files);
        let mut files = open(dir.path());
        assert!(!files.append(&first).expect("known"));
        assert_eq!((files.bytes(), files.complete_chunks()), (7, vec![0]));
    }

    /// No more than the memory waits for the device, and it gets the files in long runs.
    #[test]
    fn the_device_writes_while_batches_arrive() {
        const PARTITIONS: u32 = 4;
        for (volume_run_bytes, write_bytes) in [(0, 4 << 20), (0, 1 << 18), (4 << 20, 1 << 18)] {
            let dir = tempfile::tempdir().expect("a directory");
            let mut files = open(dir.path());
            let wanted = write_bytes.max(volume_run_bytes);
            let memory = 3 * wanted;
            files.volume_run_bytes = volume_run_bytes;
            files.control().limit(write_bytes, memory);
            let piece = vec![b'x'; (wanted / 8) as usize];
            let pieces: Vec<(u32, &[u8])> =
                (0..PARTITIONS).map(|partition| (partition, &piece[..])).collect();
            let batches = 64;
            for number in 0..batches {
                files.append(&batch(0, number, number + 1 == batches, &pieces)).expect("appended");
                let dirty: u64 = (0..PARTITIONS).map(|partition| dirty_bytes(dir.path(), partition)).sum();
                assert!(dirty <= memory, "{dirty} bytes wait after {number} batches");
            }
            files.sync().expect("synced");
            let bytes = u64::from(batches * PARTITIONS) * piece.len() as u64;
            assert_eq!(files.bytes(), bytes);
            let runs = bytes / files.control().runs();
            assert!(runs >= wanted, "runs of {runs} bytes");
        }
    }

    /// Bytes of the file of a partition that the device does not have; 0 in a file system in memory.
    fn dirty_bytes(dir: &Path, partition: u32) -> u64 {
        let file = File::open(partition_path(dir, partition)).expect("a file");
        let is_memory = rustix::fs::fstatfs(&file).expect("a volume").f_type == 0x0102_1994;
        if is_memory { 0 } else { ascot_io::cached_and_dirty_bytes(&file, 0, 1 << 40).1 }
    }

    #[test]
    fn chunks_are_complete_when_all_batches_are_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = open(dir.path());
        files.append(&batch(7, 1, true, &[])).expect("appended");
        assert!(files.complete_chunks().is_empty());
        files.append(&batch(7, 0, false, &[(1, b"a")])).expect("appended");
        assert_eq!(files.complete_chunks(), [7]);
    }

    #[test]
    fn a_chunk_has_thousands_of_batches_that_arrive_nearly_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = open(dir.path());
        let far = batch(0, 64, false, &[(3, b"x")]);
        let error = files.append(&far).expect_err("too early").to_string();
        assert!(error.contains("batches before this one are missing"), "{error}");
        let count = 1000;
        // Each two of them change places.
        for at in (0..count).map(|at| at ^ 1) {
            assert!(files.append(&batch(0, at, at + 1 == count, &[(3, b"x")])).expect("appended"), "{at}");
            assert_eq!(files.complete_chunks().is_empty(), at != count - 2, "{at}");
        }
        drop(files);
        let mut files = open(dir.path());
        assert_eq!((files.bytes(), files.complete_chunks()), (u64::from(count), vec![0]));
        assert!((0..count).all(|at| !files.append(&batch(0, at, false, &[])).expect("known")));
    }

    #[test]
    fn a_log_that_ends_within_an_entry_loses_that_entry_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = open(dir.path());
        files.append(&batch(0, 0, true, &[(3, b"abc")])).expect("appended");
        let whole = files.log_bytes;
        files.append(&batch(1, 0, true, &[(3, b"lost")])).expect("appended");
        let ends = whole..files.log_bytes;
        drop(files);
        for end in ends {
            let log = OpenOptions::new().write(true).open(dir.path().join(LOG)).expect("the log");
            log.set_len(end).expect("a shorter log");
            let mut again = open(dir.path());
            assert_eq!(again.complete_chunks(), [0], "log of {end} bytes");
            assert!(again.append(&batch(1, 0, true, &[(3, b"new!")])).expect("appended"));
            assert_eq!(std::fs::read(partition_path(dir.path(), 3)).expect("a file"), b"abcnew!");
        }
    }

    #[test]
    fn damaged_batches_and_other_jobs_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = open(dir.path());
        let mut bytes = batch(0, 0, true, &[(3, b"abc")]);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let error = files.append(&bytes).expect_err("damaged").to_string();
        assert!(error.contains("records of a batch are damaged"), "{error}");
        drop(files);
        assert!(PartitionFiles::open(dir.path(), JOB, 1).is_err());
        let error = PartitionFiles::open(dir.path(), [6; 16], 2).err().expect("another job").to_string();
        assert!(error.contains("another job"), "{error}");
        std::fs::write(dir.path().join(LOG), [0; 100]).expect("a disk");
        let error = PartitionFiles::open(dir.path(), JOB, 2).err().expect("zeros").to_string();
        assert!(error.contains("no valid header"), "{error}");
    }

    #[test]
    fn one_process_writes_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = open(dir.path());
        let second = || PartitionFiles::open_within(dir.path(), JOB, 2, Duration::from_millis(60));
        assert!(second().is_err());
        drop(files);
        assert!(second().is_ok());
    }

    #[test]
    fn only_own_files_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = dir.path().join("destination");
        let mut files = open(&own);
        files.append(&batch(0, 0, true, &[(3, b"abc"), (4, b"d")])).expect("appended");
        files.remove_partition(3).expect("removed");
        assert!(!partition_path(&own, 3).exists() && partition_path(&own, 4).exists());
        drop(files);
        // A partition that is done stays removed when the destination is opened again.
        assert_eq!(open(&own).bytes(), 1);
        std::fs::write(own.join("other"), b"of somebody else").expect("a file");
        open(&own).remove().expect("removed");
        assert_eq!(std::fs::read_dir(&own).expect("the directory").count(), 1);
    }
}
