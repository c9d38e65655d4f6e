//! Reading, and grouping records by part on several threads; chunks stay in input order.
//!
//! ```text
//!   pipeline: inputs ─▶ chunks ─▶ splitting threads: records grouped by part ─▶ write_parts, in input order
//! ```

use std::ops::Range;
use std::sync::Arc;

use ascot_io::clocks;
use ascot_model::stages;
use ascot_record::checksum::RecordSum;
use ascot_record::keys::misfits_written;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::{Cancel, Result};
use crate::pipeline::{ChunkWork, InOrder, Pipeline};
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
    /// By the same hash, to files that have the records of several parts.
    HashGroups(&'a HashGroups),
    /// By ranges of keys, to files that have the records of several parts. Records of one chunk are ordered by part.
    RangeGroups(&'a Splitters, &'a [usize]),
}

/// The file of each of `parts` parts, if files begin with the parts in `firsts`, which ascend; parts before the first
/// are in the first file.
pub fn files_of_parts(parts: usize, firsts: &[usize]) -> Vec<usize> {
    (0..parts).map(|part| firsts.partition_point(|&first| first <= part).saturating_sub(1)).collect()
}

/// The groups of parts as groups of files, each of consecutive parts.
fn by_file(groups: Vec<(usize, Range<usize>)>, file_of: &[usize]) -> Vec<(usize, Range<usize>)> {
    let mut joined: Vec<(usize, Range<usize>)> = Vec::new();
    for (part, range) in groups {
        let file = file_of[part];
        match joined.last_mut() {
            Some((last, before)) if *last == file && before.end == range.start => before.end = range.end,
            _ => joined.push((file, range)),
        }
    }
    joined
}

/// Consecutive parts by hash that share a file.
pub struct HashGroups {
    /// The file of each part.
    file_of: Vec<usize>,
    /// Number of files.
    files: usize,
}

impl HashGroups {
    /// Files for `parts` parts, which begin with the parts in `firsts`: see [`files_of_parts`].
    pub fn new(parts: usize, firsts: &[usize]) -> Self {
        HashGroups { file_of: files_of_parts(parts, firsts), files: firsts.len().max(1) }
    }

    fn file_of(&self, key: &[u8]) -> usize {
        let part = part_of_hash(key, self.file_of.len() as u32);
        self.file_of[part as usize]
    }
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
                group_by(records, bytes, out, parts as usize, &|key| part_of_hash(key, parts) as usize)
            }
            Router::HashGroups(groups) => {
                group_by(records, bytes, out, groups.files, &|key| groups.file_of(key))
            }
            Router::RangeGroups(splitters, file_of) => {
                by_file(records.group(bytes, splitters, out, scratch), file_of)
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
            Router::RangeGroups(splitters, file_of) => file_of[records.part_of(record, splitters)],
            Router::HashGroups(groups) => {
                let mut file = 0;
                records.each_key(record, &mut |_, key| file = groups.file_of(key));
                file
            }
        }
    }
}

/// Copies records to `out`, grouped by the part, of `parts`, that `part_of` finds for their key.
fn group_by<R: Records>(
    records: &R,
    bytes: &[u8],
    out: &mut [u8],
    parts: usize,
    part_of: &dyn Fn(&[u8]) -> usize,
) -> Vec<(usize, Range<usize>)> {
    // Computed twice rather than stored: records may consist of their terminators only.
    let mut sizes = vec![0; parts];
    records.each_key(bytes, &mut |range, key| sizes[part_of(key)] += range.len());
    let (mut ends, groups) = groups_of(&sizes);
    records.each_key(bytes, &mut |range, key| {
        let end = &mut ends[part_of(key)];
        out[*end..*end + range.len()].copy_from_slice(&bytes[range.clone()]);
        *end += range.len();
    });
    groups
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
    /// Length of the longest of them, bytes.
    pub longest: usize,
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
    take: impl FnOnce(&mut InOrder<'_, Grouped>) -> Result<()>,
) -> Result<()> {
    Pipeline::new(stages::SPLIT, threads, cancel).run_chunks(
        reader,
        Some(chunks),
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
    if !spilled {
        records.normalise(bytes);
    }
    let longest = records.sum(bytes, &mut sum);
    // The key of every record is written, since it decides the record's part.
    let before = misfits_written();
    let groups = match &mut out {
        Some(out) => router.group(records, bytes, out.bytes_mut(), scratch),
        None => vec![(router.part_of(records, bytes), range)],
    };
    let misfit = before != misfits_written() && !spilled;
    let misfits = if misfit { records.misfits(bytes) } else { ChunkMisfits::default() };
    let misfits = misfits.placed(&placed.starts);
    Grouped { lease: out.unwrap_or(placed.chunk.lease), groups, sum, longest, misfits, end: placed.end }
}
