//! A transport whose links between nodes have a bandwidth and a latency, for tests and benches: on a machine
//! with one node everything else is as fast as memory, and no scheme can show what it saves on the wire.
//!
//! ```text
//!   rank --\                                       /--> rank
//!   rank ---> way out of node --latency--> way into node ---> rank
//!             B bytes/s, in turn           B bytes/s, in turn
//! ```
//!
//! In *real* time a batch is held back by its sender until it would have arrived. In *virtual* time nothing
//! waits: each rank has a clock, which a batch that is taken moves on to the batch's arrival, and so does a
//! buffer that the rank had to wait for; work of other devices is told by [`Wire::work`]. With ranks that
//! run in turns, virtual times are the same in every run.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::topology::Topology;
use super::transport::{Lane, Sent, Transport, TransportError};

/// What links between nodes can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireSpeed {
    /// Bytes a second out of a node, and as many into it.
    pub bytes_per_second: f64,
    /// Seconds from one node to another.
    pub latency_seconds: f64,
}

/// Whether time is real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Batches are held back.
    Real,
    /// Only clocks move.
    Virtual,
}

/// The links between all nodes; clones are the same.
#[derive(Clone)]
pub struct Wire {
    state: Arc<Mutex<State>>,
    topology: Topology,
    speed: WireSpeed,
    pace: Pace,
}

struct State {
    began: Instant,
    /// When each node's way out, way in, and other device are free again, seconds.
    out_free: Vec<f64>,
    in_free: Vec<f64>,
    device_free: Vec<f64>,
    /// The clock of each rank.
    now: Vec<f64>,
    /// When batches that are under way arrive, and when those taken were taken, by sender, receiver, lane.
    arrivals: HashMap<(u32, u32, Lane), VecDeque<f64>>,
    taken: HashMap<(u32, u32, Lane), VecDeque<f64>>,
}

impl Wire {
    /// Links between the nodes of `topology`, all free.
    pub fn new(topology: &Topology, speed: WireSpeed, pace: Pace) -> Self {
        let (nodes, ranks) = (topology.nodes() as usize, topology.size() as usize);
        let state = State {
            began: Instant::now(),
            out_free: vec![0.0; nodes],
            in_free: vec![0.0; nodes],
            device_free: vec![0.0; nodes],
            now: vec![0.0; ranks],
            arrivals: HashMap::new(),
            taken: HashMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), topology: topology.clone(), speed, pace }
    }

    /// In virtual time: `rank` keeps another device of its node busy for so long, and waits for it.
    pub fn work(&self, rank: u32, seconds: f64) {
        let node = self.topology.node_of(rank) as usize;
        let mut state = self.lock();
        let now = state.now.get(rank as usize).copied().unwrap_or(0.0);
        let Some(free) = state.device_free.get_mut(node) else { return };
        *free = free.max(now) + seconds;
        let done = *free;
        state.reaches(rank, done);
    }

    /// The clock of a rank: seconds since the beginning.
    pub fn seconds(&self, rank: u32) -> f64 {
        let state = self.lock();
        match self.pace {
            Pace::Real => state.began.elapsed().as_secs_f64(),
            Pace::Virtual => state.now.get(rank as usize).copied().unwrap_or(0.0),
        }
    }

    /// The clock of the last rank.
    pub fn last_seconds(&self) -> f64 {
        (0..self.topology.size()).map(|rank| self.seconds(rank)).fold(0.0, f64::max)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a batch that `from` sends now arrives.
    fn arrival(&self, state: &mut State, from: u32, to: u32, bytes: usize) -> f64 {
        let now = match self.pace {
            Pace::Real => state.began.elapsed().as_secs_f64(),
            Pace::Virtual => state.now.get(from as usize).copied().unwrap_or(0.0),
        };
        let (here, there) = (self.topology.node_of(from) as usize, self.topology.node_of(to) as usize);
        if here == there {
            return now;
        }
        let seconds = bytes as f64 / self.speed.bytes_per_second;
        let (Some(out_free), Some(in_free)) = (state.out_free.get_mut(here), state.in_free.get_mut(there))
        else {
            return now;
        };
        *out_free = out_free.max(now) + seconds;
        // It comes in as it goes out, unless others are coming in.
        *in_free = (*out_free + self.speed.latency_seconds).max(*in_free + seconds);
        *in_free
    }
}

