//! The tables of Heinrich et al. (section 4.4 and the appendix) from results, as text.
//!
//! Results of the same streams, order and state of the cache belong together. The best M and d of each N are table 9; a
//! table of M against d for each N is that of the appendix, whose rows are figures 30 and 31 and whose columns are
//! figure 32; times of all N are figure 33.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::cell::{SortCell, StreamChoice};
use super::results::SortResult;
use crate::streams::Cache;
use crate::text_table::{TextTable, dash};
use crate::times::Mean;

/// Results with the same streams, order and state of the cache.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The streams that are read.
    pub read: StreamChoice,
    /// The streams that are written.
    pub write: StreamChoice,
    /// Whether the largest integer is the first.
    pub descending: bool,
    /// The page cache.
    pub cache: Cache,
    /// The results.
    pub results: Vec<&'a SortResult>,
}

/// The best M and d of one N.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// N.
    pub elements: u64,
    /// M of the shortest time; the smallest of equally good ones.
    pub memory_elements: u64,
    /// d of the shortest time; the smallest of equally good ones. It has no effect if M is at least N.
    pub fan_in: u32,
    /// The time, milliseconds.
    pub mean_ms: f64,
}

/// The results, grouped; of groups that differ in the cache only, the warm one comes first.
pub fn groups(results: &[SortResult]) -> Vec<Group<'_>> {
    let key = |cell: &SortCell| (cell.read, cell.write, cell.descending, Reverse(cell.cache));
    let keys: BTreeSet<_> = results.iter().map(|result| key(&result.cell)).collect();
    let group = |group_key| {
        let (read, write, descending, Reverse(cache)) = group_key;
        let results = results.iter().filter(|result| key(&result.cell) == group_key).collect();
        Group { read, write, descending, cache, results }
    };
    keys.into_iter().map(group).collect()
}

impl Best {
    /// d in words: none is merged if M is at least N.
    pub fn fan_in_word(&self) -> String {
        if self.memory_elements < self.elements { self.fan_in.to_string() } else { "any".to_owned() }
    }
}

impl Group<'_> {
    /// The values of N.
    pub fn elements(&self) -> BTreeSet<u64> {
        self.results.iter().map(|result| result.cell.elements).collect()
    }

    /// The values of M.
    pub fn memory(&self) -> BTreeSet<u64> {
        self.results.iter().map(|result| result.cell.memory_elements).collect()
    }

    /// The values of d.
    pub fn fan_in(&self) -> BTreeSet<u32> {
        self.results.iter().map(|result| result.cell.fan_in).collect()
    }

    /// The mean time of a cell in milliseconds: of several files with the same N, the mean.
    pub fn mean_ms(&self, elements: u64, memory: u64, fan_in: u32) -> Option<f64> {
        let is_it = |cell: &SortCell| {
            (cell.elements, cell.memory_elements, cell.fan_in) == (elements, memory, fan_in)
        };
        let times: Vec<f64> =
            self.results.iter().filter(|result| is_it(&result.cell)).map(|result| result.mean_ms()).collect();
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }

    /// The mean of a cell with its error, if it was measured with one file only.
    fn mean(&self, elements: u64, memory: u64, fan_in: u32) -> Option<Mean> {
        let ms = self.mean_ms(elements, memory, fan_in)?;
        let is_it = |cell: &SortCell| {
            (cell.elements, cell.memory_elements, cell.fan_in) == (elements, memory, fan_in)
        };
        let errors = self.results.iter().filter(|result| is_it(&result.cell));
        let error_ms = errors.map(|result| Mean::of(&result.loops_ns).error_ms).fold(0.0, f64::max);
        Some(Mean { ms, error_ms })
    }

    /// The best M and d of each N (Heinrich et al., table 9): the smallest M, and of its d the smallest, whose time is
    /// not clearly above the shortest.
    pub fn best(&self) -> Vec<Best> {
        let best_of = |elements| {
            let memory = self.memory().into_iter();
            let pairs = memory.flat_map(|m| self.fan_in().into_iter().map(move |d| (m, d)));
            let all: Vec<(u64, u32, Mean)> =
                pairs.filter_map(|(m, d)| Some((m, d, self.mean(elements, m, d)?))).collect();
            let shortest = all.iter().map(|(.., mean)| *mean).min_by(|a, b| a.ms.total_cmp(&b.ms))?;
            let (memory_elements, fan_in, mean) =
                all.into_iter().find(|(.., mean)| !shortest.is_clearly_below(*mean))?;
            Some(Best { elements, memory_elements, fan_in, mean_ms: mean.ms })
        };
        self.elements().into_iter().filter_map(best_of).collect()
    }

    /// By how much a larger d shortens the time of one N and M, and a larger M that of one N and d: the share of the
    /// time of the smallest value that the largest saves, on average over all N and the other parameter. Only cells
    /// that form more than one run with their smallest M count.
    pub fn gains(&self) -> (Option<f64>, Option<f64>) {
        let memory = self.memory();
        let fan_in = self.fan_in();
        let ends = |a: Option<f64>, b: Option<f64>| Some((a?, b?));
        let mut by_fan_in = Vec::new();
        let mut by_memory = Vec::new();
        for elements in self.elements() {
            for &m in memory.iter().filter(|m| **m < elements) {
                let time = |d: Option<&u32>| self.mean_ms(elements, m, *d?);
                by_fan_in.extend(ends(time(fan_in.first()), time(fan_in.last())));
            }
            if memory.first().is_some_and(|m| *m < elements) {
                for &d in &fan_in {
                    let time = |m: Option<&u64>| self.mean_ms(elements, *m?, d);
                    by_memory.extend(ends(time(memory.first()), time(memory.last())));
                }
            }
        }
        let gain = |times: Vec<(f64, f64)>| {
            let saved = times.iter().map(|(first, last)| 1.0 - last / first).sum::<f64>();
            (!times.is_empty()).then(|| saved / times.len() as f64)
        };
        (
            Some(fan_in.len()).filter(|count| *count > 1).and(gain(by_fan_in)),
            Some(memory.len()).filter(|count| *count > 1).and(gain(by_memory)),
        )
    }
}

