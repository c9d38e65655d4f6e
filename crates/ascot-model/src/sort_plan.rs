//! The methods for jobs on records, costed with their passes: to sort, to merge sorted files, and to split.
//!
//! ```text
//!   in memory    read, sort | write                                       everything fits
//!   merge        form n sorted runs | merge some of them | merge the rest and what memory still holds
//!   distribute   split 1 into m by key | sort each part in memory, with the records of it that memory still holds
//! ```
//!
//! The caller states the bytes that fit in each place ([`Shares`]). A job with open files and a job that is only
//! planned describe themselves in the same form and get the same plan.
//!
//! Runs are merged so that the last pass has at most a given fan-in; the smallest runs are merged first, and no more
//! than necessary. On a volume where a switch costs less than moving a block, such as flash, blocks are read in the
//! order of need and the fan-in is the largest that memory allows: the fewest bytes move. Where a switch costs more,
//! blocks are read in long runs, whose length falls as more files share the memory, and the fan-in is the best that
//! [`multipass`] finds.

use crate::disk_use::{DiskNeed, DiskUse, MergeUse};
use crate::host::HostProfile;
use crate::multipass;
use crate::plan::{MethodPlan, Moved, PassPlan, Plan};
use crate::run_length::{Algorithm, Scheme, Shape};
use crate::units;
use crate::volume::VolumeProfile;

mod distributions;
mod early_merges;
mod held;
mod key_sample;
mod split_shape;
mod splits;
#[cfg(test)]
mod tests;

pub use key_sample::{KEYS_PER_RANGE, MAX_READ_BYTES, SamplePlaces};

use early_merges::{EarlyPass, Merging, early_passes};
pub use split_shape::{MAX_PARTS, SplitFiles, SplitShape, files_of_passes, parts_of_files};

/// Bytes assumed for a pipe, whose size is unknown.
const ASSUMED_BYTES: u64 = 8 << 30;
/// Maximum number of files for which the best fan-in is searched exactly; for more, equal passes are tried.
const MAX_SEARCHED: u64 = 1 << 16;
/// Maximum number of passes of equal fan-in that are tried.
const MAX_PASSES: i32 = 12;
/// Inverse of the fraction of the input that is spilled at least; less would fit in memory.
const MIN_SPILLED_PART: u64 = 64;
/// A sampled part may be larger than the mean by this fraction, 1 / 8. With 512 sampled keys a part, sizes vary by 4
/// percent if keys are spread evenly.
const UNEVEN_SHARE: u64 = 8;

/// The amounts of a job that fit in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Bytes of records that fit in memory at once.
    pub all: u64,
    /// Bytes of records that memory holds besides the blocks of merged runs.
    pub held: u64,
    /// Bytes that the last merge has for blocks beside that many records: what sorting took besides.
    pub beside_held: u64,
    /// Bytes of records of a chunk, which is sorted by itself.
    pub chunk: u64,
    /// Memory of a chunk, bytes.
    pub chunk_memory: u64,
    /// Bytes of records of one run buffer.
    pub load: u64,
    /// Bytes of the largest part that is sorted without spills.
    pub part: u64,
    /// The largest fan-in of a merge.
    pub fan_in: u64,
    /// The same of the last merge, which has facts about all blocks in memory.
    pub last_fan_in: u64,
    /// The largest fan-out of a split.
    pub fan_out: u64,
    /// Bytes for the blocks of merged files.
    pub streams: u64,
    /// Bytes for the blocks of parts that are written in long runs.
    pub parts: u64,
    /// Bytes of a block.
    pub block: u64,
}

/// Records that memory holds while the parts of a distribution are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldParts {
    /// Their bytes.
    pub held: u64,
    /// Bytes of the largest part that is sorted beside them.
    pub part: u64,
}

