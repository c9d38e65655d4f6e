//! The router of one rank: it appends messages, forwards those of other ranks, and delivers those for this rank.
//!
//! An epoch goes through three phases; only the first takes messages:
//!
//! ```text
//!   append ... append | drain: flush lane by lane until all has arrived | allreduce: up and down the tree
//! ```
//!
//! A lane is flushed when no more messages can be put on it: the local lane when the rank stops appending, the wire
//! lane when all local batches have arrived, the deliver lane when all wire batches have. During the allreduce no
//! messages are taken, because faster ranks may already be in the next epoch.

use std::time::Duration;

use ascot_io::Pool;

use super::allreduce::{CODE_SILENT, Combined, ControlMessage, Kind, Outcome};
use super::batch::{HEADER_BYTES, Header, take_message};
use super::control::Control;
use super::counts::RoutingCounts;
use super::error::RouteError;
use super::lane::{InHand, LaneState, Outgoing};
use super::layout::{Layout, RoutingSettings, peers};
use super::next_hop::NextHops;
use super::parts::Parts;
use super::patience::{WAIT, Waiting, named};
use super::topology::Topology;
use super::transport::{Lane, Transport};

/// Appends between two polls of incoming batches, if nothing else causes a poll.
const APPENDS_PER_LOOK: u32 = 256;

/// Routes the messages of one rank.
pub struct Router<T: Transport> {
    transport: T,
    parts: Parts,
    epoch: u32,
    control: Control,
    counts: RoutingCounts,
    appends_to_look: u32,
    /// The first failure; every later call returns it.
    failed: Option<RouteError>,
    left: bool,
}

/// The function that receives delivered messages.
pub type Delivery<'a> = dyn FnMut(&[u8]) + 'a;

impl<T: Transport> Router<T> {
    /// A router over `transport`; allocates all its buffers from `pool`.
    pub fn new(transport: T, settings: RoutingSettings, pool: &Pool) -> Result<Self, RouteError> {
        let parts = Parts::new(&transport, settings, pool)?;
        Ok(Self::with_parts(transport, parts))
    }

    /// A router without lanes for messages: it takes part in allreduces whatever the settings of each rank are, so
    /// that a rank with invalid settings can report them. `patience` bounds its waits for other ranks.
    pub fn without_lanes(transport: T, patience: Duration) -> Self {
        let settings = RoutingSettings { patience, ..RoutingSettings::default() };
        let parts = Parts::without_lanes(&transport, settings);
        Self::with_parts(transport, parts)
    }

    fn with_parts(transport: T, parts: Parts) -> Self {
        let NextHops { topology, rank, .. } = &parts.next_hops;
        Self {
            control: Control::new(peers(topology, *rank, parts.layout.route(), Lane::Control).into_iter()),
            transport,
            parts,
            epoch: 0,
            counts: RoutingCounts::default(),
            appends_to_look: APPENDS_PER_LOOK,
            failed: None,
            left: false,
        }
    }

    /// The lanes of a router, made while a failure can still be reported to all ranks.
    ///
    /// # Errors
    /// Those of [`Parts::new`].
    pub fn prepare(&self, settings: RoutingSettings, pool: &Pool) -> Result<Parts, RouteError> {
        Parts::new(&self.transport, settings, pool)
    }

    /// Installs prepared lanes, before any message is routed.
    pub fn begin(&mut self, parts: Parts) {
        self.parts = parts;
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.parts.next_hops.rank
    }

    /// The ranks and their nodes.
    pub fn topology(&self) -> &Topology {
        &self.parts.next_hops.topology
    }

    /// The connections and the memory.
    pub fn layout(&self) -> &Layout {
        &self.parts.layout
    }

    /// Counts of this router.
    pub fn counts(&self) -> &RoutingCounts {
        &self.counts
    }

    /// Maximum bytes of a message; unlimited if this rank is the only one, because nothing is sent.
    pub fn longest_message(&self) -> usize {
        if self.topology().size() > 1 { self.parts.layout.settings.max_message_bytes } else { usize::MAX }
    }

