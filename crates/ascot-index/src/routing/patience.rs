//! Waiting for others: how long, and who is named when it was too long.
//!
//! ```text
//!   nothing moves   0 ......... a quarter of patience ................ patience ............. twice that
//!                               those that are missing are asked       those that have not    all have answered:
//!                               whether they are there                 answered are named     nobody is
//! ```
//!
//! A rank that all answer to goes on waiting: one of those it waits for will find out who is gone, and tell it.

use std::time::{Duration, Instant};

use super::agree::{CODE_SILENT, Kind, Outcome, Word};
use super::error::RouteError;
use super::lane::LaneState;
use super::router::Router;
use super::transport::Transport;

/// The longest wait before the patience is looked at.
const WAIT: Duration = Duration::from_millis(50);
/// Most ranks that a message names.
const NAMED_MOST: usize = 8;

/// Since when nothing has moved, and what had by then; nothing before the first wait.
#[derive(Default)]
pub struct Waiting(Option<(Instant, u64)>);

impl<T: Transport> Router<T> {
    /// Waits until something may have moved, after an append or drain that found no room; the same `waiting` for
    /// all waits of one call.
    pub fn wait(&mut self, waiting: &mut Waiting) -> Result<(), RouteError> {
        self.counts.waits += 1;
        let patience = self.settings.patience;
        let waited = self.transport.wait(WAIT.min(patience / 16)).map_err(RouteError::from);
        self.noted(waited)?;
        // Counted from the last thing that moved: a rank that is slow is not a rank that is gone.
        let moved = self.moved_so_far();
        let since = match &waiting.0 {
            Some((since, before)) if *before == moved => *since,
            _ => waiting.0.insert((Instant::now(), moved)).0,
        };
        let still = since.elapsed();
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

    /// Tells all that can be reached of ranks that do not answer.
    fn give_up_on(&mut self, first: u32, silent: &[u32]) -> Result<(), RouteError> {
        let (seconds, waited_for) = (self.settings.patience.as_secs(), named(silent));
        let outcome = Outcome::Failed { code: CODE_SILENT, text: waited_for.clone() };
        let mut word = Word::of(0, self.epoch, first, outcome, &[seconds]);
        word.kind = Kind::GivesUp;
        self.control.spread(&mut self.transport, &word, None);
        self.noted(Err(RouteError::Silent { seconds, waited_for }))
    }

    /// A number that grows with anything that goes out or comes in.
    fn moved_so_far(&self) -> u64 {
        let in_hand = |lane: &LaneState| lane.in_hand.messages + lane.in_hand.at as u64;
        self.batches_sent() + self.counts.delivered + self.lanes.iter().map(in_hand).sum::<u64>()
    }

    /// The ranks that this one may be waiting for.
    fn missing(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.lanes.iter().flat_map(LaneState::missing).collect();
        ranks.extend(self.control.missing());
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

/// Some ranks, for a message.
fn named(ranks: &[u32]) -> String {
    let named: Vec<String> = ranks.iter().take(NAMED_MOST).map(u32::to_string).collect();
    let more = match ranks.len().saturating_sub(NAMED_MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}{more}", named.join(", "))
}
