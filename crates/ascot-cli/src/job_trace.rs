//! `--trace` of a job: its requests, as its ledger counts them, in a trace file.

use std::sync::Arc;

use ascot_io::RequestObserver;
use ascot_sort::RunOptions;
use ascot_trace::job::JobTrace;
use clap::ArgMatches;

use crate::failure::Failure;
use crate::values;

/// The trace of a job, if one is requested.
pub struct RequestedTrace(Option<Arc<JobTrace>>);

impl RequestedTrace {
    /// Starts the trace.
    pub fn start(matches: &ArgMatches) -> Result<Self, Failure> {
        let path = values::path(matches, "trace");
        Ok(Self(path.map(|path| JobTrace::create(&path)).transpose()?.map(Arc::new)))
    }

    /// The options of the job.
    pub fn options(&self) -> RunOptions {
        let requests = self.0.clone().map(|trace| trace as Arc<dyn RequestObserver>);
        RunOptions { requests, ..RunOptions::default() }
    }

    /// Completes the trace of a job that has succeeded, and gives it its name.
    pub fn commit(self) -> Result<(), Failure> {
        if let Some(trace) = self.0 {
            trace.finish(&std::env::args_os().collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
