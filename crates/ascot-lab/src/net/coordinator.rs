//! The first peer's second task: it gathers all peers, compares their parameters, runs the rounds, and collects the
//! result. Its own part in the rounds is that of any other peer.
//!
//! Invariant: every peer that has joined gets the report, or the reason why there is none.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use ascot_model::all_to_all::AllToAll;
use crossbeam_channel::{Receiver, Sender};

use super::door::Caller;
use super::error::NetError;
use super::handshake::Refusal;
use super::link::{Event, Link};
use super::member::lost;
use super::message::{ToFirst, ToPeer, Trouble};
use super::participant::{MIN_BYTES, Participant};
use super::report::{ModelReport, NetReport, RoundReport};
use super::round::{Done, Round};
use super::wire::{POLL, Patience, displayed, frame, write_both};

/// Interval at which the peers that have joined hear which ones are missing.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long a peer that was refused may try again before the run fails.
const REFUSED_PATIENCE: Duration = Duration::from_secs(2);
/// How long the cause of a peer's trouble is looked for: one that died is noticed by itself.
const CAUSE_PATIENCE: Duration = Duration::from_secs(1);
/// How long all peers may take to read the report, or the reason why there is none.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(5);
/// The round before all others is shorter by this factor, within bounds.
const WARM_UP_SHARE: u64 = 16;
const MAX_WARM_UP_BYTES: u64 = 64 << 20;

/// Runs the rounds; `callers` are the control connections.
pub(super) fn coordinate(
    participant: &Participant,
    callers: &Receiver<Caller>,
) -> Result<NetReport, NetError> {
    let (sender, events) = crossbeam_channel::unbounded();
    let links = (0..participant.count()).map(|_| None).collect();
    let mut coordinator = Coordinator { participant, callers, sender, events, links };
    let result = coordinator.run();
    let farewell = match &result {
        Ok(report) => ToPeer::Report(Box::new(report.clone())),
        Err(NetError::Cancelled) => {
            ToPeer::Abort(NetError::Interrupted { peer: participant.name(participant.rank) }.to_string())
        }
        Err(error) => ToPeer::Abort(error.to_string()),
    };
    coordinator.say(&farewell);
    coordinator.wait_for_ends();
    result
}

struct Coordinator<'a> {
    participant: &'a Participant,
    callers: &'a Receiver<Caller>,
    sender: Sender<(u32, Event<ToFirst>)>,
    events: Receiver<(u32, Event<ToFirst>)>,
    /// The peers that have joined, by place.
    links: Vec<Option<Link>>,
}

