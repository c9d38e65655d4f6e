//! Describes a job for the model ([`RecordJob`]), from a request and its inputs or assumptions about them. The model
//! costs the methods and makes the plan.
//!
//! The files of a pass are moved in the long runs of the published schedules if switches are expensive on their volume;
//! otherwise block by block, in the order of need, which never waits. A volume that was not measured counts as flash.
//!
//! Inputs that look sorted by a few samples are sorted by runs and merges, which writes little of them.

use ascot_io::ahead_bytes;
use ascot_model::checkpoints::merge_checkpoint_bytes;
use ascot_model::disk_use::DiskUse;
use ascot_model::host::{HostProfile, RecordClass, RecordKind};
use ascot_model::plan::{MethodPlan, PassPlan, Plan};
pub use ascot_model::sort_plan::part_count;
use ascot_model::sort_plan::{HeldParts, Methods, RecordJob, Shares, SplitShape};
use ascot_model::volume::VolumeProfile;
use ascot_record::layout::Layout;

use crate::api::{Keys, Method, Output, Result, SortError, SortRequest, SplitBy};
use crate::plan::budget::{
    BLOCK_FACTS_BYTES, Budget, ChunkShare, MergeShare, default_memory, intermediate_block, max_intermediates,
    max_parts, merge_fan_in, part_block, too_little,
};
use crate::plan::lengths::{Lengths, padded, padded_apart};
use crate::plan::long_runs::inputs_want_runs;
use crate::plan::simulated::{Buffers, count_switches};
use crate::read::{Inputs, PART_AHEAD_BLOCKS, carry_bytes, filled_bytes};
use crate::records::{AnyRecords, InputHead, Records, with_records};
use crate::resources::{HELD_FREE_CHUNKS, descriptors};

/// Parts of a distribution are sorted in 1, 2, ... of this many shares of the memory, beside records held in the
/// others.
const PART_MEMORY_SHARES: usize = 64;
/// Inverse of the smallest share of the memory of the last merge that blocks have beside the facts about all of them.
const LEAST_SHARE_OF_BLOCKS: usize = 4;
/// Assumed length of a record if nothing is known, bytes.
pub const ASSUMED_RECORD_BYTES: f64 = 64.0;

/// The known facts about inputs before their records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of records; none if an input is a pipe.
    pub bytes: Option<u64>,
    /// Whether all are files, which can be read at any offset.
    pub are_files: bool,
    /// Number of inputs.
    pub inputs: u64,
}

impl From<&Inputs> for Extent {
    fn from(inputs: &Inputs) -> Extent {
        Extent {
            bytes: inputs.record_bytes(),
            are_files: inputs.are_files(),
            inputs: inputs.iter().count() as u64,
        }
    }
}

/// The budget of a request for `data_bytes` of records.
pub fn budget_of(request: &SortRequest, data_bytes: Option<u64>) -> Result<Budget> {
    let memory = request.memory_bytes.unwrap_or_else(default_memory);
    let threads =
        request.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let long_runs = request.volumes.wants_runs(2);
    let budget = Budget::new(memory, threads, data_bytes, long_runs)?;
    Ok(budget.with_run_buffers(&request.volumes, data_bytes.is_some()).with_codecs(request))
}

/// Whether the records of a request can be distributed to parts if all inputs are files: their keys can be sampled, and
/// all are wanted.
fn may_distribute(request: &SortRequest) -> bool {
    request.method != Method::Merge
        && !request.merge_only
        && request.top.is_none()
        && !matches!(request.layout, Layout::Prefixed { .. })
}

/// The budget of a sort of `data_bytes` of records, if all of them are wanted and none is sorted before.
pub fn sort_budget_of(request: &SortRequest, data_bytes: Option<u64>) -> Result<Budget> {
    let budget = budget_of(request, data_bytes)?;
    let sorted =
        data_bytes.filter(|_| !request.merge_only && request.top.is_none() && request.route.is_none());
    Ok(sorted.map_or(budget, |bytes| budget.with_blocks_for(bytes)).with_codecs(request))
}

/// The facts about a job by which it is planned.
struct Facts<'a, R> {
    request: &'a SortRequest,
    extent: Extent,
    budget: &'a Budget,
    /// Mean length of a record, bytes.
    record_bytes: f64,
    lengths: &'a Lengths,
    records: &'a R,
    /// Number of files of the output; 0 for a pipe or a device.
    output_files: u64,
    /// Whether the output is files, standard output among them.
    to_files: bool,
    volume: VolumeProfile,
    host: HostProfile,
    /// Whether the last merge may take records from memory.
    holds: bool,
}

