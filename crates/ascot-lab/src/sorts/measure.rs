//! The loops of a cell, timed, and the sorts that it is compared with: one of all integers in memory, and the one that
//! the planner chooses with the memory of the cell.
//!
//! The time begins before the input is opened and ends when the output has its name. With a warm cache its bytes may be
//! in the page cache then; with a cold one they are on the device, and the input is read from there. Making the input,
//! dropping it from the cache and checking the output are outside the time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ascot_io::FaultHook;
use ascot_record::checksum::RecordSum;
use ascot_record::layout::{Endian, Layout, NumberFormat, NumberType};
use ascot_sort::error::SortError;
use ascot_sort::plan::budget::MIN_MEMORY_BYTES;
use ascot_sort::request::{Input, Keys, Output, SortRequest, Volumes};
use ascot_sort::{Cancel, RunOptions, Silent};

use super::cell::{SortCell, Source};
use super::external_sort::{Counted, ExternalSort};
use super::integers::{look_at, make};
use super::results::{PlannedSort, SortResult};
use crate::error::LabError;
use crate::observe::Stop;
use crate::page_cache;
use crate::streams::Cache;
use crate::times;

/// Cells with the same sort in memory: those that differ in M and d only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct InMemoryKey(SortCell);

/// Cells with the same planned sort: N, source, order, cache, loops, memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PlannedKey(u64, Source, bool, Cache, u32, u64);

impl InMemoryKey {
    pub(super) fn of(cell: &SortCell) -> Self {
        Self(SortCell { memory_elements: 0, fan_in: 0, output: None, ..cell.clone() })
    }
}

impl PlannedKey {
    pub(super) fn of(cell: &SortCell) -> Self {
        let memory_bytes = planned_memory_bytes(cell);
        Self(cell.elements, cell.source.clone(), cell.descending, cell.cache, cell.loops, memory_bytes)
    }
}

/// The memory of the planner's sort: that of the cell, or the least in which a sort works, bytes.
pub fn planned_memory_bytes(cell: &SortCell) -> u64 {
    let memory = cell.memory_elements.saturating_mul(4).saturating_add(cell.stream_bytes());
    memory.max(MIN_MEMORY_BYTES)
}

/// Measures cells in a directory.
pub struct Measurement<'a> {
    /// The private directory of the files.
    pub directory: &'a Path,
    /// Stops the study.
    pub stop: &'a Stop,
    /// The name of the place.
    pub place: &'a str,
    /// The table of results, which the error of a stopped study names.
    pub table: &'a Path,
    /// The directory of outputs that are kept.
    pub out: &'a Path,
    /// Memory that a sort may take, bytes.
    pub memory_bytes: u64,
    /// What is known of the volumes, for the planner.
    pub volumes: Volumes,
    /// Sees all operations on the files of merge sorts.
    pub faults: Option<Arc<dyn FaultHook>>,
    /// The input that exists.
    pub input: Option<PreparedInput>,
}

/// A file of integers to sort.
#[derive(Debug)]
pub struct PreparedInput {
    elements: u64,
    source: Source,
    path: PathBuf,
    sum: RecordSum,
}

