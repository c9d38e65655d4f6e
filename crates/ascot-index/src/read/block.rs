//! Parsing blocks after they are read: checksums are verified first, then units are joined, then records are
//! parsed.

use std::borrow::Cow;
use std::ops::Range;

use ascot_io::PAGE_BYTES;

use crate::error::{IndexError, Result};
use crate::format::bytes::Cursor;
use crate::format::head::{Block, SegmentHead};
use crate::format::record::{KEY_MAX, Record, RecordForm};
use crate::read::covered::check_padding_bytes;
use crate::read::files::ByteRange;
use crate::read::long_value::{LongValue, read_blocks};
use crate::read::read_policy::ReadPolicy;
use crate::read::stored::{Content, Inline};
use crate::read::{Directory, Segment};

/// The position of a record in a table.
#[derive(Clone, Debug)]
pub struct RecordPosition {
    /// The blocks of its unit, as indexes in the segment.
    pub blocks: Range<usize>,
    /// Bytes from the start of the unit to its value.
    pub value_at: u64,
}

/// Consecutive blocks of one table that form whole units.
#[derive(Clone)]
pub struct BlockRange {
    /// The segment that has the blocks.
    pub segment: Segment,
    /// Blocks, as indexes in the segment.
    pub blocks: Range<usize>,
}

impl BlockRange {
    /// The entries of the blocks, and the place of the first.
    fn entries(&self) -> (&[Block], u64) {
        let blocks = &self.segment.head.blocks[self.blocks.clone()];
        (blocks, blocks.first().map_or(0, |block| block.at))
    }

    /// The bytes of the blocks in the data log.
    pub fn byte_range(&self) -> ByteRange {
        let (_, at) = self.entries();
        // The blocks of a segment in memory are no longer than the file.
        let bytes = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
        ByteRange { path: self.segment.log.data.clone(), at, bytes }
    }