impl<'a, R: Records> Facts<'a, R> {
    fn new(
        request: &'a SortRequest,
        extent: Extent,
        budget: &'a Budget,
        lengths: &'a Lengths,
        records: &'a R,
    ) -> Self {
        let fixed_bytes = records.record_bytes().map(|bytes| bytes as f64);
        let record_bytes = fixed_bytes.or(lengths.mean_bytes).unwrap_or(ASSUMED_RECORD_BYTES);
        let host = host_of(request, record_bytes, budget.threads).within(budget.memory as u64);
        let volume = request.volumes.profile();
        Facts {
            request,
            extent,
            budget,
            record_bytes,
            lengths,
            records,
            output_files: request.output.files(),
            to_files: request.output.writes_files(),
            volume,
            host,
            holds: true,
        }
    }

    /// The description of the job for the model.
    fn job(&self, in_order: bool) -> RecordJob<'_> {
        let budget = self.budget;
        let scratch = |bytes| self.records.scratch_bytes(bytes);
        let chunks = budget.chunks(&scratch);
        let filled = self.filled_bytes(&chunks);
        let held_chunks = chunks.count.saturating_sub(HELD_FREE_CHUNKS);
        let held = if self.holds { filled * held_chunks } else { 0 };
        let sorted_apart = budget.memory.saturating_sub(PART_AHEAD_BLOCKS * budget.block);
        let of_parts = Budget { memory: sorted_apart, ..*budget }.chunks(&scratch);
        let streams = budget.streams();
        let open = descriptors().saturating_sub(self.request.output.parts_held());
        let batch = self.request.batch_size.unwrap_or(usize::MAX);
        let [fan_in, last_fan_in] = self.fan_ins().map(|fan_in| fan_in.min(open).min(batch).max(2) as u64);
        RecordJob {
            input_bytes: self.extent.bytes,
            record_bytes: self.record_bytes,
            top: self.request.top,
            inputs: self.extent.inputs,
            in_order,
            groups_parts: self.records.groups_parts(),
            memory_bytes: budget.memory as u64,
            shares: Shares {
                all: (filled * held_chunks) as u64,
                held: held as u64,
                beside_held: streams.saturating_sub(chunks.bytes * held_chunks) as u64,
                chunk: filled as u64,
                chunk_memory: chunks.bytes as u64,
                load: self.run_bytes(),
                part: (of_parts.bytes * of_parts.part_buffer()) as u64,
                fan_in,
                last_fan_in,
                fan_out: (streams / 2 / (2 * budget.block)).min(open).max(2) as u64,
                streams: self.merge_bytes() as u64,
                parts: budget.distribution_in_long_runs() as u64,
                block: budget.block as u64,
            },
            held_parts: self.held_parts(),
            disk: self.disk(),
            to_files: self.to_files,
            volume: &self.volume,
            input_volume: self.request.volumes.input_volume.as_ref(),
            host: &self.host,
        }
    }

    /// Memory for the blocks of the parts of a distribution in long runs whose plan has so many splits.
    fn distribution_in_long_runs(&self, splits: usize) -> usize {
        let record_bytes = self.records.record_bytes();
        if splits == 1 && self.budget.splits_alone(record_bytes) {
            return self.budget.split_in_long_runs(record_bytes);
        }
        self.budget.distribution_in_long_runs()
    }

    /// Number of runs that memory allows to merge at once, early and at last, as the job counts them. Early merges have
    /// the facts about the blocks of their runs in memory, the last merge has those of all runs.
    fn fan_ins(&self) -> [usize; 2] {
        let run_bytes = self.run_bytes();
        let memory = self.merge_bytes();
        let block = self.budget.block;
        let of_early_merges = memory / (2 * block + self.facts_bytes(run_bytes));
        [of_early_merges, memory.saturating_sub(self.all_facts_bytes(run_bytes)) / (2 * block)]
    }

    /// Memory of a merge: of the blocks of its runs, and of the facts about all blocks.
    fn merge_bytes(&self) -> usize {
        self.budget.streams().saturating_sub(self.budget.output_blocks * self.budget.block)
    }

    /// Memory for the facts about the blocks of all runs of `run_bytes` each.
    fn all_facts_bytes(&self, run_bytes: u64) -> usize {
        let bytes = self.extent.bytes.unwrap_or(0);
        let kept = |top: u64| {
            bytes.div_ceil(run_bytes.max(1)).saturating_mul((top as f64 * self.record_bytes) as u64)
        };
        self.facts_bytes(self.request.top.map_or(bytes, |top| bytes.min(kept(top))))
    }

    /// Memory for the facts about the blocks of runs of `bytes`.
    fn facts_bytes(&self, bytes: u64) -> usize {
        (bytes as f64 * self.packing() / self.budget.block as f64) as usize * BLOCK_FACTS_BYTES
    }

    /// Whether the facts about the blocks of all runs leave at least `left / of` of the memory of the last merge to
    /// blocks.
    fn leaves(&self, left: usize, of: usize) -> bool {
        self.all_facts_bytes(self.run_bytes()) <= self.merge_bytes() / of * (of - left)
    }

    /// Bytes of the records of a run.
    fn run_bytes(&self) -> u64 {
        let chunks = self.budget.chunks(&|bytes| self.records.scratch_bytes(bytes));
        (self.filled_bytes(&chunks) * chunks.run_buffer()) as u64
    }

    /// An error if memory is too small for the last merge of a plan that merges. It names the smallest that suffices.
    fn check_merge_memory(&self, plan: &Plan) -> Result<()> {
        if plan.chosen.method != "merge" || self.leaves(1, LEAST_SHARE_OF_BLOCKS) {
            return Ok(());
        }
        let mut memory = self.budget.memory as u64;
        loop {
            memory = (memory + memory / 16).next_multiple_of(1 << 20);
            let request = SortRequest { memory_bytes: Some(memory), ..self.request.clone() };
            let budget = sort_budget_of(&request, self.extent.bytes)?;
            let facts = Facts::new(&request, self.extent, &budget, self.lengths, self.records);
            if facts.leaves(1, LEAST_SHARE_OF_BLOCKS) {
                return Err(too_little(self.budget.memory as u64, memory));
            }
        }
    }

    /// Bytes of records of a chunk.
    fn filled_bytes(&self, chunks: &ChunkShare) -> usize {
        filled_bytes(chunks.bytes, self.records)
    }

    /// Ways to hold the end of the input beside the parts of a distribution. Each leaves another share of the memory
    /// for sorting parts.
    fn held_parts(&self) -> Vec<HeldParts> {
        if !self.holds || !self.extent.are_files {
            return Vec::new();
        }
        let scratch = |bytes| self.records.scratch_bytes(bytes);
        let chunks = self.budget.chunks(&scratch);
        // A record that is cut and too long for the next chunk takes memory of its own: how much is not known.
        if self.lengths.mean_cut_bytes() > carry_bytes(chunks.bytes, self.records.record_bytes()) {
            return Vec::new();
        }
        let filled = self.filled_bytes(&chunks);
        let most = chunks.count.saturating_sub(HELD_FREE_CHUNKS);
        let count_of =
            |share: usize| most.min(chunks.count - (chunks.count * share).div_ceil(PART_MEMORY_SHARES));
        let beside = |count: usize| {
            let apart = count * chunks.bytes + PART_AHEAD_BLOCKS * self.budget.block;
            let left =
                Budget { memory: self.budget.memory.saturating_sub(apart), ..*self.budget }.chunks(&scratch);
            let part = (left.bytes * left.part_buffer()) as u64;
            // The last chunk is not full.
            let held = count.saturating_sub(1) * filled;
            (left.can_sort() && held > 0).then_some(HeldParts { held: held as u64, part })
        };
        (1..PART_MEMORY_SHARES).map(count_of).filter_map(beside).collect()
    }

    /// Bytes of spills per byte of records.
    fn packing(&self) -> f64 {
        let block = self.budget.block;
        if !self.lengths.first.is_empty() {
            return self.lengths.packing(block);
        }
        match self.records.record_bytes().unwrap_or(self.record_bytes.max(1.0) as usize) {
            len if len > block => padded_apart(len, block) as f64 / len as f64,
            len if self.records.record_bytes().is_some() => {
                let filled = block / len * len;
                padded(filled) as f64 / filled as f64
            }
            // The end of a block stays empty if the next record does not fit.
            len => block as f64 / (block - len).max(block / 2) as f64,
        }
    }

    /// Its disk use beside its records.
    fn disk(&self) -> DiskUse {
        let budget = self.budget;
        DiskUse {
            ahead_bytes,
            step_bytes: merge_checkpoint_bytes,
            memory_bytes: budget.memory as u64,
            packing: self.packing(),
            output_files: self.output_files,
            header_bytes: self.lengths.header_bytes,
            tasks: 2 * budget.threads as u64,
            block: budget.block as u64,
        }
    }

    fn sort(&self, method: Method, in_order: bool) -> Result<Plan> {
        let distribute = match method {
            Method::Auto => self.extent.are_files && may_distribute(self.request),
            Method::Distribute => true,
            Method::Merge => false,
        };
        let methods = Methods {
            // A last merge with few blocks takes many merges before it.
            merge: method == Method::Merge || (method == Method::Auto && (!distribute || self.leaves(1, 2))),
            distribute,
            forced: method != Method::Auto,
        };
        let job = self.job(in_order);
        let mut plan = job.sort(methods).ok_or(SortError::Internal("a sort without a method"))?;
        let budget = self.budget;
        let block_of =
            |pass: &PassPlan| intermediate_block(budget.block, pass.outputs as usize, budget.streams());
        // A merge opens its runs with all memory that the facts about their blocks leave.
        let merged = |pass: &PassPlan, held| {
            let facts = self.facts_bytes(pass.read_bytes / pass.times.max(1));
            (budget.streams().saturating_sub(facts) as u64).saturating_sub(job.shares.memory_of(held))
        };
        for method in plan.methods_mut() {
            let bytes = self.distribution_in_long_runs(method.splits().count()) as u64;
            let parts = |pass: &PassPlan| Buffers { bytes, block: block_of(pass) as u64 };
            self.count_switches(method, &merged, &parts);
            self.count_outputs(method);
        }
        Ok(plan)
    }

    /// Counts the switches of merges and splits by simulation. `merged`: bytes of the blocks of a merge beside bytes
    /// held in memory; `parts`: the buffers of the files of a split.
    fn count_switches(
        &self,
        method: &mut MethodPlan,
        merged: &dyn Fn(&PassPlan, u64) -> u64,
        parts: &dyn Fn(&PassPlan) -> Buffers,
    ) {
        let block = self.budget.block as u64;
        let merged = |pass: &PassPlan, held| Buffers { bytes: merged(pass, held), block };
        // Inputs on a volume of their own cost no switch of a split.
        let apart = self.request.volumes.input_volume.is_some();
        let parts = |pass: &PassPlan, first: bool| (!(first && apart)).then(|| parts(pass));
        count_switches(method, &self.volume, &merged, &parts);
    }

    /// Counts a switch for each file of the output after the first.
    fn count_outputs(&self, method: &mut MethodPlan) {
        if let Some(last) = method.passes.last_mut() {
            last.add_files_in_turn(self.output_files.saturating_sub(1), &self.volume);
        }
    }

    fn merge_inputs(&self) -> Plan {
        let mut job = self.job(false);
        job.shares.fan_in = merge_fan_in(self.budget, self.request) as u64;
        let record_bytes = self.records.record_bytes();
        job.shares.streams = merge_buffers(self.budget, self.request, self.extent.inputs, record_bytes).bytes;
        let mut plan = job.merge_inputs();
        if self.request.volumes.input_volume.is_none() {
            let merged = |_: &PassPlan, _| job.shares.streams;
            let parts = |_: &PassPlan| Buffers { bytes: 0, block: 0 };
            plan.methods_mut().for_each(|way| self.count_switches(way, &merged, &parts));
        }
        plan.methods_mut().for_each(|way| self.count_outputs(way));
        plan
    }

    /// Plans a split of the records by this rule into `parts` parts.
    fn split(&self, by: SplitBy, parts: u32) -> Result<Plan> {
        let budget = self.budget;
        let most = self.request.batch_size.unwrap_or(usize::MAX);
        let uneven = if self.request.boundaries.is_some() { f64::INFINITY } else { UNEVENNESS };
        let shape = SplitShape {
            parts: parts.into(),
            max_intermediates: max_intermediates(budget).min(most) as u64,
            max_parts: max_parts(budget, parts as usize).min(most) as u64,
            unevenness: uneven,
            sampled: by == SplitBy::Range && self.request.boundaries.is_none(),
            in_turn: by == SplitBy::Size,
            varying: !matches!(self.request.layout, Layout::Fixed { .. } | Layout::Number(_)),
        };
        let bytes = budget.split_in_long_runs(self.records.record_bytes()) as u64;
        let mut job = self.job(false);
        job.shares.parts = bytes;
        let block_of = |pass: &PassPlan| match pass.name.as_str() {
            "split" => part_block(budget, pass.outputs as usize).map_or(budget.block, |(_, block)| block),
            _ => intermediate_block(budget.block, pass.outputs as usize, budget.streams()),
        };
        let parts_of = |pass: &PassPlan| Buffers { bytes, block: block_of(pass) as u64 };
        let count = |way: &mut MethodPlan| self.count_switches(way, &|_, _| 0, &parts_of);
        if let Some(plan) = job.split(&shape, &count) {
            return Ok(plan);
        }
        part_block(budget, 2)?;
        // Memory suffices.
        Err(SortError::Request(format!(
            "{parts} parts need more open files than this process may have\n  raise the limit (ulimit -n), or ask \
             for fewer parts"
        )))
    }
}

