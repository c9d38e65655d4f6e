//! How many threads compute, and how others learn that one of them has died.

use std::num::NonZero;

use crossbeam_channel::Sender;

/// As many as asked for, at least one; one a core where nothing was asked.
pub(crate) fn compute_threads(asked: Option<usize>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get), |asked| asked.max(1))
}

/// Sends a message where its thread panics: whoever waits for the thread's work learns that none will come.
pub(crate) struct Alarm<'a, T> {
    send: &'a Sender<T>,
    message: fn() -> T,
}

impl<'a, T> Alarm<'a, T> {
    pub(crate) fn new(send: &'a Sender<T>, message: fn() -> T) -> Self {
        Alarm { send, message }
    }
}

impl<T> Drop for Alarm<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Where nobody listens any more nobody waits.
            let _ = self.send.send((self.message)());
        }
    }
}
