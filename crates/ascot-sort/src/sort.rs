//! The entry: from a request to its report, its explanation, or its second life.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::{AtomicOutput, Disk};
use ascot_model::plan::{Plan, Way};
use ascot_model::report::Report;
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use ascot_record::layout::Layout;
use serde::Serialize;

use crate::budget::Budget;
use crate::error::SortError;
use crate::header;
use crate::input::{Fingerprint, Inputs};
use crate::job::{Job, RunOptions, job_disk, report_of_finished, temp_dirs};
use crate::merging::merge_inputs;
use crate::observe::{Cancel, Observer};
use crate::places::no_room_for_spills;
use crate::plan::{GUESSED_RECORD_BYTES, budget_of, make_plan, plan_split};
use crate::progress::with_progress;
use crate::records::{Head, Records, Visitor, with_records};
use crate::request::{Input, Method, Output, Parts, SortRequest, SplitBy};
use crate::small::{self, SmallJob};
use crate::split::split_inputs;
use crate::store::{self, JobDir, Manifest, StoredWay};
use crate::view::cost::ViewCost;
use crate::view::make;

/// Bytes of the first input looked at before a plan is made.
const HEAD_BYTES: usize = 256 << 10;

/// What is known of a request once its inputs are open.
struct Prepared {
    inputs: Inputs,
    head: Head,
    budget: Budget,
}

/// Opens the inputs and looks at the head of the first, as far as keys or a plan need it.
pub fn open_inputs(request: &SortRequest) -> Result<(Inputs, Head), SortError> {
    look_at(request, Inputs::open(&request.inputs)?)
}

fn look_at(request: &SortRequest, inputs: Inputs) -> Result<(Inputs, Head), SortError> {
    if keys_need_head(request) {
        return csv_head(request, inputs);
    }
    // A pipe is not kept waiting for a look at its head.
    let records = match inputs.get(0).filter(|input| input.path().is_some()) {
        Some(input) => input.peek(HEAD_BYTES)?,
        None => Vec::new(),
    };
    Ok((inputs, Head { header: None, records }))
}

fn keys_need_head(request: &SortRequest) -> bool {
    request.header || matches!(request.layout, Layout::Csv { .. })
}

fn prepare(request: &SortRequest, inputs: Inputs) -> Result<Prepared, SortError> {
    let (inputs, head) = look_at(request, inputs)?;
    let budget = budget_of(request, inputs.record_bytes())?;
    Ok(Prepared { inputs, head, budget })
}

/// Takes the header off each input, as the layout ends its records.
fn csv_head(request: &SortRequest, inputs: Inputs) -> Result<(Inputs, Head), SortError> {
    use ascot_record::framing::{CsvFraming, FixedFraming, Framing, LineFraming};
    let layout = request.layout;
    let header_bytes = move |head: &[u8]| match layout {
        Layout::Csv { separator, quote } => {
            CsvFraming { separator, quote }.end(head, 0).unwrap_or(head.len())
        }
        Layout::Lines { delimiter } => LineFraming(delimiter).end(head, 0).unwrap_or(head.len()),
        Layout::Fixed { len } => FixedFraming(len).end(head, 0).unwrap_or(head.len()),
        _ => 0,
    };
    let inputs = if request.header { inputs.skip_headers(&header_bytes)? } else { inputs };
    if let (true, Layout::Csv { separator, quote }) = (request.header, layout) {
        header::refuse_different(&inputs, CsvFraming { separator, quote })?;
    }
    let Some(first) = header::bearer(&inputs) else { return Ok((inputs, Head::default())) };
    let start = first.start as usize;
    let mut bytes = first.peek(start + HEAD_BYTES)?;
    let records = bytes.split_off(start.min(bytes.len()));
    // A header is a line of its own, whatever the file does at its end.
    if let (true, Some(last), Layout::Csv { .. } | Layout::Lines { .. }) =
        (request.header, bytes.last(), layout)
    {
        let end = if let Layout::Lines { delimiter } = layout { delimiter } else { b'\n' };
        if *last != end {
            bytes.push(end);
        }
    }
    let header = (request.header && !bytes.is_empty()).then_some(bytes);
    Ok((inputs, Head { header, records }))
}

