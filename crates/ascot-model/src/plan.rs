//! The methods for a job, costed, and the one chosen.
//!
//! Reading, computing and writing overlap, but not wholly: a thread that hands over a block, and a device that
//! completes a request, wait for the other side now and then, the more often the closer the two are in speed. So a pass
//! takes the time of the slower side if the other one has little to do, and more than that if both are busy:
//!
//! ```text
//!   seconds = (device^p + compute^p)^(1/p)        p = 1: not at all; infinity: wholly
//! ```
//!
//! A merge overlaps less than other passes: it needs the next block of one certain input. So does any pass of a sort
//! within little memory, whose stages soon wait for each other. A split into the parts that a user asked for overlaps
//! more: it works on whichever block comes next. So does the reading of a view, which knows before the first read when
//! it needs each block.

use serde::{Deserialize, Serialize};

use crate::disk_use::DiskNeed;
use crate::host::{HostProfile, memory_share};
use crate::volume::VolumeProfile;

/// One pass over the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassPlan {
    /// Its description in words.
    pub name: String,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Switches: requests that do not continue the previous one.
    pub switches: u64,
    /// Files read at once.
    pub inputs: u64,
    /// Files written at once; 0 if the pass writes to a pipe, which costs no switch and no time of the volume.
    pub outputs: u64,
    /// How often it is executed, each time on other files; all other figures are sums.
    #[serde(default = "once")]
    pub times: u64,
    /// Requests of a block each, of which the device and the processors need some time beyond that of the bytes; 0: not
    /// known.
    #[serde(default)]
    pub requests: u64,
    /// Checkpoints: how often what was written becomes durable.
    #[serde(default)]
    pub checkpoints: u64,
    /// Seconds of the volume.
    pub device_seconds: f64,
    /// Seconds of the processors, with all threads busy.
    pub compute_seconds: f64,
    /// How well both overlap, `p` above.
    #[serde(default = "usual_overlap")]
    pub overlap: f64,
}

impl PassPlan {
    /// Costs a pass: `work` is a list of (bytes, bytes/s of one thread). It has the switches of `moved`, or more if
    /// requests of the volume have a limit.
    pub fn new(
        name: impl Into<String>,
        moved: Moved,
        work: &[(u64, f64)],
        volume: &VolumeProfile,
        host: &HostProfile,
    ) -> Self {
        let work_s = work.iter().map(|&(bytes, rate)| bytes as f64 / rate).sum::<f64>();
        let moved_bytes = moved.read_bytes as f64 + moved.written_bytes as f64;
        let moving_s = moved.requests as f64 * host.request_seconds + moved_bytes * host.byte_seconds;
        let compute_seconds = (work_s + moving_s) / host.threads.max(1) as f64;
        let mut pass = PassPlan {
            name: name.into(),
            read_bytes: moved.read_bytes,
            written_bytes: moved.written_bytes,
            switches: 0,
            inputs: moved.inputs,
            outputs: moved.outputs,
            times: moved.times.max(1),
            requests: moved.requests,
            checkpoints: moved.checkpoints,
            device_seconds: 0.0,
            compute_seconds,
            overlap: OVERLAP,
        };
        pass.set_switches(moved.switches, volume);
        pass
    }

    /// The pass as one that merges.
    #[must_use]
    pub fn merging(self) -> Self {
        PassPlan { overlap: self.overlap.min(MERGE_OVERLAP), ..self }
    }

    /// The pass as one of a split by a user's key, which does `work` times the work of a distribution. Its threads wait
    /// for the device less than those of other passes within the same memory.
    #[must_use]
    pub fn splitting(self, work: f64, memory_bytes: u64) -> Self {
        let overlap = 1.0 + (SPLIT_OVERLAP - 1.0) * memory_share(memory_bytes);
        PassPlan { overlap, compute_seconds: self.compute_seconds * work, ..self }
    }

