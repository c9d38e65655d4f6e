//! The entry: from a request to its report, its explanation, or its second life.

use std::path::Path;
use std::sync::Arc;

use ascot_io::{AtomicOutput, Disk, ahead_bytes};
use ascot_model::columns::ColumnAccount;
use ascot_model::disk_use::{DiskNeed, beside_view};
use ascot_model::measurement::VolumeRequests;
use ascot_model::plan::Plan;
use ascot_model::report::Report;
use ascot_model::units;
use ascot_model::volume::VolumeProfile;

use crate::api::error::SortError;
use crate::api::observe::{Cancel, Observer};
use crate::api::request::{Input, Method, Output, Parts, SortRequest, SplitBy};
use crate::job::{Job, report_of_finished};
use crate::jobs::explanation::{Explanation, Volumes};
use crate::methods::merge_inputs::merge_inputs;
use crate::methods::small::{self, SmallJob};
use crate::methods::split::split_inputs;
use crate::plan::budget::Budget;
use crate::plan::disk_space::said_of_a_view;
use crate::plan::disk_space::{disk_is_estimate, free_of_plan, keep_within, refuse_without_room, shortage};
use crate::plan::planner::{GUESSED_RECORD_BYTES, Lengths, budget_of, make_plan, plan_split};
use crate::plan::volumes::{RunOptions, job_disk, temp_dirs, view_disk};
use crate::plan::volumes::{check_apart, disk_for, within_memory};
use crate::read::file_format::refuse_others;
use crate::read::header;
use crate::read::inputs::{Fingerprint, Inputs};
use crate::read::open::{csv_head, keys_need_head, look_at};
use crate::records::misfits::Misfits;
use crate::records::{Head, Records, Visitor, with_records};
use crate::report::progress::with_progress;
use crate::resources::control_group::LoweredCap;
use crate::runs::store::{self, JobDir, Manifest, StoredWay};
use crate::view::block_size::kept_bytes;
use crate::view::cost::ViewCost;
use crate::view::make;

/// What is known of a request once its inputs are open.
struct Prepared {
    inputs: Inputs,
    head: Head,
    budget: Budget,
}

fn prepare(request: &SortRequest, inputs: Inputs) -> Result<Prepared, SortError> {
    let (inputs, head) = look_at(request, inputs)?;
    let budget = budget_of(request, inputs.record_bytes())?;
    Ok(Prepared { inputs, head, budget })
}

impl Prepared {
    /// The plan of a split, where `by` says that it is one, or of a sort.
    fn plan_for<R: Records>(
        &self,
        request: &SortRequest,
        by: Option<SplitBy>,
        records: &R,
    ) -> Result<Plan, SortError> {
        match (by, &request.output) {
            (Some(by), Output::Parts(parts)) => {
                let lengths = Lengths::of_head(records, &self.head);
                plan_split(request, &self.inputs, &self.budget, &lengths, records, (by, parts.count))
            }
            _ => self.plan(request, records),
        }
    }

    fn plan<R: Records>(&self, request: &SortRequest, records: &R) -> Result<Plan, SortError> {
        let lengths = Lengths::of_head(records, &self.head);
        make_plan(request, &self.inputs, &self.budget, &lengths, records)
    }

    /// Makes `plan` that of a view: its runs stay as they are formed, and nothing else was thought of.
    fn end_with_runs<R: Records>(&self, plan: &mut Plan, request: &SortRequest, records: &R) {
        let kept = kept_bytes(request, self.mean_bytes(records)).ceil() as u64;
        (plan.forced, plan.others) = (false, Vec::new());
        let chosen = &mut plan.chosen;
        chosen.passes.truncate(1);
        (chosen.factors, chosen.merge_factor) = (Vec::new(), None);
        let bytes = plan.input_bytes.unwrap_or(0);
        let runs = match chosen.disk.spills_bytes {
            // Sorted in memory, it is one run.
            0 => bytes + ahead_bytes(bytes),
            spills => spills,
        };
        let all = runs + beside_view(bytes, chosen.pieces.max(1), self.budget.block as u64, kept);
        chosen.peak_disk_bytes = all;
        chosen.disk =
            DiskNeed { peak_bytes: all, spills_bytes: all, least_bytes: all, ..DiskNeed::default() };
        chosen.summary = "form sorted runs, to be merged when they are read".into();
    }

