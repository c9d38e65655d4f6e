//! Executes a job whose inputs are open: makes its plan, goes through the passes of the planned method, and tells the
//! observer of its progress meanwhile.

use std::sync::Arc;

use ascot_io::Disk;
use ascot_model::report::Report;

use crate::api::error::SortError;
use crate::api::observe::Caller;
use crate::api::request::{Method, SortRequest};
use crate::job::{Job, JobStart};
use crate::jobs::prepare::{Goal, Prepared};
use crate::methods::merge_inputs::merge_inputs;
use crate::methods::split::split_inputs;
use crate::plan::disk_space::{explain_view_space, keep_within, refuse_without_space};
use crate::records::{AnyRecords, Records, with_records};
use crate::report::progress::with_progress;
use crate::runs::store::{JobDir, Manifest, StoredWay};

/// A job that can be executed.
pub(super) struct Execution<'a> {
    pub(super) request: &'a SortRequest,
    pub(super) goal: Goal<'a>,
    pub(super) prepared: Prepared,
    pub(super) disk: Disk,
    pub(super) caller: Caller<'a>,
    /// The killed job that it resumes.
    pub(super) killed: Option<KilledJob>,
}

/// What a killed job left.
pub(super) struct KilledJob {
    pub(super) dir: JobDir,
    pub(super) manifest: Manifest,
}

impl KilledJob {
    fn method(&self) -> Method {
        match self.manifest.way {
            StoredWay::Merge => Method::Merge,
            StoredWay::Distribute(_) => Method::Distribute,
        }
    }

    fn moved_bytes(&self) -> u64 {
        self.manifest.moved.0 + self.manifest.moved.1
    }
}

impl Execution<'_> {
    /// Executes the job, and returns its report.
    pub(super) fn execute(self) -> Result<Report, SortError> {
        let is_view = self.goal.is_view();
        let records = AnyRecords::new(self.request, &self.prepared.head)?;
        let report = with_records!(records, records => self.execute_with(records));
        report.map_err(|error| if is_view { explain_view_space(error) } else { error })
    }

    fn execute_with<R: Records>(self, records: Arc<R>) -> Result<Report, SortError> {
        let Execution { request, goal, prepared, disk, caller, mut killed } = self;
        let mut plan = match &killed {
            Some(killed) => {
                let request = SortRequest { method: killed.method(), ..request.clone() };
                prepared.plan(&request, goal, &*records)?
            }
            None => {
                let mut plan = prepared.plan(request, goal, &*records)?;
                refuse_without_space(request, &mut plan, &disk)?;
                plan
            }
        };
        if goal.is_view() {
            prepared.end_with_runs(&mut plan, request, &*records);
        }
        let planned = if plan.chosen.method == "distribute" { Method::Distribute } else { Method::Merge };
        let method = killed.as_ref().map_or(planned, KilledJob::method);
        let moved_before = killed.as_ref().map_or(0, KilledJob::moved_bytes);
        keep_within(&disk, &plan);
        if let Some(KilledJob { dir, manifest }) = &mut killed {
            dir.remove_unnamed(manifest)?;
            manifest.spills().try_for_each(|run| disk.note_written(&run.path))?;
        }
        let ledger = disk.ledger().clone();
        let Prepared { inputs, head, budget } = prepared;
        let sample = if goal.is_view() { head.records } else { Vec::new() };
        let start =
            JobStart { request, plan: plan.clone(), disk, budget, inputs, header: head.header, caller };
        let mut job = Job::new(records, start)?;
        if let Some(KilledJob { dir, manifest }) = killed {
            job.resume(dir, manifest);
        }
        let keeping = job.keeping.clone();
        let report = with_progress(&plan, &ledger, moved_before, caller.observer, || match goal {
            Goal::View(view) => job.make_view(view, &sample),
            Goal::Split(by) => split_inputs(job, by),
            Goal::Sort if request.merge_only => merge_inputs(job),
            Goal::Sort if method == Method::Distribute => job.sort_by_distribution(),
            Goal::Sort => job.sort_by_merge(),
        });
        report.map_err(|error| keeping.explain(error))
    }
}
