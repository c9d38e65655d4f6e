//! Explains a job without running it (`--explain`): its plan, its cost, and why other methods are worse.
//!
//! A sort can also be planned for a file that does not exist (`ascot plan sort`, [`SortPlan`]).

use std::fmt;
use std::path::{Path, PathBuf};

use ascot_model::measurement::{Requests, VolumeRequests};
use ascot_model::plan::{MethodPlan, PassPlan, Plan};
use ascot_model::report::{ColumnAccount, column_words};
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::api::{Method, Output, Result, SortError, SortRequest, SplitBy, Volumes};
use crate::jobs::sort::{Goal, Prepared, prepare, prepare_view};
use crate::plan::{
    Ahead, RunOptions, Shortage, check_apart, default_memory, disk_is_estimate, free_of_plan, job_disk,
    plan_ahead, shortage, temp_dirs, within_memory,
};
use crate::read::{Inputs, notice_of_unnamed};
use crate::records::{AnyRecords, Misfits, Records, with_records};
use crate::runs::SpillCompression;
use crate::view::ViewCost;

/// The plan of a job, and its reasons.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The plan.
    pub plan: Plan,
    /// The layout of the records, in words.
    pub records: String,
    /// The key columns of CSV, and their types.
    pub columns: Vec<ColumnAccount>,
    /// Other notices for the user.
    pub notices: Vec<String>,
    /// Free bytes on the volumes of spills and output.
    pub free_bytes: u64,
    /// Whether the disk use of the plan is an estimate and not a bound.
    pub disk_is_estimate: bool,
    /// The space that is missing; none if everything fits.
    pub shortage: Option<Shortage>,
    /// Whether spills will be compressed, in words; none without spills.
    pub spills: Option<String>,
    /// The spill directories.
    pub temp_dirs: Vec<PathBuf>,
    /// The files of the output and the rule by which it is divided, in words.
    pub parts: Option<String>,
    /// The cost of a view and of a file, if the output could be either.
    pub view: Option<ViewCost>,
    /// The view that is made; none if the output is a file.
    pub view_dir: Option<PathBuf>,
    /// Its volumes, with the requests that fit in memory.
    #[serde(flatten, serialize_with = "volumes_beside_plan")]
    pub volumes: Volumes,
}

/// The number of equal keys is known only after the first pass.
const ASSUMED_OF_UNIQUE: &str = "the plan assumes that -u drops no records; if keys repeat, the job writes less, and \
     plans its merges by the share that sorted runs keep";

/// Explains a sort, or a split if `by` is given, without running it.
pub fn explain(request: &SortRequest, by: Option<SplitBy>, options: &RunOptions) -> Result<Explanation> {
    check_apart(request, by.is_none())?;
    let goal = by.map_or(Goal::Sort, Goal::Split);
    let prepared = prepare(request, Inputs::open(&request.inputs)?, goal)?;
    explain_prepared(request, goal, &prepared, options)
}

/// Explains [`make_view`](crate::make_view) without running it.
pub fn explain_view(request: &SortRequest, view: &Path, options: &RunOptions) -> Result<Explanation> {
    let (request, prepared) = prepare_view(request, view)?;
    explain_prepared(&request, Goal::View(view), &prepared, options)
}

/// Whether the records are written as a file or as a view beside it. Its text says why.
#[derive(Clone, Debug, Serialize)]
pub struct ViewChoice {
    /// The directory of the view; none: a file takes less time.
    pub dir: Option<PathBuf>,
    /// Number of times that the result is read.
    pub reads: u64,
    /// The cost of both; none: the data fits in memory, or its size is unknown.
    pub cost: Option<ViewCost>,
}

/// Chooses what takes less time for a sort whose result is read `reads` times: a file, or a view beside it.
///
/// # Errors
/// An output without a name, and those of [`explain`].
pub fn choose_view(request: &SortRequest, reads: u64) -> Result<ViewChoice> {
    let Output::Path(file) = &request.output else {
        return Err(SortError::Request(
            "--view auto needs the name of the output file\n  write: -o FILE --view auto --reads N".into(),
        ));
    };
    let cost = explain(request, None, &RunOptions::default())?.view;
    let is_cheaper = |cost: &ViewCost| cost.view_seconds(reads) < cost.sorted_seconds(reads);
    let dir = cost.as_ref().filter(|cost| is_cheaper(cost)).map(|_| {
        let mut name = file.clone().into_os_string();
        name.push(".view");
        PathBuf::from(name)
    });
    Ok(ViewChoice { dir, reads, cost })
}

