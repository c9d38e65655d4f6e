//! The tables of Heinrich et al., section 3 and the appendix, from the results of a study, with the I/Os of the
//! formulas and the I/Os counted.

use std::collections::BTreeSet;

use ascot_io::Direction;

use crate::streams::analysis::{Analysis, BestBlock, CrossOver, Results, Series, SeriesFit};
use crate::streams::cell::{Backend, Cache, direction_word};
use crate::streams::measure::Measured;
use crate::text_table::{TextTable, dash};

/// Milliseconds with three digits.
pub fn ms(value: f64) -> String {
    match value {
        ..0.0995 => format!("{value:.4}"),
        ..9.95 => format!("{value:.2}"),
        ..99.5 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The words of a series.
pub fn series_words(series: Series) -> String {
    let Series { direction, cache, backend } = series;
    format!("{} {}, {}", direction_word(direction), backend.word(), cache.word())
}

/// The time and the I/Os of a result: `3.00 (15)`, or `3.00 (15, counted 17)` where the I/Os counted are not those of
/// the formula.
fn time_and_ios(measured: &Measured) -> String {
    let time = ms(measured.mean_ms());
    let formula = measured.cell.predicted_ios();
    match measured.counted_ios {
        counted if counted == formula => format!("{time} ({formula})"),
        counted => format!("{time} ({formula}, counted {counted})"),
    }
}

/// Mean times by k (rows) and N (columns): table 2 of the paper and the first tables of its appendix.
pub fn by_streams(results: Results<'_>, series: Series) -> TextTable {
    let elements = results.values(series, |measured| measured.cell.elements);
    let mut table =
        TextTable::new(std::iter::once("k / N".to_owned()).chain(elements.iter().map(u64::to_string)));
    for k in results.values(series, |measured| measured.cell.streams) {
        let time = |&n: &u64| results.find(series, 0, k, n).map_or_else(dash, time_and_ios);
        table.rows.push(std::iter::once(k.to_string()).chain(elements.iter().map(time)).collect());
    }
    table
}

/// Mean times of k streams by B (rows) and N (columns): the tables of buffers and windows of the appendix.
pub fn by_blocks(results: Results<'_>, series: Series, k: u32) -> TextTable {
    let elements = results.values(series, |measured| measured.cell.elements);
    let names = ["B", "bytes"].map(str::to_owned);
    let mut table = TextTable::new(names.into_iter().chain(elements.iter().map(u64::to_string)));
    for exponent in results.values(series, |measured| measured.cell.exponent) {
        let time = |&n: &u64| results.find(series, exponent, k, n).map_or_else(dash, time_and_ios);
        let names = [format!("2^{exponent}"), (1_u64 << exponent).to_string()];
        table.rows.push(names.into_iter().chain(elements.iter().map(time)).collect());
    }
    table
}

/// Every result with its spread, the I/Os of the formula and the I/Os counted.
pub fn every_result(results: &[Measured]) -> TextTable {
    let mut table = TextTable::new([
        "measurement",
        "mean ms",
        "shortest",
        "longest",
        "deviation",
        "I/Os by formula",
        "I/Os counted",
    ]);
    for measured in results {
        let (min, max) = measured.range_ms();
        let times = [measured.mean_ms(), min, max, measured.deviation_ms()].map(ms);
        let ios = [measured.cell.predicted_ios(), measured.counted_ios].map(|ios| ios.to_string());
        let name = std::iter::once(measured.cell.to_string());
        table.rows.push(name.chain(times).chain(ios).collect());
    }
    table
}

/// The best B of each k and N: tables 3 to 6 of the paper, for one direction and back-end.
pub fn best_blocks(analysis: &Analysis, direction: Direction, backend: Backend) -> TextTable {
    let names = ["k", "N", "warm: best B", "ms", "I/Os by formula", "counted"];
    let cold = ["cold: best B", "ms", "I/Os by formula", "counted"];
    let mut table = TextTable::new(names.into_iter().chain(cold));
    let key = |best: &BestBlock| (best.measured.cell.streams, best.measured.cell.elements);
    let of = |cache| {
        let series = Series { direction, cache, backend };
        analysis.best_blocks.iter().filter(move |best| best.series == series)
    };
    let all: BTreeSet<(u32, u64)> = of(Cache::Warm).chain(of(Cache::Cold)).map(key).collect();
    for (k, n) in all {
        let cells = |BestBlock { measured, .. }: &BestBlock| {
            let ios = [measured.cell.predicted_ios(), measured.counted_ios].map(|ios| ios.to_string());
            let [formula, counted] = ios;
            [format!("2^{}", measured.cell.exponent), ms(measured.mean_ms()), formula, counted]
        };
        let none = || [dash(), dash(), dash(), dash()];
        let best = |cache| of(cache).find(|best| key(best) == (k, n)).map_or_else(none, cells);
        let both = best(Cache::Warm).into_iter().chain(best(Cache::Cold));
        table.rows.push([k.to_string(), n.to_string()].into_iter().chain(both).collect());
    }
    table
}

/// Fits of milliseconds against one parameter; `name` is the parameter, `fixed` the other.
pub fn fits(fits: &[SeriesFit], name: &str, fixed: &str) -> TextTable {
    let mut table = TextTable::new([
        "streams".to_owned(),
        fixed.to_owned(),
        format!("line in {name}"),
        "R²".to_owned(),
        "relative error".to_owned(),
        format!("parabola in {name}"),
        "R²".to_owned(),
        "relative error".to_owned(),
    ]);
    for fit in fits {
        let block =
            if fit.series.backend.has_blocks() { format!(", B = 2^{}", fit.exponent) } else { String::new() };
        let judged = |one: &ascot_model::fit::Fit| {
            [
                polynomial(&one.coefficients, name),
                format!("{:.4}", one.r_squared),
                percent(one.relative_error),
            ]
        };
        let parabola = fit.parabola.as_ref().map_or_else(|| [dash(), dash(), dash()], judged);
        let names = [series_words(fit.series) + &block, fit.fixed.to_string()];
        table.rows.push(names.into_iter().chain(judged(&fit.line)).chain(parabola).collect());
    }
    table
}

fn polynomial(coefficients: &[f64], name: &str) -> String {
    let mut text = String::new();
    for (power, &coefficient) in coefficients.iter().enumerate() {
        let sign = if coefficient < 0.0 {
            " - "
        } else if power > 0 {
            " + "
        } else {
            ""
        };
        let value = three_digits(coefficient.abs());
        text += &match power {
            0 => format!("{sign}{value}"),
            1 => format!("{sign}{value} {name}"),
            _ => format!("{sign}{value} {name}^{power}"),
        };
    }
    text
}

/// A value with three digits.
fn three_digits(value: f64) -> String {
    if !(1e-3..1e5).contains(&value) && value > 0.0 {
        return format!("{value:.2e}");
    }
    let before_the_point = value.max(1e-3).log10().floor() as i32;
    format!("{value:.*}", (2 - before_the_point).max(0) as usize)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The B from which one back-end is faster than another.
pub fn cross_overs(all: &[CrossOver]) -> TextTable {
    let mut table = TextTable::new(["streams", "faster than", "k", "N", "from B", "at all larger B"]);
    for cross in all {
        let from =
            cross.from_exponent.map_or_else(|| "not clearly".to_owned(), |exponent| format!("2^{exponent}"));
        let stays = match (cross.from_exponent, cross.stays_faster) {
            (None, _) => dash(),
            (_, true) => "yes".to_owned(),
            (_, false) => "no".to_owned(),
        };
        let names = [series_words(cross.series), cross.other.word().to_owned()];
        let numbers = [cross.streams.to_string(), cross.elements.to_string()];
        table.rows.push(names.into_iter().chain(numbers).chain([from, stays]).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Grid;

    #[test]
    fn tables_have_the_cells_of_the_grid_and_dashes_for_the_others() {
        let of = |cell| Measured {
            cell,
            place: String::new(),
            loops_ns: vec![2_000_000, 4_000_000],
            counted_ios: 9,
        };
        let results: Vec<Measured> = Grid::published().cells().into_iter().map(of).collect();
        let found = Results(&results);
        let series = |backend| Series { direction: Direction::Write, cache: Cache::Warm, backend };
        let plain = by_streams(found, series(Backend::Plain));
        assert_eq!((plain.rows.len(), plain.header.len()), (8, 8));
        assert_eq!(
            (plain.rows[0][7].as_str(), plain.rows[1][7].as_str()),
            ("3.00 (250000000, counted 9)", "-")
        );
        let sized = by_blocks(found, series(Backend::Sized), 1);
        assert_eq!((sized.rows.len(), sized.header.len()), (23, 9));
        assert_eq!([&sized.rows[0][8], &sized.rows[1][8]], ["-", "3.00 (500000000, counted 9)"]);
        assert_eq!(every_result(&results).rows.len(), results.len());
        let analysis = Analysis::new(&results);
        assert_eq!(best_blocks(&analysis, Direction::Read, Backend::Mapped).rows.len(), 7);
        assert!(!fits(&analysis.by_elements, "N", "k").rows.is_empty());
        assert!(!cross_overs(&analysis.cross_overs).rows.is_empty());
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.01234, 0.1, 5.678, 56.78, 5678.9].map(ms), ["0.0123", "0.10", "5.68", "56.8", "5679"]);
        assert_eq!([0.01486, 12_345.0, 0.00149].map(three_digits), ["0.0149", "12345", "0.00149"]);
        assert_eq!(polynomial(&[1.0, -0.5, 3.14159e-7], "N"), "1.00 - 0.500 N + 3.14e-7 N^2");
    }
}