/// A job on records: its input and its resources.
#[derive(Clone, Debug)]
pub struct RecordJob<'a> {
    /// Bytes of records; `None`: unknown, a pipe.
    pub input_bytes: Option<u64>,
    /// Mean length of a record, bytes.
    pub record_bytes: f64,
    /// Number of first records wanted; `None`: all.
    pub top: Option<u64>,
    /// Number of inputs.
    pub inputs: u64,
    /// Whether the records seem to be in order: natural runs refer to them in place.
    pub in_order: bool,
    /// Whether parts are divided into small ranges of keys that are sorted one by one: their chunks need no merge.
    pub groups_parts: bool,
    /// The memory cap, bytes.
    pub memory_bytes: u64,
    /// How memory is divided.
    pub shares: Shares,
    /// Ways to hold the end of the input in memory while the parts of a distribution are sorted.
    pub held_parts: Vec<HeldParts>,
    /// Its disk use in addition to the records.
    pub disk: DiskUse,
    /// Whether its output is files. A pipe or device costs no switch and no time of the volume.
    pub to_files: bool,
    /// The volume of all files, except inputs on a volume of their own.
    pub volume: &'a VolumeProfile,
    /// The volume of the inputs, if it is another one: reading them and writing do not disturb each other.
    pub input_volume: Option<&'a VolumeProfile>,
    /// The host that computes.
    pub host: &'a HostProfile,
}

/// The methods that a sort may use if the input does not fit in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Methods {
    /// Runs and merges; in memory if everything fits.
    pub merge: bool,
    /// Distribution into parts by key.
    pub distribute: bool,
    /// Whether the user chose.
    pub forced: bool,
}

/// The side of a pass that has many files at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Many {
    Inputs,
    Outputs,
    /// Files are read one after another, and written one after another.
    Neither,
}

