//! Reading elements forward.
//!
//! ```text
//!   file   |=== read ===|######## block ########|..... unread .....|
//!                          ^ start       end ^
//! ```

use std::fs::OpenOptions;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;

use super::block_calls::BlockCalls;
use super::blocks::{Source, disk_for};
use super::direct_blocks::DirectBlocks;
use super::windows::WindowsToRead;
use super::{Element, StreamKind};
use crate::buf::Buf;
use crate::disk::Disk;
use crate::error::{Action, During, IoError, Result};
use crate::ledger::Direction;

/// Reads the elements of a file forward. Dropping it closes it.
///
/// The position is apart from the blocks, and only its value is handed to functions that are called: in a loop over
/// elements the compiler keeps it in registers. A loop until [`end_of_stream`](Self::end_of_stream) checks once for
/// each element whether the block has another.
pub struct ElementReader<E> {
    /// The unread whole elements of the block: `start <= end <= block.len()`, and `end - start` is a multiple of an
    /// element's bytes.
    start: usize,
    end: usize,
    blocks: Box<Blocks>,
    element: PhantomData<E>,
}

/// The current block, and the way to the next ones.
struct Blocks {
    block: Buf,
    /// Bytes after the whole elements of the block, of an element that continues in the next block.
    tail: usize,
    /// Bytes of the file after the block.
    unread: u64,
    source: Box<dyn Source>,
    /// An element that spans two blocks.
    spanning: Vec<u8>,
    /// The first error: bytes were lost, so every later call returns it.
    failed: Option<IoError>,
}

