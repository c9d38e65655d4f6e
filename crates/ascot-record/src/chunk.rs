//! Sorts a chunk of memory: not its records but their starts, by which [`gather`] then copies them in order.
//!
//! Every record becomes one u64 *code*, and codes are sorted as bare integers, which vectors sort many times faster
//! than any comparison sort:
//!
//! ```text
//! keys of one length   [ key bits from `depth` on .................. | ordinal ]
//! keys of any length   [ k bytes from `depth` on, 0 padded | 3: left | ordinal ]
//!                        left = min(bytes left at depth, k + 1), so that "a" < "a\0"
//! descending           the complement of all but the ordinal
//! ```
//!
//! The ordinal is the record's position in the input: it leads back to the record, and keeps equal keys in input
//! order at no cost. A group of equal codes is not sorted yet: a small one is sorted by comparison, a large one gets
//! codes from deeper bytes. Levels are bounded, and after them comparison takes over, so that no input is quadratic.
//! Then the last resort is treated likewise, as a second key.
//!
//! Invariants: between levels the codes of a group are in input order; the ordinals in the codes
//! are always a permutation of the input.

use std::cmp::Ordering;

use crate::framing::{Cut, Framing};
use crate::order::{LastResort, RecordOrder, prefix};
use crate::prefetch::{LINE, RECORD_BYTES_MAX, prefetch_byte, prefetch_range};
use crate::vsort;

/// Groups up to this size are sorted by comparison: larger ones read each record once for a deeper code, instead of
/// once for each comparison. Times in logs make groups of a few dozen, which sort twice as fast by codes.
const SMALL_GROUP: usize = 6;

/// Codes examined at a time; records in groups are prefetched that many codes ahead.
const NEAR: usize = 64;

/// Levels of codes, the first and those of the last resort included.
const LEVELS_MAX: usize = 12;

/// Bytes for the computed keys of a small group; keys that do not fit are computed per comparison.
const KEY_ROOM: usize = 16 << 10;

/// Bytes of scratch for sorting a chunk of `records` records; two keys are added if the order computes keys.
pub fn scratch_bytes(records: usize) -> usize {
    records * (size_of::<u64>() + size_of::<u32>())
        + KEY_ROOM
        + SMALL_GROUP * size_of::<Materialised>()
        + LEVELS_MAX * size_of::<Frame>()
}

/// Working memory for sorting chunks, reused from chunk to chunk.
#[derive(Debug, Default)]
pub struct ChunkScratch {
    codes: Vec<u64>,
    origin: Vec<u32>,
    tools: Tools,
}

#[derive(Debug, Default)]
struct Tools {
    frames: Vec<Frame>,
    materialised: Vec<Materialised>,
    key_bytes: Vec<u8>,
    key_a: Vec<u8>,
    key_b: Vec<u8>,
}

impl ChunkScratch {
    /// Scratch for chunks of up to `records` records: [`scratch_bytes`] of memory. Larger chunks make it grow.
    pub fn with_capacity(records: usize) -> ChunkScratch {
        ChunkScratch {
            codes: Vec::with_capacity(records),
            origin: Vec::with_capacity(records),
            tools: Tools {
                frames: Vec::with_capacity(LEVELS_MAX),
                materialised: Vec::with_capacity(SMALL_GROUP),
                key_bytes: Vec::with_capacity(KEY_ROOM),
                ..Tools::default()
            },
        }
    }

    /// Notes the next record's key, of the length that all keys have, before a [`sort_noted_chunk`]; its memory
    /// counts as sorting memory.
    pub fn note(&mut self, key: &[u8]) {
        self.codes.push(prefix(key));
    }

    /// Forgets the noted keys.
    pub fn clear(&mut self) {
        self.codes.clear();
    }

    /// Memory for a number per record of the chunk sorted last; the next sort overwrites it.
    pub fn numbers(&mut self) -> &mut [u64] {
        &mut self.codes
    }
}

