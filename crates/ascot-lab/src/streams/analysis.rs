//! Conclusions from the results of a study: fits of cost against N and k, the best B of each N, and the B from which
//! one back-end is faster than another (Heinrich et al., sections 3.2.3 to 3.5.4).

use ascot_io::Direction;
use ascot_model::fit::Fit;

use super::cell::{Backend, Cache};
use super::grid::{CACHES, DIRECTIONS};
use super::measure::Measured;
use crate::times::Mean;

/// Cells that differ in one parameter only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// Reading or writing.
    pub direction: Direction,
    /// The page cache.
    pub cache: Cache,
    /// The back-end.
    pub backend: Backend,
}

/// A fit of the mean milliseconds of a series against one parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesFit {
    /// The series.
    pub series: Series,
    /// The parameter that does not vary: k for fits against N, N for fits against k.
    pub fixed: u64,
    /// The exponent of B of the series.
    pub exponent: u8,
    /// A straight line.
    pub line: Fit,
    /// A parabola, where there are enough points.
    pub parabola: Option<Fit>,
}

/// The best B of one k and N.
#[derive(Debug, Clone, PartialEq)]
pub struct BestBlock {
    /// The series.
    pub series: Series,
    /// The measurement with this B.
    pub measured: Measured,
}

/// The B from which one back-end is faster than another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossOver {
    /// The series that becomes faster.
    pub series: Series,
    /// The back-end that it is compared with; one with B has the same B.
    pub other: Backend,
    /// k.
    pub streams: u32,
    /// N.
    pub elements: u64,
    /// The smallest exponent of B at which it is faster by more than the noise; `None` if it never is.
    pub from_exponent: Option<u8>,
    /// Whether it is faster at all larger B, too.
    pub stays_faster: bool,
}

/// The conclusions.
#[derive(Debug, Clone, Default)]
pub struct Analysis {
    /// Cost against N, for each k (for back-ends with B: at the largest B up to 64 KiB).
    pub by_elements: Vec<SeriesFit>,
    /// Cost against k, for streams of each N (for back-ends with B: at the same B).
    pub by_streams: Vec<SeriesFit>,
    /// The best B of each k and N.
    pub best_blocks: Vec<BestBlock>,
    /// Cross-overs of each k and N.
    pub cross_overs: Vec<CrossOver>,
}

/// Finds results by their parameters.
#[derive(Debug, Clone, Copy)]
pub struct Results<'a>(pub &'a [Measured]);

impl<'a> Results<'a> {
    /// The results of a series.
    pub fn of(self, series: Series) -> impl Iterator<Item = &'a Measured> {
        self.0.iter().filter(move |measured| {
            let cell = &measured.cell;
            (cell.direction, cell.cache, cell.backend) == (series.direction, series.cache, series.backend)
        })
    }

    /// The result of one cell.
    pub fn find(self, series: Series, exponent: u8, streams: u32, elements: u64) -> Option<&'a Measured> {
        let same = |measured: &&Measured| {
            let cell = &measured.cell;
            (cell.exponent, cell.streams, cell.elements) == (exponent, streams, elements)
        };
        self.of(series).find(same)
    }

    /// The mean milliseconds of one cell.
    pub fn mean_ms(self, series: Series, exponent: u8, streams: u32, elements: u64) -> Option<f64> {
        self.find(series, exponent, streams, elements).map(Measured::mean_ms)
    }

    /// The different values of a parameter in a series, ascending.
    pub fn values<T: Ord>(self, series: Series, value: impl Fn(&Measured) -> T) -> Vec<T> {
        let mut values: Vec<T> = self.of(series).map(value).collect();
        values.sort_unstable();
        values.dedup();
        values
    }
}

impl Analysis {
    /// Draws the conclusions.
    pub fn new(results: &[Measured]) -> Self {
        let results = Results(results);
        let mut analysis = Self::default();
        for direction in DIRECTIONS {
            for cache in CACHES {
                for backend in Backend::ALL {
                    analysis.add(results, Series { direction, cache, backend });
                }
            }
        }
        analysis
    }

