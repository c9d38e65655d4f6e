//! Reading what is there, where not all is: what cannot be read is told, and everything else is given out.
//!
//! ```text
//!   strict    the first file that is missing or damaged ends the reading
//!   lenient   it is noted, and reading goes on behind it: the next unit of blocks, the next segment, the next log
//! ```
//!
//! Invariants: an error of whoever takes the records always ends it; so does one of memory. What is noted is bounded, and
//! counted beyond that.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use ascot_io::{Action, IoError};

use crate::error::{IndexError, Result};
use crate::format::names::Log;
use crate::read::Directory;
use crate::read::fetch::{Spot, fetch_all};

/// Most gaps that are told one by one.
const TOLD_MOST: usize = 100;

/// What could not be read.
#[derive(Debug, Default)]
pub struct Unread {
    /// The first of it: files, places, what is wrong.
    pub errors: Vec<IndexError>,
    /// How much more there was.
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

    /// Notes one more.
    pub(crate) fn add(&mut self, error: IndexError) {
        if self.errors.len() < TOLD_MOST {
            self.errors.push(error);
        } else {
            self.more += 1;
        }
    }
}

/// What to do about what cannot be read.
pub(crate) struct Gaps {
    lenient: bool,
    /// Whoever takes the records wants no more.
    stopped: Cell<bool>,
    unread: RefCell<Unread>,
}

impl Gaps {
    /// The first ends the reading.
    pub fn strict() -> Self {
        Self { lenient: false, stopped: Cell::new(false), unread: RefCell::default() }
    }

    /// All are noted.
    pub fn lenient() -> Self {
        Self { lenient: true, ..Self::strict() }
    }

    /// Whether reading goes on behind a gap.
    pub fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Whether so many were noted that others are counted only.
    fn are_many(&self) -> bool {
        self.unread.borrow().errors.len() >= TOLD_MOST
    }

    /// Counts one more.
    fn one_more(&self) {
        self.unread.borrow_mut().more += 1;
    }

    /// Keeps that an error is the taker's own.
    pub fn of_taker<T>(&self, taken: Result<T>) -> Result<T> {
        self.stopped.set(self.stopped.get() || taken.is_err());
        taken
    }

    /// What was read; none where it could not be and reading goes on.
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

    /// What could not be read.
    pub fn into_unread(self) -> Unread {
        self.unread.into_inner()
    }
}

/// Reads places as [`fetch_all`] does; behind one that cannot be read it goes on if `gaps` says so.
pub(crate) fn fetch_each(
    directory: &Directory,
    gaps: &Gaps,
    spots: &[Spot],
    mut take: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut begun, mut inside) = (0, false);
    let done = fetch_all(directory, spots, |number, bytes| {
        begun = number + 1;
        let taken = take(number, bytes);
        inside = taken.is_err();
        taken
    });
    // What could not even be read is told when it is tried by itself; what was begun is not begun again.
    if done.is_ok() || inside || !gaps.is_lenient() {
        gaps.allow(done)?;
    }
    for number in begun..spots.len() {
        let one = fetch_all(directory, &spots[number..=number], |_, bytes| take(number, bytes));
        gaps.allow(one)?;
    }
    Ok(())
}

impl Directory {
    /// The logs whose index is there; the others are handed to `missing`. Before the first epoch's end none is missed.
    ///
    /// # Errors
    /// What keeps from listing the directory; those of `missing`.
    pub(crate) fn logs_there(&self, mut missing: impl FnMut(Log) -> Result<()>) -> Result<Vec<Log>> {
        let failed = |error| IndexError::from(IoError::from_os(Action::Read, &self.path, 0, error));
        let mut there = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            there.extend(entry.map_err(failed)?.file_name().to_str().and_then(Log::of_index));
        }
        let mut found = Vec::with_capacity(there.len());
        let mut there = there.into_iter().peekable();
        // Both ascend. A manifest may claim more logs than there can be files: none is asked for by its name.
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

    /// Those of them that are wanted, and of the missing ones that are, what `gaps` says.
    pub(crate) fn logs_wanted(&self, gaps: &Gaps, wanted: impl Fn(Log) -> bool) -> Result<Vec<Log>> {
        let missed = |log| match wanted(log) {
            true if gaps.are_many() => {
                gaps.one_more();
                Ok(())
            }
            true => gaps.allow(Err(self.missing_log(log))).map(|_: Option<()>| ()),
            false => Ok(()),
        };
        let mut logs = self.logs_there(missed)?;
        logs.retain(|&log| wanted(log));
        Ok(logs)
    }

    /// The error of a log that is not there.
    pub(crate) fn missing_log(&self, log: Log) -> IndexError {
        IndexError::Missing { path: log.index(&self.path) }
    }
}
