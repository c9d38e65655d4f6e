//! The page of the studies of streams and merge sorts, made from all rows of their tables.

use std::collections::HashMap;
use std::fs;
use std::hash::Hash;
use std::path::{Path, PathBuf};

use ascot_lab::page::{self, About, Section};
use ascot_lab::sorts::{SortCell, SortResult};
use ascot_lab::streams::{Cell, Measured};
use ascot_lab::{files, place, sorts, streams};
use ascot_model::resource_use::ResourceUse;
use ascot_model::units;
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::report_file::write_whole;
use crate::sys;

/// The time of a study that has ended.
pub struct Run {
    /// Measurements made.
    pub measured: usize,
    /// Seconds predicted.
    pub predicted_s: f64,
    /// Seconds taken.
    pub taken_s: f64,
    /// The use of resources, if it was sampled.
    pub used: Option<ResourceUse>,
}

impl Run {
    /// The last line of the command: `count` measurements, the time predicted beside that taken, and the page.
    pub fn closing_line(&self, count: usize, page: &Path) -> String {
        let time = match self.measured {
            0 => String::new(),
            _ => format!(
                "{} predicted, {} taken; ",
                units::seconds(self.predicted_s),
                units::seconds(self.taken_s)
            ),
        };
        format!("{}: {time}see {}\n", units::plural(count as u64, "measurement"), page.display())
    }
}

/// Writes the page of all measurements in `out` that were made in `work`, and the charts with `--plot`; returns its
/// path.
pub fn write(matches: &ArgMatches, out: &Path, work: &Path, run: &Run) -> Result<PathBuf> {
    let here = place::name_of(work)?;
    let mut streams: Vec<Measured> = streams::results::read(out)?;
    streams.retain(|measured| measured.place == here);
    keep_most_loops(&mut streams, |one| Cell { loops: 0, ..one.cell }, |one| one.cell.loops);
    let mut sorts: Vec<SortResult> = sorts::results::read(out)?;
    sorts.retain(|result| result.place == here);
    keep_most_loops(&mut sorts, |one| SortCell { loops: 0, ..one.cell.clone() }, |one| one.cell.loops);
    write_parameters(out, &streams, &sorts)?;
    let resources = run.used.as_ref().and_then(page::resources::section);
    let sections: Vec<Section> = page::sorts::section(&sorts).into_iter().chain(resources).collect();
    let html = page::page(&about(run, &here, work, streams.len() + sorts.len()), &streams, &sections);
    let path = out.join(files::PAGE);
    write_whole(&path, html.as_bytes()).map_err(Failure::file(&path, "cannot write the page"))?;
    if matches.get_flag("plot") {
        let directory = out.join(files::CHARTS);
        fs::create_dir_all(&directory)
            .map_err(Failure::file(&directory, "cannot make the directory of the charts"))?;
        for (name, svg) in page::charts(&streams, &sorts) {
            let path = directory.join(format!("{name}.svg"));
            write_whole(&path, svg.as_bytes()).map_err(Failure::file(&path, "cannot write the chart"))?;
        }
    }
    Ok(path)
}

/// Writes files of parameters with which the measurements on the page are made again.
fn write_parameters(out: &Path, streams: &[Measured], sorts: &[SortResult]) -> Result<()> {
    let of_streams = streams::parameters::text_of_cells(streams.iter().map(|one| &one.cell));
    let of_sorts = sorts::parameters::text_of_cells(sorts.iter().map(|one| &one.cell));
    let all = [
        (files::STREAMS_PARAMETERS, of_streams, streams.is_empty()),
        (files::SORTS_PARAMETERS, of_sorts, sorts.is_empty()),
    ];
    for (name, text, _) in all.into_iter().filter(|(_, _, is_empty)| !is_empty) {
        let path = out.join(name);
        write_whole(&path, text.as_bytes()).map_err(Failure::file(&path, "cannot write the parameters"))?;
    }
    Ok(())
}

/// Of measurements that differ in their loops only, keeps the one with most.
fn keep_most_loops<R, K: Eq + Hash>(results: &mut Vec<R>, key: impl Fn(&R) -> K, loops: impl Fn(&R) -> u32) {
    let mut most: HashMap<K, u32> = HashMap::new();
    for one in results.iter() {
        let known = most.entry(key(one)).or_default();
        *known = (*known).max(loops(one));
    }
    results.retain(|one| most.get(&key(one)) == Some(&loops(one)));
}

/// The lines of the page about the run.
fn about(run: &Run, place: &str, work: &Path, count: usize) -> About {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let system = rustix::system::uname();
    let processor = sys::processor_model().map_or_else(String::new, |model| format!(" ({model})"));
    let file_system = ascot_device::file_system(work).map_or_else(String::new, |name| format!(" ({name})"));
    About {
        lines: vec![
            format!(
                "ascot {}, {} {}, {threads} processors{processor}, {} of memory; measured in {place}{file_system}.",
                env!("CARGO_PKG_VERSION"),
                system.sysname().to_string_lossy(),
                system.release().to_string_lossy(),
                units::memory(sys::memory_bytes())
            ),
            format!(
                "{} measurements made in the last run, in {} (predicted: {}); {count} in all.",
                run.measured,
                units::seconds(run.taken_s),
                units::seconds(run.predicted_s)
            ),
        ],
    }
}
