//! Pages of traces and of jobs: seek charts, rates and tables in one HTML file that needs nothing else.
//!
//! ```text
//!   pieces     requests as pieces of runs, in compressed chunks
//!   bands      the range of every file; rates over time
//!   buckets    occupancies of bowties at some turns, with the staircase that theory predicts
//!   report     the plan of a job beside its account
//!   time_spent  passes and stages over time, and what their threads did
//!   resources  the use of processors, memory, disks and network over time
//!   html       tables and charts of rates
//!   units.js   texts of sizes and times
//!   plot.js    decodes the chunks and draws them; zoom, pan, keyboard
//!   buckets.js  draws the occupancies
//!   plot.css   light and dark
//! ```
//!
//! Invariants: the page loads nothing (its content-security policy says so); text of traces is escaped; the chunks have
//! every request of the trace. Memory grows with the number of files and of traces, not with that of requests.

mod bands;
mod buckets;
mod html;
mod pieces;
mod report;
mod resources;
mod time_spent;

use std::fs::File;
use std::path::Path;

use ascot_io::AtomicOutput;
use ascot_model::report::Report;
use serde::Serialize;

use crate::compare::{Compared, remarks};
use crate::error::{Result, TraceError};
use crate::format::TraceReader;
use crate::output::Output;
use ascot_model::units::in_html as escaped;
use bands::{Band, Overview};
use buckets::Drawn;
use html::RateScale;
use pieces::{Joiner, MAX_PIECES, RunPiece};

const UNITS_SCRIPT: &str = include_str!("units.js");
const SCRIPT: &str = include_str!("plot.js");
const BUCKETS_SCRIPT: &str = include_str!("buckets.js");
const STYLE: &str = include_str!("plot.css");
/// The level of deflate; higher ones take twice the time for a twentieth fewer bytes.
const LEVEL: u8 = 4;
/// Pieces in memory while a page is written beside a job, which has a cap of memory.
const PIECES_BESIDE_A_JOB: usize = 4096;

/// The style of the pages: light and dark, tables, charts of rates and of resources.
pub fn style() -> &'static str {
    STYLE
}

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

/// A trace of a page with all that its charts need.
struct Prepared<'a> {
    shown: &'a Shown<'a>,
    overview: Overview,
    drawn: Vec<Drawn>,
}

impl<'a> Prepared<'a> {
    fn new(shown: &'a Shown<'a>) -> Result<Self> {
        let drawn = buckets::drawn(shown.trace, &shown.compared.census.bowties)?;
        Ok(Prepared { shown, overview: Overview::new(shown.trace)?, drawn })
    }
}

/// Writes a page with the charts of traces side by side, all of the same scale. Returns its length.
pub fn write_page(shown: &[Shown<'_>], output: &Path) -> Result<u64> {
    let prepared: Vec<Prepared<'_>> = shown.iter().map(Prepared::new).collect::<Result<_>>()?;
    let mut to = Output::create(output, "page")?;
    to.append(head(&title(shown)).as_bytes())?;
    to.append(body(&prepared).as_bytes())?;
    append_charts(&mut to, &prepared, MAX_PIECES)?;
    to.append(b"</body></html>\n")?;
    Ok(to.commit()?)
}

/// The page of a job's report, which is being written.
pub struct ReportPage(Output);

impl ReportPage {
    /// Starts a page that will be `path`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<ReportPage> {
        Ok(ReportPage(Output::create(path, "report")?))
    }

    /// A page that is appended to a file that is open, such as a pipe.
    pub fn to_file(file: File) -> ReportPage {
        ReportPage(Output::to_file(file))
    }

    /// Writes the page. It lacks only its name then; none if the file has one.
    ///
    /// # Errors
    /// The trace cannot be read, or the page cannot be written.
    pub fn write(self, report: &Report, trace: &TraceReader) -> Result<Option<AtomicOutput>> {
        let ReportPage(mut to) = self;
        let compared = Compared::new("this job".to_owned(), trace, None, None)?;
        let shown = Shown { trace, compared: &compared };
        let prepared = [Prepared::new(&shown)?];
        let title = report::title(report);
        to.append(head(&title).as_bytes())?;
        to.append(report::before_charts(report, &title).as_bytes())?;
        to.append(seeks(&prepared).as_bytes())?;
        to.append(below(&prepared).as_bytes())?;
        to.append(report::after_charts(report)?.as_bytes())?;
        append_charts(&mut to, &prepared, PIECES_BESIDE_A_JOB)?;
        to.append(b"</body></html>\n")?;
        Ok(to.seal()?)
    }
}

/// Appends the requests and the buckets of all traces, and the scripts that draw them.
fn append_charts(to: &mut Output, prepared: &[Prepared<'_>], pieces_at_once: usize) -> Result<()> {
    let mut charts = Vec::new();
    for (at, one) in prepared.iter().enumerate() {
        let Prepared { shown, overview, .. } = one;
        charts.push(Chart {
            name: &shown.compared.trace,
            requests: overview.requests,
            duration_ns: overview.duration_ns,
            pieces: append_pieces(to, at, shown.trace, pieces_at_once)?,
            files: shown.trace.files().len(),
            bands: &overview.bands,
        });
    }
    to.append(b"<script type=\"application/json\" id=\"charts\">")?;
    to.append(json(&charts)?.as_bytes())?;
    to.append(
        format!("</script>\n<script>\n{UNITS_SCRIPT}</script>\n<script>\n{SCRIPT}</script>\n").as_bytes(),
    )?;
    append_buckets(to, prepared)
}

/// JSON inside a script: text cannot end the element, because JSON has another spelling of this letter.
fn json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(value).map_err(|source| TraceError::Page { source })?;
    Ok(text.replace('<', "\\u003c"))
}

