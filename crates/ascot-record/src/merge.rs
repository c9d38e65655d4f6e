//! Merges sorted sources of records.
//!
//! A loser tree over the current records (heads) of the sources. It compares the code (`offset_value`) of each head's
//! key relative to the winner before; keys themselves are read only if codes agree.
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
//! a few cache lines ahead.
//!
//! The order of sources that may not be sorted is checked on the way: each new head is compared with the one before it,
//! whose key is at hand.

mod offset_value;

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::framing::Framing;
use crate::order::{RecordOrder, prefix};
use crate::prefetch::{RECORD_BYTES_MAX, prefetch_range};
use offset_value::{Codes, common_len, shared_len};

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

/// The current record of one source: the code of its key relative to the key to which it lost, or to the last winner.
#[derive(Clone, Copy, Debug)]
struct Head {
    code: u64,
    source: u32,
}

/// Code of an empty source. Real keys may have it too; such ties are decided like the others.
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
    /// Prefixes of the keys of the heads.
    prefixes: Vec<u64>,
    codes: Codes,
    scratch: (Vec<u8>, Vec<u8>),
    /// Whether the order of the sources is checked.
    checked: bool,
    /// Key of the last winner, if keys are computed.
    before: Vec<u8>,
}

impl<'c, 'a, 'o, F: Framing, O: RecordOrder> Tree<'c, 'a, 'o, F, O> {
    fn new(cursors: &'c mut [SliceCursor<'a, F>], order: &'o O) -> Self {
        let leaves = cursors.len().next_power_of_two();
        let keys = if order.computed() { vec![Vec::new(); cursors.len()] } else { Vec::new() };
        let prefixes = vec![0; cursors.len()];
        let codes = Codes::new(order.descending());
        let losers = vec![Head { code: EMPTY, source: u32::MAX }; leaves];
        let scratch = Default::default();
        Tree {
            cursors,
            order,
            losers,
            leaves,
            keys,
            prefixes,
            codes,
            scratch,
            checked: false,
            before: Vec::new(),
        }
    }

    fn run(mut self, emit: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<Stop> {
        let mut emit = |record: &[u8]| emit(record).map_break(|()| Stop::Taker);
        let mut winner = self.play_all(1);
        let mut wins = 0;
        while let Some(record) = self.cursors[winner.source as usize].current() {
            emit(record)?;
            let source = winner.source;
            let head = self.advance(source)?;
            winner = self.replay(head);
            wins = if winner.source == source { wins + 1 } else { 0 };
            if wins == RUN_WINS {
                wins = 0;
                winner = self.follow(winner, &mut emit)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Emits the winner, and goes on in its source as long as its codes stay below all others.
    fn follow(
        &mut self,
        winner: Head,
        emit: &mut impl FnMut(&[u8]) -> ControlFlow<Stop>,
    ) -> ControlFlow<Stop, Head> {
        let source = winner.source;
        let runner_up = self.path(source).map(|node| self.losers[node].code).min().unwrap_or(EMPTY);
        while let Some(record) = self.cursors[source as usize].current() {
            emit(record)?;
            let head = self.advance(source)?;
            if head.code >= runner_up {
                return ControlFlow::Continue(self.replay(head));
            }
        }
        ControlFlow::Continue(self.replay(Head { code: EMPTY, source }))
    }

    /// The nodes from a source's leaf to the root.
    fn path(&self, source: u32) -> impl Iterator<Item = usize> + use<F, O> {
        let leaf = self.leaves + source as usize;
        std::iter::successors(Some(leaf / 2), |node| Some(node / 2)).take_while(|node| *node > 0)
    }

    /// Advances a source, whose head has won, and returns its new head.
    #[inline]
    fn advance(&mut self, source: u32) -> ControlFlow<Stop, Head> {
        let at = source as usize;
        let cursor = &mut self.cursors[at];
        let before = cursor.current().unwrap_or_default();
        cursor.advance();
        cursor.prefetch();
        let Some(record) = cursor.current() else {
            return ControlFlow::Continue(Head { code: EMPTY, source });
        };
        let key = match self.keys.get_mut(at) {
            None => self.order.key(record, &mut self.scratch.0),
            Some(key) => {
                std::mem::swap(key, &mut self.before);
                self.order.key(record, key)
            }
        };
        let prefix = prefix(key);
        let base_prefix = std::mem::replace(&mut self.prefixes[at], prefix);
        let code = self.codes.of_prefix(prefix, base_prefix);
        if let Some(code) = code
            && !(self.checked && self.order.descending() == (prefix > base_prefix))
        {
            return ControlFlow::Continue(Head { code, source });
        }
        self.advance_by_key(source, before, record)
    }

    /// The new head of a source, whose key is not known to differ from that of the record `before` in its first block.
    #[cold]
    fn advance_by_key(&mut self, source: u32, before: &[u8], record: &[u8]) -> ControlFlow<Stop, Head> {
        let (before, key) = match self.keys.get(source as usize) {
            None => {
                (self.order.key(before, &mut self.scratch.0), self.order.key(record, &mut self.scratch.1))
            }
            Some(key) => (self.before.as_slice(), key.as_slice()),
        };
        if self.checked && if self.order.descending() { before < key } else { before > key } {
            return ControlFlow::Break(Stop::Unordered);
        }
        ControlFlow::Continue(Head { code: self.codes.after(before, key), source })
    }

    /// The first head of a source.
    fn head(&mut self, source: u32) -> Head {
        let at = source as usize;
        let Some(record) = self.cursors.get(at).and_then(SliceCursor::current) else {
            return Head { code: EMPTY, source };
        };
        let scratch = self.keys.get_mut(at).unwrap_or(&mut self.scratch.0);
        self.prefixes[at] = prefix(self.order.key(record, scratch));
        Head { code: self.codes.first(self.prefixes[at]), source }
    }

    /// Fills the subtree under `node`; returns its winner.
    fn play_all(&mut self, node: usize) -> Head {
        if node >= self.leaves {
            return self.head((node - self.leaves) as u32);
        }
        let left = self.play_all(2 * node);
        let right = self.play_all(2 * node + 1);
        let (winner, loser) = match left.code.cmp(&right.code) {
            Ordering::Less => (left, right),
            Ordering::Equal => self.decide(left, right),
            Ordering::Greater => (right, left),
        };
        self.losers[node] = loser;
        winner
    }

    /// Plays `head` against the losers on its source's path; returns the overall winner.
    #[inline]
    fn replay(&mut self, mut head: Head) -> Head {
        let mut node = (self.leaves + head.source as usize) / 2;
        while node > 0 {
            let other = self.losers[node];
            if other.code == head.code {
                (head, self.losers[node]) = self.decide(head, other);
            } else {
                // Branch-free: which of the two is less cannot be predicted.
                let swap = u64::from(other.code < head.code).wrapping_neg();
                let codes = (other.code ^ head.code) & swap;
                let sources = (other.source ^ head.source) & swap as u32;
                self.losers[node] = Head { code: other.code ^ codes, source: other.source ^ sources };
                head = Head { code: head.code ^ codes, source: head.source ^ sources };
            }
            node /= 2;
        }
        head
    }

    /// The winner and the loser of two heads with equal codes. The loser's code becomes relative to the winner.
    #[cold]
    #[inline(never)]
    fn decide(&mut self, a: Head, b: Head) -> (Head, Head) {
        let at = a.source as usize;
        let bt = b.source as usize;
        let current = |at: usize| self.cursors.get(at).and_then(SliceCursor::current);
        let (record_a, record_b) = match (current(at), current(bt)) {
            (Some(record_a), Some(record_b)) => (record_a, record_b),
            (None, Some(_)) => return (b, a),
            _ => return (a, b),
        };
        let (key_a, key_b) = if self.order.computed() {
            (self.keys[at].as_slice(), self.keys[bt].as_slice())
        } else {
            let (scratch_a, scratch_b) = &mut self.scratch;
            (self.order.key(record_a, scratch_a), self.order.key(record_b, scratch_b))
        };
        let common = common_len(key_a, key_b, shared_len(a.code));
        let by_key = key_a[common..].cmp(&key_b[common..]);
        let by_key = if self.order.descending() { by_key.reverse() } else { by_key };
        let order = by_key.then_with(|| self.order.last_resort(record_a, record_b)).then(at.cmp(&bt));
        if order.is_lt() {
            (a, Head { code: self.codes.from(key_b, common, key_a), ..b })
        } else {
            (b, Head { code: self.codes.from(key_a, common, key_b), ..a })
        }
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

/// Distance from the record at which a slice is prefetched. The lines ahead of all sources share a cache: with twice
/// the distance, merges of 1,000 and more sources took 1.3 times as long, those of up to 64 the same (rows of 60 bytes;
/// example `kernels`).
const BYTES_AHEAD: usize = 192;

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
