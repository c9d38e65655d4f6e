//! The figures of Heinrich et al., section 3, from the results of a study: figures 4 to 29, each for both states of the
//! cache.

use ascot_io::Direction;

use super::chart::{Axis, Chart, Line, Scale};
use crate::streams::analysis::{Results, Series};
use crate::streams::cell::{Backend, Cache, direction_word};
use crate::streams::grid::CACHES;
use crate::streams::measure::Measured;

/// A figure of the paper.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its number in the paper.
    pub number: u32,
    /// Whether its streams are read or written.
    pub direction: Direction,
    /// Its caption.
    pub caption: String,
    /// Charts with their titles.
    pub charts: Vec<(String, Chart)>,
}

/// The value of a point.
#[derive(Clone, Copy)]
enum Y {
    /// Mean milliseconds of a loop.
    Milliseconds,
    /// Nanoseconds for each integer.
    NanosecondsEach,
    /// Integers moved in a millisecond.
    IntegersPerMillisecond,
}

impl Y {
    fn axis(self, scale: Scale) -> Axis {
        Axis::new(
            match self {
                Self::Milliseconds => "ms",
                Self::NanosecondsEach => "ns for each integer",
                Self::IntegersPerMillisecond => "integers in a ms",
            },
            scale,
        )
    }

    fn value(self, mean_ms: f64, integers: f64) -> f64 {
        match self {
            Self::Milliseconds => mean_ms,
            Self::NanosecondsEach => mean_ms * 1e6 / integers,
            Self::IntegersPerMillisecond => integers / mean_ms,
        }
    }
}

/// Builds the figures of one study.
pub struct Figures<'a> {
    results: Results<'a>,
    /// N at which B varies.
    elements_by_b: u64,
    /// N at which k varies.
    elements_by_k: u64,
}

/// N of the figures of the paper in which k varies (6 and 10).
const PUBLISHED_ELEMENTS_BY_K: u64 = 1_000_000;

