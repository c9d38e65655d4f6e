//! The commands gen, check and clean.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ascot_model::units::{self, in_shell};
use ascot_record::gensort::Encoding;
use ascot_record::layout::Layout;
use ascot_sort::check::{CheckRequest, with_files_of_directories};
use ascot_sort::generate::GenerateRequest;
use ascot_sort::read::open::recognise_file;
use ascot_sort::request::{Input, Output};
use ascot_sort::view::{ViewManifest, is_view};
use ascot_sort::{Cancel, Leftover, Removal, SortError};
use clap::ArgMatches;

use crate::cluster;
use crate::failure::{Failure, Result, STATUS_OF_DISORDER};
use crate::monitoring::watched;
use crate::progress::{Screen, Style, Wishes};
use crate::request::{are_text_by_name, count, named_records, record_number, threads, usual_temp_dirs};
use crate::signals;
use crate::sys;
use crate::sys::print;
use crate::terminal;
use crate::values;

/// Benchmark records, the default of `ascot check`.
const BENCHMARK_LAYOUT: Layout = Layout::Fixed { len: BENCHMARK_BYTES as usize };
const BENCHMARK_BYTES: u64 = 100;
const BENCHMARK_KEY: &str = "0..10";

/// `ascot gen`.
pub fn generate(matches: &ArgMatches) -> Result<u8> {
    let output = values::path(matches, "output");
    let request = GenerateRequest {
        count: count(matches, "count", "COUNT")?.unwrap_or_default(),
        start: record_number(matches)?,
        encoding: if matches.get_flag("ascii") { Encoding::Ascii } else { Encoding::Binary },
        skewed: matches.get_flag("skew"),
        output: output.map_or(Output::Stdout, Output::Path),
        threads: threads(matches)?,
    };
    if matches!((&request.output, request.encoding), (Output::Stdout, Encoding::Binary)) {
        terminal::spare_of_records()?;
    }
    let screen = screen(!matches!(request.output, Output::Stdout) || sys::stdout_is_a_file(), false);
    sys::standard_streams(&[], &request.output)?;
    let make = |cancel: &Cancel| ascot_sort::generate::generate(&request, &screen, cancel);
    watched(matches, || stoppable(&screen, make))?;
    Ok(0)
}

/// `ascot check`.
pub fn check(matches: &ArgMatches) -> Result<u8> {
    let format = values::word(matches, "format");
    let mut keys: Vec<OsString> = matches.get_many("key").into_iter().flatten().cloned().collect();
    let mut inputs: Vec<Input> =
        values::paths(matches, "files").iter().map(|path| Input::from_argument(path)).collect();
    if inputs.is_empty() {
        inputs.push(Input::Stdin);
    }
    let inputs = with_files_of_directories(inputs)?;
    let view = if format.is_none() && keys.is_empty() { first_view(&inputs)? } else { None };
    let header = matches.get_flag("header") || view.as_ref().is_some_and(|view| view.request.header);
    let (layout, keys) = match view {
        Some(ViewManifest { request, .. }) => (request.layout, request.keys),
        None => {
            let is_text = are_text_by_name(&inputs);
            let default = if is_text { Layout::LINES } else { BENCHMARK_LAYOUT };
            if format.is_none() && keys.is_empty() && !is_text {
                keys.push(BENCHMARK_KEY.into());
            }
            named_records(format, &keys, default, &inputs)?
        }
    };
    sys::standard_input_for(&inputs)?;
    if format.is_none() && layout == BENCHMARK_LAYOUT {
        refuse_other_formats(&inputs)?;
    }
    if header && !matches!(layout, Layout::Lines { .. } | Layout::Csv { .. }) {
        return Err(Failure::usage(
            format!("--header applies only to lines and CSV; the format is {layout}"),
            "drop --header, or add --format csv",
        ));
    }
    let request = CheckRequest { inputs, layout, keys, header, threads: threads(matches)? };
    let quiet = matches.get_flag("quiet");
    let screen = screen(true, quiet);
    let read = |cancel: &Cancel| ascot_sort::check::check(&request, &screen, cancel);
    let verdict = watched(matches, || stoppable(&screen, read))
        .map_err(|failure| if format.is_none() { with_word_on_layout(failure, layout) } else { failure })?;
    if !quiet {
        print(verdict.to_string())?;
    }
    Ok(if verdict.is_ordered() { 0 } else { STATUS_OF_DISORDER })
}

/// The manifest of the first input if it is a view, which knows its layout and its keys.
fn first_view(inputs: &[Input]) -> Result<Option<ViewManifest>, SortError> {
    match inputs.first() {
        Some(Input::Path(path)) if is_view(path) => ViewManifest::load(path).map(Some),
        _ => Ok(None),
    }
}

/// Adds the likely cause to an error of a truncated record, if the layout was not given.
fn with_word_on_layout(failure: Failure, layout: Layout) -> Failure {
    match failure {
        Failure::Sort(error @ SortError::CutShort { .. }) if layout == BENCHMARK_LAYOUT => {
            let text = error.to_string();
            Failure::usage(
                text.lines().next().unwrap_or_default(),
                "without --format files are checked as benchmark records of 100 bytes; for text use --format \
                 lines or csv",
            )
        }
        other => other,
    }
}

