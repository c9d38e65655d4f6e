//! The progress of a study on standard error.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};

use ascot_lab::{Observer, Planned, Progress};
use ascot_model::units;

/// Shows the prediction once, and one line that is redrawn on a terminal.
pub struct Screen {
    quiet: bool,
    terminal: bool,
    line_in_use: Cell<bool>,
}

impl Screen {
    /// A screen on standard error; a quiet one shows nothing but notices.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, terminal: io::stderr().is_terminal(), line_in_use: Cell::new(false) }
    }

    /// Clears the line that is redrawn.
    pub fn clear(&self) {
        if self.line_in_use.replace(false) {
            self.write("\r\x1b[K");
        }
    }

    /// Writes text; standard error that is gone is not an error.
    fn write(&self, text: &str) {
        let _ = write!(io::stderr().lock(), "{text}");
    }
}

impl Observer for Screen {
    fn planned(&self, planned: &Planned) {
        if self.quiet {
            return;
        }
        if planned.measurements == 0 {
            let count = units::plural(planned.finished_before as u64, "measurement");
            self.write(&format!("ascot: {count} to make, all of which are finished already\n"));
            return;
        }
        let before = match planned.finished_before {
            0 => String::new(),
            count => format!(" ({count} are finished already)"),
        };
        self.write(&format!(
            "ascot: {} to make{before}: about {}, and up to {} of files\n",
            units::plural(planned.measurements as u64, "measurement"),
            units::seconds(planned.predicted_s),
            units::bytes(planned.space_bytes)
        ));
    }

    fn progress(&self, progress: &Progress) {
        if self.quiet || !self.terminal {
            return;
        }
        self.line_in_use.set(true);
        let Progress { what, finished, total, left_s, .. } = progress;
        let left = units::seconds(*left_s);
        self.write(&format!("\r  {} of {total}   {left} left   {what}\x1b[K", finished + 1));
    }

    fn notice(&self, text: &str) {
        self.clear();
        self.write(&format!("ascot: {text}\n"));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear();
    }
}