    /// Sends a message to rank `to`, and delivers messages that have arrived. Waits while there is no space.
    pub fn append(&mut self, to: u32, message: &[u8], delivery: &mut Delivery<'_>) -> Result<(), RouteError> {
        self.until(|router| Ok(router.try_append(to, message, delivery)?.then_some(())))
    }

    /// As [`append`](Self::append), but returns `false`, with nothing sent, if there is no space even after a poll.
    pub fn try_append(
        &mut self,
        to: u32,
        message: &[u8],
        delivery: &mut Delivery<'_>,
    ) -> Result<bool, RouteError> {
        self.check_well()?;
        if to >= self.topology().size() {
            return Err(RouteError::NoSuchRank { rank: to, size: self.topology().size() });
        }
        let max_bytes = self.longest_message();
        if message.len() > max_bytes {
            return Err(RouteError::TooLong { bytes: message.len(), max_bytes });
        }
        self.guarded(|router| router.append_now(to, message, delivery))
    }

    fn append_now(
        &mut self,
        to: u32,
        message: &[u8],
        delivery: &mut Delivery<'_>,
    ) -> Result<bool, RouteError> {
        self.appends_to_look = self.appends_to_look.saturating_sub(1);
        let sent_before = self.batches_sent();
        let mut put = self.pass_on(to, message, delivery)?;
        if !put || self.appends_to_look == 0 || self.batches_sent() > sent_before {
            self.appends_to_look = APPENDS_PER_LOOK;
            self.look(delivery)?;
            put = put || self.pass_on(to, message, delivery)?;
        }
        if put {
            self.counts.appended += 1;
            self.counts.appended_bytes += message.len() as u64;
        }
        Ok(put)
    }

    /// Delivers arrived messages and forwards others; returns whether anything moved. Call it occasionally during long
    /// computations, so that others need not wait.
    pub fn progress(&mut self, delivery: &mut Delivery<'_>) -> Result<bool, RouteError> {
        self.guarded(|router| router.look(delivery))
    }

    /// Ends the epoch's messages: returns when all messages of all ranks for this one have been delivered.
    /// All ranks call it. [`allreduce`](Self::allreduce) must follow.
    pub fn drain(&mut self, delivery: &mut Delivery<'_>) -> Result<(), RouteError> {
        self.until(|router| Ok(router.try_drain(delivery)?.then_some(())))
    }

    /// As [`drain`](Self::drain), but returns `false` if it would wait. Nothing may be appended after the first call.
    pub fn try_drain(&mut self, delivery: &mut Delivery<'_>) -> Result<bool, RouteError> {
        self.guarded(|router| router.drain_on(delivery))
    }

    /// Waits until something may have moved, after an append or drain without space; pass the same `waiting` to all
    /// waits of one call.
    pub fn wait(&mut self, waiting: &mut Waiting) -> Result<(), RouteError> {
        self.counts.waits += 1;
        let patience = self.parts.layout.settings.patience;
        let waited = self.transport.wait(WAIT.min(patience / 16)).map_err(RouteError::from);
        self.noted(waited)?;
        let still = waiting.unmoved_for(self.moved_so_far());
        if still < patience / 4 {
            return Ok(());
        }
        let missing = self.missing();
        for &rank in &missing {
            self.control.presence.ask(&mut self.transport, rank, patience / 8);
        }
        if still <= patience {
            return Ok(());
        }
        let there = |rank: &u32| self.control.presence.has_answered(*rank, patience);
        let silent: Vec<u32> = missing.iter().copied().filter(|rank| !there(rank)).collect();
        if let Some(&first) = silent.first() {
            return self.give_up_on(first, &silent);
        }
        if still <= 2 * patience {
            return Ok(());
        }
        self.noted(Err(RouteError::Stuck { seconds: still.as_secs() }))
    }

    /// Combines the outcomes of all ranks and opens the next epoch. All ranks call it with the same purpose, a number
    /// defined by the caller; otherwise all of them fail.
    pub fn allreduce(&mut self, purpose: u8, outcome: Outcome, sums: &[u64]) -> Result<Combined, RouteError> {
        self.allreduce_message(ControlMessage::new(purpose, self.epoch, self.rank(), outcome, sums))
    }

