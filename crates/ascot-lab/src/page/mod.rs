//! The page of a study: one HTML file that needs nothing else.
//!
//! Invariants: the page loads no script and nothing from outside (its content-security policy says so); every table
//! and figure of the paper has the element `table-N` or `figure-N`; text from results is escaped.

pub mod chart;
mod figures;
pub mod resources;
pub mod sorts;
mod tables;

use std::fmt::Write as _;

use ascot_io::Direction;
use ascot_model::units::in_html as escaped;

use crate::files::PAGE_MARK;
use crate::sorts::SortResult;
use crate::streams::analysis::{Analysis, BestBlock, Results, Series};
use crate::streams::cell::{Backend, direction_word};
use crate::streams::grid::{CACHES, DIRECTIONS};
use crate::streams::measure::Measured;
use crate::text_table::TextTable;
use figures::{Figure, Figures};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;\
color:#1d2830;background:#fff}h1,h2,h3{line-height:1.25}nav a{margin-right:1rem}figure{margin:1.5rem 0}\
figcaption{color:#5c6b76}figure div{display:flex;flex-wrap:wrap;gap:1rem}figure svg{max-width:100%;height:auto;\
flex:1 1 28rem}.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:14px;\
margin:.5rem 0 1.5rem}th,td{padding:.2rem .6rem;border-bottom:1px solid #dde3e7;text-align:right;white-space:nowrap}\
th:first-child{text-align:left}details{margin:1rem 0}summary{cursor:pointer}";

/// A part of the page that another study adds.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The element's identifier, for links.
    pub id: String,
    /// The heading.
    pub title: String,
    /// The content, as HTML.
    pub html: String,
}

/// Text of the page about the run as a whole.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Lines about the machine, the version and the time.
    pub lines: Vec<String>,
}

/// The page of a study of streams, with further sections.
pub fn page(about: &About, results: &[Measured], more: &[Section]) -> String {
    let found = Results(results);
    let analysis = Analysis::new(results);
    let figures = Figures::new(found);
    let mut sections = Vec::new();
    for direction in DIRECTIONS {
        if results.iter().any(|measured| measured.cell.direction == direction) {
            sections.push(section_of(direction, found, &analysis, &figures));
        }
    }
    if !results.is_empty() {
        sections.push(conclusions(&analysis, &figures));
    }
    sections.extend(more.iter().cloned());
    if !results.is_empty() {
        sections.push(all_results(results));
    }
    let mut body = String::new();
    let links: String = sections
        .iter()
        .map(|section| format!("<a href=\"#{}\">{}</a>", section.id, escaped(&section.title)))
        .collect();
    for Section { id, title, html } in &sections {
        let _ = write!(body, "<section id=\"{id}\"><h2>{}</h2>\n{html}</section>\n", escaped(title));
    }
    let lines: String = about.lines.iter().map(|line| format!("<p>{}</p>\n", escaped(line))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{PAGE_MARK}\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Streams and merge sort</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>Streams and merge sort in secondary memory</h1>\n{lines}\
         <nav>{links}</nav>\n{body}</body></html>\n"
    )
}

fn all_results(results: &[Measured]) -> Section {
    let html = format!(
        "<details><summary>{} measurements</summary>{}</details>",
        results.len(),
        tables::every_result(results).html()
    );
    Section { id: "results".into(), title: "All results".into(), html }
}

fn section_of(
    direction: Direction,
    found: Results<'_>,
    analysis: &Analysis,
    figures: &Figures<'_>,
) -> Section {
    let word = direction_word(direction);
    let mut html = String::from(
        "<p>k streams of N 32-bit integers each, interleaved element by element; mean milliseconds of all loops but \
         the first.</p>\n",
    );
    for backend in Backend::ALL {
        for cache in CACHES {
            let series = Series { direction, cache, backend };
            if found.of(series).next().is_none() {
                continue;
            }
            let id = match table_number(series) {
                Some(number) => format!("table-{number}"),
                None => format!("{word}-{}-{}", backend.word(), cache.word()),
            };
            if !backend.has_blocks() {
                html += &table_of_times(&id, series, "k and N", &tables::by_streams(found, series));
                continue;
            }
            for k in found.values(series, |measured| measured.cell.streams) {
                let (id, by) = match k {
                    1 => (id.clone(), "B and N, one stream".to_owned()),
                    _ => (format!("{id}-{k}"), format!("B and N, {k} streams")),
                };
                html += &table_of_times(&id, series, &by, &tables::by_blocks(found, series, k));
            }
        }
        if backend.has_blocks() {
            html +=
                &table_of_best_blocks(direction, backend, &tables::best_blocks(analysis, direction, backend));
        }
    }
    for figure in figures.all().iter().filter(|figure| figure.direction == direction) {
        html += &figure_html(figure);
    }
    let title = format!("{} streams", doing(direction));
    Section { id: word.to_owned(), title, html }
}

