//! The numbers given to `ascot plan` and `ascot simulate` (sizes, counts, shares), and their answers as JSON.

use std::fmt::Display;
use std::time::Duration;

use clap::ArgMatches;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::size;
use crate::sys;
use crate::values;

/// More files than any user has, and few enough to compute with.
pub const MAX_STREAMS: u64 = 1_000_000;

/// An amount of memory in bytes, or `default` if none is given.
pub fn memory(matches: &ArgMatches, id: &str, default: u64) -> Result<u64> {
    let Some(text) = values::word(matches, id) else { return Ok(default) };
    let amount =
        size::memory_size(text).map_err(|source| Failure::Size { flag: format!("--{id}"), source })?;
    Ok(amount.bytes_of(sys::memory_bytes()))
}

/// An amount of data in bytes, or `default` if none is given.
pub fn data(matches: &ArgMatches, id: &str, default: u64) -> Result<u64> {
    let Some(text) = values::word(matches, id) else { return Ok(default) };
    size::data_size(text).map_err(|source| Failure::Size { flag: format!("--{id}"), source })
}

/// A whole number, if one is given.
pub fn whole(matches: &ArgMatches, id: &str) -> Result<Option<u64>> {
    let number = |text: &str| {
        size::count(text)
            .map_err(|_| Failure::usage(format!("--{id} '{text}' is not a whole number"), "such as 64"))
    };
    values::word(matches, id).map(number).transpose()
}

/// A number of streams.
pub fn streams(matches: &ArgMatches, id: &str, default: u32) -> Result<u32> {
    match whole(matches, id)? {
        None => Ok(default),
        Some(count @ ..=MAX_STREAMS) => Ok(count as u32),
        Some(count) => Err(Failure::usage(format!("--{id} {count} is too large"), "the maximum is 1000000")),
    }
}

/// A number between `min` and `max`.
pub fn real(text: &str, what: &str, min: f64, max: f64) -> Result<f64> {
    match text.parse::<f64>() {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => {
            Err(Failure::usage(format!("{what} '{text}' is not a number from {min} to {max}"), "such as 0.5"))
        }
    }
}

/// A time such as 30, 30s, 500ms, 5m, 5min or 2h; none if it is not one, or zero.
pub fn duration(text: &str) -> Option<Duration> {
    let units = [("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
    units.into_iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok().filter(|time| !time.is_zero())
    })
}

/// `--alpha`.
pub fn alpha(matches: &ArgMatches) -> Result<f64> {
    values::word(matches, "alpha").map_or(Ok(0.5), |text| real(text, "--alpha", 0.0, 1.0))
}

/// An answer on one line, for programs that read many of them.
pub fn json_line(answer: &impl Serialize) -> Result<String> {
    serde_json::to_string(answer).map_err(|error| Failure::Output(error.into()))
}

/// An answer for programs to read.
pub fn json(answer: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(answer).map_err(|error| Failure::Output(error.into()))
}

/// Prints an answer: with `--json` for programs, otherwise for people.
pub fn show<T: Serialize + Display>(matches: &ArgMatches, answer: &T) -> Result<u8> {
    sys::print(if matches.get_flag("json") { json(answer)? } else { answer.to_string() })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ms) in [
            ("2", 2000),
            ("2s", 2000),
            ("500ms", 500),
            ("1.5m", 90_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "0", "0s", "-1s", "soon", "1d", "nan", "inf"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
