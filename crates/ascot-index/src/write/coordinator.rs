//! The coordinator makes a directory and commits its epochs. One of the writing processes is the coordinator: rank 0
//! of a job.
//!
//! ```text
//!   create ─▶ all writers open their logs ─▶ records ─▶ all end the epoch (durable) ─▶ commit ─▶ ... ─▶ close
//! ```
//!
//! Invariant: an epoch is committed only after every writer has made it durable; the caller ensures this.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ascot_io::{Action, Disk, During, IoError, O_NOFOLLOW, emergency, random_bytes};

use crate::error::{IndexError, Result};
use crate::format::layout::{Layout, PartitionBy};
use crate::format::manifest::Manifest;
use crate::format::names::{LOCK, Log, MANIFEST};
use crate::format::shape::Shape;
use crate::write::logs::lock_file;
use ascot_record::hex::to_hex;

/// The process that commits epochs of a directory; its lock excludes all others while it lives.
pub struct Coordinator {
    disk: Disk,
    directory: PathBuf,
    manifest: Manifest,
    /// Set until the first epoch is complete, if this process made the directory.
    registered: Option<Registered>,
    _lock: File,
}

/// A new directory, to be removed if the process must end at once: it holds no complete epoch yet.
struct Registered(PathBuf);

impl Registered {
    fn new(directory: &Path) -> Self {
        emergency::register_directory(directory, is_ours);
        Registered(directory.to_path_buf())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        emergency::forget(&self.0);
    }
}

impl Coordinator {
    /// Makes the directory, or takes one without epochs: an empty one, or one whose writer was stopped before its
    /// first epoch was complete.
    ///
    /// # Errors
    /// [`IndexError::Exists`] if the path has other contents; an invalid layout; errors of the volume.
    pub fn create(disk: &Disk, directory: &Path, layout: Layout) -> Result<Self> {
        Self::create_numbered(disk, directory, layout, random_number(directory)?)
    }

    /// Makes the directory with the number `id`.
    pub(crate) fn create_numbered(disk: &Disk, directory: &Path, layout: Layout, id: u64) -> Result<Self> {
        layout.check()?;
        let made = match std::fs::create_dir(directory) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists && holds_nothing(directory) => false,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(exists(directory)),
            Err(error) => return Err(IoError::from_os(Action::Create, directory, 0, error).into()),
        };
        let lock = lock(directory, true)?;
        // Read again under the lock: no other process can change it now.
        if !holds_nothing(directory) {
            return Err(exists_already(directory));
        }
        let registered = made.then(|| Registered::new(directory));
        remove_remains(directory);
        let manifest = Manifest::new(layout, id);
        manifest.write(disk, directory)?;
        if let Some(parent) = directory.parent() {
            disk.sync_dir(parent)?;
        }
        let disk = disk.clone();
        let directory = directory.to_path_buf();
        Ok(Self { disk, directory, manifest, registered, _lock: lock })
    }

    /// Continues after the last complete epoch of a directory.
    ///
    /// # Errors
    /// [`IndexError::Locked`] if another process writes it; errors of the manifest.
    pub fn append(disk: &Disk, directory: &Path) -> Result<Self> {
        Manifest::read(directory)?;
        let lock = lock(directory, false)?;
        // Read again under the lock: no other process can change it now.
        let mut manifest = Manifest::read(directory)?;
        manifest.closed = false;
        let disk = disk.clone();
        let directory = directory.to_path_buf();
        Ok(Self { disk, directory, manifest, registered: None, _lock: lock })
    }

    /// The manifest: the layout and the number of complete epochs.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The directory's path.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Completes the epoch that every writer has made durable. `boundaries` are the partition boundaries of its keys,
    /// if partitions are by range.
    pub fn commit(&mut self, boundaries: &[Vec<u8>]) -> Result<()> {
        let mut next = self.manifest.clone();
        next.epochs += 1;
        if next.layout.partition_by == PartitionBy::Range {
            next.boundaries.push(boundaries.iter().map(|key| to_hex(key)).collect());
        }
        // A complete epoch must be kept from here on.
        self.registered = None;
        next.write(&self.disk, &self.directory)?;
        self.manifest = next;
        Ok(())
    }

    /// Keeps only the first `epochs` epochs; returns the number of dropped ones. Data of dropped epochs becomes the
    /// tail of the logs.
    ///
    /// # Errors
    /// Fewer epochs than that; errors of the volume; no random number available.
    pub fn roll_back(&mut self, epochs: u64) -> Result<u64> {
        let mut next = self.manifest.clone();
        let dropped = next.roll_back(epochs)?;
        if dropped > 0 {
            // Readers of the dropped epochs must notice the change, even if as many epochs are written again.
            next.history = random_number(&self.directory)?;
            next.write(&self.disk, &self.directory)?;
            self.manifest = next;
        }
        Ok(dropped)
    }

    /// Sets the numbers of partitions and writers of later epochs.
    pub fn reshape(&mut self, shape: Shape) {
        self.manifest.reshape(shape);
    }

    /// Sets whether the next manifest marks the directory as closed.
    pub(crate) fn set_closed(&mut self, closed: bool) {
        self.manifest.closed = closed;
    }

    /// Marks the directory as closed.
    pub fn close(mut self) -> Result<Manifest> {
        self.manifest.closed = true;
        self.manifest.write(&self.disk, &self.directory)?;
        Ok(self.manifest)
    }
}

