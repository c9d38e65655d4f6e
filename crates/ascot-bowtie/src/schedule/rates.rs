//! How fast inputs are consumed relative to each other, learnt from what has been consumed.
//!
//! Shares are kept over a window that forgets: after as many blocks as the window is long, what was
//! before counts a third. Every live input keeps a little, so that one that rested is not thought to
//! rest for ever.

/// The share of each input in what is consumed.
#[derive(Clone, Debug)]
pub struct Rates {
    consumed: Vec<f64>,
    window: f64,
}

impl Rates {
    /// Equal shares, to be corrected over `window` blocks.
    pub fn new(inputs: usize, window: f64) -> Self {
        let equal = window / inputs.max(1) as f64;
        Rates { consumed: vec![equal; inputs], window: window.max(1.0) }
    }

    /// So many blocks, or parts of one, of `input` were consumed.
    pub fn consumed(&mut self, input: usize, blocks: f64) {
        self.consumed[input] += blocks;
    }

    /// Lets the past fade after `blocks` were consumed of all inputs together.
    pub fn fade(&mut self, blocks: f64) {
        let kept = (-blocks / self.window).exp();
        for consumed in &mut self.consumed {
            *consumed *= kept;
        }
    }

    /// Shares that add up to one over the inputs for which `live` holds; zero for others. They take the
    /// place of those in `shares`.
    pub fn shares(&self, live: impl Fn(usize) -> bool, shares: &mut Vec<f64>) {
        /// Of an equal share, what an input that was not consumed at all counts.
        const LEAST: f64 = 0.05;
        let count = (0..self.consumed.len()).filter(|&input| live(input)).count().max(1) as f64;
        let all: f64 = (0..self.consumed.len()).filter(|&input| live(input)).map(|i| self.consumed[i]).sum();
        let least = LEAST * all.max(f64::MIN_POSITIVE) / count;
        let raised = (0..self.consumed.len())
            .map(|input| if live(input) { self.consumed[input].max(least) } else { 0.0 });
        shares.clear();
        shares.extend(raised);
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share = if sum > 0.0 { *share / sum } else { 0.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares_of(rates: &Rates, live: impl Fn(usize) -> bool) -> Vec<f64> {
        let mut shares = Vec::new();
        rates.shares(live, &mut shares);
        shares
    }

    #[test]
    fn shares_follow_what_is_consumed() {
        let mut rates = Rates::new(4, 100.0);
        assert!(shares_of(&rates, |_| true).iter().all(|share| (share - 0.25).abs() < 1e-12));
        for _ in 0..1000 {
            rates.consumed(0, 0.75);
            rates.consumed(1, 0.25);
            rates.fade(1.0);
        }
        let shares = shares_of(&rates, |_| true);
        assert!((shares[0] / shares[1] - 3.0).abs() < 0.01, "{shares:?}");
        assert!(shares[2] > 0.0 && shares[2] < 0.02, "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let without = shares_of(&rates, |input| input != 0);
        assert!(without[0] == 0.0 && (without.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
