//! The results of studies: as text, as JSON, and in a report file.

use clap::ArgMatches;
use serde::Serialize;

use crate::failure::Result;
use crate::numbers;
use crate::report_file::ReportFile;
use crate::sys::print;

/// The file of `--report`, if it is given: it must be writable before the study begins.
pub fn report_file(matches: &ArgMatches) -> Result<Option<ReportFile>> {
    ReportFile::prepare(matches, None)
}

/// Prints a result, as JSON with `--json`, and writes it to the report file.
pub fn finish(
    matches: &ArgMatches,
    report: &impl Serialize,
    text: impl FnOnce() -> String,
    file: Option<ReportFile>,
) -> Result<u8> {
    print(&if matches.get_flag("json") { numbers::json(report)? } else { text() })?;
    if let Some(file) = file {
        file.write_at_once(report)?;
    }
    Ok(0)
}

/// A rate in MB/s, with as many digits as the published tables.
pub fn megabytes(bytes_per_s: f64) -> String {
    format!("{:.1}", bytes_per_s / 1e6)
}
