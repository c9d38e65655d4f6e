//! The door of a peer: accepts connections at its address, lets those in that prove the token, and passes them on.
//!
//! Every handshake has a thread of its own and ends within seconds, so a caller that says nothing holds up no other. A
//! limited number of handshakes run at once; further callers wait in the system's queue.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use ascot_io::ThreadError;
use ascot_io::threads::{Thread, spawn};
use crossbeam_channel::Sender;

use super::handshake::{HandshakeError, Kind, Refusal, answer};
use super::participant::Participant;
use super::wire::Halt;

/// Interval at which the door looks for callers.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// Handshakes at once, in addition to those of all peers.
const STRANGERS: usize = 64;

/// A caller at the door.
pub(super) enum Caller {
    /// A peer that wants to exchange messages; only the first peer gets it.
    Control { rank: u32, stream: TcpStream },
    /// A connection for the bytes of a round.
    Data { rank: u32, round: u32, connection: u32, stream: TcpStream },
    /// A caller that was refused, and the place that it claims.
    Refused { rank: u32, refusal: Refusal },
}

/// Accepts callers until it is dropped.
pub(super) struct Door {
    halt: Halt,
    thread: Option<Thread<()>>,
}

impl Door {
    /// Opens the door of a peer: control connections and refused callers go to `control`, all others to `data`.
    pub(super) fn open(
        participant: &Arc<Participant>,
        control: Sender<Caller>,
        data: Sender<Caller>,
    ) -> Result<Door, ThreadError> {
        let halt = Halt::new(&Arc::default());
        let own = halt.clone();
        let participant = Arc::clone(participant);
        let thread = spawn("door", move || stand(&participant, &own, &control, &data))?;
        Ok(Door { halt, thread: Some(thread) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.halt.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn stand(participant: &Arc<Participant>, halt: &Halt, control: &Sender<Caller>, data: &Sender<Caller>) {
    let most = STRANGERS + participant.buffer_bytes().1 as usize;
    let open = Arc::new(AtomicUsize::new(0));
    if participant.listener.set_nonblocking(true).is_err() {
        return;
    }
    while !halt.is_set() {
        let caller =
            if open.load(Ordering::Relaxed) < most { participant.listener.accept().ok() } else { None };
        let Some((stream, _)) = caller else {
            sleep(BETWEEN_LOOKS);
            continue;
        };
        open.fetch_add(1, Ordering::Relaxed);
        let participant = Arc::clone(participant);
        let halt = halt.clone();
        let counted = Arc::clone(&open);
        let control = control.clone();
        let data = data.clone();
        let begun = spawn("handshake", move || {
            shake(&participant, &halt, stream, &control, &data);
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if begun.is_err() {
            // The caller notices that its connection ended, and calls again.
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn shake(
    participant: &Participant,
    halt: &Halt,
    stream: TcpStream,
    control: &Sender<Caller>,
    data: &Sender<Caller>,
) {
    let place = |hello: &super::handshake::Hello| {
        if hello.callee != participant.rank || hello.caller >= participant.count() {
            return Err(Refusal::List);
        }
        let is_first = participant.rank == 0;
        if hello.kind == Kind::Control && !is_first { Err(Refusal::Taken) } else { Ok(()) }
    };
    // A receiver that is gone has ended its run.
    match answer(&stream, &participant.token, halt, place) {
        Ok(hello) => {
            let rank = hello.caller;
            let _ = match hello.kind {
                Kind::Control => control.send(Caller::Control { rank, stream }),
                Kind::Data { round, connection } => {
                    data.send(Caller::Data { rank, round, connection, stream })
                }
            };
        }
        Err(refused) => {
            if let (Some(rank), HandshakeError::Refused(refusal)) = (refused.claimed, refused.error) {
                let _ = control.send(Caller::Refused { rank, refusal });
            }
        }
    }
}
