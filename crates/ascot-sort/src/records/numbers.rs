//! Integers and floats: the record is its key. In memory and in spills they are unsigned integers
//! in native byte order, mapped so that their order is the requested one.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use ascot_record::checksum::RecordSum;
use ascot_record::framing::{FixedFraming, Framing, Partial};
use ascot_record::layout::NumberFormat;
use ascot_record::number::{self, Heads};
use ascot_record::order;
use ascot_record::vsort::{self, Sortable};
use bytemuck::Pod;

use super::{
    Cut, Groups, Index, RawChunk, RecordEnds, Records, Rules, Segment, Side, Sorted, Splitters, Task,
    groups_of, sample_places,
};
use crate::records::emitter::{Emitter, Merged, Stopped};
use crate::resources::Lease;

/// An unsigned integer type that the kernels sort.
pub trait Number: Sortable + Into<u64> + Pod + Send + Sync + std::fmt::Debug {
    /// Order-preserving key prefix: the value in the top bits of 64.
    fn prefix(self) -> u64;
    /// The value of a key prefix.
    fn from_prefix(prefix: u64) -> Self;
}

impl Number for u64 {
    fn prefix(self) -> u64 {
        self
    }
    fn from_prefix(prefix: u64) -> u64 {
        prefix
    }
}

impl Number for u32 {
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
    /// Requires that `T` has the width of the format.
    pub fn new(format: NumberFormat, descending: bool) -> Self {
        Numbers { format, descending, kind: PhantomData }
    }

    fn values<'a>(&self, segment: &'a Segment) -> &'a [T] {
        &cast(segment.sorted.record_bytes())[segment.lo as usize..segment.hi as usize]
    }

    /// Converts values to the form of spills and sums them up, in one pass over cache-sized parts.
    fn take_in(&self, bytes: &mut [u8], sum: &mut RecordSum) {
        const PART_BYTES: usize = 256 << 10;
        for part in bytes.chunks_mut(PART_BYTES) {
            number::to_ordered(part, self.format, self.descending);
            sum.add_numbers::<T>(cast(part));
        }
    }

    /// Emits groups in their order; each is sorted when it is put together.
    fn merge_groups(&self, task: &Task, collect: &mut Collect<'_, T>) -> Result<(), Stopped> {
        let parts: Vec<(&Groups, &[T], Range<usize>)> =
            task.sources.iter().flatten().filter_map(|segment| self.groups_in(segment)).collect();
        let first = parts.iter().map(|(_, _, groups)| groups.start).min().unwrap_or(0);
        let end = parts.iter().map(|(_, _, groups)| groups.end).max().unwrap_or(0);
        let mut slices = Vec::with_capacity(parts.len());
        for group in first..end {
            slices.clear();
            for (groups, values, range) in &parts {
                if range.contains(&group) {
                    slices.push(&values[groups.starts[group] as usize..groups.starts[group + 1] as usize]);
                }
            }
            let equal = parts.first().is_some_and(|(groups, ..)| groups.bounds.all_equal(group));
            collect.group(&slices, equal)?;
        }
        Ok(())
    }

    /// The groups of a segment, all values of its memory, and the range of groups that the segment holds.
    fn groups_in<'a>(&self, segment: &'a Segment) -> Option<(&'a Groups, &'a [T], Range<usize>)> {
        let Index::Groups(groups) = &segment.sorted.index else { return None };
        let from = groups.starts.partition_point(|&start| start < segment.lo);
        let end = groups.starts.partition_point(|&start| start <= segment.hi).saturating_sub(1);
        Some((groups, cast(segment.sorted.record_bytes()), from..end.max(from)))
    }

    /// Merges at most one output block of values at a time.
    fn merge_chunks(&self, mut live: Vec<&[T]>, collect: &mut Collect<'_, T>) -> Result<(), Stopped> {
        let total = |live: &[&[T]]| live.iter().map(|values| values.len()).sum::<usize>();
        let mut heads = Heads::default();
        loop {
            let max_count = collect.next_count();
            if total(&live) <= max_count {
                break;
            }
            let Some(cut) = heads.select(&live, max_count) else { break };
            let below: Vec<&[T]> =
                live.iter().zip(heads.ends()).map(|(values, &end)| &values[..end]).collect();
            live.iter_mut().zip(heads.ends()).for_each(|(values, &end)| *values = &values[end..]);
            collect.sorted(&below)?;
            if below.iter().all(|values| values.is_empty()) {
                self.merge_equal(&mut live, cut, max_count, collect)?;
            }
        }
        collect.sorted(&live)
    }

    /// Emits all values equal to `value`, which is the smallest.
    fn merge_equal(
        &self,
        live: &mut [&[T]],
        value: T,
        max_count: usize,
        collect: &mut Collect<'_, T>,
    ) -> Result<(), Stopped> {
        for values in live {
            let equal = values.partition_point(|v| *v == value);
            let (now, later) = values.split_at(equal);
            now.chunks(max_count).try_for_each(|part| collect.sorted(&[part]))?;
            *values = later;
        }
        Ok(())
    }
}

