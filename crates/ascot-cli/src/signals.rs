//! SIGINT, SIGTERM and SIGHUP ask the job to stop; it removes its files, then the process ends by the same signal, so
//! that a shell sees the cause (status 130, 143, 129). A second signal ends it at once. Signals ignored at the start
//! (`nohup`, background jobs) stay ignored.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ascot_io::emergency;
use ascot_sort::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::emulate_default_handler;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::sys;

/// Runs a job that signals may stop. If one did, the process ends by that signal.
pub fn stoppable<R, E>(work: impl FnOnce(&Cancel) -> Result<R, E>) -> Result<R, E> {
    let cancel = Cancel::new();
    let stop = Stop::watch(&cancel);
    let done = work(&cancel);
    if done.is_err() && cancel.check().is_err() {
        stop.end_if_asked();
    }
    done
}

/// Runs work whose files are removed if a signal stops it. The process ends by that signal, wherever the work is.
pub fn removing_files<R>(work: impl FnOnce() -> R) -> R {
    const PAUSE: Duration = Duration::from_millis(20);
    let cancel = Cancel::new();
    let stop = Stop::watch(&cancel);
    let watch = move || {
        while cancel.check().is_ok() {
            thread::sleep(PAUSE);
        }
        emergency::claim_end();
        emergency::remove_all();
        stop.end_if_asked();
    };
    // Without a thread, signals wait until the work is done.
    drop(thread::Builder::new().name("signals".into()).spawn(watch));
    work()
}

/// Records the signal that asked the job to stop.
#[derive(Clone, Default)]
pub struct Stop {
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Watches for signals from now on; the first one cancels. If watching fails, signals end the process as by
    /// default. The handlers set flags and need no thread.
    pub fn watch(cancel: &Cancel) -> Stop {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !sys::is_ignored(*signal)) {
            // Handlers run in this order: the second signal sees the flag that the first has set.
            let number = usize::try_from(signal).unwrap_or_default();
            let watched = flag::register_conditional_default(signal, cancel.flag())
                .and_then(|_| flag::register_usize(signal, Arc::clone(&stop.signal), number))
                .and_then(|_| flag::register(signal, cancel.flag()));
            if let Err(error) = watched {
                eprintln!("ascot: cannot watch for signals: {error}");
            }
        }
        stop
    }

    /// Ends the process by the signal that asked to stop, if one did.
    pub fn end_if_asked(&self) {
        let signal = self.signal.load(Ordering::SeqCst);
        if signal > 0
            && let Ok(signal) = i32::try_from(signal)
        {
            end_by(signal);
        }
    }
}

/// Signals that a program gets which this process waits for. Those that a terminal sends reach it without help, so
/// they are only kept from ending this process.
pub struct PassedOn {
    came: Option<RefCell<SignalsInfo<WithOrigin>>>,
}

impl PassedOn {
    /// Watches from now on.
    pub fn watch() -> PassedOn {
        let watched = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
        let came = SignalsInfo::new(watched.into_iter().filter(|signal| !sys::is_ignored(*signal)));
        PassedOn { came: came.ok().map(RefCell::new) }
    }

    /// A signal to pass on, if one came.
    pub fn next(&self) -> Option<i32> {
        let mut came = self.came.as_ref()?.try_borrow_mut().ok()?;
        came.pending().find(|origin| !from_terminal(origin)).map(|origin| origin.signal)
    }
}

/// Whether a terminal sent a signal, to all processes in front of it: it comes from the kernel and not from a process.
fn from_terminal(origin: &Origin) -> bool {
    matches!(origin.signal, SIGINT | SIGQUIT) && matches!(origin.cause, Cause::Kernel)
}

/// Ends the process by a signal.
pub fn end_by(signal: i32) -> ! {
    let _ = emulate_default_handler(signal);
    std::process::exit(128 + signal)
}
