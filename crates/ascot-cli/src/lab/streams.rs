//! `ascot lab streams` and `ascot lab all`.

use std::path::PathBuf;

use ascot_io::Direction;
use ascot_lab::sorts::{SortStudy, summary};
use ascot_lab::streams::grid::{CACHES, DIRECTIONS};
use ascot_lab::streams::parameters::{self, Row};
use ascot_lab::streams::{Backend, Cache, Cell, StreamStudy};
use ascot_lab::whole::{WholeGrid, WholeResults, WholeStudy};
use ascot_lab::{Finished, page};
use ascot_sort::plan::budget::default_memory;
use clap::ArgMatches;

use super::directories::{OutDirectory, out_directory, work_directory};
use super::pages::{self, Run};
use super::screen::Screen;
use crate::failure::{Failure, Result};
use crate::numbers;
use crate::sys::print;
use crate::values;
use crate::volume;

/// Defaults of the flags.
const DEFAULT_ELEMENTS: &str = "1e3..1e6";
const DEFAULT_STREAMS: &str = "1";
const DEFAULT_EXPONENTS: &str = "12..20";
const DEFAULT_LOOPS: &str = "6";
/// The most measurements that are printed one by one.
const SHOWN: usize = 60;

/// `ascot lab streams`.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let rows = match values::path(matches, "params") {
        Some(path) => parameters::read(&path)?,
        None => rows_of_flags(matches)?,
    };
    let directions: &[Direction] = match values::word(matches, "direction") {
        Some("read") => &[Direction::Read],
        Some("write") => &[Direction::Write],
        _ => &DIRECTIONS,
    };
    let caches = caches(matches);
    let cells: Vec<Cell> = rows.iter().flat_map(|row| row.cells(directions, caches)).collect();
    study(matches, cells)
}

/// `--cache`.
pub(super) fn caches(matches: &ArgMatches) -> &'static [Cache] {
    match values::word(matches, "cache") {
        Some("cold") => &[Cache::Cold],
        Some("warm") => &[Cache::Warm],
        _ => &CACHES,
    }
}

/// `ascot lab all`.
pub fn all(matches: &ArgMatches) -> Result<u8> {
    let grid = if matches.get_flag("quick") { WholeGrid::quick() } else { WholeGrid::published() };
    let Places { out, work, memory_bytes } = places(matches)?;
    let cells = grid.streams.cells();
    let volumes = volume::of_directory(matches, &work)?.unwrap_or_default();
    let streams = StreamStudy { cells, out: out.to_path_buf(), work: work.clone(), memory_bytes };
    let sorts = SortStudy {
        cells: grid.sorts,
        out: out.to_path_buf(),
        work: work.clone(),
        memory_bytes,
        volumes,
        faults: None,
    };
    let screen = Screen::new(matches.get_flag("quiet"));
    let study = WholeStudy { streams, sorts };
    let (WholeResults { streams, sorts, predicted_s }, used) =
        screen.watch(matches, &out, |screen, stop| study.run(screen, stop))?;
    let measured = streams.measured + sorts.measured;
    let run = Run { measured, predicted_s, taken_s: streams.taken_s + sorts.taken_s, used };
    let page = pages::write(matches, &out, &work, &run)?;
    let blocks = page::best_blocks_text(&streams.results) + &page::ios_text(&streams.results);
    let count = streams.results.len() + sorts.results.len();
    print(format!("{blocks}{}\n{}", summary::text(&sorts.results), run.closing_line(count, &page)))?;
    Ok(0)
}

/// The directories of a study, and its memory.
struct Places {
    out: OutDirectory,
    work: PathBuf,
    memory_bytes: u64,
}

fn places(matches: &ArgMatches) -> Result<Places> {
    let memory_bytes = numbers::memory(matches, "memory", default_memory())?;
    let out = out_directory(matches)?;
    let work = work_directory(matches, &out)?;
    Ok(Places { out, work, memory_bytes })
}

/// Measures the cells, writes the page and prints the conclusions.
fn study(matches: &ArgMatches, cells: Vec<Cell>) -> Result<u8> {
    let Places { out, work, memory_bytes } = places(matches)?;
    let study = StreamStudy { cells, out: out.to_path_buf(), work: work.clone(), memory_bytes };
    let screen = Screen::new(matches.get_flag("quiet"));
    let (Finished { results, measured, predicted_s, taken_s }, used) =
        screen.watch(matches, &out, |screen, stop| study.run(screen, stop))?;
    let run = Run { measured, predicted_s, taken_s, used };
    let page = pages::write(matches, &out, &work, &run)?;
    let all = if results.len() <= SHOWN { page::measurements_text(&results) } else { String::new() };
    let conclusions = page::best_blocks_text(&results) + &page::ios_text(&results);
    print(format!("{all}{conclusions}{}", run.closing_line(results.len(), &page)))?;
    Ok(0)
}

/// The rows of parameters that flags define.
fn rows_of_flags(matches: &ArgMatches) -> Result<Vec<Row>> {
    let elements = parsed("streams", matches, "n", DEFAULT_ELEMENTS, parameters::element_list)?;
    let streams = parsed("streams", matches, "k", DEFAULT_STREAMS, parameters::stream_list)?;
    let loops = parsed("streams", matches, "loops", DEFAULT_LOOPS, parameters::loops)?;
    let row = |backend| {
        let exponents = |text: &str| parameters::exponents_from(text, backend);
        let exponents = parsed("streams", matches, "b", DEFAULT_EXPONENTS, exponents)?;
        Ok(Row { backend, elements: elements.clone(), streams: streams.clone(), exponents, loops })
    };
    backends(matches)?.into_iter().map(row).collect()
}

/// The value of a flag of a study, parsed.
pub(super) fn parsed<T>(
    study: &str,
    matches: &ArgMatches,
    id: &str,
    default: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T> {
    let text = values::word(matches, id).unwrap_or(default);
    let help = format!("ascot lab {study} --help shows the form");
    parse(text).map_err(|problem| Failure::usage(format!("--{id} '{text}' {problem}"), help))
}

fn backends(matches: &ArgMatches) -> Result<Vec<Backend>> {
    let Some(text) = values::word(matches, "stream") else { return Ok(Backend::ALL.to_vec()) };
    let one = |word: &str| {
        word.trim().parse().map_err(|()| {
            Failure::usage(
                format!("--stream '{word}' is not a kind of stream"),
                "kinds: plain, buffered, sized, mapped, direct",
            )
        })
    };
    text.split(',').map(one).collect()
}
