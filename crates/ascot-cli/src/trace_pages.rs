//! `ascot trace plot` and `ascot trace compare`: traces on a page, and side by side in a table.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use ascot_trace::compare::{Compared, Row, remarks, rows};
use ascot_trace::page::{Shown, write_page};
use ascot_trace::{TraceReader, is_standard_output};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::numbers;
use crate::sys::{input, print, refuse_same};
use crate::values;
use crate::volume;

/// Columns of the names of measures and of each trace: three traces fit a screen.
const NAME_COLUMNS: usize = 20;
const TRACE_COLUMNS: usize = 18;
const TRACES_ACROSS: usize = 3;

/// `ascot trace plot`.
pub fn plot(matches: &ArgMatches) -> Result<u8> {
    let path = input(values::path(matches, "trace").unwrap_or_default());
    let output = values::path(matches, "output").unwrap_or_default();
    refuse_same(std::slice::from_ref(&path), &output)?;
    let trace = TraceReader::open(&path)?;
    let compared = Compared::new(path.display().to_string(), &trace, None, None)?;
    write_page(&[Shown { trace: &trace, compared: &compared }], &output)?;
    Ok(0)
}

/// Names of traces: those of their files if they differ, else the paths.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let of_files: Vec<_> = paths.iter().filter_map(|path| path.file_name()).collect();
    let differ = of_files.iter().collect::<HashSet<_>>().len() == paths.len();
    match differ {
        true => of_files.iter().map(|name| name.to_string_lossy().into_owned()).collect(),
        false => paths.iter().map(|path| path.display().to_string()).collect(),
    }
}

/// `ascot trace compare`.
pub fn compare(matches: &ArgMatches) -> Result<u8> {
    let paths: Vec<_> = values::paths(matches, "traces").into_iter().map(input).collect();
    let output = values::path(matches, "output");
    if let Some(output) = &output {
        refuse_same(&paths, output)?;
        if is_standard_output(output) {
            return Err(Failure::usage(
                "-o -: the page would mix with the table on standard output",
                "name a file for the page: -o page.html",
            ));
        }
    }
    let profile =
        values::path(matches, "on").map(|on| volume::of_word(on.as_os_str(), "--on")).transpose()?;
    let data_bytes = match numbers::data(matches, "data", 0)? {
        0 if values::is_given(matches, "data") => {
            return Err(Failure::usage("--data is zero", "give the size of the data, such as 8GB"));
        }
        bytes => Some(bytes).filter(|bytes| *bytes > 0),
    };
    let traces: Vec<TraceReader> =
        paths.iter().map(|path| TraceReader::open(path)).collect::<Result<_, _>>()?;
    let mut compared = Vec::new();
    for (name, trace) in names(&paths).into_iter().zip(&traces) {
        compared.push(Compared::new(name, trace, data_bytes, profile.as_ref())?);
    }
    if let Some(output) = &output {
        let shown: Vec<Shown<'_>> =
            traces.iter().zip(&compared).map(|(trace, compared)| Shown { trace, compared }).collect();
        write_page(&shown, output)?;
    }
    let text = if values::flag(matches, "json") { numbers::json(&compared)? } else { text(&compared) };
    print(&text).map(|()| 0)
}

/// The table: as many traces across as fit a screen, the others below.
fn text(compared: &[Compared]) -> String {
    let rows = rows(compared);
    let names: Vec<String> = compared.iter().map(|one| shortened(&one.trace, TRACE_COLUMNS - 2)).collect();
    let mut text = String::new();
    for from in (0..compared.len()).step_by(TRACES_ACROSS) {
        let to = compared.len().min(from + TRACES_ACROSS);
        if from > 0 {
            text.push('\n');
        }
        append_line(&mut text, "", names.get(from..to).unwrap_or_default());
        for Row { name, values } in &rows {
            append_line(&mut text, name, values.get(from..to).unwrap_or_default());
        }
    }
    for remark in remarks(compared) {
        let _ = writeln!(text, "  {remark}");
    }
    text
}

fn append_line(text: &mut String, name: &str, values: &[String]) {
    let _ = write!(text, "{name:<NAME_COLUMNS$}");
    for value in values {
        let _ = write!(text, "{value:>TRACE_COLUMNS$}");
    }
    text.push('\n');
}

/// The end of a name that fits `columns`.
pub(crate) fn shortened(name: &str, columns: usize) -> String {
    let printable = name.chars().map(printable);
    match name.chars().count().checked_sub(columns) {
        None | Some(0) => printable.collect(),
        Some(extra) => format!("...{}", printable.skip(extra + 3).collect::<String>()),
    }
}

/// A character, unless it would change a terminal.
pub(crate) fn printable(character: char) -> char {
    if character.is_control() { '?' } else { character }
}
