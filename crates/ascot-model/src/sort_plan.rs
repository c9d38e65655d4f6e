//! What a sort of a given size would take on a volume, before there is any data: the ways to go, costed.
//!
//! ```text
//!   in memory    read, sort, write                                    all fits
//!   merge        form n sorted runs | merge n to 1 in some passes
//!   distribute   split 1 into m by key in some passes | sort each part in memory
//! ```
//!
//! The passes between are those of [`multipass`], in the factors that are best on the volume. What a
//! real sort plans from its files may divide the memory more exactly.

use serde::Serialize;

use crate::host::{HostProfile, RecordClass};
use crate::multipass::{self, DeviceCost, PassCost, Passes};
use crate::run_length::Shape;
use crate::volume::VolumeProfile;

/// Of the memory, what records and what sorts them take; the rest is for the streams.
const LOAD_SHARE: f64 = 0.8;
/// Beside a record that does not move when it is sorted: its code, its place, its place before.
const INDEX_BYTES: f64 = 16.0;
/// Records up to this length are taken to be numbers, which move.
const NUMBER_BYTES: f64 = 8.0;
/// Parts are made smaller than the memory by this factor, as some turn out larger than others.
const UNLUCKY: f64 = 4.0 / 3.0;

/// A sort.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SortJob {
    /// Bytes to be sorted.
    pub input_bytes: f64,
    /// Mean length of a record.
    pub record_bytes: f64,
    /// The cap.
    pub memory_bytes: f64,
    /// Most files at once.
    pub most_streams: u32,
}

/// A pass of a way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SortPass {
    /// What it does.
    pub name: &'static str,
    /// Files read from at once.
    pub inputs: u32,
    /// Files written to at once.
    pub outputs: u32,
    /// How often, each time on other files.
    pub times: u32,
    /// Bytes read, and as many written.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
    /// Requests that do not continue the one before.
    pub switches: f64,
    /// Seconds the volume needs.
    pub device_seconds: f64,
    /// Seconds the processors need.
    pub compute_seconds: f64,
}

impl SortPass {
    /// Seconds it takes: device and processors work at the same time.
    pub fn seconds(&self) -> f64 {
        self.device_seconds.max(self.compute_seconds)
    }
}

/// A way to sort.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SortWay {
    /// `in memory`, `merge` or `distribute`.
    pub method: &'static str,
    /// Sorted runs, or parts; 1 in memory.
    pub pieces: u32,
    /// How many files each pass between merges into one, or splits one into.
    pub factors: Vec<u32>,
    /// Predicted seconds.
    pub seconds: f64,
    /// Bytes moved.
    pub bytes: f64,
    /// Switches.
    pub switches: f64,
    /// Its passes.
    pub passes: Vec<SortPass>,
}

impl SortJob {
    /// What kernels are at work.
    pub fn class(&self) -> RecordClass {
        if self.record_bytes <= NUMBER_BYTES { RecordClass::Number } else { RecordClass::Fixed }
    }

    /// Bytes of records that are sorted in memory at once.
    pub fn load_bytes(&self) -> f64 {
        let index = if self.class() == RecordClass::Number { 0.0 } else { INDEX_BYTES };
        LOAD_SHARE * self.memory_bytes * self.record_bytes / (self.record_bytes + index)
    }

    /// The ways that fit, the fastest first.
    pub fn ways(&self, volume: &VolumeProfile, host: &HostProfile) -> Vec<SortWay> {
        let costing = Costing { job: self, volume, host };
        let mut ways: Vec<SortWay> = if self.input_bytes <= self.load_bytes() {
            vec![costing.in_memory()]
        } else {
            [costing.merge(), costing.distribute()].into_iter().flatten().collect()
        };
        ways.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        ways
    }
}

struct Costing<'a> {
    job: &'a SortJob,
    volume: &'a VolumeProfile,
    host: &'a HostProfile,
}

