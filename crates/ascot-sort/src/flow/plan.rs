//! The memory and the schedule of a flow, and the switches that it is predicted to take.
//!
//! Only files count: pipes and sockets cost no switch. The volume of a program's output is not known beforehand. It is
//! predicted from alpha, the share of reading, which the job measures while it runs.

use std::fmt;

use ascot_bowtie::schedule::{BLOCKS_PER_STREAM, PIPE_BLOCKS};
use ascot_bowtie::simulate::best_scheme;
use ascot_model::known_volume::VolumeOrigin;
use ascot_model::plan::{MethodPlan, OVERLAP, PassPlan, Plan};
use ascot_model::run_length::{Scheme, Shape};
use ascot_model::units;
use serde::Serialize;

use crate::api::{Result, Volumes};
use crate::flow::ends::{input_bytes, is_file};
use crate::flow::request::{FlowFunction, FlowRequest};
use crate::plan::{Buffers, MIN_MEMORY_BYTES, default_memory, scheduled_switches, too_little};

/// Bytes of the buffer between a pipe and the engine, or between two pipes.
pub(super) const RELAY_BYTES: usize = 64 << 10;
/// Smallest and largest block.
const BLOCK_BYTES_MIN: usize = 32 << 10;
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Blocks of a pipe that is merged.
const BLOCKS_OF_PIPE: usize = PIPE_BLOCKS as usize;
/// Blocks of a stream where switches cost little: more memory would not be faster.
const BLOCKS_WITHOUT_RUNS: usize = 16;

/// The memory and the schedule of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Files and the share of reading to begin with.
    pub(super) shape: Shape,
    /// Pipes and sockets.
    pub(super) pipes: usize,
    /// Pipes and sockets that are merged.
    pub(super) merged_pipes: usize,
    /// The memory cap, bytes.
    pub(super) memory: usize,
    /// Bytes of a block.
    pub(super) block: usize,
    /// Number of blocks.
    pub(super) blocks: usize,
    /// Whether files are moved in long runs.
    pub(super) long_runs: bool,
    /// The scheme to begin with, if files are moved in long runs.
    pub(super) scheme: Option<Scheme>,
}

impl Layout {
    /// Divides memory among the streams of a request.
    pub(super) fn new(request: &FlowRequest) -> Result<Layout> {
        let memory = request.sort.memory_bytes.unwrap_or_else(default_memory);
        let all_inputs = request.sort.inputs.len();
        let inputs = request.sort.inputs.iter().filter(|input| input_bytes(input).is_some()).count();
        let outputs = request.outputs.iter().filter(|output| is_file(output)).count();
        let streams = inputs + outputs;
        let pipes = all_inputs + request.outputs.len() - streams;
        let merged_pipes = if request.merged { all_inputs - inputs } else { 0 };
        let links = (pipes - merged_pipes + 1 + queues(request)) * RELAY_BYTES;
        let least_blocks = 2 * streams + inputs + 1 + merged_pipes * BLOCKS_OF_PIPE;
        let min_bytes = (links + least_blocks * BLOCK_BYTES_MIN) as u64;
        if memory < min_bytes.max(MIN_MEMORY_BYTES) {
            return Err(too_little(memory, min_bytes.next_multiple_of(1 << 20).max(MIN_MEMORY_BYTES)));
        }
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let free = memory - links;
        let parts = (streams * BLOCKS_PER_STREAM as usize + merged_pipes * BLOCKS_OF_PIPE).max(1);
        let fair = (free / parts).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        let block = 1 << fair.ilog2();
        let long_runs = wants_runs(&request.sort.volumes, streams);
        let all = free / block;
        let without_runs = ((streams + merged_pipes) * BLOCKS_WITHOUT_RUNS).max(4);
        let blocks = if long_runs { all } else { all.min(without_runs) };
        // The engine counts blocks in 32 bits.
        let blocks = blocks.min(u32::MAX as usize);
        let alpha = request.first_alpha();
        let shape = Shape { inputs: inputs as u32, outputs: outputs as u32, alpha };
        let scheme = long_runs.then(|| {
            let shape = Shape::moving(shape.inputs, shape.outputs, alpha, 1.0 - alpha);
            let of_files = blocks.saturating_sub(merged_pipes * BLOCKS_OF_PIPE) as u32;
            if request.merged { best_scheme(shape, of_files) } else { Scheme::best(shape) }
        });
        Ok(Layout { shape, pipes, merged_pipes, memory, block, blocks, long_runs, scheme })
    }

    /// The switches of a flow that moves `bytes` of files.
    fn switches(&self, bytes: u64) -> u64 {
        match self.scheme {
            Some(scheme) => {
                let block = self.block as u64;
                let blocks = self.blocks.saturating_sub(self.merged_pipes * BLOCKS_OF_PIPE) as u64;
                scheduled_switches(&scheme, Buffers { bytes: blocks * block, block }, bytes)
            }
            None if self.shape.streams() == 0 => 0,
            None => bytes / self.block as u64,
        }
    }
}