    fn add(&mut self, results: Results<'_>, series: Series) {
        const USUAL_EXPONENT: u8 = 16;
        let exponents = results.values(series, |measured| measured.cell.exponent);
        let usual = exponents.iter().rev().find(|exponent| **exponent <= USUAL_EXPONENT);
        let Some(&exponent) = usual.or(exponents.first()) else { return };
        let points_of = |of: &dyn Fn(&Measured) -> Option<f64>| -> Vec<(f64, f64)> {
            let same_block = results.of(series).filter(|measured| measured.cell.exponent == exponent);
            same_block.filter_map(|measured| Some((of(measured)?, measured.mean_ms()))).collect()
        };
        let all_streams = results.values(series, |measured| measured.cell.streams);
        let all_elements = results.values(series, |measured| measured.cell.elements);
        for &streams in &all_streams {
            let n = |one: &Measured| (one.cell.streams == streams).then_some(one.cell.elements as f64);
            self.by_elements.extend(fit_of(series, u64::from(streams), exponent, &points_of(&n)));
        }
        for &elements in &all_elements {
            let k = |one: &Measured| (one.cell.elements == elements).then(|| f64::from(one.cell.streams));
            self.by_streams.extend(fit_of(series, elements, exponent, &points_of(&k)));
        }
        for &streams in all_streams.iter().filter(|_| series.backend.has_blocks()) {
            for &elements in &all_elements {
                self.best_blocks.extend(best_block(results, series, streams, elements));
                let slower: &[Backend] = match series.backend {
                    Backend::Sized => &[Backend::Plain, Backend::Buffered],
                    Backend::Mapped => &[Backend::Plain, Backend::Buffered, Backend::Sized],
                    _ => &[Backend::Plain, Backend::Buffered, Backend::Sized, Backend::Mapped],
                };
                let cross = |&other| cross_over(results, series, other, streams, elements);
                self.cross_overs.extend(slower.iter().filter_map(cross));
            }
        }
    }
}

fn fit_of(series: Series, fixed: u64, exponent: u8, points: &[(f64, f64)]) -> Option<SeriesFit> {
    let line = Fit::line(points)?;
    Some(SeriesFit { series, fixed, exponent, line, parabola: Fit::parabola(points) })
}

/// The results of one k and N, by B.
fn by_block<'a>(results: Results<'a>, series: Series, streams: u32, elements: u64) -> Vec<&'a Measured> {
    let same = |one: &&Measured| (one.cell.streams, one.cell.elements) == (streams, elements);
    let mut all: Vec<&Measured> = results.of(series).filter(same).collect();
    all.sort_by_key(|measured| measured.cell.exponent);
    all
}

fn best_block(results: Results<'_>, series: Series, streams: u32, elements: u64) -> Option<BestBlock> {
    let all = by_block(results, series, streams, elements);
    let mean = |one: &Measured| Mean::of(&one.loops_ns);
    let shortest = all.iter().map(|one| mean(one)).min_by(|a, b| a.ms.total_cmp(&b.ms))?;
    // Of equally good B the smallest takes the least memory.
    let best = all.into_iter().find(|one| !shortest.is_clearly_below(mean(one)))?;
    Some(BestBlock { series, measured: best.clone() })
}