fn table_of_times(id: &str, series: Series, by: &str, table: &TextTable) -> String {
    let backend = series.backend.word();
    let cache = series.cache.word();
    let title =
        format!("{backend} streams, {cache}: ms by {by} (I/Os by formula, and counted if not the same)");
    format!("<div id=\"{id}\"><h3>{}</h3>{}</div>\n", escaped(&title), table.html())
}

fn table_of_best_blocks(direction: Direction, backend: Backend, table: &TextTable) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let (id, published) = match published_best_blocks(direction, backend) {
        Some(number) => (format!("table-{number}"), format!(" (table {number} of the paper)")),
        None => (format!("best-b-{}-{}", direction_word(direction), backend.word()), String::new()),
    };
    let title = format!("Best B of {} streams for each k and N{published}", backend.word());
    format!("<div id=\"{id}\"><h3>{title}</h3>{}</div>\n", table.html())
}

fn doing(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "Reading",
        Direction::Write => "Writing",
    }
}

/// The table of the paper with the times of a series.
fn table_number(series: Series) -> Option<u32> {
    let of = (series.direction, series.backend, series.cache);
    (of == (Direction::Write, Backend::Plain, crate::streams::Cache::Warm)).then_some(2)
}

/// The table of the paper with the best B of a back-end.
fn published_best_blocks(direction: Direction, backend: Backend) -> Option<u32> {
    match (direction, backend) {
        (Direction::Write, Backend::Sized) => Some(3),
        (Direction::Read, Backend::Sized) => Some(4),
        (Direction::Write, Backend::Mapped) => Some(5),
        (Direction::Read, Backend::Mapped) => Some(6),
        _ => None,
    }
}

/// A figure of the paper, with a chart for each state of the cache.
pub(crate) fn figure_html(figure: &Figure) -> String {
    charts_html(
        &format!("figure-{}", figure.number),
        &format!("Figure {}. {}", figure.number, figure.caption),
        &figure.charts,
    )
}

/// Charts side by side, with a caption that names those that are drawn; nothing if none has enough points.
pub fn charts_html(id: &str, caption: &str, charts: &[(String, chart::Chart)]) -> String {
    let drawn: Vec<(&str, String)> =
        charts.iter().filter_map(|(title, chart)| Some((title.as_str(), chart.svg()?))).collect();
    let titles: Vec<&str> = drawn.iter().map(|(title, _)| *title).filter(|title| !title.is_empty()).collect();
    let titles = match &titles[..] {
        [] => String::new(),
        [one] => format!(" ({one})"),
        several => format!(" (left to right: {})", several.join("; ")),
    };
    if drawn.is_empty() {
        return String::new();
    }
    let drawn: String = drawn.into_iter().map(|(_, svg)| svg).collect();
    format!(
        "<figure id=\"{id}\"><div>{drawn}</div><figcaption>{}{}</figcaption></figure>\n",
        escaped(caption),
        escaped(&titles)
    )
}

fn conclusions(analysis: &Analysis, figures: &Figures<'_>) -> Section {
    let mut html = charts_html("all-back-ends", "All back-ends by B", &figures.all_backends());
    let parts = [
        ("fits-n", "Cost against N", tables::fits(&analysis.by_elements, "N", "k")),
        ("fits-k", "Cost against k", tables::fits(&analysis.by_streams, "k", "N")),
        ("cross-overs", "Cross-overs between back-ends", tables::cross_overs(&analysis.cross_overs)),
    ];
    for (id, title, table) in parts {
        let _ = writeln!(html, "<div id=\"{id}\"><h3>{title}</h3>{}</div>", table.html());
    }
    Section { id: "conclusions".into(), title: "Fits and cross-overs".into(), html }
}

