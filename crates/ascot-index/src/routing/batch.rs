//! The bytes of a batch, as they travel. They are not kept on disk; ranks of one job use one version.
//!
//! ```text
//!   0      4        5              13
//!   +------+--------+--------------+------------------------------------------
//!   | epoch| flags  | messages so  | message, message, ...
//!   | u32  | 1: end | far, u64     |
//!   +------+--------+--------------+------------------------------------------
//!
//!   message    address (varint), length (varint), bytes
//!   address    lane local: the destination's rank; wire: its place on the node; deliver: left out
//!   so far     messages of the epoch on this connection up to the end of this batch
//! ```
//!
//! Integers are little-endian; a varint has seven bits a byte, the lowest first. Reading checks every length.

/// Bytes before the first message.
pub const HEADER_BYTES: usize = 13;
/// Most bytes of address and length before a message.
pub(super) const PREFIX_BYTES_MAX: usize = 10;

const FLAG_END: u8 = 1;

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The epoch.
    pub epoch: u32,
    /// The connection's last batch of the epoch.
    pub end: bool,
    /// Messages of the epoch on this connection up to the end of this batch.
    pub messages: u64,
}

impl Header {
    /// Makes `batch` an empty one, its header to be filled in by [`write`](Self::write).
    pub fn begin(batch: &mut Vec<u8>) {
        batch.clear();
        batch.resize(HEADER_BYTES, 0);
    }

    /// Writes it at the start of `batch`.
    pub fn write(self, batch: &mut [u8]) {
        if let Some((place, _)) = batch.split_first_chunk_mut::<HEADER_BYTES>() {
            place[..4].copy_from_slice(&self.epoch.to_le_bytes());
            place[4] = if self.end { FLAG_END } else { 0 };
            place[5..].copy_from_slice(&self.messages.to_le_bytes());
        }
    }

    /// Reads the start of `batch`; none where it is not a header.
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

/// Bytes of `value` as a varint.
pub(super) fn varint_bytes(value: u32) -> usize {
    (32 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

pub(super) fn put_varint(batch: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        batch.push(value as u8 | 0x80);
        value >>= 7;
    }
    batch.push(value as u8);
}

/// The varint at `at`, which moves past it.
pub(super) fn take_varint(batch: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let byte = *batch.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(value).ok();
        }
    }
    None
}

/// Bytes that a message takes in a batch.
pub(super) fn message_bytes(address: Option<u32>, bytes: usize) -> usize {
    let length = u32::try_from(bytes).unwrap_or(u32::MAX);
    address.map_or(0, varint_bytes) + varint_bytes(length) + bytes
}

/// Appends a message, with its address where it has one.
pub fn put_message(batch: &mut Vec<u8>, address: Option<u32>, message: &[u8]) {
    if let Some(address) = address {
        put_varint(batch, address);
    }
    put_varint(batch, message.len() as u32);
    batch.extend_from_slice(message);
}

/// The message at `at`: its address, where one stands there, and where its bytes are.
pub fn take_message(batch: &[u8], at: usize, addressed: bool) -> Option<(u32, std::ops::Range<usize>)> {
    let mut at = at;
    let address = if addressed { take_varint(batch, &mut at)? } else { 0 };
    let length = take_varint(batch, &mut at)? as usize;
    let end = at.checked_add(length).filter(|&end| end <= batch.len())?;
    Some((address, at..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 1 << 24, u32::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_bytes(value));
            let mut at = 0;
            assert_eq!((take_varint(&bytes, &mut at), at), (Some(value), bytes.len()));
            assert_eq!(take_varint(&bytes[..bytes.len() - 1], &mut 0), None);
        }
        assert_eq!(take_varint(&[0xff; 5], &mut 0), None, "more than 32 bits");
    }

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
