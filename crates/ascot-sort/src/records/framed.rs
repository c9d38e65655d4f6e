//! Records found by a framing and ordered by their keys: lines, CSV, fixed, length-prefixed.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use ascot_record::checksum::RecordSum;
use ascot_record::chunk::{ChunkScratch, gather, sort_chunk};
use ascot_record::framing::{Framing, Partial, StartSearch};
use ascot_record::keys::{KeyColumn, misfits_written};
use ascot_record::merge::{SliceCursor, Stop, merge, merge_checked};
use ascot_record::order::{self, RecordOrder};

use super::emitter::{Emitter, Merged, Stopped};
use super::sparse_starts::SparseStarts;
use super::{
    ChunkMisfits, Cut, Index, Keyless, RawChunk, RecordEnds, Records, Rules, Segment, Side, Sorted,
    Splitters, Task, groups_of, sample_places,
};
use crate::resources::Lease;

/// Maximum number of records sorted at a time; a chunk with more becomes several.
const MAX_RECORDS: usize = 1 << 20;

/// The least mean length of records with which all records of a chunk are sorted at a time, bytes.
const SHORT_RECORD_BYTES: usize = 16;
/// The largest mean length that is assumed where lengths vary, bytes. The working memory of a chunk has 16 bytes for
/// each of so many records.
const ASSUMED_BYTES_MAX: usize = 128;
/// The least number of records sorted at a time, if a chunk has as many.
const RECORDS_AT_ONCE_MIN: usize = 1024;

/// Records that are framed and summed at a time: they stay in the processor's cache.
const FRAMED_AT_ONCE: usize = 1024;

/// Records that are summed at a time: few, because many sums are of one record.
const SUMMED_AT_ONCE: usize = 128;

/// Records with a framing and an order.
pub struct Framed<F, O> {
    framing: F,
    order: O,
    /// Minimum length of every record's body, bytes.
    min_body: usize,
    /// Length that the records of a chunk are assumed to have at least in the mean, bytes.
    least_mean: usize,
    /// The columns of its keys, if the keys are columns.
    columns: Vec<KeyColumn>,
}

/// A record in memory; the reference keeps its memory alive.
#[derive(Clone)]
pub struct RecordRef {
    sorted: Arc<Sorted>,
    start: u32,
    end: u32,
}

impl RecordRef {
    fn record(&self) -> &[u8] {
        &self.sorted.record_bytes()[self.start as usize..self.end as usize]
    }
}

impl<F: Framing + 'static, O: RecordOrder + 'static> Framed<F, O> {
    /// Records cut by `framing`, ordered by `order`.
    pub fn new(framing: F, order: O) -> Self {
        let least_mean = framing.fixed_len().unwrap_or(0).max(SHORT_RECORD_BYTES);
        Framed { framing, order, min_body: 0, least_mean, columns: Vec::new() }
    }

    /// The same records, whose mean length is about that of the records in `head`, or `mean_bytes` bytes if that is
    /// given. Other records may have two thirds of it: a chunk of shorter ones is sorted in several parts.
    pub fn with_mean_of(self, head: &[u8], mean_bytes: Option<f64>) -> Self {
        let cut = self.framing.cut(head, usize::MAX);
        let mean_bytes = mean_bytes.unwrap_or(cut.bytes as f64 / cut.records.max(1) as f64);
        let least_mean = (mean_bytes * 2.0 / 3.0) as usize;
        Framed { least_mean: least_mean.clamp(SHORT_RECORD_BYTES, ASSUMED_BYTES_MAX), ..self }
    }

    /// The same records, with keys that are columns.
    pub fn with_columns(self, columns: Vec<KeyColumn>) -> Self {
        Framed { columns, ..self }
    }

    /// Whether values can be misfits: not of their column's type.
    fn is_typed(&self) -> bool {
        self.columns.iter().any(|column| !column.kind.takes_all())
    }