/// The buffers of a merge of the `inputs` of a job.
pub(crate) fn merge_buffers(
    budget: &Budget,
    request: &SortRequest,
    inputs: u64,
    record_bytes: Option<usize>,
) -> Buffers {
    let block = budget.block;
    let streams = budget.streams().saturating_sub(budget.output_blocks * block);
    let fan_in = (merge_fan_in(budget, request) as u64).min(inputs) as usize;
    let is_last = inputs <= fan_in as u64;
    let long_runs = inputs_want_runs(&request.volumes, fan_in, !is_last || request.output.writes_files());
    let share = MergeShare::new(streams, block, fan_in, record_bytes, long_runs);
    let bytes = share.blocks(streams, block) * (block - share.carry_bytes);
    Buffers { bytes: bytes as u64, block: block as u64 }
}

/// Expected size of the largest intermediate file of a split, as a share of the mean.
const UNEVENNESS: f64 = 1.125;

/// The host with `threads` threads for the records of a request, which have about `record_bytes` bytes.
pub(crate) fn host_of(request: &SortRequest, record_bytes: f64, threads: usize) -> HostProfile {
    let kind = kind_of(request, record_bytes);
    match &request.volumes.host {
        Some(measured) => HostProfile { threads, ..measured.profile(kind) },
        None => HostProfile::assumed(threads, kind),
    }
}

