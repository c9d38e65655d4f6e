//! The mounted file systems, as the kernel lists them for this process (`/proc/self/mountinfo`).
//!
//! ```text
//! 36 35 98:0 /mnt1 /data rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue
//!       dev        mount                       type source    options of the file system
//! ```

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ascot_io::without_octal_escapes;

use crate::block_device::DeviceNumber;

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Its device.
    pub(crate) device: DeviceNumber,
    pub(crate) directory: PathBuf,
    /// `ext4`, `nfs4`, `fuse.sshfs`, ...
    pub(crate) file_system: String,
    /// `/dev/sda1`, `server:/export`, ...
    pub(crate) source: OsString,
    options: Vec<u8>,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Mount> {
        let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let device = std::str::from_utf8(fields.nth(2)?).ok()?;
        let (major, minor) = device.split_once(':')?;
        let directory = PathBuf::from(OsString::from_vec(without_octal_escapes(fields.nth(1)?)));
        let mut after = fields.skip_while(|field| *field != b"-").skip(1);
        Some(Mount {
            device: DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
            directory,
            file_system: String::from_utf8_lossy(after.next()?).into_owned(),
            source: OsString::from_vec(without_octal_escapes(after.next()?)),
            options: after.next().unwrap_or_default().to_vec(),
        })
    }

    /// The value of an option of the file system, such as `upperdir`.
    pub(crate) fn option(&self, name: &str) -> Option<PathBuf> {
        let mut options = self.options.split(|byte| *byte == b',');
        let value = options.find_map(|option| option.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(PathBuf::from(OsString::from_vec(without_octal_escapes(value))))
    }
}

/// The mounts of this process, in the order in which they were mounted.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads the list below `root`; empty if it cannot be read.
    pub(crate) fn read(root: &Path) -> Mounts {
        let text = std::fs::read(root.join("proc/self/mountinfo")).unwrap_or_default();
        Mounts(text.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect())
    }

    /// The mount of an absolute path without links. If the device of the path is known, the mount has it, unless no
    /// mount has: the subvolumes of btrfs have devices that the list does not name. Of several mounts on one directory,
    /// the last hides the others.
    pub(crate) fn of(&self, path: &Path, device: Option<DeviceNumber>) -> Option<&Mount> {
        let above = || self.0.iter().filter(|mount| path.starts_with(&mount.directory));
        let longest = |mounts: &mut dyn Iterator<Item = &'_ Mount>| {
            mounts.map(|mount| mount.directory.as_os_str().as_bytes().len()).max()
        };
        let last = |has_device: bool| {
            let mounts = || above().filter(|mount| !has_device || Some(mount.device) == device);
            let length = longest(&mut mounts())?;
            mounts().rfind(|mount| mount.directory.as_os_str().as_bytes().len() == length)
        };
        last(true).or_else(|| last(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
25 22 0:23 / /run rw,nosuid shared:2 - tmpfs tmpfs rw,size=100k
36 22 8:1 / /mnt/a\\040b rw - xfs /dev/sda1 rw
37 22 0:40 /home /home rw - btrfs /dev/sdb1 rw,subvol=/home
38 36 8:17 / /mnt/a\\040b rw - ext4 /dev/sdb1 rw
39 22 0:50 / /ov rw - overlay overlay rw,lowerdir=/l:/m,upperdir=/mnt/a\\040b/up,workdir=/w
nonsense
40 22 x:y / /bad rw - ext4 /dev/sdz rw
";

    fn mounts() -> Mounts {
        Mounts(LIST.as_bytes().split(|byte| *byte == b'\n').filter_map(Mount::parse).collect())
    }

    #[test]
    fn the_longest_directory_holds_a_path_and_the_last_mount_hides_earlier_ones() {
        let mounts = mounts();
        let source = |path: &str, device| {
            mounts.of(Path::new(path), device).map(|mount| mount.source.to_str().unwrap_or("?"))
        };
        assert_eq!(source("/var/x", None), Some("/dev/vda1"));
        assert_eq!(source("/run/x", None), Some("tmpfs"));
        assert_eq!(source("/runs/x", None), Some("/dev/vda1"));
        assert_eq!(source("/mnt/a b/x", None), Some("/dev/sdb1"));
        // The device of the path decides, if a mount has it.
        assert_eq!(source("/mnt/a b/x", Some(DeviceNumber { major: 8, minor: 1 })), Some("/dev/sda1"));
        assert_eq!(source("/home/me", Some(DeviceNumber { major: 0, minor: 77 })), Some("/dev/sdb1"));
        assert_eq!(Mounts::default().of(Path::new("/"), None), None);
    }

    #[test]
    fn options_of_a_file_system() {
        let mounts = mounts();
        let overlay = mounts.of(Path::new("/ov"), None).expect("mounted");
        assert_eq!(overlay.option("upperdir"), Some(PathBuf::from("/mnt/a b/up")));
        assert_eq!(overlay.option("upper"), None);
        assert_eq!(without_octal_escapes(b"a\\134b\\04"), b"a\\b\\04");
    }
}
