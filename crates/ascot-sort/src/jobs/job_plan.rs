//! Plans jobs on files that need not exist (`ascot plan`): one bowtie, the passes of a merge, split or reshape, of a
//! user's own function, or of a sort.
//!
//! ```text
//!   bowtie                         ascot-model, by the formulas
//!   merge, split, reshape          files_plan, as the job would be planned
//!     of a user's own function     ascot-model, by the formulas
//!   sort                           explanation, as the job would be planned
//! ```

use std::fmt;

use ascot_io::Compression;
use ascot_model::bowtie_plan::BowtiePlan;
use ascot_model::growth::Growth;
use ascot_model::multipass::DeviceCost;
use ascot_model::passes_plan::{FileJob, NoEnds, PassesPlan};
use ascot_model::run_length::Shape;
use ascot_model::units;
use ascot_record::layout::Layout;
use serde::Serialize;

use crate::api::{Keys, Output, Parts, Result, Route, RouteBy, SortError, SortRequest, Volumes};
use crate::jobs::explanation::SortPlan;
use crate::jobs::files_plan::{FilesJob, plan_files};

/// Bytes of the smallest blocks that are worth reading or writing.
const MIN_BLOCK_BYTES: u64 = 64 << 10;
/// Files of the smallest pass that changes their number: two at one end, one at the other.
const MIN_STREAMS: u32 = 3;
/// More than any user sorts, and little enough to count the bytes of all passes.
const MAX_SORTED_BYTES: u64 = 100_000_000_000_000_000;
/// Memory must hold this many of the longest records.
const RECORDS_OF_MEMORY: u64 = 4;
/// Length of a record of a sort unless it is given: that of the sort benchmark, bytes.
const DEFAULT_RECORD_BYTES: u64 = 100;

/// A job to plan, and its memory and volume.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// The job.
    pub job: PlannedJob,
    /// Memory of its buffers, bytes.
    pub memory_bytes: u64,
    /// Maximum number of files at once; none: as many as have two blocks in memory (of a sort: its own blocks).
    pub max_streams: Option<u32>,
    /// The volume of all files, and the processors.
    pub volumes: Volumes,
}

/// A job on files that need not exist.
#[derive(Clone, Debug)]
pub enum PlannedJob {
    /// One bowtie, for any amount of data.
    Bowtie {
        /// Input files; 0: data come from memory.
        inputs: u32,
        /// Output files; 0: data go to memory.
        outputs: u32,
        /// Bytes read as a share of all bytes read and written.
        alpha: f64,
    },
    /// The passes of a merge, a split or a reshape.
    Files(PlannedFiles),
    /// A sort.
    Sort {
        /// Bytes of all inputs.
        input_bytes: u64,
        /// The layout of its records.
        layout: Layout,
        /// The keys that order them.
        keys: Keys,
        /// Mean length of a record, bytes; none: that of the sort benchmark.
        record_bytes: Option<u64>,
    },
}

/// A job that changes the number of files.
#[derive(Clone, Debug)]
pub struct PlannedFiles {
    /// What becomes of the files.
    pub task: FilesTask,
    /// Input files; of a split, one.
    pub inputs: u32,
    /// Output files; of a merge, one.
    pub outputs: u32,
    /// Bytes of all inputs.
    pub input_bytes: u64,
    /// The bytes that a function of the user's own leaves; none: the job writes what it reads.
    pub function: Option<UserFunction>,
}

/// What becomes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesTask {
    /// n sorted files become one.
    Merge,
    /// One file becomes m.
    Split,
    /// n sorted files become m with a range of keys each.
    Reshape,
    /// n sorted files become m, chosen by a hash or by the values of a key.
    ReshapeByRoute,
}

/// The bytes that a function of the user's own leaves.
#[derive(Clone, Debug)]
pub struct UserFunction {
    /// Bytes read as a share of all bytes that move, in the pass with one file.
    pub alpha: f64,
    /// The bytes that passes leave: of a split after its one file, otherwise before the one file; none: by `alpha`.
    pub growth: Option<Growth>,
    /// The same of a reshape, after its one file.
    pub growth_out: Option<Growth>,
}