    /// As [`allreduce`](Self::allreduce) without sums. `same` are options `name=value` that must be the same at all
    /// ranks: the failure of a rank that differs has the code [`CODE_DIFFERENT`](super::CODE_DIFFERENT).
    pub fn allreduce_options(
        &mut self,
        purpose: u8,
        outcome: Outcome,
        same: &str,
    ) -> Result<Combined, RouteError> {
        let message = ControlMessage::new(purpose, self.epoch, self.rank(), outcome, &[]);
        self.allreduce_message(message.with_same(same))
    }

    fn allreduce_message(&mut self, message: ControlMessage) -> Result<Combined, RouteError> {
        self.guarded(|router| router.run_allreduce(message))
    }

    /// Leaves in good order, after an allreduce.
    pub fn leave(&mut self) {
        self.left = true;
        self.transport.leave();
    }

    /// Informs the other ranks that this one gives up, so that they need not detect it by waiting.
    pub fn give_up(&mut self, text: &str) {
        if self.failed.is_none() {
            self.spread_failure(self.rank(), 0, text, &[]);
            self.failed = Some(RouteError::Abandoned { rank: self.rank(), text: text.to_owned() });
        }
    }

    /// Bytes of the buffers not in transit.
    pub fn bytes_held(&self) -> usize {
        let lanes: usize = self.parts.lanes.iter().map(LaneState::bytes).sum();
        lanes + self.parts.spare.iter().map(Vec::capacity).sum::<usize>() + self.control.bytes()
    }

    // ------------------------------------------------------------ inside

    /// Reports silent ranks to all ranks that can be reached.
    fn give_up_on(&mut self, first: u32, silent: &[u32]) -> Result<(), RouteError> {
        let seconds = self.parts.layout.settings.patience.as_secs();
        let waited_for = named(silent);
        self.spread_failure(first, CODE_SILENT, &waited_for, &[seconds]);
        self.noted(Err(RouteError::Silent { seconds, waited_for }))
    }

    /// Reports the failure of `rank` to all ranks that can be reached.
    fn spread_failure(&mut self, rank: u32, code: u32, text: &str, sums: &[u64]) {
        let outcome = Outcome::Failed { code, text: text.to_owned() };
        let mut message = ControlMessage::new(0, self.epoch, rank, outcome, sums);
        message.kind = Kind::GivesUp;
        self.control.spread(&mut self.transport, &message, None);
    }

    /// A number that increases whenever anything is sent, forwarded or delivered.
    fn moved_so_far(&self) -> u64 {
        let in_hand = |lane: &LaneState| lane.in_hand.messages + lane.in_hand.at as u64;
        self.batches_sent() + self.counts.delivered + self.parts.lanes.iter().map(in_hand).sum::<u64>()
    }

