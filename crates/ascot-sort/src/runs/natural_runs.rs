//! Natural runs: parts of the input that are in order already. They are not spilled. A run refers to the input's bytes
//! instead, and the last pass reads them there.
//!
//! ```text
//!   chunks of a run buffer   a b c d e | X | k j i h
//!   natural runs             ─────────▶      ◀──────      (the second one is read in reverse)
//!   result                   spilled 0, a..e, spilled 1 (X and outliers), h..k, spilled 2
//! ```
//!
//! Each chunk of a natural run contributes the records of one key interval; the intervals of a run do not overlap.
//! Records outside the interval of their chunk are *outliers*; they are spilled. Invariant: records of equal keys keep
//! their order: the one that is earlier in the input is in an earlier run, or earlier in the same run. So an
//! outlier whose key belongs to a later chunk is spilled before the natural run, any other after it.

use std::ops::Range;

use crate::read::Span;
use crate::records::{Records, Segment, Side};
use crate::runs::form::RunBuffer;
use crate::runs::run_file::{InputChunk, InputRun, Run};

/// The natural runs of a run buffer.
pub struct NaturalRuns {
    /// Runs that refer to the input, in its order.
    pub runs: Vec<Run>,
    /// The records to spill before, between and after them, in input order.
    pub spilled: Vec<Vec<Vec<Segment>>>,
    /// Whether each of these holds more than the outliers of its neighbours.
    pub mixed: Vec<bool>,
}

/// Longest key that is kept.
const KEY_BYTES_MAX: usize = 1 << 10;
/// Maximum share of outliers in a natural run, percent of its bytes.
const OUTLIERS_PERCENT_MAX: u64 = 15;
/// Maximum number of natural runs in a run buffer: each is one more input of the merge.
const RUNS_MAX: usize = 8;
/// Samples of a chunk; the third and the last but one bound the records that are no outliers.
const SAMPLES: usize = 50;

/// Finds the natural runs of a run buffer, which may continue the `latest` run; none if they make up less than half of
/// it.
pub fn find_natural_runs<R: Records>(
    records: &R,
    buffer: &RunBuffer,
    latest: Option<&Run>,
) -> Option<NaturalRuns> {
    let mut found = NaturalRuns { runs: Vec::new(), spilled: vec![Vec::new()], mixed: vec![false] };
    let mut at = 0;
    let mut bytes = 0;
    while at < buffer.sources.len() {
        let latest = latest.filter(|_| at == 0);
        let natural = Natural::starting(records, buffer, at, latest);
        let taken = natural.as_ref().and_then(|natural| natural.taken_after(records, buffer, latest));
        let Some(taken) = taken else {
            let end = natural.map_or(at + 1, |natural| natural.chunks.end);
            if let (Some(spilled), Some(mixed)) = (found.spilled.last_mut(), found.mixed.last_mut()) {
                spilled.extend(buffer.sources[at..end].iter().cloned());
                *mixed = true;
            }
            at = end;
            continue;
        };
        at = taken.end;
        bytes += taken.run.bytes;
        if let Some(spilled) = found.spilled.last_mut() {
            spilled.extend(taken.early);
        }
        found.runs.push(taken.run);
        found.spilled.push(taken.late);
        found.mixed.push(false);
    }
    (2 * bytes >= buffer.bytes && found.runs.len() <= RUNS_MAX && !found.runs.is_empty()).then_some(found)
}

/// Neighbouring chunks whose keys ascend, or descend.
struct Natural<B> {
    chunks: Range<usize>,
    backward: bool,
    /// Between each chunk and the next, in the order of the input: the smallest record of the
    /// interval above, if that is not the whole chunk.
    cuts: Vec<Option<B>>,
}

/// A natural run as a run that refers to the input, and its outliers.
struct Referred {
    run: Run,
    end: usize,
    early: Vec<Vec<Segment>>,
    late: Vec<Vec<Segment>>,
}

/// Sorted chunk number `at`, if it lies in one input and is one sorted sequence.
fn chunk(buffer: &RunBuffer, at: usize) -> Option<(&Segment, Span)> {
    match (buffer.sources.get(at)?.as_slice(), buffer.spans.get(at)?.as_slice()) {
        ([segment], &[span]) if !segment.is_empty() => Some((segment, span)),
        _ => None,
    }
}

impl<B: Clone> Natural<B> {
    /// The longest natural run that starts at chunk `at`.
    fn starting<R: Records<Bound = B>>(
        records: &R,
        buffer: &RunBuffer,
        at: usize,
        latest: Option<&Run>,
    ) -> Option<Self> {
        let cut = |at: usize, backward: bool| {
            let one = chunk(buffer, at)?.0;
            let two = chunk(buffer, at + 1)?.0;
            if backward {
                cut_between(records, two, one, true)
            } else {
                cut_between(records, one, two, false)
            }
        };
        let forward = cut(at, false);
        let backward = forward.is_none();
        let Some(cut_before_next) = forward.or_else(|| cut(at, true)) else {
            // A single chunk can only continue the latest run.
            let input = latest?.input.as_ref().filter(|input| input.open)?;
            return Some(Natural { chunks: at..at + 1, backward: input.backward, cuts: Vec::new() });
        };
        let mut cuts = vec![cut_before_next];
        while let Some(next) = cut(at + cuts.len(), backward) {
            cuts.push(next);
        }
        Some(Natural { chunks: at..at + cuts.len() + 1, backward, cuts })
    }

