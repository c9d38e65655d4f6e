//! `ascot sort`: sorts, merges, checks, explains or resumes, and reports the result; also `ascot merge`, `reshape`
//! and `split`, which share its flags.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ascot_model::report::Report;
use ascot_model::units;
use ascot_record::layout::Layout;
use ascot_sort::request::{Method, Output, SortRequest};
use ascot_sort::{
    Cancel, ErrorKind, Explanation, Leftover, Observer, Progress, RunOptions, SortError, Sortedness, Writes,
};
use clap::ArgMatches;

use crate::cluster;
use crate::failure::{Failure, Result, STATUS_OF_DISORDER, STATUS_OF_ERROR};
use crate::job_trace::RequestedTrace;
use crate::monitoring::{JobReport, watched};
use crate::progress::{Screen, closing_notice};
use crate::report_file::ReportFile;
use crate::request::{self, Mode};
use crate::signals::Stop;
use crate::sys::{self, print};
use crate::terminal;
use crate::values;
use crate::view_flags::refuse_views;
use crate::views;
use crate::volume;

/// Flags of sorts on a cluster only.
const CLUSTER_FLAGS: [&str; 5] = ["uniform", "transport", "shuffle", "setting", "parts-as"];

/// Runs the command; returns the exit status.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    if let Some(dir) = matches.get_one::<OsString>("resume") {
        return resume(matches, Path::new(dir));
    }
    if values::is_given(matches, "cluster") {
        return cluster::sort(matches);
    }
    if let Some(flag) = CLUSTER_FLAGS.iter().find(|flag| values::is_given(matches, flag)) {
        return Err(Failure::usage(format!("--{flag} applies only with --cluster"), "leave it out"));
    }
    let mode = request::mode(matches)?;
    let sort_request = request::sort_request(matches, mode)?;
    refuse_views(&sort_request.inputs)?;
    if mode != Mode::Sort {
        return check(matches, sort_request, mode);
    }
    run_request(matches, sort_request)
}

/// Runs `ascot merge` or `ascot reshape`.
pub fn merge(matches: &ArgMatches) -> Result<u8> {
    if let Some(status) = views::merge(matches, &Screen::of_job(matches, true))? {
        return Ok(status);
    }
    let request = request::sort_request(matches, Mode::Sort)?;
    refuse_views(&request.inputs)?;
    run_request(matches, SortRequest { merge_only: true, ..request })
}

/// Runs `ascot split`.
pub fn split(matches: &ArgMatches) -> Result<u8> {
    let mut split_request = request::sort_request(matches, Mode::Sort)?;
    let by = request::split_by(matches)?;
    refuse_views(&split_request.inputs)?;
    let screen = Screen::of_job(matches, true);
    tell_notices(matches, &screen);
    find_volumes(matches, &mut split_request, Writes::SpillsAndParts, &screen)?;
    if matches.get_flag("explain") {
        return explain(matches, &split_request, &screen, || {
            ascot_sort::explain(&split_request, Some(by), &RunOptions::default())
        });
    }
    sys::standard_streams(&split_request.inputs, &split_request.output)?;
    let report_file = ReportFile::prepare(matches, Some(&split_request))?;
    job(matches, report_file, &screen, |options, observer, cancel| {
        ascot_sort::split(&split_request, by, &options, observer, cancel)
    })
    .inspect(|_| sys::leave_standard_input_read(&split_request.inputs))
}

/// Prints notices; a lowered cap is also reported to batch jobs.
pub(crate) fn tell_notices(matches: &ArgMatches, screen: &Screen) {
    if let Some(text) = request::lowered_cap(matches) {
        screen.warning(&text);
    }
    request::notices(matches).iter().for_each(|notice| screen.notice(notice));
}

/// Finds the volumes that no flag describes.
pub(crate) fn find_volumes(
    matches: &ArgMatches,
    request: &mut SortRequest,
    writes: Writes<'_>,
    screen: &Screen,
) -> Result<()> {
    let notices = volume::find(matches, request, writes)?;
    notices.iter().for_each(|notice| screen.warning(notice));
    Ok(())
}

