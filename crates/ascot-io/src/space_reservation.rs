//! The space that the files of a [`Disk`](crate::Disk) take on their volumes, and the space that may be allocated
//! ahead of their data.
//!
//! The size of a file is read from the file system after every change, so the peak is the space that was really
//! taken. Files that are written at the same time share one allowance: the space that the job has reserved and not
//! taken yet, or else a small share of the job. If the job has a limit, nothing is allocated ahead beyond the limit,
//! and a write that would exceed it first waits for pending removals. So does a write for which a volume has no space.
//!
//! ```text
//!   held      |== a ==|..|== b ====|..|        ..  allocated ahead
//!   reserved  |================================|
//!                                      ^^^^^^^^^^  may be allocated without raising the peak
//!   limit     |=======================================|
//! ```

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::SECTOR_BYTES;
use crate::sync::Unpoisoned;
use crate::waits::{Need, wait_for};

/// Space that may always be allocated ahead: this share of the job, within bounds; twice the share for a job so small
/// that steps would be short.
const AHEAD_SHARE: u64 = 64;
const MIN_AHEAD_BYTES: u64 = 1 << 20;
const SMALL_AHEAD_BYTES: u64 = 16 << 20;
const MAX_AHEAD_BYTES: u64 = 1 << 30;
/// Space kept free below a limit, for indexes, manifests and the blocks that writes need.
const SPARE_BYTES: u64 = 512 << 10;
/// Interval at which a write that waits for removals checks again.
const REMOVAL_POLL: Duration = Duration::from_millis(50);

/// Bytes that files of a job of `reserved` bytes may take on top of their data.
pub fn ahead_bytes(reserved: u64) -> u64 {
    let share = reserved / AHEAD_SHARE;
    share.max((2 * share).min(SMALL_AHEAD_BYTES)).clamp(MIN_AHEAD_BYTES, MAX_AHEAD_BYTES)
}

/// The account of the space taken; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SpaceReservation {
    state: Arc<Mutex<State>>,
    removed: Arc<Condvar>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of each file, by device and inode.
    files: HashMap<(u64, u64), u64>,
    held: u64,
    peak: u64,
    reserved: u64,
    limit: Option<u64>,
    writers: u64,
    /// Removals in progress.
    removals: u64,
}

impl State {
    fn set(&mut self, stat: &Metadata, bytes: u64) {
        let key = (stat.dev(), stat.ino());
        let before = if bytes > 0 { self.files.insert(key, bytes) } else { self.files.remove(&key) };
        self.held = self.held - before.unwrap_or(0) + bytes;
        self.peak = self.peak.max(self.held);
    }
}

impl SpaceReservation {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Reserves `bytes` for all files together.
    pub fn reserve(&self, bytes: u64) {
        self.lock().reserved = bytes;
    }

    /// Sets the most bytes that all files together should take at once.
    pub fn limit(&self, bytes: u64) {
        self.lock().limit = Some(bytes);
    }

    /// Bytes left until the limit, if there is one.
    pub fn left(&self) -> Option<u64> {
        let state = self.lock();
        state.limit.map(|limit| limit.saturating_sub(state.held))
    }

    /// Begins a removal of files; it ends when the value is dropped.
    pub fn begin_removal(&self) -> PendingRemoval {
        self.lock().removals += 1;
        PendingRemoval { space: self.clone() }
    }

    /// Waits until no files are being removed. Returns whether any were: a volume that was full may have space now.
    pub(crate) fn outlast_removals(&self) -> bool {
        let mut state = self.lock();
        let were_any = state.removals > 0;
        let waiting = were_any.then(|| wait_for("files to be removed", Need::DEVICE, None));
        while state.removals > 0 {
            state = self.removed.wait_timeout(state, REMOVAL_POLL).unpoisoned().0;
        }
        drop(waiting);
        were_any
    }

    /// The most bytes taken at once so far.
    pub fn peak(&self) -> u64 {
        self.lock().peak
    }

    /// Notes the space that a file takes now.
    pub(crate) fn note(&self, file: &File) {
        // If a file cannot be inspected, its entry stays: this is an account, not a check.
        if let Ok(stat) = file.metadata() {
            self.note_stat(&stat);
        }
    }

    /// Notes the space that a file takes, from its metadata.
    pub(crate) fn note_stat(&self, stat: &Metadata) {
        if stat.is_file() {
            self.lock().set(stat, stat.blocks() * SECTOR_BYTES as u64);
        }
    }