impl Costing<'_> {
    fn device(&self) -> DeviceCost<'_> {
        let SortJob { memory_bytes, most_streams, .. } = *self.job;
        DeviceCost { volume: self.volume, memory_bytes, most_streams }
    }

    /// Seconds of all threads, for one that does so many bytes/s.
    fn compute(&self, bytes: f64, bytes_per_s: f64) -> f64 {
        bytes / bytes_per_s / self.host.threads.max(1) as f64
    }

    /// A pass that goes over all the data with one file on either side.
    fn straight(
        &self,
        name: &'static str,
        (read, written): (f64, f64),
        pieces: u32,
        seconds: f64,
    ) -> SortPass {
        let switches = if pieces > 1 { 2.0 * f64::from(pieces) } else { 0.0 };
        SortPass {
            name,
            inputs: u32::from(read > 0.0),
            outputs: u32::from(written > 0.0),
            times: pieces,
            read_bytes: read,
            written_bytes: written,
            switches,
            device_seconds: self.volume.seconds(read, written, switches, 2.0),
            compute_seconds: seconds,
        }
    }

    /// Passes over many files, each thread doing so many bytes/s.
    fn between(&self, name: &'static str, passes: &Passes, bytes_per_s: f64) -> Vec<SortPass> {
        let device = self.device();
        let of = |pass: &multipass::Pass| {
            let (_, switches) = device.switches(&pass.shape, pass.read_bytes + pass.written_bytes);
            SortPass {
                name,
                inputs: pass.shape.inputs,
                outputs: pass.shape.outputs,
                times: pass.bowties,
                read_bytes: pass.read_bytes,
                written_bytes: pass.written_bytes,
                switches,
                device_seconds: device.seconds(&pass.shape, pass.read_bytes, pass.written_bytes),
                compute_seconds: self.compute(pass.read_bytes, bytes_per_s),
            }
        };
        passes.passes.iter().map(of).collect()
    }

    /// The cost of a pass in which each thread does so many bytes/s.
    fn cost(&self, bytes_per_s: f64) -> impl PassCost {
        move |shape: &Shape, read: f64, written: f64| {
            self.device().seconds(shape, read, written).max(self.compute(read, bytes_per_s))
        }
    }

    fn in_memory(&self) -> SortWay {
        let (bytes, rates) = (self.job.input_bytes, &self.host.rates);
        let sorting = self.compute(bytes, rates.sort_bytes_per_s);
        let writing = self.compute(bytes, rates.merge_bytes_per_s);
        let passes = vec![
            self.straight("read and sort", (bytes, 0.0), 1, sorting),
            self.straight("write", (0.0, bytes), 1, writing),
        ];
        way("in memory", 1, Vec::new(), passes)
    }

    fn merge(&self) -> Option<SortWay> {
        let (bytes, rates) = (self.job.input_bytes, &self.host.rates);
        let runs = pieces(bytes / self.job.load_bytes());
        let merging = rates.merge_bytes_per_s;
        let found = multipass::merge(runs, &|_| bytes, &self.cost(merging))?;
        let seconds = self.compute(bytes, rates.sort_bytes_per_s) + self.compute(bytes, merging);
        let mut passes = vec![self.straight("form runs", (bytes, bytes), runs, seconds)];
        passes.extend(self.between("merge", &found, merging));
        Some(way("merge", runs, found.factors(), passes))
    }

    fn distribute(&self) -> Option<SortWay> {
        let (bytes, rates) = (self.job.input_bytes, &self.host.rates);
        let parts = pieces(UNLUCKY * bytes / self.job.load_bytes());
        let splitting = rates.split_bytes_per_s;
        let found = multipass::split(parts, &|_| bytes, &self.cost(splitting))?;
        let seconds =
            self.compute(bytes, rates.sort_bytes_per_s) + self.compute(bytes, rates.merge_bytes_per_s);
        let mut passes = self.between("split", &found, splitting);
        passes.push(self.straight("sort parts", (bytes, bytes), parts, seconds));
        Some(way("distribute", parts, found.factors(), passes))
    }
}

fn pieces(count: f64) -> u32 {
    count.ceil().clamp(2.0, f64::from(u32::MAX)) as u32
}

fn way(method: &'static str, pieces: u32, factors: Vec<u32>, passes: Vec<SortPass>) -> SortWay {
    SortWay {
        method,
        pieces,
        factors,
        seconds: passes.iter().map(SortPass::seconds).sum(),
        bytes: passes.iter().map(|pass| pass.read_bytes + pass.written_bytes).sum(),
        switches: passes.iter().map(|pass| pass.switches).sum(),
        passes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::KernelRates;

    fn host(job: &SortJob) -> HostProfile {
        HostProfile { threads: 64, rates: KernelRates::assumed(job.class(), job.record_bytes) }
    }

    fn job(input_bytes: f64, memory_bytes: f64) -> SortJob {
        SortJob { input_bytes, record_bytes: 100.0, memory_bytes, most_streams: 16384 }
    }

    #[test]
    fn what_fits_is_sorted_in_memory() {
        let small = job(1e9, 4e9);
        let ways = small.ways(&VolumeProfile::assumed_flash(), &host(&small));
        assert_eq!(ways.len(), 1);
        assert_eq!((ways[0].method, ways[0].pieces), ("in memory", 1));
        assert!((ways[0].bytes - 2e9).abs() < 1.0);
    }

    #[test]
    fn switches_that_cost_much_make_more_passes() {
        let large = job(8e12, 2e9);
        let passes_at = |switch_seconds| {
            let volume = VolumeProfile::simple("array", 3.5e9, 3.5e9, switch_seconds);
            let ways = large.ways(&volume, &host(&large));
            assert!(ways.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds));
            let merge = ways.into_iter().find(|way| way.method == "merge").expect("a merge");
            let product: f64 = merge.factors.iter().copied().map(f64::from).product();
            assert!(product >= f64::from(merge.pieces));
            assert_eq!(merge.passes.len(), merge.factors.len() + 1);
            assert!((merge.bytes - 16e12 * merge.passes.len() as f64).abs() < 1.0);
            merge.passes.len()
        };
        assert_eq!(passes_at(0.0), 2);
        assert_eq!(passes_at(0.0155), 3);
    }

    #[test]
    fn a_slow_processor_binds() {
        let large = job(1e11, 1e9);
        let slow = HostProfile { threads: 1, ..host(&large) };
        let ways = large.ways(&VolumeProfile::simple("fast", 2e10, 2e10, 0.0), &slow);
        let form = &ways.iter().find(|way| way.method == "merge").expect("a merge").passes[0];
        assert!(form.compute_seconds > form.device_seconds);
        assert!((form.seconds() - form.compute_seconds).abs() < 1e-9);
    }

    #[test]
    fn numbers_have_no_index() {
        let numbers = SortJob { record_bytes: 8.0, ..job(1e9, 1e9) };
        assert!(numbers.load_bytes() > job(1e9, 1e9).load_bytes());
    }
}
