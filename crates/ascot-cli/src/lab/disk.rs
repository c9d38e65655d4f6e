//! `ascot lab disk`: runs DiskBench, and shows its result.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ascot_lab::disk::{
    DEFAULT_BYTES, DEFAULT_REQUEST_BYTES, DEFAULT_ROUNDS, Directions, DiskObserver, DiskReport, DiskRequest,
    Pass, PassReport, Prediction, run as measure,
};
use ascot_model::members::MemberRates;
use ascot_model::units;
use clap::ArgMatches;

use super::shown;
use crate::failure::{Failure, Result};
use crate::monitoring::{Monitored, sampled};
use crate::numbers;
use crate::signals::stoppable;
use crate::values;

/// Bounds of `--rounds`.
const MAX_ROUNDS: u64 = 1000;
/// Bounds of `--seconds`.
const MAX_SECONDS: f64 = 1e6;

/// `ascot lab disk`.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let request = request(matches)?;
    let report_file = shown::report_file(matches)?;
    let display = Display { watched: io::stderr().is_terminal() };
    let measured = || {
        stoppable(|cancel| {
            let report = measure(&request, &cancel.flag(), &display);
            display.clear();
            report.map_err(Failure::from)
        })
    };
    let (result, monitor) = sampled(matches, measured)?;
    let report = Monitored { result, monitor };
    shown::finish(matches, &report, || text(&report.result), report_file)
}

fn request(matches: &ArgMatches) -> Result<DiskRequest> {
    let rounds = numbers::whole(matches, "rounds")?.unwrap_or(u64::from(DEFAULT_ROUNDS));
    if !(1..=MAX_ROUNDS).contains(&rounds) {
        return Err(Failure::usage(format!("--rounds {rounds} is not possible"), "give 1 to 1000"));
    }
    let memory_bytes = numbers::memory(matches, "memory", 0)?;
    let seconds = values::word(matches, "seconds");
    Ok(DiskRequest {
        inputs: directories(matches, "input"),
        outputs: directories(matches, "output"),
        bytes: numbers::data(matches, "bytes", DEFAULT_BYTES)?,
        request_bytes: numbers::data(matches, "request", DEFAULT_REQUEST_BYTES)?,
        memory_bytes: (memory_bytes > 0).then_some(memory_bytes),
        rounds: rounds as u32,
        seconds: seconds.map(|text| numbers::real(text, "--seconds", 0.1, MAX_SECONDS)).transpose()?,
    })
}

/// All directories of a flag; commas separate those of one value.
fn directories(matches: &ArgMatches, id: &str) -> Vec<PathBuf> {
    let split = |value: &OsStr| -> Vec<PathBuf> {
        let names = value.as_bytes().split(|byte| *byte == b',').filter(|name| !name.is_empty());
        names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
    };
    values::all(matches, id).flat_map(|value| split(value)).collect()
}

/// Shows the prediction, and on a terminal the progress.
struct Display {
    watched: bool,
}

impl Display {
    fn clear(&self) {
        if self.watched {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

impl DiskObserver for Display {
    fn predicted(&self, prediction: &Prediction) {
        let _ = writeln!(io::stderr().lock(), "ascot: {}", predicted(prediction));
    }

    fn progress(&self, pass: Option<&Pass>, done: f64) {
        if self.watched {
            let pass = pass.map_or("writing the inputs".to_owned(), pass_name);
            let _ = write!(io::stderr().lock(), "\r  {:3.0}%  {pass}\x1b[K", done * 100.0);
        }
    }
}

/// The prediction in words.
fn predicted(prediction: &Prediction) -> String {
    let space: Vec<String> = prediction
        .space
        .iter()
        .map(|space| format!("{} on the volume of {}", units::memory(space.bytes), space.directory))
        .collect();
    format!(
        "moves {} and takes {}; about {} by {}",
        units::memory(prediction.moved_bytes),
        space.join(", "),
        units::seconds(prediction.seconds),
        prediction.origin
    )
}

/// `map-and-shuffle, 2 reads and 4 writes in flight, preallocated`.
fn pass_name(pass: &Pass) -> String {
    let mut name = pass.phase.map_or("both phases", ascot_lab::disk::Phase::name).to_owned();
    match pass.directions {
        Directions::Both => {
            let _ = write!(name, ", {} reads and {} writes in flight", pass.reads, pass.writes);
        }
        Directions::Reading => {
            let _ = write!(name, ", {} reads in flight, nothing written", pass.reads);
        }
        Directions::Writing => {
            let _ = write!(name, ", {} writes in flight, nothing read", pass.writes);
        }
    }
    if pass.preallocated {
        name += ", preallocated";
    }
    name
}

/// The text for people.
fn text(report: &DiskReport) -> String {
    let mut text = format!(
        "{} read and {} written: {} of each input in requests of {}, {}, buffers of {}, {}\n",
        units::plural(report.inputs.len() as u64, "volume"),
        units::plural(report.outputs.len() as u64, "volume"),
        units::memory(report.input_bytes),
        units::memory(report.request_bytes),
        units::plural(u64::from(report.rounds), "round"),
        units::memory(report.memory_bytes),
        units::seconds(report.seconds)
    );
    let _ = writeln!(text, "predicted: {}\n", predicted(&report.prediction));
    let _ = writeln!(text, "  MB/s of a volume{:>11}{:>12}{:>10}  volume", "mean", "deviation", "slowest");
    for pass in &report.passes {
        append_pass(&mut text, pass, report.rounds);
    }
    text.push_str(
        "\n  mean, deviation and slowest are those of the volumes; ± is half of the distance between the rounds\n",
    );
    for notice in &report.notices {
        let _ = writeln!(text, "  {notice}");
    }
    text
}

fn append_pass(text: &mut String, pass: &PassReport, rounds: u32) {
    let spread = match rounds {
        1 => String::new(),
        _ => format!(" (± {:.0}%)", pass.relative_spread * 100.0),
    };
    let _ = writeln!(text, "\n  {}{spread}", pass_name(&pass.pass));
    let lines = [("reading", &pass.reading), ("writing", &pass.writing)];
    for (direction, rates) in lines.into_iter().filter_map(|(name, rates)| Some((name, rates.as_ref()?))) {
        let MemberRates { mean, deviation, slowest, members, .. } = rates;
        let _ = writeln!(
            text,
            "    {direction:<14}{:>11}{:>12}{:>10}  {}",
            shown::megabytes(*mean),
            if members.len() > 1 { shown::megabytes(*deviation) } else { "-".to_owned() },
            shown::megabytes(slowest.bytes_per_s),
            slowest.name
        );
        if members.len() > 1 {
            for member in members {
                let _ =
                    writeln!(text, "      {:<12}{:>11}", member.name, shown::megabytes(member.bytes_per_s));
            }
        }
    }
}
