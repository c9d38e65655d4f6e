//! Plans a merge, a split or a reshape of files that need not exist, as the job would be planned (`ascot plan`).

use ascot_model::plan::PassPlan;
use ascot_model::sort_plan::long_run_bytes;

use crate::api::{Input, SortError, SortRequest};
use crate::methods::plan_reshape_by;
use crate::plan::{Ahead, budget_of, plan_ahead};

/// Bytes of a record, where a plan needs some.
const RECORD_BYTES: f64 = 100.0;

/// A job on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesJob {
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

/// The passes of a job, and the memory that its schedules divide.
pub struct FilesPlan {
    /// Its passes.
    pub passes: Vec<PassPlan>,
    /// Memory of its streams, bytes.
    pub stream_bytes: u64,
}

/// Plans a job on `input_bytes` bytes. `request` says how much memory it has, and its output the files of a route.
///
/// # Errors
/// A request that does not fit in memory.
pub fn plan_files(request: &SortRequest, job: FilesJob, input_bytes: u64) -> Result<FilesPlan, SortError> {
    let plan = |what| plan_ahead(request, input_bytes, RECORD_BYTES, what);
    let budget = budget_of(request, Some(input_bytes))?;
    let streams = budget.streams() as u64;
    let (plan, stream_bytes) = match job {
        FilesJob::Merge { inputs } => (plan(Ahead::Merge(inputs))?, streams),
        FilesJob::Split { outputs } => (plan(Ahead::Split(outputs))?, long_run_bytes(streams)),
        FilesJob::Route { inputs } => {
            let outputs = request.output.parts_held();
            let blocks = streams / budget.block.max(1) as u64;
            if u64::from(inputs) + 2 * outputs as u64 > blocks {
                return Err(SortError::Request(format!(
                    "{inputs} inputs and {outputs} outputs at once need more memory: {blocks} blocks are there, and \
                     an input needs one, an output two\n  allow more memory, or merge some inputs first"
                )));
            }
            let inputs_of = vec![Input::Stdin; inputs as usize];
            let request = SortRequest { inputs: inputs_of, ..request.clone() };
            let merging = plan(Ahead::Merge(inputs))?;
            (plan_reshape_by(merging, &request, &budget, Some(RECORD_BYTES as usize)), streams)
        }
    };
    Ok(FilesPlan { passes: plan.chosen.passes, stream_bytes })
}
