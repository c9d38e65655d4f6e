//! Files of equal length that a measurement reads or writes as one byte range.
//!
//! The files have no names: they are created without one, or unlinked at once if the volume does not support that. So
//! they vanish however the process ends.
//!
//! ```text
//!   two streams     |  stream 0                 |  stream 1                 |
//!   files           | file 0 | file 1 | file 2  | file 3 | file 4 | file 5  |
//! ```
//!
//! Any number of streams divides the same bytes, so that measurements with few and with many streams have the same
//! distances on the device, and caches favour none of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ascot_io::{Buf, Direction, IoQueue, PendingTransfer};
use rustix::fs::{FallocateFlags, OFlags};

use crate::error::{ProbeError, Result};

/// Files of equal length in a directory.
pub(crate) struct Area {
    directory: PathBuf,
    files: Vec<AreaFile>,
    file_bytes: u64,
    /// Bytes read so far: the next slice continues after them, so that none repeats the reads of the one before.
    pub(crate) bytes_read: AtomicU64,
}

/// One file.
struct AreaFile {
    file: Arc<File>,
    /// Whether it was written since it was emptied.
    written: AtomicBool,
}

impl Area {
    /// Makes `count` files of `file_bytes` each, allocated but not written.
    pub(crate) fn create(directory: &Path, count: u64, file_bytes: u64) -> Result<Area> {
        let mut files = Vec::new();
        for _ in 0..count {
            let file = nameless(directory).map_err(|source| ProbeError::File {
                doing: "make",
                path: directory.to_path_buf(),
                source,
            })?;
            files.push(AreaFile { file: Arc::new(file), written: AtomicBool::new(true) });
        }
        let area =
            Area { directory: directory.to_path_buf(), files, file_bytes, bytes_read: AtomicU64::new(0) };
        area.empty()?;
        Ok(area)
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.len() as u64 * self.file_bytes
    }

    /// Releases all written blocks and allocates new ones, like a job that writes a new file. If a volume cannot
    /// allocate, writing extends the files.
    pub(crate) fn empty(&self) -> Result<()> {
        let written = self.files.iter().filter(|file| file.written.swap(false, Ordering::Relaxed));
        for AreaFile { file, .. } in written {
            file.set_len(0).map_err(|error| self.failed("empty", error))?;
            match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, self.file_bytes) {
                Ok(()) => {}
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                    file.set_len(self.file_bytes).map_err(|error| self.failed("lengthen", error))?;
                }
                Err(error) => return Err(self.failed("allocate", error.into())),
            }
        }
        Ok(())
    }

    /// Waits until all written bytes are on the medium, or as safe as the device makes them.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut files = self.files.iter();
        files.try_for_each(|file| file.file.sync_data()).map_err(|error| self.failed("sync", error))
    }

    /// Begins to move all bytes of `buf` from or to byte `at` of the range; a request stays within one file.
    pub(crate) fn begin(
        &self,
        queue: &IoQueue,
        direction: Direction,
        at: u64,
        buf: Buf,
    ) -> Result<PendingTransfer> {
        let (file, offset) = self.locate(at).map_err(|error| self.failed(doing(direction), error))?;
        if direction == Direction::Write {
            file.written.store(true, Ordering::Relaxed);
        }
        Ok(queue.begin(&file.file, direction, offset, buf))
    }

    /// Waits for the end of a request, and for the buffer of a read.
    pub(crate) fn complete(&self, request: PendingTransfer, direction: Direction) -> Result<Option<Buf>> {
        request.complete().map_err(|error| self.failed(doing(direction), error))
    }

    /// Writes `buf` at byte `at` of the range; a request stays within one file.
    pub(crate) fn write(&self, at: u64, buf: &[u8]) -> Result<()> {
        let (file, offset) = self.locate(at).map_err(|error| self.failed("write", error))?;
        file.written.store(true, Ordering::Relaxed);
        file.file.write_all_at(buf, offset).map_err(|error| self.failed("write", error))
    }

    fn locate(&self, at: u64) -> io::Result<(&AreaFile, u64)> {
        let file = usize::try_from(at / self.file_bytes).ok().and_then(|number| self.files.get(number));
        file.map(|file| (file, at % self.file_bytes)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> ProbeError {
        ProbeError::File { doing, path: self.directory.clone(), source }
    }
}

fn doing(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

/// Refuses a directory whose file system has no direct access.
pub(crate) fn check_direct(directory: &Path, kind: &str) -> Result<()> {
    let path = directory.to_path_buf();
    match nameless(directory) {
        Ok(_) => Ok(()),
        Err(source) if source.raw_os_error() == Some(libc::EINVAL) => {
            Err(ProbeError::NoDirect { path, kind: kind.to_owned(), source })
        }
        Err(source) => Err(ProbeError::File { doing: "make", path, source }),
    }
}

/// Opens a nameless file for direct access.
fn nameless(directory: &Path) -> io::Result<File> {
    let file = tempfile::tempfile_in(directory)?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? | OFlags::DIRECT)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_one_range_and_leaves_no_name() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let area = Area::create(directory.path(), 3, 8192).unwrap();
        assert_eq!(area.bytes(), 24576);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let queue = IoQueue::start(2, 2);
        let page = |byte| {
            let mut page = Buf::heap(4096);
            page.fill(byte);
            page
        };
        let written = area.begin(&queue, Direction::Write, 12288, page(7)).unwrap();
        assert!(area.complete(written, Direction::Write).unwrap().is_none());
        let read = |at| {
            let read = area.begin(&queue, Direction::Read, at, page(1))?;
            Ok::<_, ProbeError>(area.complete(read, Direction::Read)?.expect("the buffer of a read"))
        };
        assert_eq!(read(12288).unwrap()[..], page(7)[..]);
        assert_eq!(read(8192).unwrap()[..], page(0)[..]);
        assert!(read(24576).is_err());
    }
}
