//! The run store: a job's directory of spills, its manifest, and the leftovers of jobs that died.
//!
//! ```text
//!   TEMP/ascot-<id>/            mode 0700
//!     lock                      held by flock while the job lives
//!     manifest.json             request, runs, progress of the job; replaced atomically
//!     run-000001.run ...        spills (docs/formats/run.md)
//!   TEMP/.ascot-<id>.tmp/       the same before it holds its first manifest, and while it is removed
//!   OTHER/ascot-<id>/           the same on further volumes, without a manifest; the lock of a job that
//!                               can be resumed holds the path of the first, TEMP/ascot-<id>
//! ```
//!
//! Invariants: only files with these names are ever removed, one by one, the lock last; a directory
//! whose lock is held is never touched; the manifest names only files that are complete and durable. A job
//! that is killed before it locks its directory, or after it unlocks it, leaves an empty directory without an owner.
//!
//! When a job ends, [`Keeping`] decides whether the directory stays. Only a job whose directory has a manifest is kept,
//! so that every kept job can be resumed:
//!
//! ```text
//!   begun                     an error, a stop    everything is removed
//!   begun to be kept          a stop              the job's directory and its unfinished output stay
//!     past its first pass     an error, a stop    both stay
//!   resumed, or kept for good an error, a stop    both stay
//!   done                                          everything is removed
//! ```

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ascot_io::{Action, Disk, During, IoError, O_NOFOLLOW, directory_of, emergency, random_bytes};
use ascot_model::units;
use ascot_record::hex::to_hex;
use manifest::OLDEST_VERSION;
pub use manifest::{
    Finished, HeldInput, LargePart, MANIFEST_VERSION, Manifest, MergingGroup, OpenPart, OpenSpill,
    OutputState, SplitNode, SplitState, StoredMethod, StoredView,
};

use crate::api::{Cancel, Output, Result, SortError};
use crate::output::FileIdentity;
use crate::runs::view_index::VIEW_INDEX;
pub(crate) use manifest::check_line;

mod manifest;

pub(crate) const MANIFEST: &str = "manifest.json";
const MANIFEST_NEW: &str = "manifest.json.new";
/// The manifest of a view, which a job's directory becomes.
pub const VIEW_MANIFEST: &str = "view.json";
/// The file whose lock a job holds.
pub const LOCK: &str = "lock";
pub(crate) const PREFIX: &str = "ascot-";
/// Suffix of the name of a directory that is being made or removed; the name begins with a dot.
pub(crate) const UNSEEN: &str = ".tmp";

/// A job's directories.
pub struct JobDir {
    dirs: Vec<PathBuf>,
    locks: Vec<File>,
    disk: Disk,
    kept: bool,
    /// Decides whether the directories are left for a resume; none: they are removed.
    keeping: Option<Keeping>,
    /// The unfinished outputs that are kept or removed with them.
    temporaries: BTreeSet<PathBuf>,
    /// Final names of the directories made by this process: they are removed if it must exit at once.
    registered: Vec<PathBuf>,
    /// Next run number when the manifest was last stored: the names of earlier runs are durable.
    synced: AtomicU64,
}

