//! `ascot probe`: measures a volume and the processors, and shows the results.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::Path;
use std::time::Instant;

use ascot_device::{
    DEFAULT_BYTES, DEFAULT_SECONDS, ProbeRequest, SECONDS_RANGE, forget_profiles, list_profiles,
    store_profile,
};
use ascot_io::directory_of;
use ascot_sort::jobs::probe::{ProbedProfile, probe};
use clap::ArgMatches;

use crate::chart;
use crate::failure::{Failure, Result};
use crate::monitoring;
use crate::numbers;
use crate::report_file::write_whole;
use crate::signals::stoppable;
use crate::sys::print;
use crate::values;

const PROGRESS_LETTERS: usize = 30;

/// `ascot probe`.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    if matches.get_flag("list") {
        return numbers::show(matches, &list_profiles()?);
    }
    if let Some(what) = values::path(matches, "forget") {
        return forget(&what);
    }
    let request = ProbeRequest {
        directory: values::path(matches, "directory").unwrap_or_default(),
        bytes: numbers::data(matches, "bytes", DEFAULT_BYTES)?,
        seconds: seconds(matches)?,
    };
    let [output, plot] = ["output", "plot"].map(|id| values::path(matches, id));
    for path in [&output, &plot].into_iter().flatten() {
        check_place(path)?;
    }
    let watched = io::stderr().is_terminal();
    let since = Instant::now();
    let ProbedProfile { profile, notices } = monitoring::watched(matches, || {
        stoppable(|cancel| {
            let probed = probe(&request, cancel, &|share| draw(watched, share));
            if watched {
                let _ = write!(io::stderr().lock(), "\r\x1b[K");
            }
            Ok(probed?)
        })
    })?;
    for notice in &notices {
        tell(notice);
    }
    let seconds = since.elapsed().as_secs_f64();
    print(if matches.get_flag("json") { numbers::json(&profile)? } else { profile.table(seconds) })?;
    // Before the files, which may fail: the user learns in any case whether the profile is stored.
    match store_profile(&profile, &request.directory) {
        Ok(path) => tell(&format!("stored {}: jobs on this volume use it from now on", path.display())),
        Err(error) => tell(&error.to_string()),
    }
    if let Some(path) = output {
        let written = write_whole(&path, profile.to_string().as_bytes());
        written.map_err(Failure::file(&path, "cannot write the profile"))?;
    }
    if let Some(path) = plot {
        let written = write_whole(&path, chart::switches(&profile).as_bytes());
        written.map_err(Failure::file(&path, "cannot write the chart"))?;
    }
    Ok(0)
}

fn tell(notice: &str) {
    let _ = writeln!(io::stderr().lock(), "ascot: {notice}");
}

/// `ascot probe --forget`.
fn forget(what: &Path) -> Result<u8> {
    let mut text = String::new();
    for file in forget_profiles(what)? {
        let _ = match &file.content {
            Ok(found) => writeln!(text, "forgot {} ({})", found.stored.device, found.stored.mount),
            Err(_) => writeln!(text, "removed {}", file.path.display()),
        };
    }
    print(&text)?;
    Ok(0)
}

/// `--seconds`.
fn seconds(matches: &ArgMatches) -> Result<f64> {
    let Some(text) = values::word(matches, "seconds") else { return Ok(DEFAULT_SECONDS) };
    let (min, max) = SECONDS_RANGE;
    match text.parse::<f64>() {
        Ok(seconds) if (min..=max).contains(&seconds) => Ok(seconds),
        _ => Err(Failure::usage(
            format!("--seconds '{text}' is not a number from {min} to {max}"),
            format!("{DEFAULT_SECONDS} is usual; shorter measurements vary more"),
        )),
    }
}

/// Before a minute of measuring, refuses a file that could not be written afterwards.
fn check_place(path: &Path) -> Result<()> {
    let failed = Failure::file(path, "cannot be written to");
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    std::fs::metadata(directory_of(path)).map(|_| ()).map_err(failed)
}

fn draw(watched: bool, share: f64) {
    if watched {
        let full = (share * PROGRESS_LETTERS as f64) as usize;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(PROGRESS_LETTERS.saturating_sub(full)));
        let _ = write!(io::stderr().lock(), "\r  measuring   [{bar}]  {:.0}%\x1b[K", share * 100.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_refused_beforehand() {
        assert!(check_place(Path::new("/no/such/dir/profile.toml")).is_err());
        assert!(check_place(Path::new("/")).is_err());
        assert!(check_place(Path::new("profile.toml")).is_ok());
    }
}
