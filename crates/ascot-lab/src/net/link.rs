//! A control connection: a thread reads its messages into a channel and shows that this side is alive.
//!
//! Invariants: the channel gets exactly one [`Event::Ended`] of each link, as its last event. A link that is dropped
//! ends its thread.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ascot_io::threads::{Thread, spawn};
use ascot_io::{ThreadError, Unpoisoned};
use crossbeam_channel::Sender;

use super::message::Message;
use super::wire::{Halt, Patience, WireError, frame, read_frame, write_both};

/// Interval of the signs of life.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// A peer without a sign of life for this long is gone.
const SILENCE: Duration = Duration::from_secs(15);
/// A message that the other side does not take for this long is lost.
const SEND_PATIENCE: Duration = Duration::from_secs(10);

/// An event of a link.
#[derive(Debug)]
pub(super) enum Event<M> {
    Message(M),
    Ended(WireError),
}

/// A control connection to one peer.
pub(super) struct Link {
    shared: Arc<Shared>,
    thread: Option<Thread<()>>,
}

struct Shared {
    stream: TcpStream,
    /// Writers take turns, so that frames stay whole.
    turn: Mutex<()>,
    /// Ends the thread of the link only.
    halt: Halt,
}

impl Shared {
    fn send(&self, message: &impl serde::Serialize) -> Result<(), WireError> {
        let bytes = frame(message)?;
        let _turn = self.turn.lock().unpoisoned();
        write_both(&self.stream, &bytes, b"", &mut Patience::new(&self.halt, SEND_PATIENCE))
    }
}

impl Link {
    /// Starts to read messages of type `In`; `Out` are those that this side sends. `run`, if there is
    /// one, ends with a message that ends it, and with the link itself.
    pub(super) fn start<In: Message, Out: Message>(
        stream: TcpStream,
        peer: u32,
        events: Sender<(u32, Event<In>)>,
        run: Option<Halt>,
    ) -> Result<Link, ThreadError> {
        let halt = Halt::new(&Arc::default());
        let shared = Arc::new(Shared { stream, turn: Mutex::new(()), halt });
        let reading = Arc::clone(&shared);
        let thread = spawn("control", move || {
            // Kept over the messages: those of the other side must not postpone the signs of life of this one.
            let mut shown = Instant::now();
            let error = loop {
                match reading.next::<In, Out>(&mut shown) {
                    Ok(message) if message.is_alive() => {}
                    Ok(message) => {
                        if let (Some(run), true) = (&run, message.ends()) {
                            run.end();
                        }
                        // A receiver that is gone has ended its run.
                        let _ = events.send((peer, Event::Message(message)));
                    }
                    Err(error) => break error,
                }
            };
            if let Some(run) = &run {
                run.end();
            }
            let _ = events.send((peer, Event::Ended(error)));
        })?;
        Ok(Link { shared, thread: Some(thread) })
    }

    /// Sends a message.
    pub(super) fn send(&self, message: &impl Message) -> Result<(), WireError> {
        self.shared.send(message)
    }
}

impl Shared {
    /// The next message; shows in the meantime that this side is alive.
    fn next<In: Message, Out: Message>(&self, shown: &mut Instant) -> Result<In, WireError> {
        let mut patience = Patience::new(&self.halt, SILENCE);
        read_frame(&self.stream, &mut patience, || {
            if shown.elapsed() >= ALIVE_EVERY {
                *shown = Instant::now();
                self.send(&Out::alive())?;
            }
            Ok(())
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.halt.end();
        let _ = self.shared.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
