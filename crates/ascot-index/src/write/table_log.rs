//! A log of tables: records accumulate in a buffer. When it is full, they are sorted by key and appended as one table
//! of checksummed blocks. Every record is written once.
//!
//! ```text
//!   push ─▶ [buffer] ─ full ─▶ sort ─▶ | block |0| block |0| block |0|      data log
//!                                 ╰──▶ filters, block index ─▶ [segment] ─▶ index log
//! ```
//!
//! Invariants: a block holds whole records, unless a single record is longer; records of equal keys keep their order
//! of arrival, within a table and across tables.

use ascot_io::{Pool, RunId, block_checksum};

use crate::error::Result;
use crate::format::head::{GREATEST_MAX, HeadMaker};
use crate::format::layout::Layout;
use crate::hash::local_hash;
use crate::write::buffer::Buffer;
use crate::write::index_log::IndexLog;
use crate::write::logs::{LogNumber, Logs};
use crate::write::memory::Plan;
use crate::write::segment::OpenSegment;

/// The writer of a table log.
pub struct TableLog {
    data: LogNumber,
    index: IndexLog,
    layout: Layout,
    buffer: Buffer,
    segment: OpenSegment,
    block: Block,
    /// Records of this epoch.
    records: u64,
}

impl TableLog {
    /// A log with its share of `pool`.
    pub fn new(data: LogNumber, index: IndexLog, layout: &Layout, pool: &Pool, plan: &Plan) -> Result<Self> {
        let buffer = Buffer::new(layout.form(), pool, plan)?;
        let segment = OpenSegment::new(pool, plan.segment_bytes, layout.attribute.is_some())?;
        let block = Block::new(index.id, data, layout.block_bytes as usize);
        Ok(Self { data, index, layout: layout.clone(), buffer, segment, block, records: 0 })
    }

    /// Takes a record of this log's partition or writer.
    pub fn push(&mut self, logs: &mut Logs, key: &[u8], value: &[u8]) -> Result<()> {
        if !self.buffer.push(key, value) {
            self.flush(logs)?;
            if !self.buffer.could_hold(key.len(), value.len()) {
                self.flush_one(logs, key, value)?;
            } else {
                self.buffer.push(key, value);
            }
        }
        self.records += 1;
        Ok(())
    }

    /// Ends the epoch: hands everything to the files. The caller makes them durable.
    pub fn end_epoch(&mut self, logs: &mut Logs) -> Result<u64> {
        self.flush(logs)?;
        let data_end = logs.end(self.data);
        self.segment.seal(logs, &mut self.index, data_end)?;
        self.index.end_epoch(logs, data_end)?;
        Ok(std::mem::take(&mut self.records))
    }

    /// Whether its buffer has space for `records` more records with `bytes` bytes of keys and values.
    pub fn has_space(&self, records: usize, bytes: usize) -> bool {
        self.buffer.has_space(records, bytes)
    }

    /// Whether its buffer is at least half full.
    pub fn is_half_full(&self) -> bool {
        self.buffer.is_half_full()
    }

    /// Flushes the buffer to a table.
    pub fn flush(&mut self, logs: &mut Logs) -> Result<()> {
        let records = self.buffer.len();
        if records == 0 {
            return Ok(());
        }
        self.make_space(logs, records)?;
        let at = logs.end(self.data);
        let (sorted, hashes) = self.buffer.sorted();
        let mut previous = None;
        let mut distinct = 0;
        for index in 0..sorted.len() {
            let (bytes, record) = sorted.record(index);
            let bounds = self.layout.attribute.as_ref().map(|attribute| attribute.of(record.value));
            let head = &mut self.segment.head;
            self.block.record(logs, head, previous, record.key, &[bytes], bounds)?;
            // Equal keys are adjacent.
            if previous != Some(record.key) {
                hashes[distinct] = local_hash(self.layout.hash(record.key));
                distinct += 1;
            }
            previous = Some(record.key);
        }
        let greatest = previous.unwrap_or_default();
        self.block.end_table(logs, &mut self.segment.head, at, records as u64, greatest)?;
        self.segment.add_filters(&hashes[..distinct])?;
        self.buffer.clear();
        Ok(())
    }

    /// Flushes a table of one record that is longer than the buffer.
    fn flush_one(&mut self, logs: &mut Logs, key: &[u8], value: &[u8]) -> Result<()> {
        self.make_space(logs, 1)?;
        let at = logs.end(self.data);
        let before = self.layout.form().head(key.len(), value.len());
        let bounds = self.layout.attribute.as_ref().map(|attribute| attribute.of(value));
        let head = &mut self.segment.head;
        self.block.record(logs, head, None, key, &[&before, key, value], bounds)?;
        self.block.end_table(logs, head, at, 1, key)?;
        self.segment.add_filters(&[local_hash(self.layout.hash(key))])
    }

