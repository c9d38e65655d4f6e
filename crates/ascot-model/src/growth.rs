//! Growth: the bytes that a user's function leaves, pass by pass. A merge may drop or combine records, a split may add
//! to them.
//!
//! ```text
//!   by pass     0.8           every pass writes 0.8 of the bytes that it reads
//!   by files    1:0.3,50:0.8  one file has 0.3 of the bytes of the input, 50 files have 0.8, all files have 1
//! ```
//!
//! The second form is the p(k) of a merge, and the q(k) of a split, in section V of the paper (Stella and Loguinov):
//! the bytes in k files after an n/k-way merge. Between two numbers of files the share follows the logarithm of the
//! number.

use std::collections::HashMap;
use std::str::FromStr;

use thiserror::Error;

use crate::multipass::{Pass, PassCost, Passes};
use crate::run_length::Shape;

/// Maximum number of passes that are tried for a growth by pass.
const MAX_PASSES: usize = 16;
/// Largest share that is accepted: a pass that writes a million times what it reads is a mistake.
const MAX_SHARE: f64 = 1e6;

/// The bytes that passes leave.
#[derive(Clone, Debug, PartialEq)]
pub enum Growth {
    /// Bytes that a pass writes as a share of those that it reads, for the first, the second, ... pass; the last holds
    /// for all later ones.
    ByPass(Vec<f64>),
    /// By number of files, ascending: their bytes, as a share of those of a merge's inputs or of a split's input.
    ByFiles(Vec<FilesShare>),
}

/// A point of a growth by files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilesShare {
    /// Number of files.
    pub files: f64,
    /// Their bytes, as a share.
    pub share: f64,
}

/// A growth that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadGrowth {
    /// A share that is no positive number, or too large.
    #[error("'{0}' is not a share from 0 (excluded) to {MAX_SHARE}")]
    Share(String),
    /// A number of files below 1, or none at all.
    #[error("'{0}' is not a number of files")]
    Files(String),
    /// Numbers of files that do not ascend.
    #[error("numbers of files must ascend: {0} comes after a number that is not smaller")]
    Order(String),
    /// Shares by pass and by number of files.
    #[error("'{0}' mixes shares by pass (0.8) with shares by number of files (10:0.8)")]
    Mixed(String),
}

impl FromStr for Growth {
    type Err = BadGrowth;

    fn from_str(text: &str) -> Result<Self, BadGrowth> {
        let share = |text: &str| match text.trim().parse::<f64>() {
            Ok(share) if share > 0.0 && share <= MAX_SHARE => Ok(share),
            _ => Err(BadGrowth::Share(text.to_owned())),
        };
        let items: Vec<&str> = text.split(',').collect();
        let with_files = items.iter().filter(|item| item.contains(':')).count();
        if with_files == 0 {
            return items.into_iter().map(share).collect::<Result<_, _>>().map(Growth::ByPass);
        }
        if with_files < items.len() {
            return Err(BadGrowth::Mixed(text.to_owned()));
        }
        let mut points: Vec<FilesShare> = Vec::with_capacity(items.len());
        for (files, of) in items.iter().filter_map(|item| item.split_once(':')) {
            let count = files.trim().parse::<u32>().ok().filter(|&count| count >= 1);
            let count = f64::from(count.ok_or_else(|| BadGrowth::Files(files.to_owned()))?);
            if points.last().is_some_and(|last| last.files >= count) {
                return Err(BadGrowth::Order(files.to_owned()));
            }
            points.push(FilesShare { files: count, share: share(of)? });
        }
        Ok(Growth::ByFiles(points))
    }
}

/// The share of `files` files by `points`, ascending. Where the points end, the share stays.
fn share_of(points: &[FilesShare], files: f64) -> f64 {
    let after = points.partition_point(|point| point.files <= files);
    match (after.checked_sub(1).and_then(|at| points.get(at)), points.get(after)) {
        (Some(low), Some(high)) => {
            let along = (files / low.files).ln() / (high.files / low.files).ln();
            low.share + (high.share - low.share) * along
        }
        (Some(low), None) => low.share,
        (None, Some(high)) => high.share,
        (None, None) => 1.0,
    }
}

/// The bytes in `files` files of a merge of `all` files with `bytes` bytes, whose growth by files is `points`.
pub fn merged_bytes(points: &[FilesShare], all: u32, bytes: f64, files: f64) -> f64 {
    let all = f64::from(all);
    let mut points: Vec<FilesShare> = points.iter().copied().filter(|point| point.files < all).collect();
    points.push(FilesShare { files: all, share: 1.0 });
    bytes * share_of(&points, files)
}

/// The bytes in `files` files of a split of one file with `bytes` bytes, whose growth by files is `points`.
pub fn split_bytes(points: &[FilesShare], bytes: f64, files: f64) -> f64 {
    let mut points: Vec<FilesShare> = points.iter().copied().filter(|point| point.files > 1.0).collect();
    points.insert(0, FilesShare { files: 1.0, share: 1.0 });
    bytes * share_of(&points, files)
}