/// The kind of the records of a request, which have about `bytes` bytes.
fn kind_of(request: &SortRequest, bytes: f64) -> RecordKind {
    let class = match (request.layout, &request.keys) {
        (Layout::Number(_), _) => RecordClass::Number,
        (_, Keys::Ranges(ranges)) if ranges.len() <= 1 => RecordClass::Fixed,
        (Layout::Lines { .. }, Keys::Command(options)) if options.is_whole_body() => RecordClass::Line,
        _ => RecordClass::Computed,
    };
    let keys = match &request.keys {
        Keys::Command(options) => options.keys.len(),
        Keys::Columns(columns) => columns.len(),
        Keys::Ranges(ranges) => ranges.len(),
        Keys::Value { .. } => 1,
    };
    RecordKind { class, bytes, keys: u32::try_from(keys.max(1)).unwrap_or(u32::MAX) }
}

/// Plans a sort, or a merge of sorted inputs, for records of the given lengths. `holds`: the last merge may take
/// records from memory.
pub(crate) fn make_plan<R: Records>(
    request: &SortRequest,
    inputs: &Inputs,
    budget: &Budget,
    lengths: &Lengths,
    records: &R,
    holds: bool,
) -> Result<Plan> {
    let facts = Facts { holds, ..Facts::new(request, inputs.into(), budget, lengths, records) };
    if request.merge_only {
        return Ok(facts.merge_inputs());
    }
    let planned = facts.sort(request.method, false)?;
    let in_order = request.method == Method::Auto
        && planned.chosen.method == "distribute"
        && request.top.is_none()
        && looks_ordered(records, inputs);
    if !in_order {
        // The runs of a view are merged when it is read.
        let merges = holds || request.route.is_some();
        // Records in order make few runs, which are not written.
        let checked = if merges { facts.check_merge_memory(&planned) } else { Ok(()) };
        return checked
            .or_else(|error| if looks_ordered(records, inputs) { Ok(()) } else { Err(error) })
            .map(|()| planned);
    }
    // Records in order need not be written as runs, but would be written as parts.
    let mut merging = Plan { forced: false, ..facts.sort(Method::Merge, true)? };
    merging.others.push(MethodPlan { remark: "would move what is in order".into(), ..planned.chosen });
    Ok(merging)
}