    /// Adds the misfits of `bytes`, which come after `before` records of the chunk.
    fn note_misfits(&self, bytes: &[u8], before: usize, misfits: &mut ChunkMisfits) {
        let mut start = 0;
        let mut record = before;
        while let Some(end) = self.framing.end(bytes, start) {
            self.order.misfits(&bytes[start..end], &mut |key, value| misfits.note(key, record, value));
            start = end;
            record += 1;
        }
    }

    /// The same records; a body of fewer than `bytes` bytes is an error.
    pub fn with_min_body(self, bytes: usize) -> Self {
        Framed { min_body: bytes, ..self }
    }

    /// Records that are sorted at once in a chunk: all of them if they have one length, or are not very short.
    fn max_records(&self, chunk_bytes: usize) -> usize {
        (chunk_bytes / self.least_mean).clamp(RECORDS_AT_ONCE_MIN, MAX_RECORDS)
    }

    fn end(&self, bytes: &[u8], start: usize) -> usize {
        self.framing.end(bytes, start).unwrap_or(bytes.len())
    }

    fn record_ref(&self, sorted: &Arc<Sorted>, start: u32) -> RecordRef {
        let end = self.end(sorted.record_bytes(), start as usize) as u32;
        RecordRef { sorted: Arc::clone(sorted), start, end }
    }

    /// Start of the last record before byte `hi`, searched from the nearest recorded start.
    fn last_start(&self, bytes: &[u8], sparse: &[u32], hi: u32) -> u32 {
        let nearest = sparse.partition_point(|&start| start < hi).saturating_sub(1);
        let first = sparse.get(nearest).copied().unwrap_or(0);
        let next = |&start: &u32| Some(self.end(bytes, start as usize) as u32).filter(|&end| end < hi);
        std::iter::successors(Some(first), next).last().unwrap_or(first)
    }

    /// Writes the starts of records, as [`Framing::frame`] does, and adds the records to `sum`, a few at a time, while
    /// the cache holds them.
    fn frame(&self, bytes: &[u8], starts: &mut [u32], mut sum: Option<&mut RecordSum>) -> Cut {
        let mut framed = Cut::default();
        for starts in starts.chunks_mut(FRAMED_AT_ONCE) {
            let base = framed.bytes;
            // Starts have 32 bits, also those after the first few.
            let end = if base == 0 { bytes.len() } else { bytes.len().min(u32::MAX as usize) };
            let bytes = bytes.get(base..end).unwrap_or_default();
            let more = self.framing.frame(bytes, starts);
            let is_full = more.records == starts.len();
            let starts = &mut starts[..more.records];
            if let Some(sum) = &mut sum {
                sum.add_all(&bytes[..more.bytes], starts);
            }
            starts.iter_mut().for_each(|start| *start += base as u32);
            framed = Cut { records: framed.records + more.records, bytes: base + more.bytes };
            if !is_full {
                break;
            }
        }
        framed
    }

    fn side_of(&self, record: &[u8], probe: &mut Probe<'_>) -> Ordering {
        let order = self.order.key(record, &mut probe.scratch).cmp(probe.key);
        let order = if self.order.descending() { order.reverse() } else { order };
        match probe.record {
            Some(other) => order.then_with(|| self.order.last_resort(record, other)),
            None => order,
        }
    }

    /// The position of the first record of a segment that does not go before `probe`.
    fn position_of(&self, segment: &Segment, mut probe: Probe<'_>, side: Side) -> u32 {
        let bytes = segment.sorted.record_bytes();
        let sparse = sparse_of(&segment.sorted.index);
        let record = |start: u32| &bytes[start as usize..self.end(bytes, start as usize)];
        let limit = if side == Side::Lower { Ordering::Less } else { Ordering::Equal };
        let mut goes_before = |record: &[u8]| self.side_of(record, &mut probe) <= limit;
        let from = sparse.partition_point(|&start| start <= segment.lo);
        let to = sparse.partition_point(|&start| start < segment.hi);
        let inner = &sparse[from..to.max(from)];
        // A merge advances a segment by a little at a time: the position is near its start, in memory read before.
        let passed = order::head_len(inner, |&start| goes_before(record(start)));
        let mut start = if passed == 0 { segment.lo } else { inner[passed - 1] };
        while start < segment.hi && goes_before(record(start)) {
            start = self.end(bytes, start as usize) as u32;
        }
        start
    }

