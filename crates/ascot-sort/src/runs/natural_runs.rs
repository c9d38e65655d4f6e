//! Stretches of the input that are in order already: they are not spilled. A run refers to the
//! input's bytes instead, and the last pass reads them there.
//!
//! ```text
//!   pieces of a load   a b c d e | X | k j i h
//!   stretches          ─────────▶      ◀──────      (the second one is taken in reverse)
//!   runs               gap 0, a..e, gap 1 (X and strays), h..k, gap 2
//! ```
//!
//! Each piece of a stretch gives the run the records of a key interval; the intervals of a stretch
//! do not overlap. Records outside their piece's interval are *strays*; they are spilled. Invariant:
//! of equal keys, what stands earlier in the input stands in an earlier run, or earlier in the same
//! run. A stray whose key belongs to a later piece of the input therefore goes to the gap before
//! the stretch, any other to the gap behind it.

use std::ops::Range;

use crate::read::inputs::Span;
use crate::records::{Records, Segment, Side};
use crate::runs::form::Load;
use crate::runs::run::{InputChunk, InputRun};
use crate::runs::run::{Run, RunStart};

/// What was found in a load.
pub struct Found {
    /// Runs that refer to the input, in its order.
    pub runs: Vec<Run>,
    /// What is to be spilled before, between and behind them, in input order.
    pub gaps: Vec<Vec<Vec<Segment>>>,
    /// Which gaps hold more than the strays of their neighbours.
    pub mixed: Vec<bool>,
}

/// Keys longer than this are not remembered.
const MOST_KEY_BYTES: usize = 1 << 10;
/// Strays of a stretch, percent of its bytes at most.
const MOST_STRAYS_PERCENT: u64 = 15;
/// Stretches of a load at most: each costs a place in the merge.
const MOST_STRETCHES: usize = 8;
/// Samples of a piece; the third and the last but one bound what is not a stray.
const SAMPLES: usize = 50;

/// Finds the stretches of a load, which may go on with the `latest` run; nothing where they are less
/// than half of it.
pub fn recognise<R: Records>(records: &R, load: &Load, latest: Option<&Run>) -> Option<Found> {
    let mut found = Found { runs: Vec::new(), gaps: vec![Vec::new()], mixed: vec![false] };
    let (mut at, mut bytes) = (0, 0);
    while at < load.sources.len() {
        let latest = latest.filter(|_| at == 0);
        let stretch = Stretch::starting(records, load, at, latest);
        let taken = stretch.as_ref().and_then(|stretch| stretch.taken_after(records, load, latest));
        let Some(taken) = taken else {
            let end = stretch.map_or(at + 1, |stretch| stretch.pieces.end);
            if let (Some(gap), Some(mixed)) = (found.gaps.last_mut(), found.mixed.last_mut()) {
                gap.extend(load.sources[at..end].iter().cloned());
                *mixed = true;
            }
            at = end;
            continue;
        };
        at = taken.end;
        bytes += taken.run.bytes;
        if let Some(gap) = found.gaps.last_mut() {
            gap.extend(taken.early);
        }
        found.runs.push(taken.run);
        found.gaps.push(taken.late);
        found.mixed.push(false);
    }
    (2 * bytes >= load.bytes && found.runs.len() <= MOST_STRETCHES && !found.runs.is_empty()).then_some(found)
}

/// Neighbouring pieces whose keys ascend, or descend.
struct Stretch<B> {
    pieces: Range<usize>,
    backward: bool,
    /// Between each piece and the next, in the order of the input: the smallest record of the
    /// interval above, where it is not all of it.
    cuts: Vec<Option<B>>,
}

/// A stretch as a run, and its strays.
struct Taken {
    run: Run,
    end: usize,
    early: Vec<Vec<Segment>>,
    late: Vec<Vec<Segment>>,
}

/// The piece number `at`, if it lies in an input and is one sorted sequence.
fn piece(load: &Load, at: usize) -> Option<(&Segment, Span)> {
    let span = (*load.spans.get(at)?)?;
    match load.sources.get(at)?.as_slice() {
        [segment] if !segment.is_empty() => Some((segment, span)),
        _ => None,
    }
}

