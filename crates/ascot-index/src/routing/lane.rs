//! One lane of a rank: its connections, their buffers, and the last batch received.
//!
//! A connection always owns a buffer, either being filled or in transit, so it continues as soon as the receiver takes
//! the batch in transit. It never depends on the spare buffers, which only let it fill one batch while another is in
//! transit.

use ascot_io::{Pool, PoolError};

use super::batch::{HEADER_BYTES, Header, message_bytes, put_message};
use super::counts::RoutingCounts;
use super::error::RouteError;
use super::layout::{RoutingSettings, UNDER_WAY_MAX};
use super::next_hop::NextHops;
use super::transport::{Lane, Sent, Transport};
use crate::reserve::vec_with_capacity;

/// The purpose of buffers, for errors about memory.
const PURPOSE: &str = "batches of messages between ranks";

/// Buffers that currently belong to no connection.
pub(super) type Spare = Vec<Vec<u8>>;

/// `count` buffers of `bytes` bytes.
pub(super) fn spare_buffers(count: usize, bytes: usize, pool: &Pool) -> Result<Spare, PoolError> {
    let mut buffers = vec_with_capacity(pool, count, PURPOSE)?;
    for _ in 0..count {
        buffers.push(vec_with_capacity(pool, bytes, PURPOSE)?);
    }
    Ok(buffers)
}

/// The connection to one rank on one lane, in both directions.
#[derive(Default)]
struct Connection {
    peer: u32,
    /// The batch being filled; `None` while it has no buffer.
    filling: Option<Vec<u8>>,
    under_way: u32,
    /// Messages sent in this epoch.
    sent: u64,
    end_sent: bool,
    /// Messages received in this epoch.
    arrived: u64,
    end_arrived: bool,
}

/// The last batch received on a lane, and the progress of passing it on.
#[derive(Default)]
pub(super) struct InHand {
    pub batch: Vec<u8>,
    /// Offset of the next message to pass on.
    pub at: usize,
    pub from: u32,
    /// Whether all of it is passed on.
    pub done: bool,
    /// Number of its messages passed on.
    pub messages: u64,
}

/// The state of one lane.
pub(super) struct LaneState {
    lane: Lane,
    connections: Vec<Connection>,
    pub in_hand: InHand,
    /// A buffer for a message that does not fit a batch; `None` while in transit.
    long: Option<Vec<u8>>,
    has_long: bool,
    batch_bytes: usize,
    /// Number of connections whose last batch of the epoch has been sent, and has arrived.
    ends_sent: usize,
    ends_arrived: usize,
    /// The connection where flushing continues.
    flush_at: usize,
}

impl LaneState {
    /// A lane with a buffer for each of `peers`, in address order.
    ///
    /// # Errors
    /// The system has too little memory for them.
    pub fn new(
        lane: Lane,
        peers: Vec<u32>,
        settings: &RoutingSettings,
        pool: &Pool,
    ) -> Result<Self, PoolError> {
        let connect = |peer| {
            let mut batch = vec_with_capacity(pool, settings.batch_bytes, PURPOSE)?;
            Header::begin(&mut batch);
            Ok(Connection { peer, filling: Some(batch), ..Connection::default() })
        };
        let connections = peers.into_iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        let mut this = Self::without_peers(lane, settings);
        if !connections.is_empty() {
            this.in_hand.batch = vec_with_capacity(pool, settings.longest_batch(), PURPOSE)?;
            this.long =
                settings.long_batch().map(|bytes| vec_with_capacity(pool, bytes, PURPOSE)).transpose()?;
            this.has_long = this.long.is_some();
        }
        Ok(Self { connections, ..this })
    }

    /// A lane that nothing is sent on.
    pub fn without_peers(lane: Lane, settings: &RoutingSettings) -> Self {
        Self {
            lane,
            in_hand: InHand { done: true, ..InHand::default() },
            has_long: false,
            long: None,
            connections: Vec::new(),
            batch_bytes: settings.batch_bytes,
            ends_sent: 0,
            ends_arrived: 0,
            flush_at: 0,
        }
    }

