//! The interface between records and the passes of a sort, and sorted records in memory.
//!
//! ```text
//!   Sorted   memory with sorted records: a chunk (records in order) or a block read back
//!   Segment  the positions lo..hi of a Sorted
//!   source   segments one after another: one sorted sequence
//!   Task     a key range of several sources, to be merged into consecutive output
//! ```
//!
//! [`Framed`] records have a framing and keys; [`Numbers`] are their own keys. `dispatch` chooses between them,
//! `emitter` collects merged records into blocks, `splitters` bound parts, `misfits` are values of another type than
//! their column, `unchecked` inputs may not be sorted, and `sparse_starts` lead to records of any length.
//!
//! Positions inside a [`Sorted`] are ordinals for numbers, byte offsets for all other records. Only the
//! [`Records`] that made a `Sorted` interprets them.

mod dispatch;
pub mod emitter;
mod framed;
pub mod misfits;
mod numbers;
mod sparse_starts;
mod splitters;
pub(crate) mod unchecked;

pub(crate) use dispatch::{AnyRecords, with_records};
pub(crate) use emitter::{Emitter, Merged, MergedBlock, Message};
pub(crate) use misfits::{ChunkMisfits, InputStart, KeyMisfits, Misfit, Misfits, fix_of, title};

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use ascot_record::checksum::RecordSum;
use ascot_record::framing::{Partial, StartSearch};
use ascot_record::keys::KeyColumn;

pub use ascot_record::framing::Cut;
pub use dispatch::{InputHead, sample_rows};
pub use framed::Framed;
pub use numbers::{Number, Numbers};
pub use splitters::Splitters;
pub use unchecked::Unchecked;

use crate::records::emitter::Stopped;
use crate::resources::Lease;

/// Sorted records in memory.
pub struct Sorted {
    /// The buffer; chunks cut from one buffer share it.
    pub lease: Arc<Lease>,
    /// Byte range of the records in it.
    pub bytes: Range<usize>,
    /// The index by which records are found.
    pub index: Index,
    /// Their place in an input that may not be sorted; none: they are sorted.
    pub unchecked: Option<Unchecked>,
}

/// The index of a [`Sorted`].
pub enum Index {
    /// The records are in order; these are the starts of some of them, ascending, including the first.
    Sparse(Vec<u32>),
    /// Numbers, in order.
    Array,
    /// Groups of numbers in key order, not in order within a group.
    Groups(Groups),
}

/// The bounds of grouped numbers.
pub struct Groups {
    /// The splitters between the groups.
    pub bounds: Arc<Splitters>,
    /// Position of the first number of each group, and the position after the last.
    pub starts: Vec<u32>,
}

impl Sorted {
    /// The bytes of the records.
    pub fn record_bytes(&self) -> &[u8] {
        &self.lease.bytes()[self.bytes.clone()]
    }
}

/// A range of sorted records.
#[derive(Clone)]
pub struct Segment {
    /// The memory.
    pub sorted: Arc<Sorted>,
    /// First position.
    pub lo: u32,
    /// Position after the last.
    pub hi: u32,
}

impl Segment {
    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.lo >= self.hi
    }

    /// Whether it has records, and they are known to be in order.
    pub fn is_in_order(&self) -> bool {
        !self.is_empty() && self.sorted.unchecked.is_none() && !matches!(self.sorted.index, Index::Groups(_))
    }
}

/// A key range of several sources; sources are in input order, which breaks ties between equal records.
pub struct Task {
    /// The sources; each is one sorted sequence.
    pub sources: Vec<Vec<Segment>>,
    /// Key of the record emitted before this task, if duplicates are dropped.
    pub previous: Option<Vec<u8>>,
    /// Whether it returns the key of its last record: for the last task of a batch that another batch follows.
    pub last: bool,
    /// Maximum number of records to emit.
    pub limit: u64,
}

impl Task {
    /// Whether its sources may not be sorted, so that the merge checks them.
    pub fn is_unchecked(&self) -> bool {
        self.sources.iter().flatten().any(|segment| segment.sorted.unchecked.is_some())
    }
}

/// Rules of a merge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Keep only the first of equal keys.
    pub unique: bool,
    /// Sum up the records emitted: they are the final result.
    pub sum: bool,
}

/// A record that ends before its key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyless {
    /// Records before it.
    pub before: usize,
    /// Bytes before it.
    pub offset: usize,
    /// Its length as counted for keys, bytes.
    pub have: usize,
    /// The minimum length for the keys, bytes.
    pub needed: usize,
}

/// Bytes of whole records, not yet sorted.
pub struct RawChunk {
    /// The memory.
    pub lease: Lease,
    /// Byte range of the records.
    pub bytes: Range<usize>,
    /// Whether they come from a spill: normalised, and summed up before.
    pub spilled: bool,
    /// Splitters to group its records by, if [`Records::groups_parts`]: then they need no sort yet.
    pub grouping: Option<Arc<Splitters>>,
}

