//! The engine of a flow, as the inputs and outputs of its function see it.

use std::sync::Arc;

use ascot_sort::FunctionStreams;

use super::job::Shared;
use crate::errors::{Failure, FirstFailure};

/// Bytes of the queue of a stream, as the engine makes it.
pub const QUEUE_BYTES: usize = 64 << 10;

/// The streams of the engine, as the function uses them.
#[derive(Clone)]
pub struct Engine {
    /// The streams.
    pub streams: FunctionStreams,
    /// The job.
    pub shared: Arc<Shared>,
    /// The first failure that the function was told: the flow fails with it, even if the function catches it.
    pub first: FirstFailure,
}

impl Engine {
    /// The engine of `shared` with these streams.
    pub fn new(streams: FunctionStreams, shared: Arc<Shared>) -> Engine {
        Engine { streams, shared, first: FirstFailure::default() }
    }

    /// Why the streams are over: the error of the job.
    pub fn failure(&self) -> Failure {
        if let Some(failure) = self.shared.failure() {
            return self.first.note(failure);
        }
        let text = "the flow has ended: its inputs and outputs exist only while its function runs";
        self.first.get().unwrap_or_else(|| Failure::Request(text.into()))
    }
}
