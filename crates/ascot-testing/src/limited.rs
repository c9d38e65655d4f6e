//! A transport whose links between nodes have a bandwidth and a latency, for tests and benches: on a machine with one
//! node all communication is as fast as memory, and no scheme can show its savings on the network.
//!
//! ```text
//!   rank --\                                       /--> rank
//!   rank ---> way out of node --latency--> way into node ---> rank
//!             B bytes/s, in turn           B bytes/s, in turn
//! ```
//!
//! Time is virtual, nothing sleeps: each rank has a clock. A batch is available when the clock reaches its arrival; a
//! buffer is free when the clock reaches the time at which the receiver took the batch. A rank that has nothing to do
//! advances its clock to the next such time, as soon as no other rank can do anything before it. Computing takes no
//! time; [`Wire::work`] adds the time of disks. If ranks run in turns, times are the same in every run.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ascot_index::routing::{Lane, Sent, Topology, Transport, TransportError};
use ascot_io::Unpoisoned;

/// The speed of links between nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireSpeed {
    /// Bytes per second out of a node, and into it.
    pub bytes_per_second: f64,
    /// Seconds from one node to another.
    pub latency_seconds: f64,
}

/// The links between all nodes; clones share them.
#[derive(Clone)]
pub struct Wire {
    state: Arc<Mutex<State>>,
    topology: Topology,
    speed: WireSpeed,
}

struct State {
    /// The times, in seconds, at which each node's outgoing link, incoming link and other device are free again.
    out_free: Vec<f64>,
    in_free: Vec<f64>,
    device_free: Vec<f64>,
    /// The clock of each rank.
    now: Vec<f64>,
    /// The arrival times of batches in flight, and the times at which batches were taken, by sender, receiver, lane.
    arrivals: HashMap<(u32, u32, Lane), VecDeque<f64>>,
    taken: HashMap<(u32, u32, Lane), VecDeque<f64>>,
    /// For each idle rank: the time at which it has work again, if known.
    idle_until: Vec<Option<f64>>,
    left: Vec<bool>,
}

impl Wire {
    /// Links between the nodes of `topology`, all free.
    pub fn new(topology: &Topology, speed: WireSpeed) -> Self {
        let nodes = topology.nodes() as usize;
        let ranks = topology.size() as usize;
        let state = State {
            out_free: vec![0.0; nodes],
            in_free: vec![0.0; nodes],
            device_free: vec![0.0; nodes],
            now: vec![0.0; ranks],
            arrivals: HashMap::new(),
            taken: HashMap::new(),
            idle_until: vec![None; ranks],
            left: vec![false; ranks],
        };
        Self { state: Arc::new(Mutex::new(state)), topology: topology.clone(), speed }
    }

    /// `rank` gives another device of its node, such as its disk, `seconds` of work, and continues.
    pub fn work(&self, rank: u32, seconds: f64) {
        let mut state = self.lock();
        let now = state.now(rank);
        if let Some(free) = state.device_free.get_mut(self.topology.node_of(rank) as usize) {
            *free = free.max(now) + seconds;
        }
    }

    /// `rank` waits until that device has finished its work.
    pub fn wait_for_device(&self, rank: u32) {
        let mut state = self.lock();
        let done = state.device_free.get(self.topology.node_of(rank) as usize).copied();
        state.reaches(rank, done.unwrap_or(0.0));
    }

    /// The clock of a rank: seconds since the start.
    pub fn seconds(&self, rank: u32) -> f64 {
        self.lock().now(rank)
    }

    /// The clock of the rank that is furthest ahead.
    pub fn last_seconds(&self) -> f64 {
        (0..self.topology.size()).map(|rank| self.seconds(rank)).fold(0.0, f64::max)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// The arrival time of a batch that `from` sends now.
    fn arrival(&self, state: &mut State, from: u32, to: u32, bytes: usize) -> f64 {
        let now = state.now(from);
        let here = self.topology.node_of(from) as usize;
        let there = self.topology.node_of(to) as usize;
        if here == there {
            return now;
        }
        let seconds = bytes as f64 / self.speed.bytes_per_second;
        let (Some(out_free), Some(in_free)) = (state.out_free.get_mut(here), state.in_free.get_mut(there))
        else {
            return now;
        };
        *out_free = out_free.max(now) + seconds;
        // It arrives at the rate at which it leaves, unless other batches are arriving.
        *in_free = (*out_free + self.speed.latency_seconds).max(*in_free + seconds);
        *in_free
    }
}

impl State {
    /// Advances a rank's clock.
    fn reaches(&mut self, rank: u32, time: f64) {
        if let Some(now) = self.now.get_mut(rank as usize) {
            *now = now.max(time);
        }
    }

    fn now(&self, rank: u32) -> f64 {
        self.now.get(rank as usize).copied().unwrap_or(0.0)
    }

    /// Notes that something arrives for `rank` at `time`.
    fn wakes(&mut self, rank: u32, time: f64) {
        if let Some(Some(until)) = self.idle_until.get_mut(rank as usize) {
            *until = until.min(time);
        }
    }

