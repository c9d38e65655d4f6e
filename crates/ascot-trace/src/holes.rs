//! The data and the holes of a file, as its file system tells them.

use std::fs::File;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::blocks::{MAX_HELD_RANGES, blocks};
use crate::ranges::RangeSet;

/// The blocks of a file of `length` bytes that hold data; none if its file system does not tell. The end of a file of
/// more ranges than a trace has counts as one. The position of the file moves.
pub fn data_of(file: &File, length: u64) -> Option<RangeSet> {
    let mut found = RangeSet::default();
    let mut at = 0;
    while at < length {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Some(found),
            Err(_) => return None,
        };
        let full = found.ranges().len() + 1 >= MAX_HELD_RANGES;
        let hole = if full { length } else { seek(file, SeekFrom::Hole(data)).ok()? };
        if hole <= data {
            return None;
        }
        let (low, high) = blocks(data, hole);
        found.insert(low, high, |_, _| ());
        at = hole;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn gaps_and_the_end_beyond_the_data_are_holes() {
        const MIB: u64 = 1 << 20;
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert_eq!(data_of(&file, 0), Some(RangeSet::default()));
        file.write_all_at(&[1; MIB as usize], 0).unwrap();
        file.write_all_at(&[1; 10], 4 * MIB).unwrap();
        file.set_len(16 * MIB).unwrap();
        let ranges: Vec<_> = data_of(&file, 16 * MIB).unwrap().ranges().collect();
        // A file system that knows no holes has one range.
        assert!(ranges == [(0, MIB), (4 * MIB, 4 * MIB + 4096)] || ranges == [(0, 16 * MIB)], "{ranges:?}");
    }
}
