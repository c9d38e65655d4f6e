//! The counters of the kernel, as the files below `/proc` show them.
//!
//! ```text
//! stat        cpu0  52645 0 5752 42638 335 0 16 64 0 0      ticks: user nice system idle iowait irq softirq steal ...
//! diskstats   254 0 vda 104605 84420 45480442 136404 31956 51949 45259688 116852 0 30204 ...
//!                       reads  merged sectors  ms    writes ...    sectors         busy: ms
//! net/dev     eth0: 838398912 17041 0 0 0 0 0 0 879791 ...
//!                   received                    sent (bytes)
//! status      VmRSS:     1768 kB
//! ```
//!
//! Kernels have added fields at the ends of lines; older ones have fewer. A line that is short or damaged is left out.

/// Bytes of a sector, in whichever unit the device itself counts.
const SECTOR_BYTES: u64 = 512;

/// Ticks of a core since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Core<'t> {
    pub(super) name: &'t str,
    /// In which it worked.
    pub(super) busy: u64,
    pub(super) total: u64,
}

/// The cores of `/proc/stat`.
pub(super) fn cores(text: &str) -> impl Iterator<Item = Core<'_>> {
    // The first line has the sum of all cores; other lines follow those of the cores.
    text.lines().take_while(|line| line.starts_with("cpu")).filter_map(core)
}

fn core(line: &str) -> Option<Core<'_>> {
    /// Fields from user to steal; the two after them are parts of user and nice.
    const FIELDS: usize = 8;
    /// idle and iowait.
    const IDLE: std::ops::Range<usize> = 3..5;
    let (name, rest) = line.split_once(' ')?;
    let number = name.strip_prefix("cpu")?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let ticks: Vec<u64> =
        rest.split_whitespace().take(FIELDS).map(str::parse).collect::<Result<_, _>>().ok()?;
    let sum = |ticks: &[u64]| ticks.iter().fold(0_u64, |sum, more| sum.saturating_add(*more));
    if ticks.len() <= IDLE.start {
        return None;
    }
    let total = sum(&ticks);
    Some(Core { name, busy: total - sum(&ticks[IDLE.start..IDLE.end.min(ticks.len())]).min(total), total })
}

/// What a disk has moved since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disk<'t> {
    pub(super) name: &'t str,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    /// Milliseconds in which it had requests.
    pub(super) busy_ms: u64,
}

/// The disks of `/proc/diskstats`, without partitions, whose bytes the disks count too.
pub(super) fn disks(text: &str) -> Vec<Disk<'_>> {
    let mut disks: Vec<Disk<'_>> = Vec::new();
    for disk in text.lines().filter_map(disk) {
        // Partitions follow their disk.
        if !disks.last().is_some_and(|last| is_partition_of(disk.name, last.name)) {
            disks.push(disk);
        }
    }
    disks
}

fn disk(line: &str) -> Option<Disk<'_>> {
    let mut fields = line.split_whitespace();
    let (Ok(_), Ok(_)) = (fields.next()?.parse::<u32>(), fields.next()?.parse::<u32>()) else { return None };
    let name = fields.next()?;
    // Kernels up to 2.6.24 show four counters of a partition, in another order.
    let mut counters = [0_u64; 11];
    for counter in &mut counters {
        *counter = fields.next()?.parse().ok()?;
    }
    let [_, _, read_sectors, _, _, _, written_sectors, _, _, busy_ms, _] = counters;
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
    Some(Disk { name, read_bytes: bytes(read_sectors), written_bytes: bytes(written_sectors), busy_ms })
}

/// Whether `name` is that of a partition of `disk`: `sda1` of `sda`; `nvme0n1p2`, but not `nvme0n10`, of `nvme0n1`.
fn is_partition_of(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let number =
        if disk.ends_with(|last: char| last.is_ascii_digit()) { rest.strip_prefix('p') } else { Some(rest) };
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What a network interface has moved since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interface<'t> {
    pub(super) name: &'t str,
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
}

