//! Merges sorted sources of records.
//!
//! A loser tree over the current records (heads) of the sources. It compares the u64 prefix of each head's key; keys
//! themselves are read only if prefixes agree.
//!
//! ```text
//!              winner ──> emit, advance, replay its path to the root
//!                |
//!            [loser 1]                 every node holds the head that lost there, so that
//!            /       \                 a replay reads one node per level
//!     [loser 2]     [loser 3]
//!      /     \       /     \
//!    src 0  src 1  src 2  src 3        an empty source loses to everything
//! ```
//!
//! Equal keys come in the order of their sources, so that merging runs that were cut from the input in order is
//! stable.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::framing::Framing;
use crate::order::{RecordOrder, prefix};

pub use crate::cursor::SliceCursor;
pub use crate::order::compare;

/// Consecutive wins after which a source is compared with the runner-up alone.
const RUN_WINS: u32 = 3;

/// Merges the sources' records in `order`, handing each to `emit`.
///
/// If `emit` breaks, it has not taken the record it was given, which stays current in its source, and a later merge
/// of the same sources continues from there. Allocates a few words per source, and a key per source if `order`
/// computes keys.
pub fn merge<F: Framing, O: RecordOrder>(
    cursors: &mut [SliceCursor<'_, F>],
    order: &O,
    emit: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut live = cursors.iter_mut().filter(|cursor| cursor.current().is_some());
    match (live.next(), live.next()) {
        (None, _) => ControlFlow::Continue(()),
        (Some(only), None) => walk(only, emit),
        _ => Tree::new(cursors, order).run(emit),
    }
}

fn walk<F: Framing>(
    cursor: &mut SliceCursor<'_, F>,
    emit: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    while let Some(record) = cursor.current() {
        emit(record)?;
        cursor.advance();
        cursor.prefetch();
    }
    ControlFlow::Continue(())
}

/// The current record of one source: its key's prefix, complemented if the order is descending.
#[derive(Clone, Copy, Debug)]
struct Head {
    prefix: u64,
    source: u32,
}

/// Prefix of an empty source. Real keys may have it too; such ties are decided like the others.
const EMPTY: u64 = u64::MAX;

struct Tree<'c, 'a, 'o, F, O> {
    cursors: &'c mut [SliceCursor<'a, F>],
    order: &'o O,
    /// `losers[1..leaves]` is the tree; `losers[0]` is unused.
    losers: Vec<Head>,
    /// The number of leaves, a power of two; leaves beyond the sources are always empty.
    leaves: usize,
    /// Keys of the heads if keys are computed, else empty.
    keys: Vec<Vec<u8>>,
    /// Flips prefixes of descending orders.
    flips: u64,
    scratch: (Vec<u8>, Vec<u8>),
}

