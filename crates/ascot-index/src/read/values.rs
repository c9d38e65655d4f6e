//! Reading values by their pointers, in file order; long values stay in the files.

use std::collections::BTreeMap;

use ascot_io::{Reservation, RunId};

use crate::error::{IndexError, Result};
use crate::format::bytes::varint_bytes;
use crate::format::names::Log;
use crate::format::pointer::{Pointer, VALUE_HEAD_MAX, value_is_whole, value_lengths};
use crate::read::files::ByteRange;
use crate::read::stored::{Content, Inline};
use crate::read::{Directory, LongValue};

/// The purpose reported to the pool.
const PURPOSE: &str = "values that pointers name";

impl Directory {
    /// The values that pointers point to, and their memory reservation.
    pub(crate) fn resolve<P: AsRef<[u8]>>(
        &self,
        pointers: &[P],
        inline: Inline,
    ) -> Result<(Vec<Content>, Reservation)> {
        let bad = || IndexError::Request("a table holds something else than a pointer: run verify".into());
        let mut order: BTreeMap<Pointer, Vec<usize>> = BTreeMap::new();
        for (number, value) in pointers.iter().enumerate() {
            let pointer = Pointer::from_bytes(value.as_ref()).ok_or_else(bad)?;
            if pointer.writer >= self.manifest.max_shape().writers {
                return Err(bad());
            }
            order.entry(pointer).or_default().push(number);
        }
        let mut memory = self.pool.reserve(0, PURPOSE)?;
        let mut found: Vec<Option<Content>> = vec![None; pointers.len()];
        let max_bytes = inline.bytes(self) as u64;
        let (long, short): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|(pointer, _)| self.pointed_bytes(pointer) > max_bytes);
        for (pointer, wanted) in long {
            let value = self.long_value(&pointer)?;
            memory.absorb(self.pool.reserve(wanted.len() * size_of::<LongValue>(), PURPOSE)?);
            wanted.into_iter().for_each(|place| found[place] = Some(Content::Long(value.clone())));
        }
        let byte_ranges: Vec<ByteRange> =
            short.iter().map(|(pointer, _)| self.value_range(pointer)).collect();
        self.files.count(|counts| counts.value_reads += byte_ranges.len() as u64);
        self.files.fetch_all(&byte_ranges, |number, bytes| {
            let (pointer, wanted) = &short[number];
            let value = self.short_value(pointer, &byte_ranges[number], bytes)?;
            memory.absorb(self.pool.reserve(value.len() * wanted.len(), PURPOSE)?);
            wanted.iter().for_each(|&place| found[place] = Some(Content::Bytes(value.clone())));
            Ok(())
        })?;
        // Every pointer was resolved as short or as long.
        Ok((found.into_iter().flatten().collect(), memory))
    }

    /// Bytes of the value, or the most that its pointer can express.
    fn pointed_bytes(&self, pointer: &Pointer) -> u64 {
        u64::from(self.layout().value_bytes.unwrap_or(pointer.length))
    }

    fn value_log(&self, pointer: &Pointer) -> (std::path::PathBuf, RunId) {
        let log = Log::Writer(pointer.writer);
        (log.data(&self.path).unwrap_or_default(), log.id(self.manifest.id))
    }

    /// The location of a long value. Its checksum is verified before any of it is handed over.
    fn long_value(&self, pointer: &Pointer) -> Result<LongValue> {
        let (path, id) = self.value_log(pointer);
        let (head, length) = match self.layout().value_bytes {
            Some(fixed) => (4, u64::from(fixed)),
            None if pointer.is_long() => self.lengths_at(&path, pointer.offset)?,
            None => (4 + varint_bytes(u64::from(pointer.length)), u64::from(pointer.length)),
        };
        let end = pointer.offset.saturating_add(head as u64).saturating_add(length);
        if end > self.files.get(&path)?.size() {
            return Err(IndexError::damaged(&path, pointer.offset, "a value ends outside its file"));
        }
        Ok(LongValue::in_log(path, id, pointer.offset, head, length))
    }

    /// Bytes of the header and of the value at `at` in a log, from the header.
    fn lengths_at(&self, path: &std::path::Path, at: u64) -> Result<(usize, u64)> {
        let head = self.files.fetch_one(path, at, VALUE_HEAD_MAX)?;
        self.files.count(|counts| counts.value_reads += 1);
        let lengths = value_lengths(None, head.bytes());
        lengths.ok_or_else(|| IndexError::damaged(path, at, "a value has no length"))
    }

    fn value_range(&self, pointer: &Pointer) -> ByteRange {
        let (path, _) = self.value_log(pointer);
        let varint = varint_bytes(u64::from(pointer.length));
        let bytes = match self.layout().value_bytes {
            Some(fixed) => 4 + fixed as usize,
            None => 4 + varint + pointer.length as usize,
        };
        ByteRange { path, at: pointer.offset, bytes }
    }

    /// The value in `bytes`, which were read at `byte_range`.
    fn short_value(&self, pointer: &Pointer, byte_range: &ByteRange, bytes: &[u8]) -> Result<Vec<u8>> {
        let damaged = |what| Err(IndexError::damaged(&byte_range.path, byte_range.at, what));
        let (_, id) = self.value_log(pointer);
        match value_lengths(self.layout().value_bytes, bytes) {
            Some((head, length)) if length == (bytes.len() - head) as u64 => {
                match value_is_whole(id, byte_range.at, bytes) {
                    true => Ok(bytes[head..].to_vec()),
                    false => damaged("the checksum of a value is wrong"),
                }
            }
            _ => damaged("a value has another length than its pointer says"),
        }
    }
}
