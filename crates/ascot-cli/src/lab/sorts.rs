//! `ascot lab sort`.

use ascot_lab::Finished;
use ascot_lab::sorts::{
    SortCell, SortGrid, SortStudy, Source, StreamChoice, StreamRange, parameters, summary,
};
use ascot_lab::streams::parameters::{backend, element_list, exponents};
use ascot_lab::streams::{Backend, Cache};
use ascot_sort::plan::budget::default_memory;
use clap::ArgMatches;

use super::directories::{out_directory, work_directory};
use super::pages::{self, Run};
use super::screen::Screen;
use super::streams::{caches, parsed};
use crate::failure::{Failure, Result};
use crate::numbers;
use crate::sys::print;
use crate::values;
use crate::volume;

/// Defaults of the flags.
const DEFAULT_ELEMENTS: &str = "1e4,1e6";
const DEFAULT_MEMORY: &str = "1e3..1e6";
const DEFAULT_FAN_IN: &str = "10,25,30";
const DEFAULT_STREAM: &str = "mapped";
const DEFAULT_EXPONENT: &str = "16";
const DEFAULT_LOOPS: &str = "5";
const DEFAULT_SEED: &str = "1";

/// Runs the study.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let caches = caches(matches);
    let grids = match values::path(matches, "params") {
        Some(path) => parameters::read(&path, caches)?,
        None => vec![grid_of_flags(matches, caches)?],
    };
    let cells: Vec<SortCell> = grids.iter().flat_map(SortGrid::cells).collect();
    let memory_bytes = numbers::memory(matches, "memory-limit", default_memory())?;
    let out = out_directory(matches)?;
    let work = work_directory(matches, &out)?;
    let volumes = volume::of_directory(matches, &work)?.unwrap_or_default();
    let study = SortStudy { cells, out: out.to_path_buf(), work, memory_bytes, volumes, faults: None };
    let screen = Screen::new(matches.get_flag("quiet"));
    let (finished, used) = screen.watch(matches, &out, |screen, stop| study.run(screen, stop))?;
    let Finished { results, measured, predicted_s, taken_s } = &finished;
    let run = Run { measured: *measured, predicted_s: *predicted_s, taken_s: *taken_s, used };
    let page = pages::write(matches, &study.out, &study.work, &run)?;
    print(format!("{}\n{}", summary::text(results), run.closing_line(results.len(), &page)))?;
    Ok(0)
}

fn grid_of_flags(matches: &ArgMatches, caches: &[Cache]) -> Result<SortGrid> {
    let seed = |text: &str| text.parse::<u64>().map_err(|_| "is not a whole number".to_owned());
    let seed = parsed("sort", matches, "seed", DEFAULT_SEED, seed)?;
    let elements = parsed("sort", matches, "n", DEFAULT_ELEMENTS, element_list)?;
    Ok(SortGrid {
        sources: elements.into_iter().map(|elements| (elements, Source::Random(seed))).collect(),
        memory: parsed("sort", matches, "memory", DEFAULT_MEMORY, element_list)?,
        fan_in: parsed("sort", matches, "fan-in", DEFAULT_FAN_IN, parameters::fan_in_list)?,
        streams: streams_of_flags(matches)?,
        descending: matches.get_flag("descending"),
        caches: caches.to_vec(),
        loops: parsed("sort", matches, "loops", DEFAULT_LOOPS, parameters::loops)?,
        output: None,
    })
}

/// The pairs of streams: with one B for both, or with all combinations of two ranges of B.
fn streams_of_flags(matches: &ArgMatches) -> Result<Vec<(StreamChoice, StreamChoice)>> {
    let read = parsed("sort", matches, "stream-read", DEFAULT_STREAM, backend)?;
    let write = parsed("sort", matches, "stream-write", DEFAULT_STREAM, backend)?;
    let range = |id: &str, backend: Backend| {
        let exponents = parsed("sort", matches, id, DEFAULT_EXPONENT, |text| exponents(text, backend))?;
        Ok::<_, Failure>(StreamRange::new(backend, exponents))
    };
    if values::is_given(matches, "b-read") || values::is_given(matches, "b-write") {
        return Ok(parameters::all_blocks(range("b-read", read)?, range("b-write", write)?));
    }
    Ok(parameters::same_blocks(range("b", read)?, range("b", write)?))
}
