//! `ascot plan sort`: what sorting so much would take, and why in that way. The plan is the one that
//! `ascot sort --explain` makes of a file of that size.

use std::ffi::OsString;
use std::fmt;

use ascot_io::Compression;
use ascot_model::plan::{MethodPlan, PassPlan, Plan};
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use ascot_record::layout::Layout;
use ascot_sort::plan::planner::plan_ahead;
use ascot_sort::request::{InputChecks, Method, Output, SortRequest};
use clap::ArgMatches;
use serde::Serialize;

use crate::failure::Failure;
use crate::numbers;
use crate::planning::describe;
use crate::request::named_records;
use crate::size;
use crate::volume::Profile;

/// Bytes of a record where none are given: those of the sort benchmark.
const USUAL_RECORD_BYTES: u64 = 100;
/// More than anybody sorts, and little enough for all passes together to be counted.
const MOST_BYTES: u64 = 100_000_000_000_000_000;
/// Records of the longest kind that memory has room for.
const RECORDS_OF_MEMORY: u64 = 4;
/// Records up to this length are taken to be numbers, where nothing is said of them.
const NUMBER_BYTES: u64 = 8;

/// The answer.
#[derive(Serialize)]
pub struct SortPlan {
    job: String,
    /// Whether the processors were measured; else their speeds are assumed.
    host_measured: bool,
    /// Of the way chosen, in all.
    seconds: f64,
    bytes: u64,
    switches: u64,
    /// In the currency of the profile; 0 where it has no prices.
    money: f64,
    plan: Plan,
}

impl SortPlan {
    /// Plans a sort of `input_bytes`.
    pub fn new(
        matches: &ArgMatches,
        input_bytes: u64,
        memory_bytes: u64,
        profile: &Profile,
    ) -> Result<Self, Failure> {
        let record_bytes = match matches.get_one::<String>("record-bytes") {
            None => None,
            Some(text) => Some(size::count(text).ok().filter(|bytes| *bytes > 0).ok_or_else(|| {
                Failure::usage(format!("--record-bytes '{text}' is not a length in bytes"), "such as 100")
            })?),
        };
        // As much of the memory as a job must have for a record, at least.
        if let Some(bytes) = record_bytes.filter(|bytes| *bytes > memory_bytes / RECORDS_OF_MEMORY) {
            return Err(Failure::usage(
                format!(
                    "--record-bytes: a record of {} is longer than {} of memory allow",
                    units::bytes(bytes),
                    units::memory(memory_bytes)
                ),
                format!(
                    "--memory {}MiB is the least",
                    bytes.saturating_mul(RECORDS_OF_MEMORY).div_ceil(1 << 20)
                ),
            ));
        }
        if input_bytes > MOST_BYTES {
            let most = units::bytes(MOST_BYTES);
            return Err(Failure::usage(
                format!("--input {} is too much", units::bytes(input_bytes)),
                format!("sorts of up to {most} can be computed"),
            ));
        }
        let request = request(matches, record_bytes, memory_bytes, profile)?;
        let mean_bytes = record_bytes.unwrap_or(USUAL_RECORD_BYTES) as f64;
        let plan = plan_ahead(&request, input_bytes, mean_bytes)?;
        let chosen = &plan.chosen;
        Ok(SortPlan {
            job: format!(
                "sort {} ({}), {}",
                units::bytes(input_bytes),
                request.layout,
                units::memory(memory_bytes)
            ),
            host_measured: profile.host.is_some(),
            seconds: chosen.seconds(),
            bytes: moved_bytes(chosen),
            switches: chosen.switches(),
            money: chosen.passes.iter().map(|pass| money(pass, &plan.volume)).sum(),
            plan,
        })
    }
}

