//! The queue between streams and the device threads: parts wait by direction, first come first served.
//!
//! Invariant for the ring: `asleep` is set, under the lock, before the ring's thread sleeps, so a part pushed later
//! always rings the bell, and none is overlooked.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard};

use rustix::event::EventfdFlags;

use super::transfer::Part;
use crate::ledger::Direction;
use crate::sync::Unpoisoned;
use crate::waits::{Need, wait_for};

pub(super) struct PartQueue {
    state: Mutex<State>,
    arrived: Condvar,
    bell: Option<OwnedFd>,
}

#[derive(Default)]
struct State {
    /// By direction.
    waiting: [VecDeque<Part>; 2],
    closed: bool,
    /// A thread that performed parts has died.
    abandoned: bool,
    asleep: bool,
}

impl PartQueue {
    pub(super) fn for_threads() -> Self {
        Self { state: Mutex::default(), arrived: Condvar::new(), bell: None }
    }

    pub(super) fn for_ring() -> io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { bell: Some(bell), ..Self::for_threads() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// The eventfd that wakes the ring.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    /// Silences the bell after a ring.
    pub(super) fn hush(&self) {
        if let Some(bell) = &self.bell {
            // The descriptor does not block; an empty read means that the bell has not rung again.
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
    }

    pub(super) fn push(&self, parts: Vec<Part>) {
        let mut state = self.lock();
        if state.abandoned {
            // Dropped parts fail.
            drop(state);
            return;
        }
        for part in parts {
            state.waiting[part.direction() as usize].push_back(part);
        }
        self.wake(state);
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.wake(state);
    }

    /// If the thread that holds the answer panics, no part is performed any more: all parts, queued or later, fail,
    /// so that no caller waits for them.
    pub(super) fn abandon_on_panic(&self) -> Abandon<'_> {
        Abandon { queue: self }
    }

    fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.abandoned = true;
        let parts = std::mem::take(&mut state.waiting);
        self.wake(state);
        drop(parts);
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let ring = std::mem::take(&mut state.asleep);
        drop(state);
        match &self.bell {
            Some(bell) if ring => {
                // Cannot fail short of 2^64 - 1 unread rings.
                let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
            }
            Some(_) => {}
            None => self.arrived.notify_all(),
        }
    }

    /// For threads: waits for the next part of a direction; `None` once closed and empty.
    pub(super) fn wait(&self, direction: Direction) -> Option<Part> {
        let mut state = self.lock();
        loop {
            if let Some(part) = state.waiting[direction as usize].pop_front() {
                return Some(part);
            }
            if state.closed {
                return None;
            }
            let _waiting = wait_for("requests to the device", Need::WORK, None);
            state = self.arrived.wait(state).unpoisoned();
        }
    }

    /// For the ring: takes up to `most` parts of each direction in turn; true if the queue is closed and empty. The
    /// next push rings the bell.
    pub(super) fn take(&self, mut most: [usize; 2], into: &mut Vec<Part>) -> bool {
        let mut state = self.lock();
        loop {
            let before = into.len();
            for (parts, most) in state.waiting.iter_mut().zip(&mut most) {
                if *most > 0
                    && let Some(part) = parts.pop_front()
                {
                    into.push(part);
                    *most -= 1;
                }
            }
            if into.len() == before {
                break;
            }
        }
        state.asleep = true;
        state.closed && state.waiting.iter().all(VecDeque::is_empty)
    }
}

/// Abandons a queue if its thread panics.
pub(super) struct Abandon<'q> {
    queue: &'q PartQueue,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.abandon();
        }
    }
}
