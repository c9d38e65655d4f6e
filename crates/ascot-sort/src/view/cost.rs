//! What a view costs to make and to read, beside a file.

use ascot_model::plan::Way;
use ascot_model::volume::VolumeProfile;
use serde::Serialize;

/// Seconds that a sorted result takes, by what becomes of it.
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
    /// From the plan of a merge, whose first pass a view keeps and whose last one a reader goes through
    /// without writing; nothing where all fits in memory. `file_seconds`: the plan of a sort.
    pub fn of(merge: &Way, file_seconds: f64, volume: &VolumeProfile) -> Option<ViewCost> {
        let [first, .., last] = &merge.passes[..] else { return None };
        let (bytes, switches) = (last.read_bytes as f64, last.switches as f64 / 2.0);
        let device = volume.seconds(bytes, 0.0, switches, first.outputs.max(last.inputs) as f64);
        Some(ViewCost {
            make_seconds: first.seconds(),
            read_seconds: device.max(last.compute_seconds),
            file_seconds,
            file_read_seconds: volume.seconds(last.written_bytes as f64, 0.0, 1.0, 1.0),
        })
    }

    /// Seconds of a view that is made and read so many times.
    pub fn view_seconds(&self, reads: u64) -> f64 {
        self.make_seconds + reads as f64 * self.read_seconds
    }

    /// Seconds of a file that is written and read so many times.
    pub fn sorted_seconds(&self, reads: u64) -> f64 {
        self.file_seconds + reads as f64 * self.file_read_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_readings_favour_a_view() {
        let cost =
            ViewCost { make_seconds: 7.0, read_seconds: 8.0, file_seconds: 15.0, file_read_seconds: 6.5 };
        assert!(cost.view_seconds(1) < cost.sorted_seconds(1));
        assert!(cost.view_seconds(9) > cost.sorted_seconds(9));
    }
}
