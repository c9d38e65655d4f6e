//! Starts all threads.
//!
//! The system may refuse a thread (limits of processes, of tasks in a control group, of address space). A start can
//! therefore fail, but never panics. A caller that can work with fewer threads continues, and [`notice`] reports it.
//!
//! A thread works for the job of the thread that starts it, and has a clock of that job ([`clocks`](crate::clocks)).
//!
//! Invariant: the caller that joins a panicked thread, or ends its scope, gets [`ThreadError::Died`]. The thread has
//! then released everything it held, so no thread waits for it forever.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder, JoinHandle, ScopedJoinHandle};

use crate::clocks::{Clocks, Entered};
use crate::error::Lack;
pub use crate::error::ThreadError;
use crate::memory::Mapping;
use crate::sync::Unpoisoned;
use crate::waits::{Need, register_thread, wait_for};

/// Whether threads were refused for lack of memory, and for lack of a process slot.
static REFUSED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

/// A notice that the system refused this process some threads, if it did.
pub fn notice() -> Option<String> {
    let met = |lack: &Lack| REFUSED[*lack as usize].load(Relaxed);
    // The advice for a missing process slot includes that for missing memory.
    let lack = [Lack::Processes, Lack::Memory].into_iter().find(met)?;
    Some(notice_of(lack))
}

fn notice_of(lack: Lack) -> String {
    let advice = lack.advice();
    format!(
        "the system started fewer threads than wanted; the job did without them\n  for full speed {advice}"
    )
}

fn refused(name: &str, source: io::Error) -> ThreadError {
    REFUSED[Lack::from_error(&source) as usize].store(true, Relaxed);
    ThreadError::Refused { name: name.into(), source: Arc::new(source) }
}

fn died(name: String) -> ThreadError {
    ThreadError::Died { name }
}

/// A thread that may outlive its caller.
#[derive(Debug)]
pub struct Thread<T> {
    name: String,
    handle: JoinHandle<T>,
}

/// Memory that a thread takes from the system at its start: its stack, and small areas that it requires.
const START_BYTES: usize = 3 << 20;

/// A thread about to start, if there is memory for it: a thread that lacked memory at its start would end the process
/// and leave its spill files.
fn begin(name: &str) -> io::Result<Builder> {
    let memory = Mapping::anonymous(START_BYTES)?;
    drop(memory);
    Ok(Builder::new().name(name.into()))
}

/// The start of a new thread: it is registered, and works for the job of the thread that calls this.
fn registered(name: &str) -> impl FnOnce() -> Option<Entered> + Send + 'static {
    let clocks = Clocks::of_thread().map(|clocks| (clocks, name.to_owned()));
    || {
        register_thread();
        clocks.map(|(clocks, name)| clocks.enter(&name))
    }
}

/// Starts a thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Thread<T>, ThreadError> {
    let register = registered(name);
    let registered = move || {
        let _entered = register();
        work()
    };
    let handle = begin(name).and_then(|builder| builder.spawn(registered));
    let handle = handle.map_err(|error| refused(name, error))?;
    Ok(Thread { name: name.into(), handle })
}

impl<T> Thread<T> {
    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits for the thread to end.
    pub fn join(self) -> Result<T, ThreadError> {
        let _waiting = wait_for("another thread to end", Need::DATA, None);
        self.handle.join().map_err(|_| died(self.name))
    }
}

/// Starts threads that end before [`scope`] returns.
pub struct Scope<'scope, 'env: 'scope> {
    inner: &'scope thread::Scope<'scope, 'env>,
    died: Arc<Mutex<Option<String>>>,
}

