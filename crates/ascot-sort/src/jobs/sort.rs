//! Sorts, merges, splits, and makes views: opens the inputs, reads the head of the first, divides memory, makes the
//! plan, and runs the passes of the planned method, reporting progress to an observer.

use std::path::Path;
use std::sync::Arc;

use ascot_io::{AtomicOutput, Disk, ahead_bytes, directory_of};
use ascot_model::disk_use::{DiskNeed, beside_view};
use ascot_model::plan::Plan;
use ascot_model::report::Report;
use ascot_record::layout::Layout;

use crate::api::{Caller, Cancel, Method, Observer, Output, Result, SortRequest, SplitBy};
use crate::job::Job;
use crate::methods::small;
use crate::methods::{SmallJob, merge_inputs, plan_reshape_by, reshape_by, split_inputs};
use crate::plan::{
    ASSUMED_RECORD_BYTES, Budget, Lengths, RunOptions, budget_of, check_apart, disk_for, explain_view_space,
    keep_within, make_plan, plan_split, refuse_without_space, sort_budget_of, view_disk,
};
use crate::read::{Inputs, csv_head, keys_need_head, look_at, notice_of_unnamed, refuse_others};
use crate::records::{AnyRecords, InputHead, Records, with_records};
use crate::report::with_progress;
use crate::runs::{JobDir, Manifest, StoredMethod};
use crate::view::{kept_bytes, make};