/// Sorts the starts of a chunk's records: in input order on entry, in `order` on exit. Stable.
///
/// The records lie back to back in `bytes`, as found by [`Framing::frame`].
pub fn sort_chunk<F: Framing, O: RecordOrder>(
    framing: &F,
    order: &O,
    bytes: &[u8],
    starts: &mut [u32],
    scratch: &mut ChunkScratch,
) {
    scratch.codes.clear();
    sort_noted_chunk(framing, order, bytes, starts, scratch);
}

/// Like [`sort_chunk`], for keys [noted](ChunkScratch::note) when their records were stored, in order, since the
/// scratch was [cleared](ChunkScratch::clear): they need not be read again from memory that has left the cache.
pub fn sort_noted_chunk<F: Framing, O: RecordOrder>(
    framing: &F,
    order: &O,
    bytes: &[u8],
    starts: &mut [u32],
    scratch: &mut ChunkScratch,
) {
    let ChunkScratch { codes, origin, tools } = scratch;
    origin.clear();
    origin.extend_from_slice(starts);
    let noted = codes.len() == origin.len() && order.fixed_key_len().is_some();
    if !noted {
        codes.clear();
        codes.extend(0..origin.len() as u64);
    }
    let last_end =
        origin.last().map_or(0, |start| framing.end(bytes, *start as usize).unwrap_or(bytes.len()));
    let ordinal_bits = usize::BITS - origin.len().saturating_sub(1).leading_zeros();
    let coding = Coding { ordinal_bits, fixed: order.fixed_key_len(), flips: order.descending() };
    let chunk = Chunk { order, bytes, origin, last_end, ordinals: (1 << ordinal_bits) - 1 };
    Sorter { chunk: &chunk, coding, tools }.sort(codes, noted);
    for (start, code) in starts.iter_mut().zip(codes) {
        *start = origin[(*code & chunk.ordinals) as usize];
    }
}

/// The records by ordinal.
struct Chunk<'a, O> {
    order: &'a O,
    bytes: &'a [u8],
    origin: &'a [u32],
    last_end: usize,
    /// Mask of the ordinal in a code.
    ordinals: u64,
}

impl<O> Chunk<'_, O> {
    #[inline]
    fn record(&self, code: u64) -> &[u8] {
        let ordinal = (code & self.ordinals) as usize;
        let end = self.origin.get(ordinal + 1).map_or(self.last_end, |end| *end as usize);
        self.bytes.get(self.origin[ordinal] as usize..end).unwrap_or_default()
    }

    #[inline]
    fn prefetch(&self, code: u64) {
        prefetch_byte(self.bytes, self.origin[(code & self.ordinals) as usize] as usize);
    }
}

/// Converts byte strings to the key bits of codes.
#[derive(Clone, Copy, Debug)]
struct Coding {
    ordinal_bits: u32,
    /// Length of every string, if known.
    fixed: Option<usize>,
    /// Complemented, for descending order.
    flips: bool,
}

/// Bits that count the bytes left.
const LEFT_BITS: u32 = 3;

impl Coding {
    /// Whole bytes of a string in one code. For strings of any length at most six, since `left` must count one more.
    #[inline]
    fn bytes_coded(&self) -> usize {
        let bits = 64 - self.ordinal_bits;
        match self.fixed {
            Some(_) => (bits / 8) as usize,
            None => ((bits - LEFT_BITS) / 8).min(6) as usize,
        }
    }

    /// The key bits of a string from `depth` on; the ordinal's bits are zero.
    #[inline]
    fn bits(&self, string: &[u8], depth: usize) -> u64 {
        let rest = string.get(depth..).unwrap_or_default();
        let coded = match self.fixed {
            Some(_) => prefix(rest),
            None => {
                let count = self.bytes_coded();
                let shift = 64 - 8 * count as u32;
                let left = rest.len().min(count + 1) as u64;
                ((prefix(rest) >> shift) << shift) | (left << (shift - LEFT_BITS))
            }
        };
        let coded = if self.flips { !coded } else { coded };
        (coded >> self.ordinal_bits) << self.ordinal_bits
    }

