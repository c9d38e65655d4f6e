//! `ascot trace`: records, shows, cuts and exports traces.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use ascot_model::units;
use ascot_trace::bucket_census::BowtieCensus;
use ascot_trace::census::{Census, FileCensus, census};
use ascot_trace::cut::cut;
use ascot_trace::export;
use ascot_trace::record::{BlockRequest, RecordRequest, Recorded, convert_log, record, record_block};
use ascot_trace::replay::Pace;
use ascot_trace::{TraceError, TraceReader, is_standard_output};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::numbers;
use crate::signals;
use crate::sys::{input, print, refuse_same};
use crate::trace_pages::{self, printable, shortened};
use crate::trace_replay;
use crate::values;

/// Memory of the kernel for each processor that `record --block` takes: about 29,000 requests.
const BUFFER_BYTES: u64 = 2 << 20;
/// Files in the text of a census.
const FILES_SHOWN: u64 = 10;
/// Bowties in the text of a census.
const BOWTIES_SHOWN: usize = 8;
/// Columns of a path in the text; longer ones lose their beginning.
const PATH_COLUMNS: usize = 44;
/// Characters of the command line in the text.
const COMMAND_CHARACTERS: usize = 400;

/// The status of a recording that ended before its program.
const INCOMPLETE: u8 = 2;

/// `ascot trace`.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    match matches.subcommand() {
        Some(("record", matches)) => run_record(matches),
        Some(("convert", matches)) => signals::removing_files(|| run_convert(matches)),
        Some(("show", matches)) => show(matches),
        Some(("plot", matches)) => signals::removing_files(|| trace_pages::plot(matches)),
        Some(("compare", matches)) => signals::removing_files(|| trace_pages::compare(matches)),
        Some(("cut", matches)) => signals::removing_files(|| run_cut(matches)),
        Some(("replay", matches)) => trace_replay::run(matches, &open(matches)?),
        Some(("export", matches)) => signals::removing_files(|| run_export(matches)),
        _ => Err(Failure::usage("no command given", "ascot trace --help lists them")),
    }
}

fn run_record(matches: &ArgMatches) -> Result<u8> {
    let command = values::all(matches, "command").cloned().collect();
    let output = path(matches, "output");
    let keep_log = values::flag(matches, "keep-log");
    let buffer_bytes = numbers::data(matches, "buffer", BUFFER_BYTES)?;
    let passed_on = signals::PassedOn::watch();
    let gives_up = |error: &TraceError| eprintln!("ascot: {error}\n  the program goes on without recording");
    let of_disks = values::flag(matches, "block");
    let recorded = if of_disks {
        let request = BlockRequest { command, output: output.clone(), buffer_bytes };
        record_block(&request, &|| passed_on.next(), &gives_up)?
    } else {
        let request = RecordRequest { command, output: output.clone(), keep_log };
        record(&request, &|| passed_on.next(), &gives_up)?
    };
    eprint!("{}", recorded_text(&output, &recorded, !of_disks));
    if recorded.incomplete {
        // Under strace, how the program ended is not known.
        return Ok(INCOMPLETE);
    }
    match recorded.status.signal() {
        Some(signal) => signals::end_by(signal),
        None => Ok(recorded.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)),
    }
}

/// `ascot: recorded 1,234 events of 12 files in run.trace (3.1 kB)`, and remarks. `by_strace`: the status is that of
/// strace, which has that of the program unless it was killed itself.
fn recorded_text(output: &Path, recorded: &Recorded, by_strace: bool) -> String {
    let mut text = format!(
        "ascot: recorded {} of {} in {} ({})\n",
        units::plural(recorded.events, "event"),
        units::plural(recorded.files, "file"),
        output.display().to_string().chars().map(printable).collect::<String>(),
        units::bytes(recorded.trace_bytes)
    );
    if let Some(log) = &recorded.log {
        let _ = writeln!(text, "  the log of strace is {}", log.display());
    }
    for notice in &recorded.notices {
        let _ = writeln!(text, "  {notice}");
    }
    if let Some(signal) = recorded.status.signal().filter(|_| by_strace && recorded.incomplete) {
        let _ = writeln!(text, "  strace was killed by signal {signal}; how the program ended is not known");
    } else if let Some(signal) = recorded.status.signal() {
        let _ = writeln!(text, "  the program was killed by signal {signal}");
    }
    text
}