impl Prepared {
    /// Mean length of the first records, bytes.
    fn mean_bytes<R: Records>(&self, records: &R) -> Option<f64> {
        let cut = records.cut(&self.head.records, usize::MAX);
        (cut.records > 0).then(|| cut.bytes as f64 / cut.records as f64)
    }

    /// The plan of a split, where `by` says that it is one, or of a sort.
    fn plan_for<R: Records>(
        &self,
        request: &SortRequest,
        by: Option<SplitBy>,
        records: &R,
    ) -> Result<Plan, SortError> {
        match (by, &request.output) {
            (Some(by), Output::Parts(parts)) => {
                let mean_bytes = self.mean_bytes(records);
                plan_split(request, &self.inputs, &self.budget, mean_bytes, records, (by, parts.count))
            }
            _ => self.plan(request, records),
        }
    }

    fn plan<R: Records>(&self, request: &SortRequest, records: &R) -> Result<Plan, SortError> {
        let mean_bytes = self.mean_bytes(records);
        make_plan(request, &self.inputs, &self.budget, mean_bytes, records)
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
    let (inputs, head) =
        if keys_need_head(request) { csv_head(request, inputs)? } else { (inputs, Head::default()) };
    let header = head.header.clone();
    let job = SmallJob { request, inputs, header, memory, options, cancel };
    match with_records(request, &head, job)?? {
        Some(report) => Ok(report),
        // Not small after all: begun again, with files that can be opened again.
        None => sort_large(request, Inputs::open(&request.inputs)?, options, observer, cancel),
    }
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
    let prepared = prepare(request, inputs)?;
    let head = prepared.head.clone();
    let disk = job_disk(options);
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
    make::check(request, view)?;
    let mut request = request.clone();
    // Runs are written where the view will be, and nowhere else.
    request.temp_dirs = vec![make::parent_of(view)];
    (request.method, request.output) = (Method::Merge, Output::Stdout);
    let request = &request;
    let mut prepared = prepare(request, Inputs::open(&request.inputs)?)?;
    let head = prepared.head.clone();
    prepared.budget = with_records(request, &head, Blocks(&prepared))?;
    let disk = job_disk(options);
    let sorting = Sorting { request, by: None, view: Some(view), prepared, disk, observer, cancel };
    with_records(request, &head, sorting)?
}

/// The memory of a job whose runs are for a view.
struct Blocks<'a>(&'a Prepared);

impl Visitor for Blocks<'_> {
    type Output = Budget;

    fn visit<R: Records>(self, records: Arc<R>) -> Budget {
        let Prepared { inputs, budget, .. } = self.0;
        let fixed = records.record_bytes().map(|bytes| bytes as f64);
        let mean = fixed.or_else(|| self.0.mean_bytes(&*records)).unwrap_or(GUESSED_RECORD_BYTES);
        make::budget_of(*budget, mean, inputs.record_bytes())
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
    let prepared = prepare(request, Inputs::open(&request.inputs)?)?;
    let head = prepared.head.clone();
    let disk = job_disk(options);
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
        check_room(request, &plan, &disk)?;
        if view.is_some() {
            // Its runs stay as they are formed.
            plan.chosen.passes.truncate(1);
            plan.chosen.summary = "form sorted runs, to be merged when they are read".into();
        }
        let Prepared { inputs, head, budget } = prepared;
        let ledger = disk.ledger().clone();
        let sample = if view.is_some() { head.records } else { Vec::new() };
        let job = Job::new(records, request, disk, budget, inputs, head.header, cancel)?;
        with_progress(&plan, &ledger, 0, observer, || {
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
        })
    }
}