/// Number of values whose parts are looked up at once.
const BATCH: usize = 64;

/// Copies values to `out`, grouped by part, each group in the given order. Returns the sizes of the groups.
fn group_values<T: Number>(
    values: &[T],
    bounds: &Splitters,
    out: &mut [T],
    parts: &mut Vec<u16>,
) -> Vec<u32> {
    parts.clear();
    parts.resize(values.len(), 0);
    for (values, parts) in values.chunks(BATCH).zip(parts.chunks_mut(BATCH)) {
        bounds.parts_of_prefixes(values.iter().map(|value| value.prefix()), parts);
    }
    number::group_by_part(values, parts, bounds.parts(), out)
}

/// Takes merged values: drops those that the rules exclude, sums them up, and passes on the rest.
struct Collect<'a, T> {
    out: &'a mut Emitter,
    rules: Rules,
    limit: u64,
    last: Option<T>,
    merged: Merged,
}

impl<T: Number> Collect<'_, T> {
    /// The sums of the merge; the last key only if `last_of_all`.
    fn done(self, last_of_all: bool) -> Merged {
        let last = self.last.filter(|_| self.rules.unique && last_of_all);
        Merged { last_key: last.map(|value| value.prefix().to_be_bytes().to_vec()), ..self.merged }
    }

    /// Number of values to merge next: usually a block of them. Where duplicates are dropped, a block is filled further
    /// until less than a quarter of it is free, because spilled blocks are padded to whole pages.
    fn next_count(&self) -> usize {
        let block = self.out.block_bytes();
        let free = self.out.free_bytes();
        let bytes = if self.rules.unique && free >= block / 4 { free } else { block };
        (bytes / size_of::<T>()).max(1)
    }

    /// Merges sorted slices that fit one block together.
    fn sorted(&mut self, slices: &[&[T]]) -> Result<(), Stopped> {
        let count: usize = slices.iter().map(|values| values.len()).sum();
        self.fill(count, |space| number::merge_numbers(slices, space))
    }

    /// Emits `count` values that `fill` writes, in order; they fit one block.
    fn fill(&mut self, count: usize, fill: impl FnOnce(&mut [T])) -> Result<(), Stopped> {
        if count == 0 {
            return Ok(());
        }
        let bytes = count * size_of::<T>();
        let space: &mut [T] = cast_mut(&mut self.out.space(bytes)?[..bytes]);
        fill(space);
        let mut keep = count;
        if self.rules.unique {
            keep = dedup(space, &mut self.last, &mut self.merged.dropped);
        }
        let allowed = self.limit.saturating_sub(self.merged.out.count).min(keep as u64) as usize;
        if allowed < keep {
            self.merged.dropped.add_numbers(&space[allowed..keep]);
        }
        if self.rules.sum || self.limit < u64::MAX || self.rules.unique {
            self.merged.out.add_numbers(&space[..allowed]);
        }
        self.out.claim(allowed * size_of::<T>(), allowed as u64);
        Ok(())
    }
}

impl<T: Number> Collect<'_, T> {
    /// Sorts and emits one group, whose values lie in several slices.
    fn group(&mut self, slices: &[&[T]], equal: bool) -> Result<(), Stopped> {
        let max_count = (self.out.block_bytes() / size_of::<T>()).max(1);
        let count: usize = slices.iter().map(|values| values.len()).sum();
        if equal {
            return slices
                .iter()
                .flat_map(|values| values.chunks(max_count))
                .try_for_each(|part| self.sorted(&[part]));
        }
        if count > max_count {
            return self.large_group(slices, max_count);
        }
        self.fill(count, |space| {
            let mut at = 0;
            for values in slices {
                space[at..at + values.len()].copy_from_slice(values);
                at += values.len();
            }
            vsort::sort::<T>(space);
        })
    }

    /// Emits a group larger than a block, which the sample misjudged. Each block takes a pass over the group.
    fn large_group(&mut self, slices: &[&[T]], max_count: usize) -> Result<(), Stopped> {
        const SAMPLES: usize = 512;
        let all = || slices.iter().copied().flatten().copied();
        let Some(mut from) = all().min() else { return Ok(()) };
        loop {
            let mut below: Option<T> = None;
            let within =
                |value: &T, below: Option<T>| *value >= from && below.is_none_or(|below| *value < below);
            let count = loop {
                let count = all().filter(|value| within(value, below)).count();
                if count <= max_count {
                    break count;
                }
                let mut sample: Vec<T> =
                    all().filter(|value| within(value, below)).step_by(count.div_ceil(SAMPLES)).collect();
                sample.sort_unstable();
                let pick = sample[sample.len() * max_count / count * 3 / 4];
                below = Some(pick);
                if pick == from {
                    break 0;
                }
            };
            if below == Some(from) {
                // The smallest value alone is too many for a block: equal values need no sort.
                let mut left = all().filter(|value| *value == from).count();
                while left > 0 {
                    let now = left.min(max_count);
                    self.fill(now, |space| space.fill(from))?;
                    left -= now;
                }
                below = all().filter(|value| *value > from).min();
            } else {
                self.fill(count, |space| {
                    let values = all().filter(|value| within(value, below));
                    space.iter_mut().zip(values).for_each(|(place, value)| *place = value);
                    vsort::sort::<T>(space);
                })?;
            }
            let Some(next) = below else { return Ok(()) };
            from = next;
        }
    }
}