fn files(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A plan to merge files into one.
struct Merges {
    /// The largest fan-in.
    fan_in: u64,
    passes: Vec<PassPlan>,
    early: Vec<EarlyPass>,
    /// Files left for the last pass.
    left: u64,
}

impl Merges {
    fn seconds(&self) -> f64 {
        self.passes.iter().map(PassPlan::seconds).sum()
    }

    fn largest(&self) -> u64 {
        self.early.iter().map(|pass| pass.largest).max().unwrap_or(0)
    }

    /// The fan-in of each pass, in order.
    fn factors(&self) -> Vec<u64> {
        self.early.iter().map(|pass| pass.files).chain([self.left]).collect()
    }
}

impl RecordJob<'_> {
    /// Plans a sort; `None` if no method is allowed.
    pub fn sort(&self, methods: Methods) -> Option<Plan> {
        let fits = self.input_bytes.is_none_or(|bytes| bytes <= self.shares.all);
        let mut plans = if fits && methods.merge {
            vec![self.in_memory()]
        } else {
            let merge = methods.merge.then(|| self.merge());
            merge.into_iter().chain(methods.distribute.then(|| self.distribute())).collect()
        };
        if self.input_bytes.is_none() {
            // The size is known only after the pipe has been read.
            for plan in &mut plans {
                plan.summary = "sort in memory if all fits, else form sorted runs and merge them".into();
                plan.remark = "a pipe: its size is not known".into();
            }
        }
        let (chosen, others) = Plan::cheapest(plans, self.volume)?;
        Some(Plan { others, forced: methods.forced, ..self.plan_of(chosen) })
    }

    /// Plans a merge of sorted inputs.
    pub fn merge_inputs(&self) -> Plan {
        let bytes = self.data();
        let kept = self.kept(bytes);
        let mut merges =
            self.merges(&Merging { files: self.inputs, all_first: true, ..self.merging(bytes, 0, kept) });
        if let Some(first) = merges.passes.first_mut() {
            self.read_elsewhere(first, Many::Inputs);
        }
        let inputs = units::plural(self.inputs, "sorted input");
        let summary = match merges.early.as_slice() {
            [] => format!("merge {inputs} in one pass"),
            [first] => format!("merge {inputs} in {} groups, then those", first.merges),
            [first, ..] => {
                format!("merge {inputs} in {} groups, then those, some of them again before", first.merges)
            }
        };
        let runs = merges.left;
        let disk = if merges.early.is_empty() {
            self.disk.output_alone(kept)
        } else {
            // The inputs themselves are not freed, only the files that they were merged into.
            let largest_group = if merges.early.len() > 1 { merges.largest() } else { 0 };
            self.disk.merging(&MergeUse { spilled: bytes, held: 0, kept, runs, at_once: runs, largest_group })
        };
        let fan_in = self.fan_in_below_max(&merges);
        let at_a_time = fan_in.map_or(String::new(), |fan_in| format!(", {fan_in} at a time"));
        self.plan_of(MethodPlan {
            pieces: self.inputs,
            factors: merges.factors(),
            merge_factor: fan_in,
            ..method("merge inputs", summary + &at_a_time, merges.passes, disk, "the inputs are sorted")
        })
    }

    /// A plan with a single method.
    fn plan_of(&self, chosen: MethodPlan) -> Plan {
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
        self.input_bytes.unwrap_or(ASSUMED_BYTES)
    }

    /// The bytes of `data` that are wanted.
    fn kept(&self, data: u64) -> u64 {
        self.top.map_or(data, |top| data.min((top as f64 * self.record_bytes) as u64))
    }

    fn pass(&self, name: &str, moved: Moved, work: &[(u64, f64)]) -> PassPlan {
        let written = if moved.outputs > 0 { moved.written_bytes } else { 0 };
        let requests = self.requests(moved.read_bytes + written);
        PassPlan::new(name, Moved { requests, ..moved }, work, self.volume, self.host)
            .within(self.memory_bytes)
    }

    /// Requests of a block each that move `bytes`.
    fn requests(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.shares.block.max(1))
    }

    /// Files of the output that the last pass writes at once: none if the output is a pipe.
    fn output_at_once(&self) -> u64 {
        u64::from(self.to_files)
    }

    /// Costs a pass that reads the inputs, if those are on a volume of their own: each side is then a separate bowtie,
    /// and the slower one counts.
    fn read_elsewhere(&self, pass: &mut PassPlan, many: Many) {
        let Some(inputs) = self.input_volume else { return };
        let read = pass.read_bytes as f64;
        let written = pass.bytes_to_files() as f64;
        let mut read_runs = pass.inputs as f64;
        let mut written_runs = if written > 0.0 { pass.outputs as f64 } else { 0.0 };
        match many {
            Many::Inputs => {
                let shape = Shape { inputs: files(pass.inputs), outputs: 0, alpha: 1.0 };
                read_runs = self.runs_alone(inputs, read, shape, self.shares.streams);
            }
            Many::Outputs => {
                let shape = Shape { inputs: 0, outputs: files(pass.outputs), alpha: 0.0 };
                let memory = self.shares.parts;
                written_runs = self.runs_alone(self.volume, written, shape, memory);
            }
            Many::Neither => {}
        }
        let read_switches = inputs.switches(read, read_runs);
        let written_switches = self.volume.switches(written, written_runs);
        let reading_s = inputs.seconds(read, 0.0, read_switches, pass.inputs as f64)
            + inputs.seconds_of(self.requests(pass.read_bytes), 0);
        let writing_s = self.volume.seconds(0.0, written, written_switches, pass.outputs as f64)
            + self.volume.seconds_of(self.requests(pass.bytes_to_files()), pass.checkpoints);
        pass.device_seconds = reading_s.max(writing_s);
        pass.switches = (read_switches + written_switches) as u64;
    }

    /// The number of runs of one side of a pass (A1 or A3) on a volume: long runs if the volume wants them, otherwise
    /// blocks.
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

    /// Bytes/s of sorting a run buffer, and of merging its chunks.
    fn load_rates(&self) -> (f64, f64) {
        let rates = &self.host.rates;
        (rates.sort_bytes_per_s, rates.merge_bytes_per_s)
    }

    fn in_memory(&self) -> MethodPlan {
        let data = self.data();
        let kept = self.kept(data);
        let (sorting, merging) = self.load_rates();
        // Files are read and written one after the other.
        let switches = self.inputs.min(data);
        let reading = Moved { read_bytes: data, switches, inputs: self.inputs, ..Moved::default() };
        let mut reading = self.pass("read and sort", reading, &[(data, sorting)]);
        self.read_elsewhere(&mut reading, Many::Neither);
        let outputs = self.output_at_once();
        let writing = Moved {
            written_bytes: kept,
            switches: kept.min(outputs),
            outputs,
            checkpoints: 1,
            ..Moved::default()
        };
        let passes = vec![reading, self.pass("write", writing, &[(kept, merging)])];
        let summary = "sort in memory, without spills".into();
        method("in memory", summary, passes, self.disk.output_alone(kept), "everything fits in memory")
    }

    /// The merge that holds `held` bytes and spills the others.
    fn merge_spilling(&self, held: u64) -> MethodPlan {
        let all = self.data();
        let data = all - held;
        let (sorting, merging) = self.load_rates();
        let runs = data.div_ceil(self.shares.load.max(1)).max(1);
        // No run needs more records than the result.
        let kept = self.kept(all);
        let spilled = data.min(runs.saturating_mul(kept));
        let written = if self.in_order { 0 } else { spilled };
        let form = Moved {
            read_bytes: all,
            written_bytes: written,
            switches: 2 * runs,
            inputs: self.inputs,
            outputs: runs,
            checkpoints: runs,
            ..Moved::default()
        };
        let files = if self.in_order { 1 } else { runs };
        let at_last = self.shares.last_fan_in;
        let merges = self.merges(&Merging { files, at_last, ..self.merging(spilled, held, kept) });
        let work = [(all, sorting), (written, merging)];
        let mut form = self.pass("form runs", form, &work);
        self.read_elsewhere(&mut form, Many::Neither);
        let factors = merges.factors();
        let merge_factor = self.fan_in_below_max(&merges);
        let passes_in_words = match (merges.early.len(), merge_factor) {
            (0, _) => "in one pass".into(),
            (early, Some(fan_in)) => format!("in {} passes, {fan_in} at a time", early + 1),
            (_, None) => {
                let early = units::plural(files - merges.left, "run");
                format!("in one pass, {early} of them in groups first")
            }
        };
        let summary = if self.in_order {
            "find what is in order and leave it where it is, sort the rest, merge them in one pass".into()
        } else {
            let held = match held {
                0 => String::new(),
                held => format!(" and {} held in memory", units::bytes(held)),
            };
            format!("form {}, then merge them{held} {passes_in_words}", units::plural(runs, "sorted run"))
        };
        let disk = self.disk.merging(&MergeUse {
            spilled: written,
            held,
            kept,
            runs: files,
            at_once: merges.left,
            largest_group: merges.largest(),
        });
        let passes = std::iter::once(form).chain(merges.passes).collect();
        let remark = "works on any input, keeps the order of equals";
        MethodPlan {
            pieces: runs,
            factors,
            merge_factor,
            held_bytes: held,
            ..method("merge", summary, passes, disk, remark)
        }
    }

    /// Merges of `bytes` in files whose number the caller sets, with one limit of the fan-in for all of them.
    fn merging(&self, bytes: u64, held: u64, kept: u64) -> Merging {
        Merging { files: 1, bytes, held, kept, times: 1, all_first: false, at_last: self.shares.fan_in }
    }

    /// The fan-in of merges, if it is smaller than memory allows.
    fn fan_in_below_max(&self, merges: &Merges) -> Option<u64> {
        Some(merges.fan_in).filter(|&fan_in| fan_in < self.shares.fan_in && !merges.early.is_empty())
    }

    /// The best merges.
    fn merges(&self, what: &Merging) -> Merges {
        let max = self.shares.fan_in.max(2);
        let widest = self.merges_by(what, max);
        if !self.volume.wants_runs((what.files.min(max) + 1) as f64) {
            return widest;
        }
        let candidates = self.fan_ins(what, max).into_iter().map(|fan_in| self.merges_by(what, fan_in));
        candidates.fold(widest, |best, next| if next.seconds() < best.seconds() { next } else { best })
    }

    /// Candidates for the best fan-in, all below `max`.
    fn fan_ins(&self, what: &Merging, max: u64) -> Vec<u64> {
        let root = |passes: i32| (what.files as f64).powf(1.0 / f64::from(passes)).ceil() as u64;
        let mut fan_ins: Vec<u64> = (2..=MAX_PASSES).map(root).collect();
        if what.files <= MAX_SEARCHED {
            let cost = |shape: &Shape, read: f64, written: f64| {
                let inputs = u64::from(shape.inputs);
                if inputs > max {
                    return f64::INFINITY;
                }
                let merge = Moved {
                    read_bytes: read as u64,
                    written_bytes: written as u64,
                    inputs,
                    outputs: 1,
                    ..Moved::default()
                };
                self.merge_pass("merge", merge, what.held).seconds()
            };
            // No merge writes more than is wanted of the result.
            let bytes_in = |left: f64| (what.bytes as f64).min(left * what.kept as f64);
            let found = multipass::merge(what.files as u32, &bytes_in, &cost);
            fan_ins.extend(found.iter().flat_map(multipass::Passes::factors).map(u64::from));
        }
        fan_ins.retain(|fan_in| (2..max).contains(fan_in));
        fan_ins.sort_unstable();
        fan_ins.dedup();
        fan_ins
    }

    /// Merges of at most `fan_in` files at once.
    fn merges_by(&self, what: &Merging, fan_in: u64) -> Merges {
        let (early, left) = early_passes(what, fan_in);
        let mut passes = Vec::with_capacity(early.len() + 1);
        let mut left_out = 0;
        for (number, pass) in early.iter().enumerate() {
            let name = if number == 0 { "merge some" } else { "merge some again" };
            let times = pass.merges * what.times;
            left_out += pass.bytes - pass.written;
            let moved = Moved {
                read_bytes: pass.bytes * what.times,
                written_bytes: pass.written * what.times,
                inputs: pass.files,
                outputs: pass.merges,
                times,
                checkpoints: times
                    * if what.all_first && number == 0 { 1 } else { self.checkpoints_of(pass) },
                ..Moved::default()
            };
            passes.push(self.merge_pass(name, moved, 0));
        }
        // A merge of inputs in one pass, or of a group of them, is not resumed within.
        let in_one_pass = what.all_first && early.is_empty();
        let of_last = self.disk.merge_checkpoints(what.kept, what.held);
        let last = Moved {
            read_bytes: what.bytes.saturating_sub(left_out) * what.times,
            written_bytes: what.kept * what.times,
            inputs: left,
            outputs: self.output_at_once(),
            times: what.times,
            checkpoints: what.times * if in_one_pass { 1 } else { of_last },
            ..Moved::default()
        };
        passes.push(self.merge_pass("merge", last, what.held));
        Merges { fan_in, passes, early, left }
    }

    /// Checkpoints of each merge of an early pass.
    fn checkpoints_of(&self, pass: &EarlyPass) -> u64 {
        self.disk.merge_checkpoints(pass.bytes / pass.merges.max(1), 0)
    }

    /// A pass that merges, and the `held` bytes in memory with the rest; its switches follow from the other figures of
    /// `moved`.
    fn merge_pass(&self, name: &str, moved: Moved, held: u64) -> PassPlan {
        let Moved { read_bytes, inputs, times, .. } = moved;
        let outputs = moved.outputs.min(1);
        let block = self.shares.block.max(1) as f64;
        let read = read_bytes as f64;
        let written = if outputs > 0 { moved.written_bytes as f64 } else { 0.0 };
        let switches = if self.volume.wants_runs((inputs + outputs) as f64) {
            let shape = Shape::moving(files(inputs.max(1)), files(outputs), read, written);
            let run =
                Scheme::of_merge(shape).map_or(block, |scheme| scheme.run_length(self.shares.streams as f64));
            // Even with little memory, a block moves as a whole.
            ((read + written) / run.max(block)).max((times * (inputs + outputs)) as f64)
        } else {
            read / block
        };
        let rate = self.host.rates.merge_runs_bytes_per_s / merge_work(inputs);
        let work = [(read_bytes + held, rate)];
        self.pass(name, Moved { switches: switches as u64, ..moved }, &work).merging()
    }
}

