//! The best number of passes, and the number of files in each: to merge n files, to split into m, or to turn n into
//! m.
//!
//! Source: Stella and Loguinov, section V. The best way to merge j files is the best way to merge them `k = ceil(j/i)`
//! at a time, followed by a pass of i at a time, for the best i. Splitting is the mirror image. An interconnect merges
//! n files into i, moves i x j, and splits j into m.
//!
//! The paper fills a table for every number of files up to n, in n squared steps. This search is exact in about n
//! steps: since `ceil(ceil(n/a)/b) = ceil(n/(ab))`, only the numbers `ceil(n/x)` can be reached from n, about `2
//! sqrt(n)` of them, and equally few from each of those. For one `k`, the smallest `i` that leads to it is best,
//! because merging fewer files at a time never takes longer.
//!
//! ```text
//!   16 files   o o o o o o o o o o o o o o o o      p(16) bytes
//!               \___/   \___/   \___/   \___/
//!   k = 4         o       o       o       o         p(4): a 4-way merge, four times
//!                  \______ \_____ / _____/
//!   i = 4                     o                     p(1): a 4-way merge
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::run_length::{Baseline, Scheme, Shape};
use crate::volume::VolumeProfile;

/// The time of a pass.
pub trait PassCost {
    /// Seconds of a pass: of bowties of this shape that together read and write these bytes. Infinite if memory does
    /// not suffice.
    fn seconds(&self, shape: &Shape, read_bytes: f64, written_bytes: f64) -> f64;
}

impl<F: Fn(&Shape, f64, f64) -> f64> PassCost for F {
    fn seconds(&self, shape: &Shape, read_bytes: f64, written_bytes: f64) -> f64 {
        self(shape, read_bytes, written_bytes)
    }
}

/// The time of a device for a pass: the rate formula at the run length of the best scheme.
#[derive(Clone, Debug)]
pub struct DeviceCost<'a> {
    /// The device.
    pub volume: &'a VolumeProfile,
    /// Buffers, bytes.
    pub memory_bytes: f64,
    /// Maximum number of streams for which memory has blocks.
    pub max_streams: u32,
    /// How memory is used; `None`: by the best schedule.
    pub baseline: Option<Baseline>,
}

impl DeviceCost<'_> {
    /// The scheme for a shape, and the switches of a pass.
    pub fn switches(&self, shape: &Shape, bytes: f64) -> (Scheme, f64) {
        let scheme = Scheme::best(*shape);
        let run = match self.baseline {
            None => scheme.run_length(self.memory_bytes),
            Some(baseline) => baseline.run_length(shape, self.memory_bytes),
        };
        let runs = bytes / run;
        (scheme, self.volume.switches(bytes, runs.max(f64::from(shape.streams()))))
    }
}

impl PassCost for DeviceCost<'_> {
    fn seconds(&self, shape: &Shape, read_bytes: f64, written_bytes: f64) -> f64 {
        if shape.streams() > self.max_streams {
            return f64::INFINITY;
        }
        let (_, switches) = self.switches(shape, read_bytes + written_bytes);
        self.volume.seconds(read_bytes, written_bytes, switches, f64::from(shape.streams()))
    }
}

/// One pass over the data: bowties of the same shape, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// The shape of each.
    pub shape: Shape,
    /// Number of bowties.
    pub bowties: u32,
    /// Bytes that all of them read.
    pub read_bytes: f64,
    /// Bytes that all of them write.
    pub written_bytes: f64,
    /// Seconds of all of them.
    pub seconds: f64,
}

/// Passes, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Passes {
    /// The passes.
    pub passes: Vec<Pass>,
    /// Seconds of all passes.
    pub seconds: f64,
}

impl Passes {
    /// The fan-in or fan-out of each pass.
    pub fn factors(&self) -> Vec<u32> {
        self.passes.iter().map(|pass| pass.shape.inputs.max(pass.shape.outputs)).collect()
    }

    /// Bytes read and written, all passes.
    pub fn bytes(&self) -> f64 {
        self.passes.iter().map(|pass| pass.read_bytes + pass.written_bytes).fold(0.0, |all, one| all + one)
    }
}

