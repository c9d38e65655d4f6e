//! The integers of the study: how they are made, summed up and checked. None of this is timed.

use std::path::Path;

use ascot_io::elements::{ElementReader, ElementWriter, StreamKind};
use ascot_model::random::SplitMix64;
use ascot_record::checksum::RecordSum;

use crate::error::LabError;
use crate::observe::Stop;

/// Integers between two looks at the stop flag, and in memory while they are summed up.
const BATCH: usize = 1 << 16;
/// Blocks of files that are made and checked.
const MAKING: StreamKind = StreamKind::Sized { block_bytes: 1 << 20 };

/// Writes `elements` pseudo-random integers of the full range to a new file.
///
/// # Errors
/// The system's, and [`LabError::Stopped`].
pub fn make(path: &Path, elements: u64, seed: u64, stop: &Stop, table: &Path) -> Result<(), LabError> {
    let mut random = SplitMix64(seed);
    let mut writer = ElementWriter::<u32>::create(path, MAKING)?;
    for at in 0..elements {
        if at % BATCH as u64 == 0 {
            stop.check(table)?;
        }
        writer.write((random.next_u64() >> 32) as u32)?;
    }
    // On the device: writing it back must not slow down the first loop.
    writer.sync_and_close()?;
    Ok(())
}

/// The contents of a file of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// A sum that does not depend on order.
    pub sum: RecordSum,
    /// Whether the integers are in the order that was asked for.
    pub in_order: bool,
}

/// Reads a file of integers.
///
/// # Errors
/// The system's, a length that is no multiple of four bytes, and [`LabError::Stopped`].
pub fn look_at(path: &Path, descending: bool, stop: &Stop, table: &Path) -> Result<Contents, LabError> {
    let mut reader = ElementReader::<u32>::open(path, MAKING)?;
    let mut contents = Contents { sum: RecordSum::new(), in_order: true };
    let mut batch: Vec<u32> = Vec::with_capacity(BATCH);
    let mut before: Option<i32> = None;
    while !reader.end_of_stream() {
        stop.check(table)?;
        batch.clear();
        while batch.len() < BATCH && !reader.end_of_stream() {
            let bits = reader.read_next()?;
            let value = bits.cast_signed();
            let follows =
                before.is_none_or(|before| if descending { before >= value } else { before <= value });
            contents.in_order &= follows;
            before = Some(value);
            batch.push(bits);
        }
        contents.sum.add_numbers(&batch);
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn integers_are_those_of_their_seed_and_have_the_full_range() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name| dir.path().join(name);
        let stop = Stop::default();
        for (name, seed) in [("a", 1), ("b", 1), ("c", 2)] {
            make(&path(name), 10_000, seed, &stop, Path::new("t")).unwrap();
        }
        let [a, b, c] = ["a", "b", "c"].map(|name| fs::read(path(name)).unwrap());
        assert!(a == b && a != c && a.len() == 40_000);
        let values = || a.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
        assert!(values().min().unwrap() < i32::MIN / 10 * 9 && values().max().unwrap() > i32::MAX / 10 * 9);
    }

    #[test]
    fn order_and_sum_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numbers");
        let look = |values: &[i32], descending| {
            fs::write(&path, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
                .unwrap();
            look_at(&path, descending, &Stop::default(), Path::new("t")).unwrap()
        };
        let ascending = look(&[i32::MIN, -1, -1, 0, i32::MAX], false);
        let descending = look(&[i32::MAX, 0, -1, -1, i32::MIN], true);
        assert!(ascending.in_order && descending.in_order && ascending.sum == descending.sum);
        assert!(!look(&[0, -1], false).in_order && !look(&[0, 1], true).in_order);
        assert_ne!(look(&[i32::MIN, -1, 0, 0, i32::MAX], false).sum, ascending.sum);
        let stop = Stop::default();
        stop.0.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(look_at(&path, false, &stop, Path::new("t")), Err(LabError::Stopped { .. })));
    }
}
