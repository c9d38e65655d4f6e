//! The parameters of a study: from flags, or from a file as Heinrich et al. (sections 3.1 and 4.3) print it.
//!
//! ```text
//!   Read Stream Type;Write Stream Type;Nr of streams;Nr Integers in Memory;Buffer size range;Nr Loops;
//!     Input;Output;Order
//!   Mapping;Mapping;10;1000;20,20;5;/home/username/10000.dat;Test;true              true: ascending
//!   BufferB;Mapping;10,25;1e3..1e6;16;5;numbers.dat;;false                          no output is kept
//! ```
//!
//! A range of B belongs to the streams that are read and to those that are written: both have the same B. Two ranges,
//! `12,14/16,16`, are those of the streams that are read and of those that are written; each B of one is combined with
//! each of the other. An input `random 1e6 1` stands for a million pseudo-random integers made from seed 1. Both are
//! additions to the form of Heinrich et al.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::cell::{SortCell, Source, StreamChoice};
use crate::error::LabError;
use crate::files::{self, SORTS_HEADER as HEADER};
use crate::parameter_file::text_of;
use crate::streams::cell::ELEMENT_BYTES;
use crate::streams::parameters::{
    backend, bounded_list, element_list, elements as element, exponents, grouped, list, ranges,
};
use crate::streams::{Backend, Cache};

/// The most streams that are merged at once.
const MAX_FAN_IN: u32 = 10_000;
/// The most loops.
const MAX_LOOPS: u32 = 1000;

/// The prefix of an input that is made.
const RANDOM: &str = "random ";

const COLUMNS: [&str; 9] = [
    "read stream type",
    "write stream type",
    "number of streams",
    "integers in memory",
    "range of exponents of B",
    "loops",
    "input file",
    "output file",
    "ascending order",
];

/// All combinations of some values.
#[derive(Debug, Clone, PartialEq)]
pub struct SortGrid {
    /// The integers: N and their source.
    pub sources: Vec<(u64, Source)>,
    /// The values of M.
    pub memory: Vec<u64>,
    /// The values of d.
    pub fan_in: Vec<u32>,
    /// The streams that are read, with those that are written.
    pub streams: Vec<(StreamChoice, StreamChoice)>,
    /// Whether the largest integer is the first.
    pub descending: bool,
    /// The states of the page cache.
    pub caches: Vec<Cache>,
    /// Loops measured.
    pub loops: u32,
    /// The file that gets the sorted integers.
    pub output: Option<PathBuf>,
}

impl SortGrid {
    /// The cells, in the order in which they are measured: those of one source together.
    pub fn cells(&self) -> Vec<SortCell> {
        let mut cells = Vec::new();
        for (elements, source) in &self.sources {
            for (cache, (read, write)) in product(&self.caches, &self.streams) {
                for (memory_elements, fan_in) in product(&self.memory, &self.fan_in) {
                    cells.push(SortCell {
                        elements: *elements,
                        memory_elements,
                        fan_in,
                        read,
                        write,
                        descending: self.descending,
                        cache,
                        loops: self.loops,
                        source: source.clone(),
                        output: self.output.clone(),
                    });
                }
            }
        }
        cells
    }
}

/// All pairs of two lists, in their order.
fn product<A: Copy, B: Copy>(first: &[A], second: &[B]) -> impl Iterator<Item = (A, B)> {
    first.iter().flat_map(move |&a| second.iter().map(move |&b| (a, b)))
}

/// Streams of a back-end with each B of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRange {
    /// The back-end.
    pub backend: Backend,
    /// The exponents of B, which back-ends without B ignore.
    pub exponents: RangeInclusive<u8>,
}

impl StreamRange {
    /// Streams of a back-end with B = 2^exponent bytes, for each exponent.
    pub fn new(backend: Backend, exponents: RangeInclusive<u8>) -> Self {
        Self { backend, exponents }
    }

