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
//!
//! A merge reads from many places in turn, faster than a processor predicts. So a [`SliceCursor`] prefetches the bytes
//! some hundred bytes ahead.
//!
//! The order of sources that may not be sorted is checked on the way: each new head is compared with the one before it,
//! whose key is at hand.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::framing::Framing;
use crate::order::{RecordOrder, prefix};
use crate::prefetch::{RECORD_BYTES_MAX, prefetch_range};

pub use crate::order::compare;

/// Consecutive wins after which a source is compared with the runner-up alone.
const RUN_WINS: u32 = 3;

/// The reason why a merge stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The function that takes its records stopped it.
    Taker,
    /// A source has a record whose key belongs before that of its predecessor.
    Unordered,
}

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
        _ => Tree::new(cursors, order).run(emit).map_break(|_| ()),
    }
}

/// Merges sources that may not be sorted, as [`merge`] does, and stops before the first record that is out of order by
/// its key. Every key is computed, even that of the only source.
pub fn merge_checked<F: Framing, O: RecordOrder>(
    cursors: &mut [SliceCursor<'_, F>],
    order: &O,
    emit: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> ControlFlow<Stop> {
    if cursors.is_empty() {
        return ControlFlow::Continue(());
    }
    Tree { checked: true, ..Tree::new(cursors, order) }.run(emit)
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
    /// Whether the order of the sources is checked.
    checked: bool,
    /// Key of the head before the newest one, if keys are computed and checked.
    before: Vec<u8>,
}

impl<'c, 'a, 'o, F: Framing, O: RecordOrder> Tree<'c, 'a, 'o, F, O> {
    fn new(cursors: &'c mut [SliceCursor<'a, F>], order: &'o O) -> Self {
        let leaves = cursors.len().next_power_of_two();
        let keys = if order.computed() { vec![Vec::new(); cursors.len()] } else { Vec::new() };
        let flips = if order.descending() { u64::MAX } else { 0 };
        let losers = vec![Head { prefix: EMPTY, source: u32::MAX }; leaves];
        let scratch = Default::default();
        Tree { cursors, order, losers, leaves, keys, flips, scratch, checked: false, before: Vec::new() }
    }

    fn run(mut self, emit: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<Stop> {
        let mut emit = |record: &[u8]| emit(record).map_break(|()| Stop::Taker);
        let mut winner = self.play_all(1);
        let mut wins = 0;
        while let Some(record) = self.cursors[winner.source as usize].current() {
            emit(record)?;
            let source = winner.source;
            let head = self.advance(winner)?;
            winner = self.replay(head);
            wins = if winner.source == source { wins + 1 } else { 0 };
            if wins == RUN_WINS {
                wins = 0;
                winner = self.follow(winner, &mut emit)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Emits from the winner's source while its prefixes stay below all others.
    fn follow(
        &mut self,
        mut winner: Head,
        emit: &mut impl FnMut(&[u8]) -> ControlFlow<Stop>,
    ) -> ControlFlow<Stop, Head> {
        let source = winner.source;
        let runner_up = self.path(source).map(|node| self.losers[node].prefix).min().unwrap_or(EMPTY);
        while winner.prefix < runner_up {
            if let Some(record) = self.cursors[source as usize].current() {
                emit(record)?;
            }
            winner = self.advance(winner)?;
        }
        ControlFlow::Continue(self.replay(winner))
    }

    /// The nodes from a source's leaf to the root.
    fn path(&self, source: u32) -> impl Iterator<Item = usize> + use<F, O> {
        let leaf = self.leaves + source as usize;
        std::iter::successors(Some(leaf / 2), |node| Some(node / 2)).take_while(|node| *node > 0)
    }

    /// Advances the source of `last`, its head, and returns its new head.
    #[inline]
    fn advance(&mut self, last: Head) -> ControlFlow<Stop, Head> {
        let cursor = &mut self.cursors[last.source as usize];
        let record = cursor.current();
        cursor.advance();
        cursor.prefetch();
        if !self.checked {
            return ControlFlow::Continue(self.head(last.source));
        }
        if let Some(key) = self.keys.get_mut(last.source as usize) {
            std::mem::swap(key, &mut self.before);
        }
        let head = self.head(last.source);
        if head.prefix > last.prefix || !self.unordered(last, record, head) {
            return ControlFlow::Continue(head);
        }
        ControlFlow::Break(Stop::Unordered)
    }

    /// Whether the key of `head` belongs before that of `record`, whose head was `last`, in the same source; the prefix
    /// does not say the opposite.
    fn unordered(&mut self, last: Head, record: Option<&[u8]>, head: Head) -> bool {
        let at = head.source as usize;
        let (Some(before), Some(after)) = (record, self.cursors[at].current()) else { return false };
        if head.prefix < last.prefix {
            return true;
        }
        let by_key = if self.order.computed() {
            self.before.cmp(&self.keys[at])
        } else {
            let (scratch_a, scratch_b) = &mut self.scratch;
            self.order.key(before, scratch_a).cmp(self.order.key(after, scratch_b))
        };
        if self.flips == 0 { by_key.is_gt() } else { by_key.is_lt() }
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

/// Records in order in a list of slices, each of whole records.
#[derive(Clone, Debug)]
pub struct SliceCursor<'a, F> {
    framing: F,
    slices: &'a [&'a [u8]],
    /// The slice being read, from the current record on.
    bytes: &'a [u8],
    /// Bytes of the current record; 0 at the end.
    len: usize,
}

/// Distance from the record at which a slice is prefetched.
const BYTES_AHEAD: usize = 384;

impl<'a, F: Framing> SliceCursor<'a, F> {
    /// A cursor over the records of `slices`, one slice after the other.
    pub fn new(framing: F, slices: &'a [&'a [u8]]) -> Self {
        let mut cursor = SliceCursor { framing, slices, bytes: &[], len: 0 };
        cursor.find_record();
        prefetch_range(cursor.bytes, 0..BYTES_AHEAD);
        cursor
    }

    /// Finds the record at the start of the remaining bytes.
    #[inline]
    fn find_record(&mut self) {
        loop {
            if let Some(len) = self.framing.end(self.bytes, 0) {
                self.len = len;
                return;
            }
            let Some((next, rest)) = self.slices.split_first() else {
                self.bytes = &[];
                self.len = 0;
                return;
            };
            self.bytes = next;
            self.slices = rest;
        }
    }

    /// The current record; `None` at the end.
    #[inline]
    pub fn current(&self) -> Option<&'a [u8]> {
        if self.len == 0 { None } else { self.bytes.get(..self.len) }
    }

    /// Steps to the next record.
    #[inline]
    pub fn advance(&mut self) {
        self.bytes = self.bytes.get(self.len..).unwrap_or_default();
        self.find_record();
    }

    /// Prefetches memory that later steps will read; called after each step.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_range(self.bytes, BYTES_AHEAD..BYTES_AHEAD + self.len.min(RECORD_BYTES_MAX));
    }
}

#[cfg(test)]
mod tests;
