//! Samples the use of resources while a job runs: one thread reads the counters of the kernel at an interval.
//!
//! ```text
//!   counters   the files below /proc as numbers
//!   sources    the quantities that this system shows, and their values at a moment
//! ```
//!
//! Sampling never fails a job: without a file, or without a thread, there are fewer samples, and a notice. The thread
//! ends with the [`Monitor`]. The samples take at most 1 MiB ([`Series`]), a part of the memory that a job's program
//! may take beside `--memory`.

mod counters;
mod sources;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ascot_io::threads::{self, Thread};
use ascot_io::waits::{Need, wait_for};
use ascot_io::{ThreadError, Unpoisoned, processor_time};
use ascot_model::resource_use::{ResourceUse, Series};

use sources::{Reading, Sources};

/// Shortest and longest time between two samples, seconds.
pub const INTERVAL_RANGE: (f64, f64) = (0.05, 3600.0);

/// Samples until it is dropped.
pub struct Monitor {
    sampler: Arc<Mutex<Sampler>>,
    /// Ends the thread when it is dropped.
    stop: Option<Sender<()>>,
    thread: Option<Thread<()>>,
}

impl Monitor {
    /// Starts to sample the system whose `proc` is below `root`, at this interval. The job begins now, unless
    /// [`began`](Self::began) says otherwise.
    pub fn start(root: &Path, interval: Duration) -> Monitor {
        let sampler = Arc::new(Mutex::new(Sampler::new(root, interval)));
        let (stop, stopped) = channel();
        let of_thread = Arc::clone(&sampler);
        let started = threads::spawn("monitor", move || sample_until(&of_thread, &stopped));
        let thread = started.map_err(|error| sampler.lock().unpoisoned().without_thread(&error)).ok();
        Monitor { sampler, stop: Some(stop), thread }
    }

    /// The job began at `at`, which is now or a moment ago: earlier samples are dropped, and times count from it.
    pub fn began(&self, at: Instant) {
        self.sampler.lock().unpoisoned().begin(at);
    }

    /// Takes the last sample, unless it was taken before, and returns all of them.
    pub fn finish(&self) -> ResourceUse {
        self.sampler.lock().unpoisoned().finish()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that died has no samples to lose: they belong to the sampler.
            let _ = thread.join();
        }
    }
}

/// Samples whenever the time has come, until `stopped` has no sender.
fn sample_until(sampler: &Mutex<Sampler>, stopped: &Receiver<()>) {
    // One wait from start to end: a sample moves nothing that another thread waits for.
    let _waiting = wait_for("the time of the next sample", Need::WORK, None);
    loop {
        let next = sampler.lock().unpoisoned().next;
        let pause = next.saturating_duration_since(Instant::now());
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        sampler.lock().unpoisoned().sample_if_due();
    }
}

/// The samples so far.
///
/// Every sample lasts at least half an interval, unless the job itself is shorter: the counters of a moment could show
/// any rate. So the latest sample is held back until the next one is due, and the end of the job may lengthen it.
struct Sampler {
    sources: Sources,
    series: Series,
    interval: Duration,
    began: Instant,
    /// The end of the latest sample in the series.
    latest: Reading,
    /// The end of the sample after it, unless the job ends soon.
    pending: Option<Reading>,
    /// The time of the next sample.
    next: Instant,
    ended: bool,
    processor: Duration,
    notices: Vec<String>,
}

impl Sampler {
    fn new(root: &Path, interval: Duration) -> Sampler {
        let mut sources = Sources::find(root);
        let latest = sources.read();
        let began = latest.at;
        Sampler {
            series: Series::new(sources.quantities()),
            notices: sources.notices().to_vec(),
            sources,
            interval,
            began,
            latest,
            pending: None,
            next: began + interval,
            ended: false,
            processor: Duration::ZERO,
        }
    }

    fn begin(&mut self, at: Instant) {
        self.series = Series::new(self.sources.quantities());
        self.latest = Reading { at, ..self.sources.read() };
        self.pending = None;
        self.processor = Duration::ZERO;
        self.began = at;
        self.next = at + self.interval;
    }

    fn sample_if_due(&mut self) {
        if !self.ended && self.next <= Instant::now() {
            self.sample();
        }
    }

    /// Ends a sample now. Missed ones are not made up for.
    fn sample(&mut self) {
        let since = processor_time::of_thread();
        let now = self.sources.read();
        let late = now.at.saturating_duration_since(self.next);
        let missed = u32::try_from(late.as_nanos() / self.interval.as_nanos().max(1)).unwrap_or(u32::MAX);
        self.next += self.interval.saturating_mul(missed.saturating_add(1));
        if self.next.saturating_duration_since(now.at) < self.interval / 2 {
            self.next += self.interval;
        }
        if let Some(before) = self.pending.replace(now) {
            self.add(before);
        }
        self.processor += processor_time::of_thread().saturating_sub(since);
    }

    /// Adds the sample that ends with this reading.
    fn add(&mut self, end: Reading) {
        let values = self.sources.between(&self.latest, &end);
        self.series.add(end.at.saturating_duration_since(self.began).as_secs_f64(), &values);
        self.latest = end;
    }

    fn finish(&mut self) -> ResourceUse {
        if !self.ended {
            self.ended = true;
            let now = self.sources.read();
            let long_before = |end: &Reading| now.at.saturating_duration_since(end.at) >= self.interval / 2;
            if let Some(end) = self.pending.take().filter(long_before) {
                self.add(end);
            }
            self.add(now);
        }
        ResourceUse {
            processor_seconds: self.processor.as_secs_f64(),
            notices: self.notices.clone(),
            ..self.series.result(self.interval.as_secs_f64())
        }
    }

    fn without_thread(&mut self, error: &ThreadError) {
        let reason = error.to_string();
        let reason = reason.lines().next().unwrap_or_default();
        self.notices.push(format!("one sample of the whole job: {reason}"));
    }
}

#[cfg(test)]
mod tests;