    /// Each of them once.
    fn choices(self) -> Vec<StreamChoice> {
        let mut choices: Vec<_> =
            self.exponents.map(|exponent| StreamChoice::new(self.backend, exponent)).collect();
        choices.dedup();
        choices
    }
}

/// The pairs of streams of two back-ends with the same B, that of the stream that is read if it has one; one B
/// suffices for a back-end without B.
pub fn same_blocks(read: StreamRange, write: StreamRange) -> Vec<(StreamChoice, StreamChoice)> {
    let exponents = if read.backend.has_blocks() { read.exponents } else { write.exponents };
    let pair =
        |exponent| (StreamChoice::new(read.backend, exponent), StreamChoice::new(write.backend, exponent));
    let mut pairs: Vec<_> = exponents.map(pair).collect();
    pairs.dedup();
    pairs
}

/// The pairs of streams of two back-ends, each with all of its B.
pub fn all_blocks(read: StreamRange, write: StreamRange) -> Vec<(StreamChoice, StreamChoice)> {
    let writes = write.choices();
    read.choices().into_iter().flat_map(|read| writes.iter().map(move |&write| (read, write))).collect()
}

/// Values of d: `10`, `10,25,30`, `1e1..1e2,30`.
///
/// # Errors
/// The problem.
pub fn fan_in_list(text: &str) -> Result<Vec<u32>, String> {
    bounded_list(text, 2..=MAX_FAN_IN, "number of streams to merge")
}

/// Loops that are measured; one more, which comes first, is left out.
///
/// # Errors
/// The problem.
pub fn loops(text: &str) -> Result<u32, String> {
    match text.trim().parse::<u32>() {
        Ok(loops @ 1..=MAX_LOOPS) => Ok(loops),
        _ => Err(format!("is not a number of loops from 1 to {MAX_LOOPS}")),
    }
}

/// Reads a file of parameters; each row is measured in these states of the cache.
///
/// # Errors
/// The system's, and [`LabError::Parameter`] with the row and the column of an impossible value.
pub fn read(path: &Path, caches: &[Cache]) -> Result<Vec<SortGrid>, LabError> {
    let rows = parse(&text_of(path)?, path, caches)?;
    if rows.is_empty() {
        return Err(LabError::Request(format!("{} has no row of parameters\n  {EXAMPLE}", path.display())));
    }
    Ok(rows)
}

const EXAMPLE: &str = "a row looks like Mapping;Mapping;10;1000;16,16;5;numbers.dat;sorted.dat;true";

/// Parses the text of a file of parameters; `path` names it in errors. The input files are looked at.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, path: &Path, caches: &[Cache]) -> Result<Vec<SortGrid>, LabError> {
    let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let filled = lines.filter(|(_, line)| !line.trim().is_empty());
    let mut rows: Vec<SortGrid> = Vec::new();
    let mut row_numbers = Vec::new();
    for (at, (number, line)) in filled.enumerate() {
        let is_header = at == 0 && line.trim_start().to_ascii_lowercase().starts_with("read stream");
        if !is_header {
            let row = row(line, number + 1, path, caches)?;
            refuse_other_contents(&row, number + 1, rows.iter().zip(&row_numbers), path)?;
            rows.push(row);
            row_numbers.push(number + 1);
        }
    }
    Ok(rows)
}

/// Refuses a row whose output is also that of an earlier row, with other contents.
fn refuse_other_contents<'r>(
    row: &SortGrid,
    number: usize,
    earlier: impl Iterator<Item = (&'r SortGrid, &'r usize)>,
    path: &Path,
) -> Result<(), LabError> {
    const OUTPUT: usize = 7;
    let Some(output) = &row.output else { return Ok(()) };
    let is_other = |earlier: &SortGrid| {
        earlier.output.as_ref() == Some(output)
            && (&earlier.sources, earlier.descending) != (&row.sources, row.descending)
    };
    earlier.into_iter().find(|(earlier, _)| is_other(earlier)).map_or(Ok(()), |(_, taken)| {
        Err(LabError::Parameter {
            path: path.to_path_buf(),
            row: number,
            column: OUTPUT + 1,
            name: COLUMNS[OUTPUT],
            value: output.display().to_string(),
            problem: format!("is the output of row {taken} with other contents; name another file"),
        })
    })
}

