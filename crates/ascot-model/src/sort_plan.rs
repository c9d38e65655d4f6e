//! The jobs on records, costed: the ways to sort, to merge sorted files and to split, with their passes.
//!
//! ```text
//!   in memory    read, sort | write                                       all fits
//!   merge        form n sorted runs | merge some of them | merge the rest
//!   distribute   split 1 into m by key | sort each part in memory
//! ```
//!
//! How much fits where is the asker's to say ([`Shares`]): a job that has its files open and one that is
//! only thought of describe themselves alike, and get the same plan.
//!
//! Runs are merged so that no more than a *factor* of them is left for the last pass, the smallest first and
//! no more than needed. On a volume where a switch costs less than moving a block, as on flash, blocks are
//! read in the order of need, and the factor is what memory holds: the fewest bytes move. Where a switch
//! costs more, blocks are read in long runs, whose length falls as more files share the memory, and the
//! factor is the best of those that [`multipass`] finds.

use std::collections::VecDeque;

use crate::disk_use::{DiskUse, MergeUse};
use crate::host::HostProfile;
use crate::multipass;
use crate::plan::{Moved, PassPlan, Plan, Way};
use crate::run_length::{Algorithm, Scheme, Shape};
use crate::units;
use crate::volume::VolumeProfile;

/// Bytes assumed where the size is not known: a plan for a pipe is a guess.
const GUESSED_BYTES: u64 = 8 << 30;
/// Most files whose best factors are searched for exactly; of more, those of equal passes are tried.
const MOST_SEARCHED: u64 = 1 << 16;
/// Passes of equal factors that are tried.
const MOST_PASSES: i32 = 12;

/// How much of a job fits where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Bytes of records that fit in memory all at once.
    pub all: u64,
    /// Bytes of records of one load.
    pub load: u64,
    /// Pieces of a load, sorted each and merged.
    pub load_pieces: u64,
    /// Bytes of the largest part that is sorted without spills.
    pub part: u64,
    /// Files that can be merged at once.
    pub fan_in: u64,
    /// Parts that can be written at once.
    pub fan_out: u64,
    /// Bytes for the blocks of files that are merged.
    pub streams: u64,
    /// Bytes of a block.
    pub block: u64,
}

/// A job on records: what there is, and what there is for it.
#[derive(Clone, Debug)]
pub struct RecordJob<'a> {
    /// Bytes of records; none: a pipe, not known.
    pub input_bytes: Option<u64>,
    /// Mean length of a record, bytes.
    pub record_bytes: f64,
    /// Only so many records are wanted.
    pub top: Option<u64>,
    /// Number of inputs.
    pub inputs: u64,
    /// The records seem to be in order: runs refer to them where they are.
    pub in_order: bool,
    /// Parts are cut into small groups by key, and each is sorted: their pieces need no merge.
    pub groups_parts: bool,
    /// The cap, bytes.
    pub memory_bytes: u64,
    /// How it is divided.
    pub shares: Shares,
    /// What it takes of the disk beside its records.
    pub disk: DiskUse,
    /// Where all of it is, but for inputs that are elsewhere.
    pub volume: &'a VolumeProfile,
    /// Where the inputs are, if that is another volume: reading them and writing do not get in each other's way.
    pub input_volume: Option<&'a VolumeProfile>,
    /// Who computes.
    pub host: &'a HostProfile,
}

/// The methods of a sort that may be taken where not all fits in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Methods {
    /// Runs and merges; in memory, where all fits.
    pub merge: bool,
    /// Parts by key.
    pub distribute: bool,
    /// The user said which.
    pub forced: bool,
}

/// The side of a pass that has many files at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Inputs,
    Outputs,
    /// One file after the other is read, one after the other written.
    Neither,
}