impl<E: Element> ElementReader<E> {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Disk::read_elements`].
    pub fn open(path: &Path, kind: StreamKind) -> Result<Self> {
        disk_for(kind).read_elements(path, kind)
    }

    /// The next element.
    ///
    /// # Errors
    /// The system's, a file that was cut short meanwhile, and [`IoError::Misuse`] at the end of the stream. After an
    /// error of the system every call returns it.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "a second check of bounds takes a fifth of the time of a loop over elements"
    )]
    pub fn read_next(&mut self) -> Result<E> {
        const { assert!(E::BYTES > 0, "an element has at least one byte") };
        if self.start != self.end {
            // SAFETY: whole elements are left up to `end`, which is at most the length of the block (`next_block`
            // checks it); the block is replaced only when `start` has grown to `end`.
            let bytes = unsafe { self.blocks.block.get_unchecked(self.start..self.start + E::BYTES) };
            self.start += E::BYTES;
            return Ok(E::load(bytes));
        }
        let (rest, read) = self.blocks.read_across::<E>(self.end);
        self.start = rest.start;
        self.end = rest.end;
        read
    }

    /// Whether no element is left.
    #[inline]
    pub fn end_of_stream(&self) -> bool {
        self.start == self.end && self.blocks.tail == 0 && self.blocks.unread == 0
    }

    /// Elements left.
    #[inline]
    pub fn remaining(&self) -> u64 {
        (self.blocks.unread + (self.end - self.start + self.blocks.tail) as u64) / E::BYTES as u64
    }

    /// Requests made so far: system calls, windows, or requests to the device (for a direct stream, those that have
    /// begun).
    #[inline]
    pub fn requests(&self) -> u64 {
        self.blocks.source.requests()
    }

    /// Closes the stream; returns the requests made.
    #[inline]
    pub fn close(self) -> u64 {
        self.requests()
    }
}

impl Blocks {
    /// The element after the whole ones of the block, which end at `end`; returns the whole elements after it.
    #[inline(never)]
    fn read_across<E: Element>(&mut self, end: usize) -> (Range<usize>, Result<E>) {
        let left = end..end + std::mem::take(&mut self.tail);
        match self.try_read_across::<E>(left) {
            Ok((rest, element)) => {
                self.tail = rest.len() % E::BYTES;
                (rest.start..rest.end - self.tail, Ok(element))
            }
            Err(error) => (end..end, Err(error)),
        }
    }

    /// The element that begins in the bytes `left` of the block, or in the next one; returns the bytes after it.
    fn try_read_across<E: Element>(&mut self, mut left: Range<usize>) -> Result<(Range<usize>, E)> {
        if left.is_empty() {
            left = self.next_block()?;
            let next = left.start + E::BYTES;
            if next <= left.end {
                return Ok((next..left.end, E::load(&self.block[left.start..next])));
            }
        }
        self.spanning.clear();
        while self.spanning.len() < E::BYTES {
            if left.is_empty() {
                left = self.next_block()?;
            }
            let taken = (E::BYTES - self.spanning.len()).min(left.len());
            self.spanning.extend_from_slice(&self.block[left.start..left.start + taken]);
            left.start += taken;
        }
        Ok((left, E::load(&self.spanning)))
    }

    /// Replaces the block, which has been read, by the next one; returns its valid bytes.
    fn next_block(&mut self) -> Result<Range<usize>> {
        if self.unread == 0 {
            return Err(self.source.past_the_end());
        }
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let next = self.source.next_block(&mut self.block);
        let Range { start, end } = next.inspect_err(|error| self.failed = Some(error.clone()))?;
        // `read_next` relies on it.
        assert!(start <= end && end <= self.block.len(), "a block ends in its memory");
        self.unread -= (end - start) as u64;
        Ok(start..end)
    }
}

impl ElementReader<u8> {
    /// The unread bytes of the current block, or of the next one if none is left; empty at the end of the stream.
    /// For callers that cut elements from bytes themselves.
    ///
    /// # Errors
    /// As [`read_next`](Self::read_next).
    pub fn fill(&mut self) -> Result<&[u8]> {
        if self.start == self.end && self.blocks.unread > 0 {
            let Range { start, end } = self.blocks.next_block()?;
            self.start = start;
            self.end = end;
        }
        Ok(&self.blocks.block[self.start..self.end])
    }

    /// Whether the current block has unread bytes.
    pub fn has_bytes(&self) -> bool {
        self.start < self.end
    }

    /// Marks the first `bytes` of the current block as read, or all of it if it has fewer.
    pub fn consume(&mut self, bytes: usize) {
        self.start = self.end.min(self.start.saturating_add(bytes));
    }
}

impl Disk {
    /// Opens a file to read its elements forward. The blocks are as `kind` defines, whatever this disk's back-end; a
    /// direct stream has at most as many requests in flight as this disk allows.
    ///
    /// # Errors
    /// The system's, and [`IoError::Misuse`] if the length of the file is not a multiple of the element's, or if
    /// `kind` has an impossible value.
    pub fn read_elements<E: Element>(&self, path: &Path, kind: StreamKind) -> Result<ElementReader<E>> {
        let misuse = |what| Err(IoError::Misuse { path: path.to_path_buf(), offset: 0, what });
        if let Some(what) = kind.impossible() {
            return misuse(what);
        }
        let (file, stat) = self.open(OpenOptions::new().read(true), Action::Open, path, 0)?;
        if !stat.is_file() {
            return misuse("elements are read from regular files only");
        }
        if !stat.len().is_multiple_of(E::BYTES as u64) {
            return misuse("the length of the file is not a multiple of the length of an element");
        }
        let context = self.context(path, path.to_string_lossy().as_ref(), &stat, Direction::Read);
        let bytes = kind.request_bytes(E::BYTES);
        let (block, source): (Buf, Box<dyn Source>) = match kind {
            StreamKind::Plain | StreamKind::Buffered | StreamKind::Sized { .. } => {
                let bytes = bytes.min(usize::try_from(stat.len()).unwrap_or(bytes)).max(1);
                let block = Buf::try_heap(bytes).during(Action::Open, path)?;
                (
                    block,
                    Box::new(BlockCalls::to_read(context, file, kind.request_bytes(E::BYTES), stat.len())),
                )
            }
            StreamKind::Mapped { .. } => {
                let block = Buf::try_heap(1).during(Action::Open, path)?;
                (block, Box::new(WindowsToRead::new(context, file, bytes, stat.len())))
            }
            StreamKind::Direct { depth, .. } => {
                let (block, blocks) = DirectBlocks::open(self, context, file, &stat, bytes, depth)?;
                (block, Box::new(blocks))
            }
        };
        let blocks =
            Blocks { block, tail: 0, unread: stat.len(), source, spanning: Vec::new(), failed: None };
        Ok(ElementReader { start: 0, end: 0, blocks: Box::new(blocks), element: PhantomData })
    }
}