impl fmt::Display for ViewChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(cost) = &self.cost else {
            return f
                .write_str("writing a file, not a view: the data fits in memory, or its size is unknown");
        };
        let times = units::plural(self.reads, "reading");
        let view = units::seconds(cost.view_seconds(self.reads));
        let sorted = units::seconds(cost.sorted_seconds(self.reads));
        match &self.dir {
            None => {
                write!(f, "writing a file, not a view: with {times} it takes about {sorted}, a view {view}")
            }
            Some(dir) => write!(
                f,
                "writing a view, {}: with {times} it takes about {view}, a file {sorted}",
                dir.display()
            ),
        }
    }
}

fn explain_prepared(
    request: &SortRequest,
    goal: Goal<'_>,
    prepared: &Prepared,
    options: &RunOptions,
) -> Result<Explanation> {
    let Prepared { inputs, head, budget } = prepared;
    let assumed = request.unique.then(|| ASSUMED_OF_UNIQUE.to_owned());
    let notices = notice_of_unnamed(request, inputs, head)?.into_iter().chain(assumed).collect();
    let (mut plan, view, columns) = with_records!(AnyRecords::new(request, head)?, records => {
        let columns = Misfits::default().accounts(records.key_columns(), inputs, request.header);
        let (plan, view) = plan_and_view_cost(request, goal, prepared, &*records)?;
        (plan, view, columns)
    });
    let disk = job_disk(options);
    let free_bytes = free_of_plan(request, &plan, &disk);
    let shortage = shortage(request, &mut plan, &disk);
    let spills =
        SpillCompression::forecast(request, &plan, &disk).filter(|_| !matches!(goal, Goal::Split(_)));
    let mut volumes = within_memory(budget, &request.volumes);
    let mut view_dir = None;
    if let Goal::View(dir) = goal {
        view_dir = Some(dir.to_path_buf());
        // A view has its own requests: many small ones.
        volumes.requests = None;
    }
    Ok(Explanation {
        plan,
        records: request.layout.to_string(),
        columns,
        notices,
        free_bytes,
        disk_is_estimate: disk_is_estimate(request),
        shortage,
        spills,
        temp_dirs: temp_dirs(request),
        parts: describe_parts(request, goal),
        view,
        view_dir,
        volumes,
    })
}

/// The plan, and the cost of a view compared with a file if it can replace the file.
fn plan_and_view_cost<R: Records>(
    request: &SortRequest,
    goal: Goal<'_>,
    prepared: &Prepared,
    records: &R,
) -> Result<(Plan, Option<ViewCost>)> {
    let mut plan = prepared.plan(request, goal, records)?;
    let size_is_known = plan.input_bytes.is_some();
    let volume = request.volumes.profile();
    let plan_by = |method| {
        let request = SortRequest { method, ..request.clone() };
        prepared.plan(&request, Goal::Sort, records)
    };
    let cost = match goal {
        Goal::View(_) => {
            let file_seconds = plan_by(Method::Auto)?.chosen.seconds();
            let cost = ViewCost::new(&plan.chosen, file_seconds, &volume).filter(|_| size_is_known);
            prepared.end_with_runs(&mut plan, request, records);
            cost
        }
        // If all fits in memory there is nothing to merge, and a view saves nothing.
        Goal::Sort if size_is_known && may_be_view(request) && plan.chosen.method != "in memory" => {
            ViewCost::new(&plan_by(Method::Merge)?.chosen, plan.chosen.seconds(), &volume)
        }
        Goal::Sort | Goal::Split(_) => None,
    };
    Ok((plan, cost))
}

/// Whether the output of a sort could be a view.
fn may_be_view(request: &SortRequest) -> bool {
    let all_records = !request.merge_only && !request.unique && request.top.is_none();
    all_records && !matches!(request.output, Output::Parts(_))
}

/// The names of the files of the output, and the rule that assigns records to them.
fn describe_parts(request: &SortRequest, goal: Goal<'_>) -> Option<String> {
    let Output::Parts(parts) = &request.output else { return None };
    if let Some(path) = &request.boundaries {
        return Some(format!("{}, a range of keys each, cut at those in {}", parts.count, path.display()));
    }
    let rule = match goal {
        _ if request.route.is_some() => {
            "each sorted; another key, or its hash, decides on the file of a record"
        }
        Goal::Split(SplitBy::Range) => "a range of keys each, of about equal bytes by a sample",
        Goal::Split(SplitBy::Hash) => "keys by their hash: equal keys share a file",
        Goal::Split(SplitBy::Size) => "equal bytes each, in the order of the inputs",
        _ => "a range of keys each, of equal bytes, in order; cut where the key changes",
    };
    let first = parts.path(0);
    let last = parts.path(parts.count - 1);
    let names = match parts.count {
        1 => first.display().to_string(),
        count => format!("{} files, {} to {}", units::count(count.into()), first.display(), last.display()),
    };
    Some(format!("{names}: {rule}"))
}

