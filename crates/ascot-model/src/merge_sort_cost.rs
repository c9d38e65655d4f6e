//! The I/Os of a multi-way merge sort of N elements with runs of M elements and a fan-in of d.
//!
//! Heinrich et al. publish two estimates. Section 4.1: `2 B(N) log_d(B(N)/M)`, where `B(N)` is the length of the file
//! and `M` the memory, both in blocks of 4096 bytes; the pass that forms the runs is left out. Section 2.2: `2 N (1 +
//! passes)` for whole passes over a file of N blocks. A file system moves whole blocks of whole files, so
//! [`MergeSort::ios`] adds up the blocks of all files instead:
//!
//! ```text
//!   level 0    [ M ][ M ][ M ][ M ][ M ][ M ][r]      ceil(N/M) runs, written; the input was read
//!               \____|____/   \____|____/    |        merges of d = 3: read level 0, write level 1
//!   level 1    [   3M    ]  [   3M    ]     [r]       a group of one file stays as it is: no I/O
//!               \________________|___________/
//!   level 2    [             N             ]          the output
//! ```

use crate::stream_cost::block_ios;

/// Bytes of a block in the estimates of Heinrich et al.
pub const PUBLISHED_BLOCK_BYTES: u64 = 4096;

/// A merge sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeSort {
    /// N: elements to sort.
    pub elements: u64,
    /// M: elements of a run, at least 1.
    pub run_elements: u64,
    /// d: files merged at once, at least 2.
    pub fan_in: u64,
    /// Bytes of an element, at least 1.
    pub element_bytes: u64,
}

/// I/Os of a merge sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ios {
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
}

impl Ios {
    /// All requests.
    pub fn total(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }
}

impl MergeSort {
    /// Runs formed: ceil(N/M).
    pub fn runs(&self) -> u64 {
        self.elements.div_ceil(self.run_elements.max(1))
    }

    /// Passes that merge: ceil(log_d(runs)), computed without rounding.
    pub fn merge_passes(&self) -> u32 {
        self.levels().count() as u32
    }

    /// Merges in all passes.
    pub fn merges(&self) -> u64 {
        self.levels().map(|level| level.merges(self.fan_in())).fold(0, u64::saturating_add)
    }

    /// Elements that merges move: all but the files that stay as they are.
    pub fn merged_elements(&self) -> u64 {
        self.levels().map(|level| self.elements - level.staying(self)).fold(0, u64::saturating_add)
    }

    /// The estimate of Heinrich et al. (section 4.1), in blocks of [`PUBLISHED_BLOCK_BYTES`]: `2 B(N) log_d(B(N)/M)`;
    /// none if N is at most M.
    pub fn published_ios(&self) -> f64 {
        let bytes = |elements: u64| elements as f64 * self.element_bytes as f64;
        let file_blocks = bytes(self.elements) / PUBLISHED_BLOCK_BYTES as f64;
        let memory_blocks = bytes(self.run_elements.max(1)) / PUBLISHED_BLOCK_BYTES as f64;
        if self.elements <= self.run_elements {
            return 0.0;
        }
        2.0 * file_blocks * (file_blocks / memory_blocks).ln() / (self.fan_in() as f64).ln()
    }

    /// The exact number of I/Os: the blocks of all files that are read and written, the last of each file in part.
    pub fn ios(&self, read_block_bytes: u64, write_block_bytes: u64) -> Ios {
        let file = |elements, block| block_ios(1, elements, self.element_bytes, block);
        let mut ios = Ios { reads: file(self.elements, read_block_bytes), writes: 0 };
        let runs = Level { file_elements: self.run_elements.max(1), files: self.runs() };
        ios.writes = runs.blocks(self, write_block_bytes);
        for level in self.levels() {
            let above = level.next(self.fan_in());
            let staying = level.staying(self);
            let blocks = |level: Level, block| level.blocks(self, block).saturating_sub(file(staying, block));
            ios.reads = ios.reads.saturating_add(blocks(level, read_block_bytes));
            ios.writes = ios.writes.saturating_add(blocks(above, write_block_bytes));
        }
        ios
    }

    fn fan_in(&self) -> u64 {
        self.fan_in.max(2)
    }

    /// The levels that are merged.
    fn levels(&self) -> impl Iterator<Item = Level> {
        let runs = Level { file_elements: self.run_elements.max(1), files: self.runs() };
        let fan_in = self.fan_in();
        std::iter::successors(Some(runs), move |level| Some(level.next(fan_in)))
            .take_while(|level| level.files > 1)
    }
}

/// The files between two passes: all of one length but the last.
#[derive(Clone, Copy)]
struct Level {
    file_elements: u64,
    files: u64,
}

impl Level {
    fn next(self, fan_in: u64) -> Self {
        Self { file_elements: self.file_elements.saturating_mul(fan_in), files: self.files.div_ceil(fan_in) }
    }