    pub fn used(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Bytes of the buffers not in transit.
    pub fn bytes(&self) -> usize {
        let filling = |connection: &Connection| connection.filling.as_ref().map_or(0, Vec::capacity);
        self.connections.iter().map(filling).sum::<usize>()
            + self.in_hand.batch.capacity()
            + self.long.as_ref().map_or(0, Vec::capacity)
    }

    /// Adds a message to the batch of connection `place`. `false`: there is no space now, and nothing changed.
    pub fn put<T: Transport>(
        &mut self,
        place: usize,
        address: Option<u32>,
        message: &[u8],
        epoch: u32,
        out: &mut Outgoing<'_, T>,
    ) -> Result<bool, RouteError> {
        let needed = message_bytes(address, message.len());
        let alone = HEADER_BYTES + needed > self.batch_bytes;
        let Some(connection) = self.connections.get_mut(place) else { return Ok(false) };
        let Some(batch) = &mut connection.filling else { return Ok(false) };
        if !alone && batch.len() + needed <= self.batch_bytes {
            put_message(batch, address, message);
            connection.sent += 1;
            return Ok(true);
        }
        if batch.len() > HEADER_BYTES {
            if !self.dispatch(place, epoch, false, out)? {
                return Ok(false);
            }
            return self.put(place, address, message, epoch, out);
        }
        // The batch is empty and too small for it: the message travels alone, after the messages sent before it.
        if connection.under_way >= UNDER_WAY_MAX {
            return Ok(false);
        }
        let Some(mut long) = self.long.take() else { return Ok(false) };
        Header::begin(&mut long);
        put_message(&mut long, address, message);
        connection.sent += 1;
        Header { epoch, end: false, messages: connection.sent }.write(&mut long);
        connection.under_way += 1;
        out.send(connection.peer, self.lane, long)?;
        Ok(true)
    }

    /// Sends the batch being filled. `false`: too many are in transit.
    fn dispatch<T: Transport>(
        &mut self,
        place: usize,
        epoch: u32,
        end: bool,
        out: &mut Outgoing<'_, T>,
    ) -> Result<bool, RouteError> {
        let Some(connection) = self.connections.get_mut(place) else { return Ok(false) };
        if connection.under_way >= UNDER_WAY_MAX {
            return Ok(false);
        }
        let Some(mut batch) = connection.filling.take() else { return Ok(false) };
        Header { epoch, end, messages: connection.sent }.write(&mut batch);
        connection.under_way += 1;
        connection.filling = out.spare.pop();
        if let Some(next) = &mut connection.filling {
            Header::begin(next);
        }
        out.send(connection.peer, self.lane, batch)?;
        Ok(true)
    }

    /// Sends last batches of the epoch as far as possible; returns whether any was sent.
    pub fn flush<T: Transport>(&mut self, epoch: u32, out: &mut Outgoing<'_, T>) -> Result<bool, RouteError> {
        let count = self.connections.len();
        let mut moved = false;
        for step in 0..count {
            // Starts at another connection each time, so that ranks do not all send to the same one first.
            let place = (self.flush_at + step) % count;
            if self.connections.get(place).is_some_and(|connection| connection.end_sent) {
                continue;
            }
            if self.dispatch(place, epoch, true, out)? {
                self.ends_sent += 1;
                moved = true;
                if let Some(connection) = self.connections.get_mut(place) {
                    connection.end_sent = true;
                }
            }
        }
        Ok(moved)
    }

    /// Sets the connection where flushing starts.
    pub fn flush_from(&mut self, place: usize) {
        self.flush_at = place % self.connections.len().max(1);
    }

    /// Takes back the buffer of a batch that was received.
    pub fn take_back(&mut self, place: usize, sent: Sent, spare: &mut Spare) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        connection.under_way = connection.under_way.saturating_sub(1);
        let mut buffer = sent.buffer;
        if self.has_long && buffer.capacity() > self.batch_bytes {
            buffer.clear();
            self.long = Some(buffer);
        } else if connection.filling.is_none() {
            Header::begin(&mut buffer);
            connection.filling = Some(buffer);
        } else {
            spare.push(buffer);
        }
    }

    /// Finishes the batch in hand after all of it is passed on, and checks the message count in its header.
    pub fn finish(&mut self, place: usize, hand: &mut InHand, header: Header) -> Result<(), RouteError> {
        hand.done = true;
        let Some(connection) = self.connections.get_mut(place) else { return Ok(()) };
        connection.arrived += hand.messages;
        if connection.arrived != header.messages {
            return Err(RouteError::Lost {
                lost_from: format!("rank {}", connection.peer),
                sent: header.messages,
                arrived: connection.arrived,
                epoch: header.epoch,
            });
        }
        if header.end {
            if connection.end_arrived {
                return Err(RouteError::Garbled { from: connection.peer, what: "a second end of an epoch" });
            }
            connection.end_arrived = true;
            self.ends_arrived += 1;
        }
        Ok(())
    }

    /// Whether everything of this epoch has arrived and is passed on.
    pub fn all_arrived(&self) -> bool {
        self.ends_arrived == self.connections.len() && self.in_hand.done
    }

    /// Whether everything of this epoch has been sent.
    pub fn all_sent(&self) -> bool {
        self.ends_sent == self.connections.len()
    }

    /// The ranks that have not ended the epoch.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections.iter().filter(|connection| !connection.end_arrived).map(|connection| connection.peer)
    }

    /// Begins the next epoch.
    pub fn begin_epoch(&mut self) {
        self.ends_sent = 0;
        self.ends_arrived = 0;
        for connection in &mut self.connections {
            connection.sent = 0;
            connection.arrived = 0;
            connection.end_sent = false;
            connection.end_arrived = false;
        }
    }
}

/// The parts of the router that sending needs.
pub(super) struct Outgoing<'a, T> {
    pub transport: &'a mut T,
    pub spare: &'a mut Spare,
    pub counts: &'a mut RoutingCounts,
    pub next_hops: &'a NextHops,
}

impl<T: Transport> Outgoing<'_, T> {
    fn send(&mut self, to: u32, lane: Lane, batch: Vec<u8>) -> Result<(), RouteError> {
        if let Some(hop) = self.counts.hops.get_mut(lane as usize) {
            let off_node = u64::from(!self.next_hops.on_own_node(to));
            hop.batches += 1;
            hop.bytes += batch.len() as u64;
            hop.batches_off_node += off_node;
            hop.bytes_off_node += off_node * batch.len() as u64;
        }
        Ok(self.transport.send(to, lane, batch)?)
    }
}