/// All tables.
pub fn text(results: &[SortResult]) -> String {
    groups(results).iter().map(group_text).collect::<Vec<_>>().join("\n")
}

fn group_text(group: &Group<'_>) -> String {
    let Group { read, write, .. } = group;
    let order = if group.descending { "descending" } else { "ascending" };
    let cache = group.cache.word();
    let mut text = format!("merge sorts from {read} to {write} streams, {order}, {cache} cache\n\n");
    text += &cells_table(group).lines();
    for elements in group.elements() {
        let _ = write!(text, "\nN = {elements}: milliseconds by M (rows) and d (columns)\n\n");
        text += &times_table(group, elements, ms).lines();
    }
    text += "\nbest M and d of each N\n\n";
    text += &best_table(group, ms).lines();
    if group.elements().len() > 1 {
        text += "\nnanoseconds for each integer, by N (columns)\n\n";
        text += &by_elements(group).lines();
    }
    text + &gains_text(group)
}

fn gains_text(group: &Group<'_>) -> String {
    let (by_fan_in, by_memory) = group.gains();
    let change = |name: &str, first: String, last: String, gain: f64| match gain {
        0.0.. => format!(
            "\n{name} = {last} instead of {first} saves {:.0} % of the time in the mean\n",
            gain * 100.0
        ),
        _ => format!(
            "\n{name} = {last} instead of {first} takes {:.0} % more time in the mean\n",
            -gain * 100.0
        ),
    };
    let mut text = String::new();
    let fan_in = group.fan_in();
    let memory = group.memory();
    if let (Some(gain), Some(first), Some(last)) = (by_fan_in, fan_in.first(), fan_in.last()) {
        text += &change("d", first.to_string(), last.to_string(), gain);
    }
    if let (Some(gain), Some(first), Some(last)) = (by_memory, memory.first(), memory.last()) {
        text += &change("M", first.to_string(), last.to_string(), gain);
    }
    text
}

/// A row for each cell, with what it is compared with.
fn cells_table(group: &Group<'_>) -> TextTable {
    let mut table = TextTable::new([
        "N",
        "M",
        "d",
        "ms",
        "min",
        "max",
        "dev",
        "reads",
        "formula",
        "writes",
        "formula",
        "2B log",
        "merges",
        "in memory",
        "planned",
        "by",
    ]);
    for result in &group.results {
        let cell = &result.cell;
        let (min, max) = result.range_ms();
        let predicted = cell.predicted_ios();
        table.rows.push(vec![
            cell.elements.to_string(),
            cell.memory_elements.to_string(),
            cell.fan_in.to_string(),
            ms(result.mean_ms()),
            ms(min),
            ms(max),
            ms(result.deviation_ms()),
            result.reads.to_string(),
            predicted.reads.to_string(),
            result.writes.to_string(),
            predicted.writes.to_string(),
            format!("{:.0}", cell.model().published_ios()),
            cell.model().merge_passes().to_string(),
            result.in_memory_ms.map_or("-".into(), ms),
            ms(result.planned.mean_ms),
            format!("{} {}", result.planned.passes, result.planned.method),
        ]);
    }
    table
}

/// The best M and d of each N, with times that `ms` writes.
pub(crate) fn best_table(group: &Group<'_>, ms: fn(f64) -> String) -> TextTable {
    let mut best = TextTable::new(["N", "M", "d", "ms"]);
    for one in group.best() {
        let numbers = [one.elements, one.memory_elements].map(|number| number.to_string());
        best.rows.push(numbers.into_iter().chain([one.fan_in_word(), ms(one.mean_ms)]).collect());
    }
    best
}

/// The times of one N by M (rows) and d (columns), which `ms` writes.
pub(crate) fn times_table(group: &Group<'_>, elements: u64, ms: fn(f64) -> String) -> TextTable {
    let fan_in = group.fan_in();
    let names = std::iter::once("M / d".to_owned()).chain(fan_in.iter().map(u32::to_string));
    let mut table = TextTable::new(names);
    for memory in group.memory() {
        let times = fan_in.iter().map(|&d| group.mean_ms(elements, memory, d).map_or_else(dash, ms));
        table.rows.push(std::iter::once(memory.to_string()).chain(times).collect());
    }
    table
}

fn by_elements(group: &Group<'_>) -> TextTable {
    let all = group.elements();
    let names = ["M", "d"].map(str::to_owned).into_iter().chain(all.iter().map(u64::to_string));
    let mut table = TextTable::new(names);
    for memory in group.memory() {
        for fan_in in group.fan_in() {
            let each =
                |elements: u64| Some(group.mean_ms(elements, memory, fan_in)? * 1e6 / elements.max(1) as f64);
            let times =
                all.iter().map(|&elements| each(elements).map_or("-".into(), |ns| format!("{ns:.1}")));
            let names = [memory.to_string(), fan_in.to_string()];
            table.rows.push(names.into_iter().chain(times).collect());
        }
    }
    table
}

/// Milliseconds with three digits that matter.
fn ms(value: f64) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else if value >= 1.0 {
        2
    } else {
        3
    };
    format!("{value:.digits$}")
}
