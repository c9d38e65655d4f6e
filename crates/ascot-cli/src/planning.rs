//! `ascot plan`: predicts the cost of a job on many files, and explains it.

use ascot_model::bowtie_plan::BowtiePlan;
use ascot_model::multipass::DeviceCost;
use ascot_model::passes_plan::{FileJob, PassesPlan};
use ascot_model::units;
use clap::ArgMatches;

use crate::failure::Failure;
use crate::numbers;
use crate::progress::closing_notice;
use crate::sort_planning::plan_sort;
use crate::sys::print;
use crate::values;
use crate::volume;

/// Bytes of the smallest blocks that are worth reading or writing.
const MIN_BLOCK_BYTES: u64 = 64 << 10;
/// Files of the smallest pass that changes their number: two at one end, one at the other.
const MIN_STREAMS: u32 = 3;

/// `ascot plan`.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let what = values::word(matches, "what").unwrap_or("bowtie");
    refuse_meaningless(matches, what)?;
    let (profile, notices) = volume::for_plan(matches)?;
    for notice in &notices {
        closing_notice(matches, notice);
    }
    let volume = &profile.volume;
    let memory_bytes = numbers::memory(matches, "memory", 1 << 30)?;
    let inputs = numbers::streams(matches, "inputs", 1)?;
    let outputs = numbers::streams(matches, "outputs", 1)?;
    let alpha = numbers::alpha(matches)?;
    let max = match numbers::whole(matches, "most-streams")? {
        Some(max) => u32::try_from(max).unwrap_or(u32::MAX),
        None => u32::try_from(memory_bytes / (2 * MIN_BLOCK_BYTES)).unwrap_or(u32::MAX),
    };
    let text = if what == "bowtie" {
        let shape = numbers::shape(inputs, outputs, alpha)?;
        if shape.streams() > max {
            return Err(too_many(matches, shape.streams(), memory_bytes));
        }
        let plan = BowtiePlan::new(shape, memory_bytes, volume);
        if matches.get_flag("json") { numbers::json(&plan)? } else { plan.to_string() }
    } else {
        let input_bytes = numbers::memory(matches, "input", 0)?;
        if input_bytes == 0 {
            return Err(Failure::usage(
                "the amount of data is missing",
                "give it with --input, such as --input 8TB",
            ));
        }
        if what == "sort" {
            let plan = plan_sort(matches, input_bytes, memory_bytes, &profile)?;
            print(&if matches.get_flag("json") { numbers::json(&plan)? } else { plan.to_string() })?;
            return Ok(0);
        }
        let job = FileJob { what, inputs, outputs, input_bytes: input_bytes as f64, alpha };
        let memory = memory_bytes as f64;
        let cost = DeviceCost { volume, memory_bytes: memory, max_streams: max, baseline: None };
        let way = job
            .best(&cost)
            .map_err(|_| no_ends())?
            .ok_or_else(|| too_many(matches, MIN_STREAMS, memory_bytes))?;
        let plan = PassesPlan::new(&job, way, &cost, memory_bytes);
        if matches.get_flag("json") { numbers::json(&plan)? } else { plan.to_string() }
    };
    print(&text)?;
    Ok(0)
}

/// Refuses arguments that do not apply to the planned job.
fn refuse_meaningless(matches: &ArgMatches, what: &str) -> Result<(), Failure> {
    const OF_RECORDS: [&str; 3] = ["record-bytes", "format", "key"];
    let (none, why): (&[&str], _) = match what {
        "bowtie" => (&["input"], "a bowtie is planned for any amount of data"),
        "merge" => (&["outputs"], "a merge has one output; plan reshape has several"),
        "split" => (&["inputs"], "a split has one input; plan reshape has several"),
        "sort" => (&["inputs", "outputs", "alpha"], "a sort is planned by its bytes and records"),
        _ => (&[], ""),
    };
    let given = |ids: &[&'static str]| ids.iter().find(|id| values::is_given(matches, id)).copied();
    if let Some(id) = given(none) {
        return Err(Failure::usage(format!("--{id} does not apply to plan {what}"), why));
    }
    match given(&OF_RECORDS).filter(|_| what != "sort") {
        None => Ok(()),
        Some(id) => Err(Failure::usage(
            format!("--{id} does not apply to plan {what}"),
            "it applies only to plan sort",
        )),
    }
}

fn no_ends() -> Failure {
    Failure::usage("passes over files need inputs and outputs", "ascot plan bowtie computes 0 x m and n x 0")
}

fn too_many(matches: &ArgMatches, streams: u32, memory_bytes: u64) -> Failure {
    if let Some(max) = values::word(matches, "most-streams") {
        return Failure::usage(
            format!("--most-streams {max} is too few: {streams} files at once are needed"),
            format!("the minimum is --most-streams {streams}"),
        );
    }
    let min = u64::from(streams) * 2 * MIN_BLOCK_BYTES;
    Failure::usage(
        format!("{streams} files at once do not fit in {}", units::memory(memory_bytes)),
        format!("the minimum is --memory {}KiB, two blocks for each", min >> 10),
    )
}