    fn set_idle(&mut self, rank: u32, until: Option<f64>) {
        if let Some(idle) = self.idle_until.get_mut(rank as usize) {
            *idle = until;
        }
    }

    /// Whether no other rank can do anything before `time`.
    fn is_next(&self, rank: u32, time: f64) -> bool {
        let moments = self.now.iter().zip(&self.idle_until).zip(&self.left);
        let mut others = (0u32..).zip(moments).filter(|(other, (_, left))| *other != rank && !**left);
        others.all(|(_, ((now, idle), _))| idle.unwrap_or(*now) >= time)
    }

    /// The time at which the earliest batch taken from `from` by `to` was taken.
    fn first_taken(&self, from: u32, to: u32, lane: Lane) -> Option<f64> {
        self.taken.get(&(from, to, lane))?.front().copied()
    }
}

/// A batch in flight.
struct Early {
    lane: Lane,
    from: u32,
    arrival: f64,
    batch: Vec<u8>,
}

/// A transport on limited links.
pub struct Limited<T> {
    inner: T,
    wire: Wire,
    /// The next batch of each lane, and buffers whose batches have not been taken.
    early: Vec<Early>,
    unreturned: Vec<Sent>,
}

impl<T: Transport> Limited<T> {
    /// `inner`, limited to the speed of `wire`.
    pub fn new(inner: T, wire: &Wire) -> Self {
        Self { inner, wire: wire.clone(), early: Vec::new(), unreturned: Vec::new() }
    }
}

impl<T: Transport> Transport for Limited<T> {
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    fn topology(&self) -> Topology {
        self.wire.topology.clone()
    }

    fn send(&mut self, to: u32, lane: Lane, batch: Vec<u8>) -> Result<(), TransportError> {
        let from = self.rank();
        let mut state = self.wire.lock();
        let arrival = self.wire.arrival(&mut state, from, to, batch.len());
        state.arrivals.entry((from, to, lane)).or_default().push_back(arrival);
        state.wakes(to, arrival);
        drop(state);
        self.inner.send(to, lane, batch)?;
        // Ranks alternate, a batch each, so that the order of sends in the program is about their order in time.
        self.inner.wait(Duration::ZERO)
    }

    fn receive(&mut self, lane: Lane, into: &mut Vec<u8>) -> Result<Option<u32>, TransportError> {
        let rank = self.rank();
        if !self.early.iter().any(|early| early.lane == lane) {
            let mut batch = Vec::new();
            let Some(from) = self.inner.receive(lane, &mut batch)? else { return Ok(None) };
            let stamps = &mut self.wire.lock().arrivals;
            let arrival = stamps.get_mut(&(from, rank, lane)).and_then(VecDeque::pop_front).unwrap_or(0.0);
            self.early.push(Early { lane, from, arrival, batch });
        }
        let mut state = self.wire.lock();
        let now = state.now(rank);
        let due = self.early.iter().position(|early| early.lane == lane && early.arrival <= now);
        let Some(early) = due.map(|place| self.early.swap_remove(place)) else { return Ok(None) };
        into.clear();
        into.extend_from_slice(&early.batch);
        state.taken.entry((early.from, rank, lane)).or_default().push_back(now);
        state.wakes(early.from, now);
        state.set_idle(rank, None);
        Ok(Some(early.from))
    }

    fn sent(&mut self) -> Result<Option<Sent>, TransportError> {
        while let Some(sent) = self.inner.sent()? {
            self.unreturned.push(sent);
        }
        let rank = self.rank();
        let mut state = self.wire.lock();
        let now = state.now(rank);
        let free = self
            .unreturned
            .iter()
            .position(|sent| state.first_taken(rank, sent.to, sent.lane).is_some_and(|taken| taken <= now));
        // In the order of sending.
        let Some(sent) = free.map(|place| self.unreturned.remove(place)) else { return Ok(None) };
        state.taken.get_mut(&(rank, sent.to, sent.lane)).and_then(VecDeque::pop_front);
        state.set_idle(rank, None);
        Ok(Some(sent))
    }

    /// Advances the clock if this rank can act before all others, else lets other ranks run.
    fn wait(&mut self, timeout: Duration) -> Result<(), TransportError> {
        let rank = self.rank();
        let mut state = self.wire.lock();
        let arrivals = self.early.iter().map(|early| early.arrival);
        let taken = self.unreturned.iter().filter_map(|sent| state.first_taken(rank, sent.to, sent.lane));
        // Batches that have already arrived do not count: this rank has no free buffer for them.
        let now = state.now(rank);
        let next = arrivals.chain(taken).filter(|&time| time > now).fold(f64::INFINITY, f64::min);
        if next.is_finite() && state.is_next(rank, next) {
            state.reaches(rank, next);
            state.set_idle(rank, None);
            return Ok(());
        }
        // A rank that sends to it later resets this.
        state.set_idle(rank, Some(next));
        drop(state);
        self.inner.wait(timeout)
    }

    fn leave(&mut self) {
        let rank = self.rank();
        if let Some(left) = self.wire.lock().left.get_mut(rank as usize) {
            *left = true;
        }
        self.inner.leave();
    }
}
