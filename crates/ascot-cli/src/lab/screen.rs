//! The progress of a study on standard error.
//!
//! ```text
//!   12 of 944   1 min 3 s, about 50 s left   write plain, N = 1000, k = 10, cold
//! ```
//!
//! The prediction is shown once. On a terminal one line is redrawn every second by a thread of its own, because a
//! measurement may take many minutes; elsewhere a line is written every minute. Invariant: at most one line of the
//! terminal is in use, and it is cleared before anything else is written.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ascot_io::Unpoisoned;
use ascot_io::threads::{self, Thread};
use ascot_lab::{LabError, Observer, Planned, Progress, Stop};
use ascot_model::resource_use::ResourceUse;
use ascot_model::units;
use clap::ArgMatches;

use super::directories::OutDirectory;
use crate::failure::Result;
use crate::monitoring::sampled;
use crate::signals::stoppable;
use crate::sys;

const BETWEEN_DRAWS: Duration = Duration::from_secs(1);
const BETWEEN_LINES: Duration = Duration::from_secs(60);
const COLUMNS_WITHOUT_SIZE: usize = 80;

/// Shows a study.
pub struct Screen {
    quiet: bool,
    shared: Arc<Shared>,
    thread: Option<Thread<()>>,
}

struct Shared {
    terminal: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The last progress, and the time when it was told.
    progress: Option<(Progress, Instant)>,
    line_in_use: bool,
    ended: bool,
}

impl Screen {
    /// A screen on standard error; a quiet one shows only notices.
    pub fn new(quiet: bool) -> Self {
        let terminal = io::stderr().is_terminal();
        let shared = Arc::new(Shared { terminal, state: Mutex::default(), changed: Condvar::new() });
        let drawn = Arc::clone(&shared);
        let thread = (!quiet).then(|| threads::spawn("progress", move || drawn.draw_until_the_end()));
        // Without the thread the line is drawn when a measurement begins.
        Self { quiet, shared, thread: thread.and_then(Result::ok) }
    }

    /// Runs a study and shows its progress until it ends or a signal stops it; returns its result, and the samples of
    /// `--monitor`.
    pub fn watch<T>(
        &self,
        matches: &ArgMatches,
        out: &OutDirectory,
        study: impl FnOnce(&Self, &Stop) -> Result<T, LabError>,
    ) -> Result<(T, Option<ResourceUse>)> {
        sampled(matches, || {
            Ok(stoppable(|cancel| {
                let result = self.show(|screen| study(screen, &Stop(cancel.flag())));
                if result.is_err() {
                    // Now, because a signal ends the process before anything is dropped.
                    out.remove_if_empty();
                }
                result
            })?)
        })
    }

    /// Shows a study, clears the line when it has ended in any way, and says where an interrupted one continues.
    fn show<R>(&self, study: impl FnOnce(&Self) -> Result<R, LabError>) -> Result<R, LabError> {
        let result = study(self);
        self.clear();
        if let Err(stopped @ LabError::Stopped { path }) = &result
            && !self.quiet
        {
            let nothing = "stopped before anything was measured".to_owned();
            self.notice(&if path.exists() { stopped.to_string() } else { nothing });
        }
        result
    }

    /// Clears the line that is redrawn; from now on none is drawn.
    fn clear(&self) {
        let mut state = self.shared.lock();
        state.progress = None;
        clear(&mut state);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    fn draw_until_the_end(&self) {
        let pause = if self.terminal { BETWEEN_DRAWS } else { BETWEEN_LINES };
        let mut state = self.lock();
        while !state.ended {
            let (woken, waited) = self.changed.wait_timeout(state, pause).unpoisoned();
            state = woken;
            if waited.timed_out() && !state.ended {
                self.draw(&mut state);
            }
        }
    }

    fn draw(&self, state: &mut State) {
        let Some((progress, told)) = &state.progress else { return };
        let line = line_of(progress, told.elapsed().as_secs_f64());
        if !self.terminal {
            write(&format!("ascot: {line}\n"));
            return;
        }
        let columns = sys::terminal_columns().unwrap_or(COLUMNS_WITHOUT_SIZE).saturating_sub(3);
        let cut: String = line.chars().take(columns).collect();
        state.line_in_use = true;
        write(&format!("\r  {cut}\x1b[K"));
    }
}

/// The line of a progress that was told `since_s` seconds ago.
fn line_of(progress: &Progress, since_s: f64) -> String {
    let Progress { what, finished, total, elapsed_s, left_s } = progress;
    let elapsed = units::seconds((elapsed_s + since_s).round());
    let left = match left_s - since_s {
        left_s if left_s > 0.0 => format!("about {} left", units::seconds(left_s.round())),
        _ => "longer than predicted".into(),
    };
    format!("{} of {total}   {elapsed}, {left}   {what}", finished + 1)
}

fn clear(state: &mut State) {
    if std::mem::take(&mut state.line_in_use) {
        write("\r\x1b[K");
    }
}

/// Writes text; standard error that is gone is not an error.
fn write(text: &str) {
    let _ = write!(io::stderr().lock(), "{text}");
}

impl Observer for Screen {
    fn planned(&self, planned: &Planned) {
        if self.quiet {
            return;
        }
        if planned.measurements == 0 {
            let count = units::plural(planned.finished_before as u64, "measurement");
            write(&format!("ascot: {count} to make, all of which are finished already\n"));
            return;
        }
        let before = match planned.finished_before {
            0 => String::new(),
            count => format!(" ({count} are finished already)"),
        };
        write(&format!(
            "ascot: {} to make{before}: about {}, and up to {} of files\n",
            units::plural(planned.measurements as u64, "measurement"),
            units::seconds(planned.predicted_s),
            units::bytes(planned.space_bytes)
        ));
    }

    fn progress(&self, progress: &Progress) {
        let mut state = self.shared.lock();
        state.progress = Some((progress.clone(), Instant::now()));
        if self.shared.terminal && !self.quiet {
            self.shared.draw(&mut state);
        }
    }

    fn notice(&self, text: &str) {
        let mut state = self.shared.lock();
        clear(&mut state);
        write(&format!("ascot: {text}\n"));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear();
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to draw.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_on_between_two_measurements() {
        let progress =
            Progress { what: "write plain".into(), finished: 11, total: 944, elapsed_s: 60.0, left_s: 50.0 };
        assert_eq!(line_of(&progress, 3.0), "12 of 944   63 s, about 47 s left   write plain");
        assert_eq!(line_of(&progress, 80.0), "12 of 944   2 min 20 s, longer than predicted   write plain");
    }
}
