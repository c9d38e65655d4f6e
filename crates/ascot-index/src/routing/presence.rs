//! Detects which of the missing ranks are present.
//!
//! A blocked rank asks the ranks it may be waiting for. A rank inside a call of its writer answers, even if it is
//! waiting itself. So the rank that does not answer is the one that all others wait for, directly or not:
//!
//! ```text
//!   A ── are you there? ──▶ B      B answers: A knows that B is not gone
//!   B ── are you there? ──▶ D      D does not answer: B names D to its neighbours in the tree and to A
//! ```
//!
//! Invariant: at most one question and one answer are in transit to each rank, however often it is asked.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::allreduce::{ControlMessage, Kind, Outcome};
use super::transport::{Lane, Transport};

/// The state of a rank.
#[derive(Default)]
struct Peer {
    asked: Option<Instant>,
    question_under_way: bool,
    answered: Option<Instant>,
    answer_under_way: bool,
    /// Whether it was informed that a rank gives up.
    informed: bool,
}

/// The ranks that were asked or have asked.
#[derive(Default)]
pub(super) struct Presence {
    peers: BTreeMap<u32, Peer>,
}

impl Presence {
    /// Asks `rank`, unless it was asked less than `pause` ago or has not received the last question.
    pub fn ask<T: Transport>(&mut self, transport: &mut T, rank: u32, pause: Duration) {
        let peer = self.peers.entry(rank).or_default();
        if peer.question_under_way || peer.asked.is_some_and(|asked| asked.elapsed() < pause) {
            return;
        }
        peer.asked = Some(Instant::now());
        // A rank that cannot be asked counts as silent.
        peer.question_under_way = send(transport, rank, &plain(Kind::Question));
    }

    /// Answers the question of a rank.
    pub fn take_question<T: Transport>(&mut self, transport: &mut T, from: u32) {
        let peer = self.peers.entry(from).or_default();
        if !peer.answer_under_way {
            peer.answer_under_way = send(transport, from, &plain(Kind::Answer));
        }
    }

    /// Notes the answer of a rank.
    pub fn take_answer(&mut self, from: u32) {
        self.peers.entry(from).or_default().answered = Some(Instant::now());
    }

    /// Notes that a message to `to` was received; returns whether this module sent it.
    pub fn take_back(&mut self, to: u32, bytes: &[u8]) -> bool {
        let Some(peer) = self.peers.get_mut(&to) else { return false };
        match Kind::from_message(bytes) {
            Some(Kind::Question) => peer.question_under_way = false,
            Some(Kind::Answer) => peer.answer_under_way = false,
            _ => return false,
        }
        true
    }

    /// Whether `rank` answered less than `age` ago.
    pub fn has_answered(&self, rank: u32, age: Duration) -> bool {
        let answered = self.peers.get(&rank).and_then(|peer| peer.answered);
        answered.is_some_and(|answered| answered.elapsed() < age)
    }

    /// Informs all ranks that asked or were asked, each once, that a rank gives up.
    pub fn tell<T: Transport>(&mut self, transport: &mut T, message: &ControlMessage) {
        for (&rank, peer) in self.peers.iter_mut().filter(|(_, peer)| !peer.informed) {
            peer.informed = true;
            send(transport, rank, message);
        }
    }
}

/// A message with a kind and no other contents.
fn plain(kind: Kind) -> ControlMessage {
    ControlMessage { kind, ..ControlMessage::new(0, 0, 0, Outcome::Well, &[]) }
}

/// Sends a message in a buffer of its own; returns whether the transport accepts it.
fn send<T: Transport>(transport: &mut T, to: u32, message: &ControlMessage) -> bool {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    transport.send(to, Lane::Control, bytes).is_ok()
}
