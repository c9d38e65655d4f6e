//! How long the runs of a bowtie are: what a schedule earns from the memory it is given.
//!
//! Source: Stella and Loguinov, "On High-Latency Bowtie Data Streaming", sections III and IV,
//! extended to any share of reading for the algorithms that paper states at one half.
//!
//! ```text
//!                 reads by              writes by
//!   A1   0 x m                          the fullest, drained while data arrives
//!   A2   1 x m    one stream            groups of the fullest
//!   A3   n x 0    the one that ran out, streamed while data leaves
//!   A4   n x 1    groups of the emptiest   one stream
//!   A5   n x m    as A4                 as A2          in turns, memory divided
//!   A6r  n x m    as A3                 as A2          reading overlaps computing
//!   A6w  n x m    as A4                 as A1          writing overlaps computing
//! ```
//!
//! A stationary bowtie repeats a *round*: some bytes are read, as many (times what the function makes
//! of them) are written, in a fixed number of runs. With `a` the share of all bytes that is read and
//! `R` the bytes read in a round, each side needs memory for half of its staircase:
//!
//! | side | memory | runs a round |
//! | --- | --- | --- |
//! | A3 | `R (n - 1) / 2` | 1 |
//! | A4, groups of `c` | `R (n/c + 1) / 2` | `c` |
//! | A1 | `W (m - 1) / 2`, `W = R (1 - a) / a` | 1 |
//! | A2, groups of `c` | `W (m/c + 1) / 2` | `c` |
//! | one stream | two blocks: nothing | 1 |
//!
//! All formulas of the paper, and their forms for any `a`, follow from adding up a row of each side.

use serde::{Deserialize, Serialize};

/// How many streams there are, and how much of what moves is read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Input streams on the device, n; 0: data come from elsewhere.
    pub inputs: u32,
    /// Output streams on the device, m; 0: data go elsewhere.
    pub outputs: u32,
    /// Bytes read, as a share of all bytes read and written.
    pub alpha: f64,
}

/// Bytes read equal bytes written.
pub const HALF: f64 = 0.5;

impl Shape {
    /// A shape in which `read_bytes` become `written_bytes`.
    pub fn moving(inputs: u32, outputs: u32, read_bytes: f64, written_bytes: f64) -> Self {
        let alpha = match (inputs, outputs) {
            (0, _) => 0.0,
            (_, 0) => 1.0,
            _ => read_bytes / (read_bytes + written_bytes),
        };
        Shape { inputs, outputs, alpha }
    }

    /// Streams on the device, n + m.
    pub fn streams(&self) -> u32 {
        self.inputs + self.outputs
    }

    /// Seen from the other side: inputs become outputs (reader-writer symmetry, section III.D).
    pub fn mirrored(&self) -> Self {
        Shape { inputs: self.outputs, outputs: self.inputs, alpha: 1.0 - self.alpha }
    }
}

/// The algorithms, by the paper's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// 0 x m: the fullest bucket is drained while data keeps arriving.
    A1,
    /// 1 x m: the `c` fullest buckets are written, then the input is read until memory is full.
    A2,
    /// n x 0: the bucket that ran out is streamed into, then filled up.
    A3,
    /// n x 1: output is written until a bucket runs out, then the `c` emptiest are filled.
    A4,
    /// n x m: A4 and A2, in turns.
    A5,
    /// n x m: A3 on the reading side, A2 on the writing side.
    A6r,
    /// n x m: A4 on the reading side, A1 on the writing side.
    A6w,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::A1,
        Algorithm::A2,
        Algorithm::A3,
        Algorithm::A4,
        Algorithm::A5,
        Algorithm::A6r,
        Algorithm::A6w,
    ];

    /// Its name in the paper, in small letters.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::A1 => "a1",
            Algorithm::A2 => "a2",
            Algorithm::A3 => "a3",
            Algorithm::A4 => "a4",
            Algorithm::A5 => "a5",
            Algorithm::A6r => "a6r",
            Algorithm::A6w => "a6w",
        }
    }

    /// Whether inputs are filled in groups after the function has stopped, not streamed into.
    pub fn reads_in_groups(self) -> bool {
        matches!(self, Algorithm::A4 | Algorithm::A5 | Algorithm::A6w)
    }

    /// Whether outputs are written in groups after the function has stopped, not drained as they fill.
    pub fn writes_in_groups(self) -> bool {
        matches!(self, Algorithm::A2 | Algorithm::A5 | Algorithm::A6r)
    }

    /// Whether it can drive so many streams.
    pub fn fits(self, shape: &Shape) -> bool {
        let (n, m) = (shape.inputs, shape.outputs);
        match self {
            Algorithm::A1 => n == 0 && m > 0,
            Algorithm::A2 => n == 1 && m > 0,
            Algorithm::A3 => n > 0 && m == 0,
            Algorithm::A4 => n > 0 && m == 1,
            Algorithm::A5 | Algorithm::A6r | Algorithm::A6w => n > 0 && m > 0,
        }
    }
}

