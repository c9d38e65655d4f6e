//! The table of results of a study of streams.
//!
//! ```text
//!   Direction;Stream;N;k;B;Cache;Loops;Mean ms;Min ms;Max ms;Deviation ms;I/Os by formula;I/Os counted;
//!     ns of loops;Place
//!   write;buffered;1000;1;;warm;6;0.031;0.029;0.035;0.002;1;1;31022,29811,...;host:/data
//!   read;sized;1000;1;2^12;cold;6;...
//! ```
//!
//! The cell of a row is found again by its first seven fields and the place; times are read from the nanoseconds.

use std::path::Path;

use ascot_io::Direction;

use super::cell::{Backend, Cache, Cell, direction_word};
use super::measure::Measured;
use super::parameters;
use crate::error::LabError;
use crate::files::STREAMS_TABLE;
use crate::table::{Columns, NumberedRow, Table};

/// The name of the file in the directory of results.
pub const FILE_NAME: &str = STREAMS_TABLE;

const COLUMNS: Columns = Columns { names: &NAMES, added: None };

const NAMES: [&str; 15] = [
    "Direction",
    "Stream",
    "N",
    "k",
    "B",
    "Cache",
    "Loops",
    "Mean ms",
    "Min ms",
    "Max ms",
    "Deviation ms",
    "I/Os by formula",
    "I/Os counted",
    "ns of loops",
    "Place",
];

/// Opens the table in `directory`; returns it with the results it has.
///
/// # Errors
/// The system's, and [`LabError::Table`] for a file that is no such table.
pub fn open(directory: &Path) -> Result<(Table, Vec<Measured>), LabError> {
    let path = directory.join(FILE_NAME);
    let (table, rows) = Table::open(&path, COLUMNS)?;
    Ok((table, results_of(&path, rows)?))
}

/// The results of the table in `directory`; none if it has no table.
///
/// # Errors
/// As [`open`].
pub fn read(directory: &Path) -> Result<Vec<Measured>, LabError> {
    let path = directory.join(FILE_NAME);
    match path.try_exists().map_err(LabError::file("look for", &path))? {
        true => results_of(&path, Table::read(&path, COLUMNS)?),
        false => Ok(Vec::new()),
    }
}

fn results_of(path: &Path, rows: Vec<NumberedRow>) -> Result<Vec<Measured>, LabError> {
    let parsed = rows.into_iter().map(|(line, fields)| {
        let problem = |problem| LabError::Table { path: path.to_path_buf(), line, problem };
        measured_of(&fields).map_err(|column| problem(format!("'{}' is impossible", NAMES[column])))
    });
    parsed.collect()
}

/// The fields of a result.
pub fn fields_of(measured: &Measured) -> Vec<String> {
    let cell = &measured.cell;
    let (min, max) = measured.range_ms();
    let block = if cell.backend.has_blocks() { format!("2^{}", cell.exponent) } else { String::new() };
    let loops: Vec<String> = measured.loops_ns.iter().map(u64::to_string).collect();
    let ms = |value: f64| format!("{value:.3}");
    vec![
        direction_word(cell.direction).to_owned(),
        cell.backend.word().to_owned(),
        cell.elements.to_string(),
        cell.streams.to_string(),
        block,
        cell.cache.word().to_owned(),
        cell.loops.to_string(),
        ms(measured.mean_ms()),
        ms(min),
        ms(max),
        ms(measured.deviation_ms()),
        cell.predicted_ios().to_string(),
        measured.counted_ios.to_string(),
        loops.join(","),
        measured.place.clone(),
    ]
}

/// The result of a row, or the column that is impossible.
fn measured_of(fields: &[String]) -> Result<Measured, usize> {
    let direction = match fields[0].as_str() {
        "read" => Direction::Read,
        "write" => Direction::Write,
        _ => return Err(0),
    };
    let backend: Backend = fields[1].parse().map_err(|()| 1_usize)?;
    let elements = parameters::elements(&fields[2]).map_err(|_| 2_usize)?;
    let streams = fields[3].parse().map_err(|_| 3_usize)?;
    let exponent = match fields[4].strip_prefix("2^") {
        Some(text) => *parameters::checked_exponents(text, backend).map_err(|_| 4_usize)?.start(),
        None => 0,
    };
    let cache = Cache::of_word(&fields[5]).ok_or(5_usize)?;
    let loops = parameters::loops(&fields[6]).map_err(|_| 6_usize)?;
    let counted_ios = fields[12].parse().map_err(|_| 12_usize)?;
    let times = fields[13].split(',').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
    let loops_ns = times.ok().filter(|times| times.len() + 1 == loops as usize).ok_or(13_usize)?;
    let cell = Cell { direction, backend, exponent, streams, elements, cache, loops };
    Ok(Measured { cell, place: fields[14].clone(), loops_ns, counted_ios })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::grid::Grid;
    use std::fs;

    #[test]
    fn results_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let result = |cell: Cell| Measured {
            cell,
            place: "host:/a".into(),
            loops_ns: vec![5; cell.loops as usize - 1],
            counted_ios: 7,
        };
        let cells = Grid::quick().cells();
        let (mut table, _) = open(dir.path()).unwrap();
        for cell in &cells[..40] {
            table.append(&fields_of(&result(*cell))).unwrap();
        }
        drop(table);
        let found = open(dir.path()).unwrap().1;
        assert_eq!(found, cells[..40].iter().map(|cell| result(*cell)).collect::<Vec<_>>());
    }

    #[test]
    fn an_impossible_field_is_named() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        let path = dir.path().join(FILE_NAME);
        let header = fs::read_to_string(&path).unwrap();
        for (row, name) in [
            ("up;plain;1;1;;warm;2;0;0;0;0;1;1;5;host:/a", "Direction"),
            ("read;odd;1;1;;warm;2;0;0;0;0;1;1;5;host:/a", "Stream"),
            ("read;sized;1;1;2^31;warm;2;0;0;0;0;1;1;5;host:/a", "B"),
            ("read;plain;1;1;;warm;3;0;0;0;0;1;1;5;host:/a", "ns of loops"),
        ] {
            fs::write(&path, format!("{header}{row}\n")).unwrap();
            let error = open(dir.path()).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains(&format!("'{name}'")), "{error}");
        }
    }
}
