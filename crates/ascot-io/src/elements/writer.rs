//! Writing elements forward.

use std::fs::OpenOptions;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::block_calls::BlockCalls;
use super::blocks::{Sink, disk_for};
use super::direct_blocks::DirectSink;
use super::windows::WindowsToWrite;
use super::{Element, StreamKind};
use crate::buf::Buf;
use crate::disk::Disk;
use crate::error::{Action, IoError};
use crate::ledger::Direction;

/// Writes elements to a file forward. A writer must be closed: one that is dropped may lose its last block.
pub struct ElementWriter<E> {
    block: Buf,
    /// The first byte of the block that is to be written, the next to fill, and the end.
    start: usize,
    next: usize,
    end: usize,
    sink: Box<dyn Sink>,
    /// An element that spans two blocks.
    spanning: Vec<u8>,
    /// The first error: bytes were lost, so every later call returns it.
    failed: Option<IoError>,
    element: PhantomData<E>,
}

/// The result of a stream that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Elements in the file.
    pub elements: u64,
    /// Requests made: system calls, windows, or requests to the device.
    pub requests: u64,
}

impl<E: Element> ElementWriter<E> {
    /// Creates a file, or empties an existing one.
    ///
    /// # Errors
    /// As [`Disk::write_elements`].
    pub fn create(path: &Path, kind: StreamKind) -> Result<Self, IoError> {
        disk_for(kind).write_elements(path, kind)
    }

    /// Appends an element. A block that is full is written at once.
    ///
    /// # Errors
    /// The system's; a direct stream may report the failure of an earlier block. After an error every call returns it.
    #[inline]
    pub fn write(&mut self, element: E) -> Result<(), IoError> {
        let next = self.next + E::BYTES;
        if next < self.end {
            element.store(&mut self.block[self.next..next]);
            self.next = next;
            return Ok(());
        }
        self.write_to_next_block(element)
    }

    /// Requests made so far: system calls, windows, or requests to the device.
    pub fn requests(&self) -> u64 {
        self.sink.requests()
    }

    /// Writes the last block and closes the file. The bytes may be in the page cache only.
    ///
    /// # Errors
    /// The system's.
    pub fn close(self) -> Result<Written, IoError> {
        self.finish(false)
    }

    /// Like [`close`](Self::close); all bytes are on the device when it returns.
    ///
    /// # Errors
    /// The system's.
    pub fn sync_and_close(self) -> Result<Written, IoError> {
        self.finish(true)
    }

    fn finish(mut self, durable: bool) -> Result<Written, IoError> {
        self.check()?;
        if self.next > self.start {
            self.put()?;
        }
        let bytes = self.sink.close(durable)?;
        Ok(Written { elements: bytes / E::BYTES as u64, requests: self.sink.requests() })
    }

    fn put(&mut self) -> Result<(), IoError> {
        let put = self.sink.put(&mut self.block, self.start..self.next);
        self.start = 0;
        self.next = 0;
        self.end = 0;
        put.inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn check(&self) -> Result<(), IoError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    #[inline(never)]
    fn write_to_next_block(&mut self, element: E) -> Result<(), IoError> {
        if self.next == self.end {
            self.next_block()?;
        }
        let next = self.next + E::BYTES;
        if next <= self.end {
            element.store(&mut self.block[self.next..next]);
            self.next = next;
            return if next == self.end { self.put() } else { Ok(()) };
        }
        let mut bytes = std::mem::take(&mut self.spanning);
        bytes.resize(E::BYTES, 0);
        element.store(&mut bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if self.next == self.end {
                self.next_block()?;
            }
            let (now, later) = rest.split_at(rest.len().min(self.end - self.next));
            self.block[self.next..self.next + now.len()].copy_from_slice(now);
            self.next += now.len();
            rest = later;
            if self.next == self.end {
                self.put()?;
            }
        }
        self.spanning = bytes;
        Ok(())
    }

    fn next_block(&mut self) -> Result<(), IoError> {
        self.check()?;
        let next = self.sink.next_block(&mut self.block);
        let Range { start, end } = next.inspect_err(|error| self.failed = Some(error.clone()))?;
        self.start = start;
        self.next = start;
        self.end = end;
        Ok(())
    }
}

impl ElementWriter<u8> {
    /// The part of the current block that is not filled, or of the next one; never empty. For callers that put
    /// elements into bytes themselves.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn space(&mut self) -> Result<&mut [u8], IoError> {
        if self.next == self.end {
            self.next_block()?;
        }
        Ok(&mut self.block[self.next..self.end])
    }

    /// Whether the current block has space.
    pub fn has_space(&self) -> bool {
        self.next < self.end
    }

    /// Marks the first `bytes` of the space as filled, or all of it if it has fewer. A block that is full is written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn advance(&mut self, bytes: usize) -> Result<(), IoError> {
        self.next = self.end.min(self.next.saturating_add(bytes));
        if self.next == self.end && self.next > self.start { self.put() } else { Ok(()) }
    }
}

impl Disk {
    /// Creates a file, or empties an existing one, to write elements forward. The blocks are as `kind` defines,
    /// whatever this disk's back-end; a direct stream has at most as many requests in flight as this disk allows.
    ///
    /// # Errors
    /// The system's, and [`IoError::Misuse`] if `kind` has an impossible value or the file is not regular.
    pub fn write_elements<E: Element>(
        &self,
        path: &Path,
        kind: StreamKind,
    ) -> Result<ElementWriter<E>, IoError> {
        let misuse = |what| Err(IoError::Misuse { path: path.to_path_buf(), offset: 0, what });
        if let Some(what) = kind.impossible() {
            return misuse(what);
        }
        let mut options = OpenOptions::new();
        // A mapped window must be readable, too.
        let options = options.read(true).write(true).create(true).truncate(true).mode(0o666);
        let (file, stat) = self.open(options, Action::Create, path, 0)?;
        if !stat.is_file() {
            return misuse("elements are written to regular files only");
        }
        let context = self.context(path, path.to_string_lossy().as_ref(), &stat, Direction::Write);
        let bytes = kind.request_bytes(E::BYTES);
        let failed = |error| IoError::from_os(Action::Create, path, 0, error);
        let (block, sink): (Buf, Box<dyn Sink>) = match kind {
            StreamKind::Plain | StreamKind::Buffered | StreamKind::Sized { .. } => {
                let block = Buf::try_heap(bytes).map_err(failed)?;
                (block, Box::new(BlockCalls::to_write(context, file, bytes)))
            }
            StreamKind::Mapped { .. } => {
                let block = Buf::try_heap(1).map_err(failed)?;
                (block, Box::new(WindowsToWrite::new(context, file, bytes)))
            }
            StreamKind::Direct { depth, .. } => {
                let block = Buf::try_heap(1).map_err(failed)?;
                (block, Box::new(DirectSink::create(self, context, file, &stat, bytes, depth)?))
            }
        };
        Ok(ElementWriter {
            block,
            start: 0,
            next: 0,
            end: 0,
            sink,
            spanning: Vec::new(),
            failed: None,
            element: PhantomData,
        })
    }
}
