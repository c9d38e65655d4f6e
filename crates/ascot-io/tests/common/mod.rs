//! What the tests of this crate share: disks of every kind, data, and whole-file helpers.
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::path::Path;

use ascot_io::{Backend, Buf, Disk, DiskOptions, IoError, IoQueue, ReadStream, WriteStream};
use ascot_testing::faults::Faults;

/// Every back-end, the direct one on io_uring.
pub const BACKENDS: [Backend; 5] = [
    Backend::Sized(4),
    Backend::Sized(8 << 10),
    Backend::Sized(1000),
    Backend::Sized(1 << 20),
    Backend::Direct,
];

/// A disk with small requests, so that buffers are cut into parts.
pub fn disk(backend: Backend, faults: Option<Faults>) -> Disk {
    let faults = faults.map(Into::into);
    Disk::new(DiskOptions { backend, depth: 3, request_bytes: 8192, faults, ..DiskOptions::default() })
}

/// A direct disk whose queue is threads.
pub fn threaded_disk(faults: Option<Faults>) -> Disk {
    let disk = disk(Backend::Direct, faults);
    let queue = IoQueue::start_threads(2);
    assert_eq!(queue.kind(), "threads");
    assert!(disk.use_io_queue(queue));
    disk
}

/// One disk of each kind.
pub fn disks() -> Vec<Disk> {
    let mut disks: Vec<Disk> = BACKENDS.into_iter().map(|backend| disk(backend, None)).collect();
    disks.push(threaded_disk(None));
    disks
}

/// `len` bytes that repeat nowhere soon.
pub fn data(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(next).collect()
}

/// A buffer holding `bytes`.
pub fn buf_of(bytes: &[u8]) -> Buf {
    let mut buf = Buf::heap(bytes.len());
    buf.copy_from_slice(bytes);
    buf
}

/// Writes `bytes` in pieces whose lengths cycle through `pieces`.
pub fn write_all(stream: &mut dyn WriteStream, bytes: &[u8], pieces: &[usize]) -> Result<(), IoError> {
    let mut rest = bytes;
    for piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*piece).clamp(1, rest.len()));
        stream.begin(buf_of(now), now.len())?;
        rest = later;
    }
    Ok(())
}

/// Reads a stream to its end with buffers whose lengths cycle through `pieces`, `depth` at once.
pub fn read_all(stream: &mut dyn ReadStream, pieces: &[usize], depth: usize) -> Result<Vec<u8>, IoError> {
    let mut sizes = pieces.iter().cycle();
    let mut begin = |stream: &mut dyn ReadStream| match sizes.next() {
        Some(size) => stream.begin(Buf::heap((*size).max(1))),
        None => Ok(()),
    };
    for _ in 0..depth {
        begin(stream)?;
    }
    let mut bytes = Vec::new();
    loop {
        assert_eq!(stream.in_flight(), depth);
        let filled = stream.complete()?;
        if filled.is_empty() {
            break;
        }
        bytes.extend_from_slice(filled.bytes());
        begin(stream)?;
    }
    Ok(bytes)
}

/// Creates a file of `bytes` through a disk.
pub fn create(disk: &Disk, path: &Path, bytes: &[u8], pieces: &[usize]) -> Result<u64, IoError> {
    let mut stream = disk.create(path, "test")?;
    write_all(stream.as_mut(), bytes, pieces)?;
    stream.finish()
}

/// A temporary directory on the volume the repository is on, not on a memory file system.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Whether a file's bytes are not the bytes that were written.
pub fn is_corrupt(error: &IoError) -> bool {
    matches!(error, IoError::Corrupt { .. } | IoError::BadIndex { .. } | IoError::Truncated { .. })
}

/// Whether the file, or the directory of a file to be created, does not exist.
pub fn is_not_found(error: &IoError) -> bool {
    let (IoError::Os { source, .. } | IoError::NoDirectory { source, .. }) = error else { return false };
    source.kind() == std::io::ErrorKind::NotFound
}