/// The plan of a job: its text is for people, its fields are for programs.
#[derive(Serialize)]
#[serde(untagged)]
pub enum JobPlan {
    /// Of one bowtie.
    Bowtie(BowtiePlan),
    /// Of the passes of a job on files.
    Passes(PassesPlan),
    /// Of a sort.
    Sort(Box<SortPlan>),
}

impl fmt::Display for JobPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobPlan::Bowtie(plan) => plan.fmt(f),
            JobPlan::Passes(plan) => plan.fmt(f),
            JobPlan::Sort(plan) => plan.fmt(f),
        }
    }
}

/// Plans a job.
///
/// # Errors
/// A request that contradicts itself, or does not fit in memory.
pub fn plan_job(request: &PlanRequest) -> Result<JobPlan> {
    match &request.job {
        PlannedJob::Bowtie { inputs, outputs, alpha } => {
            let shape = Shape::checked(*inputs, *outputs, *alpha).map_err(refused)?;
            if shape.streams() > request.streams_at_once() {
                return Err(request.too_many(shape.streams()));
            }
            let plan = BowtiePlan::new(shape, request.memory_bytes, &request.volumes.profile());
            Ok(JobPlan::Bowtie(plan))
        }
        PlannedJob::Files(files) => request.plan_of_files(files).map(JobPlan::Passes),
        PlannedJob::Sort { .. } => request.plan_of_sort().map(|plan| JobPlan::Sort(Box::new(plan))),
    }
}

/// A request that contradicts itself, in the words of `error`.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(error: impl fmt::Display) -> SortError {
    SortError::Request(error.to_string())
}

const OWN_FUNCTION: &str =
    "for a function of your own: ascot flow runs one pass; merge, split and reshape write what they read";
const IN_TURN: &str = "a reshape by range is a merge, n x 1, whose parts are written one after the other";
const ROUTED: &str = "a reshape by hash or value is n x m, in one pass: all files must fit at once";

impl FilesTask {
    fn name(self) -> &'static str {
        match self {
            FilesTask::Merge => "merge",
            FilesTask::Split => "split",
            FilesTask::Reshape | FilesTask::ReshapeByRoute => "reshape",
        }
    }
}

impl PlanRequest {
    /// Maximum number of files at once.
    fn streams_at_once(&self) -> u32 {
        let fit = self.memory_bytes / (2 * MIN_BLOCK_BYTES);
        self.max_streams.unwrap_or_else(|| u32::try_from(fit).unwrap_or(u32::MAX))
    }

    fn too_many(&self, streams: u32) -> SortError {
        SortError::Request(match self.max_streams {
            Some(max) => format!(
                "--most-streams {max} is too few: {streams} files at once are needed\n  the minimum is --most-streams \
                 {streams}"
            ),
            None => format!(
                "{streams} files at once do not fit in {}\n  the minimum is --memory {}KiB, two blocks for each",
                units::memory(self.memory_bytes),
                (u64::from(streams) * 2 * MIN_BLOCK_BYTES) >> 10
            ),
        })
    }

