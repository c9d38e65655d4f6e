//! Ways to do a job, costed, and the one chosen. The time of a pass is the larger of what the
//! volume needs and what the processors need, because reading, computing and writing overlap.

use serde::{Deserialize, Serialize};

use crate::disk_use::DiskNeed;
use crate::host::HostProfile;
use crate::volume::VolumeProfile;

/// One pass over the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassPlan {
    /// What it does, as a person would say it.
    pub name: String,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests that do not continue the one before.
    pub switches: u64,
    /// Files read from at once.
    pub inputs: u64,
    /// Files written to at once.
    pub outputs: u64,
    /// How often, each time on other files; all else is summed up.
    #[serde(default = "once")]
    pub times: u64,
    /// Seconds the volume needs.
    pub device_seconds: f64,
    /// Seconds the processors need, all threads busy.
    pub compute_seconds: f64,
}

impl PassPlan {
    /// Costs a pass: `work` is a list of (bytes, bytes/s of one thread). Its switches are those of `moved`, or
    /// more where a request of the volume has a limit.
    pub fn new(
        name: impl Into<String>,
        moved: Moved,
        work: &[(u64, f64)],
        volume: &VolumeProfile,
        host: &HostProfile,
    ) -> Self {
        let files = (moved.inputs + moved.outputs) as f64;
        let (read, written) = (moved.read_bytes as f64, moved.written_bytes as f64);
        let switches = volume.switches(read + written, moved.switches as f64);
        let device_seconds = volume.seconds(read, written, switches, files);
        let compute_seconds =
            work.iter().map(|&(bytes, rate)| bytes as f64 / rate).sum::<f64>() / host.threads.max(1) as f64;
        PassPlan {
            name: name.into(),
            read_bytes: moved.read_bytes,
            written_bytes: moved.written_bytes,
            switches: switches as u64,
            inputs: moved.inputs,
            outputs: moved.outputs,
            times: moved.times.max(1),
            device_seconds,
            compute_seconds,
        }
    }

    /// Seconds the pass takes.
    pub fn seconds(&self) -> f64 {
        self.device_seconds.max(self.compute_seconds)
    }

    /// What holds it back.
    pub fn bound_by(&self) -> &'static str {
        if self.compute_seconds > self.device_seconds {
            "computing"
        } else if self.written_bytes > self.read_bytes {
            "writing"
        } else if self.read_bytes > self.written_bytes {
            "reading"
        } else {
            "reading and writing"
        }
    }
}

/// What a pass moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests that do not continue the one before.
    pub switches: u64,
    /// Files read from at once.
    pub inputs: u64,
    /// Files written to at once.
    pub outputs: u64,
    /// How often; 0 counts as once.
    pub times: u64,
}

fn once() -> u64 {
    1
}

/// A way to do the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// The method: `in memory`, `merge`, `distribute`, `copy`.
    pub method: String,
    /// The way in one line: `form 9 sorted runs, then merge them in one pass`.
    pub summary: String,
    /// Sorted runs, inputs or parts; 1 in memory.
    #[serde(default = "once")]
    pub pieces: u64,
    /// How many files each pass between merges into one, or splits one into.
    #[serde(default)]
    pub factors: Vec<u64>,
    /// Most files merged at once because the volume is faster so; none: as many as memory holds.
    #[serde(default)]
    pub merge_factor: Option<u64>,
    /// Its passes, in order.
    pub passes: Vec<PassPlan>,
    /// Most bytes of spills on disk at once, with what of the output is there by then.
    pub peak_disk_bytes: u64,
    /// The same by what takes it.
    #[serde(default)]
    pub disk: DiskNeed,
    /// Why one would or would not take it.
    pub remark: String,
}