/// How many times as much a merge of `files` computes for a byte as the merges whose speed is measured. With more
/// files, records are compared more often, and fewer blocks are in the cache.
fn merge_work(files: u64) -> f64 {
    let doublings = (files as f64 / MEASURED_FILES).max(1.0).log2();
    1.0 + WORK_OF_DOUBLING * doublings
}

/// Files of the merges whose speed is measured, and the share by which twice as many increase the work. Fitted to forty
/// jobs.
const MEASURED_FILES: f64 = 8.0;
const WORK_OF_DOUBLING: f64 = 0.08;

/// A method on one piece, without merges.
fn method(name: &str, summary: String, passes: Vec<PassPlan>, disk: DiskNeed, remark: &str) -> MethodPlan {
    MethodPlan {
        method: name.into(),
        summary,
        pieces: 1,
        factors: Vec::new(),
        merge_factor: None,
        held_bytes: 0,
        sample: None,
        passes,
        peak_disk_bytes: disk.peak_bytes,
        disk,
        remark: remark.into(),
    }
}

/// The largest of `parts` parts expected from a sample of the keys. A job treats a larger one as if it did not fit in
/// memory, so the predicted disk use suffices for it too.
pub fn uneven_part_bytes(data_bytes: u64, parts: u64) -> u64 {
    let mean = data_bytes / parts.max(1);
    mean + mean / UNEVEN_SHARE
}

/// A number of parts such that even an unlucky one has at most `part_bytes`.
pub fn part_count(data_bytes: u64, part_bytes: u64) -> u64 {
    let parts = (u128::from(data_bytes) * 4 / 3).div_ceil(u128::from(part_bytes.max(1)));
    u64::try_from(parts).unwrap_or(u64::MAX).max(2)
}