/// Which end of the bowtie has one file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Merge,
    Split,
}

/// The best ways to merge `files` files, or to split into `files`, by factors `ceil(files / x)`.
struct Table<'a> {
    kind: Kind,
    files: u32,
    /// Bytes in a number of files.
    bytes_in: &'a dyn Fn(f64) -> f64,
    /// By factor: seconds, and the fan-in of the pass at the narrow end.
    best: BTreeMap<u32, (f64, u32)>,
}

impl<'a> Table<'a> {
    fn fill(kind: Kind, files: u32, bytes_in: &'a dyn Fn(f64) -> f64, cost: &dyn PassCost) -> Self {
        let mut this = Table { kind, files, bytes_in, best: BTreeMap::from([(1, (0.0, 1))]) };
        for factor in quotients(files) {
            let mut best = (f64::INFINITY, factor);
            for rest in quotients(factor).filter(|&rest| rest < factor).chain([1]) {
                // The smallest that leaves this rest.
                let near = factor.div_ceil(rest);
                if factor.div_ceil(near) != rest {
                    continue;
                }
                let pass = this.pass(factor, rest, near, cost);
                let seconds =
                    this.best.get(&rest).map_or(f64::INFINITY, |&(seconds, _)| seconds) + pass.seconds;
                if seconds < best.0 {
                    best = (seconds, near);
                }
            }
            this.best.insert(factor, best);
        }
        this
    }

    /// The pass at the narrow end of a merge (or split) by `factor`, of which other passes do `rest`.
    fn pass(&self, factor: u32, rest: u32, near: u32, cost: &dyn PassCost) -> Pass {
        let files = f64::from(self.files);
        let wide = (self.bytes_in)(files / f64::from(rest));
        let narrow = (self.bytes_in)(files / f64::from(factor));
        let (shape, read_bytes, written_bytes) = match self.kind {
            Kind::Merge => (Shape::moving(near, 1, wide, narrow), wide, narrow),
            Kind::Split => (Shape::moving(1, near, narrow, wide), narrow, wide),
        };
        let seconds = cost.seconds(&shape, read_bytes, written_bytes);
        Pass { shape, bowties: self.files.div_ceil(factor), read_bytes, written_bytes, seconds }
    }

    fn seconds(&self, factor: u32) -> f64 {
        self.best.get(&factor).map_or(f64::INFINITY, |&(seconds, _)| seconds)
    }

    /// Passes that all have the same factor.
    fn by(&self, factor: u32, cost: &dyn PassCost) -> Vec<Pass> {
        self.passes(self.files, &|at| Some(factor.clamp(2, at)), cost)
    }

    /// The best passes of a merge or split by `factor`.
    fn path(&self, factor: u32, cost: &dyn PassCost) -> Vec<Pass> {
        self.passes(factor, &|at| self.best.get(&at).map(|&(_, near)| near), cost)
    }

    /// The passes of a merge or split by `at` files, in order. `near` chooses the factor at the narrow end, where a
    /// merge ends and a split starts.
    fn passes(&self, mut at: u32, near: &dyn Fn(u32) -> Option<u32>, cost: &dyn PassCost) -> Vec<Pass> {
        let mut passes = Vec::new();
        while at > 1 {
            let Some(near) = near(at) else { break };
            let rest = at.div_ceil(near);
            passes.push(self.pass(at, rest, near, cost));
            at = rest;
        }
        if self.kind == Kind::Merge {
            passes.reverse();
        }
        passes
    }
}

/// All values of `ceil(n / x)` from 2 up to n, ascending; empty for one file.
fn quotients(n: u32) -> impl Iterator<Item = u32> {
    let mut next = Some(n);
    let mut values = Vec::new();
    while let Some(value) = next.filter(|&value| value >= 2) {
        values.push(value);
        // The smallest x that makes the value smaller.
        let x = n.div_ceil(value - 1);
        next = Some(n.div_ceil(x));
    }
    values.into_iter().rev()
}

fn finish(passes: Vec<Pass>) -> Option<Passes> {
    // Not `sum`: the sum of no numbers is -0.
    let seconds = passes.iter().map(|pass| pass.seconds).fold(0.0, |all, one| all + one);
    seconds.is_finite().then_some(Passes { passes, seconds })
}