impl JobDir {
    /// Makes a directory with a random name in each of `temps`. With a `manifest`, the first contains it
    /// before it appears under its name, so every job found can be resumed.
    pub fn create(disk: &Disk, temps: &[PathBuf], manifest: Option<&mut Manifest>) -> Result<Self> {
        let id = random_bytes::<6>().during(Action::Create, &temps[0])?;
        let name = format!("{PREFIX}{}", to_hex(&id));
        let named = temps.iter().map(|temp| temp.join(&name));
        // A job can be resumed from any working directory.
        let dirs: Vec<PathBuf> = if manifest.is_some() {
            named.map(|dir| std::path::absolute(&dir).unwrap_or(dir)).collect()
        } else {
            named.collect()
        };
        let mut this = JobDir::at(disk, Vec::new(), Vec::new());
        this.registered.clone_from(&dirs);
        for dir in &dirs {
            register(dir);
        }
        let make =
            |dir: &Path| DirBuilder::new().mode(0o700).create(dir).map_err(|error| cannot_make(dir, error));
        for (at, dir) in dirs.iter().enumerate() {
            let unseen = unseen(dir);
            let now = if at == 0 && manifest.is_some() { &unseen } else { dir };
            make(now)?;
            this.dirs.push(now.clone());
            let held = match new_lock(now) {
                // An `ascot clean` removed the empty directory between the two steps.
                Err(_) if !now.exists() => make(now).and_then(|()| new_lock(now)),
                held => held,
            };
            let mut held = held?.ok_or(SortError::Internal("a new directory is locked"))?;
            if let (true, true, Some(first)) = (at > 0, manifest.is_some(), dirs.first()) {
                held.write_all(first.as_os_str().as_bytes()).during(Action::Write, &now.join(LOCK))?;
            }
            this.locks.push(held);
        }
        if let (Some(manifest), Some(first)) = (manifest, dirs.first()) {
            manifest.dirs.clone_from(&dirs);
            // The first manifest is preallocated too: the second replaces it and frees its space for the third.
            keep_room(&this.path().join(MANIFEST_NEW), 0);
            this.store(manifest)?;
            disk.rename(&this.dirs[0], first)?;
            this.dirs[0].clone_from(first);
            // A job that can be resumed can be found after a power failure.
            dirs.iter().try_for_each(|dir| disk.sync_dir(directory_of(dir)))?;
        }
        Ok(this)
    }

    fn at(disk: &Disk, dirs: Vec<PathBuf>, locks: Vec<File>) -> Self {
        let disk = disk.clone();
        let synced = AtomicU64::new(0);
        JobDir {
            dirs,
            locks,
            disk,
            kept: false,
            keeping: None,
            temporaries: BTreeSet::new(),
            registered: Vec::new(),
            synced,
        }
    }

    /// Takes over the directories of a job that died.
    pub fn reopen(disk: &Disk, dirs: &[PathBuf]) -> Result<Self> {
        let mut locks = Vec::new();
        for dir in dirs {
            let Some(file) = lock(dir)? else {
                let why = "the job is still running".to_string();
                return Err(SortError::CannotResume { dir: dir.clone(), kind: ErrorKind::ResourceBusy, why });
            };
            locks.push(file);
        }
        Ok(JobDir::at(disk, dirs.to_vec(), locks))
    }

    /// From now on `keeping` decides whether the directory stays when this is dropped.
    pub fn keep_as(&mut self, keeping: &Keeping) {
        self.kept = false;
        self.keeping = Some(keeping.clone());
    }

    /// The unfinished output `temporary` is kept or removed with the directory.
    pub fn adopt(&mut self, temporary: &Path) {
        if self.temporaries.insert(temporary.to_path_buf()) && !self.registered.is_empty() {
            emergency::register_file(temporary);
        }
    }

    /// The first directory, which holds the manifest.
    pub fn path(&self) -> &Path {
        &self.dirs[0]
    }

