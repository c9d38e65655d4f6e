//! Recognises the volume of a path from what the system tells: the mounted file systems and the block devices below
//! them. It reads a few small files about this one volume, never about all devices.
//!
//! ```text
//!   path ──> mount ──> network, FUSE, memory                      by the type of the file system
//!                  └─> block device ──> rotational, flash, virtual    by sysfs
//!                  └─> upper directory (overlay), file (loop) ──> their volume
//! ```

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ascot_model::volume_kind::VolumeKind;

use crate::block_device::{BlockDevice, DeviceNumber, MAX_DEPTH, Sysfs};
use crate::mounts::{Mount, Mounts};

/// File systems whose data another machine stores. `9p` and those after it are also served by programs.
const NETWORK: [&str; 20] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ncpfs",
    "ceph",
    "lustre",
    "gpfs",
    "mmfs",
    "beegfs",
    "afs",
    "coda",
    "pvfs2",
    "orangefs",
    "glusterfs",
    "gfs2",
    "ocfs2",
    "wekafs",
    "9p",
];
/// The same behind FUSE.
const NETWORK_BY_FUSE: [&str; 6] =
    ["fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.beegfs", "fuse.juicefs", "fuse.mfs"];
const MEMORY: [&str; 4] = ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs"];
/// A program shows a directory of its host in place: nothing is known of the store.
const OF_THE_HOST: [&str; 4] = ["virtiofs", "vboxsf", "prl_fs", "fuse.fuse-overlayfs"];

/// A volume as the system describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecognisedVolume {
    /// Its kind.
    pub kind: VolumeKind,
    /// Names the same device after a restart, on this machine.
    pub key: String,
    /// Bytes of the device; 0: it has no fixed size.
    pub bytes: u64,
    /// Where it is mounted.
    pub mount: PathBuf,
}

/// What the system tells about its volumes, read once.
#[derive(Debug)]
pub struct System {
    root: PathBuf,
    mounts: Mounts,
}

impl System {
    /// The running system.
    pub fn here() -> Self {
        Self::below(Path::new("/"))
    }

    /// A system whose `proc`, `sys` and `dev` lie below `root`.
    pub(crate) fn below(root: &Path) -> Self {
        System { root: root.to_path_buf(), mounts: Mounts::read(root) }
    }

    /// The volume of a file or directory, or of the nearest directory above one that does not exist; that of a block
    /// device is the device itself. `None` if the system does not tell.
    pub fn volume_of(&self, path: &Path) -> Option<RecognisedVolume> {
        let path = std::path::absolute(path).ok()?;
        let real = path.ancestors().find_map(|above| fs::canonicalize(above).ok())?;
        let stat = fs::metadata(&real).ok()?;
        let device = ascot_io::device_of(&stat);
        let number = DeviceNumber { major: libc::major(device), minor: libc::minor(device) };
        self.volume_on(&real, number, stat.file_type().is_block_device())
    }

    /// The volume of an absolute path without links: the device `number`, or what lies on it.
    fn volume_on(
        &self,
        path: &Path,
        number: DeviceNumber,
        is_block_device: bool,
    ) -> Option<RecognisedVolume> {
        if !is_block_device {
            return self.volume_at(path, Some(number), MAX_DEPTH);
        }
        let mount = self.mounts.of(path, None)?;
        let device = Sysfs { root: &self.root }.by_number(number)?;
        Some(self.on_device(device, mount, MAX_DEPTH))
    }

    /// The volume of an absolute path without links on `device`; volumes below volumes are followed `depth` times.
    fn volume_at(&self, path: &Path, device: Option<DeviceNumber>, depth: usize) -> Option<RecognisedVolume> {
        let mount = self.mounts.of(path, device)?;
        let name = mount.file_system.as_str();
        let named = |kind| {
            // The source of an overlay is any word; its upper directory names it.
            let upper = mount.option("upperdir").map(PathBuf::into_os_string);
            let source = upper.as_ref().unwrap_or(&mount.source).to_string_lossy();
            Some(RecognisedVolume {
                kind,
                key: format!("{name}:{source}"),
                bytes: 0,
                mount: mount.directory.clone(),
            })
        };
        if MEMORY.contains(&name) {
            return named(VolumeKind::Memory);
        }
        if OF_THE_HOST.contains(&name) {
            return named(VolumeKind::Virtual);
        }
        if NETWORK.contains(&name) || NETWORK_BY_FUSE.contains(&name) {
            return named(VolumeKind::Network);
        }
        if name == "fuse" || name.starts_with("fuse.") {
            return named(VolumeKind::Fuse);
        }
        if let Some(upper) = mount.option("upperdir")
            && let Some(deeper) = depth.checked_sub(1)
            && let Some(below) = self.volume_below(&upper, mount, deeper)
        {
            return Some(below);
        }
        match self.block_device(mount) {
            None => named(VolumeKind::Unknown),
            Some(device) => Some(self.on_device(device, mount, depth)),
        }
    }

