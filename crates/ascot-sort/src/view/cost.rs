//! The cost of making and reading a view, compared with a file.

use ascot_model::plan::MethodPlan;
use ascot_model::run_length::{Algorithm, Scheme, Shape};
use ascot_model::volume::VolumeProfile;
use serde::Serialize;

/// Default memory for reading a view, bytes; the reader's blocks take about half of it.
const READER_BYTES: f64 = 128.0 * 1048576.0;

/// Seconds to make and to read a sorted result, as a view and as a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ViewCost {
    /// To form the runs of a view.
    pub make_seconds: f64,
    /// To read the view once, from end to end.
    pub read_seconds: f64,
    /// To sort to a file.
    pub file_seconds: f64,
    /// To read that file once.
    pub file_read_seconds: f64,
}

impl ViewCost {
    /// From the plan of a merge sort: a view keeps its first pass, and a reader runs its last pass over all runs at
    /// once, without writing. None if all data fits in memory. `file_seconds` comes from the plan of a sort.
    /// Switches while reading: those of A3 within `READER_BYTES` if a switch costs more than a block, else half of
    /// the merge's.
    pub fn new(merge: &MethodPlan, file_seconds: f64, volume: &VolumeProfile) -> Option<ViewCost> {
        let [first, .., last] = &merge.passes[..] else { return None };
        let bytes = last.read_bytes as f64;
        let runs = first.outputs.max(last.inputs);
        let switches = if volume.wants_runs((runs + 1) as f64) {
            let shape = Shape { inputs: runs as u32, outputs: 0, alpha: 1.0 };
            let run =
                Scheme::best_of(shape, Algorithm::A3).map_or(bytes, |scheme| scheme.run_length(READER_BYTES));
            (bytes / run).max(runs as f64)
        } else {
            last.switches as f64 / 2.0
        };
        let device = volume.seconds(bytes, 0.0, switches, runs as f64);
        Some(ViewCost {
            make_seconds: first.seconds(),
            read_seconds: device.max(last.compute_seconds),
            file_seconds,
            file_read_seconds: volume.seconds(last.written_bytes as f64, 0.0, 1.0, 1.0),
        })
    }

    /// Seconds to make a view and read it `reads` times.
    pub fn view_seconds(&self, reads: u64) -> f64 {
        self.make_seconds + reads as f64 * self.read_seconds
    }

    /// Seconds to write a file and read it `reads` times.
    pub fn sorted_seconds(&self, reads: u64) -> f64 {
        self.file_seconds + reads as f64 * self.file_read_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_model::plan::PassPlan;

    /// A reader merges all runs at once, however many passes a file would need. So a view of many runs is
    /// expensive if switches are.
    #[test]
    fn a_view_of_many_runs_is_dear_where_switches_are() {
        let pass = |name: &str, inputs, outputs| PassPlan {
            name: name.into(),
            read_bytes: 8_000_000_000,
            written_bytes: 8_000_000_000,
            switches: 50,
            inputs,
            outputs,
            times: 1,
            requests: 0,
            checkpoints: 0,
            device_seconds: 4.5,
            compute_seconds: 1.0,
            overlap: 1.5,
        };
        let merge = |runs| MethodPlan {
            method: "merge".into(),
            summary: String::new(),
            pieces: runs,
            factors: vec![9, runs / 9],
            held_bytes: 0,
            merge_factor: Some(9),
            sample: None,
            passes: vec![
                pass("form runs", 1, runs),
                pass("merge some", 9, runs / 9),
                pass("merge", runs / 9, 1),
            ],
            peak_disk_bytes: 0,
            disk: Default::default(),
            remark: String::new(),
        };
        let array = VolumeProfile::simple("array", 3.5e9, 3.5e9, 0.0155);
        let seconds = |runs| ViewCost::new(&merge(runs), 9.0, &array).map_or(0.0, |cost| cost.read_seconds);
        assert!(seconds(900) > 2.0 * seconds(90), "{} and {}", seconds(900), seconds(90));
    }

    #[test]
    fn few_readings_favour_a_view() {
        let cost =
            ViewCost { make_seconds: 7.0, read_seconds: 8.0, file_seconds: 15.0, file_read_seconds: 6.5 };
        assert!(cost.view_seconds(1) < cost.sorted_seconds(1));
        assert!(cost.view_seconds(9) > cost.sorted_seconds(9));
    }
}