    /// The pass as the reading of a view.
    #[must_use]
    pub fn reading_view(self) -> Self {
        PassPlan { overlap: VIEW_OVERLAP, ..self }
    }

    /// The pass within `memory_bytes`.
    #[must_use]
    pub fn within(self, memory_bytes: u64) -> Self {
        let overlap = 1.0 + (OVERLAP - 1.0) * memory_share(memory_bytes);
        PassPlan { overlap: self.overlap.min(overlap), ..self }
    }

    /// Sets its switches, or more if requests of the volume have a limit, and the seconds of the volume.
    pub fn set_switches(&mut self, switches: u64, volume: &VolumeProfile) {
        let read = self.read_bytes as f64;
        let written = self.bytes_to_files() as f64;
        let switches = volume.switches(read + written, switches as f64);
        self.switches = switches as u64;
        let files = (self.inputs + self.outputs) as f64;
        self.device_seconds = volume.seconds(read, written, switches, files)
            + volume.seconds_of(self.requests, self.checkpoints);
    }

    /// Bytes written to files.
    pub fn bytes_to_files(&self) -> u64 {
        if self.outputs > 0 { self.written_bytes } else { 0 }
    }

    /// Adds a switch for each of `files` files that are written one after another.
    pub fn add_files_in_turn(&mut self, files: u64, volume: &VolumeProfile) {
        self.switches += files;
        self.device_seconds += volume.seconds(0.0, 0.0, files as f64, (self.inputs + self.outputs) as f64);
    }

    /// Seconds the pass takes.
    pub fn seconds(&self) -> f64 {
        let p = self.overlap;
        (self.device_seconds.powf(p) + self.compute_seconds.powf(p)).powf(1.0 / p)
    }

    /// The bottleneck.
    pub fn bound_by(&self) -> &'static str {
        let written_bytes = self.bytes_to_files();
        if self.compute_seconds > self.device_seconds {
            "computing"
        } else if written_bytes > self.read_bytes {
            "writing"
        } else if self.read_bytes > written_bytes {
            "reading"
        } else {
            "reading and writing"
        }
    }
}

/// The overlap of a pass with much memory, of a merge, of a split into a user's parts, and of the reading of a view.
/// Within little memory nothing overlaps, except in views. Held against 132 passes of eighty jobs of all layouts on two
/// cores, and that of views against six within 23 to 190 MiB.
pub const OVERLAP: f64 = 1.5;
const MERGE_OVERLAP: f64 = 1.2;
const SPLIT_OVERLAP: f64 = 2.0;
const VIEW_OVERLAP: f64 = 2.0;

fn usual_overlap() -> f64 {
    OVERLAP
}

/// The bytes, switches and files of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Switches: requests that do not continue the previous one.
    pub switches: u64,
    /// Files read at once.
    pub inputs: u64,
    /// Files written at once; 0 if the pass writes to a pipe.
    pub outputs: u64,
    /// How often the pass is executed; 0 counts as once.
    pub times: u64,
    /// Requests of a block each; 0: not known.
    pub requests: u64,
    /// Checkpoints; 0: not known.
    pub checkpoints: u64,
}

fn once() -> u64 {
    1
}

/// A method for the job, with its passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MethodPlan {
    /// The method: `in memory`, `merge`, `distribute`, `copy`.
    pub method: String,
    /// The method in one line: `form 9 sorted runs, then merge them in one pass`.
    pub summary: String,
    /// Number of sorted runs, inputs or parts; 1 in memory.
    #[serde(default = "once")]
    pub pieces: u64,
    /// The fan-in or fan-out of each pass.
    #[serde(default)]
    pub factors: Vec<u64>,
    /// The fan-in of merges, if the volume is faster with fewer files than memory allows; otherwise `None`.
    #[serde(default)]
    pub merge_factor: Option<u64>,
    /// Bytes of records that stay in memory from the first pass to the last, without a spill.
    #[serde(default)]
    pub held_bytes: u64,
    /// The reading of a sample of the keys before the first pass, if ranges of keys are bounded by one.
    #[serde(default)]
    pub sample: Option<PassPlan>,
    /// Its passes, in order.
    pub passes: Vec<PassPlan>,
    /// Peak bytes of spills and output on disk.
    pub peak_disk_bytes: u64,
    /// The same in detail.
    #[serde(default)]
    pub disk: DiskNeed,
    /// A reason for or against it.
    pub remark: String,
}

