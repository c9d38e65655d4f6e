//! A peer in a run: it joins the first peer, does the rounds that the first one announces, and gets the report.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::dial::{DialError, dial};
use super::door::Caller;
use super::error::NetError;
use super::handshake::{Hello, Kind};
use super::link::{Event, Link};
use super::message::{ToFirst, ToPeer, Trouble};
use super::observer::NetObserver;
use super::participant::Participant;
use super::report::NetReport;
use super::round::Round;
use super::transfer::{Memory, Transfer};
use super::wire::{POLL, WireError, displayed};

/// How long a peer that failed waits for the first one to name the cause.
const VERDICT_PATIENCE: Duration = Duration::from_secs(5);
/// The place of the peer that collects the result.
const FIRST: u32 = 0;

/// Takes part in a run until its report. `callers` are the connections of the rounds.
pub(super) fn take_part(
    participant: &Participant,
    callers: &Receiver<Caller>,
    observer: &dyn NetObserver,
) -> Result<NetReport, NetError> {
    let memory = Memory::new(participant)?;
    let (sender, events) = crossbeam_channel::unbounded();
    let stream = join(participant, observer)?;
    let link = Link::start::<ToPeer, ToFirst>(stream, FIRST, sender, Some(participant.halt.clone()))?;
    let member = Member { participant, memory, link, events, callers, observer };
    member.tell(&ToFirst::Parameters(participant.parameters.clone()));
    match member.follow() {
        Err(error) => Err(member.verdict(error)),
        report => report,
    }
}

/// Calls the first peer until it answers.
fn join(participant: &Participant, observer: &dyn NetObserver) -> Result<std::net::TcpStream, NetError> {
    let first = participant.name(FIRST);
    let hello = Hello { kind: Kind::Control, caller: participant.rank, callee: FIRST };
    let mut is_told = false;
    let mut tell = |_: &str| {
        if !is_told {
            observer.waiting(std::slice::from_ref(&first));
            is_told = true;
        }
    };
    dial(participant, hello, Instant::now() + participant.wait, &mut tell).map_err(|error| match error {
        DialError::Halted => NetError::Cancelled,
        DialError::Refused(refusal) => NetError::Refused { peer: first, refusal },
        DialError::Late(reason) => {
            let notes = vec![format!("the last attempt to connect: {reason}")];
            NetError::Missing { names: vec![first], seconds: participant.wait.as_secs_f64(), notes }
        }
    })
}

struct Member<'a> {
    participant: &'a Participant,
    memory: Memory,
    link: Link,
    events: Receiver<(u32, Event<ToPeer>)>,
    callers: &'a Receiver<Caller>,
    observer: &'a dyn NetObserver,
}