impl Way {
    /// Seconds, all passes.
    pub fn seconds(&self) -> f64 {
        self.passes.iter().map(PassPlan::seconds).sum()
    }
    /// The sum of all passes, held within what can be counted.
    fn all(&self, of: impl Fn(&PassPlan) -> u64) -> u64 {
        self.passes.iter().map(of).fold(0, u64::saturating_add)
    }
    /// Bytes read, all passes.
    pub fn read_bytes(&self) -> u64 {
        self.all(|pass| pass.read_bytes)
    }
    /// Bytes written, all passes.
    pub fn written_bytes(&self) -> u64 {
        self.all(|pass| pass.written_bytes)
    }
    /// Requests that do not continue the one before, all passes.
    pub fn switches(&self) -> u64 {
        self.all(|pass| pass.switches)
    }
    /// What holds back the longest pass.
    pub fn bound_by(&self) -> &'static str {
        let longest = self.passes.iter().max_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        longest.map_or("nothing", PassPlan::bound_by)
    }
}

/// Ways within this factor of the fastest count as fast as it.
const ABOUT_AS_FAST: f64 = 1.03;

/// The way chosen, and the others with their cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes of input; none: a pipe, not known.
    pub input_bytes: Option<u64>,
    /// Records of input, from the size or a sample.
    pub input_records: Option<u64>,
    /// The cap, bytes.
    pub memory_bytes: u64,
    /// Compute threads.
    pub threads: usize,
    /// The volume it was costed on.
    pub volume: VolumeProfile,
    /// The way taken.
    pub chosen: Way,
    /// The ways not taken.
    pub others: Vec<Way>,
    /// Whether the user, not the cost, chose the method.
    pub forced: bool,
}

impl Plan {
    /// Takes the cheapest of `ways` by predicted time; of those about as fast, the one that computes
    /// least; the first wins a tie.
    pub fn cheapest(ways: Vec<Way>) -> Option<(Way, Vec<Way>)> {
        let least = ways.iter().map(Way::seconds).min_by(f64::total_cmp)?;
        let as_fast = |&at: &usize| ways[at].seconds() <= least * ABOUT_AS_FAST;
        let computing = |at: usize| ways[at].passes.iter().map(|pass| pass.compute_seconds).sum::<f64>();
        let best = (0..ways.len()).filter(as_fast).min_by(|&a, &b| computing(a).total_cmp(&computing(b)))?;
        let mut others = ways;
        let chosen = others.remove(best);
        Some((chosen, others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{KernelRates, RecordClass};

    fn host() -> HostProfile {
        HostProfile {
            threads: 2,
            rates: KernelRates::assumed(RecordClass::Fixed, 100.0),
            fresh_bytes_per_s: None,
        }
    }

    fn way(bytes: u64, rate: f64) -> Way {
        let moved = Moved { read_bytes: bytes, written_bytes: bytes, ..Moved::default() };
        let pass = PassPlan::new("x", moved, &[(bytes, rate)], &VolumeProfile::assumed_flash(), &host());
        Way {
            method: "merge".into(),
            summary: String::new(),
            pieces: 1,
            factors: Vec::new(),
            merge_factor: None,
            passes: vec![pass],
            peak_disk_bytes: bytes,
            disk: DiskNeed::default(),
            remark: String::new(),
        }
    }

    #[test]
    fn a_pass_takes_the_larger_of_device_and_compute() {
        assert_eq!(way(1_000_000_000, 1e8).passes[0].bound_by(), "computing");
        assert!((way(1_000_000_000, 1e8).seconds() - 5.0).abs() < 1e-9);
        assert_eq!(way(1_000_000_000, 1e10).passes[0].bound_by(), "reading and writing");
        assert!((way(1_000_000_000, 1e10).seconds() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_cheapest_way_wins_and_the_first_wins_a_tie() {
        let (chosen, others) =
            Plan::cheapest(vec![way(3, 1e9), way(1, 1e9), way(1, 1e9)]).expect("three ways");
        assert_eq!(chosen.read_bytes(), 1);
        assert_eq!(others.len(), 2);
        assert!(Plan::cheapest(Vec::new()).is_none());
    }
}
