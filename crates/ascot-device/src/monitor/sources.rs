//! Reads the counters of the system: the quantities that it shows, and their values at a moment.
//!
//! The quantities are those of the first reading. A core, disk or interface that appears later is left out, and one
//! that disappears has no values from then on. A file that cannot be read, as on other systems and in some containers,
//! gives no quantities and a notice.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use ascot_io::processor_time;
use ascot_model::resource_use::{MACHINE, Measure, PROCESS, Quantity, Resource, Unit};

use crate::monitor::counters::{bytes_of, cores, disks, interfaces};

/// Most cores, disks and interfaces that have quantities; the kernel allows more.
const MAX_CORES: usize = 1024;
const MAX_DISKS: usize = 64;
const MAX_INTERFACES: usize = 32;
/// Bytes read of a file at most. `/proc/stat` of a machine with 1,024 cores has some 100 KiB of cores.
const MAX_FILE_BYTES: usize = 256 << 10;

/// How a quantity follows from two readings of its counter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The later value.
    Gauge,
    /// The increase in a second, times this factor.
    Rate(f64),
    /// The increase, as a share of that of a second counter.
    Share,
    /// The increase in a second, times this factor, and at most 1: the kernel rounds.
    TimeShare(f64),
}

/// A counter, and the second one of a share; none if it is not shown.
pub(super) type Value = Option<(u64, u64)>;

/// The values of all quantities at a moment.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) at: Instant,
    pub(super) values: Vec<Value>,
}

/// A file below `/proc`, which stays open: the kernel writes it anew for each read from its start.
struct ProcFile {
    name: &'static str,
    file: Option<File>,
}

/// The files, and the quantities that they show.
pub(super) struct Sources {
    stat: ProcFile,
    meminfo: ProcFile,
    status: ProcFile,
    io: ProcFile,
    diskstats: ProcFile,
    net: ProcFile,
    text: Vec<u8>,
    quantities: Vec<(Quantity, Kind)>,
    notices: Vec<String>,
}

impl Sources {
    /// The quantities that the system below `root` shows.
    pub(super) fn find(root: &Path) -> Sources {
        let open = |name: &'static str| ProcFile { name, file: File::open(root.join(name)).ok() };
        let mut sources = Sources {
            stat: open("proc/stat"),
            meminfo: open("proc/meminfo"),
            status: open("proc/self/status"),
            io: open("proc/self/io"),
            diskstats: open("proc/diskstats"),
            net: open("proc/net/dev"),
            text: Vec::new(),
            quantities: Vec::new(),
            notices: Vec::new(),
        };
        let mut missing = String::new();
        let lacks = sources.find_quantities();
        for (what, file) in lacks {
            let separator = if missing.is_empty() { "" } else { ", " };
            let _ = write!(missing, "{separator}{what} (/{file})");
        }
        if !missing.is_empty() {
            sources.notices.push(format!("not shown by this system: {missing}"));
        }
        sources
    }

    /// The columns of a reading.
    pub(super) fn quantities(&self) -> Vec<Quantity> {
        self.quantities.iter().map(|(quantity, _)| quantity.clone()).collect()
    }

    /// What cannot be sampled, and why.
    pub(super) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Fills `quantities`; returns what the system does not show, and in which file.
    fn find_quantities(&mut self) -> Vec<(&'static str, &'static str)> {
        let mut lacks = Vec::new();
        let mut found = Vec::new();
        let mut add = |resource, of: &str, measure, unit, kind| {
            found.push((Quantity { resource, of: of.into(), measure, unit }, kind));
        };
        let text = &mut self.text;
        let before = cores(self.stat.read(text)).take(MAX_CORES).map(|core| {
            add(Resource::Processor, core.name, Measure::Busy, Unit::Share, Kind::Share);
        });
        if before.count() == 0 {
            lacks.push(("the load of the cores", self.stat.name));
        }
        add(Resource::Processor, PROCESS, Measure::Used, Unit::Processors, Kind::Rate(1e-9));
        let status = self.status.read(text);
        for (name, measure) in RESIDENT {
            match bytes_of(status, name) {
                Some(_) => add(Resource::Memory, PROCESS, measure, Unit::Bytes, Kind::Gauge),
                None if measure == Measure::Resident => {
                    lacks.push(("the memory of the process", self.status.name))
                }
                None => {}
            }
        }
        match bytes_of(self.meminfo.read(text), AVAILABLE) {
            Some(_) => add(Resource::Memory, MACHINE, Measure::Available, Unit::Bytes, Kind::Gauge),
            None => lacks.push(("available memory", self.meminfo.name)),
        }
        let io = self.io.read(text);
        if MOVED.iter().all(|(name, _)| bytes_of(io, name).is_some()) {
            for (_, measure) in MOVED {
                add(Resource::Disk, PROCESS, measure, Unit::BytesPerS, Kind::Rate(1.0));
            }
        } else {
            lacks.push(("the bytes of the process", self.io.name));
        }
        let disks = disks(self.diskstats.read(text));
        if disks.is_empty() {
            lacks.push(("disks", self.diskstats.name));
        }
        for disk in disks.iter().take(MAX_DISKS) {
            add(Resource::Disk, disk.name, Measure::Read, Unit::BytesPerS, Kind::Rate(1.0));
            add(Resource::Disk, disk.name, Measure::Written, Unit::BytesPerS, Kind::Rate(1.0));
            add(Resource::Disk, disk.name, Measure::Busy, Unit::Share, Kind::TimeShare(1e-3));
        }
        let interfaces: Vec<_> = interfaces(self.net.read(text)).take(MAX_INTERFACES).collect();
        if interfaces.is_empty() {
            lacks.push(("network interfaces", self.net.name));
        }
        for interface in interfaces {
            add(Resource::Network, interface.name, Measure::Received, Unit::BytesPerS, Kind::Rate(1.0));
            add(Resource::Network, interface.name, Measure::Sent, Unit::BytesPerS, Kind::Rate(1.0));
        }
        self.quantities = found;
        lacks
    }