/// Refuses a job whose spills or output certainly do not fit, before it starts.
fn check_room(request: &SortRequest, plan: &Plan, disk: &Disk) -> Result<(), SortError> {
    // What is left out is only guessed at.
    let all_wanted = !request.unique && request.top.is_none();
    let (Some(_), true, Some(last)) = (plan.input_bytes, all_wanted, plan.chosen.passes.last()) else {
        return Ok(());
    };
    let file = match &request.output {
        Output::Path(path) => {
            std::fs::metadata(path).map_or(true, |stat| stat.is_file()).then(|| path.clone())
        }
        Output::Parts(parts) => Some(parts.path(0)),
        Output::Stdout => None,
    };
    if let Some(path) = file {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (needed, left) = (last.written_bytes, disk.free_space(dir).unwrap_or(u64::MAX));
        if left < needed {
            let advice = "free some space, or name an output on another volume\n  nothing was written; an old output is as it was";
            return Err(SortError::NoRoom {
                what: "the output",
                needed,
                left: vec![(dir.into(), left)],
                advice,
            });
        }
    }
    let spills: u64 = match &plan.chosen.passes[..] {
        [first, .., _] if plan.chosen.method != "in memory" => first.written_bytes,
        _ => 0,
    };
    if spills == 0 || request.compression != ascot_io::Compression::None {
        return Ok(());
    }
    let dirs = temp_dirs(request);
    let (mut free, mut seen) = (0, Vec::new());
    for dir in &dirs {
        // Places on one volume share its room.
        let device = std::fs::metadata(dir).ok().map(|stat| stat.dev());
        if device.is_none() || !seen.contains(&device) {
            free += disk.free_space(dir)?;
            seen.push(device);
        }
    }
    if free >= spills {
        return Ok(());
    }
    let dirs: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
    Err(no_room_for_spills(disk, &dirs, spills))
}

/// What a sort would do, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The plan.
    pub plan: Plan,
    /// How the records look, in words.
    pub records: String,
    /// Free bytes where spills would go.
    pub free_bytes: u64,
    /// Directories for spills.
    pub temp_dirs: Vec<std::path::PathBuf>,
    /// The files the output is divided into, and by what, in words.
    pub parts: Option<String>,
    /// What a view instead would cost, where there could be one.
    pub view: Option<ViewCost>,
}

/// Makes the plan of a sort, or of a split `by` something, and stops.
pub fn explain(
    request: &SortRequest,
    by: Option<SplitBy>,
    options: &RunOptions,
) -> Result<Explanation, SortError> {
    let prepared = prepare(request, Inputs::open(&request.inputs)?)?;
    let head = prepared.head.clone();
    let (plan, view) = with_records(request, &head, Explaining { request, by, prepared })??;
    let dirs = temp_dirs(request);
    let disk = job_disk(options);
    let free_bytes = dirs.iter().filter_map(|dir| disk.free_space(dir).ok()).sum();
    let parts = match &request.output {
        Output::Parts(parts) => Some(describe_parts(parts, by)),
        _ => None,
    };
    Ok(Explanation { plan, records: request.layout.to_string(), free_bytes, temp_dirs: dirs, parts, view })
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
    prepared: Prepared,
}

impl Visitor for Explaining<'_> {
    type Output = Result<(Plan, Option<ViewCost>), SortError>;

    fn visit<R: Records>(self, records: Arc<R>) -> Self::Output {
        let plan = self.prepared.plan_for(self.request, self.by, &*records)?;
        let request = self.request;
        let never = self.by.is_some() || request.merge_only || request.unique || request.top.is_some();
        if never || matches!(request.output, Output::Parts(_)) || plan.input_bytes.is_none() {
            return Ok((plan, None));
        }
        let merging = SortRequest { method: Method::Merge, ..request.clone() };
        let merge = self.prepared.plan(&merging, &*records)?;
        let volume = request.volume.clone().unwrap_or_else(VolumeProfile::assumed_flash);
        let view = ViewCost::of(&merge.chosen, plan.chosen.seconds(), &volume);
        Ok((plan, view))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.plan;
        let size = plan.input_bytes.map_or("a pipe, size not known".into(), units::bytes);
        let records = plan
            .input_records
            .map_or(String::new(), |count| format!(" in about {} records", units::count(count)));
        let rates = &plan.volume;
        writeln!(
            f,
            "{size}{records} ({}), memory {}, {} threads, volume {} (read {}, write {}{})",
            self.records,
            units::memory(plan.memory_bytes),
            plan.threads,
            rates.name,
            units::rate(rates.read_bytes_per_s),
            units::rate(rates.write_bytes_per_s),
            rates
                .duplex_bytes_per_s
                .map_or(String::new(), |rate| format!(", both at once {} each", units::rate(rate))),
        )?;
        let chosen = &plan.chosen;
        writeln!(f, "\n  plan     {}{}", chosen.summary, if plan.forced { " (--method)" } else { "" })?;
        if let Some(parts) = &self.parts {
            writeln!(f, "  into     {parts}")?;
        }
        if plan.input_bytes.is_none() {
            writeln!(f, "  moves    all of it once, or twice where it does not fit")?;
            return write!(f, "  time     not known before all is read");
        }
        writeln!(
            f,
            "  moves    {} read, {} written, peak disk {} of {} free",
            units::bytes(chosen.read_bytes()),
            units::bytes(chosen.written_bytes()),
            units::bytes(chosen.peak_disk_bytes),
            units::bytes(self.free_bytes)
        )?;
        write!(f, "  time     about {}, bound by {}", units::seconds(chosen.seconds()), chosen.bound_by())?;
        for (number, way) in plan.others.iter().enumerate() {
            let lead = if number == 0 { "\n\n  why not  " } else { "\n           " };
            write!(
                f,
                "{lead}{}   about {}   {}",
                way.summary,
                units::seconds(way.seconds()),
                compare(way, chosen)
            )?;
        }
        if let Some(cost) = &self.view {
            let lead = if plan.others.is_empty() { "\n\n  why not  " } else { "\n           " };
            let (make, read) = (units::seconds(cost.make_seconds), units::seconds(cost.read_seconds));
            write!(f, "{lead}view instead of a file   about {make} now, {read} at each reading   (--view)")?;
        }
        Ok(())
    }
}