fn random_number(directory: &Path) -> Result<u64> {
    Ok(u64::from_le_bytes(random_bytes::<8>().during(Action::Create, directory)?))
}

/// Whether a name is that of a temporary manifest.
fn is_draft(name: &[u8]) -> bool {
    let rest = name.strip_prefix(b".").and_then(|name| name.strip_prefix(MANIFEST.as_bytes()));
    rest.is_some_and(|rest| rest.ends_with(b".tmp"))
}

/// Whether a directory has no epoch and no foreign files: it is empty, or its writer was stopped before the first
/// epoch was complete.
fn holds_nothing(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    let names: Vec<Vec<u8>> = entries.filter_map(|entry| Some(entry.ok()?.file_name().into_vec())).collect();
    let begun = names.iter().any(|name| name == MANIFEST.as_bytes());
    let unread = begun && Manifest::read(directory).map_or(true, |manifest| manifest.epochs > 0);
    !unread && names.iter().all(|name| is_draft(name) || name == LOCK.as_bytes() || (begun && is_ours(name)))
}

/// Whether a name is one of a directory's files. It allocates nothing, because a process that must end at once asks.
fn is_ours(name: &[u8]) -> bool {
    let is_log =
        |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| Log::from_file_name(name).is_some());
    is_draft(name) || is_log(name) || [MANIFEST, LOCK].iter().any(|known| known.as_bytes() == name)
}

/// Removes the files of a writer that was stopped before its first epoch was complete; the manifest is replaced later.
fn remove_remains(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if is_ours(name.as_bytes()) && name != MANIFEST && name != LOCK {
            // A file that cannot be removed does no harm.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Removes a directory without a complete epoch, whose writing failed: only its own files, and the directory itself
/// only if it was `made` by the writer and has no others.
pub fn discard(directory: &Path, made: bool) {
    if Manifest::read(directory).is_ok() {
        remove_remains(directory);
        let _ = std::fs::remove_file(directory.join(MANIFEST));
    }
    let _ = std::fs::remove_file(directory.join(LOCK));
    if made {
        let _ = std::fs::remove_dir(directory);
    }
}

fn exists(directory: &Path) -> IndexError {
    // A directory that is being written gives another error than a closed one.
    match lock(directory, false) {
        Err(error @ IndexError::Locked { .. }) => error,
        _ => exists_already(directory),
    }
}

fn exists_already(directory: &Path) -> IndexError {
    IndexError::Exists { path: directory.to_path_buf(), indexed: directory.join(MANIFEST).exists() }
}

/// Locks a directory for writing; creates the lock file only if `made` and the directory is empty.
fn lock(directory: &Path, made: bool) -> Result<File> {
    let path = directory.join(LOCK);
    let mut options = File::options();
    options.read(true).write(true);
    // A file in a directory that is not ours is not touched.
    let is_new = made && std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none());
    let opened = options.create(is_new).custom_flags(O_NOFOLLOW).open(&path);
    let file = opened.during(Action::Open, &path)?;
    lock_file(&file, &path)?;
    Ok(file)
}
