//! Integers and floats: the record is its key. In memory and in spills they are unsigned integers
//! of the machine's own byte order whose order is the wanted one.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use ascot_record::checksum::RecordSum;
use ascot_record::framing::{FixedFraming, Framing, Partial};
use ascot_record::layout::NumberFormat;
use ascot_record::number;
use ascot_record::vsort;
use bytemuck::Pod;

use super::{
    Cut, Index, Merged, RawPiece, Records, Rules, Segment, Side, Sorted, Splitters, Task, groups_of,
};
use crate::emit::{Emitter, Stopped};
use crate::pieces::Lease;

/// An unsigned integer the kernels sort.
pub trait Number: Pod + Ord + Send + Sync + std::fmt::Debug {
    /// Sorts in place, ascending.
    fn sort(values: &mut [Self]);
    /// Merges sorted slices.
    fn merge(slices: &[&[Self]], out: &mut [Self]);
    /// Adds values to an order-independent sum.
    fn add(sum: &mut RecordSum, values: &[Self]);
    /// As a key prefix: order kept, on top of 64 bits.
    fn prefix(self) -> u64;
    /// Back from a key prefix.
    fn from_prefix(prefix: u64) -> Self;
}

impl Number for u64 {
    fn sort(values: &mut [u64]) {
        vsort::sort_u64(values);
    }
    fn merge(slices: &[&[u64]], out: &mut [u64]) {
        number::merge_numbers_u64(slices, out);
    }
    fn add(sum: &mut RecordSum, values: &[u64]) {
        sum.add_u64s(values);
    }
    fn prefix(self) -> u64 {
        self
    }
    fn from_prefix(prefix: u64) -> u64 {
        prefix
    }
}

impl Number for u32 {
    fn sort(values: &mut [u32]) {
        vsort::sort_u32(values);
    }
    fn merge(slices: &[&[u32]], out: &mut [u32]) {
        number::merge_numbers_u32(slices, out);
    }
    fn add(sum: &mut RecordSum, values: &[u32]) {
        sum.add_u32s(values);
    }
    fn prefix(self) -> u64 {
        u64::from(self) << 32
    }
    fn from_prefix(prefix: u64) -> u32 {
        (prefix >> 32) as u32
    }
}

/// Numbers of one format, ascending or descending.
pub struct Numbers<T> {
    format: NumberFormat,
    descending: bool,
    kind: PhantomData<fn() -> T>,
}

impl<T: Number> Numbers<T> {
    /// `T` has the width of the format.
    pub fn new(format: NumberFormat, descending: bool) -> Self {
        Numbers { format, descending, kind: PhantomData }
    }

    fn values<'a>(&self, segment: &'a Segment) -> &'a [T] {
        &cast(segment.sorted.record_bytes())[segment.lo as usize..segment.hi as usize]
    }

    /// Merges as many values as a chunk holds at a time.
    fn merge_chunks(&self, mut live: Vec<&[T]>, collect: &mut Collect<'_, T>) -> Result<(), Stopped> {
        let most = (collect.out.chunk_bytes() / size_of::<T>()).max(1);
        let total = |live: &[&[T]]| live.iter().map(|values| values.len()).sum::<usize>();
        while total(&live) > most {
            let cut = cut_for(&live, most);
            let below: Vec<&[T]> = live.iter().map(|values| &values[..before(values, cut)]).collect();
            live.iter_mut().zip(&below).for_each(|(values, taken)| *values = &values[taken.len()..]);
            collect.sorted(&below)?;
            if below.iter().all(|values| values.is_empty()) {
                self.merge_equal(&mut live, cut, most, collect)?;
            }
        }
        collect.sorted(&live)
    }

    /// Emits everything equal to `value`, the smallest there is.
    fn merge_equal(
        &self,
        live: &mut [&[T]],
        value: T,
        most: usize,
        collect: &mut Collect<'_, T>,
    ) -> Result<(), Stopped> {
        for values in live {
            let equal = values.partition_point(|v| *v == value);
            let (now, later) = values.split_at(equal);
            now.chunks(most).try_for_each(|part| collect.sorted(&[part]))?;
            *values = later;
        }
        Ok(())
    }
}