/// The best passes to merge `files` files into one; `None` if memory suffices for none. `bytes_in(k)` is the number of
/// bytes in k files after an n/k-way merge; it need not be constant (duplicates vanish, groups are summed). One file
/// needs no pass.
pub fn merge(files: u32, bytes_in: &dyn Fn(f64) -> f64, cost: &dyn PassCost) -> Option<Passes> {
    finish(Table::fill(Kind::Merge, files, bytes_in, cost).path(files, cost))
}

/// The best passes to split one file into `files`; `None` if memory suffices for none. `bytes_in(k)` is the number of
/// bytes in k files. One file needs no pass.
pub fn split(files: u32, bytes_in: &dyn Fn(f64) -> f64, cost: &dyn PassCost) -> Option<Passes> {
    finish(Table::fill(Kind::Split, files, bytes_in, cost).path(files, cost))
}

/// A merge with the same fan-in in all passes, for comparison: two, all files, or a root of their number. `None` if
/// memory does not suffice.
pub fn merge_by(
    factor: u32,
    files: u32,
    bytes_in: &dyn Fn(f64) -> f64,
    cost: &dyn PassCost,
) -> Option<Passes> {
    finish(Table { kind: Kind::Merge, files, bytes_in, best: BTreeMap::new() }.by(factor, cost))
}

/// A split with the same fan-out in all passes, for comparison.
pub fn split_by(
    factor: u32,
    files: u32,
    bytes_in: &dyn Fn(f64) -> f64,
    cost: &dyn PassCost,
) -> Option<Passes> {
    finish(Table { kind: Kind::Split, files, bytes_in, best: BTreeMap::new() }.by(factor, cost))
}

