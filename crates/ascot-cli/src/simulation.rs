//! `ascot simulate`: the schedules on numbers, beside the formulas.

use std::ffi::OsString;
use std::path::PathBuf;

use ascot_bowtie::schedule::EqualParts;
use ascot_bowtie::simulate::{Deadlock, Outcome, Setup, Skew, simulate, simulate_by};
use ascot_model::run_length::{Algorithm, Baseline, Scheme};
use ascot_model::units;
use clap::ArgMatches;
use serde::Serialize;

use crate::chart::stairs;
use crate::failure::Failure;
use crate::numbers;
use crate::report_file::write_whole;
use crate::sort::print;

/// Blocks the memory is cut into unless a block's size is given: so many that what does not fit a
/// block is nothing.
const BLOCKS: u64 = 16384;
const LEAST_BLOCK_BYTES: u64 = 4096;
/// More blocks than this are not worth waiting for: each takes a look at every stream.
const MOST_BLOCKS: u64 = 1 << 26;
/// The schedule that is there for comparison.
const EQUAL: &str = "equal";

/// `ascot simulate`.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let setup = setup(matches)?;
    let outcome = setup.simulate().map_err(|stuck| {
        Failure::usage(
            format!(
                "the schedule cannot go on after {} blocks ({:?})",
                units::count(stuck.blocks),
                stuck.blocked_on
            ),
            "more --memory, or smaller blocks (--block)",
        )
    })?;
    let told = Told::new(&setup, &outcome);
    if let Some(path) = matches.get_one::<OsString>("plot").map(PathBuf::from) {
        let written = write_whole(&path, told.chart().as_bytes());
        written.map_err(|source| Failure::File { path, doing: "cannot write the chart", source })?;
    }
    let text = if matches.get_flag("json") { numbers::json(&told)? } else { told.to_string() };
    print(&text)?;
    Ok(0)
}

struct Chosen {
    numbers: Setup,
    /// Equal parts of memory instead of the scheme.
    equal: bool,
    memory_bytes: u64,
    block_bytes: u64,
}

impl Chosen {
    fn simulate(&self) -> Result<Outcome, Deadlock> {
        if !self.equal {
            return simulate(&self.numbers, false);
        }
        let (shape, blocks) = (&self.numbers.scheme.shape, self.numbers.memory_blocks);
        let split = EqualParts::split(shape, blocks);
        simulate_by(&self.numbers, split, &mut EqualParts::new(shape.inputs, split.read), false)
    }
}

fn setup(matches: &ArgMatches) -> Result<Chosen, Failure> {
    let (inputs, outputs) =
        (numbers::streams(matches, "inputs", 1)?, numbers::streams(matches, "outputs", 1)?);
    let shape = numbers::shape(inputs, outputs, numbers::alpha(matches)?)?;
    let memory_bytes = numbers::memory(matches, "memory", 1 << 30)?;
    let usual = (memory_bytes / BLOCKS).max(LEAST_BLOCK_BYTES);
    let block_bytes = numbers::memory(matches, "block", usual)?.max(1);
    let memory_blocks = memory_bytes / block_bytes;
    let least = u64::from(inputs) + 1 + 2 * u64::from(outputs);
    if memory_blocks < least {
        return Err(Failure::usage(
            format!(
                "{} holds {memory_blocks} blocks of {}",
                units::memory(memory_bytes),
                units::memory(block_bytes)
            ),
            format!(
                "{inputs} x {outputs} needs at least {least}: more --memory, or smaller blocks (--block)"
            ),
        ));
    }
    let total_blocks = numbers::memory(matches, "total", memory_bytes.saturating_mul(40))? / block_bytes;
    if total_blocks > MOST_BLOCKS || memory_blocks > MOST_BLOCKS {
        return Err(Failure::usage(
            format!("{} blocks are too many to simulate", units::count(total_blocks.max(memory_blocks))),
            "larger blocks (--block), or less in all (--total)",
        ));
    }
    let mut scheme = match algorithm(matches) {
        None => Scheme::best(shape),
        Some(algorithm) => Scheme::best_of(shape, algorithm).ok_or_else(|| {
            Failure::usage(
                format!("{} does not drive {inputs} x {outputs}", algorithm.name()),
                "a1: 0 x m, a2: 1 x m, a3: n x 0, a4: n x 1, a5, a6r and a6w: n x m",
            )
        })?,
    };
    let equal = matches.get_one::<String>("schedule").is_some_and(|name| name == EQUAL);
    if let Some(group) = numbers::whole(matches, "group")? {
        if equal {
            let what = "--group with --schedule equal: no stream is filled or written with others".to_owned();
            return Err(Failure::usage(what, "one of the two"));
        }
        let most = u64::from(inputs.max(outputs));
        if !(1..=most).contains(&group) {
            return Err(Failure::usage(
                format!("--group {group}: {inputs} x {outputs} has no group of so many"),
                format!("from 1 to {most}"),
            ));
        }
        scheme = Scheme::new(shape, scheme.algorithm, group as f64, group as f64);
    }
    let skew = skew(matches.get_one::<String>("skew").map_or("equal", String::as_str))?;
    let numbers = Setup {
        scheme,
        memory_blocks: memory_blocks as u32,
        total_blocks,
        output_skew: if skew == Skew::Ends { Skew::Equal } else { skew.clone() },
        input_skew: skew,
        seed: numbers::whole(matches, "seed")?.unwrap_or(1),
    };
    Ok(Chosen { numbers, equal, memory_bytes, block_bytes })
}

