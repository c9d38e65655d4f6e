//! Two nodes of a large machine, rank by rank; the rest of the machine is simulated.
//!
//! The routers of all ranks of two nodes are real. Every other rank is a mirror: a batch sent to it comes back on the
//! same connection, addressed to a random rank of the sender's node, and the buffer is free again when that batch has
//! been taken. If all ranks send evenly to all, a real peer would have sent the same. So messages, bytes and memory
//! of a rank are counted, not estimated, for a machine that does not exist. The allreduce between ranks is left
//! out: it has three connections at any size.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use ascot_index::routing::batch::{HEADER_BYTES, Header, put_message, take_message};
use ascot_index::routing::{
    Lane, Route, RouteError, Router, RoutingCounts, RoutingSettings, Sent, Topology, Transport,
    TransportError,
};
use ascot_io::Pool;
use ascot_model::random::SplitMix64;

/// The measurements of one rank of the sampled nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledRank {
    /// The rank.
    pub rank: u32,
    /// Messages it sent, forwarded and received.
    pub counts: RoutingCounts,
    /// Bytes of its buffers.
    pub memory_bytes: usize,
    /// Ranks of other nodes it is connected to.
    pub remote: usize,
    /// Ranks of its own node it is connected to.
    pub neighbours: usize,
}

/// Runs an epoch in which each rank sends `messages` messages of `bytes` bytes evenly to all ranks of `topology`;
/// measures the ranks of the first and the last full node.
pub fn sample_two_nodes(
    topology: &Topology,
    settings: &RoutingSettings,
    messages: u64,
    bytes: usize,
    pool: &Pool,
) -> Result<Vec<SampledRank>, RouteError> {
    let full = topology.ranks_on(0);
    let last = (0..topology.nodes()).rev().find(|&node| topology.ranks_on(node) == full).unwrap_or(0);
    let machine = Machine { topology: topology.clone(), sampled: Vec::new(), random: SplitMix64(1) };
    let machine = Rc::new(RefCell::new(machine));
    let mut nodes = vec![0, last];
    nodes.dedup();
    let mut routers = Vec::new();
    for rank in nodes.iter().flat_map(|&node| (0..full).map(move |index| topology.rank_at(node, index))) {
        let end = machine.borrow_mut().add(rank, &machine);
        routers.push(Router::new(end, settings.clone(), pool)?);
    }
    let message = vec![0; bytes];
    let mut left: Vec<(u64, Option<u32>)> = vec![(messages, None); routers.len()];
    let mut done = vec![false; routers.len()];
    while done.iter().any(|done| !done) {
        for ((router, (left, next)), done) in routers.iter_mut().zip(&mut left).zip(&mut done) {
            // In short turns, so that all fill their batches at a similar pace.
            for _ in 0..1000 {
                if *left == 0 {
                    break;
                }
                let to = *next
                    .get_or_insert_with(|| machine.borrow_mut().random.below(topology.size().into()) as u32);
                if !router.try_append(to, &message, &mut |_| {})? {
                    break;
                }
                (*left, *next) = (*left - 1, None);
            }
            *done = if *left == 0 { router.try_drain(&mut |_| {})? } else { false };
        }
    }
    Ok(routers.iter().map(sampled).collect())
}

fn sampled(router: &Router<End>) -> SampledRank {
    let layout = router.layout();
    let neighbours = router.topology().ranks_on(router.topology().node_of(router.rank())) as usize - 1;
    let remote = match layout.route() {
        Route::Direct => layout.connections(Lane::Deliver) - neighbours,
        Route::ThreeHop => layout.connections(Lane::Wire),
    };
    SampledRank {
        rank: router.rank(),
        counts: router.counts().clone(),
        memory_bytes: layout.memory_bytes(),
        remote,
        neighbours,
    }
}

/// All state outside the routers.
struct Machine {
    topology: Topology,
    sampled: Vec<Inbox>,
    random: SplitMix64,
}

