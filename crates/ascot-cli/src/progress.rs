//! Progress of a command on standard error: one redrawn line, JSON objects, or nothing.
//!
//! ```text
//!   form runs   [###############---------------]  4.1 of 8.0 GB   1.18 GB/s   6 of 9 runs     device binds   10 s left
//! ```
//!
//! Invariants: at most one line of the terminal is in use, and it is cleared before anything else is written; the
//! line keeps its width; a failed write to standard error is not an error; nothing is drawn in a job's first second.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ascot_model::report::Report;
use ascot_model::report::{ColumnAccount, column_words};
use ascot_model::resource_lines::Marks;
use ascot_model::resource_use::ResourceUse;
use ascot_model::units;
use ascot_sort::observe::{Observer, Progress};
use clap::ArgMatches;
use serde::Serialize;
use serde_json::json;

use crate::failure::{Failure, Result, STATUS_OF_ERROR};
use crate::sys;
use crate::terminal;
use crate::values;
use ascot_io::Unpoisoned;

const BETWEEN_DRAWS: Duration = Duration::from_millis(200);
const BEFORE_FIRST_DRAW: Duration = Duration::from_secs(1);
const BAR_COLUMNS: usize = 30;
const NARROW_BAR_COLUMNS: usize = 10;
const COLUMNS_WITHOUT_TERMINAL: usize = 100;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// No progress.
    Silent,
    /// One line, redrawn.
    Bar,
    /// One JSON object a line.
    Json,
}

/// The user's settings for progress.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// `--progress`; `None` means auto.
    pub style: Option<Style>,
    /// `--quiet`.
    pub quiet: bool,
    /// `--verbose`.
    pub verbose: bool,
    /// The result goes to a file, not to a terminal or another program.
    pub output_is_file: bool,
}

/// The user's view of a job.
pub struct Screen {
    style: Style,
    notices: bool,
    /// The job's duration from which its end is summed up; `None` means never.
    summary_after: Option<Duration>,
    colour: bool,
    started: Instant,
    state: Mutex<State>,
    quiet: bool,
    verbose: bool,
}

#[derive(Default)]
struct State {
    last_draw: Option<Instant>,
    line_in_use: bool,
}

impl Screen {
    /// A screen with these settings, on this terminal, if it is one.
    pub fn new(wishes: Wishes) -> Screen {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = io::stderr().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Screen::on(wishes, terminal, terminal && !dumb && !no_colour, dumb)
    }

    /// The screen of a job with the flags of `ascot sort`.
    pub fn of_job(matches: &ArgMatches, output_is_file: bool) -> Screen {
        let style = match values::word(matches, "progress") {
            Some("none") => Some(Style::Silent),
            Some("bar") => Some(Style::Bar),
            Some("json") => Some(Style::Json),
            _ => None,
        };
        Screen::new(Wishes {
            style,
            quiet: matches.get_flag("quiet"),
            verbose: matches.get_flag("verbose"),
            output_is_file,
        })
    }

