//! Cuts a batch of sorted sources into tasks by key range, one for a merging thread at a time.
//!
//! ```text
//!   source 0  [  .  |  .  |  .  ]      .: samples, at another place of each source
//!   source 1  [ .   | .   | .   ]      |: the splitters, quantiles of all samples
//!              task 0  1     2
//! ```

use crate::records::{Records, Segment, Side, Task};

/// Multiples of it, without their whole part, are evenly spread over 0 to 1, however many.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;

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
}

/// Cuts sources into about `tasks` tasks of similar size. Records with equal keys stay in one
/// task.
pub fn cut_tasks<R: Records>(
    records: &R,
    sources: Vec<Vec<Segment>>,
    tasks: usize,
    rules: CutRules,
) -> Vec<Task> {
    let limit = rules.limit.unwrap_or(u64::MAX);
    let splitters =
        if tasks <= 1 || rules.limit.is_some() { Vec::new() } else { splitters(records, &sources, tasks) };
    let mut cut: Vec<Task> = (0..=splitters.len())
        .map(|_| Task { sources: Vec::with_capacity(sources.len()), previous: None, last: false, limit })
        .collect();
    for source in sources {
        let mut shares: Vec<Vec<Segment>> = vec![Vec::new(); cut.len()];
        // The first task that may get a segment: records of one source go to tasks in their order, sorted or not.
        let mut first = 0;
        for mut segment in source {
            while !segment.is_empty() {
                let at = match splitters.get(first) {
                    Some(splitter) => records.position(&segment, splitter, Side::Lower, true),
                    None => segment.hi,
                };
                if at > segment.lo {
                    shares[first].push(Segment { hi: at, ..segment.clone() });
                    segment.lo = at;
                }
                first += usize::from(at < segment.hi);
            }
        }
        for (task, share) in cut.iter_mut().zip(shares) {
            if !share.is_empty() {
                task.sources.push(share);
            }
        }
    }
    // A task without records does not know the key before it.
    cut.retain(|task| !task.sources.is_empty());
    if let Some(first) = cut.first_mut() {
        first.previous = rules.previous;
    }
    if let Some(last) = cut.last_mut() {
        last.last = rules.keeps_key;
    }
    cut
}

fn splitters<R: Records>(records: &R, sources: &[Vec<Segment>], tasks: usize) -> Vec<R::Bound> {
    let total: u64 = sources.iter().flatten().map(|segment| records.bytes_in(segment)).sum();
    let wanted = (tasks * SAMPLES_PER_TASK) as u64;
    let mut samples = Vec::new();
    let mut owed = 0;
    let mut phase = 0.5;
    for segment in sources.iter().flatten().filter(|segment| !segment.is_empty()) {
        // Small segments are sampled in turn.
        owed += records.bytes_in(segment) * wanted;
        let count = owed / total.max(1);
        owed -= count * total.max(1);
        records.sample(segment, count as usize, phase, &mut samples);
        // Samples at the same places of segments with alike keys would be a few keys over and over.
        phase = (phase + GOLDEN_RATIO) % 1.0;
    }
    samples.sort_by(|a, b| records.compare_keys(a, b));
    let mut splitters: Vec<R::Bound> =
        (1..tasks).filter_map(|i| samples.get(samples.len() * i / tasks).cloned()).collect();
    splitters.dedup_by(|a, b| records.compare_keys(a, b).is_eq());
    splitters
}
