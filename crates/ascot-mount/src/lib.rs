//! Shows a view as an ordinary read-only file in a directory of its own, or an indexed directory as one file for each
//! key.
//!
//! ```text
//!   kernel ──▶ file     requests to a file system: names, sizes, bytes at an offset
//!              readers  a stream for each sequential reader; single small reads for all others
//!          ──▶ keys     the same for a file system whose names are keys: each lookup of a name is a query
//! ```
//!
//! Any error of reading is EIO for the reading program, and a log line that names the run; bytes that fail
//! verification are never returned.

mod file;
mod keys;
mod readers;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ascot_index::Directory;
use ascot_sort::view::View;
use fuser::{BackgroundSession, Config, FileAttr, FileType, Filesystem, INodeNo, MountOption, SessionACL};

use crate::file::OneFile;
use crate::keys::KeyFiles;
use crate::readers::Readers;

/// Receives log lines for the user.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The owner of the files that are shown.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// The presentation of a view.
#[derive(Clone)]
pub struct Shown {
    /// Modification time.
    pub modified: SystemTime,
    /// The owner of its files.
    pub owner: Owner,
    /// Whether users other than the mounting one may read it.
    pub allow_other: bool,
    /// Receives read errors.
    pub log: Log,
}

/// An error of mounting.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system refused the mount.
    #[error(
        "cannot mount at {}: {source}\n  the directory must exist and be yours, /dev/fuse must be there, and \
         fusermount3 (package fuse3) unless you are root",
        path.display()
    )]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The connection to the kernel broke.
    #[error("{}: the mount ended: {source}", path.display())]
    Ended {
        /// The mount point.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The attributes of a read-only file, or of the root directory.
fn attributes(ino: INodeNo, size: u64, modified: SystemTime, owner: Owner, blksize: u32) -> FileAttr {
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
        uid: owner.uid,
        gid: owner.gid,
        rdev: 0,
        blksize,
        flags: 0,
    }
}

/// Threads that answer the kernel: a merging one does not block the others.
const THREADS: usize = 4;

/// The bytes of a mounted file, and its readers.
pub trait Source: Send + Sync {
    /// Bytes of the file.
    fn bytes(&self) -> u64;
    /// Its name.
    fn name(&self) -> &str;
    /// Opens a reader; returns its number.
    fn open(&self) -> u64;
    /// Closes a reader.
    fn close(&self, reader: u64);
    /// At most `len` bytes at `offset`, fewer only at the end of the file.
    fn read(&self, reader: u64, offset: u64, len: usize) -> Result<Vec<u8>, Box<dyn std::error::Error>>;
    /// Takes back the memory of idle readers.
    fn tidy(&self) {}
}

/// A mounted file, or mounted files of keys; dropping it unmounts.
pub struct Mounted {
    session: BackgroundSession,
    /// The source of a single file.
    source: Option<Arc<dyn Source>>,
    path: PathBuf,
}

impl Mounted {
    /// Mounts `view` as the only file in the directory `at`.
    pub fn new(view: Arc<dyn View>, at: &Path, shown: &Shown) -> Result<Mounted, MountError> {
        Self::from_source(Arc::new(Readers::new(view)), at, shown)
    }

    /// Mounts `source` as the only file in the directory `at`.
    pub fn from_source(source: Arc<dyn Source>, at: &Path, shown: &Shown) -> Result<Mounted, MountError> {
        let file = OneFile::new(Arc::clone(&source), shown);
        Ok(Mounted { source: Some(source), ..mount(file, at, shown)? })
    }

    /// Mounts the keys of `directory` as files in the directory `at`.
    pub fn keys(directory: Arc<Directory>, at: &Path, shown: &Shown) -> Result<Mounted, MountError> {
        mount(KeyFiles::new(directory, shown), at, shown)
    }

    /// Whether another program has unmounted it.
    pub fn has_ended(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Takes back the memory of idle readers; call it periodically.
    pub fn tidy(&self) {
        if let Some(source) = &self.source {
            source.tidy();
        }
    }

    /// Unmounts it, or notes that it was unmounted. Programs that still read get errors.
    pub fn end(self) -> Result<(), MountError> {
        let Mounted { session, path, .. } = self;
        if session.guard.is_finished() {
            return match session.join() {
                // An unmount aborts the connection of a thread that has not been told of it.
                Err(source) if source.kind() == io::ErrorKind::ConnectionAborted && !is_mounted(&path) => {
                    Ok(())
                }
                Err(source) => Err(MountError::Ended { path, source }),
                Ok(()) => Ok(()),
            };
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

/// Whether something is mounted at `path`, or cannot be asked: the connection of a mount broke.
fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|stat| stat.dev()).ok();
    let here = device(path);
    here.is_none() || here != device(&path.join(".."))
}

/// Detaches a mount that is still in use; the rest of it ends with this process. Users other than root need
/// fusermount3 for this.
fn detach(path: &Path) -> bool {
    let by_itself = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).is_ok();
    by_itself
        || std::process::Command::new("fusermount3")
            .args(["-u", "-z", "--"])
            .arg(path)
            .status()
            .is_ok_and(|status| status.success())
}
