//! `ascot lab streams` and `ascot lab all`.

use std::fs;
use std::path::{Path, PathBuf};

use ascot_io::Direction;
use ascot_lab::page::{self, About};
use ascot_lab::streams::grid::{CACHES, DIRECTIONS};
use ascot_lab::streams::parameters::{self, Row};
use ascot_lab::streams::{Backend, Cache, Cell, Finished, Grid, StreamStudy};
use ascot_lab::{LabError, Stop};
use ascot_model::units;
use clap::ArgMatches;

use super::screen::Screen;
use crate::failure::Failure;
use crate::numbers;
use crate::report_file::write_whole;
use crate::signals::stoppable;
use crate::sys::{self, print};
use crate::values;

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
    let grid = if matches.get_flag("quick") { Grid::quick() } else { Grid::published() };
    study(matches, grid.cells(), grid.usual_elements())
}

/// Measures the cells and writes the page; `usual` is the N of the figures in which k or B varies.
fn study(matches: &ArgMatches, cells: Vec<Cell>, usual: u64) -> Result<u8, Failure> {
    let out = out_directory(matches)?;
    let work = values::path(matches, "work").unwrap_or_else(|| out.clone());
    let memory_bytes = numbers::memory(matches, "memory", sys::memory_bytes() / 2)?;
    let study = StreamStudy { cells, out: out.clone(), work: work.clone(), memory_bytes };
    let screen = Screen::new(matches.get_flag("quiet"));
    let finished = stoppable(|cancel| study.run(&screen, &Stop(cancel.flag())))?;
    screen.clear();
    let html = page::page(&about(&finished, &work), &finished.results, usual, &[]);
    let path = out.join("index.html");
    write_whole(&path, html.as_bytes()).map_err(Failure::file(&path, "cannot write the page"))?;
    if matches.get_flag("plot") {
        write_charts(&out, &finished, usual)?;
    }
    print(text(&finished, &path))?;
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
fn about(finished: &Finished, work: &Path) -> About {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let Finished { measured, predicted_s, taken_s, .. } = finished;
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
                finished.results.len()
            ),
        ],
    }
}

fn write_charts(out: &Path, finished: &Finished, usual: u64) -> Result<(), Failure> {
    let directory = out.join("charts");
    fs::create_dir_all(&directory)
        .map_err(Failure::file(&directory, "cannot make the directory of the charts"))?;
    for (name, svg) in page::charts(&finished.results, usual) {
        let path = directory.join(format!("{name}.svg"));
        write_whole(&path, svg.as_bytes()).map_err(Failure::file(&path, "cannot write the chart"))?;
    }
    Ok(())
}

/// The closing text: the best B of each N, and where the rest is.
fn text(finished: &Finished, page: &Path) -> String {
    let table = page::best_blocks_text(&finished.results);
    let Finished { measured, predicted_s, taken_s, results } = finished;
    let time = match measured {
        0 => String::new(),
        _ => format!("{} predicted, {} taken; ", units::seconds(*predicted_s), units::seconds(*taken_s)),
    };
    let count = units::plural(results.len() as u64, "measurement");
    format!("{table}{count}: {time}see {}\n", page.display())
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::Lab(error)
    }
}
