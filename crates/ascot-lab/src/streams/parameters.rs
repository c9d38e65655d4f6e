//! The parameters of a study: from flags, or from a file as Heinrich et al. (section 3.1) print it; and such a file for
//! the cells of a study.
//!
//! ```text
//!   Stream Type;Total integers per file;Nr of streams;Buffer size range;Nr Loops     optional header
//!   Buffer;1000,10000,100000;1;0,2;6                                                 N is a list
//!   BufferB;1e6;1;0,20;6                                                             B from 2^0 to 2^20
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

use ascot_io::Direction;

use super::cell::{Backend, Cache, Cell, MAX_EXPONENT};
use crate::error::LabError;
use crate::files::STREAMS_HEADER as HEADER;
use crate::parameter_file::text_of;

/// The largest N: more integers than any file system holds in one file.
const MAX_ELEMENTS: f64 = 1e15;
/// The largest k.
const MAX_STREAMS: u32 = 10_000;
/// The most loops.
const MAX_LOOPS: u32 = 1000;

const COLUMNS: [&str; 5] =
    ["stream type", "integers per file", "number of streams", "range of exponents of B", "loops"];

/// A row of parameters: all combinations of its values are measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The back-end.
    pub backend: Backend,
    /// The values of N.
    pub elements: Vec<u64>,
    /// The values of k.
    pub streams: Vec<u32>,
    /// The exponents of B; not used by back-ends without B.
    pub exponents: RangeInclusive<u8>,
    /// Loops of each measurement; the first is left out.
    pub loops: u32,
}

impl Row {
    /// The cells of this row for these directions and states of the cache.
    pub fn cells(&self, directions: &[Direction], caches: &[Cache]) -> Vec<Cell> {
        let exponents = if self.backend.has_blocks() { self.exponents.clone() } else { 0..=0 };
        let mut cells = Vec::new();
        for &direction in directions {
            for &cache in caches {
                for &elements in &self.elements {
                    for &streams in &self.streams {
                        for exponent in exponents.clone() {
                            let Row { backend, loops, .. } = *self;
                            cells.push(Cell {
                                direction,
                                backend,
                                exponent,
                                streams,
                                elements,
                                cache,
                                loops,
                            });
                        }
                    }
                }
            }
        }
        cells
    }
}

/// A whole number as users write it: `1000`, `1e6`, `2.5e8`.
///
/// # Errors
/// The problem, without the value.
pub fn elements(text: &str) -> Result<u64, String> {
    if let Some((_, thousands)) = text.trim().split_once('.')
        && thousands.len() == 3
        && thousands.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Err("has a point that may separate thousands; write 1000, 1e6 or 2.5e8".into());
    }
    match text.trim().parse::<f64>() {
        Ok(number) if number.fract() == 0.0 && (1.0..=MAX_ELEMENTS).contains(&number) => Ok(number as u64),
        Ok(_) => Err("is not a whole number from 1 to 1e15".into()),
        Err(_) => Err("is not a number; write 1000, 1e6 or 2.5e8".into()),
    }
}

/// A list of whole numbers, and of ranges of powers of ten: `1000,1e4`, `1e3..1e6`.
///
/// # Errors
/// The problem, with the part that has it.
pub fn element_list(text: &str) -> Result<Vec<u64>, String> {
    list_of(text, elements)
}

/// A list of the numbers that `one` accepts, and of ranges of powers of ten.
fn list_of(text: &str, one: impl Fn(&str) -> Result<u64, String>) -> Result<Vec<u64>, String> {
    let mut list = Vec::new();
    for part in text.split(',') {
        let named = |problem: String| format!("{problem} ('{part}')");
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let [first, last] = [one(first).map_err(named)?, one(last).map_err(named)?];
        if first > last {
            return Err(named("is not a range from a smaller number to a larger one".into()));
        }
        let powers = std::iter::successors(Some(first), |n| n.checked_mul(10));
        list.extend(powers.take_while(|n| *n <= last));
        if list.last() != Some(&last) {
            let problem = "has steps of ten that miss its end; give the end as a value of its own";
            return Err(named(problem.into()));
        }
    }
    Ok(list)
}