    /// The ranks that this one may be waiting for.
    fn missing(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.parts.lanes.iter().flat_map(LaneState::missing).collect();
        ranks.extend(self.control.missing());
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    fn check_well(&self) -> Result<(), RouteError> {
        match &self.failed {
            None => Ok(()),
            Some(failure) => Err(failure.clone()),
        }
    }

    /// Runs `act` unless the router failed before, and keeps a failure.
    fn guarded<R>(&mut self, act: impl FnOnce(&mut Self) -> Result<R, RouteError>) -> Result<R, RouteError> {
        self.check_well()?;
        let result = act(self);
        self.noted(result)
    }

    /// Repeats `step` until it has a result; waits after each time without one.
    fn until<R>(
        &mut self,
        mut step: impl FnMut(&mut Self) -> Result<Option<R>, RouteError>,
    ) -> Result<R, RouteError> {
        let mut waiting = Waiting::default();
        loop {
            if let Some(done) = step(self)? {
                return Ok(done);
            }
            self.wait(&mut waiting)?;
        }
    }

    /// Keeps the first failure: the router cannot be used after it.
    fn noted<R>(&mut self, result: Result<R, RouteError>) -> Result<R, RouteError> {
        if let Err(error) = &result
            && self.failed.is_none()
        {
            self.failed = Some(error.clone());
        }
        result
    }

    fn batches_sent(&self) -> u64 {
        self.counts.hops.iter().map(|hop| hop.batches).sum()
    }

    /// Forwards a message, or delivers it if it is for this rank. `false`: no space.
    fn pass_on(&mut self, to: u32, message: &[u8], delivery: &mut Delivery<'_>) -> Result<bool, RouteError> {
        let Some(hop) = self.parts.next_hops.next_hop(to) else {
            self.counts.delivered += 1;
            delivery(message);
            return Ok(true);
        };
        self.on_lane(hop.lane, |state, epoch, out| state.put(hop.place, hop.address, message, epoch, out))
    }

    /// Runs `act` on a lane that may send, and counts what it sends.
    fn on_lane<R>(
        &mut self,
        lane: Lane,
        act: impl FnOnce(&mut LaneState, u32, &mut Outgoing<'_, T>) -> Result<R, RouteError>,
    ) -> Result<R, RouteError> {
        let Self { transport, counts, parts: Parts { lanes, spare, next_hops, .. }, epoch, .. } = self;
        let mut out = Outgoing { transport, spare, counts, next_hops };
        act(lane_of(lanes, lane), *epoch, &mut out)
    }

    fn lane(&mut self, lane: Lane) -> &mut LaneState {
        lane_of(&mut self.parts.lanes, lane)
    }

    fn look(&mut self, delivery: &mut Delivery<'_>) -> Result<bool, RouteError> {
        let mut moved = self.take_back_buffers()?;
        moved |= self.control.poll(&mut self.transport)?;
        // The last lane first: its progress makes space for the others.
        for lane in [Lane::Deliver, Lane::Wire, Lane::Local] {
            while self.lane(lane).used() && self.advance(lane, delivery)? {
                moved = true;
            }
        }
        Ok(moved)
    }

    fn take_back_buffers(&mut self) -> Result<bool, RouteError> {
        let mut moved = false;
        while let Some(sent) = self.transport.sent()? {
            moved = true;
            if sent.lane == Lane::Control {
                self.control.take_back(sent);
            } else if let Some(place) = self.parts.next_hops.place_of(sent.lane, sent.to) {
                let Parts { lanes, spare, .. } = &mut self.parts;
                lane_of(lanes, sent.lane).take_back(place, sent, spare);
            }
        }
        Ok(moved)
    }

    /// Forwards the batch in hand of a lane, or takes the next one; returns whether anything moved.
    fn advance(&mut self, lane: Lane, delivery: &mut Delivery<'_>) -> Result<bool, RouteError> {
        let mut hand = std::mem::take(&mut self.lane(lane).in_hand);
        let moved = self.advance_in_hand(lane, &mut hand, delivery);
        self.lane(lane).in_hand = hand;
        moved
    }

    fn advance_in_hand(
        &mut self,
        lane: Lane,
        hand: &mut InHand,
        delivery: &mut Delivery<'_>,
    ) -> Result<bool, RouteError> {
        let mut moved = false;
        if hand.done {
            let Some(from) = self.transport.receive(lane, &mut hand.batch)? else { return Ok(false) };
            hand.from = from;
            hand.at = HEADER_BYTES;
            hand.messages = 0;
            hand.done = false;
            moved = true;
        }
        let from = hand.from;
        let garbled = |what| RouteError::Garbled { from, what };
        let header = Header::read(&hand.batch).ok_or(garbled("the head of a batch"))?;
        if header.epoch != self.epoch {
            return Err(garbled("a batch of another epoch"));
        }
        let before = hand.at;
        if self.pass_on_batch(lane, hand, delivery)? {
            let place = self.parts.next_hops.place_of(lane, from).ok_or(garbled("not a peer"))?;
            self.lane(lane).finish(place, hand, header)?;
            moved = true;
        }
        Ok(moved || hand.at > before)
    }

    /// Forwards messages of a batch until there is no space; returns whether all are forwarded.
    fn pass_on_batch(
        &mut self,
        lane: Lane,
        hand: &mut InHand,
        delivery: &mut Delivery<'_>,
    ) -> Result<bool, RouteError> {
        let from = hand.from;
        let garbled = |what| RouteError::Garbled { from, what };
        while hand.at < hand.batch.len() {
            let (address, place) = take_message(&hand.batch, hand.at, lane != Lane::Deliver)
                .ok_or(garbled("a message of a batch"))?;
            let node = self.parts.next_hops.node;
            let to = match lane {
                Lane::Local => address,
                Lane::Wire if address < self.topology().ranks_on(node) => {
                    self.topology().rank_at(node, address)
                }
                Lane::Deliver => self.rank(),
                Lane::Wire | Lane::Control => return Err(garbled("an address")),
            };
            if to >= self.topology().size() || (lane == Lane::Local && !self.parts.next_hops.represents(to)) {
                return Err(garbled("an address"));
            }
            let message = hand.batch.get(place.clone()).unwrap_or(&[]);
            if !self.pass_on(to, message, delivery)? {
                return Ok(false);
            }
            hand.at = place.end;
            hand.messages += 1;
        }
        Ok(true)
    }

    fn drain_on(&mut self, delivery: &mut Delivery<'_>) -> Result<bool, RouteError> {
        loop {
            let mut moved = self.look(delivery)?;
            let mut fed = true;
            for lane in Lane::DATA {
                if fed {
                    moved |= self.on_lane(lane, |state, epoch, out| state.flush(epoch, out))?;
                }
                fed &= self.lane(lane).all_arrived();
            }
            if self.parts.lanes.iter().all(|lane| lane.all_sent() && lane.all_arrived()) {
                return Ok(true);
            }
            if !moved {
                return Ok(false);
            }
        }
    }

    fn run_allreduce(&mut self, mut message: ControlMessage) -> Result<Combined, RouteError> {
        let children = self.until(|router| {
            router.poll_control()?;
            Ok(router.control.take_from_children(router.rank()))
        })?;
        let below: Vec<u32> = children.iter().map(|(child, _)| *child).collect();
        for (child, message_of_child) in children {
            if message_of_child.kind != Kind::Up {
                return Err(RouteError::Garbled { from: child, what: "an answer from below" });
            }
            message.add(self.rank(), child, message_of_child);
        }
        if self.rank() > 0 {
            self.send_message((self.rank() - 1) / 2, &message)?;
            message = self.answer()?;
        }
        message.kind = Kind::Down;
        for child in below {
            self.send_message(child, &message)?;
        }
        self.epoch += 1;
        for lane in &mut self.parts.lanes {
            lane.begin_epoch();
        }
        Ok(message.agreement)
    }

    /// Waits for the parent's message.
    fn answer(&mut self) -> Result<ControlMessage, RouteError> {
        let message = self.until(|router| {
            router.poll_control()?;
            Ok(router.control.take_from_parent(router.rank()))
        })?;
        match message.kind {
            Kind::Down => Ok(message),
            _ => Err(RouteError::Garbled { from: (self.rank() - 1) / 2, what: "a question from above" }),
        }
    }

    fn send_message(&mut self, to: u32, message: &ControlMessage) -> Result<(), RouteError> {
        self.until(|router| {
            let sent = router.control.send_message(&mut router.transport, to, message)?;
            if !sent {
                router.poll_control()?;
            }
            Ok(sent.then_some(()))
        })
    }

    /// Polls the control lane only.
    fn poll_control(&mut self) -> Result<(), RouteError> {
        self.take_back_buffers()?;
        self.control.poll(&mut self.transport)?;
        Ok(())
    }
}

fn lane_of([local, wire, deliver]: &mut [LaneState; 3], lane: Lane) -> &mut LaneState {
    match lane {
        Lane::Local => local,
        Lane::Wire => wire,
        Lane::Deliver | Lane::Control => deliver,
    }
}

impl<T: Transport> Drop for Router<T> {
    fn drop(&mut self) {
        if !self.left {
            let text =
                self.failed.as_ref().map_or("it left before the end".to_owned(), RouteError::to_string);
            self.failed = None;
            self.give_up(&text);
        }
    }
}
