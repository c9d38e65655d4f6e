//! The study: cells measured one after the other, each kept before the next begins.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ascot_io::FaultHook;
use ascot_sort::request::Volumes;

use super::cell::{SortCell, Source};
use super::forecast::{Compared, Forecast};
use super::measure::Measurement;
use super::parameters;
use super::results::{self, SortResult};
use crate::error::LabError;
use crate::observe::{Finished, Observer, Planned, Progress, Stop};
use crate::place;
use crate::streams::Backend;
use crate::table::SEPARATOR;
use crate::work_dir::WorkDir;

/// Space that a mapped stream allocates ahead of what it writes, bytes.
const ALLOCATED_AHEAD_BYTES: u64 = 1 << 20;
/// Bytes of the files that calibrate the forecast.
const CALIBRATION_BYTES: u64 = 1 << 20;

/// A study of merge sorts.
#[derive(Debug, Clone)]
pub struct SortStudy {
    /// The cells, in the order in which they are measured; cells that occur twice are measured once.
    pub cells: Vec<SortCell>,
    /// The directory of the results, which must exist.
    pub out: PathBuf,
    /// The directory in which files are sorted.
    pub work: PathBuf,
    /// Memory that one sort may take, bytes.
    pub memory_bytes: u64,
    /// What is known of the volume of `work`, for the planner.
    pub volumes: Volumes,
    /// Sees all operations on the files of merge sorts; for tests.
    pub faults: Option<Arc<dyn FaultHook>>,
}

impl SortStudy {
    /// Measures the cells that the table of results does not have yet.
    ///
    /// # Errors
    /// Too little memory or space for a cell, before anything is written; those of the streams and of sorts; and
    /// [`LabError::Stopped`]. Rows of finished cells stay.
    pub fn run(&self, observer: &dyn Observer, stop: &Stop) -> Result<Finished<SortResult>, LabError> {
        let place = place::name_of(&self.work)?;
        let (cells, left) = self.cells_left(&place)?;
        let space_bytes = left.iter().map(space_bytes).max().unwrap_or(0);
        let work = WorkDir::create(&self.work)?;
        let (mut table, mut finished) = results::open(&self.out)?;
        finished.retain(|result| result.place == place);
        let table_path = table.path().to_path_buf();
        let mut measurement = self.measurement(work.path(), &table_path, &place, stop);
        let mut forecast = Forecast::calibrate(&left, &mut measurement)?;
        let mut compared = Compared::of(&finished);
        let predicted_s = forecast.left_s(&left, &compared);
        let finished_before = cells.len() - left.len();
        observer.planned(&Planned { measurements: left.len(), finished_before, predicted_s, space_bytes });
        let began = Instant::now();
        for (number, cell) in left.iter().enumerate() {
            observer.progress(&Progress {
                what: cell.to_string(),
                finished: finished_before + number,
                total: cells.len(),
                elapsed_s: began.elapsed().as_secs_f64(),
                left_s: forecast.left_s(&left[number..], &compared),
            });
            let since = Instant::now();
            let result = measurement.run(cell, &finished)?;
            table.append(&results::fields_of(&result))?;
            let of_cell_s = forecast.seconds(cell, &compared);
            forecast.correct(cell, of_cell_s, since.elapsed().as_secs_f64());
            compared.add(cell);
            finished.push(result);
        }
        let taken_s = began.elapsed().as_secs_f64();
        let result_of = |cell: &SortCell| finished.iter().find(|result| result.cell == *cell).cloned();
        let results = cells.iter().filter_map(result_of).collect();
        Ok(Finished { results, measured: left.len(), predicted_s, taken_s })
    }

