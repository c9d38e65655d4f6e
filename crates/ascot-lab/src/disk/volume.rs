//! The volumes of DiskBench, and nameless files on them.
//!
//! Invariant: a file has no name from its creation on, or is unlinked at once where the volume does not support that,
//! so nothing is left of it however the process ends.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_device::System;
use ascot_model::volume_kind::VolumeKind;
use rustix::fs::{Advice, AtFlags, FallocateFlags, OFlags, StatxFlags};

use super::error::DiskError;

/// A directory on a volume.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) directory: PathBuf,
    /// Its name in results.
    pub(super) name: String,
    /// The number of its device: directories with the same number share a volume.
    pub(super) device: u64,
    /// Whether it allows O_DIRECT.
    pub(super) is_direct: bool,
    /// Whether its files are memory.
    pub(super) is_memory: bool,
}

impl Volume {
    /// Examines a directory by making a nameless file in it.
    pub(super) fn find(directory: &Path) -> Result<Volume, DiskError> {
        let failed = |source: io::Error| DiskError::Directory { path: directory.to_path_buf(), source };
        let metadata = std::fs::metadata(directory).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let probe = tempfile::tempfile_in(directory).map_err(failed)?;
        let is_direct = make_direct(&probe).map_err(failed)?;
        let name = directory.display().to_string();
        let kind = System::here().volume_of(directory).map(|volume| volume.kind);
        let is_memory = kind == Some(VolumeKind::Memory);
        Ok(Volume {
            directory: directory.to_path_buf(),
            name,
            device: ascot_io::device_of(&metadata),
            is_direct,
            is_memory,
        })
    }

    /// Bytes that may still be written.
    pub(super) fn free_bytes(&self) -> Result<u64, DiskError> {
        let stat = rustix::fs::statvfs(&self.directory).map_err(|error| self.failed("make", error.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// An empty nameless file; with O_DIRECT if the volume allows it.
    pub(super) fn make(&self) -> Result<VolumeFile, DiskError> {
        let make = || {
            let file = tempfile::tempfile_in(&self.directory)?;
            if self.is_direct {
                make_direct(&file)?;
            }
            Ok(Arc::new(file))
        };
        let file = make().map_err(|source| self.failed("make", source))?;
        Ok(VolumeFile { volume: self.clone(), file })
    }

    pub(super) fn failed(&self, doing: &'static str, source: io::Error) -> DiskError {
        DiskError::File { doing, path: self.directory.clone(), source }
    }
}

/// Turns O_DIRECT on; false if the file system refuses it, or accepts it and uses the page cache all the same.
fn make_direct(file: &File) -> io::Result<bool> {
    if is_cached_in_spite(file) {
        return Ok(false);
    }
    let flags = rustix::fs::fcntl_getfl(file)?;
    match rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the file system says that it has no direct access for a file, such as ext4 with data=journal. One that says
/// nothing is taken by what it does with O_DIRECT.
fn is_cached_in_spite(file: &File) -> bool {
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let says = |mask: u32| StatxFlags::from_bits_retain(mask).contains(StatxFlags::DIOALIGN);
    stat.is_ok_and(|stat| says(stat.stx_mask) && stat.stx_dio_offset_align == 0)
}

/// A nameless file on a volume.
#[derive(Clone, Debug)]
pub(super) struct VolumeFile {
    pub(super) volume: Volume,
    pub(super) file: Arc<File>,
}

impl VolumeFile {
    /// Allocates `bytes`; false if the file system cannot.
    pub(super) fn allocate(&self, bytes: u64) -> Result<bool, DiskError> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
            Err(error) => Err(self.volume.failed("allocate", error.into())),
        }
    }

    /// Waits until all written bytes are on the device.
    pub(super) fn sync(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(|source| self.volume.failed("sync", source))
    }

    /// Removes the bytes of the file, which are on the device, from the page cache. A file system without a page cache
    /// has none to remove.
    pub(super) fn drop_from_cache(&self) {
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_no_names() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let volume = Volume::find(directory.path()).unwrap();
        let file = volume.make().unwrap();
        assert!(file.allocate(1 << 20).unwrap());
        assert_eq!(file.file.metadata().unwrap().len(), 1 << 20);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(volume.free_bytes().unwrap() > 0);
    }

    #[test]
    fn a_path_that_is_no_directory_is_named() {
        for path in ["/no/such/place", "/etc/passwd"] {
            let told = Volume::find(Path::new(path)).unwrap_err().to_string();
            assert!(told.contains(path), "{told}");
        }
    }
}