fn run_convert(matches: &ArgMatches) -> Result<u8> {
    let directory = values::path(matches, "directory").unwrap_or_else(|| PathBuf::from("/"));
    let log = input(path(matches, "log"));
    let output = path(matches, "output");
    refuse_same(std::slice::from_ref(&log), &output)?;
    let converted = convert_log(&log, &directory, &output)?;
    if converted.events == 0 {
        eprintln!("ascot: the log has no call on a file; ascot reads logs of: strace -f -ttt -y -s 0 -o LOG");
    }
    for notice in converted.notices() {
        eprintln!("ascot: {notice}");
    }
    Ok(0)
}

fn open(matches: &ArgMatches) -> Result<TraceReader> {
    Ok(TraceReader::open(&input(path(matches, "trace")))?)
}

/// The value of a required flag or operand.
fn path(matches: &ArgMatches, id: &str) -> PathBuf {
    values::path(matches, id).unwrap_or_default()
}

fn show(matches: &ArgMatches) -> Result<u8> {
    let listed = numbers::whole(matches, "files")?.unwrap_or(FILES_SHOWN);
    let census = census(&open(matches)?)?;
    let text = match values::flag(matches, "json") {
        true => numbers::json(&census)?,
        false => text(&census, usize::try_from(listed).unwrap_or(usize::MAX)),
    };
    print(&text).map(|()| 0)
}

fn text(census: &Census, listed: usize) -> String {
    let counts = &census.counts;
    let moved = counts.read_bytes + counts.written_bytes;
    let percent = |bytes: u64| bytes as f64 * 100.0 / moved.max(1) as f64;
    let mut text = format!(
        "{}\n{} in {}, recorded by {}\n\n",
        first_characters(&census.command, COMMAND_CHARACTERS),
        units::plural(census.events, "event"),
        units::fine_seconds(census.duration_ns as f64 / 1e9),
        census.source
    );
    let _ = writeln!(
        text,
        "  programs {}, {}, {}, at most {} of live data",
        units::plural_form(census.processes, "process", "processes"),
        units::plural(counts.opens, "open"),
        units::plural(census.files, "file"),
        units::bytes(census.peak_live_bytes)
    );
    let directions =
        [("read", counts.read_bytes, counts.reads), ("written", counts.written_bytes, counts.writes)];
    for (name, bytes, requests) in directions {
        let _ = writeln!(
            text,
            "  {name:8} {} ({:.0}%) in {}",
            units::bytes(bytes),
            percent(bytes),
            units::plural(requests, "request")
        );
    }
    let _ = writeln!(
        text,
        "  switches {}, each before a run of {} on average; attempted by seeks: {}",
        units::count(counts.runs),
        units::bytes(counts.mean_run_bytes),
        units::count(counts.attempts)
    );
    append_lengths(&mut text, census);
    append_bowties(&mut text, &census.bowties);
    append_files(&mut text, &census.by_file, listed);
    append_remarks(&mut text, census);
    text
}

fn append_lengths(text: &mut String, census: &Census) {
    if census.counts.run_lengths.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n  length of runs                 runs          bytes");
    for lengths in &census.counts.run_lengths {
        let from = units::memory(lengths.from_bytes);
        let _ = writeln!(
            text,
            "  {:<23}{:>12}{:>15}",
            format!("{from} and more"),
            units::count(lengths.runs),
            units::bytes(lengths.bytes)
        );
    }
}

/// The buckets of bowties, those with most turns first.
fn append_bowties(text: &mut String, bowties: &[BowtieCensus]) {
    let mut made: Vec<&BowtieCensus> = bowties.iter().filter(|bowtie| bowtie.turns > 0).collect();
    if made.is_empty() {
        return;
    }
    made.sort_by_key(|bowtie| std::cmp::Reverse(bowtie.turns));
    let _ = writeln!(text, "\n  buckets        streams     turns   largest    in all  from the staircase");
    for bowtie in made.iter().take(BOWTIES_SHOWN) {
        let distances = bowtie.distances();
        let _ = writeln!(
            text,
            "  {:<12}{:>10}{:>10}{:>10}{:>10}  {}",
            first_characters(&bowtie.name, 12),
            format!("{} x {}", bowtie.inputs, bowtie.outputs),
            units::count(bowtie.turns),
            units::bytes(bowtie.largest_bucket_bytes),
            units::bytes(bowtie.peak_bytes),
            if distances.is_empty() { "keeps none" } else { &distances },
        );
    }
    if made.len() > BOWTIES_SHOWN {
        let _ = writeln!(text, "  and {} more (--json)", units::count((made.len() - BOWTIES_SHOWN) as u64));
    }
}

