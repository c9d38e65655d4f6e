//! `ascot plan`: predicts the cost of a job on many files, and explains it.

use ascot_device::Profile;
use ascot_model::bowtie_plan::BowtiePlan;
use ascot_model::growth::{BadGrowth, Growth};
use ascot_model::multipass::DeviceCost;
use ascot_model::passes_plan::{FileJob, PassesPlan};
use ascot_model::units;
use ascot_sort::request::{Output, Parts, Route, RouteBy};
use ascot_sort::{FilesJob, plan_files};
use clap::ArgMatches;

use crate::failure::Failure;
use crate::numbers;
use crate::progress::closing_notice;
use crate::sort_planning::{plan_sort, planned_request};
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
        let input_bytes = numbers::data(matches, "input", 0)?;
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
        let plan = plan_of_files(
            matches,
            what,
            Files { inputs, outputs, input_bytes, memory_bytes, max },
            &profile,
        )?;
        if matches.get_flag("json") { numbers::json(&plan)? } else { plan.to_string() }
    };
    print(&text)?;
    Ok(0)
}

/// The files of a planned job, and its memory.
#[derive(Clone, Copy)]
struct Files {
    inputs: u32,
    outputs: u32,
    input_bytes: u64,
    memory_bytes: u64,
    /// Maximum number of files at once.
    max: u32,
}

/// The plan of a merge, split or reshape: of the job, or of the passes of a user's function, if its growth is given.
fn plan_of_files<'a>(
    matches: &ArgMatches,
    what: &str,
    files: Files,
    profile: &'a Profile,
) -> Result<PassesPlan<'a>, Failure> {
    let Files { inputs, outputs, input_bytes, memory_bytes, max } = files;
    if inputs == 0 || outputs == 0 {
        return Err(no_ends());
    }
    let growth = growth_of(matches, "growth")?;
    let growth_out = growth_of(matches, "growth-out")?;
    let by_pass = |growth: &Option<Growth>| matches!(growth, Some(Growth::ByPass(_)));
    if what == "reshape" && (by_pass(&growth) || by_pass(&growth_out)) {
        return Err(Failure::usage(
            "a reshape has passes before and after the one in the middle, and a share by pass does not say which",
            "give shares by number of files, such as --growth 1:0.3,50:0.8",
        ));
    }
    let own = growth.is_some() || growth_out.is_some() || values::is_given(matches, "alpha");
    let volume = &profile.volume;
    let alpha = numbers::alpha(matches)?;
    let job = FileJob {
        alpha,
        growth: growth.as_ref(),
        growth_out: growth_out.as_ref(),
        ..FileJob::moving(what, inputs, outputs, input_bytes as f64)
    };
    let cost = DeviceCost { volume, memory_bytes: memory_bytes as f64, max_streams: max, baseline: None };
    let one_file = (what == "merge" && inputs == 1) || (what == "split" && outputs == 1);
    if own || one_file {
        let way = job
            .best(&cost)
            .map_err(|_| no_ends())?
            .ok_or_else(|| too_many(matches, MIN_STREAMS, memory_bytes))?;
        let plan = PassesPlan::new(&job, &way, &cost, memory_bytes);
        let name = job.name();
        return Ok(if own { plan.described(name, vec![OWN_FUNCTION]) } else { plan });
    }
    if max < MIN_STREAMS {
        return Err(too_many(matches, MIN_STREAMS, memory_bytes));
    }
    let by = values::word(matches, "by").unwrap_or("range");
    let mut request = planned_request(matches, None, memory_bytes, profile)?;
    let job_of = match (what, by) {
        ("split", _) => FilesJob::Split { outputs },
        ("reshape", "hash" | "value") => {
            request.output = Output::Parts(Parts::new("{}", outputs)?);
            request.route = Some(Route { by: RouteBy::Hash, keys: None });
            FilesJob::Route { inputs }
        }
        _ => FilesJob::Merge { inputs },
    };
    let plan = plan_files(&request, job_of, input_bytes)?;
    let max_streams = max.min(plan.max_streams);
    let cost = DeviceCost { memory_bytes: plan.stream_bytes as f64, max_streams, ..cost };
    let name = job.name();
    let (compared, notes) = match job_of {
        FilesJob::Split { .. } => (job, Vec::new()),
        FilesJob::Route { .. } => (FileJob { at_once: true, ..job }, vec![ROUTED]),
        FilesJob::Merge { .. } if what == "reshape" => (FileJob { what: "merge", ..job }, vec![IN_TURN]),
        FilesJob::Merge { .. } => (job, Vec::new()),
    };
    let told = PassesPlan::of_job(&compared, &plan.passes, &cost, &plan, memory_bytes);
    Ok(told.described(name, notes))
}

const OWN_FUNCTION: &str =
    "for a function of your own, which ascot flow can run; merge, split and reshape write what they read";
const IN_TURN: &str = "a reshape by range is a merge, n x 1, whose parts are written one after the other";
const ROUTED: &str = "a reshape by hash or value is n x m, in one pass: all files must fit at once";

/// `--growth` or `--growth-out`.
fn growth_of(matches: &ArgMatches, id: &str) -> Result<Option<Growth>, Failure> {
    let Some(text) = values::word(matches, id) else { return Ok(None) };
    text.parse().map(Some).map_err(|error: BadGrowth| {
        Failure::usage(
            format!("--{id}: {error}"),
            "write 0.8 for every pass, 0.5,0.9 for the first and the others, or 1:0.3,50:0.8 for 1 and 50 files",
        )
    })
}

/// Refuses arguments that do not apply to the planned job.
fn refuse_meaningless(matches: &ArgMatches, what: &str) -> Result<(), Failure> {
    const OF_RECORDS: [&str; 3] = ["record-bytes", "format", "key"];
    let (none, why): (&[&str], _) = match what {
        "bowtie" => (
            &["input", "growth", "growth-out", "by"],
            "a bowtie is planned for any amount of data; --alpha gives its share of reading",
        ),
        "merge" => (&["outputs", "growth-out", "by"], "a merge has one output; plan reshape has several"),
        "split" => (&["inputs", "growth-out", "by"], "a split has one input; plan reshape has several"),
        "sort" => (
            &["inputs", "outputs", "alpha", "growth", "growth-out", "by"],
            "a sort is planned by its bytes and records",
        ),
        _ => (&[], ""),
    };
    let given = |ids: &[&'static str]| ids.iter().find(|id| values::is_given(matches, id)).copied();
    if let Some(id) = given(none) {
        return Err(Failure::usage(format!("--{id} does not apply to plan {what}"), why));
    }
    if given(&["alpha"]).is_some() && given(&["growth", "growth-out"]).is_some() {
        return Err(Failure::usage(
            "--alpha cannot be combined with --growth",
            "both say how many bytes are written: --growth for each pass, --alpha for the pass with one file",
        ));
    }
    if given(&["by"]).is_some() && given(&["alpha", "growth", "growth-out"]).is_some() {
        return Err(Failure::usage(
            "--by cannot be combined with --alpha or --growth",
            "ascot reshape writes what it reads; a function of your own has its own rule",
        ));
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