    /// The values of the quantities now.
    pub(super) fn read(&mut self) -> Reading {
        let mut slots =
            Slots { quantities: &self.quantities, next: 0, values: vec![None; self.quantities.len()] };
        let text = &mut self.text;
        let at = Instant::now();
        slots.set(PROCESS, Measure::Used, processor_time::of_process().as_nanos() as u64, 0);
        for core in cores(self.stat.read(text)) {
            slots.set(core.name, Measure::Busy, core.busy, core.total);
        }
        let status = self.status.read(text);
        for (name, measure) in RESIDENT {
            if let Some(bytes) = bytes_of(status, name) {
                slots.set(PROCESS, measure, bytes, 0);
            }
        }
        if let Some(bytes) = bytes_of(self.meminfo.read(text), AVAILABLE) {
            slots.set(MACHINE, Measure::Available, bytes, 0);
        }
        let io = self.io.read(text);
        for (name, measure) in MOVED {
            if let Some(bytes) = bytes_of(io, name) {
                slots.set(PROCESS, measure, bytes, 0);
            }
        }
        for disk in disks(self.diskstats.read(text)) {
            slots.set(disk.name, Measure::Read, disk.read_bytes, 0);
            slots.set(disk.name, Measure::Written, disk.written_bytes, 0);
            slots.set(disk.name, Measure::Busy, disk.busy_ms, 0);
        }
        for interface in interfaces(self.net.read(text)) {
            slots.set(interface.name, Measure::Received, interface.received_bytes, 0);
            slots.set(interface.name, Measure::Sent, interface.sent_bytes, 0);
        }
        Reading { at, values: slots.values }
    }

    /// The quantities between two readings; NaN if unknown. A counter that has decreased was reset.
    pub(super) fn between(&self, before: &Reading, now: &Reading) -> Vec<f64> {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
        let pairs = before.values.iter().zip(&now.values);
        let value = |(kind, (before, now)): (Kind, (&Value, &Value))| -> Option<f64> {
            let (count, of) = (*now)?;
            if kind == Kind::Gauge {
                return Some(count as f64);
            }
            let (count_before, of_before) = (*before)?;
            let increase = count.checked_sub(count_before)? as f64;
            match kind {
                Kind::Gauge => None,
                Kind::Rate(factor) => Some(increase * factor / seconds),
                Kind::TimeShare(factor) => Some((increase * factor / seconds).min(1.0)),
                Kind::Share => {
                    let of = of.checked_sub(of_before).filter(|of| *of > 0)?;
                    Some((increase / of as f64).min(1.0))
                }
            }
        };
        let kinds = self.quantities.iter().map(|(_, kind)| *kind);
        kinds.zip(pairs).map(|each| value(each).unwrap_or(f64::NAN)).collect()
    }
}

/// Memory of the process, by its name in `/proc/self/status`.
const RESIDENT: [(&str, Measure); 2] = [("VmRSS", Measure::Resident), ("VmHWM", Measure::PeakResident)];
/// Memory of the machine, by its name in `/proc/meminfo`.
const AVAILABLE: &str = "MemAvailable";
/// Bytes that the process moved to and from devices, by their names in `/proc/self/io`.
const MOVED: [(&str, Measure); 2] = [("read_bytes", Measure::Read), ("write_bytes", Measure::Written)];

/// The values of a reading. Files show their counters in the same order each time, so the next quantity is the first
/// one that is tried.
struct Slots<'a> {
    quantities: &'a [(Quantity, Kind)],
    next: usize,
    values: Vec<Value>,
}

impl Slots<'_> {
    fn set(&mut self, of: &str, measure: Measure, value: u64, total: u64) {
        let is_it = |at: &usize| {
            let (quantity, _) = &self.quantities[*at];
            quantity.of == of && quantity.measure == measure
        };
        let count = self.quantities.len();
        if let Some(at) = (self.next..count).chain(0..self.next).find(is_it) {
            self.values[at] = Some((value, total));
            self.next = at + 1;
        }
    }
}

impl ProcFile {
    /// The text of the file, read into `into`; empty if it cannot be read, and up to the first byte that is not text.
    fn read<'t>(&self, into: &'t mut Vec<u8>) -> &'t str {
        const STEP_BYTES: usize = 16 << 10;
        let Some(file) = &self.file else { return "" };
        let mut len = 0;
        while len < MAX_FILE_BYTES {
            if into.len() < len + STEP_BYTES {
                into.resize(len + STEP_BYTES, 0);
            }
            match file.read_at(&mut into[len..], len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return "",
            }
        }
        match std::str::from_utf8(&into[..len]) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&into[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}