impl<'c, 'a, 'o, F: Framing, O: RecordOrder> Tree<'c, 'a, 'o, F, O> {
    fn new(cursors: &'c mut [SliceCursor<'a, F>], order: &'o O) -> Self {
        let leaves = cursors.len().next_power_of_two();
        let keys = if order.computed() { vec![Vec::new(); cursors.len()] } else { Vec::new() };
        let flips = if order.descending() { u64::MAX } else { 0 };
        let losers = vec![Head { prefix: EMPTY, source: u32::MAX }; leaves];
        Tree { cursors, order, losers, leaves, keys, flips, scratch: Default::default() }
    }

    fn run(mut self, emit: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut winner = self.play_all(1);
        let mut wins = 0;
        while let Some(record) = self.cursors[winner.source as usize].current() {
            emit(record)?;
            let source = winner.source;
            let head = self.advance(source);
            winner = self.replay(head);
            wins = if winner.source == source { wins + 1 } else { 0 };
            if wins == RUN_WINS {
                wins = 0;
                winner = self.follow(winner, emit)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Emits from the winner's source while its prefixes stay below all others.
    fn follow<B>(
        &mut self,
        mut winner: Head,
        emit: &mut impl FnMut(&[u8]) -> ControlFlow<B>,
    ) -> ControlFlow<B, Head> {
        let source = winner.source;
        let runner_up = self.path(source).map(|node| self.losers[node].prefix).min().unwrap_or(EMPTY);
        while winner.prefix < runner_up {
            if let Some(record) = self.cursors[source as usize].current() {
                emit(record)?;
            }
            winner = self.advance(source);
        }
        ControlFlow::Continue(self.replay(winner))
    }

    /// The nodes from a source's leaf to the root.
    fn path(&self, source: u32) -> impl Iterator<Item = usize> + use<F, O> {
        let leaf = self.leaves + source as usize;
        std::iter::successors(Some(leaf / 2), |node| Some(node / 2)).take_while(|node| *node > 0)
    }

    /// Advances a source and returns its new head.
    #[inline]
    fn advance(&mut self, source: u32) -> Head {
        let cursor = &mut self.cursors[source as usize];
        cursor.advance();
        cursor.prefetch();
        self.head(source)
    }

    #[inline]
    fn head(&mut self, source: u32) -> Head {
        let at = source as usize;
        let Some(record) = self.cursors.get(at).and_then(SliceCursor::current) else {
            return Head { prefix: EMPTY, source };
        };
        let scratch = if self.order.computed() { &mut self.keys[at] } else { &mut self.scratch.0 };
        Head { prefix: prefix(self.order.key(record, scratch)) ^ self.flips, source }
    }

    /// Fills the subtree under `node`; returns its winner.
    fn play_all(&mut self, node: usize) -> Head {
        if node >= self.leaves {
            return self.head((node - self.leaves) as u32);
        }
        let left = self.play_all(2 * node);
        let right = self.play_all(2 * node + 1);
        let (winner, loser) = if self.precedes(left, right) { (left, right) } else { (right, left) };
        self.losers[node] = loser;
        winner
    }

    /// Plays `head` against the losers on its source's path; returns the overall winner.
    #[inline]
    fn replay(&mut self, mut head: Head) -> Head {
        let mut node = (self.leaves + head.source as usize) / 2;
        while node > 0 {
            let other = self.losers[node];
            if other.prefix == head.prefix {
                if !self.tie_precedes(head, other) {
                    self.losers[node] = head;
                    head = other;
                }
            } else {
                // Branch-free: which of the two is less cannot be predicted.
                let swap = u64::from(other.prefix < head.prefix).wrapping_neg();
                let prefixes = (other.prefix ^ head.prefix) & swap;
                let sources = (other.source ^ head.source) & swap as u32;
                self.losers[node] = Head { prefix: other.prefix ^ prefixes, source: other.source ^ sources };
                head = Head { prefix: head.prefix ^ prefixes, source: head.source ^ sources };
            }
            node /= 2;
        }
        head
    }

    fn precedes(&mut self, a: Head, b: Head) -> bool {
        match a.prefix.cmp(&b.prefix) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.tie_precedes(a, b),
        }
    }

    /// Whether `a` comes before `b`, given equal prefixes.
    #[cold]
    #[inline(never)]
    fn tie_precedes(&mut self, a: Head, b: Head) -> bool {
        let at = a.source as usize;
        let bt = b.source as usize;
        let current = |at: usize| self.cursors.get(at).and_then(SliceCursor::current);
        let (record_a, record_b) = match (current(at), current(bt)) {
            (Some(record_a), Some(record_b)) => (record_a, record_b),
            (Some(_), None) => return true,
            (None, Some(_)) => return false,
            (None, None) => return at < bt,
        };
        let by_key = if self.order.computed() {
            self.keys[at].cmp(&self.keys[bt])
        } else {
            let (scratch_a, scratch_b) = &mut self.scratch;
            self.order.key(record_a, scratch_a).cmp(self.order.key(record_b, scratch_b))
        };
        let by_key = if self.flips == 0 { by_key } else { by_key.reverse() };
        by_key.then_with(|| self.order.last_resort(record_a, record_b)).then(at.cmp(&bt)) == Ordering::Less
    }
}

#[cfg(test)]
mod tests;
