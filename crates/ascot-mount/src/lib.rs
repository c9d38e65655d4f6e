//! A view shown as an ordinary read-only file, in a directory of its own; an indexed directory shown as one file for each key.
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
use fuser::{BackgroundSession, Config, Filesystem, MountOption, SessionACL};

use crate::file::ViewFile;
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
    /// Where errors of reading are told.
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
        /// What the system says.
        source: io::Error,
    },
    /// The connection to the kernel broke.
    #[error("{}: the mount ended: {source}", path.display())]
    Ended {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Threads that answer the kernel: one that merges holds up no other.
const THREADS: usize = 4;

/// A view or an indexed directory that is mounted; dropped, it is unmounted.
pub struct Mounted {
    session: BackgroundSession,
    /// Of a view.
    readers: Option<Arc<Readers>>,
    path: PathBuf,
}

impl Mounted {
    /// Shows `view` as the one file in the directory `at`.
    pub fn new(view: Arc<dyn View>, at: &Path, shown: &Shown) -> Result<Mounted, MountError> {
        let readers = Arc::new(Readers::new(view));
        let file = ViewFile::new(Arc::clone(&readers), shown);
        Ok(Mounted { readers: Some(readers), ..mount(file, at, shown)? })
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
        if let Some(readers) = &self.readers {
            readers.tidy();
        }
    }

    /// Unmounts it, or takes note that it is.
    pub fn end(self) -> Result<(), MountError> {
        let Mounted { session, path, .. } = self;
        let ended = if session.guard.is_finished() { session.join() } else { session.umount_and_join() };
        ended.map_err(|source| MountError::Ended { path, source })
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
        Ok(session) => Ok(Mounted { session, readers: None, path }),
        Err(source) => Err(MountError::Refused { path, source }),
    }
}