    /// Mean length of a record, bytes.
    fn mean_bytes<R: Records>(&self, records: &R) -> f64 {
        let fixed = records.record_bytes().map(|bytes| bytes as f64);
        fixed.or(Lengths::of_head(records, &self.head).mean_bytes).unwrap_or(GUESSED_RECORD_BYTES)
    }
}

/// Sorts (or, with `merge_only`, merges).
pub fn sort(
    request: &SortRequest,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    let inputs = Inputs::open(&request.inputs)?;
    let Some(memory) = small::memory_of(request, &inputs) else {
        return sort_large(request, inputs, options, observer, cancel);
    };
    refuse_others(request, &inputs)?;
    let (inputs, head) =
        if keys_need_head(request) { csv_head(request, inputs)? } else { (inputs, Head::default()) };
    let notice = header::notice_of_unnamed(request, &inputs, &head)?;
    let header = head.header.clone();
    let job = SmallJob { request, inputs, header, memory, options, observer, cancel };
    match with_records(request, &head, job)?? {
        Some(report) => {
            notice.iter().for_each(|notice| observer.warning(notice));
            Ok(report)
        }
        // Not small after all: begun again, with files that can be opened again.
        None => sort_large(request, Inputs::open(&request.inputs)?, options, observer, cancel),
    }
}

/// Warns of a first row that looks like a header and is taken for a record.
fn warn_of_unnamed(
    request: &SortRequest,
    inputs: &Inputs,
    head: &Head,
    observer: &dyn Observer,
) -> Result<(), SortError> {
    if let Some(notice) = header::notice_of_unnamed(request, inputs, head)? {
        observer.warning(&notice);
    }
    Ok(())
}

/// Sorts with threads, a pool and passes, however little there is to sort.
pub(crate) fn sort_large(
    request: &SortRequest,
    inputs: Inputs,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    check_directory(request)?;
    check_apart(request, true)?;
    let prepared = prepare(request, inputs)?;
    let head = prepared.head.clone();
    warn_of_unnamed(request, &prepared.inputs, &head, observer)?;
    let disk = disk_for(request, &prepared.budget, options);
    let sorting = Sorting { request, by: None, view: None, prepared, disk, observer, cancel };
    with_records(request, &head, sorting)?
}

/// Sorts the inputs into runs, and leaves these as the view `view`, which shows them merged.
pub fn make_view(
    request: &SortRequest,
    view: &Path,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    let (request, prepared) = prepare_view(request, view)?;
    let (head, request, disk) = (prepared.head.clone(), &request, view_disk(options));
    warn_of_unnamed(request, &prepared.inputs, &head, observer)?;
    let sorting = Sorting { request, by: None, view: Some(view), prepared, disk, observer, cancel };
    with_records(request, &head, sorting)?.map_err(said_of_a_view)
}

/// The request as it is for a view, with its inputs open and the memory divided.
fn prepare_view(request: &SortRequest, view: &Path) -> Result<(SortRequest, Prepared), SortError> {
    make::check(request, view)?;
    let mut request = request.clone();
    // Runs are written where the view will be, and nowhere else.
    request.temp_dirs = vec![make::parent_of(view)];
    (request.method, request.output) = (Method::Merge, Output::Stdout);
    check_apart(&request, true)?;
    let mut prepared = prepare(&request, Inputs::open(&request.inputs)?)?;
    let head = prepared.head.clone();
    prepared.budget = with_records(&request, &head, Blocks(&request, &prepared))?;
    Ok((request, prepared))
}

/// The memory of a job whose runs are for a view.
struct Blocks<'a>(&'a SortRequest, &'a Prepared);

impl Visitor for Blocks<'_> {
    type Output = Budget;

    fn visit<R: Records>(self, records: Arc<R>) -> Budget {
        let Blocks(request, prepared) = self;
        let mean = prepared.mean_bytes(&*records);
        let kept = kept_bytes(request, mean);
        make::budget_of(prepared.budget, mean, kept, prepared.inputs.record_bytes())
    }
}

