//! Opens files to write them.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::Disk;
use crate::PAGE_BYTES;
use crate::backend::{Backend, Calls, SyncWrite};
use crate::direct::{Allocation, DirectWrite};
use crate::error::{Action, During, IoError, Result};
use crate::ledger::Direction;
use crate::pipe::PipeWrite;
use crate::stream::WriteStream;

impl Disk {
    /// Creates a file, or empties an existing one, to write it from the start. Pipes and devices are written as they
    /// are. A link is followed: this is for files that a user names.
    pub fn create(&self, path: &Path, name: &str) -> Result<Box<dyn WriteStream>> {
        let mut options = OpenOptions::new();
        self.create_by(options.create(true).truncate(true).mode(0o666), path, name).map(|(stream, _)| stream)
    }

    /// Creates a file to write it from the start. It is an error if the name exists, even as a link.
    pub fn create_new(&self, path: &Path, name: &str) -> Result<Box<dyn WriteStream>> {
        self.create_as(path, name, 0o666).map(|(stream, _)| stream)
    }

    /// Like [`create_new`](Self::create_new) for a file of a few MiB: no space is allocated ahead of its data, which
    /// other files that are written at the same time need more.
    pub fn create_small(&self, path: &Path, name: &str) -> Result<Box<dyn WriteStream>> {
        let (file, stat) = self.open(new_file(0o666).write(true), Action::Create, path, 0)?;
        self.writer(file, &stat, path, 0, name, Allocation::None)
    }

    /// Like [`create_new`](Self::create_new) for a file with these permission bits, before the umask; also returns
    /// the file.
    pub(crate) fn create_as(
        &self,
        path: &Path,
        name: &str,
        mode: u32,
    ) -> Result<(Box<dyn WriteStream>, File)> {
        self.create_by(&mut new_file(mode), path, name)
    }

    fn create_by(
        &self,
        options: &mut OpenOptions,
        path: &Path,
        name: &str,
    ) -> Result<(Box<dyn WriteStream>, File)> {
        let (file, stat) = self.open(options.write(true), Action::Create, path, 0)?;
        let copy = file.try_clone().during(Action::Create, path)?;
        Ok((self.writer(file, &stat, path, 0, name, Allocation::Ahead)?, copy))
    }

    /// Opens a file that is not regular (a pipe, a device) to write to it. A regular file that has replaced it
    /// meanwhile is not touched.
    pub(crate) fn open_special(&self, path: &Path, name: &str) -> Result<Box<dyn WriteStream>> {
        let (file, stat) = self.open(OpenOptions::new().write(true), Action::Create, path, 0)?;
        if stat.is_file() {
            return Err(IoError::Replaced { path: path.to_path_buf() });
        }
        self.writer(file, &stat, path, 0, name, Allocation::Ahead)
    }

    /// Opens a file to continue writing at `offset` (a multiple of 4096, not past its end); bytes after `offset` are
    /// cut off. A link is not followed.
    pub fn open_append(&self, path: &Path, offset: u64, name: &str) -> Result<Box<dyn WriteStream>> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(path).during_at(Action::Open, path, offset)?;
        self.append_to(file, path, offset, name)
    }

    /// Like [`open_append`](Self::open_append) for an open file.
    pub(crate) fn append_to(
        &self,
        file: File,
        path: &Path,
        offset: u64,
        name: &str,
    ) -> Result<Box<dyn WriteStream>> {
        self.inject_fault(Action::Create, path, offset)?;
        let stat = file.metadata().during_at(Action::Open, path, offset)?;
        if !offset.is_multiple_of(PAGE_BYTES as u64) {
            let what = "a file can only be continued at a multiple of 4096 bytes";
            return Err(IoError::Misuse { path: path.to_path_buf(), offset, what });
        }
        if stat.len() < offset {
            return Err(IoError::Truncated {
                path: path.to_path_buf(),
                offset: stat.len(),
                expected: offset,
            });
        }
        file.set_len(offset).during_at(Action::Resize, path, offset)?;
        self.inner.space.note(&file);
        self.writer(file, &stat, path, offset, name, Allocation::Ahead)
    }

    fn writer(
        &self,
        file: File,
        stat: &Metadata,
        path: &Path,
        start: u64,
        name: &str,
        allocation: Allocation,
    ) -> Result<Box<dyn WriteStream>> {
        let context = self.context(path, name, stat, Direction::Write);
        if !stat.is_file() {
            let writing = self.context(path, name, stat, Direction::Write);
            return Ok(Box::new(PipeWrite::new(context, writing, file)));
        }
        let file = Arc::new(file);
        Ok(match self.inner.options.backend {
            Backend::Sized(bytes) => {
                Box::new(SyncWrite::new(context, Calls { file, bytes: bytes.max(1) }, start))
            }
            Backend::Direct => {
                let direct = self.enter_direct(&file, path, stat);
                let base = self.queued_file(context, Direction::Write, file, direct, stat);
                Box::new(DirectWrite::new(base, start, allocation))
            }
        })
    }
}

/// A file that must not exist, even as a link.
fn new_file(mode: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create_new(true).mode(mode).custom_flags(libc::O_NOFOLLOW);
    options
}
