//! Telling how a job goes: how much of what the plan moves has been moved, and what that means for
//! the time left.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ascot_io::{Ledger, threads};
use ascot_model::plan::{PassPlan, Plan};

use crate::api::error::SortError;
use crate::api::observe::{Observer, Progress};

/// Time between two tellings.
const INTERVAL: Duration = Duration::from_millis(200);

/// Runs `work` while a thread tells `observer` how it goes. A job that goes on after a kill moved
/// `moved_before` bytes before.
pub fn with_progress<T>(
    plan: &Plan,
    ledger: &Ledger,
    moved_before: u64,
    observer: &dyn Observer,
    work: impl FnOnce() -> Result<T, SortError>,
) -> Result<T, SortError> {
    threads::scope(|scope| {
        let (done, wait) = channel::<()>();
        let tell = move || {
            let mut teller = Teller::new(plan, ledger, moved_before);
            while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(INTERVAL) {
                observer.progress(&teller.tell());
            }
        };
        // A job that nobody is told of goes on all the same.
        let _teller = scope.spawn("progress", tell);
        let result = work();
        drop(done);
        result
    })
}

struct Teller<'a> {
    plan: &'a Plan,
    ledger: &'a Ledger,
    moved_before: u64,
    last: (Instant, u64, u64, Duration),
    rate: f64,
    clock: PassClock,
}

impl<'a> Teller<'a> {
    fn new(plan: &'a Plan, ledger: &'a Ledger, moved_before: u64) -> Self {
        let now = Instant::now();
        let (pass, share) = place(&plan.chosen.passes, moved_before);
        let clock = PassClock { pass, since: now, from: share, slower: 1.0, weight: 0.0 };
        Teller { plan, ledger, moved_before, last: (now, 0, 0, cpu_time()), rate: 0.0, clock }
    }

    fn tell(&mut self) -> Progress {
        let totals = self.ledger.totals();
        let moved = self.moved_before + totals.read_bytes + totals.written_bytes;
        let passes = &self.plan.chosen.passes;
        let (at, share) = place(passes, moved);
        let left = self.clock.seconds_left(passes, at, share, Instant::now());
        let bound_by = self.bound_by(totals.read_bytes, totals.written_bytes);
        let pass = &passes[at];
        let bytes = pass.read_bytes.max(pass.written_bytes);
        let known = self.plan.input_bytes.is_some();
        let number =
            if passes.len() > 1 { format!("pass {} of {}", at + 1, passes.len()) } else { String::new() };
        Progress {
            phase: if known { pass.name.clone() } else { "sort".into() },
            done_bytes: if known { (share * bytes as f64) as u64 } else { totals.read_bytes },
            total_bytes: known.then_some(bytes),
            rate_bytes_per_s: self.rate,
            detail: if known { number } else { String::new() },
            bound_by,
            seconds_left: left.filter(|_| known),
            fraction: known.then(|| fraction(passes, at, share)),
        }
    }

    /// What bound the last interval; updates the rate.
    fn bound_by(&mut self, read: u64, written: u64) -> String {
        let (then, read_then, written_then, cpu_then) = self.last;
        let seconds = then.elapsed().as_secs_f64().max(1e-3);
        let cpu = cpu_time();
        let busy = cpu.saturating_sub(cpu_then).as_secs_f64() / (seconds * self.plan.threads as f64);
        let (read_rate, write_rate) =
            ((read - read_then) as f64 / seconds, (written - written_then) as f64 / seconds);
        self.rate = 0.7 * self.rate + 0.3 * read_rate.max(write_rate);
        self.last = (Instant::now(), read, written, cpu);
        if busy > 0.85 {
            "computing binds".into()
        } else if read_rate > 4.0 * write_rate {
            "reading binds".into()
        } else if write_rate > 4.0 * read_rate {
            "writing binds".into()
        } else if read_rate + write_rate < 1e6 {
            "waiting".into()
        } else {
            "reading and writing bind".into()
        }
    }
}

/// Tells the time left from what has been measured, as far as that goes: the pass at hand goes on as
/// it went, and those to come are as much slower than predicted as those before were.
struct PassClock {
    pass: usize,
    since: Instant,
    /// Share of the pass that was done when the clock started.
    from: f64,
    /// Measured over predicted time, of the passes done.
    slower: f64,
    /// Predicted seconds of those.
    weight: f64,
}

