//! The engine of a flow, as the inputs and outputs of its function see it.

use std::sync::Arc;

use ascot_sort::FunctionStreams;
use pyo3::exceptions::PyValueError;

use super::job::Shared;
use crate::errors::Failure;

/// Bytes of the queue of a stream, as the engine makes it.
pub const QUEUE_BYTES: usize = 64 << 10;

/// The streams of the engine, as the function uses them.
#[derive(Clone)]
pub struct Engine {
    /// The streams.
    pub streams: FunctionStreams,
    /// The job.
    pub shared: Arc<Shared>,
}

impl Engine {
    /// Why the streams are over: the error of the job.
    pub fn failure(&self) -> Failure {
        let text = "the flow has ended: its inputs and outputs exist only while its function runs";
        self.shared.failure().unwrap_or_else(|| Failure::Exception(PyValueError::new_err(text)))
    }
}