/// Moves the first of each run of equal values to the front. Returns their number.
fn dedup<T: Number>(values: &mut [T], last: &mut Option<T>, dropped: &mut RecordSum) -> usize {
    let mut kept = 0;
    for at in 0..values.len() {
        let value = values[at];
        if *last == Some(value) {
            dropped.add_numbers(&[value]);
            continue;
        }
        *last = Some(value);
        values[kept] = value;
        kept += 1;
    }
    kept
}

/// The numbers of a buffer, which are whole and aligned: otherwise they would be lost without a word.
fn cast<T: Pod>(bytes: &[u8]) -> &[T] {
    let numbers = bytemuck::try_cast_slice(bytes);
    assert!(numbers.is_ok() || bytes.is_empty(), "numbers are whole and aligned");
    numbers.unwrap_or_default()
}

/// The same, for writing.
fn cast_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    let is_empty = bytes.is_empty();
    let numbers = bytemuck::try_cast_slice_mut(bytes);
    assert!(numbers.is_ok() || is_empty, "numbers are whole and aligned");
    numbers.unwrap_or_default()
}

impl<T: Number> RecordEnds for Numbers<T> {
    fn record_bytes(&self) -> Option<usize> {
        Some(size_of::<T>())
    }

    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
        FixedFraming(size_of::<T>()).cut(bytes, max_records)
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        FixedFraming(size_of::<T>()).go_on(part, partial)
    }

    fn completion(&self) -> Option<u8> {
        None
    }
}

impl<T: Number> Records for Numbers<T> {
    type Bound = T;
    /// The group of each value of a chunk.
    type Scratch = Vec<u16>;

    fn scratch(&self, chunk_bytes: usize) -> Vec<u16> {
        Vec::with_capacity(chunk_bytes / size_of::<T>())
    }

    fn scratch_bytes(&self, chunk_bytes: usize) -> usize {
        chunk_bytes / size_of::<T>() * size_of::<u16>()
    }

    fn groups_parts(&self) -> bool {
        true
    }

    fn sort(
        &self,
        mut chunk: RawChunk,
        out: Option<Lease>,
        scratch: &mut Vec<u16>,
        sum: &mut RecordSum,
    ) -> Vec<Arc<Sorted>> {
        let bytes = &mut chunk.lease.bytes_mut()[chunk.bytes.clone()];
        if !chunk.spilled {
            self.take_in(bytes, sum);
        }
        if let (Some(bounds), Some(mut out)) = (chunk.grouping, out) {
            let range = 0..bytes.len();
            let sizes = group_values(
                cast::<T>(bytes),
                &bounds,
                cast_mut(&mut out.bytes_mut()[range.clone()]),
                scratch,
            );
            let mut starts = vec![0; sizes.len() + 1];
            for (group, size) in sizes.iter().enumerate() {
                starts[group + 1] = starts[group] + size;
            }
            let index = Index::Groups(Groups { bounds, starts });
            return vec![Arc::new(Sorted { lease: Arc::new(out), bytes: range, index, unchecked: None })];
        }
        vsort::sort::<T>(cast_mut(bytes));
        vec![Arc::new(self.index(chunk.lease, chunk.bytes))]
    }

    fn index(&self, lease: Lease, bytes: Range<usize>) -> Sorted {
        Sorted { lease: Arc::new(lease), bytes, index: Index::Array, unchecked: None }
    }

    fn keys_decide(&self) -> bool {
        true
    }

    fn descending(&self) -> bool {
        false
    }

    fn position_bytes(&self) -> usize {
        size_of::<T>()
    }

    fn normalise(&self, bytes: &mut [u8]) {
        number::to_ordered(bytes, self.format, self.descending);
    }

    fn finish(&self, bytes: &mut [u8]) {
        number::from_ordered(bytes, self.format, self.descending);
    }