/// The charts of a study as SVG files: their names without the ending, and their text.
pub fn charts(results: &[Measured], sorts: &[SortResult]) -> Vec<(String, String)> {
    let figures = Figures::new(Results(results));
    let mut charts = Vec::new();
    for figure in figures.all() {
        for (title, chart) in &figure.charts {
            let name = format!("figure-{}-{title}", figure.number);
            charts.extend(chart.svg().map(|svg| (name, svg)));
        }
    }
    for (title, chart) in figures.all_backends() {
        let name = format!("all-back-ends-{}", title.replace(", ", "-"));
        charts.extend(chart.svg().map(|svg| (name, svg)));
    }
    charts.extend(sorts::charts(sorts));
    charts
}

/// Every measurement as a line of text: its time, the I/Os of the formula and the I/Os counted.
pub fn measurements_text(results: &[Measured]) -> String {
    let mut text =
        format!("{:<60} {:>10} {:>15} {:>12}\n", "measurement", "ms", "I/Os by formula", "counted");
    for measured in results {
        let name = measured.cell.to_string();
        let time = tables::ms(measured.mean_ms());
        let formula = measured.cell.predicted_ios();
        let counted = measured.counted_ios;
        let _ = writeln!(text, "{name:<60} {time:>10} {formula:>15} {counted:>12}");
    }
    text
}

/// The best B of each k and N as lines of text, with the I/Os of the formula and the I/Os counted.
pub fn best_blocks_text(results: &[Measured]) -> String {
    let mut text = String::new();
    for BestBlock { series, measured } in Analysis::new(results).best_blocks {
        let cell = &measured.cell;
        let _ = writeln!(
            text,
            "{:<22} k = {:<3} N = {:<11} best B = 2^{:<3} {:>9} ms {:>12} I/Os by formula, {} counted",
            tables::series_words(series),
            cell.streams,
            cell.elements,
            cell.exponent,
            tables::ms(measured.mean_ms()),
            cell.predicted_ios(),
            measured.counted_ios
        );
    }
    text
}

/// How far the I/Os counted are from those expected, as a line of text; nothing without results.
pub fn ios_text(results: &[Measured]) -> String {
    let deviation = |one: &Measured| {
        let expected = one.cell.expected_ios();
        one.counted_ios.abs_diff(expected) as f64 / expected.max(1) as f64
    };
    let others: Vec<f64> = results.iter().map(deviation).filter(|deviation| *deviation > 0.0).collect();
    let all = results.len();
    let equal = results.len() - others.len();
    match others.into_iter().reduce(f64::max) {
        None if all == 0 => String::new(),
        None => {
            format!("I/Os counted: k times those of one stream by the formula, in all {all} measurements\n")
        }
        Some(most) => format!(
            "I/Os counted: k times those of one stream by the formula, in {equal} of {all} measurements; in the \
             others up to {:.1} % away\n",
            most * 100.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Grid;

    #[test]
    fn a_caption_names_the_charts_that_are_drawn() {
        let chart = |title: &str, points: &[(f64, f64)]| {
            let axis = |name| chart::Axis::new(name, chart::Scale::Linear);
            let lines = vec![chart::Line::new("a", points.to_vec())];
            (title.to_owned(), chart::Chart::new(axis("N"), axis("ms"), lines))
        };
        let points = [(1.0, 2.0), (10.0, 20.0)];
        let html = charts_html("f", "F", &[chart("warm", &[]), chart("cold", &points)]);
        assert!(html.contains("F (cold)<") && !html.contains("warm"), "{html}");
        let html = charts_html("f", "F", &[chart("warm", &points), chart("cold", &points)]);
        assert!(html.contains("F (left to right: warm; cold)<"), "{html}");
        assert_eq!(charts_html("f", "F", &[chart("warm", &[])]), "");
    }

    #[test]
    fn a_page_has_every_table_and_figure_and_nothing_from_outside() {
        let grid = Grid::quick();
        let of = |cell| Measured {
            cell,
            place: String::new(),
            loops_ns: vec![1_000_000, 2_000_000],
            counted_ios: 1,
        };
        let results: Vec<Measured> = grid.cells().into_iter().map(of).collect();
        let about = About { lines: vec!["a <machine>".into()] };
        let html = page(&about, &results, &[]);
        for number in 2..=6 {
            assert_eq!(html.matches(&format!("id=\"table-{number}\"")).count(), 1, "table {number}");
        }
        for number in 4..=29 {
            assert_eq!(html.matches(&format!("id=\"figure-{number}\"")).count(), 1, "figure {number}");
        }
        assert!(html.contains("a &lt;machine&gt;") && !html.contains("<machine>"));
        assert!(!html.contains("src=") && !html.contains("<script") && !html.contains("url("));
        assert_eq!(html.matches("<section").count(), html.matches("</section>").count());
    }
}
