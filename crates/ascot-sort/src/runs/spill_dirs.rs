//! Where spills go: which of the places for spills the next one is written to.
//!
//! A place is used only if its volume has room for the whole spill, beside what is promised to spills
//! being written there. Among those the one that would be done with it first is taken: what a volume
//! has been given so far weighs against the speed it has been seen to write at.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ascot_io::sync::Unpoisoned;
use ascot_io::{Direction, Disk};

use crate::api::error::SortError;
use crate::plan::disk_space::no_room_for_spills;

/// Time and bytes after which the speed of a volume is known.
const MEASURED: (Duration, u64) = (Duration::from_millis(20), 4 << 20);
/// Room kept for the manifest on the first place's volume, where there are others to choose.
const KEPT_BYTES: u64 = 8 << 20;
/// Room for the index and the file system's own needs: this share of a spill, and some more.
const OVERHEAD_SHARE: u64 = 128;
const OVERHEAD_BYTES: u64 = 1 << 20;

/// The places of a job; clones share what is known of them.
#[derive(Clone)]
pub struct Places {
    disk: Disk,
    places: Arc<Vec<Place>>,
    books: Arc<Mutex<Vec<Given>>>,
}

struct Place {
    dir: PathBuf,
    device: u64,
}

/// What a place has been given.
#[derive(Clone, Copy, Default)]
struct Given {
    /// Bytes of all spills.
    bytes: u64,
    /// Bytes of spills being written side by side, which are not there yet.
    promised: u64,
}

impl Places {
    /// The directories of a job.
    pub fn new(disk: &Disk, dirs: &[PathBuf]) -> Self {
        let device = |dir: &PathBuf| fs::metadata(dir).map_or(0, |stat| stat.dev());
        let places: Vec<Place> =
            dirs.iter().map(|dir| Place { dir: dir.clone(), device: device(dir) }).collect();
        let books = Arc::new(Mutex::new(vec![Given::default(); places.len()]));
        Places { disk: disk.clone(), places: Arc::new(places), books }
    }

    fn books(&self) -> MutexGuard<'_, Vec<Given>> {
        self.books.lock().unpoisoned()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// The file of a run in a place.
    pub fn path(&self, place: usize, number: u64) -> PathBuf {
        self.places[place].dir.join(format!("run-{number:06}.run"))
    }

    /// The place that a file is in.
    pub fn of(&self, file: &Path) -> usize {
        self.places.iter().position(|place| file.parent() == Some(&place.dir)).unwrap_or(0)
    }

    /// Chooses the place of a spill of about `bytes`, none of those that are `full`. Where none has
    /// room enough, the one that has most: a spill can turn out smaller, or go on elsewhere.
    pub fn choose(&self, bytes: u64, full: &[usize]) -> Option<usize> {
        let open: Vec<usize> = (0..self.count()).filter(|place| !full.contains(place)).collect();
        let (&first, others) = open.split_first()?;
        let chosen = if others.is_empty() {
            first
        } else {
            let left: Vec<(usize, u64)> = open.iter().map(|&place| (place, self.left(place))).collect();
            let needed = bytes + bytes / OVERHEAD_SHARE + OVERHEAD_BYTES;
            let roomy = left.iter().filter(|(_, left)| *left >= needed);
            let soonest = roomy.min_by(|a, b| self.done_at(a.0, bytes).total_cmp(&self.done_at(b.0, bytes)));
            soonest.or(left.iter().max_by_key(|(_, left)| *left))?.0
        };
        self.books()[chosen].bytes += bytes;
        Some(chosen)
    }

    /// Spills written side by side have not taken yet what they will take in the end.
    pub fn promise(&self, place: usize, bytes: u64) {
        self.books()[place].promised += bytes;
    }

    /// Spills written side by side are all there.
    pub fn kept_promises(&self) {
        self.books().iter_mut().for_each(|given| given.promised = 0);
    }

    /// Bytes free on a place's volume and not spoken for.
    fn left(&self, place: usize) -> u64 {
        let device = self.places[place].device;
        let kept = if device == self.places[0].device { KEPT_BYTES } else { 0 };
        let promised: u64 = self.on(device, |given| given.promised);
        self.free(place).saturating_sub(promised + kept)
    }

    fn free(&self, place: usize) -> u64 {
        self.disk.free_space(&self.places[place].dir).unwrap_or(0)
    }

    fn on(&self, device: u64, what: impl Fn(&Given) -> u64) -> u64 {
        let books = self.books();
        let there = self.places.iter().zip(books.iter()).filter(|(place, _)| place.device == device);
        there.map(|(_, given)| what(given)).sum()
    }

    /// When a place's volume would be done with `bytes` more, at the speed it has shown.
    fn done_at(&self, place: usize, bytes: u64) -> f64 {
        let device = self.places[place].device;
        let given = self.on(device, |given| given.bytes) + bytes;
        given as f64 / self.speed(device)
    }

    /// Bytes a second this job has written to a volume; where it is not known, the mean of the others.
    fn speed(&self, device: u64) -> f64 {
        let mut known = Vec::new();
        for place in self.places.iter() {
            let speed = self.measured(place.device);
            if let (true, Some(speed)) = (place.device == device, speed) {
                return speed;
            }
            known.extend(speed);
        }
        if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 }
    }

    fn measured(&self, device: u64) -> Option<f64> {
        let account = self.disk.ledger().account();
        let there = account.iter().filter(|one| {
            one.direction == Direction::Write && one.device == device && one.name.starts_with("run ")
        });
        let (busy, bytes) =
            there.fold((Duration::ZERO, 0), |(busy, bytes), one| (busy + one.busy, bytes + one.bytes));
        (busy >= MEASURED.0 && bytes >= MEASURED.1).then(|| bytes as f64 / busy.as_secs_f64())
    }

    /// The error where no place has room for `needed` bytes more.
    pub fn no_room(&self, needed: u64) -> SortError {
        let dirs: Vec<&Path> = self.places.iter().map(|place| parent(&place.dir)).collect();
        no_room_for_spills(&self.disk, &dirs, needed)
    }
}

fn parent(dir: &Path) -> &Path {
    dir.parent().unwrap_or(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(count: usize) -> (tempfile::TempDir, Places) {
        let root = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = (0..count).map(|at| root.path().join(at.to_string())).collect();
        dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let places = Places::new(&Disk::default(), &dirs);
        (root, places)
    }

    #[test]
    fn volumes_of_one_speed_take_turns() {
        let (_root, mut places) = places(3);
        // As if each were a volume of its own.
        let dirs = places.places.iter().enumerate();
        let apart = dirs.map(|(at, place)| Place { dir: place.dir.clone(), device: at as u64 }).collect();
        places.places = Arc::new(apart);
        let chosen: Vec<_> = (0..6).map(|_| places.choose(1 << 20, &[]).unwrap()).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
        assert_eq!(places.choose(1 << 20, &[0]), Some(1));
        assert_eq!(places.choose(1 << 20, &[0, 1, 2]), None);
    }

    #[test]
    fn what_is_promised_is_not_free() {
        let (_root, places) = places(2);
        let free = places.left(1);
        places.promise(0, free / 2);
        assert!(places.left(1) <= free * 3 / 4, "both are on one volume");
        places.kept_promises();
        assert!(places.left(1) > free * 3 / 4);
    }

    #[test]
    fn the_error_names_every_place() {
        let (_root, places) = places(2);
        let text = places.no_room(123_000_000).to_string();
        assert!(text.contains("123 MB needed") && text.matches(" left on ").count() == 2, "{text}");
    }
}