/// The end of a bowtie with one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {
    /// The output: a merge.
    Output,
    /// The input: a split.
    Input,
}

/// The best passes between `files` files and one, if pass i writes `shares[i]` of the bytes that it reads. `None` if
/// memory suffices for none.
///
/// For each number of passes, the bytes of each are known, and the best factors follow by dynamic programming: the best
/// passes up to number i that reach `f` files are a pass of a factor before or after the best passes up to i - 1.
pub fn best_by_pass(
    narrow: Narrow,
    files: u32,
    bytes: f64,
    shares: &[f64],
    cost: &dyn PassCost,
) -> Option<Passes> {
    if files <= 1 {
        return Some(Passes::default());
    }
    let most = (f64::from(files).log2().ceil() as usize).clamp(1, MAX_PASSES);
    let plans = (1..=most).filter_map(|count| {
        let order: Vec<usize> = match narrow {
            // From the end with all files to the one with one file.
            Narrow::Output => (0..count).collect(),
            Narrow::Input => (0..count).rev().collect(),
        };
        let moved: Vec<Moved> = order.iter().map(|&pass| Moved::of_pass(pass, bytes, shares)).collect();
        let mut passes = best_of(narrow, files, &moved, cost)?;
        if narrow == Narrow::Input {
            passes.reverse();
        }
        let seconds = passes.iter().map(|pass| pass.seconds).sum::<f64>();
        seconds.is_finite().then_some(Passes { passes, seconds })
    });
    plans.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// The bytes of a pass.
#[derive(Clone, Copy, Debug)]
struct Moved {
    read: f64,
    written: f64,
}

impl Moved {
    fn of_pass(pass: usize, bytes: f64, shares: &[f64]) -> Moved {
        let share = |at: usize| shares.get(at).or(shares.last()).copied().unwrap_or(1.0);
        let read = (0..pass).fold(bytes, |bytes, at| bytes * share(at));
        Moved { read, written: read * share(pass) }
    }
}

/// The best passes from `files` files to one, with exactly these bytes; `None` if there are none.
fn best_of(narrow: Narrow, files: u32, moved: &[Moved], cost: &dyn PassCost) -> Option<Vec<Pass>> {
    let mut search = Search { narrow, moved, cost, known: HashMap::new() };
    let mut passes = Vec::with_capacity(moved.len());
    let mut left = files;
    for number in 0..moved.len() {
        let found = search.best(left, number)?;
        passes.push(search.pass(left, found.factor, number));
        left = left.div_ceil(found.factor);
    }
    Some(passes)
}

/// The dynamic programme over the number of files and the number of the pass.
struct Search<'a> {
    narrow: Narrow,
    moved: &'a [Moved],
    cost: &'a dyn PassCost,
    /// By the number of files before a pass, and the number of the pass.
    known: HashMap<(u32, usize), Option<Found>>,
}

/// The best factor of a pass, and the seconds of it and of all passes after it.
#[derive(Clone, Copy)]
struct Found {
    factor: u32,
    seconds: f64,
}