/// The batches that wait for a sampled rank.
#[derive(Default)]
struct Inbox {
    rank: u32,
    lanes: [VecDeque<(u32, Vec<u8>)>; 4],
    taken: VecDeque<Sent>,
}

impl Machine {
    fn add(&mut self, rank: u32, own: &Rc<RefCell<Self>>) -> End {
        self.sampled.push(Inbox { rank, ..Inbox::default() });
        End { machine: own.clone(), place: self.sampled.len() - 1, rank, topology: self.topology.clone() }
    }

    /// The reply of a mirror to a batch: as many messages, for ranks of the node of `rank`.
    fn mirrored(&mut self, batch: &[u8], lane: Lane, rank: u32) -> Option<Vec<u8>> {
        if lane != Lane::Wire {
            return Some(batch.to_vec());
        }
        let ranks = self.topology.ranks_on(self.topology.node_of(rank));
        let mut back = Vec::with_capacity(batch.len());
        Header::begin(&mut back);
        let mut at = HEADER_BYTES;
        while at < batch.len() {
            let (_, place) = take_message(batch, at, true)?;
            put_message(&mut back, Some(self.random.below(ranks.into()) as u32), batch.get(place.clone())?);
            at = place.end;
        }
        Header::read(batch)?.write(&mut back);
        Some(back)
    }
}

/// The transport of a sampled rank.
struct End {
    machine: Rc<RefCell<Machine>>,
    place: usize,
    rank: u32,
    topology: Topology,
}

impl Transport for End {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn topology(&self) -> Topology {
        self.topology.clone()
    }

    fn send(&mut self, to: u32, lane: Lane, batch: Vec<u8>) -> Result<(), TransportError> {
        let failed = |what: &str| TransportError::Failed { what: what.to_owned() };
        let mut machine = self.machine.borrow_mut();
        let inbox = machine.sampled.iter().position(|inbox| inbox.rank == to);
        let (place, from, batch) = match inbox {
            Some(place) => (place, self.rank, batch),
            None => {
                // The original is given back when the mirror's reply is taken; the reply has the same length.
                let back = machine.mirrored(&batch, lane, self.rank);
                let mut buffer = batch;
                buffer.clear();
                buffer.extend_from_slice(&back.ok_or_else(|| failed("a batch that cannot be read"))?);
                (self.place, to, buffer)
            }
        };
        let inbox = machine.sampled.get_mut(place).ok_or_else(|| failed("no such rank"))?;
        let queue = inbox.lanes.get_mut(lane as usize).ok_or_else(|| failed("no such lane"))?;
        queue.push_back((from, batch));
        Ok(())
    }

    fn sent(&mut self) -> Result<Option<Sent>, TransportError> {
        Ok(self.machine.borrow_mut().sampled.get_mut(self.place).and_then(|inbox| inbox.taken.pop_front()))
    }

    fn receive(&mut self, lane: Lane, into: &mut Vec<u8>) -> Result<Option<u32>, TransportError> {
        let mut machine = self.machine.borrow_mut();
        let Some(inbox) = machine.sampled.get_mut(self.place) else { return Ok(None) };
        let Some((from, buffer)) = inbox.lanes.get_mut(lane as usize).and_then(VecDeque::pop_front) else {
            return Ok(None);
        };
        into.clear();
        into.extend_from_slice(&buffer);
        // Back to the sender: a sampled rank, or this one if the sender is a mirror.
        let owner = machine.sampled.iter_mut().find(|inbox| inbox.rank == from);
        match owner {
            Some(owner) => owner.taken.push_back(Sent { to: self.rank, lane, buffer }),
            None => {
                if let Some(inbox) = machine.sampled.get_mut(self.place) {
                    inbox.taken.push_back(Sent { to: from, lane, buffer });
                }
            }
        }
        Ok(Some(from))
    }

    fn wait(&mut self, _most: Duration) -> Result<(), TransportError> {
        Err(TransportError::Failed { what: "a sampled rank does not wait".to_owned() })
    }
}
