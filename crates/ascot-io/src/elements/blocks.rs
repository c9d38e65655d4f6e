//! The interface between streams of elements and the ways to move their blocks.

use std::ops::Range;

use super::StreamKind;
use crate::buf::Buf;
use crate::disk::{Disk, DiskOptions};
use crate::error::{IoError, Result};

pub(super) const PAST_THE_END: &str = "an element was read after the end of the stream";

/// The blocks of a file, read forward.
pub(super) trait Source: Send {
    /// Replaces `block`, which has been read, by the next one; returns the valid part of it, which is not empty.
    /// It is called only while bytes are unread.
    fn next_block(&mut self, block: &mut Buf) -> Result<Range<usize>>;

    /// Requests made so far: system calls, windows, or requests to the device.
    fn requests(&self) -> u64;

    /// The error of a caller that reads past the end.
    fn past_the_end(&self) -> IoError;
}

/// The blocks of a file, written forward.
pub(super) trait Sink: Send {
    /// Makes `block` an empty block; returns the part of it to fill.
    fn next_block(&mut self, block: &mut Buf) -> Result<Range<usize>>;

    /// Writes the filled part of the block.
    fn put(&mut self, block: &mut Buf, filled: Range<usize>) -> Result<()>;

    /// Waits until all blocks are written, cuts the file to them, and returns their bytes; if `durable`, they are on
    /// the device.
    fn close(&mut self, durable: bool) -> Result<u64>;

    /// Requests made so far.
    fn requests(&self) -> u64;
}

/// A disk for one stream of this kind.
pub(super) fn disk_for(kind: StreamKind) -> Disk {
    match kind {
        StreamKind::Direct { block_bytes, depth } => {
            Disk::new(DiskOptions { depth, request_bytes: block_bytes, ..DiskOptions::default() })
        }
        _ => Disk::default(),
    }
}