fn compare(way: &Way, chosen: &Way) -> String {
    let moved = |way: &Way| way.read_bytes() + way.written_bytes();
    let io = match moved(way).cmp(&moved(chosen)) {
        std::cmp::Ordering::Equal => "same bytes moved".to_string(),
        std::cmp::Ordering::Greater => format!("moves {} more", units::bytes(moved(way) - moved(chosen))),
        std::cmp::Ordering::Less => format!("moves {} less", units::bytes(moved(chosen) - moved(way))),
    };
    format!("{io}; {}", way.remark)
}

/// Goes on with a job that was killed.
pub fn resume(
    dir: &Path,
    options: &RunOptions,
    observer: &dyn Observer,
    cancel: &Cancel,
) -> Result<Report, SortError> {
    let manifest = store::load(dir)?;
    let disk = job_disk(options);
    let mut job_dir = JobDir::reopen(&disk, &manifest.dirs)?;
    if let Some(finished) = JobDir::was_done(&manifest) {
        return Ok(report_of_finished(&manifest, &finished, &disk));
    }
    job_dir.keep();
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
    request.memory_bytes = Some(manifest.memory_bytes);
    request.threads = Some(manifest.threads);
    let prepared = prepare(&request, Inputs::open(&request.inputs)?)?;
    let head = prepared.head.clone();
    with_records(
        &request,
        &head,
        Resuming { request: &request, prepared, manifest, job_dir, disk, observer, cancel },
    )?
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

    fn visit<R: Records>(mut self, records: Arc<R>) -> Self::Output {
        let mut request = self.request.clone();
        request.method = match self.manifest.way {
            StoredWay::Merge => Method::Merge,
            StoredWay::Distribute(_) => Method::Distribute,
        };
        let plan = self.prepared.plan(&request, &*records)?;
        let Prepared { inputs, head, budget } = self.prepared;
        let ledger = self.disk.ledger().clone();
        self.job_dir.remove_unnamed(&self.manifest)?;
        for run in self.manifest.runs.iter().filter(|run| run.input.is_none()) {
            self.disk.note_written(&run.path)?;
        }
        let mut job = Job::new(records, self.request, self.disk, budget, inputs, head.header, self.cancel)?;
        self.job_dir.unkeep();
        job.dir = Some(self.job_dir);
        let distribute = matches!(self.manifest.way, StoredWay::Distribute(_));
        job.manifest = self.manifest;
        let moved_before = job.manifest.moved.0 + job.manifest.moved.1;
        with_progress(&plan, &ledger, moved_before, self.observer, || {
            if distribute {
                job.sort_by_distribution(Some(plan.clone()))
            } else {
                job.sort_by_merge(Some(plan.clone()))
            }
        })
    }
}