/// Queues between the engine and a function in this process.
fn queues(request: &FlowRequest) -> usize {
    let inputs = if request.merged { 1 } else { request.sort.inputs.len() };
    match request.function {
        FlowFunction::Program(_) => 0,
        FlowFunction::InProcess { .. } => inputs + request.outputs.len(),
    }
}

/// Whether long runs are better for this number of files.
fn wants_runs(volumes: &Volumes, files: usize) -> bool {
    files > 1 && volumes.wants_runs(files)
}

/// The plan of a flow: one pass.
pub(super) fn plan_flow(request: &FlowRequest, layout: &Layout) -> Plan {
    let sizes: Vec<Option<u64>> = request.sort.inputs.iter().map(input_bytes).collect();
    let known = !sizes.is_empty() && sizes.iter().all(Option::is_some);
    let read_bytes: u64 = sizes.iter().flatten().sum();
    let Shape { inputs, outputs, alpha } = layout.shape;
    let written = read_bytes as f64 * (1.0 - alpha) / alpha.max(1e-3);
    let written_bytes = if outputs == 0 { 0 } else { written as u64 };
    let volume = request.sort.volumes.profile();
    let mut pass = PassPlan {
        name: "flow".into(),
        read_bytes,
        written_bytes,
        switches: 0,
        inputs: u64::from(inputs),
        outputs: u64::from(outputs),
        times: 1,
        requests: (read_bytes + written_bytes) / layout.block as u64,
        checkpoints: 0,
        device_seconds: 0.0,
        compute_seconds: 0.0,
        overlap: OVERLAP,
    };
    pass.set_switches(layout.switches(read_bytes + written_bytes), &volume);
    let by = match layout.scheme {
        None => String::new(),
        Some(scheme) => format!(" by {}{}", scheme.algorithm.name().to_uppercase(), groups(&scheme)),
    };
    let merged = if request.merged { ", whose inputs are merged into one" } else { "" };
    let chosen = MethodPlan {
        method: "flow".into(),
        summary: format!("run {} on {inputs} x {outputs} files{by}{merged}", request.name()),
        pieces: u64::from(inputs.max(1)),
        factors: Vec::new(),
        merge_factor: None,
        held_bytes: 0,
        sample: None,
        passes: vec![pass],
        peak_disk_bytes: written_bytes,
        disk: Default::default(),
        remark: String::new(),
    };
    Plan {
        input_bytes: known.then_some(read_bytes),
        input_records: None,
        memory_bytes: layout.memory as u64,
        threads: 1,
        volume,
        chosen,
        others: Vec::new(),
        forced: false,
    }
}

fn groups(scheme: &Scheme) -> String {
    match (scheme.read_group, scheme.write_group) {
        (read, _) if read > 1.0 => format!(", inputs in groups of {read}"),
        (_, write) if write > 1.0 => format!(", outputs in groups of {write}"),
        _ => String::new(),
    }
}

/// A flow that is explained and not run.
#[derive(Clone, Debug, Serialize)]
pub struct FlowExplanation {
    /// Its plan.
    pub plan: Plan,
    /// The share of reading that it assumes.
    pub alpha: f64,
    /// Pipes and sockets among its streams.
    pub pipes: usize,
    /// Number of blocks, and bytes of a block.
    pub blocks: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// The source of the profiles of its volumes.
    #[serde(skip)]
    pub origins: Vec<VolumeOrigin>,
}

/// Explains a flow without running it.
pub fn explain_flow(request: &FlowRequest) -> Result<FlowExplanation> {
    request.check()?;
    let layout = Layout::new(request)?;
    Ok(FlowExplanation {
        plan: plan_flow(request, &layout),
        alpha: layout.shape.alpha,
        pipes: layout.pipes,
        blocks: layout.blocks,
        block_bytes: layout.block,
        origins: request.sort.volumes.origins.clone(),
    })
}

impl fmt::Display for FlowExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { chosen, volume, memory_bytes, input_bytes, .. } = &self.plan;
        let memory = units::memory(*memory_bytes);
        writeln!(
            f,
            "memory {memory}, {} blocks of {}, volume {}",
            self.blocks,
            units::memory(self.block_bytes as u64),
            volume.name
        )?;
        writeln!(f, "\n  plan     {}", chosen.summary)?;
        if !self.origins.is_empty() {
            let origins: Vec<String> = self.origins.iter().map(ToString::to_string).collect();
            writeln!(f, "  volumes  {}", origins.join("; "))?;
        }
        if self.pipes > 0 {
            writeln!(f, "  beside   pipes and sockets: {}, at no switch", self.pipes)?;
        }
        writeln!(f, "  alpha    {:.2} of the bytes are read, until it is measured", self.alpha)?;
        if input_bytes.is_none() {
            return write!(f, "  time     not known before all is read");
        }
        let read = units::bytes(chosen.read_bytes());
        let written = units::bytes(chosen.written_bytes());
        let switches = units::count(chosen.switches());
        writeln!(f, "  moves    {read} read, about {written} written, in about {switches} switches")?;
        let time = units::seconds(chosen.seconds());
        write!(f, "  time     about {time} for the volume; the program's own time is not known")
    }
}