    /// The volume of `path`, unless that is the same mount again.
    fn volume_below(&self, path: &Path, mount: &Mount, depth: usize) -> Option<RecognisedVolume> {
        let below = self.volume_at(path, None, depth)?;
        (below.mount != mount.directory).then(|| RecognisedVolume { mount: mount.directory.clone(), ..below })
    }

    fn on_device(&self, device: BlockDevice, mount: &Mount, depth: usize) -> RecognisedVolume {
        let BlockDevice { mut kind, key, bytes, backing } = device;
        if let Some(file) = backing
            && let Some(deeper) = depth.checked_sub(1)
            && let Some(below) = self.volume_at(&file, None, deeper)
        {
            kind = below.kind;
        }
        RecognisedVolume { kind, key, bytes, mount: mount.directory.clone() }
    }

    /// The device that a file system lies on, by its number, or by its name where the number belongs to none.
    fn block_device(&self, mount: &Mount) -> Option<BlockDevice> {
        let sysfs = Sysfs { root: &self.root };
        let by_number = (mount.device.major != 0).then(|| sysfs.by_number(mount.device)).flatten();
        by_number.or_else(|| {
            let source = Path::new(OsStr::new(&mount.source));
            source.starts_with("/dev").then(|| sysfs.by_path(source)).flatten()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A tree of files as the kernel shows them.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(mounts: &str) -> Tree {
            let tree = Tree(tempfile::tempdir().expect("directory"));
            tree.write("proc/self/mountinfo", mounts);
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("made");
            fs::write(path, text).expect("written");
        }

        fn link(&self, from: &str, to: &str) {
            let [from, to] = [from, to].map(|path| self.0.path().join(path));
            fs::create_dir_all(from.parent().expect("parent")).expect("made");
            symlink(to, from).expect("linked");
        }

        /// A whole disk with its files, and its links by number and name.
        fn disk(&self, place: &str, number: &str, files: &[(&str, &str)]) {
            let directory = format!("sys/devices/{place}");
            self.write(&format!("{directory}/size"), "2048\n");
            for (file, text) in files {
                self.write(&format!("{directory}/{file}"), text);
            }
            let name = place.rsplit('/').next().unwrap_or(place);
            self.link(&format!("sys/dev/block/{number}"), &directory);
            self.link(&format!("sys/class/block/{name}"), &directory);
        }

        fn kind(&self, path: &str) -> VolumeKind {
            self.volume(path).map_or(VolumeKind::Unknown, |volume| volume.kind)
        }

        fn volume(&self, path: &str) -> Option<RecognisedVolume> {
            System::below(self.0.path()).volume_at(Path::new(path), None, MAX_DEPTH)
        }
    }

    fn mount(number: &str, directory: &str, kind: &str, source: &str, options: &str) -> String {
        format!("1 1 {number} / {directory} rw - {kind} {source} {options}\n")
    }

    #[test]
    fn disks_by_their_description() {
        let one = |name: &str, files: &[(&str, &str)]| {
            let tree = Tree::new(&mount("8:1", "/d", "ext4", "/dev/x", "rw"));
            tree.disk(&format!("pci0/block/{name}"), "8:1", files);
            tree.kind("/d/file")
        };
        let spins = ("queue/rotational", "1\n");
        let still = ("queue/rotational", "0\n");
        assert_eq!(one("sda", &[spins, ("device/model", "WDC WD40EFRX-68\n")]), VolumeKind::Rotational);
        assert_eq!(one("sda", &[still, ("device/model", "Samsung SSD 870\n")]), VolumeKind::Flash);
        assert_eq!(one("nvme0n1", &[still]), VolumeKind::Flash);
        assert_eq!(one("sda", &[]), VolumeKind::Unknown);
        // Hypervisors report 1 for any store.
        assert_eq!(one("vda", &[spins]), VolumeKind::Virtual);
        assert_eq!(one("xvda", &[spins]), VolumeKind::Virtual);
        assert_eq!(one("sda", &[spins, ("device/model", "QEMU HARDDISK   \n")]), VolumeKind::Virtual);
        assert_eq!(one("sda", &[spins, ("device/vendor", "VMware  \n")]), VolumeKind::Virtual);
        assert_eq!(one("sda", &[spins, ("device/vendor", "Msft    \n")]), VolumeKind::Virtual);
        assert_eq!(one("sda", &[spins, ("device/model", "Virtual Disk\n")]), VolumeKind::Virtual);
        assert_eq!(one("nbd0", &[spins]), VolumeKind::Network);
        assert_eq!(one("zram0", &[still]), VolumeKind::Memory);
        let tree = Tree::new(&mount("8:1", "/d", "ext4", "/dev/sda", "rw"));
        tree.disk("pci0/virtio3/block/sda", "8:1", &[spins]);
        assert_eq!(tree.kind("/d"), VolumeKind::Virtual);
    }

    #[test]
    fn a_block_device_is_not_the_file_system_of_its_name() {
        let tree = Tree::new(&mount("0:6", "/dev", "devtmpfs", "udev", "rw"));
        let spins = ("queue/rotational", "1\n");
        tree.disk("pci0/block/sdb", "8:16", &[spins, ("device/model", "WDC WD40EFRX-68\n")]);
        let found = System::below(tree.0.path()).volume_on(
            Path::new("/dev/sdb"),
            DeviceNumber { major: 8, minor: 16 },
            true,
        );
        assert_eq!(found.map(|volume| volume.kind), Some(VolumeKind::Rotational));
    }

    #[test]
    fn a_partition_is_its_disk_and_keys_stay() {
        let tree = Tree::new(&mount("8:2", "/d", "xfs", "/dev/sda2", "rw"));
        tree.disk("pci0/block/sda", "8:0", &[("queue/rotational", "1"), ("device/wwid", "naa.5000c500\n")]);
        tree.write("sys/devices/pci0/block/sda/sda2/partition", "2\n");
        tree.link("sys/dev/block/8:2", "sys/devices/pci0/block/sda/sda2");
        let volume = tree.volume("/d/x").expect("found");
        assert_eq!((volume.kind, volume.bytes), (VolumeKind::Rotational, 1 << 20));
        assert_eq!(volume.key, "wwid:naa.5000c500");
        assert_eq!(volume.mount, Path::new("/d"));
        let plain = Tree::new(&mount("8:0", "/d", "xfs", "/dev/sda", "rw"));
        plain.disk("pci0/block/sda", "8:0", &[("device/model", "DISK  A\n")]);
        assert_eq!(plain.volume("/d").expect("found").key, "disk:DISK A sda");
    }

    #[test]
    fn stacked_devices_are_what_lies_below_them() {
        let tree = Tree::new(&mount("253:0", "/d", "ext4", "/dev/mapper/vg-lv", "rw"));
        tree.disk("pci0/block/sda", "8:0", &[("queue/rotational", "1"), ("device/model", "WDC")]);
        tree.disk("pci0/block/nvme0n1", "259:0", &[("queue/rotational", "0")]);
        tree.disk("pci0/block/vdb", "254:16", &[("queue/rotational", "1")]);
        // The array and the mapped device claim to be something else.
        tree.disk("virtual/block/md0", "9:0", &[("queue/rotational", "0"), ("md/uuid", "ab:cd\n")]);
        tree.disk("virtual/block/dm-0", "253:0", &[("queue/rotational", "0"), ("dm/uuid", "LVM-x\n")]);
        tree.link("sys/devices/virtual/block/dm-0/slaves/md0", "sys/devices/virtual/block/md0");
        tree.link("sys/devices/virtual/block/md0/slaves/nvme0n1", "sys/devices/pci0/block/nvme0n1");
        assert_eq!(tree.kind("/d"), VolumeKind::Flash);
        tree.link("sys/devices/virtual/block/md0/slaves/vdb", "sys/devices/pci0/block/vdb");
        assert_eq!(tree.kind("/d"), VolumeKind::Virtual);
        tree.link("sys/devices/virtual/block/md0/slaves/sda", "sys/devices/pci0/block/sda");
        assert_eq!(tree.kind("/d"), VolumeKind::Rotational);
        assert_eq!(tree.volume("/d").expect("found").key, "dm:LVM-x");
        // A device below itself ends the search.
        tree.link("sys/devices/virtual/block/md0/slaves/dm-0", "sys/devices/virtual/block/dm-0");
        assert_eq!(tree.kind("/d"), VolumeKind::Rotational);
    }

    #[test]
    fn file_systems_without_a_device_are_known_by_their_type() {
        let lines = [
            ("0:50", "/n", "nfs4", "server:/export", "rw"),
            ("0:51", "/c", "cifs", "//server/share", "rw"),
            ("0:52", "/s", "fuse.sshfs", "me@host:", "rw"),
            ("0:53", "/a", "fuse.ascot", "ascot", "rw"),
            ("0:54", "/t", "tmpfs", "tmpfs", "rw"),
            ("0:55", "/z", "zfs", "pool/data", "rw"),
            ("0:56", "/v", "virtiofs", "share", "rw"),
            ("0:57", "/p", "9p", "share", "rw"),
            ("0:58", "/g", "fuse.glusterfs", "server:/volume", "rw"),
            ("0:59", "/l", "lustre", "10.0.0.1@tcp:/fs", "rw"),
        ];
        let text: String = lines.iter().map(|(n, d, k, s, o)| mount(n, d, k, s, o)).collect();
        let tree = Tree::new(&text);
        for (path, kind) in [
            ("/n/x", VolumeKind::Network),
            ("/c", VolumeKind::Network),
            ("/s", VolumeKind::Fuse),
            ("/a", VolumeKind::Fuse),
            ("/t", VolumeKind::Memory),
            ("/z", VolumeKind::Unknown),
            ("/v", VolumeKind::Virtual),
            ("/p", VolumeKind::Network),
            ("/g", VolumeKind::Network),
            ("/l", VolumeKind::Network),
        ] {
            assert_eq!(tree.kind(path), kind, "{path}");
        }
        assert_eq!(tree.volume("/n").expect("found").key, "nfs4:server:/export");
        assert_eq!(tree.volume("/elsewhere"), None);
    }

    #[test]
    fn devices_behind_other_names_are_found() {
        let lines = [
            mount("8:0", "/", "ext4", "/dev/sda", "rw"),
            mount("0:40", "/b", "btrfs", "/dev/mapper/crypt", "rw,subvol=/x"),
            mount("0:41", "/f", "fuseblk", "/dev/sda", "rw"),
            mount("0:42", "/o", "overlay", "overlay", "rw,lowerdir=/l,upperdir=/b/up,workdir=/w"),
            mount("0:43", "/p", "overlay", "overlay", "rw,lowerdir=/l,upperdir=/p/up,workdir=/w"),
            mount("7:0", "/i", "ext4", "/dev/loop0", "rw"),
        ];
        let tree = Tree::new(&lines.concat());
        tree.disk("pci0/block/sda", "8:0", &[("queue/rotational", "1"), ("device/wwid", "a")]);
        tree.disk("virtual/block/dm-3", "253:3", &[("dm/uuid", "CRYPT-1"), ("queue/rotational", "0")]);
        tree.disk(
            "virtual/block/loop0",
            "7:0",
            &[("queue/rotational", "0"), ("loop/backing_file", "/img\n")],
        );
        tree.write("dev/dm-3", "");
        tree.link("dev/mapper/crypt", "dev/dm-3");
        let found = |path: &str| tree.volume(path).map(|volume| (volume.kind, volume.key));
        assert_eq!(found("/b/x"), Some((VolumeKind::Flash, "dm:CRYPT-1".into())));
        assert_eq!(found("/f/x"), Some((VolumeKind::Rotational, "wwid:a".into())));
        assert_eq!(found("/o/x"), Some((VolumeKind::Flash, "dm:CRYPT-1".into())));
        assert_eq!(tree.volume("/o/x").expect("found").mount, Path::new("/o"));
        // Its upper directory is not visible here.
        assert_eq!(found("/p/x"), Some((VolumeKind::Unknown, "overlay:/p/up".into())));
        // The file of a loop device lies on a disk.
        assert_eq!(found("/i/x"), Some((VolumeKind::Rotational, "loop:/img".into())));
    }

    #[test]
    fn the_volumes_of_this_machine() {
        let system = System::here();
        let root = system.volume_of(Path::new("/")).expect("recognised");
        assert!(!root.key.is_empty());
        let missing = system.volume_of(Path::new("/no/such/file"));
        assert_eq!(missing.map(|volume| volume.mount), Some(PathBuf::from("/")));
    }
}