/// An algorithm with its group sizes, for one shape.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scheme {
    /// What it is for.
    pub shape: Shape,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Inputs filled together, `c_r`; 1 where inputs are not grouped.
    pub read_group: f64,
    /// Outputs written together, `c_w`; 1 where outputs are not grouped.
    pub write_group: f64,
}

/// What a round of one side takes.
#[derive(Clone, Copy)]
struct Side {
    /// Memory over bytes moved by this side.
    memory: f64,
    /// Runs.
    runs: f64,
}

impl Side {
    const NONE: Side = Side { memory: 0.0, runs: 0.0 };
    const STREAM: Side = Side { memory: 0.0, runs: 1.0 };

    fn streamed(count: f64) -> Self {
        Side { memory: (count - 1.0) / 2.0, runs: 1.0 }
    }

    fn grouped(count: f64, group: f64) -> Self {
        Side { memory: (count / group + 1.0) / 2.0, runs: group }
    }

    /// Groups at their own pace, as equal as can be, so that each stream has one turn in a cycle of all.
    fn by_turns(count: f64, group: f64) -> Self {
        if group.fract() != 0.0 {
            return Side::grouped(count, group);
        }
        let turns = Turns::of(count as u32, group);
        let groups = f64::from(turns.groups);
        Side { memory: groups * (1.0 + turns.squares() / (count * count)) / 2.0, runs: count / groups }
    }

    /// Groups of `group` in every round, however long the others have it: some streams of a group rest a
    /// round longer than the others if it does not divide their number.
    fn in_step(count: f64, group: f64) -> Self {
        if group.fract() != 0.0 {
            return Side::grouped(count, group);
        }
        let whole = (count / group).floor();
        let rest = count - whole * group;
        let memory = (group * whole / 2.0 + rest) * (whole + 1.0) / count;
        Side { memory, runs: group }
    }
}

/// How streams are divided into groups that have turns: as equal as can be, the larger ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Streams.
    pub count: u32,
    /// Groups.
    pub groups: u32,
}

impl Turns {
    /// As few groups of no more than `group` as `count` streams make.
    pub fn of(count: u32, group: f64) -> Self {
        let group = (group.round() as u32).max(1);
        Turns { count, groups: count.div_ceil(group).max(1) }
    }

    /// Streams of the group whose turn it is.
    pub fn size(&self, turn: u32) -> u32 {
        self.count / self.groups + u32::from(turn % self.groups < self.count % self.groups)
    }

    fn squares(&self) -> f64 {
        let (small, larger) = (f64::from(self.count / self.groups), f64::from(self.count % self.groups));
        larger * (small + 1.0).powi(2) + (f64::from(self.groups) - larger) * small.powi(2)
    }

    /// What a stream moves in a cycle of all groups, from `memory`: each has its turn when memory is full
    /// (or an input empty), so that turns follow each other as their groups are large.
    pub fn each(&self, memory: f64) -> f64 {
        let count = f64::from(self.count.max(1));
        2.0 * memory / (count * (1.0 + self.squares() / (count * count)))
    }
}

impl Scheme {
    /// The scheme of an algorithm with groups of these sizes, held between one and all streams.
    pub fn new(shape: Shape, algorithm: Algorithm, read_group: f64, write_group: f64) -> Self {
        let group = |wanted: f64, grouped: bool, count: u32| {
            if grouped { wanted.clamp(1.0, f64::from(count.max(1))) } else { 1.0 }
        };
        Scheme {
            shape,
            algorithm,
            read_group: group(read_group, algorithm.reads_in_groups(), shape.inputs),
            write_group: group(write_group, algorithm.writes_in_groups(), shape.outputs),
        }
    }

