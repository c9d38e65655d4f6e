//! The study: cells measured one after the other, each kept before the next begins.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Instant;

use ascot_io::Direction;

use super::cell::{Backend, Cell};
use super::forecast::Forecast;
use super::measure::{InputFiles, Measured, Measurement};
use super::results;
use crate::error::LabError;
use crate::observe::{Finished, Observer, Planned, Progress, Stop};
use crate::place;
use crate::work_dir::WorkDir;

/// Bytes of the files of a calibration: those to read, and a window that is written.
const CALIBRATION_BYTES: u64 = 2 << 20;

/// A study of streams.
#[derive(Debug, Clone)]
pub struct StreamStudy {
    /// The cells, in the order in which they are measured; cells that occur twice are measured once.
    pub cells: Vec<Cell>,
    /// The directory of the results, which must exist.
    pub out: PathBuf,
    /// The directory in which files are measured.
    pub work: PathBuf,
    /// Memory that the streams of one cell may take, bytes.
    pub memory_bytes: u64,
}

impl StreamStudy {
    /// Measures the cells that the table of results does not have yet.
    ///
    /// # Errors
    /// Too little memory or space for a cell, before anything is written; those of the streams; and
    /// [`LabError::Stopped`]. Rows of finished cells stay.
    pub fn run(&self, observer: &dyn Observer, stop: &Stop) -> Result<Finished<Measured>, LabError> {
        self.check_memory()?;
        let cells = self.different_cells();
        let place = place::name_of(&self.work)?;
        let left = self.cells_left(&cells, &place)?;
        let space_bytes = space_bytes(&left);
        let work = WorkDir::create(&self.work)?;
        let (mut table, mut finished) = results::open(&self.out)?;
        finished.retain(|measured| measured.place == place);
        place::notice(&self.work).iter().for_each(|notice| observer.notice(notice));
        let table_path = table.path().to_path_buf();
        let inputs = InputFiles::new(work.path());
        let mut measurement =
            Measurement { directory: work.path(), stop, place: &place, table: &table_path, inputs };
        let mut forecast = Forecast::calibrate(&left, &mut measurement)?;
        let predicted_s = forecast.left_s(&left);
        let finished_before = cells.len() - left.len();
        observer.planned(&Planned { measurements: left.len(), finished_before, predicted_s, space_bytes });
        let began = Instant::now();
        for (number, cell) in left.iter().enumerate() {
            observer.progress(&Progress {
                what: cell.to_string(),
                finished: finished_before + number,
                total: cells.len(),
                elapsed_s: began.elapsed().as_secs_f64(),
                left_s: forecast.left_s(&left[number..]),
            });
            measurement.prepare(cell)?;
            let since = Instant::now();
            let measured = measurement.run(cell)?;
            table.append(&results::fields_of(&measured))?;
            forecast.correct(cell, since.elapsed().as_secs_f64());
            finished.push(measured);
            if left.get(number + 1).is_none_or(|next| next.elements != cell.elements) {
                measurement.inputs.clear()?;
            }
        }
        let taken_s = began.elapsed().as_secs_f64();
        let result_of = |cell: &Cell| finished.iter().find(|measured| measured.cell == *cell).cloned();
        let results = cells.iter().filter_map(result_of).collect();
        Ok(Finished { results, measured: left.len(), predicted_s, taken_s })
    }

    /// Checks that all cells can be measured; makes no file.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn check(&self) -> Result<(), LabError> {
        self.check_memory()?;
        self.cells_left(&self.different_cells(), &place::name_of(&self.work)?).map(|_| ())
    }

    /// Predicts the study without making its measurements.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn predict(&self, stop: &Stop) -> Result<Planned, LabError> {
        self.check_memory()?;
        let cells = self.different_cells();
        let place = place::name_of(&self.work)?;
        let left = self.cells_left(&cells, &place)?;
        let space_bytes = space_bytes(&left);
        let work = WorkDir::create(&self.work)?;
        let table = self.out.join(results::FILE_NAME);
        let inputs = InputFiles::new(work.path());
        let mut measurement =
            Measurement { directory: work.path(), stop, place: &place, table: &table, inputs };
        let predicted_s = Forecast::calibrate(&left, &mut measurement)?.left_s(&left);
        let finished_before = cells.len() - left.len();
        Ok(Planned { measurements: left.len(), finished_before, predicted_s, space_bytes })
    }

    /// The cells that the table of results does not have; an error if their files do not fit.
    fn cells_left(&self, cells: &[Cell], place: &str) -> Result<Vec<Cell>, LabError> {
        let found = results::read(&self.out)?;
        let here = found.iter().filter(|measured| measured.place == place);
        let known: HashSet<Cell> = here.map(|measured| measured.cell).collect();
        let left: Vec<Cell> = cells.iter().filter(|cell| !known.contains(cell)).copied().collect();
        place::check_free(&self.work, "--work", space_bytes(&left))?;
        Ok(left)
    }

    fn different_cells(&self) -> Vec<Cell> {
        let mut seen = HashSet::new();
        self.cells.iter().filter(|cell| seen.insert(**cell)).copied().collect()
    }

    fn check_memory(&self) -> Result<(), LabError> {
        let too_large = self.cells.iter().find(|cell| cell.memory_bytes() > self.memory_bytes);
        too_large.map_or(Ok(()), |cell| {
            let needed_bytes = cell.memory_bytes();
            let memory_bytes = self.memory_bytes;
            Err(LabError::Memory { what: cell.to_string(), needed_bytes, memory_bytes })
        })
    }
}

