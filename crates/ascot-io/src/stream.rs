//! The two stream traits: files read or written forward, with several requests in flight.
//!
//! A stream takes a buffer with `begin` and gives it back when the bytes have moved. With every
//! [`Backend`](crate::Backend), requests take effect in the order in which they began.
//!
//! ```text
//!   begin(a) begin(b) begin(c)        three requests in flight
//!   complete() -> a  complete() -> b  in the order begun, each waits for its own
//! ```

use crate::buf::Buf;
use crate::error::IoError;

/// A buffer with the bytes read into it.
#[derive(Debug)]
pub struct Filled {
    /// The buffer as it was handed in.
    pub buf: Buf,
    /// First valid byte.
    pub start: usize,
    /// One past the last valid byte.
    pub end: usize,
}

impl Filled {
    /// The valid bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Valid bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True at the stream's end.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// A source of bytes, read forward.
pub trait ReadStream: Send {
    /// Asks for the next `buf.len()` bytes, in order; several may be begun before the first is
    /// completed.
    fn begin(&mut self, buf: Buf) -> Result<(), IoError>;

    /// Waits for the oldest request begun. Fewer bytes than the buffer holds mean the stream's
    /// end (or, with `start > 0`, a range that starts off a block boundary and is read directly);
    /// no bytes follow the end.
    fn complete(&mut self) -> Result<Filled, IoError>;

    /// True where `complete` would not wait.
    fn ready(&mut self) -> bool;

    /// Requests begun and not completed.
    fn in_flight(&self) -> usize;

    /// Bytes the stream will give in all, where known.
    fn len_hint(&self) -> Option<u64>;

    /// The device behind it, where that is known: streams with the same number share one, those with
    /// different numbers do not wait for each other.
    fn channel(&self) -> Option<u64> {
        None
    }
}

/// A sink of bytes, written forward.
pub trait WriteStream: Send {
    /// Appends `buf[..len]`; the buffer is dropped once written. Failures of earlier requests
    /// surface here, in `drain`, `sync` or `finish`, and stay.
    ///
    /// Written directly, lengths other than the last should be multiples of 4096: the stream
    /// goes on through the page cache after one that is not.
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError>;

    /// Sees to it that `bytes` more can be written, before they are handed over. Where the volume is
    /// known to be full that is an error, after which the stream can still be synced and finished;
    /// where it cannot be known, the write itself finds out.
    fn reserve(&mut self, bytes: u64) -> Result<(), IoError> {
        let _ = bytes;
        Ok(())
    }

    /// Requests begun and not known to be written; none where `begin` writes before it returns.
    fn in_flight(&mut self) -> usize {
        0
    }

    /// Waits until the oldest of them is written.
    fn complete(&mut self) -> Result<(), IoError> {
        self.drain()
    }

    /// The device behind it, where that is known, as of a [`ReadStream`].
    fn channel(&self) -> Option<u64> {
        None
    }

    /// Waits until everything begun is written.
    fn drain(&mut self) -> Result<(), IoError>;

    /// Waits as [`drain`](Self::drain) does, then makes the bytes durable.
    fn sync(&mut self) -> Result<(), IoError>;

    /// Waits, trims the file to what was written, and tells the bytes written in all
    /// (for a stream opened to append, the file's length).
    fn finish(self: Box<Self>) -> Result<u64, IoError>;
}
