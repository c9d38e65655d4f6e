//! From a request and its inputs, or what is thought of them, to the description of a job that the model
//! costs ([`RecordJob`]).

use std::sync::Arc;

use ascot_io::{PAGE_BYTES, ahead_bytes};
use ascot_model::disk_use::DiskUse;
use ascot_model::disk_use::MIN_STEP_BYTES;
use ascot_model::host::{HostProfile, KernelRates, RecordClass};
use ascot_model::plan::{MethodPlan, Plan};
pub use ascot_model::sort_plan::part_count;
use ascot_model::sort_plan::{Methods, RecordJob, Shares};
use ascot_model::volume::VolumeProfile;
use ascot_record::layout::Layout;

use crate::api::error::SortError;
use crate::api::request::{Keys, Method, Output, SortRequest, SplitBy};
use crate::plan::budget::part_block;
use crate::plan::budget::{Budget, default_memory};
use crate::plan::budget::{SPARE_SHARE, merge_fan_in};
use crate::plan::order_sample::looks_ordered;
use crate::read::inputs::{Inputs, PART_BLOCKS};
use crate::read::record_reader::gap_bytes;
use crate::records::{Head, Records, Visitor, with_records};
use crate::resources::limits::descriptors;

/// Length of a record of which nothing is known, bytes.
pub const GUESSED_RECORD_BYTES: f64 = 64.0;

/// What is known of inputs before their records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of records; none: a pipe, not known.
    pub bytes: Option<u64>,
    /// They can be read from anywhere.
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

/// The budget of a request for so many bytes of records.
pub fn budget_of(request: &SortRequest, data_bytes: Option<u64>) -> Result<Budget, SortError> {
    let memory = request.memory_bytes.unwrap_or_else(default_memory);
    let threads =
        request.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    Budget::new(memory, threads, data_bytes)
}

/// How long records are, by the first of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    /// Mean, bytes; none: not known.
    pub(crate) mean_bytes: Option<f64>,
    /// Of each of the first ones, bytes.
    first: Vec<usize>,
    /// Bytes of the header that the output begins with.
    header_bytes: u64,
}

impl Lengths {
    /// Records of which no more is known than their mean length.
    pub(crate) fn of_mean(mean_bytes: Option<f64>, header: Option<&[u8]>) -> Lengths {
        Lengths { mean_bytes, first: Vec::new(), header_bytes: header.map_or(0, <[u8]>::len) as u64 }
    }

    /// The records at the head of the input.
    pub(crate) fn of_head<R: Records>(records: &R, head: &Head) -> Lengths {
        let whole = records.cut(&head.records, usize::MAX);
        let mean_bytes = (whole.records > 0).then(|| whole.bytes as f64 / whole.records as f64);
        let (mut first, mut at) = (Vec::new(), 0);
        // Short ones leave next to nothing of a block empty.
        let varies = records.record_bytes().is_none();
        while at < whole.bytes && varies && mean_bytes.is_some_and(|mean| mean > LONG_RECORD_BYTES) {
            let len = records.cut(&head.records[at..whole.bytes], 1).bytes;
            if len == 0 {
                break;
            }
            first.push(len);
            at += len;
        }
        Lengths { first, ..Lengths::of_mean(mean_bytes, head.header.as_deref()) }
    }

