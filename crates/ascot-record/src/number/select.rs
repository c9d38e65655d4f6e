//! Selects the smallest numbers of sorted slices, about as many as fit an output block.
//!
//! The cut is one of some samples from the starts of the slices, found by bisection. Each slice remembers the range in
//! which the cut still can be, so that a step searches only what the steps before it left over:
//!
//! ```text
//! slice 0  [....|..c..|................]     c: the cut of this step, between
//! slice 1  [..|..c.......|.............]     low: all before it fit the block, and
//! slice 2  [......|..c...|.............]     high: all before it are too many
//! ```
//!
//! Searching every slice from end to end for each sample costs more than sorting the block if there are many slices.

use crate::order::head_len;
use crate::vsort::{self, Sortable};

/// Samples of all slices together: a block stays empty by about one in as many.
const SAMPLES: usize = 512;
/// Least and greatest number of samples of one slice.
const SLICE_SAMPLES: (usize, usize) = (4, 64);

/// The starts of sorted slices, up to a value.
#[derive(Debug)]
pub struct Heads<T> {
    samples: Vec<T>,
    low: Vec<usize>,
    high: Vec<usize>,
    middle: Vec<usize>,
}

impl<T> Default for Heads<T> {
    fn default() -> Self {
        Heads { samples: Vec::new(), low: Vec::new(), high: Vec::new(), middle: Vec::new() }
    }
}

impl<T: Sortable> Heads<T> {
    /// Finds the largest of some samples with at most `max_count` values below it, which it returns; none without
    /// values. If it is the smallest value, no value is below it.
    pub fn select(&mut self, slices: &[&[T]], max_count: usize) -> Option<T> {
        self.sample(slices, max_count);
        let mut cut = *self.samples.first()?;
        let last = *self.samples.last()?;
        self.low.clear();
        self.low.resize(slices.len(), 0);
        self.high.clear();
        self.high.extend(slices.iter().map(|values| head_len(values, |value| *value < last)));
        if self.high.iter().sum::<usize>() <= max_count {
            std::mem::swap(&mut self.low, &mut self.high);
            return Some(last);
        }
        // The first sample fits, the last one does not.
        let mut fitting = 0;
        let mut too_many = self.samples.len() - 1;
        while fitting + 1 < too_many {
            let at = fitting.midpoint(too_many);
            let value = self.samples[at];
            self.middle.clear();
            let ranges = self.low.iter().zip(&self.high);
            self.middle.extend(slices.iter().zip(ranges).map(|(values, (&low, &high))| {
                low + values[low..high].partition_point(|other| *other < value)
            }));
            if self.middle.iter().sum::<usize>() <= max_count {
                std::mem::swap(&mut self.low, &mut self.middle);
                (fitting, cut) = (at, value);
            } else {
                std::mem::swap(&mut self.high, &mut self.middle);
                too_many = at;
            }
        }
        Some(cut)
    }

    /// The number of selected values of each slice.
    pub fn ends(&self) -> &[usize] {
        &self.low
    }

    /// Samples the slices near their starts: only values there can be below the cut. Each slice is sampled at positions
    /// of its own: the same shares of similar slices have about the same values, between which no cut would be found.
    fn sample(&mut self, slices: &[&[T]], max_count: usize) {
        let total: usize = slices.iter().map(|values| values.len()).sum();
        let share = max_count as f64 / total.max(1) as f64;
        let (least, most) = SLICE_SAMPLES;
        let count = (SAMPLES / slices.len().max(1)).clamp(least, most);
        self.samples.clear();
        // The smallest value fits any block.
        self.samples.extend(slices.iter().filter_map(|values| values.first()).min());
        for (number, values) in slices.iter().enumerate().filter(|(_, values)| !values.is_empty()) {
            let reach = ((values.len() as f64 * share * 2.0) as usize).clamp(1, values.len());
            let steps = (0..count).map(|step| step * slices.len() + number);
            self.samples.extend(steps.map(|step| values[step * reach / (count * slices.len())]));
        }
        vsort::sort(&mut self.samples);
        self.samples.dedup();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Selects, and checks that the ends are those of the cut, and that no larger sample fits.
    fn check(slices: &[Vec<u32>], max_count: usize) -> Option<u32> {
        let slices: Vec<&[u32]> = slices.iter().map(Vec::as_slice).collect();
        let below = |cut: u32| slices.iter().map(move |values| values.partition_point(|value| *value < cut));
        let mut heads = Heads::default();
        let cut = heads.select(&slices, max_count)?;
        assert_eq!(heads.ends(), below(cut).collect::<Vec<_>>());
        assert!(below(cut).sum::<usize>() <= max_count);
        let larger = heads.samples.iter().find(|sample| **sample > cut);
        assert!(larger.is_none_or(|larger| below(*larger).sum::<usize>() > max_count));
        Some(cut)
    }

    /// The share of a block that is filled from these slices.
    fn filled(slices: &[Vec<u32>], max_count: usize) -> f64 {
        let cut = check(slices, max_count).expect("values");
        let taken: usize = slices.iter().map(|values| values.partition_point(|value| *value < cut)).sum();
        taken as f64 / max_count as f64
    }

    #[test]
    fn blocks_are_nearly_full() {
        for slices in [1, 2, 5, 16, 37, 74, 105, 128, 400] {
            let alike: Vec<Vec<u32>> =
                (0..slices).map(|slice| (0..9_000).map(|value| value * 400 + slice).collect()).collect();
            // Some end early.
            let different: Vec<Vec<u32>> =
                (1..=slices).map(|slice| (0..9_000).map(|value| value * slice + slice).collect()).collect();
            for kind in [alike, different] {
                let share = filled(&kind, slices as usize * 1_100);
                assert!(share > 0.96, "{slices} slices: {share}");
            }
        }
    }

    #[test]
    fn nothing_is_below_the_smallest_value() {
        assert_eq!(check(&[], 10), None);
        assert_eq!(check(&[vec![], vec![]], 10), None);
        assert_eq!(check(&[vec![7; 100], vec![7; 50]], 10), Some(7));
        assert_eq!(check(&[vec![7; 100], vec![7; 50], vec![8; 5]], 10), Some(7));
    }

    proptest! {
        #[test]
        fn ends_are_those_of_the_cut(
            mut slices in proptest::collection::vec(proptest::collection::vec(0u32..500, 0..90), 0..40),
            max_count in 1usize..300,
        ) {
            slices.iter_mut().for_each(|slice| slice.sort_unstable());
            check(&slices, max_count);
        }
    }
}
