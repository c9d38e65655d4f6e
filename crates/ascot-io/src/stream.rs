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
use crate::error::Result;

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

    /// Whether the stream has ended.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// A source of bytes, read forward.
pub trait ReadStream: Send {
    /// Requests the next `buf.len()` bytes, in order; several requests may be begun before the first is completed.
    fn begin(&mut self, buf: Buf) -> Result<()>;

    /// Waits for the oldest request begun. Fewer bytes than the buffer holds mean the stream's end (or, if
    /// `start > 0`, a range that starts off a block boundary and is read directly); no bytes follow the end.
    fn complete(&mut self) -> Result<Filled>;

    /// Whether `complete` would not wait.
    fn ready(&mut self) -> bool;

    /// Requests begun and not completed.
    fn in_flight(&self) -> usize;

    /// Total bytes of the stream, if known.
    fn len_hint(&self) -> Option<u64> {
        None
    }

    /// Its device, if known: streams with the same number share one, those with different numbers do not wait for
    /// each other.
    fn channel(&self) -> Option<u64> {
        None
    }
}

/// A sink of bytes, written forward.
pub trait WriteStream: Send {
    /// Appends `buf[..len]`; the buffer is dropped once written. Failures of earlier requests
    /// surface here, in `drain`, `sync` or `finish`, and stay.
    ///
    /// For direct writes, lengths other than the last should be multiples of 4096: after any other length the stream
    /// continues through the page cache.
    fn begin(&mut self, buf: Buf, len: usize) -> Result<()>;

    /// Ensures that `bytes` more can be written, before they are handed over. It is an error if the volume is known
    /// to be full, after which the stream can still be synced and finished; if that is unknown, the write itself
    /// reports it.
    fn reserve(&mut self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Requests begun and not known to be written; 0 if `begin` writes before it returns.
    fn in_flight(&mut self) -> usize {
        0
    }

    /// Waits until the oldest request in flight is written.
    fn complete(&mut self) -> Result<()> {
        self.drain()
    }

    /// Its device, if known, as for a [`ReadStream`].
    fn channel(&self) -> Option<u64> {
        None
    }

    /// Waits until everything begun is written.
    fn drain(&mut self) -> Result<()>;

    /// Waits as [`drain`](Self::drain) does, then makes the bytes durable.
    fn sync(&mut self) -> Result<()>;

    /// Waits, trims the file to the bytes written, and returns their number (for a stream opened to append, the
    /// file's length).
    fn finish(self: Box<Self>) -> Result<u64>;
}
