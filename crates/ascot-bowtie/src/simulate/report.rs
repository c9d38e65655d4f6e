//! A simulation in bytes, and its report: runs, memory and occupancies beside the formulas, as values and as text.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ascot_model::run_length::Baseline;
use ascot_model::units;
use serde::Serialize;

use crate::schedule::{EqualParts, Move, Schedule, SchedulerView, Split, Staircase};
use crate::simulate::rate_model::Setup;
use crate::simulate::simulator::{Deadlock, Outcome, simulate_by};

/// Name of the schedule that is there for comparison.
pub const EQUAL_PARTS: &str = "equal";

/// A bowtie to be simulated.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Streams, schedule and data, in blocks.
    pub setup: Setup,
    /// Gives every stream an equal part of the memory, instead of the schedule of the setup.
    pub equal_parts: bool,
    /// Memory of all blocks, bytes.
    pub memory_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl Simulation {
    /// Runs the schedule.
    ///
    /// # Errors
    /// [`Deadlock`] where the schedule cannot go on.
    pub fn run(&self) -> Result<SimulationReport, Deadlock> {
        self.run_until(&AtomicBool::new(false))
    }

    /// Runs the schedule until its end, or until `stop` is set.
    ///
    /// # Errors
    /// [`Deadlock`] where the schedule cannot go on, or was stopped.
    pub fn run_until(&self, stop: &AtomicBool) -> Result<SimulationReport, Deadlock> {
        let Setup { scheme, memory_blocks, .. } = self.setup;
        let run = |split: Split, schedule: &mut dyn Schedule| {
            simulate_by(&self.setup, split, &mut Stoppable { schedule, stop }, false)
        };
        let outcome = if self.equal_parts {
            let split = EqualParts::split(&scheme.shape, memory_blocks);
            run(split, &mut EqualParts::new(scheme.shape.inputs, split.read))?
        } else {
            let split = Split::new(&scheme, memory_blocks);
            run(split, &mut Staircase::new(scheme, split.read))?
        };
        Ok(SimulationReport::new(self, &outcome))
    }
}

/// A schedule that moves nothing more once `stop` is set.
struct Stoppable<'s> {
    schedule: &'s mut dyn Schedule,
    stop: &'s AtomicBool,
}

impl Schedule for Stoppable<'_> {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        if self.stop.load(Relaxed) { None } else { self.schedule.next(view) }
    }
}

/// Runs a simulation in which every stream has an equal part of the memory.
pub fn simulate_equal_parts(setup: &Setup) -> Result<Outcome, Deadlock> {
    let shape = setup.scheme.shape;
    let split = EqualParts::split(&shape, setup.memory_blocks);
    simulate_by(setup, split, &mut EqualParts::new(shape.inputs, split.read), false)
}

/// What a simulated bowtie did, in bytes, beside the formulas.
#[derive(Serialize)]
pub struct SimulationReport {
    /// Input streams.
    pub inputs: u32,
    /// Output streams.
    pub outputs: u32,
    /// Share of all bytes moved that are read.
    pub alpha: f64,
    /// Name of the schedule.
    pub schedule: &'static str,
    /// Inputs filled together.
    pub read_group: f64,
    /// Outputs written together.
    pub write_group: f64,
    /// Memory of all blocks.
    pub memory_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes read and written.
    pub moved_bytes: u64,
    /// Switches of the device.
    pub switches: u64,
    /// Mean run while all streams are live, after the first memory load; none: that state was never reached.
    pub run_bytes: Option<f64>,
    /// Run length by the formula; none: a single stream never switches.
    pub formula_run_bytes: Option<f64>,
    /// Mean run if every stream has an equal part of the memory.
    pub equal_parts_run_bytes: f64,
    /// Most memory held at once.
    pub peak_memory_bytes: u64,
    /// Bytes that inputs hold when one runs out, in descending order.
    pub input_stairs_bytes: Vec<f64>,
    /// Bytes that outputs hold when memory is full, in descending order.
    pub output_stairs_bytes: Vec<f64>,
    /// Bytes that each input holds in theory when the memory of inputs is full.
    pub formula_input_stairs_bytes: Vec<f64>,
    /// Bytes that each output holds in theory when the memory of outputs is full.
    pub formula_output_stairs_bytes: Vec<f64>,
}