impl<B: Clone> Stretch<B> {
    /// The longest stretch that starts at piece `at`.
    fn starting<R: Records<Bound = B>>(
        records: &R,
        load: &Load,
        at: usize,
        latest: Option<&Run>,
    ) -> Option<Self> {
        let cut = |at: usize, backward: bool| {
            let (one, two) = (piece(load, at)?.0, piece(load, at + 1)?.0);
            if backward {
                cut_between(records, two, one, true)
            } else {
                cut_between(records, one, two, false)
            }
        };
        let forward = cut(at, false);
        let backward = forward.is_none();
        let Some(cut_before_next) = forward.or_else(|| cut(at, true)) else {
            // A piece by itself can only go on with what there is.
            let input = latest?.input.as_ref().filter(|input| input.open)?;
            return Some(Stretch { pieces: at..at + 1, backward: input.backward, cuts: Vec::new() });
        };
        let mut cuts = vec![cut_before_next];
        while let Some(next) = cut(at + cuts.len(), backward) {
            cuts.push(next);
        }
        Some(Stretch { pieces: at..at + cuts.len() + 1, backward, cuts })
    }

    /// The run it makes, if possible one that goes on with the `latest`.
    fn taken_after<R: Records<Bound = B>>(
        &self,
        records: &R,
        load: &Load,
        latest: Option<&Run>,
    ) -> Option<Taken> {
        let follows = |taken: &Taken| latest.is_some_and(|latest| latest.is_followed_by(records, &taken.run));
        let exact = self.cuts.iter().all(Option::is_none);
        let taken = self.taken(records, load, exact);
        if latest.is_none() || !exact || taken.as_ref().is_some_and(follows) {
            let single = self.cuts.is_empty() && !taken.as_ref().is_some_and(follows);
            return taken.filter(|_| !single);
        }
        // Without its ends it may.
        self.taken(records, load, false).filter(follows).or(taken.filter(|_| !self.cuts.is_empty()))
    }

    /// The run it makes; nothing if too much of it is not in order. An `exact` one has open ends.
    fn taken<R: Records<Bound = B>>(&self, records: &R, load: &Load, exact: bool) -> Option<Taken> {
        let mut taken = Taken {
            run: Run::of_input(self.backward),
            end: self.pieces.end,
            early: Vec::new(),
            late: Vec::new(),
        };
        let mut mains = Vec::new();
        for at in self.pieces.clone() {
            let (segment, span) = piece(load, at)?;
            let (lo, hi) = self.interval(records, segment, at - self.pieces.start, exact);
            let place = |bound: &Option<B>, none| {
                bound.as_ref().map_or(none, |bound| records.position(segment, bound, Side::Lower, true))
            };
            let main = Segment { lo: place(&lo, segment.lo), hi: place(&hi, segment.hi), ..segment.clone() };
            if main.is_empty() {
                return None;
            }
            let below = Segment { hi: main.lo, ..segment.clone() };
            let above = Segment { lo: main.hi, ..segment.clone() };
            let (early, late) = if self.backward { (below, above) } else { (above, below) };
            taken.early.extend((!early.is_empty()).then(|| vec![early]));
            taken.late.extend((!late.is_empty()).then(|| vec![late]));
            let key =
                |bound: Option<B>, trims: bool| bound.filter(|_| trims).map(|bound| records.key_of(&bound));
            let chunk =
                InputChunk { span, lo: key(lo, main.lo > segment.lo), hi: key(hi, main.hi < segment.hi) };
            mains.push((chunk, main));
        }
        if self.backward {
            mains.reverse();
        }
        taken.run.fill(records, mains)?;
        let strays: u64 =
            taken.early.iter().chain(&taken.late).flatten().map(|segment| records.bytes_in(segment)).sum();
        (100 * strays <= MOST_STRAYS_PERCENT * (strays + taken.run.bytes)).then_some(taken)
    }

    /// The interval of piece number `index` of the stretch.
    fn interval<R: Records<Bound = B>>(
        &self,
        records: &R,
        segment: &Segment,
        index: usize,
        exact: bool,
    ) -> (Option<B>, Option<B>) {
        let before = index.checked_sub(1).map(|before| self.cuts[before].clone());
        let after = self.cuts.get(index).cloned();
        let (below, above) = if self.backward { (after, before) } else { (before, after) };
        let open = |high: usize| {
            if exact { None } else { quantiles(records, segment).and_then(|two| two.into_iter().nth(high)) }
        };
        (below.unwrap_or_else(|| open(0)), above.unwrap_or_else(|| open(1)))
    }
}