impl Member<'_> {
    /// Sends to the first peer. If it is gone, the link reports that.
    fn tell(&self, message: &ToFirst) {
        let _ = self.link.send(message);
    }

    /// Follows the first peer's messages.
    fn follow(&self) -> Result<NetReport, NetError> {
        let mut open: Option<Transfer<'_>> = None;
        loop {
            match self.next()? {
                ToPeer::Alive => {}
                ToPeer::Waiting(ranks) => self.observer.waiting(&self.participant.names(ranks)),
                ToPeer::Predicted(seconds) => self.observer.predicted(seconds),
                ToPeer::Prepare(round) => {
                    self.check(&round)?;
                    open = Some(Transfer::open(self.participant, &self.memory, round, self.callers)?);
                    self.tell(&ToFirst::Ready(round.number));
                }
                ToPeer::Go(number) => {
                    let Some(transfer) = open.take() else { continue };
                    self.observer.round(number);
                    self.tell(&ToFirst::Done(number, transfer.run()?));
                }
                ToPeer::Report(report) => return Ok(*report),
                ToPeer::Abort(why) => return Err(self.stopped(&why)),
            }
        }
    }

    /// The first peer's next message.
    fn next(&self) -> Result<ToPeer, NetError> {
        loop {
            match self.events.recv_timeout(POLL) {
                Ok((_, Event::Message(message))) => return Ok(message),
                Ok((_, Event::Ended(error))) => return Err(self.lost(error)),
                Err(RecvTimeoutError::Timeout) if self.participant.halt.is_cancelled() => {
                    return Err(NetError::Cancelled);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost(WireError::Ended)),
            }
        }
    }

    /// An error if a round is not one of the parameters: it decides how much memory is taken.
    fn check(&self, round: &Round) -> Result<(), NetError> {
        let Participant { parameters, rank, .. } = self.participant;
        let most = parameters.connections.iter().max().copied().unwrap_or(0);
        let takes_part = *rank < round.peers && round.peers <= self.participant.count();
        if takes_part && (1..=most).contains(&round.connections) && round.bytes <= parameters.bytes {
            return Ok(());
        }
        Err(NetError::Parameter {
            what: format!("{} announced a round that is not one of the run", self.participant.name(FIRST)),
            remedy: "start the same version everywhere".into(),
        })
    }

    fn stopped(&self, why: &str) -> NetError {
        NetError::Stopped { first: self.participant.name(FIRST), why: displayed(why) }
    }

    fn lost(&self, error: WireError) -> NetError {
        lost(self.participant.name(FIRST), error)
    }

    /// The error of the run. The first peer hears of this one's error, and may know the cause: a peer that dies ends
    /// the connections of all others.
    fn verdict(&self, error: NetError) -> NetError {
        if self.participant.halt.is_cancelled() {
            // The failure follows from the end of this peer: its threads close their connections one after another.
            self.tell(&ToFirst::Failed(Trouble::Interrupted));
            return NetError::Cancelled;
        }
        let trouble = match &error {
            NetError::Stopped { .. } => return error,
            // The run ends for a reason that the first peer knows.
            NetError::Cancelled => None,
            NetError::Unreachable { what, .. } | NetError::Data { what, .. } => {
                self.peer_of(&error).map(|peer| match error {
                    NetError::Data { .. } => Trouble::Data { peer, what: what.clone() },
                    _ => Trouble::Unreachable { peer, what: what.clone() },
                })
            }
            other => Some(Trouble::Other(other.to_string())),
        };
        if let Some(trouble) = trouble {
            self.tell(&ToFirst::Failed(trouble));
        }
        let until = Instant::now() + VERDICT_PATIENCE;
        while Instant::now() < until && !self.participant.halt.is_cancelled() {
            match self.events.recv_timeout(POLL) {
                Ok((_, Event::Message(ToPeer::Abort(why)))) => return self.stopped(&why),
                Ok((_, Event::Ended(lost))) => {
                    // A connection that ended is an effect of the first peer's end, too.
                    let is_effect = matches!(error, NetError::Cancelled | NetError::Unreachable { .. });
                    return if is_effect { self.lost(lost) } else { error };
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        error
    }

    /// The place of the peer at the other end of a connection with an error.
    fn peer_of(&self, error: &NetError) -> Option<u32> {
        let own = self.participant.name(self.participant.rank);
        let other =
            match error {
                NetError::Unreachable { from, peer, .. } | NetError::Data { from, peer, .. } => {
                    if *from == own { peer } else { from }
                }
                _ => return None,
            };
        (0..self.participant.count()).find(|rank| self.participant.name(*rank) == *other)
    }
}

/// The error if a control connection ended.
pub(super) fn lost(peer: String, error: WireError) -> NetError {
    match error {
        WireError::Ended | WireError::Halted => NetError::Died { peer },
        WireError::Silent(seconds) => NetError::Silent { peer, seconds },
        WireError::Invalid(what) => {
            NetError::Connection { peer, source: std::io::Error::other(format!("it sent {what}")) }
        }
        WireError::Os(source) => NetError::Connection { peer, source },
    }
}
