//! The bytes and runs of each file. A file is identified by its path and its kind, which is the name of the stream up
//! to its first space (`run read` and `run write` are of the kind `run`). One account therefore covers a file that
//! one stream wrote and another read.
//!
//! ```text
//!   kind "run"   run-000001  run-000002  ...  run-001024 | all others, summed up
//! ```
//!
//! Invariant: the accounts of a kind, with the one that sums up all others, add up to the bytes that its streams moved.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use ascot_model::account::StreamAccount;

use super::observer::Direction;

/// Files of a kind that have an account of their own: enough to list each file of a usual job, and little memory
/// (some 200 KiB) if a job has hundreds of thousands. For each file beyond, only a number that identifies it is kept.
const MAX_LISTED: usize = 1024;

/// The bytes moved by one file, or by all files of a kind beyond those listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileAccount {
    /// The file; `None`: all files beyond those listed.
    pub path: Option<PathBuf>,
    /// One; the number of files summed up if the path is `None`.
    pub files: u64,
    /// Bytes moved and runs on the device, under the name of the kind.
    pub moved: StreamAccount,
}

impl FileAccount {
    fn new(kind: &str, path: Option<PathBuf>) -> Self {
        let moved = StreamAccount { name: kind.to_owned(), ..StreamAccount::default() };
        FileAccount { files: path.iter().len() as u64, path, moved }
    }

    /// Counts a run.
    pub(super) fn count_run(&mut self, direction: Direction) {
        match direction {
            Direction::Read => self.moved.read_runs += 1,
            Direction::Write => self.moved.written_runs += 1,
        }
    }

    /// Counts bytes moved.
    pub(super) fn count(&mut self, direction: Direction, bytes: u64) {
        match direction {
            Direction::Read => self.moved.read_bytes += bytes,
            Direction::Write => self.moved.written_bytes += bytes,
        }
    }
}

/// The position of a file's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    kind: usize,
    /// `None` for a file beyond those listed.
    listed: Option<usize>,
}

/// The accounts of all files.
#[derive(Debug, Default)]
pub(super) struct Files(Vec<Kind>);

#[derive(Debug)]
struct Kind {
    listed: Vec<FileAccount>,
    others: FileAccount,
    /// By hash of the path: the names of thousands of files would take more memory than their accounts.
    known: HashMap<u64, Option<usize>>,
}

impl Kind {
    fn row(&mut self, path: &Path) -> Option<usize> {
        *self.known.entry(hash(path)).or_insert_with(|| {
            if self.listed.len() == MAX_LISTED {
                self.others.files += 1;
                return None;
            }
            self.listed.push(FileAccount::new(&self.others.moved.name, Some(path.to_path_buf())));
            Some(self.listed.len() - 1)
        })
    }
}

impl Files {
    /// The row of a file moved by a stream called `name`.
    pub(super) fn row(&mut self, name: &str, path: &Path) -> Row {
        let name = name.split(' ').next().unwrap_or(name);
        let kind = self.0.iter().position(|kind| kind.others.moved.name == name).unwrap_or_else(|| {
            let others = FileAccount::new(name, None);
            self.0.push(Kind { listed: Vec::new(), others, known: HashMap::new() });
            self.0.len() - 1
        });
        Row { kind, listed: self.0[kind].row(path) }
    }

    /// The account of a row.
    pub(super) fn at(&mut self, row: Row) -> &mut FileAccount {
        let kind = &mut self.0[row.kind];
        match row.listed {
            Some(at) => &mut kind.listed[at],
            None => &mut kind.others,
        }
    }

    /// Notes that a file has been renamed.
    pub(super) fn renamed(&mut self, from: &Path, to: &Path) {
        for kind in &mut self.0 {
            if let Some(row) = kind.known.remove(&hash(from)) {
                kind.known.insert(hash(to), row);
                if let Some(at) = row {
                    kind.listed[at].path = Some(to.to_path_buf());
                }
            }
        }
    }

    /// All accounts, kind by kind, each in the order first opened and the sum of the others last.
    pub(super) fn accounts(&self) -> Vec<FileAccount> {
        let kind = |kind: &Kind| {
            let others = Some(kind.others.clone()).filter(|others| others.files > 0);
            kind.listed.iter().cloned().chain(others).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(kind).collect()
    }
}

fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ledger;

    #[test]
    fn what_is_read_and_written_of_a_file_is_one_account() {
        let ledger = Ledger::new();
        let mut write = ledger.meter("run write", Path::new("a.tmp"), 1, 10, Direction::Write);
        write.issue(0, 100, 1).complete(100);
        ledger.renamed(Path::new("a.tmp"), Path::new("a"));
        let mut read = ledger.meter("run read", Path::new("a"), 1, 10, Direction::Read);
        let mut other = ledger.meter("input", Path::new("a"), 1, 11, Direction::Read);
        read.issue(0, 60, 1).complete(60);
        other.issue(0, 5, 1).complete(5);
        read.issue(60, 40, 1).complete(30);
        let told: Vec<_> = ledger
            .files()
            .into_iter()
            .map(|file| {
                (
                    file.moved.name,
                    file.moved.read_bytes,
                    file.moved.read_runs,
                    file.moved.written_bytes,
                    file.moved.written_runs,
                )
            })
            .collect();
        assert_eq!(told, [("run".into(), 90, 2, 100, 1), ("input".into(), 5, 1, 0, 0)]);
        assert_eq!(ledger.files()[0].path.as_deref(), Some(Path::new("a")));
    }

    #[test]
    fn files_beyond_the_most_are_summed_up() {
        let ledger = Ledger::new();
        for round in 0..2 {
            for file in 0..MAX_LISTED + 7 {
                let path = PathBuf::from(format!("part {file}"));
                let mut meter = ledger.meter("output", &path, 1, file as u64, Direction::Write);
                meter.issue(round * 3, 3, 1).complete(3);
            }
        }
        let files = ledger.files();
        assert_eq!(files.len(), MAX_LISTED + 1);
        let others = &files[MAX_LISTED];
        assert_eq!((others.path.as_ref(), others.files, others.moved.written_bytes), (None, 7, 42));
        assert_eq!(files.iter().map(|file| file.files).sum::<u64>(), MAX_LISTED as u64 + 7);
        assert_eq!(
            files.iter().map(|file| file.moved.written_bytes).sum::<u64>(),
            ledger.totals().written_bytes
        );
        assert_eq!(files.iter().map(|file| file.moved.written_runs).sum::<u64>(), ledger.totals().runs);
    }
}