/// Plans a split; an error if its files cannot be open at once.
pub(crate) fn plan_split<R: Records>(
    request: &SortRequest,
    inputs: &Inputs,
    budget: &Budget,
    lengths: &Lengths,
    records: &R,
    by: SplitBy,
) -> Result<Plan> {
    let Output::Parts(parts) = &request.output else {
        return Err(SortError::Internal("a split without parts"));
    };
    // A complete part stays open until all parts have their names.
    parts.check(descriptors() / 2)?;
    Facts::new(request, inputs.into(), budget, lengths, records).split(by, parts.count)
}

/// A job on files that need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// A sort of one file.
    Sort,
    /// A split of one file by key into this number of parts.
    Split(u32),
    /// A merge of this number of sorted files, into the parts of the request if it names some.
    Merge(u32),
}

/// Plans a job on `data_bytes` bytes in files that need not exist. Their records have about `record_bytes` bytes,
/// unless their layout has a fixed length. The inputs of the request are ignored; its output is one file, unless it
/// names parts.
pub fn plan_ahead(request: &SortRequest, data_bytes: u64, record_bytes: f64, what: Ahead) -> Result<Plan> {
    let budget_of = if what == Ahead::Sort { sort_budget_of } else { budget_of };
    let budget = budget_of(request, Some(data_bytes))?;
    let inputs = if let Ahead::Merge(inputs) = what { inputs.into() } else { 1 };
    let extent = Extent { bytes: Some(data_bytes), are_files: true, inputs };
    let lengths = Lengths::from_mean(Some(record_bytes), None);
    let records = AnyRecords::with_mean(request, &InputHead::default(), Some(record_bytes))?;
    with_records!(records, records => {
        let facts = Facts::new(request, extent, &budget, &lengths, &*records);
        let facts = Facts { output_files: facts.output_files.max(1), to_files: true, ..facts };
        match what {
            Ahead::Sort => {
                let plan = facts.sort(request.method, false)?;
                facts.check_merge_memory(&plan).map(|()| plan)
            }
            Ahead::Split(parts) => Facts { output_files: parts.into(), ..facts }.split(SplitBy::Hash, parts),
            Ahead::Merge(_) => Ok(facts.merge_inputs()),
        }
    })
}

