//! The run store: a job's directory of spills, its manifest, and what is left of jobs that died.
//!
//! ```text
//!   TEMP/ascot-<id>/            mode 0700
//!     lock                      held by flock while the job lives
//!     manifest.json             request, runs, how far the job has come; replaced atomically
//!     run-000001.run ...        spills (docs/formats/run.md)
//!   TEMP/.ascot-<id>.tmp/       the same before its first manifest is in it, and while it is removed
//!   OTHER/ascot-<id>/           the same on further volumes, without a manifest; the lock of a job that
//!                               can go on holds the path of the first, TEMP/ascot-<id>
//! ```
//!
//! Invariants: only files with these names are ever removed, one by one, the lock last; a directory
//! whose lock is held is never touched; the manifest names only files that are complete and durable. A job
//! that is killed before it locks its directory, or after it unlocks it, leaves an empty directory without an owner.
//!
//! When a job ends, [`Keeping`] decides what becomes of the directory. Only a job whose directory has a manifest is kept,
//! so that every kept job can be resumed:
//!
//! ```text
//!   begun                     an error, a stop    everything is removed
//!   begun to be kept          a stop              the job's directory and its unfinished output stay
//!     past its first pass     an error, a stop    both stay
//!   resumed, or kept for good an error, a stop    both stay
//!   done                                          everything is removed
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ascot_io::{Action, Disk, IoError, O_NOFOLLOW, emergency};
use ascot_model::units;
use manifest::OLDEST_VERSION;
pub use manifest::{
    FileIdentity, Finished, LargePart, MANIFEST_VERSION, Manifest, MergingGroup, OpenPart, OpenSpill,
    OutputState, StoredMethod, StoredView,
};

use crate::api::{Cancel, Output, SortError};
pub(crate) use manifest::check_line;

mod manifest;

pub(crate) const MANIFEST: &str = "manifest.json";
const MANIFEST_NEW: &str = "manifest.json.new";
/// The manifest of a view, which a job's directory becomes.
pub const VIEW_MANIFEST: &str = "view.json";
/// The file whose lock a job holds.
pub const LOCK: &str = "lock";
pub(crate) const PREFIX: &str = "ascot-";
/// Ends the name of a directory being made or removed; it begins with a dot.
pub(crate) const UNSEEN: &str = ".tmp";

/// A job's directories.
pub struct JobDir {
    dirs: Vec<PathBuf>,
    locks: Vec<File>,
    disk: Disk,
    kept: bool,
    /// Says whether it is left where it is, for a job that can go on.
    keeping: Option<Keeping>,
    /// The unfinished output that goes with it.
    temporary: Option<PathBuf>,
    /// The directories by their final names, where this process made them: they go where it must end at once.
    registered: Vec<PathBuf>,
    /// Number of the next run when the manifest was stored last: names up to there are durable.
    synced: AtomicU64,
}

