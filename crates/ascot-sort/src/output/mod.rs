//! The output of finished records: files that appear whole or not at all, or standard output.
//!
//! ```text
//!   writer    merged records ─▶ [block] ─▶ stream            one file, or a pipe
//!                                     └──▶ rolling ─▶ stream, stream ...   files of equal size, in turn
//!   sealed    complete files of several, which a resumed job takes over
//!   stream    one AtomicOutput or one pipe; small jobs and copies of views write to it directly
//! ```
//!
//! A partitioned write has many files open at once; its [`PartFile`](crate::partition::write_parts::PartFile)s
//! are committed here too. All of them follow one protocol; [`AtomicOutput`] executes its steps:
//!
//! ```text
//!   write        .result.ascot-1f2e3d4c5b6a7988.tmp; a checkpoint makes the first part of it durable
//!   seal         copy mode and owner of an old file, fsync, close
//!   (the report is written)
//!   commit       rename every sealed file to its name, then fsync their directories
//! ```
//!
//! Invariants: until the rename an old file stays as it was; no file gets its name before all of them are sealed.
//! A pipe has no name: it is sealed when its reader has taken everything.

pub mod rolling;
pub mod sealed_parts;
pub mod writer;

pub(crate) use rolling::RollingFiles;
pub(crate) use sealed_parts::{FileIdentity, SealedPart, temporary_names};
pub(crate) use writer::{DurableOutput, OutputStream, OutputWriter};

use std::path::Path;

use ascot_io::AtomicOutput;

use crate::api::Result;

/// An output with all its records written, to be sealed and given its name.
pub trait Commit {
    /// The temporary name of the file and its final length, if the output is a single file.
    fn unfinished(&self) -> Option<(&Path, u64)> {
        None
    }

    /// Keeps the unfinished files for a later resume: all but those of several that were completed since the last
    /// checkpoint.
    fn keep(&mut self) {}

    /// Writes the remaining bytes and makes all durable; afterwards only the final names are missing.
    fn seal(&mut self) -> Result<()> {
        Ok(())
    }

    /// The files, once they are sealed, of an output of several that a killed job can complete.
    fn sealed_parts(&mut self) -> Result<Vec<SealedPart>> {
        Ok(Vec::new())
    }

    /// Gives sealed files their names.
    fn commit(self) -> Result<()>;
}

impl Commit for Vec<AtomicOutput> {
    fn seal(&mut self) -> Result<()> {
        Ok(self.iter_mut().try_for_each(|file| file.seal().map(|_| ()))?)
    }

    fn commit(self) -> Result<()> {
        Ok(AtomicOutput::commit_all(self)?)
    }
}