/// An error where there is no directory for the output, before there is anything to write.
fn check_directory(request: &SortRequest) -> Result<(), SortError> {
    match &request.output {
        Output::Path(path) => AtomicOutput::check_directory(path)?,
        Output::Parts(parts) => AtomicOutput::check_directory(&parts.path(0))?,
        Output::Stdout => {}
    }
    Ok(())
}

/// Splits the inputs into the parts of the output, `by` what says which one a record goes to. Of the
/// request, what orders records says what their keys are.
pub fn split(
    request: &SortRequest,
    by: SplitBy,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    check_directory(request)?;
    check_apart(request, false)?;
    let prepared = prepare(request, Inputs::open(&request.inputs)?)?;
    let head = prepared.head.clone();
    warn_of_unnamed(request, &prepared.inputs, &head, observer)?;
    let disk = disk_for(request, &prepared.budget, options);
    let sorting = Sorting { request, by: Some(by), view: None, prepared, disk, observer, cancel };
    with_records(request, &head, sorting)?
}

struct Sorting<'a> {
    request: &'a SortRequest,
    /// Split instead.
    by: Option<SplitBy>,
    /// Leave the runs as this view.
    view: Option<&'a Path>,
    prepared: Prepared,
    disk: Disk,
    observer: &'a dyn Observer,
    cancel: &'a Cancel,
}

impl Visitor for Sorting<'_> {
    type Output = Result<Report, SortError>;

    fn visit<R: Records>(self, records: Arc<R>) -> Self::Output {
        let Sorting { request, by, view, prepared, disk, observer, cancel } = self;
        let mut plan = prepared.plan_for(request, by, &*records)?;
        refuse_without_room(request, &mut plan, &disk)?;
        if view.is_some() {
            prepared.end_with_runs(&mut plan, request, &*records);
        }
        let Prepared { inputs, head, budget } = prepared;
        let ledger = disk.ledger().clone();
        keep_within(&disk, &plan);
        let sample = if view.is_some() { head.records } else { Vec::new() };
        let job = Job::new(records, request, disk, budget, inputs, head.header, (observer, cancel))?;
        let keeping = job.keeping.clone();
        let result = with_progress(&plan, &ledger, 0, observer, || {
            if let Some(view) = view {
                job.make_view(view, &sample, Some(plan.clone()))
            } else if let Some(by) = by {
                split_inputs(job, by, Some(plan.clone()))
            } else if request.merge_only {
                merge_inputs(job, Some(plan.clone()))
            } else if plan.chosen.method == "distribute" {
                job.sort_by_distribution(Some(plan.clone()))
            } else {
                job.sort_by_merge(Some(plan.clone()))
            }
        });
        result.map_err(|error| keeping.explain(error))
    }
}

/// Makes the plan of a sort, or of a split `by` something, and stops.
pub fn explain(
    request: &SortRequest,
    by: Option<SplitBy>,
    options: &RunOptions,
) -> Result<Explanation, SortError> {
    check_apart(request, by.is_none())?;
    let prepared = prepare(request, Inputs::open(&request.inputs)?)?;
    explain_prepared(request, by, None, prepared, options)
}

/// Makes the plan of [`make_view`], and stops.
pub fn explain_view(
    request: &SortRequest,
    view: &Path,
    options: &RunOptions,
) -> Result<Explanation, SortError> {
    let (request, prepared) = prepare_view(request, view)?;
    explain_prepared(&request, None, Some(view), prepared, options)
}

fn explain_prepared(
    request: &SortRequest,
    by: Option<SplitBy>,
    dir: Option<&Path>,
    prepared: Prepared,
    options: &RunOptions,
) -> Result<Explanation, SortError> {
    let (head, budget) = (prepared.head.clone(), prepared.budget);
    let makes_view = dir.is_some();
    let notices = header::notice_of_unnamed(request, &prepared.inputs, &head)?.into_iter().collect();
    let (mut plan, view, columns) =
        with_records(request, &head, Explaining { request, by, makes_view, prepared })??;
    let disk = job_disk(options);
    let dirs = temp_dirs(request);
    let free_bytes = free_of_plan(request, &plan, &disk);
    let shortage = shortage(request, &mut plan, &disk);
    let parts = match &request.output {
        Output::Parts(parts) => Some(match &request.boundaries {
            Some(path) => {
                format!("{}, a range of keys each, cut at those in {}", parts.count, path.display())
            }
            None => describe_parts(parts, by),
        }),
        _ => None,
    };
    let (records, view_dir) = (request.layout.to_string(), dir.map(Path::to_path_buf));
    let followed = |requests: VolumeRequests| within_memory(&budget, requests);
    // A view has its own: many small ones.
    let requests = request.requests.filter(|_| !makes_view).map(followed);
    let (input_volume, input_requests) = (request.input_volume.clone(), request.input_requests.map(followed));
    let volumes = Volumes { requests, input_volume, input_requests };
    Ok(Explanation {
        plan,
        records,
        columns,
        notices,
        free_bytes,
        disk_is_estimate: disk_is_estimate(request),
        shortage,
        temp_dirs: dirs,
        parts,
        view,
        view_dir,
        volumes,
    })
}

