//! `--trace` of a job: its requests, as its ledger counts them, in a trace file; and the same for the page of a report.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ascot_io::{
    Disk, DiskOptions, FileNumber, IssuedRequest, Ledger, Occupancies, RequestObserver, SharingStreams,
    Unpoisoned, directory_of,
};
use ascot_sort::RunOptions;
use ascot_trace::job::JobTrace;
use ascot_trace::{TraceError, is_standard_output};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::report_file::source_of_trace;
use crate::sys::refuse_same;
use crate::values;

/// The trace of a job, if one is requested.
pub struct RequestedTrace(Option<(PathBuf, Arc<JobTrace>)>);

impl RequestedTrace {
    /// Starts the trace.
    pub fn start(matches: &ArgMatches) -> Result<Self> {
        let Some(path) = values::path(matches, "trace") else { return Ok(Self(None)) };
        let output = matches.try_get_raw("output").ok().flatten().and_then(|mut all| all.next());
        if is_standard_output(&path) && output.is_none_or(|output| is_standard_output(Path::new(output))) {
            return Err(Failure::usage(
                "--trace -: the trace would mix with the output on standard output",
                "name a file for the trace: --trace run.trace",
            ));
        }
        let trace =
            JobTrace::create(&path).map_err(|error| of_trace(&path, "cannot write the trace", error))?;
        Ok(Self(Some((path, Arc::new(trace)))))
    }

    /// Who sees the requests of the job: this trace, that of the page of its report, or both.
    pub fn observer(&self, page: Option<Arc<JobTrace>>) -> Option<Arc<dyn RequestObserver>> {
        let own = self.0.as_ref().map(|(_, trace)| Arc::clone(trace));
        match (own, page) {
            (Some(one), Some(other)) => Some(Arc::new(Both { one, other, numbers: Mutex::default() })),
            (one, other) => one.or(other).map(|trace| trace as Arc<dyn RequestObserver>),
        }
    }

    /// Starts the trace of a command that reads `inputs` and works in the directory `dir`: it must be none of their
    /// files.
    pub fn start_beside(matches: &ArgMatches, inputs: &[PathBuf], dir: &Path) -> Result<Self> {
        if let Some(path) = values::path(matches, "trace") {
            refuse_same(inputs, &path)?;
            let parent = directory_of(&path).canonicalize().ok();
            if parent.is_some() && parent == dir.canonicalize().ok() {
                return Err(Failure::usage(
                    format!("--trace {} is in the directory {}", path.display(), dir.display()),
                    "the directory holds only files of its own: name a file elsewhere",
                ));
            }
        }
        Self::start(matches)
    }

    /// A disk whose requests it sees.
    pub fn disk(&self) -> Disk {
        Disk::new(DiskOptions { ledger: Ledger::observed(self.observer(None)), ..DiskOptions::default() })
    }

    /// The options of the job.
    pub fn options(&self, page: Option<Arc<JobTrace>>) -> RunOptions {
        RunOptions { requests: self.observer(page), ..RunOptions::default() }
    }

    /// Completes the trace of a job that has succeeded, and gives it its name.
    pub fn commit(self) -> Result<()> {
        if let Some((path, trace)) = self.0 {
            let words: Vec<_> = std::env::args_os().collect();
            let doing = "the job is done, but its trace cannot be written";
            trace.finish(&words).map_err(|error| of_trace(&path, doing, error))?;
        }
        Ok(())
    }
}

fn of_trace(path: &Path, doing: &'static str, error: TraceError) -> Failure {
    Failure::file(path, doing)(source_of_trace(error))
}

/// Two traces of one job.
#[derive(Debug)]
struct Both {
    one: Arc<JobTrace>,
    other: Arc<JobTrace>,
    /// The numbers of bowties in each of them.
    numbers: Mutex<Vec<[u32; 2]>>,
}

impl RequestObserver for Both {
    fn opened(&self, file: FileNumber, path: &Path) {
        self.one.opened(file, path);
        self.other.opened(file, path);
    }

    fn renamed(&self, from: &Path, to: &Path) {
        self.one.renamed(from, to);
        self.other.renamed(from, to);
    }

    fn removed(&self, file: FileNumber) {
        self.one.removed(file);
        self.other.removed(file);
    }

    fn freed(&self, file: FileNumber, end: u64) {
        self.one.freed(file, end);
        self.other.freed(file, end);
    }

    fn issued(&self, request: &IssuedRequest) {
        self.one.issued(request);
        self.other.issued(request);
    }

    fn share(&self, streams: &SharingStreams<'_>) -> u32 {
        let mut numbers = self.numbers.lock().unpoisoned();
        numbers.push([self.one.share(streams), self.other.share(streams)]);
        numbers.len() as u32 - 1
    }

    fn occupied(&self, buckets: &Occupancies<'_>) {
        let numbers = self.numbers.lock().unpoisoned().get(buckets.sharing as usize).copied();
        let Some([one, other]) = numbers else { return };
        self.one.occupied(&Occupancies { sharing: one, ..*buckets });
        self.other.occupied(&Occupancies { sharing: other, ..*buckets });
    }
}