/// The interfaces of `/proc/net/dev`.
pub(super) fn interfaces(text: &str) -> impl Iterator<Item = Interface<'_>> {
    text.lines().filter_map(interface)
}

fn interface(line: &str) -> Option<Interface<'_>> {
    /// Position of the sent bytes; the received ones are first.
    const SENT: usize = 8;
    // Old kernels leave no space after the colon, and an alias has one in its name.
    let (name, rest) = line.rsplit_once(':')?;
    let counters: Vec<u64> =
        rest.split_whitespace().take(SENT + 1).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [received_bytes, .., sent_bytes] = counters[..] else { return None };
    (counters.len() > SENT).then_some(Interface { name: name.trim(), received_bytes, sent_bytes })
}

/// The value of `NAME:    1768 kB` or `NAME: 1768`, in bytes.
pub(super) fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = value.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        None => Some(number),
        Some("kB") => number.checked_mul(1024),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core<'t>(name: &'t str, busy: u64, total: u64) -> Core<'t> {
        Core { name, busy, total }
    }

    #[test]
    fn cores_of_several_kernels() {
        // Linux 6.18: with guest and guest_nice, which user and nice include.
        let text = "cpu  115274 0 14082 71541 1758 0 124 124 30 0\n\
                    cpu0 52645 0 5752 42638 335 0 16 64 30 0\n\
                    cpu1 62629 0 8329 28902 1422 0 108 60 0 0\n\
                    intr 773336 0 0 0\nctxt 750986\n";
        let seen: Vec<Core<'_>> = cores(text).collect();
        assert_eq!(seen, [core("cpu0", 58477, 101_450), core("cpu1", 71126, 101_450)]);
        // Linux 2.6.9: without steal; Linux 2.4: user, nice, system and idle alone.
        let old: Vec<Core<'_>> = cores("cpu 9 9 9 9\ncpu0 10 1 4 80 5 2 3\n").collect();
        assert_eq!(old, [core("cpu0", 20, 105)]);
        assert_eq!(cores("cpu0 10 1 4 80\n").collect::<Vec<_>>(), [core("cpu0", 15, 95)]);
    }

    #[test]
    fn damaged_lines_of_cores_are_left_out() {
        for line in
            ["cpu0", "cpu0 ", "cpu0 1 2 3", "cpu0 1 2 3 x", "cpu0 1 2 3 -4", "cpux 1 2 3 4", "cpu0 1 2 3 4e5"]
        {
            assert_eq!(cores(line).count(), 0, "{line}");
        }
        let text = "cpu 1 1 1 1\ncpu0 broken\ncpu3 1 0 0 1\npage 1 1\ncpu4 1 1 1 1\n";
        assert_eq!(cores(text).collect::<Vec<_>>(), [core("cpu3", 1, 2)]);
        let huge = "cpu0 18446744073709551615 18446744073709551615 0 18446744073709551615\n";
        assert_eq!(cores(huge).next(), Some(core("cpu0", 0, u64::MAX)));
    }

    #[test]
    fn disks_of_several_kernels() {
        // Linux 6.18 (20 fields), 4.18 (18 fields), 2.6.32 (14 fields).
        let text = " 254       0 vda 104605 84420 45480442 136404 31956 51949 45259688 116852 0 30204 257069 11732 36 \
                    29587848 3722 2146 89\n\
                    \x20  8       0 sda 10 0 100 7 20 0 200 8 0 15 30 0 0 0 0\n\
                    \x20  8       1 sda1 9 0 90 7 20 0 200 8 0 14 29 0 0 0 0\n\
                    \x20  8      16 sdb 1 0 2 3 4 5 6 7 8 9 10\n\
                    \x20253       0 dm-0 1 0 2 3 4 5 6 7 8 9 10\n";
        let seen = disks(text);
        let names: Vec<&str> = seen.iter().map(|disk| disk.name).collect();
        assert_eq!(names, ["vda", "sda", "sdb", "dm-0"]);
        let vda = Disk {
            name: "vda",
            read_bytes: 45_480_442 * 512,
            written_bytes: 45_259_688 * 512,
            busy_ms: 30_204,
        };
        assert_eq!(seen[0], vda);
        assert_eq!((seen[2].read_bytes, seen[2].written_bytes, seen[2].busy_ms), (1024, 3072, 9));
    }

    #[test]
    fn damaged_lines_of_disks_are_left_out() {
        for line in [
            "",
            "8 0",
            "8 0 sda",
            // A partition of Linux 2.6.9.
            "   8    1 sda1 35486 38030 38030 38030",
            "8 0 sda 1 0 2 3 4 5 6 7 8 9",
            "8 0 sda 1 0 x 3 4 5 6 7 8 9 10",
            "x 0 sda 1 0 2 3 4 5 6 7 8 9 10",
        ] {
            assert_eq!(disks(line), [], "{line}");
        }
        let huge = disks("8 0 sda 1 0 18446744073709551615 3 4 5 6 7 8 9 10");
        assert_eq!(huge[0].read_bytes, u64::MAX);
    }

    #[test]
    fn partitions_are_known_by_their_names() {
        for (name, disk) in
            [("sda1", "sda"), ("nvme0n1p2", "nvme0n1"), ("mmcblk0p1", "mmcblk0"), ("vda15", "vda")]
        {
            assert!(is_partition_of(name, disk), "{name}");
        }
        for (name, disk) in
            [("nvme0n10", "nvme0n1"), ("sdaa", "sda"), ("sda", "sda"), ("dm-10", "dm-1"), ("sdb1", "sda")]
        {
            assert!(!is_partition_of(name, disk), "{name}");
        }
    }

    #[test]
    fn interfaces_of_several_kernels() {
        let text = "Inter-|   Receive                                                |  Transmit\n\
                    \x20face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n\
                    \x20   lo:    3193      29    0    0    0     0          0         0     3193      29    0    0\n\
                    \x20 eth0: 838398912   17041    0    0    0     0          0         0   879791   11786    0 0\n";
        let seen: Vec<Interface<'_>> = interfaces(text).collect();
        let eth = Interface { name: "eth0", received_bytes: 838_398_912, sent_bytes: 879_791 };
        assert_eq!((seen.len(), seen[1]), (2, eth));
        // Linux 2.6: numbers follow the colon at once; an alias.
        let old: Vec<Interface<'_>> = interfaces("eth0:1:1500 1 2 3 4 5 6 7 99 1 1 1 1 1 1 1").collect();
        assert_eq!(old, [Interface { name: "eth0:1", received_bytes: 1500, sent_bytes: 99 }]);
    }

    #[test]
    fn damaged_lines_of_interfaces_are_left_out() {
        for line in
            ["eth0", "eth0:", "eth0: 1 2 3 4 5 6 7 8", "eth0: 1 2 3 4 5 x 7 8 9", "eth0: -1 2 3 4 5 6 7 8 9"]
        {
            assert_eq!(interfaces(line).count(), 0, "{line}");
        }
    }

    #[test]
    fn named_values_have_units() {
        let text =
            "VmHWM:\t    2048 kB\nVmRSS:\t    1768 kB\nThreads:\t1\nread_bytes: 77\nOdd: 3 MB\nNone: kB\n";
        assert_eq!(bytes_of(text, "VmRSS"), Some(1768 << 10));
        assert_eq!(bytes_of(text, "read_bytes"), Some(77));
        for name in ["VmRS", "Odd", "None", "missing"] {
            assert_eq!(bytes_of(text, name), None, "{name}");
        }
        assert_eq!(bytes_of("VmRSS: 18446744073709551615 kB", "VmRSS"), None);
    }
}
