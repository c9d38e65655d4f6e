//! NetBench: every peer sends the same number of bytes to every other, over 1 to 4 TCP connections for each pair and
//! direction, without disks.
//!
//! The study follows Conley, Vahdat and Porter ("Sorting 100 TB on Google Compute Engine", section 5.1.1). All peers
//! have the same list of peers; the first one in it gathers them, runs the rounds and collects the result.
//!
//! ```text
//!   coordinator   the first peer's second task: gathers peers, runs rounds, collects the result
//!   member        every peer: joins the first one, and takes part in its rounds
//!   transfer      a peer's part of a round: all connections at once       (round; block: the bytes, and their check)
//!   link          control connections, with signs of life                 (message: what they carry)
//!   door, dial    connections accepted and made
//!   handshake     both sides prove the token before anything else         (token: the secret and its proofs)
//!   wire          bytes on a connection, frames of limited length
//!   participant   a peer's place in the list
//!   observer      what a caller hears while it waits
//! ```
//!
//! # Protocol
//!
//! Every connection begins with the handshake (`handshake`), whose messages have a fixed length and carry the version.
//! A control connection then carries frames: a length of 4 bytes, at most 16 MiB, and JSON (`message`). A data
//! connection carries the blocks of one round (`block`), whose number and lengths both sides compute from the round.
//!
//! Invariants: without the token no byte other than the handshake is sent or read. No length from the network is used
//! unchecked. No wait is endless: a peer that is gone is noticed by the end of its connections, or by its silence, and
//! all others end with an error that names it.

mod block;
mod coordinator;
mod dial;
mod door;
mod error;
mod handshake;
mod link;
mod member;
mod message;
mod observer;
mod participant;
mod report;
mod round;
mod token;
mod transfer;
mod wire;

