//! Tells an observer how far a job of one pass is, and the job whether to stop.

use std::time::{Duration, Instant};

use crate::api::error::SortError;
use crate::api::observe::{Cancel, Observer, Progress};

/// How often an observer hears.
const INTERVAL: Duration = Duration::from_millis(100);

/// Counts the bytes of a pass.
pub(crate) struct Watch<'a> {
    observer: &'a dyn Observer,
    cancel: &'a Cancel,
    phase: &'static str,
    total_bytes: Option<u64>,
    done_bytes: u64,
    since: Instant,
    told: Duration,
}

impl<'a> Watch<'a> {
    /// A pass that begins now and moves `total_bytes`, where that is known.
    pub(crate) fn new(
        observer: &'a dyn Observer,
        cancel: &'a Cancel,
        phase: &'static str,
        total_bytes: Option<u64>,
    ) -> Self {
        let (done_bytes, told) = (0, Duration::ZERO);
        Watch { observer, cancel, phase, total_bytes, done_bytes, since: Instant::now(), told }
    }

    /// What stops the job.
    pub(crate) fn cancel(&self) -> &Cancel {
        self.cancel
    }

    /// Bytes moved so far.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// So many more bytes have moved. An error: the job is to stop.
    pub(crate) fn moved(&mut self, bytes: usize) -> Result<(), SortError> {
        self.done_bytes += bytes as u64;
        let elapsed = self.since.elapsed();
        if elapsed - self.told >= INTERVAL {
            self.told = elapsed;
            self.observer.progress(&self.progress(elapsed.as_secs_f64()));
        }
        self.cancel.check()
    }

    fn progress(&self, seconds: f64) -> Progress {
        let rate = self.done_bytes as f64 / seconds;
        let left = self.total_bytes.map(|total| total.saturating_sub(self.done_bytes));
        Progress {
            phase: self.phase.to_owned(),
            done_bytes: self.done_bytes,
            total_bytes: self.total_bytes,
            rate_bytes_per_s: rate,
            seconds_left: left.filter(|_| rate > 0.0).map(|left| left as f64 / rate),
            fraction: self.total_bytes.map(|total| (self.done_bytes as f64 / total.max(1) as f64).min(1.0)),
            ..Progress::default()
        }
    }
}