    /// Bytes that blocks of `block` bytes, which hold whole records and are padded to pages, take for each byte of
    /// records: of the first ones, again and again.
    fn packing(&self, block: usize) -> f64 {
        let (mut taken, mut records, mut filled, mut blocks) = (0, 0, 0, 0);
        for &len in self.first.iter().cycle() {
            if filled + len > block {
                taken += padded(filled);
                (records, blocks, filled) = (records + filled, blocks + 1, 0);
            }
            if blocks >= PACKED_BLOCKS {
                break;
            }
            if len > block {
                taken += padded_apart(len, block);
                (records, blocks) = (records + len, blocks + len.div_ceil(block));
            } else {
                filled += len.max(1);
            }
        }
        taken as f64 / records.max(1) as f64
    }
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// Bytes of the blocks of a record longer than a block, which it has to itself.
fn padded_apart(len: usize, block: usize) -> usize {
    len / block * block + padded(len % block)
}

/// Mean length from which on each record's own counts, bytes: shorter ones leave little of a block empty.
const LONG_RECORD_BYTES: f64 = 512.0;
/// Blocks that are filled to see how well records fill blocks.
const PACKED_BLOCKS: usize = 64;

/// A job as its plan sees it.
struct Facts<'a, R> {
    request: &'a SortRequest,
    extent: Extent,
    budget: &'a Budget,
    /// Mean length of a record, bytes.
    record_bytes: f64,
    lengths: &'a Lengths,
    records: &'a R,
    /// Files that the output is; 0: a pipe or a device.
    output_files: u64,
    volume: VolumeProfile,
    host: HostProfile,
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
        let record_bytes = fixed_bytes.or(lengths.mean_bytes).unwrap_or(GUESSED_RECORD_BYTES);
        let class = class_of(request);
        let threads = budget.threads;
        let host = match &request.host {
            Some(measured) => HostProfile { threads, ..measured.profile(class, record_bytes) },
            None => {
                let rates = KernelRates::assumed(class, record_bytes);
                HostProfile { threads, rates, fresh_bytes_per_s: None }
            }
        };
        let volume = request.volume.clone().unwrap_or_else(VolumeProfile::assumed_flash);
        let output_files = output_files(&request.output);
        Facts { request, extent, budget, record_bytes, lengths, records, output_files, volume, host }
    }

    /// The job, for the model.
    fn job(&self, in_order: bool) -> RecordJob<'_> {
        let budget = self.budget;
        let scratch = |bytes| self.records.scratch_bytes(bytes);
        let pieces = budget.pieces(&scratch);
        // A piece begins with a gap for what the one before it leaves over.
        let filled = pieces.bytes - gap_bytes(pieces.bytes);
        let sorted_apart = budget.memory.saturating_sub(PART_BLOCKS * budget.block);
        let of_parts = Budget { memory: sorted_apart, ..*budget }.pieces(&scratch);
        let streams = budget.streams();
        let open = descriptors().saturating_sub(self.request.output.parts_held());
        let batch = self.request.batch_size.unwrap_or(usize::MAX);
        let fan_in = (streams / (2 * budget.block + 2048)).min(open).min(batch);
        let fan_out = (streams / 2 / (2 * budget.block)).min(open);
        RecordJob {
            input_bytes: self.extent.bytes,
            record_bytes: self.record_bytes,
            top: self.request.top,
            inputs: self.extent.inputs,
            in_order,
            groups_parts: self.records.groups_parts(),
            memory_bytes: budget.memory as u64,
            shares: Shares {
                all: (filled * (pieces.count - pieces.unsorted)) as u64,
                load: (filled * pieces.load()) as u64,
                load_pieces: pieces.load() as u64,
                part: (of_parts.bytes * of_parts.load()) as u64,
                fan_in: fan_in.max(2) as u64,
                fan_out: fan_out.max(2) as u64,
                streams: streams.saturating_sub(budget.target_blocks * budget.block) as u64,
                block: budget.block as u64,
            },
            disk: self.disk(),
            volume: &self.volume,
            input_volume: self.request.input_volume.as_ref(),
            host: &self.host,
        }
    }

    /// Bytes that spills take for each byte of records.
    fn packing(&self) -> f64 {
        let (block, mean) = (self.budget.block, self.record_bytes);
        if !self.lengths.first.is_empty() {
            return self.lengths.packing(block);
        }
        match self.records.record_bytes().unwrap_or(mean.max(1.0) as usize) {
            len if len > block => padded_apart(len, block) as f64 / len as f64,
            len if self.records.record_bytes().is_some() => {
                let filled = block / len * len;
                padded(filled) as f64 / filled as f64
            }
            // What a record does not fit into stays empty.
            len => block as f64 / (block - len).max(block / 2) as f64,
        }
    }

    /// What it takes of the disk beside its records.
    fn disk(&self) -> DiskUse {
        let budget = self.budget;
        DiskUse {
            ahead_bytes,
            step_bytes: checkpoint_bytes,
            memory_bytes: budget.memory as u64,
            packing: self.packing(),
            output_files: self.output_files,
            header_bytes: self.lengths.header_bytes,
            tasks: 2 * budget.threads as u64,
            block: budget.block as u64,
        }
    }

    fn sort(&self, method: Method, in_order: bool) -> Result<Plan, SortError> {
        let can_sample = self.extent.are_files
            && self.request.top.is_none()
            && !matches!(self.request.layout, Layout::Prefixed { .. });
        let methods = Methods {
            merge: method != Method::Distribute,
            distribute: method == Method::Distribute || (method == Method::Auto && can_sample),
            forced: method != Method::Auto,
        };
        self.job(in_order).sort(methods).ok_or(SortError::Internal("a sort without a way"))
    }

    fn merge_inputs(&self) -> Plan {
        let mut job = self.job(false);
        job.shares.fan_in = merge_fan_in(self.budget, self.request) as u64;
        job.shares.streams /= SPARE_SHARE as u64;
        job.merge_inputs()
    }
}

