//! A simulation by the numbers that users give: streams, bytes, a schedule. Checks them, chooses the rest, and runs it.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ascot_model::run_length::{Algorithm, BadShape, Scheme, Shape};
use ascot_model::units;
use thiserror::Error;

use crate::constants::{SIMULATED_BLOCKS, SIMULATED_MEMORIES};
use crate::simulate::choose::best_scheme;
use crate::simulate::rate_model::{Setup, Skew};
use crate::simulate::report::{EQUAL_PARTS, Simulation, SimulationReport};
use crate::simulate::simulator::Deadlock;

/// Bytes of a block at least, unless a block size is given.
const MIN_BLOCK_BYTES: u64 = 4096;
/// Limit of blocks: each takes a step over every stream, so more would take too long.
const MAX_BLOCKS: u64 = 1 << 26;

/// A bowtie to simulate.
#[derive(Clone, Debug)]
pub struct SimulationRequest {
    /// Input streams; 0: data come from memory.
    pub inputs: u32,
    /// Output streams; 0: data go to memory.
    pub outputs: u32,
    /// Bytes read as a share of all bytes read and written.
    pub alpha: f64,
    /// Memory of all blocks, bytes.
    pub memory_bytes: u64,
    /// Bytes of a block; none: by the memory.
    pub block_bytes: Option<u64>,
    /// Bytes that move until the end; none: a multiple of the memory.
    pub total_bytes: Option<u64>,
    /// The schedule.
    pub schedule: ScheduleChoice,
    /// Inputs filled, or outputs written, together; none: the best number.
    pub group: Option<u64>,
    /// How fast streams are consumed and filled.
    pub skew: Skew,
    /// Seed of the random rates.
    pub seed: u64,
}

impl Default for SimulationRequest {
    /// One input and one output, alike in bytes, within 1 GiB.
    fn default() -> Self {
        SimulationRequest {
            inputs: 1,
            outputs: 1,
            alpha: 0.5,
            memory_bytes: 1 << 30,
            block_bytes: None,
            total_bytes: None,
            schedule: ScheduleChoice::Best,
            group: None,
            skew: Skew::Equal,
            seed: 1,
        }
    }
}

/// The schedule of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleChoice {
    /// The one with the longest runs.
    Best,
    /// This one.
    Algorithm(Algorithm),
    /// An equal part of memory for each stream, for comparison.
    EqualParts,
}

/// A simulation that cannot be made. Its text says what to do.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SimulationError {
    /// Numbers that describe no bowtie.
    #[error(transparent)]
    Shape(#[from] BadShape),
    /// A name of no schedule.
    #[error("there is no schedule '{0}'\n  accepted: best, a1, a2, a3, a4, a5, a6r, a6w, equal")]
    Schedule(String),
    /// A text that is no skew.
    #[error(
        "invalid argument '{0}' for --skew\n  accepted: equal, zipf:1.0, fast:10, noise:0.5, bursts:1000, ends"
    )]
    Skew(String),
    /// The number of a skew is out of its range.
    #[error("--skew '{text}' is not a number from {min} to {max}\n  such as 0.5")]
    SkewNumber {
        /// The number.
        text: String,
        /// The least one.
        min: f64,
        /// The greatest one.
        max: f64,
    },
    /// Memory has too few blocks.
    #[error(
        "{} holds {blocks} blocks of {}\n  {inputs} x {outputs} needs at least {min}: give more --memory, or smaller \
         blocks (--block)",
        units::memory(*memory_bytes), units::memory(*block_bytes)
    )]
    FewBlocks {
        /// Bytes of memory.
        memory_bytes: u64,
        /// Bytes of a block.
        block_bytes: u64,
        /// Blocks of memory.
        blocks: u64,
        /// Inputs.
        inputs: u32,
        /// Outputs.
        outputs: u32,
        /// Blocks that the streams need.
        min: u64,
    },
    /// Simulating this number of blocks would take too long.
    #[error(
        "{} blocks are too many to simulate\n  give larger blocks (--block), or less data (--total)",
        units::count(*.0)
    )]
    ManyBlocks(u64),
    /// The schedule does not apply to the streams.
    #[error(
        "{} does not apply to {inputs} x {outputs}\n  a1: 0 x m, a2: 1 x m, a3: n x 0, a4: n x 1, a5, a6r and a6w: \
         n x m",
        algorithm.name()
    )]
    OtherShape {
        /// The schedule.
        algorithm: Algorithm,
        /// Inputs.
        inputs: u32,
        /// Outputs.
        outputs: u32,
    },
    /// Equal parts have no groups.
    #[error(
        "--group with --schedule {EQUAL_PARTS}: no stream is filled or written with others\n  give only one of the two"
    )]
    GroupOfEqualParts,
    /// A group of more streams than there are.
    #[error("--group {group} is not possible with {inputs} x {outputs}\n  accepted: from 1 to {max}")]
    Group {
        /// The group.
        group: u64,
        /// Inputs.
        inputs: u32,
        /// Outputs.
        outputs: u32,
        /// The largest group.
        max: u64,
    },
    /// The schedule cannot go on.
    #[error("{0}\n  give more --memory, or smaller blocks (--block)")]
    Deadlock(#[from] Deadlock),
    /// The caller stopped the simulation.
    #[error("stopped")]
    Stopped,
}