fn describe_parts(parts: &Parts, by: Option<SplitBy>) -> String {
    let rule = match by {
        None => "a range of keys each, of equal bytes, in order; cut where the key changes",
        Some(SplitBy::Range) => "a range of keys each, of about equal bytes by a sample",
        Some(SplitBy::Hash) => "keys by their hash: equal keys share a file",
        Some(SplitBy::Size) => "equal bytes each, in the order of the inputs",
    };
    let (first, last) = (parts.path(0), parts.path(parts.count - 1));
    let names = match parts.count {
        1 => format!("{}", first.display()),
        count => format!("{} files, {} to {}", units::count(count.into()), first.display(), last.display()),
    };
    format!("{names}: {rule}")
}

struct Explaining<'a> {
    request: &'a SortRequest,
    by: Option<SplitBy>,
    makes_view: bool,
    prepared: Prepared,
}

impl Visitor for Explaining<'_> {
    type Output = Result<(Plan, Option<ViewCost>, Vec<ColumnAccount>), SortError>;

    fn visit<R: Records>(self, records: Arc<R>) -> Self::Output {
        let columns =
            Misfits::default().accounts(records.key_columns(), &self.prepared.inputs, self.request.header);
        let (plan, view) = self.costs(&*records)?;
        Ok((plan, view, columns))
    }
}

impl Explaining<'_> {
    /// The plan, and what a view costs beside it.
    fn costs<R: Records>(&self, records: &R) -> Result<(Plan, Option<ViewCost>), SortError> {
        let mut plan = self.prepared.plan_for(self.request, self.by, records)?;
        let request = self.request;
        let volume = request.volume.clone().unwrap_or_else(VolumeProfile::assumed_flash);
        if self.makes_view {
            let file = SortRequest { method: Method::Auto, ..request.clone() };
            let file_seconds = self.prepared.plan(&file, records)?.chosen.seconds();
            let view =
                ViewCost::of(&plan.chosen, file_seconds, &volume).filter(|_| plan.input_bytes.is_some());
            self.prepared.end_with_runs(&mut plan, request, records);
            return Ok((plan, view));
        }
        let never = self.by.is_some() || request.merge_only || request.unique || request.top.is_some();
        // Where all fits there is nothing to merge, and a view saves nothing.
        let never = never || plan.chosen.method == "in memory";
        if never || matches!(request.output, Output::Parts(_)) || plan.input_bytes.is_none() {
            return Ok((plan, None));
        }
        let merging = SortRequest { method: Method::Merge, ..request.clone() };
        let merge = self.prepared.plan(&merging, records)?;
        let view = ViewCost::of(&merge.chosen, plan.chosen.seconds(), &volume);
        Ok((plan, view))
    }
}

/// Goes on with a job that was killed.
pub fn resume(
    dir: &Path,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    let mut manifest = store::load(dir)?;
    manifest.memory_bytes = options.memory_bytes.unwrap_or(manifest.memory_bytes);
    // Where it goes on there may be less memory than where it began.
    let lowered = LoweredCap::of(manifest.memory_bytes);
    if let Some(lowered) = lowered {
        observer.warning(&lowered.to_string());
    }
    let memory_bytes = lowered.map_or(manifest.memory_bytes, |lowered| lowered.cap);
    let resumed = resume_within(dir, manifest, memory_bytes, options, observer, cancel);
    match (resumed, lowered) {
        (Err(error), Some(lowered)) => Err(lowered.explain(error)),
        (resumed, _) => resumed,
    }
}

