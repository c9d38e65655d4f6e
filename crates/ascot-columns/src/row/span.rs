//! Places in encoded bytes.

use crate::width::LENGTH;

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A violation of the format.
#[derive(Debug)]
pub(crate) struct Malformed {
    /// Position of the row in the decoded bytes.
    pub(crate) at: usize,
    pub(crate) reason: &'static str,
}

/// The length that is stored at `at`; `None` if the bytes end before.
pub(crate) fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let digits = bytes.get(at..)?.first_chunk::<LENGTH>()?;
    usize::try_from(u32::from_le_bytes(*digits)).ok()
}