/// Bytes of the files that exist at once at most: of one N, those to read and those of one cell that writes.
fn space_bytes(cells: &[Cell]) -> u64 {
    let most = |elements: u64, direction: Direction| {
        let of = cells.iter().filter(|cell| cell.elements == elements && cell.direction == direction);
        of.map(file_bytes).max().unwrap_or(0)
    };
    let of = |elements| most(elements, Direction::Read).saturating_add(most(elements, Direction::Write));
    let largest = cells.iter().map(|cell| of(cell.elements)).max();
    largest.map_or(0, |bytes| bytes.max(CALIBRATION_BYTES))
}

/// Bytes of a cell's files. A window that is written is allocated whole.
fn file_bytes(cell: &Cell) -> u64 {
    match (cell.direction, cell.backend, cell.block_bytes()) {
        (Direction::Write, Backend::Mapped, Some(window)) => {
            let file = cell.data_bytes() / u64::from(cell.streams.max(1));
            u64::from(cell.streams).saturating_mul(file.next_multiple_of(window))
        }
        _ => cell.data_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Notes;
    use crate::streams::cell::Cache;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    fn study(directory: &Path) -> StreamStudy {
        let cell = |backend, exponent, elements| Cell {
            direction: Direction::Read,
            backend,
            exponent,
            streams: 2,
            elements,
            cache: Cache::Warm,
            loops: 3,
        };
        let cells = vec![
            cell(Backend::Plain, 0, 100),
            cell(Backend::Sized, 10, 100),
            cell(Backend::Plain, 0, 100),
            cell(Backend::Mapped, 12, 1000),
            cell(Backend::Direct, 12, 1000),
        ];
        let path = directory.to_path_buf();
        StreamStudy { cells, out: path.clone(), work: path, memory_bytes: 1 << 24 }
    }

    #[test]
    fn an_interrupted_study_continues_after_its_last_row() {
        let dir = tempfile::tempdir().unwrap();
        let study = study(dir.path());
        let stop = Stop::default();
        let notes = Notes::new(&stop, 2);
        let error = study.run(&notes, &stop).unwrap_err();
        assert!(matches!(error, LabError::Stopped { .. }), "{error}");
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names(), 1, "only the table is left");

        stop.0.store(false, Ordering::Relaxed);
        let notes = Notes::new(&stop, usize::MAX);
        let finished = study.run(&notes, &stop).unwrap();
        assert_eq!((finished.measured, finished.results.len()), (2, 4));
        assert_eq!(
            finished.results.iter().map(|result| result.cell).collect::<Vec<_>>(),
            study.different_cells()
        );
        let shown: Vec<usize> = notes.shown.borrow().iter().map(|progress| progress.finished).collect();
        assert_eq!(shown, [2, 3]);
        let planned = notes.planned.borrow()[0];
        assert_eq!((planned.measurements, planned.finished_before), (2, 2));
        assert!(planned.predicted_s > 0.0 && names() == 1);

        let again = study.run(&Notes::new(&stop, usize::MAX), &stop).unwrap();
        assert_eq!((again.measured, again.results), (0, finished.results));
    }

    #[test]
    fn too_little_memory_or_space_is_an_error_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut study = study(dir.path());
        let stop = Stop::default();
        let notes = Notes::new(&stop, usize::MAX);
        study.memory_bytes = 1000;
        let error = study.run(&notes, &stop).unwrap_err().to_string();
        assert!(error.contains("of memory") && error.contains("--memory"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        study.memory_bytes = u64::MAX;
        study.cells[0].elements = 1 << 50;
        let error = study.run(&notes, &stop).unwrap_err().to_string();
        assert!(error.contains("the study needs") && error.contains("has"), "{error}");
        assert!(notes.shown.borrow().is_empty());
    }

    #[test]
    fn windows_that_are_written_are_allocated_whole() {
        let (direction, cache) = (Direction::Write, Cache::Cold);
        let cell = Cell {
            direction,
            backend: Backend::Mapped,
            exponent: 30,
            streams: 1,
            elements: 1000,
            cache,
            loops: 2,
        };
        assert_eq!(space_bytes(&[cell]), 1 << 30);
        let sized = Cell { backend: Backend::Sized, ..cell };
        let read = Cell { direction: Direction::Read, ..sized };
        assert_eq!(space_bytes(&[sized, read]), CALIBRATION_BYTES);
        let large = Cell { elements: 1 << 20, ..sized };
        assert_eq!(space_bytes(&[large, Cell { direction: Direction::Read, ..large }]), 8 << 20);
    }
}