/// Samples taken, and bytes of each.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: usize = 4096;
/// Keys of a sample.
const SAMPLE_KEYS: usize = 16;
/// Maximum number of samples at which a new sorted sequence begins.
const BREAKS_MAX: usize = 16;

/// Whether files look like a few sorted sequences, by the middle keys of samples spread over them.
pub fn looks_ordered<R: Records>(records: &R, inputs: &Inputs) -> bool {
    let total = inputs.record_bytes().unwrap_or(0);
    if !inputs.are_files() || total == 0 {
        return false;
    }
    let mut middles = Vec::new();
    for file in inputs.iter() {
        let size = file.size.unwrap_or(0).saturating_sub(file.start);
        let samples = SAMPLES * size / total;
        for sample in 0..samples {
            let at = records.sample_offset(size / samples * sample);
            let Ok(mut bytes) = file.sample(file.start + at, SAMPLE_BYTES) else { return false };
            middles.extend(middle_key(records, &mut bytes, at == 0));
        }
    }
    let falls = middles.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let rises = middles.windows(2).filter(|pair| pair[0] < pair[1]).count();
    middles.len() >= SAMPLES as usize / 2 && falls.min(rises) < BREAKS_MAX
}

fn middle_key<R: Records>(records: &R, bytes: &mut [u8], from_start: bool) -> Option<Vec<u8>> {
    let mut keys = Vec::new();
    records.sample_keys_within(bytes, from_start, SAMPLE_KEYS, &mut keys);
    keys.sort();
    let middle = keys.len() / 2;
    keys.into_iter().nth(middle)
}

#[cfg(test)]
mod tests;
