//! The bytes of a batch in transit. Batches are not stored on disk; ranks of one job use one version.
//!
//! ```text
//!   0      4        5              13
//!   +------+--------+--------------+------------------------------------------
//!   | epoch| flags  | messages so  | message, message, ...
//!   | u32  | 1: end | far, u64     |
//!   +------+--------+--------------+------------------------------------------
//!
//!   message    address (varint), length (varint), bytes
//!   address    lane local: the destination's rank; wire: its place on the node; deliver: omitted
//!   so far     messages of the epoch on this connection up to the end of this batch
//! ```
//!
//! Integers are little-endian; a varint has seven bits a byte, the lowest first. Reading checks every length.

use crate::format::bytes::{Cursor, put_sized, put_varint, varint_bytes};

/// Bytes before the first message.
pub const HEADER_BYTES: usize = 13;
/// Maximum bytes of address and length before a message.
pub(super) const PREFIX_BYTES_MAX: usize = 10;

const FLAG_END: u8 = 1;

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The epoch.
    pub epoch: u32,
    /// Whether this is the connection's last batch of the epoch.
    pub end: bool,
    /// Messages of the epoch on this connection up to the end of this batch.
    pub messages: u64,
}

impl Header {
    /// Starts an empty batch; [`write`](Self::write) fills in its header.
    pub fn begin(batch: &mut Vec<u8>) {
        batch.clear();
        batch.resize(HEADER_BYTES, 0);
    }

    /// Writes the header at the start of `batch`.
    pub fn write(self, batch: &mut [u8]) {
        if let Some((place, _)) = batch.split_first_chunk_mut::<HEADER_BYTES>() {
            place[..4].copy_from_slice(&self.epoch.to_le_bytes());
            place[4] = if self.end { FLAG_END } else { 0 };
            place[5..].copy_from_slice(&self.messages.to_le_bytes());
        }
    }

    /// Reads the header at the start of `batch`; `None` if it is not a header.
    pub fn read(batch: &[u8]) -> Option<Self> {
        let ([a, b, c, d, flags, messages @ ..], _) = batch.split_first_chunk::<HEADER_BYTES>()?;
        let end = match *flags {
            0 => false,
            FLAG_END => true,
            _ => return None,
        };
        let epoch = u32::from_le_bytes([*a, *b, *c, *d]);
        Some(Self { epoch, end, messages: u64::from_le_bytes(*messages) })
    }
}

/// Bytes of a message in a batch.
pub(super) fn message_bytes(address: Option<u32>, bytes: usize) -> usize {
    address.map_or(0, |address| varint_bytes(address.into())) + varint_bytes(bytes as u64) + bytes
}

/// Appends a message, with its address if it has one.
pub fn put_message(batch: &mut Vec<u8>, address: Option<u32>, message: &[u8]) {
    if let Some(address) = address {
        put_varint(batch, address.into());
    }
    put_sized(batch, message);
}

/// The message at `at`: its address, if `addressed`, and the range of its bytes.
pub fn take_message(batch: &[u8], at: usize, addressed: bool) -> Option<(u32, std::ops::Range<usize>)> {
    let mut cursor = Cursor::new(batch.get(at..)?);
    let address = if addressed { u32::try_from(cursor.varint()?).ok()? } else { 0 };
    let length = cursor.sized()?.len();
    let end = at + cursor.at();
    Some((address, end - length..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_reads_as_it_was_written() {
        let mut batch = Vec::new();
        Header::begin(&mut batch);
        put_message(&mut batch, Some(300), b"far");
        put_message(&mut batch, Some(0), b"");
        let header = Header { epoch: 7, end: true, messages: 2 };
        header.write(&mut batch);
        assert_eq!(Header::read(&batch), Some(header));
        assert_eq!(batch.len(), HEADER_BYTES + message_bytes(Some(300), 3) + message_bytes(Some(0), 0));
        let (address, place) = take_message(&batch, HEADER_BYTES, true).unwrap();
        assert_eq!((address, &batch[place.clone()]), (300, &b"far"[..]));
        assert_eq!(take_message(&batch, place.end, true), Some((0, batch.len()..batch.len())));
    }

    #[test]
    fn cut_or_foreign_batches_are_refused() {
        let mut batch = Vec::new();
        Header::begin(&mut batch);
        put_message(&mut batch, None, b"twelve bytes");
        for length in HEADER_BYTES..batch.len() {
            assert_eq!(take_message(&batch[..length], HEADER_BYTES, false), None);
        }
        assert_eq!(Header::read(&batch[..12]), None);
        batch[4] = 9;
        assert_eq!(Header::read(&batch), None);
    }
}