fn files(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Files to be merged into one.
#[derive(Clone, Copy, Debug)]
struct Merging {
    files: u64,
    /// In all of them.
    bytes: u64,
    /// What is wanted of the result.
    kept: u64,
    /// So often, each time on other files.
    times: u64,
    /// The first pass merges all of them, where one pass would not do.
    all_first: bool,
}

/// Merges before the last one, of files that were merged as often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    merges: u64,
    /// Files of each, at most.
    files: u64,
    /// Bytes of all of them.
    bytes: u64,
    /// Bytes of the largest.
    largest: u64,
}

/// How files are merged into one.
struct Merges {
    factor: u64,
    passes: Vec<PassPlan>,
    levels: Vec<Level>,
    left: u64,
}

impl Merges {
    fn seconds(&self) -> f64 {
        self.passes.iter().map(PassPlan::seconds).sum()
    }

    fn largest(&self) -> u64 {
        self.levels.iter().map(|level| level.largest).max().unwrap_or(0)
    }

    /// What each pass merges at once, the first one first.
    fn factors(&self) -> Vec<u64> {
        self.levels.iter().map(|level| level.files).chain([self.left]).collect()
    }
}

impl RecordJob<'_> {
    /// Plans a sort. None where no method may be taken.
    pub fn sort(&self, methods: Methods) -> Option<Plan> {
        let fits = self.input_bytes.is_none_or(|bytes| bytes <= self.shares.all);
        let mut ways = if fits && methods.merge {
            vec![self.in_memory()]
        } else {
            let merging = methods.merge.then(|| self.merge());
            merging.into_iter().chain(methods.distribute.then(|| self.distribute())).collect()
        };
        if self.input_bytes.is_none() {
            // How much there is shows only as it is read.
            for way in &mut ways {
                way.summary = "sort in memory if all fits, else form sorted runs and merge them".into();
                way.remark = "a pipe: its size is not known".into();
            }
        }
        let (chosen, others) = Plan::cheapest(ways)?;
        Some(Plan { others, forced: methods.forced, ..self.plan_of(chosen) })
    }

    /// Plans a merge of sorted inputs.
    pub fn merge_inputs(&self) -> Plan {
        let (bytes, kept) = (self.data(), self.kept(self.data()));
        let merging = Merging { files: self.inputs, bytes, kept, times: 1, all_first: true };
        let mut merges = self.merges(&merging);
        if let Some(first) = merges.passes.first_mut() {
            self.read_elsewhere(first, Side::Inputs);
        }
        let inputs = units::plural(self.inputs, "sorted input");
        let summary = match merges.levels.as_slice() {
            [] => format!("merge {inputs} in one pass"),
            [first, again @ ..] => {
                let again = if again.is_empty() { "" } else { ", some of them again before" };
                format!("merge {inputs} in {} groups, then those{again}", first.merges)
            }
        };
        let left = merges.left;
        let disk = if merges.levels.is_empty() {
            self.disk.output_alone(kept)
        } else {
            // Their own inputs are not freed, only what those were merged into.
            let largest_group = if merges.levels.len() > 1 { merges.largest() } else { 0 };
            self.disk.merging(&MergeUse { spilled: bytes, kept, runs: left, at_once: left, largest_group })
        };
        self.plan_of(Way {
            method: "merge inputs".into(),
            summary: summary + &self.at_a_time(&merges),
            pieces: self.inputs,
            factors: merges.factors(),
            merge_factor: self.set_factor(&merges),
            passes: merges.passes,
            peak_disk_bytes: disk.peak_bytes,
            disk,
            remark: "the inputs are sorted".into(),
        })
    }

    /// Plans splitting into `parts` files: one pass.
    pub fn split(&self, parts: u64) -> Plan {
        let data = self.data();
        let switches = self.split_switches(parts);
        let moved =
            Moved { read_bytes: data, written_bytes: data, switches, inputs: 1, outputs: parts, times: 1 };
        let mut pass = self.pass("split", moved, &[(data, self.host.rates.split_bytes_per_s)]);
        self.read_elsewhere(&mut pass, Side::Outputs);
        let disk = self.disk.output_alone(data);
        self.plan_of(Way {
            method: "split".into(),
            summary: format!("split into {} in one pass", units::plural(parts, "part")),
            pieces: parts,
            factors: vec![parts],
            merge_factor: None,
            passes: vec![pass],
            peak_disk_bytes: disk.peak_bytes,
            disk,
            remark: "each record is moved once".into(),
        })
    }

    /// A plan with one way to go.
    fn plan_of(&self, chosen: Way) -> Plan {
        Plan {
            input_bytes: self.input_bytes,
            input_records: self.input_bytes.map(|bytes| (bytes as f64 / self.record_bytes.max(1.0)) as u64),
            memory_bytes: self.memory_bytes,
            threads: self.host.threads,
            volume: self.volume.clone(),
            chosen,
            others: Vec::new(),
            forced: false,
        }
    }

    fn data(&self) -> u64 {
        self.input_bytes.unwrap_or(GUESSED_BYTES)
    }

    /// Bytes of `data` bytes that are wanted.
    fn kept(&self, data: u64) -> u64 {
        self.top.map_or(data, |top| data.min((top as f64 * self.record_bytes) as u64))
    }

    fn pass(&self, name: &str, moved: Moved, work: &[(u64, f64)]) -> PassPlan {
        PassPlan::new(name, moved, work, self.volume, self.host)
    }

    /// Of a pass that reads the inputs, where those are on a volume of their own: each side is a bowtie by itself
    /// then, `many` the one with many files at once, and the slower one counts.
    fn read_elsewhere(&self, pass: &mut PassPlan, many: Side) {
        let Some(inputs) = self.input_volume else { return };
        let (read, written) = (pass.read_bytes as f64, pass.written_bytes as f64);
        let (mut reads, mut writes) =
            (pass.inputs as f64, if written > 0.0 { pass.outputs as f64 } else { 0.0 });
        match many {
            Side::Inputs => {
                let shape = Shape { inputs: files(pass.inputs), outputs: 0, alpha: 1.0 };
                reads = self.runs_alone(inputs, read, shape, self.shares.streams);
            }
            Side::Outputs => {
                let shape = Shape { inputs: 0, outputs: files(pass.outputs), alpha: 0.0 };
                writes = self.runs_alone(self.volume, written, shape, long_run_bytes(self.shares.streams));
            }
            Side::Neither => {}
        }
        (reads, writes) = (inputs.switches(read, reads), self.volume.switches(written, writes));
        let reading = inputs.seconds(read, 0.0, reads, pass.inputs as f64);
        let writing = self.volume.seconds(0.0, written, writes, pass.outputs as f64);
        pass.device_seconds = reading.max(writing);
        pass.switches = (reads + writes) as u64;
    }

    /// Runs of `bytes` that many files alone have on a volume, one side of a pass (A1 or A3): long ones where
    /// they are wanted, else blocks.
    fn runs_alone(&self, volume: &VolumeProfile, bytes: f64, shape: Shape, memory: u64) -> f64 {
        let count = f64::from(shape.inputs.max(shape.outputs));
        if count < 2.0 {
            return count;
        }
        let algorithm = if shape.inputs > 0 { Algorithm::A3 } else { Algorithm::A1 };
        let scheme = Scheme::best_of(shape, algorithm).filter(|_| volume.wants_runs(count));
        let block = self.shares.block.max(1) as f64;
        let run = scheme.map_or(block, |scheme| scheme.run_length(memory as f64)).max(block);
        (bytes / run).max(count)
    }

    /// Bytes/s of sorting a load, and of merging its pieces.
    fn load_rates(&self) -> (f64, f64) {
        let rates = &self.host.rates;
        (rates.sort_bytes_per_s, rates.merging_bytes_per_s(self.shares.load_pieces as f64))
    }

    /// Getting the memory, which the first pass does.
    fn memory(&self) -> (u64, f64) {
        self.host.fresh_memory(self.memory_bytes.min(self.data()))
    }

    fn in_memory(&self) -> Way {
        let (data, (sorting, merging)) = (self.data(), self.load_rates());
        let kept = self.kept(data);
        let reading = Moved { read_bytes: data, inputs: self.inputs, ..Moved::default() };
        let writing = Moved { written_bytes: kept, outputs: 1, ..Moved::default() };
        let mut reading = self.pass("read and sort", reading, &[(data, sorting), self.memory()]);
        self.read_elsewhere(&mut reading, Side::Neither);
        let disk = self.disk.output_alone(kept);
        Way {
            method: "in memory".into(),
            summary: "sort in memory, without spills".into(),
            pieces: 1,
            factors: Vec::new(),
            merge_factor: None,
            passes: vec![reading, self.pass("write", writing, &[(kept, merging)])],
            peak_disk_bytes: disk.peak_bytes,
            disk,
            remark: "everything fits in memory".into(),
        }
    }

    fn merge(&self) -> Way {
        let (data, (sorting, merging)) = (self.data(), self.load_rates());
        let runs = data.div_ceil(self.shares.load.max(1)).max(1);
        // No run needs more than what is wanted of the whole.
        let kept = self.kept(data);
        let spilled = data.min(runs.saturating_mul(kept));
        let written = if self.in_order { 0 } else { spilled };
        let form = Moved {
            read_bytes: data,
            written_bytes: written,
            switches: 2 * runs,
            inputs: self.inputs,
            outputs: runs,
            times: 1,
        };
        let files = if self.in_order { 1 } else { runs };
        let merges = self.merges(&Merging { files, bytes: spilled, kept, times: 1, all_first: false });
        let work = [(data, sorting), (written, merging), self.memory()];
        let mut form = self.pass("form runs", form, &work);
        self.read_elsewhere(&mut form, Side::Neither);
        let mut passes = vec![form];
        let (factors, merge_factor) = (merges.factors(), self.set_factor(&merges));
        let more = match (merges.levels.len(), merge_factor) {
            (0, _) => "in one pass".into(),
            (levels, Some(factor)) => format!("in {} passes, {factor} at a time", levels + 1),
            (_, None) => {
                let early = units::plural(files - merges.left, "run");
                format!("in one pass, {early} of them in groups first")
            }
        };
        let (at_once, largest_group) = (merges.left, merges.largest());
        let disk =
            self.disk.merging(&MergeUse { spilled: written, kept, runs: files, at_once, largest_group });
        passes.extend(merges.passes);
        Way {
            method: "merge".into(),
            summary: if self.in_order {
                "find what is in order and leave it where it is, sort the rest, merge them in one pass".into()
            } else {
                format!("form {}, then merge them {more}", units::plural(runs, "sorted run"))
            },
            pieces: runs,
            factors,
            merge_factor,
            passes,
            peak_disk_bytes: disk.peak_bytes,
            disk,
            remark: "works on any input, keeps the order of equals".into(),
        }
    }

    fn distribute(&self) -> Way {
        let (data, (sorting, merging)) = (self.data(), self.load_rates());
        let wanted = part_count(data, self.shares.part);
        let parts = wanted.min(self.shares.fan_out);
        let switches = self.split_switches(parts);
        let both = Moved { read_bytes: data, written_bytes: data, ..Moved::default() };
        let split = Moved { switches, inputs: self.inputs, outputs: parts, ..both };
        let splitting = self.host.rates.split_bytes_per_s;
        let mut split = self.pass("split", split, &[(data, splitting), self.memory()]);
        self.read_elsewhere(&mut split, Side::Outputs);
        let mut passes = vec![split];
        let work = [(data, sorting), (data, if self.groups_parts { splitting } else { merging })];
        let mut factors = vec![parts];
        let by_runs = if parts == wanted { "" } else { " by runs and merges" };
        if parts == wanted {
            let sort = Moved { switches: 2 * parts, inputs: 1, outputs: 1, times: parts, ..both };
            passes.push(self.pass("sort parts", sort, &work));
        } else {
            // What is larger than memory is sorted like an input of its own.
            let runs = (data / parts).div_ceil(self.shares.load.max(1)).max(1);
            let form = Moved { switches: 2 * runs * parts, inputs: 1, outputs: runs, times: parts, ..both };
            passes.push(self.pass("form runs", form, &work));
            let bytes = data / parts;
            let merges =
                self.merges(&Merging { files: runs, bytes, kept: bytes, times: parts, all_first: false });
            factors.extend(merges.factors());
            passes.extend(merges.passes);
        }
        let disk = self.disk.parts(data, parts, self.shares.part);
        Way {
            method: "distribute".into(),
            summary: format!("split into {} by key, then sort each{by_runs}", units::plural(parts, "part")),
            pieces: parts,
            factors,
            merge_factor: None,
            passes,
            peak_disk_bytes: disk.peak_bytes,
            disk,
            remark: "needs a sample of the keys".into(),
        }
    }

    /// Switches of dealing all data out to `parts`: in the runs of A2 where those are wanted, else one for each
    /// block, which is written when it is full.
    fn split_switches(&self, parts: u64) -> u64 {
        let (data, block) = (self.data() as f64, self.shares.block.max(1) as f64);
        if !self.volume.wants_runs((parts + 1) as f64) {
            return (data / block) as u64;
        }
        let scheme = Scheme::best_of(Shape::moving(1, parts.max(1) as u32, data, data), Algorithm::A2);
        let memory = long_run_bytes(self.shares.streams) as f64;
        let run = scheme.map_or(block, |scheme| scheme.run_length(memory)).max(block);
        (2.0 * data / run).max((parts + 1) as f64) as u64
    }

    /// The factor that merges keep to; none: whatever memory holds.
    fn set_factor(&self, merges: &Merges) -> Option<u64> {
        Some(merges.factor).filter(|&factor| factor < self.shares.fan_in && !merges.levels.is_empty())
    }

    fn at_a_time(&self, merges: &Merges) -> String {
        self.set_factor(merges).map_or(String::new(), |factor| format!(", {factor} at a time"))
    }

    /// The best way to merge.
    fn merges(&self, what: &Merging) -> Merges {
        let most = self.shares.fan_in.max(2);
        let best = self.merges_by(what, most);
        if !self.volume.wants_runs((what.files.min(most) + 1) as f64) {
            return best;
        }
        let factors = self.factors(what, most);
        factors
            .into_iter()
            .map(|factor| self.merges_by(what, factor))
            .fold(best, |best, next| if next.seconds() < best.seconds() { next } else { best })
    }

    /// Factors below `most` that may be best.
    fn factors(&self, what: &Merging, most: u64) -> Vec<u64> {
        let files = what.files;
        let mut factors: Vec<u64> = (2..=MOST_PASSES)
            .map(|passes| (files as f64).powf(1.0 / f64::from(passes)).ceil() as u64)
            .collect();
        if files <= MOST_SEARCHED {
            let cost = |shape: &Shape, read: f64, written: f64| {
                let inputs = u64::from(shape.inputs);
                if inputs > most {
                    return f64::INFINITY;
                }
                self.merge_pass("merge", (inputs, 1), (read as u64, written as u64), 1).seconds()
            };
            let found = multipass::merge(files as u32, &|_| what.bytes as f64, &cost);
            factors.extend(found.iter().flat_map(multipass::Passes::factors).map(u64::from));
        }
        factors.retain(|factor| (2..most).contains(factor));
        factors.sort_unstable();
        factors.dedup();
        factors
    }

    /// Merges of no more than `factor` files at once.
    fn merges_by(&self, what: &Merging, factor: u64) -> Merges {
        let (levels, left) = levels(what, factor);
        let mut passes: Vec<PassPlan> = levels
            .iter()
            .enumerate()
            .map(|(level, &Level { merges, files, bytes, .. })| {
                let name = if level == 0 { "merge some" } else { "merge some again" };
                let bytes = bytes * what.times;
                self.merge_pass(name, (files, merges), (bytes, bytes), merges * what.times)
            })
            .collect();
        let last = (what.bytes * what.times, what.kept * what.times);
        passes.push(self.merge_pass("merge", (left, 1), last, what.times));
        Merges { factor, passes, levels, left }
    }

    /// A pass that merges so many files at a time, `times` in all.
    fn merge_pass(
        &self,
        name: &str,
        (inputs, outputs): (u64, u64),
        (read_bytes, written_bytes): (u64, u64),
        times: u64,
    ) -> PassPlan {
        let (block, read, all) =
            (self.shares.block.max(1) as f64, read_bytes as f64, read_bytes as f64 + written_bytes as f64);
        let switches = if self.volume.wants_runs((inputs + 1) as f64) {
            let shape = Shape::moving(inputs.max(1) as u32, 1, read, written_bytes as f64);
            let scheme = Scheme::best_of(shape, Algorithm::A4);
            let run = scheme.map_or(block, |scheme| scheme.run_length(self.shares.streams as f64));
            // However short the memory, what is moved at once is a block.
            (all / run.max(block)).max((times * (inputs + 1)) as f64)
        } else {
            read / block
        };
        let moved = Moved { read_bytes, written_bytes, switches: switches as u64, inputs, outputs, times };
        self.pass(name, moved, &[(read_bytes, self.host.rates.merging_bytes_per_s(inputs as f64))])
    }
}