    /// Whether strings with the key bits of `code` at `depth` are equal, given that they agree before `depth`.
    fn decides(&self, code: u64, depth: usize) -> bool {
        match self.fixed {
            Some(len) => (len.saturating_sub(depth) as u64) * 8 <= u64::from(64 - self.ordinal_bits),
            None => {
                let coded = if self.flips { !code } else { code };
                let count = self.bytes_coded();
                let left = (coded >> (64 - 8 * count as u32 - LEFT_BITS)) & ((1 << LEFT_BITS) - 1);
                left as usize <= count
            }
        }
    }
}

/// The string that codes are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Key,
    /// The body, for the last resort.
    Body,
}

/// The string and depth that the codes of a range are made from.
#[derive(Clone, Copy, Debug)]
struct Level {
    subject: Subject,
    depth: usize,
    coding: Coding,
}

/// A range of codes, up to `end`, sorted at a level.
#[derive(Clone, Copy, Debug)]
struct Frame {
    end: usize,
    level: Level,
}

/// A computed key in `key_bytes`.
#[derive(Clone, Copy, Debug)]
struct Materialised {
    code: u64,
    from: u32,
    to: u32,
}

struct Sorter<'a, O> {
    chunk: &'a Chunk<'a, O>,
    /// The coding of keys.
    coding: Coding,
    tools: &'a mut Tools,
}

