//! Complete files of an output of several, under their temporary names: a manifest names them, and a resumed job takes
//! them over.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ascot_io::{AtomicOutput, Disk};
use serde::{Deserialize, Serialize};

use crate::api::{Parts, Result, SortError};

/// Identifies a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Device number of its volume.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Its length, bytes.
    pub bytes: u64,
}

impl FileIdentity {
    /// The identity of the file at `path`, if there is one.
    pub fn from_path(path: &Path) -> Option<Self> {
        let stat = fs::metadata(path).ok()?;
        Some(FileIdentity { device: stat.dev(), inode: stat.ino(), bytes: stat.len() })
    }
}

/// A complete part under its temporary name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedPart {
    /// Its number.
    pub part: u32,
    /// Its file, whose identity does not change when it is renamed.
    pub file: FileIdentity,
}

impl SealedPart {
    /// Part number `part`, which is `file`.
    pub fn of(part: u32, file: &AtomicOutput) -> Result<Self> {
        let temporary = file.persist_name().ok_or(SortError::Internal("a part without a temporary name"))?;
        let file =
            FileIdentity::from_path(temporary).ok_or(SortError::Internal("a part has been removed"))?;
        Ok(SealedPart { part, file })
    }

    /// Takes the part over from a killed job; none if it has got its name already.
    pub fn take_over(&self, disk: &Disk, parts: &Parts, temporary: &Path) -> Result<Option<AtomicOutput>> {
        let path = parts.path(self.part);
        if !temporary.exists() && FileIdentity::from_path(&path) == Some(self.file) {
            return Ok(None);
        }
        Ok(Some(AtomicOutput::resume_sealed(disk, &path, temporary, self.file.inode, self.file.bytes)?))
    }
}

/// Temporary names for parts, to be stored before the files exist.
pub fn temporary_names(parts: &Parts) -> Result<Vec<PathBuf>> {
    let name = |path: PathBuf| {
        let name = AtomicOutput::name_for(&path)?.ok_or(SortError::Internal("a part that is no file"))?;
        Ok(std::path::absolute(&name).unwrap_or(name))
    };
    parts.paths().map(name).collect()
}
