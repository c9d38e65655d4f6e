//! The memory that the control groups of this process leave it: their limits include more than a process's own memory.
//!
//! ```text
//!   limit of a group = other processes' memory + this process: cap + code, stacks, small allocations
//!                    + pages of files that it reads or writes (the kernel can take these back)
//! ```
//!
//! A group's limit holds for all groups below it, so the tightest of the ancestors counts. Both versions of
//! control groups are read, since a machine can have both.

use std::path::Path;
use std::{fmt, fs};

use ascot_model::units;

/// Minimum memory of a job, bytes.
pub const MIN_MEMORY_BYTES: u64 = 8 << 20;

/// The memory that a process needs beside its cap in a control group: half of the available memory, within these
/// bounds. A job takes about 5 MiB for stacks and small allocations, and its code 8 MiB, without optimisation 17 MiB.
/// The kernel can drop code and read it again, but a process without memory for its code does little else; the rest is
/// for pages of files that wait to be written.
const MIN_BESIDE_BYTES: u64 = 8 << 20;
const MAX_BESIDE_BYTES: u64 = 32 << 20;

/// Version 1 represents "no limit" by a number near the largest.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The memory of the tightest control group that this process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMemory {
    /// Maximum bytes that all its processes may use.
    pub limit: u64,
    /// Bytes left below the limit; cached files count as free.
    pub left: u64,
}

impl GroupMemory {
    /// The group that leaves this process the least memory; none if no group has a limit.
    pub fn of_this_process() -> Option<Self> {
        Self::read(Path::new("/"))
    }

    /// The same for a system whose files are under `root`.
    fn read(root: &Path) -> Option<Self> {
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
        let found = groups.lines().flat_map(|line| limited_groups(root, line));
        found.min_by_key(|group| (group.left, group.limit))
    }

    /// The bytes that a group must leave for a cap of `cap` bytes.
    pub fn left_for(cap: u64) -> u64 {
        cap + cap.clamp(MIN_BESIDE_BYTES, MAX_BESIDE_BYTES)
    }

    /// The largest cap with which this process stays below the limit.
    pub fn cap(&self) -> u64 {
        self.left.saturating_sub((self.left / 2).clamp(MIN_BESIDE_BYTES, MAX_BESIDE_BYTES))
    }
}

/// A cap that does not fit into the control group, and its replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoweredCap {
    /// The requested cap, bytes.
    pub asked: u64,
    /// The cap to use instead, bytes.
    pub cap: u64,
    /// The group.
    pub group: GroupMemory,
}

impl LoweredCap {
    /// The replacement for a cap of `asked` bytes; none if it fits.
    pub fn new(asked: u64) -> Option<Self> {
        Self::within(asked, GroupMemory::of_this_process()?)
    }

    /// The same for a given `group`.
    pub fn within(asked: u64, group: GroupMemory) -> Option<Self> {
        let cap = group.cap();
        (cap < asked).then_some(Self { asked, cap, group })
    }
}

impl fmt::Display for LoweredCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory is lowered from {} to {}: the control group has {} of its {} left, and the program and the \
             page cache need space there too",
            units::memory(self.asked),
            units::memory(self.cap),
            units::memory(self.group.left),
            units::memory(self.group.limit)
        )
    }
}

/// `asked`, or the part of it that fits into the control group.
pub fn lowered(asked: u64) -> u64 {
    LoweredCap::new(asked).map_or(asked, |lowered| lowered.cap)
}

/// File names of one version of control groups.
struct GroupFiles {
    /// Directories where its hierarchy may be mounted.
    mounts: &'static [&'static str],
    /// Limits: above the first the kernel kills processes; above the second it throttles them.
    limits: &'static [&'static str],
    usage: &'static str,
    /// Lines of `memory.stat` that count reclaimable memory; all other memory stays.
    reclaimable: &'static [&'static str],
}

const UNIFIED: GroupFiles = GroupFiles {
    mounts: &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: &["inactive_file", "active_file", "slab_reclaimable"],
};

const LEGACY: GroupFiles = GroupFiles {
    mounts: &["sys/fs/cgroup/memory"],
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: &["total_inactive_file", "total_active_file"],
};

/// The groups with a limit, from the group in a line of `/proc/self/cgroup` up to the root.
fn limited_groups(root: &Path, line: &str) -> Vec<GroupMemory> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let files = match controllers {
        "" => &UNIFIED,
        _ if controllers.split(',').any(|name| name == "memory") => &LEGACY,
        _ => return Vec::new(),
    };
    let mut groups = Vec::new();
    for mount in files.mounts {
        // In a container the path may be the host's, of which only the last components exist.
        let mut at = Some(Path::new(path.trim_start_matches('/')));
        while let Some(group) = at {
            groups.extend(group_memory(files, &root.join(mount).join(group)));
            at = group.parent();
        }
    }
    groups
}

/// The memory of one group; none if it has no limit.
fn group_memory(files: &GroupFiles, group: &Path) -> Option<GroupMemory> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let limit = |name: &&str| read(name)?.trim().parse::<u64>().ok();
    let limit = files.limits.iter().filter_map(limit).min().filter(|limit| *limit < NO_LIMIT_BYTES)?;
    let usage = read(files.usage);
    let stat = read("memory.stat");
    Some(left_of(files, limit, &usage.unwrap_or_default(), &stat.unwrap_or_default()))
}

