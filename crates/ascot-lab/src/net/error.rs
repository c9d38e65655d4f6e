//! Errors of NetBench, with remedies for the user.

use std::io;

use ascot_io::{PoolError, ThreadError};
use ascot_model::units;

use super::handshake::Refusal;
use super::token::TokenError;

/// An error of NetBench. Peers are named as in the list of peers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The list of peers, or another parameter, is impossible.
    #[error("{what}\n  {remedy}")]
    Parameter {
        /// The problem.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}\n  {}", listen_remedy(source))]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// Peers did not come in time.
    #[error(
        "missing after {seconds:.0} s: {}\n  start ascot lab net there with the same list of peers, or wait longer \
         (--wait){}",
        names.join(", "), after(notes)
    )]
    Missing {
        /// The missing peers.
        names: Vec<String>,
        /// Seconds waited.
        seconds: f64,
        /// Why some of them did not come, as far as it is known.
        notes: Vec<String>,
    },
    /// The tokens of two peers differ, or their lists, or their versions.
    #[error("{peer} was refused: {refusal}\n  {}", refusal_remedy(*refusal))]
    Refused {
        /// The other peer.
        peer: String,
        /// The reason.
        refusal: Refusal,
    },
    /// A peer has other parameters than the first one.
    #[error("{peer} has other parameters than {first}: {what}\n  start all peers with the same flags")]
    Parameters {
        /// The peer.
        peer: String,
        /// The first peer.
        first: String,
        /// The difference.
        what: String,
    },
    /// A peer's process ended, or its machine.
    #[error("{peer} died in the middle of the run\n  start all peers again")]
    Died {
        /// The peer.
        peer: String,
    },
    /// A peer does not answer.
    #[error(
        "{peer} has not answered for {seconds} s\n  see whether it runs and has a network; start all peers again"
    )]
    Silent {
        /// The peer.
        peer: String,
        /// Seconds.
        seconds: u64,
    },
    /// A peer was interrupted by its user.
    #[error("{peer} was interrupted\n  start all peers again")]
    Interrupted {
        /// The peer.
        peer: String,
    },
    /// A peer cannot reach another.
    #[error("{from} cannot reach {peer}: {what}\n  every peer must be able to connect to every other")]
    Unreachable {
        /// The caller.
        from: String,
        /// The peer that was called.
        peer: String,
        /// The reason.
        what: String,
    },
    /// Bytes between two peers were lost or changed.
    #[error(
        "{from} received wrong bytes from {peer}: {what}\n  the network, or a machine between both, is faulty"
    )]
    Data {
        /// The receiver.
        from: String,
        /// The sender.
        peer: String,
        /// The fault.
        what: String,
    },
    /// The first peer stopped the run; its reason.
    #[error("{first} stopped the run: {why}")]
    Stopped {
        /// The first peer.
        first: String,
        /// Its reason.
        why: String,
    },
    /// The buffers need more memory.
    #[error(
        "--memory {} does not hold the buffers: {} are needed for {connections} connections\n  allow more, or give a \
         smaller --block",
        units::memory(*asked), units::memory(*needed)
    )]
    Memory {
        /// Bytes allowed.
        asked: u64,
        /// Bytes needed.
        needed: u64,
        /// Connections of a peer.
        connections: u64,
    },
    /// The system refused memory.
    #[error("no memory for the buffers: {0}")]
    Buffers(#[from] PoolError),
    /// A thread could not be started, or died.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// The system's error on a connection.
    #[error("the connection to {peer} failed: {source}")]
    Connection {
        /// The other peer.
        peer: String,
        /// The error.
        source: io::Error,
    },
    /// The caller cancelled the run.
    #[error("stopped")]
    Cancelled,
}

fn after(notes: &[String]) -> String {
    notes.iter().map(|note| format!("\n  {note}")).collect()
}

fn listen_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: name another port, or end that program",
        io::ErrorKind::AddrNotAvailable => "name an address of this machine",
        io::ErrorKind::PermissionDenied => "name a port from 1024 on",
        _ => "name an address and a port of this machine, such as 10.0.0.1:7400",
    }
}

fn refusal_remedy(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Version => "start the same version everywhere",
        Refusal::Token => "give every peer the same token (--token-file, or ASCOT_LAB_TOKEN)",
        Refusal::List => "give every peer the same list, in the same order (--peers)",
        Refusal::Taken => "start each peer once, and all of them again for another run",
    }
}