/// Serializes the properties of the volumes that the plan does not contain, with null for those not measured.
fn volumes_beside_plan<S: Serializer>(volumes: &Volumes, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("requests", &volumes.requests)?;
    map.serialize_entry("input_volume", &volumes.input_volume)?;
    map.serialize_entry("input_requests", &volumes.input_requests)?;
    map.serialize_entry("origins", &volumes.origins)?;
    map.end()
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
        write!(f, "{}", self.words_of_keys())?;
        let chosen = &plan.chosen;
        writeln!(f, "\n  plan     {}{}", chosen.summary, if plan.forced { " (--method)" } else { "" })?;
        if let Some(parts) = &self.parts {
            writeln!(f, "  into     {parts}")?;
        }
        if let Some(dir) = &self.view_dir {
            writeln!(f, "  into     {}, a view", dir.display())?;
        }
        self.write_volumes(f)?;
        if let Some(spills) = &self.spills {
            writeln!(f, "  spills   {spills}")?;
        }
        if plan.input_bytes.is_none() {
            writeln!(f, "  moves    all of it once, or twice where it does not fit")?;
            return write!(f, "  time     not known before all is read");
        }
        let estimate = if self.disk_is_estimate { " (an estimate: lengths vary)" } else { "" };
        let disk = match chosen.peak_disk_bytes {
            // Then the free space of no volume is known.
            0 => "no disk taken".to_owned(),
            peak => format!("peak disk {} of {} free", units::bytes(peak), units::bytes(self.free_bytes)),
        };
        let read = units::bytes(chosen.read_bytes());
        let written = units::bytes(chosen.written_bytes());
        writeln!(f, "  moves    {read} read, {written} written, {disk}{estimate}")?;
        if let Some(sample) = &chosen.sample {
            writeln!(f, "  sample   {}", sample_line(sample))?;
        }
        let refused = |shortage| format!("  no room  {shortage}: the job would be refused\n");
        write!(f, "{}", self.shortage.as_ref().map_or(String::new(), refused))?;
        write!(f, "  time     about {}, bound by {}", units::seconds(chosen.seconds()), chosen.bound_by())?;
        self.write_others(f)?;
        if let Some(cost) = &self.view {
            let lead = if plan.others.is_empty() { "\n\n  why not  " } else { "\n           " };
            let make = units::seconds(cost.make_seconds);
            let read = units::seconds(cost.read_seconds);
            if self.view_dir.is_some() {
                let file = units::seconds(cost.file_seconds);
                let again = units::seconds(cost.file_read_seconds);
                write!(f, ", and {read} at each reading")?;
                return write!(
                    f,
                    "{lead}file instead of a view   about {file} now, {again} at each reading   (-o)"
                );
            }
            write!(f, "{lead}view instead of a file   about {make} now, {read} at each reading   (--view)")?;
        }
        Ok(())
    }
}

impl Explanation {
    fn write_volumes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one =
            |requests: Requests| format!("{}, {} in flight", units::memory(requests.bytes), requests.depth);
        let both = |requests: VolumeRequests| {
            format!(
                "read by {}, written by {}: as measured, within memory",
                one(requests.read),
                one(requests.write)
            )
        };
        let Volumes { requests, input_volume, input_requests, origins, .. } = &self.volumes;
        if !origins.is_empty() {
            let origins: Vec<String> = origins.iter().map(ToString::to_string).collect();
            writeln!(f, "  volumes  {}", origins.join("; "))?;
        }
        if let Some(volume) = input_volume {
            let rate = units::rate(volume.read_bytes_per_s);
            writeln!(f, "  inputs   on {} (read {rate}), a volume of their own", volume.name)?;
            if let Some(requests) = input_requests {
                writeln!(f, "  requests of the inputs' volume: {}", both(*requests))?;
            }
        }
        requests.map_or(Ok(()), |requests| writeln!(f, "  requests {}", both(requests)))
    }

    fn write_others(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, other) in self.plan.others.iter().enumerate() {
            let lead = if number == 0 { "\n\n  why not  " } else { "\n           " };
            write!(
                f,
                "{lead}{}   about {}   {}",
                other.summary,
                units::seconds(other.seconds()),
                compare(other, &self.plan.chosen)
            )?;
        }
        Ok(())
    }

    /// Paragraphs about keys and headers.
    fn words_of_keys(&self) -> String {
        let keys =
            (!self.columns.is_empty()).then(|| format!("\n  keys     {}\n", column_words(&self.columns)));
        let notices = self.notices.iter().map(|notice| format!("\n  notice   {notice}\n"));
        keys.into_iter().chain(notices).collect()
    }
}