    /// The plan of the job, or of the passes of a user's function.
    fn plan_of_files(&self, files: &PlannedFiles) -> Result<PassesPlan> {
        let PlannedFiles { task, inputs, outputs, input_bytes, function } = files;
        if *inputs == 0 || *outputs == 0 {
            return Err(refused(NoEnds));
        }
        if let (FilesTask::Reshape | FilesTask::ReshapeByRoute, Some(function)) = (task, function) {
            let by_pass = |growth: &Option<Growth>| matches!(growth, Some(Growth::ByPass(_)));
            if by_pass(&function.growth) || by_pass(&function.growth_out) {
                return Err(SortError::Request(
                    "a reshape has passes before and after the one in the middle, and a share by pass does not say \
                     which\n  give shares by number of files, such as --growth 1:0.3,50:0.8"
                        .into(),
                ));
            }
        }
        let mut job = FileJob::moving(task.name(), *inputs, *outputs, *input_bytes as f64);
        if let Some(UserFunction { alpha, growth, growth_out }) = function {
            job = FileJob { alpha: *alpha, growth: growth.as_ref(), growth_out: growth_out.as_ref(), ..job };
        }
        let volume = self.volumes.profile();
        let cost = DeviceCost {
            volume: &volume,
            memory_bytes: self.memory_bytes as f64,
            max_streams: self.streams_at_once(),
            baseline: None,
        };
        let one_file = match task {
            FilesTask::Merge => *inputs == 1,
            FilesTask::Split => *outputs == 1,
            FilesTask::Reshape | FilesTask::ReshapeByRoute => false,
        };
        if function.is_some() || one_file {
            let passes = job.best(&cost).map_err(refused)?.ok_or_else(|| self.too_many(MIN_STREAMS))?;
            let plan = PassesPlan::new(&job, &passes, &cost, self.memory_bytes);
            let notes = if function.is_some() { vec![OWN_FUNCTION] } else { Vec::new() };
            return Ok(plan.described(job.name(), notes));
        }
        if cost.max_streams < MIN_STREAMS {
            return Err(self.too_many(MIN_STREAMS));
        }
        self.plan_as_carried_out(files, &job, &cost)
    }

    /// The plan that the job would carry out.
    fn plan_as_carried_out(
        &self,
        files: &PlannedFiles,
        job: &FileJob<'_>,
        cost: &DeviceCost<'_>,
    ) -> Result<PassesPlan> {
        let PlannedFiles { task, inputs, outputs, .. } = *files;
        let mut request =
            self.request(Layout::Fixed { len: DEFAULT_RECORD_BYTES as usize }, Keys::Ranges(Vec::new()));
        let (files_job, compared, notes) = match task {
            FilesTask::Merge => (FilesJob::Merge { inputs }, *job, Vec::new()),
            FilesTask::Split => (FilesJob::Split { outputs }, *job, Vec::new()),
            FilesTask::Reshape => {
                request.output = Output::Parts(Parts::new("{}", outputs)?);
                (FilesJob::Merge { inputs }, FileJob { what: "merge", ..*job }, vec![IN_TURN])
            }
            FilesTask::ReshapeByRoute => {
                request.output = Output::Parts(Parts::new("{}", outputs)?);
                request.route = Some(Route { by: RouteBy::Hash, keys: None });
                (FilesJob::Route { inputs }, FileJob { at_once: true, ..*job }, vec![ROUTED])
            }
        };
        let plan = plan_files(&request, files_job, files.input_bytes)?;
        let max_streams = cost.max_streams.min(plan.max_streams);
        let cost = DeviceCost { memory_bytes: plan.stream_bytes as f64, max_streams, ..cost.clone() };
        let passes = PassesPlan::of_job(&compared, &plan.passes, &cost, &plan, self.memory_bytes);
        Ok(passes.described(job.name(), notes))
    }

    fn plan_of_sort(&self) -> Result<SortPlan> {
        let PlannedJob::Sort { input_bytes, layout, keys, record_bytes } = &self.job else {
            return Err(SortError::Internal("the plan of a sort is that of another job"));
        };
        // At least the share of memory that a job needs for one record.
        if let Some(bytes) = record_bytes.filter(|bytes| *bytes > self.memory_bytes / RECORDS_OF_MEMORY) {
            return Err(SortError::Request(format!(
                "--record-bytes: a record of {} is too long for {} of memory\n  the minimum is --memory {}MiB",
                units::bytes(bytes),
                units::memory(self.memory_bytes),
                bytes.saturating_mul(RECORDS_OF_MEMORY).div_ceil(1 << 20)
            )));
        }
        if *input_bytes > MAX_SORTED_BYTES {
            return Err(SortError::Request(format!(
                "--input {} is too large\n  sorts of up to {} can be computed",
                units::bytes(*input_bytes),
                units::bytes(MAX_SORTED_BYTES)
            )));
        }
        if matches!(layout, Layout::Csv { .. }) {
            return Err(SortError::Request(
                "plan sort reads no file, so it does not know the columns of CSV\n  --format lines takes about as \
                 long; ascot sort FILE --explain plans the sort of an existing file"
                    .into(),
            ));
        }
        let mean_bytes = record_bytes.unwrap_or(DEFAULT_RECORD_BYTES) as f64;
        SortPlan::new(&self.request(*layout, keys.clone()), *input_bytes, mean_bytes)
    }

