//! Sort, merge, split and reshape, and their plans.

use std::path::PathBuf;

use ascot_model::plan::{MethodPlan, Plan};
use ascot_model::report::{Report, column_words};
use ascot_sort::{RunOptions, Writes};
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::{Failure, Result};
use crate::request::{Bytes, JobOptions, split_by};
use crate::running::{Finished, run, run_aside};

/// A report or plan: as JSON, as text, and the warnings for the user.
pub type Told = (String, String, Vec<String>);

/// Sorts or merges files to a file or to parts, and returns the report.
#[pyfunction]
pub fn sort(py: Python<'_>, options: JobOptions, progress: Option<Py<PyAny>>) -> PyResult<Told> {
    let request = py.detach(|| options.request(Writes::SpillsAndOutput))?;
    let finished = run(py, progress.as_ref(), |observer, cancel| {
        ascot_sort::sort(&request, &RunOptions::default(), observer, cancel)
    })?;
    told_of(finished)
}

/// Splits files into parts, and returns the report. `by`: `range`, `hash` or `size`.
#[pyfunction]
pub fn split(py: Python<'_>, options: JobOptions, by: &str, progress: Option<Py<PyAny>>) -> PyResult<Told> {
    let by = split_by(by)?;
    let request = py.detach(|| options.request(Writes::SpillsAndParts))?;
    let finished = run(py, progress.as_ref(), |observer, cancel| {
        ascot_sort::split(&request, by, &RunOptions::default(), observer, cancel)
    })?;
    told_of(finished)
}

/// Sorts files to the view `dir`, and returns the report.
#[pyfunction]
pub fn make_view(
    py: Python<'_>,
    options: JobOptions,
    dir: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Told> {
    let request = py.detach(|| options.request(Writes::View(&dir)))?;
    let finished = run(py, progress.as_ref(), |observer, cancel| {
        ascot_sort::make_view(&request, &dir, &RunOptions::default(), observer, cancel)
    })?;
    told_of(finished)
}

/// Continues the killed job whose directory is `dir`, and returns its outputs and the report.
#[pyfunction]
pub fn resume(
    py: Python<'_>,
    dir: PathBuf,
    memory_cap: Option<Bytes>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<PathBuf>, Told)> {
    // `ASCOT_MEMORY` applies to new jobs only.
    let memory_bytes = memory_cap.map(|bytes| bytes.memory("memory")).transpose()?;
    let outputs = py.detach(|| ascot_sort::outputs_of_job(&dir)).map_err(Failure::from)?;
    let finished = run(py, progress.as_ref(), |observer, cancel| {
        ascot_sort::resume(&dir, &RunOptions { memory_bytes, ..RunOptions::default() }, observer, cancel)
    })?;
    Ok((outputs, told_of(finished)?))
}

/// The plan of a job that is not run: of a split if `by` is given, of a view if `view` is given, else of a sort.
#[pyfunction]
#[pyo3(signature = (options, by=None, view=None))]
pub fn explain(
    py: Python<'_>,
    options: JobOptions,
    by: Option<&str>,
    view: Option<PathBuf>,
) -> PyResult<Told> {
    let by = by.map(split_by).transpose()?;
    let writes = match (&by, &view) {
        (Some(_), _) => Writes::SpillsAndParts,
        (None, Some(dir)) => Writes::View(dir),
        (None, None) => Writes::SpillsAndOutput,
    };
    let request = py.detach(|| options.request(writes))?;
    let result = run_aside(py, move || match &view {
        Some(dir) => ascot_sort::explain_view(&request, dir, &RunOptions::default()),
        None => ascot_sort::explain(&request, by, &RunOptions::default()),
    })?;
    let methods = methods(&result.plan);
    Ok((json(&Shown { result: &result, methods })?, result.to_string(), Vec::new()))
}

/// A result, and the methods of its plan with their times.
#[derive(Serialize)]
pub struct Shown<'r, R> {
    /// The result.
    pub result: &'r R,
    /// The chosen method, and the others.
    pub methods: Vec<ShownMethod<'r>>,
}

/// A method for the job.
#[derive(Serialize)]
pub struct ShownMethod<'p> {
    method: &'p str,
    summary: &'p str,
    remark: &'p str,
    seconds: f64,
    bound_by: &'static str,
    read_bytes: u64,
    written_bytes: u64,
    peak_disk_bytes: u64,
}

impl<'p> ShownMethod<'p> {
    fn new(method: &'p MethodPlan) -> Self {
        ShownMethod {
            method: &method.method,
            summary: &method.summary,
            remark: &method.remark,
            seconds: method.seconds(),
            bound_by: method.bound_by(),
            read_bytes: method.read_bytes(),
            written_bytes: method.written_bytes(),
            peak_disk_bytes: method.peak_disk_bytes,
        }
    }
}

/// The chosen method, and the others.
pub fn methods(plan: &Plan) -> Vec<ShownMethod<'_>> {
    std::iter::once(&plan.chosen).chain(&plan.others).map(ShownMethod::new).collect()
}

/// The report of a finished job.
pub fn told_of(finished: Finished<Report>) -> PyResult<Told> {
    let Finished { result: report, mut warnings } = finished;
    if report.columns.iter().any(|column| column.misfits > 0) {
        warnings.push(format!("keys: {}", column_words(&report.columns)));
    }
    let methods = report.plan.as_ref().map(methods).unwrap_or_default();
    Ok((json(&Shown { result: &report, methods })?, report.to_string(), warnings))
}

/// A result as JSON.
pub fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Failure::Request(format!("a result is not JSON: {error}")))
}
