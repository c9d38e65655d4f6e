//! The messages between the first peer and all others, on their control connections (`wire` has their frames).
//!
//! ```text
//!   peer   parameters ->                 ready ->        done ->
//!   first                 prepare, ...            go ->           ... report, or abort
//! ```
//!
//! Both sides send `Alive` every second, so that a machine that is gone is noticed although its connections stay open.

use serde::{Deserialize, Serialize};

use super::report::NetReport;
use super::round::{Done, Round};

/// What all peers must have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parameters {
    pub(super) peers: Vec<String>,
    pub(super) bytes: u64,
    pub(super) block_bytes: u64,
    pub(super) connections: Vec<u32>,
    pub(super) sweep: bool,
}

impl Parameters {
    /// The first difference to those of the first peer, for its user.
    pub(super) fn difference(&self, first: &Parameters) -> Option<String> {
        let differ = |flag: &str, own: String, other: String| {
            (own != other).then(|| format!("{flag} {own} instead of {other}"))
        };
        let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        differ("--peers", self.peers.join(","), first.peers.join(","))
            .or_else(|| differ("--bytes", format!("{}b", self.bytes), format!("{}b", first.bytes)))
            .or_else(|| {
                differ("--block", format!("{}b", self.block_bytes), format!("{}b", first.block_bytes))
            })
            .or_else(|| differ("--connections", list(&self.connections), list(&first.connections)))
            .or_else(|| differ("--sweep", on(self.sweep), on(first.sweep)))
    }
}

fn on(is_on: bool) -> String {
    if is_on { "given" } else { "not given" }.to_owned()
}

/// Why a peer cannot go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Trouble {
    /// Its user interrupted it.
    Interrupted,
    /// It cannot reach a peer, or the connection ended.
    Unreachable { peer: u32, what: String },
    /// It received wrong bytes from a peer.
    Data { peer: u32, what: String },
    /// Another error.
    Other(String),
}

/// From a peer to the first one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum ToFirst {
    Alive,
    Parameters(Parameters),
    Ready(u32),
    Done(u32, Done),
    Failed(Trouble),
}

/// From the first peer to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum ToPeer {
    Alive,
    /// Peers that have not come yet.
    Waiting(Vec<u32>),
    /// The predicted seconds of all rounds.
    Predicted(f64),
    Prepare(Round),
    Go(u32),
    Report(Box<NetReport>),
    Abort(String),
}

/// A message type with a sign of life.
pub(super) trait Message: Serialize + serde::de::DeserializeOwned + Send + 'static {
    /// The sign of life.
    fn alive() -> Self;
    /// Whether this is one.
    fn is_alive(&self) -> bool;
    /// Whether the receiver must end what it does.
    fn ends(&self) -> bool;
}

impl Message for ToFirst {
    fn alive() -> Self {
        ToFirst::Alive
    }

    fn is_alive(&self) -> bool {
        matches!(self, ToFirst::Alive)
    }

    fn ends(&self) -> bool {
        false
    }
}

impl Message for ToPeer {
    fn alive() -> Self {
        ToPeer::Alive
    }

    fn is_alive(&self) -> bool {
        matches!(self, ToPeer::Alive)
    }

    fn ends(&self) -> bool {
        matches!(self, ToPeer::Abort(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let first = Parameters {
            peers: vec!["a:1".into(), "b:1".into()],
            bytes: 1 << 20,
            block_bytes: 65536,
            connections: vec![1, 4],
            sweep: false,
        };
        assert_eq!(first.difference(&first), None);
        for (other, told) in [
            (
                Parameters { peers: vec!["a:1".into(), "c:1".into()], ..first.clone() },
                "--peers a:1,c:1 instead of a:1,b:1",
            ),
            (Parameters { bytes: 5, ..first.clone() }, "--bytes 5b instead of 1048576b"),
            (Parameters { block_bytes: 4096, ..first.clone() }, "--block 4096b instead of 65536b"),
            (Parameters { connections: vec![2], ..first.clone() }, "--connections 2 instead of 1,4"),
            (Parameters { sweep: true, ..first.clone() }, "--sweep given instead of not given"),
        ] {
            assert_eq!(other.difference(&first).as_deref(), Some(told));
        }
    }
}