fn algorithm(matches: &ArgMatches) -> Option<Algorithm> {
    let name = matches.get_one::<String>("schedule")?;
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
}

fn skew(text: &str) -> Result<Skew, Failure> {
    let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
    let number = |usual: f64, least: f64, most: f64| {
        value.map_or(Ok(usual), |text| numbers::real(text, "--skew", least, most))
    };
    match name {
        "equal" if value.is_none() => Ok(Skew::Equal),
        "ends" if value.is_none() => Ok(Skew::Ends),
        "zipf" => Ok(Skew::Zipf(number(1.0, 0.0, 10.0)?)),
        "fast" => Ok(Skew::OneFast(number(10.0, 0.0, 1e9)?)),
        "noise" => Ok(Skew::Noise(number(0.5, 0.0, 1.0)?)),
        "bursts" => Ok(Skew::Bursts(number(1000.0, 1.0, 1e9)?)),
        _ => Err(Failure::usage(
            format!("invalid argument '{text}' for --skew"),
            "accepted: equal, zipf:1.0, fast:10, noise:0.5, bursts:1000, ends",
        )),
    }
}

/// What came out, in bytes.
#[derive(Serialize)]
struct Told {
    inputs: u32,
    outputs: u32,
    alpha: f64,
    schedule: &'static str,
    read_group: f64,
    write_group: f64,
    memory_bytes: u64,
    block_bytes: u64,
    moved_bytes: u64,
    switches: u64,
    /// Mean of the steady state: all streams live, the beginning over; none: it was never reached.
    run_bytes: Option<f64>,
    /// What the formula says; none: a stream alone never switches.
    formula_run_bytes: Option<f64>,
    equal_parts_run_bytes: f64,
    peak_memory_bytes: u64,
    /// What inputs hold when one runs out, and outputs when there is no room, in descending order.
    input_stairs_bytes: Vec<f64>,
    output_stairs_bytes: Vec<f64>,
    /// What theory says each side holds when its memory is full.
    formula_input_stairs_bytes: Vec<f64>,
    formula_output_stairs_bytes: Vec<f64>,
}

impl Told {
    fn new(chosen: &Chosen, outcome: &Outcome) -> Self {
        let (setup, block) = (&chosen.numbers, chosen.block_bytes as f64);
        let (scheme, shape) = (&setup.scheme, setup.scheme.shape);
        let bytes = |stairs: &[f64]| stairs.iter().map(|blocks| blocks * block).collect();
        let memory = chosen.memory_bytes as f64;
        let equal_parts_run_bytes = Baseline::EqualParts.run_length(&shape, memory);
        let formula = if chosen.equal { equal_parts_run_bytes } else { scheme.run_length(memory) };
        let group = |group: f64| if chosen.equal { 1.0 } else { group };
        // Each stream's part, when it is full.
        let parts = |streams: u32, stairs: Vec<f64>| {
            if chosen.equal { vec![equal_parts_run_bytes; streams as usize] } else { stairs }
        };
        Told {
            inputs: shape.inputs,
            outputs: shape.outputs,
            alpha: shape.alpha,
            schedule: if chosen.equal { EQUAL } else { scheme.algorithm.name() },
            read_group: group(scheme.read_group),
            write_group: group(scheme.write_group),
            memory_bytes: chosen.memory_bytes,
            block_bytes: chosen.block_bytes,
            moved_bytes: outcome.blocks * chosen.block_bytes,
            switches: outcome.runs,
            run_bytes: (outcome.steady_runs > 0).then(|| outcome.run_length() * block),
            formula_run_bytes: formula.is_finite().then_some(formula),
            equal_parts_run_bytes,
            peak_memory_bytes: u64::from(outcome.peak_blocks) * chosen.block_bytes,
            input_stairs_bytes: bytes(&outcome.input_staircase),
            output_stairs_bytes: bytes(&outcome.output_staircase),
            formula_input_stairs_bytes: parts(shape.inputs, scheme.input_occupancies(memory)),
            formula_output_stairs_bytes: parts(shape.outputs, scheme.output_occupancies(memory)),
        }
    }
}

impl Told {
    /// What its streams hold, drawn.
    fn chart(&self) -> String {
        let title = format!(
            "What streams hold: {} x {} by {}, {}",
            self.inputs,
            self.outputs,
            self.schedule,
            units::memory(self.memory_bytes)
        );
        let size = |bytes: Option<f64>| bytes.map_or("none".into(), |bytes| units::bytes(bytes as u64));
        let subtitle = format!(
            "runs of {}, by the formula {}; with equal parts of memory {}",
            size(self.run_bytes),
            size(self.formula_run_bytes),
            units::bytes(self.equal_parts_run_bytes as u64)
        );
        let inputs = stairs::Side {
            name: "inputs, when one has run out",
            seen: &self.input_stairs_bytes,
            theory: &self.formula_input_stairs_bytes,
        };
        let outputs = stairs::Side {
            name: "outputs, when there is no room",
            seen: &self.output_stairs_bytes,
            theory: &self.formula_output_stairs_bytes,
        };
        stairs::chart(&title, &subtitle, &[inputs, outputs])
    }
}

impl std::fmt::Display for Told {
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
