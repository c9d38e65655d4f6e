//! A peer's place in the list, and what it knows of the others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

use super::error::NetError;
use super::message::Parameters;
use super::token::Token;
use super::wire::Halt;

/// More peers than any cluster of a sort has; each of them needs threads for the connections to all others.
pub const MAX_PEERS: usize = 1024;
const MAX_NAME_BYTES: usize = 255;
/// Bounds of the bytes of a block.
pub const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=16 << 20;
/// The maximum of connections for each pair.
pub const MAX_CONNECTIONS: u32 = 4;
/// The minimum of bytes of a pair: every connection sends a block.
pub const MIN_BYTES: u64 = 64 << 10;

/// A peer of a run.
pub(super) struct Participant {
    /// Its place in the list; the first one collects the result.
    pub(super) rank: u32,
    pub(super) parameters: Parameters,
    pub(super) token: Token,
    pub(super) listener: TcpListener,
    /// How long peers that are missing are waited for.
    pub(super) wait: Duration,
    pub(super) memory_bytes: Option<u64>,
    pub(super) local: bool,
    pub(super) halt: Halt,
}

impl Participant {
    /// The name of a peer.
    pub(super) fn name(&self, rank: u32) -> String {
        self.parameters.peers.get(rank as usize).cloned().unwrap_or_else(|| format!("peer {rank}"))
    }

    /// The number of peers.
    pub(super) fn count(&self) -> u32 {
        self.parameters.peers.len() as u32
    }

    /// The names of peers.
    pub(super) fn names(&self, ranks: impl IntoIterator<Item = u32>) -> Vec<String> {
        ranks.into_iter().map(|rank| self.name(rank)).collect()
    }

    /// The addresses of a peer; its own is where it listens, which others may know by another name.
    pub(super) fn addresses(&self, rank: u32) -> std::io::Result<Vec<SocketAddr>> {
        if rank != self.rank {
            return Ok(self.name(rank).to_socket_addrs()?.collect());
        }
        let mut own = self.listener.local_addr()?;
        if own.ip().is_unspecified() {
            let is_v4 = own.is_ipv4();
            own.set_ip(if is_v4 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) });
        }
        Ok(vec![own])
    }

    /// Bytes of the buffers of a peer with the most connections.
    pub(super) fn buffer_bytes(&self) -> (u64, u64) {
        let most = self.parameters.connections.iter().max().copied().unwrap_or(1);
        let connections = u64::from(self.count() - 1) * u64::from(most);
        (self.parameters.block_bytes * (connections + 1), connections)
    }

    /// An error if the buffers do not fit the memory.
    pub(super) fn check_memory(&self) -> Result<(), NetError> {
        let (needed, connections) = self.buffer_bytes();
        match self.memory_bytes {
            Some(asked) if asked < needed => Err(NetError::Memory { asked, needed, connections }),
            _ => Ok(()),
        }
    }
}

/// An error for parameters with which no run is possible.
pub(super) fn check(parameters: &Parameters) -> Result<(), NetError> {
    let wrong = |what: String, remedy: &str| Err(NetError::Parameter { what, remedy: remedy.to_owned() });
    let Parameters { peers, bytes, block_bytes, connections, .. } = parameters;
    if peers.len() < 2 {
        return wrong("a run needs two peers or more".into(), "name all of them: --peers A:PORT,B:PORT");
    }
    if peers.len() > MAX_PEERS {
        return wrong(format!("{} peers", peers.len()), "the maximum is 1024");
    }
    for (at, peer) in peers.iter().enumerate() {
        let is_plain = peer.chars().all(|letter| letter.is_ascii_graphic() && letter != ',');
        if peer.is_empty() || peer.len() > MAX_NAME_BYTES || !is_plain || !peer.contains(':') {
            return wrong(
                format!("--peers '{}' is not an address", super::wire::displayed(peer)),
                "such as node1:7400",
            );
        }
        if peers.iter().take(at).any(|earlier| earlier == peer) {
            return wrong(format!("--peers names {peer} twice"), "name each peer once");
        }
    }
    if !BLOCK_BYTES.contains(block_bytes) {
        return wrong(format!("--block {block_bytes}b is not possible"), "give 4 KiB to 16 MiB");
    }
    if *bytes < MIN_BYTES {
        return wrong(format!("--bytes {bytes}b is too little to measure with"), "give 64 KiB or more");
    }
    if connections.is_empty() || connections.iter().any(|count| !(1..=MAX_CONNECTIONS).contains(count)) {
        return wrong("--connections must be numbers from 1 to 4".into(), "such as 1, or 1,2,4");
    }
    Ok(())
}

/// The place of the peer that listens at `listen` in a list.
pub(super) fn rank_of(listen: &str, name: Option<&str>, peers: &[String]) -> Result<u32, NetError> {
    let own = name.unwrap_or(listen);
    if let Some(rank) = peers.iter().position(|peer| peer == own) {
        return Ok(rank as u32);
    }
    let addresses = |name: &str| name.to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let here = if name.is_none() { addresses(listen) } else { Vec::new() };
    let found = peers.iter().position(|peer| addresses(peer).iter().any(|address| here.contains(address)));
    found.map(|rank| rank as u32).ok_or_else(|| NetError::Parameter {
        what: format!("{own} is not in the list of peers ({})", peers.join(", ")),
        remedy: "name all peers, this one too, everywhere in the same order; if it listens at an address that the \
                 others do not use, give its entry with --name"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_peer_finds_itself_by_text_by_address_or_by_name() {
        let peers = names(&["127.0.0.1:7401", "localhost:7402", "elsewhere.invalid:7403"]);
        assert_eq!(rank_of("127.0.0.1:7401", None, &peers).unwrap(), 0);
        assert_eq!(rank_of("127.0.0.1:7402", None, &peers).unwrap(), 1);
        assert_eq!(rank_of("0.0.0.0:7403", Some("elsewhere.invalid:7403"), &peers).unwrap(), 2);
        for (listen, name) in [("127.0.0.1:9", None), ("127.0.0.1:7401", Some("other:1"))] {
            assert!(rank_of(listen, name, &peers).unwrap_err().to_string().contains("--name"));
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let good = Parameters {
            peers: names(&["a:1", "b:1"]),
            bytes: 1 << 20,
            block_bytes: 65536,
            connections: vec![1],
            sweep: false,
        };
        assert!(check(&good).is_ok());
        for (bad, told) in [
            (Parameters { peers: names(&["a:1"]), ..good.clone() }, "two peers"),
            (Parameters { peers: names(&["a:1", "a:1"]), ..good.clone() }, "twice"),
            (Parameters { peers: names(&["a:1", "b"]), ..good.clone() }, "not an address"),
            (Parameters { peers: names(&["a:1", "b:\x1b[2J"]), ..good.clone() }, "not an address"),
            (Parameters { peers: vec!["a:1".into(); 2000], ..good.clone() }, "maximum"),
            (Parameters { bytes: 1, ..good.clone() }, "too little"),
            (Parameters { block_bytes: 1 << 40, ..good.clone() }, "--block"),
            (Parameters { connections: vec![5], ..good.clone() }, "1 to 4"),
            (Parameters { connections: vec![], ..good.clone() }, "1 to 4"),
        ] {
            let error = check(&bad).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