impl SimulationRequest {
    /// Runs the schedule.
    ///
    /// # Errors
    /// [`SimulationError`] for numbers that do not fit together.
    pub fn run(&self) -> Result<SimulationReport, SimulationError> {
        self.run_until(&AtomicBool::new(false))
    }

    /// Runs the schedule until its end, or until `stop` is set.
    ///
    /// # Errors
    /// [`SimulationError::Stopped`] once `stop` is set; otherwise those of [`Self::run`].
    pub fn run_until(&self, stop: &AtomicBool) -> Result<SimulationReport, SimulationError> {
        self.simulation()?
            .run_until(stop)
            .map_err(|deadlock| if stop.load(Relaxed) { SimulationError::Stopped } else { deadlock.into() })
    }

    fn simulation(&self) -> Result<Simulation, SimulationError> {
        let SimulationRequest { inputs, outputs, memory_bytes, .. } = *self;
        let shape = Shape::checked(inputs, outputs, self.alpha)?;
        let block_bytes =
            self.block_bytes.unwrap_or((memory_bytes / SIMULATED_BLOCKS).max(MIN_BLOCK_BYTES)).max(1);
        let blocks = memory_bytes / block_bytes;
        let min = u64::from(inputs) + 1 + 2 * u64::from(outputs);
        if blocks < min {
            return Err(SimulationError::FewBlocks {
                memory_bytes,
                block_bytes,
                blocks,
                inputs,
                outputs,
                min,
            });
        }
        let total_bytes = self.total_bytes.unwrap_or(memory_bytes.saturating_mul(SIMULATED_MEMORIES));
        let total_blocks = total_bytes / block_bytes;
        if total_blocks.max(blocks) > MAX_BLOCKS {
            return Err(SimulationError::ManyBlocks(total_blocks.max(blocks)));
        }
        let setup = Setup {
            scheme: self.scheme(shape, blocks as u32)?,
            memory_blocks: blocks as u32,
            total_blocks,
            output_skew: if self.skew == Skew::Ends { Skew::Equal } else { self.skew.clone() },
            input_skew: self.skew.clone(),
            seed: self.seed,
        };
        let equal_parts = self.schedule == ScheduleChoice::EqualParts;
        Ok(Simulation { setup, equal_parts, memory_bytes, block_bytes })
    }

    fn scheme(&self, shape: Shape, memory_blocks: u32) -> Result<Scheme, SimulationError> {
        let Shape { inputs, outputs, .. } = shape;
        let scheme = match self.schedule {
            ScheduleChoice::Algorithm(algorithm) => Scheme::best_of(shape, algorithm)
                .ok_or(SimulationError::OtherShape { algorithm, inputs, outputs })?,
            ScheduleChoice::Best | ScheduleChoice::EqualParts => best_scheme(shape, memory_blocks),
        };
        let Some(group) = self.group else { return Ok(scheme) };
        if self.schedule == ScheduleChoice::EqualParts {
            return Err(SimulationError::GroupOfEqualParts);
        }
        let max = u64::from(inputs.max(outputs));
        if !(1..=max).contains(&group) {
            return Err(SimulationError::Group { group, inputs, outputs, max });
        }
        Ok(Scheme::new(shape, scheme.algorithm, group as f64, group as f64))
    }
}

impl FromStr for ScheduleChoice {
    type Err = SimulationError;

    /// `best`, `equal`, or the published name of an algorithm in lower case.
    fn from_str(text: &str) -> Result<Self, SimulationError> {
        match text {
            "best" => Ok(ScheduleChoice::Best),
            EQUAL_PARTS => Ok(ScheduleChoice::EqualParts),
            name => {
                let found = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
                found.map(ScheduleChoice::Algorithm).ok_or_else(|| SimulationError::Schedule(name.to_owned()))
            }
        }
    }
}

