//! Plans of jobs whose files need not exist, simulations of bowties, and measurements of volumes.

use std::path::PathBuf;
use std::time::Instant;

use ascot_bowtie::simulate::SimulationRequest;
use ascot_device::{DEFAULT_BYTES, DEFAULT_SECONDS, ProbeRequest, SECONDS_RANGE, store_profile};
use ascot_model::growth::{BadGrowth, Growth};
use ascot_sort::jobs::probe::{ProbedProfile, probe as measure};
use ascot_sort::{
    Cancel, FilesTask, JobPlan, Observer, PlanRequest, PlannedFiles, PlannedJob, Progress, UserFunction,
    plan_job,
};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::jobs::{Shown, Told, json, methods};
use crate::request::{Bytes, RecordOptions, Records, count_of, unknown, volumes_of_plan};
use crate::running::{Finished, run, run_aside};

/// More files than any user has, and few enough to compute with.
const MAX_STREAMS: u32 = 1_000_000;
/// The memory of a plan and of a simulation unless it is given, bytes.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;

/// A job to plan, on files that need not exist.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct PlanOptions {
    /// `bowtie`, `merge`, `split`, `reshape` or `sort`.
    job: String,
    inputs: u32,
    outputs: u32,
    size: Option<Bytes>,
    /// `range`, `hash` or `value`: the file of a record of a reshape.
    by: String,
    alpha: Option<f64>,
    growth: Option<String>,
    growth_out: Option<String>,
    /// The records of a sort.
    records: Option<RecordOptions>,
    record_bytes: Option<u64>,
    memory: Option<Bytes>,
    most_streams: Option<u32>,
    volume: Option<PathBuf>,
}

impl PlanOptions {
    fn request(&self) -> Result<PlanRequest> {
        Ok(PlanRequest {
            job: self.job()?,
            memory_bytes: memory_of_plan(self.memory.as_ref())?,
            max_streams: self.most_streams,
            volumes: volumes_of_plan(self.volume.as_deref())?,
        })
    }

    fn job(&self) -> Result<PlannedJob> {
        let inputs = streams("inputs", self.inputs)?;
        let outputs = streams("outputs", self.outputs)?;
        let alpha = share(self.alpha)?;
        if self.job == "bowtie" {
            return Ok(PlannedJob::Bowtie { inputs, outputs, alpha });
        }
        let input_bytes = count_of("size", self.size.as_ref())?
            .ok_or_else(|| Failure::Request("the amount of data is missing\n  give size='8TB'".into()))?;
        let task = match (self.job.as_str(), self.by.as_str()) {
            ("sort", _) => return self.sort(input_bytes),
            ("merge", _) => FilesTask::Merge,
            ("split", _) => FilesTask::Split,
            ("reshape", "range") => FilesTask::Reshape,
            ("reshape", "hash" | "value") => FilesTask::ReshapeByRoute,
            ("reshape", other) => return Err(unknown("by", other, "range, hash, value")),
            (other, _) => return Err(unknown("job", other, "bowtie, merge, split, reshape, sort")),
        };
        let growth = growth_of("growth", self.growth.as_deref())?;
        let growth_out = growth_of("growth_out", self.growth_out.as_deref())?;
        let is_own = growth.is_some() || growth_out.is_some() || self.alpha.is_some();
        let function = is_own.then_some(UserFunction { alpha, growth, growth_out });
        Ok(PlannedJob::Files(PlannedFiles { task, inputs, outputs, input_bytes, function }))
    }

    fn sort(&self, input_bytes: u64) -> Result<PlannedJob> {
        let records = self
            .records
            .as_ref()
            .ok_or_else(|| Failure::Request("a sort needs the layout of its records".into()))?;
        if self.record_bytes == Some(0) {
            return Err(Failure::Request(
                "record_bytes=0: give the mean length of a record, such as 100".into(),
            ));
        }
        let Records { layout, keys, .. } = records.records()?;
        Ok(PlannedJob::Sort { input_bytes, layout, keys, record_bytes: self.record_bytes })
    }
}

/// The memory of a plan, which may exceed that of this machine unless it is a share of it.
fn memory_of_plan(given: Option<&Bytes>) -> Result<u64> {
    given.map_or(Ok(DEFAULT_MEMORY_BYTES), |given| given.memory("memory"))
}

fn streams(argument: &str, count: u32) -> Result<u32> {
    if count > MAX_STREAMS {
        return Err(Failure::Request(format!(
            "{argument}={count} is too large\n  the maximum is {MAX_STREAMS}"
        )));
    }
    Ok(count)
}

