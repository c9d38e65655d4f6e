//! Requests one by one, for a record of them: the ledger itself only counts.

use std::fmt::Debug;
use std::path::Path;
use std::time::Instant;

use super::Direction;

/// A file, whatever its name. After it is removed, another file may have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileNumber {
    /// The device's number (`st_dev`; of a block device its own).
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

/// A request to a file, or several that continue each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IssuedRequest {
    /// The time of issue.
    pub at: Instant,
    /// The file.
    pub file: FileNumber,
    /// Reading or writing.
    pub direction: Direction,
    /// The first byte.
    pub offset: u64,
    /// Bytes to move.
    pub bytes: u64,
}

/// Sees the requests of a job to regular files and block devices, in the order of issue. It is called under the lock of
/// the ledger: a slow observer delays all requests.
pub trait RequestObserver: Debug + Send + Sync {
    /// A stream of the file was opened.
    fn opened(&self, file: FileNumber, path: &Path);
    /// A file was renamed.
    fn renamed(&self, from: &Path, to: &Path);
    /// The only name of the file was removed.
    fn removed(&self, file: FileNumber);
    /// A request was issued.
    fn issued(&self, request: &IssuedRequest);
}