impl<'a> Figures<'a> {
    /// Figures of these results. B varies at the largest N with the most values of B, and k at the N of the paper, if
    /// it has the most values of k, or else at the largest that has them.
    pub fn new(results: Results<'a>) -> Self {
        let count = |n: u64, value: &dyn Fn(&Measured) -> u64| {
            let mut values: Vec<u64> =
                results.0.iter().filter(|one| one.cell.elements == n).map(value).collect();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        let mut all: Vec<u64> = results.0.iter().map(|one| one.cell.elements).collect();
        all.sort_unstable();
        all.dedup();
        let exponents = |one: &Measured| u64::from(one.cell.exponent);
        let streams = |one: &Measured| u64::from(one.cell.streams);
        let elements_by_b = all.iter().copied().max_by_key(|&n| (count(n, &exponents), n)).unwrap_or(0);
        let by_k = |&n: &u64| (count(n, &streams), n == PUBLISHED_ELEMENTS_BY_K, n);
        let elements_by_k = all.iter().copied().max_by_key(by_k).unwrap_or(0);
        Self { results, elements_by_b, elements_by_k }
    }

    /// All figures.
    pub fn all(&self) -> Vec<Figure> {
        use Backend::{Buffered, Mapped, Plain, Sized};
        use Direction::{Read, Write};
        let usual = self.elements_by_k;
        let smaller = usual / 10;
        let larger = self.elements_by_b.max(usual);
        let all = &[1, 2, 3, 4, 5, 10, 20, 30][..];
        let ms = Y::Milliseconds;
        vec![
            self.by_n(4, Write, &[Plain], &[1], ms, "time against N, one stream"),
            self.by_n(5, Write, &[Plain], &[1], Y::NanosecondsEach, "time for each integer, one stream"),
            self.by_k(6, Write, &[Plain], &[usual], "time against k"),
            self.by_n(7, Write, &[Plain], &[10, 20, 30], ms, "time against N for k = 10, 20, 30"),
            self.by_n(8, Read, &[Plain], &[1], ms, "time against N, one stream"),
            self.by_n(9, Read, &[Plain], &[1], Y::NanosecondsEach, "time for each integer, one stream"),
            self.by_k(10, Read, &[Plain], &[usual], "time against k"),
            self.by_n(11, Read, &[Plain], &[10, 20, 30], ms, "time against N for k = 10, 20, 30"),
            self.by_n(12, Read, &[Plain], all, ms, "time against N for all k"),
            self.by_n(13, Write, &[Buffered], &[1], ms, "time against N, one stream"),
            self.by_n(14, Write, &[Buffered], &[1], Y::IntegersPerMillisecond, "integers in a millisecond"),
            self.by_n(15, Write, &[Buffered], &[1, 2], ms, "time against N for k = 1, 2"),
            self.by_k(16, Write, &[Buffered], &[smaller, larger], "time against k"),
            self.by_k(17, Write, &[Plain, Buffered], &[usual], "plain and buffered, time against k"),
            self.by_k(18, Read, &[Buffered], &[smaller, usual], "time against k"),
            self.by_n(19, Read, &[Plain, Buffered], &[10], ms, "plain and buffered for k = 10"),
            self.by_b(20, Write, &[Sized], 0, "time against B"),
            self.by_b(21, Write, &[Sized], 4, "time against B from 2^4 on"),
            self.by_b(22, Write, &[Sized, Buffered], 4, "sized and buffered"),
            self.by_b(23, Read, &[Sized], 0, "time against B"),
            self.by_b(24, Read, &[Sized, Buffered], 4, "sized and buffered"),
            self.by_b(25, Write, &[Mapped], 0, "time against B"),
            self.by_b(26, Write, &[Mapped], 7, "time against B from 2^7 on"),
            self.by_b(27, Write, &[Mapped, Sized, Buffered], 7, "mapped, sized and buffered"),
            self.by_b(28, Read, &[Mapped], 0, "time against B"),
            self.by_b(29, Read, &[Mapped, Sized, Buffered], 7, "mapped, sized and buffered"),
        ]
    }

    /// All back-ends with B beside one another, with direct access; not in the paper.
    pub fn all_backends(&self) -> Vec<(String, Chart)> {
        let of = |direction| self.by_b(0, direction, &Backend::ALL, 0, "all back-ends").charts;
        [Direction::Write, Direction::Read]
            .into_iter()
            .flat_map(|direction| {
                let titled = move |(title, chart)| (format!("{}, {title}", direction_word(direction)), chart);
                of(direction).into_iter().map(titled)
            })
            .collect()
    }

    fn figure(
        &self,
        number: u32,
        direction: Direction,
        caption: String,
        x: Axis,
        y: Axis,
        lines: impl Fn(Cache) -> Vec<Line>,
    ) -> Figure {
        let of = |cache: Cache| (cache.word().to_owned(), Chart::new(x.clone(), y.clone(), lines(cache)));
        Figure { number, direction, caption, charts: CACHES.map(of).to_vec() }
    }

    fn by_n(
        &self,
        number: u32,
        direction: Direction,
        backends: &[Backend],
        ks: &[u32],
        y: Y,
        what: &str,
    ) -> Figure {
        let caption = caption(direction, backends, what);
        let across = Axis::new("N", Scale::Logarithmic);
        let up = y.axis(Scale::Logarithmic);
        self.figure(number, direction, caption, across, up, |cache| {
            let mut lines = Vec::new();
            for &backend in backends {
                let series = Series { direction, cache, backend };
                for &k in ks {
                    let values = self.results.values(series, |measured| measured.cell.elements);
                    let point = |n: u64| {
                        let ms = self.results.mean_ms(series, 0, k, n)?;
                        Some((n as f64, y.value(ms, n as f64 * f64::from(k))))
                    };
                    let name = format!("{}, k = {k}", backend.word());
                    lines.push(Line::new(name, values.into_iter().filter_map(point).collect()));
                }
            }
            lines
        })
    }

    fn by_k(
        &self,
        number: u32,
        direction: Direction,
        backends: &[Backend],
        ns: &[u64],
        what: &str,
    ) -> Figure {
        let scale = if backends.len() > 1 { Scale::Logarithmic } else { Scale::Linear };
        let caption = caption(direction, backends, what);
        let across = Axis::new("k", Scale::Linear);
        let up = Y::Milliseconds.axis(scale);
        self.figure(number, direction, caption, across, up, |cache| {
            let mut lines = Vec::new();
            for &backend in backends {
                let series = Series { direction, cache, backend };
                for &n in ns {
                    let values = self.results.values(series, |measured| measured.cell.streams);
                    let point = |k: u32| Some((f64::from(k), self.results.mean_ms(series, 0, k, n)?));
                    let name = format!("{}, N = {n}", backend.word());
                    lines.push(Line::new(name, values.into_iter().filter_map(point).collect()));
                }
            }
            lines
        })
    }

    /// Against B from 2^`from` on, one stream of the usual N; back-ends without B are constant.
    fn by_b(&self, number: u32, direction: Direction, backends: &[Backend], from: u8, what: &str) -> Figure {
        let n = self.elements_by_b;
        let caption = format!("{} at N = {n}", caption(direction, backends, what));
        let across = Axis::new("B, bytes", Scale::PowersOfTwo);
        let up = Y::Milliseconds.axis(Scale::Logarithmic);
        self.figure(number, direction, caption, across, up, |cache| {
            let exponents = |backend| {
                let series = Series { direction, cache, backend };
                self.results.values(series, |measured| measured.cell.exponent)
            };
            let widest: Vec<u8> =
                backends.iter().map(|&backend| exponents(backend)).max_by_key(Vec::len).unwrap_or_default();
            let line = |&backend: &Backend| {
                let series = Series { direction, cache, backend };
                let values = if backend.has_blocks() { exponents(backend) } else { widest.clone() };
                let point = |exponent: u8| {
                    let of = if backend.has_blocks() { exponent } else { 0 };
                    Some((f64::from(exponent), self.results.mean_ms(series, of, 1, n)?))
                };
                let points =
                    values.into_iter().filter(|exponent| *exponent >= from).filter_map(point).collect();
                Line::new(backend.word(), points)
            };
            backends.iter().map(line).collect()
        })
    }
}

fn caption(direction: Direction, backends: &[Backend], what: &str) -> String {
    let doing = match direction {
        Direction::Write => "Writing",
        Direction::Read => "Reading",
    };
    match backends {
        [only] => format!("{doing}, {} streams: {what}", only.word()),
        _ => format!("{doing}: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Grid;

    #[test]
    fn the_published_grid_has_the_figures_at_the_values_of_the_paper() {
        let of = |cell| Measured { cell, place: String::new(), loops_ns: vec![5], counted_ios: 1 };
        let results: Vec<Measured> = Grid::published().cells().into_iter().map(of).collect();
        let figures = Figures::new(Results(&results));
        assert_eq!((figures.elements_by_k, figures.elements_by_b), (1_000_000, 10_000_000));
        let lines = |number: u32| {
            let all = figures.all();
            let figure = all.iter().find(|figure| figure.number == number).unwrap();
            figure.charts[0].1.lines.iter().map(|line| line.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(lines(6), ["plain, N = 1000000"]);
        assert_eq!(lines(18), ["buffered, N = 100000", "buffered, N = 1000000"]);
    }

    #[test]
    fn a_whole_grid_fills_every_figure() {
        let grid = Grid::quick();
        let of = |cell| Measured {
            cell,
            place: String::new(),
            loops_ns: vec![1_000_000, 2_000_000],
            counted_ios: 1,
        };
        let results: Vec<Measured> = grid.cells().into_iter().map(of).collect();
        let figures = Figures::new(Results(&results)).all();
        assert_eq!(
            figures.iter().map(|figure| figure.number).collect::<Vec<_>>(),
            (4..=29).collect::<Vec<_>>()
        );
        for figure in figures {
            assert_eq!(figure.charts.len(), 2);
            for (title, chart) in figure.charts {
                let full = chart.lines.iter().all(|line| line.points.len() > 1);
                assert!(full, "figure {}, {title}: {:?}", figure.number, chart.lines);
                assert!(chart.svg().is_some());
            }
        }
    }
}
