//! Rolling back: keeps only the first epochs of a directory, so that a run restarted from an older checkpoint does not
//! write an epoch twice.
//!
//! ```text
//!   manifest names fewer epochs ─▶ logs are truncated after them, one by one
//! ```
//!
//! Invariant: the manifest is replaced first. Then log data after its last epoch is a tail like that of a stopped
//! writer: the directory can be read whenever the rollback is interrupted, and the next writer of a log truncates it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ascot_io::Disk;

use crate::error::Result;
use crate::format::manifest::Manifest;
use crate::format::names::Log;
use crate::read::log::last_footer;
use crate::write::coordinator::Coordinator;
use crate::write::logs::lock_file;

/// The result of a rollback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolledBack {
    /// Epochs kept.
    pub kept: u64,
    /// Epochs dropped.
    pub dropped: u64,
    /// Bytes freed in files.
    pub freed_bytes: u64,
}

/// Keeps the first `epochs` epochs of a directory, and frees the space of the others.
///
/// # Errors
/// Another process writes the directory; it has fewer epochs; errors of its manifest; errors of the volume.
pub fn roll_back(disk: &Disk, directory: &Path, epochs: u64) -> Result<RolledBack> {
    let closed = Manifest::read(directory)?.closed;
    let mut coordinator = Coordinator::append(disk, directory)?;
    let logs: Vec<Log> = coordinator.manifest().logs().collect();
    coordinator.set_closed(closed);
    let dropped = coordinator.roll_back(epochs)?;
    // Bytes that cannot be truncated stay after the last epoch, where readers ignore them.
    let cut = |log| cut_off(disk, directory, coordinator.manifest(), log).unwrap_or(0);
    Ok(RolledBack { kept: epochs, dropped, freed_bytes: logs.into_iter().map(cut).sum() })
}

/// Truncates the files of a log after its last complete epoch; returns the bytes freed.
fn cut_off(disk: &Disk, directory: &Path, manifest: &Manifest, log: Log) -> Result<u64> {
    let index = log.index(directory);
    let epochs = manifest.epochs_of(log);
    let (index_end, data_end) = match epochs {
        0 => (0, 0),
        _ => {
            let id = log.id(manifest.id);
            let footer = last_footer(disk, &index, id.0, epochs)?;
            (footer.end(), footer.data_end)
        }
    };
    // The data first: an index that is not yet truncated still has the ends of both.
    let data = log.data(directory).map_or(0, |data| shorten(&data, data_end));
    Ok(data + shorten(&index, index_end))
}

/// Truncates a file at `end`, unless it is shorter or another process holds its lock; returns the bytes freed.
fn shorten(path: &Path, end: u64) -> u64 {
    // Symbolic links are not followed.
    let mut options = File::options();
    let options = options.read(true).write(true).custom_flags(ascot_io::O_NOFOLLOW);
    let Ok(file) = options.open(path) else { return 0 };
    let size = file.metadata().map_or(0, |stat| if stat.is_file() { stat.len() } else { 0 });
    if size <= end || lock_file(&file, path).is_err() || file.set_len(end).is_err() {
        return 0;
    }
    size - end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Directory, DirectoryWriter, IndexError, Layout, Scheme};

    const MEMORY: usize = 8 << 20;

    fn write(path: &Path, scheme: Scheme, epochs: std::ops::Range<u64>) {
        let disk = Disk::default();
        let mut writer = match epochs.start {
            0 => DirectoryWriter::create(&disk, path, Layout::new(scheme, 2, 1), MEMORY).unwrap(),
            _ => DirectoryWriter::append(&disk, path, MEMORY).unwrap(),
        };
        for epoch in epochs {
            for key in 0..500u64 {
                writer.append_record(&key.to_be_bytes(), &(key + epoch).to_le_bytes()).unwrap();
            }
            writer.end_epoch().unwrap();
        }
        writer.close().unwrap();
    }

    fn check(path: &Path, epochs: u64) {
        let directory = Directory::open(&Disk::default(), path, MEMORY).unwrap();
        for key in (0..500u64).step_by(31) {
            let values = directory.get(&key.to_be_bytes()).unwrap();
            let wanted = (0..epochs).map(|epoch| (epoch, (key + epoch).to_le_bytes().to_vec()));
            assert!(values.into_iter().map(|value| (value.epoch, value.bytes)).eq(wanted));
        }
        assert!(directory.verify().unwrap().is_whole());
    }

    fn sizes(path: &Path) -> Vec<(std::ffi::OsString, u64)> {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        let mut sizes: Vec<_> =
            entries.map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).collect();
        sizes.sort();
        sizes
    }

    #[test]
    fn later_epochs_are_gone_and_written_anew() {
        for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
            let scratch = tempfile::tempdir().unwrap();
            let (path, disk) = (scratch.path().join("run.dir"), Disk::default());
            write(&path, scheme, 0..2);
            let before = sizes(&path);
            write(&path, scheme, 2..5);
            let done = roll_back(&disk, &path, 2).unwrap();
            assert_eq!((done.kept, done.dropped), (2, 3));
            assert!(done.freed_bytes > 0);
            check(&path, 2);
            let manifest = |sizes: Vec<(std::ffi::OsString, u64)>| {
                sizes.into_iter().filter(|(name, _)| name != "MANIFEST").collect::<Vec<_>>()
            };
            assert_eq!(manifest(sizes(&path)), manifest(before), "as if they had never been");
            assert!(Manifest::read(&path).unwrap().closed);
            let history = || Manifest::read(&path).unwrap().history;
            let first = history();
            assert_ne!(first, 0);
            write(&path, scheme, 2..4);
            check(&path, 4);
            assert_eq!(history(), first, "it goes on");
            assert_eq!(roll_back(&disk, &path, 4).unwrap(), RolledBack { kept: 4, ..RolledBack::default() });
            let error = roll_back(&disk, &path, 5).unwrap_err().to_string();
            assert!(error.contains("4 complete epochs"), "{error}");
            assert_eq!(history(), first, "nothing was dropped");
            roll_back(&disk, &path, 0).unwrap();
            check(&path, 0);
            assert!(![0, first].contains(&history()));
            write(&path, scheme, 1..1);
            check(&path, 0);
        }
    }

    /// Only the manifest counts: files may be truncated later, in part, or never.
    #[test]
    fn it_may_be_interrupted_anywhere() {
        for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
            let scratch = tempfile::tempdir().unwrap();
            let (path, disk) = (scratch.path().join("run.dir"), Disk::default());
            write(&path, scheme, 0..5);
            let files = sizes(&path).into_iter().map(|(name, _)| path.join(name));
            let before: Vec<_> = files
                .filter(|path| path.extension().is_some())
                .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
                .collect();
            roll_back(&disk, &path, 3).unwrap();
            // Files from `cut` on still have their tails.
            for cut in 0..=before.len() {
                roll_back(&disk, &path, 3).unwrap();
                for (file, bytes) in &before[cut..] {
                    std::fs::write(file, bytes).unwrap();
                }
                check(&path, 3);
            }
            write(&path, scheme, 3..4);
            check(&path, 4);
        }
    }

    #[test]
    fn a_directory_that_is_written_is_not_rolled_back() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, disk) = (scratch.path().join("run.dir"), Disk::default());
        write(&path, Scheme::Records, 0..2);
        let writer = DirectoryWriter::append(&disk, &path, MEMORY).unwrap();
        assert!(matches!(roll_back(&disk, &path, 1), Err(IndexError::Locked { .. })));
        drop(writer);
        check(&path, 2);
    }
}
