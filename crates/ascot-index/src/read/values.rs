//! Values apart from their keys: read where pointers say, in the order of files.

use std::collections::BTreeMap;

use ascot_io::Reservation;

use crate::error::{IndexError, Result};
use crate::format::names::Log;
use crate::format::pointer::{Pointer, VALUE_HEAD_MOST, value_is_whole, value_lengths};
use crate::read::fetch::{Spot, fetch, fetch_all};
use crate::read::{Directory, count};

/// What the pool is told.
const PURPOSE: &str = "values that pointers name";

impl Directory {
    /// Replaces each pointer by the value it points to; the memory that the values are. Where there is an error all are pointers
    /// still.
    pub(crate) fn resolve(&self, values: &mut [&mut Vec<u8>]) -> Result<Reservation> {
        let bad = || IndexError::Request("a table holds something else than a pointer: run verify".into());
        let mut order: BTreeMap<Pointer, Vec<usize>> = BTreeMap::new();
        for (number, value) in values.iter().enumerate() {
            let pointer = Pointer::from_bytes(value).ok_or_else(bad)?;
            if pointer.writer >= self.manifest.most().writers {
                return Err(bad());
            }
            order.entry(pointer).or_default().push(number);
        }
        let pointers: Vec<(Pointer, Vec<usize>)> = order.into_iter().collect();
        let mut memory = self.pool.reserve(0, PURPOSE)?;
        let mut found: Vec<Option<Vec<u8>>> = vec![None; pointers.len()];
        let spots: Vec<Spot> = pointers.iter().map(|(pointer, _)| self.value_spot(pointer)).collect();
        count(&self.counters.value_reads, spots.len() as u64);
        fetch_all(self, "value read", &spots, |number, bytes| {
            let (pointer, wanted) = &pointers[number];
            let value = self.value(pointer, &spots[number], bytes)?;
            memory.absorb(self.pool.reserve(value.len() * wanted.len(), PURPOSE)?);
            found[number] = Some(value);
            Ok(())
        })?;
        for ((_, wanted), value) in pointers.into_iter().zip(found) {
            let (Some((last, others)), Some(value)) = (wanted.split_last(), value) else { continue };
            others.iter().for_each(|&place| values[place].clone_from(&value));
            *values[*last] = value;
        }
        Ok(memory)
    }

    fn value_spot(&self, pointer: &Pointer) -> Spot {
        let path = Log::Writer(pointer.writer).data(&self.path).unwrap_or_default();
        let varint = crate::format::bytes::varint_bytes(u64::from(pointer.length));
        let bytes = match self.layout().value_bytes {
            Some(fixed) => 4 + fixed as usize,
            // Its head says how long it is.
            None if pointer.is_long() => 4 + varint,
            None => 4 + varint + pointer.length as usize,
        };
        Spot { path, at: pointer.offset, bytes }
    }

    /// The value in `bytes`, read at `spot`; what is behind them is read too, where it is longer than the pointer says.
    fn value(&self, pointer: &Pointer, spot: &Spot, bytes: &[u8]) -> Result<Vec<u8>> {
        let damaged = |what| IndexError::damaged(&spot.path, spot.at, what);
        let id = Log::Writer(pointer.writer).id(self.manifest.id);
        let lengths = value_lengths(self.layout().value_bytes, bytes);
        if let Some((head, length)) = lengths.filter(|&(head, length)| length == (bytes.len() - head) as u64)
        {
            if !value_is_whole(id, spot.at, bytes) {
                return Err(damaged("the checksum of a value is wrong"));
            }
            return Ok(bytes[head..head + length as usize].to_vec());
        }
        if !pointer.is_long() {
            return Err(damaged("a value has another length than its pointer says"));
        }
        let head = fetch(&self.disk, "value read", &spot.path, spot.at, VALUE_HEAD_MOST)?;
        let lengths = value_lengths(None, head.bytes())
            .and_then(|(head, length)| Some((head, usize::try_from(length).ok()?)));
        let (head, length) = lengths.ok_or_else(|| damaged("a value has no length"))?;
        let whole = head.checked_add(length).ok_or_else(|| damaged("a value has no length"))?;
        let _memory = self.pool.reserve(whole, "a long value")?;
        let filled = fetch(&self.disk, "value read", &spot.path, spot.at, whole)?;
        count(&self.counters.value_reads, 2);
        count(&self.counters.bytes, (whole + VALUE_HEAD_MOST) as u64);
        if !value_is_whole(id, spot.at, filled.bytes()) {
            return Err(damaged("the checksum of a value is wrong"));
        }
        Ok(filled.bytes()[head..].to_vec())
    }
}