    /// The algorithm with its best group sizes, whole ones.
    ///
    /// None where the algorithm does not fit the shape.
    pub fn best_of(shape: Shape, algorithm: Algorithm) -> Option<Self> {
        let real = Self::best_real(shape, algorithm)?;
        let whole = |size: f64| [-1.0, 0.0, 1.0, 2.0].map(|more| (size.floor() + more).max(1.0));
        let mut candidates = Vec::with_capacity(64);
        for read in whole(real.read_group) {
            for write in whole(real.write_group) {
                candidates.push(Self::new(shape, algorithm, read, write));
            }
        }
        if algorithm == Algorithm::A5 {
            // One of the two groups is best as small as can be, which for whole groups may be two or
            // three when the other cannot be what it should.
            for small in [1.0, 2.0, 3.0] {
                for size in whole(Self::a5_write_group(&shape, small)) {
                    candidates.push(Self::new(shape, algorithm, small, size));
                }
                for size in whole(Self::a5_write_group(&shape.mirrored(), small)) {
                    candidates.push(Self::new(shape, algorithm, size, small));
                }
            }
        }
        // Of those as good the one named first: the smaller groups.
        let longer = |best: Self, next: Self| {
            if next.run_length(1.0) > best.run_length(1.0) * (1.0 + 1e-12) { next } else { best }
        };
        candidates.into_iter().reduce(longer)
    }

    /// The algorithm with its best group sizes as real numbers: theorems 5, 9, 12 and 13.
    ///
    /// None where the algorithm does not fit the shape.
    pub fn best_real(shape: Shape, algorithm: Algorithm) -> Option<Self> {
        if !algorithm.fits(&shape) {
            return None;
        }
        let (n, m, alpha) = (f64::from(shape.inputs), f64::from(shape.outputs), shape.alpha);
        let scheme = |read, write| Self::new(shape, algorithm, read, write);
        Some(match algorithm {
            Algorithm::A1 | Algorithm::A3 => scheme(1.0, 1.0),
            Algorithm::A2 => scheme(1.0, m.sqrt()),
            Algorithm::A4 => scheme(n.sqrt(), 1.0),
            Algorithm::A5 => {
                let by_writes = scheme(1.0, Self::a5_write_group(&shape, 1.0));
                let by_reads = scheme(Self::a5_write_group(&shape.mirrored(), 1.0), 1.0);
                if by_writes.run_length(1.0) >= by_reads.run_length(1.0) { by_writes } else { by_reads }
            }
            Algorithm::A6r => scheme(1.0, ((1.0 - alpha) * m / ((1.0 - alpha) + alpha * (n - 1.0))).sqrt()),
            Algorithm::A6w => scheme((alpha * n / (alpha + (1.0 - alpha) * (m - 1.0))).sqrt(), 1.0),
        })
    }

    /// The best group of outputs of A5 where inputs are filled in groups of `read_group`.
    fn a5_write_group(shape: &Shape, read_group: f64) -> f64 {
        let (n, m, alpha) = (f64::from(shape.inputs), f64::from(shape.outputs), shape.alpha);
        let fixed = alpha * (n / read_group + 1.0) + (1.0 - alpha);
        (read_group * (1.0 - alpha) * m / fixed).sqrt().clamp(1.0, m.max(1.0))
    }

    /// The scheme with the longest runs for a shape, with whole groups.
    ///
    /// # Panics
    /// Never: a shape without streams gets A1, whose single run never ends.
    pub fn best(shape: Shape) -> Self {
        const ALL: [Algorithm; 7] = [
            Algorithm::A1,
            Algorithm::A2,
            Algorithm::A3,
            Algorithm::A4,
            Algorithm::A6r,
            Algorithm::A6w,
            Algorithm::A5,
        ];
        let better = |best: Option<Self>, next: Self| match best {
            // The one named first wins a tie: it overlaps, and it is simpler.
            Some(best) if best.run_length(1.0) >= next.run_length(1.0) * (1.0 - 1e-12) => Some(best),
            _ => Some(next),
        };
        ALL.into_iter()
            .filter_map(|algorithm| Self::best_of(shape, algorithm))
            .fold(None, better)
            .unwrap_or(Self { shape, algorithm: Algorithm::A1, read_group: 1.0, write_group: 1.0 })
    }

