//! The write buffer of a table log: records as they will stand in blocks, and an entry for each to sort by.
//!
//! ```text
//!   bytes    | record | record | record | ...           as they came
//!   entries  | first 8 bytes of the key | place, length | sorted instead of the records
//! ```
//!
//! Invariants: records of equal keys keep the order in which they came; neither part grows beyond its share.

use ascot_io::{Pool, Reservation};

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
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Most bytes and records.
    most: (usize, usize),
    _memory: Reservation,
}

impl Buffer {
    /// A buffer with its share of `pool`.
    pub fn new(form: RecordForm, pool: &Pool, plan: &Plan) -> Result<Self> {
        let most = (plan.buffer_bytes.min(u32::MAX as usize), plan.buffer_records);
        let memory = pool.reserve(most.0 + most.1 * ENTRY_BYTES, "records of a table")?;
        // Pages of memory come when they are written to.
        let (bytes, entries) = (Vec::with_capacity(most.0), Vec::with_capacity(most.1));
        Ok(Self { form, bytes, entries, most, _memory: memory })
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
        let bytes = self.form.head_bytes(key.len(), value.len()) + key.len() + value.len();
        if self.entries.len() == self.most.1 || self.bytes.len() + bytes > self.most.0 {
            return false;
        }
        let at = self.bytes.len() as u64;
        self.form.put(&mut self.bytes, key, value);
        self.entries.push(Entry { prefix: prefix(key), place: at << 32 | bytes as u64 });
        true
    }

    /// Puts the records in the order of their keys.
    pub fn sort(&mut self) {
        let (form, bytes) = (self.form, &self.bytes);
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
        self.bytes.len()
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
        self.bytes.clear();
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