    /// Notes that the file is removed.
    pub(crate) fn forget(&self, stat: &Metadata) {
        self.lock().set(stat, 0);
    }

    /// Registers a file being written.
    pub(crate) fn writer(&self) -> WriterShare {
        self.lock().writers += 1;
        WriterShare { space: self.clone() }
    }
}

/// A file being written, with its share of the space allocated ahead.
#[derive(Debug)]
pub(crate) struct WriterShare {
    space: SpaceReservation,
}

impl WriterShare {
    /// The part of `wanted` that may be allocated after the next `bytes` of data.
    pub(crate) fn ahead(&self, wanted: u64, bytes: u64) -> u64 {
        let state = self.space.lock();
        let to_come = state.reserved.saturating_sub(state.held);
        let max = to_come.max(ahead_bytes(state.reserved.max(state.held)));
        let max =
            state.limit.map_or(max, |limit| max.min(limit.saturating_sub(state.held + bytes + SPARE_BYTES)));
        wanted.min(max / state.writers.max(1))
    }

    /// Waits while `bytes` more would pass the limit and files are being removed.
    pub(crate) fn wait_for_removals(&self, bytes: u64) {
        let mut state = self.space.lock();
        let needed = bytes + SPARE_BYTES;
        let mut waiting = None;
        while state.removals > 0 && state.limit.is_some_and(|limit| state.held + needed > limit) {
            waiting.get_or_insert_with(|| wait_for("files to be removed", Need::DEVICE, None));
            let waited = self.space.removed.wait_timeout(state, REMOVAL_POLL);
            state = waited.unpoisoned().0;
        }
    }
}

impl Drop for WriterShare {
    fn drop(&mut self) {
        let mut state = self.space.lock();
        state.writers = state.writers.saturating_sub(1);
    }
}

/// A removal of files in progress.
#[derive(Debug)]
pub struct PendingRemoval {
    space: SpaceReservation,
}

impl Drop for PendingRemoval {
    fn drop(&mut self) {
        let mut state = self.space.lock();
        state.removals = state.removals.saturating_sub(1);
        self.space.removed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn files_share_what_is_to_come() {
        let space = SpaceReservation::default();
        space.reserve(4096 * MIB);
        let first = space.writer();
        assert_eq!(first.ahead(64 * MIB, 0), 64 * MIB);
        let others: Vec<WriterShare> = (0..127).map(|_| space.writer()).collect();
        assert_eq!(first.ahead(64 * MIB, 0), 32 * MIB);
        space.lock().held = 4096 * MIB;
        assert_eq!(first.ahead(64 * MIB, 0), MIB / 2, "a share of the job is left to all of them");
        drop(others);
        assert_eq!(first.ahead(1024 * MIB, 0), 64 * MIB);
        space.limit(4100 * MIB);
        assert_eq!(first.ahead(1024 * MIB, 0), 4 * MIB - SPARE_BYTES, "nothing is laid out beyond the limit");
        assert_eq!(first.ahead(1024 * MIB, MIB), 3 * MIB - SPARE_BYTES, "the data itself counts");
        space.limit(4000 * MIB);
        assert_eq!(first.ahead(1024 * MIB, 0), 0);
    }

    #[test]
    fn a_write_beyond_the_limit_waits_for_what_is_being_removed() {
        let space = SpaceReservation::default();
        space.limit(10 * MIB);
        let writer = space.writer();
        space.lock().held = 10 * MIB;
        // Nothing is being removed, so this does not wait.
        writer.wait_for_removals(MIB);
        let removal = space.begin_removal();
        let remover = space.clone();
        let removing = std::thread::spawn(move || {
            std::thread::sleep(2 * REMOVAL_POLL);
            remover.lock().held = 0;
            drop(removal);
        });
        writer.wait_for_removals(MIB);
        assert_eq!(space.lock().held, 0);
        removing.join().unwrap();
    }

    #[test]
    fn the_peak_is_what_files_took_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let space = SpaceReservation::default();
        let mut taken = 0;
        for name in ["a", "b"] {
            let path = directory.path().join(name);
            std::fs::write(&path, vec![1; 100_000]).unwrap();
            let file = File::open(&path).unwrap();
            file.sync_all().unwrap();
            space.note(&file);
            space.note(&file);
            let stat = file.metadata().unwrap();
            taken = taken.max(stat.blocks() * SECTOR_BYTES as u64);
            space.forget(&stat);
        }
        assert_eq!((space.peak(), space.lock().held), (taken, 0));
        assert!(taken >= 100_000);
    }
}
