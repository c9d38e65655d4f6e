//! `ascot simulate`: runs the schedules on numbers, and compares them with the formulas.

use ascot_bowtie::simulate::{EQUAL_PARTS, Setup, Simulation, SimulationReport, Skew, best_scheme};
use ascot_model::run_length::{Algorithm, Scheme};
use ascot_model::units;
use clap::ArgMatches;

use crate::chart::{self, Streams};
use crate::failure::Failure;
use crate::numbers;
use crate::report_file::write_whole;
use crate::sys::print;
use crate::values;

/// Blocks of the memory unless a block size is given: enough to make a remainder smaller than a block negligible.
const BLOCKS: u64 = 16384;
const MIN_BLOCK_BYTES: u64 = 4096;
/// Limit of blocks: each takes a step over every stream, so more would take too long.
const MAX_BLOCKS: u64 = 1 << 26;

/// `ascot simulate`.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let report = setup(matches)?.run().map_err(|stuck| {
        Failure::usage(stuck.to_string(), "give more --memory, or smaller blocks (--block)")
    })?;
    if let Some(path) = values::path(matches, "plot") {
        let written = write_whole(&path, drawn(&report).as_bytes());
        written.map_err(Failure::file(&path, "cannot write the chart"))?;
    }
    let text = if matches.get_flag("json") { numbers::json(&report)? } else { report.to_string() };
    print(&text)?;
    Ok(0)
}

fn setup(matches: &ArgMatches) -> Result<Simulation, Failure> {
    let inputs = numbers::streams(matches, "inputs", 1)?;
    let outputs = numbers::streams(matches, "outputs", 1)?;
    let shape = numbers::shape(inputs, outputs, numbers::alpha(matches)?)?;
    let memory_bytes = numbers::memory(matches, "memory", 1 << 30)?;
    let usual = (memory_bytes / BLOCKS).max(MIN_BLOCK_BYTES);
    let block_bytes = numbers::data(matches, "block", usual)?.max(1);
    let memory_blocks = memory_bytes / block_bytes;
    let min = u64::from(inputs) + 1 + 2 * u64::from(outputs);
    if memory_blocks < min {
        return Err(Failure::usage(
            format!(
                "{} holds {memory_blocks} blocks of {}",
                units::memory(memory_bytes),
                units::memory(block_bytes)
            ),
            format!(
                "{inputs} x {outputs} needs at least {min}: give more --memory, or smaller blocks (--block)"
            ),
        ));
    }
    let total_blocks = numbers::data(matches, "total", memory_bytes.saturating_mul(40))? / block_bytes;
    if total_blocks > MAX_BLOCKS || memory_blocks > MAX_BLOCKS {
        return Err(Failure::usage(
            format!("{} blocks are too many to simulate", units::count(total_blocks.max(memory_blocks))),
            "give larger blocks (--block), or less data (--total)",
        ));
    }
    let mut scheme = match algorithm(matches) {
        None => best_scheme(shape, memory_blocks as u32),
        Some(algorithm) => Scheme::best_of(shape, algorithm).ok_or_else(|| {
            Failure::usage(
                format!("{} does not apply to {inputs} x {outputs}", algorithm.name()),
                "a1: 0 x m, a2: 1 x m, a3: n x 0, a4: n x 1, a5, a6r and a6w: n x m",
            )
        })?,
    };
    let equal_parts = values::word(matches, "schedule").is_some_and(|name| name == EQUAL_PARTS);
    if let Some(group) = numbers::whole(matches, "group")? {
        if equal_parts {
            let what = "--group with --schedule equal: no stream is filled or written with others".to_owned();
            return Err(Failure::usage(what, "give only one of the two"));
        }
        let max = u64::from(inputs.max(outputs));
        if !(1..=max).contains(&group) {
            return Err(Failure::usage(
                format!("--group {group} is not possible with {inputs} x {outputs}"),
                format!("accepted: from 1 to {max}"),
            ));
        }
        scheme = Scheme::new(shape, scheme.algorithm, group as f64, group as f64);
    }
    let skew = skew(values::word(matches, "skew").unwrap_or("equal"))?;
    let setup = Setup {
        scheme,
        memory_blocks: memory_blocks as u32,
        total_blocks,
        output_skew: if skew == Skew::Ends { Skew::Equal } else { skew.clone() },
        input_skew: skew,
        seed: numbers::whole(matches, "seed")?.unwrap_or(1),
    };
    Ok(Simulation { setup, equal_parts, memory_bytes, block_bytes })
}

fn algorithm(matches: &ArgMatches) -> Option<Algorithm> {
    let name = values::word(matches, "schedule")?;
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
}

fn skew(text: &str) -> Result<Skew, Failure> {
    let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
    let number = |usual: f64, min: f64, max: f64| {
        value.map_or(Ok(usual), |text| numbers::real(text, "--skew", min, max))
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

/// A chart of the bytes that each stream holds.
fn drawn(report: &SimulationReport) -> String {
    let title = format!(
        "What streams hold: {} x {} by {}, {}",
        report.inputs,
        report.outputs,
        report.schedule,
        units::memory(report.memory_bytes)
    );
    let size = |bytes: Option<f64>| bytes.map_or("none".into(), |bytes| units::bytes(bytes as u64));
    let subtitle = format!(
        "runs of {}, by the formula {}; with equal parts of memory {}",
        size(report.run_bytes),
        size(report.formula_run_bytes),
        units::bytes(report.equal_parts_run_bytes as u64)
    );
    let inputs = Streams {
        name: "inputs, when one has run out",
        seen: &report.input_stairs_bytes,
        theory: &report.formula_input_stairs_bytes,
    };
    let outputs = Streams {
        name: "outputs, when there is no room",
        seen: &report.output_stairs_bytes,
        theory: &report.formula_output_stairs_bytes,
    };
    chart::streams(&title, &subtitle, &[inputs, outputs])
}
