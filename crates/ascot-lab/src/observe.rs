//! The view that a user has of a running study, and the way to stop it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::LabError;

/// The progress of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The measurement that runs now, for people: `write plain, N = 1000, k = 1, cold`.
    pub what: String,
    /// Measurements finished.
    pub finished: usize,
    /// All measurements.
    pub total: usize,
    /// Seconds since the study began.
    pub elapsed_s: f64,
    /// Predicted seconds until its end, corrected by the measurements so far.
    pub left_s: f64,
}

/// The study that is about to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Planned {
    /// Measurements to make.
    pub measurements: usize,
    /// Measurements that an earlier run has finished.
    pub finished_before: usize,
    /// Predicted seconds.
    pub predicted_s: f64,
    /// Bytes of files that exist at once at most.
    pub space_bytes: u64,
}

/// A finished study.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished<R> {
    /// Results of all its cells, in their order.
    pub results: Vec<R>,
    /// Measurements made now; the others were finished before.
    pub measured: usize,
    /// Seconds predicted before the first measurement.
    pub predicted_s: f64,
    /// Seconds taken.
    pub taken_s: f64,
}

/// Shows the progress of a study.
pub trait Observer {
    /// Called once, before the first measurement.
    fn planned(&self, planned: &Planned);

    /// Called before each measurement.
    fn progress(&self, progress: &Progress);

    /// A notice for the user.
    fn notice(&self, text: &str);
}

/// A flag that stops a study at the next opportunity.
#[derive(Debug, Clone, Default)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// An error if the study must stop; `table` is its table of results.
    ///
    /// # Errors
    /// [`LabError::Stopped`].
    pub fn check(&self, table: &Path) -> Result<(), LabError> {
        if self.is_set() { Err(LabError::Stopped { path: table.to_path_buf() }) } else { Ok(()) }
    }

    /// Whether the study must stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// For tests: notes the progress that it is shown, and stops the study before measurement `stop_at`.
#[cfg(test)]
pub(crate) struct Notes<'a> {
    pub(crate) shown: std::cell::RefCell<Vec<Progress>>,
    pub(crate) planned: std::cell::RefCell<Vec<Planned>>,
    stop: &'a Stop,
    stop_at: usize,
}

#[cfg(test)]
impl<'a> Notes<'a> {
    pub(crate) fn new(stop: &'a Stop, stop_at: usize) -> Self {
        Self { shown: std::cell::RefCell::default(), planned: std::cell::RefCell::default(), stop, stop_at }
    }
}

#[cfg(test)]
impl Observer for Notes<'_> {
    fn planned(&self, planned: &Planned) {
        self.planned.borrow_mut().push(*planned);
    }

    fn progress(&self, progress: &Progress) {
        self.shown.borrow_mut().push(progress.clone());
        self.stop.0.store(progress.finished >= self.stop_at, Ordering::Relaxed);
    }

    fn notice(&self, _text: &str) {}
}