/// The memory left in a group, from the texts of its files. Unreadable files count as no memory used, or none
/// reclaimable.
fn left_of(files: &GroupFiles, limit: u64, usage: &str, stat: &str) -> GroupMemory {
    let usage = usage.trim().parse::<u64>().unwrap_or(0);
    let reclaimable = |line: &str| {
        let (name, bytes) = line.split_once(' ')?;
        files.reclaimable.contains(&name).then(|| bytes.trim().parse::<u64>().ok())?
    };
    let reclaimable: u64 = stat.lines().filter_map(reclaimable).sum();
    GroupMemory { limit, left: limit.saturating_sub(usage.saturating_sub(reclaimable)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A system whose process is in `line` of `/proc/self/cgroup`, with these files.
    fn system(line: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files.iter().chain(&[("proc/self/cgroup", line)]) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_group_leaves_what_is_not_used_but_for_the_cache() {
        let left = |files, limit, usage, stat| left_of(files, limit, usage, stat).left;
        let unified = "anon 700\nfile 250\nshmem 50\ninactive_file 120\nactive_file 80\ninactive_anon 9\n";
        assert_eq!(left(&UNIFIED, 2000, "950\n", unified), 1250);
        let legacy = "cache 1\ninactive_file 1\ntotal_inactive_file 120\ntotal_active_file 80\n";
        assert_eq!(left(&LEGACY, 2000, "950\n", legacy), 1250);
        assert_eq!(left(&UNIFIED, 500, "950\n", unified), 0, "used beyond the limit");
        assert_eq!(left(&UNIFIED, 500, "100\n", unified), 500, "counted a moment apart");
        assert_eq!(left(&UNIFIED, 500, "", "garbage\ninactive_file x\n"), 500);
    }

    #[test]
    fn the_tightest_ancestor_counts_in_version_2() {
        let files = [
            ("sys/fs/cgroup/pod/job/memory.max", "max\n"),
            ("sys/fs/cgroup/pod/job/memory.high", "max\n"),
            ("sys/fs/cgroup/pod/memory.max", "1000\n"),
            ("sys/fs/cgroup/pod/memory.high", "800\n"),
            ("sys/fs/cgroup/pod/memory.current", "500\n"),
            ("sys/fs/cgroup/pod/memory.stat", "anon 100\nactive_file 300\nslab_reclaimable 50\n"),
            ("sys/fs/cgroup/memory.max", "5000\n"),
            ("sys/fs/cgroup/memory.current", "4000\n"),
        ];
        let root = system("0::/pod/job\n", &files);
        assert_eq!(GroupMemory::read(root.path()), Some(GroupMemory { limit: 800, left: 650 }));
        // The sibling's memory counts at the ancestor, which has the limit.
        fs::write(root.path().join("sys/fs/cgroup/memory.current"), "4900").unwrap();
        assert_eq!(GroupMemory::read(root.path()), Some(GroupMemory { limit: 5000, left: 100 }));
    }

    #[test]
    fn the_tightest_ancestor_counts_in_version_1() {
        let unlimited = "9223372036854771712\n";
        let files = [
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", unlimited),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "700\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "300\n"),
            ("sys/fs/cgroup/memory/a/memory.stat", "total_active_file 100\nactive_file 7\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited),
        ];
        let root = system("5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n", &files);
        assert_eq!(GroupMemory::read(root.path()), Some(GroupMemory { limit: 700, left: 500 }));
        // A container sees its own group as the root, under the host's path.
        let files = [("sys/fs/cgroup/memory/memory.limit_in_bytes", "900\n")];
        let root = system("4:memory:/docker/0123\n", &files);
        assert_eq!(GroupMemory::read(root.path()), Some(GroupMemory { limit: 900, left: 900 }));
        assert_eq!(GroupMemory::read(system("4:memory:/\n", &[]).path()), None);
    }

    #[test]
    fn a_cap_is_lowered_to_what_fits_beside_the_process() {
        let within = |asked: u64, left: u64| {
            let group = GroupMemory { limit: left * MIB, left: left * MIB };
            LoweredCap::within(asked * MIB, group).map(|lowered| lowered.cap / MIB)
        };
        assert_eq!(within(64, 64), Some(32));
        assert_eq!(within(30, 64), None, "it fits");
        assert_eq!(within(1024, 1024), Some(992));
        assert_eq!(within(64, 16), Some(8));
        assert_eq!(within(64, 4), Some(0), "nothing fits");
        let group = GroupMemory { limit: 64 * MIB, left: 60 * MIB };
        let text = LoweredCap::within(64 * MIB, group).map(|lowered| lowered.to_string());
        assert_eq!(
            text.as_deref(),
            Some(
                "memory is lowered from 64 MiB to 30 MiB: the control group has 60 MiB of its 64 MiB left, \
                 and the program and the page cache need space there too"
            )
        );
    }
}
