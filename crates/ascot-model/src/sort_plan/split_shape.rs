//! The shape of a split: its parts, the numbers of files that it may write at once, and the parts in each file.

use std::ops::Range;

/// Maximum number of parts of a distribution in several splits: a part has a number of 16 bits.
pub const MAX_PARTS: u64 = 1 << 15;

/// The split of a job: its parts, and the files that it may write at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitShape {
    /// Number of parts.
    pub parts: u64,
    /// Maximum number of intermediate files written at once.
    pub max_intermediates: u64,
    /// Maximum number of parts written at once.
    pub max_parts: u64,
    /// Bytes of the largest intermediate file, as a share of the mean of its pass; infinite if one may have all
    /// records.
    pub unevenness: f64,
    /// Whether parts are ranges of keys that a sample bounds.
    pub sampled: bool,
    /// Whether a part can be any range of bytes: parts are written one after another, in one pass.
    pub in_turn: bool,
    /// Whether lengths of records vary.
    pub varying: bool,
}

/// Files of one size, which a pass splits into equally many files each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitFiles {
    /// Their number.
    pub count: u64,
    /// The parts whose records each of them holds.
    pub parts: u64,
    /// The files that each of them is split into.
    pub outputs: u64,
}

/// The parts of each file if `parts` parts are divided about evenly among at most `files` files.
pub fn parts_of_files(parts: u64, files: u64) -> impl Iterator<Item = Range<u64>> {
    let files = files.clamp(1, parts.max(1));
    let first = move |file: u64| (u128::from(parts) * u128::from(file) / u128::from(files)) as u64;
    (0..files).map(move |file| first(file)..first(file + 1))
}

/// The files that each pass splits if `parts` parts are split by these fan-outs: in the last pass, every file into its
/// parts.
pub fn files_of_passes(parts: u64, factors: &[u64]) -> Vec<Vec<SplitFiles>> {
    let mut passes = Vec::with_capacity(factors.len());
    let mut files = vec![SplitFiles { count: 1, parts, outputs: 0 }];
    for (number, &factor) in factors.iter().enumerate() {
        let is_last = number + 1 == factors.len();
        let mut after: Vec<SplitFiles> = Vec::new();
        for file in &mut files {
            file.outputs = if is_last { file.parts } else { factor.clamp(1, file.parts.max(1)) };
            for of_file in parts_of_files(file.parts, file.outputs) {
                let parts = of_file.end - of_file.start;
                match after.iter_mut().find(|same| same.parts == parts) {
                    Some(same) => same.count += file.count,
                    None => after.push(SplitFiles { count: file.count, parts, outputs: 0 }),
                }
            }
        }
        passes.push(std::mem::replace(&mut files, after));
    }
    passes
}

/// The work of a split into `parts` of records whose lengths vary, over that of the distribution that measures its
/// speed. Processor seconds of CSV, where the distribution has 1: 1.16 into 2 parts, 1.22 into 8, 1.35 into 64.
pub(super) fn varying_work(parts: u64) -> f64 {
    1.12 + 0.038 * (parts.max(1) as f64).log2()
}

/// Fan-outs as a product.
pub(super) fn in_words(factors: &[u64]) -> String {
    factors.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_in_one_file() {
        for parts in 1..200 {
            for files in 1..40 {
                let found: Vec<Range<u64>> = parts_of_files(parts, files).collect();
                assert_eq!(found.len() as u64, files.min(parts));
                let mut next = 0;
                for file in &found {
                    assert_eq!(file.start, next);
                    let count = file.end - file.start;
                    assert!(count >= 1 && count <= parts.div_ceil(found.len() as u64));
                    next = file.end;
                }
                assert_eq!(next, parts);
            }
        }
    }

    #[test]
    fn files_of_passes_hold_all_parts() {
        let split = |count, parts, outputs| SplitFiles { count, parts, outputs };
        let passes = files_of_passes(13, &[4, 4]);
        assert_eq!(passes, [vec![split(1, 13, 4)], vec![split(3, 3, 3), split(1, 4, 4)]]);
        for parts in 1_u64..300 {
            for factors in [vec![parts], vec![5, parts.div_ceil(5)], vec![3, 4, parts.div_ceil(12)]] {
                let passes = files_of_passes(parts, &factors);
                for pass in &passes {
                    assert_eq!(pass.iter().map(|file| file.count * file.parts).sum::<u64>(), parts);
                }
                let outputs =
                    |pass: &Vec<SplitFiles>| pass.iter().map(|file| file.count * file.outputs).sum();
                let inputs = |pass: &Vec<SplitFiles>| pass.iter().map(|file| file.count).sum::<u64>();
                for (pass, after) in passes.iter().zip(&passes[1..]) {
                    assert_eq!(inputs(after), outputs(pass), "{parts} {factors:?}");
                }
                assert_eq!(passes.last().map(outputs), Some(parts));
            }
        }
    }
}
