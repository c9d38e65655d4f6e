//! Watching a job and stopping it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ascot_model::report::Report;
use serde::Serialize;

use crate::api::error::{Result, SortError};

/// Progress of a job, reported several times a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// The current phase: `form runs`, `merge`.
    pub phase: String,
    /// Bytes of records done in this phase.
    pub done_bytes: u64,
    /// Bytes of the phase, if known.
    pub total_bytes: Option<u64>,
    /// Rate of this phase, bytes/s.
    pub rate_bytes_per_s: f64,
    /// Further detail: `pass 1 of 2`.
    pub detail: String,
    /// The current bottleneck: `device binds`.
    pub bound_by: String,
    /// Seconds left of the whole job.
    pub seconds_left: Option<f64>,
    /// Fraction of the whole job that is done, 0 to 1.
    pub fraction: Option<f64>,
}

/// Receives the progress, notices and report of a job.
pub trait Observer: Sync {
    /// Called several times a second.
    fn progress(&self, _progress: &Progress) {}
    /// A notice that may interest the user.
    fn notice(&self, _text: &str) {}
    /// A warning: the result may not be what the user expects, or the job differs from the request.
    fn warning(&self, _text: &str) {}
    /// Called when the job begins, before its first pass: the times of its passes count from `at`. A later call
    /// replaces an earlier one, whose attempt moved nothing.
    fn began(&self, _at: Instant) {}
    /// Called when the output is durable but not yet renamed to its final name. An error here, as in writing the
    /// report, ends the job without an output.
    fn complete(&self, _report: &Report) -> Result<()> {
        Ok(())
    }
}

/// The caller of a job: it observes the job and can stop it.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Observes the job.
    pub observer: &'a dyn Observer,
    /// Stops the job.
    pub cancel: &'a Cancel,
}

/// An observer that ignores everything.
pub struct Silent;

impl Observer for Silent {}

/// Stops a job from outside; clones stop the same job.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    keeps: bool,
}

impl Cancel {
    /// A new switch, which is off.
    pub fn new() -> Self {
        Cancel::default()
    }

    /// A switch that is on while `flag` is set: the flag may be shared with other work that stops together.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Cancel { flag, keeps: false }
    }

    /// The same switch. If `keeps` is set, a job that it stops keeps its files if it can be resumed.
    #[must_use]
    pub fn keeping(self, keeps: bool) -> Self {
        Cancel { keeps, ..self }
    }

    /// Whether a job that it stops keeps its files if it can be resumed.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// Asks the job to stop, clean up and return [`SortError::Cancelled`]. Safe in a signal handler.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Whether the job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The flag itself, for signal handlers that set one.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// [`SortError::Cancelled`] if the job was cancelled.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(SortError::Cancelled) } else { Ok(()) }
    }
}
