//! Blocks of inputs that should be sorted but may not be: a merge checks them on its way.
//!
//! ```text
//!   blocks of an input    [ a  b  c  d  e ][ f  g  h ]
//!   task                        c  d            d is compared with c, by the merge itself
//!   next task                         e  f  g   f is compared with e, by the reader of the blocks
//! ```
//!
//! A cut within a block ([`Records::position`]) is made between a record that goes before another one and a record
//! that does not: d need not be compared with e. Records of equal keys may be in any order.
//!
//! A merge that finds disorder stops, and [`check_task`] finds the first record that is out of order. Records of an
//! input are merged in the order of the input, so that no earlier one is out of order.

use ascot_record::keys::misfits_written;

use super::{Emitter, InputStart, Merged, Misfits, Records, Rules, Segment, Sorted, Task};
use crate::api::{Result, SortError};
use crate::records::emitter::Stopped;

/// The place of a block of records in an input that may not be sorted.
pub struct Unchecked {
    /// Number of the input.
    pub input: usize,
    /// Name of the input.
    pub name: String,
    /// Records of the input before the block.
    pub before: u64,
    /// Offset of the block, bytes.
    pub offset: u64,
    /// Whether its first record belongs before the last one of the block before it.
    pub breaks_order: bool,
}

/// Merges a task of unchecked inputs. `None`: its records are not needed any more.
pub(crate) fn merge_unchecked<R: Records>(
    records: &R,
    task: &Task,
    rules: Rules,
    out: &mut Emitter,
) -> Option<Result<Merged>> {
    let before = misfits_written();
    let merged = if breaks_order(task) { Err(Stopped::Unordered) } else { records.merge(task, rules, out) };
    match merged {
        Ok(merged) if before == misfits_written() => Some(Ok(merged)),
        Ok(merged) => Some(check_task(records, task).map(|misfits| Merged { misfits, ..merged })),
        Err(Stopped::Unordered) => {
            let fault = SortError::Internal("a record out of order is not found again");
            Some(check_task(records, task).and(Err(fault)))
        }
        Err(Stopped::Unneeded) => None,
    }
}

/// Whether a block of the task begins with a record that belongs before the block.
fn breaks_order(task: &Task) -> bool {
    let breaks = |segment: &Segment| {
        segment.lo == 0 && segment.sorted.unchecked.as_ref().is_some_and(|place| place.breaks_order)
    };
    task.sources.iter().flatten().any(breaks)
}

/// The misfits of a task; an error if a record is out of order.
fn check_task<R: Records>(records: &R, task: &Task) -> Result<Misfits> {
    let mut misfits = Misfits::default();
    for segment in task.sources.iter().flatten() {
        let sorted = &segment.sorted;
        let Some(place) = &sorted.unchecked else { continue };
        check_order(records, sorted, segment.lo, segment.hi)?;
        let all = sorted.record_bytes();
        let lo = records.offset_of(segment.lo) as usize;
        let hi = records.offset_of(segment.hi) as usize;
        let before = place.before + records.cut(&all[..lo], usize::MAX).records as u64;
        let start = InputStart { at: 0, input: place.input, before };
        misfits.combine(&records.misfits(&all[lo..hi]).placed(&[start]));
    }
    Ok(misfits)
}

/// Error for the first record between two positions that is out of order.
pub(crate) fn check_order<R: Records>(records: &R, sorted: &Sorted, lo: u32, hi: u32) -> Result<()> {
    let Some(place) = &sorted.unchecked else { return Ok(()) };
    let all = sorted.record_bytes();
    let start = records.offset_of(lo) as usize;
    let end = records.offset_of(hi) as usize;
    let unordered = match lo {
        0 if place.breaks_order => Some(0),
        _ => first_unordered(records, None, &all[start..end]),
    };
    let Some(unordered) = unordered else { return Ok(()) };
    let before = records.cut(&all[..start + unordered], usize::MAX).records as u64;
    Err(SortError::NotSorted {
        input: place.name.clone(),
        record: place.before + before + 1,
        offset: place.offset + (start + unordered) as u64,
    })
}

/// Offset of the first record whose key belongs before that of its predecessor (`previous` for the first).
pub(crate) fn first_unordered<R: Records>(
    records: &R,
    previous: Option<&[u8]>,
    bytes: &[u8],
) -> Option<usize> {
    let mut previous = previous;
    let mut start = 0;
    loop {
        let offset = start + records.disorder(previous, &bytes[start..], false)?;
        let ordered = &bytes[start..offset];
        let before = if ordered.is_empty() { previous? } else { &ordered[records.last_record(ordered)..] };
        let record = &bytes[offset..offset + records.cut(&bytes[offset..], 1).bytes];
        if records.keys_decide() || keys_descend(records, before, record) {
            return Some(offset);
        }
        previous = Some(record);
        start = offset + record.len();
    }
}

/// Whether the key of a record belongs after that of another one.
fn keys_descend<R: Records>(records: &R, one: &[u8], other: &[u8]) -> bool {
    let key = |record: &[u8]| {
        let mut copy = Vec::new();
        records.each_key(record, &mut |_, key| copy.extend_from_slice(key));
        copy
    };
    let order = key(one).cmp(&key(other));
    if records.descending() { order.is_lt() } else { order.is_gt() }
}
