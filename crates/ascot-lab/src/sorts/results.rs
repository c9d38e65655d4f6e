//! The table of results of a study of merge sorts.
//!
//! ```text
//!   N;M;d;Read stream;Write stream;Order;Cache;Loops;Input;Output;Mean ms;...
//!   1000000;1000;10;mapped 2^16;mapped 2^16;ascending;warm;5;random 1;;31.120;...
//! ```
//!
//! The cell of a row is found again by its first ten fields; times are read from the nanoseconds. A table of an earlier
//! version has no column `Cache`: its results are warm.

use std::path::{Path, PathBuf};

use super::cell::{SortCell, Source, StreamChoice};
use super::parameters;
use crate::error::LabError;
use crate::files::SORTS_TABLE;
use crate::streams::Cache;
use crate::streams::parameters::{backend, elements, exponents};
use crate::table::{Columns, NumberedRow, Table};
use crate::times;

/// The name of the file in the directory of results.
pub const FILE_NAME: &str = SORTS_TABLE;

/// Rows of the earlier version are warm.
const COLUMNS: Columns = Columns { names: &NAMES, added: Some((6, Cache::Warm.word())) };

const NAMES: [&str; 26] = [
    "N",
    "M",
    "d",
    "Read stream",
    "Write stream",
    "Order",
    "Cache",
    "Loops",
    "Input",
    "Output",
    "Mean ms",
    "Min ms",
    "Max ms",
    "Deviation ms",
    "Reads counted",
    "Reads by formula",
    "Writes counted",
    "Writes by formula",
    "Blocks by 2 B(N) log_d(B(N)/M)",
    "Passes that merge",
    "In memory ms",
    "Planned ms",
    "Planned sort",
    "Memory of the planned sort",
    "ns of loops",
    "Place",
];

/// The prefix of a source that is made.
const RANDOM: &str = "random ";
/// The prefix of a source that is a file.
const FILE: &str = "file ";

/// The sort that the planner chooses for the same integers and the same memory.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedSort {
    /// The mean time of a loop, milliseconds.
    pub mean_ms: f64,
    /// The method: `in memory`, `merge`, `distribute`.
    pub method: String,
    /// Its passes over the data.
    pub passes: u32,
    /// The memory it had, bytes: that of the cell, or the least that a sort works in.
    pub memory_bytes: u64,
}

/// The result of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct SortResult {
    /// The cell.
    pub cell: SortCell,
    /// The machine and the directory in which it was measured.
    pub place: String,
    /// Nanoseconds of each loop, without the first, which is left out.
    pub loops_ns: Vec<u64>,
    /// Requests that read in one loop.
    pub reads: u64,
    /// Requests that wrote in one loop.
    pub writes: u64,
    /// Mean milliseconds of a sort of the same integers in memory, through the same streams; none if they do not fit.
    pub in_memory_ms: Option<f64>,
    /// The planner's choice.
    pub planned: PlannedSort,
}

impl SortResult {
    /// The mean time of a loop, milliseconds.
    pub fn mean_ms(&self) -> f64 {
        times::mean_ms(&self.loops_ns)
    }

    /// The shortest and the longest time of a loop, milliseconds.
    pub fn range_ms(&self) -> (f64, f64) {
        times::range_ms(&self.loops_ns)
    }

    /// The standard deviation of the loops, milliseconds.
    pub fn deviation_ms(&self) -> f64 {
        times::deviation_ms(&self.loops_ns)
    }
}

/// Reads the results in the file `path`, in the order in which they were measured.
///
/// # Errors
/// The system's, and [`LabError::Table`] for a file that is no such table.
pub fn read_results(path: &Path) -> Result<Vec<SortResult>, LabError> {
    results_of(path, Table::read(path, COLUMNS)?)
}

/// The results of the table in `directory`; none if it has no table.
///
/// # Errors
/// As [`read_results`].
pub fn read(directory: &Path) -> Result<Vec<SortResult>, LabError> {
    let path = directory.join(FILE_NAME);
    let is_there = path.try_exists().map_err(LabError::file("look for", &path))?;
    if is_there { read_results(&path) } else { Ok(Vec::new()) }
}

