//! Progress of a job: the share of the planned bytes moved so far, and the time left. `Watch` does this for a
//! job of one pass.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ascot_io::clocks::{Clocks, State, Times, in_state};
use ascot_io::{Ledger, threads};
use ascot_model::account::StreamAccount;
use ascot_model::plan::{PassPlan, Plan};
use ascot_model::stages::{self, StageAccount, TimeSpent, bottleneck};

use crate::api::{Cancel, Observer, Progress, Result};
use crate::report::account::{JobClocks, processors, stages_of};

/// Time between two progress reports.
const INTERVAL: Duration = Duration::from_millis(200);

/// Runs `work` while a thread reports its progress to `observer`. A resumed job moved `moved_before` bytes before it
/// was killed.
pub fn with_progress<T>(
    plan: &Plan,
    ledger: &Ledger,
    moved_before: u64,
    observer: &dyn Observer,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    // The thread that reports must be one of the job's.
    let JobClocks { clocks, entered: _entered } = JobClocks::of_thread();
    threads::scope(|scope| {
        let (done, wait) = channel::<()>();
        let report = move || {
            let mut meter = ProgressMeter::new(plan, ledger, clocks, moved_before);
            let next = || {
                let _waiting = in_state(State::Input);
                wait.recv_timeout(INTERVAL)
            };
            while let Err(RecvTimeoutError::Timeout) = next() {
                observer.progress(&meter.progress());
            }
        };
        // Without a thread for it, the job runs without progress reports.
        let _reporter = scope.spawn(stages::PROGRESS, report);
        let result = work();
        drop(done);
        result
    })
}

struct ProgressMeter<'a> {
    plan: &'a Plan,
    ledger: &'a Ledger,
    clocks: Clocks,
    moved_before: u64,
    latest: Sample,
    rate: f64,
    clock: PassClock,
}

/// Measurements at one moment.
struct Sample {
    at: Instant,
    read_bytes: u64,
    written_bytes: u64,
    /// The time of the stages, from the start of the job.
    stages: Vec<StageAccount>,
    /// The time of the devices.
    device_seconds: f64,
}

impl<'a> ProgressMeter<'a> {
    fn new(plan: &'a Plan, ledger: &'a Ledger, clocks: Clocks, moved_before: u64) -> Self {
        let now = Instant::now();
        let (pass, share) = pass_after(&plan.chosen.passes, moved_before);
        let clock = PassClock { pass, since: now, from: share, slower: 1.0, weight: 0.0 };
        let latest =
            Sample { at: now, read_bytes: 0, written_bytes: 0, stages: Vec::new(), device_seconds: 0.0 };
        ProgressMeter { plan, ledger, clocks, moved_before, latest, rate: 0.0, clock }
    }

    fn progress(&mut self) -> Progress {
        let totals = self.ledger.totals();
        let moved = self.moved_before + totals.read_bytes + totals.written_bytes;
        let passes = &self.plan.chosen.passes;
        let (at, share) = pass_after(passes, moved);
        let left = self.clock.seconds_left(passes, at, share, Instant::now());
        let bound_by = self.bound_by(totals.read_bytes, totals.written_bytes);
        let pass = &passes[at];
        let bytes = pass.read_bytes.max(pass.written_bytes);
        let known = self.plan.input_bytes.is_some();
        let number =
            if passes.len() > 1 { format!("pass {} of {}", at + 1, passes.len()) } else { String::new() };
        Progress {
            phase: if known || passes.len() == 1 { pass.name.clone() } else { "sort".into() },
            done_bytes: if known { (share * bytes as f64) as u64 } else { totals.read_bytes },
            total_bytes: known.then_some(bytes),
            rate_bytes_per_s: self.rate,
            detail: if known { number } else { String::new() },
            bound_by,
            seconds_left: left.filter(|_| known),
            fraction: known.then(|| fraction(passes, at, share)),
        }
    }

