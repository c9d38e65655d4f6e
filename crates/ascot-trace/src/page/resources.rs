//! The use of processors, memory, disks and network of a job as charts and as a table.

use std::fmt::Write as _;

use ascot_model::resource_use::{ResourceColumn, ResourceUse, Unit};
use ascot_model::units::{self, in_html as escaped};

use super::html::table;

/// The size of a chart.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 90.0;
/// Quantities with a chart; all have a row in the table.
const MAX_CHARTS: usize = 24;

/// The section of a job; empty if nothing was sampled.
pub fn section(used: Option<&ResourceUse>) -> String {
    let Some(used) = used else { return String::new() };
    let known: Vec<&ResourceColumn> = used.columns.iter().filter(|column| column.maximum.is_some()).collect();
    let charts: String = known.iter().take(MAX_CHARTS).map(|column| chart(used, column)).collect();
    let rows: Vec<Vec<String>> = known.iter().map(|column| row(column)).collect();
    let mut remarks: Vec<String> = used.notices.clone();
    if !used.idle.is_empty() {
        remarks.push(format!("These moved nothing: {}.", used.idle.join(", ")));
    }
    if known.len() > MAX_CHARTS {
        remarks.push(format!("The first {MAX_CHARTS} quantities have a chart; the table has all."));
    }
    let remarks: String = remarks.iter().map(|text| format!("<p>{}</p>", escaped(text))).collect();
    let interval = used.interval_seconds * used.intervals_per_sample as f64;
    format!(
        "<section id=\"resources\"><h2>Resources</h2>\n<p>{} of {interval:.3} s.</p>\n{remarks}\
         <div class=\"resource-charts\">{charts}</div>\n{}</section>\n",
        units::plural(used.seconds.len() as u64, "sample"),
        table("used", "Use of resources", &["quantity", "mean", "least", "most"], &rows)
    )
}

fn row(column: &ResourceColumn) -> Vec<String> {
    let unit = column.quantity.unit;
    let text = |value: Option<f64>| value.map(|value| unit.text(value)).unwrap_or_default();
    vec![column.quantity.to_string(), text(column.mean), text(column.minimum), text(column.maximum)]
}

/// A line from sample to sample; it is interrupted where a value is not known.
fn chart(used: &ResourceUse, column: &ResourceColumn) -> String {
    let unit = column.quantity.unit;
    let most = column.maximum.unwrap_or_default();
    let full = if unit == Unit::Share { 1.0_f64.max(most) } else { most }.max(1e-9);
    let end = used.seconds.last().copied().unwrap_or_default().max(1e-9);
    let mut path = String::new();
    let mut before = 0.0;
    let mut is_known = false;
    for (to, value) in used.seconds.iter().zip(&column.samples) {
        if let Some(value) = value {
            let from = before / end * WIDTH;
            let to = to / end * WIDTH;
            let y = HEIGHT - value / full * HEIGHT;
            let _ = write!(path, "{}{from:.1} {y:.1}H{to:.1}", if is_known { 'L' } else { 'M' });
        }
        is_known = value.is_some();
        before = *to;
    }
    let name = escaped(&column.quantity.to_string());
    format!(
        "<figure><svg viewBox=\"-2 -14 {} {}\" role=\"img\" aria-label=\"{name} over time; the table below has its \
         mean, least and most\"><path class=\"axis\" d=\"M0 0V{HEIGHT}H{WIDTH}\"/><path class=\"course\" d=\"{path}\"/>\
         <text x=\"2\" y=\"-3\">{}</text><text x=\"{WIDTH}\" y=\"{}\" text-anchor=\"end\">{end:.2} s</text></svg>\
         <figcaption>{name}</figcaption></figure>\n",
        WIDTH + 4.0,
        HEIGHT + 30.0,
        escaped(&unit.text(full)),
        HEIGHT + 14.0
    )
}
