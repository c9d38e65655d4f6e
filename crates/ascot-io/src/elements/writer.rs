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
use crate::error::{Action, During, IoError, Result};
use crate::ledger::Direction;

/// Writes elements to a file forward. A writer must be closed: one that is dropped may lose its last block.
///
/// The position is apart from the blocks, and only its value is handed to functions that are called: in a loop over
/// elements the compiler keeps it in registers.
pub struct ElementWriter<E> {
    space: Space,
    blocks: Box<Blocks>,
    element: PhantomData<E>,
}

/// A part of the current block: the first byte that is to be written, the next to fill, and the end;
/// `start <= next <= end <= block.len()`.
#[derive(Clone, Copy, Default)]
struct Space {
    start: usize,
    next: usize,
    end: usize,
}

/// The current block, and the way to the next ones.
struct Blocks {
    block: Buf,
    sink: Box<dyn Sink>,
    /// An element that spans two blocks.
    spanning: Vec<u8>,
    /// The first error: bytes were lost, so every later call returns it.
    failed: Option<IoError>,
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
    pub fn create(path: &Path, kind: StreamKind) -> Result<Self> {
        disk_for(kind).write_elements(path, kind)
    }

    /// Appends an element. A block that is full is written at once.
    ///
    /// # Errors
    /// The system's; a direct stream may report the failure of an earlier block. After an error every call returns it.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "a second check of bounds takes a fifth of the time of a loop over elements"
    )]
    pub fn write(&mut self, element: E) -> Result<()> {
        let next = self.space.next + E::BYTES;
        if next < self.space.end {
            // SAFETY: `end` is at most the length of the block (`next_block` checks it), which is replaced only when
            // no space is left.
            element.store(unsafe { self.blocks.block.get_unchecked_mut(self.space.next..next) });
            self.space.next = next;
            return Ok(());
        }
        let (space, written) = self.blocks.write_across(self.space, element);
        self.space = space;
        written
    }

    /// Requests made so far: system calls, windows, or requests to the device.
    #[inline]
    pub fn requests(&self) -> u64 {
        self.blocks.sink.requests()
    }

    /// Writes the last block and closes the file. The bytes may be in the page cache only.
    ///
    /// # Errors
    /// The system's.
    #[inline]
    pub fn close(mut self) -> Result<Written> {
        self.blocks.finish(self.space, E::BYTES, false)
    }

    /// Like [`close`](Self::close); all bytes are on the device when it returns.
    ///
    /// # Errors
    /// The system's.
    #[inline]
    pub fn sync_and_close(mut self) -> Result<Written> {
        self.blocks.finish(self.space, E::BYTES, true)
    }
}

impl Blocks {
    fn finish(&mut self, space: Space, element_bytes: usize, durable: bool) -> Result<Written> {
        self.check()?;
        if space.next > space.start {
            self.put(space)?;
        }
        let bytes = self.sink.close(durable)?;
        Ok(Written { elements: bytes / element_bytes as u64, requests: self.sink.requests() })
    }

    /// Writes the filled part of the block. No space is left then.
    fn put(&mut self, space: Space) -> Result<()> {
        let put = self.sink.put(&mut self.block, space.start..space.next);
        put.inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Appends an element that fills the block or does not fit in it; returns the space after it.
    #[inline(never)]
    fn write_across<E: Element>(&mut self, mut space: Space, element: E) -> (Space, Result<()>) {
        let written = self.try_write_across(&mut space, element);
        (space, written)
    }

    fn try_write_across<E: Element>(&mut self, space: &mut Space, element: E) -> Result<()> {
        if space.next == space.end {
            *space = self.next_block()?;
        }
        let next = space.next + E::BYTES;
        if next <= space.end {
            element.store(&mut self.block[space.next..next]);
            space.next = next;
            return if next == space.end { self.put(std::mem::take(space)) } else { Ok(()) };
        }
        let mut bytes = std::mem::take(&mut self.spanning);
        bytes.resize(E::BYTES, 0);
        element.store(&mut bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if space.next == space.end {
                *space = self.next_block()?;
            }
            let (now, later) = rest.split_at(rest.len().min(space.end - space.next));
            self.block[space.next..space.next + now.len()].copy_from_slice(now);
            space.next += now.len();
            rest = later;
            if space.next == space.end {
                self.put(std::mem::take(space))?;
            }
        }
        self.spanning = bytes;
        Ok(())
    }

    fn next_block(&mut self) -> Result<Space> {
        self.check()?;
        let next = self.sink.next_block(&mut self.block);
        let Range { start, end } = next.inspect_err(|error| self.failed = Some(error.clone()))?;
        // `write` relies on it.
        assert!(start <= end && end <= self.block.len(), "a block ends in its memory");
        Ok(Space { start, next: start, end })
    }
}

impl ElementWriter<u8> {
    /// The part of the current block that is not filled, or of the next one; never empty. For callers that put
    /// elements into bytes themselves.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn space(&mut self) -> Result<&mut [u8]> {
        if self.space.next == self.space.end {
            self.space = self.blocks.next_block()?;
        }
        Ok(&mut self.blocks.block[self.space.next..self.space.end])
    }

    /// Whether the current block has space.
    pub fn has_space(&self) -> bool {
        self.space.next < self.space.end
    }

    /// Marks the first `bytes` of the space as filled, or all of it if it has fewer. A block that is full is written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn advance(&mut self, bytes: usize) -> Result<()> {
        let space = &mut self.space;
        space.next = space.end.min(space.next.saturating_add(bytes));
        if space.next == space.end && space.next > space.start {
            self.blocks.put(std::mem::take(space))?;
        }
        Ok(())
    }
}

impl Disk {
    /// Creates a file, or empties an existing one, to write elements forward. The blocks are as `kind` defines,
    /// whatever this disk's back-end; a direct stream has at most as many requests in flight as this disk allows.
    ///
    /// # Errors
    /// The system's, and [`IoError::Misuse`] if `kind` has an impossible value or the file is not regular.
    pub fn write_elements<E: Element>(&self, path: &Path, kind: StreamKind) -> Result<ElementWriter<E>> {
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
        let (block, sink): (Buf, Box<dyn Sink>) = match kind {
            StreamKind::Plain | StreamKind::Buffered | StreamKind::Sized { .. } => {
                let block = Buf::try_heap(bytes).during(Action::Create, path)?;
                (block, Box::new(BlockCalls::to_write(context, file, bytes)))
            }
            StreamKind::Mapped { .. } => {
                let block = Buf::try_heap(1).during(Action::Create, path)?;
                (block, Box::new(WindowsToWrite::new(context, file, bytes)))
            }
            StreamKind::Direct { depth, .. } => {
                let block = Buf::try_heap(1).during(Action::Create, path)?;
                (block, Box::new(DirectSink::create(self, context, file, &stat, bytes, depth)?))
            }
        };
        let blocks = Blocks { block, sink, spanning: Vec::new(), failed: None };
        Ok(ElementWriter { space: Space::default(), blocks: Box::new(blocks), element: PhantomData })
    }
}