    /// The bottleneck of the job in the latest interval; updates the rate.
    fn bound_by(&mut self, read_bytes: u64, written_bytes: u64) -> String {
        let Times { until, threads, device } = self.clocks.so_far();
        let now = Sample {
            at: until,
            read_bytes,
            written_bytes,
            stages: stages_of(threads, &StreamAccount::default()),
            device_seconds: device.as_secs_f64(),
        };
        let before = std::mem::replace(&mut self.latest, now);
        let seconds = (self.latest.at - before.at).as_secs_f64().max(1e-3);
        let read_rate = (read_bytes - before.read_bytes) as f64 / seconds;
        let write_rate = (written_bytes - before.written_bytes) as f64 / seconds;
        self.rate = 0.7 * self.rate + 0.3 * read_rate.max(write_rate);
        let since = |stage: &StageAccount| {
            let known = before.stages.iter().find(|known| known.name == stage.name);
            stage.since(&known.map_or(TimeSpent::default(), |known| known.time))
        };
        let stages: Vec<StageAccount> = self.latest.stages.iter().map(since).collect();
        let device_seconds = self.latest.device_seconds - before.device_seconds;
        let bound_by = bottleneck(&stages, seconds, device_seconds, processors());
        if bound_by.is_empty() { "waiting".into() } else { format!("{bound_by} binds") }
    }
}

/// Estimates the time left. The current pass is assumed to continue at its measured speed, and later passes to be as
/// much slower than predicted as the passes so far.
struct PassClock {
    pass: usize,
    since: Instant,
    /// Fraction of the pass that was done when the clock started.
    from: f64,
    /// Measured time divided by predicted time, of the passes done.
    slower: f64,
    /// Predicted seconds of the passes done.
    weight: f64,
}

impl PassClock {
    /// Fraction of a pass after which only its measured speed counts.
    const SURE_SHARE: f64 = 0.25;

    fn seconds_left(&mut self, passes: &[PassPlan], at: usize, share: f64, now: Instant) -> Option<f64> {
        if at != self.pass {
            self.pass_done(passes, now);
            self.pass = at;
            self.since = now;
            self.from = 0.0;
        }
        let predicted = passes.get(at)?.seconds();
        let done = share - self.from;
        let elapsed = (now - self.since).as_secs_f64();
        if self.weight == 0.0 && done < 0.02 {
            return None;
        }
        let sure = (done / Self::SURE_SHARE).clamp(0.0, 1.0);
        let own = if done > 0.0 { elapsed / done } else { 0.0 };
        let expected = predicted * self.slower;
        let whole = if self.weight == 0.0 { own } else { sure * own + (1.0 - sure) * expected };
        // The speed of the current pass counts for later ones too.
        let known = self.weight + predicted * done;
        let slower = (self.slower * self.weight + elapsed) / known.max(1e-9);
        let later: f64 = passes[at + 1..].iter().map(PassPlan::seconds).sum();
        Some((whole * (1.0 - share)).max(0.0) + later * slower)
    }

    fn pass_done(&mut self, passes: &[PassPlan], now: Instant) {
        let predicted = passes.get(self.pass).map_or(0.0, PassPlan::seconds) * (1.0 - self.from);
        let weight = self.weight + predicted;
        let measured = self.slower * self.weight + (now - self.since).as_secs_f64();
        self.slower = measured / weight.max(1e-9);
        self.weight = weight;
    }
}

fn work_of(pass: &PassPlan) -> u64 {
    pass.read_bytes + pass.written_bytes
}

/// The pass of a job that has moved `moved` bytes, and the fraction of it that is done.
fn pass_after(passes: &[PassPlan], moved: u64) -> (usize, f64) {
    let mut left = moved;
    for (number, pass) in passes.iter().enumerate() {
        let work = work_of(pass);
        if left < work || number + 1 == passes.len() {
            return (number, (left as f64 / work.max(1) as f64).min(1.0));
        }
        left -= work;
    }
    (0, 0.0)
}