    /// All directories.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Stores the manifest: it is replaced atomically, after the names of all files that it lists are durable.
    pub fn store(&self, manifest: &Manifest) -> Result<()> {
        let new = self.path().join(MANIFEST_NEW);
        let path = self.path().join(MANIFEST);
        if self.synced.swap(manifest.next_number, Ordering::Relaxed) != manifest.next_number {
            self.dirs.iter().try_for_each(|dir| self.disk.sync_dir(dir))?;
        }
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).custom_flags(O_NOFOLLOW);
        let file = options.open(&new).during(Action::Write, &new)?;
        if file.metadata().is_ok_and(|stat| stat.len() > 0) {
            // An incomplete manifest of a job that was killed.
            file.set_len(0).during(Action::Write, &new)?;
        }
        let bytes = manifest.write_to(&file).during(Action::Write, &new)?;
        file.sync_data().during(Action::Write, &new)?;
        self.disk.rename(&new, &path)?;
        self.disk.sync_dir(self.path())?;
        keep_room(&new, 2 * bytes);
        for written in [&new, &path] {
            // Only accounting: an error does not matter.
            let _ = self.disk.note_written(written);
        }
        Ok(())
    }

    /// Removes runs that the manifest does not name, and their key files: the job died while writing them.
    pub fn remove_unnamed(&self, manifest: &Manifest) -> Result<()> {
        let named = |path: &Path| manifest.spills().any(|run| run.path == path);
        for dir in &self.dirs {
            for entry in fs::read_dir(dir).during(Action::Read, dir)? {
                let path = entry.during(Action::Read, dir)?.path();
                let of_run = path.extension().is_some_and(|end| end == "run" || end == "keys");
                let unnamed = of_run && !named(&path.with_extension("run"));
                let of_view =
                    [VIEW_MANIFEST, VIEW_INDEX].iter().any(|name| path.file_name() == Some(name.as_ref()));
                if unnamed || of_view {
                    self.disk.remove_file(&path)?;
                }
            }
        }
        Ok(())
    }

    /// The output of a job that died after it had put it in place, when only the cleanup was left; else none.
    pub fn was_done(manifest: &Manifest) -> Option<Finished> {
        let finished = manifest.finished.clone()?;
        let Output::Path(path) = &manifest.request.output else { return None };
        let unnamed = manifest.temporary.as_ref().is_some_and(|path| path.exists());
        let named = finished.file.is_some() && FileIdentity::from_path(path) == finished.file;
        (!unnamed && named).then_some(finished)
    }

    /// Removes the job's own files from its directory, which now has a view's name: a view belongs to no job. A kill
    /// at this moment leaves files that do no harm.
    pub fn remove_own(disk: &Disk, dir: &Path) {
        for name in [MANIFEST, MANIFEST_NEW, LOCK] {
            let path = dir.join(name);
            if path.exists() {
                let _ = disk.remove_file(&path);
            }
        }
    }

    /// Leaves everything on disk when dropped, whatever `keeping` decides.
    pub fn keep(&mut self) {
        self.kept = true;
        self.forget();
    }

    /// Leaves everything on disk if the process must exit at once.
    pub fn stay(&mut self) {
        self.forget();
        self.registered.clear();
    }

    /// Undoes [`JobDir::keep`]: `keeping` decides again when this is dropped.
    pub fn release(&mut self) {
        self.kept = false;
    }

    /// Leaves the files that a resume needs, and removes the others.
    fn leave(&self, keeping: &Keeping) {
        if let Ok(manifest) = load(self.path()) {
            // The resumed job removes any that remain.
            let _ = self.remove_unnamed(&manifest);
        }
        keeping.kept_in(self.path());
    }

    fn remove(&self) {
        let resumable = self.keeping.is_some();
        for dir in &self.dirs {
            // If the removal is killed midway, the job does not look like one that can be resumed.
            let unseen = unseen(dir);
            let renamed = fs::rename(dir, &unseen).is_ok();
            let now = if renamed { &unseen } else { dir };
            if renamed && resumable {
                // Nor after a power failure; if this fails, a resume finds that files are missing.
                let _ = self.disk.sync_dir(directory_of(dir));
            }
            if !remove_ours(now, |path| self.disk.remove_name(path)) {
                // It holds foreign files: they stay where their owner put them.
                let _ = fs::rename(now, dir);
            }
        }
        let me = rustix::process::geteuid().as_raw();
        let ours =
            |path: &&PathBuf| fs::symlink_metadata(path).is_ok_and(|it| it.is_file() && it.uid() == me);
        for temporary in self.temporaries.iter().filter(ours) {
            // If this fails, the leftover is found by its name.
            let _ = fs::remove_file(temporary);
        }
    }

    /// Removes the registrations: nothing is removed any more if the process must exit at once.
    fn forget(&self) {
        self.registered.iter().for_each(|dir| forget(dir));
        self.temporaries.iter().for_each(|temporary| emergency::forget(temporary));
    }
}

impl Drop for JobDir {
    fn drop(&mut self) {
        match &self.keeping {
            _ if self.kept => {}
            Some(keeping) if keeping.keeps() => self.leave(keeping),
            _ => self.remove(),
        }
        self.forget();
        self.locks.clear();
    }
}