impl FromStr for Skew {
    type Err = SimulationError;

    /// `equal`, `ends`, `zipf:1.0`, `fast:10`, `noise:0.5` or `bursts:1000`; the number may be left out.
    fn from_str(text: &str) -> Result<Self, SimulationError> {
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        let number = |usual: f64, min: f64, max: f64| match value.map(|text| (text, text.parse::<f64>())) {
            None => Ok(usual),
            Some((_, Ok(number))) if (min..=max).contains(&number) => Ok(number),
            Some((text, _)) => Err(SimulationError::SkewNumber { text: text.to_owned(), min, max }),
        };
        match name {
            "equal" if value.is_none() => Ok(Skew::Equal),
            "ends" if value.is_none() => Ok(Skew::Ends),
            "zipf" => Ok(Skew::Zipf(number(1.0, 0.0, 10.0)?)),
            "fast" => Ok(Skew::OneFast(number(10.0, 0.0, 1e9)?)),
            "noise" => Ok(Skew::Noise(number(0.5, 0.0, 1.0)?)),
            "bursts" => Ok(Skew::Bursts(number(1000.0, 1.0, 1e9)?)),
            _ => Err(SimulationError::Skew(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_of_the_defaults_and_of_a_merge_run() {
        let merge = SimulationRequest { inputs: 16, memory_bytes: 16 << 20, ..SimulationRequest::default() };
        let report = merge.run().expect("enough memory");
        assert_eq!((report.inputs, report.outputs, report.schedule), (16, 1, "a4"));
        assert_eq!(report.block_bytes, MIN_BLOCK_BYTES);
        assert!(report.moved_bytes >= SIMULATED_MEMORIES * merge.memory_bytes);
        let equal = SimulationRequest { schedule: ScheduleChoice::EqualParts, ..merge };
        assert!(equal.run().expect("enough memory").switches > report.switches);
    }

    #[test]
    fn a_simulation_stops_once_its_caller_says_so() {
        for schedule in [ScheduleChoice::Best, ScheduleChoice::EqualParts] {
            let request =
                SimulationRequest { schedule, memory_bytes: 1 << 20, ..SimulationRequest::default() };
            assert_eq!(request.run_until(&AtomicBool::new(true)).err(), Some(SimulationError::Stopped));
            assert!(request.run_until(&AtomicBool::new(false)).is_ok());
        }
    }

    #[test]
    fn numbers_that_do_not_fit_together_are_refused() {
        let usual = SimulationRequest { inputs: 16, memory_bytes: 16 << 20, ..SimulationRequest::default() };
        let refused = |request: SimulationRequest| request.run().err().expect("refused").to_string();
        let cases = [
            (SimulationRequest { inputs: 0, outputs: 0, ..usual.clone() }, "needs streams"),
            (SimulationRequest { alpha: f64::NAN, ..usual.clone() }, "--alpha"),
            (SimulationRequest { memory_bytes: 4096, ..usual.clone() }, "needs at least 19"),
            (
                SimulationRequest { block_bytes: Some(0), total_bytes: Some(u64::MAX), ..usual.clone() },
                "too many",
            ),
            (SimulationRequest { group: Some(17), ..usual.clone() }, "from 1 to 16"),
            (
                SimulationRequest { schedule: ScheduleChoice::EqualParts, group: Some(2), ..usual.clone() },
                "only one of the two",
            ),
            (
                SimulationRequest { schedule: ScheduleChoice::Algorithm(Algorithm::A1), ..usual },
                "does not apply to 16 x 1",
            ),
        ];
        for (request, told) in cases {
            let text = refused(request);
            assert!(text.contains(told), "{text}");
        }
    }

    #[test]
    fn names_of_schedules_and_skews_are_read() {
        assert_eq!("a6r".parse(), Ok(ScheduleChoice::Algorithm(Algorithm::A6r)));
        assert_eq!("equal".parse(), Ok(ScheduleChoice::EqualParts));
        assert!("A6".parse::<ScheduleChoice>().is_err());
        assert_eq!("zipf".parse(), Ok(Skew::Zipf(1.0)));
        assert_eq!("noise:0.25".parse(), Ok(Skew::Noise(0.25)));
        for wrong in ["equal:1", "noise:2", "zipf:x", "", "often"] {
            assert!(wrong.parse::<Skew>().is_err(), "{wrong}");
        }
    }
}