impl<O: RecordOrder> Sorter<'_, O> {
    /// Sorts records by their codes: prefixes of keys if they were `noted`, else bare ordinals.
    fn sort(&mut self, codes: &mut [u64], noted: bool) {
        self.tools.frames.clear();
        let level = Level { subject: Subject::Key, depth: 0, coding: self.coding };
        let level = if noted {
            let uniform = self.take_noted(codes);
            self.code_deeper(codes, level, Some(uniform))
        } else {
            self.code(codes, level)
        };
        self.tools.frames.push(Frame { end: codes.len(), level });
        let mut at = 0;
        let mut asked = 0;
        while let Some(&Frame { end, level }) = self.tools.frames.last() {
            let near = end.min(at + NEAR);
            asked = self.ask_ahead(&codes[..end.min(near + NEAR)], asked.max(at + 1));
            let Some(group) = first_group(&codes[at..end.min(near + 1)], self.coding.ordinal_bits) else {
                if near == end {
                    self.tools.frames.pop();
                }
                at = near;
                continue;
            };
            at += group;
            let group_end = at + group_len(&codes[at..end], self.coding.ordinal_bits);
            at = self.resolve(codes, at, group_end, level);
        }
    }

    /// Prefetches records in groups, from `codes[from]` on: sorting reads them in an order that a processor cannot
    /// predict. Returns the position reached.
    fn ask_ahead(&self, codes: &[u64], from: usize) -> usize {
        for at in from..codes.len() {
            if (codes[at] ^ codes[at - 1]) >> self.coding.ordinal_bits == 0 {
                self.chunk.prefetch(codes[at - 1]);
                self.chunk.prefetch(codes[at]);
            }
        }
        codes.len().max(from)
    }

    /// Sorts a group of equal codes, or codes it deeper; returns where to continue.
    fn resolve(&mut self, codes: &mut [u64], at: usize, end: usize, level: Level) -> usize {
        let Some(next) = self.next_level(codes[at], level) else { return end };
        let group = &mut codes[at..end];
        if group.len() <= SMALL_GROUP || self.tools.frames.len() >= LEVELS_MAX {
            self.resolve_by_comparison(group, next);
            return end;
        }
        let level = self.code(group, next);
        self.tools.frames.push(Frame { end, level });
        at
    }

    /// The level that decides between records with the code `code` at `level`; `None` if they are equal.
    fn next_level(&self, code: u64, level: Level) -> Option<Level> {
        if !level.coding.decides(code, level.depth) {
            return Some(Level { depth: level.depth + level.coding.bytes_coded(), ..level });
        }
        let last_resort = self.chunk.order.last_resort_kind();
        if level.subject == Subject::Body || last_resort == LastResort::None {
            return None;
        }
        let flips = last_resort == LastResort::BytesReversed;
        let coding = Coding { fixed: None, flips, ..self.coding };
        Some(Level { subject: Subject::Body, depth: 0, coding })
    }

    /// Gives a group codes at `level`, or deeper if those would all be equal, and sorts them; returns their level.
    fn code(&mut self, group: &mut [u64], level: Level) -> Level {
        let uniform = self.write_codes(group, level);
        self.code_deeper(group, level, uniform)
    }

    /// Like [`code`](Self::code), for a group that already has the codes of `level`.
    fn code_deeper(&mut self, group: &mut [u64], mut level: Level, mut uniform: Option<bool>) -> Level {
        if level.subject == Subject::Key && self.coding.fixed.is_some() && uniform.is_none() {
            self.coding.fixed = None;
            level.coding = self.coding;
            uniform = self.write_codes(group, level);
        }
        if uniform == Some(true) && group.len() > SMALL_GROUP && !level.coding.decides(group[0], level.depth)
        {
            level.depth = self.common_len(group, level);
            self.write_codes(group, level);
        }
        vsort::sort(group);
        level
    }

    /// Makes codes of prefixes of noted keys; returns whether their key bits are all equal.
    fn take_noted(&self, codes: &mut [u64]) -> bool {
        let first = codes.first().copied().unwrap_or(0);
        let ordinals = self.chunk.ordinals;
        let mut differing = 0;
        for (ordinal, code) in (0..).zip(codes) {
            differing |= *code ^ first;
            let bits = if self.coding.flips { !*code } else { *code };
            *code = (bits & !ordinals) | ordinal;
        }
        differing & !ordinals == 0
    }

    /// Writes the group's codes. Returns whether their key bits are all equal; `None` if a string has an unexpected
    /// length, which makes the codes invalid.
    fn write_codes(&mut self, group: &mut [u64], level: Level) -> Option<bool> {
        let chunk = self.chunk;
        let scratch = &mut self.tools.key_a;
        let mut differing = 0;
        let mut first = None;
        for code in group {
            let record = chunk.record(*code);
            let string = string(chunk.order, level.subject, record, scratch);
            if level.coding.fixed.is_some_and(|len| len != string.len()) {
                return None;
            }
            let bits = level.coding.bits(string, level.depth);
            differing |= bits ^ *first.get_or_insert(bits);
            *code = bits | (*code & chunk.ordinals);
        }
        Some(differing == 0)
    }

    /// The length of the common prefix of a group's strings, at least `level.depth`.
    fn common_len(&mut self, group: &[u64], level: Level) -> usize {
        let Tools { key_a, key_b, .. } = &mut *self.tools;
        let chunk = self.chunk;
        let first = string(chunk.order, level.subject, chunk.record(group[0]), key_a);
        let mut common = first.len();
        for code in &group[1..] {
            let other = string(chunk.order, level.subject, chunk.record(*code), key_b);
            let head = &first[level.depth.min(common)..common];
            let other = other.get(level.depth..).unwrap_or_default();
            common = level.depth + common_prefix_len(head, other);
        }
        common
    }

    /// Sorts a group by the strings of `level` from its depth on, and by the criteria after them.
    fn resolve_by_comparison(&mut self, group: &mut [u64], level: Level) {
        let computed = level.subject == Subject::Key && self.chunk.order.computed();
        if computed && group.len() <= SMALL_GROUP && self.materialise(group) {
            return self.resolve_materialised(group);
        }
        let Tools { key_a, key_b, .. } = &mut *self.tools;
        let chunk = self.chunk;
        group.sort_unstable_by(|a, b| {
            let record_a = chunk.record(*a);
            let record_b = chunk.record(*b);
            let by_key = match level.subject {
                Subject::Body => Ordering::Equal,
                Subject::Key => {
                    let key_a = chunk.order.key(record_a, key_a);
                    key_a.cmp(chunk.order.key(record_b, key_b))
                }
            };
            self.coding.directed(by_key).then_with(|| chunk.compare_equal_keys(*a, *b))
        });
    }

    /// Computes the keys of a group once; returns whether they fitted.
    fn materialise(&mut self, group: &[u64]) -> bool {
        let Tools { materialised, key_bytes, key_a, .. } = &mut *self.tools;
        materialised.clear();
        key_bytes.clear();
        for code in group {
            let key = self.chunk.order.key(self.chunk.record(*code), key_a);
            let from = key_bytes.len();
            if from + key.len() > KEY_ROOM {
                return false;
            }
            key_bytes.extend_from_slice(key);
            materialised.push(Materialised { code: *code, from: from as u32, to: key_bytes.len() as u32 });
        }
        true
    }

    fn resolve_materialised(&mut self, group: &mut [u64]) {
        let Tools { materialised, key_bytes, .. } = &mut *self.tools;
        let key = |entry: &Materialised| &key_bytes[entry.from as usize..entry.to as usize];
        materialised.sort_unstable_by(|a, b| {
            self.coding
                .directed(key(a).cmp(key(b)))
                .then_with(|| self.chunk.compare_equal_keys(a.code, b.code))
        });
        for (code, entry) in group.iter_mut().zip(materialised.iter()) {
            *code = entry.code;
        }
    }
}