/// Reads the manifest of a job.
pub fn load(dir: &Path) -> Result<Manifest> {
    let cannot_for = |kind: ErrorKind, why: &str| SortError::CannotResume {
        dir: dir.to_path_buf(),
        kind,
        why: why.to_string(),
    };
    let cannot = |why: &str| cannot_for(ErrorKind::InvalidData, why);
    let text = match fs::read(dir.join(MANIFEST)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if fs::symlink_metadata(dir).is_err() {
                return Err(cannot_for(
                    ErrorKind::NotFound,
                    "there is no such directory\n  \
                     a job that is done, or was stopped, has removed its own; 'ascot clean --dry-run' lists what can \
                     go on",
                ));
            }
            return Err(cannot(
                "there is no manifest in it\n  \
                 the job read a pipe, wrote to standard output, or merged or split in one pass, and such jobs cannot \
                 go on; or it died\n  \
                 before it had anything to keep; or this is not the job's first directory\n  \
                 'ascot clean' lists what can go on, and removes what cannot",
            ));
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(cannot(
                "it is a file, and a job is kept as a directory\n  'ascot clean --dry-run' lists what can go on",
            ));
        }
        Err(error) => return Err(IoError::from_os(Action::Read, &dir.join(MANIFEST), 0, error).into()),
    };
    let clean = format!("ascot clean {}  removes what the job left", units::in_shell(dir));
    let damaged = || cannot(&format!("its manifest is damaged\n  {clean}; then sort anew"));
    let manifest = Manifest::from_bytes(&text).ok_or_else(damaged)?;
    if !(OLDEST_VERSION..=MANIFEST_VERSION).contains(&manifest.version) {
        return Err(cannot(&format!(
            "its manifest is of another version of ascot\n  go on with that; or {clean}"
        )));
    }
    Ok(manifest)
}

/// Takes the lock of a job's directory; none if another process holds it.
fn lock(dir: &Path) -> Result<Option<File>> {
    lock_by(OpenOptions::new().write(true), dir)
}

/// The error of a directory that a job cannot make. The user knows the directory that it belongs to, not its own name.
fn cannot_make(dir: &Path, error: io::Error) -> SortError {
    let parent = directory_of(dir);
    if error.kind() == io::ErrorKind::NotFound {
        return SortError::Request(format!(
            "there is no directory {} for spills\n  make it (mkdir -p), or name another one (--temp DIR)",
            parent.display()
        ));
    }
    if error.kind() == io::ErrorKind::NotADirectory {
        return SortError::Request(format!(
            "{} is a file, and spills need a directory\n  name one (--temp DIR)",
            parent.display()
        ));
    }
    IoError::from_os(Action::Create, dir, 0, error).into()
}

/// Creates the lock of a job's new directory and takes it.
fn new_lock(dir: &Path) -> Result<Option<File>> {
    lock_by(OpenOptions::new().write(true).create_new(true), dir)
}

fn lock_by(options: &mut OpenOptions, dir: &Path) -> Result<Option<File>> {
    let path = dir.join(LOCK);
    let failed = |error| IoError::from_os(Action::Create, &path, 0, error);
    let file = options.custom_flags(O_NOFOLLOW).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(failed(error).into()),
    }
}

/// Takes a dead job's directory by its lock; the inner option is empty for an empty directory, which has none. None
/// while the job lives.
pub(crate) fn hold_dead(dir: &Path) -> Option<Option<File>> {
    if is_empty(dir) { Some(None) } else { lock(dir).ok()?.map(Some) }
}

/// Registers a job's directory, under both of its names, for removal if the process must exit at once.
fn register(dir: &Path) {
    for name in [dir, &unseen(dir)] {
        emergency::register_directory(name, |name| std::str::from_utf8(name).is_ok_and(is_ours));
    }
}

fn forget(dir: &Path) {
    for name in [dir, &unseen(dir)] {
        emergency::forget(name);
    }
}

/// Removes our own files from a job's directory by `remove`, and the directory if nothing else is in it.
/// Returns false if the directory could not be removed, as when it holds foreign files.
pub(crate) fn remove_ours(dir: &Path, remove: impl Fn(&Path) -> io::Result<()>) -> bool {
    if let Ok(entries) = fs::read_dir(dir) {
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != LOCK && is_ours(&name) {
                // A file that cannot be removed now is found by the next clean, by the lock.
                let _ = remove(&entry.path());
            }
        }
    }
    let _ = fs::remove_file(dir.join(LOCK));
    fs::remove_dir(dir).is_ok()
}

/// Preallocates space for the next manifest while the volume has some: a volume filled by spills, or by other
/// programs, must not end a job that could continue on another volume.
fn keep_room(new: &Path, bytes: u64) {
    const MIN_BYTES: u64 = 256 << 10;
    let Ok(file) = OpenOptions::new().write(true).create_new(true).custom_flags(O_NOFOLLOW).open(new) else {
        return;
    };
    // If this fails, the next manifest finds space or reports that there is none.
    let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes.max(MIN_BYTES));
}

