//! `ascot plan sort`: what sorting so much would take, and why in that way.

use std::fmt;

use ascot_model::host::{HostProfile, KernelRates};
use ascot_model::sort_plan::{SortJob, SortPass, SortWay};
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use clap::ArgMatches;
use serde::Serialize;

use crate::failure::Failure;
use crate::planning::describe;
use crate::size;
use crate::volume::Profile;

/// Bytes of a record where none are given: those of the sort benchmark.
const USUAL_RECORD_BYTES: u64 = 100;

/// The answer.
#[derive(Serialize)]
pub struct SortPlan<'a> {
    job: String,
    input_bytes: f64,
    record_bytes: f64,
    memory_bytes: f64,
    threads: usize,
    /// Whether the processors were measured; else their speeds are assumed.
    host_measured: bool,
    #[serde(flatten)]
    chosen: SortWay,
    others: Vec<SortWay>,
    volume: &'a VolumeProfile,
}

impl<'a> SortPlan<'a> {
    /// Plans a sort of `input_bytes`; none where no way fits into the memory.
    pub fn new(
        matches: &ArgMatches,
        input_bytes: f64,
        memory_bytes: u64,
        most_streams: u32,
        profile: &'a Profile,
    ) -> Result<Option<Self>, Failure> {
        let record_bytes = match matches.get_one::<String>("record-bytes") {
            None => USUAL_RECORD_BYTES,
            Some(text) => size::count(text).ok().filter(|bytes| *bytes > 0).ok_or_else(|| {
                Failure::usage(format!("--record-bytes '{text}' is not a length in bytes"), "such as 100")
            })?,
        } as f64;
        let job = SortJob { input_bytes, record_bytes, memory_bytes: memory_bytes as f64, most_streams };
        let host = match &profile.host {
            Some(measured) => measured.profile(job.class(), record_bytes),
            None => HostProfile {
                threads: std::thread::available_parallelism().map_or(1, usize::from),
                rates: KernelRates::assumed(job.class(), record_bytes),
            },
        };
        let mut ways = job.ways(&profile.volume, &host).into_iter();
        Ok(ways.next().map(|chosen| SortPlan {
            job: format!(
                "sort {} in records of {}, {}",
                units::bytes(input_bytes as u64),
                units::bytes(record_bytes as u64),
                units::memory(memory_bytes)
            ),
            input_bytes,
            record_bytes,
            memory_bytes: memory_bytes as f64,
            threads: host.threads,
            host_measured: profile.host.is_some(),
            chosen,
            others: ways.collect(),
            volume: &profile.volume,
        }))
    }
}

impl fmt::Display for SortPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen = &self.chosen;
        let most = chosen.passes.iter().map(|pass| pass.inputs + pass.outputs).max().unwrap_or(1);
        writeln!(f, "job       {}, {}", self.job, units::plural(self.threads as u64, "thread"))?;
        writeln!(f, "volume    {}", describe(self.volume, most))?;
        writeln!(f, "method    {}", summary(chosen))?;
        for (number, pass) in chosen.passes.iter().enumerate() {
            writeln!(
                f,
                "pass {:<4} {}: {} x {}, {}, {}, bound by {}",
                number + 1,
                pass.name,
                pass.inputs,
                pass.outputs,
                match pass.times {
                    1 => "once".to_owned(),
                    times => format!("{} times", units::count(times.into())),
                },
                units::seconds(pass.seconds()),
                bound_by(pass),
            )?;
        }
        writeln!(f, "in all    {}", totals(chosen))?;
        match self.others.as_slice() {
            [] if chosen.passes.iter().all(|pass| pass.times == 1) => {
                writeln!(f, "why       all fits into the memory")?;
            }
            others => {
                for other in others {
                    writeln!(f, "why not   {}: {}", summary(other), totals(other))?;
                }
            }
        }
        if !self.host_measured {
            writeln!(f, "note      speeds of the processors are assumed; ascot probe measures them")?;
        }
        Ok(())
    }
}

fn totals(way: &SortWay) -> String {
    format!(
        "{}, {} moved, {} switches",
        units::seconds(way.seconds),
        units::bytes(way.bytes as u64),
        units::count(way.switches as u64)
    )
}

fn summary(way: &SortWay) -> String {
    let factors: Vec<String> = way.factors.iter().map(u32::to_string).collect();
    let (pieces, factors) = (u64::from(way.pieces), factors.join(", then "));
    match way.method {
        "merge" => format!("form {}, merge {factors} at a time", units::plural(pieces, "sorted run")),
        "distribute" => {
            format!("split into {} by key, {factors} at a time, sort each", units::plural(pieces, "part"))
        }
        _ => "in memory, without spills".to_owned(),
    }
}

fn bound_by(pass: &SortPass) -> &'static str {
    if pass.compute_seconds > pass.device_seconds { "computing" } else { "the volume" }
}
