//! A peer's part of a round: it opens its connections, and then sends to and receives from all others at once.
//!
//! One thread sends on each outgoing connection, one receives on each incoming one. All senders use the same pattern,
//! so only receivers have buffers, all from one pool.

use std::collections::HashMap;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ascot_io::{Buf, Pool, ThreadError, threads};
use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::block::{HEADER_BYTES, fill_with_pattern, header, is_valid, lengths, share};
use super::dial::{DialError, dial};
use super::door::Caller;
use super::error::NetError;
use super::handshake::{Hello, Kind};
use super::participant::Participant;
use super::round::{Done, Round};
use super::wire::{POLL, Patience, WireError, read_exact, write_both};

/// Connections of a round are opened within this time.
const OPEN_PATIENCE: Duration = Duration::from_secs(20);
/// A connection on which nothing moves for this long is lost.
const MOVE_PATIENCE: Duration = Duration::from_secs(30);

/// The memory of a peer's rounds: the pattern, and buffers as needed.
pub(super) struct Memory {
    pool: Pool,
    pattern: Buf,
}

impl Memory {
    pub(super) fn new(participant: &Participant) -> Result<Memory, NetError> {
        participant.check_memory()?;
        let (bytes, _) = participant.buffer_bytes();
        // Regions are whole pages.
        let page = ascot_io::PAGE_BYTES as u64;
        let blocks = bytes / participant.parameters.block_bytes;
        let pool = Pool::new((blocks * participant.parameters.block_bytes.next_multiple_of(page)) as usize);
        let mut pattern = pool.region(participant.parameters.block_bytes as usize, "blocks")?;
        fill_with_pattern(&mut pattern);
        Ok(Memory { pool, pattern })
    }
}

/// A connection of a round.
struct Connection {
    peer: u32,
    number: u32,
    stream: TcpStream,
}

/// The open connections of a round.
pub(super) struct Transfer<'a> {
    participant: &'a Participant,
    memory: &'a Memory,
    round: Round,
    outgoing: Vec<Connection>,
    incoming: Vec<(Connection, Buf)>,
}

/// The result of a thread of a round.
struct Outcome {
    is_received: bool,
    moved: Result<Moved, NetError>,
}

/// The bytes that a thread moved, and the time it took.
struct Moved {
    bytes: u64,
    first: Instant,
    last: Instant,
}

impl<'a> Transfer<'a> {
    /// Opens the connections to all other peers of a round, and waits for theirs.
    pub(super) fn open(
        participant: &'a Participant,
        memory: &'a Memory,
        round: Round,
        callers: &Receiver<Caller>,
    ) -> Result<Transfer<'a>, NetError> {
        let deadline = Instant::now() + OPEN_PATIENCE;
        let others = || (1..round.peers).map(|step| (participant.rank + step) % round.peers);
        let mut outgoing = Vec::new();
        // Every peer begins with its successor, so that no listener gets all callers at once.
        for peer in others() {
            for number in 0..round.connections {
                let kind = Kind::Data { round: round.number, connection: number };
                let hello = Hello { kind, caller: participant.rank, callee: peer };
                let stream =
                    dial(participant, hello, deadline, &mut |_| {}).map_err(|error| match error {
                        DialError::Halted => NetError::Cancelled,
                        DialError::Refused(refusal) => {
                            NetError::Refused { peer: participant.name(peer), refusal }
                        }
                        DialError::Late(what) => unreachable_peer(participant, peer, what),
                    })?;
                outgoing.push(Connection { peer, number, stream });
            }
        }
        let mut expected: HashMap<(u32, u32), ()> = others()
            .flat_map(|peer| (0..round.connections).map(move |number| ((peer, number), ())))
            .collect();
        let mut incoming = Vec::new();
        while !expected.is_empty() {
            let (peer, number, stream) = match callers.recv_timeout(POLL) {
                Ok(Caller::Data { rank, round: of, connection, stream }) if of == round.number => {
                    (rank, connection, stream)
                }
                Ok(_) => continue,
                Err(RecvTimeoutError::Timeout) if participant.halt.is_set() => {
                    return Err(NetError::Cancelled);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => continue,
                Err(_) => {
                    let missing = expected.keys().map(|(peer, _)| *peer).min().unwrap_or_default();
                    let from = participant.name(missing);
                    let peer = participant.name(participant.rank);
                    let what = "it opened no connection for the round".to_owned();
                    return Err(NetError::Unreachable { from, peer, what });
                }
            };
            if expected.remove(&(peer, number)).is_some() {
                let buf = memory.pool.region(participant.parameters.block_bytes as usize, "blocks")?;
                incoming.push((Connection { peer, number, stream }, buf));
            }
        }
        Ok(Transfer { participant, memory, round, outgoing, incoming })
    }

