//! `ascot view`, and `ascot merge` of views.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_model::units;
use ascot_sort::request::{Input, Output, SortRequest};
use ascot_sort::view::{
    OpenView, View, ViewManifest, explain_part, is_view, join_parts, join_views, same_order, write_part,
};
use ascot_sort::{Cancel, Observer, RunOptions, Silent};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::job_trace::RequestedTrace;
use crate::monitoring::{JobReport, watched};
use crate::progress::{Screen, write_resources};
use crate::report_file::ReportFile;
use crate::request::{Mode, count, memory_or, output, sort_request, threads};
use crate::signals::stoppable;
use crate::size;
use crate::sys;
use crate::terminal;
use crate::values;
use crate::view_flags::{refuse_others, say_an_order};
use crate::volume;

/// Default memory of a view, bytes.
pub const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;

/// `ascot view`.
pub fn view(matches: &ArgMatches) -> Result<u8> {
    let dir = values::path(matches, "dir").unwrap_or_default();
    let file = values::path(matches, "materialize").or_else(|| values::path(matches, "output"));
    let output = file.map_or(Output::Stdout, Output::Path);
    if matches.get_flag("explain") {
        return explain(matches, &dir, &output);
    }
    let report = JobReport::new(matches, report_file(matches, &dir, &output)?)?;
    let trace = RequestedTrace::start(matches)?;
    let options = trace.options(report.trace());
    stoppable(|cancel| {
        let view = open_with(matches, &dir, options.clone())?;
        write_range(matches, &*view, &output, &report, cancel)
    })?;
    trace.commit()?;
    if let Some(used) = report.commit()? {
        write_resources(&used);
    }
    Ok(0)
}

/// `ascot view --explain`: prints how the part would be read, and writes it to the file of `--report`.
fn explain(matches: &ArgMatches, dir: &Path, output: &Output) -> Result<u8> {
    let report_file = report_file(matches, dir, output)?;
    let view = open(matches, dir)?;
    let range = range_of(matches, &*view, Positions::Estimated)?;
    let explanation = explain_part(&*view, range, output, &RunOptions::default())?;
    if let Some(file) = report_file {
        file.write_at_once(&explanation)?;
    }
    sys::print(explanation.to_string())?;
    Ok(0)
}

/// How positions in a view are found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Positions {
    /// By reading blocks.
    Exact,
    /// Without reading any.
    Estimated,
}

/// The file of `--report`. Neither it nor the trace may be the output or a file of the view.
fn report_file(matches: &ArgMatches, dir: &Path, output: &Output) -> Result<Option<ReportFile>> {
    if !values::is_given(matches, "report") && !values::is_given(matches, "trace") {
        return Ok(None);
    }
    let ViewManifest { request, members, .. } = ViewManifest::load(dir)?;
    let beside = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let runs = members.iter().map(|member| dir.join(&member.path));
    let inputs = beside.chain(runs).map(Input::Path).collect();
    let request = SortRequest { inputs, output: output.clone(), ..request };
    ReportFile::prepare(matches, Some(&request))
}