impl Coding {
    fn directed(&self, ordering: Ordering) -> Ordering {
        if self.flips { ordering.reverse() } else { ordering }
    }
}

impl<O: RecordOrder> Chunk<'_, O> {
    /// The order of two records with equal keys.
    fn compare_equal_keys(&self, a: u64, b: u64) -> Ordering {
        self.order
            .last_resort(self.record(a), self.record(b))
            .then((a & self.ordinals).cmp(&(b & self.ordinals)))
    }
}

#[inline]
fn string<'a, O: RecordOrder>(
    order: &O,
    subject: Subject,
    record: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> &'a [u8] {
    match subject {
        Subject::Key => order.key(record, scratch),
        Subject::Body => order.body(record),
    }
}

/// The first position whose code's key bits equal those of the next.
#[inline]
fn first_group(codes: &[u64], ordinal_bits: u32) -> Option<usize> {
    codes.windows(2).position(|pair| (pair[0] ^ pair[1]) >> ordinal_bits == 0)
}

/// The length of the group of equal key bits at the start.
fn group_len(codes: &[u64], ordinal_bits: u32) -> usize {
    codes.iter().take_while(|code| (**code ^ codes[0]) >> ordinal_bits == 0).count()
}

fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 32;
    let whole = a.chunks_exact(STEP).zip(b.chunks_exact(STEP)).take_while(|(a, b)| a == b).count() * STEP;
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

/// Number of records that [`gather`] prefetches ahead: it has only one source.
const GATHERED_AHEAD: usize = 8;

/// Bytes prefetched for a record of unknown length.
const UNKNOWN_LEN: usize = 2 * LINE;

/// Prefetches the record that starts at `start`.
#[inline(always)]
fn prefetch_record<F: Framing>(framing: &F, bytes: &[u8], start: u32) {
    let start = start as usize;
    let end = start + framing.fixed_len().unwrap_or(UNKNOWN_LEN).min(RECORD_BYTES_MAX);
    prefetch_range(bytes, start..end);
    prefetch_byte(bytes, end - 1);
}

/// Copies the records that start at `starts`, in that order, to `out` until the next does not fit; returns the number
/// of records and bytes copied. `place` takes the start of each record in `out`.
///
/// Copying a chunk while it is in the cache, and merging the copies later as slices, costs less than merging chunks
/// in place long after they have left the cache.
pub fn gather<F: Framing>(
    framing: &F,
    bytes: &[u8],
    starts: &[u32],
    out: &mut [u8],
    place: &mut impl FnMut(usize),
) -> Cut {
    let mut copied = Cut::default();
    for (at, start) in starts.iter().enumerate() {
        if let Some(ahead) = starts.get(at + GATHERED_AHEAD) {
            prefetch_record(framing, bytes, *ahead);
        }
        let start = *start as usize;
        let Some(record) = framing.end(bytes, start).and_then(|end| bytes.get(start..end)) else { break };
        let Some(space) = out.get_mut(copied.bytes..copied.bytes + record.len()) else { break };
        space.copy_from_slice(record);
        place(copied.bytes);
        copied.records += 1;
        copied.bytes += record.len();
    }
    copied
}

#[cfg(test)]
mod tests;
