//! Whether a job that ends early leaves what it needs to go on.
//!
//! ```text
//!   begun                     an error, a stop    everything is removed
//!   begun to be kept          a stop              the job's directory and its unfinished output stay
//!     past its first pass     an error, a stop    both stay
//!   resumed, or kept for good an error, a stop    both stay
//!   done                                          everything is removed
//! ```
//!
//! Invariant: only a job whose directory has a manifest is ever kept, so whatever is kept can go on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use crate::api::error::SortError;
use crate::api::observe::Cancel;

const IF_STOPPED: u8 = 0;
const ALWAYS: u8 = 1;
const NEVER: u8 = 2;

/// What becomes of a job's state; clones are of the same job.
#[derive(Clone, Debug)]
pub struct Keeping {
    cancel: Cancel,
    rule: Arc<AtomicU8>,
    kept_in: Arc<OnceLock<PathBuf>>,
}

impl Keeping {
    /// A job that has begun, and keeps its state where `cancel` stops it and says so.
    pub fn new(cancel: &Cancel) -> Self {
        Keeping { cancel: cancel.clone(), rule: Arc::new(AtomicU8::new(IF_STOPPED)), kept_in: Arc::default() }
    }

    /// From here on the state is kept whatever ends the job early.
    pub fn always(&self) {
        self.rule.store(ALWAYS, Ordering::Relaxed);
    }

    /// The job is done: nothing of it is kept.
    pub fn never(&self) {
        self.rule.store(NEVER, Ordering::Relaxed);
    }

    /// Whether a job that ends now is kept.
    pub fn keeps(&self) -> bool {
        match self.rule.load(Ordering::Relaxed) {
            ALWAYS => true,
            NEVER => false,
            _ => self.cancel.is_cancelled() && self.cancel.keeps(),
        }
    }

    /// Whether a job that is stopped is to be kept.
    pub fn is_wished(&self) -> bool {
        self.cancel.keeps()
    }

    /// The job has been left in the directory `dir`.
    pub fn kept_in(&self, dir: &Path) {
        // The first directory of a job is dropped once.
        let _ = self.kept_in.set(dir.to_path_buf());
    }

    /// `error` with the way to go on, where the job was kept.
    pub fn explain(&self, error: SortError) -> SortError {
        match self.kept_in.get() {
            None => error,
            Some(dir) => SortError::Kept { error: Box::new(error.without_remains()), dir: dir.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_kept_as_it_is_said() {
        let plain = Keeping::new(&Cancel::new());
        plain.cancel.cancel();
        assert!(!plain.keeps());
        let wished = Keeping::new(&Cancel::new().keeping(true));
        assert!(!wished.keeps(), "an error is no stop");
        wished.cancel.cancel();
        assert!(wished.keeps());
        wished.never();
        assert!(!wished.keeps(), "a job that is done, stopped at its very end");
        plain.always();
        assert!(plain.keeps());
    }

    #[test]
    fn an_error_of_a_kept_job_says_how_to_go_on() {
        let keeping = Keeping::new(&Cancel::new());
        assert!(!matches!(keeping.explain(SortError::Cancelled), SortError::Kept { .. }));
        keeping.kept_in(Path::new("/fast/ascot-1"));
        let told = keeping.explain(SortError::Cancelled).to_string();
        assert_eq!(told.lines().next(), Some("stopped"));
        assert!(told.contains("ascot sort --resume /fast/ascot-1"), "{told}");
    }
}