    /// Seals the open segment if the next table does not fit in it.
    fn make_space(&mut self, logs: &mut Logs, records: usize) -> Result<()> {
        let blocks = self.buffer.bytes() / (self.layout.block_bytes as usize) + 2;
        if !self.segment.fits(records, blocks) {
            let data_end = logs.end(self.data);
            self.segment.seal(logs, &mut self.index, data_end)?;
        }
        Ok(())
    }
}

/// The block under construction.
struct Block {
    id: RunId,
    data: LogNumber,
    /// Maximum bytes of a block.
    max_bytes: usize,
    bytes: Vec<u8>,
    /// The fence key of the block: the shortest string above all keys before the block and not above its first key;
    /// `None` in the middle of a record.
    first: Option<Vec<u8>>,
    joined: bool,
    /// Minimum and maximum of the attribute.
    bounds: Option<(f64, f64)>,
    /// Number of blocks of the table so far.
    count: u32,
}

/// Bounds of an empty set of numbers.
const NONE: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

impl Block {
    fn new(id: RunId, data: LogNumber, max_bytes: usize) -> Self {
        Self { id, data, max_bytes, bytes: Vec::new(), first: None, joined: false, bounds: None, count: 0 }
    }

    /// Appends a record in parts; `previous` is the key before it in its table.
    fn record(
        &mut self,
        logs: &mut Logs,
        head: &mut HeadMaker,
        previous: Option<&[u8]>,
        key: &[u8],
        parts: &[&[u8]],
        number: Option<Option<f64>>,
    ) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if !self.bytes.is_empty() && self.bytes.len() + length > self.max_bytes {
            self.write(logs, head)?;
        }
        if self.bytes.is_empty() {
            self.joined = previous == Some(key);
            self.first = Some(separator(previous, key).to_vec());
            self.bounds = number.map(|_| NONE);
        }
        if let (Some((min, max)), Some(Some(number))) = (&mut self.bounds, number)
            && !number.is_nan()
        {
            *min = min.min(number);
            *max = max.max(number);
        }
        for part in parts {
            let mut part = *part;
            while self.bytes.len() + part.len() > self.max_bytes {
                let (now, later) = part.split_at(self.max_bytes - self.bytes.len());
                self.bytes.extend_from_slice(now);
                self.write(logs, head)?;
                part = later;
            }
            self.bytes.extend_from_slice(part);
        }
        // A record longer than a block does not share its blocks.
        if length > self.max_bytes && !self.bytes.is_empty() { self.write(logs, head) } else { Ok(()) }
    }

    fn write(&mut self, logs: &mut Logs, head: &mut HeadMaker) -> Result<()> {
        let at = logs.end(self.data);
        let crc = block_checksum(self.id, at, &self.bytes);
        // A block has at most 16 MiB.
        head.block(self.bytes.len() as u32, crc, self.first.take().as_deref(), self.joined, self.bounds);
        self.joined = false;
        logs.append(self.data, &self.bytes)?;
        self.bytes.clear();
        self.count += 1;
        logs.pad(self.data, 0)
    }

    /// Ends the table that started at `at`.
    fn end_table(
        &mut self,
        logs: &mut Logs,
        head: &mut HeadMaker,
        at: u64,
        records: u64,
        greatest: &[u8],
    ) -> Result<()> {
        if !self.bytes.is_empty() {
            self.write(logs, head)?;
        }
        head.table(at, std::mem::take(&mut self.count), records, greatest);
        Ok(())
    }
}

/// The shortest string above `last` and at most `key`; all of `key` if they are equal.
fn separator<'a>(last: Option<&[u8]>, key: &'a [u8]) -> &'a [u8] {
    let Some(last) = last else { return &key[..key.len().min(GREATEST_MAX)] };
    let common = last.iter().zip(key).take_while(|(one, other)| one == other).count();
    &key[..(common + 1).min(key.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_short_and_between() {
        assert_eq!(separator(Some(b"abcde"), b"abxyz"), b"abx");
        assert_eq!(separator(Some(b"ab"), b"abc"), b"abc");
        assert_eq!(separator(Some(b"ab"), b"ab"), b"ab");
        assert_eq!(separator(None, b"abc"), b"abc");
    }
}