fn run_request(matches: &ArgMatches, mut sort_request: SortRequest) -> Result<u8> {
    let output_is_file = !matches!(sort_request.output, Output::Stdout) || sys::stdout_is_a_file();
    let screen = Screen::of_job(matches, output_is_file);
    tell_notices(matches, &screen);
    let named = values::path(matches, "view").filter(|view| view != Path::new("auto"));
    let writes = named.as_deref().map_or(Writes::SpillsAndOutput, Writes::View);
    find_volumes(matches, &mut sort_request, writes, &screen)?;
    let sort_request = &sort_request;
    let view = view_of(matches, sort_request, &screen)?;
    if matches.get_flag("explain") {
        return explain(matches, sort_request, &screen, || match &view {
            None => ascot_sort::explain(sort_request, None, &RunOptions::default()),
            Some(view) => ascot_sort::explain_view(sort_request, view, &RunOptions::default()),
        });
    }
    if view.is_some() {
        sys::standard_input_for(&sort_request.inputs)?;
    } else {
        sys::standard_streams(&sort_request.inputs, &sort_request.output)?;
        terminal::spare_of_sort(matches, sort_request)?;
        mention_leftovers(sort_request, &screen);
    }
    let report_file = ReportFile::prepare(matches, Some(sort_request))?;
    job(matches, report_file, &screen, |options, observer, cancel| match &view {
        None => ascot_sort::sort(sort_request, &options, observer, cancel),
        Some(view) => ascot_sort::make_view(sort_request, view, &options, observer, cancel),
    })
    .inspect(|_| sys::leave_standard_input_read(&sort_request.inputs))
}

/// The directory of `--view`.
fn view_of(matches: &ArgMatches, sort_request: &SortRequest, screen: &Screen) -> Result<Option<PathBuf>> {
    let Some(dir) = values::path(matches, "view") else { return Ok(None) };
    if dir == Path::new("auto") {
        let reads = request::count(matches, "reads", "--reads")?.unwrap_or(1);
        let choice = ascot_sort::choose_view(sort_request, reads)?;
        screen.tell(&choice.to_string());
        return Ok(choice.dir);
    }
    const NOT_WITH: [&str; 6] = ["output", "parts", "temp", "merge", "batch-size", "reads"];
    match NOT_WITH.into_iter().find(|id| values::is_given(matches, id)) {
        None if sort_request.method == Method::Distribute => Err(Failure::usage(
            "--view cannot be combined with --method distribute",
            "a view consists of sorted runs: leave out --method",
        )),
        None => Ok(Some(dir)),
        Some("reads") => {
            Err(Failure::usage("--reads applies only to --view auto", "write: -o FILE --view auto --reads N"))
        }
        Some(id) => Err(Failure::usage(
            format!("--view cannot be combined with --{id}"),
            "a view is a directory of runs; ascot view DIR -o FILE writes the file",
        )),
    }
}

fn resume(matches: &ArgMatches, dir: &Path) -> Result<u8> {
    request::refuse_with_resume(matches)?;
    if cluster::is_job(dir) {
        return cluster::resume(matches, dir);
    }
    if values::is_given(matches, "cluster") {
        return Err(Failure::usage(
            format!("{} is not the directory of a cluster job", dir.display()),
            "name the directory that the error of the job names, or leave out --cluster",
        ));
    }
    if values::is_given(matches, "transport") {
        return Err(Failure::usage(
            format!("{} is not the directory of a cluster job, which --transport is for", dir.display()),
            "name the directory that the error of the job names, or leave out --transport",
        ));
    }
    let memory_bytes = request::memory_of_resumed(matches)?;
    let screen = Screen::of_job(matches, true);
    // If a job cannot be read, resuming reports why.
    let manifest = ascot_sort::runs::store::load(dir).ok();
    let report_file = ReportFile::prepare(matches, manifest.as_ref().map(|manifest| &manifest.request))?;
    job(matches, report_file, &screen, |options, observer, cancel| {
        ascot_sort::resume(dir, &RunOptions { memory_bytes, ..options }, observer, cancel)
    })
}

/// Tells an interactive user about killed jobs in the same directories that can be resumed.
fn mention_leftovers(sort_request: &SortRequest, screen: &Screen) {
    if !screen.is_watched() {
        return;
    }
    let usual = request::usual_temp_dirs();
    let dirs = if sort_request.temp_dirs.is_empty() { &usual } else { &sort_request.temp_dirs };
    let first_of_resumable = |leftover: &&Leftover| leftover.resumable && leftover.dir == leftover.home;
    for leftover in ascot_sort::leftovers(dirs).iter().filter(first_of_resumable) {
        let name = leftover.dir.file_name().unwrap_or_default().display();
        let place = leftover.dir.parent().unwrap_or(Path::new("/")).display();
        screen.notice(&format!(
            "a killed job can be resumed: {name} ({}, {}% done, {} of spills in {place})\n  \
             ascot sort --resume {dir}    or    ascot clean {dir}",
            leftover.input,
            leftover.done_percent,
            units::bytes(leftover.bytes),
            dir = units::in_shell(&leftover.dir),
        ));
    }
}

