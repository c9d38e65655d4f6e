//! `ascot lab net`: runs NetBench, and shows its result.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;

use ascot_io::Unpoisoned;
use ascot_lab::net::{
    DEFAULT_BLOCK_BYTES, DEFAULT_BYTES, DEFAULT_WAIT_SECONDS, NetObserver, NetReport, NetRequest, Peers,
    Token, run as measure,
};
use ascot_model::units;
use clap::ArgMatches;

use super::shown;
use crate::failure::{Failure, Result};
use crate::monitoring::{Monitored, sampled};
use crate::numbers;
use crate::signals::stoppable;
use crate::values;

/// The secret, if no file holds it.
const TOKEN_VARIABLE: &str = "ASCOT_LAB_TOKEN";
const MAX_WAIT_SECONDS: f64 = 86_400.0;

/// `ascot lab net`.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let request = request(matches)?;
    let report_file = shown::report_file(matches)?;
    let display = Display { waited_for: Mutex::default() };
    let measured = || stoppable(|cancel| measure(&request, &cancel.flag(), &display).map_err(Failure::from));
    let (result, monitor) = sampled(matches, measured)?;
    let report = Monitored { result, monitor };
    shown::finish(matches, &report, || text(&report.result), report_file)
}

fn request(matches: &ArgMatches) -> Result<NetRequest> {
    let memory_bytes = numbers::memory(matches, "memory", 0)?;
    let wait = values::word(matches, "wait");
    let wait = wait.map(|text| numbers::real(text, "--wait", 0.0, MAX_WAIT_SECONDS)).transpose()?;
    Ok(NetRequest {
        peers: peers(matches)?,
        bytes: numbers::data(matches, "bytes", DEFAULT_BYTES)?,
        block_bytes: numbers::data(matches, "block", DEFAULT_BLOCK_BYTES)?,
        connections: connections(values::word(matches, "connections").unwrap_or("1"))?,
        sweep: matches.get_flag("sweep"),
        memory_bytes: (memory_bytes > 0).then_some(memory_bytes),
        wait_seconds: wait.unwrap_or(DEFAULT_WAIT_SECONDS),
    })
}

fn peers(matches: &ArgMatches) -> Result<Peers> {
    let [listen, list, name] = ["listen", "peers", "name"].map(|id| values::word(matches, id));
    if let Some(count) = numbers::whole(matches, "local")? {
        if listen.is_some() || list.is_some() {
            return Err(Failure::usage(
                "--local runs all peers on this machine, --listen and --peers one of many",
                "give --local alone, or the other two",
            ));
        }
        return Ok(Peers::Local(u32::try_from(count).unwrap_or(u32::MAX)));
    }
    let (Some(listen), Some(list)) = (listen, list) else {
        return Err(Failure::usage(
            "which peers?",
            "--local 4 runs four on this machine; --listen ADDR --peers A,B,... runs one of several machines",
        ));
    };
    Ok(Peers::Listed {
        listen: listen.to_owned(),
        name: name.map(str::to_owned),
        list: list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        token: token(values::path(matches, "token-file").as_deref())?,
    })
}

/// The secret of a file, or of the variable. It is not a value of a flag: other users see command lines.
fn token(file: Option<&Path>) -> Result<Token> {
    if let Some(file) = file {
        let mode = std::fs::metadata(file).map(|metadata| metadata.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o077 != 0) {
            let _ = writeln!(
                io::stderr().lock(),
                "ascot: {} can be read by other users (chmod 600 keeps it secret)",
                file.display()
            );
        }
        return Ok(Token::from_file(file).map_err(ascot_lab::net::NetError::from)?);
    }
    let variable = std::env::var_os(TOKEN_VARIABLE).filter(|value| !value.is_empty());
    let Some(value) = variable else {
        return Err(Failure::usage(
            "no token: all peers must share a secret",
            format!(
                "give --token-file FILE, or set {TOKEN_VARIABLE}; head -c 32 /dev/urandom | base64 makes one"
            ),
        ));
    };
    Ok(Token::new(value.as_encoded_bytes()).map_err(ascot_lab::net::NetError::from)?)
}

