//! Volumes and the disks on which they lie.
//!
//! A partition's requests reach the tracepoints with the number of its disk and sectors of the disk. A device without
//! a queue of requests, such as one of the device mapper, shows only what it is asked for (`block_bio_queue`).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use rustix::fs::{major, minor};

/// Bytes of a sector, whatever those of the device are.
pub const SECTOR_BYTES: u64 = 512;

/// Where a file system lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The disk, as the kernel numbers it.
    pub disk: u32,
    /// The first byte on the disk.
    pub offset: u64,
}

/// The volumes seen so far.
#[derive(Default)]
pub struct Volumes {
    known: HashMap<u64, Option<Volume>>,
}

impl Volumes {
    /// The volume of a device number as `stat` shows it; none if no single disk has it, such as that of btrfs.
    pub fn of(&mut self, device: u64) -> Option<Volume> {
        *self.known.entry(device).or_insert_with(|| find(device))
    }
}

fn find(device: u64) -> Option<Volume> {
    let directory = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let directory = fs::canonicalize(directory).ok()?;
    if !directory.join("partition").exists() {
        return Some(Volume { disk: kernel_number(major(device), minor(device)), offset: 0 });
    }
    let start: u64 = fs::read_to_string(directory.join("start")).ok()?.trim().parse().ok()?;
    Some(Volume {
        disk: number_in(&directory.parent()?.join("dev"))?,
        offset: start.checked_mul(SECTOR_BYTES)?,
    })
}

/// The disks without a queue of requests.
pub fn stacked() -> HashSet<u32> {
    let Ok(list) = fs::read_dir("/sys/block") else { return HashSet::new() };
    let disks = list.flatten().map(|disk| disk.path());
    let stacked = disks.filter(|disk| {
        let empty = fs::read_to_string(disk.join("size")).is_ok_and(|size| size.trim() == "0");
        !disk.join("mq").exists() && !empty
    });
    stacked.filter_map(|disk| number_in(&disk.join("dev"))).collect()
}

/// The number in a file such as `254:0`.
fn number_in(path: &Path) -> Option<u32> {
    let text = fs::read_to_string(path).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(kernel_number(major.parse().ok()?, minor.parse().ok()?))
}

fn kernel_number(major: u32, minor: u32) -> u32 {
    major << 20 | minor
}
