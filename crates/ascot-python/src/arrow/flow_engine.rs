//! The engine of a flow, as the inputs and outputs of its function see it.

use std::sync::{Arc, Mutex};

use ascot_io::Unpoisoned;
use ascot_sort::FunctionStreams;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

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
    /// The first failure that the function was told: the flow fails with it, even if the function catches it.
    told: Arc<Mutex<Option<PyErr>>>,
}

impl Engine {
    /// The engine of `shared` with these streams.
    pub fn new(streams: FunctionStreams, shared: Arc<Shared>) -> Engine {
        Engine { streams, shared, told: Arc::default() }
    }

    /// Why the streams are over: the error of the job.
    pub fn failure(&self) -> Failure {
        if let Some(failure) = self.shared.failure() {
            return self.fail(failure);
        }
        let text = "the flow has ended: its inputs and outputs exist only while its function runs";
        self.told().unwrap_or_else(|| Failure::Exception(PyValueError::new_err(text)))
    }

    /// Notes `failure` as that of the flow, and returns it.
    pub fn fail(&self, failure: Failure) -> Failure {
        let error = PyErr::from(failure);
        Python::attach(|py| {
            self.told.lock().unpoisoned().get_or_insert_with(|| error.clone_ref(py));
        });
        Failure::Exception(error)
    }

    /// The failure that the function was told first.
    pub fn told(&self) -> Option<Failure> {
        Python::attach(|py| self.told.lock().unpoisoned().as_ref().map(|error| error.clone_ref(py)))
            .map(Failure::Exception)
    }
}
