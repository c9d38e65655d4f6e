//! Runs a job while the interpreter is released.
//!
//! The job has a thread of its own. The calling thread waits for its end; every 50 ms it attaches to the interpreter,
//! runs the handlers of signals that came, and reports progress. If a handler or the callback raises an exception
//! (Ctrl-C raises `KeyboardInterrupt`), the job is cancelled and removes its files, and then the exception is raised.
//!
//! Work that only reads or computes, such as a plan, ends by itself after an interruption, without a waiting thread.
//!
//! Jobs that still run when the interpreter ends, in threads without a waiting caller, are cancelled and remove their
//! files.
//!
//! A process that is forked while a job runs has the job's locks, but not its threads. It is refused further jobs.

use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ascot_io::{Unpoisoned, threads};
use ascot_sort::{Cancel, Observer, Progress, SortError};
use pyo3::prelude::*;

use crate::errors::{Failure, Result};

/// The time between two looks at signals.
pub const PAUSE: Duration = Duration::from_millis(50);

/// The result of a job, and its warnings.
pub struct Finished<T> {
    /// The result.
    pub result: T,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Runs `work` on a thread of its own. `progress` is called with the fields of [`Progress`], in their order.
///
/// # Errors
/// The failure of the work, or the exception that stopped it.
pub fn run<T: Send, E: Into<Failure>>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&dyn Observer, &Cancel) -> Result<T, E> + Send,
) -> PyResult<Finished<T>> {
    let _running = Running::begin()?;
    let cancel = Cancel::new();
    let unfinished = Unfinished::begin(&cancel);
    let watch = Watch::default();
    let mut interruption: Option<PyErr> = None;
    let done = py.detach(|| {
        threads::scope(|scope| {
            let worker = scope.spawn("job", || {
                let _end = End(&watch);
                let _unfinished = unfinished;
                work(&watch, &cancel).map_err(Into::into)
            })?;
            while !watch.wait() {
                if interruption.is_none()
                    && let Err(error) = Python::attach(|py| report_progress(py, watch.news(), progress))
                {
                    cancel.cancel();
                    interruption = Some(error);
                }
            }
            worker.join()?
        })
    });
    if let Some(error) = interruption {
        return Err(error);
    }
    let result = done?;
    let warnings = std::mem::take(&mut watch.state().warnings);
    Ok(Finished { result, warnings })
}

/// Runs `work`, which writes nothing, on a thread of its own. An interruption leaves the thread to end by itself.
///
/// # Errors
/// The failure of the work, or the exception that interrupted it.
pub fn run_aside<T: Send + 'static, E: Into<Failure>>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> PyResult<T> {
    run_aside_until(py, "plan", work, || ())
}

/// As [`run_aside`], on a thread of this name; an interruption calls `interrupted`, after which the work ends soon.
///
/// # Errors
/// Those of [`run_aside`].
pub fn run_aside_until<T: Send + 'static, E: Into<Failure>>(
    py: Python<'_>,
    name: &'static str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
    interrupted: impl FnOnce(),
) -> PyResult<T> {
    let running = Running::begin()?;
    let (send, receive) = sync_channel(1);
    threads::spawn(name, move || {
        let _running = running;
        // The result of interrupted work has no receiver.
        let _ = send.send(work().map_err(Into::into));
    })
    .map_err(Failure::from)?;
    let receive = Mutex::new(receive);
    loop {
        match py.detach(|| receive.lock().unpoisoned().recv_timeout(PAUSE)) {
            Ok(result) => return Ok(result?),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = py.check_signals() {
                    interrupted();
                    return Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Sort(SortError::Internal("the thread of a plan has died")).into());
            }
        }
    }
}

/// The process that runs jobs, and their number.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static JOBS: AtomicUsize = AtomicUsize::new(0);

/// Counts a job while it runs.
pub struct Running;