impl MethodPlan {
    /// Its passes that split.
    pub fn splits(&self) -> impl Iterator<Item = &PassPlan> {
        self.passes.iter().filter(|pass| pass.name.starts_with("split"))
    }

    /// The sample of the keys, if there is one, and all passes.
    fn steps(&self) -> impl Iterator<Item = &PassPlan> {
        self.sample.iter().chain(&self.passes)
    }
    /// Seconds, all passes.
    pub fn seconds(&self) -> f64 {
        self.steps().map(PassPlan::seconds).sum()
    }
    /// The sum over all passes; it saturates.
    fn sum(&self, figure: impl Fn(&PassPlan) -> u64) -> u64 {
        self.steps().map(figure).fold(0, u64::saturating_add)
    }
    /// Bytes read, all passes.
    pub fn read_bytes(&self) -> u64 {
        self.sum(|pass| pass.read_bytes)
    }
    /// Bytes written, all passes.
    pub fn written_bytes(&self) -> u64 {
        self.sum(|pass| pass.written_bytes)
    }
    /// Switches, all passes.
    pub fn switches(&self) -> u64 {
        self.sum(|pass| pass.switches)
    }
    /// The bottleneck of the longest pass.
    pub fn bound_by(&self) -> &'static str {
        let longest = self.steps().max_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        longest.map_or("nothing", PassPlan::bound_by)
    }
}

/// Methods within this factor of the fastest count as equally fast, and those within it of the least computing as
/// computing about as much: predictions are not more exact.
const EQUALLY_FAST: f64 = 1.03;
/// The same on a volume of assumed rates. Devices differ more than processors, so less computing is the safer choice.
/// Measured on u64 of 1.1, 1.5, 2, 3 and 6 times the memory, where a merge that holds the end of the input in memory
/// was predicted at 0.65, 0.75, 0.81, 0.88 and 0.94 of the time of a distribution: it took 0.91, 1.07, 1.17, 1.03 and
/// 1.14.
const EQUALLY_FAST_IF_ASSUMED: f64 = 1.34;

/// The chosen method, and the others with their cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes of input; `None`: unknown, a pipe.
    pub input_bytes: Option<u64>,
    /// Number of input records, from the size or a sample.
    pub input_records: Option<u64>,
    /// The memory cap, bytes.
    pub memory_bytes: u64,
    /// Compute threads.
    pub threads: usize,
    /// The volume it was costed on.
    pub volume: VolumeProfile,
    /// The chosen method.
    pub chosen: MethodPlan,
    /// The methods not chosen.
    pub others: Vec<MethodPlan>,
    /// Whether the user chose the method.
    pub forced: bool,
}

impl Plan {
    /// The chosen method, and the others.
    pub fn methods_mut(&mut self) -> impl Iterator<Item = &mut MethodPlan> {
        std::iter::once(&mut self.chosen).chain(&mut self.others)
    }

    /// The plan for a report. If the size of the input is unknown, its passes and its disk use are assumptions by which
    /// the job began, not predictions: they are left out.
    #[must_use]
    pub fn reported(mut self) -> Self {
        if self.input_bytes.is_none() {
            for method in self.methods_mut() {
                method.passes.clear();
                method.factors.clear();
                method.peak_disk_bytes = 0;
                method.disk = DiskNeed::default();
            }
        }
        self
    }

