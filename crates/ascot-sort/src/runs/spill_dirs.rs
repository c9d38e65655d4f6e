//! The spill directories of a job, and the choice of one for each spill.
//!
//! A directory is used only if its volume has space for the whole spill beside the space that is reserved for spills
//! being written. Of these directories, the one that would finish the spill first is chosen, by the bytes assigned to
//! its volume so far and by its measured speed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ascot_io::{Direction, Disk, Unpoisoned};

use crate::api::SortError;
use crate::plan::no_space_for_spills;
use crate::resources::device_of;

/// Time and bytes of writing after which the speed of a volume is known.
const MEASURED_TIME: Duration = Duration::from_millis(20);
const MEASURED_BYTES: u64 = 4 << 20;
/// Space kept for the manifest on the volume of the first directory, if there are others.
const MANIFEST_BYTES: u64 = 8 << 20;
/// Space for the index and the file system's own needs: a fraction of a spill, and a constant.
const OVERHEAD_SHARE: u64 = 128;
const OVERHEAD_BYTES: u64 = 1 << 20;

/// The spill directories of a job; clones share their state.
#[derive(Clone)]
pub struct SpillDirs {
    disk: Disk,
    dirs: Arc<Vec<SpillDir>>,
    given: Arc<Mutex<Vec<Given>>>,
}

struct SpillDir {
    path: PathBuf,
    device: u64,
}

/// The bytes assigned to a directory.
#[derive(Clone, Copy, Default)]
struct Given {
    /// Bytes of all spills.
    bytes: u64,
    /// Bytes reserved for spills that are being written.
    reserved: u64,
}

impl SpillDirs {
    /// The directories `paths`.
    pub fn new(disk: &Disk, paths: &[PathBuf]) -> Self {
        // A directory that cannot be examined has no free space either ([`SpillDirs::left`]), so that it is the last to
        // be chosen; the error is that of the spill in it.
        let dir =
            |path: &PathBuf| SpillDir { path: path.clone(), device: device_of(path).unwrap_or_default() };
        let dirs: Vec<SpillDir> = paths.iter().map(dir).collect();
        let given = Arc::new(Mutex::new(vec![Given::default(); dirs.len()]));
        SpillDirs { disk: disk.clone(), dirs: Arc::new(dirs), given }
    }