impl RawChunk {
    /// The bytes of the records.
    pub fn record_bytes(&self) -> &[u8] {
        &self.lease.bytes()[self.bytes.clone()]
    }

    /// The bytes of the records, to be normalised.
    pub fn record_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.lease.bytes_mut()[self.bytes.clone()]
    }
}

/// The side of equal records on which a cut falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before them.
    Lower,
    /// After them.
    Upper,
}

/// The ends of records, which a [`RecordReader`](crate::read::record_reader::RecordReader) finds.
pub trait RecordEnds: Send + Sync + 'static {
    /// Cuts off at most `max_records` whole records.
    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut;
    /// Searches the end of a record in its next part. Returns the offset of the end in the part.
    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize>;
    /// A search for the start of a record from the middle of a file; see [`Framing::start_search`].
    ///
    /// [`Framing::start_search`]: ascot_record::framing::Framing::start_search
    fn start_search(&self) -> Option<StartSearch> {
        None
    }
    /// The length of every record, if it is fixed.
    fn record_bytes(&self) -> Option<usize>;
    /// The byte that completes a last record without a terminator; none: such a record is cut short.
    fn completion(&self) -> Option<u8>;
    /// Cuts off all whole records up to the first that ends before its key does, which is returned, too.
    fn cut_keyed(&self, bytes: &[u8]) -> (Cut, Option<Keyless>) {
        (self.cut(bytes, usize::MAX), None)
    }
}

/// The operations on one record layout under one order.
pub trait Records: RecordEnds {
    /// A record used as a bound between records.
    type Bound: Clone + Send + Sync + 'static;
    /// Scratch of a sorting thread.
    type Scratch: Send;

    /// Scratch for chunks; its size is [`Records::scratch_bytes`].
    fn scratch(&self, chunk_bytes: usize) -> Self::Scratch;
    /// Size of [`Records::scratch`], bytes.
    fn scratch_bytes(&self, chunk_bytes: usize) -> usize;
    /// Whether sorting a chunk copies its records to a second buffer.
    fn gathers(&self) -> bool {
        !self.groups_parts()
    }
    /// Whether it is best to group the chunks of a part by key, and to sort each group in the merge,
    /// instead of sorting twice.
    fn groups_parts(&self) -> bool {
        false
    }
    /// The number of the part that a record belongs to.
    fn part_of(&self, record: &[u8], splitters: &Splitters) -> usize {
        let mut keys = Vec::new();
        self.sample_keys(record, 1, &mut keys);
        keys.first().map_or(0, |key| splitters.part_of(key))
    }
    /// Sorts a chunk and adds its records to `sum`. If sorting gathers, `out` is at least as long
    /// as the chunk's memory and takes the records; else they are sorted in place.
    fn sort(
        &self,
        chunk: RawChunk,
        out: Option<Lease>,
        scratch: &mut Self::Scratch,
        sum: &mut RecordSum,
    ) -> Vec<Arc<Sorted>>;
    /// The columns of the keys, if the keys are columns.
    fn key_columns(&self) -> &[KeyColumn] {
        &[]
    }
    /// The values of whole records that are not of their column's type (misfits).
    fn misfits(&self, _bytes: &[u8]) -> ChunkMisfits {
        ChunkMisfits::default()
    }
    /// The misfits of the chunk sorted last, unless it came from a spill.
    fn take_misfits(&self, _scratch: &mut Self::Scratch) -> ChunkMisfits {
        ChunkMisfits::default()
    }
    /// Indexes sorted records that were read back.
    fn index(&self, lease: Lease, bytes: Range<usize>) -> Sorted;
    /// Whether equal keys leave only the input order as a tie-breaker.
    fn keys_decide(&self) -> bool;
    /// Whether keys descend.
    fn descending(&self) -> bool;
    /// Converts bytes of an input to the form of spills.
    fn normalise(&self, _bytes: &mut [u8]) {}
    /// Converts the bytes of a finished block to the form of the output.
    fn finish(&self, _bytes: &mut [u8]) {}