/// A thread of a scope.
pub struct ScopedThread<'scope, T> {
    name: String,
    handle: ScopedJoinHandle<'scope, Option<T>>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    pub fn spawn<T: Send + 'scope>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Result<ScopedThread<'scope, T>, ThreadError> {
        let died = Arc::clone(&self.died);
        let own_name = name.to_owned();
        let register = registered(name);
        let caught = move || {
            let _entered = register();
            let result = catch_unwind(AssertUnwindSafe(work)).ok();
            if result.is_none() {
                died.lock().unpoisoned().get_or_insert(own_name);
            }
            result
        };
        let handle = begin(name).and_then(|builder| builder.spawn_scoped(self.inner, caught));
        let handle = handle.map_err(|error| refused(name, error))?;
        Ok(ScopedThread { name: name.into(), handle })
    }
}

impl<T> ScopedThread<'_, T> {
    /// Waits for the thread to end.
    pub fn join(self) -> Result<T, ThreadError> {
        let _waiting = wait_for("another thread to end", Need::DATA, None);
        self.handle.join().ok().flatten().ok_or_else(|| died(self.name))
    }
}

/// Runs `work`, which may start threads that borrow, and waits for them to end. Fails if one of them died, whatever
/// `work` returns.
pub fn scope<'env, T, E: From<ThreadError>>(
    work: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> Result<T, E>,
) -> Result<T, E> {
    let dead = Arc::new(Mutex::new(None));
    let mut waiting = None;
    let result = thread::scope(|inner| {
        let result = work(&Scope { inner, died: Arc::clone(&dead) });
        waiting = Some(wait_for("the threads it started to end", Need::DATA, None));
        result
    });
    drop(waiting);
    match dead.lock().unpoisoned().take() {
        Some(name) => Err(died(name).into()),
        None => result,
    }
}

/// Starts up to `wanted` threads by `start`, which gets their numbers: fewer if the system refuses some, and an error
/// if it refuses the first.
pub fn start_some<T>(
    wanted: usize,
    mut start: impl FnMut(usize) -> Result<T, ThreadError>,
) -> Result<Vec<T>, ThreadError> {
    let mut started = Vec::with_capacity(wanted);
    for number in 0..wanted.max(1) {
        match start(number) {
            Ok(thread) => started.push(thread),
            Err(_) if number > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_dies_is_an_error_of_its_scope() {
        let result: Result<u32, ThreadError> = scope(|scope| {
            scope.spawn("sound", || ())?;
            let dying = scope.spawn("dying", || panic!("on purpose"))?;
            assert!(matches!(dying.join(), Err(ThreadError::Died { .. })));
            Ok(7)
        });
        assert!(matches!(result, Err(ThreadError::Died { name }) if name == "dying"));
        assert_eq!(scope(|scope| scope.spawn("sum", || 3)?.join()).unwrap(), 3);
        let dying = spawn("dying", || panic!("on purpose")).unwrap();
        assert!(matches!(dying.join(), Err(ThreadError::Died { .. })));
    }

    #[test]
    fn advice_is_about_what_was_lacking() {
        let told = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            let notice = notice_of(Lack::from_error(&source));
            [notice, ThreadError::Refused { name: "sort".into(), source: source.into() }.to_string()]
        };
        for text in told(libc::ENOMEM) {
            assert!(text.contains("memory") && !text.contains("processes"), "{text}");
        }
        for text in told(libc::EAGAIN) {
            assert!(text.contains("pids.max") && text.contains("ulimit -v"), "{text}");
        }
    }

    #[test]
    fn fewer_threads_will_do_but_not_none() {
        let refusing = |from| {
            move |number: usize| {
                let full = io::Error::from_raw_os_error(libc::EAGAIN);
                if number < from {
                    Ok(number)
                } else {
                    Err(ThreadError::Refused { name: "sort".into(), source: full.into() })
                }
            }
        };
        assert_eq!(start_some(4, refusing(9)).unwrap(), [0, 1, 2, 3]);
        assert_eq!(start_some(4, refusing(2)).unwrap(), [0, 1]);
        assert!(start_some(4, refusing(0)).unwrap_err().to_string().contains("pids.max"));
    }
}
