//! What the passes of a sort need to know of records, and sorted records in memory.
//!
//! ```text
//!   Sorted   memory with sorted records: a chunk (records in order) or a block read back
//!   Segment  the positions lo..hi of a Sorted
//!   source   segments one after another: one sorted sequence
//!   Task     a key range of several sources, to be merged into consecutive output
//! ```
//!
//! Positions inside a [`Sorted`] are ordinals for numbers, byte offsets for all else. Only the
//! [`Records`] that made a `Sorted` interprets them.

mod dispatch;
pub mod emitter;
mod framed;
pub mod misfits;
mod numbers;
mod splitters;

pub(crate) use dispatch::{AnyRecords, with_records};
pub(crate) use emitter::{Clocks, Emitter, Merged, MergedBlock, Message, add, take};
pub(crate) use misfits::{ChunkMisfits, InputStart, KeyMisfits, Misfit, Misfits, fix_of, title};

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use ascot_record::checksum::RecordSum;
use ascot_record::framing::{Framing, Partial};
use ascot_record::keys::KeyColumn;

pub use dispatch::{InputHead, sample_rows};
pub use framed::Framed;
pub use numbers::{Number, Numbers};
pub use splitters::Splitters;

use crate::records::emitter::Stopped;
use crate::resources::Lease;

/// Sorted records in memory.
pub struct Sorted {
    /// The memory; chunks cut from one buffer share it.
    pub lease: Arc<Lease>,
    /// Where the records are in it, bytes.
    pub bytes: Range<usize>,
    /// How to find them.
    pub index: Index,
}

/// How the records of a [`Sorted`] are found.
pub enum Index {
    /// The records lie in order; the starts of some of them, ascending, the first included.
    Sparse(Vec<u32>),
    /// Numbers, in order.
    Array,
    /// Numbers of groups in key order, not in order inside them.
    Groups(Groups),
}

/// Where the groups of grouped numbers begin.
pub struct Groups {
    /// What bounds them.
    pub bounds: Arc<Splitters>,
    /// Position of the first number of each, and the position after the last.
    pub starts: Vec<u32>,
}

impl Sorted {
    /// The bytes of the records.
    pub fn record_bytes(&self) -> &[u8] {
        &self.lease.bytes()[self.bytes.clone()]
    }
}

/// A stretch of sorted records.
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
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.lo >= self.hi
    }
}

/// A key range of several sources; sources are in input order, which settles equal records.
pub struct Task {
    /// One sorted sequence each.
    pub sources: Vec<Vec<Segment>>,
    /// Key of the record emitted before this task, where duplicates are left out.
    pub previous: Option<Vec<u8>>,
    /// It tells the key of its last record: the last task of a batch that another one follows.
    pub last: bool,
    /// Emit at most so many records.
    pub limit: u64,
}

/// What to do while merging.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Keep only the first of equal keys.
    pub unique: bool,
    /// Sum up what is emitted: it is the final result.
    pub sum: bool,
}

/// Whole records at the front of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Their number.
    pub records: usize,
    /// Their length in all.
    pub bytes: usize,
}

/// A record that ends before its key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyless {
    /// Records before it.
    pub before: usize,
    /// Bytes before it.
    pub offset: usize,
    /// Its length, as keys count it, bytes.
    pub have: usize,
    /// The length it should have at least, bytes.
    pub needed: usize,
}

/// Bytes of whole records, not yet sorted.
pub struct RawChunk {
    /// The memory.
    pub lease: Lease,
    /// Where the records are.
    pub bytes: Range<usize>,
    /// They come from a spill: in the form of spills, and summed up before.
    pub spilled: bool,
    /// What to group its records by, where [`Records::groups_parts`]: then they need no sort yet.
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

/// Which side of equal records a cut falls on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before them.
    Lower,
    /// After them.
    Upper,
}

/// Where records end: all that a [`RecordReader`](crate::read::record_reader::RecordReader) needs to know of them.
pub trait RecordEnds: Send + Sync + 'static {
    /// Cuts off at most `max_records` whole records.
    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut;
    /// Looks for the end of a record in its next part; returns its place in the part.
    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize>;
    /// The byte that completes a last record without its end; none: such a record is cut short.
    fn completion(&self) -> Option<u8>;
    /// The first of some whole records that ends before its key does.
    fn keyless(&self, _bytes: &[u8]) -> Option<Keyless> {
        None
    }
}

/// What is known of one record layout under one order.
pub trait Records: RecordEnds {
    /// A record as a place to cut at.
    type Bound: Clone + Send + Sync + 'static;
    /// Scratch of a sorting thread.
    type Scratch: Send;

    /// Scratch for chunks; its size is [`Records::scratch_bytes`].
    fn scratch(&self, chunk_bytes: usize) -> Self::Scratch;
    /// Bytes [`Records::scratch`] takes.
    fn scratch_bytes(&self, chunk_bytes: usize) -> usize;
    /// Whether sorting a chunk copies its records to a second buffer.
    fn gathers(&self) -> bool;
    /// Whether the chunks of a part are best grouped by key and sorted group by group while they are
    /// merged, instead of sorted twice.
    fn groups_parts(&self) -> bool {
        false
    }
    /// The length of every record, where it is fixed.
    fn record_bytes(&self) -> Option<usize>;