/// A list of numbers of streams, as [`element_list`]: `1`, `1,2,30`, `1..10`.
///
/// # Errors
/// The problem.
pub fn stream_list(text: &str) -> Result<Vec<u32>, String> {
    bounded_list(text, 1..=MAX_STREAMS, "number of streams")
}

/// A list of numbers as [`element_list`], all of them in `range`; `what` names one.
///
/// # Errors
/// The problem.
pub fn bounded_list(text: &str, range: RangeInclusive<u32>, what: &str) -> Result<Vec<u32>, String> {
    let bounds = u64::from(*range.start())..=u64::from(*range.end());
    let one = |part: &str| {
        let number = elements(part).ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| format!("is not a {what} from {} to {}", range.start(), range.end()))
    };
    Ok(list_of(text, one)?.into_iter().filter_map(|number| u32::try_from(number).ok()).collect())
}

/// A range of exponents of B: `12`, `0,20` as Heinrich et al. print it, or `0..20`; both ends belong to it. Back-ends
/// without B ignore the text, as in Heinrich et al.
///
/// # Errors
/// The problem.
pub fn exponents(text: &str, backend: Backend) -> Result<RangeInclusive<u8>, String> {
    if backend.has_blocks() { checked_exponents(text, backend) } else { Ok(0..=0) }
}

/// Like [`exponents`]; a back-end without B does not ignore the text.
pub(super) fn checked_exponents(text: &str, backend: Backend) -> Result<RangeInclusive<u8>, String> {
    let ends = text.split_once("..").or_else(|| text.split_once(',')).unwrap_or((text, text));
    let one = |part: &str| match part.trim().parse::<u8>() {
        Ok(exponent) if exponent <= MAX_EXPONENT => Ok(exponent),
        _ => Err(format!("is not a range of exponents from 0 to {MAX_EXPONENT}, such as 0,20")),
    };
    let first = one(ends.0)?;
    let last = one(ends.1)?;
    let min = backend.min_exponent();
    if first > last {
        return Err("ends before it begins".into());
    }
    if backend.has_blocks() && first < min {
        let least = 1_u64 << min;
        return Err(format!(
            "has blocks smaller than the {least} bytes (2^{min}) that {} needs",
            backend.word()
        ));
    }
    Ok(first..=last)
}

/// Like [`exponents`], for several back-ends: a range that begins below the smallest block of this one begins there.
///
/// # Errors
/// The problem.
pub fn exponents_from(text: &str, backend: Backend) -> Result<RangeInclusive<u8>, String> {
    if !backend.has_blocks() {
        return Ok(0..=0);
    }
    let all = exponents(text, Backend::Sized)?;
    let first = (*all.start()).max(backend.min_exponent());
    if first > *all.end() { exponents(text, backend) } else { Ok(first..=*all.end()) }
}

/// A stream type.
///
/// # Errors
/// The problem.
pub fn backend(text: &str) -> Result<Backend, String> {
    text.trim()
        .parse()
        .map_err(|()| "is not a stream type; write Simple, Buffer, BufferB, Mapping or direct".into())
}

/// A number of loops.
///
/// # Errors
/// The problem.
pub fn loops(text: &str) -> Result<u32, String> {
    match text.trim().parse::<u32>() {
        Ok(loops @ 2..=MAX_LOOPS) => Ok(loops),
        _ => Err(format!("is not a number of loops from 2 to {MAX_LOOPS} (the first is left out)")),
    }
}

/// Reads a file of parameters.
///
/// # Errors
/// The system's, and [`LabError::Parameter`] with the row and the column of an impossible value.
pub fn read(path: &Path) -> Result<Vec<Row>, LabError> {
    let rows = parse(&text_of(path)?, path)?;
    if rows.is_empty() {
        return Err(LabError::Request(format!(
            "{} has no row of parameters\n  a row looks like BufferB;1000,10000;1;0,20;6",
            path.display()
        )));
    }
    Ok(rows)
}

