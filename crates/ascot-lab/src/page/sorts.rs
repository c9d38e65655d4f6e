//! The section of merge sorts: tables 8 and 9 and figures 30 to 33 of Heinrich et al., and the table of their appendix.

use std::fmt::Write as _;

use ascot_model::units;

use super::chart::{Axis, Chart, Line, Scale};
use super::tables::ms;
use super::{Section, charts_html};
use crate::sorts::SortResult;
use crate::sorts::summary::{Group, best_table, groups, times_table};
use crate::text_table::{TextTable, dash};

/// The section; empty if nothing was sorted.
pub fn section(results: &[SortResult]) -> Option<Section> {
    let groups = groups(results);
    let mut html = String::from(
        "<p>N 32-bit integers sorted with runs of M integers, d of them merged at once; mean milliseconds of all loops \
         but the first.</p>\n",
    );
    for (number, group) in groups.iter().enumerate() {
        let order = if group.descending { "descending" } else { "ascending" };
        let _ = writeln!(
            html,
            "<h3>Reading through {} streams, writing through {}, {order}, {} cache</h3>",
            group.read,
            group.write,
            group.cache.word()
        );
        // Identifiers belong to the first group: a page has each of them once.
        html += &group_html(group, number);
    }
    html += "<p>The planner's choice has the memory of the cell, or the least in which a sort works where that is \
             more.</p>\n";
    let _ = write!(html, "<details><summary>All sorts</summary>{}</details>", every_sort(results).html());
    (!groups.is_empty()).then(|| Section { id: "sorts".into(), title: "Merge sorts".into(), html })
}

fn group_html(group: &Group<'_>, number: usize) -> String {
    let first = number == 0;
    let id = |name: &str| if first { format!(" id=\"{name}\"") } else { String::new() };
    let mut html = String::new();
    let list = |values: Vec<String>| values.join(", ");
    let mut settings = TextTable::new(["parameter", "values"]);
    let rows = [
        ("N", group.elements().iter().map(u64::to_string).collect::<Vec<_>>()),
        ("M", group.memory().iter().map(u64::to_string).collect()),
        ("d", group.fan_in().iter().map(u32::to_string).collect()),
    ];
    settings.rows.extend(rows.map(|(name, values)| vec![name.to_owned(), list(values)]));
    let _ = writeln!(
        html,
        "<div{}><h4>Parameters (table 8 of the paper)</h4>{}</div>",
        id("table-8"),
        settings.html()
    );
    let best = best_table(group, ms);
    let _ = writeln!(
        html,
        "<div{}><h4>Best M and d of each N (table 9 of the paper)</h4>{}</div>",
        id("table-9"),
        best.html()
    );
    for elements in group.elements() {
        let _ = writeln!(html, "<h4>N = {elements}: ms by M and d</h4>{}", by_memory(group, elements).html());
    }
    for (figure, caption, chart) in figures(group) {
        let id = figure_name(figure, number);
        html += &charts_html(&id, &format!("Figure {figure}. {caption}"), &[(String::new(), chart)]);
    }
    html
}

fn by_memory(group: &Group<'_>, elements: u64) -> TextTable {
    let mut table = times_table(group, elements, ms);
    table.rows.retain(|row| row.iter().skip(1).any(|time| *time != dash()));
    table
}

/// The figures of all groups as SVG files: their names without the ending, as on the page, and their text.
pub(super) fn charts(results: &[SortResult]) -> Vec<(String, String)> {
    let mut charts = Vec::new();
    for (number, group) in groups(results).iter().enumerate() {
        for (figure, _, chart) in figures(group) {
            charts.extend(chart.svg().map(|svg| (figure_name(figure, number), svg)));
        }
    }
    charts
}

/// The name of a figure of a group; the first group has the figures of the paper.
fn figure_name(figure: u32, group: usize) -> String {
    if group == 0 { format!("figure-{figure}") } else { format!("figure-{figure}-group-{}", group + 1) }
}

/// N of figure 30 of the paper.
const PUBLISHED_ELEMENTS: u64 = 1_000_000;