/// Fails if a file that would be read as benchmark records has a known format: its length is not a multiple of a
/// record's, and it begins as such a file does.
fn refuse_other_formats(inputs: &[Input]) -> Result<()> {
    for input in inputs {
        let Input::Path(path) = input else { continue };
        let whole = fs::metadata(path)
            .map_or(true, |stat| !stat.is_file() || stat.len().is_multiple_of(BENCHMARK_BYTES));
        if whole {
            continue;
        }
        if let Some(format) = recognise_file(path)? {
            let unpack = format.unpack_command(Some(&in_shell(path)));
            let layout = if format.becomes_csv() { "csv" } else { "lines" };
            return Err(Failure::usage(
                format!("{}: this is {}, not benchmark records", path.display(), format.name()),
                format!("convert it to text first: {unpack} | ascot check --format {layout}"),
            ));
        }
    }
    Ok(())
}

/// The failure for a directory that cannot be searched. One that is not there may be that of a job that has ended.
fn not_searched(dir: &Path, error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound {
        return Failure::usage(
            format!("{}: cannot be searched: No such file or directory; nothing was removed", dir.display()),
            "a job that has ended has removed its directory; ascot clean --dry-run lists jobs that were stopped",
        );
    }
    Failure::file(dir, "cannot be searched")(error)
}

/// `ascot clean`.
pub fn clean(matches: &ArgMatches) -> Result<u8> {
    let named = values::paths(matches, "dirs");
    for dir in &named {
        fs::read_dir(dir).map_err(|error| not_searched(dir, error))?;
        if ascot_sort::is_running(dir) {
            return Err(Failure::usage(
                format!("{}: its job is running", dir.display()),
                "wait for the job, or stop it: it removes its own files",
            ));
        }
    }
    let removal = match (matches.get_flag("dry-run"), matches.get_flag("all")) {
        (true, _) => Removal::Nothing,
        (false, false) if named.is_empty() => Removal::Hopeless,
        _ => Removal::Everything,
    };
    let dirs = if named.is_empty() { usual_temp_dirs() } else { named.clone() };
    // A job of a cluster is removed first: its parts beside it belong to it.
    let mut lines = clean_clusters(&dirs, removal)?;
    let leftovers = ascot_sort::clean(&dirs, removal)?;
    lines.extend(leftovers.iter().map(|leftover| line_of(leftover, removal)));
    lines.extend(clean_studies(&dirs, removal));
    if lines.is_empty() {
        let places: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        lines.push(format!("no leftover files in {}", places.join(", ")));
        if named.is_empty() {
            lines.push(
                "  without --temp spills may be beside their output: search there with ascot clean DIR"
                    .into(),
            );
        }
    }
    print(lines.join("\n"))?;
    Ok(0)
}

/// Removes the cluster jobs in `dirs`, all of which can be resumed; a line for each.
fn clean_clusters(dirs: &[PathBuf], removal: Removal) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for job in cluster::jobs_in(dirs) {
        let done = match removal {
            Removal::Nothing => "found",
            Removal::Hopeless => "kept",
            Removal::Everything => {
                cluster::remove(&job)?;
                "removed"
            }
        };
        lines.push(cluster::line_of(&job, done));
    }
    Ok(lines)
}

/// Removes the files of killed studies in `dirs`, with which nothing can be continued; a line for each.
fn clean_studies(dirs: &[PathBuf], removal: Removal) -> Vec<String> {
    let line = |path: PathBuf| {
        let files = fs::read_dir(&path).into_iter().flatten().flatten();
        let bytes = files.filter_map(|file| file.metadata().ok()).map(|stat| stat.blocks() * 512).sum();
        let done = match removal {
            Removal::Nothing => "found",
            _ if fs::remove_dir_all(&path).is_ok() => "removed",
            _ => "kept",
        };
        format!("{done}  {}  {}  (files of a study of ascot lab)", path.display(), units::bytes(bytes))
    };
    // Two of the usual directories may be the same.
    let mut seen = HashSet::new();
    let found = dirs.iter().flat_map(|dir| ascot_lab::work_dir::leftovers(dir));
    let different: Vec<PathBuf> = found.filter(|path| seen.insert(fs::canonicalize(path).ok())).collect();
    different.into_iter().map(line).collect()
}

fn line_of(leftover: &Leftover, removal: Removal) -> String {
    let done = match removal {
        _ if leftover.removed => "removed",
        Removal::Hopeless => "kept",
        _ => "found",
    };
    let mut line = format!("{done}  {}  {}", leftover.dir.display(), units::bytes(leftover.bytes));
    if !leftover.input.is_empty() {
        line += &format!("  ({}, {}% done)", leftover.input, leftover.done_percent);
    }
    if !leftover.note.is_empty() {
        line += &format!("  {}", leftover.note);
    }
    if leftover.resumable && !leftover.removed {
        line += &format!("\n  continue: ascot sort --resume {}", in_shell(&leftover.home));
    }
    if removal == Removal::Hopeless && leftover.resumable {
        line += &format!("\n  or remove: ascot clean {}", in_shell(&leftover.dir));
    } else if removal == Removal::Hopeless && !leftover.removed && leftover.dir.is_file() {
        let directory = in_shell(leftover.dir.parent().unwrap_or(Path::new(".")));
        line += &format!("; its job may have spills elsewhere\n  remove: ascot clean {directory}");
    }
    line
}

fn screen(output_is_file: bool, quiet: bool) -> Screen {
    Screen::new(Wishes { style: quiet.then_some(Style::Silent), quiet, verbose: false, output_is_file })
}

/// Runs `work` with signals watched.
fn stoppable<T>(screen: &Screen, work: impl FnOnce(&Cancel) -> Result<T, SortError>) -> Result<T> {
    let result = signals::stoppable(|cancel| {
        let result = work(cancel);
        screen.clear();
        result
    });
    result.map_err(Failure::Sort)
}