    /// Bytes between two positions in a [`Sorted`].
    fn position_bytes(&self) -> usize {
        1
    }
    /// All records of `sorted`.
    fn whole(&self, sorted: Arc<Sorted>) -> Segment {
        let hi = self.position_at(sorted.bytes.len());
        Segment { sorted, lo: 0, hi }
    }
    /// Position of the record at a byte offset.
    fn position_at(&self, offset: usize) -> u32 {
        (offset / self.position_bytes()) as u32
    }
    /// Byte offset of a position.
    fn offset_of(&self, position: u32) -> u32 {
        position * self.position_bytes() as u32
    }
    /// Length of a segment, bytes.
    fn bytes_in(&self, segment: &Segment) -> u64 {
        u64::from(segment.hi.saturating_sub(segment.lo)) * self.position_bytes() as u64
    }
    /// The first record of a segment, which must not be empty.
    fn first(&self, segment: &Segment) -> Self::Bound;
    /// The last record of a segment, which must not be empty.
    fn last(&self, segment: &Segment) -> Self::Bound;
    /// About `count` records spread evenly over a segment. `phase`, from 0 to 1 without 1: their place in their
    /// `count`th of the segment.
    fn sample(&self, segment: &Segment, count: usize, phase: f64, out: &mut Vec<Self::Bound>);
    /// Order of two records, with the tie-breaking of the sort for equal keys.
    fn compare(&self, a: &Self::Bound, b: &Self::Bound) -> Ordering;
    /// Order of two records by their keys alone.
    fn compare_keys(&self, a: &Self::Bound, b: &Self::Bound) -> Ordering;
    /// The normalised key of a record.
    fn key_of(&self, bound: &Self::Bound) -> Vec<u8>;
    /// The position of the first record that is not below `bound` (or is above it, for [`Side::Upper`]). With
    /// `keys_only`, records of equal keys count as equal. Records that are not sorted have one or several positions
    /// between a record below `bound` and one that is not: it is one of them, or an end of the segment.
    fn position(&self, segment: &Segment, bound: &Self::Bound, side: Side, keys_only: bool) -> u32;
    /// The same for a normalised key.
    fn position_of_key(&self, segment: &Segment, key: &[u8], side: Side) -> u32;
    /// Prefix of the key of the first record of `bytes`, smaller for an earlier key.
    fn first_prefix(&self, bytes: &[u8]) -> u64;

    /// Merges a task into `out`. If it is unchecked, no record is emitted that follows one out of order by its key.
    fn merge(&self, task: &Task, rules: Rules, out: &mut Emitter) -> Result<Merged, Stopped>;

    /// Copies whole records to `out`, grouped by part, each group in input order. Returns the parts
    /// that have records, and their byte ranges.
    fn group(
        &self,
        bytes: &[u8],
        splitters: &Splitters,
        out: &mut [u8],
        scratch: &mut Self::Scratch,
    ) -> Vec<(usize, Range<usize>)>;
    /// Adds whole records to a sum, and returns the length of the longest.
    fn sum(&self, bytes: &[u8], sum: &mut RecordSum) -> usize;
    /// Offset of the first record of `bytes` (whole records) that sorts before its predecessor (`previous` for
    /// the first); with `strict` also of a record that equals its predecessor.
    fn disorder(&self, previous: Option<&[u8]>, bytes: &[u8], strict: bool) -> Option<usize>;
    /// Offset of the last of some whole records.
    fn last_record(&self, bytes: &[u8]) -> usize;
    /// Calls `take` with the byte range and the normalised key of each of some whole records.
    fn each_key(&self, bytes: &[u8], take: &mut dyn FnMut(Range<usize>, &[u8]));
    /// The normalised keys of about `count` records spread evenly over unsorted whole records.
    fn sample_keys(&self, bytes: &[u8], count: usize, out: &mut Vec<Vec<u8>>);

    /// The same of bytes in the middle of a file, `from_start` at its beginning: records that are cut short at either
    /// end do not count.
    fn sample_keys_within(&self, bytes: &mut [u8], from_start: bool, count: usize, out: &mut Vec<Vec<u8>>) {
        // Without a fixed record length the bytes most likely begin within a record.
        let skip = if from_start || self.record_bytes().is_some() { 0 } else { self.cut(bytes, 1).bytes };
        let end = skip + self.cut(&bytes[skip..], usize::MAX).bytes;
        self.normalise(&mut bytes[skip..end]);
        self.sample_keys(&bytes[skip..end], count, out);
    }

    /// The offset at or before `at` where a sample begins: where a record begins, if all have one length.
    fn sample_offset(&self, at: u64) -> u64 {
        self.record_bytes().map_or(at, |len| at / len as u64 * len as u64)
    }
}

/// The places of `count` samples in `len` elements, one in each `count`th of them, at its `phase`.
fn sample_places(len: usize, count: usize, phase: f64) -> impl Iterator<Item = usize> {
    let apart = len as f64 / count.max(1) as f64;
    (0..count).map(move |number| (((number as f64 + phase) * apart) as usize).min(len.saturating_sub(1)))
}

/// The byte ranges of the parts in a buffer grouped by part, for parts of the given sizes; empty parts are left out.
pub fn groups_of(sizes: &[usize]) -> (Vec<usize>, Vec<(usize, Range<usize>)>) {
    let mut places = Vec::with_capacity(sizes.len());
    let mut groups = Vec::new();
    let mut at = 0;
    for (part, &size) in sizes.iter().enumerate() {
        places.push(at);
        if size > 0 {
            groups.push((part, at..at + size));
        }
        at += size;
    }
    (places, groups)
}