    fn on(wishes: Wishes, terminal: bool, colour: bool, dumb: bool) -> Screen {
        let automatic = if terminal && !dumb && wishes.output_is_file { Style::Bar } else { Style::Silent };
        let style = if wishes.quiet { Style::Silent } else { wishes.style.unwrap_or(automatic) };
        let asked_for = wishes.verbose || wishes.style == Some(Style::Bar) || style == Style::Json;
        let summary_after = match (wishes.quiet, asked_for, style) {
            (true, _, _) => None,
            (_, true, _) => Some(Duration::ZERO),
            (_, _, Style::Bar) => Some(BEFORE_FIRST_DRAW),
            _ => None,
        };
        let notices = !wishes.quiet && (terminal || asked_for);
        let Wishes { quiet, verbose, .. } = wishes;
        Screen {
            style,
            notices,
            quiet,
            verbose,
            summary_after,
            colour,
            started: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Whether a person watches this job.
    pub fn is_watched(&self) -> bool {
        self.style == Style::Bar
    }

    /// Sums up a finished job, if that is wanted.
    pub fn summary(&self, report: &Report) {
        self.summary_of(report, &format_args!("{report:#}"), report);
    }

    /// The same for a report with a short text, one with all details, and facts for programs.
    pub fn summary_of(&self, text: &dyn Display, details: &dyn Display, facts: &impl Serialize) {
        self.clear();
        let Some(after) = self.summary_after else { return };
        if self.started.elapsed() < after {
            return;
        }
        match self.style {
            Style::Json => write_json(&json!({ "type": "report", "report": facts })),
            _ if self.verbose => write_line(&details.to_string()),
            _ => write_line(&text.to_string()),
        }
    }

    /// Shows the samples of resources, unless messages are off or the report contains them.
    pub fn resources(&self, used: &ResourceUse) {
        self.clear();
        if !self.quiet && self.style != Style::Json {
            write_resources(used);
        }
    }

    /// Reports the types detected for columns, and the values that do not have them.
    pub fn tell_columns(&self, columns: &[ColumnAccount]) {
        if columns.iter().any(ColumnAccount::is_worth_a_word) {
            self.warning(&format!("keys: {}", column_words(columns)));
        }
    }

    /// Handles a failure: reports it as JSON here if that is the style, otherwise returns it to the caller.
    pub fn failed(&self, failure: Failure) -> Result<u8> {
        self.clear();
        if self.style != Style::Json || failure.is_broken_pipe() {
            return Err(failure);
        }
        write_json(&json!({ "type": "error", "message": failure.to_string() }));
        Ok(STATUS_OF_ERROR)
    }

    /// Reports a decision of the command, unless messages are off.
    pub fn tell(&self, text: &str) {
        self.clear();
        if !self.quiet {
            write_line(text);
        }
    }

    /// Clears the line in use.
    pub fn clear(&self) {
        clear_line(&mut self.state());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }
}

impl Observer for Screen {
    fn progress(&self, progress: &Progress) {
        let mut state = self.state();
        let early = self.style != Style::Json && self.started.elapsed() < BEFORE_FIRST_DRAW;
        let lately = state.last_draw.is_some_and(|time| time.elapsed() < BETWEEN_DRAWS);
        if early || lately || self.style == Style::Silent {
            return;
        }
        state.last_draw = Some(Instant::now());
        if self.style == Style::Json {
            write_json(&json!({ "type": "progress", "progress": progress }));
            return;
        }
        let columns = sys::terminal_columns().unwrap_or(COLUMNS_WITHOUT_TERMINAL);
        let line = status_line(progress, columns.saturating_sub(1), self.colour);
        let _ = write!(io::stderr().lock(), "\r{line}\x1b[K");
        state.line_in_use = true;
    }

    fn notice(&self, text: &str) {
        if self.notices {
            self.warning(text);
        }
    }

    fn warning(&self, text: &str) {
        if self.quiet {
            return;
        }
        self.clear();
        match self.style {
            Style::Json => write_json(&json!({ "type": "notice", "text": text })),
            _ => write_line(&format!("ascot: {text}")),
        }
    }
}

/// A notice about a finished command, in the style of its other messages: as JSON, or not at all.
pub fn closing_notice(matches: &ArgMatches, text: &str) {
    let mut named = matches;
    while let Some((_, below)) = named.subcommand() {
        named = below;
    }
    let quiet = named.try_get_one::<bool>("quiet").ok().flatten().copied().unwrap_or(false);
    let style = named.try_get_one::<String>("progress").ok().flatten().map(String::as_str);
    match style {
        _ if quiet => {}
        Some("json") => write_json(&json!({ "type": "notice", "text": text })),
        _ => write_line(&format!("ascot: {text}")),
    }
}

fn clear_line(state: &mut State) {
    if std::mem::take(&mut state.line_in_use) {
        let _ = write!(io::stderr().lock(), "\r\x1b[K");
    }
}

/// Writes the samples of resources to standard error.
pub fn write_resources(used: &ResourceUse) {
    let marks = if terminal::shows_blocks() { Marks::Blocks } else { Marks::Numbers };
    write_line(&used.lines(marks).join("\n"));
}

fn write_line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn write_json(value: &serde_json::Value) {
    write_line(&value.to_string());
}

/// Widths of the columns that change between draws, each as wide as its longest usual text, so that the text after it
/// does not move.
const PHASE_COLUMNS: usize = 12;
const RATE_COLUMNS: usize = 9;
const DETAIL_COLUMNS: usize = 16;
const BOUND_BY_COLUMNS: usize = 15;
const LEFT_COLUMNS: usize = 16;

/// The line for a terminal width: less important parts are left out first.
fn status_line(progress: &Progress, columns: usize, colour: bool) -> String {
    let amount = amount(progress.done_bytes, progress.total_bytes);
    let rate = format!("{:>RATE_COLUMNS$}", units::rate(progress.rate_bytes_per_s));
    let left =
        progress.seconds_left.map(|time_s| format!("{} left", units::seconds(time_s))).unwrap_or_default();
    let left_padded = &*format!("{left:<LEFT_COLUMNS$}");
    let detail = &*format!("{:<DETAIL_COLUMNS$}", progress.detail);
    let bound_by = &*format!("{:<BOUND_BY_COLUMNS$}", progress.bound_by);
    // From all parts to almost none.
    let layouts: [(usize, &[&str]); 6] = [
        (BAR_COLUMNS, &[&amount, &rate, detail, bound_by, left_padded]),
        (NARROW_BAR_COLUMNS, &[&amount, &rate, detail, bound_by, left_padded]),
        (NARROW_BAR_COLUMNS, &[&amount, &rate, bound_by, left_padded]),
        (NARROW_BAR_COLUMNS, &[&amount, &rate, left_padded]),
        (0, &[&amount, &rate, left_padded]),
        (0, &[&amount, &left]),
    ];
    let share = share_done(progress);
    let mut line = String::new();
    for (bar_columns, parts) in layouts {
        let bar = share.filter(|_| bar_columns > 0).map(|share| bar(share, bar_columns));
        let head = format!("  {:<PHASE_COLUMNS$}", progress.phase);
        let tail = parts.join("   ");
        let bar_width = bar.as_ref().map_or(0, |bar| bar.len() + 2);
        line = match bar {
            Some(bar) if colour => format!("{head}\x1b[36m{bar}\x1b[0m  {tail}"),
            Some(bar) => format!("{head}{bar}  {tail}"),
            None => format!("{head}{tail}"),
        };
        if head.chars().count() + bar_width + tail.chars().count() <= columns {
            return line;
        }
    }
    line.chars().take(columns).collect()
}

fn share_done(progress: &Progress) -> Option<f64> {
    match progress.total_bytes {
        Some(total) if total > 0 => Some(progress.done_bytes as f64 / total as f64),
        _ => progress.fraction,
    }
}

fn bar(share: f64, columns: usize) -> String {
    let filled = ((share.clamp(0.0, 1.0) * columns as f64).round() as usize).min(columns);
    format!("[{}{}]", "#".repeat(filled), "-".repeat(columns - filled))
}

/// `4.1 of 8.0 GB`: both in the unit of the total.
fn amount(done_bytes: u64, total_bytes: Option<u64>) -> String {
    let Some(total_bytes) = total_bytes else { return units::bytes(done_bytes) };
    let mut scale = 1.0;
    let mut names = ["B", "kB", "MB", "GB", "TB", "PB"].into_iter().peekable();
    let mut name = names.next().unwrap_or_default();
    while total_bytes as f64 / scale >= 999.5 && names.peek().is_some() {
        scale *= 1000.0;
        name = names.next().unwrap_or(name);
    }
    let digits = usize::from(scale > 1.0 && total_bytes as f64 / scale < 99.5);
    let total = format!("{:.digits$}", total_bytes as f64 / scale);
    // As wide as at the end of the job.
    let width = total.len();
    format!("{:>width$.digits$} of {total} {name}", done_bytes as f64 / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Progress {
        Progress {
            phase: "form runs".into(),
            done_bytes: 4_100_000_000,
            total_bytes: Some(8_000_000_000),
            rate_bytes_per_s: 1.18e9,
            detail: "6 of 9 runs".into(),
            bound_by: "device binds".into(),
            seconds_left: Some(10.0),
            fraction: Some(0.3),
        }
    }

    #[test]
    fn the_line_says_all_where_there_is_room() {
        let line = status_line(&example(), 140, false);
        assert_eq!(
            line,
            "  form runs   [###############---------------]  4.1 of 8.0 GB   1.18 GB/s   6 of 9 runs        \
             device binds      10 s left       "
        );
    }

    #[test]
    fn the_line_stays_as_wide_as_it_is() {
        let shown = |done_bytes, rate_bytes_per_s, runs: u32, bound_by: &str, seconds_left| {
            let detail = format!("{runs} of 120 runs");
            let bound_by = bound_by.into();
            status_line(
                &Progress { done_bytes, rate_bytes_per_s, detail, bound_by, seconds_left, ..example() },
                140,
                false,
            )
        };
        let early = shown(99_000_000, 9.5e6, 1, "", None);
        let later = shown(7_950_000_000, 1.18e9, 119, "sort binds", Some(4000.0));
        let width = |line: &str| line.chars().count();
        assert_eq!(width(&early), width(&later), "{early}\n{later}");
        assert_eq!(early.find(" of 120"), later.find(" of 120").map(|at| at - 2), "{early}\n{later}");
    }

    #[test]
    fn the_line_fits_any_width() {
        for columns in 1..150 {
            let line = status_line(&example(), columns, false);
            assert!(line.chars().count() <= columns, "{columns}: {line}");
            assert!(columns < 40 || line.contains("10 s left"), "{columns}: {line}");
        }
    }

    #[test]
    fn colour_changes_no_width() {
        for columns in [50, 80, 120] {
            let coloured = status_line(&example(), columns, true);
            let plain = coloured.replace("\x1b[36m", "").replace("\x1b[0m", "");
            assert_eq!(plain, status_line(&example(), columns, false));
        }
    }

    #[test]
    fn amounts_share_a_unit() {
        assert_eq!(amount(0, Some(8_000_000_000)), "0.0 of 8.0 GB");
        assert_eq!(amount(5, Some(10)), " 5 of 10 B");
        assert_eq!(amount(250_000_000_000, Some(500_000_000_000)), "250 of 500 GB");
        assert_eq!(amount(4_100_000_000, None), "4.10 GB");
    }

    #[test]
    fn silence_unless_a_person_watches_a_file_grow() {
        let wishes = Wishes { style: None, quiet: false, verbose: false, output_is_file: true };
        assert_eq!(Screen::on(wishes, false, false, false).style, Style::Silent);
        assert_eq!(Screen::on(wishes, true, true, true).style, Style::Silent);
        let watched = Screen::on(wishes, true, true, false);
        assert_eq!((watched.style, watched.summary_after), (Style::Bar, Some(BEFORE_FIRST_DRAW)));
        let piped = Screen::on(Wishes { output_is_file: false, ..wishes }, true, true, false);
        assert_eq!((piped.style, piped.summary_after), (Style::Silent, None));
        let asked = Screen::on(Wishes { style: Some(Style::Json), ..wishes }, false, false, false);
        assert_eq!((asked.style, asked.summary_after), (Style::Json, Some(Duration::ZERO)));
        let quiet = Screen::on(Wishes { quiet: true, verbose: true, ..wishes }, true, true, false);
        assert_eq!((quiet.style, quiet.summary_after, quiet.notices), (Style::Silent, None, false));
    }
}