use std::net::{TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ascot_io::threads;

use coordinator::coordinate;
use door::Door;
use member::take_part;
use message::Parameters;
use observer::Silent;
use participant::Participant;
use wire::Halt;

pub use error::NetError;
pub use handshake::Refusal;
pub use observer::NetObserver;
pub use participant::{BLOCK_BYTES, MAX_CONNECTIONS, MAX_PEERS, MIN_BYTES};
pub use report::{ModelReport, NetReport, RoundReport};
pub use token::{MIN_TOKEN_BYTES, Token, TokenError};

/// Default bytes from each peer to each other.
pub const DEFAULT_BYTES: u64 = 1 << 30;
/// Default bytes of a block.
pub const DEFAULT_BLOCK_BYTES: u64 = 256 << 10;
/// Default seconds for which missing peers are waited for.
pub const DEFAULT_WAIT_SECONDS: f64 = 60.0;
/// The maximum of peers on one machine: each has threads for the connections to all others.
pub const MAX_LOCAL_PEERS: u32 = 16;

/// A request to measure a network.
#[derive(Clone, Debug)]
pub struct NetRequest {
    /// The peers.
    pub peers: Peers,
    /// Bytes from each peer to each other in a round.
    pub bytes: u64,
    /// Bytes of a block: what a peer hands to a connection at once.
    pub block_bytes: u64,
    /// Numbers of connections from each peer to each other; each makes a round.
    pub connections: Vec<u32>,
    /// Whether there are also rounds with fewer peers: 2, 4, 8, ...
    pub sweep: bool,
    /// The most memory for the buffers of a peer; `None`: as much as they need.
    pub memory_bytes: Option<u64>,
    /// Seconds for which missing peers are waited for.
    pub wait_seconds: f64,
}

/// The peers of a run.
#[derive(Clone, Debug)]
pub enum Peers {
    /// This process is one of them.
    Listed {
        /// Where it listens.
        listen: String,
        /// Its entry in the list, if that is not `listen`.
        name: Option<String>,
        /// All peers, in the same order everywhere.
        list: Vec<String>,
        /// The shared secret.
        token: Token,
    },
    /// This number of peers in this process, on the loopback of this machine.
    Local(u32),
}

/// Runs NetBench. `cancel` ends it early with [`NetError::Cancelled`].
pub fn run(
    request: &NetRequest,
    cancel: &Arc<AtomicBool>,
    observer: &dyn NetObserver,
) -> Result<NetReport, NetError> {
    match &request.peers {
        Peers::Listed { listen, name, list, token } => {
            let parameters = parameters(request, list.clone());
            participant::check(&parameters)?;
            let rank = participant::rank_of(listen, name.as_deref(), list)?;
            let participant = participant(request, cancel, rank, parameters, token.clone(), bind(listen)?);
            run_participant(&Arc::new(participant), observer)
        }
        Peers::Local(count) => run_local(request, *count, cancel, observer),
    }
}

fn parameters(request: &NetRequest, peers: Vec<String>) -> Parameters {
    Parameters {
        peers,
        bytes: request.bytes,
        block_bytes: request.block_bytes,
        connections: request.connections.clone(),
        sweep: request.sweep,
    }
}

/// Listens at an address, and at no other.
fn bind(address: &str) -> Result<TcpListener, NetError> {
    let failed = |source| NetError::Listen { address: address.to_owned(), source };
    let addresses: Vec<_> = address.to_socket_addrs().map_err(failed)?.collect();
    TcpListener::bind(addresses.as_slice()).map_err(failed)
}

/// The place of a peer in the list.
fn participant(
    request: &NetRequest,
    cancel: &Arc<AtomicBool>,
    rank: u32,
    parameters: Parameters,
    token: Token,
    listener: TcpListener,
) -> Participant {
    Participant {
        rank,
        parameters,
        token,
        listener,
        wait: Duration::from_secs_f64(request.wait_seconds.clamp(0.0, 1e6)),
        memory_bytes: request.memory_bytes,
        local: matches!(request.peers, Peers::Local(_)),
        halt: Halt::new(cancel),
    }
}

/// Runs one peer; the first one also coordinates.
fn run_participant(
    participant: &Arc<Participant>,
    observer: &dyn NetObserver,
) -> Result<NetReport, NetError> {
    participant.check_memory()?;
    let (control_sender, control) = crossbeam_channel::unbounded();
    let (data_sender, data) = crossbeam_channel::unbounded();
    let _door = Door::open(participant, control_sender, data_sender)?;
    if participant.rank != 0 {
        return take_part(participant, &data, observer);
    }
    threads::scope(|scope| {
        let coordinator = scope.spawn("coordinator", || coordinate(participant, &control))?;
        let own = take_part(participant, &data, observer);
        match (coordinator.join()?, own) {
            (Ok(report), _) => Ok(report),
            // The cause, if the coordinator only knows that the run ends.
            (Err(NetError::Cancelled), Err(own)) => Err(own),
            (Err(error), _) => Err(error),
        }
    })
}

/// Runs `count` peers in this process.
fn run_local(
    request: &NetRequest,
    count: u32,
    cancel: &Arc<AtomicBool>,
    observer: &dyn NetObserver,
) -> Result<NetReport, NetError> {
    if !(2..=MAX_LOCAL_PEERS).contains(&count) {
        let what = format!("--local {count} is not possible");
        return Err(NetError::Parameter { what, remedy: format!("give 2 to {MAX_LOCAL_PEERS} peers") });
    }
    let mut listeners = Vec::new();
    let mut names = Vec::new();
    for _ in 0..count {
        let listener = bind("127.0.0.1:0")?;
        let address = listener
            .local_addr()
            .map_err(|source| NetError::Listen { address: "127.0.0.1:0".to_owned(), source })?;
        names.push(address.to_string());
        listeners.push(listener);
    }
    let parameters = parameters(request, names);
    participant::check(&parameters)?;
    let token = Token::random()?;
    let participants: Vec<Arc<Participant>> = (0..)
        .zip(listeners)
        .map(|(rank, listener)| {
            Arc::new(participant(request, cancel, rank, parameters.clone(), token.clone(), listener))
        })
        .collect();
    threads::scope(|scope| {
        let mut peers = Vec::new();
        for participant in &participants {
            peers.push(scope.spawn("peer", move || {
                let silent: &dyn NetObserver = &Silent;
                run_participant(participant, if participant.rank == 0 { observer } else { silent })
            }));
        }
        if peers.iter().any(Result::is_err) {
            participants.iter().for_each(|participant| participant.halt.end());
        }
        let mut results = peers.into_iter().map(|peer| peer?.join().map_err(NetError::from).flatten());
        // The first peer has the report, or the cause. All others end with it.
        let first = results.next().unwrap_or(Err(NetError::Cancelled));
        results.for_each(drop);
        first
    })
}

#[cfg(test)]
mod tests;