/// Appends the buckets of the traces that have some, and the script that draws them.
fn append_buckets(to: &mut Output, prepared: &[Prepared<'_>]) -> Result<()> {
    let with_bowties = || prepared.iter().enumerate().filter(|(_, one)| !one.drawn.is_empty());
    for (number, one) in with_bowties() {
        to.append(format!("<script type=\"application/json\" data-buckets=\"{number}\">").as_bytes())?;
        to.append(json(&one.drawn)?.as_bytes())?;
        to.append(b"</script>\n")?;
    }
    if with_bowties().next().is_some() {
        to.append(format!("<script>\n{BUCKETS_SCRIPT}</script>\n").as_bytes())?;
    }
    Ok(())
}

/// Appends the chunks of a trace. Returns the number of its pieces.
fn append_pieces(to: &mut Output, number: usize, trace: &TraceReader, at_once: usize) -> Result<u64> {
    let mut joiner = Joiner::default();
    let mut chunk = Vec::with_capacity(at_once);
    let mut count = 0;
    for event in trace.events() {
        chunk.extend(joiner.add(&event?));
        if chunk.len() >= at_once {
            append_chunk(to, number, &chunk)?;
            count += chunk.len() as u64;
            chunk.clear();
        }
    }
    chunk.extend(joiner.end());
    append_chunk(to, number, &chunk)?;
    Ok(count + chunk.len() as u64)
}

fn append_chunk(to: &mut Output, number: usize, pieces: &[RunPiece]) -> Result<()> {
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
    title_of(&shown.iter().map(|one| one.compared.trace.as_str()).collect::<Vec<_>>())
}

fn title_of(names: &[&str]) -> String {
    match names {
        [one] => format!("Seeks of {one}"),
        _ => format!("Seeks of {} traces", names.len()),
    }
}

fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" \
         content=\"ascot trace\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<meta name=\"viewport\" \
         content=\"width=device-width\"><title>{}</title>\n<style>{STYLE}</style></head>\n",
        escaped(title)
    )
}

/// The page of traces, up to the data of the charts.
fn body(prepared: &[Prepared<'_>]) -> String {
    let compared: Vec<Compared> = prepared.iter().map(|one| one.shown.compared.clone()).collect();
    let names: Vec<&str> = compared.iter().map(|one| one.trace.as_str()).collect();
    let remarks: String = remarks(&compared)
        .iter()
        .map(|remark| format!("<p class=\"remark\">{}</p>\n", escaped(remark)))
        .collect();
    format!(
        "<body class=\"{}\">\n<h1>{}</h1>\n<main>\n{}<section id=\"numbers\"><h2>Counts</h2>\n{}{remarks}</section>\n{}\
         </main>\n",
        if prepared.len() == 1 { "one" } else { "several" },
        escaped(&title_of(&names)),
        seeks(prepared),
        html::measures(&compared),
        below(prepared)
    )
}

/// The seek charts with their controls.
fn seeks(prepared: &[Prepared<'_>]) -> String {
    let mut charts = String::new();
    for (at, one) in prepared.iter().enumerate() {
        let name = escaped(&one.shown.compared.trace);
        charts += &format!(
            "<figure><figcaption>{name}: <code>{}</code></figcaption>\n<canvas id=\"chart-{at}\" tabindex=\"0\" \
             role=\"img\" aria-label=\"Seek chart of {name}; the tables have its numbers\" \
             aria-describedby=\"keys state-{at}\"></canvas>\n<p id=\"state-{at}\" role=\"status\">Loading</p>\
             </figure>\n",
            escaped(&one.shown.compared.census.command)
        );
    }
    format!(
        "<section id=\"seeks\"><h2>Offset of every request</h2>\n{CONTROLS}{}{KEYS}\
         <div class=\"charts\">\n{charts}</div>\n\
         </section>\n",
        if prepared.len() > 1 { SCALES } else { "" }
    )
}

/// The rates, the buckets and the runs of traces.
fn below(prepared: &[Prepared<'_>]) -> String {
    let scale = prepared.iter().fold(RateScale::default(), |scale, one| scale.with(&one.overview.rates));
    let mut files = String::new();
    let mut rates = String::new();
    let mut buckets = String::new();
    for (at, one) in prepared.iter().enumerate() {
        let Compared { trace, census, .. } = one.shown.compared;
        let name = escaped(trace);
        files += &format!(
            "<section aria-label=\"Files of {name}\"><h3>{name}</h3>\n{}{}</section>\n",
            html::files(&format!("files-{at}"), census),
            html::run_lengths(&format!("lengths-{at}"), census)
        );
        buckets += &buckets::section(at, &name, &census.bowties, &one.drawn);
        rates += &html::rates(trace, &one.overview.rates, scale);
    }
    format!(
        "<section id=\"rates\"><h2>Rate over time</h2>\n<div class=\"charts\">{rates}</div></section>\n{buckets}\
         <section id=\"files\"><h2>Runs</h2>\n<div class=\"charts\">{files}</div></section>\n"
    )
}

/// Of several charts.
const SCALES: &str = "<fieldset><legend>Scales</legend>
<label><input type=\"checkbox\" id=\"equal\" checked> equal in all charts</label></fieldset>
";

const CONTROLS: &str =
    "<noscript><p>The chart needs JavaScript; the tables below have the counts.</p></noscript>
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
<button type=\"button\" data-do=\"reset\">Reset</button></fieldset>";

const KEYS: &str = "</div>
<p id=\"keys\">Reads are flat marks, writes upright ones. Each file has a band; every run has at least one pixel at
every zoom. In a chart: + and - zoom, arrows move, Shift with an arrow zooms one axis, 0 resets. With the mouse: drag to
move, click and turn the wheel to zoom. Between the first and the last request of a run, times are interpolated.</p>
";