fn write_range(
    matches: &ArgMatches,
    view: &dyn View,
    output: &Output,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<()> {
    let range = range_of(matches, view, Positions::Exact)?;
    sys::standard_streams(&[], output)?;
    // Only for a terminal: a look at the first records takes a switch of each run.
    if matches!(output, Output::Stdout) && terminal::is_stdout() {
        let looked_at =
            terminal::SAMPLED_BYTES.min(usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
        terminal::spare(&view.read_at(range.start, looked_at)?)?;
    }
    write_part(view, range, output, &RunOptions::default(), observer, cancel)?;
    Ok(())
}

/// Opens a view with the requested memory and threads.
pub fn open(matches: &ArgMatches, dir: &Path) -> Result<Arc<dyn View>> {
    open_with(matches, dir, RunOptions::default())
}

fn open_with(matches: &ArgMatches, dir: &Path, options: RunOptions) -> Result<Arc<dyn View>> {
    // None: those on which it was made.
    let volumes = volume::of_directory(matches, dir)?;
    Ok(OpenView { volumes, options, ..opening(matches)? }.open(dir)?)
}

fn opening(matches: &ArgMatches) -> Result<OpenView> {
    let memory_bytes = Some(memory_or(matches, DEFAULT_MEMORY_BYTES)?);
    Ok(OpenView { memory_bytes, threads: threads(matches)?, ..OpenView::default() })
}

/// `ascot merge` of views: to the output or, possibly together with files, to a view; `None` if files are merged to
/// the output.
pub fn merge(matches: &ArgMatches, screen: &Screen) -> Result<Option<u8>> {
    let files = values::paths(matches, "files");
    if let Some(dir) = values::path(matches, "view") {
        return join(matches, &files, &dir, screen).map(Some);
    }
    if !files.iter().any(|file| is_view(file)) {
        return Ok(None);
    }
    refuse_others(matches, &["output"])?;
    if let Some(other) = files.iter().find(|file| !is_view(file)) {
        return Err(Failure::usage(
            format!("{} is not a view, and only views can be merged directly to a file", other.display()),
            "make a view of all inputs, which copies nothing, and write that view:\n  \
             ascot merge FILE... --view DIR, then ascot view DIR -o FILE",
        ));
    }
    let output = output(matches)?;
    sys::standard_streams(&[], &output)?;
    let name = if let Output::Path(path) = &output { path.clone() } else { PathBuf::new() };
    let joined = join_views(&files, &name)?;
    if say_an_order(matches) {
        same_order(&joined, &sort_request(matches, Mode::Sort)?)?;
    }
    let opening = opening(matches)?;
    let write = |cancel: &Cancel| {
        let view = opening.open_manifest(joined, &name)?;
        write_part(&*view, 0..view.bytes(), &output, &RunOptions::default(), &Silent, cancel)
    };
    watched(matches, || stoppable(write).map_err(Failure::from))?;
    Ok(Some(0))
}

/// `ascot merge --view DIR`: makes a view of views and sorted files.
fn join(matches: &ArgMatches, files: &[PathBuf], dir: &Path, screen: &Screen) -> Result<u8> {
    refuse_others(matches, &[])?;
    if files.is_empty() {
        return Err(Failure::usage("a view needs inputs", "name views and sorted files"));
    }
    // The order of records: that of the views, if there are any and no flag gives another.
    let request = (say_an_order(matches) || !files.iter().any(|file| is_view(file)))
        .then(|| sort_request(matches, Mode::Sort))
        .transpose()?;
    let make = |cancel: &Cancel| join_parts(files, request.as_ref(), dir, screen, cancel);
    let joined = watched(matches, || stoppable(make).map_err(Failure::from))?;
    // Opened once, to detect faults of the runs now.
    opening(matches)?.open(dir)?;
    screen.tell(&format!(
        "made {} of {}: {} records, {}, nothing copied",
        dir.display(),
        units::plural(files.len() as u64, "part"),
        units::count(joined.sum.count),
        units::bytes(joined.sum.bytes)
    ));
    Ok(0)
}

/// The requested range of bytes.
fn range_of(matches: &ArgMatches, view: &dyn View, positions: Positions) -> Result<Range<u64>> {
    let end = view.bytes();
    let of_record = |record: u64| match positions {
        Positions::Exact => view.offset_of_record(record),
        Positions::Estimated => Ok(view.about_offset_of_record(record)),
    };
    let of_key = |key: &[u8]| match positions {
        Positions::Exact => view.offset_of_key(key),
        Positions::Estimated => Ok(view.about_offset_of_key(key)),
    };
    if let Some(text) = values::word(matches, "range") {
        let (from, to) = two_ends("--range", text)?;
        let offset =
            |text: &str| match size::memory_size(text).or_else(|_| size::buffer_size(&format!("{text}b"))) {
                Ok(amount) => Ok(amount.bytes_of(end)),
                Err(source) => Err(Failure::Size { flag: "--range".into(), source }),
            };
        let plain = |text: &str| text.parse::<u64>().map_or_else(|_| offset(text), Ok);
        let from = from.map(plain).transpose()?.unwrap_or(0);
        let to = to.map(plain).transpose()?.unwrap_or(end);
        return in_order("--range", from..to, end);
    }
    if let Some(text) = values::word(matches, "keys") {
        let (from, to) = two_ends("--keys", text)?;
        let place = |text: &str| view.key(text).and_then(|key| of_key(&key));
        let from = from.map(place).transpose()?.unwrap_or(view.header_bytes());
        let to = to.map(place).transpose()?.unwrap_or(end);
        return in_order("--keys", from..to, end);
    }
    if let Some(records) = count(matches, "head", "--head")? {
        return Ok(0..of_record(records)?);
    }
    if let Some(records) = count(matches, "tail", "--tail")? {
        return Ok(of_record(view.sum().count.saturating_sub(records))?..end);
    }
    if let Some(record) = count(matches, "at-record", "--at-record")? {
        return Ok(of_record(record)?..end);
    }
    Ok(0..end)
}

/// The ends of A..B, each of which may be missing.
fn two_ends<'t>(flag: &str, text: &'t str) -> Result<(Option<&'t str>, Option<&'t str>)> {
    let Some((from, to)) = text.split_once("..") else {
        return Err(Failure::usage(
            format!("'{text}' is not a range for {flag}"),
            format!("write: {flag} A..B"),
        ));
    };
    let given = |end: &'t str| (!end.is_empty()).then_some(end);
    Ok((given(from), given(to)))
}

fn in_order(flag: &str, range: Range<u64>, end: u64) -> Result<Range<u64>> {
    if range.start > range.end {
        return Err(Failure::usage(
            format!("the range of {flag} ends before it begins"),
            "write the end that comes first in the order of the view first",
        ));
    }
    Ok(range.start.min(end)..range.end.min(end))
}
