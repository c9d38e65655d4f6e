//! Reading, and grouping records by part on several threads; chunks stay in input order.
//!
//! ```text
//!   pipeline: inputs ─▶ chunks ─▶ splitting threads: records grouped by part ─▶ write_parts, in input order
//! ```

use std::ops::Range;
use std::sync::Arc;

use ascot_io::clocks;
use ascot_record::checksum::RecordSum;
use ascot_record::keys::misfits_written;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::{Cancel, SortError};
use crate::pipeline::{ChunkWork, InOrder, Pipeline, read_chunks};
use crate::read::{InputPosition, RecordReader};
use crate::records::{ChunkMisfits, Misfits, Records, Splitters, groups_of};
use crate::resources::{ChunkPool, Lease};

/// Bytes of a chunk being split: two of them fit a second-level cache.
pub const SPLIT_CHUNK_BYTES: usize = 1 << 20;

/// Decides which part a record belongs to.
#[derive(Clone, Copy)]
pub enum Router<'a> {
    /// By ranges of keys.
    Ranges(&'a Splitters),
    /// By the XXH3 hash of the normalised key, scaled to this many parts.
    Hash(u32),
}

impl Router<'_> {
    /// Copies whole records to `out`, grouped by part, each group in input order. Returns the parts that have records,
    /// and their ranges in `out`.
    fn group<R: Records>(
        self,
        records: &R,
        bytes: &[u8],
        out: &mut [u8],
        scratch: &mut R::Scratch,
    ) -> Vec<(usize, Range<usize>)> {
        match self {
            Router::Ranges(splitters) => records.group(bytes, splitters, out, scratch),
            Router::Hash(parts) => {
                // Hashed twice rather than stored: records may consist of their terminators only.
                let mut sizes = vec![0; parts as usize];
                records.each_key(bytes, &mut |range, key| {
                    sizes[part_of_hash(key, parts) as usize] += range.len();
                });
                let (mut ends, groups) = groups_of(&sizes);
                records.each_key(bytes, &mut |range, key| {
                    let end = &mut ends[part_of_hash(key, parts) as usize];
                    out[*end..*end + range.len()].copy_from_slice(&bytes[range.clone()]);
                    *end += range.len();
                });
                groups
            }
        }
    }

    /// The part of one record.
    fn part_of<R: Records>(self, records: &R, record: &[u8]) -> usize {
        match self {
            Router::Ranges(splitters) => records.part_of(record, splitters),
            Router::Hash(parts) => {
                let mut part = 0;
                records.each_key(record, &mut |_, key| part = part_of_hash(key, parts));
                part as usize
            }
        }
    }
}

/// The upper bits of a hash spread keys evenly over any number of parts.
pub(crate) fn part_of_hash(key: &[u8], parts: u32) -> u32 {
    ((u128::from(xxh3_64(key)) * u128::from(parts)) >> 64) as u32
}

/// A chunk whose records are grouped by part, each group in input order.
pub struct Grouped {
    /// Its memory.
    pub lease: Lease,
    /// Parts, and the ranges of their records in the memory.
    pub groups: Vec<(usize, Range<usize>)>,
    /// Sum of its records.
    pub sum: RecordSum,
    /// Values of these records that are not of their column's type.
    pub misfits: Misfits,
    /// Position in the inputs after it.
    pub end: InputPosition,
}

/// Reads and groups all chunks of `reader`; `take` gets the chunks.
pub fn split_chunks<R: Records>(
    records: &Arc<R>,
    reader: RecordReader<R>,
    chunks: &ChunkPool,
    router: Router<'_>,
    threads: usize,
    cancel: &Cancel,
    take: impl FnOnce(&mut InOrder<'_, Grouped>) -> Result<(), SortError>,
) -> Result<(), SortError> {
    let turns = reader.turns().cloned();
    let pipeline = Pipeline { work: "split", threads, queue: None, turns, cancel };
    pipeline.run(
        |feed| read_chunks(reader, Some(chunks), feed, cancel),
        || {
            let mut scratch = records.scratch(SPLIT_CHUNK_BYTES);
            move |work| group(&**records, router, work, &mut scratch)
        },
        take,
    )
}

fn group<R: Records>(records: &R, router: Router<'_>, work: ChunkWork, scratch: &mut R::Scratch) -> Grouped {
    let ChunkWork { mut placed, mut out } = work;
    let range = placed.chunk.bytes.clone();
    let mut sum = RecordSum::new();
    let spilled = placed.chunk.spilled;
    let bytes = placed.chunk.record_bytes_mut();
    clocks::count(bytes.len() as u64);
    records.normalise(bytes);
    records.sum(bytes, &mut sum);
    // The key of every record is written, since it decides the record's part.
    let before = misfits_written();
    let groups = match &mut out {
        Some(out) => router.group(records, bytes, out.bytes_mut(), scratch),
        None => vec![(router.part_of(records, bytes), range)],
    };
    let misfit = before != misfits_written() && !spilled;
    let misfits = if misfit { records.misfits(bytes) } else { ChunkMisfits::default() };
    let misfits = misfits.placed(&placed.starts);
    Grouped { lease: out.unwrap_or(placed.chunk.lease), groups, sum, misfits, end: placed.end }
}
