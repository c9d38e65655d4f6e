//! The whole study of Heinrich et al.: streams, then merge sorts, with one prediction and one page.

use crate::error::LabError;
use crate::observe::{Finished, Observer, Planned, Progress, Stop};
use crate::sorts::results::SortResult;
use crate::sorts::{SortCell, SortGrid, SortStudy, Source, StreamChoice};
use crate::streams::grid::CACHES;
use crate::streams::measure::Measured;
use crate::streams::{Backend, Cache, Grid, StreamStudy};

/// The exponent of B of the streams that merge sorts read and write (Heinrich et al., section 3.6).
const SORT_EXPONENT: u8 = 16;
/// The seed of the integers to sort.
const SEED: u64 = 1;

/// Both studies.
#[derive(Debug, Clone)]
pub struct WholeStudy {
    /// Streams.
    pub streams: StreamStudy,
    /// Merge sorts.
    pub sorts: SortStudy,
}

/// The cells of a whole study.
#[derive(Debug, Clone)]
pub struct WholeGrid {
    /// Those of streams.
    pub streams: Grid,
    /// Those of merge sorts.
    pub sorts: Vec<SortCell>,
}

impl WholeGrid {
    /// The cells of Heinrich et al.: table 8, with the fan-ins of 100 and 250 that section 4.4.4 mentions, and the one
    /// measurement of 10^8 integers of the appendix.
    pub fn published() -> Self {
        let table = grid(
            &[10_000, 1_000_000, 10_000_000],
            &[1000, 10_000, 100_000, 1_000_000],
            &[10, 25, 30, 100, 250],
            5,
        );
        let largest = grid(&[100_000_000], &[1000], &[10], 3);
        let sorts = table.cells().into_iter().chain(largest.cells()).collect();
        Self { streams: Grid::published(), sorts }
    }

    /// The same tables and figures from smaller files.
    pub fn quick() -> Self {
        let of = |cache, memory: &[u64]| SortGrid {
            caches: vec![cache],
            ..grid(&[10_000, 30_000, 100_000], memory, &[10, 25, 30], 2)
        };
        // With a cold cache every run is put on the device alone: a hundred of them would take most of the time.
        let warm = of(Cache::Warm, &[1000, 10_000, 100_000]).cells();
        let cold = of(Cache::Cold, &[10_000, 30_000, 100_000]).cells();
        Self { streams: Grid::quick(), sorts: warm.into_iter().chain(cold).collect() }
    }
}

fn grid(elements: &[u64], memory: &[u64], fan_in: &[u32], loops: u32) -> SortGrid {
    let mapped = StreamChoice::new(Backend::Mapped, SORT_EXPONENT);
    SortGrid {
        sources: elements.iter().map(|&elements| (elements, Source::Random(SEED))).collect(),
        memory: memory.to_vec(),
        fan_in: fan_in.to_vec(),
        streams: vec![(mapped, mapped)],
        descending: false,
        caches: CACHES.to_vec(),
        loops,
        output: None,
    }
}

/// The results of both studies.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeResults {
    /// Streams.
    pub streams: Finished<Measured>,
    /// Merge sorts.
    pub sorts: Finished<SortResult>,
    /// Seconds predicted before the first measurement.
    pub predicted_s: f64,
}

impl WholeStudy {
    /// Checks that both studies can run; of two errors for space, the larger.
    fn check(&self) -> Result<(), LabError> {
        let needed = |error: &LabError| match error {
            LabError::Space { needed_bytes, .. } => *needed_bytes,
            _ => u64::MAX,
        };
        match (self.streams.check(), self.sorts.check()) {
            (Err(one), Err(other)) => Err(if needed(&one) >= needed(&other) { one } else { other }),
            (one, other) => one.and(other),
        }
    }

    /// Predicts both studies, then makes the measurements that their tables do not have yet.
    ///
    /// # Errors
    /// Those of the studies; rows of finished measurements stay.
    pub fn run(&self, observer: &dyn Observer, stop: &Stop) -> Result<WholeResults, LabError> {
        self.check()?;
        let streams = self.streams.predict(stop)?;
        let sorts = self.sorts.predict(stop)?;
        observer.planned(&Planned {
            measurements: streams.measurements + sorts.measurements,
            finished_before: streams.finished_before + sorts.finished_before,
            predicted_s: streams.predicted_s + sorts.predicted_s,
            space_bytes: streams.space_bytes.max(sorts.space_bytes),
        });
        let all = |planned: &Planned| planned.measurements + planned.finished_before;
        let total = all(&streams) + all(&sorts);
        let of_streams =
            ProgressOfStudy { observer, before: 0, total, after_s: sorts.predicted_s, before_s: 0.0 };
        let measured = self.streams.run(&of_streams, stop)?;
        let before_s = measured.taken_s;
        let of_sorts = ProgressOfStudy { observer, before: all(&streams), total, after_s: 0.0, before_s };
        let sorted = self.sorts.run(&of_sorts, stop)?;
        let predicted_s = streams.predicted_s + sorts.predicted_s;
        Ok(WholeResults { streams: measured, sorts: sorted, predicted_s })
    }
}

/// Shows the progress of one study as part of the whole.
struct ProgressOfStudy<'a> {
    observer: &'a dyn Observer,
    /// Measurements before this study.
    before: usize,
    /// Measurements of all studies.
    total: usize,
    /// Predicted seconds of the studies after it.
    after_s: f64,
    /// Seconds taken before it.
    before_s: f64,
}

impl Observer for ProgressOfStudy<'_> {
    fn planned(&self, _planned: &Planned) {
        // The prediction of the whole is shown already.
    }

    fn progress(&self, progress: &Progress) {
        self.observer.progress(&Progress {
            what: progress.what.clone(),
            finished: progress.finished + self.before,
            total: self.total,
            elapsed_s: progress.elapsed_s + self.before_s,
            left_s: progress.left_s + self.after_s,
        });
    }

    fn notice(&self, text: &str) {
        self.observer.notice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sorts_are_those_of_table_8_and_the_appendix() {
        let sorts = WholeGrid::published().sorts;
        assert_eq!(sorts.len(), 2 * (3 * 4 * 5 + 1));
        assert!(sorts.iter().all(|cell| cell.read == cell.write && cell.read.backend == Backend::Mapped));
        assert_eq!(sorts.last().map(|cell| (cell.elements, cell.loops)), Some((100_000_000, 3)));
    }
}
