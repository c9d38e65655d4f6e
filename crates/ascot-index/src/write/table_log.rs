//! A log of tables: records gather in a buffer; when it is full they are sorted by key and appended as one table of
//! checksummed blocks. One pass, and nothing is written twice.
//!
//! ```text
//!   push ─▶ [buffer] ─ full ─▶ sort ─▶ | block |0| block |0| block |0|      data log
//!                                 ╰──▶ filters, block index ─▶ [segment] ─▶ index log
//! ```
//!
//! Invariants: a block holds whole records, unless one record alone is longer; records of equal keys keep the order
//! in which they came, in a table and from one table to the next.

use ascot_io::{Pool, RunId, block_crc};

use crate::error::Result;
use crate::format::head::{GREATEST_MOST, HeadMaker};
use crate::format::manifest::{Attribute, Layout};
use crate::format::record::RecordForm;
use crate::hash::{key_hash, local_hash};
use crate::write::buffer::{Buffer, Entry};
use crate::write::index_log::IndexLog;
use crate::write::logs::{LogNumber, Logs};
use crate::write::memory::Plan;
use crate::write::segment::OpenSegment;

/// What a table log takes from the layout.
struct Details {
    form: RecordForm,
    seed: u64,
    attribute: Option<Attribute>,
    block_bytes: usize,
}

/// A log of tables being written.
pub struct TableLog {
    data: LogNumber,
    index: IndexLog,
    details: Details,
    buffer: Buffer,
    segment: OpenSegment,
    block: Block,
    /// Records of this epoch.
    records: u64,
}

impl TableLog {
    /// A log with its share of `pool`.
    pub fn new(data: LogNumber, index: IndexLog, layout: &Layout, pool: &Pool, plan: &Plan) -> Result<Self> {
        let details = Details {
            form: layout.form(),
            seed: layout.seed,
            attribute: layout.attribute.clone(),
            block_bytes: layout.block_bytes as usize,
        };
        let buffer = Buffer::new(details.form, pool, plan)?;
        let segment = OpenSegment::new(pool, plan.segment_bytes, details.attribute.is_some())?;
        let block = Block::new(index.id);
        Ok(Self { data, index, details, buffer, segment, block, records: 0 })
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

    /// Ends the epoch: everything is handed to the files. The caller makes them durable.
    pub fn end_epoch(&mut self, logs: &mut Logs) -> Result<u64> {
        self.flush(logs)?;
        let data_end = logs.end(self.data);
        self.segment.seal(logs, &mut self.index, data_end)?;
        self.index.end_epoch(logs, data_end)?;
        Ok(std::mem::take(&mut self.records))
    }

    /// Makes a table of the buffer.
    fn flush(&mut self, logs: &mut Logs) -> Result<()> {
        let records = self.buffer.len();
        if records == 0 {
            return Ok(());
        }
        self.make_room(logs, records)?;
        self.buffer.sort();
        let at = logs.end(self.data);
        let mut greatest = Vec::new();
        let mut distinct = 0;
        for index in 0..records {
            if index % Buffer::TOUCHED == 0 {
                self.buffer.touch(index);
            }
            let (bytes, record) = self.buffer.record(index);
            let head = &mut self.segment.head;
            let bounds = self.details.attribute.as_ref().map(|attribute| attribute.of(record.value));
            self.block.record(
                logs,
                self.data,
                head,
                self.details.block_bytes,
                record.key,
                &[bytes],
                bounds,
            )?;
            // Equal keys are neighbours.
            let again = index > 0 && greatest == record.key;
            if !again {
                greatest.clear();
                greatest.extend_from_slice(record.key);
                let hash = local_hash(key_hash(self.details.seed, record.key));
                // Its own entry has been used.
                self.buffer.keep_hash(distinct, hash);
                distinct += 1;
            }
        }
        self.end_table(logs, at, records as u64, &greatest)?;
        self.segment.add_filters(&mut self.buffer.columns()[..distinct])?;
        self.buffer.clear();
        Ok(())
    }

    /// A table of one record that is longer than the buffer.
    fn flush_one(&mut self, logs: &mut Logs, key: &[u8], value: &[u8]) -> Result<()> {
        self.make_room(logs, 1)?;
        let at = logs.end(self.data);
        let before = self.details.form.head(key.len(), value.len());
        let bounds = self.details.attribute.as_ref().map(|attribute| attribute.of(value));
        let head = &mut self.segment.head;
        self.block.record(
            logs,
            self.data,
            head,
            self.details.block_bytes,
            key,
            &[&before, key, value],
            bounds,
        )?;
        self.end_table(logs, at, 1, key)?;
        let hash = local_hash(key_hash(self.details.seed, key));
        let mut column = [Entry { prefix: hash, place: 0 }];
        self.segment.add_filters(&mut column)
    }

    /// Seals the open segment where the next table has no room in it.
    fn make_room(&mut self, logs: &mut Logs, records: usize) -> Result<()> {
        let blocks = self.buffer.bytes() / self.details.block_bytes + 2;
        if !self.segment.fits(records, blocks) {
            let data_end = logs.end(self.data);
            self.segment.seal(logs, &mut self.index, data_end)?;
        }
        Ok(())
    }

    fn end_table(&mut self, logs: &mut Logs, at: u64, records: u64, greatest: &[u8]) -> Result<()> {
        self.block.end(logs, self.data, &mut self.segment.head)?;
        let blocks = self.block.end_table();
        self.segment.head.table(at, blocks, records, greatest);
        Ok(())
    }
}

/// The block being made.
struct Block {
    id: RunId,
    bytes: Vec<u8>,
    /// What is known of the key it starts with: the shortest string above all keys before; none in the
    /// middle of a record.
    first: Option<Vec<u8>>,
    joined: bool,
    /// The key put last.
    last: Option<Vec<u8>>,
    /// Least and greatest of the attribute.
    bounds: Option<(f64, f64)>,
    /// Blocks of the table so far.
    count: u32,
}

/// Bounds of no number.
const NONE: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

impl Block {
    fn new(id: RunId) -> Self {
        Self { id, bytes: Vec::new(), first: None, joined: false, last: None, bounds: None, count: 0 }
    }