/// Sorts (or, with `merge_only`, merges).
pub fn sort(
    request: &SortRequest,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report> {
    let caller = Caller { observer, cancel };
    let inputs = Inputs::open(&request.inputs)?;
    let Some(memory) = small::memory_of(request, &inputs) else {
        return sort_large(request, inputs, options, caller);
    };
    refuse_others(request, &inputs)?;
    let (inputs, mut head) =
        if keys_need_head(request) { csv_head(request, inputs)? } else { (inputs, InputHead::default()) };
    head.header = head.header.or_else(|| options.header.clone());
    let notice = notice_of_unnamed(request, &inputs, &head)?;
    let records = AnyRecords::new(request, &head)?;
    let job = SmallJob { request, inputs, header: head.header, memory, options, caller };
    match with_records!(records, records => job.run(&records))? {
        Some(report) => {
            notice.iter().for_each(|notice| observer.warning(notice));
            Ok(report)
        }
        // The job turned out not to be small. Its inputs are files, which can be opened again.
        None => sort_large(request, Inputs::open(&request.inputs)?, options, caller),
    }
}

/// Sorts with threads, a pool and passes, even if there is little to sort.
pub(crate) fn sort_large(
    request: &SortRequest,
    inputs: Inputs,
    options: &RunOptions,
    caller: Caller<'_>,
) -> Result<Report> {
    check_directory(request)?;
    check_apart(request, true)?;
    let mut prepared = prepare(request, inputs, Goal::Sort)?;
    prepared.head.header = prepared.head.header.or_else(|| options.header.clone());
    let disk = disk_for(request, &prepared.budget, options);
    Execution { request, goal: Goal::Sort, prepared, disk, caller, killed: None }.execute()
}

/// Splits the inputs into the files of the output by the rule `by`. The keys of the request are those by which records
/// are split.
pub fn split(
    request: &SortRequest,
    by: SplitBy,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report> {
    check_directory(request)?;
    check_apart(request, false)?;
    let goal = Goal::Split(by);
    let prepared = prepare(request, Inputs::open(&request.inputs)?, goal)?;
    let disk = disk_for(request, &prepared.budget, options);
    let caller = Caller { observer, cancel };
    Execution { request, goal, prepared, disk, caller, killed: None }.execute()
}

/// Sorts the inputs into runs, which become the view `view`.
pub fn make_view(
    request: &SortRequest,
    view: &Path,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report> {
    let (request, mut prepared) = prepare_view(request, view)?;
    prepared.head.header = prepared.head.header.or_else(|| options.header.clone());
    let disk = view_disk(options);
    let caller = Caller { observer, cancel };
    Execution { request: &request, goal: Goal::View(view), prepared, disk, caller, killed: None }.execute()
}

/// Refuses an output whose directory does not exist, before there is anything to write.
fn check_directory(request: &SortRequest) -> Result<()> {
    match &request.output {
        Output::Path(path) => AtomicOutput::check_directory(path)?,
        Output::Parts(parts) => AtomicOutput::check_directory(&parts.path(0))?,
        Output::Stdout | Output::Program => {}
    }
    Ok(())
}

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

/// The state of a killed job.
pub(super) struct KilledJob {
    pub(super) dir: JobDir,
    pub(super) manifest: Manifest,
}

impl KilledJob {
    fn method(&self) -> Method {
        match self.manifest.method {
            StoredMethod::Merge => Method::Merge,
            StoredMethod::Distribute(_) => Method::Distribute,
        }
    }

    fn moved_bytes(&self) -> u64 {
        self.manifest.moved.0 + self.manifest.moved.1
    }
}

impl Execution<'_> {
    /// Executes the job, and returns its report.
    pub(super) fn execute(self) -> Result<Report> {
        let is_view = self.goal.is_view();
        let Prepared { inputs, head, .. } = &self.prepared;
        if self.killed.is_none()
            && let Some(notice) = notice_of_unnamed(self.request, inputs, head)?
        {
            self.caller.observer.warning(&notice);
        }
        let records = AnyRecords::new(self.request, head)?;
        let report = with_records!(records, records => self.execute_with(records));
        report.map_err(|error| if is_view { explain_view_space(error) } else { error })
    }

    fn execute_with<R: Records>(self, records: Arc<R>) -> Result<Report> {
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
        let mut job = Job::new(records, request, plan.clone(), disk, budget, inputs, caller)?;
        job.header = head.header;
        if let Some(KilledJob { dir, manifest }) = killed {
            job.resume(dir, manifest);
        }
        let keeping = job.keeping.clone();
        let report = with_progress(&plan, &ledger, moved_before, caller.observer, || match goal {
            Goal::View(view) => job.make_view(view, &head.records),
            Goal::Split(by) => split_inputs(job, by),
            Goal::Sort if request.merge_only => match &request.route {
                None => merge_inputs(job),
                Some(route) => {
                    let head = InputHead { header: job.header.clone(), ..head };
                    reshape_by(job, route, &head)
                }
            },
            Goal::Sort if method == Method::Distribute => job.sort_by_distribution(),
            Goal::Sort => job.sort_by_merge(),
        });
        report.map_err(|error| keeping.explain(error))
    }
}

/// The purpose of a job.
#[derive(Clone, Copy)]
pub(super) enum Goal<'a> {
    /// They are sorted or merged into the output.
    Sort,
    /// They are divided among the files of the output.
    Split(SplitBy),
    /// Their sorted runs become a view of this name.
    View(&'a Path),
}

impl Goal<'_> {
    pub(super) fn is_view(self) -> bool {
        matches!(self, Goal::View(_))
    }
}

/// A request whose inputs are open.
pub(super) struct Prepared {
    pub(super) inputs: Inputs,
    pub(super) head: InputHead,
    pub(super) budget: Budget,
}

/// Opens the head of `inputs`, and divides the memory of `request`.
pub(super) fn prepare(request: &SortRequest, inputs: Inputs, goal: Goal<'_>) -> Result<Prepared> {
    let (inputs, head) = look_at(request, inputs)?;
    let budget_of = if let Goal::Sort = goal { sort_budget_of } else { budget_of };
    let budget = budget_of(request, inputs.record_bytes())?;
    Ok(Prepared { inputs, head, budget })
}

/// The request by which the runs of the view `view` are formed, and its inputs.
pub(super) fn prepare_view(request: &SortRequest, view: &Path) -> Result<(SortRequest, Prepared)> {
    make::check(request, view)?;
    let request = SortRequest {
        // Runs are written beside the view, and nowhere else.
        temp_dirs: vec![directory_of(view).to_path_buf()],
        method: Method::Merge,
        output: Output::Stdout,
        ..request.clone()
    };
    check_apart(&request, true)?;
    let mut prepared = prepare(&request, Inputs::open(&request.inputs)?, Goal::View(view))?;
    prepared.use_view_blocks(&request)?;
    Ok((request, prepared))
}

impl Prepared {
    /// Divides memory into blocks that suit the runs of a view.
    pub(super) fn use_view_blocks(&mut self, request: &SortRequest) -> Result<()> {
        let records = AnyRecords::new(request, &self.head)?;
        let mean = with_records!(records, records => self.mean_bytes(&*records));
        let kept = kept_bytes(request, mean);
        self.budget = make::budget_of(self.budget, mean, kept, self.inputs.record_bytes());
        Ok(())
    }

    /// The plan of a job that is not resumed and makes no view.
    pub(super) fn plan<R: Records>(
        &self,
        request: &SortRequest,
        goal: Goal<'_>,
        records: &R,
    ) -> Result<Plan> {
        let Prepared { inputs, head, budget } = self;
        let lengths = Lengths::from_head(records, head);
        match goal {
            Goal::Split(by) => plan_split(request, inputs, budget, &lengths, records, by),
            _ if request.route.is_some() => {
                let plan = make_plan(request, inputs, budget, &lengths, records, false)?;
                Ok(plan_reshape_by(plan, request, budget, records.record_bytes()))
            }
            _ => make_plan(request, inputs, budget, &lengths, records, !goal.is_view()),
        }
    }

    /// Turns the plan of a merge into that of a view, which ends when its runs are formed.
    pub(super) fn end_with_runs<R: Records>(&self, plan: &mut Plan, request: &SortRequest, records: &R) {
        plan.forced = false;
        plan.others = Vec::new();
        let bytes = plan.input_bytes.unwrap_or(0);
        let chosen = &mut plan.chosen;
        chosen.passes.truncate(1);
        chosen.factors = Vec::new();
        chosen.merge_factor = None;
        let runs = match chosen.disk.spills_bytes {
            // Records sorted in memory become one run.
            0 => bytes + ahead_bytes(bytes),
            spills => spills,
        };
        let kept = kept_bytes(request, self.mean_bytes(records)).ceil() as u64;
        // The manifest holds, in hexadecimal, the sample from which the types of columns are inferred.
        let typed = matches!(request.layout, Layout::Csv { .. });
        let sample = if typed { 2 * self.head.records.len() as u64 } else { 0 };
        // Space is allocated up to the limit in whole pages.
        let all = (runs + beside_view(bytes, chosen.pieces.max(1), self.budget.block as u64, kept) + sample)
            .next_multiple_of(ascot_io::PAGE_BYTES as u64);
        chosen.peak_disk_bytes = all;
        chosen.disk =
            DiskNeed { peak_bytes: all, spills_bytes: all, least_bytes: all, ..DiskNeed::default() };
        chosen.summary = "form sorted runs, to be merged when they are read".into();
    }

    /// Mean length of a record, bytes.
    fn mean_bytes<R: Records>(&self, records: &R) -> f64 {
        let fixed = records.record_bytes().map(|bytes| bytes as f64);
        fixed.or(Lengths::from_head(records, &self.head).mean_bytes).unwrap_or(ASSUMED_RECORD_BYTES)
    }
}