    /// Merges the sources of a task, given as slices.
    fn merge_with(
        &self,
        sources: &[Vec<&[u8]>],
        unchecked: bool,
        take: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), Stopped> {
        let mut cursors: Vec<_> =
            sources.iter().map(|slices| SliceCursor::new(self.framing, slices)).collect();
        let flow = if unchecked {
            merge_checked(&mut cursors, &self.order, take)
        } else {
            merge(&mut cursors, &self.order, take).map_break(|()| Stop::Taker)
        };
        match flow {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(Stop::Taker) => Err(Stopped::Unneeded),
            ControlFlow::Break(Stop::Unordered) => Err(Stopped::Unordered),
        }
    }

    /// Merges, dropping duplicates or records beyond a limit.
    fn merge_choosing(&self, task: &Task, rules: Rules, out: &mut Emitter) -> Result<Merged, Stopped> {
        let mut merged = Merged::default();
        let sources = slices_of(task);
        let mut latest = task.previous.as_deref().map(Latest::Key);
        let mut scratch = Vec::new();
        let mut other = Vec::new();
        let flow = self.merge_with(&sources, task.is_unchecked(), &mut |record| {
            if rules.unique {
                let key = self.order.key(record, &mut scratch);
                let repeats = match &latest {
                    None => false,
                    Some(Latest::Key(before)) => *before == key,
                    Some(Latest::Copy(before)) => before == key,
                    Some(Latest::Record(before)) => self.order.key(before, &mut other) == key,
                };
                if repeats {
                    merged.dropped.add(record);
                    return ControlFlow::Continue(());
                }
                latest = Some(match (key.len() > LONG_KEY_BYTES).then(|| find(&sources, record)).flatten() {
                    Some(there) => Latest::Record(there),
                    None => match latest.take() {
                        Some(Latest::Copy(mut copy)) => {
                            copy.clear();
                            copy.extend_from_slice(key);
                            Latest::Copy(copy)
                        }
                        _ => Latest::Copy(key.to_vec()),
                    },
                });
            }
            if merged.out.count >= task.limit {
                merged.dropped.add(record);
                return ControlFlow::Continue(());
            }
            merged.out.add(record);
            out.record(record).map_or(ControlFlow::Break(()), ControlFlow::Continue)
        });
        if rules.unique && task.last {
            merged.last_key = latest.map(|latest| match latest {
                Latest::Key(key) => key.to_vec(),
                Latest::Copy(key) => key,
                Latest::Record(record) => self.order.key(record, &mut other).to_vec(),
            });
        }
        flow.map(|()| merged)
    }
}

/// The key with which the next record is compared if duplicates are dropped.
enum Latest<'t> {
    /// The key of the record before the task.
    Key(&'t [u8]),
    /// A copy of the latest record's key.
    Copy(Vec<u8>),
    /// The latest record; its key is too long to be copied outside the accounted memory.
    Record(&'t [u8]),
}

/// Keys longer than this are not copied, bytes.
const LONG_KEY_BYTES: usize = 4 << 10;

/// The bytes of a task's sources.
fn slices_of(task: &Task) -> Vec<Vec<&[u8]>> {
    fn bytes(segment: &Segment) -> &[u8] {
        &segment.sorted.record_bytes()[segment.lo as usize..segment.hi as usize]
    }
    task.sources.iter().map(|source| source.iter().map(bytes).collect()).collect()
}

/// Finds the slice that contains `record`, and returns the record as a part of it.
fn find<'t>(sources: &[Vec<&'t [u8]>], record: &[u8]) -> Option<&'t [u8]> {
    sources.iter().flatten().find_map(|slice| {
        let at = record.as_ptr().addr().checked_sub(slice.as_ptr().addr())?;
        slice.get(at..at + record.len())
    })
}

