//! The time of a study, predicted from a calibration of a few seconds and corrected while the study runs.
//!
//! One loop of a cell takes
//!
//! ```text
//!   k * open + I/Os * io + k N * element        seconds, each rate by direction, back-end and cache
//! ```
//!
//! The calibration measures three small cells for each combination: almost no elements (open), small blocks (io) and
//! large blocks (element). Cells that were measured correct the cells that follow: the ratio of taken to predicted time
//! of their own combination, or of all.

use std::collections::HashMap;

use ascot_io::Direction;

use super::cell::{Backend, Cache, Cell, ELEMENT_BYTES};
use super::measure::Measurement;
use crate::corrections::{CALIBRATION_ROUNDS, Corrections};
use crate::error::LabError;

/// Integers of the calibration cells with small and with large blocks.
const SMALL_BLOCK_ELEMENTS: u64 = 4000;
const LARGE_BLOCK_ELEMENTS: u64 = 250_000;
/// Blocks of 2^16 bytes.
const LARGE_BLOCK_EXPONENT: u8 = 16;
/// Loops of a calibration cell in a round; the first is left out.
const LOOPS: u32 = 2;
/// Seconds to make, sum up or check one element outside the measured time.
const ELEMENT_OUTSIDE_S: f64 = 2.5e-9;

/// Cells with the same rates.
type Combination = (Direction, Backend, Cache);

fn combination(cell: &Cell) -> Combination {
    (cell.direction, cell.backend, cell.cache)
}

/// Seconds of the parts of a loop.
#[derive(Debug, Clone, Copy)]
struct Rates {
    open_s: f64,
    io_s: f64,
    element_s: f64,
}

impl Rates {
    fn loop_s(&self, cell: &Cell) -> f64 {
        let ios = cell.predicted_ios() as f64;
        f64::from(cell.streams) * self.open_s
            + ios * self.io_s
            + cell.total_elements() as f64 * self.element_s
    }
}

/// Predicts the time of cells.
#[derive(Debug, Default)]
pub struct Forecast {
    rates: HashMap<Combination, Rates>,
    /// Seconds to write one byte to the device.
    device_byte_s: f64,
    corrections: Corrections<Combination>,
}

impl Forecast {
    /// Measures the rates that `cells` need.
    ///
    /// # Errors
    /// Those of the measurements.
    pub fn calibrate(cells: &[Cell], measurement: &mut Measurement<'_>) -> Result<Self, LabError> {
        let mut forecast = Self::default();
        if cells.is_empty() {
            return Ok(forecast);
        }
        let mut combinations: Vec<Combination> = cells.iter().map(combination).collect();
        combinations.sort_unstable();
        combinations.dedup();
        let device = (Direction::Write, Backend::Sized, Cache::Cold);
        if !combinations.contains(&device) {
            combinations.push(device);
        }
        let mut shortest: HashMap<Combination, Calibrated> = HashMap::new();
        for combination in (0..CALIBRATION_ROUNDS).flat_map(|_| &combinations) {
            let measured = Calibrated::measure(*combination, measurement)?;
            let times = shortest.entry(*combination).or_insert(measured);
            *times = times.shortest(measured);
        }
        forecast.rates = shortest.into_iter().map(|(of, times)| (of, times.rates(of))).collect();
        measurement.inputs.clear()?;
        let element_s = forecast.rates.get(&device).map_or(0.0, |rates| rates.element_s);
        forecast.device_byte_s = element_s / ELEMENT_BYTES as f64;
        Ok(forecast)
    }

    /// Predicted seconds of a cell, with all its loops and the work outside their time, before any correction.
    pub fn seconds(&self, cell: &Cell) -> f64 {
        let Some(rates) = self.rates.get(&combination(cell)) else { return 0.0 };
        let outside = match (cell.direction, cell.cache) {
            // The sum to compare with; files are made once for all cells of an N.
            (Direction::Read, _) => cell.total_elements() as f64 * ELEMENT_OUTSIDE_S,
            // The check, and the way to the device after each loop.
            (Direction::Write, cache) => {
                let synced = if cache == Cache::Warm { f64::from(cell.loops) } else { 0.0 };
                let synced_s = synced * cell.data_bytes() as f64 * self.device_byte_s;
                cell.total_elements() as f64 * ELEMENT_OUTSIDE_S + synced_s
            }
        };
        f64::from(cell.loops) * rates.loop_s(cell) + outside
    }

    /// Predicted seconds of cells, corrected by the cells that were measured, with the files that they read.
    pub fn left_s(&self, cells: &[Cell]) -> f64 {
        let measuring: f64 =
            cells.iter().map(|cell| self.seconds(cell) * self.corrections.factor(&combination(cell))).sum();
        measuring + self.inputs_s(cells)
    }

    /// Predicted seconds to make the files that cells read: once for each N.
    fn inputs_s(&self, cells: &[Cell]) -> f64 {
        let mut largest: HashMap<u64, u64> = HashMap::new();
        for cell in cells.iter().filter(|cell| cell.direction == Direction::Read) {
            let bytes = largest.entry(cell.elements).or_default();
            *bytes = (*bytes).max(cell.data_bytes());
        }
        largest.values().map(|&bytes| bytes as f64 * self.device_byte_s).sum()
    }

    /// Notes the seconds that a cell took.
    pub fn correct(&mut self, cell: &Cell, taken_s: f64) {
        let predicted_s = self.seconds(cell);
        self.corrections.note(combination(cell), predicted_s, taken_s);
    }
}