/// Figures 30 to 33: the influence of d, of M and of N.
fn figures(group: &Group<'_>) -> Vec<(u32, String, Chart)> {
    let elements = group.elements();
    let memory = group.memory();
    let fan_in = group.fan_in();
    let [Some(&smallest), Some(&largest)] = [memory.first(), memory.last()] else { return Vec::new() };
    // The largest N that was sorted with every M, as far as there is one.
    let full = |n: &&u64| memory.iter().all(|&m| fan_in.iter().any(|&d| group.mean_ms(**n, m, d).is_some()));
    let Some(&largest_full) = elements.iter().rev().find(full).or(elements.last()) else { return Vec::new() };
    // Figures 30 and 31 are at the N of the paper, if it was sorted.
    let n = if elements.contains(&PUBLISHED_ELEMENTS) { PUBLISHED_ELEMENTS } else { largest_full };
    let by_d = |m: u64| {
        let point = |&d: &u32| Some((f64::from(d), group.mean_ms(n, m, d)?));
        Line::new(format!("M = {m}"), fan_in.iter().filter_map(point).collect())
    };
    let by_m = |d: u32| {
        let point = |&m: &u64| Some((m as f64, group.mean_ms(largest_full, m, d)?));
        Line::new(format!("d = {d}"), memory.iter().filter_map(point).collect())
    };
    let d = fan_in.iter().copied().find(|d| *d >= 25).or(fan_in.last().copied()).unwrap_or(2);
    let m = memory.range(..largest).next_back().copied().unwrap_or(smallest);
    let by_n = |d: u32, m: u64| {
        let point = |&n: &u64| Some((n as f64, group.mean_ms(n, m, d)?));
        Line::new(format!("d = {d}, M = {m}"), elements.iter().filter_map(point).collect())
    };
    let axis = |name, scale| Axis::new(name, scale);
    let time = |scale| Axis::new("ms", scale);
    let linear = Scale::Linear;
    let log = Scale::Logarithmic;
    let d_of_m = fan_in.iter().copied().find(|d| *d >= 30).unwrap_or(d);
    vec![
        (
            30,
            format!("Influence of d, N = {n}, M = {smallest}"),
            Chart::new(axis("d", linear), time(linear), vec![by_d(smallest)]),
        ),
        (
            31,
            format!("Influence of d for each M, N = {n}"),
            Chart::new(axis("d", linear), time(log), memory.iter().map(|&m| by_d(m)).collect()),
        ),
        (
            32,
            format!("Influence of M, N = {largest_full}, d = {d_of_m}"),
            Chart::new(axis("M, integers", log), time(log), vec![by_m(d_of_m)]),
        ),
        (
            33,
            format!("Influence of N, d = {d}, M = {m}"),
            Chart::new(axis("N", log), time(log), vec![by_n(d, m)]),
        ),
    ]
}

/// Every sort, beside the I/Os of formulas, a sort in memory, and the planner's own choice.
fn every_sort(results: &[SortResult]) -> TextTable {
    let mut table = TextTable::new([
        "sort",
        "mean ms",
        "shortest",
        "longest",
        "deviation",
        "reads counted",
        "reads by formula",
        "writes counted",
        "writes by formula",
        "blocks by 2 B log_d(N/M)",
        "in memory ms",
        "planner's ms",
        "planner's choice",
    ]);
    for result in results {
        let (min, max) = result.range_ms();
        let formula = result.cell.predicted_ios();
        let times = [result.mean_ms(), min, max, result.deviation_ms()].map(ms);
        let ios = [result.reads, formula.reads, result.writes, formula.writes].map(|count| count.to_string());
        let published = format!("{:.0}", result.cell.model().published_ios());
        let in_memory = result.in_memory_ms.map_or_else(dash, ms);
        let planned = &result.planned;
        let memory = units::memory(planned.memory_bytes);
        let choice = format!("{}, passes: {}, within {memory}", planned.method, planned.passes);
        let name = std::iter::once(result.cell.to_string());
        let rest = [published, in_memory, ms(planned.mean_ms), choice];
        table.rows.push(name.chain(times).chain(ios).chain(rest).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sorts::PlannedSort;
    use crate::whole::WholeGrid;

    #[test]
    fn the_section_has_the_tables_and_figures_of_the_paper() {
        for grid in [WholeGrid::quick(), WholeGrid::published()] {
            let planned =
                PlannedSort { mean_ms: 1.0, method: "merge".into(), passes: 2, memory_bytes: 1 << 20 };
            let result = |cell: crate::sorts::SortCell| {
                let loops_ns = vec![cell.elements * 100 / cell.memory_elements; cell.loops as usize];
                SortResult {
                    cell,
                    place: String::new(),
                    loops_ns,
                    reads: 5,
                    writes: 6,
                    in_memory_ms: None,
                    planned: planned.clone(),
                }
            };
            let results: Vec<SortResult> = grid.sorts.iter().cloned().map(result).collect();
            let html = section(&results).unwrap().html;
            for id in ["table-8", "table-9", "figure-30", "figure-31", "figure-32", "figure-33"] {
                assert_eq!(html.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
            }
            let groups = groups(&results);
            let count = |number: usize| figures(&groups[0])[number].2.lines[0].points.len();
            assert_eq!([0, 1, 2, 3].map(count).iter().min(), Some(&3), "every line has points");
            assert_eq!(html.matches("<svg").count(), 8, "warm and cold");
        }
        assert!(section(&[]).is_none());
    }
}
