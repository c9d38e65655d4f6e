//! The cost of a switch: the mean time between the end of one run and the start of the next, as a curve over the
//! number of files that are read and written at once.
//!
//! More files lie farther apart, and a controller that reads ahead for each of them wastes more, so the cost rises
//! with their number. Between measured points the curve is a straight line over the logarithm of the number; beyond
//! them it is constant.

use serde::{Deserialize, Serialize};

/// Seconds of a switch, over the number of files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SwitchCost {
    /// The same for any number of files.
    Constant(f64),
    /// `[files, seconds]`, by ascending files.
    Curve(Vec<(f64, f64)>),
}

/// The longest switch, seconds: winding a tape takes less.
const MAX_SECONDS: f64 = 3600.0;

/// A switch cost that cannot be true.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSwitchCost {
    /// There is no point.
    #[error("the curve of switch costs has no point")]
    Empty,
    /// Seconds that are negative, more than an hour, or no number.
    #[error("a switch cannot cost such a number of seconds: give 0 to 3,600")]
    Seconds,
    /// Numbers of files that do not ascend, or are below one.
    #[error("the numbers of files of switch costs must ascend from 1")]
    Files,
}

impl SwitchCost {
    /// Seconds of a switch between `files` files.
    pub fn seconds(&self, files: f64) -> f64 {
        match self {
            SwitchCost::Constant(seconds) => *seconds,
            SwitchCost::Curve(points) => {
                let after = points.partition_point(|point| point.0 <= files);
                match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
                    (Some(&(x0, y0)), Some(&(x1, y1))) => {
                        let share = (files.ln() - x0.ln()) / (x1.ln() - x0.ln());
                        y0 + share * (y1 - y0)
                    }
                    (Some(end), None) | (None, Some(end)) => end.1,
                    (None, None) => 0.0,
                }
            }
        }
    }

    /// Checks that the figures can be true.
    pub fn check(&self) -> Result<(), BadSwitchCost> {
        let sane = |seconds: f64| (0.0..=MAX_SECONDS).contains(&seconds);
        match self {
            SwitchCost::Constant(seconds) => sane(*seconds).then_some(()).ok_or(BadSwitchCost::Seconds),
            SwitchCost::Curve(points) => {
                if points.is_empty() {
                    return Err(BadSwitchCost::Empty);
                }
                if !points.iter().all(|point| sane(point.1)) {
                    return Err(BadSwitchCost::Seconds);
                }
                let ascending = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
                let counts = points.iter().all(|point| point.0.is_finite() && point.0 >= 1.0);
                (ascending && counts).then_some(()).ok_or(BadSwitchCost::Files)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_points_a_line_over_the_logarithm() {
        let curve = SwitchCost::Curve(vec![(2.0, 0.004), (32.0, 0.012)]);
        for (files, wanted) in [(1.0, 0.004), (2.0, 0.004), (8.0, 0.008), (32.0, 0.012), (4096.0, 0.012)] {
            assert!((curve.seconds(files) - wanted).abs() < 1e-12, "{files} files");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        use SwitchCost::{Constant, Curve};
        assert_eq!(Constant(-1.0).check(), Err(BadSwitchCost::Seconds));
        assert_eq!(Constant(f64::NAN).check(), Err(BadSwitchCost::Seconds));
        assert_eq!(Curve(Vec::new()).check(), Err(BadSwitchCost::Empty));
        assert_eq!(Curve(vec![(2.0, 0.1), (2.0, 0.1)]).check(), Err(BadSwitchCost::Files));
        assert_eq!(Curve(vec![(0.0, 0.1)]).check(), Err(BadSwitchCost::Files));
        assert_eq!(Curve(vec![(1.0, 0.1), (9.0, 0.0)]).check(), Ok(()));
    }
}
