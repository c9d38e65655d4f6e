//! `--monitor`: samples the use of resources while a job runs, and adds it to the report.
//!
//! The samples of a job end when its output is complete and its report is written; those of a command without a report
//! end with its work. A job that fails or is stopped shows none.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ascot_device::monitor::{INTERVAL_RANGE, Monitor};
use ascot_io::Unpoisoned;
use ascot_model::report::Report;
use ascot_model::resource_use::ResourceUse;
use ascot_sort::{Observer, SortError};
use ascot_trace::job::JobTrace;
use clap::ArgMatches;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::numbers;
use crate::progress::write_resources;
use crate::report_file::{self, ReportFile};
use crate::values;

/// Starts to sample, if that is requested.
fn start(matches: &ArgMatches) -> Result<Option<Monitor>> {
    Ok(interval(matches)?.map(|interval| Monitor::start(Path::new("/"), interval)))
}

/// The time between two samples, if the flag is given.
fn interval(matches: &ArgMatches) -> Result<Option<Duration>> {
    let Some(text) = values::word(matches, "monitor") else { return Ok(None) };
    let (least, most) = INTERVAL_RANGE;
    let interval = numbers::duration(text).filter(|time| (least..=most).contains(&time.as_secs_f64()));
    interval.map(Some).ok_or_else(|| {
        Failure::usage(
            format!("--monitor '{text}' is not a time from {:.0}ms to {:.0}h", least * 1e3, most / 3600.0),
            "such as --monitor, which is one second, --monitor=0.5s, --monitor=100ms or --monitor=1m",
        )
    })
}

/// Runs the work of a command without a report, and shows the samples at its end.
pub fn watched<R>(matches: &ArgMatches, work: impl FnOnce() -> Result<R>) -> Result<R> {
    sampled(matches, work).map(|(result, _)| result)
}

/// Runs the work of a command, shows the samples at its end, and returns them, too.
pub fn sampled<R>(
    matches: &ArgMatches,
    work: impl FnOnce() -> Result<R>,
) -> Result<(R, Option<ResourceUse>)> {
    let monitor = start(matches)?;
    let result = work()?;
    let used = monitor.map(|monitor| monitor.finish());
    if let Some(used) = used.as_ref().filter(|_| !values::flag(matches, "quiet")) {
        write_resources(used);
    }
    Ok((result, used))
}

/// A result with the samples of its command.
#[derive(Serialize)]
pub struct Monitored<R> {
    /// The result.
    #[serde(flatten)]
    pub result: R,
    /// The samples, if `--monitor` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<ResourceUse>,
}

/// The time between two samples for a page, where none is given: a short job has several.
const INTERVAL_OF_PAGE: Duration = Duration::from_millis(250);

/// The report of a job: its file, and the samples and the trace for it.
pub struct JobReport {
    file: Mutex<Option<ReportFile>>,
    monitor: Option<Monitor>,
    /// Whether the samples are shown at the end of the job, too.
    tells: bool,
    /// The requests for a page, in a file without a name.
    trace: Option<Arc<JobTrace>>,
}

impl JobReport {
    /// To be made when the job is about to begin. `file`: that of `--report`.
    pub fn new(matches: &ArgMatches, file: Option<ReportFile>) -> Result<JobReport> {
        let monitor = start(matches)?;
        let tells = monitor.is_some();
        let Some(page) = file.as_ref().filter(|file| file.is_page()) else {
            return Ok(JobReport { file: Mutex::new(file), monitor, tells, trace: None });
        };
        let trace = JobTrace::unnamed(page.directory())?;
        let by_default = || Monitor::start(Path::new("/"), INTERVAL_OF_PAGE);
        let monitor = Some(monitor.unwrap_or_else(by_default));
        Ok(JobReport { file: Mutex::new(file), monitor, tells, trace: Some(Arc::new(trace)) })
    }

    /// The trace that the page needs of the job's requests.
    pub fn trace(&self) -> Option<Arc<JobTrace>> {
        self.trace.clone()
    }

    /// Ends sampling. Gives the written report its name, and returns the samples, if there are any.
    pub fn commit(self) -> Result<Option<ResourceUse>> {
        let used = self.monitor.map(|monitor| monitor.finish());
        if let Some(file) = self.file.into_inner().unpoisoned() {
            file.commit()?;
        }
        Ok(used.filter(|_| self.tells))
    }
}

impl Observer for JobReport {
    fn began(&self, at: Instant) {
        if let Some(monitor) = &self.monitor {
            monitor.began(at);
        }
    }

    /// Writes the report, when the output of the job lacks only its name.
    fn complete(&self, report: &Report) -> Result<(), SortError> {
        match &self.monitor {
            None => report_file::complete(&self.file, report, None),
            Some(monitor) => {
                let monitored = Report { monitor: Some(monitor.finish()), ..report.clone() };
                report_file::complete(&self.file, &monitored, self.trace.as_deref())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_takes_times_in_a_range() {
        let asked = |line: &str| {
            let words = ["ascot", "gen", "1"].into_iter().chain(line.split_whitespace());
            let matches = crate::flags::root().try_get_matches_from(words).unwrap();
            interval(matches.subcommand().unwrap().1).map_err(|failure| failure.to_string())
        };
        assert_eq!(asked("").unwrap(), None);
        assert_eq!(asked("--monitor").unwrap(), Some(Duration::from_secs(1)));
        assert_eq!(asked("--monitor=0.05").unwrap(), Some(Duration::from_millis(50)));
        assert_eq!(asked("--monitor=1h").unwrap(), Some(Duration::from_secs(3600)));
        for text in ["0.049s", "49ms", "61m", "often", "-1s", "", "nan", "inf"] {
            let told = asked(&format!("--monitor={text}")).expect_err(text);
            assert!(told.contains("50ms to 1h") && told.contains("\n  such as"), "{told}");
        }
    }
}