    /// The run it makes, one that continues the `latest` if possible.
    fn taken_after<R: Records<Bound = B>>(
        &self,
        records: &R,
        buffer: &RunBuffer,
        latest: Option<&Run>,
    ) -> Option<Referred> {
        let follows =
            |taken: &Referred| latest.is_some_and(|latest| latest.is_followed_by(records, &taken.run));
        let exact = self.cuts.iter().all(Option::is_none);
        let taken = self.taken(records, buffer, exact);
        if latest.is_none() || !exact || taken.as_ref().is_some_and(follows) {
            let single = self.cuts.is_empty() && !taken.as_ref().is_some_and(follows);
            return taken.filter(|_| !single);
        }
        // Without its outliers it may continue the latest.
        self.taken(records, buffer, false).filter(follows).or(taken.filter(|_| !self.cuts.is_empty()))
    }

    /// The run it makes; none if it has too many outliers. An `exact` run has none at its ends.
    fn taken<R: Records<Bound = B>>(&self, records: &R, buffer: &RunBuffer, exact: bool) -> Option<Referred> {
        let mut taken = Referred {
            run: Run::from_input(self.backward),
            end: self.chunks.end,
            early: Vec::new(),
            late: Vec::new(),
        };
        let mut inner = Vec::new();
        for at in self.chunks.clone() {
            let (segment, span) = chunk(buffer, at)?;
            let (lo, hi) = self.interval(records, segment, at - self.chunks.start, exact);
            let position = |bound: &Option<B>, none| {
                bound.as_ref().map_or(none, |bound| records.position(segment, bound, Side::Lower, true))
            };
            let main =
                Segment { lo: position(&lo, segment.lo), hi: position(&hi, segment.hi), ..segment.clone() };
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
                InputChunk::between(span, key(lo, main.lo > segment.lo), key(hi, main.hi < segment.hi));
            inner.push((chunk, main));
        }
        if self.backward {
            inner.reverse();
        }
        taken.run.fill(records, inner)?;
        let outliers: u64 =
            taken.early.iter().chain(&taken.late).flatten().map(|segment| records.bytes_in(segment)).sum();
        (100 * outliers <= OUTLIERS_PERCENT_MAX * (outliers + taken.run.bytes)).then_some(taken)
    }

    /// The key interval of chunk number `index` of the natural run.
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

/// Two records of a chunk: few are below the first, few above the second.
fn quantiles<R: Records>(records: &R, segment: &Segment) -> Option<[R::Bound; 2]> {
    let mut samples = Vec::with_capacity(SAMPLES);
    records.sample(segment, SAMPLES, 0.5, &mut samples);
    Some([samples.get(2)?.clone(), samples.get(SAMPLES - 2)?.clone()])
}

/// The record that separates two chunks, so that few records of the one are above it and few of the other below; the
/// inner option is empty if no records are. None: the chunks overlap.
fn cut_between<R: Records>(
    records: &R,
    below: &Segment,
    above: &Segment,
    backward: bool,
) -> Option<Option<R::Bound>> {
    let last = records.last(below);
    let first = records.first(above);
    let order = records.compare(&last, &first);
    // Equal records keep their order in the input.
    if order.is_lt() || (order.is_eq() && !backward) {
        return Some(None);
    }
    if records.compare_keys(&last, &first).is_le() {
        return Some(Some(first));
    }
    let [_, high] = quantiles(records, below)?;
    let [low, _] = quantiles(records, above)?;
    records.compare_keys(&high, &low).is_le().then_some(Some(low))
}

impl Run {
    /// An empty run that refers to inputs.
    fn from_input(backward: bool) -> Run {
        let inputs = InputRun {
            chunks: Vec::new(),
            backward,
            first_key: Vec::new(),
            last_key: Vec::new(),
            open: true,
        };
        Run { input: Some(inputs), ..Run::default() }
    }

    /// A run of one sorted chunk that memory holds. A resumed job reads its `spans` of the inputs again; without them
    /// the job cannot be resumed.
    pub fn of_held_chunk<R: Records>(records: &R, source: &[Segment], spans: &[Span]) -> Run {
        let mut run = Run::from_input(false);
        run.bytes = source.iter().map(|segment| records.bytes_in(segment)).sum();
        if let ([segment, ..], Some(chunk), Some(input)) = (source, InputChunk::of(spans), &mut run.input) {
            let start = records.offset_of(segment.lo) as usize;
            run.first_keys.push(records.first_prefix(&segment.sorted.record_bytes()[start..]));
            run.block_bytes = chunk.buffer_bytes();
            input.chunks.push(chunk);
        }
        run.close();
        run
    }

    /// Adds chunks and the records that they contribute; none if their keys are too long.
    fn fill<R: Records>(&mut self, records: &R, inner: Vec<(InputChunk, Segment)>) -> Option<()> {
        let input = self.input.as_mut()?;
        input.first_key = records.key_of(&records.first(&inner.first()?.1));
        input.last_key = records.key_of(&records.last(&inner.last()?.1));
        for (chunk, main) in inner {
            let start = records.offset_of(main.lo) as usize;
            self.first_keys.push(records.first_prefix(&main.sorted.record_bytes()[start..]));
            self.bytes += records.bytes_in(&main);
            self.block_bytes = self.block_bytes.max(chunk.buffer_bytes());
            input.chunks.push(chunk);
        }
        let keys = input.chunks.iter().flat_map(|chunk| chunk.lo.iter().chain(&chunk.hi));
        let long = keys.chain([&input.first_key, &input.last_key]).any(|key| key.len() > KEY_BYTES_MAX);
        (!long).then_some(())
    }

    /// Whether the `next` run of the input continues this one.
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

    /// Adds the `next` run of the input, if that continues this one.
    pub fn extend_with<R: Records>(&mut self, records: &R, next: &Run) -> bool {
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

    /// No later run continues this one.
    pub fn close(&mut self) {
        if let Some(input) = &mut self.input {
            input.open = false;
        }
    }
}