/// A cell of the calibration: that with one integer, with small blocks or with large ones.
fn calibration_cell(of: Combination, elements: u64) -> Cell {
    let (direction, backend, cache) = of;
    let exponent = match elements {
        _ if !backend.has_blocks() => 0,
        LARGE_BLOCK_ELEMENTS => LARGE_BLOCK_EXPONENT,
        _ => backend.min_exponent().max(2),
    };
    Cell { direction, backend, exponent, streams: 1, elements, cache, loops: LOOPS }
}

/// Seconds of the shortest loop of each cell of the calibration.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Calibrated {
    open_s: f64,
    small_s: f64,
    large_s: f64,
}

impl Calibrated {
    fn measure(of: Combination, measurement: &mut Measurement<'_>) -> Result<Self, LabError> {
        let mut shortest_s = |elements| {
            let measured = measurement.run(&calibration_cell(of, elements))?;
            Ok::<_, LabError>(measured.range_ms().0 / 1e3)
        };
        let open_s = shortest_s(1)?;
        let small_s = shortest_s(SMALL_BLOCK_ELEMENTS)?;
        // The blocks of plain streams are always small.
        let large_s = if of.1 == Backend::Plain { small_s } else { shortest_s(LARGE_BLOCK_ELEMENTS)? };
        Ok(Self { open_s, small_s, large_s })
    }

    fn shortest(self, other: Self) -> Self {
        Self {
            open_s: self.open_s.min(other.open_s),
            small_s: self.small_s.min(other.small_s),
            large_s: self.large_s.min(other.large_s),
        }
    }

    fn rates(self, of: Combination) -> Rates {
        let open_s = self.open_s;
        // Two equations: seconds = ios * io + elements * element.
        let equation = |elements, seconds: f64| {
            let cell = calibration_cell(of, elements);
            (cell.predicted_ios() as f64, cell.total_elements() as f64, (seconds - open_s).max(0.0))
        };
        let (ios, elements, small_s) = equation(SMALL_BLOCK_ELEMENTS, self.small_s);
        if of.1 == Backend::Plain {
            return Rates { open_s, io_s: small_s / ios.max(1.0), element_s: 0.0 };
        }
        let (large_ios, large_elements, large_s) = equation(LARGE_BLOCK_ELEMENTS, self.large_s);
        let determinant = ios * large_elements - large_ios * elements;
        if determinant.abs() < 1e-9 {
            return Rates { open_s, io_s: small_s / ios.max(1.0), element_s: 0.0 };
        }
        let io_s = ((small_s * large_elements - large_s * elements) / determinant).max(0.0);
        let element_s = ((large_s - large_ios * io_s) / large_elements).max(0.0);
        Rates { open_s, io_s, element_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Stop;
    use crate::streams::measure::InputFiles;
    use std::path::Path;

    fn cell(backend: Backend, elements: u64) -> Cell {
        let exponent = if backend.has_blocks() { 12 } else { 0 };
        let (direction, cache) = (Direction::Read, Cache::Warm);
        Cell { direction, backend, exponent, streams: 1, elements, cache, loops: 6 }
    }

    fn forecast() -> Forecast {
        let mut forecast = Forecast::default();
        let rates = Rates { open_s: 1e-3, io_s: 1e-6, element_s: 1e-9 };
        for backend in Backend::ALL {
            forecast.rates.insert((Direction::Read, backend, Cache::Warm), rates);
        }
        forecast
    }

    #[test]
    fn a_forecast_has_all_loops() {
        let plain = cell(Backend::Plain, 1000);
        let expected = 6.0 * (1e-3 + 1000.0 * 1e-6 + 1000.0 * 1e-9) + 1000.0 * ELEMENT_OUTSIDE_S;
        assert!((forecast().seconds(&plain) - expected).abs() < 1e-12);
    }

    #[test]
    fn a_round_on_a_busy_device_does_not_count() {
        let of = (Direction::Write, Backend::Sized, Cache::Cold);
        let quiet = Calibrated { open_s: 1e-4, small_s: 2e-4, large_s: 3e-3 };
        let opens_late = Calibrated { open_s: 0.2, ..quiet };
        let writes_late = Calibrated { small_s: 0.1, large_s: 0.5, ..quiet };
        let loop_s = |times: Calibrated| times.rates(of).loop_s(&cell(Backend::Sized, 1_000_000));
        assert!(loop_s(writes_late) > 50.0 * loop_s(quiet));
        let shortest = opens_late.shortest(writes_late).shortest(quiet);
        assert!((loop_s(shortest) / loop_s(quiet) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn measured_cells_correct_those_of_their_kind_first() {
        let mut forecast = forecast();
        let (plain, sized) = (cell(Backend::Plain, 1000), cell(Backend::Sized, 1000));
        let before = forecast.seconds(&plain);
        forecast.correct(&plain, 3.0 * before);
        assert!((forecast.left_s(&[plain]) - 3.0 * before).abs() < 1e-9);
        assert!((forecast.left_s(&[sized]) - 3.0 * forecast.seconds(&sized)).abs() < 1e-9);
        forecast.correct(&sized, forecast.seconds(&sized));
        assert!((forecast.left_s(&[sized]) - forecast.seconds(&sized)).abs() < 1e-9);
        assert!((forecast.left_s(&[plain]) - 3.0 * before).abs() < 1e-9);
    }

    #[test]
    fn a_calibration_tells_cheap_ios_from_expensive_ones() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Stop::default();
        let inputs = InputFiles::new(dir.path());
        let mut measurement =
            Measurement { directory: dir.path(), stop: &stop, place: "here", table: Path::new("t"), inputs };
        let (plain, sized) = (cell(Backend::Plain, 1_000_000), cell(Backend::Sized, 1_000_000));
        let forecast = Forecast::calibrate(&[plain, sized], &mut measurement).unwrap();
        assert!(forecast.seconds(&plain) > 10.0 * forecast.seconds(&sized));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
