//! A replay on a real volume: direct requests to a volume file, one after the other, several times.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ascot_model::units;
use serde::Serialize;

use super::layout::{Layout, VolumeUse};
use super::moves::{Rounding, for_each_move};
use super::volume_file::{Extents, VolumeFile};
use crate::error::{Result, TraceError};
use crate::format::TraceReader;

/// The longest pause between two looks at the stop flag.
const PAUSE: Duration = Duration::from_millis(50);

/// When requests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// When the one before has ended.
    Fast,
    /// Then, but not before the recorded time.
    Recorded,
}

/// What to replay where.
pub struct DiskReplayRequest {
    /// A directory on the volume.
    pub directory: PathBuf,
    /// The pace.
    pub pace: Pace,
    /// The number of repetitions, at least one.
    pub repetitions: u32,
}

/// A replay on a volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskReplay {
    /// The directory.
    pub directory: String,
    /// The seconds of each repetition, writes on the device included.
    pub seconds: Vec<f64>,
    /// Their median.
    pub median_seconds: f64,
    /// Half of the distance between the shortest and the longest.
    pub spread_seconds: f64,
    /// Bytes of the trace divided by the median; 0 without any.
    pub bytes_per_s: f64,
    /// Where the volume file lies, if the file system tells.
    pub extents: Option<Extents>,
    /// What makes the times differ from those of the recorded files.
    pub notices: Vec<String>,
    /// The volume, and what lies on it.
    #[serde(flatten)]
    pub volume: VolumeUse,
    /// Requests as whole blocks.
    #[serde(flatten)]
    pub rounding: Rounding,
}

/// Replays a trace in a directory; `stop` ends it early.
pub fn replay_on_disk(
    trace: &TraceReader,
    request: &DiskReplayRequest,
    stop: &AtomicBool,
) -> Result<DiskReplay> {
    let layout = Layout::new(trace)?;
    let mut volume = VolumeFile::create(&request.directory, layout.volume.volume_bytes, stop)?;
    let mut rounding = Rounding::default();
    let mut seconds = Vec::new();
    for _ in 0..request.repetitions.max(1) {
        let began = Instant::now();
        rounding = for_each_move(trace, &layout, |next| {
            if request.pace == Pace::Recorded {
                wait_until(began, Duration::from_nanos(next.time_ns), stop);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(TraceError::Stopped);
            }
            volume
                .perform(next.writes, next.offset, next.bytes)
                .map_err(|source| failed(&request.directory, source))
        })?;
        volume.sync().map_err(|source| failed(&request.directory, source))?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    let mut sorted = seconds.clone();
    sorted.sort_by(f64::total_cmp);
    let median_seconds = median(&sorted);
    let extents = volume.extents();
    Ok(DiskReplay {
        directory: request.directory.display().to_string(),
        seconds,
        median_seconds,
        spread_seconds: spread(&sorted),
        bytes_per_s: if median_seconds > 0.0 { rounding.bytes as f64 / median_seconds } else { 0.0 },
        notices: notices(extents, volume.is_in_memory()),
        extents,
        volume: layout.volume,
        rounding,
    })
}

/// Notices on a volume file in several pieces, and on one in memory.
fn notices(extents: Option<Extents>, in_memory: bool) -> Vec<String> {
    let pieces = extents.map(|extents| extents.pieces).filter(|pieces| *pieces > 1);
    let notice = |pieces| {
        format!(
            "the volume file is not contiguous: jumps between its {} pieces count; a volume with more free space, or a \
             new one, may have room for it in one piece",
            units::count(pieces)
        )
    };
    let memory =
        "the volume file is in memory (tmpfs): its times are those of no disk; name a directory on one";
    pieces.map(notice).into_iter().chain(in_memory.then(|| memory.to_owned())).collect()
}

fn failed(directory: &Path, source: std::io::Error) -> TraceError {
    TraceError::Volume { doing: "move bytes of", path: directory.to_owned(), source }
}

/// Half of the distance between the first and the last of ascending numbers.
fn spread(sorted: &[f64]) -> f64 {
    sorted.first().zip(sorted.last()).map_or(0.0, |(shortest, longest)| (longest - shortest) / 2.0)
}

/// The median of ascending numbers.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match (sorted.get(middle), middle.checked_sub(1).and_then(|below| sorted.get(below))) {
        (Some(upper), Some(lower)) if sorted.len().is_multiple_of(2) => (lower + upper) / 2.0,
        (Some(upper), _) => *upper,
        (None, _) => 0.0,
    }
}

fn wait_until(began: Instant, time: Duration, stop: &AtomicBool) {
    while let Some(left) = time.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(left.min(PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_volume_file_in_several_pieces_has_a_notice() {
        let extents = |pieces| Some(Extents { pieces, physical_offset: None });
        assert!(notices(None, false).is_empty() && notices(extents(1), false).is_empty());
        assert!(notices(extents(1200), false)[0].contains("its 1,200 pieces count"));
    }

    #[test]
    fn repetitions_have_a_median_and_a_spread() {
        assert_eq!((median(&[1.0, 2.0, 8.0]), spread(&[1.0, 2.0, 8.0])), (2.0, 3.5));
        assert_eq!((median(&[1.0, 2.0]), spread(&[1.0, 2.0])), (1.5, 0.5));
        assert_eq!((median(&[3.0]), spread(&[3.0]), spread(&[])), (3.0, 0.0, 0.0));
    }
}