fn compare(method: &MethodPlan, chosen: &MethodPlan) -> String {
    let moved = |method: &MethodPlan| method.read_bytes() + method.written_bytes();
    let io = match moved(method).cmp(&moved(chosen)) {
        std::cmp::Ordering::Equal => "same bytes moved".to_string(),
        std::cmp::Ordering::Greater => format!("moves {} more", units::bytes(moved(method) - moved(chosen))),
        std::cmp::Ordering::Less => format!("moves {} less", units::bytes(moved(chosen) - moved(method))),
    };
    format!("{io}; {}", method.remark)
}

/// The plan of a sort, and its total cost.
#[derive(Serialize)]
pub struct SortPlan {
    job: String,
    /// Whether the processors were measured; else their speeds are assumed.
    host_measured: bool,
    /// Total predicted time of the chosen method, seconds.
    seconds: f64,
    bytes: u64,
    switches: u64,
    /// In the currency of the profile; 0 if it has no prices.
    money: f64,
    plan: Plan,
}

impl SortPlan {
    /// The chosen method, and the others.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Plans a sort of `input_bytes` in records of about `mean_bytes`.
    ///
    /// # Errors
    /// A request that does not fit in memory.
    pub fn new(request: &SortRequest, input_bytes: u64, mean_bytes: f64) -> Result<Self> {
        let plan = plan_ahead(request, input_bytes, mean_bytes, Ahead::Sort)?;
        let memory = units::memory(request.memory_bytes.unwrap_or_else(default_memory));
        let chosen = &plan.chosen;
        Ok(SortPlan {
            job: format!("sort {} ({}), {memory}", units::bytes(input_bytes), request.layout),
            host_measured: request.volumes.host.is_some(),
            seconds: chosen.seconds(),
            bytes: moved_bytes(chosen),
            switches: chosen.switches(),
            money: chosen.sample.iter().chain(&chosen.passes).map(|pass| money(pass, &plan.volume)).sum(),
            plan,
        })
    }
}

impl fmt::Display for SortPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { chosen, others, threads, volume, .. } = &self.plan;
        let max_streams = chosen.passes.iter().map(|pass| pass.inputs + pass.outputs).max().unwrap_or(1);
        writeln!(f, "job       {}, {}", self.job, units::plural(*threads as u64, "thread"))?;
        writeln!(f, "volume    {}", volume.summary(u32::try_from(max_streams).unwrap_or(u32::MAX)))?;
        writeln!(f, "method    {}", chosen.summary)?;
        if let Some(sample) = &chosen.sample {
            writeln!(f, "sample    {}", sample_line(sample))?;
        }
        for (number, pass) in chosen.passes.iter().enumerate() {
            writeln!(f, "pass {:<4} {}", number + 1, pass_line(pass))?;
        }
        writeln!(f, "in all    {}", totals(chosen))?;
        if self.money > 0.0 {
            writeln!(f, "money     {:.2}", self.money)?;
        }
        if others.is_empty() {
            writeln!(f, "why       {}", chosen.remark)?;
        }
        for other in others {
            writeln!(f, "why not   {}: {}", other.summary, totals(other))?;
        }
        if !self.host_measured {
            writeln!(f, "note      speeds of the processors are assumed; ascot probe measures them")?;
        }
        Ok(())
    }
}

fn pass_line(pass: &PassPlan) -> String {
    let times = match pass.times {
        1 => "once".to_owned(),
        times => format!("{} times", units::count(times)),
    };
    let seconds = units::seconds(pass.seconds());
    let bound_by = pass.bound_by();
    format!("{}: {} x {}, {times}, {seconds}, bound by {bound_by}", pass.name, pass.inputs, pass.outputs)
}

/// The reading of a sample of the keys.
fn sample_line(sample: &PassPlan) -> String {
    let places = units::plural(sample.switches, "place");
    let seconds = units::seconds(sample.seconds());
    format!("{} of keys from {places}, {seconds}", units::bytes(sample.read_bytes))
}

/// The cost of a pass. Its switches are divided into reads and writes in the ratio of its bytes.
fn money(pass: &PassPlan, volume: &VolumeProfile) -> f64 {
    let read = pass.read_bytes as f64;
    let switches = pass.switches as f64;
    let share = read / (read + pass.written_bytes as f64).max(1.0);
    volume.money(switches * share, switches * (1.0 - share), pass.seconds())
}

fn moved_bytes(method: &MethodPlan) -> u64 {
    method.read_bytes() + method.written_bytes()
}

fn totals(method: &MethodPlan) -> String {
    format!(
        "{}, {} moved, {} switches",
        units::seconds(method.seconds()),
        units::bytes(moved_bytes(method)),
        units::count(method.switches())
    )
}