fn row(line: &str, number: usize, path: &Path, caches: &[Cache]) -> Result<SortGrid, LabError> {
    let fields: Vec<&str> = line.split(';').map(str::trim).collect();
    let wrong = |column: usize| {
        let value = fields.get(column).copied().unwrap_or_default().to_owned();
        let path = path.to_path_buf();
        let name = COLUMNS.get(column).copied().unwrap_or("a column too many");
        move |problem| LabError::Parameter { path, row: number, column: column + 1, name, value, problem }
    };
    if fields.len() < COLUMNS.len() {
        return Err(wrong(fields.len())(format!("is missing; {EXAMPLE}")));
    }
    if fields.len() > COLUMNS.len() {
        let problem = format!("is there, but a row has {} columns, separated by semicolons", COLUMNS.len());
        return Err(wrong(COLUMNS.len())(problem));
    }
    let read = backend(fields[0]).map_err(wrong(0))?;
    let write = backend(fields[1]).map_err(wrong(1))?;
    let fan_in = fan_in_list(fields[2]).map_err(wrong(2))?;
    let memory = element_list(fields[3]).map_err(wrong(3))?;
    // Back-ends without B ignore the column, as in Heinrich et al.
    let streams = pairs(read, write, fields[4]).map_err(wrong(4))?;
    let loops = loops(fields[5]).map_err(wrong(5))?;
    let sources = vec![source_of(fields[6]).map_err(wrong(6))?];
    let output = Some(fields[7]).filter(|name| !name.is_empty()).map(PathBuf::from);
    if let Some(problem) = output.as_deref().and_then(problem_of_output) {
        return Err(wrong(7)(format!("{problem}; name another file")));
    }
    let descending = match fields[8].to_ascii_lowercase().as_str() {
        "true" => false,
        "false" => true,
        _ => return Err(wrong(8)("is not an order: write true (ascending) or false (descending)".into())),
    };
    Ok(SortGrid { sources, memory, fan_in, streams, descending, caches: caches.to_vec(), loops, output })
}

/// The pairs of streams of a range of exponents, or of two.
fn pairs(read: Backend, write: Backend, text: &str) -> Result<Vec<(StreamChoice, StreamChoice)>, String> {
    let range = |text: &str, backend: Backend| -> Result<StreamRange, String> {
        Ok(StreamRange::new(backend, exponents(text, backend)?))
    };
    if let Some((reads, writes)) = text.split_once('/') {
        return Ok(all_blocks(range(reads, read)?, range(writes, write)?));
    }
    Ok(same_blocks(range(text, read)?, range(text, write)?))
}

/// N and the source of an input.
fn source_of(text: &str) -> Result<(u64, Source), String> {
    let Some(random) = text.strip_prefix(RANDOM) else {
        let path = PathBuf::from(text);
        return Ok((elements_in(&path)?, Source::File(path)));
    };
    let wrong = || format!("is not {RANDOM}N SEED, such as {RANDOM}1e6 1 (a file: ./{text})");
    let (n, seed) = random.trim().split_once(' ').ok_or_else(wrong)?;
    Ok((element(n).map_err(|_| wrong())?, Source::Random(seed.trim().parse().map_err(|_| wrong())?)))
}

