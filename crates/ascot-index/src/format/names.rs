//! The names of a directory's files, and the numbers that are inputs of their checksums.
//!
//! ```text
//!   MANIFEST  LOCK
//!   part-00000000.data   part-00000000.index     tables of a partition      (records, pointers)
//!   part-00000000.aux                            auxiliary table of it      (ranks)
//!   writer-00000000.data writer-00000000.index   tables of a writer         (ranks)
//!   writer-00000000.data writer-00000000.index   values of a writer         (pointers)
//! ```

use std::path::{Path, PathBuf};

use ascot_io::RunId;

use crate::format::layout::Scheme;
use crate::hash::mix;

/// Name of the manifest.
pub const MANIFEST: &str = "MANIFEST";
/// Name of the file that a writer of the directory locks.
pub const LOCK: &str = "LOCK";

/// One log of a directory: an index log, and its data log if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Log {
    /// Tables of a partition: records, or pointers.
    Partition(u32),
    /// The auxiliary table of a partition.
    Auxiliary(u32),
    /// Data that stays at a writer: tables, or values.
    Writer(u32),
}

impl Log {
    /// Path of the index file.
    pub fn index(&self, directory: &Path) -> PathBuf {
        let ending = if self.has_data() { "index" } else { "aux" };
        directory.join(format!("{}.{ending}", self.stem()))
    }

    /// The name of its files without extension.
    fn stem(&self) -> String {
        match self {
            Log::Partition(number) | Log::Auxiliary(number) => format!("part-{number:08}"),
            Log::Writer(number) => format!("writer-{number:08}"),
        }
    }

    /// The log whose index file has this name.
    pub fn from_index_name(name: &str) -> Option<Log> {
        Log::from_file_name(name).filter(|_| !name.ends_with(".data"))
    }

    /// The log whose index or data file has this name. It allocates nothing.
    pub fn from_file_name(name: &str) -> Option<Log> {
        let (stem, kind) = name.split_once('.')?;
        let (prefix, digits) = stem.split_once('-')?;
        let padded = digits.len() == 8 || (digits.len() > 8 && !digits.starts_with('0'));
        let plain = padded && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| plain)?;
        match (prefix, kind) {
            ("part", "index" | "data") => Some(Log::Partition(number)),
            ("part", "aux") => Some(Log::Auxiliary(number)),
            ("writer", "index" | "data") => Some(Log::Writer(number)),
            _ => None,
        }
    }

    /// Path of the data file; `None` for auxiliary tables, which have only an index.
    pub fn data(&self, directory: &Path) -> Option<PathBuf> {
        self.has_data().then(|| directory.join(format!("{}.data", self.stem())))
    }

    /// Whether it has a data file.
    pub fn has_data(&self) -> bool {
        !matches!(self, Log::Auxiliary(_))
    }

    /// The log of a partition.
    pub fn of_partition(scheme: Scheme, number: u32) -> Log {
        match scheme {
            Scheme::Ranks => Log::Auxiliary(number),
            Scheme::Records | Scheme::Pointers => Log::Partition(number),
        }
    }

    /// The number of the log, derived from the directory's; an input of its checksums.
    pub fn id(&self, directory: u64) -> RunId {
        let (kind, number) = match self {
            Log::Partition(number) => (1, number),
            Log::Auxiliary(number) => (2, number),
            Log::Writer(number) => (3, number),
        };
        RunId(mix(directory ^ mix(kind << 32 | u64::from(*number))))
    }

    /// All logs of a directory, ordered by number.
    pub fn all(scheme: Scheme, partitions: u32, writers: u32) -> impl Iterator<Item = Log> {
        let part = move |number| Log::of_partition(scheme, number);
        let writers = if scheme == Scheme::Records { 0 } else { writers };
        (0..partitions).map(part).chain((0..writers).map(Log::Writer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for log in [Log::Partition(0), Log::Auxiliary(12), Log::Writer(123_456_789)] {
            let path = log.index(Path::new(""));
            assert_eq!(path.to_str().and_then(Log::from_index_name), Some(log));
            let files = [Some(path), log.data(Path::new(""))].into_iter().flatten();
            files.for_each(|file| assert_eq!(file.to_str().and_then(Log::from_file_name), Some(log)));
        }
        for name in ["part-1.index", "part-00000001.data", "MANIFEST", "part-+0000001.index", "x.aux"] {
            assert_eq!(Log::from_index_name(name), None, "{name}");
        }
    }
}