    /// The request of a job on files that need not exist.
    fn request(&self, layout: Layout, keys: Keys) -> SortRequest {
        SortRequest {
            memory_bytes: Some(self.memory_bytes),
            compression: Compression::None,
            threads: self.volumes.host.as_ref().map(|host| host.threads),
            batch_size: self.max_streams.map(|max| (max as usize).max(2)),
            volumes: self.volumes.clone(),
            ..SortRequest::new(Vec::new(), Output::Stdout, layout, keys)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(job: PlannedJob) -> PlanRequest {
        PlanRequest { job, memory_bytes: 256 << 20, max_streams: None, volumes: Volumes::for_plan(None) }
    }

    fn files(task: FilesTask, function: Option<UserFunction>) -> PlannedJob {
        PlannedJob::Files(PlannedFiles { task, inputs: 64, outputs: 32, input_bytes: 1 << 40, function })
    }

    fn sort(input_bytes: u64, record_bytes: Option<u64>) -> PlannedJob {
        PlannedJob::Sort {
            input_bytes,
            layout: Layout::LINES,
            keys: Keys::Command(Default::default()),
            record_bytes,
        }
    }

    #[test]
    fn every_job_has_a_text_for_people_and_fields_for_programs() {
        let own = || UserFunction { alpha: 0.7, growth: None, growth_out: None };
        for (job, told, field) in [
            (
                PlannedJob::Bowtie { inputs: 3, outputs: 100, alpha: 0.5 },
                "bowtie    3 x 100",
                "rate_bytes_per_s",
            ),
            (files(FilesTask::Merge, None), "job       merge 64 x 1", "seconds"),
            (files(FilesTask::Split, None), "job       split 1 x 32", "seconds"),
            (files(FilesTask::Reshape, None), IN_TURN, "seconds"),
            (files(FilesTask::ReshapeByRoute, None), ROUTED, "seconds"),
            (files(FilesTask::Merge, Some(own())), OWN_FUNCTION, "seconds"),
            (sort(1 << 40, None), "job       sort 1.10 TB", "seconds"),
        ] {
            let plan = plan_job(&request(job)).expect("it fits");
            assert!(plan.to_string().contains(told), "{plan}");
            let value = serde_json::to_value(&plan).expect("plain data");
            assert!(value[field].as_f64().is_some_and(|figure| figure > 0.0), "{field}: {value}");
        }
    }

    #[test]
    fn jobs_that_cannot_be_planned_are_refused_with_a_remedy() {
        let by_pass = UserFunction { alpha: 0.5, growth: "0.8".parse().ok(), growth_out: None };
        let without_outputs = PlannedFiles {
            task: FilesTask::Reshape,
            inputs: 9,
            outputs: 0,
            input_bytes: 1 << 30,
            function: None,
        };
        let of_bowtie = request(PlannedJob::Bowtie { inputs: 9, outputs: 9, alpha: 0.5 });
        for (request, told) in [
            (request(PlannedJob::Bowtie { inputs: 0, outputs: 0, alpha: 0.5 }), "needs streams"),
            (PlanRequest { memory_bytes: 1 << 20, ..of_bowtie.clone() }, "--memory 2304KiB"),
            (PlanRequest { max_streams: Some(4), ..of_bowtie }, "--most-streams 18"),
            (request(PlannedJob::Files(without_outputs)), "need inputs and outputs"),
            (request(files(FilesTask::Reshape, Some(by_pass))), "by number of files"),
            (request(sort(MAX_SORTED_BYTES + 1, None)), "can be computed"),
            (request(sort(1 << 30, Some(100 << 20))), "--memory 400MiB"),
        ] {
            let text = plan_job(&request).err().expect("refused").to_string();
            assert!(text.contains(told) && text.contains("\n  "), "{text}");
        }
    }
}
