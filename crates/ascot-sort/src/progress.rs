//! Telling how a job goes: how much of what the plan moves has been moved, and what that means for
//! the time left.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ascot_io::Ledger;
use ascot_model::plan::{PassPlan, Plan};

use crate::observe::{Observer, Progress};

/// Time between two tellings.
const INTERVAL: Duration = Duration::from_millis(200);

/// Runs `work` while a thread tells `observer` how it goes.
pub fn with_progress<T>(
    plan: &Plan,
    ledger: &Ledger,
    observer: &dyn Observer,
    work: impl FnOnce() -> T,
) -> T {
    std::thread::scope(|scope| {
        let (done, wait) = channel::<()>();
        scope.spawn(move || {
            let mut teller = Teller::new(plan, ledger);
            while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(INTERVAL) {
                observer.progress(&teller.tell());
            }
        });
        let result = work();
        drop(done);
        result
    })
}

struct Teller<'a> {
    plan: &'a Plan,
    ledger: &'a Ledger,
    started: Instant,
    last: (Instant, u64, u64, Duration),
    rate: f64,
    pass: usize,
    pass_started: Instant,
}

impl<'a> Teller<'a> {
    fn new(plan: &'a Plan, ledger: &'a Ledger) -> Self {
        let now = Instant::now();
        Teller {
            plan,
            ledger,
            started: now,
            last: (now, 0, 0, cpu_time()),
            rate: 0.0,
            pass: 0,
            pass_started: now,
        }
    }

    fn tell(&mut self) -> Progress {
        let totals = self.ledger.totals();
        let moved = totals.read_bytes + totals.written_bytes;
        let (at, share) = place(&self.plan.chosen.passes, moved);
        if at != self.pass {
            (self.pass, self.pass_started) = (at, Instant::now());
        }
        let bound_by = self.bound_by(totals.read_bytes, totals.written_bytes);
        let pass = &self.plan.chosen.passes[at];
        let bytes = pass.read_bytes.max(pass.written_bytes);
        let known = self.plan.input_bytes.is_some();
        let fraction = known.then(|| fraction(&self.plan.chosen.passes, at, share));
        let elapsed = self.started.elapsed().as_secs_f64();
        Progress {
            phase: pass.name.clone(),
            done_bytes: if known { (share * bytes as f64) as u64 } else { totals.read_bytes },
            total_bytes: known.then_some(bytes),
            rate_bytes_per_s: self.rate,
            detail: String::new(),
            bound_by,
            seconds_left: fraction.filter(|&done| done > 0.02).map(|done| elapsed * (1.0 - done) / done),
            fraction,
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
