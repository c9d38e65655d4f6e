//! Fence keys: a view keeps, beside each run, the key of the first record of every unit (docs/formats/view.md).
//!
//! ```text
//!   blocks       |  a..  |  e..  |  h......  |  .....  |  m..  |
//!   units        |   0   |   1   |          2          |   3   |     a record that spans blocks is one unit
//!   fence keys       a       e       h                     m         keys, or whole records
//! ```
//!
//! If only the order of the runs breaks ties between equal keys, the key of each unit's first record is kept; else the
//! whole record. The fence keys of a run are a sorted sequence themselves: a search for a key among them finds the one
//! unit of the run that the key belongs to. The first eight bytes of the keys, kept in one array, usually suffice.

use std::cmp::Ordering;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ascot_io::{Buf, IoError, Pool, Reservation, u32_at, u64_at};
use ascot_record::order;

use crate::api::Result;
use crate::records::{MergedBlock, Records, Segment, Side};
use crate::resources::Lease;

/// First bytes of every file of keys.
const MAGIC: [u8; 8] = *b"ASCOTKEY";
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 40;
const ENTRY_BYTES: usize = 24;
/// Kinds of fence keys, in the header.
const WHOLE_RECORDS: u32 = 0;
const NORMALISED_KEYS: u32 = 1;

/// Longest fence key that is kept. For a search a unit with a longer one belongs to the unit before.
const FENCE_BYTES_MAX: usize = 16 << 10;

/// Collects the fence keys of a run while it is written.
#[derive(Debug)]
pub struct KeysWriter {
    /// Keys are kept, not records.
    keys: bool,
    entries: Vec<Entry>,
    firsts: Vec<u8>,
    blocks: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    block: u32,
    first_bytes: u32,
    records: u64,
    bytes: u64,
}

impl KeysWriter {
    /// For a run of these records.
    pub fn new<R: Records>(records: &R) -> Self {
        KeysWriter { keys: records.keys_decide(), entries: Vec::new(), firsts: Vec::new(), blocks: 0 }
    }

    /// Adds a block that is about to be written.
    pub fn push<R: Records>(&mut self, records: &R, block: &MergedBlock) {
        // A record that is not whole in its first block has no fence key; its unit is found by its neighbours.
        let whole = if block.first_record == 0 { records.cut(&block.buf[..block.len], 1).bytes } else { 0 };
        self.note(records, &block.buf[..whole], block.records, block.len as u64);
    }

    /// Adds a block of `count` records and `bytes`; `first` is its first record, if it starts with one.
    pub fn note<R: Records>(&mut self, records: &R, first: &[u8], count: u64, bytes: u64) {
        let before = self.firsts.len();
        if self.keys && !first.is_empty() {
            records.each_key(first, &mut |_, key| self.firsts.extend_from_slice(key));
        } else {
            self.firsts.extend_from_slice(first);
        }
        let kept = self.firsts.len() - before;
        if kept > FENCE_BYTES_MAX {
            self.firsts.truncate(before);
        }
        // An empty key is a key.
        let starts = kept <= FENCE_BYTES_MAX && !first.is_empty();
        if starts || self.entries.is_empty() {
            let first_bytes = (self.firsts.len() - before) as u32;
            self.entries.push(Entry { block: self.blocks, first_bytes, ..Entry::default() });
        }
        if let Some(entry) = self.entries.last_mut() {
            entry.records += count;
            entry.bytes += bytes;
        }
        self.blocks += 1;
    }

