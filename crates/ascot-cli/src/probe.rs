//! `ascot probe`: measures a volume and the processors, and shows the results.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::Path;
use std::time::Instant;

use ascot_device::{DEFAULT_BYTES, DEFAULT_SECONDS, ProbeRequest, Probed, SECONDS_RANGE};
use ascot_model::host::RecordClass;
use ascot_model::host_measurement::HostMeasurement;
use ascot_model::measured_profile::MeasuredProfile;
use ascot_model::measurement::{Figure, Speed, SwitchPoint};
use ascot_model::units;
use ascot_sort::Cancel;
use ascot_sort::jobs::measure_host::{MeasuredJobs, measure_host};
use clap::ArgMatches;

use crate::chart;
use crate::failure::Failure;
use crate::monitoring;
use crate::numbers;
use crate::report_file::write_whole;
use crate::signals::stoppable;
use crate::stored_profiles;
use crate::sys::print;
use crate::values;

/// Characters of the longest bar of the curve.
const BAR_LETTERS: f64 = 16.0;
const PROGRESS_LETTERS: usize = 30;
/// The share of the time for measuring the processors.
const HOST_SHARE: f64 = 0.15;

/// `ascot probe`.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    if matches.get_flag("list") {
        return stored_profiles::list(matches.get_flag("json"));
    }
    if let Some(what) = values::path(matches, "forget") {
        return stored_profiles::forget(&what);
    }
    let directory = values::path(matches, "directory").unwrap_or_default();
    let bytes = numbers::data(matches, "bytes", DEFAULT_BYTES)?;
    let seconds = seconds(matches)?;
    let [output, plot] = ["output", "plot"].map(|id| values::path(matches, id));
    for path in [&output, &plot].into_iter().flatten() {
        check_place(path)?;
    }
    let watched = io::stderr().is_terminal();
    let since = Instant::now();
    let measured = monitoring::watched(matches, || {
        stoppable(|cancel| {
            let measured = measure(&directory, bytes, seconds, cancel, &|share| draw(watched, share));
            if watched {
                let _ = write!(io::stderr().lock(), "\r\x1b[K");
            }
            measured
        })
    })?;
    let (profile, notices) = (&measured.profile, &measured.notices);
    for notice in notices {
        let _ = writeln!(io::stderr().lock(), "ascot: {notice}");
    }
    let seconds = since.elapsed().as_secs_f64();
    print(&if matches.get_flag("json") { numbers::json(profile)? } else { text(profile, seconds) })?;
    // Before the files, which may fail: the user learns in any case whether the profile is stored.
    let notice = stored_profiles::store(profile, &directory);
    let _ = writeln!(io::stderr().lock(), "ascot: {notice}");
    if let Some(path) = output {
        let written = write_whole(&path, profile.to_string().as_bytes());
        written.map_err(Failure::file(&path, "cannot write the profile"))?;
    }
    if let Some(path) = plot {
        let written = write_whole(&path, chart::switches(profile).as_bytes());
        written.map_err(Failure::file(&path, "cannot write the chart"))?;
    }
    Ok(0)
}

/// A profile, and notices about its measurement.
struct Measured {
    profile: MeasuredProfile,
    notices: Vec<String>,
}

/// Measures the volume of `directory` and the processors, one after the other, in about `seconds`.
fn measure(
    directory: &Path,
    bytes: u64,
    seconds: f64,
    cancel: &Cancel,
    progress: &dyn Fn(f64),
) -> Result<Measured, Failure> {
    let volume_seconds = seconds * (1.0 - HOST_SHARE);
    let request = ProbeRequest { directory: directory.to_path_buf(), bytes, seconds: volume_seconds };
    let share_of_volume = |done: f64| progress(done * (1.0 - HOST_SHARE));
    let Probed { volume, mut measurement, notices } =
        ascot_device::probe(&request, &cancel.flag(), &share_of_volume)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share_of_host = |done: f64| progress(1.0 - HOST_SHARE * (1.0 - done));
    let MeasuredJobs { host, device_request_seconds } =
        measure_host(directory, threads, seconds * HOST_SHARE, cancel, &share_of_host)?;
    measurement.request_seconds = device_request_seconds;
    let volume = measurement.profile(&volume.name);
    Ok(Measured { profile: MeasuredProfile { volume, measurement, host }, notices })
}

/// `--seconds`.
fn seconds(matches: &ArgMatches) -> Result<f64, Failure> {
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
fn check_place(path: &Path) -> Result<(), Failure> {
    let failed = Failure::file(path, "cannot be written to");
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    std::fs::metadata(directory).map(|_| ()).map_err(failed)
}

fn draw(watched: bool, share: f64) {
    if watched {
        let full = (share * PROGRESS_LETTERS as f64) as usize;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(PROGRESS_LETTERS.saturating_sub(full)));
        let _ = write!(io::stderr().lock(), "\r  measuring   [{bar}]  {:.0}%\x1b[K", share * 100.0);
    }
}

