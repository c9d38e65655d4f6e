//! The write buffer of a table log: records as they will stand in blocks, and an entry for each to sort by.
//!
//! ```text
//!   bytes    | record | record | record | ...           as they came
//!   entries  | first 8 bytes of the key | place, length | sorted instead of the records
//! ```
//!
//! Invariants: records of equal keys keep the order in which they came; neither part grows beyond its share.
//!
//! Records are read in the order of keys, which is anywhere in memory: their bytes are in huge pages where the system has them, and a few
//! records are touched before their turn, so that one wait for memory serves all of them.

use ascot_io::{Buf, PAGE_BYTES, Pool, Reservation};

use crate::error::Result;
use crate::format::bytes::Cursor;
use crate::format::record::{Record, RecordForm};
use crate::write::memory::{ENTRY_BYTES, Plan};

/// What stands for a record while it is sorted; afterwards the two halves are free for hashes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// First eight bytes of the key, big-endian, zeros behind a shorter one.
    pub prefix: u64,
    /// Place in the bytes, upper half, and length.
    pub place: u64,
}

impl Entry {
    fn range(&self) -> std::ops::Range<usize> {
        let at = (self.place >> 32) as usize;
        at..at + (self.place & u64::from(u32::MAX)) as usize
    }
}

/// Records that wait to become a table.
pub struct Buffer {
    form: RecordForm,
    bytes: Buf,
    used: usize,
    entries: Vec<Entry>,
    /// Most bytes and records.
    most: (usize, usize),
    _memory: Reservation,
}

impl Buffer {
    /// Records touched at once.
    pub const TOUCHED: usize = 16;

    /// A buffer with its share of `pool`.
    pub fn new(form: RecordForm, pool: &Pool, plan: &Plan) -> Result<Self> {
        let most = (plan.buffer_bytes.min(u32::MAX as usize), plan.buffer_records);
        // Pages of memory come when they are written to.
        let bytes = pool.region(most.0 / PAGE_BYTES * PAGE_BYTES, "records of a table")?;
        let memory = pool.reserve(most.1 * ENTRY_BYTES, "places of records")?;
        let most = (bytes.len().min(most.0), most.1);
        Ok(Self { form, bytes, used: 0, entries: Vec::with_capacity(most.1), most, _memory: memory })
    }

    /// Records in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a record of these lengths can ever be in it.
    pub fn could_hold(&self, key: usize, value: usize) -> bool {
        self.form.head_bytes(key, value) + key + value <= self.most.0 && self.most.1 > 0
    }

    /// Takes a record; false where it has to be emptied first.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        let head = self.form.head_bytes(key.len(), value.len());
        let bytes = head + key.len() + value.len();
        if self.entries.len() == self.most.1 || self.used + bytes > self.most.0 {
            return false;
        }
        let room = &mut self.bytes[self.used..self.used + bytes];
        if head > 0 {
            room[..head].copy_from_slice(&self.form.head(key.len(), value.len()));
        }
        room[head..head + key.len()].copy_from_slice(key);
        room[head + key.len()..].copy_from_slice(value);
        self.entries.push(Entry { prefix: prefix(key), place: (self.used as u64) << 32 | bytes as u64 });
        self.used += bytes;
        true
    }

    /// Puts the records in the order of their keys.
    pub fn sort(&mut self) {
        let (form, bytes) = (self.form, &self.bytes[..]);
        let key = |entry: &Entry| record_of(form, bytes, entry).key;
        if form.key.is_some_and(|length| length <= 8) {
            // The prefix is the whole key, and places ascend as records came.
            self.entries.sort_unstable_by_key(|entry| (entry.prefix, entry.place));
        } else {
            self.entries.sort_unstable_by(|one, other| {
                let by_prefix = one.prefix.cmp(&other.prefix);
                by_prefix.then_with(|| key(one).cmp(key(other))).then(one.place.cmp(&other.place))
            });
        }
    }

    /// The bytes of the record at `index`, and its parts.
    pub fn record(&self, index: usize) -> (&[u8], Record<'_>) {
        let entry = &self.entries[index];
        (&self.bytes[entry.range()], record_of(self.form, &self.bytes, entry))
    }

    /// Bytes of the records in it.
    pub fn bytes(&self) -> usize {
        self.used
    }

    /// Asks for the bytes of the records from `index` on, before their turn comes.
    pub fn touch(&self, index: usize) {
        let entries = self.entries[index..].iter().take(Self::TOUCHED);
        let ends = entries.map(|entry| {
            let range = entry.range();
            let last = range.end.saturating_sub(1).max(range.start);
            self.bytes.get(range.start).copied().unwrap_or(0) ^ self.bytes.get(last).copied().unwrap_or(0)
        });
        std::hint::black_box(ends.fold(0, |all, byte| all ^ byte));
    }

    /// Keeps a hash in the first column, at an index whose record has been written.
    pub fn keep_hash(&mut self, index: usize, hash: u64) {
        self.entries[index].prefix = hash;
    }

    /// Memory for a hash of each record, in two columns: when the records have been written.
    pub fn columns(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.used = 0;
        self.entries.clear();
    }
}

fn record_of<'a>(form: RecordForm, bytes: &'a [u8], entry: &Entry) -> Record<'a> {
    let mut cursor = Cursor::new(&bytes[entry.range()]);
    // It was put there by the same form.
    form.next(&mut cursor).unwrap_or(Record { key: &[], value: &[] })
}

/// The first eight bytes of a key as a number that orders as they do.
fn prefix(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = key.len().min(8);
    first[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(first)
}