impl Running {
    /// Fails in a process that was forked from one that ran jobs at that moment.
    pub fn begin() -> Result<Running> {
        let own = process::id();
        let before = PROCESS.load(SeqCst);
        if before != own && before != 0 && JOBS.load(SeqCst) > 0 {
            return Err(Failure::Request(
                "this process was forked while a job ran, and cannot run jobs\n  start processes by \
                 multiprocessing.get_context('spawn'), or before the job"
                    .into(),
            ));
        }
        JOBS.fetch_add(1, SeqCst);
        PROCESS.store(own, SeqCst);
        Ok(Running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        JOBS.fetch_sub(1, SeqCst);
    }
}

/// The jobs that run, and their process.
static UNFINISHED: Mutex<(u32, BTreeMap<u64, Cancel>)> = Mutex::new((0, BTreeMap::new()));
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The most time that the end of the interpreter waits for jobs.
const END_WAIT: Duration = Duration::from_secs(5);
/// The most time that it then waits for the threads that called them.
const CALLERS_WAIT: Duration = Duration::from_secs(1);
/// The time between two looks at whether they have ended.
const END_PAUSE: Duration = Duration::from_millis(5);

/// Notes a job until its thread has ended.
pub struct Unfinished(u64);

impl Unfinished {
    /// The job that `cancel` stops.
    pub fn begin(cancel: &Cancel) -> Unfinished {
        let number = NEXT.fetch_add(1, SeqCst);
        let mut jobs = UNFINISHED.lock().unpoisoned();
        if jobs.0 != process::id() {
            // Those of the process from which this one was forked.
            *jobs = (process::id(), BTreeMap::new());
        }
        jobs.1.insert(number, cancel.clone());
        Unfinished(number)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        UNFINISHED.lock().unpoisoned().1.remove(&self.0);
    }
}

/// Cancels all jobs, waits until they have removed their files, at most 5 seconds, and a moment longer for the threads
/// that called them: the system ends a thread that meets the end of the interpreter inside of this module, and the
/// process with it. The interpreter calls this when it ends.
#[pyfunction]
pub fn stop_all(py: Python<'_>) {
    let count_unfinished = || {
        // In a forked process a thread that does not exist may hold the lock.
        let Ok(jobs) = UNFINISHED.try_lock() else { return usize::MAX };
        if jobs.0 != process::id() {
            return 0;
        }
        jobs.1.values().for_each(Cancel::cancel);
        jobs.1.len()
    };
    let wait_while = |most: Duration, is_so: &dyn Fn() -> bool| {
        let until = Instant::now() + most;
        while is_so() && Instant::now() < until {
            std::thread::sleep(END_PAUSE);
        }
    };
    py.detach(|| {
        if count_unfinished() > 0 {
            wait_while(END_WAIT, &|| count_unfinished() > 0);
            wait_while(CALLERS_WAIT, &|| JOBS.load(SeqCst) > 0);
        }
    });
}

/// The process that opened something whose threads do not exist in a process forked from it.
pub struct Opener(u32);

impl Opener {
    /// This process.
    pub fn new() -> Opener {
        Opener(process::id())
    }

    /// Whether this process was forked from that one.
    pub fn is_forked(&self) -> bool {
        self.0 != process::id()
    }

    /// Fails in a process that was forked after `what` was opened.
    pub fn check(&self, what: &str) -> Result<()> {
        if !self.is_forked() {
            return Ok(());
        }
        Err(Failure::Request(format!(
            "the {what} was opened before this process was forked\n  open it in the process that uses it"
        )))
    }
}

/// Runs the handlers of signals, and reports progress if there is any news.
pub fn report_progress(py: Python<'_>, news: Option<Progress>, progress: Option<&Py<PyAny>>) -> PyResult<()> {
    py.check_signals()?;
    let (Some(callback), Some(news)) = (progress, news) else { return Ok(()) };
    let Progress {
        phase,
        done_bytes,
        total_bytes,
        rate_bytes_per_s,
        detail,
        bound_by,
        seconds_left,
        fraction,
    } = news;
    let values = (phase, done_bytes, total_bytes, rate_bytes_per_s, detail, bound_by, seconds_left, fraction);
    callback.call1(py, values).map(drop)
}

/// The news of a job, for the thread that waits for its end.
#[derive(Default)]
struct Watch {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    ended: bool,
    progress: Option<Progress>,
    warnings: Vec<String>,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Waits for the end of the job, or for a pause; returns whether the job has ended.
    fn wait(&self) -> bool {
        let waited = self.ended.wait_timeout_while(self.state(), PAUSE, |state| !state.ended);
        let (state, _) = waited.unpoisoned();
        state.ended
    }

    /// The latest progress, if it was not reported yet.
    fn news(&self) -> Option<Progress> {
        self.state().progress.take()
    }
}

impl Observer for Watch {
    fn progress(&self, progress: &Progress) {
        self.state().progress = Some(progress.clone());
    }

    fn warning(&self, text: &str) {
        self.state().warnings.push(text.to_owned());
    }
}

/// Reports the end of the job when it is dropped, also by a panic.
struct End<'w>(&'w Watch);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.ended.notify_all();
    }
}
