//! Passes and stages of a job over time, and what their threads did: worked, or waited for input, memory or the device.
//!
//! The account has the begin and the end of a pass, and sums of the times of its threads. The bar of a stage therefore
//! lies in the time of its pass and shows shares, not when a thread waited.

use std::fmt::Write as _;

use ascot_model::account::PassAccount;
use ascot_model::report::Report;
use ascot_model::stages::TimeSpent;
use ascot_model::units::{self, in_html as escaped};

use super::html::table;

/// The size of the chart.
const WIDTH: f64 = 720.0;
const ROW: f64 = 22.0;
const LABELS: f64 = 150.0;
/// Letters of a label that fit before the bars.
const LABEL_LETTERS: usize = 20;
/// Marks on the axis of time.
const MARKS: u32 = 4;

/// What a thread does, with its class in the chart.
const STATES: [(&str, &str); 4] = [
    ("busy", "busy"),
    ("waiting for input", "input"),
    ("waiting for memory", "memory"),
    ("waiting for the device", "device"),
];

fn times(spent: &TimeSpent) -> [f64; 4] {
    [
        spent.busy_seconds,
        spent.waiting_input_seconds,
        spent.waiting_memory_seconds,
        spent.waiting_device_seconds,
    ]
}

/// The section of a job.
pub fn section(report: &Report) -> String {
    let keys: String = STATES
        .iter()
        .map(|(name, class)| {
            format!("<span class=\"key\"><span class=\"box {class}\"></span> {name}</span> ")
        })
        .collect();
    format!(
        "<section id=\"time\"><h2>Time</h2>\n<figure class=\"timeline\">{}<figcaption>Passes from their beginning to \
         their end; below each, its stages, with the shares of their threads' time: {keys}</figcaption></figure>\n{}{}\
         <details><summary>Each thread</summary>{}</details></section>\n",
        chart(report),
        table(
            "timeline",
            "Passes over time",
            &["pass", "from", "to", "device busy", "bound by"],
            &report.passes.iter().map(pass_row).collect::<Vec<_>>()
        ),
        table(
            "stages",
            "Stages of each pass",
            &[
                "stage",
                "threads",
                "busy",
                "for input",
                "for memory",
                "for the device",
                "processor",
                "bytes",
                "rate"
            ],
            &stage_rows(report)
        ),
        table(
            "threads",
            "Threads of each stage",
            &["thread", "busy", "for input", "for memory", "for the device", "processor"],
            &thread_rows(report)
        )
    )
}

fn pass_row(pass: &PassAccount) -> Vec<String> {
    vec![
        pass.name.clone(),
        seconds(pass.began_seconds),
        seconds(pass.ended_seconds),
        seconds(pass.device_seconds),
        pass.bound_by.clone(),
    ]
}

fn stage_rows(report: &Report) -> Vec<Vec<String>> {
    let stages = report.passes.iter().flat_map(|pass| pass.stages.iter().map(move |stage| (pass, stage)));
    let row = |(pass, stage): (&PassAccount, &ascot_model::stages::StageAccount)| {
        let mut row = vec![format!("{}: {}", pass.name, stage.name), units::count(stage.threads as u64)];
        row.extend(times(&stage.time).map(seconds));
        row.push(seconds(stage.time.processor_seconds));
        row.push(units::bytes(stage.bytes));
        row.push(stage.bytes_per_s.map(units::rate).unwrap_or_default());
        row
    };
    stages.map(row).collect()
}

fn thread_rows(report: &Report) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for pass in &report.passes {
        for stage in &pass.stages {
            for thread in &stage.by_thread {
                let mut row = vec![format!("{}: {}: {}", pass.name, stage.name, thread.name)];
                row.extend(times(&thread.time).map(seconds));
                row.push(seconds(thread.time.processor_seconds));
                rows.push(row);
            }
        }
    }
    rows
}

/// Seconds with three decimals: the times of short stages differ there.
fn seconds(time_s: f64) -> String {
    format!("{time_s:.3} s")
}

fn chart(report: &Report) -> String {
    let end = report.passes.iter().map(|pass| pass.ended_seconds).fold(report.seconds, f64::max).max(1e-9);
    let place = |time_s: f64| LABELS + (WIDTH - LABELS) * (time_s / end).clamp(0.0, 1.0);
    let mut bars = String::new();
    let mut top = 0.0;
    for pass in &report.passes {
        let from = place(pass.began_seconds);
        let to = place(pass.ended_seconds);
        bar(&mut bars, "pass", from, to, top);
        label(&mut bars, "name", &pass.name, top);
        top += ROW;
        for stage in &pass.stages {
            let shares = times(&stage.time);
            let all: f64 = shares.iter().sum();
            let mut left = from;
            for (share, (_, class)) in shares.into_iter().zip(STATES) {
                let right = left + (to - from) * share / all.max(1e-12);
                bar(&mut bars, class, left, right, top);
                left = right;
            }
            label(&mut bars, "stage", &stage.name, top);
            top += ROW;
        }
    }
    for mark in 0..=MARKS {
        let at = end * f64::from(mark) / f64::from(MARKS);
        let anchor = if mark == MARKS { "end" } else { "start" };
        let _ = write!(
            bars,
            "<path class=\"axis\" d=\"M{0:.1} 0V{top:.1}\"/><text x=\"{0:.1}\" y=\"{1:.1}\" \
             text-anchor=\"{anchor}\">{2:.2} s</text>",
            place(at),
            top + 14.0,
            at
        );
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"Passes and stages over time; the tables below \
         have the numbers\">{bars}</svg>",
        top + 20.0
    )
}

fn bar(to: &mut String, class: &str, from: f64, end: f64, top: f64) {
    if end > from {
        let _ = write!(
            to,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            top + 3.0,
            (end - from).max(1.0),
            ROW - 6.0
        );
    }
}

fn label(to: &mut String, class: &str, text: &str, top: f64) {
    let short: String = text.chars().take(LABEL_LETTERS).collect();
    let indent = if class == "stage" { 12.0 } else { 0.0 };
    let _ = write!(
        to,
        "<text class=\"{class}\" x=\"{indent}\" y=\"{:.1}\">{}</text>",
        top + ROW - 6.0,
        escaped(&short)
    );
}
