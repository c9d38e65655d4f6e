//! Errors of files, with messages that a user can act on.
//!
//! Every variant names the path. It also names the byte offset, unless a file could not be opened or created or
//! failed at its first byte. A full disk, a closed pipe and exhausted descriptors have variants of their own, because
//! callers handle them differently.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_model::units::bytes;

use crate::pool::PoolError;

/// The operation that the operating system refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Opening an existing file.
    Open,
    /// Creating a file.
    Create,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Making written bytes durable.
    Sync,
    /// Setting a file's length.
    Resize,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Reading the state of a file or a volume.
    Inspect,
    /// Mapping a window of a file to memory.
    Map,
}

impl Action {
    /// `offset` if the action moves bytes, 0 if it concerns the whole file.
    fn offset(self, offset: u64) -> u64 {
        if matches!(self, Self::Read | Self::Write | Self::Map) { offset } else { 0 }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Resize => "resize",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::Inspect => "inspect",
            Self::Map => "map",
        })
    }
}

/// An error of a stream, a file or a volume.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The operating system refused an operation.
    #[error("cannot {action} {}{}: {source}", path.display(), at(action.offset(*offset)))]
    Os {
        /// The operation attempted.
        action: Action,
        /// The file.
        path: PathBuf,
        /// The byte offset (0 for the whole file).
        offset: u64,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// The name of a file being written now refers to another file.
    #[error(
        "{} is not the file any more that was being written: somebody put another in its place\n  \
         no other file was written to; write to a directory that only you may write to, or that \
         has the sticky bit (chmod +t)",
        path.display()
    )]
    Replaced {
        /// The name.
        path: PathBuf,
    },
    /// The directory of a file to be created does not exist.
    #[error(
        "cannot create {}: {source}\n  there is no directory {}: make it (mkdir -p), or name another file",
        path.display(), directory.display()
    )]
    NoDirectory {
        /// The file, as the user named it.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// The volume is full, or the user's quota is used up.
    #[error(
        "no space left on the volume of {}{}: {} ({source})\n  free some space, or name another volume",
        path.display(), at(*offset), space_needed(*needed, *free)
    )]
    DiskFull {
        /// The file being written.
        path: PathBuf,
        /// The offset of the failed write.
        offset: u64,
        /// Bytes the failed request needed, if known.
        needed: Option<u64>,
        /// Bytes the volume has left, if known.
        free: Option<u64>,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// A file may not become as long as it must.
    #[error(
        "{}{}: {}: {source}\n  {}",
        path.display(), at(*offset), too_long(*limit), advice_on_length(*limit)
    )]
    FileTooLong {
        /// The file being written.
        path: PathBuf,
        /// The offset of the failed write.
        offset: u64,
        /// The limit of this process; none: the file system's own.
        limit: Option<u64>,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// A device or other special file accepts no more bytes.
    #[error(
        "cannot write {}{}: it takes no more bytes: {source}\n  name another output (-o FILE)",
        path.display(), at(*offset)
    )]
    DeviceFull {
        /// The device.
        path: PathBuf,
        /// The offset in the output.
        offset: u64,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The reader of a pipe has closed it; usually not an error to report.
    #[error("the reader of {} went away at byte {offset}: {source}", path.display())]
    BrokenPipe {
        /// The pipe's name.
        path: PathBuf,
        /// Bytes it had received.
        offset: u64,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// The process or the system has no file descriptor left.
    #[error(
        "too many open files while opening {}: {source}; raise the limit (ulimit -n) or let fewer files be \
         open at once",
        path.display()
    )]
    TooManyOpen {
        /// The file that could not be opened.
        path: PathBuf,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// A file ended before the size it had when it was opened.
    #[error(
        "{} ended at byte {offset}, before the {expected} bytes it had when opened: it was cut short while \
         being read",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The offset of its end.
        offset: u64,
        /// The expected end.
        expected: u64,
    },
    /// A block of a run file differs from the block written.
    #[error("{} is damaged in block {block} at byte {offset}: {what}", path.display())]
    Corrupt {
        /// The run file.
        path: PathBuf,
        /// The offset of the block.
        offset: u64,
        /// The block's number.
        block: u64,
        /// The fault.
        what: &'static str,
    },
    /// A file that should be a run file has no valid index.
    #[error("{} has no valid run index at byte {offset}: {what}", path.display())]
    BadIndex {
        /// The file.
        path: PathBuf,
        /// The offset where the index should be.
        offset: u64,
        /// The fault.
        what: &'static str,
    },
    /// A caller requested an operation that the stream does not support.
    #[error("{}{}: {what}", path.display(), at(*offset))]
    Misuse {
        /// The file.
        path: PathBuf,
        /// The stream's position.
        offset: u64,
        /// The operation.
        what: &'static str,
    },
    /// The job was asked to stop while it waited for the other end of a pipe.
    #[error("stopped while waiting for {}", path.display())]
    Stopped {
        /// The pipe.
        path: PathBuf,
    },
    /// A thread that moves bytes could not be started.
    #[error("{}: {source}", path.display())]
    Thread {
        /// The file or pipe it was for.
        path: PathBuf,
        /// The reason.
        source: ThreadError,
    },
    /// The memory budget is too small for the stream's buffers.
    #[error("{}{}: {source}", path.display(), at(*offset))]
    Memory {
        /// The file the memory is for.
        path: PathBuf,
        /// The stream's position.
        offset: u64,
        /// The pool's reason.
        source: PoolError,
    },
}

