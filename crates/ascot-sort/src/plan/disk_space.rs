//! Whether a job fits on its volumes, by its plan: asked before anything is read.
//!
//! Invariant: what is refused here would certainly fail. A bound that a job may stay far below, because equal records or
//! all but the first are left out, or spills are compressed, refuses nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ascot_io::{Compression, Disk};
use ascot_model::plan::Plan;
use ascot_model::units;
use ascot_record::layout::Layout;
use serde::Serialize;

use crate::api::error::SortError;
use crate::api::request::{Output, SortRequest};
use crate::plan::planner::output_files;
use crate::plan::volumes::temp_dirs;

/// What does not fit, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shortage {
    /// What there is no room for.
    pub what: &'static str,
    /// Bytes it takes at least.
    pub needed_bytes: u64,
    /// A directory on each of the volumes, and the bytes left there.
    pub left: Vec<(PathBuf, u64)>,
}

/// Directories on volumes that differ, with what is free there.
struct Free {
    left: Vec<(PathBuf, u64)>,
    devices: Vec<u64>,
}

impl Free {
    fn of(disk: &Disk, dirs: &[PathBuf]) -> Free {
        let mut this = Free { left: Vec::new(), devices: Vec::new() };
        for dir in dirs {
            let device = fs::metadata(dir).map_or(0, |stat| stat.dev());
            if !this.devices.contains(&device) {
                // Unknown is not too little.
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

/// The directory of an output that takes room on a disk.
fn output_dir(output: &Output) -> Option<PathBuf> {
    let path = match output {
        Output::Path(path) if output_files(output) > 0 => path.clone(),
        Output::Parts(parts) => parts.path(0),
        _ => return None,
    };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(dir.to_path_buf())
}

/// Bytes free on the volumes that a plan fills, each counted once.
pub(crate) fn free_of_plan(request: &SortRequest, plan: &Plan, disk: &Disk) -> u64 {
    let spills = plan.input_bytes.is_none() || plan.chosen.disk.spills_bytes > 0;
    let mut dirs = if spills { temp_dirs(request) } else { Vec::new() };
    dirs.extend(output_dir(&request.output));
    Free::of(disk, &dirs).bytes()
}

/// Whether what a plan says of the disk is no bound: how long the records are that `--top` keeps is not known before.
pub(crate) fn disk_is_estimate(request: &SortRequest) -> bool {
    let of_one_length = matches!(request.layout, Layout::Fixed { .. } | Layout::Number(_));
    request.top.is_some() && !of_one_length
}

/// What of a plan certainly does not fit. Where it fits only if consumed spills are freed more often than usual, the
/// plan then says that it takes what there is.
pub(crate) fn shortage(request: &SortRequest, plan: &mut Plan, disk: &Disk) -> Option<Shortage> {
    // What is left out is only guessed at.
    let all_wanted = !request.unique && request.top.is_none();
    let last = plan.chosen.passes.last().filter(|_| plan.input_bytes.is_some() && all_wanted)?;
    let short = |what, needed_bytes, free: &Free| {
        (free.bytes() < needed_bytes).then(|| Shortage { what, needed_bytes, left: free.left.clone() })
    };
    let dir = output_dir(&request.output);
    let of_output = dir.as_ref().map(|dir| Free::of(disk, std::slice::from_ref(dir)));
    let output = of_output.as_ref().and_then(|free| short("the output", last.written_bytes, free));
    let need = plan.chosen.disk;
    if output.is_some() || need.spills_bytes == 0 || request.compression != Compression::None {
        return output;
    }
    let mut dirs = temp_dirs(request);
    let of_spills = Free::of(disk, &dirs);
    let spilled = plan.chosen.passes.first().map_or(0, |pass| pass.written_bytes);
    if let Some(spills) = short("spills", spilled, &of_spills) {
        return Some(spills);
    }
    let apart = of_output.is_none_or(|free| !of_spills.devices.contains(&free.devices[0]));
    if apart {
        return None;
    }
    dirs.extend(dir);
    let both = Free::of(disk, &dirs);
    let most = both.bytes().max(need.least_bytes);
    plan.chosen.peak_disk_bytes = plan.chosen.peak_disk_bytes.min(most);
    short("spills and the output together", need.least_bytes, &both)
}

/// Refuses a job that certainly does not fit, before it reads anything.
pub(crate) fn refuse_without_room(
    request: &SortRequest,
    plan: &mut Plan,
    disk: &Disk,
) -> Result<(), SortError> {
    let Some(Shortage { what, needed_bytes, left }) = shortage(request, plan, disk) else { return Ok(()) };
    let places = temp_dirs(request);
    let places: Vec<&Path> = places.iter().map(PathBuf::as_path).collect();
    match (what, &request.output) {
        ("the output", Output::Path(path)) => room_for_output(disk, path, needed_bytes)?,
        ("the output", Output::Parts(parts)) => room_for_output(disk, &parts.path(0), needed_bytes)?,
        ("spills", _) => return Err(no_room_for_spills(disk, &places, needed_bytes)),
        _ => {}
    }
    let advice = "free some space, or put spills on another volume than the output (--temp DIR, repeatable)";
    let remains = Some("nothing was written; an old output is as it was");
    Err(SortError::NoRoom { what, needed: needed_bytes, left, advice, remains })
}

/// Has the disk keep to what the plan says that files take, where it can say.
pub(crate) fn keep_within(disk: &Disk, plan: &Plan) {
    if plan.input_bytes.is_some() {
        disk.limit(plan.chosen.peak_disk_bytes);
    }
}

/// The error where `needed` bytes of spills have no room in `dirs`.
pub fn no_room_for_spills(disk: &Disk, dirs: &[&Path], needed: u64) -> SortError {
    let free = |dir: &&Path| (dir.to_path_buf(), disk.free_space(dir).unwrap_or(0));
    SortError::NoRoom {
        what: "spills",
        needed,
        left: dirs.iter().map(free).collect(),
        advice: "give a larger volume (--temp DIR, repeatable), or compress spills (--compress auto)",
        remains: Some("no spills are left; the output is as it was"),
    }
}

/// An error where `path`, if it is or becomes a file, has no room for the `needed` bytes of an output.
pub fn room_for_output(disk: &Disk, path: &Path, needed: u64) -> Result<(), SortError> {
    let is_file = fs::metadata(path).map_or(true, |stat| stat.is_file());
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let left = disk.free_space(dir).unwrap_or(u64::MAX);
    if !is_file || left >= needed {
        return Ok(());
    }
    let advice = "free some space, or name an output on another volume";
    let remains = Some("nothing was written; an old output is as it was");
    Err(SortError::NoRoom { what: "the output", needed, left: vec![(dir.into(), left)], advice, remains })
}

/// The error of a job that makes a view, whose runs are its spills.
pub fn said_of_a_view(error: SortError) -> SortError {
    let advice =
        "free some space, name a view on another volume (--view DIR), or compress its runs (--compress auto)";
    match error {
        SortError::NoRoom { what: "spills", needed, left, remains, .. } => {
            let remains = remains.map(|_| "nothing is left of it");
            SortError::NoRoom { what: "the runs of the view", needed, left, advice, remains }
        }
        SortError::Kept { error, dir } => SortError::Kept { error: Box::new(said_of_a_view(*error)), dir },
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
