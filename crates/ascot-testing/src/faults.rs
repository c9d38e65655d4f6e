//! Fault injection: a plan that makes the k-th operation on files fail or lie.
//!
//! A test first counts the operations of a small job with [`Faults::counting`], then runs it once for every k, and
//! expects the right output or a clear error each time. The counter counts the operations that pass the plan's
//! filter, from every thread.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ascot_io::{Action, Effect, FaultHook, Unpoisoned};

/// The operation to fail, and its effect.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    /// The number of the operation that fails, counted from 0 over those that pass the filters.
    pub at: u64,
    /// Its effect.
    pub effect: Effect,
    /// Only these operations count; empty for all.
    pub operations: Vec<Action>,
    /// Only files whose path contains this count; empty for all.
    pub path_contains: String,
    /// True: every later operation fails as well. False: only one does.
    pub lasting: bool,
}

/// Operations and their files, in order.
type Record = Arc<Mutex<Vec<(Action, PathBuf)>>>;

/// A shared plan with its counter; clones count together.
#[derive(Debug, Clone)]
pub struct Faults {
    plan: Arc<Option<FaultPlan>>,
    counted: Arc<AtomicU64>,
    fired: Arc<AtomicU64>,
    /// Every operation and its file, if they are recorded.
    recorded: Option<Record>,
}

impl Faults {
    /// Follows `plan`.
    pub fn new(plan: FaultPlan) -> Self {
        Self { plan: Arc::new(Some(plan)), counted: Arc::default(), fired: Arc::default(), recorded: None }
    }

    /// Injects nothing and only counts.
    pub fn counting() -> Self {
        Self { plan: Arc::new(None), counted: Arc::default(), fired: Arc::default(), recorded: None }
    }

    /// Injects nothing and records all operations, for tests of the order in which files are made durable.
    pub fn recording() -> Self {
        Self { recorded: Some(Arc::default()), ..Self::counting() }
    }

    /// The recorded operations, in order. A rename is recorded with its new name.
    pub fn recorded(&self) -> Vec<(Action, PathBuf)> {
        let recorded = self.recorded.as_ref();
        recorded.map(|all| all.lock().unpoisoned().clone()).unwrap_or_default()
    }

    /// Operations counted so far.
    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Operations made to fail so far.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }
}

impl From<Faults> for Arc<dyn FaultHook> {
    fn from(faults: Faults) -> Self {
        Arc::new(faults)
    }
}

impl FaultHook for Faults {
    fn before(&self, operation: Action, path: &Path) -> io::Result<Option<Effect>> {
        if let Some(recorded) = &self.recorded {
            recorded.lock().unpoisoned().push((operation, path.to_path_buf()));
        }
        let Some(plan) = self.plan.as_ref() else {
            self.counted.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        };
        let counts = plan.operations.is_empty() || plan.operations.contains(&operation);
        if !counts || !path.to_string_lossy().contains(&plan.path_contains) {
            return Ok(None);
        }
        let number = self.counted.fetch_add(1, Ordering::Relaxed);
        if number != plan.at && !(plan.lasting && number > plan.at) {
            return Ok(None);
        }
        self.fired.fetch_add(1, Ordering::Relaxed);
        match plan.effect.error() {
            Some(error) => Err(error),
            None => Ok(Some(plan.effect)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_decides_what_counts() {
        let faults = Faults::new(FaultPlan {
            at: 1,
            effect: Effect::NoSpace,
            operations: vec![Action::Write],
            path_contains: "spill".into(),
            lasting: false,
        });
        let (spill, other) = (Path::new("/tmp/spill-1"), Path::new("/tmp/out"));
        assert!(faults.before(Action::Read, spill).is_ok());
        assert!(faults.before(Action::Write, other).is_ok());
        assert!(faults.before(Action::Write, spill).is_ok());
        let error = faults.clone().before(Action::Write, spill).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(28));
        assert!(faults.before(Action::Write, spill).is_ok());
        assert_eq!((faults.counted(), faults.fired()), (3, 1));
    }

    #[test]
    fn lasting_faults_stay() {
        let faults = Faults::new(FaultPlan {
            at: 0,
            effect: Effect::Torn,
            operations: vec![],
            path_contains: String::new(),
            lasting: true,
        });
        for _ in 0..3 {
            assert_eq!(faults.before(Action::Write, Path::new("x")).unwrap(), Some(Effect::Torn));
        }
    }
}