/// " at byte N", or nothing for the start of a file.
fn at(offset: u64) -> String {
    if offset == 0 { String::new() } else { format!(" at byte {offset}") }
}

/// "needs X, Y left", with the numbers that are known.
fn space_needed(needed: Option<u64>, free: Option<u64>) -> String {
    match (needed, free) {
        (Some(needed), Some(free)) => format!("{} more needed, {} left", bytes(needed), bytes(free)),
        (Some(needed), None) => format!("{} more needed", bytes(needed)),
        (None, Some(free)) => format!("{} left", bytes(free)),
        (None, None) => "the write does not fit".into(),
    }
}

fn too_long(limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!("the file would be longer than the limit of {} (ulimit -f)", bytes(limit)),
        None => "the file would be longer than its file system allows".into(),
    }
}

fn advice_on_length(limit: Option<u64>) -> &'static str {
    match limit {
        Some(_) => "raise the limit (ulimit -f unlimited)",
        None => "name another volume",
    }
}

/// The name of standard output in errors.
pub const STANDARD_OUTPUT: &str = "standard output";

/// What operations of this crate return.
pub type Result<T, E = IoError> = std::result::Result<T, E>;

impl IoError {
    /// Converts a system error to the variant a caller can act on.
    pub fn from_os(action: Action, path: &Path, offset: u64, source: io::Error) -> Self {
        let path = path.to_path_buf();
        let source = Arc::new(source);
        match source.raw_os_error() {
            Some(libc::EFBIG) => {
                Self::FileTooLong { path, offset, limit: crate::system::file_size_limit(), source }
            }
            Some(libc::ENOSPC | libc::EDQUOT) => {
                let is_stdout = path == Path::new(STANDARD_OUTPUT);
                let place = if is_stdout { Path::new("/dev/stdout") } else { &path };
                // For a device such as /dev/full, the volume of its name says nothing.
                let is_file = std::fs::metadata(place).map_or(true, |stat| stat.is_file() || stat.is_dir());
                if !is_file {
                    return Self::DeviceFull { path, offset, source };
                }
                let free = crate::system::free_space(place).ok();
                Self::DiskFull { path, offset, needed: None, free, source }
            }
            Some(libc::EPIPE) => Self::BrokenPipe { path, offset, source },
            Some(libc::EMFILE | libc::ENFILE) => Self::TooManyOpen { path, source },
            _ => Self::Os { action, path, offset, source },
        }
    }

    /// Adds to a disk-full error how many bytes the request needed.
    #[must_use]
    pub fn needing(mut self, bytes: u64) -> Self {
        if let Self::DiskFull { needed, .. } = &mut self {
            *needed = Some(bytes);
        }
        self
    }

