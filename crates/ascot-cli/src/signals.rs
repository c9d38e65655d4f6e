//! SIGINT, SIGTERM and SIGHUP ask the job to stop; it removes its files, then the process ends by
//! the very signal, so that a shell sees what happened (status 130, 143, 129). A second signal ends
//! it at once. Signals that were ignored at the start (`nohup`, background jobs) stay ignored.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::sys;

/// Remembers which signal asked to stop.
#[derive(Clone, Default)]
pub struct Stop {
    signal: Arc<AtomicI32>,
}

impl Stop {
    /// Watches for signals from now on; `cancel` is called at the first. Where watching fails,
    /// signals end the process as they always did.
    pub fn watch(cancel: impl Fn() + Send + 'static) -> Stop {
        let stop = Stop::default();
        let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !sys::is_ignored(*signal));
        let seen = Arc::clone(&stop.signal);
        if let Ok(mut signals) = Signals::new(wanted) {
            let work = move || {
                for signal in signals.forever() {
                    if seen.swap(signal, Ordering::SeqCst) != 0 {
                        end_by(signal);
                    }
                    cancel();
                }
            };
            // Without the thread, handlers would swallow signals; it fails only where nothing works.
            if let Err(error) = std::thread::Builder::new().name("signals".into()).spawn(work) {
                eprintln!("ascot: cannot watch for signals: {error}");
            }
        }
        stop
    }

    /// Ends the process by the signal that asked to stop, if one did.
    pub fn end_if_asked(&self) {
        let signal = self.signal.load(Ordering::SeqCst);
        if signal != 0 {
            end_by(signal);
        }
    }
}

/// Ends the process as a reader who left ends most commands: by SIGPIPE, without a word.
pub fn end_by_broken_pipe() -> ! {
    end_by(SIGPIPE)
}

fn end_by(signal: i32) -> ! {
    let _ = emulate_default_handler(signal);
    std::process::exit(128 + signal)
}