/// For each of many equal ranges of prefixes, how many splitters lie below it: a value is then at
/// most a few splitters away from its part.
struct Table {
    least: u64,
    shift: u32,
    passed: Vec<u16>,
}

impl Table {
    const CELL_BITS: u32 = 12;

    fn new(splitters: &Splitters) -> Table {
        let prefixes = splitters.prefixes();
        let (least, most) = (prefixes.first().copied().unwrap_or(0), prefixes.last().copied().unwrap_or(0));
        let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(Self::CELL_BITS);
        let cell_start = |cell: u64| least.saturating_add(cell << shift);
        let below = |cell| prefixes.partition_point(|&prefix| prefix < cell_start(cell)) as u16;
        Table { least, shift, passed: (0..=1 << Self::CELL_BITS).map(below).collect() }
    }

    /// Number of splitters not above `prefix`.
    #[inline]
    fn passed(&self, prefix: u64, splitters: &[u64]) -> usize {
        if prefix < self.least {
            return 0;
        }
        let cell = ((prefix - self.least) >> self.shift).min(1 << Self::CELL_BITS) as usize;
        let mut passed = self.passed[cell] as usize;
        while splitters.get(passed).is_some_and(|&splitter| splitter <= prefix) {
            passed += 1;
        }
        passed
    }
}

/// Number of values below `cut`.
fn before<T: Number>(values: &[T], cut: T) -> usize {
    values.partition_point(|v| *v < cut)
}

/// The largest of some sampled values below which at most `most` lie; the smallest value of all
/// where even that is too many.
fn cut_for<T: Number>(live: &[&[T]], most: usize) -> T {
    const SAMPLES: usize = 16;
    let total: usize = live.iter().map(|values| values.len()).sum();
    // Only what lies near the front can be below the cut.
    let share = most as f64 / total as f64;
    let mut candidates: Vec<T> = Vec::with_capacity(live.len() * SAMPLES);
    for values in live.iter().filter(|values| !values.is_empty()) {
        let reach = ((values.len() as f64 * share * 2.0) as usize).clamp(1, values.len());
        candidates.extend((0..SAMPLES).map(|i| values[i * (reach - 1) / (SAMPLES - 1)]));
    }
    candidates.sort_unstable();
    candidates.dedup();
    let fits = |cut: &T| live.iter().map(|values| before(values, *cut)).sum::<usize>() <= most;
    let fitting = candidates.partition_point(fits);
    candidates[fitting.saturating_sub(1)]
}

/// Takes merged values: leaves out what the rules say, counts, hands on.
struct Collect<'a, T> {
    out: &'a mut Emitter,
    rules: Rules,
    limit: u64,
    last: Option<T>,
    merged: Merged,
}

impl<T: Number> Collect<'_, T> {
    /// Merges sorted slices that fit a chunk together.
    fn sorted(&mut self, slices: &[&[T]]) -> Result<(), Stopped> {
        let count: usize = slices.iter().map(|values| values.len()).sum();
        if count == 0 {
            return Ok(());
        }
        let bytes = count * size_of::<T>();
        let room: &mut [T] = cast_mut(&mut self.out.room(bytes)?[..bytes]);
        T::merge(slices, room);
        let mut keep = count;
        if self.rules.unique {
            keep = dedup(room, &mut self.last, &mut self.merged.dropped);
        }
        let allowed = self.limit.saturating_sub(self.merged.out.count).min(keep as u64) as usize;
        if allowed < keep {
            T::add(&mut self.merged.dropped, &room[allowed..keep]);
        }
        if self.rules.sum || self.limit < u64::MAX || self.rules.unique {
            T::add(&mut self.merged.out, &room[..allowed]);
        }
        self.out.claim(allowed * size_of::<T>(), allowed as u64);
        Ok(())
    }
}

/// Moves the first of equals to the front; returns their number.
fn dedup<T: Number>(values: &mut [T], last: &mut Option<T>, dropped: &mut RecordSum) -> usize {
    let mut kept = 0;
    for at in 0..values.len() {
        let value = values[at];
        if *last == Some(value) {
            T::add(dropped, &[value]);
            continue;
        }
        *last = Some(value);
        values[kept] = value;
        kept += 1;
    }
    kept
}

fn cast<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(bytes).unwrap_or_default()
}

