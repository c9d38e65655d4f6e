//! Tables and charts of a page as HTML. Text of traces is escaped.

use std::fmt::Write as _;

use ascot_model::units::{self, in_html as escaped};

use super::bands::{INTERVALS, Rates};
use crate::census::{Census, Counts, FileCensus};
use crate::compare::{Compared, rows};

/// Files in a table of a page; the rest is one row.
const FILES_LISTED: usize = 200;
/// Rows of a table of rates.
const RATE_ROWS: usize = 24;
/// The size of a chart of rates.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 160.0;

/// A table; the first cell of each row names the row.
pub fn table(id: &str, caption: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let head: String =
        header.iter().map(|name| format!("<th scope=\"col\">{}</th>", escaped(name))).collect();
    let mut body = String::new();
    for row in rows {
        body.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let (tag, end) = if at == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
            let _ = write!(body, "<{tag}>{}</{end}>", escaped(cell));
        }
        body.push_str("</tr>\n");
    }
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\
         <table id=\"{id}\"><caption>{0}</caption>\n\
         <thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n",
        escaped(caption)
    )
}

/// The measures of all traces.
pub fn measures(traces: &[Compared]) -> String {
    let mut header = vec!["measure"];
    header.extend(traces.iter().map(|one| one.trace.as_str()));
    let rows: Vec<Vec<String>> = rows(traces)
        .into_iter()
        .map(|row| std::iter::once(row.name.to_owned()).chain(row.values).collect())
        .collect();
    table("census", "Census", &header, &rows)
}

/// The distribution of the lengths of runs.
pub fn run_lengths(id: &str, census: &Census) -> String {
    let rows: Vec<Vec<String>> = census
        .counts
        .run_lengths
        .iter()
        .map(|lengths| {
            let from = format!("{} and more", units::memory(lengths.from_bytes));
            vec![from, units::count(lengths.runs), units::bytes(lengths.bytes)]
        })
        .collect();
    table(id, "Length of runs", &["length", "runs", "bytes"], &rows)
}

/// The runs of each file, those with most bytes first.
pub fn files(id: &str, census: &Census) -> String {
    let mut rows: Vec<Vec<String>> = census.by_file.iter().take(FILES_LISTED).map(file_row).collect();
    let others = census.by_file.get(FILES_LISTED..).unwrap_or_default();
    if !others.is_empty() {
        let mut sum = Counts::default();
        for file in others {
            sum.reads += file.counts.reads;
            sum.writes += file.counts.writes;
            sum.read_bytes += file.counts.read_bytes;
            sum.written_bytes += file.counts.written_bytes;
            sum.runs += file.counts.runs;
        }
        sum.mean_run_bytes = (sum.read_bytes + sum.written_bytes).checked_div(sum.runs).unwrap_or_default();
        rows.push(cells(format!("{} more", units::plural(others.len() as u64, "file")), &sum));
    }
    table(id, "Runs of each file", &["file", "read", "written", "requests", "runs", "mean run"], &rows)
}

fn file_row(file: &FileCensus) -> Vec<String> {
    cells(format!("{}{}", file.path, if file.deleted { " (deleted)" } else { "" }), &file.counts)
}

fn cells(name: String, counts: &Counts) -> Vec<String> {
    vec![
        name,
        units::bytes(counts.read_bytes),
        units::bytes(counts.written_bytes),
        units::count(counts.reads + counts.writes),
        units::count(counts.runs),
        units::bytes(counts.mean_run_bytes),
    ]
}

/// The scale that charts of rates share.
#[derive(Clone, Copy, Default)]
pub struct RateScale {
    /// The longest time.
    pub seconds: f64,
    /// The highest rate.
    pub bytes_per_s: f64,
}

impl RateScale {
    /// A scale with room for `rates`, too.
    pub fn with(self, rates: &Rates) -> RateScale {
        let interval = rates.interval_ns as f64 / 1e9;
        let most = rates.read_bytes.iter().chain(&rates.written_bytes).max().copied().unwrap_or_default();
        RateScale {
            seconds: self.seconds.max(interval * INTERVALS as f64),
            bytes_per_s: self.bytes_per_s.max(most as f64 / interval),
        }
    }
}

/// The rates over time as a chart and as a table: reads are a solid line, writes a dashed one.
pub fn rates(name: &str, rates: &Rates, scale: RateScale) -> String {
    let interval = rates.interval_ns as f64 / 1e9;
    let line = |class: &str, bytes: &[u64]| {
        let mut points = String::new();
        for (at, bytes) in bytes.iter().enumerate() {
            let y = HEIGHT - *bytes as f64 / interval / scale.bytes_per_s.max(1.0) * HEIGHT;
            for edge in [at, at + 1] {
                let x = edge as f64 * interval / scale.seconds.max(1e-9) * WIDTH;
                let _ = write!(points, "{x:.1},{y:.1} ");
            }
        }
        format!("<polyline class=\"{class}\" points=\"{}\"/>", points.trim_end())
    };
    let mut rows = Vec::new();
    let together = INTERVALS / RATE_ROWS;
    for (at, (read, written)) in
        rates.read_bytes.chunks(together).zip(rates.written_bytes.chunks(together)).enumerate()
    {
        let rate =
            |bytes: &[u64]| units::rate(bytes.iter().sum::<u64>() as f64 / (interval * together as f64));
        rows.push(vec![units::fine_seconds((at * together) as f64 * interval), rate(read), rate(written)]);
    }
    format!(
        "<figure class=\"rates\"><svg viewBox=\"-4 -16 {} {}\" role=\"img\" aria-label=\"Rate over time of {name}; the \
         table below has the numbers\"><path class=\"axis\" d=\"M0 0V{HEIGHT}H{WIDTH}\"/>{}{}\
         <text x=\"4\" y=\"-4\">{}</text>\
         <text x=\"{WIDTH}\" y=\"{}\" text-anchor=\"end\">{}</text></svg><figcaption>{name}: read \
         <span class=\"sample solid\"></span>, written <span class=\"sample dashed\"></span></figcaption>\n<details>\
         <summary>Rates of {name} as a table</summary>{}</details></figure>\n",
        WIDTH + 8.0,
        HEIGHT + 36.0,
        line("read", &rates.read_bytes),
        line("write", &rates.written_bytes),
        units::rate(scale.bytes_per_s),
        HEIGHT + 16.0,
        units::fine_seconds(scale.seconds),
        table("", "Rates", &["from", "read", "written"], &rows).replace(" id=\"\"", ""),
        name = escaped(name),
    )
}
