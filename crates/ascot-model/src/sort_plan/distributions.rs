//! Distributions: records are split into parts by key, in one pass or in several, and each part is sorted in memory.
//!
//! ```text
//!   split        the input up to its end ─▶ part 0, part 1, ... on disk
//!   sort rest    the end of the input    ─▶ sorted chunks in memory
//!   sort parts   part i and the records of its keys in memory ─▶ output
//! ```
//!
//! Held bytes are neither written nor read again. But they leave less memory for sorting parts, so parts are smaller
//! and more. Several amounts are tried, and the fastest is planned.

use super::split_shape::in_words;
use super::{
    HeldParts, MIN_SPILLED_PART, Many, Merging, Moved, RecordJob, method, part_count, uneven_part_bytes,
};
use crate::plan::MethodPlan;
use crate::units;

/// Inverse of the fraction of the input that is held at least. Merging parts with held records computes more than
/// sorting them alone, above all by small ranges of keys. Measured with 3.7 times the memory, of which a fourth was
/// held: u64 took 1.47 times as long as without, records of 100 bytes 1.18 times. Held records that are grouped by part
/// instead need smaller parts, and were slower, too (`bench/results/2026-11-29-held-parts`).
const MIN_HELD_PART: u64 = 3;

impl RecordJob<'_> {
    /// The fastest distribution: in one split, or in several if fewer files at once are faster or memory allows no
    /// more.
    pub(super) fn distribute(&self) -> MethodPlan {
        let wanted = part_count(self.data(), self.shares.part);
        let several = self.split_fan_outs(wanted).into_iter().filter(|factors| factors.len() > 1);
        let several = several.map(|factors| self.distribute_in_passes(wanted, &factors));
        let holding = self.held_parts.iter().filter_map(|beside| self.distribute_holding(beside));
        let faster =
            |best: MethodPlan, next: MethodPlan| if next.seconds() < best.seconds() { next } else { best };
        several.chain(holding).fold(self.distribute_at_once(wanted), faster)
    }

    /// The distribution in one split that holds the end of the input in memory; none if the other parts cannot be
    /// written at once.
    fn distribute_holding(&self, beside: &HeldParts) -> Option<MethodPlan> {
        let data = self.input_bytes?;
        let held = beside.held.min(data - data / MIN_SPILLED_PART);
        let spilled = data - held;
        let parts = part_count(spilled, beside.part);
        if held == 0 || held < data / MIN_HELD_PART || parts > self.shares.fan_out {
            return None;
        }
        let (sorting, merging) = self.load_rates();
        let switches = self.split_switches(parts, spilled);
        let both = Moved { read_bytes: spilled, written_bytes: spilled, ..Moved::default() };
        let checkpoints = self.split_checkpoints(spilled);
        let split = Moved { switches, inputs: self.inputs, outputs: parts, checkpoints, ..both };
        let work = [(spilled, self.host.rates.split_bytes_per_s)];
        let mut split = self.pass("split", split, &work);
        self.read_elsewhere(&mut split, Many::Outputs);
        let rest = Moved { read_bytes: held, switches: self.inputs, inputs: self.inputs, ..Moved::default() };
        let mut rest = self.pass("sort rest", rest, &[(held, sorting)]);
        self.read_elsewhere(&mut rest, Many::Neither);
        let sort = Moved { written_bytes: data, ..self.sorting_parts(parts, spilled) };
        let sort = self.pass("sort parts", sort, &[(spilled, sorting), (data, merging)]);
        let summary = format!(
            "split into {} by key, then sort each with its records among {} held in memory",
            units::plural(parts, "part"),
            units::bytes(held)
        );
        let disk = self.disk.parts(spilled, held, parts, beside.part);
        let remark = "needs a sample of the keys";
        Some(MethodPlan {
            pieces: parts,
            factors: vec![parts],
            held_bytes: held,
            sample: Some(self.key_sample(parts)),
            ..method("distribute", summary, vec![split, rest, sort], disk, remark)
        })
    }

    /// The distribution whose splits have these fan-outs.
    fn distribute_in_passes(&self, parts: u64, factors: &[u64]) -> MethodPlan {
        let data = self.data();
        let (sorting, merging) = self.load_rates();
        let mut passes = self.split_passes(parts, factors);
        let sort = self.sorting_parts(parts, data);
        let splitting = self.host.rates.split_bytes_per_s;
        let work = [(data, sorting), (data, if self.groups_parts { splitting } else { merging })];
        passes.push(self.pass("sort parts", sort, &work));
        let first = factors.first().copied().unwrap_or(1);
        let summary = format!(
            "split into {} by key in {} passes ({}), then sort each",
            units::plural(parts, "part"),
            factors.len(),
            in_words(factors)
        );
        let disk = self.disk.parts(data, 0, first, uneven_part_bytes(data, first));
        let remark = "needs a sample of the keys";
        MethodPlan {
            pieces: parts,
            factors: factors.to_vec(),
            sample: Some(self.key_sample(parts)),
            ..method("distribute", summary, passes, disk, remark)
        }
    }

    /// The distribution in one split. If memory does not allow all parts at once, larger parts are sorted by runs and
    /// merges.
    fn distribute_at_once(&self, wanted: u64) -> MethodPlan {
        let data = self.data();
        let (sorting, merging) = self.load_rates();
        let parts = wanted.min(self.shares.fan_out);
        let switches = self.split_switches(parts, data);
        let both = Moved { read_bytes: data, written_bytes: data, ..Moved::default() };
        let checkpoints = self.split_checkpoints(data);
        let split = Moved { switches, inputs: self.inputs, outputs: parts, checkpoints, ..both };
        let splitting = self.host.rates.split_bytes_per_s;
        let mut split = self.pass("split", split, &[(data, splitting)]);
        self.read_elsewhere(&mut split, Many::Outputs);
        let mut passes = vec![split];
        let work = [(data, sorting), (data, if self.groups_parts { splitting } else { merging })];
        let mut factors = vec![parts];
        let by_runs = if parts == wanted { "" } else { " by runs and merges" };
        if parts == wanted {
            let sort = self.sorting_parts(parts, data);
            passes.push(self.pass("sort parts", sort, &work));
        } else {
            // A part larger than memory is sorted like an input of its own.
            let runs = (data / parts).div_ceil(self.shares.load.max(1)).max(1);
            let form = Moved {
                switches: 2 * runs * parts,
                inputs: 1,
                outputs: runs,
                times: parts,
                checkpoints: runs * parts,
                ..both
            };
            passes.push(self.pass("form runs", form, &work));
            let bytes = data / parts;
            let merges = self.merges(&Merging { files: runs, times: parts, ..self.merging(bytes, 0, bytes) });
            factors.extend(merges.factors());
            passes.extend(merges.passes);
        }
        let summary = format!("split into {} by key, then sort each{by_runs}", units::plural(parts, "part"));
        let disk = self.disk.parts(data, 0, parts, self.shares.part.min(uneven_part_bytes(data, parts)));
        let remark = "needs a sample of the keys";
        let sample = Some(self.key_sample(parts));
        MethodPlan { pieces: parts, factors, sample, ..method("distribute", summary, passes, disk, remark) }
    }

    /// Parts of `bytes` together that are read and sorted one by one: each is a checkpoint.
    fn sorting_parts(&self, parts: u64, bytes: u64) -> Moved {
        let outputs = self.output_at_once();
        Moved {
            read_bytes: bytes,
            written_bytes: bytes,
            switches: (1 + outputs) * parts,
            inputs: 1,
            outputs,
            times: parts,
            checkpoints: parts,
            ..Moved::default()
        }
    }
}
