//! Checks whether a job fits on its volumes according to its plan, before records are read.
//!
//! Invariant: only jobs that would certainly fail are refused. An upper bound refuses no job that may stay far
//! below it because it drops records or compresses spills. `--compress auto` counts as no compression, because it may
//! choose none.

use std::fs;
use std::path::{Path, PathBuf};

use ascot_io::{Codec, Disk, directory_of};
use ascot_model::plan::Plan;
use ascot_model::units;
use ascot_record::layout::Layout;
use serde::Serialize;

use crate::api::{Output, Result, SortError, SortRequest};
use crate::plan::volumes::{output_dir, temp_dirs};
use crate::resources::device_of;

/// A shortage of disk space, and the volumes concerned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shortage {
    /// The files that do not fit.
    pub what: &'static str,
    /// Minimum bytes they need.
    pub needed_bytes: u64,
    /// A directory on each of the volumes, and the bytes free there.
    pub left: Vec<(PathBuf, u64)>,
}

/// Directories on different volumes, and the bytes free there.
struct FreeSpace {
    left: Vec<(PathBuf, u64)>,
    devices: Vec<Option<u64>>,
}

impl FreeSpace {
    fn new(disk: &Disk, dirs: &[PathBuf]) -> FreeSpace {
        let mut this = FreeSpace { left: Vec::new(), devices: Vec::new() };
        for dir in dirs {
            let device = device_of(dir);
            if !this.devices.contains(&device) {
                // Unknown free space counts as enough.
                this.left.push((dir.clone(), disk.free_space(dir).unwrap_or(u64::MAX)));
                this.devices.push(device);
            }
        }
        this
    }

    fn bytes(&self) -> u64 {
        self.left.iter().fold(0, |sum, (_, free)| sum.saturating_add(*free))
    }
}

/// The directory of an output that takes space on a volume.
fn filled_dir(output: &Output) -> Option<PathBuf> {
    output_dir(output).filter(|_| output.files() > 0)
}

/// Bytes free on the volumes that a plan writes to, each volume counted once.
pub(crate) fn free_of_plan(request: &SortRequest, plan: &Plan, disk: &Disk) -> u64 {
    let spills = plan.input_bytes.is_none() || plan.chosen.disk.spills_bytes > 0;
    let mut dirs = if spills { temp_dirs(request) } else { Vec::new() };
    dirs.extend(filled_dir(&request.output));
    FreeSpace::new(disk, &dirs).bytes()
}

/// Whether the disk use of a plan is an estimate and not a bound: the lengths of the records that `--top` keeps are not
/// known in advance.
pub(crate) fn disk_is_estimate(request: &SortRequest) -> bool {
    let of_one_length = matches!(request.layout, Layout::Fixed { .. } | Layout::Number(_));
    request.top.is_some() && !of_one_length
}

/// The part of a plan that certainly does not fit. If the plan fits only when consumed spills are freed more often than
/// usual, its peak is lowered to the free space.
pub(crate) fn shortage(request: &SortRequest, plan: &mut Plan, disk: &Disk) -> Option<Shortage> {
    // The bytes of dropped records are only estimated.
    let keeps_all = !request.unique && request.top.is_none();
    let last = plan.chosen.passes.last().filter(|_| plan.input_bytes.is_some() && keeps_all)?;
    let short = |what, needed_bytes, free: &FreeSpace| {
        (free.bytes() < needed_bytes).then(|| Shortage { what, needed_bytes, left: free.left.clone() })
    };
    let dir = filled_dir(&request.output);
    let of_output = dir.as_ref().map(|dir| FreeSpace::new(disk, std::slice::from_ref(dir)));
    let output = of_output.as_ref().and_then(|free| short("the output", last.written_bytes, free));
    let need = plan.chosen.disk;
    let compresses = request.compression.fixed().is_some_and(|codec| codec != Codec::None);
    if output.is_some() || need.spills_bytes == 0 || compresses {
        return output;
    }
    let mut dirs = temp_dirs(request);
    let of_spills = FreeSpace::new(disk, &dirs);
    let spilled = plan.chosen.passes.first().map_or(0, |pass| pass.written_bytes);
    if let Some(spills) = short("spills", spilled, &of_spills) {
        return Some(spills);
    }
    if of_output.is_none_or(|free| !of_spills.devices.contains(&free.devices[0])) {
        return None;
    }
    dirs.extend(dir);
    let both = FreeSpace::new(disk, &dirs);
    let peak_max = both.bytes().max(need.least_bytes);
    plan.chosen.peak_disk_bytes = plan.chosen.peak_disk_bytes.min(peak_max);
    short("spills and the output together", need.least_bytes, &both)
}