    /// Checks that all cells can be measured; makes no file.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn check(&self) -> Result<(), LabError> {
        self.cells_left(&place::name_of(&self.work)?).map(|_| ())
    }

    /// Predicts the study without making its measurements.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn predict(&self, stop: &Stop) -> Result<Planned, LabError> {
        let place = place::name_of(&self.work)?;
        let (cells, left) = self.cells_left(&place)?;
        let space_bytes = left.iter().map(space_bytes).max().unwrap_or(0);
        let finished_before = cells.len() - left.len();
        let mut planned =
            Planned { measurements: left.len(), finished_before, predicted_s: 0.0, space_bytes };
        if left.is_empty() {
            return Ok(planned);
        }
        let work = WorkDir::create(&self.work)?;
        let table = self.out.join(results::FILE_NAME);
        let mut measurement = self.measurement(work.path(), &table, &place, stop);
        let forecast = Forecast::calibrate(&left, &mut measurement)?;
        let known: Vec<SortResult> =
            results::read(&self.out)?.into_iter().filter(|result| result.place == place).collect();
        planned.predicted_s = forecast.left_s(&left, &Compared::of(&known));
        Ok(planned)
    }

    /// All cells, and those that the table of results does not have; an error if they cannot be measured.
    fn cells_left(&self, place: &str) -> Result<(Vec<SortCell>, Vec<SortCell>), LabError> {
        self.check_memory()?;
        let cells = self.different_cells();
        self.check_names(&cells)?;
        let known = self.finished_before(place)?;
        let left: Vec<SortCell> = cells.iter().filter(|cell| !known.contains(*cell)).cloned().collect();
        self.check_space(&left)?;
        Ok((cells, left))
    }

    fn measurement<'a>(
        &'a self,
        directory: &'a Path,
        table: &'a Path,
        place: &'a str,
        stop: &'a Stop,
    ) -> Measurement<'a> {
        Measurement {
            place,
            directory,
            stop,
            table,
            out: &self.out,
            memory_bytes: self.memory_bytes,
            volumes: self.volumes.clone(),
            faults: self.faults.clone(),
            input: None,
        }
    }

    fn different_cells(&self) -> Vec<SortCell> {
        let mut seen = HashSet::new();
        self.cells.iter().filter(|cell| seen.insert(*cell)).cloned().collect()
    }

    /// The cells that were measured in this place, and whose outputs are there.
    fn finished_before(&self, place: &str) -> Result<HashSet<SortCell>, LabError> {
        let is_kept = |cell: &SortCell| cell.output.as_ref().is_none_or(|name| self.out.join(name).exists());
        let here = results::read(&self.out)?.into_iter().filter(|result| result.place == place);
        Ok(here.map(|result| result.cell).filter(is_kept).collect())
    }

    fn check_memory(&self) -> Result<(), LabError> {
        let needed = |cell: &SortCell| cell.run_bytes().max(cell.stream_bytes());
        let too_large = self.cells.iter().find(|cell| needed(cell) > self.memory_bytes);
        too_large.map_or(Ok(()), |cell| {
            let needed_bytes = needed(cell);
            let memory_bytes = self.memory_bytes;
            Err(LabError::SortMemory { what: cell.to_string(), needed_bytes, memory_bytes })
        })
    }

    /// Refuses names that the table cannot hold, and outputs that would replace a file that no sort of this table made.
    fn check_names(&self, cells: &[SortCell]) -> Result<(), LabError> {
        let sources = cells.iter().filter_map(|cell| match &cell.source {
            Source::File(path) => Some(path),
            Source::Random(_) => None,
        });
        let outputs: HashSet<&PathBuf> = cells.iter().filter_map(|cell| cell.output.as_ref()).collect();
        for path in sources.chain(outputs.iter().copied()) {
            if path.to_str().is_none_or(|text| text.contains([SEPARATOR, '\n', '\r'])) {
                let text =
                    format!("the name {} cannot be part of a table\n  rename the file", path.display());
                return Err(LabError::Request(text));
            }
        }
        if outputs.is_empty() {
            return Ok(());
        }
        let made: HashSet<PathBuf> =
            results::read(&self.out)?.into_iter().filter_map(|result| result.cell.output).collect();
        for output in outputs {
            let exists = !made.contains(output) && self.out.join(output).symlink_metadata().is_ok();
            let problem = parameters::problem_of_output(output)
                .or(exists.then_some("exists, and no sort of this table has made it"));
            let Some(problem) = problem else { continue };
            return Err(LabError::Request(format!(
                "the output {} {problem}\n  name another file",
                output.display()
            )));
        }
        Ok(())
    }

    /// Checks the space of the files that are sorted, and of the outputs that are kept.
    fn check_space(&self, left: &[SortCell]) -> Result<(), LabError> {
        let sorted_bytes = left.iter().map(space_bytes).max().unwrap_or(0);
        let mut outputs: HashMap<&Path, u64> = HashMap::new();
        for cell in left {
            let Some(name) = &cell.output else { continue };
            let bytes = outputs.entry(name).or_default();
            *bytes = cell.data_bytes().max(*bytes);
        }
        let kept_bytes = outputs.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let device = |path: &Path| {
            fs::metadata(path)
                .map(|stat| ascot_io::device_of(&stat))
                .map_err(LabError::file("look for", path))
        };
        if kept_bytes > 0 && device(&self.out)? != device(&self.work)? {
            place::check_free(&self.out, "--out", kept_bytes)?;
            return place::check_free(&self.work, "--work", sorted_bytes);
        }
        place::check_free(&self.work, "--work", sorted_bytes.saturating_add(kept_bytes))
    }
}

/// Bytes of the files of a cell that exist at once at most: the input, if it is made; the files of one pass; those of
/// the next, or the output. A window that is written is allocated whole.
fn space_bytes(cell: &SortCell) -> u64 {
    let files: u64 = if matches!(cell.source, Source::Random(_)) { 3 } else { 2 };
    let ahead = match cell.write.backend {
        Backend::Mapped => cell.write.request_bytes().max(ALLOCATED_AHEAD_BYTES),
        _ => 0,
    };
    cell.data_bytes().saturating_mul(files).saturating_add(ahead).saturating_add(CALIBRATION_BYTES)
}
