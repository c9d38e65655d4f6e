//! Pages of traces: seek charts, rates and tables in one HTML file that needs nothing else.
//!
//! ```text
//!   pieces     requests as pieces of runs, in compressed chunks
//!   bands      the range of every file; rates over time
//!   html       tables and charts of rates
//!   plot.js    decodes the chunks and draws them; zoom, pan, keyboard
//!   plot.css   light and dark
//! ```
//!
//! Invariants: the page loads nothing (its content-security policy says so); text of traces is escaped; the chunks have
//! every request of the trace. Memory grows with the number of files and of traces, not with that of requests.

mod bands;
mod html;
mod pieces;

use std::path::Path;

use serde::Serialize;

use crate::compare::Compared;
use crate::error::TraceError;
use crate::format::TraceReader;
use crate::output::Output;
use bands::{Band, Overview};
use html::{RateScale, escaped};
use pieces::{Joiner, MAX_PIECES, Piece};

const SCRIPT: &str = include_str!("plot.js");
const STYLE: &str = include_str!("plot.css");
/// The level of deflate; higher ones take twice the time for a twentieth fewer bytes.
const LEVEL: u8 = 4;

/// A trace of a page.
pub struct Shown<'a> {
    /// The trace.
    pub trace: &'a TraceReader,
    /// Its measures.
    pub compared: &'a Compared,
}

/// What the script needs to know of a trace.
#[derive(Serialize)]
struct Chart<'a> {
    name: &'a str,
    requests: u64,
    duration_ns: u64,
    pieces: u64,
    /// Files in the table of the trace.
    files: usize,
    bands: &'a [Band],
}

