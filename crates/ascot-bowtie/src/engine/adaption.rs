//! A bowtie that learns its share of reading while it runs.
//!
//! ```text
//!   bytes consumed and put of late ─▶ alpha ─▶ scheme ─▶ the schedule
//!                                                 ╰────▶ memory of both sides, as blocks become free
//! ```
//!
//! When all files among the inputs have ended, all memory but that of pipes is for outputs, and they are written by A1.

use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::constants::{GAIN_STEP, MIN_ALPHA, SCHEME_STEP};
use crate::occupancy::Occupancy;
use crate::schedule::{Schedule, Split};

/// What a bowtie adapts to.
pub(super) struct Adaption {
    /// The scheme in use.
    scheme: Scheme,
    /// How memory is to be divided.
    wanted: Split,
}

impl Adaption {
    /// Begins with `scheme` and the memory that it has; none if one side has no streams.
    pub(super) fn new(scheme: &Scheme, split: Split) -> Option<Self> {
        let Shape { inputs, outputs, .. } = scheme.shape;
        (inputs > 0 && outputs > 0).then_some(Adaption { scheme: *scheme, wanted: split })
    }

    /// Follows the share of reading, if it has changed enough. `free_to_read`: free blocks for inputs.
    pub(super) fn follow(
        &mut self,
        occupancy: &mut Occupancy,
        schedule: &mut dyn Schedule,
        free_to_read: u32,
    ) {
        let Adaption { scheme, wanted } = self;
        let Shape { inputs, outputs, alpha: before } = scheme.shape;
        let of_pipes = occupancy.pipe_blocks();
        let of_files = occupancy.split().total().saturating_sub(of_pipes);
        let live = occupancy.live_files() > 0;
        let alpha = occupancy.alpha().clamp(MIN_ALPHA, 1.0 - MIN_ALPHA);
        let gain = |alpha: f64| (1.0 - alpha) / alpha;
        let changed = if live { (gain(alpha) / gain(before)).ln().abs() >= GAIN_STEP } else { inputs > 0 };
        if changed && live {
            *scheme = following(scheme, Shape { inputs, outputs, alpha });
            let split = Split::new(scheme, of_files);
            *wanted = Split { read: split.read + of_pipes, ..split };
        } else if changed {
            *scheme = Scheme::best(Shape { inputs: 0, outputs, alpha: 0.0 });
            *wanted = Split { read: of_pipes, write: of_files };
        }
        let moved = occupancy.split() != *wanted && occupancy.divide(*wanted, free_to_read);
        if changed || moved {
            schedule.adapt(scheme, occupancy.split().read.saturating_sub(of_pipes));
        }
    }
}

/// The scheme for another share of reading. The algorithm and the groups stay unless others have clearly longer runs:
/// to change them costs switches. A caller that chose A5 wants no rounds.
fn following(scheme: &Scheme, shape: Shape) -> Scheme {
    let regrouped = Scheme::best_of(shape, scheme.algorithm);
    let best = regrouped.filter(|_| scheme.algorithm == Algorithm::A5).unwrap_or_else(|| Scheme::best(shape));
    let same = Scheme::new(shape, scheme.algorithm, scheme.read_group, scheme.write_group);
    let enough = best.run_length(1.0) / (1.0 + SCHEME_STEP);
    [Some(same), regrouped].into_iter().flatten().find(|kept| kept.run_length(1.0) >= enough).unwrap_or(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At equal shares A6r and A6w have runs of the same length: a small change of the share changes nothing.
    #[test]
    fn a_scheme_stays_unless_another_is_clearly_better() {
        let shape = |alpha| Shape { inputs: 3, outputs: 5, alpha };
        let first = Scheme::best(shape(0.501));
        assert_ne!(first.algorithm, Scheme::best(shape(0.499)).algorithm);
        assert_eq!(following(&first, shape(0.499)).algorithm, first.algorithm);
        assert_eq!(following(&first, shape(0.2)).algorithm, Scheme::best(shape(0.2)).algorithm);
        let a5 = Scheme::best_of(shape(0.5), Algorithm::A5).expect("A5 fits");
        assert_eq!(following(&a5, shape(0.2)).algorithm, Algorithm::A5);
    }
}