struct Probe<'a> {
    key: &'a [u8],
    record: Option<&'a [u8]>,
    scratch: Vec<u8>,
}

/// The recorded starts of records.
fn sparse_of(index: &Index) -> &[u32] {
    match index {
        Index::Sparse(sparse) => sparse,
        Index::Array | Index::Groups(_) => &[],
    }
}

/// Scratch of a thread that sorts chunks.
pub struct FramedScratch {
    chunk: ChunkScratch,
    starts: Vec<u32>,
    misfits: ChunkMisfits,
}

impl<F: Framing + 'static, O: RecordOrder + 'static> RecordEnds for Framed<F, O> {
    fn record_bytes(&self) -> Option<usize> {
        self.framing.fixed_len()
    }

    fn cut(&self, bytes: &[u8], max_records: usize) -> Cut {
        self.framing.cut(bytes, max_records)
    }

    fn go_on(&self, part: &[u8], partial: &mut Partial) -> Option<usize> {
        self.framing.go_on(part, partial)
    }

    fn start_search(&self) -> Option<StartSearch> {
        self.framing.start_search()
    }

    fn completion(&self) -> Option<u8> {
        self.framing.completes()
    }

    fn cut_keyed(&self, bytes: &[u8]) -> (Cut, Option<Keyless>) {
        let states_body = self.framing.states_body();
        if self.min_body == 0 && !states_body {
            return (self.cut(bytes, usize::MAX), None);
        }
        let mut cut = Cut::default();
        while let Some(end) = self.framing.end(bytes, cut.bytes) {
            let record = &bytes[cut.bytes..end];
            let have = self.framing.body(record).len();
            let stated = if states_body { self.framing.stated_body(record) } else { 0 };
            let needed = self.min_body.max(stated);
            if have < needed {
                let Cut { records: before, bytes: offset } = cut;
                return (cut, Some(Keyless { before, offset, have, needed }));
            }
            cut = Cut { records: cut.records + 1, bytes: end };
        }
        (cut, None)
    }
}

impl<F: Framing + 'static, O: RecordOrder + 'static> Records for Framed<F, O> {
    type Bound = RecordRef;
    type Scratch = FramedScratch;

    fn scratch(&self, chunk_bytes: usize) -> FramedScratch {
        let records = self.max_records(chunk_bytes);
        let chunk = ChunkScratch::with_capacity(records);
        FramedScratch { chunk, starts: vec![0; records], misfits: ChunkMisfits::default() }
    }

    fn scratch_bytes(&self, chunk_bytes: usize) -> usize {
        let records = self.max_records(chunk_bytes);
        ascot_record::chunk::scratch_bytes(records) + records * size_of::<u32>()
    }

    fn sort(
        &self,
        chunk: RawChunk,
        out: Option<Lease>,
        scratch: &mut FramedScratch,
        sum: &mut RecordSum,
    ) -> Vec<Arc<Sorted>> {
        let Some(mut out) = out else { return Vec::new() };
        let data = &chunk.lease.bytes()[chunk.bytes.clone()];
        let mut at = 0;
        let mut before = 0;
        let mut parts = Vec::new();
        scratch.misfits = ChunkMisfits::default();
        while at < data.len() {
            let bytes = &data[at..];
            let framed = self.frame(bytes, &mut scratch.starts, (!chunk.spilled).then_some(&mut *sum));
            let bytes = &bytes[..framed.bytes];
            let starts = &mut scratch.starts[..framed.records];
            let misfits = misfits_written();
            sort_chunk(&self.framing, &self.order, bytes, starts, &mut scratch.chunk);
            // The key of a single record need not be written, so the count does not show a misfit.
            let misfits = misfits != misfits_written() || (framed.records < 2 && self.is_typed());
            if misfits && !chunk.spilled {
                self.note_misfits(bytes, before, &mut scratch.misfits);
            }
            before += framed.records;
            let range = at..at + framed.bytes;
            let mut sparse = SparseStarts::of(bytes);
            let sorted = &mut out.bytes_mut()[range.clone()];
            gather(&self.framing, bytes, starts, sorted, &mut |start| sparse.note(start));
            parts.push((range, sparse.starts));
            at += framed.bytes;
            if framed.records == 0 {
                break;
            }
        }
        let lease = Arc::new(out);
        let sorted = |(bytes, sparse)| Sorted {
            lease: Arc::clone(&lease),
            bytes,
            index: Index::Sparse(sparse),
            unchecked: None,
        };
        parts.into_iter().map(|part| Arc::new(sorted(part))).collect()
    }