fn cast_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::try_cast_slice_mut(bytes).unwrap_or_default()
}

impl<T: Number> Records for Numbers<T> {
    type Bound = T;
    type Scratch = ();

    fn scratch(&self, _piece_bytes: usize) {}

    fn scratch_bytes(&self, _piece_bytes: usize) -> usize {
        0
    }

    fn gathers(&self) -> bool {
        false
    }

    fn record_bytes(&self) -> Option<usize> {
        Some(size_of::<T>())
    }

    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
        let records = (bytes.len() / size_of::<T>()).min(max_records);
        Cut { records, bytes: records * size_of::<T>() }
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        FixedFraming(size_of::<T>()).go_on(part, partial)
    }

    fn completion(&self) -> Option<u8> {
        None
    }

    fn sort(
        &self,
        mut piece: RawPiece,
        _out: Option<Lease>,
        _scratch: &mut (),
        sum: &mut RecordSum,
    ) -> Vec<Arc<Sorted>> {
        // In cache-sized parts: brought into order-preserving form and summed up in one go.
        const PART_BYTES: usize = 1 << 20;
        let bytes = &mut piece.lease.bytes_mut()[piece.bytes.clone()];
        for part in bytes.chunks_mut(PART_BYTES).take_while(|_| !piece.spilled) {
            number::to_ordered(part, self.format, self.descending);
            T::add(sum, cast(part));
        }
        T::sort(cast_mut(bytes));
        vec![Arc::new(Sorted { lease: Arc::new(piece.lease), bytes: piece.bytes, index: Index::Array })]
    }

    fn index(&self, lease: Lease, bytes: Range<usize>) -> Sorted {
        Sorted { lease: Arc::new(lease), bytes, index: Index::Array }
    }

    fn keys_decide(&self) -> bool {
        true
    }

    fn descending(&self) -> bool {
        false
    }

    fn normalise(&self, bytes: &mut [u8]) {
        number::to_ordered(bytes, self.format, self.descending);
    }

    fn finish(&self, bytes: &mut [u8]) {
        number::from_ordered(bytes, self.format, self.descending);
    }

    fn whole(&self, sorted: Arc<Sorted>) -> Segment {
        let hi = (sorted.bytes.len() / size_of::<T>()) as u32;
        Segment { sorted, lo: 0, hi }
    }

    fn position_at(&self, offset: usize) -> u32 {
        (offset / size_of::<T>()) as u32
    }

    fn offset_of(&self, position: u32) -> u32 {
        position * size_of::<T>() as u32
    }

    fn bytes_in(&self, segment: &Segment) -> u64 {
        u64::from(segment.hi.saturating_sub(segment.lo)) * size_of::<T>() as u64
    }

    fn first(&self, segment: &Segment) -> T {
        self.values(segment)[0]
    }

    fn last(&self, segment: &Segment) -> T {
        let values = self.values(segment);
        values[values.len() - 1]
    }

    fn sample(&self, segment: &Segment, count: usize, out: &mut Vec<T>) {
        let values = self.values(segment);
        out.extend((0..count).map(|i| values[values.len() * (2 * i + 1) / (2 * count)]));
    }

    fn compare(&self, a: &T, b: &T) -> Ordering {
        a.cmp(b)
    }

    fn compare_keys(&self, a: &T, b: &T) -> Ordering {
        a.cmp(b)
    }

    fn key_of(&self, bound: &T) -> Vec<u8> {
        bound.prefix().to_be_bytes().to_vec()
    }

    fn position(&self, segment: &Segment, bound: &T, side: Side, _keys_only: bool) -> u32 {
        let limit = if side == Side::Lower { Ordering::Less } else { Ordering::Equal };
        segment.lo + self.values(segment).partition_point(|value| value.cmp(bound) <= limit) as u32
    }

    fn position_of_key(&self, segment: &Segment, key: &[u8], side: Side) -> u32 {
        let bound = T::from_prefix(ascot_record::order::prefix(key));
        self.position(segment, &bound, side, true)
    }

    fn first_prefix(&self, bytes: &[u8]) -> u64 {
        bytes.get(..size_of::<T>()).map_or(0, |first| bytemuck::pod_read_unaligned::<T>(first).prefix())
    }

    fn merge(&self, task: &Task, rules: Rules, out: &mut Emitter) -> Result<Merged, Stopped> {
        let last = task.previous.as_ref().map(|key| T::from_prefix(ascot_record::order::prefix(key)));
        let mut collect = Collect { out, rules, limit: task.limit, last, merged: Merged::default() };
        // Segments of one source are in order; merging them all is right, if not the least work.
        let live = task.sources.iter().flatten().map(|segment| self.values(segment)).collect();
        self.merge_chunks(live, &mut collect)?;
        let mut merged = collect.merged;
        merged.last_key =
            collect.last.filter(|_| rules.unique).map(|value| value.prefix().to_be_bytes().to_vec());
        Ok(merged)
    }

    fn group(&self, bytes: &[u8], splitters: &Splitters, out: &mut [u8]) -> Vec<(usize, Range<usize>)> {
        let table = Table::new(splitters);
        let width = size_of::<T>();
        let mut sizes = vec![0usize; splitters.parts()];
        let part_of = |record: &[u8]| {
            let prefix = bytemuck::pod_read_unaligned::<T>(record).prefix();
            splitters.part_after(table.passed(prefix, splitters.prefixes()), prefix) as u16
        };
        let parts: Vec<u16> = bytes.chunks_exact(width).map(part_of).collect();
        parts.iter().for_each(|&part| sizes[part as usize] += width);
        let (mut places, groups) = groups_of(&sizes);
        for (record, part) in bytes.chunks_exact(width).zip(parts) {
            let place = &mut places[part as usize];
            out[*place..*place + width].copy_from_slice(record);
            *place += width;
        }
        groups
    }

    fn sum(&self, bytes: &[u8], sum: &mut RecordSum) {
        match bytemuck::try_cast_slice::<u8, T>(bytes) {
            Ok(values) => T::add(sum, values),
            Err(_) => bytes
                .chunks_exact(size_of::<T>())
                .for_each(|record| T::add(sum, &[bytemuck::pod_read_unaligned::<T>(record)])),
        }
    }

    fn disorder(&self, previous: Option<&[u8]>, bytes: &[u8], strict: bool) -> Option<usize> {
        let most = if strict { Ordering::Less } else { Ordering::Equal };
        let mut before = previous.map(bytemuck::pod_read_unaligned::<T>);
        for (number, record) in bytes.chunks_exact(size_of::<T>()).enumerate() {
            let value = bytemuck::pod_read_unaligned::<T>(record);
            if before.is_some_and(|before| before.cmp(&value) > most) {
                return Some(number * size_of::<T>());
            }
            before = Some(value);
        }
        None
    }

    fn last_record(&self, bytes: &[u8]) -> usize {
        bytes.len().saturating_sub(size_of::<T>())
    }

    fn sample_keys(&self, bytes: &[u8], count: usize, out: &mut Vec<Vec<u8>>) {
        let values = bytes.len() / size_of::<T>();
        for i in 0..count.min(values) {
            let at = values * i / count * size_of::<T>();
            let value = bytemuck::pod_read_unaligned::<T>(&bytes[at..at + size_of::<T>()]);
            out.push(value.prefix().to_be_bytes().to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_table_finds_what_a_search_finds(
            mut splitters in proptest::collection::vec(any::<u64>(), 0..40),
            values in proptest::collection::vec(any::<u64>(), 1..200),
            narrow in 0u32..60,
        ) {
            splitters.iter_mut().for_each(|value| *value >>= narrow);
            splitters.sort_unstable();
            let keys: Vec<Vec<u8>> = splitters.iter().map(|value| value.to_be_bytes().to_vec()).collect();
            let splitters = Splitters::new(&keys, false);
            let table = Table::new(&splitters);
            let near = splitters.prefixes().iter().flat_map(|&p| [p, p.wrapping_add(1), p.wrapping_sub(1)]);
            for value in values.iter().map(|value| value >> narrow).chain(near) {
                let passed = table.passed(value, splitters.prefixes());
                prop_assert_eq!(passed, splitters.prefixes().partition_point(|&splitter| splitter <= value));
                prop_assert_eq!(splitters.part_after(passed, value), splitters.part_of(&value.to_be_bytes()));
            }
        }
    }
}
