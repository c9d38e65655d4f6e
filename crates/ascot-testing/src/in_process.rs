//! Ranks as threads of one process: a transport for tests, benches and programs on one machine.
//!
//! In *free* order threads run as the system schedules them. In *turns* exactly one runs at a time, until it waits; a
//! seed determines the next. So every run is the same, and a run in which all ranks wait for each other is detected
//! at once instead of hanging. A rank that is dropped without having left is gone, and all waiting ranks are told.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use ascot_index::routing::{Lane, Sent, Topology, Transport, TransportError};
use ascot_io::Unpoisoned;
use ascot_model::random::SplitMix64;

/// The order in which ranks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As the system schedules them.
    Free,
    /// One at a time.
    OneAtATime {
        /// Determines the next rank.
        seed: u64,
    },
}

/// One rank's end.
pub struct Endpoint {
    hub: Arc<Hub>,
    rank: u32,
    /// The last change it has seen.
    seen: u64,
    /// Whether it has had its first turn.
    begun: bool,
}

struct Hub {
    topology: Topology,
    state: Mutex<State>,
    changed: Condvar,
}

/// Batches and their senders.
type Queue = VecDeque<(u32, Vec<u8>)>;

struct State {
    /// By receiver and lane.
    queues: Vec<[Queue; 4]>,
    taken: Vec<VecDeque<Sent>>,
    presence: Vec<Presence>,
    changes: u64,
    interleaving: Option<Interleaving>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Here,
    Left,
    Gone,
}

/// The ranks run one at a time, in an order by chance.
struct Interleaving {
    running: u32,
    random: SplitMix64,
    /// The last change at the last turn, and the turns since.
    changes: u64,
    idle: u64,
}

/// Endpoints for all ranks of `topology`; each goes to its own thread.
pub fn in_process(topology: &Topology, order: Order) -> Vec<Endpoint> {
    let size = topology.size() as usize;
    let interleaving = match order {
        Order::Free => None,
        Order::OneAtATime { seed } => {
            Some(Interleaving { running: 0, random: SplitMix64(seed), changes: 0, idle: 0 })
        }
    };
    let state = State {
        queues: (0..size).map(|_| Default::default()).collect(),
        taken: (0..size).map(|_| VecDeque::new()).collect(),
        presence: vec![Presence::Here; size],
        changes: 0,
        interleaving,
    };
    let hub = Arc::new(Hub { topology: topology.clone(), state: Mutex::new(state), changed: Condvar::new() });
    (0..topology.size()).map(|rank| Endpoint { hub: hub.clone(), rank, seen: 0, begun: false }).collect()
}

impl State {
    fn gone(&self) -> Option<u32> {
        self.presence.iter().position(|&presence| presence == Presence::Gone).map(|rank| rank as u32)
    }

    /// Lets another rank run; `false` if nothing has changed for so long that all must be waiting.
    fn next_turn(&mut self) -> bool {
        let here: Vec<u32> = (0u32..)
            .zip(&self.presence)
            .filter(|(_, at)| **at == Presence::Here)
            .map(|(rank, _)| rank)
            .collect();
        let changes = self.changes;
        let Some(interleaving) = &mut self.interleaving else { return true };
        interleaving.idle = if interleaving.changes == changes { interleaving.idle + 1 } else { 0 };
        interleaving.changes = changes;
        if let Some(&next) = here.get((interleaving.random.next_u64() % here.len().max(1) as u64) as usize) {
            interleaving.running = next;
        }
        // By then each rank has had its turn, except with probability e^-64.
        interleaving.idle < 64 * here.len() as u64 + 64
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, timeout).unpoisoned().0
    }

    /// Waits until it is this rank's turn.
    fn turn_of<'a>(&self, rank: u32, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.gone().is_none()
            && state.interleaving.as_ref().is_some_and(|interleaving| interleaving.running != rank)
        {
            state = self.sleep(state, Duration::from_secs(1));
        }
        state
    }

    fn depart(&self, rank: u32, how: Presence) {
        let mut state = self.lock();
        let Some(presence) = state.presence.get_mut(rank as usize) else { return };
        if *presence != Presence::Here {
            return;
        }
        *presence = how;
        state.changes += 1;
        if state.interleaving.as_ref().is_some_and(|interleaving| interleaving.running == rank) {
            state.next_turn();
        }
        self.changed.notify_all();
    }
}

impl Endpoint {
    fn state(&mut self) -> MutexGuard<'_, State> {
        let state = self.hub.lock();
        if self.begun {
            return state;
        }
        self.begun = true;
        self.hub.turn_of(self.rank, state)
    }
}

impl Transport for Endpoint {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn topology(&self) -> Topology {
        self.hub.topology.clone()
    }

    fn send(&mut self, to: u32, lane: Lane, batch: Vec<u8>) -> Result<(), TransportError> {
        let hub = self.hub.clone();
        let rank = self.rank;
        let mut state = self.state();
        if state.presence.get(to as usize) != Some(&Presence::Here) {
            return Err(TransportError::PeerGone { rank: to });
        }
        if let Some(queue) = state.queues.get_mut(to as usize).and_then(|lanes| lanes.get_mut(lane as usize))
        {
            queue.push_back((rank, batch));
        }
        state.changes += 1;
        hub.changed.notify_all();
        Ok(())
    }

    fn sent(&mut self) -> Result<Option<Sent>, TransportError> {
        let rank = self.rank as usize;
        Ok(self.state().taken.get_mut(rank).and_then(VecDeque::pop_front))
    }

    fn receive(&mut self, lane: Lane, into: &mut Vec<u8>) -> Result<Option<u32>, TransportError> {
        let hub = self.hub.clone();
        let rank = self.rank;
        let mut state = self.state();
        let queue = state.queues.get_mut(rank as usize).and_then(|lanes| lanes.get_mut(lane as usize));
        let Some((from, buffer)) = queue.and_then(VecDeque::pop_front) else { return Ok(None) };
        into.clear();
        into.extend_from_slice(&buffer);
        if let Some(taken) = state.taken.get_mut(from as usize) {
            taken.push_back(Sent { to: rank, lane, buffer });
        }
        state.changes += 1;
        hub.changed.notify_all();
        Ok(Some(from))
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), TransportError> {
        let hub = self.hub.clone();
        let rank = self.rank;
        let seen = self.seen;
        let mut state = self.state();
        if state.interleaving.is_some() {
            let alive = state.next_turn();
            hub.changed.notify_all();
            if !alive {
                return Err(TransportError::Failed { what: "all ranks wait for each other".to_owned() });
            }
            state = hub.turn_of(rank, state);
        } else if state.changes == seen {
            state = hub.sleep(state, timeout);
        }
        let changes = state.changes;
        let gone = state.gone();
        drop(state);
        self.seen = changes;
        gone.map_or(Ok(()), |rank| Err(TransportError::PeerGone { rank }))
    }

    fn leave(&mut self) {
        self.hub.depart(self.rank, Presence::Left);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.hub.depart(self.rank, Presence::Gone);
    }
}
