//! The control lane: words up and down the tree, and word of a rank that gives up.
//!
//! It has a buffer for each neighbour in the tree. Words may come before this rank asks for them, one from
//! each neighbour at most: a neighbour says the next thing only after an answer to the last.

use super::agree::{CONTROL_BYTES, Kind, Word};
use super::error::RouteError;
use super::transport::{Lane, Sent, Transport};

/// A neighbour in the tree.
struct Neighbour {
    rank: u32,
    /// None while its word is under way.
    buffer: Option<Vec<u8>>,
    heard: Option<Word>,
}

/// The state of the control lane.
pub(super) struct Control {
    neighbours: Vec<Neighbour>,
    in_hand: Vec<u8>,
}

impl Control {
    pub fn new(neighbours: impl Iterator<Item = u32>) -> Self {
        let buffer = || Vec::with_capacity(CONTROL_BYTES);
        let neighbours =
            neighbours.map(|rank| Neighbour { rank, buffer: Some(buffer()), heard: None }).collect();
        Self { neighbours, in_hand: buffer() }
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let buffers = self.neighbours.iter().filter_map(|neighbour| neighbour.buffer.as_ref());
        buffers.map(Vec::capacity).sum::<usize>() + self.in_hand.capacity()
    }

    /// Takes what came. A rank that gives up is an error, after the word has been passed on.
    pub fn poll<T: Transport>(&mut self, transport: &mut T) -> Result<bool, RouteError> {
        let mut moved = false;
        while let Some(from) = transport.receive(Lane::Control, &mut self.in_hand)? {
            moved = true;
            let word = Word::read(&self.in_hand);
            let word = word.ok_or(RouteError::Garbled { from, what: "a word of agreement" })?;
            if word.kind == Kind::GivesUp {
                let (rank, _, text) = word.agreement.failure.clone().unwrap_or((from, 0, String::new()));
                self.spread(transport, &word, Some(from));
                return Err(RouteError::Abandoned { rank, text });
            }
            let neighbour = self.neighbours.iter_mut().find(|neighbour| neighbour.rank == from);
            let neighbour =
                neighbour.ok_or(RouteError::Garbled { from, what: "no neighbour in the tree" })?;
            if neighbour.heard.replace(word).is_some() {
                return Err(RouteError::Garbled { from, what: "two words at once" });
            }
        }
        Ok(moved)
    }

    /// Takes a buffer back.
    pub fn take_back(&mut self, sent: Sent) {
        if let Some(neighbour) = self.neighbours.iter_mut().find(|neighbour| neighbour.rank == sent.to) {
            neighbour.buffer = Some(sent.buffer);
        }
    }

    /// What all neighbours above `rank` in number said, once they all have: the children's words.
    pub fn take_from_children(&mut self, rank: u32) -> Option<Vec<(u32, Word)>> {
        let mut children = self.neighbours.iter_mut().filter(|neighbour| neighbour.rank > rank);
        if !children.by_ref().all(|child| child.heard.is_some()) {
            return None;
        }
        let children = self.neighbours.iter_mut().filter(|neighbour| neighbour.rank > rank);
        Some(children.filter_map(|child| Some((child.rank, child.heard.take()?))).collect())
    }

    /// What the parent of `rank` said.
    pub fn take_from_parent(&mut self, rank: u32) -> Option<Word> {
        self.neighbours.iter_mut().find(|neighbour| neighbour.rank < rank)?.heard.take()
    }

    /// Sends a word to a neighbour; `false` while its last one is under way.
    pub fn say<T: Transport>(&mut self, transport: &mut T, to: u32, word: &Word) -> Result<bool, RouteError> {
        let neighbour = self.neighbours.iter_mut().find(|neighbour| neighbour.rank == to);
        let Some(mut buffer) = neighbour.and_then(|neighbour| neighbour.buffer.take()) else {
            return Ok(false);
        };
        word.write(&mut buffer);
        transport.send(to, Lane::Control, buffer)?;
        Ok(true)
    }

    /// Tells all neighbours but one, as far as it can be done at once: whoever says it is about to fail.
    pub fn spread<T: Transport>(&mut self, transport: &mut T, word: &Word, but: Option<u32>) {
        let ranks: Vec<u32> = self.neighbours.iter().map(|neighbour| neighbour.rank).collect();
        for rank in ranks.into_iter().filter(|&rank| Some(rank) != but) {
            // One that cannot be told will miss this rank soon enough.
            let _ = self.say(transport, rank, word);
        }
    }

    /// The neighbours that have not been heard.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        self.neighbours.iter().filter(|neighbour| neighbour.heard.is_none()).map(|neighbour| neighbour.rank)
    }
}