/// Refuses a job that certainly does not fit.
pub(crate) fn refuse_without_space(request: &SortRequest, plan: &mut Plan, disk: &Disk) -> Result<()> {
    let Some(Shortage { what, needed_bytes, left }) = shortage(request, plan, disk) else { return Ok(()) };
    match (what, &request.output) {
        ("the output", Output::Path(path)) => check_output_space(disk, path, needed_bytes)?,
        ("the output", Output::Parts(parts)) => check_output_space(disk, &parts.path(0), needed_bytes)?,
        ("spills", _) => return Err(no_space_for_spills(disk, &temp_dirs(request), needed_bytes)),
        _ => {}
    }
    let advice = "free some space, or put spills on another volume than the output (--temp DIR, repeatable)";
    let remains = Some("nothing was written; an old output is unchanged");
    Err(SortError::NoSpace { what, needed: needed_bytes, left, advice, remains })
}

/// Limits the disk use of the job to the plan's peak, if the size of the inputs is known.
pub(crate) fn keep_within(disk: &Disk, plan: &Plan) {
    if plan.input_bytes.is_some() {
        disk.space().limit(plan.chosen.peak_disk_bytes);
    }
}

/// Error for spills of `needed` bytes that do not fit in `dirs`.
pub fn no_space_for_spills(disk: &Disk, dirs: &[PathBuf], needed: u64) -> SortError {
    let free = |dir: &PathBuf| (dir.clone(), disk.free_space(dir).unwrap_or(0));
    SortError::NoSpace {
        what: "spills",
        needed,
        left: dirs.iter().map(free).collect(),
        advice: "give a larger volume (--temp DIR, repeatable), or compress spills (--compress zstd)",
        remains: Some("no spills are left; the output is unchanged"),
    }
}

/// Refuses an output of `needed` bytes that does not fit on the volume of `path`, unless `path` is a device or a pipe.
pub fn check_output_space(disk: &Disk, path: &Path, needed: u64) -> Result<()> {
    let is_file = fs::metadata(path).map_or(true, |stat| stat.is_file());
    let dir = directory_of(path);
    let left = disk.free_space(dir).unwrap_or(u64::MAX);
    if !is_file || left >= needed {
        return Ok(());
    }
    let advice = "free some space, or name an output on another volume";
    let remains = Some("nothing was written; an old output is unchanged");
    Err(SortError::NoSpace { what: "the output", needed, left: vec![(dir.into(), left)], advice, remains })
}

/// Adapts an error about spills to a job that makes a view: its spills are the runs of the view.
pub fn explain_view_space(error: SortError) -> SortError {
    let advice =
        "free some space, name a view on another volume (--view DIR), or compress its runs (--compress zstd)";
    match error {
        SortError::NoSpace { what: "spills", needed, left, remains, .. } => {
            let remains = remains.map(|_| "nothing is left of it");
            SortError::NoSpace { what: "the runs of the view", needed, left, advice, remains }
        }
        SortError::Kept { error, dir } => {
            SortError::Kept { error: Box::new(explain_view_space(*error)), dir }
        }
        other => other,
    }
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left =
            self.left.iter().map(|(dir, free)| format!("{} free on {}", units::bytes(*free), dir.display()));
        let left = left.collect::<Vec<_>>().join(", ");
        write!(f, "{} needed for {}, {left}", units::bytes(self.needed_bytes), self.what)
    }
}