impl JobDir {
    /// Makes a directory with a random name in each of `temps`. With a `manifest`, the first has it
    /// from the moment it can be seen under its name, so that every job found can be continued.
    pub fn create(
        disk: &Disk,
        temps: &[PathBuf],
        manifest: Option<&mut Manifest>,
    ) -> Result<Self, SortError> {
        let name = format!("{PREFIX}{}", random_id());
        let named = temps.iter().map(|temp| temp.join(&name));
        // A job goes on from any working directory.
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
        let make = |dir: &Path| {
            let failed = |error| IoError::from_os(Action::Create, dir, 0, error);
            DirBuilder::new().mode(0o700).create(dir).map_err(failed)
        };
        for (at, dir) in dirs.iter().enumerate() {
            let unseen = unseen(dir);
            let now = if at == 0 && manifest.is_some() { &unseen } else { dir };
            make(now)?;
            this.dirs.push(now.clone());
            let held = match new_lock(now) {
                // An empty directory is nobody's: a clean came between the two steps.
                Err(_) if !now.exists() => make(now).map_err(SortError::from).and_then(|()| new_lock(now)),
                held => held,
            };
            let mut held = held?.ok_or(SortError::Internal("a new directory is locked"))?;
            if let (true, true, Some(first)) = (at > 0, manifest.is_some(), dirs.first()) {
                let failed = |error| IoError::from_os(Action::Write, &now.join(LOCK), 0, error);
                held.write_all(first.as_os_str().as_bytes()).map_err(failed)?;
            }
            this.locks.push(held);
        }
        if let (Some(manifest), Some(first)) = (manifest, dirs.first()) {
            manifest.dirs.clone_from(&dirs);
            // The first one has room to spare too: what it leaves is there for the third.
            keep_room(&this.path().join(MANIFEST_NEW), 0);
            this.store(manifest)?;
            disk.rename(&this.dirs[0], first)?;
            this.dirs[0].clone_from(first);
            // A job that can go on after a power failure is found after one, too.
            dirs.iter().try_for_each(|dir| disk.sync_dir(parent_of(dir)))?;
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
            temporary: None,
            registered: Vec::new(),
            synced,
        }
    }

    /// Takes over the directories of a job that died.
    pub fn reopen(disk: &Disk, dirs: &[PathBuf]) -> Result<Self, SortError> {
        let mut locks = Vec::new();
        for dir in dirs {
            let Some(file) = lock(dir)? else {
                let why = "the job is still running".to_string();
                return Err(SortError::CannotResume { dir: dir.clone(), why });
            };
            locks.push(file);
        }
        Ok(JobDir::at(disk, dirs.to_vec(), locks))
    }

    /// From here on `keeping` says what becomes of the directory when it is dropped.
    pub fn keep_as(&mut self, keeping: &Keeping) {
        (self.kept, self.keeping) = (false, Some(keeping.clone()));
    }

    /// The unfinished output `temporary` stays or goes with the directory.
    pub fn adopt(&mut self, temporary: &Path) {
        if !self.registered.is_empty() {
            emergency::register_file(temporary);
        }
        self.temporary = Some(temporary.to_path_buf());
    }

    /// The first directory, which holds the manifest.
    pub fn path(&self) -> &Path {
        &self.dirs[0]
    }