/// Fraction of the predicted time of the whole job that is done.
fn fraction(passes: &[PassPlan], at: usize, share: f64) -> f64 {
    let total: f64 = passes.iter().map(PassPlan::seconds).sum();
    let before: f64 = passes[..at].iter().map(PassPlan::seconds).sum();
    let now = passes.get(at).map_or(0.0, |pass| pass.seconds() * share);
    ((before + now) / total.max(1e-9)).min(1.0)
}

/// Time between two progress reports of a job of one pass.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Counts the bytes of a pass, reports its progress and checks whether it is cancelled.
pub(crate) struct Watch<'a> {
    observer: &'a dyn Observer,
    cancel: &'a Cancel,
    phase: &'static str,
    total_bytes: Option<u64>,
    done_bytes: u64,
    since: Instant,
    /// Time of the latest report.
    reported: Duration,
}

impl<'a> Watch<'a> {
    /// A pass that begins now and moves `total_bytes`, if that is known.
    pub(crate) fn new(
        observer: &'a dyn Observer,
        cancel: &'a Cancel,
        phase: &'static str,
        total_bytes: Option<u64>,
    ) -> Self {
        Watch {
            observer,
            cancel,
            phase,
            total_bytes,
            done_bytes: 0,
            since: Instant::now(),
            reported: Duration::ZERO,
        }
    }

    /// The flag that stops the job.
    pub(crate) fn cancel(&self) -> &Cancel {
        self.cancel
    }

    /// Bytes moved so far.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// Counts `bytes` more. An error if the job is cancelled.
    pub(crate) fn moved(&mut self, bytes: usize) -> Result<()> {
        self.done_bytes += bytes as u64;
        let elapsed = self.since.elapsed();
        if elapsed - self.reported >= WATCH_INTERVAL {
            self.reported = elapsed;
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

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_model::host::{HostProfile, RecordClass, RecordKind};
    use ascot_model::plan::Moved;
    use ascot_model::volume::VolumeProfile;

    /// Two passes, predicted to take equally long.
    fn passes() -> Vec<PassPlan> {
        let host = HostProfile::assumed(2, RecordKind { class: RecordClass::Fixed, bytes: 100.0, keys: 1 });
        let moved = Moved { read_bytes: 1 << 30, written_bytes: 1 << 30, switches: 1, ..Moved::default() };
        let pass = |name: &str| PassPlan::new(name, moved, &[], &VolumeProfile::assumed_flash(), &host);
        vec![pass("one"), pass("two")]
    }

    #[test]
    fn time_left_follows_what_is_measured() {
        let (passes, start) = (passes(), Instant::now());
        let mut clock = PassClock { pass: 0, since: start, from: 0.0, slower: 1.0, weight: 0.0 };
        let mut left = |at, share, second| {
            clock.seconds_left(&passes, at, share, start + Duration::from_secs_f64(second))
        };
        let near = |estimate: Option<f64>, wanted: f64| {
            let estimate = estimate.expect("known by now");
            assert!((estimate - wanted).abs() < 0.01 * wanted.max(1.0), "{estimate} for {wanted}");
        };
        assert!(left(0, 0.01, 1.0).is_none(), "too early to estimate");
        // Both passes take a hundred seconds, whatever the prediction.
        near(left(0, 0.5, 50.0), 150.0);
        near(left(0, 0.9, 90.0), 110.0);
        near(left(1, 0.0, 100.0), 100.0);
        near(left(1, 0.5, 150.0), 50.0);
        // The second turns out to be slower.
        near(left(1, 0.75, 400.0), 100.0);
    }

    #[test]
    fn a_resumed_job_starts_where_it_was() {
        let (passes, start) = (passes(), Instant::now());
        let mut clock = PassClock { pass: 0, since: start, from: 0.5, slower: 1.0, weight: 0.0 };
        let left = clock.seconds_left(&passes, 0, 0.75, start + Duration::from_secs(25));
        assert!(left.is_some_and(|left| (left - 125.0).abs() < 1.0), "{left:?}");
    }
}
