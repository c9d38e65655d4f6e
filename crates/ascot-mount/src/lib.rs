//! A view shown as an ordinary read-only file, in a directory of its own; an indexed directory shown as one file for
//! each key.
//!
//! ```text
//!   kernel ──▶ file     what a file system is asked: names, sizes, bytes at an offset
//!              readers  one stream for each who reads on and on; a few bytes anywhere for all others
//!          ──▶ keys     the same, of a file system whose names are keys: each name asked for is a query
//! ```
//!
//! Whatever goes wrong while bytes are read is EIO to whoever reads, with a line in the log that names the
//! run; bytes that are not known to be right are never given out.

mod file;
mod keys;
mod readers;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ascot_index::Directory;
use ascot_sort::view::View;
use fuser::{BackgroundSession, Config, FileAttr, FileType, Filesystem, INodeNo, MountOption, SessionACL};

use crate::file::OneFile;
use crate::keys::KeyFiles;
use crate::readers::Readers;

/// Takes lines that somebody should see.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// How a view is shown.
#[derive(Clone)]
pub struct Shown {
    /// When it was made.
    pub modified: SystemTime,
    /// Whose it is: user and group.
    pub owner: (u32, u32),
    /// Users other than the one who mounts may read it.
    pub allow_other: bool,
    /// Receives errors of reading.
    pub log: Log,
}

/// Why a view was not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system refused.
    #[error(
        "cannot mount at {}: {source}\n  the directory must exist and be yours, /dev/fuse must be there, and fusermount3 (package fuse3) unless you are root",
        path.display()
    )]
    Refused {
        /// Where.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The connection to the kernel broke.
    #[error("{}: the mount ended: {source}", path.display())]
    Ended {
        /// Where.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The attributes of a file, or of the root directory, that nobody writes.
fn attributes(ino: INodeNo, size: u64, modified: SystemTime, owner: (u32, u32), blksize: u32) -> FileAttr {
    let (kind, perm, nlink) = match ino {
        INodeNo::ROOT => (FileType::Directory, 0o555, 2),
        _ => (FileType::RegularFile, 0o444, 1),
    };
    FileAttr {
        ino,
        size,
        blocks: size.div_ceil(512),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind,
        perm,
        nlink,
        uid: owner.0,
        gid: owner.1,
        rdev: 0,
        blksize,
        flags: 0,
    }
}

/// Threads that answer the kernel: one that merges holds up no other.
const THREADS: usize = 4;

/// Where the bytes of the file come from, and who reads it.
pub trait Source: Send + Sync {
    /// Bytes of the file.
    fn bytes(&self) -> u64;
    /// Its name.
    fn name(&self) -> &str;
    /// A new reader.
    fn open(&self) -> u64;
    /// A reader is done.
    fn close(&self, reader: u64);
    /// At most `len` bytes at `offset`, fewer only at the end of the file.
    fn read(&self, reader: u64, offset: u64, len: usize) -> Result<Vec<u8>, Box<dyn std::error::Error>>;
    /// Takes the memory of readers that have not read for a while.
    fn tidy(&self) {}
}

/// A file, or files by their keys, that are mounted; dropped, they are unmounted.
pub struct Mounted {
    session: BackgroundSession,
    /// Of one file.
    source: Option<Arc<dyn Source>>,
    path: PathBuf,
}

impl Mounted {
    /// Shows `view` as the one file in the directory `at`.
    pub fn new(view: Arc<dyn View>, at: &Path, shown: &Shown) -> Result<Mounted, MountError> {
        Self::of(Arc::new(Readers::new(view)), at, shown)
    }

    /// Shows `source` as the one file in the directory `at`.
    pub fn of(source: Arc<dyn Source>, at: &Path, shown: &Shown) -> Result<Mounted, MountError> {
        let file = OneFile::new(Arc::clone(&source), shown);
        Ok(Mounted { source: Some(source), ..mount(file, at, shown)? })
    }

    /// Shows the keys of `directory` as files in the directory `at`.
    pub fn keys(directory: Arc<Directory>, at: &Path, shown: &Shown) -> Result<Mounted, MountError> {
        mount(KeyFiles::new(directory, shown), at, shown)
    }

    /// Whether somebody else has unmounted it.
    pub fn has_ended(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Takes the memory of readers that have not read for a while; to be called now and then.
    pub fn tidy(&self) {
        if let Some(source) = &self.source {
            source.tidy();
        }
    }

    /// Unmounts it, or takes note that it is. Whoever still reads loses it.
    pub fn end(self) -> Result<(), MountError> {
        let Mounted { session, path, .. } = self;
        if session.guard.is_finished() {
            return session.join().map_err(|source| MountError::Ended { path, source });
        }
        match session.umount_and_join() {
            Ok(()) => Ok(()),
            Err(source) if detach(&path) => {
                drop(source);
                Ok(())
            }
            Err(source) => Err(MountError::Ended { path, source }),
        }
    }
}

fn mount<F: Filesystem + Send + Sync + 'static>(
    files: F,
    at: &Path,
    shown: &Shown,
) -> Result<Mounted, MountError> {
    let path = at.to_path_buf();
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::RO, MountOption::FSName("ascot".into()), MountOption::Subtype("ascot".into())];
    config.mount_options.push(MountOption::DefaultPermissions);
    config.acl = if shown.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    match fuser::spawn_mount(files, at, &config) {
        Ok(session) => Ok(Mounted { session, source: None, path }),
        Err(source) => Err(MountError::Refused { path, source }),
    }
}

/// Takes a mount away from its place though somebody reads; the rest of it goes with this process. Users
/// other than root may do that by fusermount3 alone.
fn detach(path: &Path) -> bool {
    let by_itself = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).is_ok();
    by_itself
        || std::process::Command::new("fusermount3")
            .args(["-u", "-z", "--"])
            .arg(path)
            .status()
            .is_ok_and(|status| status.success())
}