    /// Whether the groups of one side go by the rounds of the other, which streams: in an interconnect by A6.
    pub fn in_step(&self) -> bool {
        match self.algorithm {
            Algorithm::A6r => self.shape.inputs > 1,
            Algorithm::A6w => self.shape.outputs > 1,
            _ => false,
        }
    }

    fn sides(&self) -> (Side, Side) {
        let (n, m) = (f64::from(self.shape.inputs), f64::from(self.shape.outputs));
        let reads = match self.algorithm {
            Algorithm::A1 => Side::NONE,
            Algorithm::A2 => Side::STREAM,
            Algorithm::A3 | Algorithm::A6r => Side::streamed(n),
            Algorithm::A6w if self.in_step() => Side::in_step(n, self.read_group),
            Algorithm::A4 | Algorithm::A5 | Algorithm::A6w => Side::by_turns(n, self.read_group),
        };
        let writes = match self.algorithm {
            Algorithm::A3 => Side::NONE,
            Algorithm::A4 => Side::STREAM,
            Algorithm::A1 | Algorithm::A6w => Side::streamed(m),
            Algorithm::A6r if self.in_step() => Side::in_step(m, self.write_group),
            Algorithm::A2 | Algorithm::A5 | Algorithm::A6r => Side::by_turns(m, self.write_group),
        };
        (reads, writes)
    }

    /// Mean length of a run in the steady state, bytes, from `memory` bytes of buffers. Infinite
    /// where a single stream has the device to itself.
    pub fn run_length(&self, memory: f64) -> f64 {
        let (reads, writes) = self.sides();
        let (of_reads, of_writes) = self.memory_of_a_round();
        memory / ((of_reads + of_writes) * (reads.runs + writes.runs))
    }

    /// Memory for inputs and for outputs, both over the bytes that move in a round.
    pub fn memory_of_a_round(&self) -> (f64, f64) {
        let (reads, writes) = self.sides();
        let alpha = self.shape.alpha;
        (alpha * reads.memory, (1.0 - alpha) * writes.memory)
    }

    /// The share of memory that buffers inputs; outputs have the rest.
    pub fn read_share(&self) -> f64 {
        let (of_reads, of_writes) = self.memory_of_a_round();
        if of_reads + of_writes > 0.0 { of_reads / (of_reads + of_writes) } else { self.shape.alpha }
    }

    /// What inputs hold when their part of `memory` is full, bytes, in descending order: a staircase
    /// (theorems 6 and 8). With groups, each input of a group holds the same.
    pub fn input_staircase(&self, memory: f64) -> Vec<f64> {
        let group = self.algorithm.reads_in_groups().then_some(self.read_group);
        staircase(self.shape.inputs, group, memory * self.read_share())
    }

    /// The same of outputs (theorems 1 and 3).
    pub fn output_staircase(&self, memory: f64) -> Vec<f64> {
        let group = self.algorithm.writes_in_groups().then_some(self.write_group);
        staircase(self.shape.outputs, group, memory * (1.0 - self.read_share()))
    }

    /// The smallest buffers for which the formulas hold on a device with a cache of so many bytes: with
    /// less, the cache joins runs (section VII.B).
    pub fn least_memory_for_cache(&self, cache_bytes: f64) -> f64 {
        cache_bytes / (f64::from(self.shape.streams()) * self.run_length(1.0))
    }
}

/// What `count` buckets hold in the steady state, descending; `group`: how many are emptied or filled
/// together, none where one at a time is streamed.
pub fn staircase(count: u32, group: Option<f64>, memory: f64) -> Vec<f64> {
    let n = f64::from(count);
    let stair = |bucket: u32| match group {
        None if count == 1 => memory,
        None => 2.0 * memory / n * (1.0 - f64::from(bucket) / (n - 1.0)),
        Some(c) => {
            let step = (f64::from(bucket) / c).floor();
            (2.0 * memory / ((n / c + 1.0) * c) * (1.0 - step * c / n)).max(0.0)
        }
    };
    (0..count).map(stair).collect()
}

/// What others do, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Every stream has its own equal part of memory; with a file on the other side, half of memory
    /// is filled from it at a time (sections III.A and III.B).
    EqualParts,
    /// Every request moves so many bytes, whatever the memory.
    FixedBlocks {
        /// Bytes of a request.
        bytes: f64,
    },
}

