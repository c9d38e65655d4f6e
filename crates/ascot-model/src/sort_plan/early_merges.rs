//! The merges before the last one: the files they take, if a merge has at most a given fan-in.
//!
//! ```text
//!   fan-in 4     o o o o   o o o   o o    9 files
//!                └─────┘   └───┘          two early merges, of 4 and of 3
//!                   o        o     o o    4 files left: the last merge
//! ```
//!
//! The smallest files are merged first, and no more of them than needed.

use std::collections::VecDeque;

/// Files to be merged into one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merging {
    pub(super) files: u64,
    /// Bytes of all files.
    pub(super) bytes: u64,
    /// Bytes in memory that the last pass merges, too.
    pub(super) held: u64,
    /// Bytes of the result that are wanted. No merge writes more of its records.
    pub(super) kept: u64,
    /// Number of repetitions, each on other files.
    pub(super) times: u64,
    /// If one pass does not suffice, whether the first pass merges all files.
    pub(super) all_first: bool,
    /// The largest fan-in of the last merge.
    pub(super) at_last: u64,
}

/// The merges of one pass before the last, of files that were merged equally often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlyPass {
    pub(super) merges: u64,
    /// Maximum number of files of one merge.
    pub(super) files: u64,
    /// Bytes that all merges read.
    pub(super) bytes: u64,
    /// Bytes that they write.
    pub(super) written: u64,
    /// Bytes that the largest merge reads.
    pub(super) largest: u64,
}

/// Files of equal size.
#[derive(Clone, Copy)]
struct EqualFiles {
    count: u64,
    /// Bytes of each.
    bytes: u64,
    /// Number of earlier merges of their records.
    merged: usize,
}

/// The merges before the last one, grouped by the number of earlier merges of their files, and the number of files
/// left. The smallest files are merged first, at most `fan_in` at once, and no more than needed for the last merge.
pub(super) fn early_passes(what: &Merging, fan_in: u64) -> (Vec<EarlyPass>, u64) {
    let mut passes: Vec<EarlyPass> = Vec::new();
    let mut note = |merged: usize, files: u64, merges: u64, bytes: u64| {
        if passes.len() <= merged {
            passes.resize(merged + 1, EarlyPass { merges: 0, files: 0, bytes: 0, written: 0, largest: 0 });
        }
        let pass = &mut passes[merged];
        pass.merges += merges;
        pass.files = pass.files.max(files);
        pass.bytes += merges * bytes;
        pass.written += merges * bytes.min(what.kept);
        pass.largest = pass.largest.max(bytes);
    };
    let mut left = what.files;
    let last = what.at_last.min(fan_in).max(2);
    // Ascending: a merged file is the largest so far.
    let mut queue = VecDeque::new();
    if what.all_first && left > last {
        left = left.div_ceil(fan_in);
        let bytes = what.bytes / left;
        note(0, fan_in, left, bytes);
        queue.push_back(EqualFiles { count: left, bytes: bytes.min(what.kept), merged: 1 });
    } else {
        queue.push_back(EqualFiles { count: left, bytes: what.bytes / left.max(1), merged: 0 });
    }
    while left > last {
        let Some(EqualFiles { count, bytes, merged }) = queue.pop_front() else { break };
        let whole = (count / fan_in).min((left - last) / (fan_in - 1));
        if whole > 0 {
            note(merged, fan_in, whole, fan_in * bytes);
            let bytes_each = (fan_in * bytes).min(what.kept);
            queue.push_back(EqualFiles { count: whole, bytes: bytes_each, merged: merged + 1 });
            if count > whole * fan_in {
                queue.push_front(EqualFiles { count: count - whole * fan_in, bytes, merged });
            }
            left -= whole * (fan_in - 1);
            continue;
        }
        queue.push_front(EqualFiles { count, bytes, merged });
        // One merge of different files.
        let wanted = fan_in.min(left - last + 1).max(2);
        let mut taken = 0;
        let mut sum = 0;
        let mut max_merged = merged;
        while taken < wanted {
            let Some(files) = queue.pop_front() else { break };
            let here = files.count.min(wanted - taken);
            if files.count > here {
                queue.push_front(EqualFiles { count: files.count - here, ..files });
            }
            taken += here;
            sum += here * files.bytes;
            max_merged = max_merged.max(files.merged);
        }
        note(max_merged, taken, 1, sum);
        queue.push_back(EqualFiles { count: 1, bytes: sum.min(what.kept), merged: max_merged + 1 });
        left -= taken - 1;
    }
    (passes, left)
}