    /// Hands every record in `bytes`, the bytes of the block range, to `take`. `policy` decides whether
    /// damaged units are errors.
    pub fn records(
        &self,
        form: RecordForm,
        bytes: &[u8],
        policy: &ReadPolicy,
        mut take: impl FnMut(Record<'_>, &RecordPosition) -> Result<()>,
    ) -> Result<()> {
        let (blocks, start) = self.entries();
        let mut first = 0;
        while first < blocks.len() {
            let unit = first..unit_end(blocks, first);
            let joined = policy.allow(self.unit(&blocks[unit.clone()], start, bytes))?.unwrap_or_default();
            let mut cursor = Cursor::new(&joined);
            // The loop ends: no layout has records of zero bytes.
            while cursor.left() > 0 {
                let record = form.next(&mut cursor);
                let record =
                    record.ok_or_else(|| self.damaged(&blocks[first], "a record ends outside its block"));
                let Some(record) = policy.allow(record)? else { break };
                let value_at = (cursor.at() - record.value.len()) as u64;
                let own = self.blocks.start + unit.start..self.blocks.start + unit.end;
                policy.note_taken(take(record, &RecordPosition { blocks: own, value_at }))?;
            }
            first = unit.end;
        }
        Ok(())
    }

    /// The bytes to read if the padding after the last block is included.
    pub fn padded_range(&self) -> ByteRange {
        let byte_range = self.byte_range();
        ByteRange { bytes: byte_range.bytes.next_multiple_of(PAGE_BYTES), ..byte_range }
    }

    /// Checks that the padding of the blocks is zero in `bytes`, which were read at
    /// [`padded_range`](Self::padded_range).
    pub fn check_padding(&self, bytes: &[u8]) -> Result<()> {
        let (blocks, start) = self.entries();
        blocks.iter().try_for_each(|block| {
            let from = block.at + u64::from(block.bytes);
            let end = block.at + block.padded();
            let at = |place: u64| usize::try_from(place - start).unwrap_or(usize::MAX);
            let padding = bytes.get(at(from)..at(end)).unwrap_or_default();
            check_padding_bytes(&self.segment.log.data, from, padding)
        })
    }

    /// Verifies the checksums of blocks in `bytes` that are not whole records.
    pub fn check_sums(&self, bytes: &[u8]) -> Result<()> {
        let (blocks, start) = self.entries();
        blocks.iter().try_for_each(|block| self.segment.block_bytes(block, start, bytes).map(|_| ()))
    }

    /// Bytes from its first block to the end of its last.
    pub fn bytes(&self) -> u64 {
        let (blocks, start) = self.entries();
        blocks.last().map_or(0, |last| last.at + u64::from(last.bytes) - start)
    }

    /// Whether the range is a single record in several blocks, longer than `bytes`.
    pub fn is_longer_record(&self, bytes: u64) -> bool {
        let blocks = &self.segment.head.blocks;
        let is_one = self.blocks.len() > 1 && unit_end(blocks, self.blocks.start) >= self.blocks.end;
        is_one && self.bytes() > bytes
    }

    /// Splits the range into ranges of whole units of at most `bytes` each; a longer unit is a range of its
    /// own.
    pub fn parts(&self, bytes: u64) -> Vec<BlockRange> {
        let mut parts = Vec::new();
        let mut first = self.blocks.start;
        while first < self.blocks.end {
            let end = block_range_end(&self.segment.head, first, self.blocks.end, bytes);
            parts.push(BlockRange { segment: self.segment.clone(), blocks: first..end });
            first = end;
        }
        parts
    }

    /// Key and value of a range that is a single record.
    pub fn long_record(&self, directory: &Directory) -> Result<(Vec<u8>, Content)> {
        let blocks = &self.segment.head.blocks[self.blocks.clone()];
        let form = directory.layout().form();
        let whole = blocks.iter().map(|block| u64::from(block.bytes)).sum::<u64>();
        let wrong = || match blocks.first() {
            Some(block) => self.damaged(block, "a record ends outside its block"),
            None => IndexError::damaged(&self.segment.log.data, 0, "a record has no block"),
        };
        let head = self.first_bytes(directory, whole.min(RecordForm::HEAD_MAX as u64))?;
        let (at, key, value) = form.lengths(&head).ok_or_else(wrong)?;
        let value_at = (at as u64).saturating_add(key as u64);
        if key > KEY_MAX || value_at.checked_add(value) != Some(whole) {
            return Err(wrong());
        }
        let _memory = directory.pool.reserve(2 * key, "the key of a long record")?;
        let key = self.first_bytes(directory, value_at)?.split_off(at);
        let value = LongValue::in_blocks(self.segment.clone(), self.blocks.clone(), value_at, value);
        let mut value = Content::Long(value);
        if value.length() <= Inline::Least.bytes(directory) as u64 {
            // The record is about as long as its key.
            value.load(directory)?;
        }
        Ok((key, value))
    }

    /// The first `bytes` bytes of the records in the range.
    fn first_bytes(&self, directory: &Directory, bytes: u64) -> Result<Vec<u8>> {
        let mut read = Vec::new();
        read_blocks(directory, &self.segment, self.blocks.clone(), 0..bytes, &mut |part| {
            read.extend_from_slice(part);
            Ok(())
        })?;
        Ok(read)
    }

    /// The bytes of a unit, after the checksums of its blocks are verified.
    fn unit<'a>(&self, blocks: &[Block], start: u64, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let mut joined = Cow::Borrowed(&bytes[..0]);
        for block in blocks {
            let own = self.segment.block_bytes(block, start, bytes)?;
            if joined.is_empty() {
                joined = Cow::Borrowed(own);
            } else {
                joined.to_mut().extend_from_slice(own);
            }
        }
        Ok(joined)
    }

    fn damaged(&self, block: &Block, what: &'static str) -> IndexError {
        IndexError::damaged(&self.segment.log.data, block.at, what)
    }
}

/// Block ranges that are read in the same manner.
pub enum Group<'a> {
    /// One record that is read in parts.
    Long(&'a BlockRange),
    /// Block ranges that are each read as a whole.
    Short(&'a [BlockRange]),
}

/// Groups block ranges in order: each range that is one record of more than `max_bytes` bytes, and runs of the
/// others.
pub fn groups(block_ranges: &[BlockRange], max_bytes: u64) -> impl Iterator<Item = Group<'_>> {
    let is_long = move |block_range: &BlockRange| block_range.is_longer_record(max_bytes);
    block_ranges.chunk_by(move |one, other| !is_long(one) && !is_long(other)).map(move |same| match same {
        [one] if is_long(one) => Group::Long(one),
        several => Group::Short(several),
    })
}

/// One past the last block of the unit that starts at `first`.
pub fn unit_end(blocks: &[Block], first: usize) -> usize {
    let rest = blocks.iter().skip(first + 1);
    first + 1 + rest.take_while(|block| !block.starts()).count()
}

/// The end of the longest run of whole units from `first` that takes at most `bytes`; at least one unit.
pub fn block_range_end(head: &SegmentHead, first: usize, end: usize, bytes: u64) -> usize {
    let blocks = &head.blocks[..end];
    let mut fits_until = unit_end(blocks, first);
    while fits_until < end {
        let next = unit_end(blocks, fits_until);
        if blocks[next - 1].at + blocks[next - 1].padded() - blocks[first].at > bytes {
            break;
        }
        fits_until = next;
    }
    fits_until
}