impl State {
    /// Moves a rank's clock on.
    fn reaches(&mut self, rank: u32, time: f64) {
        if let Some(now) = self.now.get_mut(rank as usize) {
            *now = now.max(time);
        }
    }
}

/// A transport on limited links.
pub struct Limited<T> {
    inner: T,
    wire: Wire,
    /// In real time: batches that have not arrived yet.
    held: VecDeque<(f64, u32, Lane, Vec<u8>)>,
    /// The rank has waited since it last sent something.
    waited: bool,
}

impl<T: Transport> Limited<T> {
    /// `inner`, held to the speed of `wire`.
    pub fn new(inner: T, wire: &Wire) -> Self {
        Self { inner, wire: wire.clone(), held: VecDeque::new(), waited: false }
    }

    /// Hands over what has arrived by now; how long until the next does.
    fn hand_over(&mut self) -> Result<Option<Duration>, TransportError> {
        if self.held.is_empty() {
            return Ok(None);
        }
        let now = self.wire.lock().began.elapsed().as_secs_f64();
        let mut next = f64::INFINITY;
        for _ in 0..self.held.len() {
            let Some((due, to, lane, batch)) = self.held.pop_front() else { break };
            if due <= now {
                self.inner.send(to, lane, batch)?;
            } else {
                next = next.min(due);
                self.held.push_back((due, to, lane, batch));
            }
        }
        Ok(next.is_finite().then(|| Duration::from_secs_f64(next - now)))
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
        self.waited = false;
        let from = self.rank();
        let mut state = self.wire.lock();
        let arrival = self.wire.arrival(&mut state, from, to, batch.len());
        if self.wire.pace == Pace::Virtual {
            state.arrivals.entry((from, to, lane)).or_default().push_back(arrival);
            drop(state);
            return self.inner.send(to, lane, batch);
        }
        drop(state);
        if self.wire.topology.node_of(from) == self.wire.topology.node_of(to) {
            return self.inner.send(to, lane, batch);
        }
        self.held.push_back((arrival, to, lane, batch));
        self.hand_over().map(drop)
    }

    fn sent(&mut self) -> Result<Option<Sent>, TransportError> {
        self.hand_over()?;
        let (sent, rank) = (self.inner.sent()?, self.rank());
        if let (Some(sent), Pace::Virtual) = (&sent, self.wire.pace) {
            let mut state = self.wire.lock();
            let taken = state.taken.get_mut(&(rank, sent.to, sent.lane)).and_then(VecDeque::pop_front);
            if let (Some(taken), true) = (taken, self.waited) {
                state.reaches(rank, taken);
            }
        }
        Ok(sent)
    }

    fn receive(&mut self, lane: Lane, into: &mut Vec<u8>) -> Result<Option<u32>, TransportError> {
        self.hand_over()?;
        let (from, rank) = (self.inner.receive(lane, into)?, self.rank());
        if let (Some(from), Pace::Virtual) = (from, self.wire.pace) {
            let mut state = self.wire.lock();
            let arrival = state.arrivals.get_mut(&(from, rank, lane)).and_then(VecDeque::pop_front);
            state.reaches(rank, arrival.unwrap_or(0.0));
            let now = state.now.get(rank as usize).copied().unwrap_or(0.0);
            state.taken.entry((from, rank, lane)).or_default().push_back(now);
        }
        Ok(from)
    }

    fn wait(&mut self, most: Duration) -> Result<(), TransportError> {
        self.waited = true;
        let next = self.hand_over()?;
        self.inner.wait(next.map_or(most, |next| next.min(most)))
    }

    fn leave(&mut self) {
        // What is held back is word to others that they need in order to leave too.
        while let Ok(Some(next)) = self.hand_over() {
            std::thread::sleep(next);
        }
        self.inner.leave();
    }
}