    /// Whether the last file has no others to be merged with.
    fn leaves_one(self, fan_in: u64) -> bool {
        self.files % fan_in == 1
    }

    fn merges(self, fan_in: u64) -> u64 {
        self.files.div_ceil(fan_in) - u64::from(self.leaves_one(fan_in))
    }

    /// Elements of the last file.
    fn last_elements(self, sort: &MergeSort) -> u64 {
        sort.elements - self.file_elements.saturating_mul(self.files.saturating_sub(1)).min(sort.elements)
    }

    /// Elements of the file that stays as it is, if there is one.
    fn staying(self, sort: &MergeSort) -> u64 {
        if self.leaves_one(sort.fan_in()) { self.last_elements(sort) } else { 0 }
    }

    /// Blocks of all files.
    fn blocks(self, sort: &MergeSort, block_bytes: u64) -> u64 {
        if self.files == 0 {
            return 0;
        }
        let file = |elements| block_ios(1, elements, sort.element_bytes, block_bytes);
        let whole = file(self.file_elements.min(sort.elements)).saturating_mul(self.files - 1);
        whole.saturating_add(file(self.last_elements(sort)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sort(elements: u64, run_elements: u64, fan_in: u64) -> MergeSort {
        MergeSort { elements, run_elements, fan_in, element_bytes: 4 }
    }

    #[test]
    fn the_published_estimate_is_that_of_the_paper() {
        // N = 1e6, M = 1e3, d = 10: 2 * 976.6 blocks * log10(1000).
        let blocks = 1e6 * 4.0 / 4096.0;
        assert!((sort(1_000_000, 1000, 10).published_ios() - 2.0 * blocks * 3.0).abs() < 1e-6);
        // More streams need fewer I/Os, more memory far fewer (sections 4.4.1 and 4.4.2).
        let ios = |memory, fan_in| sort(1_000_000, memory, fan_in).published_ios();
        assert!(ios(1000, 30) < ios(1000, 10) && ios(100_000, 10) < ios(1000, 30));
        assert_eq!((ios(1_000_000, 10), ios(10_000_000, 10)), (0.0, 0.0));
    }

    #[test]
    fn passes_are_whole() {
        for (elements, memory, fan_in, runs, passes, merges) in [
            (0, 10, 10, 0, 0, 0),
            (10, 10, 10, 1, 0, 0),
            (11, 10, 10, 2, 1, 1),
            (1_000_000, 1000, 10, 1000, 3, 111),
            (1_000_001, 1000, 10, 1001, 4, 112),
            (10_000_000, 1000, 30, 10_000, 3, 347),
            (u64::MAX, 1, 2, u64::MAX, 64, u64::MAX - 1),
        ] {
            let sort = sort(elements, memory, fan_in);
            assert_eq!((sort.runs(), sort.merge_passes(), sort.merges()), (runs, passes, merges), "{sort:?}");
        }
    }

    #[test]
    fn an_exact_count_has_whole_blocks_of_whole_files() {
        // Seven runs of 1000 integers and three of d = 3; the last stays one pass long (see the picture above).
        let seven = sort(6500, 1000, 3);
        assert_eq!(seven.ios(4096, 4096), Ios { reads: 7 + 6 + 7, writes: 7 + 6 + 7 });
        assert_eq!(sort(1000, 1000, 10).ios(4, 8192), Ios { reads: 1000, writes: 1 });
        assert_eq!(sort(0, 1000, 10).ios(4, 4), Ios::default());
    }

    proptest! {
        /// The files themselves, one by one.
        #[test]
        fn closed_forms_equal_the_files(
            elements in 0u64..5000, memory in 1u64..300, fan_in in 2u64..12, read in 1u64..5000, write in 1u64..5000,
        ) {
            let blocks = |elements: u64, block: u64| (4 * elements).div_ceil(block);
            let mut expected = Ios { reads: blocks(elements, read), writes: 0 };
            let run_length = |run: u64| memory.min(elements - run * memory);
            let mut files: Vec<u64> = (0..elements.div_ceil(memory)).map(run_length).collect();
            expected.writes = files.iter().map(|&file| blocks(file, write)).sum();
            let (mut passes, mut merges, mut moved) = (0, 0, 0);
            while files.len() > 1 {
                passes += 1;
                let mut above = Vec::new();
                for group in files.chunks(fan_in as usize) {
                    let sum = group.iter().sum();
                    above.push(sum);
                    if group.len() > 1 {
                        merges += 1;
                        moved += sum;
                        expected.reads += group.iter().map(|&file| blocks(file, read)).sum::<u64>();
                        expected.writes += blocks(sum, write);
                    }
                }
                files = above;
            }
            let sort = sort(elements, memory, fan_in);
            prop_assert_eq!(sort.ios(read, write), expected);
            prop_assert_eq!((sort.merge_passes(), sort.merges(), sort.merged_elements()), (passes, merges, moved));
        }
    }
}