/// The hidden name of a directory.
fn unseen(dir: &Path) -> PathBuf {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    dir.with_file_name(format!(".{name}{UNSEEN}"))
}

fn is_ours(name: &str) -> bool {
    let is_run = |stem: &str| !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit());
    name == LOCK
        || name == MANIFEST
        || name == MANIFEST_NEW
        || name == VIEW_MANIFEST
        || name == VIEW_INDEX
        || name
            .strip_prefix("run-")
            .and_then(|rest| rest.split_once('.'))
            .is_some_and(|(stem, end)| ["run", "keys", "blocks"].contains(&end) && is_run(stem))
}

/// Whether a directory is empty: its job died before it locked it, or after it unlocked it.
pub(crate) fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

const IF_STOPPED: u8 = 0;
const ALWAYS: u8 = 1;
const NEVER: u8 = 2;

/// Decides whether a job's state is kept; clones belong to the same job.
#[derive(Clone, Debug)]
pub struct Keeping {
    cancel: Cancel,
    rule: Arc<AtomicU8>,
    kept_in: Arc<OnceLock<PathBuf>>,
}

impl Keeping {
    /// For a job that has begun. Its state is kept if `cancel` stops it and asks for that.
    pub fn new(cancel: &Cancel) -> Self {
        Keeping { cancel: cancel.clone(), rule: Arc::new(AtomicU8::new(IF_STOPPED)), kept_in: Arc::default() }
    }

    /// From now on the state is kept however the job ends early.
    pub fn always(&self) {
        self.rule.store(ALWAYS, Ordering::Relaxed);
    }

    /// The job is done: its state is not kept.
    pub fn never(&self) {
        self.rule.store(NEVER, Ordering::Relaxed);
    }

    /// Whether a job that ends now is kept.
    pub fn keeps(&self) -> bool {
        match self.rule.load(Ordering::Relaxed) {
            ALWAYS => true,
            NEVER => false,
            _ => self.cancel.is_cancelled() && self.cancel.keeps(),
        }
    }

    /// Records that the job has been left in the directory `dir`.
    pub fn kept_in(&self, dir: &Path) {
        // The first directory of a job is dropped once.
        let _ = self.kept_in.set(dir.to_path_buf());
    }

    /// `error` with the command that resumes the job, if the job was kept.
    pub fn explain(&self, error: SortError) -> SortError {
        match self.kept_in.get() {
            None => error,
            Some(dir) => SortError::Kept { error: Box::new(error.without_remains()), dir: dir.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_kept_as_it_is_said() {
        let plain = Keeping::new(&Cancel::new());
        plain.cancel.cancel();
        assert!(!plain.keeps());
        let wished = Keeping::new(&Cancel::new().keeping(true));
        assert!(!wished.keeps(), "an error is no stop");
        wished.cancel.cancel();
        assert!(wished.keeps());
        wished.never();
        assert!(!wished.keeps(), "a job that is done, stopped at its very end");
        plain.always();
        assert!(plain.keeps());
    }

    #[test]
    fn an_error_of_a_kept_job_says_how_to_go_on() {
        let keeping = Keeping::new(&Cancel::new());
        assert!(!matches!(keeping.explain(SortError::Cancelled), SortError::Kept { .. }));
        keeping.kept_in(Path::new("/fast/ascot-1"));
        let told = keeping.explain(SortError::Cancelled).to_string();
        assert_eq!(told.lines().next(), Some("stopped"));
        assert!(told.contains("ascot sort --resume /fast/ascot-1"), "{told}");
        let path = Path::new("/fast/ascot-1/0.run");
        let missing = IoError::from_os(Action::Open, path, 0, io::ErrorKind::NotFound.into());
        let damaged = IoError::BadIndex { path: path.into(), offset: 0, what: "its checksum is wrong" };
        for error in [missing, damaged] {
            let told = keeping.explain(error.into()).to_string();
            assert!(told.contains("cannot be resumed without this spill"), "{told}");
            assert!(told.contains("ascot clean /fast/ascot-1") && !told.contains("--resume"), "{told}");
        }
    }
}
