//! Cuts a batch of a merge into tasks: key ranges that threads merge side by side.
//!
//! ```text
//!   source 0  [a a b b b b|b b b b]        `|`: the splitter, a record of source 1
//!   source 1  [b b b b|b b c]              equal records of earlier sources come before it,
//!   source 2  [|b b b b d]                 those of its own and of later sources after it
//! ```
//!
//! Splitters are sampled records, in the order of the result: by key, last resort and source. So equal keys, too, make
//! several tasks. If duplicates are dropped, all records of a key belong to one task. So they do if a source may not be
//! sorted: its records are ordered by their keys at best.

use std::cmp::Ordering;

use crate::records::{Records, Segment, Side, Task};

/// Number of samples per task.
const SAMPLES_PER_TASK: usize = 12;

/// Conditions that tasks must respect.
#[derive(Clone, Debug, Default)]
pub struct CutRules {
    /// Key emitted before, if duplicates are dropped.
    pub previous: Option<Vec<u8>>,
    /// Whether the key of the last record is needed.
    pub keeps_key: bool,
    /// Maximum number of records to emit; if set, there is only one task.
    pub limit: Option<u64>,
    /// Whether records of equal keys may belong to several tasks.
    pub separates_equals: bool,
}

/// A record at which sources are cut.
struct Splitter<B> {
    record: B,
    /// The source that it comes from.
    source: usize,
}

/// The order of splitters.
struct Cut<'a, R> {
    records: &'a R,
    /// Records of equal keys count as equal.
    keys_only: bool,
}

impl<R: Records> Cut<'_, R> {
    fn compare(&self, a: &Splitter<R::Bound>, b: &Splitter<R::Bound>) -> Ordering {
        if self.keys_only {
            return self.records.compare_keys(&a.record, &b.record);
        }
        self.records.compare(&a.record, &b.record).then(a.source.cmp(&b.source))
    }

    /// The end of the records before `splitter` in a segment of source number `source`.
    fn position(&self, source: usize, segment: &Segment, splitter: &Splitter<R::Bound>) -> u32 {
        let earlier = !self.keys_only && source < splitter.source;
        let side = if earlier { Side::Upper } else { Side::Lower };
        self.records.position(segment, &splitter.record, side, self.keys_only)
    }

    /// At most `tasks - 1` splitters, ascending.
    fn splitters(&self, sources: &[Vec<Segment>], tasks: usize) -> Vec<Splitter<R::Bound>> {
        let total: u64 = sources.iter().flatten().map(|segment| self.records.bytes_in(segment)).sum();
        let wanted = (tasks * SAMPLES_PER_TASK) as u64;
        let mut samples = Vec::new();
        let mut sampled = Vec::new();
        let mut owed = 0;
        for (source, segments) in sources.iter().enumerate() {
            for segment in segments.iter().filter(|segment| !segment.is_empty()) {
                // Small segments are sampled in turn.
                owed += self.records.bytes_in(segment) * wanted;
                let count = owed / total.max(1);
                owed -= count * total.max(1);
                self.records.sample(segment, count as usize, &mut sampled);
            }
            samples.extend(sampled.drain(..).map(|record| Splitter { record, source }));
        }
        samples.sort_by(|a, b| self.compare(a, b));
        let count = samples.len();
        let chosen: Vec<usize> = (1..tasks).map(|i| count * i / tasks).collect();
        let mut places = 0..count;
        samples.retain(|_| places.next().is_some_and(|place| chosen.binary_search(&place).is_ok()));
        samples.dedup_by(|a, b| self.compare(a, b).is_eq());
        samples
    }
}

/// Cuts sources into about `tasks` tasks of similar size.
pub fn cut_tasks<R: Records>(
    records: &R,
    sources: Vec<Vec<Segment>>,
    tasks: usize,
    rules: CutRules,
) -> Vec<Task> {
    let limit = rules.limit.unwrap_or(u64::MAX);
    let unchecked = || sources.iter().flatten().any(|segment| segment.sorted.unchecked.is_some());
    let cut = Cut { records, keys_only: !rules.separates_equals || unchecked() };
    let splitters =
        if tasks <= 1 || rules.limit.is_some() { Vec::new() } else { cut.splitters(&sources, tasks) };
    let mut tasks: Vec<Task> = (0..=splitters.len())
        .map(|_| Task { sources: Vec::with_capacity(sources.len()), previous: None, last: false, limit })
        .collect();
    for (number, source) in sources.into_iter().enumerate() {
        let mut shares: Vec<Vec<Segment>> = vec![Vec::new(); tasks.len()];
        // The first task that may get a segment: records of one source go to tasks in their order, sorted or not.
        let mut first = 0;
        for mut segment in source {
            while !segment.is_empty() {
                let at = match splitters.get(first) {
                    Some(splitter) => cut.position(number, &segment, splitter),
                    None => segment.hi,
                };
                if at > segment.lo {
                    shares[first].push(Segment { hi: at, ..segment.clone() });
                    segment.lo = at;
                }
                first += usize::from(at < segment.hi);
            }
        }
        for (task, share) in tasks.iter_mut().zip(shares) {
            if !share.is_empty() {
                task.sources.push(share);
            }
        }
    }
    // A task without records does not know the key before it.
    tasks.retain(|task| !task.sources.is_empty());
    if let Some(first) = tasks.first_mut() {
        first.previous = rules.previous;
    }
    if let Some(last) = tasks.last_mut() {
        last.last = rules.keeps_key;
    }
    tasks
}
