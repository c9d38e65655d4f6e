//! `ascot lab streams` and `ascot lab all`.

use std::fs;
use std::path::{Path, PathBuf};

use ascot_io::Direction;
use ascot_lab::page::{self, About, Section};
use ascot_lab::sorts::{SortResult, SortStudy, summary};
use ascot_lab::streams::grid::{CACHES, DIRECTIONS};
use ascot_lab::streams::parameters::{self, Row};
use ascot_lab::streams::{Backend, Cache, Cell, Finished, Measured, StreamStudy};
use ascot_lab::whole::{WholeGrid, WholeResults, WholeStudy};
use ascot_lab::{LabError, Stop};
use ascot_model::units;
use ascot_sort::plan::budget::default_memory;
use clap::ArgMatches;

use super::screen::Screen;
use crate::failure::Failure;
use crate::numbers;
use crate::report_file::write_whole;
use crate::signals::stoppable;
use crate::sys::{self, print};
use crate::values;
use crate::volume;

/// Defaults of the flags.
const DEFAULT_ELEMENTS: &str = "1e3..1e6";
const DEFAULT_STREAMS: &str = "1";
const DEFAULT_EXPONENTS: &str = "12..20";
const DEFAULT_LOOPS: &str = "6";

/// `ascot lab streams`.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let rows = match values::path(matches, "params") {
        Some(path) => parameters::read(&path)?,
        None => rows_of_flags(matches)?,
    };
    let directions: &[Direction] = match values::word(matches, "direction") {
        Some("read") => &[Direction::Read],
        Some("write") => &[Direction::Write],
        _ => &DIRECTIONS,
    };
    let caches: &[Cache] = match values::word(matches, "cache") {
        Some("cold") => &[Cache::Cold],
        Some("warm") => &[Cache::Warm],
        _ => &CACHES,
    };
    let cells: Vec<Cell> = rows.iter().flat_map(|row| row.cells(directions, caches)).collect();
    let usual = cells.iter().map(|cell| cell.elements).max().unwrap_or(0);
    study(matches, cells, usual)
}

/// `ascot lab all`.
pub fn all(matches: &ArgMatches) -> Result<u8, Failure> {
    let grid = if matches.get_flag("quick") { WholeGrid::quick() } else { WholeGrid::published() };
    let Places { out, work, memory_bytes } = places(matches)?;
    let usual = grid.streams.usual_elements();
    let (cells, volumes) = (grid.streams.cells(), volume::of_directory(matches, &work)?);
    let streams = StreamStudy { cells, out: out.clone(), work: work.clone(), memory_bytes };
    let sorts = SortStudy {
        cells: grid.sorts,
        out: out.clone(),
        work: work.clone(),
        memory_bytes,
        volumes,
        faults: None,
    };
    let screen = Screen::new(matches.get_flag("quiet"));
    let study = WholeStudy { streams, sorts };
    let WholeResults { streams, sorts, predicted_s } =
        stoppable(|cancel| study.run(&screen, &Stop(cancel.flag())))?;
    screen.clear();
    let run = Run {
        results: &streams.results,
        sorts: &sorts.results,
        measured: streams.measured + sorts.measured,
        predicted_s,
        taken_s: streams.taken_s + sorts.taken_s,
    };
    finish(matches, &run, &out, &work, usual)
}

/// The directories of a study, and its memory.
struct Places {
    out: PathBuf,
    work: PathBuf,
    memory_bytes: u64,
}

fn places(matches: &ArgMatches) -> Result<Places, Failure> {
    let memory_bytes = numbers::memory(matches, "memory", default_memory())?;
    let out = out_directory(matches)?;
    let work = values::path(matches, "work").unwrap_or_else(|| out.clone());
    Ok(Places { out, work, memory_bytes })
}

/// A finished study, for its page and its closing text.
struct Run<'a> {
    results: &'a [Measured],
    sorts: &'a [SortResult],
    measured: usize,
    predicted_s: f64,
    taken_s: f64,
}

/// Measures the cells and writes the page; `usual` is the N of the figures in which k or B varies.
fn study(matches: &ArgMatches, cells: Vec<Cell>, usual: u64) -> Result<u8, Failure> {
    let Places { out, work, memory_bytes } = places(matches)?;
    let study = StreamStudy { cells, out: out.clone(), work: work.clone(), memory_bytes };
    let screen = Screen::new(matches.get_flag("quiet"));
    let Finished { results, measured, predicted_s, taken_s } =
        stoppable(|cancel| study.run(&screen, &Stop(cancel.flag())))?;
    screen.clear();
    finish(
        matches,
        &Run { results: &results, sorts: &[], measured, predicted_s, taken_s },
        &out,
        &work,
        usual,
    )
}

