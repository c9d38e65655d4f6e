//! What a view keeps of each run beside the run itself: where its records can be entered, and by what
//! record each such place begins (docs/formats/view.md).
//!
//! ```text
//!   blocks   |  a..  |  e..  |  h......  |  .....  |  m..  |
//!   units    |   0   |   1   |          2          |   3   |     a record that spans blocks is one unit
//!   firsts           e       h                     m             of unit 0 nothing need be known
//! ```
//!
//! The first records of the units are a sorted sequence themselves: looking a record up in it gives the
//! one unit of the run in which it belongs.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ascot_io::{Action, Buf, IoError, Pool, Reservation};

use crate::emit::Chunk;
use crate::error::SortError;
use crate::pieces::Lease;
use crate::records::{Records, Segment, Side};

/// Opens every file of keys.
const MAGIC: [u8; 8] = *b"ASCOTKEY";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 24;

/// First records longer than this are not kept; their unit belongs to the one before, for all that
/// positions are looked up.
const MOST_FIRST_BYTES: usize = 16 << 10;

/// Collects the units of a run while it is written.
#[derive(Debug, Default)]
pub struct KeysWriter {
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
    /// Takes note of a chunk about to be written as a block.
    pub fn push<R: Records>(&mut self, records: &R, chunk: &Chunk) {
        // A record that is not whole in its first chunk is longer than what is kept.
        let first = if chunk.first_record == 0 { records.cut(&chunk.buf[..chunk.len], 1).bytes } else { 0 };
        let kept = if first <= MOST_FIRST_BYTES { &chunk.buf[..first] } else { &[] };
        if !kept.is_empty() || self.entries.is_empty() {
            self.firsts.extend_from_slice(kept);
            let first_bytes = kept.len() as u32;
            self.entries.push(Entry { block: self.blocks, first_bytes, ..Entry::default() });
        }
        if let Some(entry) = self.entries.last_mut() {
            entry.records += chunk.records;
            entry.bytes += chunk.len as u64;
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

/// Where a unit begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Its first block.
    pub block: usize,
    /// Records of the run before it.
    pub records: u64,
    /// Bytes of the run before it.
    pub bytes: u64,
}

/// The units of one run.
pub struct RunKeys {
    /// Each unit, and where one behind the last would begin.
    units: Vec<Unit>,
    /// First records of the units but the first.
    firsts: Option<Segment>,
    /// Position of each in `firsts`.
    starts: Vec<u32>,
    /// Prefix of the first key of each unit.
    prefixes: Vec<u64>,
    _memory: Reservation,
}

impl RunKeys {
    /// Reads the file at `path`, which must be of run `id`; memory for it is reserved from `pool`.
    pub fn load<R: Records>(records: &R, pool: &Pool, path: &Path, id: u64) -> Result<Self, SortError> {
        let failed = |action| move |error| IoError::from_os(action, path, 0, error);
        let size = std::fs::metadata(path).map_err(failed(Action::Inspect))?.len();
        let memory = pool.reserve(3 * size as usize, "the keys of a run")?;
        let bytes = std::fs::read(path).map_err(failed(Action::Read))?;
        let bad = |what| IoError::BadIndex { path: path.to_path_buf(), offset: 0, what };
        let parsed = Parsed::of(&bytes, id).map_err(bad)?;
        Ok(parsed.keys(records, memory).ok_or_else(|| bad("its entries and its records do not agree"))?)
    }

    /// Number of units.
    pub fn count(&self) -> usize {
        self.units.len() - 1
    }

    /// Where unit `unit` begins; the end of the run for the one behind the last.
    pub fn unit(&self, unit: usize) -> Unit {
        self.units[unit.min(self.count())]
    }

    /// The unit that block `block` belongs to.
    pub fn unit_of(&self, block: usize) -> usize {
        self.units.partition_point(|unit| unit.block <= block).saturating_sub(1)
    }

    /// The first record of unit `unit`, which is not the first unit.
    pub fn first<R: Records>(&self, records: &R, unit: usize) -> Option<R::Bound> {
        let (firsts, &start) = (self.firsts.as_ref()?, self.starts.get(unit.checked_sub(1)?)?);
        Some(records.first(&Segment { lo: start, ..firsts.clone() }))
    }

    /// The unit in which `bound` would stand, before or behind its equals.
    pub fn unit_for<R: Records>(&self, records: &R, bound: &R::Bound, side: Side) -> usize {
        self.unit_at(|firsts| records.position(firsts, bound, side, false))
    }

    /// The unit in which the first record with at least this normalised key would stand.
    pub fn unit_for_key<R: Records>(&self, records: &R, key: &[u8]) -> usize {
        self.unit_at(|firsts| records.position_of_key(firsts, key, Side::Lower))
    }

    fn unit_at(&self, position: impl Fn(&Segment) -> u32) -> usize {
        let Some(firsts) = &self.firsts else { return 0 };
        let at = position(firsts);
        self.starts.partition_point(|&start| start < at)
    }

    /// Prefix of the first key of each of some blocks, smaller for what comes earlier.
    pub fn block_prefixes(&self, blocks: Range<usize>) -> Vec<u64> {
        let mut unit = self.unit_of(blocks.start);
        blocks
            .map(|block| {
                while self.units.get(unit + 1).is_some_and(|next| next.block <= block) {
                    unit += 1;
                }
                self.prefixes.get(unit).copied().unwrap_or(u64::MAX)
            })
            .collect()
    }
}

/// A file of keys, its sums checked.
struct Parsed<'a> {
    entries: Vec<Entry>,
    firsts: &'a [u8],
    blocks: u32,
}

impl<'a> Parsed<'a> {
    fn of(bytes: &'a [u8], id: u64) -> Result<Self, &'static str> {
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
        // Held against the file's length before anything is allocated by it.
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
        Ok(Parsed { entries, firsts, blocks })
    }

    fn keys<R: Records>(self, records: &R, memory: Reservation) -> Option<RunKeys> {
        let count = self.entries.len();
        let (mut units, mut prefixes) = (Vec::with_capacity(count + 1), Vec::with_capacity(count));
        let (mut offsets, mut total) = (Vec::with_capacity(count), Unit::default());
        // The first unit's record, of which only the prefix is needed.
        let (mut at, mut skip) = (0usize, 0);
        for (number, entry) in self.entries.iter().enumerate() {
            units.push(Unit { block: entry.block as usize, ..total });
            total.records = total.records.checked_add(entry.records)?;
            total.bytes = total.bytes.checked_add(entry.bytes)?;
            let end = at.checked_add(entry.first_bytes as usize)?;
            let first = self.firsts.get(at..end)?;
            let whole = !first.is_empty() && records.cut(first, 1).bytes == first.len();
            if !whole && (number > 0 || !first.is_empty()) {
                return None;
            }
            prefixes.push(if whole { records.first_prefix(first) } else { 0 });
            if number == 0 {
                skip = end;
            } else {
                offsets.push(at - skip);
            }
            at = end;
        }
        units.push(Unit { block: self.blocks as usize, ..total });
        let firsts = self.firsts.get(skip..).filter(|_| at == self.firsts.len())?;
        let mut buf = Buf::heap(firsts.len());
        buf[..firsts.len()].copy_from_slice(firsts);
        let starts: Vec<u32> = offsets.into_iter().map(|offset| records.position_at(offset)).collect();
        let bytes = 0..firsts.len();
        let firsts =
            (!starts.is_empty()).then(|| records.whole(Arc::new(records.index(Lease::plain(buf), bytes))));
        Some(RunKeys { units, firsts, starts, prefixes, _memory: memory })
    }
}

/// The number at `at`; the slices are long enough by construction.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
