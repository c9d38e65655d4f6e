//! Plans a merge, a split or a reshape of files that need not exist, as the job would be planned (`ascot plan`).

use ascot_bowtie::simulate::best_scheme;
use ascot_model::multipass::Pass;
use ascot_model::passes_plan::{PassFigures, PassModel};
use ascot_model::plan::PassPlan;
use ascot_model::run_length::{Algorithm, Baseline, Scheme, Shape};
use ascot_model::volume::VolumeProfile;

use crate::api::{Input, Result, SortError, SortRequest};
use crate::methods::{plan_reshape_by, reshape_buffers};
use crate::plan::{
    Ahead, Budget, Buffers, budget_of, equal_parts_switches, max_parts, merge_buffers, merge_fan_in,
    part_block, plan_ahead, scheduled_switches,
};

/// Bytes of a record, where a plan needs some.
const RECORD_BYTES: f64 = 100.0;

/// A job on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesJob {
    /// A merge of sorted files into one, or into several one after the other.
    Merge {
        /// Number of sorted files.
        inputs: u32,
    },
    /// A split of one file by key.
    Split {
        /// Number of parts.
        outputs: u32,
    },
    /// A merge of sorted files into several at once, by the route of the request.
    Route {
        /// Number of sorted files.
        inputs: u32,
    },
}

/// The passes of a job on files, and the alternatives to them.
pub(crate) struct FilesPlan {
    /// Its passes.
    pub(crate) passes: Vec<PassPlan>,
    /// Memory of its streams, bytes.
    pub(crate) stream_bytes: u64,
    /// Maximum number of streams of a pass.
    pub(crate) max_streams: u32,
    /// Files that a merge writes one after another.
    outputs_in_turn: u32,
    volume: VolumeProfile,
    budget: Budget,
    merged: Buffers,
    routed: Buffers,
}

/// Plans a job on `input_bytes` bytes. `request` says how much memory it has, and its output the files of a route.
///
/// # Errors
/// A request that does not fit in memory.
pub(crate) fn plan_files(request: &SortRequest, job: FilesJob, input_bytes: u64) -> Result<FilesPlan> {
    let budget = budget_of(request, Some(input_bytes))?;
    let record_bytes = Some(RECORD_BYTES as usize);
    let inputs = if let FilesJob::Merge { inputs } | FilesJob::Route { inputs } = job { inputs } else { 1 };
    // A job knows the number of its inputs by their names.
    let request = &SortRequest { inputs: vec![Input::Stdin; inputs as usize], ..request.clone() };
    let plan = |what| plan_ahead(request, input_bytes, RECORD_BYTES, what);
    let merged = merge_buffers(&budget, request, inputs.into(), record_bytes);
    let routed = reshape_buffers(request, &budget, record_bytes);
    let stream_bytes = budget.streams() as u64;
    let (plan, stream_bytes, streams) = match job {
        FilesJob::Merge { inputs } => {
            (plan(Ahead::Merge(inputs))?, stream_bytes, merge_fan_in(&budget, request) + 1)
        }
        FilesJob::Split { outputs } => {
            let streams = max_parts(&budget, outputs as usize) + 1;
            (plan(Ahead::Split(outputs))?, budget.split_in_long_runs(record_bytes) as u64, streams)
        }
        FilesJob::Route { inputs } => {
            let outputs = request.output.parts_held();
            let blocks = budget.streams() / budget.block.max(1);
            if inputs as usize + 2 * outputs > blocks {
                return Err(SortError::Request(format!(
                    "{inputs} inputs and {outputs} outputs at once need more memory: {blocks} blocks are there, and \
                     an input needs one, an output two\n  allow more memory, or merge some inputs first"
                )));
            }
            let merging = plan(Ahead::Merge(inputs))?;
            (plan_reshape_by(merging, request, &budget, record_bytes), stream_bytes, blocks)
        }
    };
    let merges = matches!(job, FilesJob::Merge { .. });
    let outputs_in_turn = if merges { request.output.parts_held().max(1) as u32 } else { 1 };
    Ok(FilesPlan {
        passes: plan.chosen.passes,
        stream_bytes,
        max_streams: u32::try_from(streams).unwrap_or(u32::MAX),
        outputs_in_turn,
        volume: request.volumes.profile(),
        budget,
        merged,
        routed,
    })
}

impl FilesPlan {
    fn scheme(&self, shape: &Shape) -> Scheme {
        match (shape.inputs, shape.outputs) {
            (_, 1) => Scheme::best_of(*shape, Algorithm::A4),
            (1, _) => Scheme::best_of(*shape, Algorithm::A2),
            _ => Some(best_scheme(*shape, (self.routed.bytes / self.routed.block.max(1)) as u32)),
        }
        .unwrap_or_else(|| Scheme::best(*shape))
    }

    fn buffers(&self, shape: &Shape) -> Buffers {
        match (shape.inputs, shape.outputs) {
            (_, 1) => self.merged,
            (1, outputs) => Buffers {
                bytes: self.budget.split_in_long_runs(Some(RECORD_BYTES as usize)) as u64,
                block: part_block(&self.budget, outputs as usize)
                    .map_or(self.budget.block, |(_, block)| block) as u64,
            },
            _ => self.routed,
        }
    }
}

/// Alternatives have the figures that the job would have in these passes: by simulation, in its memory.
impl PassModel for FilesPlan {
    fn schedule(&self, shape: &Shape) -> &'static str {
        if !self.volume.wants_runs(shape.streams().into()) {
            return "blocks";
        }
        self.scheme(shape).algorithm.name()
    }

    fn beside_passes(&self) -> PassFigures {
        let switches = f64::from(self.outputs_in_turn - 1);
        PassFigures { switches, seconds: self.volume.seconds(0.0, 0.0, switches, 2.0) }
    }

    fn figures(&self, pass: &Pass, baseline: Option<Baseline>) -> PassFigures {
        let Pass { shape, bowties, read_bytes, written_bytes, .. } = *pass;
        let bytes = read_bytes + written_bytes;
        let files = f64::from(shape.streams());
        let bowties = f64::from(bowties.max(1));
        let each = (bytes / bowties) as u64;
        let block = self.budget.block as f64;
        let scheme = self.scheme(&shape);
        let buffers = self.buffers(&shape);
        // The file on the other side of a merge or a split goes on.
        let in_blocks = if shape.inputs > 1 && shape.outputs > 1 { bytes } else { read_bytes } / block;
        let wants_runs = self.volume.wants_runs(files);
        let runs = match baseline {
            Some(Baseline::FixedBlocks { bytes: request }) => bytes / request,
            Some(Baseline::EqualParts) => bowties * equal_parts_switches(&scheme, buffers, each) as f64,
            None if wants_runs => bowties * scheduled_switches(&scheme, buffers, each) as f64,
            None => in_blocks,
        };
        let switches = self.volume.switches(bytes, runs.max(bowties * files));
        // Where switches cost little, they cost the time of a request, and requests are blocks in any order.
        let paid = if wants_runs { switches } else { switches.max(in_blocks) };
        // Streams with parts of memory are read and written in turns.
        let takes_turns = baseline == Some(Baseline::EqualParts);
        let duplex_bytes_per_s = self.volume.duplex_bytes_per_s.filter(|_| !takes_turns);
        let volume = VolumeProfile { duplex_bytes_per_s, ..self.volume.clone() };
        let seconds = volume.seconds(read_bytes, written_bytes, paid, files)
            + volume.seconds_of((bytes / block) as u64, 0);
        PassFigures { switches, seconds }
    }
}
