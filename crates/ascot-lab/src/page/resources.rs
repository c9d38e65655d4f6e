//! The section of the use of resources during a study (`--monitor`): a chart over time for each kind of resource.

use ascot_model::resource_use::{Resource, ResourceColumn, ResourceUse, Unit};

use super::chart::{Axis, Chart, Line, Scale};
use super::{Section, charts_html};
use crate::text_table::TextTable;

/// The kinds, with their titles.
const KINDS: [(Resource, &str); 4] = [
    (Resource::Processor, "Processors"),
    (Resource::Memory, "Memory"),
    (Resource::Disk, "Disks"),
    (Resource::Network, "Network"),
];

/// The section; none if nothing was sampled.
pub fn section(used: &ResourceUse) -> Option<Section> {
    let mut html = format!(
        "<p>Use of resources during the last run, a sample every {} s.</p>\n",
        used.interval_seconds * used.intervals_per_sample as f64
    );
    for (resource, title) in KINDS {
        let columns: Vec<&ResourceColumn> =
            used.columns.iter().filter(|column| column.quantity.resource == resource).collect();
        let charts: Vec<(String, Chart)> = [Unit::Share, Unit::Processors, Unit::Bytes, Unit::BytesPerS]
            .into_iter()
            .filter_map(|unit| chart(used, &columns, unit))
            .collect();
        html += &charts_html(&format!("resources-{}", title.to_lowercase()), title, &charts);
    }
    html += &means(used).html();
    (!used.seconds.is_empty()).then(|| Section { id: "resources".into(), title: "Resources".into(), html })
}

/// The columns of one unit over time.
fn chart(used: &ResourceUse, columns: &[&ResourceColumn], unit: Unit) -> Option<(String, Chart)> {
    let lines: Vec<Line> = columns
        .iter()
        .filter(|column| column.quantity.unit == unit)
        .map(|column| {
            let points = used.seconds.iter().zip(&column.samples);
            let point = |(&second, &value): (&f64, &Option<f64>)| Some((second, scaled(unit, value?)));
            Line::new(column.quantity.to_string(), points.filter_map(point).collect())
        })
        .collect();
    let axis = |name| Axis::new(name, Scale::Linear);
    let word = unit_word(unit);
    (!lines.is_empty()).then(|| (word.to_owned(), Chart::new(axis("s"), axis(word), lines)))
}

/// Mean, least and greatest of each column.
fn means(used: &ResourceUse) -> TextTable {
    let mut table = TextTable::new(["resource", "mean", "least", "greatest"]);
    for column in &used.columns {
        let unit = column.quantity.unit;
        let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| unit.text(value));
        let numbers = [column.mean, column.minimum, column.maximum].map(text);
        table.rows.push(std::iter::once(column.quantity.to_string()).chain(numbers).collect());
    }
    table
}

fn unit_word(unit: Unit) -> &'static str {
    match unit {
        Unit::Share => "%",
        Unit::Processors => "processors",
        Unit::Bytes => "MB",
        Unit::BytesPerS => "MB/s",
    }
}

fn scaled(unit: Unit, value: f64) -> f64 {
    match unit {
        Unit::Share => value * 100.0,
        Unit::Processors => value,
        Unit::Bytes | Unit::BytesPerS => value / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_model::resource_use::{Measure, Quantity};

    fn column(resource: Resource, of: &str, measure: Measure, unit: Unit, samples: &[f64]) -> ResourceColumn {
        let quantity = Quantity { resource, of: of.into(), measure, unit };
        let mean = Some(samples.iter().sum::<f64>() / samples.len() as f64);
        let samples = samples.iter().copied().map(Some).collect();
        ResourceColumn { quantity, mean, minimum: Some(0.0), maximum: None, samples }
    }

    #[test]
    fn every_kind_has_a_chart_and_every_column_a_row() {
        let used = ResourceUse {
            interval_seconds: 0.5,
            intervals_per_sample: 2,
            seconds: vec![1.0, 2.0],
            columns: vec![
                column(Resource::Processor, "cpu0", Measure::Busy, Unit::Share, &[0.25, 0.75]),
                column(Resource::Processor, "process", Measure::Used, Unit::Processors, &[1.0, 2.0]),
                column(Resource::Disk, "<vda>", Measure::Read, Unit::BytesPerS, &[1e6, 3e6]),
            ],
            ..ResourceUse::default()
        };
        let Section { html, .. } = section(&used).unwrap();
        assert_eq!(html.matches("<svg").count(), 3);
        assert!(html.contains("a sample every 1 s"), "{html}");
        assert!(html.contains("<th scope=\"row\">cpu0: busy</th><td>50 %</td><td>0 %</td><td>-</td>"));
        assert!(
            html.contains("&lt;vda&gt;: read")
                && !html.contains("<vda>")
                && html.contains("<td>2.00 MB/s</td>")
        );
        assert!(section(&ResourceUse::default()).is_none());
    }
}