/// The keys that few records of a piece are below, and above.
fn quantiles<R: Records>(records: &R, segment: &Segment) -> Option<[R::Bound; 2]> {
    let mut samples = Vec::with_capacity(SAMPLES);
    records.sample(segment, SAMPLES, &mut samples);
    Some([samples.get(2)?.clone(), samples.get(SAMPLES - 2)?.clone()])
}

/// Where to cut between two pieces so that few records of the one are above, few of the other
/// below: nowhere, if there are none. No answer: they overlap.
fn cut_between<R: Records>(
    records: &R,
    below: &Segment,
    above: &Segment,
    backward: bool,
) -> Option<Option<R::Bound>> {
    let (last, first) = (records.last(below), records.first(above));
    let order = records.compare(&last, &first);
    // Equal records keep their order in the input.
    if order.is_lt() || (order.is_eq() && !backward) {
        return Some(None);
    }
    if records.compare_keys(&last, &first).is_le() {
        return Some(Some(first));
    }
    let ([_, high], [low, _]) = (quantiles(records, below)?, quantiles(records, above)?);
    records.compare_keys(&high, &low).is_le().then_some(Some(low))
}

impl Run {
    /// An empty run that refers to inputs.
    fn of_input(backward: bool) -> Run {
        let inputs = InputRun {
            chunks: Vec::new(),
            backward,
            first_key: Vec::new(),
            last_key: Vec::new(),
            open: true,
        };
        Run {
            path: std::path::PathBuf::new(),
            number: 0,
            bytes: 0,
            records: 0,
            longest: 0,
            block_bytes: 0,
            first_keys: Vec::new(),
            start: RunStart::default(),
            input: Some(inputs),
            raw: false,
        }
    }

    /// Puts chunks and what they give into the run; nothing if their keys are too long.
    fn fill<R: Records>(&mut self, records: &R, mains: Vec<(InputChunk, Segment)>) -> Option<()> {
        let input = self.input.as_mut()?;
        input.first_key = records.key_of(&records.first(&mains.first()?.1));
        input.last_key = records.key_of(&records.last(&mains.last()?.1));
        for (chunk, main) in mains {
            let start = records.offset_of(main.lo) as usize;
            self.first_keys.push(records.first_prefix(&main.sorted.record_bytes()[start..]));
            self.bytes += records.bytes_in(&main);
            self.block_bytes = self.block_bytes.max(chunk.span.buffer_bytes());
            input.chunks.push(chunk);
        }
        let keys = input.chunks.iter().flat_map(|chunk| chunk.lo.iter().chain(&chunk.hi));
        let long = keys.chain([&input.first_key, &input.last_key]).any(|key| key.len() > MOST_KEY_BYTES);
        (!long).then_some(())
    }

    /// Whether what the input gave next goes on with this run.
    fn is_followed_by<R: Records>(&self, records: &R, next: &Run) -> bool {
        let (Some(mine), Some(other)) = (&self.input, &next.input) else { return false };
        let order = |a: &[u8], b: &[u8]| if records.descending() { b.cmp(a) } else { a.cmp(b) };
        let follows = if mine.backward {
            order(&other.last_key, &mine.first_key).is_lt()
        } else {
            let order = order(&mine.last_key, &other.first_key);
            order.is_lt() || (order.is_eq() && records.keys_decide())
        };
        mine.open && mine.backward == other.backward && follows
    }

    /// Takes in what the input gave next, if that goes on with this run.
    pub fn goes_on<R: Records>(&mut self, records: &R, next: &Run) -> bool {
        if !self.is_followed_by(records, next) {
            return false;
        }
        let (Some(mine), Some(other)) = (&mut self.input, &next.input) else { return false };
        let at = if mine.backward { 0 } else { mine.chunks.len() };
        mine.chunks.splice(at..at, other.chunks.iter().cloned());
        self.first_keys.splice(at..at, next.first_keys.iter().copied());
        if mine.backward {
            mine.first_key.clone_from(&other.first_key);
        } else {
            mine.last_key.clone_from(&other.last_key);
        }
        self.bytes += next.bytes;
        self.block_bytes = self.block_bytes.max(next.block_bytes);
        true
    }

    /// Nothing goes on with this run any more.
    pub fn close(&mut self) {
        if let Some(input) = &mut self.input {
            input.open = false;
        }
    }
}