/// The same with a cap of `memory_bytes`.
fn resume_within(
    dir: &Path,
    manifest: Manifest,
    memory_bytes: u64,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    let view = manifest.view.is_some();
    let data_bytes = manifest.inputs.iter().map(Fingerprint::size).sum();
    let budget = Budget::new(memory_bytes, manifest.threads, Some(data_bytes))?;
    let disk = if view { view_disk(options) } else { disk_for(&manifest.request, &budget, options) };
    let mut job_dir = JobDir::reopen(&disk, &manifest.dirs)?;
    // Whatever goes wrong from here on, the job can go on.
    job_dir.keep();
    if let Some(finished) = JobDir::was_done(&manifest) {
        let report = report_of_finished(&manifest, &finished, &disk);
        observer.complete(&report)?;
        job_dir.release();
        return Ok(report);
    }
    let now =
        manifest.inputs.iter().map(|print| Fingerprint::of(print.path())).collect::<Result<Vec<_>, _>>()?;
    if let Some((before, _)) = manifest.inputs.iter().zip(&now).find(|(before, now)| before != now) {
        let why = format!(
            "{} has changed since\n  ascot clean {}  removes what the job left; then sort anew",
            before.path().display(),
            units::in_shell(dir)
        );
        return Err(SortError::CannotResume { dir: dir.to_path_buf(), why });
    }
    let mut request = manifest.request.clone();
    // What was a file on standard input then has a name; what is there now is something else.
    for (input, print) in request.inputs.iter_mut().zip(&manifest.inputs) {
        if *input == Input::Stdin {
            *input = Input::Path(print.path().to_path_buf());
        }
    }
    request.memory_bytes = Some(memory_bytes);
    request.threads = Some(manifest.threads);
    let mut prepared = prepare(&request, Inputs::open(&request.inputs)?)?;
    let head = prepared.head.clone();
    let makes_view = manifest.view.is_some();
    if let Some(view) = &manifest.view {
        make::check_name(&view.path)?;
        prepared.budget = with_records(&request, &head, Blocks(&request, &prepared))?;
    }
    with_records(
        &request,
        &head,
        Resuming { request: &request, prepared, manifest, job_dir, disk, observer, cancel },
    )?
    .map_err(|error| if makes_view { said_of_a_view(error) } else { error })
}

struct Resuming<'a> {
    request: &'a SortRequest,
    prepared: Prepared,
    manifest: Manifest,
    job_dir: JobDir,
    disk: Disk,
    observer: &'a dyn Observer,
    cancel: &'a Cancel,
}

impl Visitor for Resuming<'_> {
    type Output = Result<Report, SortError>;

    fn visit<R: Records>(self, records: Arc<R>) -> Self::Output {
        let mut request = self.request.clone();
        request.method = match self.manifest.way {
            StoredWay::Merge => Method::Merge,
            StoredWay::Distribute(_) => Method::Distribute,
        };
        let mut plan = self.prepared.plan(&request, &*records)?;
        let view = self.manifest.view.as_ref().map(|view| view.path.clone());
        if view.is_some() {
            self.prepared.end_with_runs(&mut plan, &request, &*records);
        }
        let Prepared { inputs, head, budget } = self.prepared;
        let ledger = self.disk.ledger().clone();
        keep_within(&self.disk, &plan);
        self.job_dir.remove_unnamed(&self.manifest)?;
        self.manifest.spills().try_for_each(|run| self.disk.note_written(&run.path))?;
        let watched = (self.observer, self.cancel);
        let mut job = Job::new(records, self.request, self.disk, budget, inputs, head.header, watched)?;
        let distribute = matches!(self.manifest.way, StoredWay::Distribute(_));
        job.go_on(self.job_dir, self.manifest);
        let keeping = job.keeping.clone();
        let moved_before = job.manifest.moved.0 + job.manifest.moved.1;
        let result = with_progress(&plan, &ledger, moved_before, self.observer, || {
            if let Some(view) = view {
                job.make_view(&view, &head.records, Some(plan.clone()))
            } else if distribute {
                job.sort_by_distribution(Some(plan.clone()))
            } else {
                job.sort_by_merge(Some(plan.clone()))
            }
        });
        result.map_err(|error| keeping.explain(error))
    }
}
