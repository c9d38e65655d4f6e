//! Inputs that are merged as they are read.

use std::path::Path;

use ascot_io::ReadStream;

use crate::api::Result;

/// An input whose bytes come from a merge, and can be read again from any offset on.
pub trait MergedInput: Send + Sync {
    /// Its name for messages.
    fn path(&self) -> &Path;
    /// Its bytes.
    fn bytes(&self) -> u64;
    /// Bytes of the header before its records.
    fn header_bytes(&self) -> u64;
    /// Its first `bytes` bytes, or fewer at its end.
    fn peek(&self, bytes: usize) -> Result<Vec<u8>>;
    /// The bytes from `offset` on.
    fn open(&self, offset: u64) -> Result<Box<dyn ReadStream>>;
}