/// The text of a file of parameters for these cells, which [`parse`] reads. States of the cache are not part of it.
pub fn text_of_cells<'a>(cells: impl IntoIterator<Item = &'a SortCell>) -> String {
    // Cells that differ in B, d or M only are joined to rows, in this order.
    let exponents = grouped(cells.into_iter().map(Key::of));
    let fan_in = grouped(exponents.into_iter().flat_map(|(key, exponents)| {
        let common = ranges(exponents.into_iter().flatten().collect());
        let ranges = if common.is_empty() { vec![None] } else { common.into_iter().map(Some).collect() };
        ranges.into_iter().map(move |range| ((Key { fan_in: 0, ..key.clone() }, range), key.fan_in))
    }));
    let memory = grouped(fan_in.into_iter().map(|((key, range), all_d)| {
        let memory_elements = key.memory_elements;
        ((Key { memory_elements: 0, ..key }, range, all_d), memory_elements)
    }));
    let rows = memory.into_iter().map(|((key, range, all_d), all_m)| key.row(range, &all_d, &all_m));
    format!("{HEADER}\n") + &rows.collect::<String>()
}

/// A cell without its loops, B and state of the cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    backends: (Backend, Backend),
    /// Exponents that are not the same for both.
    exponents: Option<(u8, u8)>,
    source: (u64, Source),
    output: Option<PathBuf>,
    descending: bool,
    loops: u32,
    memory_elements: u64,
    fan_in: u32,
}

impl Key {
    /// The key of a cell, and the exponent of B that its streams have in common.
    fn of(cell: &SortCell) -> (Self, Option<u8>) {
        let read = cell.read;
        let write = cell.write;
        let common = match [read, write].map(|choice| choice.backend.has_blocks()) {
            [true, true] => (read.exponent == write.exponent).then_some(read.exponent),
            [true, false] => Some(read.exponent),
            _ => Some(write.exponent),
        };
        let key = Self {
            backends: (read.backend, write.backend),
            exponents: common.is_none().then_some((read.exponent, write.exponent)),
            source: (cell.elements, cell.source.clone()),
            output: cell.output.clone(),
            descending: cell.descending,
            loops: cell.loops,
            memory_elements: cell.memory_elements,
            fan_in: cell.fan_in,
        };
        (key, common)
    }

    fn row(&self, range: Option<(u8, u8)>, all_d: &[u32], all_m: &[u64]) -> String {
        let name = |backend: Backend| backend.published_name().unwrap_or(backend.word());
        let blocks = match (range, self.exponents) {
            (Some((first, last)), _) => format!("{first},{last}"),
            (None, Some((read, write))) => format!("{read},{read}/{write},{write}"),
            (None, None) => "0,0".to_owned(),
        };
        let input = match &self.source {
            (elements, Source::Random(seed)) => format!("{RANDOM}{elements} {seed}"),
            (_, Source::File(path)) if path.to_string_lossy().starts_with(RANDOM) => {
                format!("./{}", path.display())
            }
            (_, Source::File(path)) => path.display().to_string(),
        };
        let output = self.output.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let [read, write] = [name(self.backends.0), name(self.backends.1)];
        let all_d = list(all_d);
        let all_m = list(all_m);
        let loops = self.loops;
        format!("{read};{write};{all_d};{all_m};{blocks};{loops};{input};{output};{}\n", !self.descending)
    }
}

/// The reason why an output cannot have this name, if it cannot: outputs are files in the directory of the results,
/// beside the files of the study.
pub(super) fn problem_of_output(name: &Path) -> Option<&'static str> {
    let text = name.to_str().unwrap_or_default();
    if name.components().count() != 1 || name.file_name().is_none() {
        Some("is not the name of a file in the directory of the results")
    } else if files::ALL.contains(&text) || text.starts_with('.') {
        Some("is kept for a file of the study")
    } else {
        None
    }
}

