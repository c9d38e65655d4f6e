//! What the kernel tells about a block device (`/sys/dev/block`): its kind, size, and a key that names the same device
//! after a restart.
//!
//! ```text
//!   sda1 (partition) ──> sda                                   rotational, wwid, size
//!   dm-0 (LVM, LUKS) ──> slaves: sda, sdb                      the kind of the most careful slave
//!   loop0 ──> the file below it                                the kind of that file's volume
//! ```
//!
//! Invariant: `rotational` of a virtual disk is not believed. Hypervisors report 1 for any store.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use ascot_model::volume_kind::VolumeKind;

/// Devices below devices are followed this far.
pub(crate) const MAX_DEPTH: usize = 8;
/// Longer names of models and serial numbers are cut.
const MAX_NAME_BYTES: usize = 200;
const SECTOR_BYTES: u64 = 512;
/// The words by which vendors and models of virtual disks are known, in lower case.
const VIRTUAL_WORDS: [&str; 9] =
    ["qemu", "vmware", "vbox", "virtual", "xen", "msft", "google", "amazon elastic block store", "parallels"];
/// The beginnings of the names of virtual disks.
const VIRTUAL_NAMES: [&str; 3] = ["vd", "xvd", "ubd"];
/// The beginnings of the names of devices whose blocks come over a network.
const NETWORK_NAMES: [&str; 3] = ["nbd", "rbd", "drbd"];

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockDevice {
    pub(crate) kind: VolumeKind,
    /// Names the same device after a restart, on this machine.
    pub(crate) key: String,
    pub(crate) bytes: u64,
    /// The file below a loop device.
    pub(crate) backing: Option<PathBuf>,
}

/// The number of a device; major 0: it holds no blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// Reads descriptions below a root directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sysfs<'a> {
    pub(crate) root: &'a Path,
}

impl Sysfs<'_> {
    /// The whole disk that holds device `major:minor`.
    pub(crate) fn by_number(self, device: DeviceNumber) -> Option<BlockDevice> {
        let DeviceNumber { major, minor } = device;
        self.of(&self.root.join(format!("sys/dev/block/{major}:{minor}")), MAX_DEPTH)
    }

    /// The whole disk that holds the device with a path such as `/dev/sda1` or `/dev/mapper/data`.
    pub(crate) fn by_path(self, path: &Path) -> Option<BlockDevice> {
        let inside = self.root.join(path.strip_prefix("/").ok()?);
        let real = fs::canonicalize(&inside).unwrap_or(inside);
        self.of(&self.root.join("sys/class/block").join(real.file_name()?), MAX_DEPTH)
    }

    /// `link` leads to the directory of a disk or of a partition in it.
    fn of(self, link: &Path, depth: usize) -> Option<BlockDevice> {
        let mut directory = fs::canonicalize(link).ok()?;
        if directory.join("partition").exists() {
            directory.pop();
        }
        let name = directory.file_name()?.to_string_lossy().into_owned();
        let bytes = number(&directory.join("size")).unwrap_or(0).saturating_mul(SECTOR_BYTES);
        let backing = fs::read(directory.join("loop/backing_file"))
            .ok()
            .map(|path| PathBuf::from(std::ffi::OsString::from_vec(path.trim_ascii_end().to_vec())));
        let kind = match &backing {
            // The caller looks at the file.
            Some(_) => VolumeKind::Unknown,
            None => self.kind(&directory, &name, depth),
        };
        let key = match &backing {
            Some(file) => format!("loop:{}", file.display()),
            None => key(&directory, &name),
        };
        Some(BlockDevice { kind, key, bytes, backing })
    }

    fn kind(self, directory: &Path, name: &str, depth: usize) -> VolumeKind {
        let starts = |names: &[&str]| {
            names.iter().any(|start| {
                name.strip_prefix(start)
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
            })
        };
        if starts(&NETWORK_NAMES) {
            return VolumeKind::Network;
        }
        if name.starts_with("zram") || name.starts_with("ram") {
            return VolumeKind::Memory;
        }
        let slaves = self.slaves(directory, depth);
        if !slaves.is_empty() {
            return most_careful(&slaves);
        }
        if starts(&VIRTUAL_NAMES) || is_virtual(directory) {
            return VolumeKind::Virtual;
        }
        match number(&directory.join("queue/rotational")) {
            Some(0) => VolumeKind::Flash,
            Some(_) => VolumeKind::Rotational,
            None => VolumeKind::Unknown,
        }
    }

    /// The kinds of the devices below a device.
    fn slaves(self, directory: &Path, depth: usize) -> Vec<VolumeKind> {
        let Some(deeper) = depth.checked_sub(1) else { return Vec::new() };
        let Ok(entries) = fs::read_dir(directory.join("slaves")) else { return Vec::new() };
        let below = entries.flatten().filter_map(|entry| self.of(&entry.path(), deeper));
        below.map(|device| device.kind).collect()
    }
}

/// The kind of a device made of several: a stripe is as slow as its slowest part.
fn most_careful(kinds: &[VolumeKind]) -> VolumeKind {
    use VolumeKind::{Flash, Memory, Network, Rotational, Unknown, Virtual};
    let order = [Rotational, Network, Unknown, Virtual, Flash, Memory];
    order.into_iter().find(|kind| kinds.contains(kind)).unwrap_or(Unknown)
}

fn is_virtual(directory: &Path) -> bool {
    let on_virtio =
        directory.components().any(|part| part.as_os_str().to_string_lossy().starts_with("virtio"));
    let names = ["device/vendor", "device/model"].map(|file| word(&directory.join(file)).unwrap_or_default());
    let names = names.join(" ").to_lowercase();
    on_virtio || VIRTUAL_WORDS.iter().any(|word| names.contains(word))
}

/// The name of a device by the first of its properties that stays: its world-wide name, its serial number, the identity
/// of a mapped device or an array; otherwise its model and its name.
fn key(directory: &Path, name: &str) -> String {
    let properties = [
        ("wwid", "wwid"),
        ("device/wwid", "wwid"),
        ("dm/uuid", "dm"),
        ("md/uuid", "md"),
        ("serial", "serial"),
        ("device/serial", "serial"),
        ("device/cid", "cid"),
    ];
    let found = properties.iter().find_map(|(file, label)| Some((label, word(&directory.join(file))?)));
    match found {
        Some((label, value)) => format!("{label}:{value}"),
        None => {
            let model = word(&directory.join("device/model")).unwrap_or_default();
            format!("disk:{}", format!("{model} {name}").trim_start())
        }
    }
}

/// The text of a small file; `None` if it is empty.
fn word(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = text.char_indices().map(|(at, _)| at).find(|at| *at >= MAX_NAME_BYTES).unwrap_or(text.len());
    (!text.is_empty()).then(|| text[..cut].to_owned())
}

fn number(path: &Path) -> Option<u64> {
    word(path)?.parse().ok()
}