/// Opens the table in `directory`; returns it with the results it has.
///
/// # Errors
/// As [`read_results`].
pub fn open(directory: &Path) -> Result<(Table, Vec<SortResult>), LabError> {
    let path = directory.join(FILE_NAME);
    let (table, rows) = Table::open(&path, COLUMNS)?;
    Ok((table, results_of(&path, rows)?))
}

fn results_of(path: &Path, rows: Vec<NumberedRow>) -> Result<Vec<SortResult>, LabError> {
    let parsed = rows.into_iter().map(|(line, fields)| {
        let problem = |column: usize| format!("'{}' is impossible", NAMES[column]);
        let wrong = |column| LabError::Table { path: path.to_path_buf(), line, problem: problem(column) };
        result_of(&fields).map_err(wrong)
    });
    parsed.collect()
}

/// The fields of a result.
pub fn fields_of(result: &SortResult) -> Vec<String> {
    let cell = &result.cell;
    let (min, max) = result.range_ms();
    let ms = |value: f64| format!("{value:.3}");
    let predicted = cell.predicted_ios();
    let loops: Vec<String> = result.loops_ns.iter().map(u64::to_string).collect();
    let source = match &cell.source {
        Source::Random(seed) => format!("{RANDOM}{seed}"),
        Source::File(path) => format!("{FILE}{}", path.display()),
    };
    vec![
        cell.elements.to_string(),
        cell.memory_elements.to_string(),
        cell.fan_in.to_string(),
        cell.read.to_string(),
        cell.write.to_string(),
        cell.order_word().to_owned(),
        cell.cache.word().to_owned(),
        cell.loops.to_string(),
        source,
        cell.output.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        ms(result.mean_ms()),
        ms(min),
        ms(max),
        ms(result.deviation_ms()),
        result.reads.to_string(),
        predicted.reads.to_string(),
        result.writes.to_string(),
        predicted.writes.to_string(),
        format!("{:.1}", cell.model().published_ios()),
        cell.model().merge_passes().to_string(),
        result.in_memory_ms.map(ms).unwrap_or_default(),
        ms(result.planned.mean_ms),
        format!("{} {}", result.planned.passes, result.planned.method),
        result.planned.memory_bytes.to_string(),
        loops.join(","),
        result.place.clone(),
    ]
}

/// The result of a row, or the column that is impossible.
fn result_of(fields: &[String]) -> Result<SortResult, usize> {
    let number = |column: usize| fields[column].parse::<u64>().map_err(|_| column);
    let ms = |column: usize| match fields[column].parse::<f64>() {
        Ok(ms) if ms.is_finite() && ms >= 0.0 => Ok(ms),
        _ => Err(column),
    };
    let one = |list: Result<Vec<u32>, String>, column: usize| match list.as_deref() {
        Ok(&[value]) => Ok(value),
        _ => Err(column),
    };
    let cell = SortCell {
        elements: elements(&fields[0]).map_err(|_| 0_usize)?,
        memory_elements: elements(&fields[1]).map_err(|_| 1_usize)?,
        fan_in: one(parameters::fan_in_list(&fields[2]), 2)?,
        read: choice(&fields[3]).ok_or(3_usize)?,
        write: choice(&fields[4]).ok_or(4_usize)?,
        descending: match fields[5].as_str() {
            "ascending" => false,
            "descending" => true,
            _ => return Err(5),
        },
        cache: Cache::of_word(&fields[6]).ok_or(6_usize)?,
        loops: parameters::loops(&fields[7]).map_err(|_| 7_usize)?,
        source: source(&fields[8]).ok_or(8_usize)?,
        output: Some(&fields[9]).filter(|name| !name.is_empty()).map(PathBuf::from),
    };
    let times = fields[24].split(',').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
    let loops_ns = times.ok().filter(|times| times.len() == cell.loops as usize).ok_or(24_usize)?;
    let (passes, method) = fields[22].split_once(' ').ok_or(22_usize)?;
    let planned = PlannedSort {
        mean_ms: ms(21)?,
        method: method.to_owned(),
        passes: passes.parse().map_err(|_| 22_usize)?,
        memory_bytes: number(23)?,
    };
    let in_memory_ms = if fields[20].is_empty() { None } else { Some(ms(20)?) };
    let reads = number(14)?;
    let writes = number(16)?;
    let place = fields[25].clone();
    Ok(SortResult { cell, place, loops_ns, reads, writes, in_memory_ms, planned })
}