impl Coordinator<'_> {
    fn run(&mut self) -> Result<NetReport, NetError> {
        self.gather()?;
        let rounds = self.rounds();
        let predicted_seconds = self.predict(&rounds)?;
        self.say(&ToPeer::Predicted(predicted_seconds));
        let began = Instant::now();
        let mut reports = Vec::new();
        for round in &rounds {
            let done = self.round(round)?;
            reports.extend(RoundReport::new(round, &self.participant.parameters.peers, &done));
        }
        let parameters = &self.participant.parameters;
        Ok(NetReport {
            peers: parameters.peers.clone(),
            local: self.participant.local,
            bytes_per_pair: parameters.bytes,
            block_bytes: parameters.block_bytes,
            predicted_seconds,
            seconds: began.elapsed().as_secs_f64(),
            model: ModelReport::new(&reports),
            rounds: reports,
        })
    }

    /// Sends to all peers that have joined. The link of one that is gone reports that.
    fn say(&self, message: &ToPeer) {
        for link in self.links.iter().flatten() {
            let _ = link.send(message);
        }
    }

    // ------------------------------------------------------------ gathering

    /// Waits until all peers have joined with the same parameters.
    fn gather(&mut self) -> Result<(), NetError> {
        let began = Instant::now();
        let mut present = vec![false; self.links.len()];
        let mut refused: Option<(u32, Refusal, Instant)> = None;
        let mut told = None;
        while present.contains(&false) {
            while let Ok(caller) = self.callers.try_recv() {
                match caller {
                    Caller::Control { rank, stream } => self.admit(rank, stream)?,
                    Caller::Refused { rank, refusal } => {
                        refused.get_or_insert((rank, refusal, Instant::now()));
                    }
                    Caller::Data { .. } => {}
                }
            }
            self.hear(&mut present)?;
            let is_present = |rank: u32| present.get(rank as usize).copied().unwrap_or(false);
            if let Some((rank, refusal, since)) = refused
                && !is_present(rank)
                && since.elapsed() > REFUSED_PATIENCE
            {
                return Err(NetError::Refused { peer: self.participant.name(rank), refusal });
            }
            let missing: Vec<u32> = (0..self.participant.count()).filter(|rank| !is_present(*rank)).collect();
            if began.elapsed() >= self.participant.wait && !missing.is_empty() {
                let names = self.participant.names(missing);
                return Err(NetError::Missing {
                    names,
                    seconds: self.participant.wait.as_secs_f64(),
                    notes: Vec::new(),
                });
            }
            if told.is_none_or(|told: Instant| told.elapsed() >= TELL_EVERY) && !missing.is_empty() {
                told = Some(Instant::now());
                self.say(&ToPeer::Waiting(missing));
            }
        }
        Ok(())
    }

    /// Handles an event of a peer while others are missing.
    fn hear(&mut self, present: &mut [bool]) -> Result<(), NetError> {
        if self.participant.halt.is_cancelled() {
            return Err(NetError::Cancelled);
        }
        let Ok((rank, event)) = self.events.recv_timeout(POLL) else { return Ok(()) };
        let at = rank as usize;
        match event {
            Event::Message(ToFirst::Parameters(parameters)) => {
                let own = &self.participant.parameters;
                if let Some(what) = parameters.difference(own) {
                    let peer = self.participant.name(rank);
                    let first = self.participant.name(self.participant.rank);
                    return Err(NetError::Parameters { peer, first, what: displayed(&what) });
                }
                present.iter_mut().skip(at).take(1).for_each(|place| *place = true);
            }
            Event::Message(ToFirst::Failed(trouble)) => return Err(self.error_of(rank, trouble)),
            Event::Message(_) => {}
            // It may be started again, as long as others are missing.
            Event::Ended(_) => {
                present.iter_mut().skip(at).take(1).for_each(|place| *place = false);
                self.links.iter_mut().skip(at).take(1).for_each(|link| *link = None);
            }
        }
        Ok(())
    }

    fn admit(&mut self, rank: u32, stream: TcpStream) -> Result<(), NetError> {
        let events = self.sender.clone();
        match self.links.get_mut(rank as usize) {
            Some(place @ None) => *place = Some(Link::start::<ToFirst, ToPeer>(stream, rank, events, None)?),
            _ => self.turn_away(rank, &stream),
        }
        Ok(())
    }

    /// Tells a caller that its place is taken.
    fn turn_away(&self, rank: u32, stream: &TcpStream) {
        let why = NetError::Refused { peer: self.participant.name(rank), refusal: Refusal::Taken };
        if let Ok(bytes) = frame(&ToPeer::Abort(why.to_string())) {
            let _ = write_both(stream, &bytes, b"", &mut Patience::new(&self.participant.halt, POLL));
        }
    }

    // ------------------------------------------------------------ rounds

    /// All rounds: each number of peers with each number of connections.
    fn rounds(&self) -> Vec<Round> {
        let parameters = &self.participant.parameters;
        let mut rounds = Vec::new();
        for peers in sizes(self.participant.count(), parameters.sweep) {
            for connections in parameters.connections.iter().copied() {
                // Number 0 is the round before all others.
                let number = rounds.len() as u32 + 1;
                rounds.push(Round { number, peers, connections, bytes: parameters.bytes });
            }
        }
        rounds
    }

    /// The seconds of all rounds, from a short one that also opens the windows of the connections.
    fn predict(&mut self, rounds: &[Round]) -> Result<f64, NetError> {
        let parameters = &self.participant.parameters;
        let bytes = (parameters.bytes / WARM_UP_SHARE).clamp(MIN_BYTES, MAX_WARM_UP_BYTES);
        let connections = parameters.connections.first().copied().unwrap_or(1);
        let warm_up = Round { number: 0, peers: self.participant.count(), connections, bytes };
        let done = self.round(&warm_up)?;
        let report = RoundReport::new(&warm_up, &parameters.peers, &done);
        let fitted = report.and_then(|report| AllToAll::fitted(&[report.point()]));
        let seconds = |round: &Round, model: &AllToAll| {
            let bytes = round.bytes as f64 * f64::from(round.peers - 1);
            bytes / model.rate(round.peers, round.connections)
        };
        Ok(fitted.map_or(0.0, |fitted| rounds.iter().map(|round| seconds(round, &fitted.model)).sum()))
    }

    /// Runs a round; the result has an entry for each of its peers.
    fn round(&mut self, round: &Round) -> Result<Vec<Done>, NetError> {
        let number = round.number;
        self.say_in(round, &ToPeer::Prepare(*round));
        self.collect(round, |message| matches!(message, ToFirst::Ready(of) if of == number).then_some(()))?;
        self.say_in(round, &ToPeer::Go(number));
        self.collect(round, |message| match message {
            ToFirst::Done(of, done) if of == number => Some(done),
            _ => None,
        })
    }

    fn say_in(&self, round: &Round, message: &ToPeer) {
        for link in self.links.iter().take(round.peers as usize).flatten() {
            let _ = link.send(message);
        }
    }

    /// Waits for an answer of each peer of a round.
    fn collect<T>(
        &mut self,
        round: &Round,
        answer: impl Fn(ToFirst) -> Option<T>,
    ) -> Result<Vec<T>, NetError> {
        let mut answers: Vec<Option<T>> = (0..round.peers).map(|_| None).collect();
        while answers.iter().any(Option::is_none) {
            let (rank, message) = self.next()?;
            if let (Some(place), Some(answer)) = (answers.get_mut(rank as usize), answer(message)) {
                *place = Some(answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// The next message of any peer.
    fn next(&mut self) -> Result<(u32, ToFirst), NetError> {
        loop {
            while let Ok(caller) = self.callers.try_recv() {
                if let Caller::Control { rank, stream } = caller {
                    self.turn_away(rank, &stream);
                }
            }
            let event = self.events.recv_timeout(POLL);
            if self.participant.halt.is_cancelled() {
                // Also the cause of whatever else has happened.
                return Err(NetError::Cancelled);
            }
            match event {
                Ok((rank, Event::Message(ToFirst::Failed(trouble)))) => return Err(self.cause(rank, trouble)),
                Ok((rank, Event::Message(message))) => return Ok((rank, message)),
                Ok((rank, Event::Ended(error))) => return Err(lost(self.participant.name(rank), error)),
                Err(_) => {}
            }
        }
    }

    // ------------------------------------------------------------ ends

    /// The error of a run in which a peer has trouble: another peer may be the cause.
    fn cause(&self, rank: u32, trouble: Trouble) -> NetError {
        let until = Instant::now() + CAUSE_PATIENCE;
        let is_effect = |trouble: &Trouble| matches!(trouble, Trouble::Unreachable { .. });
        while is_effect(&trouble) && Instant::now() < until {
            match self.events.recv_timeout(POLL) {
                Ok((other, Event::Ended(error))) => return lost(self.participant.name(other), error),
                Ok((other, Event::Message(ToFirst::Failed(cause)))) if !is_effect(&cause) => {
                    return self.error_of(other, cause);
                }
                _ => {}
            }
        }
        self.error_of(rank, trouble)
    }

    fn error_of(&self, rank: u32, trouble: Trouble) -> NetError {
        let own = self.participant.name(rank);
        match trouble {
            Trouble::Interrupted => NetError::Interrupted { peer: own },
            Trouble::Unreachable { peer, what } => {
                NetError::Unreachable { from: own, peer: self.participant.name(peer), what: displayed(&what) }
            }
            Trouble::Data { peer, what } => {
                NetError::Data { from: own, peer: self.participant.name(peer), what: displayed(&what) }
            }
            Trouble::Other(what) => NetError::Parameter {
                what: format!("{own} stopped: {}", displayed(&what)),
                remedy: "start all peers again".into(),
            },
        }
    }

    /// Waits until all peers have closed their links, so that none loses the last message.
    fn wait_for_ends(&mut self) {
        let until = Instant::now() + FAREWELL_PATIENCE;
        while self.links.iter().any(Option::is_some) && Instant::now() < until {
            if let Ok((rank, Event::Ended(_))) = self.events.recv_timeout(POLL) {
                self.links.iter_mut().skip(rank as usize).take(1).for_each(|link| *link = None);
            }
        }
    }
}

/// The numbers of peers of the rounds: all; with a sweep also 2, 4, 8, ... of them.
fn sizes(count: u32, sweep: bool) -> Vec<u32> {
    let mut sizes = Vec::new();
    if sweep {
        sizes.extend((1..).map(|power| 1 << power).take_while(|size| *size < count));
    }
    sizes.push(count);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_doubles_the_peers() {
        assert_eq!(sizes(2, true), [2]);
        assert_eq!(sizes(6, true), [2, 4, 6]);
        assert_eq!(sizes(8, true), [2, 4, 8]);
        assert_eq!(sizes(8, false), [8]);
    }
}