    /// Whether the volume or a quota is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }

    /// Whether the reader of our output has closed it.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::BrokenPipe { .. })
    }

    /// Whether descriptors ran out.
    pub fn is_too_many_open(&self) -> bool {
        matches!(self, Self::TooManyOpen { .. })
    }
}

/// What a system call was for, so that its error can name the file.
pub trait During<T> {
    /// The call was part of `action` on `path`.
    fn during(self, action: Action, path: &Path) -> Result<T>;
    /// The same at `offset` in the file.
    fn during_at(self, action: Action, path: &Path, offset: u64) -> Result<T>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, action: Action, path: &Path) -> Result<T> {
        self.during_at(action, path, 0)
    }

    fn during_at(self, action: Action, path: &Path, offset: u64) -> Result<T> {
        self.map_err(|error| IoError::from_os(action, path, offset, error.into()))
    }
}

/// Whether a system call has to be repeated, now or later.
pub fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// The error of a write that moved nothing and gave no reason.
pub(crate) fn nothing_written() -> io::Error {
    io::Error::new(io::ErrorKind::WriteZero, "the system took none of the bytes")
}

/// Why a thread did not finish its work.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadError {
    /// The system starts no more threads.
    #[error(
        "the system starts no more threads (for '{name}'): {source}\n  {}, or take fewer threads (--threads)",
        Lack::from_error(source).advice()
    )]
    Refused {
        /// The thread's purpose.
        name: String,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// An internal fault ended the thread.
    #[error("internal error: the thread '{name}' ended early; please report this")]
    Died {
        /// The thread's purpose.
        name: String,
    },
}

/// The resource that a refused thread lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    Memory,
    /// Processes or memory: the system has one error for both.
    Processes,
}

impl Lack {
    pub(crate) fn from_error(error: &io::Error) -> Self {
        if error.raw_os_error() == Some(libc::ENOMEM) { Lack::Memory } else { Lack::Processes }
    }

    pub(crate) fn advice(self) -> &'static str {
        match self {
            Lack::Memory => "allow the process more memory (ulimit -v, ulimit -d)",
            Lack::Processes => {
                "allow more processes (ulimit -u, or pids.max of the control group) and memory (ulimit -d, \
                 ulimit -v)"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(action: Action, offset: u64, errno: i32) -> String {
        IoError::from_os(action, Path::new("nofile"), offset, io::Error::from_raw_os_error(errno)).to_string()
    }

    #[test]
    fn the_byte_is_named_where_bytes_move() {
        let open = "cannot open nofile: No such file or directory (os error 2)";
        assert_eq!(said(Action::Open, 0, libc::ENOENT), open);
        assert_eq!(said(Action::Open, 4096, libc::ENOENT), open);
        let inspect = "cannot inspect nofile: Permission denied (os error 13)";
        assert_eq!(said(Action::Inspect, 0, libc::EACCES), inspect);
        let read = "cannot read nofile at byte 4096: Input/output error (os error 5)";
        assert_eq!(said(Action::Read, 4096, libc::EIO), read);
        assert_eq!(said(Action::Read, 0, libc::EISDIR), "cannot read nofile: Is a directory (os error 21)");
        assert!(said(Action::Write, 8192, libc::ENOSPC).contains("volume of nofile at byte 8192: "));
        assert!(said(Action::Create, 0, libc::ENOSPC).starts_with("no space left on the volume of nofile: "));
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        let full = IoError::from_os(Action::Write, Path::new("/dev/full"), 0, full).to_string();
        assert!(
            full.starts_with("cannot write /dev/full: it takes no more bytes") && !full.contains("B left")
        );
        let long = said(Action::Write, 4096, libc::EFBIG);
        assert!(long.starts_with("nofile at byte 4096: the file would be longer than "), "{long}");
        assert!(!long.contains("space"), "{long}");
        let misuse = IoError::Misuse { path: "file".into(), offset: 0, what: "taken" };
        assert_eq!(misuse.to_string(), "file: taken");
    }
}