/// Runs a job with signals watched, and reports the result.
pub(crate) fn job(
    matches: &ArgMatches,
    report_file: Option<ReportFile>,
    screen: &Screen,
    work: impl FnOnce(RunOptions, &dyn Observer, &Cancel) -> Result<Report, SortError>,
) -> Result<u8> {
    let cancel = Cancel::new().keeping(request::keeps_on_interrupt(matches));
    let stop = Stop::watch(&cancel);
    let reporter = Reporter { screen, report: JobReport::new(matches, report_file)? };
    let trace = RequestedTrace::start(matches)?;
    let result = work(trace.options(reporter.report.trace()), &reporter, &cancel);
    screen.clear();
    let mut report = match result {
        Ok(report) => report,
        Err(error) => {
            drop(reporter);
            // Its temporary file goes before a signal ends the process.
            drop(trace);
            return if error.kind() == ErrorKind::Cancelled {
                stopped(error, &cancel, &stop, screen)
            } else {
                screen.failed(error.into())
            };
        }
    };
    report.monitor = reporter.report.commit()?;
    trace.commit()?;
    screen.tell_columns(&report.columns);
    screen.summary(&report);
    report.monitor.iter().for_each(|used| screen.resources(used));
    Ok(0)
}

/// Ends the process by the signal that stopped the job, after a notice of the files kept.
fn stopped(error: SortError, cancel: &Cancel, stop: &Stop, screen: &Screen) -> Result<u8> {
    let failure = if matches!(error, SortError::Kept { .. }) || !cancel.keeps() {
        error.into()
    } else {
        Failure::usage(
            "stopped; no files are kept",
            "the job cannot be resumed: it has spilled nothing yet, reads a pipe, merges or splits in one pass, \
             has a path that is not UTF-8, or writes to standard output",
        )
    };
    let speaks = cancel.keeps() || matches!(failure, Failure::Sort(SortError::Kept { .. }));
    if speaks && let Err(failure) = screen.failed(failure) {
        let _ = writeln!(io::stderr().lock(), "ascot: {failure}");
    }
    stop.end_if_asked();
    Err(SortError::Cancelled.into())
}

/// Shows the progress of a job, and writes its report when its output is complete.
struct Reporter<'a> {
    screen: &'a Screen,
    report: JobReport,
}

impl Observer for Reporter<'_> {
    fn progress(&self, progress: &Progress) {
        self.screen.progress(progress);
    }

    fn notice(&self, text: &str) {
        self.screen.notice(text);
    }

    fn warning(&self, text: &str) {
        self.screen.warning(text);
    }

    fn began(&self, at: Instant) {
        self.report.began(at);
    }

    fn complete(&self, report: &Report) -> Result<(), SortError> {
        self.report.complete(report)
    }
}

/// Prints the explanation of `plan`, and writes it to the file of `--report`.
fn explain(
    matches: &ArgMatches,
    sort_request: &SortRequest,
    screen: &Screen,
    plan: impl FnOnce() -> Result<Explanation, SortError>,
) -> Result<u8> {
    let report_file = ReportFile::prepare(matches, Some(sort_request))?;
    let explanation = plan()?;
    screen.clear();
    if let Some(file) = report_file {
        file.write_at_once(&explanation)?;
    }
    print(explanation.to_string())?;
    Ok(if explanation.shortage.is_some() { STATUS_OF_ERROR } else { 0 })
}

fn check(matches: &ArgMatches, mut sort_request: SortRequest, mode: Mode) -> Result<u8> {
    let notices = volume::find(matches, &mut sort_request, Writes::Nothing)?;
    if mode == Mode::CheckAloud {
        notices.iter().for_each(|notice| closing_notice(matches, notice));
    }
    sys::standard_input_for(&sort_request.inputs)?;
    let sortedness =
        watched(matches, || ascot_sort::is_sorted(&sort_request, &Cancel::new()).map_err(Failure::from))?;
    match sortedness {
        Sortedness::Sorted => Ok(0),
        Sortedness::Disorder { input, record, line, .. } => {
            if mode == Mode::CheckAloud {
                let mut text = format!("ascot: {input}:{record}: disorder: ").into_bytes();
                text.extend_from_slice(&shown(&line, sort_request.layout));
                text.push(b'\n');
                let _ = io::stderr().lock().write_all(&text);
            }
            Ok(STATUS_OF_DISORDER)
        }
    }
}

/// A record in printable form: text without its terminator; the first bytes of a binary record, with escapes.
fn shown(record: &[u8], layout: Layout) -> Vec<u8> {
    const BINARY_BYTES: usize = 40;
    let end = match layout {
        Layout::Lines { delimiter } => delimiter,
        Layout::Csv { .. } => b'\n',
        Layout::Fixed { .. } | Layout::Number(_) | Layout::Prefixed { .. } => {
            let cut = if record.len() > BINARY_BYTES { "..." } else { "" };
            let first = record[..record.len().min(BINARY_BYTES)].escape_ascii();
            return format!("{first}{cut}").into_bytes();
        }
    };
    record.strip_suffix(&[end]).unwrap_or(record).to_vec()
}