impl Baseline {
    /// Mean length of a run, bytes.
    pub fn run_length(self, shape: &Shape, memory: f64) -> f64 {
        match self {
            Baseline::FixedBlocks { bytes } => bytes,
            Baseline::EqualParts => memory / f64::from(shape.streams().max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(told: f64, wanted: f64) {
        assert!((told / wanted - 1.0).abs() < 1e-9, "{told} for {wanted}");
    }

    fn shape(inputs: u32, outputs: u32, alpha: f64) -> Shape {
        Shape { inputs, outputs, alpha }
    }

    /// The formulas as the page and the paper print them.
    #[test]
    fn the_published_formulas() {
        let memory = 16e9;
        let length = |n, m, alpha, algorithm, read, write| {
            Scheme::new(shape(n, m, alpha), algorithm, read, write).run_length(memory)
        };
        near(length(0, 100, 0.0, Algorithm::A1, 1.0, 1.0), 2.0 * memory / 99.0);
        near(length(100, 0, 1.0, Algorithm::A3, 1.0, 1.0), 2.0 * memory / 99.0);
        for alpha in [0.1, 0.5, 0.8] {
            let a2 = 2.0 * memory / ((1.0 - alpha) * (60.0 / 5.0 + 1.0) * 6.0);
            near(length(1, 60, alpha, Algorithm::A2, 1.0, 5.0), a2);
            let a4 = 2.0 * memory / (alpha * (60.0 / 5.0 + 1.0) * 6.0);
            near(length(60, 1, alpha, Algorithm::A4, 5.0, 1.0), a4);
        }
        let a5 = 4.0 * memory / ((4.0 + 7.0) * (20.0 / 4.0 + 70.0 / 7.0 + 2.0));
        near(length(20, 70, 0.5, Algorithm::A5, 4.0, 7.0), a5);
        let a6 = 4.0 * memory / ((1.0 + 7.0) * (20.0 + 70.0 / 7.0));
        near(length(20, 70, 0.5, Algorithm::A6r, 1.0, 7.0), a6);
        near(length(70, 20, 0.5, Algorithm::A6w, 7.0, 1.0), a6);
    }

    #[test]
    fn published_gains() {
        for (m, gain) in [(16, 1.36), (64, 1.6), (256, 1.78)] {
            let best = Scheme::best_of(shape(1, m, HALF), Algorithm::A2).expect("it fits");
            near(best.write_group, f64::from(m).sqrt());
            let one = Scheme::new(shape(1, m, HALF), Algorithm::A2, 1.0, 1.0);
            assert!((best.run_length(1.0) / one.run_length(1.0) - gain).abs() < 0.011);
        }
        let best = Scheme::best(shape(1, 64, HALF)).run_length(1.0);
        assert!((best / Baseline::EqualParts.run_length(&shape(1, 64, HALF), 1.0) - 3.2).abs() < 0.05);
        let interconnect = Scheme::best_real(shape(3, 100, HALF), Algorithm::A6r).expect("it fits");
        assert!((interconnect.run_length(1.0) - 0.0294).abs() < 0.001);
        let split = Scheme::best_real(shape(1, 100, HALF), Algorithm::A2).expect("it fits");
        assert!((split.run_length(1.0) - 0.0333).abs() < 0.001);
    }

    #[test]
    fn staircases_fill_the_memory() {
        for (count, group) in [(64, None), (64, Some(8.0)), (1, None), (2, None), (6, Some(6.0))] {
            near(staircase(count, group, 1e9).iter().sum(), 1e9);
        }
    }

    #[test]
    fn a_stream_alone_never_switches() {
        assert!(Scheme::best(shape(0, 1, 0.0)).run_length(1e9).is_infinite());
        assert!(Scheme::best(shape(1, 0, 1.0)).run_length(1e9).is_infinite());
        assert!(Scheme::best(shape(1, 1, HALF)).run_length(1e9).is_finite());
    }

    #[test]
    fn the_cache_bound_is_the_paper_s() {
        let (m, cache) = (64.0_f64, 2e9);
        let real = Scheme::best_real(shape(1, 64, HALF), Algorithm::A2).expect("it fits");
        near(real.least_memory_for_cache(cache), cache * (m.sqrt() + 1.0).powi(2) / (4.0 * (m + 1.0)));
    }

    proptest! {
        #[test]
        fn readers_and_writers_are_symmetric(n in 1u32..300, m in 1u32..300, alpha in 0.05f64..0.95) {
            let here = shape(n, m, alpha);
            let there = here.mirrored();
            for (one, other) in [(Algorithm::A6r, Algorithm::A6w), (Algorithm::A5, Algorithm::A5)] {
                let a = Scheme::best_real(here, one).expect("it fits").run_length(1.0);
                let b = Scheme::best_real(there, other).expect("it fits").run_length(1.0);
                prop_assert!((a / b - 1.0).abs() < 1e-9);
            }
            let (a, b) = (Scheme::best(here).run_length(1.0), Scheme::best(there).run_length(1.0));
            prop_assert!((a / b - 1.0).abs() < 1e-9);
        }

        #[test]
        fn more_memory_never_shortens_runs(
            n in 0u32..300, m in 1u32..300, alpha in 0.05f64..0.95, memory in 1e6f64..1e12, more in 1.0f64..9.0,
        ) {
            let best = Scheme::best(Shape::moving(n, m, alpha, 1.0 - alpha));
            prop_assert!(best.run_length(memory * more) >= best.run_length(memory));
        }

        #[test]
        fn a6_never_loses_and_contains_a2_and_a4(n in 1u32..500, m in 1u32..500, alpha in 0.05f64..0.95) {
            let length = |shape, algorithm| {
                Scheme::best_real(shape, algorithm).map_or(0.0, |scheme| scheme.run_length(1.0))
            };
            let here = shape(n, m, alpha);
            let a6 = length(here, Algorithm::A6r).max(length(here, Algorithm::A6w));
            prop_assert!(a6 >= length(here, Algorithm::A5) * (1.0 - 1e-9));
            let (one_in, one_out) = (shape(1, m, alpha), shape(n, 1, alpha));
            let a2 = 2.0 / ((1.0 - alpha) * (f64::from(m).sqrt() + 1.0).powi(2));
            prop_assert!((length(one_in, Algorithm::A6r) / a2 - 1.0).abs() < 1e-9);
            let a4 = 2.0 / (alpha * (f64::from(n).sqrt() + 1.0).powi(2));
            prop_assert!((length(one_out, Algorithm::A6w) / a4 - 1.0).abs() < 1e-9);
        }

        /// Theorem 13: which of the two wins, and by what formula. Next to the boundary, where the best
        /// group of the one that loses would be below one, it is off by a stream's part.
        #[test]
        fn theorem_13(n in 1u32..500, m in 1u32..500, alpha in 0.05f64..0.95) {
            let here = shape(n, m, alpha);
            let (reads, writes) = (f64::from(n), f64::from(m));
            let r = Scheme::best_real(here, Algorithm::A6r).expect("it fits").run_length(1.0);
            let w = Scheme::best_real(here, Algorithm::A6w).expect("it fits").run_length(1.0);
            let margin = 1.0 - 2.0 / (alpha * reads + (1.0 - alpha) * writes).max(2.0);
            if writes > 1.0 + alpha * (reads - 1.0) / (1.0 - alpha) {
                prop_assert!(r >= w * margin);
                let root = ((1.0 - alpha) * writes).sqrt() + ((1.0 - alpha) + alpha * (reads - 1.0)).sqrt();
                prop_assert!((r * root * root / 2.0 - 1.0).abs() < 1e-9);
            } else {
                prop_assert!(w >= r * margin);
            }
        }

        /// The search for whole groups finds what trying all of them finds.
        #[test]
        fn whole_groups_are_the_best_whole_groups(n in 1u32..40, m in 1u32..40, alpha in 0.05f64..0.95) {
            let here = shape(n, m, alpha);
            for algorithm in [Algorithm::A2, Algorithm::A4, Algorithm::A5, Algorithm::A6r, Algorithm::A6w] {
                let Some(best) = Scheme::best_of(here, algorithm) else { continue };
                let all = (1..=n).flat_map(|read| (1..=m).map(move |write| (read, write)));
                let longest = all
                    .map(|(read, write)| Scheme::new(here, algorithm, read.into(), write.into()).run_length(1.0))
                    .fold(0.0, f64::max);
                prop_assert!(best.run_length(1.0) >= longest * 0.999, "{:?}: {:?} {}", algorithm, best, longest);
                prop_assert!(best.read_group.fract() == 0.0 && best.write_group.fract() == 0.0);
            }
        }
    }
}
