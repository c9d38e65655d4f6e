//! The passes of DiskBench: which directions are busy, with how many requests in flight, and whether outputs are
//! allocated before they are written.
//!
//! The depths are those of Conley, Vahdat and Porter ("Sorting 100 TB on Google Compute Engine", section 4.2): requests
//! of 4 MiB, two reads in flight for each volume that is read in both phases, four writes for each volume that is
//! written in map-and-shuffle, and two in sort-and-reduce.

use serde::Serialize;

/// Bytes of a request in the paper.
pub const DEFAULT_REQUEST_BYTES: u64 = 4 << 20;
/// Reads in flight for each volume.
pub const READS: usize = 2;

/// A phase of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Reads the input, and writes runs or partitions.
    MapAndShuffle,
    /// Reads runs or partitions, and writes the output.
    SortAndReduce,
}

impl Phase {
    /// Both, in the order of a sort.
    pub const ALL: [Phase; 2] = [Phase::MapAndShuffle, Phase::SortAndReduce];

    /// Its name in text.
    pub fn name(self) -> &'static str {
        match self {
            Phase::MapAndShuffle => "map-and-shuffle",
            Phase::SortAndReduce => "sort-and-reduce",
        }
    }

    /// Writes in flight for each volume.
    pub fn writes(self) -> usize {
        match self {
            Phase::MapAndShuffle => 4,
            Phase::SortAndReduce => 2,
        }
    }
}

/// The busy directions of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// The inputs are read, and what is read is written to the outputs.
    Both,
    /// The inputs are read.
    Reading,
    /// The outputs are written.
    Writing,
}

/// A pass over all bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pass {
    /// The phase whose depths it has; `None`: that of both phases.
    pub phase: Option<Phase>,
    /// The busy directions.
    pub directions: Directions,
    /// Whether the outputs are allocated before the first write (fallocate).
    pub preallocated: bool,
    /// Reads in flight for each input; 0 if it reads nothing.
    pub reads: usize,
    /// Writes in flight for each output; 0 if it writes nothing.
    pub writes: usize,
}

impl Pass {
    /// All passes, in the order in which they run and are shown.
    pub fn all() -> Vec<Pass> {
        let mut passes = Vec::new();
        for phase in Phase::ALL {
            for preallocated in [false, true] {
                for directions in [Directions::Both, Directions::Writing] {
                    let reads = if directions == Directions::Both { READS } else { 0 };
                    let writes = phase.writes();
                    passes.push(Pass { phase: Some(phase), directions, preallocated, reads, writes });
                }
            }
        }
        let directions = Directions::Reading;
        passes.push(Pass { phase: None, directions, preallocated: false, reads: READS, writes: 0 });
        passes
    }

    /// Whether it reads the inputs.
    pub fn reads_inputs(&self) -> bool {
        self.reads > 0
    }

    /// Whether it writes the outputs.
    pub fn writes_outputs(&self) -> bool {
        self.writes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_runs_with_and_without_preallocation() {
        let passes = Pass::all();
        for (phase, writes) in [(Phase::MapAndShuffle, 4), (Phase::SortAndReduce, 2)] {
            for preallocated in [false, true] {
                let found = passes.iter().find(|pass| {
                    pass.phase == Some(phase)
                        && pass.preallocated == preallocated
                        && pass.directions == Directions::Both
                });
                assert_eq!(found.map(|pass| (pass.reads, pass.writes)), Some((2, writes)));
            }
        }
        assert_eq!(passes.iter().filter(|pass| pass.directions == Directions::Reading).count(), 1);
        assert_eq!(passes.iter().filter(|pass| pass.directions == Directions::Writing).count(), 4);
    }
}