/// The number of integers in a file, or why it cannot be sorted.
fn elements_in(path: &Path) -> Result<u64, String> {
    let stat = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if !stat.is_file() {
        return Err("is not a regular file".into());
    }
    if !stat.len().is_multiple_of(ELEMENT_BYTES) {
        return Err(format!("has {} bytes, which is no multiple of the 4 bytes of an integer", stat.len()));
    }
    if stat.len() == 0 {
        return Err("has no integers".into());
    }
    std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    Ok(stat.len() / ELEMENT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::grid::CACHES;
    use crate::whole::WholeGrid;
    use std::collections::HashSet;

    fn streams(backend: Backend, exponents: RangeInclusive<u8>) -> StreamRange {
        StreamRange::new(backend, exponents)
    }

    fn parsed(text: &str) -> Result<Vec<SortGrid>, String> {
        parse(text, Path::new("p.csv"), &[Cache::Warm]).map_err(|error| error.to_string())
    }

    #[test]
    fn the_published_sample_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("in.dat");
        std::fs::write(&input, [0; 40_000]).unwrap();
        let input = input.display();
        let text = format!(
            "Read Stream Type(only 1 per row); Write Stream Type(only 1 per row); Nr of streams; Nr Integers in \
             Memory (Ex: 1000, 10000, 100000...); Buffer size range (Ex: 1,6);Nr Loops;Input file (full path); Output \
             file; true (Ascending sort order)\n\
             Mapping; Mapping; 10; 1000; 20, 20; 5; {input}; Test; true\r\n\n\
             bufferb;Simple;10,25,30;1e3..1e6;12..14;3;{input};;FALSE\n"
        );
        let rows = parsed(&text).unwrap();
        assert_eq!(rows.len(), 2);
        let cells = rows[0].cells();
        let mapped = StreamChoice::new(Backend::Mapped, 20);
        assert_eq!(cells.len(), 1);
        let SortCell { elements, memory_elements, fan_in, read, write, descending, loops, output, .. } =
            &cells[0];
        assert_eq!((*elements, *memory_elements, *fan_in, *loops), (10_000, 1000, 10, 5));
        assert_eq!((*read, *write, *descending), (mapped, mapped, false));
        assert_eq!(output.as_deref(), Some(Path::new("Test")));
        let cells = rows[1].cells();
        assert_eq!(cells.len(), 3 * 4 * 3);
        assert!(cells.iter().all(|cell| cell.descending && cell.output.is_none()));
        assert!(cells.iter().all(|cell| cell.write == StreamChoice::new(Backend::Plain, 0)));
    }

    #[test]
    fn impossible_values_are_named_by_row_and_column() {
        let dir = tempfile::tempdir().unwrap();
        let [good, odd, empty] = ["good", "odd", "empty"].map(|name| dir.path().join(name));
        std::fs::write(&empty, []).unwrap();
        std::fs::write(&good, [0; 8]).unwrap();
        std::fs::write(&odd, [0; 9]).unwrap();
        let (good, odd, empty, dir) = (good.display(), odd.display(), empty.display(), dir.path().display());
        let whole = format!("Simple;Simple;10;1000;0,0;5;{good};Test;true");
        for (line, place, problem) in [
            (
                format!("Maping;Mapping;10;1000;20,20;5;{good};Test;true"),
                "column 1",
                "'Maping' is not a stream type",
            ),
            (format!("Mapping;;10;1000;20,20;5;{good};Test;true"), "column 2", "'' is not a stream type"),
            (format!("Mapping;Mapping;1;1000;20,20;5;{good};Test;true"), "column 3", "from 2 to"),
            (format!("Mapping;Mapping;10;0;20,20;5;{good};Test;true"), "column 4", "whole number from 1"),
            (format!("Mapping;Mapping;10;x;20,20;5;{good};Test;true"), "column 4", "is not a number"),
            (
                format!("Simple;Mapping;10;1000;1,20;5;{good};Test;true"),
                "column 5",
                "smaller than the 4 bytes",
            ),
            (
                format!("Mapping;direct;10;1000;11,20;5;{good};Test;true"),
                "column 5",
                "smaller than the 4096 bytes",
            ),
            (format!("Mapping;Mapping;10;1000;20,20;0;{good};Test;true"), "column 6", "loops from 1"),
            (format!("Mapping;Mapping;10;1000;20,20;5;{good}.no;Test;true"), "column 7", "No such file"),
            (format!("Mapping;Mapping;10;1000;20,20;5;{dir};Test;true"), "column 7", "not a regular file"),
            (format!("Mapping;Mapping;10;1000;20,20;5;{odd};Test;true"), "column 7", "has 9 bytes"),
            (format!("Mapping;Mapping;10;1000;20,20;5;{empty};Test;true"), "column 7", "has no integers"),
            ("Mapping;Mapping;10;1000;20,20;5;random x 1;;true".into(), "column 7", "random 1e6 1"),
            ("Mapping;Mapping;10;1000;20,20;5;random 1e6;;true".into(), "column 7", "random 1e6 1"),
            ("Mapping;Mapping;10;1000;20/1;5;random 1e6 1;;true".into(), "column 5", "smaller than"),
            (format!("Mapping;Mapping;10;1000;20,20;5;{good};Test;up"), "column 9", "is not an order"),
            (format!("Mapping;Mapping;10;1000;20,20;5;{good};Test"), "column 9", "is missing"),
            (whole.replace(";true", ";false"), "column 8", "is the output of row 1 with other contents"),
            (format!("{whole};7"), "column 10", "a row has 9 columns"),
        ] {
            let error = parsed(&format!("{whole}\n{line}\n")).unwrap_err();
            assert!(
                error.contains("row 2") && error.contains(place) && error.contains(problem),
                "{line}: {error}"
            );
        }
    }

    #[test]
    fn the_cells_of_a_study_are_written_as_parameters_that_have_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let input = dir.path().join("in.dat");
        std::fs::write(&input, [0; 400]).unwrap();
        let (sized, mapped) = (Backend::Sized, Backend::Mapped);
        let of_file = |streams| SortGrid {
            sources: vec![(100, Source::File(input.clone()))],
            memory: vec![10, 100],
            fan_in: vec![2, 30],
            streams,
            descending: true,
            caches: CACHES.to_vec(),
            loops: 3,
            output: Some("Test".into()),
        };
        let mut cells = of_file(all_blocks(streams(sized, 3..=5), streams(mapped, 16..=17))).cells();
        cells.extend(of_file(same_blocks(streams(sized, 0..=7), streams(Backend::Plain, 0..=7))).cells());
        cells.extend(
            of_file(same_blocks(streams(Backend::Buffered, 12..=13), streams(Backend::Direct, 12..=13)))
                .cells(),
        );
        cells.extend(
            of_file(same_blocks(streams(Backend::Buffered, 12..=13), streams(Backend::Plain, 12..=13)))
                .cells(),
        );
        // One combination is missing, so that they are not a product.
        cells.retain(|cell| (cell.memory_elements, cell.fan_in) != (100, 30));
        cells.extend(WholeGrid::published().sorts);
        let text = text_of_cells(&cells);
        let read: Vec<SortCell> =
            parse(&text, Path::new("p.csv"), &CACHES).unwrap().iter().flat_map(SortGrid::cells).collect();
        let different: HashSet<SortCell> = read.iter().cloned().collect();
        assert_eq!(read.len(), different.len(), "no cell stands twice");
        assert_eq!(different, cells.into_iter().collect());
        assert_eq!(text_of_cells(&[]), format!("{HEADER}\n"));
    }

    #[test]
    fn streams_are_paired() {
        let (sized, mapped) = (Backend::Sized, Backend::Mapped);
        assert_eq!(same_blocks(streams(sized, 12..=14), streams(mapped, 12..=14)).len(), 3);
        assert_eq!(
            same_blocks(streams(Backend::Plain, 12..=14), streams(Backend::Buffered, 12..=14)).len(),
            1
        );
        assert_eq!(all_blocks(streams(sized, 12..=14), streams(mapped, 16..=17)).len(), 6);
        assert_eq!(all_blocks(streams(Backend::Plain, 12..=14), streams(mapped, 16..=17)).len(), 2);
        assert!(fan_in_list("10,1").is_err() && element_list("1e3,0").is_err() && loops("1001").is_err());
    }
}
