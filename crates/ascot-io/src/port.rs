//! What every stream carries beside its file: the path for errors, the meter, the faults.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use crate::error::{Action, IoError};
use crate::fault_hook::{Effect, FaultHook, Operation};
use crate::ledger::Meter;
use crate::room::Room;

/// A stream's ties to the rest of the disk.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) path: PathBuf,
    pub(crate) meter: Meter,
    pub(crate) faults: Option<Arc<dyn FaultHook>>,
    /// Where what files take is noted.
    pub(crate) room: Room,
    /// Set by whoever wants waits for the other end of a pipe to end.
    pub(crate) stop: Option<Arc<AtomicBool>>,
}

impl Port {
    /// Asks the fault hook about an operation.
    pub(crate) fn before(&self, operation: Operation, offset: u64) -> Result<Option<Effect>, IoError> {
        before(self.faults.as_deref(), operation, &self.path, offset)
    }

    /// An error of this stream's file.
    pub(crate) fn error(&self, action: Action, offset: u64, source: io::Error) -> IoError {
        IoError::from_os(action, &self.path, offset, source)
    }

    /// The file ended before its time.
    pub(crate) fn truncated(&self, offset: u64, expected: u64) -> IoError {
        IoError::Truncated { path: self.path.clone(), offset, expected }
    }

    /// The caller broke the stream's rules.
    pub(crate) fn misuse(&self, offset: u64, what: &'static str) -> IoError {
        IoError::Misuse { path: self.path.clone(), offset, what }
    }

    /// Whether waits are to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Relaxed))
    }

    /// Runs `wait` and notes the time it took as waited.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = wait();
        self.meter.waited(start.elapsed());
        result
    }
}

/// Asks the fault hook about an operation on `path`.
pub(crate) fn before(
    faults: Option<&dyn FaultHook>,
    operation: Operation,
    path: &Path,
    offset: u64,
) -> Result<Option<Effect>, IoError> {
    let Some(faults) = faults else { return Ok(None) };
    let action = match operation {
        Operation::Open => Action::Open,
        Operation::Create => Action::Create,
        Operation::Read => Action::Read,
        Operation::Write => Action::Write,
        Operation::Sync => Action::Sync,
        Operation::Rename => Action::Rename,
        Operation::Remove => Action::Remove,
    };
    faults.before(operation, path).map_err(|source| IoError::from_os(action, path, offset, source))
}