    fn key_columns(&self) -> &[KeyColumn] {
        &self.columns
    }

    fn misfits(&self, bytes: &[u8]) -> ChunkMisfits {
        let mut misfits = ChunkMisfits::default();
        if self.is_typed() {
            self.note_misfits(bytes, 0, &mut misfits);
        }
        misfits
    }

    fn take_misfits(&self, scratch: &mut FramedScratch) -> ChunkMisfits {
        std::mem::take(&mut scratch.misfits)
    }

    fn index(&self, lease: Lease, bytes: Range<usize>) -> Sorted {
        let sparse = SparseStarts::of_framed(&self.framing, &lease.bytes()[bytes.clone()]);
        Sorted { lease: Arc::new(lease), bytes, index: Index::Sparse(sparse), unchecked: None }
    }

    fn keys_decide(&self) -> bool {
        self.order.last_resort_kind() == order::LastResort::None
    }

    fn descending(&self) -> bool {
        self.order.descending()
    }

    fn first(&self, segment: &Segment) -> RecordRef {
        self.record_ref(&segment.sorted, segment.lo)
    }

    fn last(&self, segment: &Segment) -> RecordRef {
        let sparse = sparse_of(&segment.sorted.index);
        self.record_ref(&segment.sorted, self.last_start(segment.sorted.record_bytes(), sparse, segment.hi))
    }

    fn sample(&self, segment: &Segment, count: usize, phase: f64, out: &mut Vec<RecordRef>) {
        let span = segment.hi - segment.lo;
        for place in sample_places(span as usize, count, phase) {
            let position = segment.lo + place as u32;
            let sparse = sparse_of(&segment.sorted.index);
            let at = sparse.partition_point(|&start| start <= position).saturating_sub(1);
            let start = sparse.get(at).copied().unwrap_or(0).max(segment.lo);
            out.push(self.record_ref(&segment.sorted, start));
        }
    }

    fn compare(&self, a: &RecordRef, b: &RecordRef) -> Ordering {
        let mut scratch_a = Vec::new();
        let mut scratch_b = Vec::new();
        order::compare(&self.order, a.record(), b.record(), &mut scratch_a, &mut scratch_b)
    }

    fn compare_keys(&self, a: &RecordRef, b: &RecordRef) -> Ordering {
        let mut scratch_a = Vec::new();
        let mut scratch_b = Vec::new();
        let order =
            self.order.key(a.record(), &mut scratch_a).cmp(self.order.key(b.record(), &mut scratch_b));
        if self.order.descending() { order.reverse() } else { order }
    }

    fn key_of(&self, bound: &RecordRef) -> Vec<u8> {
        self.order.key(bound.record(), &mut Vec::new()).to_vec()
    }

    fn position(&self, segment: &Segment, bound: &RecordRef, side: Side, keys_only: bool) -> u32 {
        let mut key_scratch = Vec::new();
        let key = self.order.key(bound.record(), &mut key_scratch);
        let record = (!keys_only).then(|| bound.record());
        self.position_of(segment, Probe { key, record, scratch: Vec::new() }, side)
    }

    fn position_of_key(&self, segment: &Segment, key: &[u8], side: Side) -> u32 {
        self.position_of(segment, Probe { key, record: None, scratch: Vec::new() }, side)
    }

    fn first_prefix(&self, bytes: &[u8]) -> u64 {
        let record = &bytes[..self.end(bytes, 0)];
        let prefix = order::prefix(self.order.key(record, &mut Vec::new()));
        if self.order.descending() { !prefix } else { prefix }
    }

