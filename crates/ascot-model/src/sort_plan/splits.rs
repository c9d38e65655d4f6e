//! The passes of a split into many files.
//!
//! ```text
//!   split some    1 x 23, once:      inputs ─▶ 23 intermediate files, each with the records of 22 or 23 parts
//!   split         1 x 23, 23 times:  an intermediate file ─▶ its parts
//! ```
//!
//! Memory allows a limited number of files at once, and where switches cost time, fewer files at once move in longer
//! runs. The fan-out of each pass is the one that [`multipass`] finds, or a root of the number of parts.

use super::split_shape::{MAX_PARTS, SplitShape, in_words, varying_work};
use super::{Moved, RecordJob, files, method};
use crate::checkpoints::split_checkpoint_bytes;
use crate::multipass;
use crate::plan::{MethodPlan, PassPlan, Plan};
use crate::run_length::{Algorithm, Scheme, Shape};
use crate::units;

/// Maximum number of passes of equal fan-out that are tried.
const MAX_EQUAL_PASSES: u32 = 8;

impl RecordJob<'_> {
    /// Plans a split; `None` if memory does not suffice for two files at once. `count` counts the switches of a way to
    /// split better than the formulas do, which know nothing of blocks: within 8 MiB a split into 64 parts takes 215
    /// switches in three passes and 250 in two, where the formulas find two passes faster.
    pub fn split(&self, shape: &SplitShape, count: &dyn Fn(&mut MethodPlan)) -> Option<Plan> {
        let mut ways: Vec<MethodPlan> =
            self.fan_outs(shape).iter().map(|factors| self.split_by(shape, factors)).collect();
        ways.iter_mut().for_each(count);
        let seconds = |way: &MethodPlan| way.seconds();
        // The first of equally fast ones: it has the fewest passes.
        let best = (0..ways.len()).min_by(|&a, &b| seconds(&ways[a]).total_cmp(&seconds(&ways[b])))?;
        let chosen = ways.remove(best);
        let many = chosen.factors.len() > 1;
        let others = ways.into_iter().filter(|way| many && way.factors.len() == 1);
        Some(Plan { others: others.collect(), ..self.plan_of(chosen) })
    }

    /// Candidates for the fan-outs of all passes, those with the fewest passes first.
    fn fan_outs(&self, shape: &SplitShape) -> Vec<Vec<u64>> {
        let parts = shape.parts.max(1);
        if shape.in_turn || parts == 1 {
            return vec![vec![parts]];
        }
        let mut found: Vec<Vec<u64>> =
            (1..=MAX_EQUAL_PASSES).map(|passes| equal_fan_outs(parts, passes)).collect();
        let most = shape.max_parts.max(1);
        found.push(vec![parts.div_ceil(most), most]);
        if let Ok(count) = u32::try_from(parts) {
            let bytes = self.data() as f64;
            let cost = |pass: &Shape, read: f64, written: f64| {
                let outputs = u64::from(pass.outputs);
                if outputs > shape.max_parts.min(shape.max_intermediates) {
                    return f64::INFINITY;
                }
                self.split_pass("split", outputs, 1, read.max(written) as u64, false).seconds()
            };
            let best = multipass::split(count, &|_| bytes, &cost);
            found.extend(best.map(|best| best.factors().into_iter().map(u64::from).collect()));
        }
        let fits = |factors: &Vec<u64>| match factors.split_last() {
            Some((last, before)) => {
                *last <= shape.max_parts && before.iter().all(|&factor| factor <= shape.max_intermediates)
            }
            None => false,
        };
        // More passes than a factor of two each needs are of no use.
        found.retain(|factors| fits(factors) && factors.iter().all(|&factor| factor > 1));
        found.sort_by_key(Vec::len);
        found.dedup();
        found
    }

    /// A split by these fan-outs.
    fn split_by(&self, shape: &SplitShape, factors: &[u64]) -> MethodPlan {
        let data = self.data();
        let work = if shape.varying { varying_work(shape.parts) } else { 1.0 };
        let passes = self.split_passes(shape.parts, factors).into_iter();
        let passes = passes.map(|pass| pass.splitting(work, self.memory_bytes)).collect();
        let parts = units::plural(shape.parts, "part");
        let disk = match factors {
            [first, _, ..] => {
                let largest = (data as f64 / *first as f64 * shape.unevenness).min(data as f64) as u64;
                self.disk.parts(data, 0, *first, largest)
            }
            _ => self.disk.output_alone(data),
        };
        let (summary, remark) = match factors {
            [] | [_] if shape.in_turn => {
                (format!("write {parts} one after another, in one pass"), "each record is moved once")
            }
            [] | [_] => (format!("split into {parts} in one pass"), "each record is moved once"),
            [first, ..] => {
                let text = format!(
                    "split into {parts} in {} passes: into {first} files, and these again ({})",
                    factors.len(),
                    in_words(factors)
                );
                (text, "fewer files at once move in longer runs, or fit in memory")
            }
        };
        MethodPlan {
            pieces: shape.parts,
            factors: factors.to_vec(),
            sample: shape.sampled.then(|| self.key_sample(shape.parts)),
            ..method("split", summary, passes, disk, remark)
        }
    }

    /// The passes of a split into `parts` by these fan-outs.
    pub(super) fn split_passes(&self, parts: u64, factors: &[u64]) -> Vec<PassPlan> {
        let data = self.data();
        let mut times = 1;
        let mut passes = Vec::with_capacity(factors.len());
        for (number, &factor) in factors.iter().enumerate() {
            let name = match (number + 1 == factors.len(), number) {
                (true, _) => "split",
                (false, 0) => "split some",
                (false, _) => "split some again",
            };
            passes.push(self.split_pass(name, factor, times, data, number == 0));
            times = times.saturating_mul(factor).min(parts);
        }
        passes
    }

    /// Candidates for the fan-outs of the splits of a distribution.
    pub(super) fn split_fan_outs(&self, parts: u64) -> Vec<Vec<u64>> {
        let max = if parts <= MAX_PARTS { self.shares.fan_out } else { 0 };
        let shape = SplitShape {
            parts,
            max_intermediates: max,
            max_parts: max,
            unevenness: 1.0,
            sampled: true,
            in_turn: false,
            varying: false,
        };
        self.fan_outs(&shape)
    }

    /// A pass that splits files into `factor` each, `times` times; it moves `data` bytes twice. `first`: it reads the
    /// inputs.
    fn split_pass(&self, name: &str, factor: u64, times: u64, data: u64, first: bool) -> PassPlan {
        let switches = self.split_switches(factor, data).max(times.saturating_mul(factor + 1));
        let both = Moved { read_bytes: data, written_bytes: data, ..Moved::default() };
        let checkpoints = if name == "split" { 0 } else { self.split_checkpoints(data).max(times) };
        let moved = Moved { switches, inputs: 1, outputs: factor, times, checkpoints, ..both };
        let mut pass = self.pass(name, moved, &[(data, self.host.rates.split_bytes_per_s)]);
        if first {
            self.read_elsewhere(&mut pass, super::Many::Outputs);
        }
        pass
    }

    /// Checkpoints of a split of `data` bytes into intermediate files.
    pub(super) fn split_checkpoints(&self, data: u64) -> u64 {
        data / split_checkpoint_bytes(data, self.memory_bytes).max(1)
    }

    /// Switches of splitting `data` bytes into `parts`: by the runs of A2 if the volume wants long runs, otherwise one
    /// for each block, which is written when it is full.
    pub(super) fn split_switches(&self, parts: u64, data: u64) -> u64 {
        let data = data as f64;
        let block = self.shares.block.max(1) as f64;
        if !self.volume.wants_runs((parts + 1) as f64) {
            return (data / block) as u64;
        }
        let scheme = Scheme::best_of(Shape::moving(1, files(parts.max(1)), data, data), Algorithm::A2);
        let memory = self.shares.parts as f64;
        let run = scheme.map_or(block, |scheme| scheme.run_length(memory)).max(block);
        (2.0 * data / run).max((parts + 1) as f64) as u64
    }
}

/// About equal fan-outs of `passes` passes into `parts`.
fn equal_fan_outs(parts: u64, passes: u32) -> Vec<u64> {
    let mut left = parts;
    (0..passes)
        .rev()
        .map(|later| {
            let factor = (left as f64).powf(1.0 / f64::from(later + 1)).ceil() as u64;
            let factor = if later == 0 { left } else { factor };
            left = left.div_ceil(factor.max(1));
            factor
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_fan_outs_reach_all_parts() {
        for parts in 2..600 {
            for passes in 1..=4 {
                let factors = equal_fan_outs(parts, passes);
                assert_eq!(factors.len(), passes as usize);
                assert!(factors.iter().product::<u64>() >= parts, "{parts} {factors:?}");
            }
        }
        assert_eq!(equal_fan_outs(512, 2), [23, 23]);
    }
}