/// The best passes to turn `inputs` files into `outputs`: merges, one interconnect, splits. `None` if memory suffices
/// for none. `input_bytes(k)` and `output_bytes(k)` are the numbers of bytes in k files on either side.
pub fn interconnect(
    inputs: u32,
    outputs: u32,
    input_bytes: &dyn Fn(f64) -> f64,
    output_bytes: &dyn Fn(f64) -> f64,
    cost: &dyn PassCost,
) -> Option<Passes> {
    let merges = Table::fill(Kind::Merge, inputs, input_bytes, cost);
    let splits = Table::fill(Kind::Split, outputs, output_bytes, cost);
    let middle = |i: u32, j: u32| {
        let read_bytes = input_bytes(i.into());
        let written_bytes = output_bytes(j.into());
        let shape = Shape::moving(i, j, read_bytes, written_bytes);
        let seconds = cost.seconds(&shape, read_bytes, written_bytes);
        Pass { shape, bowties: 1, read_bytes, written_bytes, seconds }
    };
    let mut best = (f64::INFINITY, inputs, outputs);
    for i in quotients(inputs).chain([1]) {
        for j in quotients(outputs).chain([1]) {
            let around = merges.seconds(inputs.div_ceil(i)) + splits.seconds(outputs.div_ceil(j));
            if around >= best.0 {
                continue;
            }
            let seconds = around + middle(i, j).seconds;
            if seconds < best.0 {
                best = (seconds, i, j);
            }
        }
    }
    let (_, i, j) = best;
    let mut passes = merges.path(inputs.div_ceil(i), cost);
    passes.push(middle(i, j));
    passes.extend(splits.path(outputs.div_ceil(j), cost));
    finish(passes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::SwitchCost;
    use proptest::prelude::*;

    fn array() -> VolumeProfile {
        VolumeProfile::simple("24 disks", 3549e6, 3549e6, 0.0155)
    }

    fn constant(bytes: f64) -> impl Fn(f64) -> f64 {
        move |_| bytes
    }

    fn cost(volume: &VolumeProfile, memory_bytes: f64) -> DeviceCost<'_> {
        DeviceCost { volume, memory_bytes, max_streams: u32::MAX, baseline: None }
    }

    /// Tries all passes that the recurrence allows.
    fn exhaustive(files: u32, factor: u32, bytes: &dyn Fn(f64) -> f64, cost: &dyn PassCost) -> f64 {
        if factor == 1 {
            return 0.0;
        }
        let n = f64::from(files);
        let ways = (2..=factor).map(|i| {
            let k = factor.div_ceil(i);
            let (read, written) = (bytes(n / f64::from(k)), bytes(n / f64::from(factor)));
            exhaustive(files, k, bytes, cost)
                + cost.seconds(&Shape::moving(i, 1, read, written), read, written)
        });
        ways.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn quotients_are_all_there_are() {
        for n in 1..400u32 {
            let mut wanted: Vec<u32> = (1..=n).map(|x| n.div_ceil(x)).filter(|&q| q > 1).collect();
            wanted.sort_unstable();
            wanted.dedup();
            assert_eq!(quotients(n).collect::<Vec<_>>(), wanted, "{n}");
        }
    }

    proptest! {
        #[test]
        fn as_good_as_trying_everything(
            files in 1u32..60, memory in 1e6f64..4e9, bytes in 1e9f64..1e12, delta in 1e-5f64..0.1, kept in 0.0f64..1.0,
        ) {
            let volume = VolumeProfile { switch_seconds: SwitchCost::Constant(delta), ..array() };
            let cost = cost(&volume, memory);
            // Data that shrink as files are merged.
            let n = f64::from(files);
            let sizes = |k: f64| bytes * (kept + (1.0 - kept) * k / n);
            let found = merge(files, &sizes, &cost).expect("it can be done");
            let wanted = exhaustive(files, files, &sizes, &cost);
            prop_assert!((found.seconds - wanted).abs() <= 1e-9 * wanted, "{} for {}", found.seconds, wanted);
            for factor in [2, 3, files.max(2)] {
                let fixed = merge_by(factor, files, &sizes, &cost).expect("it can be done");
                prop_assert!(fixed.seconds >= found.seconds * (1.0 - 1e-9), "by {factor}");
                let product: f64 = fixed.factors().iter().map(|&factor| f64::from(factor)).product();
                prop_assert!(product >= n, "{:?} do not merge {} files", fixed.factors(), files);
            }
            let product: f64 = found.factors().iter().map(|&factor| f64::from(factor)).product();
            prop_assert!(product >= n, "{:?} do not merge {} files", found.factors(), files);
        }

        #[test]
        fn splitting_mirrors_merging(files in 1u32..3000, memory in 1e7f64..4e9, bytes in 1e9f64..1e12) {
            let volume = array();
            let cost = cost(&volume, memory);
            let sizes = |k: f64| bytes * (1.0 + k / 1e4);
            let (merged, parted) = (merge(files, &sizes, &cost), split(files, &sizes, &cost));
            let (merged, mut parted) = (merged.expect("it can be done"), parted.expect("it can be done"));
            prop_assert!((merged.seconds - parted.seconds).abs() <= 1e-9 * merged.seconds.max(1e-9));
            parted.passes.reverse();
            prop_assert_eq!(merged.factors(), parted.factors());
        }

        #[test]
        fn more_memory_never_takes_longer(files in 1u32..2000, memory in 1e7f64..1e10, more in 1.0f64..10.0) {
            let volume = array();
            let sizes = constant(1e12);
            let before = merge(files, &sizes, &cost(&volume, memory)).expect("it can be done");
            let after = merge(files, &sizes, &cost(&volume, memory * more)).expect("it can be done");
            prop_assert!(after.seconds <= before.seconds * (1.0 + 1e-9));
        }

        /// All interconnects, with the tables of the paper.
        #[test]
        fn interconnects_as_good_as_trying_everything(
            n in 1u32..24, m in 1u32..24, memory in 1e6f64..1e9, kept in 0.0f64..1.0, grown in 0.0f64..3.0,
        ) {
            let volume = array();
            let cost = cost(&volume, memory);
            // Data that shrink as files are merged, and grow (or not) as they are split.
            let before = |k: f64| 1e11 * (kept + (1.0 - kept) * k / f64::from(n));
            let after = |k: f64| 1e11 * kept * (1.0 + grown * k / f64::from(m));
            let found = interconnect(n, m, &before, &after, &cost).expect("it can be done");
            let mut wanted = f64::INFINITY;
            for i in 1..=n {
                for j in 1..=m {
                    let (read, written) = (before(i.into()), after(j.into()));
                    let middle = cost.seconds(&Shape::moving(i, j, read, written), read, written);
                    let merging = exhaustive(n, n.div_ceil(i), &before, &cost);
                    let splitting = exhaustive(m, m.div_ceil(j), &after, &cost);
                    wanted = wanted.min(merging + middle + splitting);
                }
            }
            prop_assert!((found.seconds - wanted).abs() <= 1e-9 * wanted, "{} for {}", found.seconds, wanted);
        }
    }

    #[test]
    fn thousands_of_files() {
        let volume = array();
        let sizes = constant(1e13);
        let way = interconnect(4096, 4096, &sizes, &sizes, &cost(&volume, 2e9)).expect("it can be done");
        assert!(way.passes.len() >= 2);
    }

    #[test]
    fn too_little_memory_for_any_way() {
        let volume = array();
        let tight = DeviceCost { volume: &volume, memory_bytes: 1e6, max_streams: 2, baseline: None };
        assert!(merge(8, &constant(1e9), &tight).is_none());
        assert!(merge(1, &constant(1e9), &tight).is_some_and(|way| way.passes.is_empty()));
    }

    /// The machine of the paper: passes as published, rates within 15 percent, one speed and one
    /// switch cost for all rows.
    #[test]
    fn the_published_table() {
        let rows = [
            (1.0, 8.0, 8, 1, 2962.0),
            (2.0, 128.0, 64, 1, 2114.0),
            (2.0, 1024.0, 512, 2, 1350.0),
            (2.0, 8192.0, 4096, 2, 1010.0),
            (8.0, 512.0, 64, 1, 2881.0),
            (8.0, 4096.0, 512, 1, 1891.0),
            (20.0, 1280.0, 64, 1, 3297.0),
        ];
        for delta in [0.015, 0.016] {
            let volume = VolumeProfile { switch_seconds: SwitchCost::Constant(delta), ..array() };
            for (memory_gb, input_gb, chunks, passes, rate_mb_s) in rows {
                let bytes = input_gb * 1e9;
                let way = split(chunks, &constant(bytes), &cost(&volume, memory_gb * 1e9)).expect("possible");
                assert_eq!(way.passes.len(), passes, "({memory_gb}, {input_gb}): {:?}", way.factors());
                let rate = 2.0 * bytes / way.seconds / 1e6;
                let error = rate / rate_mb_s - 1.0;
                assert!(error.abs() < 0.15, "({memory_gb}, {input_gb}): {rate:.0} MB/s for {rate_mb_s}");
            }
        }
    }

    /// 64 TB in 8,000 files with 8 GB (section V.A), with the paper's run length of n x 0.
    #[test]
    fn the_published_example() {
        let (memory, bytes) = (8e9, 64e12);
        let device = |delta: f64| {
            move |shape: &Shape, read: f64, _written: f64| {
                let run = 2.0 * memory / (f64::from(shape.inputs) - 1.0);
                read / 3549e6 + read / run * delta
            }
        };
        let near =
            |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.02, "{found} for {wanted}");
        let pass = |inputs| Shape { inputs, outputs: 1, alpha: 0.5 };
        let at_9_ms = device(0.0091);
        near(bytes / at_9_ms(&pass(8000), bytes, bytes) / 1e6, 208.0);
        near(bytes / (13.0 * at_9_ms(&pass(2), bytes, bytes)) / 1e6, 273.0);
        let best = merge(8000, &constant(bytes), &at_9_ms).expect("possible");
        assert_eq!(best.factors().len(), 2);
        assert!(best.factors().iter().all(|factor| (86..=94).contains(factor)), "{:?}", best.factors());
        let at_16_ms = device(0.016);
        let seconds = at_16_ms(&pass(90), bytes, bytes) + at_16_ms(&pass(89), bytes, bytes);
        assert!((bytes / seconds / 1e6 / 1353.0 - 1.0).abs() < 0.05, "{}", bytes / seconds / 1e6);
    }
}
