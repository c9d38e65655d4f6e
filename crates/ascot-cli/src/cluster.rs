//! `ascot sort --cluster`, and the jobs of a cluster in `ascot sort --resume` and `ascot clean`: the request goes to a
//! Python process (`cluster_process`), and its result is shown as that of any other job.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ascot_model::units::in_shell;
use ascot_sort::{Cancel, SortError};
use clap::ArgMatches;
use serde_json::Value;

use crate::cluster_process::{self, Ending};
use crate::failure::{Failure, Result};
use crate::progress::{Screen, Style, Wishes};
use crate::report_file::ReportFile;
use crate::request;
use crate::signals::Stop;
use crate::values;

/// The file that only directories of cluster jobs have.
const JOB_FILE: &str = "job.json";

/// Whether a directory is that of a cluster job.
pub fn is_job(dir: &Path) -> bool {
    dir.join(JOB_FILE).is_file()
}

/// The cluster jobs among directories, and in them.
pub fn jobs_in(dirs: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in dirs {
        if is_job(dir) {
            found.push(dir.clone());
            continue;
        }
        let below = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut jobs: Vec<PathBuf> = below.map(|entry| entry.path()).filter(|path| is_job(path)).collect();
        jobs.sort();
        found.extend(jobs);
    }
    found
}

/// `ascot sort --cluster`.
pub fn sort(matches: &ArgMatches) -> Result<u8> {
    let request = request::cluster_request(matches)?;
    let report_file = report_file(matches, || ReportFile::prepare(matches, Some(&request.files)))?;
    let screen = Screen::of_job(matches, true);
    run(request.line, report_file, &screen, request::keeps_on_interrupt(matches))
}

/// `ascot sort --resume` of a cluster job.
pub fn resume(matches: &ArgMatches, dir: &Path) -> Result<u8> {
    let request = request::resume_request(matches, dir)?;
    let report_file = report_file(matches, || ReportFile::prepare(matches, None))?;
    run(request, report_file, &Screen::of_job(matches, true), true)
}

/// Removes a cluster job, with its files on the nodes.
pub fn remove(dir: &Path) -> Result<()> {
    let request = request::remove_request(dir)?;
    let screen =
        Screen::new(Wishes { style: Some(Style::Silent), quiet: true, verbose: false, output_is_file: true });
    run(request, None, &screen, true).map(drop)
}

/// The file of `--report`, JSON or a page.
fn report_file(
    matches: &ArgMatches,
    prepare: impl FnOnce() -> Result<Option<ReportFile>>,
) -> Result<Option<ReportFile>> {
    for flag in ["trace", "monitor"] {
        if values::is_given(matches, flag) {
            return Err(Failure::usage(
                format!("a cluster does not serve --{flag}"),
                "the report has the time of each node: --report FILE",
            ));
        }
    }
    prepare()
}

fn run(mut request: Value, report_file: Option<ReportFile>, screen: &Screen, is_kept: bool) -> Result<u8> {
    let cancel = Cancel::new().keeping(is_kept);
    let stop = Stop::watch(&cancel);
    if let Some(fields) = request.as_object_mut() {
        fields.insert("page".into(), report_file.as_ref().is_some_and(ReportFile::is_page).into());
    }
    let ending = cluster_process::run(&request, screen, &cancel);
    screen.clear();
    match ending {
        Ok(Ending::Done(done)) => {
            if let Some(file) = report_file {
                match &done.page {
                    Some(page) => file.write_page_at_once(page)?,
                    None => file.write_at_once(&done.report)?,
                }
            }
            if !done.text.is_empty() {
                screen.summary_of(&done.text, &done.details, &done.report);
            }
            Ok(0)
        }
        Ok(Ending::Failed(text)) => screen.failed(Failure::Usage(text)),
        Ok(Ending::Stopped(job)) => {
            tell_stopped(job.as_deref(), screen);
            stop.end_if_asked();
            Err(SortError::Cancelled.into())
        }
        Err(failure) => {
            stop.end_if_asked();
            screen.failed(failure)
        }
    }
}

/// Tells how a job that was stopped is continued, if it is kept.
fn tell_stopped(job: Option<&Path>, screen: &Screen) {
    let Some(job) = job else { return };
    let job = in_shell(job);
    let text = format!(
        "interrupted\n  the job is kept: ascot sort --resume {job}  continues it; ascot clean {job}  removes it"
    );
    if let Err(failure) = screen.failed(Failure::Usage(text)) {
        let _ = writeln!(io::stderr().lock(), "ascot: {failure}");
    }
}

/// The same as a line of `ascot clean`.
pub fn line_of(job: &Path, done: &str) -> String {
    let shown = in_shell(job);
    let mut line = format!("{done}  {}  (a sort on a cluster)", job.display());
    if done != "removed" {
        line += &format!("\n  continue: ascot sort --resume {shown}");
    }
    if done == "kept" {
        line += &format!("\n  or remove: ascot clean {shown}");
    }
    line
}