/// The text of a file of parameters for these cells, which [`parse`] reads. Directions and states of the cache are not
/// part of such a file.
pub fn text_of_cells<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> String {
    let exponents = grouped(
        cells
            .into_iter()
            .map(|cell| ((cell.backend, cell.loops, cell.streams, cell.elements), cell.exponent)),
    );
    // Cells of one range of B, then those that have the same values of N, too.
    let elements = grouped(exponents.into_iter().flat_map(|((backend, loops, k, n), exponents)| {
        ranges(exponents).into_iter().map(move |range| ((backend, loops, range, k), n))
    }));
    let streams = grouped(
        elements.into_iter().map(|((backend, loops, range, k), all_n)| ((backend, loops, range, all_n), k)),
    );
    let mut text = format!("{HEADER}\n");
    for ((backend, loops, (first, last), all_n), all_k) in streams {
        let name = backend.published_name().unwrap_or(backend.word());
        text += &format!("{name};{};{};{first},{last};{loops}\n", list(&all_n), list(&all_k));
    }
    text
}

/// The values of each key, in the order of the pairs.
pub(crate) fn grouped<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in pairs {
        groups.entry(key).or_default().push(value);
    }
    groups
}

/// The ranges of numbers that follow one another, each with both of its ends.
pub(crate) fn ranges(numbers: Vec<u8>) -> Vec<(u8, u8)> {
    let mut ranges: Vec<(u8, u8)> = Vec::new();
    for number in BTreeSet::from_iter(numbers) {
        match ranges.last_mut().filter(|(_, last)| *last + 1 == number) {
            Some((_, last)) => *last = number,
            None => ranges.push((number, number)),
        }
    }
    ranges
}

/// Numbers as a list.
pub(crate) fn list<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// Parses the text of a file of parameters; `path` names it in errors.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, path: &Path) -> Result<Vec<Row>, LabError> {
    let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let filled = lines.filter(|(_, line)| !line.trim().is_empty());
    let mut rows = Vec::new();
    for (at, (number, line)) in filled.enumerate() {
        let is_header = at == 0 && line.to_ascii_lowercase().starts_with("stream type");
        if !is_header {
            rows.push(row(line, number + 1, path)?);
        }
    }
    Ok(rows)
}

