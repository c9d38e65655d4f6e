//! The report of a job as a page: its plan beside what it did, its files, and the report itself for programs.
//!
//! Invariant: every number of a table is one of the report, rounded for people; the page carries the report as JSON.

use ascot_model::account::{PassAccount, StreamAccount};
use ascot_model::plan::{MethodPlan, PassPlan, Plan};
use ascot_model::report::Report;
use ascot_model::units::{self, in_html as escaped};

use super::html::table;
use super::{json, resources, time_spent};
use crate::error::Result;

/// The title of the page.
pub fn title(report: &Report) -> String {
    let first = report.streams.iter().find(|stream| stream.moved.name == "output" && stream.file.is_some());
    let name =
        first.and_then(|stream| stream.file.as_deref()).map(|file| file.rsplit('/').next().unwrap_or(file));
    match name {
        Some(name) => format!("Report of {name}"),
        None => "Report of a job".to_owned(),
    }
}

/// The page up to its seek chart; it ends inside the main part.
pub fn before_charts(report: &Report, title: &str) -> String {
    let text = report.to_string();
    let summary = text.lines().next().unwrap_or_default();
    format!(
        "<body class=\"one report\">\n<header><h1>{}</h1><p id=\"summary\">{}</p></header>\n\
         <nav aria-label=\"Parts of the report\"><ul>{}</ul></nav>\n<main>\n{}{}{}{}",
        escaped(title),
        escaped(summary),
        links(report),
        plan(report),
        time_spent::section(report),
        streams(report),
        notices(report),
    )
}

/// The page between its charts of requests and their data: it ends the main part.
pub fn after_charts(report: &Report) -> Result<String> {
    Ok(format!(
        "{}</main>\n<script type=\"application/json\" id=\"report\">{}</script>\n",
        resources::section(report.monitor.as_ref()),
        json(report)?
    ))
}

fn links(report: &Report) -> String {
    let mut parts =
        vec![("plan", "Plan"), ("time", "Time"), ("streams", "Bytes and runs"), ("seeks", "Requests")];
    parts.extend([("rates", "Rate"), ("files", "Runs")]);
    if report.monitor.is_some() {
        parts.push(("resources", "Resources"));
    }
    parts.iter().map(|(id, name)| format!("<li><a href=\"#{id}\">{name}</a></li>")).collect()
}

/// The plan beside what was done.
fn plan(report: &Report) -> String {
    let done = [
        ("time", units::seconds(report.seconds)),
        ("read", units::bytes(report.moved.read_bytes)),
        ("written", units::bytes(report.moved.written_bytes)),
        ("switches", units::count(report.moved.switches())),
        ("peak disk", units::bytes(report.peak_disk_bytes)),
        ("memory", units::memory(report.peak_memory_bytes)),
    ];
    let planned = planned(report);
    let rows: Vec<Vec<String>> = done
        .into_iter()
        .zip(planned)
        .map(|((name, done), planned)| {
            vec![name.to_owned(), planned.unwrap_or_else(|| "not planned".into()), done]
        })
        .collect();
    let mut html = String::from("<section id=\"plan\"><h2>Plan</h2>\n");
    if let Some(plan) = &report.plan {
        html += &format!("<p id=\"method\">{}</p>\n", escaped(&plan.chosen.summary));
    }
    html += &table("planned", "Planned and done", &["measure", "planned", "done"], &rows);
    let header = ["pass", "times", "inputs", "outputs", "read", "written", "switches", "time"];
    if let Some(Plan { chosen, others, .. }) = &report.plan {
        let rows: Vec<Vec<String>> = chosen.sample.iter().chain(&chosen.passes).map(planned_pass).collect();
        html += &table("planned-passes", "Passes as planned", &header, &rows);
        if !others.is_empty() {
            let rows: Vec<Vec<String>> = others.iter().map(other).collect();
            html += &table("others", "Methods not chosen", &["method", "time", "switches", "remark"], &rows);
        }
    }
    let rows: Vec<Vec<String>> = report.passes.iter().map(done_pass).collect();
    html += &table("passes", "Passes as done", &header, &rows);
    html + "</section>\n"
}

fn planned(report: &Report) -> [Option<String>; 6] {
    let chosen = report.plan.as_ref().map(|plan| &plan.chosen);
    let of = |figure: fn(&MethodPlan) -> u64| chosen.map(figure);
    [
        report.predicted_seconds.map(units::seconds),
        of(MethodPlan::read_bytes).map(units::bytes),
        of(MethodPlan::written_bytes).map(units::bytes),
        of(MethodPlan::switches).map(units::count),
        report.predicted_peak_disk_bytes.map(units::bytes),
        (report.memory_bytes > 0)
            .then(|| format!("{} and code, at most 32 MiB", units::memory(report.memory_bytes))),
    ]
}

fn planned_pass(pass: &PassPlan) -> Vec<String> {
    vec![
        pass.name.clone(),
        units::count(pass.times),
        units::count(pass.inputs),
        units::count(pass.outputs),
        units::bytes(pass.read_bytes),
        units::bytes(pass.written_bytes),
        units::count(pass.switches),
        units::seconds(pass.seconds()),
    ]
}

fn done_pass(pass: &PassAccount) -> Vec<String> {
    let moved = pass.moved();
    vec![
        pass.name.clone(),
        units::count(pass.times),
        units::count(pass.inputs),
        units::count(pass.outputs),
        units::bytes(moved.read_bytes),
        units::bytes(moved.written_bytes),
        units::count(moved.switches()),
        units::seconds(pass.seconds),
    ]
}

fn other(method: &MethodPlan) -> Vec<String> {
    vec![
        method.summary.clone(),
        units::seconds(method.seconds()),
        units::count(method.switches()),
        method.remark.clone(),
    ]
}

/// The bytes and runs of each pass and each file.
fn streams(report: &Report) -> String {
    let header = ["", "read", "runs", "written", "runs", "mean run"];
    let of_passes = report.passes.iter().flat_map(|pass| {
        pass.streams.iter().map(|stream| stream_row(format!("{}: {}", pass.name, stream.name), stream))
    });
    let mut by_pass: Vec<Vec<String>> = of_passes.collect();
    by_pass.push(stream_row("all".to_owned(), &report.moved));
    let listed = report.streams.iter().chain(&report.streams_left_out);
    let by_file: Vec<Vec<String>> = listed
        .map(|file| {
            let more = || format!("{} more: {}", file.files.unwrap_or_default(), file.moved.name);
            stream_row(file.file.clone().unwrap_or_else(more), &file.moved)
        })
        .collect();
    format!(
        "<section id=\"streams\"><h2>Bytes and runs</h2>\n{}\
         <details><summary>Each file</summary>{}</details></section>\n",
        table("by-pass", "Bytes and runs of each pass", &[&["stream"], &header[1..]].concat(), &by_pass),
        table("by-file", "Bytes and runs of each file", &[&["file"], &header[1..]].concat(), &by_file)
    )
}

fn stream_row(name: String, stream: &StreamAccount) -> Vec<String> {
    vec![
        name,
        units::bytes(stream.read_bytes),
        units::count(stream.read_runs),
        units::bytes(stream.written_bytes),
        units::count(stream.written_runs),
        units::bytes(stream.mean_run()),
    ]
}

fn notices(report: &Report) -> String {
    if report.notices.is_empty() {
        return String::new();
    }
    let items: String = report.notices.iter().map(|text| format!("<li>{}</li>", escaped(text))).collect();
    format!("<section id=\"notices\"><h2>Notices</h2><ul>{items}</ul></section>\n")
}
