//! The control lane: messages up and down the tree, and the give-up message of a rank.
//!
//! It has two buffers for each neighbour in the tree: one for messages of the allreduce, and one for the message that
//! a rank gives up, which therefore does not wait for the previous message. A message may arrive before this rank
//! waits for it, at most one from each neighbour: a neighbour sends the next one only after an answer to the last. A
//! rank may ask any rank, neighbour or not, whether it is present ([`presence`](super::presence)).

use super::allreduce::{CODE_SILENT, CONTROL_BYTES, ControlMessage, Kind};
use super::error::RouteError;
use super::presence::Presence;
use super::transport::{Lane, Sent, Transport};

/// A neighbour in the tree.
struct Neighbour {
    rank: u32,
    /// `None` while its message is in transit.
    buffer: Option<Vec<u8>>,
    /// `None` after the last message, that a rank gives up, was sent.
    last_message: Option<Vec<u8>>,
    received: Option<ControlMessage>,
}

/// The state of the control lane.
pub(super) struct Control {
    neighbours: Vec<Neighbour>,
    in_hand: Vec<u8>,
    pub presence: Presence,
}

impl Control {
    pub fn new(neighbours: impl Iterator<Item = u32>) -> Self {
        let buffer = || Vec::with_capacity(CONTROL_BYTES);
        let neighbour =
            |rank| Neighbour { rank, buffer: Some(buffer()), last_message: Some(buffer()), received: None };
        let presence = Presence::default();
        Self { neighbours: neighbours.map(neighbour).collect(), in_hand: buffer(), presence }
    }

    fn neighbour(&mut self, rank: u32) -> Option<&mut Neighbour> {
        self.neighbours.iter_mut().find(|neighbour| neighbour.rank == rank)
    }

    /// Bytes of the buffers not in transit.
    pub fn bytes(&self) -> usize {
        let both = |neighbour: &Neighbour| {
            [&neighbour.buffer, &neighbour.last_message]
                .map(|buffer| buffer.as_ref().map_or(0, Vec::capacity))
        };
        self.neighbours.iter().flat_map(both).sum::<usize>() + self.in_hand.capacity()
    }

    /// Takes the next message, if one arrived. If a rank gave up, passes the message on and returns an error.
    ///
    /// It takes one message at a time: the last message of a rank that left is taken before its absence is reported.
    pub fn poll<T: Transport>(&mut self, transport: &mut T) -> Result<bool, RouteError> {
        let Some(from) = transport.receive(Lane::Control, &mut self.in_hand)? else { return Ok(false) };
        let message = ControlMessage::read(&self.in_hand);
        let message = message.ok_or(RouteError::Garbled { from, what: "a word of agreement" })?;
        match message.kind {
            Kind::GivesUp => {
                self.spread(transport, &message, Some(from));
                return Err(given_up(from, message));
            }
            Kind::Question => {
                self.presence.take_question(transport, from);
                return Ok(true);
            }
            Kind::Answer => {
                self.presence.take_answer(from);
                return Ok(true);
            }
            Kind::Up | Kind::Down => {}
        }
        let neighbour =
            self.neighbour(from).ok_or(RouteError::Garbled { from, what: "no neighbour in the tree" })?;
        if neighbour.received.replace(message).is_some() {
            return Err(RouteError::Garbled { from, what: "two words at once" });
        }
        Ok(true)
    }

    /// Takes back the buffer of a message that was received.
    pub fn take_back(&mut self, sent: Sent) {
        if self.presence.take_back(sent.to, &sent.buffer) {
            return;
        }
        if let Some(neighbour) = self.neighbour(sent.to) {
            // The buffer of a last message is not needed again.
            neighbour.buffer.get_or_insert(sent.buffer);
        }
    }

    /// The messages of all children, the neighbours of higher rank, after all have arrived.
    pub fn take_from_children(&mut self, rank: u32) -> Option<Vec<(u32, ControlMessage)>> {
        if self.neighbours.iter().any(|child| child.rank > rank && child.received.is_none()) {
            return None;
        }
        let children = self.neighbours.iter_mut().filter(|neighbour| neighbour.rank > rank);
        Some(children.filter_map(|child| Some((child.rank, child.received.take()?))).collect())
    }

    /// The message of the parent of `rank`.
    pub fn take_from_parent(&mut self, rank: u32) -> Option<ControlMessage> {
        self.neighbours.iter_mut().find(|neighbour| neighbour.rank < rank)?.received.take()
    }

    /// Sends a message to a neighbour; `false` while the previous one is in transit.
    pub fn send_message<T: Transport>(
        &mut self,
        transport: &mut T,
        to: u32,
        message: &ControlMessage,
    ) -> Result<bool, RouteError> {
        let Some(mut buffer) = self.neighbour(to).and_then(|neighbour| neighbour.buffer.take()) else {
            return Ok(false);
        };
        message.write(&mut buffer);
        transport.send(to, Lane::Control, buffer)?;
        Ok(true)
    }

    /// Informs all neighbours except `but`, and all ranks that wait for this one, that a rank gives up; each is
    /// informed once.
    pub fn spread<T: Transport>(&mut self, transport: &mut T, message: &ControlMessage, but: Option<u32>) {
        for neighbour in self.neighbours.iter_mut().filter(|neighbour| Some(neighbour.rank) != but) {
            let Some(mut buffer) = neighbour.last_message.take() else { continue };
            message.write(&mut buffer);
            // A neighbour that cannot be reached detects the failure by waiting.
            let _ = transport.send(neighbour.rank, Lane::Control, buffer);
        }
        self.presence.tell(transport, message);
    }

    /// The neighbours whose message has not arrived.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        self.neighbours
            .iter()
            .filter(|neighbour| neighbour.received.is_none())
            .map(|neighbour| neighbour.rank)
    }
}

/// The error that a give-up message reports.
fn given_up(from: u32, message: ControlMessage) -> RouteError {
    let seconds = message.agreement.sums.first().copied().unwrap_or(0);
    match message.agreement.failure {
        Some((_, CODE_SILENT, waited_for)) => RouteError::Silent { seconds, waited_for },
        Some((rank, _, text)) => RouteError::Abandoned { rank, text },
        None => RouteError::Abandoned { rank: from, text: String::new() },
    }
}