impl Measurement<'_> {
    /// Measures a cell, and the sorts it is compared with unless `finished` has them.
    ///
    /// # Errors
    /// Those of the streams and of the planned sort, [`LabError::WrongSort`], and [`LabError::Stopped`].
    pub fn run(&mut self, cell: &SortCell, finished: &[SortResult]) -> Result<SortResult, LabError> {
        self.measure(cell, finished).map_err(|error| self.stopped(error))
    }

    fn measure(&mut self, cell: &SortCell, finished: &[SortResult]) -> Result<SortResult, LabError> {
        self.prepare(cell)?;
        let (loops_ns, counted) = self.loops(cell, cell.output.as_deref())?;
        let in_memory_ms = self.in_memory_ms(cell, &loops_ns, finished)?;
        let known = finished.iter().find(|result| PlannedKey::of(&result.cell) == PlannedKey::of(cell));
        let planned = match known {
            Some(result) => result.planned.clone(),
            None => self.planned(cell)?,
        };
        let Counted { reads, writes, .. } = counted;
        let place = self.place.to_owned();
        Ok(SortResult { cell: cell.clone(), place, loops_ns, reads, writes, in_memory_ms, planned })
    }

    /// Seconds of the shortest loop of a cell that is no measurement of the study.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn calibration_s(&mut self, cell: &SortCell) -> Result<f64, LabError> {
        self.prepare(cell)?;
        let (loops_ns, _) = self.loops(cell, None).map_err(|error| self.stopped(error))?;
        Ok(loops_ns.into_iter().min().unwrap_or(0) as f64 / 1e9)
    }

    /// The error of a study that was stopped, if `error` is one of a sort that was cancelled.
    fn stopped(&self, error: LabError) -> LabError {
        match error {
            LabError::Sort(SortError::Cancelled) => LabError::Stopped { path: self.table.to_path_buf() },
            other => other,
        }
    }

    /// Makes the input of a cell, or looks at the user's file, unless it is the input that exists.
    fn prepare(&mut self, cell: &SortCell) -> Result<(), LabError> {
        let is_same = |input: &PreparedInput| input.elements == cell.elements && input.source == cell.source;
        if self.input.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        self.clear()?;
        let path = match &cell.source {
            Source::File(path) => path.clone(),
            Source::Random(seed) => {
                let path = self.directory.join("input");
                make(&path, cell.elements, *seed, self.stop, self.table)?;
                path
            }
        };
        let sum = look_at(&path, cell.descending, self.stop, self.table)?.sum;
        if sum.count != cell.elements {
            return Err(LabError::Request(format!("{}: the file changes during the study", path.display())));
        }
        self.input = Some(PreparedInput { elements: cell.elements, source: cell.source.clone(), path, sum });
        Ok(())
    }

    /// Removes the input, if it was made here.
    ///
    /// # Errors
    /// The system's.
    pub fn clear(&mut self) -> Result<(), LabError> {
        match self.input.take() {
            Some(PreparedInput { source: Source::Random(_), path, .. }) => {
                fs::remove_file(&path).map_err(LabError::file("remove", &path))
            }
            _ => Ok(()),
        }
    }

    fn input(&self) -> Result<&PreparedInput, LabError> {
        self.input.as_ref().ok_or_else(|| LabError::Request("there are no integers to sort".into()))
    }

    /// Runs the loops of a cell; returns nanoseconds of all but the first, and the requests of the last. The output of
    /// the last is checked, and kept as `output`.
    fn loops(&self, cell: &SortCell, output: Option<&Path>) -> Result<(Vec<u64>, Counted), LabError> {
        let input = self.input()?;
        let cancel = Cancel::from_flag(Arc::clone(&self.stop.0));
        let sort = ExternalSort::new(cell, self.directory, &cancel, self.faults.clone());
        let sorted = self.directory.join("sorted");
        let mut loops_ns = Vec::new();
        let mut counted = Counted::default();
        for number in 0..=cell.loops {
            self.stop.check(self.table)?;
            cool(cell, &input.path)?;
            let since = Instant::now();
            counted = sort.sort(&input.path, &sorted)?;
            let taken_ns = times::nanoseconds_since(since);
            if number > 0 {
                loops_ns.push(taken_ns);
            }
            if number == cell.loops {
                self.check(cell, &sorted, &input.sum)?;
            }
            match output.filter(|_| number == cell.loops) {
                Some(output) => keep(&sorted, &self.out.join(output))?,
                None => fs::remove_file(&sorted).map_err(LabError::file("remove", &sorted))?,
            }
        }
        Ok((loops_ns, counted))
    }

    fn check(&self, cell: &SortCell, sorted: &Path, sum: &RecordSum) -> Result<(), LabError> {
        let contents = look_at(sorted, cell.descending, self.stop, self.table)?;
        let wrong = |problem| Err(LabError::WrongSort { what: cell.to_string(), problem });
        match contents {
            contents if contents.sum != *sum => wrong("it has other integers than the input"),
            contents if !contents.in_order => wrong("its integers are not in order"),
            _ => Ok(()),
        }
    }

    /// Mean milliseconds of reading the whole file, sorting it and writing it, through the streams of the cell.
    fn in_memory_ms(
        &self,
        cell: &SortCell,
        loops_ns: &[u64],
        finished: &[SortResult],
    ) -> Result<Option<f64>, LabError> {
        if cell.memory_elements >= cell.elements {
            return Ok(Some(stored_ms(loops_ns)));
        }
        let key = InMemoryKey::of(cell);
        let known = finished.iter().find(|result| InMemoryKey::of(&result.cell) == key);
        if let Some(result) = known {
            return Ok(result.in_memory_ms);
        }
        let whole = SortCell { memory_elements: cell.elements, ..cell.clone() };
        if whole.run_bytes() > self.memory_bytes {
            return Ok(None);
        }
        Ok(Some(stored_ms(&self.loops(&whole, None)?.0)))
    }

    /// Sorts as the planner chooses, in the memory of the cell.
    fn planned(&self, cell: &SortCell) -> Result<PlannedSort, LabError> {
        let sorted = self.directory.join("planned");
        let mut request = self.request(cell, &sorted)?;
        let cancel = Cancel::from_flag(Arc::clone(&self.stop.0));
        let mut loops_ns = Vec::new();
        let mut planned =
            PlannedSort { mean_ms: 0.0, method: "unplanned".into(), passes: 0, memory_bytes: 0 };
        let mut number = 0;
        while number <= cell.loops {
            self.stop.check(self.table)?;
            cool(cell, &self.input()?.path)?;
            let since = Instant::now();
            let report = match ascot_sort::sort(&request, &RunOptions::default(), &Silent, &cancel) {
                Ok(report) => report,
                // More memory than the least of any sort may be needed for this one: it is shown with the result.
                Err(SortError::TooLittleMemory { given_bytes, min_bytes }) if min_bytes > given_bytes => {
                    request.memory_bytes = Some(min_bytes);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if number > 0 {
                loops_ns.push(times::nanoseconds_since(since));
            }
            fs::remove_file(&sorted).map_err(LabError::file("remove", &sorted))?;
            if let Some(plan) = report.plan {
                planned.method = plan.chosen.method;
            }
            planned.passes = u32::try_from(report.passes.len()).unwrap_or(u32::MAX);
            planned.memory_bytes = report.memory_bytes;
            number += 1;
        }
        Ok(PlannedSort { mean_ms: stored_ms(&loops_ns), ..planned })
    }

    fn request(&self, cell: &SortCell, output: &Path) -> Result<SortRequest, LabError> {
        let format = NumberFormat { kind: NumberType::I32, endian: Endian::Little };
        Ok(SortRequest {
            memory_bytes: Some(planned_memory_bytes(cell)),
            temp_dirs: vec![self.directory.to_path_buf()],
            volumes: self.volumes.clone(),
            ..SortRequest::new(
                vec![Input::Path(self.input()?.path.clone())],
                Output::Path(output.to_path_buf()),
                Layout::Number(format),
                Keys::Value { descending: cell.descending },
            )
        })
    }
}

/// Drops the input of a cell with a cold cache from the page cache.
fn cool(cell: &SortCell, input: &Path) -> Result<(), LabError> {
    match cell.cache {
        Cache::Cold => page_cache::drop_file(input),
        Cache::Warm => Ok(()),
    }
}

/// Moves a sorted file to its place, where it appears whole.
fn keep(sorted: &Path, output: &Path) -> Result<(), LabError> {
    if fs::rename(sorted, output).is_ok() {
        return Ok(());
    }
    // Another volume, or a place that cannot be written to, which the copy reports.
    let mut name = output.file_name().unwrap_or_default().to_os_string();
    name.push(".unfinished");
    let unfinished = output.with_file_name(name);
    let copied = fs::copy(sorted, &unfinished)
        .and_then(|_| fs::File::open(&unfinished)?.sync_all())
        .and_then(|()| fs::rename(&unfinished, output))
        .and_then(|()| fs::remove_file(sorted));
    copied.map_err(|error| {
        // What is reported is the first error.
        let _ = fs::remove_file(&unfinished);
        LabError::file("write", output)(error)
    })
}

/// The mean of some times as the table stores it: in milliseconds, with whole microseconds.
fn stored_ms(loops_ns: &[u64]) -> f64 {
    (times::mean_ms(loops_ns) * 1e3).round() / 1e3
}