    /// The method with the shortest predicted time on `volume`, and the others. Of equally fast ones, the one that
    /// computes least wins; of those that compute about as much, the first.
    pub fn cheapest(
        mut methods: Vec<MethodPlan>,
        volume: &VolumeProfile,
    ) -> Option<(MethodPlan, Vec<MethodPlan>)> {
        let fastest = methods.iter().map(MethodPlan::seconds).min_by(f64::total_cmp)?;
        let tolerance = if volume.is_assumed_flash() { EQUALLY_FAST_IF_ASSUMED } else { EQUALLY_FAST };
        let is_fast = |&at: &usize| methods[at].seconds() <= fastest * tolerance;
        let computing = |at: usize| methods[at].passes.iter().map(|pass| pass.compute_seconds).sum::<f64>();
        let fast = || (0..methods.len()).filter(is_fast);
        let least = fast().map(computing).min_by(f64::total_cmp)?;
        let best = fast().find(|&at| computing(at) <= least * EQUALLY_FAST)?;
        Some((methods.remove(best), methods))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{RecordClass, RecordKind};

    fn host() -> HostProfile {
        HostProfile::assumed(2, RecordKind { class: RecordClass::Fixed, bytes: 100.0, keys: 1 })
    }

    fn method(bytes: u64, rate: f64) -> MethodPlan {
        let moved = Moved { read_bytes: bytes, written_bytes: bytes, outputs: 1, ..Moved::default() };
        let pass = PassPlan::new("x", moved, &[(bytes, rate)], &VolumeProfile::assumed_flash(), &host());
        MethodPlan {
            held_bytes: 0,
            method: "merge".into(),
            summary: String::new(),
            pieces: 1,
            factors: Vec::new(),
            merge_factor: None,
            sample: None,
            passes: vec![pass],
            peak_disk_bytes: bytes,
            disk: DiskNeed::default(),
            remark: String::new(),
        }
    }

    #[test]
    fn a_pass_takes_little_more_than_the_slower_of_device_and_compute() {
        assert_eq!(method(1_000_000_000, 1e8).passes[0].bound_by(), "computing");
        let seconds = method(1_000_000_000, 1e8).seconds();
        assert!((5.0..6.0).contains(&seconds), "one of the device, five of the processors: {seconds}");
        assert_eq!(method(1_000_000_000, 1e10).passes[0].bound_by(), "reading and writing");
        let seconds = method(1_000_000_000, 1e10).seconds();
        assert!((1.0..1.01).contains(&seconds), "{seconds}");
    }

    #[test]
    fn the_cheapest_method_wins_and_the_first_wins_a_tie() {
        let volume = VolumeProfile::assumed_flash();
        let methods = vec![method(3, 1e9), method(1, 1e9), method(1, 1e9)];
        let (chosen, others) = Plan::cheapest(methods, &volume).expect("three methods");
        assert_eq!(chosen.read_bytes(), 1);
        assert_eq!(others.len(), 2);
        assert!(Plan::cheapest(Vec::new(), &volume).is_none());
    }

    #[test]
    fn on_assumed_rates_less_computing_is_worth_a_third_of_the_time() {
        let assumed = VolumeProfile::assumed_flash();
        let measured = VolumeProfile { name: "measured".into(), ..assumed.clone() };
        let chosen_bytes = |slower: f64, volume: &VolumeProfile| {
            // Both are bound by the device; the first computes a fourth of the time.
            let methods = vec![method(1_000_000_000, 2e9), method((slower * 1e9) as u64, 1e10)];
            Plan::cheapest(methods, volume).expect("two methods").0.read_bytes()
        };
        assert_eq!(chosen_bytes(1.40, &assumed), 1_400_000_000);
        assert_eq!(chosen_bytes(1.48, &assumed), 1_000_000_000);
        assert_eq!(chosen_bytes(1.40, &measured), 1_000_000_000);
        assert_eq!(chosen_bytes(1.09, &measured), 1_090_000_000);
    }
}
