//! The write buffer of a table log: records in their block format, and the offset of each.
//!
//! ```text
//!   bytes    | record | record | record | ...           in order of arrival
//!   starts   | offset | offset | offset | ...           sorted instead of the records
//!   scratch  | memory for sorting, then a hash of each record |
//! ```
//!
//! Invariants: records of equal keys keep their order of arrival; no part grows beyond its share.
//!
//! Records are read in key order, which is random access to memory: the bytes use huge pages if the system has them,
//! and records are prefetched.

use ascot_io::{Buf, PAGE_BYTES, Pool, Reservation};
use ascot_record::chunk::{self, ChunkScratch};
use ascot_record::framing::{Framing, Partial};
use ascot_record::order::RecordOrder;
use ascot_record::prefetch::{LINE, prefetch_byte};

use crate::error::Result;
use crate::format::bytes::Cursor;
use crate::format::record::{Record, RecordForm};
use crate::reserve::vec_with_capacity;
use crate::write::memory::{Plan, beside_bytes};

/// Number of records to prefetch ahead.
const AHEAD: usize = 24;

/// Records that wait to become a table.
pub struct Buffer {
    form: RecordForm,
    bytes: Buf,
    used: usize,
    starts: Vec<u32>,
    scratch: ChunkScratch,
    max_bytes: usize,
    max_records: usize,
    _memory: Reservation,
}

impl Buffer {
    /// A buffer with its share of `pool`.
    pub fn new(form: RecordForm, pool: &Pool, plan: &Plan) -> Result<Self> {
        let max_bytes = plan.buffer_bytes.min(u32::MAX as usize);
        let max_records = plan.buffer_records;
        // The system assigns memory pages when they are written to.
        let bytes = pool.region(max_bytes / PAGE_BYTES * PAGE_BYTES, "records of a table")?;
        let memory = pool.reserve(beside_bytes(max_records), "places of records")?;
        let starts = vec_with_capacity(pool, max_records, "places of records")?;
        // Sort memory is tried first, so that a refusal becomes an error, and then allocated.
        drop(vec_with_capacity::<u8>(pool, chunk::scratch_bytes(max_records), "sorting records")?);
        let scratch = ChunkScratch::with_capacity(max_records);
        Ok(Self {
            form,
            max_bytes: bytes.len().min(max_bytes),
            max_records,
            bytes,
            used: 0,
            starts,
            scratch,
            _memory: memory,
        })
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether it holds half of its maximum records or bytes.
    pub fn is_half_full(&self) -> bool {
        2 * self.starts.len() >= self.max_records || 2 * self.used >= self.max_bytes
    }

    /// Whether it has space for `records` more records, whose keys and values have `bytes` bytes.
    pub fn has_space(&self, records: usize, bytes: usize) -> bool {
        let heads = records.saturating_mul(self.form.head_bytes(usize::MAX, usize::MAX));
        let bytes = self.used.saturating_add(bytes).saturating_add(heads);
        self.starts.len().saturating_add(records) <= self.max_records && bytes <= self.max_bytes
    }

    /// Whether an empty buffer can hold a record of these lengths.
    pub fn could_hold(&self, key: usize, value: usize) -> bool {
        self.form.head_bytes(key, value) + key + value <= self.max_bytes && self.max_records > 0
    }

    /// Adds a record; returns false if the buffer must be emptied first.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        let head = self.form.head_bytes(key.len(), value.len());
        let bytes = head + key.len() + value.len();
        if self.starts.len() == self.max_records || self.used + bytes > self.max_bytes {
            return false;
        }
        let space = &mut self.bytes[self.used..self.used + bytes];
        if head > 0 {
            space[..head].copy_from_slice(&self.form.head(key.len(), value.len()));
        }
        space[head..head + key.len()].copy_from_slice(key);
        space[head + key.len()..].copy_from_slice(value);
        // Below 2^32, because `max_bytes` is.
        self.starts.push(self.used as u32);
        self.scratch.note(key);
        self.used += bytes;
        true
    }

    /// Sorts the records by key. Returns them, and scratch memory for one number each.
    pub fn sorted(&mut self) -> (Sorted<'_>, &mut [u64]) {
        let bytes = &self.bytes[..self.used];
        chunk::sort_noted_chunk(&self.form, &self.form, bytes, &mut self.starts, &mut self.scratch);
        let record_bytes = self.form.fixed_bytes();
        (Sorted { form: self.form, bytes, starts: &self.starts, record_bytes }, self.scratch.numbers())
    }

    /// Bytes of the records.
    pub fn bytes(&self) -> usize {
        self.used
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.used = 0;
        self.starts.clear();
        self.scratch.clear();
    }
}

/// The records of a buffer, in key order.
#[derive(Clone, Copy)]
pub struct Sorted<'a> {
    form: RecordForm,
    bytes: &'a [u8],
    starts: &'a [u32],
    /// Bytes of every record, if all have the same length.
    record_bytes: Option<usize>,
}

impl<'a> Sorted<'a> {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The bytes of the record at `index`, and the record parsed from them.
    pub fn record(&self, index: usize) -> (&'a [u8], Record<'a>) {
        if let Some(&start) = self.starts.get(index + AHEAD) {
            let last = self.record_bytes.map_or(LINE, |bytes| bytes.saturating_sub(1));
            prefetch_byte(self.bytes, start as usize);
            prefetch_byte(self.bytes, start as usize + last);
        }
        let rest = &self.bytes[self.starts[index] as usize..];
        let mut cursor = Cursor::new(rest);
        // `push` wrote it with the same form.
        let record = self.form.next(&mut cursor).unwrap_or(Record { key: &[], value: &[] });
        (&rest[..cursor.at()], record)
    }
}

impl Framing for RecordForm {
    fn end(&self, bytes: &[u8], start: usize) -> Option<usize> {
        let end = start as u64 + self.length(bytes.get(start..)?)?;
        usize::try_from(end).ok().filter(|&end| end <= bytes.len())
    }

    fn fixed_len(&self) -> Option<usize> {
        self.fixed_bytes()
    }

    /// Records of a buffer are contiguous.
    fn go_on(&self, _part: &[u8], _partial: &mut Partial) -> Option<usize> {
        None
    }
}

impl RecordOrder for RecordForm {
    fn key<'a>(&self, record: &'a [u8], _scratch: &'a mut Vec<u8>) -> &'a [u8] {
        self.next(&mut Cursor::new(record)).map_or(&[], |record| record.key)
    }

    fn body<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        record
    }

    fn fixed_key_len(&self) -> Option<usize> {
        self.key.map(|length| length as usize)
    }
}