    /// The part that a record belongs to.
    fn part_of(&self, record: &[u8], splitters: &Splitters) -> usize {
        let mut keys = Vec::new();
        self.sample_keys(record, 1, &mut keys);
        keys.first().map_or(0, |key| splitters.part_of(key))
    }
    /// Sorts a chunk and adds its records to `sum`. Where sorting gathers, `out` is at least as long
    /// as the chunk's memory and takes the records; else they are sorted where they are.
    fn sort(
        &self,
        chunk: RawChunk,
        out: Option<Lease>,
        scratch: &mut Self::Scratch,
        sum: &mut RecordSum,
    ) -> Vec<Arc<Sorted>>;
    /// The columns of the keys, where they are columns.
    fn key_columns(&self) -> &[KeyColumn] {
        &[]
    }
    /// The values of whole records that are not of their column's type.
    fn misfits(&self, _bytes: &[u8]) -> ChunkMisfits {
        ChunkMisfits::default()
    }
    /// The same of the chunk that was sorted last, unless it came from a spill.
    fn take_misfits(&self, _scratch: &mut Self::Scratch) -> ChunkMisfits {
        ChunkMisfits::default()
    }
    /// Sorted records read back: finds its way in them.
    fn index(&self, lease: Lease, bytes: Range<usize>) -> Sorted;
    /// Whether equal keys leave nothing to settle but input order.
    fn keys_decide(&self) -> bool;
    /// Whether keys descend.
    fn descending(&self) -> bool;
    /// Brings the bytes of a user's file into the form they are spilled in.
    fn normalise(&self, bytes: &mut [u8]);
    /// Brings the bytes of a finished block into the form of the output.
    fn finish(&self, bytes: &mut [u8]);

    /// All of it.
    fn whole(&self, sorted: Arc<Sorted>) -> Segment;
    /// Position of the record that starts at a byte offset of a block.
    fn position_at(&self, offset: usize) -> u32;
    /// Byte offset of a position of a block.
    fn offset_of(&self, position: u32) -> u32;
    /// Bytes of a stretch.
    fn bytes_in(&self, segment: &Segment) -> u64;
    /// Its first record; it must not be empty.
    fn first(&self, segment: &Segment) -> Self::Bound;
    /// Its last record; it must not be empty.
    fn last(&self, segment: &Segment) -> Self::Bound;
    /// About `count` records spread evenly over it.
    fn sample(&self, segment: &Segment, count: usize, out: &mut Vec<Self::Bound>);
    /// Order of two records, equal keys settled as the sort settles them.
    fn compare(&self, a: &Self::Bound, b: &Self::Bound) -> Ordering;
    /// Order of their keys alone.
    fn compare_keys(&self, a: &Self::Bound, b: &Self::Bound) -> Ordering;
    /// The normalised key of a record.
    fn key_of(&self, bound: &Self::Bound) -> Vec<u8>;
    /// The position where records stop being below (or not above) `bound`. With `keys_only` records
    /// of equal keys count as equal.
    fn position(&self, segment: &Segment, bound: &Self::Bound, side: Side, keys_only: bool) -> u32;
    /// The position where records stop being below (or not above) a normalised key.
    fn position_of_key(&self, segment: &Segment, key: &[u8], side: Side) -> u32;
    /// Prefix of the key of the first record of `bytes`, smaller for what comes earlier.
    fn first_prefix(&self, bytes: &[u8]) -> u64;

    /// Merges a task into `out`.
    fn merge(&self, task: &Task, rules: Rules, out: &mut Emitter) -> Result<Merged, Stopped>;

    /// Copies whole records to `out`, grouped by part, each group in input order. Gives the parts
    /// that got any, and where they are.
    fn group(
        &self,
        bytes: &[u8],
        splitters: &Splitters,
        out: &mut [u8],
        scratch: &mut Self::Scratch,
    ) -> Vec<(usize, Range<usize>)>;
    /// Adds whole records to a sum.
    fn sum(&self, bytes: &[u8], sum: &mut RecordSum);
    /// Offset of the first record of `bytes` (whole records) that comes before the one ahead of it
    /// (`previous` for the first); with `strict` also of one that equals it.
    fn disorder(&self, previous: Option<&[u8]>, bytes: &[u8], strict: bool) -> Option<usize>;
    /// Offset of the last of some whole records.
    fn last_record(&self, bytes: &[u8]) -> usize;
    /// Gives every one of some whole records, where it is and its normalised key.
    fn each_key(&self, bytes: &[u8], take: &mut dyn FnMut(Range<usize>, &[u8]));
    /// The normalised keys of about `count` records spread over unsorted whole records.
    fn sample_keys(&self, bytes: &[u8], count: usize, out: &mut Vec<Vec<u8>>);
}

/// Cuts off at most `max_records` whole records, as `framing` finds them.
pub(crate) fn cut_framed<F: Framing>(framing: &F, bytes: &[u8], max_records: usize) -> Cut {
    if let Some(len) = framing.fixed_len() {
        let records = (bytes.len() / len).min(max_records);
        return Cut { records, bytes: records * len };
    }
    let mut cut = Cut::default();
    while cut.records < max_records {
        let Some(end) = framing.end(bytes, cut.bytes) else { break };
        cut = Cut { records: cut.records + 1, bytes: end };
    }
    cut
}

/// Where the records of each part go in a buffer grouped by part: the parts that have any.
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
