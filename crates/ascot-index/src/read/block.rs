//! Records of blocks that have been read: checksums first, then units, then records.

use std::borrow::Cow;
use std::ops::Range;

use ascot_io::block_checksum;

use crate::error::{IndexError, Result};
use crate::format::bytes::Cursor;
use crate::format::head::{Block, Head};
use crate::format::record::{Record, RecordForm};
use crate::read::Segment;
use crate::read::fetch::Spot;
use crate::read::gaps::Gaps;

/// Neighbouring blocks of one table, whole units.
#[derive(Clone)]
pub struct Stretch {
    /// Where they are.
    pub segment: Segment,
    /// Blocks, counted in the segment.
    pub blocks: Range<usize>,
}

impl Stretch {
    /// The place to read.
    pub fn spot(&self) -> Spot {
        let blocks = &self.segment.head.blocks[self.blocks.clone()];
        let (at, end) = match (blocks.first(), blocks.last()) {
            (Some(first), Some(last)) => (first.at, last.at + u64::from(last.bytes)),
            _ => (0, 0),
        };
        // Blocks of a segment that is in memory: no more than the file has.
        Spot {
            path: self.segment.log.data.clone(),
            at,
            bytes: usize::try_from(end - at).unwrap_or(usize::MAX),
        }
    }

    /// Hands every record in `bytes`, which are those of the stretch, to `take`; of units that are damaged what `gaps` says.
    pub fn records(
        &self,
        form: RecordForm,
        bytes: &[u8],
        gaps: &Gaps,
        mut take: impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let blocks = &self.segment.head.blocks[self.blocks.clone()];
        let start = blocks.first().map_or(0, |block| block.at);
        let mut first = 0;
        while first < blocks.len() {
            let unit = first..unit_end(blocks, first);
            let joined = gaps.allow(self.unit(&blocks[unit.clone()], start, bytes))?.unwrap_or_default();
            let mut cursor = Cursor::new(&joined);
            // A layout has no records of no bytes, so it goes on.
            while cursor.left() > 0 {
                let record = form.next(&mut cursor);
                let record =
                    record.ok_or_else(|| self.damaged(&blocks[first], "a record ends outside its block"));
                let Some(record) = gaps.allow(record)? else { break };
                gaps.of_taker(take(record))?;
            }
            first = unit.end;
        }
        Ok(())
    }

    /// The bytes of a unit, all of its checksums looked at.
    fn unit<'a>(&self, blocks: &[Block], start: u64, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let mut joined = Cow::Borrowed(&bytes[..0]);
        for block in blocks {
            let at = usize::try_from(block.at - start).unwrap_or(usize::MAX);
            let own = bytes.get(at..).and_then(|rest| rest.get(..block.bytes as usize));
            let own = own.ok_or_else(|| self.damaged(block, "a block ends outside what was read"))?;
            if block_checksum(self.segment.log.id, block.at, own) != block.crc {
                return Err(self.damaged(block, "the checksum of a block is wrong"));
            }
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

/// One past the last block of the unit that starts at `first`.
pub fn unit_end(blocks: &[Block], first: usize) -> usize {
    let rest = blocks.iter().skip(first + 1);
    first + 1 + rest.take_while(|block| !block.starts()).count()
}

/// The number of blocks from `first` on, whole units, that come to no more than `bytes`; one unit at least.
pub fn stretch_end(head: &Head, first: usize, end: usize, bytes: u64) -> usize {
    let blocks = &head.blocks[..end];
    let mut upto = unit_end(blocks, first);
    while upto < end {
        let next = unit_end(blocks, upto);
        if blocks[next - 1].at + blocks[next - 1].padded() - blocks[first].at > bytes {
            break;
        }
        upto = next;
    }
    upto
}