fn row(line: &str, number: usize, path: &Path) -> Result<Row, LabError> {
    let fields: Vec<&str> = line.split(';').map(str::trim).collect();
    let wrong = |column: usize, problem: String| LabError::Parameter {
        path: path.to_path_buf(),
        row: number,
        column: column + 1,
        name: COLUMNS.get(column).copied().unwrap_or("a column too many"),
        value: fields.get(column).copied().unwrap_or_default().to_owned(),
        problem,
    };
    if fields.len() != COLUMNS.len() {
        let problem = format!("is there, but a row has {} columns, separated by semicolons", COLUMNS.len());
        let missing = fields.len() < COLUMNS.len();
        let problem =
            if missing { "is missing; a row looks like BufferB;1000,10000;1;0,20;6".into() } else { problem };
        return Err(wrong(fields.len().min(COLUMNS.len()), problem));
    }
    let backend = backend(fields[0]).map_err(|problem| wrong(0, problem))?;
    let elements = element_list(fields[1]).map_err(|problem| wrong(1, problem))?;
    let streams = stream_list(fields[2]).map_err(|problem| wrong(2, problem))?;
    let exponents = exponents(fields[3], backend).map_err(|problem| wrong(3, problem))?;
    let loops = loops(fields[4]).map_err(|problem| wrong(4, problem))?;
    Ok(Row { backend, elements, streams, exponents, loops })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::grid::{CACHES, DIRECTIONS, Grid};
    use std::collections::HashSet;

    fn parsed(text: &str) -> Result<Vec<Row>, String> {
        parse(text, Path::new("p.csv")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_published_sample_is_read() {
        let text = "Stream Type (only 1 per row); Total integers per file (Ex: 1000, 10000, 100000...);Nr of \
                    streams; Buffer size range (Ex: 1,6);Nr Loops\n\
                    Buffer;1000,10000,100000,1000000;1;0,2;6\n\
                    BufferB;1000,1e4;2;0,2;6\r\n\n\
                    mapping; 2.5e8 ;1;5..7;3\n";
        let rows = parsed(text).unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].backend, rows[0].elements.len(), rows[0].loops), (Backend::Buffered, 4, 6));
        assert_eq!(rows[1].exponents, 0..=2);
        assert_eq!(
            (rows[2].backend, &rows[2].elements, rows[2].loops),
            (Backend::Mapped, &vec![250_000_000], 3)
        );
        let cells = rows[1].cells(&[Direction::Write, Direction::Read], &[Cache::Cold, Cache::Warm]);
        assert_eq!(cells.len(), 2 * 2 * 2 * 3);
        assert_eq!(
            rows[0].cells(&[Direction::Write], &[Cache::Warm]).len(),
            4,
            "a back-end without B ignores it"
        );
    }

    #[test]
    fn impossible_values_are_named_by_row_and_column() {
        for (line, place, problem) in [
            ("Bufer;1;1;0,2;6", "row 2, column 1", "'Bufer' is not a stream type"),
            ("Buffer;x;1;0,2;6", "row 2, column 2", "is not a number"),
            ("Buffer;1.5;1;0,2;6", "row 2, column 2", "not a whole number"),
            ("Buffer;-5;1;0,2;6", "row 2, column 2", "not a whole number"),
            ("Buffer;1;0;0,2;6", "row 2, column 3", "number of streams"),
            ("BufferB;1;1;2,0;6", "row 2, column 4", "ends before it begins"),
            ("BufferB;1;1;0,31;6", "row 2, column 4", "exponents from 0 to 30"),
            ("Mapping;1;1;0,3;6", "row 2, column 4", "smaller than the 4 bytes"),
            ("direct;1;1;11,12;6", "row 2, column 4", "smaller than the 4096 bytes"),
            ("Buffer;1;1;0,2;1", "row 2, column 5", "loops from 2"),
            ("Buffer;1;1;0,2", "row 2, column 5", "is missing"),
            ("Buffer;1;1;0,2;6;7", "row 2, column 6", "a row has 5 columns"),
        ] {
            let error = parsed(&format!("Simple;1;1;0,0;2\n{line}\n")).unwrap_err();
            assert!(error.contains(place) && error.contains(problem), "{line}: {error}");
        }
    }

    #[test]
    fn the_cells_of_a_study_are_written_as_parameters_that_have_no_others() {
        for grid in [Grid::quick(), Grid::published()] {
            let cells = grid.cells();
            let text = text_of_cells(&cells);
            let rows = parse(&text, Path::new("p.csv")).unwrap();
            let read: Vec<Cell> = rows.iter().flat_map(|row| row.cells(&DIRECTIONS, &CACHES)).collect();
            let different: HashSet<Cell> = read.iter().copied().collect();
            assert_eq!(read.len(), different.len(), "no cell stands twice");
            assert_eq!(different, cells.into_iter().collect());
            assert!(rows.len() < 120, "{}", rows.len());
        }
        assert_eq!(text_of_cells(&[]), format!("{HEADER}\n"));
    }

    #[test]
    fn a_range_for_several_back_ends_begins_at_the_smallest_block() {
        assert_eq!(exponents_from("0..20", Backend::Sized), Ok(0..=20));
        assert_eq!(exponents_from("0..20", Backend::Mapped), Ok(2..=20));
        assert_eq!(exponents_from("0..20", Backend::Direct), Ok(12..=20));
        assert!(exponents_from("0..10", Backend::Direct).unwrap_err().contains("4096"));
        assert!(exponents_from("0..31", Backend::Direct).is_err());
    }

    #[test]
    fn numbers_are_lists_and_ranges_of_powers_of_ten() {
        assert_eq!(element_list("1e3..1e6").unwrap(), [1000, 10_000, 100_000, 1_000_000]);
        assert_eq!(element_list("5,1e2..1000").unwrap(), [5, 100, 1000]);
        assert!(
            element_list("1e6..1e3").is_err() && element_list("").is_err() && element_list("1e3..").is_err()
        );
        assert!(element_list("1e1..2.5e3").unwrap_err().contains("miss its end"));
        assert!(element_list("1.000").unwrap_err().contains("separate thousands"));
        assert_eq!(element_list("2.5e8,1e3").unwrap(), [250_000_000, 1000]);
        assert_eq!(stream_list("1,2, 30").unwrap(), [1, 2, 30]);
        assert_eq!(stream_list("1..1e1,3").unwrap(), [1, 10, 3]);
        assert!(
            element_list("0").is_err()
                && element_list("nan").is_err()
                && element_list("inf").is_err()
                && element_list("1e16").is_err()
        );
    }
}