/// The request of a sort of a file that need not be there.
fn request(
    matches: &ArgMatches,
    record_bytes: Option<u64>,
    memory_bytes: u64,
    profile: &Profile,
) -> Result<SortRequest, Failure> {
    let format = match (matches.get_one::<String>("format"), record_bytes.unwrap_or(USUAL_RECORD_BYTES)) {
        (Some(format), _) => format.clone(),
        (None, 4) => "u32".to_owned(),
        (None, ..=NUMBER_BYTES) => "u64".to_owned(),
        (None, bytes) => format!("fixed:{bytes}"),
    };
    let keys: Vec<OsString> = matches.get_many::<OsString>("key").into_iter().flatten().cloned().collect();
    let (layout, keys) = named_records(Some(&format), &keys, Layout::LINES, &[])?;
    let given = matches.contains_id("format") && record_bytes.is_some();
    if given && matches!(layout, Layout::Fixed { .. } | Layout::Number(_)) {
        return Err(Failure::usage(
            format!("--record-bytes is given, and the format ({layout}) has its length"),
            "leave out one of them",
        ));
    }
    if matches!(layout, Layout::Csv { .. }) {
        return Err(Failure::usage(
            "the columns of CSV are named by its header, and there is no file yet",
            "--format lines is about as fast; ascot sort FILE --explain plans for a file that is there",
        ));
    }
    let most = numbers::whole(matches, "most-streams")?;
    Ok(SortRequest {
        inputs: Vec::new(),
        output: Output::Stdout,
        layout,
        keys,
        header: false,
        checks: InputChecks::default(),
        unique: false,
        stable: false,
        merge_only: false,
        top: None,
        memory_bytes: Some(memory_bytes),
        temp_dirs: Vec::new(),
        method: Method::Auto,
        compression: Compression::None,
        threads: profile.host.as_ref().map(|host| host.threads),
        batch_size: most.map(|most| usize::try_from(most).unwrap_or(usize::MAX).max(2)),
        volume: Some(profile.volume.clone()),
        host: profile.host.clone(),
        requests: None,
        input_volume: None,
        input_requests: None,
        boundaries: None,
    })
}

impl fmt::Display for SortPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { chosen, others, threads, volume, .. } = &self.plan;
        let most = chosen.passes.iter().map(|pass| pass.inputs + pass.outputs).max().unwrap_or(1);
        writeln!(f, "job       {}, {}", self.job, units::plural(*threads as u64, "thread"))?;
        writeln!(f, "volume    {}", describe(volume, u32::try_from(most).unwrap_or(u32::MAX)))?;
        writeln!(f, "method    {}", chosen.summary)?;
        for (number, pass) in chosen.passes.iter().enumerate() {
            writeln!(f, "pass {:<4} {}", number + 1, pass_line(pass))?;
        }
        writeln!(f, "in all    {}", totals(chosen))?;
        if self.money > 0.0 {
            writeln!(f, "money     {:.2}", self.money)?;
        }
        if others.is_empty() {
            writeln!(f, "why       {}", chosen.remark)?;
        }
        for other in others {
            writeln!(f, "why not   {}: {}", other.summary, totals(other))?;
        }
        if !self.host_measured {
            writeln!(f, "note      speeds of the processors are assumed; ascot probe measures them")?;
        }
        Ok(())
    }
}

fn pass_line(pass: &PassPlan) -> String {
    let times = match pass.times {
        1 => "once".to_owned(),
        times => format!("{} times", units::count(times)),
    };
    let (seconds, bound_by) = (units::seconds(pass.seconds()), pass.bound_by());
    format!("{}: {} x {}, {times}, {seconds}, bound by {bound_by}", pass.name, pass.inputs, pass.outputs)
}

/// What a pass costs, its switches being requests of both ways as the bytes are.
fn money(pass: &PassPlan, volume: &VolumeProfile) -> f64 {
    let (read, switches) = (pass.read_bytes as f64, pass.switches as f64);
    let share = read / (read + pass.written_bytes as f64).max(1.0);
    volume.money(switches * share, switches * (1.0 - share), pass.seconds())
}

fn moved_bytes(way: &MethodPlan) -> u64 {
    way.read_bytes() + way.written_bytes()
}

fn totals(way: &MethodPlan) -> String {
    format!(
        "{}, {} moved, {} switches",
        units::seconds(way.seconds()),
        units::bytes(moved_bytes(way)),
        units::count(way.switches())
    )
}
