//! Corrects the profiles of volumes by the requests of the job: for its report, and for the plans of later passes.
//!
//! Invariants: a profile that the user gave stays. So does the assumption of flash where none is known: a job whose
//! volume counts as flash never changes to long runs.

use std::path::PathBuf;

use ascot_io::Ledger;
use ascot_model::known_volume::Origin;
use ascot_model::multipass::{self, DeviceCost, PassCost};
use ascot_model::report::VolumeSeen;
use ascot_model::run_length::Shape;
use ascot_model::volume::VolumeProfile;

use crate::api::{SortRequest, Volumes};
use crate::plan::volumes::{devices, input_paths, written_dirs};

/// Files among which a pass that forms runs switches: it reads one and writes one.
const FILES_OF_FORMING: f64 = 2.0;

/// The rates of the volumes of a job, as predicted and as measured. `has_choice`: its later passes follow corrected
/// profiles.
pub fn volumes_seen(request: &SortRequest, ledger: &Ledger, has_choice: bool) -> Vec<VolumeSeen> {
    let volumes = &request.volumes;
    let seen = |of: &str, paths: &[PathBuf], predicted: VolumeProfile, corrected: bool| {
        let measured = ledger.pace(&devices(paths)).rates();
        VolumeSeen { of: of.into(), predicted, measured, corrected: corrected && !measured.is_empty() }
    };
    let written = written_dirs(request);
    let inputs = input_paths(request);
    let follows = has_choice && may_correct(volumes);
    match &volumes.input_volume {
        None => vec![seen("all files", &[inputs, written].concat(), volumes.profile(), follows)],
        Some(profile) => vec![
            seen("inputs", &inputs, profile.clone(), false),
            seen("spills and output", &written, volumes.profile(), follows),
        ],
    }
}

/// The volumes of a job with the volume of its spills corrected by its requests so far.
pub fn corrected(request: &SortRequest, ledger: &Ledger) -> Volumes {
    let mut volumes = request.volumes.clone();
    if may_correct(&volumes)
        && let Some(profile) = &mut volumes.volume
    {
        let seen = ledger.pace(&devices(&written_dirs(request))).rates();
        *profile = seen.correct(profile, FILES_OF_FORMING);
    }
    volumes
}

fn may_correct(volumes: &Volumes) -> bool {
    let found = |origin: &Origin| matches!(origin, Origin::Probed(_) | Origin::Recognised(_));
    volumes.volume.is_some() && !volumes.are_given() && volumes.origins.iter().any(|of| found(&of.origin))
}

/// Runs to merge.
#[derive(Clone, Copy)]
pub struct MergeBytes<'a> {
    /// Number of runs.
    pub runs: usize,
    /// Bytes of records in this number of files into which they are merged: fewer if duplicates or records beyond the
    /// first ones are dropped.
    pub left_in: &'a dyn Fn(f64) -> f64,
    /// Bytes stored for each byte of their records.
    pub ratio: f64,
}

/// The largest number of runs that one merge should take; none: all of them. `to_file`: the last merge writes a file,
/// and not a pipe. Compression changes the bytes that move. It does not change the length of runs and the share of
/// reading in them, because blocks lie expanded in memory.
pub fn merge_factor(
    volume: &VolumeProfile,
    merge: MergeBytes<'_>,
    to_file: bool,
    memory: u64,
) -> Option<usize> {
    let inputs = u32::try_from(merge.runs).ok()?;
    let cost = DeviceCost { volume, memory_bytes: memory as f64, max_streams: u32::MAX, baseline: None };
    // The last merge writes the output, which is not compressed.
    let output = (merge.left_in)(1.0);
    let stored = |files: f64| if files <= 1.0 { output } else { (merge.left_in)(files) * merge.ratio };
    let seconds = |shape: &Shape, read: f64, written: f64| {
        let blocks_read = read / merge.ratio;
        let blocks_written = if written == output { output } else { written / merge.ratio };
        let expanded = Shape::moving(shape.inputs, shape.outputs, blocks_read, blocks_written);
        let files = f64::from(shape.streams());
        cost.seconds(&expanded, blocks_read, blocks_written)
            - volume.seconds(blocks_read, blocks_written, 0.0, files)
            + volume.seconds(read, written, 0.0, files)
    };
    let way = multipass::merge(inputs, &stored, &seconds).filter(|way| !way.passes.is_empty())?;
    if !to_file && let Some(last) = way.passes.last() {
        // The last merge costs what its reads cost.
        let reading =
            |inputs: u32, bytes: f64| seconds(&Shape { inputs, outputs: 0, alpha: 1.0 }, bytes, 0.0);
        let several = way.seconds - last.seconds + reading(last.shape.inputs, last.read_bytes);
        if reading(inputs, stored(f64::from(inputs))) <= several {
            return None;
        }
    }
    way.factors().into_iter().map(|factor| factor as usize).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes in between cost little if their runs shrink: long runs of fewer files then win.
    #[test]
    fn runs_that_shrink_are_merged_in_more_passes() {
        let array = VolumeProfile::simple("24 disks", 3549e6, 3549e6, 0.0155);
        let bytes = f64::from(20 << 10) * f64::from(1 << 20);
        let factor = |ratio, left_in: &dyn Fn(f64) -> f64| {
            let merge = MergeBytes { runs: 40, left_in, ratio };
            merge_factor(&array, merge, true, 1 << 30).expect("memory suffices")
        };
        assert_eq!(factor(1.0, &|_| bytes), 40);
        assert!(factor(0.1, &|_| bytes) < 40, "{}", factor(0.1, &|_| bytes));
        // All runs have the same records.
        let same = |files| bytes * files / 40.0;
        assert!(factor(1.0, &same) < 40, "{}", factor(1.0, &same));
    }
}