    /// The file of run number `id`.
    pub fn to_bytes(&self, id: u64) -> Vec<u8> {
        let len = HEADER_BYTES + self.entries.len() * ENTRY_BYTES + self.firsts.len() + 4;
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.blocks.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        let kept = if self.keys { NORMALISED_KEYS } else { WHOLE_RECORDS };
        bytes.extend_from_slice(&kept.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.block.to_le_bytes());
            bytes.extend_from_slice(&entry.first_bytes.to_le_bytes());
            bytes.extend_from_slice(&entry.records.to_le_bytes());
            bytes.extend_from_slice(&entry.bytes.to_le_bytes());
        }
        bytes.extend_from_slice(&self.firsts);
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// The start of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Its first block.
    pub block: usize,
    /// Records of the run before it.
    pub records: u64,
    /// Bytes of the run before it.
    pub bytes: u64,
}

/// The first record of a unit.
pub struct FenceKey<B> {
    /// Prefix of its key, smaller for an earlier key.
    pub prefix: u64,
    /// Orders equal prefixes.
    pub rest: Rest<B>,
}

/// The whole key or record of a fence key.
pub enum Rest<B> {
    /// The normalised key.
    Key(Vec<u8>),
    /// The record.
    Record(B),
}

/// The units of one run.
pub struct RunKeys {
    /// Each unit, and the end of the last.
    units: Vec<Unit>,
    /// Prefix of the first key of each unit.
    prefixes: Vec<u64>,
    fences: Fences,
    _memory: Reservation,
}

/// Fence keys of all units but the first one, which needs only its prefix.
enum Fences {
    /// Normalised keys, one after another, and the end of each.
    Keys(Vec<u8>, Vec<u32>),
    /// Records, and the position of each.
    Records(Option<Segment>, Vec<u32>),
}

impl RunKeys {
    /// Reads `bytes`, the file at `path`, which must be of run `id`; memory is reserved from `pool`.
    pub fn read<R: Records>(records: &R, pool: &Pool, path: &Path, bytes: &[u8], id: u64) -> Result<Self> {
        let memory = pool.reserve(3 * bytes.len(), "the keys of a run")?;
        let bad = |what| IoError::BadIndex { path: path.to_path_buf(), offset: 0, what };
        let parsed = Parsed::parse(bytes, id).map_err(bad)?;
        Ok(parsed.keys(records, memory).ok_or_else(|| bad("its entries and its keys do not agree"))?)
    }

    /// Number of units.
    pub fn count(&self) -> usize {
        self.units.len() - 1
    }

    /// The start of unit `unit`; the end of the run after the last unit.
    pub fn unit(&self, unit: usize) -> Unit {
        self.units[unit.min(self.count())]
    }

    /// The unit that block `block` belongs to.
    pub fn unit_of(&self, block: usize) -> usize {
        self.units.partition_point(|unit| unit.block <= block).saturating_sub(1)
    }

    /// Prefix of the fence key of unit `unit`, if there is such a unit.
    pub fn prefix(&self, unit: usize) -> Option<u64> {
        self.prefixes.get(unit).copied()
    }

    /// The fence key of unit `unit`, which is not the first unit.
    pub fn fence_key<R: Records>(&self, records: &R, unit: usize) -> Option<FenceKey<R::Bound>> {
        let number = unit.checked_sub(1)?;
        let prefix = self.prefix(unit)?;
        let rest = match &self.fences {
            Fences::Keys(bytes, ends) => Rest::Key(key(bytes, ends, number).to_vec()),
            Fences::Records(segment, starts) => {
                debug_assert!(segment.is_some(), "a run with a second unit has fence keys");
                let segment = segment.as_ref()?;
                Rest::Record(records.first(&Segment { lo: starts[number], ..segment.clone() }))
            }
        };
        Some(FenceKey { prefix, rest })
    }

    /// The unit that `fence` belongs to, before or after its equals.
    pub fn unit_for<R: Records>(&self, records: &R, fence: &FenceKey<R::Bound>, side: Side) -> usize {
        // A run without records has no units.
        let prefixes = self.prefixes.get(1..).unwrap_or_default();
        let lo = prefixes.partition_point(|&prefix| prefix < fence.prefix);
        if prefixes.get(lo).is_none_or(|&prefix| prefix > fence.prefix) {
            return lo;
        }
        let hi = lo + prefixes[lo..].partition_point(|&prefix| prefix == fence.prefix);
        let max_order = if side == Side::Lower { Ordering::Less } else { Ordering::Equal };
        self.among(records, lo..hi, &fence.rest, max_order)
    }