/// Files that an output is: a device or a pipe takes no room on a disk.
pub(crate) fn output_files(output: &Output) -> u64 {
    match output {
        Output::Path(path) => u64::from(std::fs::metadata(path).map_or(true, |stat| stat.is_file())),
        Output::Parts(parts) => parts.count.into(),
        Output::Stdout => 0,
    }
}

fn class_of(request: &SortRequest) -> RecordClass {
    match (request.layout, &request.keys) {
        (Layout::Number(_), _) => RecordClass::Number,
        (_, Keys::Ranges(ranges)) if ranges.len() <= 1 => RecordClass::Fixed,
        (Layout::Lines { .. }, Keys::Command(options)) if options.is_whole_body() => RecordClass::Line,
        _ => RecordClass::Computed,
    }
}

/// Plans a sort, or a merge of sorted inputs, for records as long as `lengths` says.
pub(crate) fn make_plan<R: Records>(
    request: &SortRequest,
    inputs: &Inputs,
    budget: &Budget,
    lengths: &Lengths,
    records: &R,
) -> Result<Plan, SortError> {
    let facts = Facts::new(request, inputs.into(), budget, lengths, records);
    if request.merge_only {
        return Ok(facts.merge_inputs());
    }
    let planned = facts.sort(request.method, false)?;
    let in_order = request.method == Method::Auto
        && planned.chosen.method == "distribute"
        && request.top.is_none()
        && looks_ordered(records, inputs);
    if !in_order {
        return Ok(planned);
    }
    // Runs need not be written of what is in order already; parts would be.
    let mut merging = Plan { forced: false, ..facts.sort(Method::Merge, true)? };
    merging.others.push(MethodPlan { remark: "would move what is in order".into(), ..planned.chosen });
    Ok(merging)
}

/// Plans a split into `parts` files; an error where memory has no blocks for so many side by side.
pub(crate) fn plan_split<R: Records>(
    request: &SortRequest,
    inputs: &Inputs,
    budget: &Budget,
    lengths: &Lengths,
    records: &R,
    (by, parts): (SplitBy, u32),
) -> Result<Plan, SortError> {
    if by != SplitBy::Size {
        part_block(budget, parts as usize)?;
    }
    Ok(Facts::new(request, inputs.into(), budget, lengths, records).job(false).split(parts.into()))
}

/// Plans the sort of a file that need not be there: of `data_bytes` bytes, in records of about `record_bytes`
/// each where their layout does not say. Of the request, inputs and output are not looked at.
pub fn plan_ahead(request: &SortRequest, data_bytes: u64, record_bytes: f64) -> Result<Plan, SortError> {
    let budget = budget_of(request, Some(data_bytes))?;
    with_records(request, &Head::default(), Imagining { request, budget, data_bytes, record_bytes })?
}

struct Imagining<'a> {
    request: &'a SortRequest,
    budget: Budget,
    data_bytes: u64,
    record_bytes: f64,
}

impl Visitor for Imagining<'_> {
    type Output = Result<Plan, SortError>;

    fn visit<R: Records>(self, records: Arc<R>) -> Self::Output {
        let extent = Extent { bytes: Some(self.data_bytes), are_files: true, inputs: 1 };
        let lengths = Lengths::of_mean(Some(self.record_bytes), None);
        let facts = Facts::new(self.request, extent, &self.budget, &lengths, &*records);
        // Where it will go is not asked for.
        Facts { output_files: 1, ..facts }.sort(self.request.method, false)
    }
}

/// Bytes of output after which a merge of `total` bytes within `memory` stores how far it has come and frees what it
/// has consumed; syncing so often costs little, and so little is taken twice. With more memory more is merged at
/// once, and a step that cuts a batch short makes the device wait once more.
pub fn checkpoint_bytes(total: u64, memory: u64) -> u64 {
    const SHARE: u64 = 24;
    const SHARE_OF_SMALL: u64 = 8;
    const BATCH_BYTES: u64 = 64 << 20;
    let batch = memory.max(BATCH_BYTES);
    (total / SHARE).max((total / SHARE_OF_SMALL).min(batch)).max(MIN_STEP_BYTES)
}