/// Numbers of connections: `1`, `1,2,4`.
fn connections(text: &str) -> Result<Vec<u32>> {
    let numbers = text.split(',').map(|number| number.trim().parse::<u32>());
    match numbers.collect::<Result<Vec<u32>, _>>() {
        Ok(mut numbers) if numbers.iter().all(|number| (1..=4).contains(number)) => {
            numbers.sort_unstable();
            numbers.dedup();
            Ok(numbers)
        }
        _ => Err(Failure::usage(
            format!("--connections '{text}' is not a list of numbers from 1 to 4"),
            "such as 1, or 1,2,4",
        )),
    }
}

/// Shows which peers are waited for, and the prediction.
struct Display {
    /// The names last shown.
    waited_for: Mutex<Vec<String>>,
}

impl NetObserver for Display {
    fn waiting(&self, names: &[String]) {
        let mut shown = self.waited_for.lock().unpoisoned();
        if *shown != names {
            *shown = names.to_vec();
            let _ = writeln!(io::stderr().lock(), "ascot: waiting for {}", names.join(", "));
        }
    }

    fn predicted(&self, seconds: f64) {
        let _ = writeln!(
            io::stderr().lock(),
            "ascot: all peers are there; about {} by a short round",
            units::seconds(seconds)
        );
    }
}

/// The text for people.
fn text(report: &NetReport) -> String {
    let mut text = format!(
        "{} send {} to each other, in blocks of {}: {}, predicted {}\n\n",
        units::plural(report.peers.len() as u64, "peer"),
        units::memory(report.bytes_per_pair),
        units::memory(report.block_bytes),
        units::seconds(report.seconds),
        units::seconds(report.predicted_seconds)
    );
    let _ = writeln!(text, "  peers  connections   MB/s of a peer   deviation   slowest  peer");
    for round in &report.rounds {
        let rates = &round.rates;
        let _ = writeln!(
            text,
            "  {:>5}  {:>11}  {:>15}  {:>10}  {:>8}  {}",
            round.peers,
            round.connections,
            shown::megabytes(rates.mean),
            shown::megabytes(rates.deviation),
            shown::megabytes(rates.slowest.bytes_per_s),
            rates.slowest.name
        );
    }
    if let Some(round) = report.rounds.last() {
        let _ = writeln!(
            text,
            "\n  peers, MB/s, with {} for each pair",
            units::plural(u64::from(round.connections), "connection")
        );
        for member in &round.rates.members {
            let _ = writeln!(text, "  {:>12}  {}", shown::megabytes(member.bytes_per_s), member.name);
        }
    }
    append_model(&mut text, report);
    if report.local {
        text.push_str(
            "\n  all peers share one machine: the rates are those of its processors and loopback\n",
        );
    }
    text
}

/// Appends the model's rates for more peers.
fn append_model(text: &mut String, report: &NetReport) {
    let Some(model) = &report.model else { return };
    if model.rates.is_empty() {
        return;
    }
    let cost = model.fitted.model.peer_seconds_per_byte;
    let from = if model.fitted.own_cost { "by these rates" } else { "as published (docs/published.md)" };
    let _ = if cost > 0.0 {
        writeln!(text, "\n  more peers, by the model: each adds {:.3} µs to every MB, {from}", cost * 1e12)
    } else {
        writeln!(text, "\n  more peers, by the model: these rates do not fall with more peers")
    };
    for rate in &model.rates {
        let _ = writeln!(text, "  {:>12}  {:>5} peers", shown::megabytes(rate.bytes_per_s), rate.peers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_a_list() {
        assert_eq!(connections("1").unwrap(), [1]);
        assert_eq!(connections("1, 2,4").unwrap(), [1, 2, 4]);
        assert_eq!(connections("4,1,1,2").unwrap(), [1, 2, 4], "each round runs once");
        for text in ["", "0", "5", "1,,2", "x"] {
            assert!(connections(text).unwrap_err().to_string().contains("--connections"), "{text}");
        }
    }
}
