//! `ascot plan`: predicts the cost of a job on many files, and explains it.

use std::ffi::OsString;

use ascot_model::growth::{BadGrowth, Growth};
use ascot_record::layout::Layout;
use ascot_sort::{FilesTask, PlanRequest, PlannedFiles, PlannedJob, UserFunction, plan_job};
use clap::ArgMatches;

use crate::cluster_planning;
use crate::failure::{Failure, Result};
use crate::numbers;
use crate::progress::closing_notice;
use crate::request::named_records;
use crate::size;
use crate::values;
use crate::volume;

/// Default bytes of a record: those of the sort benchmark.
const DEFAULT_RECORD_BYTES: u64 = 100;
/// Records up to this length are assumed to be numbers, unless flags define them.
const NUMBER_BYTES: u64 = 8;

/// `ascot plan`.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let what = values::word(matches, "what").unwrap_or("bowtie");
    refuse_meaningless(matches, what)?;
    if what == "cluster" {
        return cluster_planning::run(matches, input_bytes(matches)?);
    }
    let (volumes, notices) = volume::for_plan(matches)?;
    notices.iter().for_each(|notice| closing_notice(matches, notice));
    let max = numbers::whole(matches, "most-streams")?;
    let plan = plan_job(&PlanRequest {
        job: planned_job(matches, what)?,
        memory_bytes: numbers::memory(matches, "memory", 1 << 30)?,
        max_streams: max.map(|max| u32::try_from(max).unwrap_or(u32::MAX)),
        volumes,
    })?;
    numbers::show(matches, &plan)
}

fn planned_job(matches: &ArgMatches, what: &str) -> Result<PlannedJob> {
    let inputs = numbers::streams(matches, "inputs", 1)?;
    let outputs = numbers::streams(matches, "outputs", 1)?;
    let alpha = numbers::alpha(matches)?;
    if what == "bowtie" {
        return Ok(PlannedJob::Bowtie { inputs, outputs, alpha });
    }
    let input_bytes = input_bytes(matches)?;
    let task = match (what, values::word(matches, "by")) {
        ("sort", _) => return planned_sort(matches, input_bytes),
        ("merge", _) => FilesTask::Merge,
        ("split", _) => FilesTask::Split,
        (_, Some("hash" | "value")) => FilesTask::ReshapeByRoute,
        _ => FilesTask::Reshape,
    };
    let growth = growth_of(matches, "growth")?;
    let growth_out = growth_of(matches, "growth-out")?;
    let is_own = growth.is_some() || growth_out.is_some() || values::is_given(matches, "alpha");
    let function = is_own.then_some(UserFunction { alpha, growth, growth_out });
    Ok(PlannedJob::Files(PlannedFiles { task, inputs, outputs, input_bytes, function }))
}

/// `--input`.
fn input_bytes(matches: &ArgMatches) -> Result<u64> {
    match numbers::data(matches, "input", 0)? {
        0 => {
            Err(Failure::usage("the amount of data is missing", "give it with --input, such as --input 8TB"))
        }
        bytes => Ok(bytes),
    }
}

fn planned_sort(matches: &ArgMatches, input_bytes: u64) -> Result<PlannedJob> {
    let record_bytes = match values::word(matches, "record-bytes") {
        None => None,
        Some(text) => Some(size::count(text).ok().filter(|bytes| *bytes > 0).ok_or_else(|| {
            Failure::usage(format!("--record-bytes '{text}' is not a length in bytes"), "such as 100")
        })?),
    };
    let format = match (values::word(matches, "format"), record_bytes.unwrap_or(DEFAULT_RECORD_BYTES)) {
        (Some(format), _) => format.to_owned(),
        (None, 4) => "u32".to_owned(),
        (None, ..=NUMBER_BYTES) => "u64".to_owned(),
        (None, bytes) => format!("fixed:{bytes}"),
    };
    let keys: Vec<OsString> = values::all(matches, "key").cloned().collect();
    let (layout, keys) = named_records(Some(&format), &keys, Layout::LINES, &[])?;
    let given = matches.contains_id("format") && record_bytes.is_some();
    if given && matches!(layout, Layout::Fixed { .. } | Layout::Number(_)) {
        return Err(Failure::usage(
            format!("--record-bytes does not apply to the format {layout}, which determines the length"),
            "leave out one of them",
        ));
    }
    Ok(PlannedJob::Sort { input_bytes, layout, keys, record_bytes })
}

/// `--growth` or `--growth-out`.
fn growth_of(matches: &ArgMatches, id: &str) -> Result<Option<Growth>> {
    let Some(text) = values::word(matches, id) else { return Ok(None) };
    text.parse().map(Some).map_err(|error: BadGrowth| {
        Failure::usage(
            format!("--{id}: {error}"),
            "write 0.8 for every pass, 0.5,0.9 for the first and the others, or 1:0.3,50:0.8 for 1 and 50 files",
        )
    })
}

/// Refuses arguments that do not apply to the planned job.
fn refuse_meaningless(matches: &ArgMatches, what: &str) -> Result<()> {
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
        "cluster" => (
            &["inputs", "outputs", "memory", "alpha", "growth", "growth-out", "by", "volume", "most-streams"],
            "a cluster is planned by its nodes, whose type has the speeds",
        ),
        _ => (&[], ""),
    };
    let given = |ids: &[&'static str]| ids.iter().find(|id| values::is_given(matches, id)).copied();
    if let Some(id) = given(none) {
        return Err(Failure::usage(format!("--{id} does not apply to plan {what}"), why));
    }
    if let Some(id) = given(&cluster_planning::FLAGS).filter(|_| what != "cluster") {
        return Err(Failure::usage(
            format!("--{id} does not apply to plan {what}"),
            "it applies only to plan cluster",
        ));
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
