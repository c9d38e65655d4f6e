//! What keeps the forecasts of studies right: rounds of the calibration before a study, and corrections by the cells
//! that were measured, of the same kind, or else of all.

use std::collections::HashMap;
use std::hash::Hash;

/// Rounds of a calibration, of which the shortest time of each of its cells counts: a device that is busy for a moment
/// slows all loops of a cell, but seldom those of all rounds.
pub(crate) const CALIBRATION_ROUNDS: usize = 3;

/// Predicted and taken seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    predicted_s: f64,
    taken_s: f64,
}

impl Record {
    fn add(&mut self, predicted_s: f64, taken_s: f64) {
        self.predicted_s += predicted_s;
        self.taken_s += taken_s;
    }

    fn ratio(&self) -> Option<f64> {
        (self.predicted_s > 0.0).then(|| self.taken_s / self.predicted_s)
    }
}

/// The measurements made so far, by kinds `K`.
#[derive(Debug)]
pub(crate) struct Corrections<K> {
    of_kind: HashMap<K, Record>,
    all: Record,
}

impl<K> Default for Corrections<K> {
    fn default() -> Self {
        Self { of_kind: HashMap::new(), all: Record::default() }
    }
}

impl<K: Eq + Hash> Corrections<K> {
    /// The factor for predictions of a kind: taken by predicted seconds of this kind, else of all, else 1.
    pub(crate) fn factor(&self, kind: &K) -> f64 {
        self.of_kind.get(kind).and_then(Record::ratio).or(self.all.ratio()).unwrap_or(1.0)
    }

    /// Notes the seconds that a measurement took.
    pub(crate) fn note(&mut self, kind: K, predicted_s: f64, taken_s: f64) {
        self.of_kind.entry(kind).or_default().add(predicted_s, taken_s);
        self.all.add(predicted_s, taken_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_corrects_itself_first_and_the_others_as_long_as_they_have_nothing() {
        let mut corrections = Corrections::default();
        assert_eq!(corrections.factor(&"a"), 1.0);
        corrections.note("a", 2.0, 6.0);
        assert_eq!((corrections.factor(&"a"), corrections.factor(&"b")), (3.0, 3.0));
        corrections.note("b", 2.0, 2.0);
        assert_eq!((corrections.factor(&"a"), corrections.factor(&"b")), (3.0, 1.0));
        assert_eq!(corrections.factor(&"c"), 2.0);
    }
}