fn cross_over(
    results: Results<'_>,
    series: Series,
    other: Backend,
    streams: u32,
    elements: u64,
) -> Option<CrossOver> {
    let slower = Series { backend: other, ..series };
    let faster_at = |one: &Measured| {
        let exponent = one.cell.exponent;
        let exponent_of_other = if other.has_blocks() { exponent } else { 0 };
        let other = results.find(slower, exponent_of_other, streams, elements)?;
        Some((exponent, Mean::of(&one.loops_ns).is_clearly_below(Mean::of(&other.loops_ns))))
    };
    let all: Vec<(u8, bool)> =
        by_block(results, series, streams, elements).into_iter().filter_map(faster_at).collect();
    if all.is_empty() {
        return None;
    }
    let first = all.iter().position(|(_, faster)| *faster);
    let from_exponent = first.map(|at| all[at].0);
    let stays_faster = first.is_some_and(|at| all[at..].iter().all(|(_, faster)| *faster));
    Some(CrossOver { series, other, streams, elements, from_exponent, stays_faster })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::cell::Cell;

    fn result(backend: Backend, exponent: u8, streams: u32, elements: u64, ms: f64) -> Measured {
        let (direction, cache) = (Direction::Write, Cache::Warm);
        let cell = Cell { direction, backend, exponent, streams, elements, cache, loops: 2 };
        Measured { cell, place: String::new(), loops_ns: vec![(ms * 1e6) as u64], counted_ios: 1 }
    }

    /// The appendix of Heinrich et al. for N = 10,000,000 and k = 1: "buffer b write", "mapping write" and "write
    /// buffer".
    fn published() -> Vec<Measured> {
        let sized = [
            (4, 3555.0),
            (6, 1382.0),
            (7, 954.3),
            (8, 625.0),
            (9, 485.3),
            (10, 493.7),
            (11, 483.7),
            (12, 474.7),
            (13, 484.0),
            (14, 433.3),
            (15, 458.7),
            (16, 437.0),
            (17, 452.3),
            (20, 433.7),
        ];
        let mapped = [
            (8, 4880.7),
            (10, 353.3),
            (11, 260.0),
            (12, 210.0),
            (13, 261.0),
            (14, 158.3),
            (15, 149.7),
            (16, 168.3),
        ];
        let of = |backend, (exponent, ms): (u8, f64)| result(backend, exponent, 1, 10_000_000, ms);
        let mut all = vec![of(Backend::Buffered, (0, 598.0))];
        all.extend(sized.map(|point| of(Backend::Sized, point)));
        all.extend(mapped.map(|point| of(Backend::Mapped, point)));
        all
    }

    #[test]
    fn the_conclusions_are_those_of_the_paper() {
        let analysis = Analysis::new(&published());
        let best = |backend| {
            analysis
                .best_blocks
                .iter()
                .find(|best| best.series.backend == backend)
                .unwrap()
                .measured
                .cell
                .exponent
        };
        // Tables 3 and 5.
        assert_eq!([best(Backend::Sized), best(Backend::Mapped)], [14, 15]);
        let cross = |backend, other| {
            let same = |cross: &&CrossOver| cross.series.backend == backend && cross.other == other;
            *analysis.cross_overs.iter().find(same).unwrap()
        };
        // Section 3.4.3: BufferB outperforms Buffer from 512 bytes on; 3.5.3: Mapping both from 1,024 or 2,048 on.
        assert_eq!(cross(Backend::Sized, Backend::Buffered).from_exponent, Some(9));
        assert!(cross(Backend::Sized, Backend::Buffered).stays_faster);
        assert_eq!(cross(Backend::Mapped, Backend::Sized).from_exponent, Some(10));
    }

    #[test]
    fn costs_are_fitted_against_k_and_n() {
        let mut all: Vec<Measured> = [1, 2, 3, 4, 5, 10, 20, 30]
            .map(|k| result(Backend::Plain, 0, k, 1000, 2.0 + 3.0 * f64::from(k)))
            .to_vec();
        all.extend([10_000, 100_000].map(|n| result(Backend::Plain, 0, 1, n, 5e-3 * n as f64)));
        let analysis = Analysis::new(&all);
        let fit = &analysis.by_streams[0];
        assert!((fit.line.coefficients[1] - 3.0).abs() < 1e-6 && fit.parabola.is_some(), "{fit:?}");
        assert_eq!(analysis.by_elements.len(), 1);
        assert!((analysis.by_elements[0].line.at(50_000.0) - 250.0).abs() < 1.0);
    }

    #[test]
    fn every_k_has_its_best_block_cross_over_and_fit() {
        let mut all = Vec::new();
        for (k, best) in [(1, 12), (4, 14)] {
            for n in [1000, 10_000, 100_000] {
                let ms = n as f64 * f64::from(k);
                all.push(result(Backend::Buffered, 0, k, n, ms));
                let sized = |exponent| ms * if exponent < best { 2.0 } else { 0.5 };
                all.extend([12, 14].map(|exponent| result(Backend::Sized, exponent, k, n, sized(exponent))));
            }
        }
        let analysis = Analysis::new(&all);
        let best: Vec<_> = analysis
            .best_blocks
            .iter()
            .map(|best| (best.measured.cell.streams, best.measured.cell.exponent))
            .collect();
        assert_eq!(best, [(1, 12), (1, 12), (1, 12), (4, 14), (4, 14), (4, 14)]);
        let crosses: Vec<_> =
            analysis.cross_overs.iter().map(|cross| (cross.streams, cross.from_exponent)).collect();
        assert_eq!(crosses[2..4], [(1, Some(12)), (4, Some(14))]);
        let fits: Vec<_> = analysis.by_elements.iter().map(|fit| (fit.series.backend, fit.fixed)).collect();
        assert_eq!(fits[..2], [(Backend::Buffered, 1), (Backend::Buffered, 4)]);
    }

    #[test]
    fn a_back_end_that_is_never_faster_has_no_cross_over() {
        let slow = |exponent| result(Backend::Mapped, exponent, 1, 100, 9.0);
        let all = vec![result(Backend::Buffered, 0, 1, 100, 1.0), slow(4), slow(8)];
        let cross = Analysis::new(&all).cross_overs[0];
        assert_eq!((cross.from_exponent, cross.stays_faster), (None, false));
    }
}