    /// All directories.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Stores the manifest: it is replaced whole or not at all, after the names of all files that it names are
    /// durable.
    pub fn store(&self, manifest: &Manifest) -> Result<(), SortError> {
        let new = self.path().join(MANIFEST_NEW);
        let path = self.path().join(MANIFEST);
        let failed = |error| IoError::from_os(Action::Write, &new, 0, error);
        if self.synced.swap(manifest.next_number, Ordering::Relaxed) != manifest.next_number {
            self.dirs.iter().try_for_each(|dir| self.disk.sync_dir(dir))?;
        }
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).custom_flags(O_NOFOLLOW);
        let file = options.open(&new).map_err(failed)?;
        if file.metadata().is_ok_and(|stat| stat.len() > 0) {
            // Half a manifest of a job that was killed.
            file.set_len(0).map_err(failed)?;
        }
        let bytes = manifest.write_to(&file).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        self.disk.rename(&new, &path)?;
        self.disk.sync_dir(self.path())?;
        keep_room(&new, 2 * bytes);
        for written in [&new, &path] {
            // An account, not a check.
            let _ = self.disk.note_written(written);
        }
        Ok(())
    }

    /// Removes runs the manifest does not name, and what belongs to them: the job died while writing them.
    pub fn remove_unnamed(&self, manifest: &Manifest) -> Result<(), SortError> {
        let named = |path: &Path| manifest.spills().any(|run| run.path == path);
        for dir in &self.dirs {
            let failed = |error| IoError::from_os(Action::Read, dir, 0, error);
            for entry in fs::read_dir(dir).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                let of_run = path.extension().is_some_and(|end| end == "run" || end == "keys");
                let unnamed = of_run && !named(&path.with_extension("run"));
                if unnamed || path.file_name().is_some_and(|name| name == VIEW_MANIFEST) {
                    self.disk.remove_file(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the job had its output in place when it died: nothing but cleaning up was left.
    pub fn was_done(manifest: &Manifest) -> Option<Finished> {
        let finished = manifest.finished.clone()?;
        let Output::Path(path) = &manifest.request.output else { return None };
        let unnamed = manifest.temporary.as_ref().is_some_and(|path| path.exists());
        (!unnamed && FileIdentity::of(path) == Some(finished.file)).then_some(finished)
    }

    /// Removes what a job keeps for itself, from its directory that has another name now: a view is nobody's
    /// job. What is left over by a kill at this moment is in nobody's way.
    pub fn remove_own(disk: &Disk, dir: &Path) {
        for name in [MANIFEST, MANIFEST_NEW, LOCK] {
            let path = dir.join(name);
            if path.exists() {
                let _ = disk.remove_file(&path);
            }
        }
    }

    /// Leaves everything on disk when dropped, whatever `keeping` says.
    pub fn keep(&mut self) {
        self.kept = true;
        self.forget();
    }

    /// Leaves everything where the process must end at once.
    pub fn stay(&mut self) {
        self.forget();
        self.registered.clear();
    }

    /// Removes everything when dropped, after all.
    pub fn release(&mut self) {
        self.kept = false;
    }

    /// Leaves what the job needs to go on, and frees the room of what it does not.
    fn leave(&self, keeping: &Keeping) {
        if let Ok(manifest) = load(self.path()) {
            // What stays is removed by whoever goes on.
            let _ = self.remove_unnamed(&manifest);
        }
        keeping.kept_in(self.path());
    }

    fn remove(&self) {
        let resumable = self.keeping.is_some();
        for dir in &self.dirs {
            // Killed on the way, a job is not taken for one that could go on.
            let unseen = unseen(dir);
            let renamed = fs::rename(dir, &unseen).is_ok();
            let now = if renamed { &unseen } else { dir };
            if renamed && resumable {
                // Nor after a power failure; where that cannot be had, resuming finds what is missing.
                let _ = self.disk.sync_dir(parent_of(dir));
            }
            if !remove_ours(now) {
                // Somebody else's files are in it: they are found where they were put.
                let _ = fs::rename(now, dir);
            }
        }
        let me = rustix::process::geteuid().as_raw();
        let ours =
            |path: &&PathBuf| fs::symlink_metadata(path).is_ok_and(|it| it.is_file() && it.uid() == me);
        if let Some(temporary) = self.temporary.as_ref().filter(ours) {
            // A leftover is found by its name.
            let _ = fs::remove_file(temporary);
        }
    }

    /// Nothing of it is removed any more where the process must end at once.
    fn forget(&self) {
        self.registered.iter().for_each(|dir| forget(dir));
        self.temporary.iter().for_each(|temporary| emergency::forget(temporary));
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
pub fn load(dir: &Path) -> Result<Manifest, SortError> {
    let cannot = |why: &str| SortError::CannotResume { dir: dir.to_path_buf(), why: why.to_string() };
    let text = match fs::read(dir.join(MANIFEST)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if fs::symlink_metadata(dir).is_err() {
                return Err(cannot(
                    "there is no such directory\n  a job that is done, or was stopped, has removed its own; 'ascot clean --dry-run' lists what can go on",
                ));
            }
            return Err(cannot(
                "there is no manifest in it\n  the job read a pipe, wrote to standard output or several parts, or merged, and such jobs cannot go on; or it died\n  before it had anything to keep; or this is not the job's first directory\n  'ascot clean' lists what can go on, and removes what cannot",
            ));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
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

/// Holds the lock of a job's directory; none if somebody else does.
fn lock(dir: &Path) -> Result<Option<File>, SortError> {
    lock_by(OpenOptions::new().write(true), dir)
}

/// Makes the lock of a job's new directory, and holds it.
fn new_lock(dir: &Path) -> Result<Option<File>, SortError> {
    lock_by(OpenOptions::new().write(true).create_new(true), dir)
}

fn lock_by(options: &mut OpenOptions, dir: &Path) -> Result<Option<File>, SortError> {
    let path = dir.join(LOCK);
    let failed = |error| IoError::from_os(Action::Create, &path, 0, error);
    let file = options.custom_flags(O_NOFOLLOW).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(failed(error).into()),
    }
}

/// Takes hold of a dead job's directory by its lock, which an empty one has not; none while the job lives.
pub(crate) fn hold_dead(dir: &Path) -> Option<Option<File>> {
    if is_empty(dir) { Some(None) } else { lock(dir).ok()?.map(Some) }
}

/// Has a job's directory removed where the process must end at once, under either of its names.
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

/// Removes our own files from a job's directory, and the directory if nothing else is in it.
/// Returns false where something foreign keeps it.
pub(crate) fn remove_ours(dir: &Path) -> bool {
    if let Ok(entries) = fs::read_dir(dir) {
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != LOCK && is_ours(&name) {
                // What cannot be removed now is found by the next clean, by its lock.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    let _ = fs::remove_file(dir.join(LOCK));
    fs::remove_dir(dir).is_ok()
}

/// Lays out room for the next manifest while there is some: a volume that spills have filled, or
/// somebody else, must not end a job that could go on in another place.
fn keep_room(new: &Path, bytes: u64) {
    const LEAST_BYTES: u64 = 256 << 10;
    let Ok(file) = OpenOptions::new().write(true).create_new(true).custom_flags(O_NOFOLLOW).open(new) else {
        return;
    };
    // Where that is not possible the next manifest finds room, or says that there is none.
    let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes.max(LEAST_BYTES));
}

/// The place for spills that a job's directory lies in.
fn parent_of(dir: &Path) -> &Path {
    dir.parent().unwrap_or(Path::new("."))
}

/// The name of a directory nobody is meant to see.
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
        || name
            .strip_prefix("run-")
            .and_then(|rest| rest.split_once('.'))
            .is_some_and(|(stem, end)| ["run", "keys", "blocks"].contains(&end) && is_run(stem))
}

fn random_id() -> String {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{:012x}", hasher.finish() & 0xffff_ffff_ffff)
}

/// Whether nothing is in a directory: its job died before it had locked it, or after.
pub(crate) fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

const IF_STOPPED: u8 = 0;
const ALWAYS: u8 = 1;
const NEVER: u8 = 2;

/// What becomes of a job's state; clones are of the same job.
#[derive(Clone, Debug)]
pub struct Keeping {
    cancel: Cancel,
    rule: Arc<AtomicU8>,
    kept_in: Arc<OnceLock<PathBuf>>,
}

impl Keeping {
    /// A job that has begun, and keeps its state where `cancel` stops it and says so.
    pub fn new(cancel: &Cancel) -> Self {
        Keeping { cancel: cancel.clone(), rule: Arc::new(AtomicU8::new(IF_STOPPED)), kept_in: Arc::default() }
    }

    /// From here on the state is kept whatever ends the job early.
    pub fn always(&self) {
        self.rule.store(ALWAYS, Ordering::Relaxed);
    }

    /// The job is done: nothing of it is kept.
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

    /// Whether a job that is stopped is to be kept.
    pub fn is_wished(&self) -> bool {
        self.cancel.keeps()
    }

    /// The job has been left in the directory `dir`.
    pub fn kept_in(&self, dir: &Path) {
        // The first directory of a job is dropped once.
        let _ = self.kept_in.set(dir.to_path_buf());
    }

    /// `error` with the way to go on, where the job was kept.
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
    }
}