fn choice(text: &str) -> Option<StreamChoice> {
    match text.split_once(" 2^") {
        None => backend(text)
            .ok()
            .filter(|backend| !backend.has_blocks())
            .map(|found| StreamChoice::new(found, 0)),
        Some((word, exponent)) => {
            let found = backend(word).ok().filter(|backend| backend.has_blocks())?;
            Some(StreamChoice::new(found, *exponents(exponent, found).ok()?.start()))
        }
    }
}

fn source(text: &str) -> Option<Source> {
    match text.strip_prefix(RANDOM) {
        Some(seed) => seed.parse().ok().map(Source::Random),
        None => text.strip_prefix(FILE).map(|path| Source::File(PathBuf::from(path))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Backend;
    use std::fs;

    fn results() -> Vec<SortResult> {
        let mut results = Vec::new();
        for backend in Backend::ALL {
            let cell = SortCell {
                elements: 10_000,
                memory_elements: 1000,
                fan_in: 25,
                read: StreamChoice::new(backend, 16),
                write: StreamChoice::new(Backend::Sized, 12),
                descending: backend == Backend::Plain,
                cache: if backend == Backend::Sized { Cache::Cold } else { Cache::Warm },
                loops: 2,
                source: Source::Random(7),
                output: None,
            };
            let other = SortCell {
                source: Source::File("in.dat".into()),
                output: Some("Test".into()),
                ..cell.clone()
            };
            for cell in [cell, other] {
                let planned = PlannedSort {
                    mean_ms: 1.25,
                    method: "in memory".into(),
                    passes: 1,
                    memory_bytes: 1 << 24,
                };
                let in_memory_ms = cell.output.is_none().then_some(0.5);
                let (reads, writes) = (3, 4);
                results.push(SortResult {
                    place: "here".into(),
                    cell,
                    loops_ns: vec![1_000_000, 3_000_000],
                    reads,
                    writes,
                    in_memory_ms,
                    planned,
                });
            }
        }
        results
    }

    #[test]
    fn results_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut table, found) = open(dir.path()).unwrap();
        assert!(found.is_empty());
        for result in results() {
            table.append(&fields_of(&result)).unwrap();
        }
        drop(table);
        assert_eq!(open(dir.path()).unwrap().1, results());
        assert_eq!(read_results(&dir.path().join(FILE_NAME)).unwrap(), results());
        assert!(read_results(&dir.path().join("none")).is_err() && !dir.path().join("none").exists());
    }

    #[test]
    fn results_of_the_earlier_version_are_warm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        let warm: Vec<_> = results().into_iter().filter(|one| one.cell.cache == Cache::Warm).collect();
        let mut lines = vec![NAMES.map(str::to_owned).to_vec()];
        lines.extend(warm.iter().map(fields_of));
        lines.iter_mut().for_each(|fields| drop(fields.remove(6)));
        fs::write(&path, lines.iter().map(|fields| fields.join(";") + "\n").collect::<String>()).unwrap();
        assert_eq!(read_results(&path).unwrap(), warm);
        assert_eq!(open(dir.path()).unwrap().1, warm);
    }

    #[test]
    fn an_impossible_field_is_named() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        let path = dir.path().join(FILE_NAME);
        let header = fs::read_to_string(&path).unwrap();
        let good = fields_of(&results()[0]);
        for (column, value) in [
            (0, "x"),
            (1, "0"),
            (2, "1"),
            (3, "mapped"),
            (4, "plain 2^4"),
            (5, "up"),
            (6, "hot"),
            (8, "seed"),
            (21, "nan"),
            (24, "5"),
        ] {
            let mut fields = good.clone();
            fields[column] = value.to_owned();
            fs::write(&path, format!("{header}{}\n", fields.join(";"))).unwrap();
            let error = read_results(&path).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains(&format!("'{}'", NAMES[column])), "{error}");
        }
    }
}