/// The share of bytes that is read.
fn share(alpha: Option<f64>) -> Result<f64> {
    let alpha = alpha.unwrap_or(0.5);
    if !(0.0..=1.0).contains(&alpha) {
        return Err(Failure::Request(format!("alpha={alpha} is not a number from 0 to 1\n  such as 0.5")));
    }
    Ok(alpha)
}

fn growth_of(argument: &str, text: Option<&str>) -> Result<Option<Growth>> {
    let read = |text: &str| {
        text.parse().map_err(|error: BadGrowth| {
            Failure::Request(format!(
                "{argument}: {error}\n  write 0.8 for every pass, '0.5,0.9' for the first and the others, or \
                 '1:0.3,50:0.8' for 1 and 50 files"
            ))
        })
    };
    text.map(read).transpose()
}

/// The plan of a job on files that need not exist.
#[pyfunction]
pub fn plan(py: Python<'_>, options: PlanOptions) -> PyResult<Told> {
    let request = py.detach(|| options.request())?;
    let result = run_aside(py, move || plan_job(&request))?;
    // Those of a sort have the form of the plans of existing files.
    let methods = match &result {
        JobPlan::Sort(sort) => methods(sort.plan()),
        JobPlan::Bowtie(_) | JobPlan::Passes(_) => Vec::new(),
    };
    Ok((json(&Shown { result: &result, methods })?, result.to_string(), Vec::new()))
}

/// A bowtie to simulate; what is none has its default.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct SimulationOptions {
    inputs: u32,
    outputs: u32,
    alpha: Option<f64>,
    memory: Option<Bytes>,
    block: Option<Bytes>,
    total: Option<Bytes>,
    schedule: String,
    group: Option<u64>,
    skew: String,
    seed: u64,
}

/// Runs a schedule on numbers: its report as JSON and as text, and no warnings.
#[pyfunction]
pub fn simulate(py: Python<'_>, options: SimulationOptions) -> PyResult<Told> {
    let request = options.request()?;
    let Finished { result, warnings } = run(py, None, |_, cancel| request.run_until(&cancel.flag()))?;
    Ok((json(&result)?, result.to_string(), warnings))
}

impl SimulationOptions {
    fn request(&self) -> Result<SimulationRequest> {
        Ok(SimulationRequest {
            inputs: streams("inputs", self.inputs)?,
            outputs: streams("outputs", self.outputs)?,
            alpha: share(self.alpha)?,
            memory_bytes: memory_of_plan(self.memory.as_ref())?,
            block_bytes: count_of("block", self.block.as_ref())?,
            total_bytes: count_of("total", self.total.as_ref())?,
            schedule: self.schedule.parse()?,
            group: self.group,
            skew: self.skew.parse()?,
            seed: self.seed,
        })
    }
}

/// A measurement: as JSON, as a table, as the file of a profile, the file where it is stored, and notices.
type Measured = (String, String, String, Option<PathBuf>, Vec<String>);

/// Measures the volume of `directory` and the processors, and stores the profile if `store`.
#[pyfunction]
pub fn probe(
    py: Python<'_>,
    directory: PathBuf,
    size: Option<Bytes>,
    seconds: Option<f64>,
    store: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Measured> {
    let seconds = seconds.unwrap_or(DEFAULT_SECONDS);
    let (min, max) = SECONDS_RANGE;
    if !(min..=max).contains(&seconds) {
        let fault = format!("seconds={seconds} is not a number from {min} to {max}");
        return Err(Failure::Request(format!("{fault}\n  {DEFAULT_SECONDS} is usual")).into());
    }
    let bytes = count_of("size", size.as_ref())?.unwrap_or(DEFAULT_BYTES);
    let request = ProbeRequest { directory, bytes, seconds };
    let since = Instant::now();
    let Finished { result: (probed, stored), .. } =
        run(py, progress.as_ref(), |observer, cancel: &Cancel| {
            let probed = measure(&request, cancel, &|share| observe(observer, share))?;
            let stored = store.then(|| store_profile(&probed.profile, &request.directory));
            Ok::<_, Failure>((probed, stored))
        })?;
    let ProbedProfile { profile, mut notices } = probed;
    let stored = match stored.transpose() {
        Ok(path) => path,
        Err(error) => {
            notices.push(error.to_string());
            None
        }
    };
    let table = profile.table(since.elapsed().as_secs_f64());
    Ok((json(&profile)?, table, profile.to_string(), stored, notices))
}

fn observe(observer: &dyn Observer, share: f64) {
    observer.progress(&Progress { phase: "measuring".into(), fraction: Some(share), ..Progress::default() });
}
