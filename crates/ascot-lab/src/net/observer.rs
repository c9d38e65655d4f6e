//! The progress of NetBench, for its caller.

/// Receives what is known while NetBench runs.
pub trait NetObserver: Sync {
    /// These peers are waited for.
    fn waiting(&self, _names: &[String]) {}
    /// The predicted seconds of all rounds.
    fn predicted(&self, _seconds: f64) {}
    /// A round begins; number 0 is the short one before the prediction.
    fn round(&self, _number: u32) {}
}

/// Observes nothing.
pub(super) struct Silent;

impl NetObserver for Silent {}