fn append_files(text: &mut String, files: &[FileCensus], listed: usize) {
    if files.is_empty() || listed == 0 {
        return;
    }
    let _ = writeln!(text, "\n  file{:>52}{:>11}{:>9}{:>10}", "read", "written", "runs", "mean run");
    for file in files.iter().take(listed) {
        let counts = &file.counts;
        let _ = writeln!(
            text,
            "  {:<PATH_COLUMNS$}{:>12}{:>11}{:>9}{:>10}{}",
            shortened(&file.path, PATH_COLUMNS),
            units::bytes(counts.read_bytes),
            units::bytes(counts.written_bytes),
            units::count(counts.runs),
            units::bytes(counts.mean_run_bytes),
            if file.deleted { "  deleted" } else { "" }
        );
    }
    if files.len() > listed {
        let _ = writeln!(text, "  and {} more (--files N)", units::count((files.len() - listed) as u64));
    }
}

/// The first characters of a text, without those that would change a terminal.
fn first_characters(text: &str, count: usize) -> String {
    let mut printable = text.chars().map(printable);
    let first: String = printable.by_ref().take(count).collect();
    if printable.next().is_some() { first + " ..." } else { first }
}

fn append_remarks(text: &mut String, census: &Census) {
    for remark in census.remarks() {
        let _ = writeln!(text, "  {remark}");
    }
}

fn run_cut(matches: &ArgMatches) -> Result<u8> {
    let from_ns = time(matches, "from")?.unwrap_or(0);
    let to_ns = time(matches, "to")?.unwrap_or(u64::MAX);
    if to_ns <= from_ns {
        return Err(Failure::usage(
            "--to is not after --from",
            "the range is --from TIME to before --to TIME",
        ));
    }
    let trace = open(matches)?;
    let output = path(matches, "output");
    refuse_same(&[path(matches, "trace")], &output)?;
    cut(&trace, from_ns, to_ns, &output)?;
    Ok(0)
}

/// A time in nanoseconds, if one is given.
fn time(matches: &ArgMatches, id: &str) -> Result<Option<u64>> {
    let Some(text) = values::word(matches, id) else { return Ok(None) };
    let time = match text.trim_end_matches(char::is_alphabetic).parse::<f64>() {
        Ok(0.0) => return Ok(Some(0)),
        _ => numbers::duration(text),
    };
    let time = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
    time.map(Some)
        .ok_or_else(|| Failure::usage(format!("--{id} '{text}' is not a time"), "such as 40s, 1.5m or 500ms"))
}

fn run_export(matches: &ArgMatches) -> Result<u8> {
    let csv = values::path(matches, "csv");
    let fio = values::path(matches, "fio");
    let buckets = values::path(matches, "buckets");
    if csv.is_none() && fio.is_none() && buckets.is_none() {
        return Err(Failure::usage("no form given", "--csv FILE, --fio FILE or --buckets FILE"));
    }
    if fio.is_none() && values::is_given(matches, "timing") {
        return Err(Failure::usage("--timing needs --fio: the other forms have all times", "--fio FILE"));
    }
    let trace = open(matches)?;
    if buckets.is_some() && trace.bowties().is_empty() {
        return Err(Failure::usage(
            format!("{}: the trace has no buckets", path(matches, "trace").display()),
            "jobs of ascot that merge, split or run a program write them: ascot sort --trace FILE",
        ));
    }
    let outputs: Vec<&PathBuf> = csv.iter().chain(&fio).chain(&buckets).collect();
    for (number, output) in outputs.iter().enumerate() {
        refuse_same(&[path(matches, "trace")], output)?;
        let is_used = |other: &&PathBuf| {
            other == output || [*other, *output].into_iter().all(|it| is_standard_output(it))
        };
        if outputs[..number].iter().any(is_used) {
            return Err(Failure::usage(
                format!("{}: two outputs have this name", output.display()),
                "name a file for each",
            ));
        }
    }
    if fio.as_deref().is_some_and(is_standard_output) && !values::is_given(matches, "fio-dir") {
        return Err(Failure::usage("--fio - needs a directory for the files of fio", "--fio-dir DIR"));
    }
    if let Some(file) = csv {
        export::csv(&trace, &file)?;
    }
    if let Some(file) = buckets {
        export::buckets_csv(&trace, &file)?;
    }
    if let Some(file) = fio {
        let directory = values::path(matches, "fio-dir").unwrap_or_else(|| {
            let mut name = file.as_os_str().to_owned();
            name.push(".files");
            PathBuf::from(name)
        });
        let recorded = values::word(matches, "timing") == Some("recorded");
        let pace = if recorded { Pace::Recorded } else { Pace::Fast };
        export::fio(&trace, &file, &directory, pace)?;
    }
    Ok(0)
}