/// Writes the page and the charts, and prints the conclusions.
fn finish(matches: &ArgMatches, run: &Run<'_>, out: &Path, work: &Path, usual: u64) -> Result<u8, Failure> {
    let sections: Vec<Section> = page::sorts::section(run.sorts).into_iter().collect();
    let html = page::page(&about(run, work), run.results, usual, &sections);
    let path = out.join("index.html");
    write_whole(&path, html.as_bytes()).map_err(Failure::file(&path, "cannot write the page"))?;
    if matches.get_flag("plot") {
        write_charts(out, run.results, usual)?;
    }
    print(text(run, &path))?;
    Ok(0)
}

/// The directory of the results, made if it does not exist.
pub(super) fn out_directory(matches: &ArgMatches) -> Result<PathBuf, Failure> {
    let out = values::path(matches, "out").unwrap_or_default();
    fs::create_dir_all(&out).map_err(Failure::file(&out, "cannot make the directory of the results"))?;
    Ok(out)
}

/// The rows of parameters that flags define.
fn rows_of_flags(matches: &ArgMatches) -> Result<Vec<Row>, Failure> {
    let text = |id: &str, default: &'static str| values::word(matches, id).unwrap_or(default).to_owned();
    let wrong = |id: &str, text: &str, problem: String| {
        Failure::usage(format!("--{id} '{text}' {problem}"), "ascot lab streams --help shows the form")
    };
    let named = |id: &'static str, default| (id, text(id, default));
    let (n, k) = (named("n", DEFAULT_ELEMENTS), named("k", DEFAULT_STREAMS));
    let (b, loops) = (named("b", DEFAULT_EXPONENTS), named("loops", DEFAULT_LOOPS));
    let elements = parameters::element_list(&n.1).map_err(|problem| wrong(n.0, &n.1, problem))?;
    let streams = parameters::stream_list(&k.1).map_err(|problem| wrong(k.0, &k.1, problem))?;
    let loops = parameters::loops(&loops.1).map_err(|problem| wrong("loops", &loops.1, problem))?;
    let mut rows = Vec::new();
    for backend in backends(matches)? {
        let exponents = match backend.has_blocks() {
            true => parameters::exponents(&b.1, backend).map_err(|problem| wrong(b.0, &b.1, problem))?,
            false => 0..=0,
        };
        rows.push(Row { backend, elements: elements.clone(), streams: streams.clone(), exponents, loops });
    }
    Ok(rows)
}

fn backends(matches: &ArgMatches) -> Result<Vec<Backend>, Failure> {
    let Some(text) = values::word(matches, "stream") else { return Ok(Backend::ALL.to_vec()) };
    let one = |word: &str| {
        word.trim().parse().map_err(|()| {
            Failure::usage(
                format!("--stream '{word}' is no kind of stream"),
                "kinds: plain, buffered, sized, mapped, direct",
            )
        })
    };
    text.split(',').map(one).collect()
}

/// The lines of the page about the run.
fn about(run: &Run<'_>, work: &Path) -> About {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let Run { measured, predicted_s, taken_s, .. } = run;
    About {
        lines: vec![
            format!(
                "ascot {}, {threads} processors, {} of memory; files in {}.",
                env!("CARGO_PKG_VERSION"),
                units::memory(sys::memory_bytes()),
                work.display()
            ),
            format!(
                "{measured} measurements made in this run, in {} (predicted: {}); {} in all.",
                units::seconds(*taken_s),
                units::seconds(*predicted_s),
                run.results.len() + run.sorts.len()
            ),
        ],
    }
}

fn write_charts(out: &Path, results: &[Measured], usual: u64) -> Result<(), Failure> {
    let directory = out.join("charts");
    fs::create_dir_all(&directory)
        .map_err(Failure::file(&directory, "cannot make the directory of the charts"))?;
    for (name, svg) in page::charts(results, usual) {
        let path = directory.join(format!("{name}.svg"));
        write_whole(&path, svg.as_bytes()).map_err(Failure::file(&path, "cannot write the chart"))?;
    }
    Ok(())
}

/// The closing text: the best B, M and d of each N, and where the rest is.
fn text(run: &Run<'_>, page: &Path) -> String {
    let blocks = page::best_blocks_text(run.results);
    let sorts = if run.sorts.is_empty() { String::new() } else { format!("{}\n", summary::text(run.sorts)) };
    let Run { results, measured, predicted_s, taken_s, .. } = run;
    let time = match measured {
        0 => String::new(),
        _ => format!("{} predicted, {} taken; ", units::seconds(*predicted_s), units::seconds(*taken_s)),
    };
    let count = units::plural((results.len() + run.sorts.len()) as u64, "measurement");
    format!("{blocks}{sorts}{count}: {time}see {}\n", page.display())
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::Lab(error)
    }
}