    fn merge(&self, task: &Task, rules: Rules, out: &mut Emitter) -> Result<Merged, Stopped> {
        if rules.unique || task.limit < u64::MAX {
            return self.merge_choosing(task, rules, out);
        }
        let mut merged = Merged::default();
        let flow = self.merge_with(&slices_of(task), task.is_unchecked(), &mut |record| {
            if rules.sum {
                merged.out.add(record);
            }
            out.record(record).map_or(ControlFlow::Break(()), ControlFlow::Continue)
        });
        flow.map(|()| merged)
    }

    fn group(
        &self,
        bytes: &[u8],
        splitters: &Splitters,
        out: &mut [u8],
        _scratch: &mut FramedScratch,
    ) -> Vec<(usize, Range<usize>)> {
        let mut sizes = vec![0usize; splitters.parts()];
        let mut parts: Vec<u16> = Vec::with_capacity(bytes.len() / 32);
        let mut scratch = Vec::new();
        let mut start = 0;
        while let Some(end) = self.framing.end(bytes, start) {
            let part = splitters.part_of(self.order.key(&bytes[start..end], &mut scratch));
            sizes[part] += end - start;
            parts.push(part as u16);
            start = end;
        }
        let (mut places, groups) = groups_of(&sizes);
        start = 0;
        for part in parts {
            let end = self.end(bytes, start);
            let place = &mut places[part as usize];
            out[*place..*place + end - start].copy_from_slice(&bytes[start..end]);
            *place += end - start;
            start = end;
        }
        groups
    }

    fn sum(&self, bytes: &[u8], sum: &mut RecordSum) -> usize {
        let mut starts = [0; SUMMED_AT_ONCE];
        let mut longest = 0;
        let mut at = 0;
        loop {
            let cut = self.framing.frame(&bytes[at..], &mut starts);
            if cut.records == 0 {
                return longest;
            }
            let starts = &starts[..cut.records];
            sum.add_all(&bytes[at..at + cut.bytes], starts);
            let ends = starts[1..].iter().map(|&start| start as usize).chain(std::iter::once(cut.bytes));
            longest =
                starts.iter().zip(ends).map(|(&start, end)| end - start as usize).fold(longest, usize::max);
            at += cut.bytes;
        }
    }

    fn disorder(&self, previous: Option<&[u8]>, bytes: &[u8], strict: bool) -> Option<usize> {
        let mut scratch_a = Vec::new();
        let mut scratch_b = Vec::new();
        let max_order = if strict { Ordering::Less } else { Ordering::Equal };
        let mut before = previous;
        let mut start = 0;
        while let Some(end) = self.framing.end(bytes, start) {
            let record = &bytes[start..end];
            if let Some(before) = before
                && order::compare(&self.order, before, record, &mut scratch_a, &mut scratch_b) > max_order
            {
                return Some(start);
            }
            before = Some(record);
            start = end;
        }
        None
    }

    fn last_record(&self, bytes: &[u8]) -> usize {
        self.last_start(bytes, &[], bytes.len() as u32) as usize
    }

    fn each_key(&self, bytes: &[u8], take: &mut dyn FnMut(Range<usize>, &[u8])) {
        let mut start = 0;
        let mut scratch = Vec::new();
        while let Some(end) = self.framing.end(bytes, start) {
            take(start..end, self.order.key(&bytes[start..end], &mut scratch));
            start = end;
        }
    }

    fn sample_keys(&self, bytes: &[u8], count: usize, out: &mut Vec<Vec<u8>>) {
        let step = (bytes.len() / count.max(1)).max(1);
        let mut start = 0;
        let mut next = 0;
        let mut scratch = Vec::new();
        while let Some(end) = self.framing.end(bytes, start) {
            if start >= next {
                out.push(self.order.key(&bytes[start..end], &mut scratch).to_vec());
                next += step;
            }
            start = end;
        }
    }
}