impl Search<'_> {
    fn pass(&self, files: u32, factor: u32, number: usize) -> Pass {
        let Moved { read, written } = self.moved[number];
        let shape = match self.narrow {
            Narrow::Output => Shape::moving(factor, 1, read, written),
            Narrow::Input => Shape::moving(1, factor, read, written),
        };
        let seconds = self.cost.seconds(&shape, read, written);
        Pass { shape, bowties: files.div_ceil(factor), read_bytes: read, written_bytes: written, seconds }
    }

    /// The best factor of pass `number` if `files` files are left; none if a pass would have nothing to do.
    fn best(&mut self, files: u32, number: usize) -> Option<Found> {
        if let Some(&known) = self.known.get(&(files, number)) {
            return known;
        }
        let mut best: Option<Found> = None;
        if number + 1 == self.moved.len() {
            let seconds = self.pass(files, files, number).seconds;
            best = Some(Found { factor: files, seconds }).filter(|_| files >= 2);
        } else {
            // Of the factors that leave equally many files, the smallest is best.
            let mut left = files.div_ceil(2);
            while left >= 2 {
                let factor = files.div_ceil(left);
                let own = self.pass(files, factor, number).seconds;
                let least = best.map_or(f64::INFINITY, |found| found.seconds);
                if own < least
                    && let Some(rest) = self.best(left, number + 1)
                    && own + rest.seconds < least
                {
                    best = Some(Found { factor, seconds: own + rest.seconds });
                }
                // The next smaller number that a larger factor leaves.
                left = files.div_ceil(factor + 1).min(left - 1);
            }
        }
        self.known.insert((files, number), best);
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pass costs its bytes, and the bytes written for each file.
    fn by_files(shape: &Shape, read: f64, written: f64) -> f64 {
        read + written + written * f64::from(shape.streams())
    }

    #[test]
    fn shares_are_read() {
        let point = |files, share| FilesShare { files, share };
        assert_eq!("0.8".parse(), Ok(Growth::ByPass(vec![0.8])));
        assert_eq!("0.5, 0.9".parse(), Ok(Growth::ByPass(vec![0.5, 0.9])));
        assert_eq!("1:0.3,50:0.8".parse(), Ok(Growth::ByFiles(vec![point(1.0, 0.3), point(50.0, 0.8)])));
        for wrong in
            ["", "0", "-1", "nan", "inf", "1e9", "x", "0:0.5", "2:0", "5:1,5:2", "9:1,5:1", "0.5,3:1"]
        {
            assert!(wrong.parse::<Growth>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_between_two_numbers_follow_the_logarithm() {
        let points = [FilesShare { files: 1.0, share: 0.2 }, FilesShare { files: 10.0, share: 0.6 }];
        let bytes = |files| merged_bytes(&points, 100, 1000.0, files);
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
        near(bytes(100.0), 1000.0);
        near(bytes(1.0), 200.0);
        near(bytes(10.0_f64.sqrt()), 400.0);
        near(bytes(10.0_f64.powf(1.5)), 800.0);
        near(split_bytes(&[FilesShare { files: 100.0, share: 3.0 }], 10.0, 10.0), 20.0);
    }

    /// Sixteen files of 1,600 bytes in all; each pass keeps a half. By hand, with costs as above: 2, 2 and 4 files take
    /// (1600 + 800 + 800 x 3) + (800 + 400 + 400 x 3) + (400 + 200 + 200 x 5) = 4800 + 2400 + 1600 = 8800; twice 4 take
    /// 6400 + 3200 = 9600, four times 2 take 4800 + 2400 + 1200 + 600 = 9000, and all at once take 16000. If nothing
    /// is dropped, twice 4 take 2 x (3200 + 1600 x 5) = 22400, 2, 2 and 4 take 2 x 8000 + 11200 = 27200.
    #[test]
    fn the_best_passes_are_those_found_by_hand() {
        let best = |shares: &[f64]| {
            let best = best_by_pass(Narrow::Output, 16, 1600.0, shares, &by_files).expect("there are passes");
            (best.factors(), best.seconds)
        };
        assert_eq!(best(&[0.5]), (vec![2, 2, 4], 8800.0));
        assert_eq!(best(&[1.0]), (vec![4, 4], 22400.0));
        let half = best_by_pass(Narrow::Output, 16, 1600.0, &[0.5], &by_files).expect("there are passes");
        let bytes: Vec<(f64, f64)> =
            half.passes.iter().map(|pass| (pass.read_bytes, pass.written_bytes)).collect();
        assert_eq!(bytes, [(1600.0, 800.0), (800.0, 400.0), (400.0, 200.0)]);
        assert_eq!(half.passes.iter().map(|pass| pass.bowties).collect::<Vec<_>>(), [8, 4, 1]);
    }

    /// The recursion against all lists of factors.
    #[test]
    fn as_good_as_trying_everything() {
        fn all(files: u32, passes: usize) -> Vec<Vec<u32>> {
            if passes == 1 {
                return vec![vec![files]];
            }
            let with = |factor: u32| {
                let rest = all(files.div_ceil(factor), passes - 1);
                rest.into_iter().map(move |rest| [vec![factor], rest].concat()).collect::<Vec<_>>()
            };
            (2..files).filter(|&factor| files.div_ceil(factor) > 1).flat_map(with).collect()
        }
        for files in [5, 12, 30, 61] {
            for shares in [vec![0.5], vec![0.3, 1.0], vec![2.0, 0.1], vec![1.0]] {
                let seek = |shape: &Shape, read: f64, written: f64| {
                    read + written + 300.0 * f64::from(shape.streams()).powi(2) * (read + written) / 1e4
                };
                let best =
                    best_by_pass(Narrow::Output, files, 1e4, &shares, &seek).expect("there are passes");
                let cost = |factors: &Vec<u32>| -> f64 {
                    let one = |(pass, &factor): (usize, &u32)| {
                        let moved = Moved::of_pass(pass, 1e4, &shares);
                        let shape = Shape::moving(factor, 1, moved.read, moved.written);
                        seek(&shape, moved.read, moved.written)
                    };
                    factors.iter().enumerate().map(one).sum()
                };
                let wanted = (1..=6).flat_map(|passes| all(files, passes)).map(|factors| cost(&factors));
                let wanted = wanted.fold(f64::INFINITY, f64::min);
                assert!(
                    (best.seconds - wanted).abs() < 1e-6 * wanted,
                    "{files} {shares:?} {:?}",
                    best.factors()
                );
            }
        }
    }

    #[test]
    fn a_split_grows_from_its_one_file_on() {
        let best =
            best_by_pass(Narrow::Input, 6, 100.0, &[2.0], &|shape: &Shape, read: f64, written: f64| {
                // Three files at once at most.
                if shape.streams() > 4 { f64::INFINITY } else { read + written }
            });
        let best = best.expect("there are passes");
        assert_eq!(best.passes.len(), 2);
        assert_eq!((best.passes[0].read_bytes, best.passes[0].written_bytes), (100.0, 200.0));
        assert_eq!((best.passes[1].read_bytes, best.passes[1].written_bytes), (200.0, 400.0));
        assert_eq!(best.passes[0].bowties, 1);
    }
}