    fn given(&self) -> MutexGuard<'_, Vec<Given>> {
        self.given.lock().unpoisoned()
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.dirs.len()
    }

    /// The file of a run in a directory.
    pub fn run_path(&self, dir: usize, number: u64) -> PathBuf {
        self.dirs[dir].path.join(format!("run-{number:06}.run"))
    }

    /// The directory of a file; none if it is in none of them.
    pub fn dir_of(&self, file: &Path) -> Option<usize> {
        self.dirs.iter().position(|dir| file.parent() == Some(&dir.path))
    }

    /// Chooses the directory of a spill of about `bytes`, none of those that are `full`. If none has enough space, the
    /// one that has most is chosen: a spill can turn out smaller, or continue in another directory.
    pub fn choose(&self, bytes: u64, full: &[usize]) -> Option<usize> {
        let open: Vec<usize> = (0..self.count()).filter(|dir| !full.contains(dir)).collect();
        let (&first, others) = open.split_first()?;
        let chosen = if others.is_empty() {
            first
        } else {
            let left: Vec<(usize, u64)> = open.iter().map(|&dir| (dir, self.left(dir))).collect();
            let needed = bytes + bytes / OVERHEAD_SHARE + OVERHEAD_BYTES;
            let fitting = left.iter().filter(|(_, left)| *left >= needed);
            let soonest =
                fitting.min_by(|a, b| self.seconds(a.0, bytes).total_cmp(&self.seconds(b.0, bytes)));
            soonest.or(left.iter().max_by_key(|(_, left)| *left))?.0
        };
        self.given()[chosen].bytes += bytes;
        Some(chosen)
    }

    /// Reserves space for a spill that is written side by side with others.
    pub fn reserve(&self, dir: usize, bytes: u64) {
        self.given()[dir].reserved += bytes;
    }

    /// Ends all reservations: the spills written side by side are complete.
    pub fn end_reservations(&self) {
        self.given().iter_mut().for_each(|given| given.reserved = 0);
    }

    /// Bytes of a directory's volume that are free and not reserved.
    fn left(&self, dir: usize) -> u64 {
        let device = self.dirs[dir].device;
        let manifest = if device == self.dirs[0].device { MANIFEST_BYTES } else { 0 };
        let reserved = self.sum_on(device, |given| given.reserved);
        let free = self.disk.free_space(&self.dirs[dir].path).unwrap_or(0);
        free.saturating_sub(reserved + manifest)
    }

    fn sum_on(&self, device: u64, value: impl Fn(&Given) -> u64) -> u64 {
        let given = self.given();
        let on_device = self.dirs.iter().zip(given.iter()).filter(|(dir, _)| dir.device == device);
        on_device.map(|(_, given)| value(given)).sum()
    }

    /// Time in which a directory's volume would write all spills given to it and `bytes` more.
    fn seconds(&self, dir: usize, bytes: u64) -> f64 {
        let device = self.dirs[dir].device;
        let given = self.sum_on(device, |given| given.bytes) + bytes;
        given as f64 / self.speed(device)
    }

    /// Bytes per second that this job has written to a volume; the mean of the others if that is not known.
    fn speed(&self, device: u64) -> f64 {
        if let Some(speed) = self.measured_speed(device) {
            return speed;
        }
        let known: Vec<f64> = self.dirs.iter().filter_map(|dir| self.measured_speed(dir.device)).collect();
        if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 }
    }

    fn measured_speed(&self, device: u64) -> Option<f64> {
        let mut busy = Duration::ZERO;
        let mut bytes = 0;
        for stream in self.disk.ledger().account() {
            let of_runs = stream.direction == Direction::Write && stream.name.starts_with("run ");
            if of_runs && stream.device == device {
                busy += stream.busy;
                bytes += stream.bytes;
            }
        }
        (busy >= MEASURED_TIME && bytes >= MEASURED_BYTES).then(|| bytes as f64 / busy.as_secs_f64())
    }

    /// Error for `needed` bytes more than any directory has space for.
    pub fn no_space(&self, needed: u64) -> SortError {
        let parent = |dir: &SpillDir| dir.path.parent().unwrap_or(&dir.path).to_path_buf();
        no_space_for_spills(&self.disk, &self.dirs.iter().map(parent).collect::<Vec<_>>(), needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn spill_dirs(count: usize) -> (tempfile::TempDir, SpillDirs) {
        let root = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = (0..count).map(|at| root.path().join(at.to_string())).collect();
        dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let dirs = SpillDirs::new(&Disk::default(), &dirs);
        (root, dirs)
    }

    #[test]
    fn volumes_of_one_speed_take_turns() {
        let (_root, mut dirs) = spill_dirs(3);
        // As if each were a volume of its own.
        let numbered = dirs.dirs.iter().enumerate();
        let apart = numbered.map(|(at, dir)| SpillDir { path: dir.path.clone(), device: at as u64 });
        dirs.dirs = Arc::new(apart.collect());
        let chosen: Vec<_> = (0..6).map(|_| dirs.choose(1 << 20, &[]).unwrap()).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
        assert_eq!(dirs.choose(1 << 20, &[0]), Some(1));
        assert_eq!(dirs.choose(1 << 20, &[0, 1, 2]), None);
    }

    #[test]
    fn reserved_space_is_not_free() {
        let (_root, dirs) = spill_dirs(2);
        let free = dirs.left(1);
        dirs.reserve(0, free / 2);
        assert!(dirs.left(1) <= free * 3 / 4, "both are on one volume");
        dirs.end_reservations();
        assert!(dirs.left(1) > free * 3 / 4);
    }

    #[test]
    fn the_error_names_every_directory() {
        let (_root, dirs) = spill_dirs(2);
        let text = dirs.no_space(123_000_000).to_string();
        assert!(text.contains("123 MB needed") && text.matches(" left on ").count() == 2, "{text}");
    }
}
