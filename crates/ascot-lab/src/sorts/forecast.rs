//! The time of a study, predicted from a calibration of a second and corrected while the study runs.
//!
//! One loop of a cell takes
//!
//! ```text
//!   files * file + integers moved * move + comparisons * compare       seconds
//! ```
//!
//! Each pair of streams and state of the cache has rates of its own. Each run and each merged file is made, opened and
//! removed once. Integers are moved by run formation and by every merge; the I/Os of one kind of streams are in
//! proportion to them. Runs take N log2 M comparisons and each pass of merges N log2 d. The calibration sorts a few
//! thousand integers with large runs and with tiny ones. Cells that were measured correct those that follow: the ratio
//! of taken to predicted time of the same streams and M, or of all.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use ascot_model::random::SplitMix64;
use ascot_sort::merge::element_streams::sort_integers;

use super::cell::{SortCell, Source, StreamChoice};
use super::measure::{InMemoryKey, Measurement, PlannedKey};
use super::results::SortResult;
use crate::corrections::{CALIBRATION_ROUNDS, Corrections};
use crate::error::LabError;
use crate::streams::Cache;

/// Integers of a calibration cell, and of its tiny runs.
const CALIBRATION_ELEMENTS: u64 = 1 << 15;
const TINY_RUN_ELEMENTS: u64 = 1 << 9;
/// Seconds to make, sum up or check one integer outside the measured time.
const ELEMENT_OUTSIDE_S: f64 = 4e-9;
/// Seconds that a planned sort takes beside those of a sort in memory.
const PLANNED_START_S: f64 = 5e-3;

/// Cells with the same rates.
type Streams = (StreamChoice, StreamChoice, Cache);

/// Seconds of the parts of a loop.
#[derive(Debug, Clone, Copy)]
struct Rates {
    file_s: f64,
    move_s: f64,
    compare_s: f64,
}

/// The parts of a loop.
struct Parts {
    files: f64,
    moves: f64,
    comparisons: f64,
}

impl Parts {
    fn of(cell: &SortCell) -> Self {
        let model = cell.model();
        let elements = cell.elements as f64;
        let merged = model.merged_elements() as f64;
        let runs = cell.memory_elements.min(cell.elements).max(2) as f64;
        Self {
            files: (model.runs().max(1) + model.merges()) as f64,
            moves: elements + merged,
            comparisons: elements * runs.log2() + merged * f64::from(cell.fan_in.max(2)).log2(),
        }
    }
}

impl Rates {
    fn loop_s(&self, cell: &SortCell) -> f64 {
        let parts = Parts::of(cell);
        parts.files * self.file_s + parts.moves * self.move_s + parts.comparisons * self.compare_s
    }
}

/// The sorts that are measured once for several cells.
#[derive(Debug, Clone, Default)]
pub(super) struct Compared {
    in_memory: HashSet<InMemoryKey>,
    planned: HashSet<PlannedKey>,
    source: Option<(u64, Source)>,
}

impl Compared {
    /// Those that results have.
    pub(super) fn of(finished: &[SortResult]) -> Self {
        let mut compared = Self::default();
        finished.iter().for_each(|result| compared.add(&result.cell));
        compared.source = None;
        compared
    }

    /// A cell is measured.
    pub(super) fn add(&mut self, cell: &SortCell) {
        self.in_memory.insert(InMemoryKey::of(cell));
        self.planned.insert(PlannedKey::of(cell));
        self.source = Some((cell.elements, cell.source.clone()));
    }
}

/// Predicts the time of cells.
#[derive(Debug, Default)]
pub struct Forecast {
    rates: HashMap<Streams, Rates>,
    corrections: Corrections<(Streams, u64)>,
}

impl Forecast {
    /// Measures the rates that `cells` need.
    ///
    /// # Errors
    /// Those of the measurements.
    pub fn calibrate(cells: &[SortCell], measurement: &mut Measurement<'_>) -> Result<Self, LabError> {
        let mut forecast = Self::default();
        let mut different: HashMap<Streams, &SortCell> = HashMap::new();
        for cell in cells {
            different.entry(streams(cell)).or_insert(cell);
        }
        let mut shortest: HashMap<Streams, Calibrated> = HashMap::new();
        for (of, cell) in (0..CALIBRATION_ROUNDS).flat_map(|_| &different) {
            let measured = Calibrated::measure(cell, measurement)?;
            let times = shortest.entry(*of).or_insert(measured);
            *times = times.shortest(measured);
        }
        let compare_s = (0..CALIBRATION_ROUNDS).map(|_| compare_s()).fold(f64::INFINITY, f64::min);
        forecast.rates =
            shortest.iter().map(|(of, times)| (*of, times.rates(different[of], compare_s))).collect();
        measurement.clear()?;
        Ok(forecast)
    }

