//! The end of an epoch in an index log: a root that lists segments, and a footer of fixed size that finds it.
//!
//! ```text
//!   | segments of epoch 0 | root |0| footer |  segments of epoch 1 | root |0| footer |  ...
//!                                           ^ a multiple of 4096
//!
//!   root    0 ASCOTEPO  8 version  12 entries N  16 log  24 the root before: place: 8, bytes: 4, crc: 4
//!           40 N entries: epoch: 8, head's place: 8, bytes: 4, crc: 4, records: 8, data's end: 8
//!   footer  0 ASCOTEND  8 version  12 root's bytes  16 log  24 epochs  32 root's place  40 data's end
//!           48 the footer's own place  56 root's crc  60 crc of the 60 bytes before
//! ```
//!
//! Each epoch ends with a footer, so the log is whole after every epoch, and a closed log ends with its last footer. A
//! root lists the segments of all earlier epochs until it would have more than [`ENTRIES_MAX`]; then a new root starts
//! and refers to the full one. The tail of a stopped writer may follow the last footer: a reader searches for the last
//! page that ends with a footer of this log that records its own offset.

use ascot_io::crc32c;

use crate::format::VERSION;
use crate::format::bytes::Cursor;

/// Bytes of a footer.
pub const FOOTER_BYTES: usize = 64;
/// Maximum entries of a root, unless a single epoch has more segments.
pub const ENTRIES_MAX: usize = 256;
/// An index log is written in multiples of this many bytes.
pub const PAGE: u64 = 4096;

const ROOT_MAGIC: &[u8; 8] = b"ASCOTEPO";
const MAGIC: &[u8; 8] = b"ASCOTEND";
const ROOT_HEAD_BYTES: usize = 40;
const ENTRY_BYTES: usize = 40;

/// A byte range of an index log, and its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRange {
    /// The first byte.
    pub at: u64,
    /// Bytes.
    pub bytes: u32,
    /// CRC-32C of them.
    pub crc: u32,
}

/// One segment of an epoch; for values, a byte range of the data log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The epoch.
    pub epoch: u64,
    /// Its head; empty for values.
    pub head: LogRange,
    /// Records, auxiliary entries or values.
    pub records: u64,
    /// The end of the data log after the segment.
    pub data_end: u64,
}

/// The list of segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The root before; empty if this is the first.
    pub before: LogRange,
    /// Segments, by epoch.
    pub entries: Vec<Entry>,
}

impl Root {
    /// Its bytes.
    pub fn to_bytes(&self, log: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ROOT_HEAD_BYTES + self.entries.len() * ENTRY_BYTES);
        bytes.extend_from_slice(ROOT_MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        // Bounded by memory.
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&log.to_le_bytes());
        put_place(&mut bytes, self.before);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.epoch.to_le_bytes());
            put_place(&mut bytes, entry.head);
            bytes.extend_from_slice(&entry.records.to_le_bytes());
            bytes.extend_from_slice(&entry.data_end.to_le_bytes());
        }
        bytes
    }

    /// Parses a root whose checksum was verified.
    pub fn parse(bytes: &[u8], log: u64) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let known = cursor.take(8)? == ROOT_MAGIC && cursor.u32()? == VERSION;
        let count = cursor.u32()? as usize;
        if !known || cursor.u64()? != log || count.checked_mul(ENTRY_BYTES)? + ROOT_HEAD_BYTES != bytes.len()
        {
            return None;
        }
        let before = place(&mut cursor)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let epoch = cursor.u64()?;
            let head = place(&mut cursor)?;
            entries.push(Entry { epoch, head, records: cursor.u64()?, data_end: cursor.u64()? });
        }
        entries.is_sorted_by_key(|entry| entry.epoch).then_some(Self { before, entries })
    }
}

fn put_place(bytes: &mut Vec<u8>, place: LogRange) {
    bytes.extend_from_slice(&place.at.to_le_bytes());
    bytes.extend_from_slice(&place.bytes.to_le_bytes());
    bytes.extend_from_slice(&place.crc.to_le_bytes());
}

fn place(cursor: &mut Cursor<'_>) -> Option<LogRange> {
    Some(LogRange { at: cursor.u64()?, bytes: cursor.u32()?, crc: cursor.u32()? })
}

/// The end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The log's number.
    pub log: u64,
    /// Epochs ended so far.
    pub epochs: u64,
    /// The root.
    pub root: LogRange,
    /// Bytes of the data log that belong to these epochs.
    pub data_end: u64,
    /// Its own first byte.
    pub at: u64,
}

impl Footer {
    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &self.root.bytes.to_le_bytes());
        put(16, &self.log.to_le_bytes());
        put(24, &self.epochs.to_le_bytes());
        put(32, &self.root.at.to_le_bytes());
        put(40, &self.data_end.to_le_bytes());
        put(48, &self.at.to_le_bytes());
        put(56, &self.root.crc.to_le_bytes());
        let crc = crc32c(&[&bytes[..60]]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses the footer of the log `log` in `bytes` at offset `at`; `None` if they are not one.
    pub fn parse(bytes: &[u8], at: u64, log: u64) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let known = cursor.take(8)? == MAGIC && cursor.u32()? == VERSION;
        let root_bytes = cursor.u32()?;
        let found = cursor.u64()?;
        let epochs = cursor.u64()?;
        let root_at = cursor.u64()?;
        let data_end = cursor.u64()?;
        let own = cursor.u64()?;
        let root = LogRange { at: root_at, bytes: root_bytes, crc: cursor.u32()? };
        let sum = cursor.u32()? == crc32c(&[bytes.get(..60)?]);
        let inside = root.at.checked_add(u64::from(root.bytes))? <= at;
        (known && sum && found == log && own == at && inside).then_some(Self {
            log,
            epochs,
            root,
            data_end,
            at,
        })
    }

    /// The end of the footer, where the log continues.
    pub fn end(&self) -> u64 {
        self.at + FOOTER_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_come_back_and_nothing_else_does() {
        let place = LogRange { at: 100, bytes: 80, crc: 3 };
        let entries = vec![
            Entry { epoch: 0, head: place, records: 5, data_end: 4096 },
            Entry { epoch: 2, head: place, records: 7, data_end: 8192 },
        ];
        let root = Root { before: place, entries };
        let bytes = root.to_bytes(9);
        assert_eq!(Root::parse(&bytes, 9), Some(root));
        assert_eq!((Root::parse(&bytes, 8), Root::parse(&bytes[..bytes.len() - 1], 9)), (None, None));
        let footer = Footer { log: 9, epochs: 3, root: place, data_end: 8192, at: 4032 };
        let bytes = footer.to_bytes();
        assert_eq!(Footer::parse(&bytes, 4032, 9), Some(footer));
        assert_eq!((Footer::parse(&bytes, 0, 9), Footer::parse(&bytes, 4032, 8)), (None, None));
        for at in 0..bytes.len() {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert_eq!(Footer::parse(&bad, 4032, 9), None);
            assert_eq!(Footer::parse(&bytes[..at], 4032, 9), None);
        }
    }
}
