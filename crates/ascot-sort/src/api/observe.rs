//! Watching a job and stopping it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ascot_model::report::Report;
use serde::Serialize;

use crate::api::error::SortError;

/// A job's state, told several times a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// What is being done: `form runs`, `merge`.
    pub phase: String,
    /// Bytes of records done in this phase.
    pub done_bytes: u64,
    /// Bytes in all, where known.
    pub total_bytes: Option<u64>,
    /// Rate of this phase, bytes/s.
    pub rate_bytes_per_s: f64,
    /// More, in words: `pass 1 of 2`.
    pub detail: String,
    /// What binds now, in words: `reading binds`.
    pub bound_by: String,
    /// Seconds left of the whole job.
    pub seconds_left: Option<f64>,
    /// Share of the whole job that is done, 0 to 1.
    pub fraction: Option<f64>,
}

/// Is told how a job goes.
pub trait Observer: Sync {
    /// Several times a second.
    fn progress(&self, _progress: &Progress) {}
    /// Something the user may want to know.
    fn notice(&self, _text: &str) {}
    /// Something a user must know: the result may be another one than was meant, or the job differs from the request.
    fn warning(&self, _text: &str) {}
    /// All of the output is durable, and is about to get its name. What must not fail after that is done now,
    /// as writing the report: an error here ends the job without an output.
    fn complete(&self, _report: &Report) -> Result<(), SortError> {
        Ok(())
    }
}

/// Nobody watches.
pub struct Silent;

impl Observer for Silent {}

/// Stops a job from outside; clones stop the same job.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    keeps: bool,
}

impl Cancel {
    /// A switch that is off.
    pub fn new() -> Self {
        Cancel::default()
    }

    /// The same, and a job that it stops keeps what it needs to go on, where it can; where it cannot, its files
    /// are removed as always.
    #[must_use]
    pub fn keeping(self, keeps: bool) -> Self {
        Cancel { keeps, ..self }
    }

    /// Whether a job that it stops keeps what it needs to go on.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// Asks the job to stop, clean up and return [`SortError::Cancelled`]. Safe in a signal handler.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The flag itself, for signal handlers that set one.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// An error if it was asked to stop.
    pub fn check(&self) -> Result<(), SortError> {
        if self.is_cancelled() { Err(SortError::Cancelled) } else { Ok(()) }
    }
}
