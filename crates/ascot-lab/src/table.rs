//! A table of results: rows of text with semicolons, appended one at a time.
//!
//! ```text
//!   header;of;the;columns        written first
//!   finished;measurement;1;...   each row is on the device before the next measurement starts
//! ```
//!
//! Invariant: every row in the file is whole. A row that a killed process left without its line's end is cut off when
//! the table is opened again, so an interrupted study continues after the last finished measurement.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::LabError;

/// Separates the columns.
pub const SEPARATOR: char = ';';

/// Larger files are not tables of results.
const MAX_BYTES: u64 = 256 << 20;

/// The number of a line, counted from 1, and its fields.
pub type NumberedRow = (usize, Vec<String>);

/// A table that rows are appended to.
#[derive(Debug)]
pub struct Table {
    file: File,
    path: PathBuf,
}

impl Table {
    /// Opens or creates the table at `path` with these columns; returns it with the fields of its rows, each with
    /// its line's number.
    ///
    /// # Errors
    /// The system's, and [`LabError::Table`] if the file has other columns or a row with too few or too many fields.
    pub fn open(path: &Path, columns: &[&str]) -> Result<(Self, Vec<NumberedRow>), LabError> {
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(LabError::file("open", path))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => LabError::Busy { path: path.to_path_buf() },
            other => LabError::file("lock", path)(other.into()),
        })?;
        let (whole, rows) = whole_rows(&mut file, path, columns)?;
        let mut table = Self { file, path: path.to_path_buf() };
        let failed = LabError::file("write", path);
        table.file.set_len(whole as u64).and_then(|()| table.file.seek(SeekFrom::End(0))).map_err(failed)?;
        if whole == 0 {
            let header: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
            table.append(&header)?;
        }
        Ok((table, rows))
    }

    /// The rows of the table at `path`, each with its line's number; a row that was cut is left out.
    ///
    /// # Errors
    /// As [`open`](Self::open), and the system's for a file that does not exist.
    pub fn read(path: &Path, columns: &[&str]) -> Result<Vec<(usize, Vec<String>)>, LabError> {
        let mut file = File::open(path).map_err(LabError::file("open", path))?;
        whole_rows(&mut file, path, columns).map(|(_, rows)| rows)
    }

    /// Appends a row. It is on the device when this returns.
    ///
    /// # Errors
    /// The system's; a row that could not be written whole is cut off.
    pub fn append(&mut self, fields: &[String]) -> Result<(), LabError> {
        let line = fields.join(";") + "\n";
        let end = self.file.stream_position().map_err(LabError::file("write", &self.path))?;
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| {
            // The table keeps its whole rows; what matters is the first error.
            let _ = self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::End(0)));
            LabError::file("write", &self.path)(error)
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The bytes of the whole rows, and these rows. The rest is part of a row; a header is cut only at its own end.
fn whole_rows(file: &mut File, path: &Path, columns: &[&str]) -> Result<(usize, Vec<NumberedRow>), LabError> {
    let text = text_of(file, path)?;
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    if whole == 0 && !columns.join(";").starts_with(&text) {
        let problem = format!("the columns are not {}", columns.join(";"));
        return Err(LabError::Table { path: path.to_path_buf(), line: 1, problem });
    }
    Ok((whole, rows_of(&text[..whole], path, columns)?))
}

fn text_of(file: &mut File, path: &Path) -> Result<String, LabError> {
    let failed = |source| LabError::file("read", path)(source);
    let problem =
        |line, problem: &str| LabError::Table { path: path.to_path_buf(), line, problem: problem.into() };
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(problem(1, "the file is too long"));
    }
    String::from_utf8(text).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        problem(1 + valid.iter().filter(|byte| **byte == b'\n').count(), "the line is not text")
    })
}

fn rows_of(text: &str, path: &Path, columns: &[&str]) -> Result<Vec<NumberedRow>, LabError> {
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let fields: Vec<String> = line.split(SEPARATOR).map(str::to_owned).collect();
        let problem = if number == 0 && fields != columns {
            Some(format!("the columns are not {}", columns.join(";")))
        } else if fields.len() != columns.len() {
            Some(format!("there are {} fields instead of {}", fields.len(), columns.len()))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(LabError::Table { path: path.to_path_buf(), line: number + 1, problem });
        }
        if number > 0 {
            rows.push((number + 1, fields));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn row(fields: [&str; 2]) -> Vec<String> {
        fields.map(str::to_owned).to_vec()
    }

    #[test]
    fn rows_stay_and_a_cut_row_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let (mut table, rows) = Table::open(&path, &["a", "b"]).unwrap();
        assert!(rows.is_empty());
        table.append(&row(["1", "x"])).unwrap();
        drop(table);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "a;b\n1;x\n");
        fs::write(&path, text + "2;").unwrap();
        let (mut table, rows) = Table::open(&path, &["a", "b"]).unwrap();
        assert_eq!(rows, [(2, row(["1", "x"]))]);
        table.append(&row(["3", "z"])).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a;b\n1;x\n3;z\n");
    }

    #[test]
    fn a_header_that_was_cut_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        for cut in ["", "a", "a;b"] {
            fs::write(&path, cut).unwrap();
            assert!(Table::open(&path, &["a", "b"]).unwrap().1.is_empty());
            assert_eq!(fs::read_to_string(&path).unwrap(), "a;b\n");
        }
    }

    #[test]
    fn one_study_at_a_time_writes_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let (table, _) = Table::open(&path, &["a", "b"]).unwrap();
        assert!(matches!(Table::open(&path, &["a", "b"]), Err(LabError::Busy { .. })));
        assert!(Table::read(&path, &["a", "b"]).unwrap().is_empty(), "it can be read meanwhile");
        drop(table);
        assert!(Table::open(&path, &["a", "b"]).is_ok());
    }

    #[test]
    fn other_files_are_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        for (bytes, problem) in [
            (&b"c;d\n"[..], "line 1: the columns are not a;b"),
            (b"my notes", "line 1: the columns are not a;b"),
            (b"a;bc", "line 1: the columns are not a;b"),
            (b"a;b\n1\n", "line 2: there are 1 fields instead of 2"),
            (b"a;b\n1;2\n\xff;2\n", "line 3: the line is not text"),
        ] {
            fs::write(&path, bytes).unwrap();
            let error = Table::open(&path, &["a", "b"]).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }
}