impl SimulationReport {
    fn new(simulation: &Simulation, outcome: &Outcome) -> Self {
        let block = simulation.block_bytes as f64;
        let scheme = &simulation.setup.scheme;
        let shape = scheme.shape;
        let bytes = |stairs: &[f64]| stairs.iter().map(|blocks| blocks * block).collect();
        let memory = simulation.memory_bytes as f64;
        let equal_parts_run_bytes = Baseline::EqualParts.run_length(&shape, memory);
        let formula = if simulation.equal_parts { equal_parts_run_bytes } else { scheme.run_length(memory) };
        let group = |group: f64| if simulation.equal_parts { 1.0 } else { group };
        // Each stream's part, when it is full.
        let parts = |streams: u32, stairs: Vec<f64>| {
            if simulation.equal_parts { vec![equal_parts_run_bytes; streams as usize] } else { stairs }
        };
        SimulationReport {
            inputs: shape.inputs,
            outputs: shape.outputs,
            alpha: shape.alpha,
            schedule: if simulation.equal_parts { EQUAL_PARTS } else { scheme.algorithm.name() },
            read_group: group(scheme.read_group),
            write_group: group(scheme.write_group),
            memory_bytes: simulation.memory_bytes,
            block_bytes: simulation.block_bytes,
            moved_bytes: outcome.blocks * simulation.block_bytes,
            switches: outcome.runs,
            run_bytes: (outcome.steady_runs > 0).then(|| outcome.run_length() * block),
            formula_run_bytes: formula.is_finite().then_some(formula),
            equal_parts_run_bytes,
            peak_memory_bytes: u64::from(outcome.peak_blocks) * simulation.block_bytes,
            input_stairs_bytes: bytes(&outcome.input_staircase),
            output_stairs_bytes: bytes(&outcome.output_staircase),
            formula_input_stairs_bytes: parts(shape.inputs, scheme.input_occupancies(memory)),
            formula_output_stairs_bytes: parts(shape.outputs, scheme.output_occupancies(memory)),
        }
    }
}

impl std::fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = |bytes: f64| units::bytes(bytes as u64);
        writeln!(
            f,
            "bowtie    {} x {} by {}, {} in blocks of {}",
            self.inputs,
            self.outputs,
            self.schedule,
            units::memory(self.memory_bytes),
            units::memory(self.block_bytes),
        )?;
        if self.read_group > 1.0 || self.write_group > 1.0 {
            let group = |size: f64, what| (size > 1.0).then(|| format!("{size} {what} at a time"));
            let words = [group(self.read_group, "inputs filled"), group(self.write_group, "outputs written")];
            writeln!(f, "groups    {}", words.into_iter().flatten().collect::<Vec<_>>().join(", "))?;
        }
        writeln!(f, "moved     {} in {} runs", size(self.moved_bytes as f64), units::count(self.switches))?;
        match (self.run_bytes, self.formula_run_bytes) {
            (Some(run), Some(formula)) => writeln!(
                f,
                "runs      {} in the steady state; the formula says {}: {:.1}%",
                size(run),
                size(formula),
                100.0 * run / formula,
            )?,
            (Some(run), None) => writeln!(f, "runs      {}", size(run))?,
            (None, _) => writeln!(f, "runs      no steady state: streams ended before, or it was too short")?,
        }
        if let Some(run) = self.run_bytes {
            let equal = self.equal_parts_run_bytes;
            writeln!(
                f,
                "          {:.2} times as long as with equal parts of memory, {}",
                run / equal,
                size(equal)
            )?;
        }
        writeln!(f, "memory    {} at the most", units::memory(self.peak_memory_bytes))?;
        stairs_as_text(
            f,
            "inputs when one has run out",
            &self.input_stairs_bytes,
            &self.formula_input_stairs_bytes,
        )?;
        stairs_as_text(
            f,
            "outputs when there is no room",
            &self.output_stairs_bytes,
            &self.formula_output_stairs_bytes,
        )
    }
}

/// A chart of what streams hold: `#` seen, `|` the theory's full memory.
fn stairs_as_text(
    f: &mut std::fmt::Formatter<'_>,
    what: &str,
    seen: &[f64],
    theory: &[f64],
) -> std::fmt::Result {
    const ROWS: usize = 16;
    const COLUMNS: f64 = 48.0;
    let most = seen.iter().chain(theory).copied().fold(0.0, f64::max);
    if seen.len() < 2 || most <= 0.0 {
        return Ok(());
    }
    writeln!(f, "\n{what} (#), and full in theory (|)")?;
    for row in 0..seen.len().min(ROWS) {
        let at = if seen.len() <= ROWS { row } else { row * (seen.len() - 1) / (ROWS - 1) };
        let column = |bytes: f64| (bytes / most * COLUMNS).round() as usize;
        let mut line = vec![b' '; COLUMNS as usize + 1];
        line[..column(seen[at])].fill(b'#');
        line[column(theory.get(at).copied().unwrap_or(0.0))] = b'|';
        let line = String::from_utf8_lossy(&line).into_owned();
        writeln!(f, "{:>6}  {line}  {}", at + 1, units::bytes(seen[at] as u64))?;
    }
    Ok(())
}
