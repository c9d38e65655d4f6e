//! The directory of a measurement: its file system, whether a device stores it, and the free space.

use std::io;
use std::path::{Path, PathBuf};

use ascot_model::units;

use crate::area;
use crate::error::{ProbeError, Result};
use crate::{DEFAULT_BYTES, MIN_BYTES};

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// A measurement takes at most one part in this many of the free space.
const FREE_SHARE: u64 = 2;

/// A directory that can be measured.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) directory: PathBuf,
    /// The volume's name in plans.
    pub(crate) name: String,
    /// Bytes the measurement may take.
    pub(crate) bytes: u64,
    pub(crate) notices: Vec<String>,
}

impl Target {
    /// Examines `directory` for a measurement with at most `bytes`.
    pub(crate) fn find(directory: &Path, bytes: u64) -> Result<Target> {
        let failed = |source: io::Error| ProbeError::Directory { path: directory.to_path_buf(), source };
        if !std::fs::metadata(directory).map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        if bytes < MIN_BYTES {
            return Err(ProbeError::TooFewBytes { asked: bytes, needed: MIN_BYTES });
        }
        let stat = rustix::fs::statfs(directory).map_err(|error| failed(error.into()))?;
        let magic = magic_of(&stat);
        let memory = |kind| Err(ProbeError::Memory { path: directory.to_path_buf(), kind });
        match magic {
            TMPFS_MAGIC => return memory("tmpfs"),
            RAMFS_MAGIC => return memory("ramfs"),
            _ => {}
        }
        let kind = kind_of(magic);
        area::check_direct(directory, &kind)?;
        let volume = rustix::fs::statvfs(directory).map_err(|error| failed(error.into()))?;
        let free = volume.f_bavail.saturating_mul(volume.f_frsize);
        let allowed = bytes.min(free / FREE_SHARE);
        if allowed < MIN_BYTES {
            let path = directory.to_path_buf();
            return Err(ProbeError::NoSpace { path, needed: FREE_SHARE * MIN_BYTES, free });
        }
        let mut notices = Vec::new();
        if allowed < bytes.min(DEFAULT_BYTES) {
            notices.push(format!(
                "the volume has {} free: measured in {} instead of {}, so caches weigh more in the figures",
                units::memory(free),
                units::memory(allowed),
                units::memory(bytes)
            ));
        }
        let whole = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_path_buf());
        let name = format!("{} ({kind})", whole.display());
        Ok(Target { directory: directory.to_path_buf(), name, bytes: allowed, notices })
    }
}

/// The common name of the file system of a directory, if the system tells its type.
#[must_use]
pub fn file_system(directory: &Path) -> Option<String> {
    rustix::fs::statfs(directory).ok().map(|stat| kind_of(magic_of(&stat)))
}

/// The number of a file system's type. The type of the field differs between architectures; the numbers have 32 bits.
#[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "i64 here, u32 elsewhere")]
fn magic_of(stat: &rustix::fs::StatFs) -> u64 {
    u64::from(stat.f_type as u32)
}

/// The common name of a file system.
fn kind_of(magic: u64) -> String {
    let known = [
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x2fc1_2fc1, "zfs"),
        (0x6969, "nfs"),
        (0x794c_7630, "overlay"),
        (0xf2f5_2010, "f2fs"),
        (0x0bd0_0bd0, "lustre"),
        (0x6573_5546, "fuse"),
        (0x0102_1997, "9p"),
    ];
    let name = known.iter().find(|(number, _)| *number == magic).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| format!("file system {magic:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_refused_with_a_word() {
        let told = |path: &str, bytes| Target::find(Path::new(path), bytes).expect_err("refused").to_string();
        assert!(told("/dev/shm", DEFAULT_BYTES).contains("tmpfs"));
        assert!(told("/no/such/place", DEFAULT_BYTES).contains("/no/such/place"));
        assert!(told("/etc/passwd", DEFAULT_BYTES).contains("directory"));
        assert!(told("/", 1 << 20).contains("32 MiB is the least"));
    }

    #[test]
    fn file_systems_have_names() {
        assert_eq!(kind_of(0xef53), "ext4");
        assert_eq!(kind_of(0x1234), "file system 1234");
    }
}