    /// Sends and receives all bytes.
    pub(super) fn run(self) -> Result<Done, NetError> {
        let Transfer { participant, memory, round, outgoing, incoming } = self;
        let done = threads::scope(|scope| {
            let mut started = Vec::new();
            for connection in outgoing {
                started.push(scope.spawn("sender", move || {
                    let peer = connection.peer;
                    let sent = send(participant, &memory.pattern, &round, &connection);
                    Outcome {
                        is_received: false,
                        moved: sent.map_err(|error| fault(participant, peer, error)),
                    }
                }));
            }
            for (connection, buf) in incoming {
                started.push(scope.spawn("receiver", move || {
                    let peer = connection.peer;
                    let received = receive(participant, &memory.pattern, &round, &connection, buf);
                    Outcome {
                        is_received: true,
                        moved: received.map_err(|error| fault(participant, peer, error)),
                    }
                }));
            }
            let refused = started.iter().any(Result::is_err);
            if refused {
                participant.halt.end();
            }
            let mut results = Vec::new();
            for thread in started {
                results.push(thread.and_then(threads::ScopedThread::join));
            }
            sum(results)
        })?;
        Ok(done)
    }
}

/// The sum of what all threads moved, or the first error; one that only says that the run ends comes last.
fn sum(results: Vec<Result<Outcome, ThreadError>>) -> Result<Done, NetError> {
    let mut received_bytes = 0;
    let mut span: Option<(Instant, Instant)> = None;
    let mut error = None;
    for result in results {
        let outcome = result.map_err(NetError::from);
        match outcome.and_then(|Outcome { is_received, moved }| Ok((is_received, moved?))) {
            Ok((is_received, moved)) => {
                received_bytes += if is_received { moved.bytes } else { 0 };
                let (first, last) = span.unwrap_or((moved.first, moved.last));
                span = Some((first.min(moved.first), last.max(moved.last)));
            }
            Err(NetError::Cancelled) => error = error.or(Some(NetError::Cancelled)),
            Err(found) if matches!(error, None | Some(NetError::Cancelled)) => error = Some(found),
            Err(_) => {}
        }
    }
    match error {
        Some(error) => Err(error),
        None => {
            let seconds = span.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
            Ok(Done { received_bytes, seconds })
        }
    }
}

/// What went wrong on a connection.
enum Fault {
    Wire(WireError),
    Wrong { block: u64 },
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Fault {
        Fault::Wire(error)
    }
}

/// The error of a connection; it also ends the other threads of the round, which would wait for this peer.
fn fault(participant: &Participant, peer: u32, fault: Fault) -> NetError {
    let error = match fault {
        Fault::Wire(WireError::Halted) => return NetError::Cancelled,
        Fault::Wire(WireError::Silent(seconds)) => NetError::Silent { peer: participant.name(peer), seconds },
        Fault::Wire(error) => unreachable_peer(participant, peer, error.to_string()),
        Fault::Wrong { block } => NetError::Data {
            from: participant.name(participant.rank),
            peer: participant.name(peer),
            what: format!("block {block} of a connection is not the one that was sent"),
        },
    };
    participant.halt.end();
    error
}

fn unreachable_peer(participant: &Participant, peer: u32, what: String) -> NetError {
    NetError::Unreachable { from: participant.name(participant.rank), peer: participant.name(peer), what }
}

fn send(
    participant: &Participant,
    pattern: &[u8],
    round: &Round,
    connection: &Connection,
) -> Result<Moved, Fault> {
    let mut patience = Patience::new(&participant.halt, MOVE_PATIENCE);
    let first = Instant::now();
    let mut moved = Moved { bytes: 0, first, last: first };
    let bytes = share(round.bytes, round.connections, connection.number);
    for (number, length) in (0..).zip(lengths(bytes, pattern.len())) {
        let head = header(number, participant.rank, length);
        let body = pattern.get(HEADER_BYTES..length).unwrap_or_default();
        write_both(&connection.stream, &head, body, &mut patience)?;
        moved.bytes += length as u64;
        moved.last = Instant::now();
    }
    Ok(moved)
}

fn receive(
    participant: &Participant,
    pattern: &[u8],
    round: &Round,
    connection: &Connection,
    mut buf: Buf,
) -> Result<Moved, Fault> {
    let mut patience = Patience::new(&participant.halt, MOVE_PATIENCE);
    let bytes = share(round.bytes, round.connections, connection.number);
    let mut moved: Option<Moved> = None;
    for (number, length) in (0..).zip(lengths(bytes, pattern.len())) {
        let block = buf.get_mut(..length).ok_or(Fault::Wrong { block: number })?;
        read_exact(&connection.stream, block, &mut patience, || Ok(()))?;
        let now = Instant::now();
        if !is_valid(block, number, connection.peer, pattern) {
            return Err(Fault::Wrong { block: number });
        }
        let moved = moved.get_or_insert(Moved { bytes: 0, first: now, last: now });
        moved.bytes += length as u64;
        moved.last = now;
    }
    let now = Instant::now();
    Ok(moved.unwrap_or(Moved { bytes: 0, first: now, last: now }))
}