/// What is merged before no more than `factor` files are left, by how often it was merged before, and how
/// many are left.
fn levels(what: &Merging, factor: u64) -> (Vec<Level>, u64) {
    let mut levels: Vec<Level> = Vec::new();
    let mut note = |level: usize, files: u64, merges: u64, bytes: u64| {
        if levels.len() <= level {
            levels.resize(level + 1, Level { merges: 0, files: 0, bytes: 0, largest: 0 });
        }
        let this = &mut levels[level];
        this.merges += merges;
        this.files = this.files.max(files);
        this.bytes += merges * bytes;
        this.largest = this.largest.max(bytes);
    };
    let (mut left, each) = (what.files, what.bytes / what.files.max(1));
    // Alike files: how many, their bytes, and how often they were merged. What is merged is the largest so far.
    let mut queue: VecDeque<(u64, u64, usize)> = VecDeque::from([(left, each, 0)]);
    if what.all_first && left > factor {
        left = left.div_ceil(factor);
        let bytes = what.bytes / left;
        note(0, factor, left, bytes);
        queue = VecDeque::from([(left, bytes, 1)]);
    }
    while left > factor {
        let Some((count, bytes, level)) = queue.pop_front() else { break };
        let whole = (count / factor).min((left - factor) / (factor - 1));
        if whole > 0 {
            note(level, factor, whole, factor * bytes);
            queue.push_back((whole, factor * bytes, level + 1));
            if count > whole * factor {
                queue.push_front((count - whole * factor, bytes, level));
            }
            left -= whole * (factor - 1);
            continue;
        }
        queue.push_front((count, bytes, level));
        let wanted = factor.min(left - factor + 1).max(2);
        let (mut taken, mut sum, mut most) = (0, 0, level);
        while taken < wanted {
            let Some((count, bytes, level)) = queue.pop_front() else { break };
            let here = count.min(wanted - taken);
            if count > here {
                queue.push_front((count - here, bytes, level));
            }
            taken += here;
            sum += here * bytes;
            most = most.max(level);
        }
        note(most, taken, 1, sum);
        queue.push_back((1, sum, most + 1));
        left -= taken - 1;
    }
    (levels, left)
}

/// Of `streams_bytes` of memory, what parts that are written in long runs get; the rest is for what is read.
pub fn long_run_bytes(streams_bytes: u64) -> u64 {
    streams_bytes - streams_bytes / 4
}

/// Parts such that even an unlucky one is no larger than `part_bytes`.
pub fn part_count(data_bytes: u64, part_bytes: u64) -> u64 {
    (u128::from(data_bytes) * 4 / 3).div_ceil(u128::from(part_bytes.max(1))).clamp(2, u128::from(u64::MAX))
        as u64
}

#[cfg(test)]
mod tests;