/// Writes a page with the charts of traces side by side, all of the same scale. Returns its length.
pub fn write_page(shown: &[Shown<'_>], output: &Path) -> Result<u64, TraceError> {
    let overviews: Vec<Overview> =
        shown.iter().map(|one| Overview::new(one.trace)).collect::<Result<_, TraceError>>()?;
    let mut to = Output::create(output, "page")?;
    to.append(head(shown).as_bytes())?;
    to.append(body(shown, &overviews).as_bytes())?;
    let mut counts = Vec::new();
    for (at, one) in shown.iter().enumerate() {
        counts.push(append_pieces(&mut to, at, one.trace)?);
    }
    let charts: Vec<Chart<'_>> = shown
        .iter()
        .zip(&overviews)
        .zip(&counts)
        .map(|((one, overview), pieces)| Chart {
            name: &one.compared.trace,
            requests: overview.requests,
            duration_ns: overview.duration_ns,
            pieces: *pieces,
            files: one.trace.files().len(),
            bands: &overview.bands,
        })
        .collect();
    let charts = serde_json::to_string(&charts).map_err(|source| TraceError::Page { source })?;
    to.append(b"<script type=\"application/json\" id=\"charts\">")?;
    // A path cannot end the element: JSON has another spelling of this letter.
    to.append(charts.replace('<', "\\u003c").as_bytes())?;
    to.append(format!("</script>\n<script>\n{SCRIPT}</script>\n</body></html>\n").as_bytes())?;
    Ok(to.commit()?)
}

/// Appends the chunks of a trace. Returns the number of its pieces.
fn append_pieces(to: &mut Output, number: usize, trace: &TraceReader) -> Result<u64, TraceError> {
    let mut joiner = Joiner::default();
    let mut chunk = Vec::with_capacity(MAX_PIECES);
    let mut count = 0;
    for event in trace.events() {
        chunk.extend(joiner.add(&event?));
        if chunk.len() == MAX_PIECES {
            append_chunk(to, number, &chunk)?;
            count += chunk.len() as u64;
            chunk.clear();
        }
    }
    chunk.extend(joiner.end());
    append_chunk(to, number, &chunk)?;
    Ok(count + chunk.len() as u64)
}

fn append_chunk(to: &mut Output, number: usize, pieces: &[Piece]) -> Result<(), TraceError> {
    if pieces.is_empty() {
        return Ok(());
    }
    let packed = miniz_oxide::deflate::compress_to_vec(&pieces::encode(pieces), LEVEL);
    let start =
        format!("<script type=\"text/plain\" data-trace=\"{number}\" data-pieces=\"{}\">", pieces.len());
    to.append(start.as_bytes())?;
    to.append(pieces::base64(&packed).as_bytes())?;
    Ok(to.append(b"</script>\n")?)
}

fn title(shown: &[Shown<'_>]) -> String {
    match shown {
        [one] => format!("Seeks of {}", one.compared.trace),
        _ => format!("Seeks of {} traces", shown.len()),
    }
}

fn head(shown: &[Shown<'_>]) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" \
         content=\"ascot trace\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<meta name=\"viewport\" \
         content=\"width=device-width\"><title>{}</title>\n<style>{STYLE}</style></head>\n",
        escaped(&title(shown))
    )
}

fn body(shown: &[Shown<'_>], overviews: &[Overview]) -> String {
    let compared: Vec<Compared> = shown.iter().map(|one| one.compared.clone()).collect();
    let mut charts = String::new();
    let mut files = String::new();
    let mut rates = String::new();
    let scale = overviews.iter().fold(RateScale::default(), |scale, one| scale.with(&one.rates));
    for (at, (one, overview)) in shown.iter().zip(overviews).enumerate() {
        let name = escaped(&one.compared.trace);
        charts += &format!(
            "<figure><figcaption>{name}: <code>{}</code></figcaption>\n<canvas id=\"chart-{at}\" tabindex=\"0\" \
             role=\"img\" aria-label=\"Seek chart of {name}; the tables have its numbers\" \
             aria-describedby=\"keys state-{at}\"></canvas>\n<p id=\"state-{at}\" role=\"status\">Loading</p>\
             </figure>\n",
            escaped(&one.compared.census.command)
        );
        files += &format!(
            "<section aria-label=\"Files of {name}\"><h3>{name}</h3>\n{}{}</section>\n",
            html::files(&format!("files-{at}"), &one.compared.census),
            html::run_lengths(&format!("lengths-{at}"), &one.compared.census)
        );
        rates += &html::rates(&one.compared.trace, &overview.rates, scale);
    }
    format!(
        "<body class=\"{}\">\n<h1>{}</h1>\n<main>\n<section id=\"seeks\"><h2>Offset of every request</h2>\n{CONTROLS}\
         <div class=\"charts\">\n{charts}</div>\n</section>\n<section id=\"numbers\"><h2>Counts</h2>\n{}</section>\n\
         <section id=\"rates\"><h2>Rate over time</h2>\n<div class=\"charts\">{rates}</div></section>\n\
         <section id=\"files\"><h2>Runs</h2>\n<div class=\"charts\">{files}</div></section>\n</main>\n",
        if shown.len() == 1 { "one" } else { "several" },
        escaped(&title(shown)),
        html::measures(&compared)
    )
}

const CONTROLS: &str = "<noscript><p>The chart needs JavaScript; the tables below have the counts.</p></noscript>
<div id=\"controls\" role=\"group\" aria-label=\"View of the charts\">
<fieldset><legend>Horizontal axis</legend>
<label><input type=\"radio\" name=\"axis\" value=\"order\" checked> order of requests</label>
<label><input type=\"radio\" name=\"axis\" value=\"time\"> time</label></fieldset>
<fieldset><legend>Requests</legend>
<label><input type=\"checkbox\" id=\"reads\" checked> reads
<span class=\"mark read\" aria-hidden=\"true\"></span></label>
<label><input type=\"checkbox\" id=\"writes\" checked> writes
<span class=\"mark write\" aria-hidden=\"true\"></span></label>
</fieldset>
<fieldset><legend>View</legend>
<button type=\"button\" data-do=\"in\">Zoom in</button>
<button type=\"button\" data-do=\"out\">Zoom out</button>
<button type=\"button\" data-do=\"left\">Left</button>
<button type=\"button\" data-do=\"right\">Right</button>
<button type=\"button\" data-do=\"up\">Up</button>
<button type=\"button\" data-do=\"down\">Down</button>
<button type=\"button\" data-do=\"reset\">Reset</button></fieldset></div>
<p id=\"keys\">Reads are flat marks, writes upright ones. Each file has a band; every run has at least one pixel at
every zoom. In a chart: + and - zoom, arrows move, Shift with an arrow zooms one axis, 0 resets. With the mouse: drag to
move, click and turn the wheel to zoom. Between the first and the last request of a run, times are interpolated.</p>
";
