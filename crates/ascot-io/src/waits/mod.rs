//! The waits of threads: each wait switches the clock of its thread ([`clocks`](crate::clocks)), and in debug builds a
//! watchdog for deadlocks registers it. Release builds contain no watchdog.

#[cfg(debug_assertions)]
mod watch;

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvError, RecvTimeoutError, TryRecvError};

use crate::clocks::{State, Switched, in_state};

#[cfg(debug_assertions)]
pub use watch::{Held, Holders, register_thread};
#[cfg(not(debug_assertions))]
pub use without_watch::{Held, Holders, register_thread};

/// The kind of a wait, and the state of the clock meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The thread has work that cannot continue.
    Blocked(State),
    /// The thread has nothing to do until it gets work.
    Idle(State),
}

impl Need {
    /// Waits for the data of others.
    pub const DATA: Need = Need::Blocked(State::Input);
    /// Waits for a free buffer.
    pub const MEMORY: Need = Need::Blocked(State::Memory);
    /// Waits for the device.
    pub const DEVICE: Need = Need::Blocked(State::Device);
    /// Has nothing to do.
    pub const WORK: Need = Need::Idle(State::Input);

    fn state(self) -> State {
        let (Need::Blocked(state) | Need::Idle(state)) = self;
        state
    }
}

/// A wait, until it is dropped.
#[derive(Debug)]
pub struct Waiting {
    #[cfg(debug_assertions)]
    _registered: watch::Registered,
    _clock: Switched<State>,
}

/// The calling thread waits for `what`, which `holders` have.
pub fn wait_for(what: &'static str, need: Need, holders: Option<&Holders>) -> Waiting {
    #[cfg(not(debug_assertions))]
    let _ = (what, holders);
    Waiting {
        #[cfg(debug_assertions)]
        _registered: watch::register(what, need, holders),
        _clock: in_state(need.state()),
    }
}

/// Receives a message, and waits for it as for `what`.
pub fn receive<T>(from: &Receiver<T>, what: &'static str, need: Need) -> Result<T, RecvError> {
    match from.try_recv() {
        Ok(message) => Ok(message),
        Err(TryRecvError::Disconnected) => Err(RecvError),
        Err(TryRecvError::Empty) => {
            let _waiting = wait_for(what, need, None);
            from.recv()
        }
    }
}

/// Receives a message like [`receive`], and calls `look` at every `interval` of the wait; its error ends the wait. None
/// if there are no more messages.
pub fn receive_looking<T, E>(
    from: &Receiver<T>,
    what: &'static str,
    need: Need,
    interval: Duration,
    look: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Option<T>, E> {
    match from.try_recv() {
        Ok(message) => return Ok(Some(message)),
        Err(TryRecvError::Disconnected) => return Ok(None),
        Err(TryRecvError::Empty) => {}
    }
    let _waiting = wait_for(what, need, None);
    loop {
        match from.recv_timeout(interval) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => look()?,
        }
    }
}

#[cfg(not(debug_assertions))]
mod without_watch {
    /// The threads that hold a resource that others wait for.
    #[derive(Clone, Debug, Default)]
    pub struct Holders;

    /// A held resource.
    #[derive(Debug)]
    pub struct Held;

    impl Holders {
        /// Notes that this thread has taken one resource.
        #[inline]
        pub fn taken(&self) -> Held {
            Held
        }
    }

    /// Registers this thread.
    #[inline]
    pub fn register_thread() {}
}
