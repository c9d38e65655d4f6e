//! Resumes a job that was killed, from the state in its directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ascot_model::report::Report;
use ascot_model::units;

use crate::api::{Caller, Cancel, Input, Observer, Output, Result, SortError, SortRequest};
use crate::job::report_of_finished;
use crate::jobs::sort::{Execution, Goal, KilledJob, prepare};
use crate::output::Commit;
use crate::plan::{Budget, RunOptions, disk_for, view_disk};
use crate::read::Inputs;
use crate::resources::LoweredCap;
use crate::runs::store;
use crate::runs::{JobDir, Manifest};
use crate::view::make;

/// Resumes the killed job whose directory is `dir`.
pub fn resume(dir: &Path, options: &RunOptions, observer: &dyn Observer, cancel: &Cancel) -> Result<Report> {
    let mut manifest = store::load(dir)?;
    manifest.memory_bytes = options.memory_bytes.unwrap_or(manifest.memory_bytes);
    // There may be less memory now than when the job was started.
    let lowered = LoweredCap::new(manifest.memory_bytes);
    if let Some(lowered) = lowered {
        observer.warning(&lowered.to_string());
    }
    let memory_bytes = lowered.map_or(manifest.memory_bytes, |lowered| lowered.cap);
    let resumed = resume_within(memory_bytes, dir, manifest, options, Caller { observer, cancel });
    match (resumed, lowered) {
        (Err(error), Some(lowered)) => Err(lowered.explain(error)),
        (resumed, _) => resumed,
    }
}

/// The files that the killed job whose directory is `dir` writes, or the directory of its view.
pub fn outputs_of_job(dir: &Path) -> Result<Vec<PathBuf>> {
    let manifest = store::load(dir)?;
    if let Some(view) = manifest.view {
        return Ok(vec![view.path]);
    }
    Ok(match manifest.request.output {
        Output::Path(path) => vec![path],
        Output::Parts(parts) => (0..parts.count).map(|number| parts.path(number)).collect(),
        Output::Stdout | Output::Program => Vec::new(),
    })
}

/// Resumes a job with a cap of `memory_bytes`.
fn resume_within(
    memory_bytes: u64,
    dir: &Path,
    manifest: Manifest,
    options: &RunOptions,
    caller: Caller<'_>,
) -> Result<Report> {
    let view = manifest.view.as_ref().map(|view| view.path.clone());
    let data_bytes = manifest.inputs.iter().map(|print| print.size).sum();
    let long_runs = manifest.request.volumes.wants_runs(2);
    let budget = Budget::new(memory_bytes, manifest.threads, Some(data_bytes), long_runs)?
        .with_run_buffers(&manifest.request.volumes, true);
    let disk = match view {
        Some(_) => view_disk(options),
        None => disk_for(&manifest.request, &budget, options),
    };
    let mut job_dir = JobDir::reopen(&disk, &manifest.dirs)?;
    // After an error the job can still be resumed.
    job_dir.keep();
    if let Some(finished) = JobDir::was_done(&manifest) {
        let report = report_of_finished(&manifest, &finished, &disk);
        caller.observer.complete(&report)?;
        job_dir.release();
        return Ok(report);
    }
    if let (Some(finished), Output::Parts(parts)) = (&manifest.finished, &manifest.request.output) {
        let report = report_of_finished(&manifest, finished, &disk);
        let files = finished.parts.iter().zip(&manifest.temporaries);
        let files = files.filter_map(|(part, temporary)| part.take_over(&disk, parts, temporary).transpose());
        let files = files.collect::<Result<Vec<_>>>()?;
        caller.observer.complete(&report)?;
        files.commit()?;
        job_dir.release();
        return Ok(report);
    }
    refuse_changed_inputs(dir, &manifest)?;
    let request = request_of(&manifest, memory_bytes);
    let goal = match &manifest.split {
        Some(split) => Goal::Split(split.by),
        None => view.as_deref().map_or(Goal::Sort, Goal::View),
    };
    let mut prepared = prepare(&request, Inputs::open(&request.inputs)?, goal)?;
    if let Some(view) = &view {
        make::check_name(view)?;
        prepared.use_view_blocks(&request)?;
    }
    let killed = Some(KilledJob { dir: job_dir, manifest });
    Execution { request: &request, goal, prepared, disk, caller, killed }.execute()
}

fn refuse_changed_inputs(dir: &Path, manifest: &Manifest) -> Result<()> {
    for input in &manifest.inputs {
        if !input.holds()? {
            let why = format!(
                "{} has changed since\n  ascot clean {}  removes the job's files; then start it again",
                input.path.display(),
                units::in_shell(dir)
            );
            return Err(SortError::CannotResume { dir: dir.to_path_buf(), kind: ErrorKind::Other, why });
        }
    }
    Ok(())
}

/// The request of a killed job, with its new memory cap.
fn request_of(manifest: &Manifest, memory_bytes: u64) -> SortRequest {
    let mut request = manifest.request.clone();
    // A file on standard input is opened by its name: standard input is different now.
    for (input, print) in request.inputs.iter_mut().zip(&manifest.inputs) {
        if *input == Input::Stdin {
            *input = Input::Path(print.path.clone());
        }
    }
    request.memory_bytes = Some(memory_bytes);
    request.threads = Some(manifest.threads);
    request
}
