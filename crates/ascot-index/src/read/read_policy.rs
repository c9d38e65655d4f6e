//! The lenient-read policy: files and blocks that cannot be read are reported, and everything else is handed over.
//!
//! ```text
//!   strict    the first file that is missing or damaged ends the reading
//!   lenient   it is noted, and reading continues after it: the next unit of blocks, the next segment, the next log
//! ```
//!
//! Invariants: errors of memory and of the callback that takes the records always end the reading. The list
//! of faults is bounded; further ones are counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use ascot_io::{Action, During};

use crate::error::{IndexError, Result};
use crate::format::names::Log;
use crate::read::Directory;
use crate::read::files::ByteRange;

/// Maximum number of faults that are listed.
const TOLD_MAX: usize = 100;

/// The faults of files that could not be read.
#[derive(Debug, Default)]
pub struct Unread {
    /// The first faults: file, byte, fault.
    pub errors: Vec<IndexError>,
    /// Number of further faults.
    pub more: u64,
}

impl Unread {
    /// Whether everything was read.
    pub fn is_nothing(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn append(&mut self, other: Self) {
        other.errors.into_iter().for_each(|error| self.add(error));
        self.more += other.more;
    }

    /// Adds a fault.
    pub(crate) fn add(&mut self, error: IndexError) {
        if self.errors.len() < TOLD_MAX {
            self.errors.push(error);
        } else {
            self.more += 1;
        }
    }
}

/// The lenient-read policy: whether reading continues after a file or block that cannot be read.
pub(crate) struct ReadPolicy {
    lenient: bool,
    /// The callback that takes the records failed.
    stopped: Cell<bool>,
    unread: RefCell<Unread>,
}

impl ReadPolicy {
    /// The first fault ends the reading.
    pub fn strict() -> Self {
        Self { lenient: false, stopped: Cell::new(false), unread: RefCell::default() }
    }

    /// All faults are noted.
    pub fn lenient() -> Self {
        Self { lenient: true, ..Self::strict() }
    }

    /// Whether reading continues after a fault.
    pub fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Whether further faults are only counted.
    fn are_many(&self) -> bool {
        self.unread.borrow().errors.len() >= TOLD_MAX
    }

    /// Remembers that an error came from the callback.
    pub fn note_taken<T>(&self, taken: Result<T>) -> Result<T> {
        self.stopped.set(self.stopped.get() || taken.is_err());
        taken
    }

    /// The value read; `None` if it could not be read and reading continues.
    pub fn allow<T>(&self, done: Result<T>) -> Result<Option<T>> {
        match done {
            Ok(read) => Ok(Some(read)),
            Err(error) if self.lenient && !self.stopped.get() && !matches!(error, IndexError::Memory(_)) => {
                self.unread.borrow_mut().add(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The faults of files that could not be read.
    pub fn into_unread(self) -> Unread {
        self.unread.into_inner()
    }
}

/// Reads byte ranges as `Files::fetch_all` does; after one that cannot be read it continues if `policy` allows it.
pub(crate) fn fetch_each(
    directory: &Directory,
    policy: &ReadPolicy,
    byte_ranges: &[ByteRange],
    mut take: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut begun = 0;
    let mut inside = false;
    let done = directory.files.fetch_all(byte_ranges, |number, bytes| {
        begun = number + 1;
        let taken = take(number, bytes);
        inside = taken.is_err();
        taken
    });
    // A range that could not be read is reported when it is retried alone; ranges already handed over are not
    // read again.
    if done.is_ok() || inside || !policy.is_lenient() {
        policy.allow(done)?;
    }
    for number in begun..byte_ranges.len() {
        let one = directory.files.fetch_all(&byte_ranges[number..=number], |_, bytes| take(number, bytes));
        policy.allow(one)?;
    }
    Ok(())
}

impl Directory {
    /// The logs whose index file exists; the others are handed to `missing`. Before the first complete epoch
    /// no log is missing.
    ///
    /// # Errors
    /// A directory that cannot be listed; errors of `missing`.
    pub(crate) fn logs_there(&self, mut missing: impl FnMut(Log) -> Result<()>) -> Result<Vec<Log>> {
        let mut there = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path).during(Action::Read, &self.path)? {
            there.extend(
                entry.during(Action::Read, &self.path)?.file_name().to_str().and_then(Log::from_index_name),
            );
        }
        let mut found = Vec::with_capacity(there.len());
        let mut there = there.into_iter().peekable();
        // Both lists ascend. The manifest may claim more logs than there are files, so files are never probed
        // by name.
        for log in self.manifest.logs() {
            while there.next_if(|&other| other < log).is_some() {}
            if there.next_if_eq(&log).is_some() {
                found.push(log);
            } else if self.manifest.epochs_of(log) > 0 {
                missing(log)?;
            }
        }
        Ok(found)
    }

    /// The wanted logs that exist; `policy` decides about those that are missing.
    pub(crate) fn logs_wanted(&self, policy: &ReadPolicy, wanted: impl Fn(Log) -> bool) -> Result<Vec<Log>> {
        let missed = |log| match wanted(log) {
            true if policy.are_many() => {
                policy.unread.borrow_mut().more += 1;
                Ok(())
            }
            true => policy.allow(Err(self.missing_log(log))).map(|_: Option<()>| ()),
            false => Ok(()),
        };
        let mut logs = self.logs_there(missed)?;
        logs.retain(|&log| wanted(log));
        Ok(logs)
    }

    /// The error of a missing log.
    pub(crate) fn missing_log(&self, log: Log) -> IndexError {
        IndexError::Missing { path: log.index(&self.path) }
    }
}
