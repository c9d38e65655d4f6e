//! A table of results: rows of text with semicolons, appended one at a time.
//!
//! ```text
//!   header;of;the;columns        written first
//!   finished;measurement;1;...   each row is on the device before the next measurement starts
//! ```
//!
//! Invariant: every row in the file is whole. A row that a killed process left without its line's end is cut off when
//! the table is opened again, so an interrupted study continues after the last finished measurement. A table of an
//! earlier version, which lacks a column, is replaced by one that has it when it is opened for appending.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
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

/// The columns of a table.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    /// Their names.
    pub names: &'static [&'static str],
    /// The column that an earlier version lacks, and its value in the rows of that version.
    pub added: Option<(usize, &'static str)>,
}

impl Columns {
    fn header(&self) -> Vec<String> {
        self.names.iter().map(|&name| name.to_owned()).collect()
    }

    /// The names of the earlier version.
    fn earlier_header(&self) -> Option<Vec<String>> {
        let (at, _) = self.added?;
        let mut header = self.header();
        header.remove(at);
        Some(header)
    }
}

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
    pub fn open(path: &Path, columns: Columns) -> Result<(Self, Vec<NumberedRow>), LabError> {
        let mut file = locked(path)?;
        let Contents { whole_bytes, rows, is_earlier } = contents_of(&mut file, path, columns)?;
        if is_earlier {
            replace(path, columns, &rows)?;
            // The lock on the file that was replaced ends with it.
            drop(file);
            return Self::open(path, columns);
        }
        let mut table = Self { file, path: path.to_path_buf() };
        let cut = table.file.set_len(whole_bytes).and_then(|()| table.file.seek(SeekFrom::End(0)));
        cut.map_err(LabError::file("write", path))?;
        if whole_bytes == 0 {
            table.append(&columns.header())?;
        }
        Ok((table, rows))
    }

    /// The rows of the table at `path`, each with its line's number; a row that was cut is left out.
    ///
    /// # Errors
    /// As [`open`](Self::open), and the system's for a file that does not exist.
    pub fn read(path: &Path, columns: Columns) -> Result<Vec<NumberedRow>, LabError> {
        let mut file = File::open(path).map_err(LabError::file("open", path))?;
        contents_of(&mut file, path, columns).map(|contents| contents.rows)
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

/// The file of a table, which is created if it does not exist, under its lock.
fn locked(path: &Path) -> Result<File, LabError> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(LabError::file("open", path))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => LabError::Busy { path: path.to_path_buf() },
            other => LabError::file("lock", path)(other.into()),
        })?;
        let [opened, named] = [file.metadata(), std::fs::metadata(path)]
            .map(|stat| stat.map(|stat| stat.ino()).map_err(LabError::file("open", path)));
        // Another study may have replaced the table before the lock was taken.
        if opened? == named? {
            return Ok(file);
        }
    }
}

/// Replaces a table of an earlier version.
fn replace(path: &Path, columns: Columns, rows: &[NumberedRow]) -> Result<(), LabError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.unfinished"));
    let lines = std::iter::once(columns.header()).chain(rows.iter().map(|(_, fields)| fields.clone()));
    let text: String = lines.map(|fields| fields.join(";") + "\n").collect();
    let written = std::fs::write(&new, text)
        .and_then(|()| File::open(&new)?.sync_all())
        .and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| {
        // The table stays as it is, and the error that is reported is the first.
        let _ = std::fs::remove_file(&new);
        LabError::file("write", &new)(error)
    })
}

/// The contents of a table.
struct Contents {
    /// Bytes of the whole rows; the rest is part of a row.
    whole_bytes: u64,
    /// The rows, with all columns.
    rows: Vec<NumberedRow>,
    /// Whether the table lacks the column that was added.
    is_earlier: bool,
}

/// The whole rows of a table; a header is cut only at its own end.
fn contents_of(file: &mut File, path: &Path, columns: Columns) -> Result<Contents, LabError> {
    let text = text_of(file, path)?;
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let header = columns.header().join(";");
    if whole == 0 && !header.starts_with(&text) {
        let problem = format!("the columns are not {header}");
        return Err(LabError::Table { path: path.to_path_buf(), line: 1, problem });
    }
    let text = &text[..whole];
    let earlier = columns.earlier_header().filter(|header| text.lines().next() == Some(&header.join(";")));
    let is_earlier = earlier.is_some();
    let mut rows = rows_of(text, path, &earlier.unwrap_or_else(|| columns.header()))?;
    if let Some((at, value)) = columns.added.filter(|_| is_earlier) {
        rows.iter_mut().for_each(|(_, fields)| fields.insert(at, value.to_owned()));
    }
    Ok(Contents { whole_bytes: whole as u64, rows, is_earlier })
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

fn rows_of(text: &str, path: &Path, columns: &[String]) -> Result<Vec<NumberedRow>, LabError> {
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

    const AB: Columns = Columns { names: &["a", "b"], added: None };

    fn row(fields: [&str; 2]) -> Vec<String> {
        fields.map(str::to_owned).to_vec()
    }

    #[test]
    fn rows_stay_and_a_cut_row_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let (mut table, rows) = Table::open(&path, AB).unwrap();
        assert!(rows.is_empty());
        table.append(&row(["1", "x"])).unwrap();
        drop(table);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "a;b\n1;x\n");
        fs::write(&path, text + "2;").unwrap();
        let (mut table, rows) = Table::open(&path, AB).unwrap();
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
            assert!(Table::open(&path, AB).unwrap().1.is_empty());
            assert_eq!(fs::read_to_string(&path).unwrap(), "a;b\n");
        }
    }

    #[test]
    fn one_study_at_a_time_writes_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let (table, _) = Table::open(&path, AB).unwrap();
        assert!(matches!(Table::open(&path, AB), Err(LabError::Busy { .. })));
        assert!(Table::read(&path, AB).unwrap().is_empty(), "it can be read meanwhile");
        drop(table);
        assert!(Table::open(&path, AB).is_ok());
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
            let error = Table::open(&path, AB).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }

    #[test]
    fn a_table_of_an_earlier_version_gets_the_column_that_it_lacks() {
        const ADDED: Columns = Columns { names: &["a", "new", "b"], added: Some((1, "warm")) };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        fs::write(&path, "a;b\n1;x\n2;y\n3").unwrap();
        let expected: Vec<NumberedRow> = [(2, "1;warm;x"), (3, "2;warm;y")]
            .map(|(line, text)| (line, text.split(';').map(str::to_owned).collect()))
            .to_vec();
        assert_eq!(Table::read(&path, ADDED).unwrap(), expected);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a;b\n1;x\n2;y\n3", "reading leaves it as it is");
        let (mut table, rows) = Table::open(&path, ADDED).unwrap();
        assert_eq!(rows, expected);
        assert!(matches!(Table::open(&path, ADDED), Err(LabError::Busy { .. })), "the new file is locked");
        table.append(&["3", "cold", "z"].map(str::to_owned)).unwrap();
        drop(table);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a;new;b\n1;warm;x\n2;warm;y\n3;cold;z\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