    /// The end of the fence keys in `range` whose order to `fence` is at most `max_order`. All have its prefix.
    fn among<R: Records>(
        &self,
        records: &R,
        range: Range<usize>,
        fence: &Rest<R::Bound>,
        max_order: Ordering,
    ) -> usize {
        let compare = |number: usize| match (&self.fences, fence) {
            (Fences::Records(Some(segment), starts), Rest::Record(bound)) => {
                let first = records.first(&Segment { lo: starts[number], ..segment.clone() });
                records.compare(&first, bound)
            }
            (Fences::Keys(bytes, ends), Rest::Key(wanted)) => {
                let order = key(bytes, ends, number).cmp(wanted);
                if records.descending() { order.reverse() } else { order }
            }
            _ => {
                debug_assert!(false, "all runs of a view keep keys, or all keep records");
                Ordering::Equal
            }
        };
        let mut lo = range.start;
        let mut hi = range.end;
        while lo < hi {
            let middle = lo.midpoint(hi);
            if compare(middle) <= max_order {
                lo = middle + 1;
            } else {
                hi = middle;
            }
        }
        lo
    }

    /// The unit that the first record with at least this normalised key belongs to.
    pub fn unit_for_key<R: Records>(&self, records: &R, key: &[u8]) -> usize {
        match &self.fences {
            Fences::Keys(..) => {
                let prefix = prefix_of(records, key);
                self.unit_for(records, &FenceKey { prefix, rest: Rest::Key(key.to_vec()) }, Side::Lower)
            }
            // There is one unit at most.
            Fences::Records(None, _) => 0,
            Fences::Records(Some(segment), starts) => {
                let at = records.position_of_key(segment, key, Side::Lower);
                starts.partition_point(|&start| start < at)
            }
        }
    }

    /// Prefix of the first key of each of some blocks of the run, smaller for an earlier key.
    pub fn block_prefixes(&self, blocks: Range<usize>) -> Vec<u64> {
        let mut unit = self.unit_of(blocks.start);
        blocks
            .map(|block| {
                while unit + 1 < self.count() && self.units[unit + 1].block <= block {
                    unit += 1;
                }
                self.prefixes[unit]
            })
            .collect()
    }
}

/// The kept key of unit `number + 1`; `ends` are the ends of all keys.
fn key<'a>(bytes: &'a [u8], ends: &[u32], number: usize) -> &'a [u8] {
    let start = number.checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[start as usize..ends[number] as usize]
}

/// Prefix of a normalised key, smaller for an earlier key.
fn prefix_of<R: Records>(records: &R, key: &[u8]) -> u64 {
    let prefix = order::prefix(key);
    if records.descending() { !prefix } else { prefix }
}

/// The fields of a file of keys.
struct Parsed<'a> {
    entries: Vec<Entry>,
    firsts: &'a [u8],
    /// They are keys.
    keys: bool,
    blocks: u32,
}