    fn first(&self, segment: &Segment) -> T {
        self.values(segment)[0]
    }

    fn last(&self, segment: &Segment) -> T {
        let values = self.values(segment);
        values[values.len() - 1]
    }

    fn sample(&self, segment: &Segment, count: usize, phase: f64, out: &mut Vec<T>) {
        if let Index::Groups(groups) = &segment.sorted.index {
            // Groups can be cut only where they begin.
            let bounds = groups.bounds.prefixes();
            let places = sample_places(bounds.len(), count.min(bounds.len()), phase);
            out.extend(places.map(|at| T::from_prefix(bounds[at])));
            return;
        }
        let values = self.values(segment);
        out.extend(sample_places(values.len(), count, phase).map(|at| values[at]));
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
        if let Index::Groups(groups) = &segment.sorted.index {
            let at = groups.bounds.prefixes().partition_point(|&prefix| prefix < bound.prefix());
            let start = groups.starts.get(groups.bounds.part_from(at)).copied().unwrap_or(segment.hi);
            return start.clamp(segment.lo, segment.hi);
        }
        let limit = if side == Side::Lower { Ordering::Less } else { Ordering::Equal };
        segment.lo + order::head_len(self.values(segment), |value| value.cmp(bound) <= limit) as u32
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
        let grouped = |segment: &Segment| matches!(segment.sorted.index, Index::Groups(_));
        if task.sources.iter().flatten().any(grouped) {
            self.merge_groups(task, &mut collect)?;
            return Ok(collect.done(task.last));
        }
        // Merging all segments separately is correct, though segments of one source are in order already.
        let live: Vec<&[T]> = task.sources.iter().flatten().map(|segment| self.values(segment)).collect();
        if task.is_unchecked() && !live.iter().all(|values| values.is_sorted()) {
            return Err(Stopped::Unordered);
        }
        self.merge_chunks(live, &mut collect)?;
        Ok(collect.done(task.last))
    }

    fn group(
        &self,
        bytes: &[u8],
        splitters: &Splitters,
        out: &mut [u8],
        scratch: &mut Vec<u16>,
    ) -> Vec<(usize, Range<usize>)> {
        // Numbers that are not aligned in their chunk are copied as they are requested.
        let sizes = match bytemuck::try_cast_slice::<u8, T>(bytes) {
            Ok(values) => group_values(values, splitters, cast_mut(&mut out[..bytes.len()]), scratch),
            Err(_) => {
                let values: Vec<T> =
                    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
                group_values(&values, splitters, cast_mut(&mut out[..bytes.len()]), scratch)
            }
        };
        let sizes: Vec<usize> = sizes.iter().map(|&size| size as usize * size_of::<T>()).collect();
        groups_of(&sizes).1
    }

    fn sum(&self, bytes: &[u8], sum: &mut RecordSum) -> usize {
        match bytemuck::try_cast_slice::<u8, T>(bytes) {
            Ok(values) => sum.add_numbers::<T>(values),
            Err(_) => bytes
                .chunks_exact(size_of::<T>())
                .for_each(|record| sum.add_numbers(&[bytemuck::pod_read_unaligned::<T>(record)])),
        }
        size_of::<T>()
    }

    fn disorder(&self, previous: Option<&[u8]>, bytes: &[u8], strict: bool) -> Option<usize> {
        let max_order = if strict { Ordering::Less } else { Ordering::Equal };
        let mut before = previous.map(bytemuck::pod_read_unaligned::<T>);
        for (number, record) in bytes.chunks_exact(size_of::<T>()).enumerate() {
            let value = bytemuck::pod_read_unaligned::<T>(record);
            if before.is_some_and(|before| before.cmp(&value) > max_order) {
                return Some(number * size_of::<T>());
            }
            before = Some(value);
        }
        None
    }

    fn last_record(&self, bytes: &[u8]) -> usize {
        bytes.len().saturating_sub(size_of::<T>())
    }

    fn each_key(&self, bytes: &[u8], take: &mut dyn FnMut(Range<usize>, &[u8])) {
        for (at, record) in bytes.chunks_exact(size_of::<T>()).enumerate() {
            let value = bytemuck::pod_read_unaligned::<T>(record);
            let start = at * size_of::<T>();
            take(start..start + size_of::<T>(), &value.prefix().to_be_bytes());
        }
    }

    fn sample_keys(&self, bytes: &[u8], count: usize, out: &mut Vec<Vec<u8>>) {
        let values = bytes.len() / size_of::<T>();
        let count = count.min(values);
        for i in 0..count {
            let at = values * i / count * size_of::<T>();
            let value = bytemuck::pod_read_unaligned::<T>(&bytes[at..at + size_of::<T>()]);
            out.push(value.prefix().to_be_bytes().to_vec());
        }
    }
}