/// The text for people; measuring took `seconds`.
fn text(profile: &MeasuredProfile, seconds: f64) -> String {
    let measured = &profile.measurement;
    let mut text = format!(
        "{}: {} of files, each figure {} times, {}\n\n",
        profile.volume.name,
        units::memory(measured.used_bytes),
        measured.repeats,
        units::seconds(seconds)
    );
    let speed = |speed: &Speed| {
        let request = units::memory(speed.request_bytes);
        format!("{}   requests of {request}, {} in flight", rate(speed.rate), speed.depth)
    };
    let _ = writeln!(text, "  reading   {}", speed(&measured.read));
    let _ = writeln!(text, "  writing   {}", speed(&measured.write));
    let _ = writeln!(text, "  both      {}   each way, at once", rate(measured.duplex));
    if let Some(request) = measured.request_seconds {
        let _ = writeln!(
            text,
            "  requests  {:>7.1} µs   each, beyond the time of its bytes",
            request.value * 1e6
        );
    }
    let cache = measured.cache.map_or("not visible in bursts of writes".to_owned(), |cache| {
        format!(
            "{:>9}         writes at {} until it is full, then at {}",
            units::memory(cache.bytes),
            units::rate(cache.filling),
            units::rate(cache.full)
        )
    });
    let _ = writeln!(text, "  cache     {cache}");
    let _ = writeln!(
        text,
        "\n  lost by a switch between files, ms, runs of {}",
        units::memory(measured.run_bytes)
    );
    let _ = writeln!(text, "  files   {:<38}writing", "reading");
    let reads = &measured.read_switches;
    let writes = &measured.write_switches;
    let max = reads.iter().chain(writes).map(|point| point.seconds.value).fold(0.0, f64::max);
    for (read, write) in reads.iter().zip(writes) {
        let line = format!("  {:>5}   {:<38}{}", read.files, switch(read, max), switch(write, max));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    append_processors(&mut text, &profile.host);
    text.push_str(
        "\n  ± is half of the distance between the least and the greatest repetition; \
         once: measured without repetition\n",
    );
    text
}

/// Appends what one thread of the processor does in a second, by layout of records.
fn append_processors(text: &mut String, host: &HostMeasurement) {
    let _ = writeln!(
        text,
        "\n  one thread            sorting            merging            merging runs       splitting"
    );
    for kernel in &host.kernels {
        let keys = if kernel.keys > 1 { format!(", {} keys", kernel.keys) } else { String::new() };
        let name = match kernel.class {
            RecordClass::Line | RecordClass::Computed => {
                format!("{} of {} bytes{keys}", kernel.layout, kernel.record_bytes)
            }
            _ => kernel.layout.clone(),
        };
        let [runs, split] =
            [kernel.merge_runs, kernel.split].map(|figure| figure.map(rate).unwrap_or_default());
        let line =
            format!("  {name:<20}{:<19}{:<19}{runs:<19}{split}", rate(kernel.sort), rate(kernel.merge));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if let Some(request) = host.request_seconds {
        let _ = writeln!(text, "  a request takes {:.1} µs of a processor", request.value * 1e6);
    }
    if let Some(moving) = host.moving {
        let _ = writeln!(text, "  moving bytes from and to the device  {}", rate(moving));
    }
}

/// `1.41 GB/s ±  2%`, or `1.41 GB/s  once` for a figure without repetitions.
fn rate(figure: Figure) -> String {
    let value = units::rate(figure.value);
    // Repetitions never take exactly the same time.
    if figure.spread == 0.0 {
        return format!("{value:>9}  once");
    }
    format!("{value:>9} ± {:>2.0}%", figure.relative_spread() * 100.0)
}

/// Milliseconds with a bar; the longest bar is `max` seconds.
fn switch(point: &SwitchPoint, max: f64) -> String {
    let Figure { value, spread } = point.seconds;
    let letters = if max > 0.0 { (value.max(0.0) / max * BAR_LETTERS).round() as usize } else { 0 };
    format!("{:>7.3} ± {:<6.3} {}", value * 1e3, spread * 1e3, "#".repeat(letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_their_spread() {
        assert_eq!(rate(Figure { value: 1.41e9, spread: 2.82e7 }), "1.41 GB/s ±  2%");
        assert_eq!(rate(Figure { value: 1.41e9, spread: 0.0 }), "1.41 GB/s  once");
        let point = SwitchPoint { files: 4, seconds: Figure { value: 0.5e-3, spread: 1e-5 } };
        assert_eq!(switch(&point, 1e-3), "  0.500 ± 0.010  ########");
        let lost = SwitchPoint { files: 4, seconds: Figure { value: -1e-6, spread: 1e-5 } };
        assert!(!switch(&lost, 1e-3).contains('#'));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_beforehand() {
        assert!(check_place(Path::new("/no/such/dir/profile.toml")).is_err());
        assert!(check_place(Path::new("/")).is_err());
        assert!(check_place(Path::new("profile.toml")).is_ok());
    }
}
