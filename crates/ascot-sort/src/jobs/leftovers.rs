//! Leftovers of dead jobs: finds them, decides which can be resumed, and removes the others.
//!
//! Invariant: a directory whose lock is held belongs to a living job and is never touched.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ascot_io::{is_temporary, orphaned_outputs, remove_orphan};
use serde::Serialize;

use crate::api::Result;
use crate::runs::{LOCK, MANIFEST, Manifest, PREFIX, UNSEEN, hold_dead, is_empty, load, remove_ours};

/// A leftover of a dead job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Leftover {
    /// Its directory, one of its directories, or its unfinished output.
    pub dir: PathBuf,
    /// The directory from which the job can be resumed, if it can.
    pub home: PathBuf,
    /// Bytes in it.
    pub bytes: u64,
    /// The job's first input, if known.
    pub input: String,
    /// Percentage of the job that is done.
    pub done_percent: u32,
    /// Whether the job can be resumed.
    pub resumable: bool,
    /// Whether it has been removed.
    pub removed: bool,
    /// Further remarks.
    pub note: String,
}

/// Finds the leftovers of this user's dead jobs in `temps`.
pub fn leftovers(temps: &[PathBuf]) -> Vec<Leftover> {
    temps.iter().flat_map(|temp| dead_jobs(temp)).map(|dir| describe(&dir)).collect()
}

/// The leftovers to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Nothing.
    Nothing,
    /// Those that certainly cannot be resumed. Unfinished outputs are not among them: the spills of their jobs may be
    /// in another directory.
    Hopeless,
    /// Everything.
    Everything,
}

impl Removal {
    fn takes(self, hopeless: bool) -> bool {
        self == Removal::Everything || self == Removal::Hopeless && hopeless
    }
}

/// Finds the leftovers of dead jobs in `temps`, which may also name jobs' directories themselves, and their unfinished
/// outputs, and removes those selected by `removal`.
pub fn clean(temps: &[PathBuf], removal: Removal) -> Result<Vec<Leftover>> {
    let mut found = Vec::new();
    let mut seen = Vec::new();
    let mut outputs = Vec::new();
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    for dir in temps.iter().flat_map(|temp| dead_jobs(temp)) {
        if seen.contains(&real(&dir)) {
            continue;
        }
        seen.push(real(&dir));
        let mut leftover = describe(&dir);
        outputs.extend(load(&dir).iter().flat_map(Manifest::unfinished).map(|path| real(path)));
        if removal.takes(!leftover.resumable) {
            let Some(held) = hold_dead(&dir) else { continue };
            remove_output(&dir);
            leftover.removed = remove_ours(&dir, |path| fs::remove_file(path));
            if !leftover.removed {
                leftover.note = "the directory stays because it contains other files".into();
            }
            drop(held);
        }
        found.push(leftover);
    }
    for mut orphan in temps.iter().flat_map(|temp| orphans(temp)) {
        if seen.contains(&real(&orphan.dir)) || outputs.contains(&real(&orphan.dir)) {
            continue;
        }
        seen.push(real(&orphan.dir));
        orphan.removed = removal.takes(false) && remove_orphan(&orphan.dir);
        found.push(orphan);
    }
    Ok(found)
}

fn remove_output(dir: &Path) {
    let Ok(manifest) = load(dir) else { return };
    for path in manifest.unfinished().filter(|path| is_temporary(path)) {
        let _ = fs::remove_file(path);
    }
}

/// Unfinished outputs of jobs that had no directory yet.
fn orphans(temp: &Path) -> Vec<Leftover> {
    let me = rustix::process::geteuid().as_raw();
    let mine = |path: &PathBuf| fs::metadata(path).is_ok_and(|stat| stat.uid() == me);
    let leftover = |path: PathBuf| Leftover {
        bytes: fs::metadata(&path).map_or(0, |stat| stat.blocks() * 512),
        home: path.clone(),
        dir: path,
        note: "an unfinished output".into(),
        ..Leftover::default()
    };
    orphaned_outputs(temp).into_iter().filter(mine).map(leftover).collect()
}

/// The directories of dead jobs in `temp`; `temp` itself, if it is one.
fn dead_jobs(temp: &Path) -> Vec<PathBuf> {
    let mut dirs = if is_job(temp) {
        vec![temp.to_path_buf()]
    } else {
        let Ok(entries) = fs::read_dir(temp) else { return Vec::new() };
        entries.flatten().map(|entry| entry.path()).filter(|path| is_job(path)).collect()
    };
    dirs.retain(|dir| hold_dead(dir).is_some());
    dirs.sort();
    dirs
}

/// Whether a path is a job's directory owned by this user.
fn is_job(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let made = name.strip_prefix('.').and_then(|name| name.strip_suffix(UNSEEN)).unwrap_or(&name);
    let id = made.strip_prefix(PREFIX).unwrap_or_default();
    let me = rustix::process::geteuid().as_raw();
    id.len() == 12
        && id.bytes().all(|byte| byte.is_ascii_hexdigit())
        && fs::symlink_metadata(path).is_ok_and(|stat| stat.is_dir() && stat.uid() == me)
        && (path.join(LOCK).is_file() || is_empty(path))
}

/// Whether a path is the directory of a job that is running.
pub fn is_running(path: &Path) -> bool {
    is_job(path) && hold_dead(path).is_none()
}

/// The first directory of the job to which `dir` belongs; it holds the manifest.
fn home_of(dir: &Path) -> PathBuf {
    const LONGEST_PATH: u64 = 4096;
    let mut text = Vec::new();
    if !dir.join(MANIFEST).exists()
        && let Ok(file) = File::open(dir.join(LOCK))
        && file.take(LONGEST_PATH).read_to_end(&mut text).is_ok()
    {
        let first = PathBuf::from(OsString::from_vec(text));
        if first.is_absolute() && first.file_name() == dir.file_name() {
            return first;
        }
    }
    dir.to_path_buf()
}

fn describe(dir: &Path) -> Leftover {
    let files = fs::read_dir(dir).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let bytes = files.iter().filter_map(|entry| entry.metadata().ok()).map(|stat| stat.blocks() * 512).sum();
    let mut leftover = Leftover { dir: dir.to_path_buf(), home: home_of(dir), bytes, ..Leftover::default() };
    if let Ok(manifest) = load(&leftover.home) {
        leftover.input =
            manifest.inputs.first().map(|input| input.path.display().to_string()).unwrap_or_default();
        leftover.done_percent = done_percent(&manifest);
        leftover.resumable = true;
    }
    leftover
}

/// Reading all inputs counts as half of the work; writing the result, which a view does not have, as the other half.
fn done_percent(manifest: &Manifest) -> u32 {
    let total: u64 = manifest.inputs.iter().map(|print| print.size).sum();
    let written = match &manifest.split {
        Some(split) => split.out.bytes,
        None => manifest.output.as_ref().map_or(0, |output| output.durable.all_bytes()),
    };
    let whole = if manifest.view.is_some() { 100 } else { 50 };
    (whole * (manifest.sum_in.bytes + written)).checked_div(total).unwrap_or(0).min(100) as u32
}