impl<'a> Parsed<'a> {
    fn parse(bytes: &'a [u8], id: u64) -> Result<Self, &'static str> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or("the file is shorter than its checksum")?;
        if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return Err("its checksum is wrong");
        }
        let short = "the file is shorter than its header";
        let (header, rest) = body.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        if header[..8] != MAGIC || u32_at(header, 8) != VERSION {
            return Err("it holds no keys of a version known here");
        }
        if u64_at(header, 16) != id {
            return Err("it belongs to another run");
        }
        let keys = match u32_at(header, 32) {
            NORMALISED_KEYS => true,
            WHOLE_RECORDS => false,
            _ => return Err("what it keeps of records is not known here"),
        };
        // Checked against the file's length before memory is allocated for it.
        let count =
            usize::try_from(u64_at(header, 24)).ok().filter(|&count| count <= rest.len() / ENTRY_BYTES);
        let (entries, firsts) = rest.split_at(count.ok_or("it is shorter than its entries")? * ENTRY_BYTES);
        let entry = |bytes: &[u8]| Entry {
            block: u32_at(bytes, 0),
            first_bytes: u32_at(bytes, 4),
            records: u64_at(bytes, 8),
            bytes: u64_at(bytes, 16),
        };
        let entries: Vec<Entry> = entries.chunks_exact(ENTRY_BYTES).map(entry).collect();
        let blocks = u32_at(header, 12);
        if !entries.is_sorted_by(|a, b| a.block < b.block)
            || entries.last().is_some_and(|it| it.block >= blocks)
        {
            return Err("its entries are out of order");
        }
        // So every block belongs to a unit.
        if entries.first().map_or(blocks > 0, |it| it.block > 0) {
            return Err("its first block has no entry");
        }
        Ok(Parsed { entries, firsts, keys, blocks })
    }

    fn keys<R: Records>(self, records: &R, mut memory: Reservation) -> Option<RunKeys> {
        if self.keys != records.keys_decide() {
            return None;
        }
        let count = self.entries.len();
        let mut units = Vec::with_capacity(count + 1);
        let mut prefixes = Vec::with_capacity(count);
        let mut ends = Vec::with_capacity(count);
        let mut total = Unit::default();
        // The fence key of the first unit comes first in the file; only its prefix is needed.
        let mut at = 0usize;
        let mut skip = 0;
        for (number, entry) in self.entries.iter().enumerate() {
            units.push(Unit { block: entry.block as usize, ..total });
            total.records = total.records.checked_add(entry.records)?;
            total.bytes = total.bytes.checked_add(entry.bytes)?;
            let end = at.checked_add(entry.first_bytes as usize)?;
            let first = self.firsts.get(at..end)?;
            prefixes.push(self.prefix(records, first, number)?);
            if number == 0 {
                skip = end;
            } else {
                ends.push(u32::try_from(end - skip).ok()?);
            }
            at = end;
        }
        units.push(Unit { block: self.blocks as usize, ..total });
        let fences = self.firsts.get(skip..).filter(|_| at == self.firsts.len())?;
        let held = units.len() * size_of::<Unit>() + prefixes.len() * 8 + ends.len() * 4 + fences.len();
        let fences =
            if self.keys { Fences::Keys(fences.to_vec(), ends) } else { of_records(records, fences, &ends) };
        memory.shrink_to(held);
        Some(RunKeys { units, prefixes, fences, _memory: memory })
    }

    /// The prefix of a fence key; none if the bytes are not one whole record.
    fn prefix<R: Records>(&self, records: &R, first: &[u8], number: usize) -> Option<u64> {
        if self.keys {
            return Some(prefix_of(records, first));
        }
        let whole = !first.is_empty() && records.cut(first, 1).bytes == first.len();
        match (whole, number > 0 || !first.is_empty()) {
            (true, _) => Some(records.first_prefix(first)),
            (false, true) => None,
            (false, false) => Some(0),
        }
    }
}

/// Fence keys that are whole records; `ends` are their ends.
fn of_records<R: Records>(records: &R, firsts: &[u8], ends: &[u32]) -> Fences {
    let before = |number: usize| number.checked_sub(1).map_or(0, |before| ends[before]);
    let starts: Vec<u32> = (0..ends.len()).map(|it| records.position_at(before(it) as usize)).collect();
    if starts.is_empty() {
        return Fences::Records(None, starts);
    }
    let mut buf = Buf::heap(firsts.len());
    buf[..firsts.len()].copy_from_slice(firsts);
    let sorted = records.index(Lease::plain(buf), 0..firsts.len());
    Fences::Records(Some(records.whole(Arc::new(sorted))), starts)
}