    /// Appends a record, given in parts.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a record is, and the two files its block and its entry go to"
    )]
    fn record(
        &mut self,
        logs: &mut Logs,
        data: LogNumber,
        head: &mut HeadMaker,
        most: usize,
        key: &[u8],
        parts: &[&[u8]],
        number: Option<Option<f64>>,
    ) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if !self.bytes.is_empty() && self.bytes.len() + length > most {
            self.end(logs, data, head)?;
        }
        if self.bytes.is_empty() {
            self.joined = self.last.as_deref() == Some(key);
            self.first = Some(separator(self.last.as_deref(), key).to_vec());
            self.bounds = number.map(|_| NONE);
        }
        if let (Some((least, greatest)), Some(Some(number))) = (&mut self.bounds, number)
            && !number.is_nan()
        {
            (*least, *greatest) = (least.min(number), greatest.max(number));
        }
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        for part in parts {
            let mut part = *part;
            while self.bytes.len() + part.len() > most {
                let (now, later) = part.split_at(most - self.bytes.len());
                self.bytes.extend_from_slice(now);
                self.write(logs, data, head)?;
                part = later;
            }
            self.bytes.extend_from_slice(part);
        }
        // A record longer than a block has its blocks to itself.
        if length > most { self.end(logs, data, head) } else { Ok(()) }
    }

    /// Ends the block, if one is begun.
    fn end(&mut self, logs: &mut Logs, data: LogNumber, head: &mut HeadMaker) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { self.write(logs, data, head) }
    }

    fn write(&mut self, logs: &mut Logs, data: LogNumber, head: &mut HeadMaker) -> Result<()> {
        let at = logs.end(data);
        let crc = block_crc(self.id, at, &self.bytes);
        // A block has at most 16 MiB.
        head.block(self.bytes.len() as u32, crc, self.first.take().as_deref(), self.joined, self.bounds);
        self.joined = false;
        logs.append(data, &self.bytes)?;
        self.bytes.clear();
        self.count += 1;
        logs.pad(data, 0)
    }

    /// The table ends; its blocks.
    fn end_table(&mut self) -> u32 {
        self.last = None;
        std::mem::take(&mut self.count)
    }
}

/// The shortest string that is above `last` and not above `key`; all of `key` where they are equal.
fn separator<'a>(last: Option<&[u8]>, key: &'a [u8]) -> &'a [u8] {
    let Some(last) = last else { return &key[..key.len().min(GREATEST_MOST)] };
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
