//! The bytes that are left if duplicates are dropped, predicted from the sorted runs of a first pass.
//!
//! The model draws every record from D equally likely ones. Of n = x D records drawn, D (1 - e^-x) are different (the
//! occupancy problem; Feller, volume 1, IV.2), so a run keeps the share (1 - e^-x) / x. That share yields D, and D
//! yields the share of any longer run. If keys are not equally likely, longer runs shrink less than predicted.
//!
//! ```text
//!   runs of 10 MB keep 0.79 of their bytes      x = 0.5, D = 20 MB
//!   merged by fours, 40 MB each                 x = 2, they keep 0.43 of them
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units;

/// Above this share of bytes kept, the number of different records is not known: nothing seems to repeat.
const MAX_KEPT_SHARE: f64 = 0.999;
/// Steps of bisection: more than a double has bits.
const STEPS: u32 = 64;

/// What the first pass of a job measured of duplicates. A run much shorter than others, such as the last one, would
/// blur the share that a run of their length keeps, so it only counts for `read_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicates {
    /// Bytes read for all runs.
    pub read_bytes: u64,
    /// Number of runs of about full length.
    pub runs: u64,
    /// Bytes read for these.
    pub run_read_bytes: u64,
    /// Bytes that they kept.
    pub run_kept_bytes: u64,
}

impl Duplicates {
    /// Adds a run, for which `read_bytes` were read.
    pub fn add_run(&mut self, read_bytes: u64, kept_bytes: u64) {
        self.read_bytes += read_bytes;
        let mean = self.run_read_bytes / self.runs.max(1);
        if read_bytes < mean / 2 {
            return;
        }
        if read_bytes / 2 > mean {
            (self.runs, self.run_read_bytes, self.run_kept_bytes) = (0, 0, 0);
        }
        self.runs += 1;
        self.run_read_bytes += read_bytes;
        self.run_kept_bytes += kept_bytes;
    }

    /// The share of its bytes that a run kept; 1 without runs.
    pub fn share_of_runs(&self) -> f64 {
        if self.runs == 0 { 1.0 } else { self.run_kept_bytes as f64 / self.run_read_bytes.max(1) as f64 }
    }

    /// Whether enough repeats to tell how many records are different.
    pub fn are_many(&self) -> bool {
        self.different_bytes().is_some()
    }

    /// The bytes that are left of `read_bytes` of the input.
    pub fn left_of(&self, read_bytes: f64) -> f64 {
        match self.different_bytes() {
            Some(different) => different * -(-read_bytes / different).exp_m1(),
            None => read_bytes * self.share_of_runs(),
        }
    }

    /// The bytes left in `files` files into which all runs are merged.
    pub fn left_in(&self, files: f64) -> f64 {
        files * self.left_of(self.read_bytes as f64 / files)
    }

    /// Bytes of the different records; none if nothing seems to repeat.
    fn different_bytes(&self) -> Option<f64> {
        let share = self.share_of_runs();
        if share > MAX_KEPT_SHARE || share <= 0.0 || self.runs == 0 {
            return None;
        }
        // The share kept falls from 1 to 0 as x grows, and is below 1 / x.
        let mut low = 0.0;
        let mut high = 1.0 / share;
        for _ in 0..STEPS {
            let x: f64 = (low + high) / 2.0;
            if -(-x).exp_m1() / x > share {
                low = x;
            } else {
                high = x;
            }
        }
        Some(self.run_read_bytes as f64 / self.runs as f64 / high)
    }
}

/// What a job learned about duplicates, and what its merges followed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DuplicatesAccount {
    /// The first pass, as measured.
    pub first_pass: Duplicates,
    /// Bytes that the output was expected to have after the first pass.
    pub predicted_bytes: u64,
    /// The share of reading in the bytes of the last pass that was expected.
    pub alpha: f64,
}

impl fmt::Display for DuplicatesAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "duplicates: sorted runs kept {:.0} percent of their bytes; merges were planned to leave {} (alpha {:.2})",
            self.first_pass.share_of_runs() * 100.0,
            units::bytes(self.predicted_bytes),
            self.alpha
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use std::collections::HashSet;

    fn seen_in(runs: u64, read_bytes: u64, kept_bytes: u64) -> Duplicates {
        let mut seen = Duplicates::default();
        (0..runs).for_each(|_| seen.add_run(read_bytes, kept_bytes));
        seen
    }

    /// Counted: the runs of 20,000 draws each predict the number left of all draws, and of merges by fours.
    #[test]
    fn runs_predict_the_merge_of_all() {
        for below in [300, 20_000, 100_000, 500_000] {
            let mut random = SplitMix64(7);
            let all: Vec<u64> = (0..320_000).map(|_| random.below(below)).collect();
            let kept = |runs: usize| {
                let runs = all.chunks(all.len() / runs).map(|run| run.iter().collect::<HashSet<_>>().len());
                runs.sum::<usize>() as u64
            };
            let mut seen = Duplicates::default();
            // Runs much shorter than others change nothing.
            seen.add_run(2_000, 2_000);
            (0..15).for_each(|_| seen.add_run(20_000, kept(16) / 16));
            seen.add_run(18_000, kept(16) / 16 * 9 / 10);
            seen.add_run(3_000, 3_000);
            seen.read_bytes = 320_000;
            for files in [1, 4, 16] {
                let (predicted, counted) = (seen.left_in(files as f64), kept(files) as f64);
                assert!((predicted / counted - 1.0).abs() < 0.03, "{below} {files}: {predicted} {counted}");
            }
        }
    }

    #[test]
    fn without_duplicates_everything_is_left() {
        let seen = seen_in(4, 250, 250);
        assert_eq!((seen.left_in(1.0), seen.left_of(5000.0)), (1000.0, 5000.0));
        let empty = Duplicates::default();
        assert_eq!(empty.left_in(1.0), 0.0);
    }

    /// A handful of different records: each run has one copy of them, the output as well.
    #[test]
    fn few_different_records_are_left_once() {
        let seen = seen_in(4, 25_000_000, 100);
        assert!((seen.left_in(1.0) - 100.0).abs() < 1e-3, "{}", seen.left_in(1.0));
    }
}