    /// Predicted seconds of a cell with all its loops and what it is compared with, before any correction. `compared`
    /// has the sorts that are measured already.
    pub(super) fn seconds(&self, cell: &SortCell, compared: &Compared) -> f64 {
        let Some(rates) = self.rates.get(&streams(cell)) else { return 0.0 };
        let loops = f64::from(cell.loops) + 1.0;
        let elements = cell.elements as f64;
        let in_memory_s = rates.loop_s(&SortCell { memory_elements: cell.elements.max(1), ..cell.clone() });
        let mut seconds = loops * rates.loop_s(cell) + elements * ELEMENT_OUTSIDE_S;
        if cell.memory_elements < cell.elements && !compared.in_memory.contains(&InMemoryKey::of(cell)) {
            seconds += loops * in_memory_s + elements * ELEMENT_OUTSIDE_S;
        }
        if !compared.planned.contains(&PlannedKey::of(cell)) {
            seconds += loops * (in_memory_s + PLANNED_START_S);
        }
        let source = (cell.elements, cell.source.clone());
        if compared.source.as_ref() != Some(&source) {
            seconds += 2.0 * elements * ELEMENT_OUTSIDE_S;
        }
        seconds
    }

    /// Predicted seconds of cells, corrected by those that were measured.
    pub(super) fn left_s(&self, cells: &[SortCell], compared: &Compared) -> f64 {
        let mut compared = compared.clone();
        let mut left_s = 0.0;
        for cell in cells {
            left_s += self.seconds(cell, &compared) * self.corrections.factor(&kind(cell));
            compared.add(cell);
        }
        left_s
    }

    /// Notes the seconds that a cell took.
    pub(super) fn correct(&mut self, cell: &SortCell, predicted_s: f64, taken_s: f64) {
        self.corrections.note(kind(cell), predicted_s, taken_s);
    }
}

/// Cells with the same streams and M correct one another.
fn kind(cell: &SortCell) -> (Streams, u64) {
    (streams(cell), cell.memory_elements)
}

fn streams(cell: &SortCell) -> Streams {
    (cell.read, cell.write, cell.cache)
}

/// Seconds of a comparison of the kernel that sorts runs.
fn compare_s() -> f64 {
    let mut random = SplitMix64(1);
    let mut integers: Vec<u32> = (0..CALIBRATION_ELEMENTS).map(|_| random.next_u64() as u32).collect();
    let since = Instant::now();
    sort_integers(&mut integers, false);
    let count = CALIBRATION_ELEMENTS as f64;
    since.elapsed().as_secs_f64() / (count * count.log2())
}

/// A cell of the calibration, with runs of `memory_elements`.
fn calibration_cell(cell: &SortCell, memory_elements: u64) -> SortCell {
    SortCell {
        elements: CALIBRATION_ELEMENTS,
        memory_elements,
        fan_in: 8,
        loops: 2,
        source: Source::Random(1),
        output: None,
        ..cell.clone()
    }
}

/// Seconds of the shortest loop of the calibration's cell with one run and of that with tiny runs.
#[derive(Debug, Clone, Copy)]
struct Calibrated {
    whole_s: f64,
    tiny_s: f64,
}

impl Calibrated {
    fn measure(cell: &SortCell, measurement: &mut Measurement<'_>) -> Result<Self, LabError> {
        let whole_s = measurement.calibration_s(&calibration_cell(cell, CALIBRATION_ELEMENTS))?;
        let tiny_s = measurement.calibration_s(&calibration_cell(cell, TINY_RUN_ELEMENTS))?;
        Ok(Self { whole_s, tiny_s })
    }

    fn shortest(self, other: Self) -> Self {
        Self { whole_s: self.whole_s.min(other.whole_s), tiny_s: self.tiny_s.min(other.tiny_s) }
    }

    /// Two equations: the comparisons are known.
    fn rates(self, cell: &SortCell, compare_s: f64) -> Rates {
        let whole = Parts::of(&calibration_cell(cell, CALIBRATION_ELEMENTS));
        let tiny = Parts::of(&calibration_cell(cell, TINY_RUN_ELEMENTS));
        let rest = |seconds: f64, parts: &Parts| (seconds - parts.comparisons * compare_s).max(0.0);
        let whole_s = rest(self.whole_s, &whole);
        let tiny_s = rest(self.tiny_s, &tiny);
        let determinant = whole.files * tiny.moves - tiny.files * whole.moves;
        let move_s =
            ((whole.files * tiny_s - tiny.files * whole_s) / determinant).clamp(0.0, whole_s / whole.moves);
        let file_s = ((tiny_s - tiny.moves * move_s) / tiny.files).max(0.0);
        Rates { file_s, move_s, compare_s }
    }
}