impl PassClock {
    /// Share of a pass from which on its own speed tells all.
    const SURE_SHARE: f64 = 0.25;

    fn seconds_left(&mut self, passes: &[PassPlan], at: usize, share: f64, now: Instant) -> Option<f64> {
        if at != self.pass {
            self.pass_done(passes, now);
            (self.pass, self.since, self.from) = (at, now, 0.0);
        }
        let predicted = passes.get(at)?.seconds();
        let (done, elapsed) = (share - self.from, (now - self.since).as_secs_f64());
        if self.weight == 0.0 && done < 0.02 {
            return None;
        }
        let sure = (done / Self::SURE_SHARE).clamp(0.0, 1.0);
        let own = if done > 0.0 { elapsed / done } else { 0.0 };
        let expected = predicted * self.slower;
        let whole = if self.weight == 0.0 { own } else { sure * own + (1.0 - sure) * expected };
        // The pass at hand tells of those to come too.
        let known = self.weight + predicted * done;
        let slower = (self.slower * self.weight + elapsed) / known.max(1e-9);
        let later: f64 = passes[at + 1..].iter().map(PassPlan::seconds).sum();
        Some((whole * (1.0 - share)).max(0.0) + later * slower)
    }

    fn pass_done(&mut self, passes: &[PassPlan], now: Instant) {
        let predicted = passes.get(self.pass).map_or(0.0, PassPlan::seconds) * (1.0 - self.from);
        let weight = self.weight + predicted;
        let measured = self.slower * self.weight + (now - self.since).as_secs_f64();
        (self.slower, self.weight) = (measured / weight.max(1e-9), weight);
    }
}

fn work_of(pass: &PassPlan) -> u64 {
    pass.read_bytes + pass.written_bytes
}

/// The pass that the job is in after moving so many bytes, and how much of it is done.
fn place(passes: &[PassPlan], moved: u64) -> (usize, f64) {
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

/// Share of the whole job's predicted time that is done.
fn fraction(passes: &[PassPlan], at: usize, share: f64) -> f64 {
    let total: f64 = passes.iter().map(PassPlan::seconds).sum();
    let before: f64 = passes[..at].iter().map(PassPlan::seconds).sum();
    let now = passes.get(at).map_or(0.0, |pass| pass.seconds() * share);
    ((before + now) / total.max(1e-9)).min(1.0)
}

/// Processor time of this process, all threads.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } != 0 {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_model::host::{HostProfile, KernelRates, RecordClass};
    use ascot_model::plan::Moved;
    use ascot_model::volume::VolumeProfile;

    /// Two passes, predicted to take equally long.
    fn passes() -> Vec<PassPlan> {
        let host = HostProfile {
            threads: 2,
            rates: KernelRates::assumed(RecordClass::Fixed, 100.0),
            fresh_bytes_per_s: None,
        };
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
        let near = |told: Option<f64>, wanted: f64| {
            let told = told.expect("known by now");
            assert!((told - wanted).abs() < 0.01 * wanted.max(1.0), "{told} for {wanted}");
        };
        assert!(left(0, 0.01, 1.0).is_none(), "too early to tell");
        // Both passes take a hundred seconds, however long they were thought to.
        near(left(0, 0.5, 50.0), 150.0);
        near(left(0, 0.9, 90.0), 110.0);
        near(left(1, 0.0, 100.0), 100.0);
        near(left(1, 0.5, 150.0), 50.0);
        // The second turns out to be slower.
        near(left(1, 0.75, 400.0), 100.0);
    }

    #[test]
    fn a_job_that_goes_on_starts_where_it_was() {
        let (passes, start) = (passes(), Instant::now());
        let mut clock = PassClock { pass: 0, since: start, from: 0.5, slower: 1.0, weight: 0.0 };
        let told = clock.seconds_left(&passes, 0, 0.75, start + Duration::from_secs(25));
        assert!(told.is_some_and(|told| (told - 125.0).abs() < 1.0), "{told:?}");
    }
}
