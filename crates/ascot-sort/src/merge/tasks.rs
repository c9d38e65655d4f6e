//! Cutting sorted sources into tasks by key range, so that several threads merge at once.

use crate::records::{Records, Segment, Side, Task};

/// Samples taken for each task wanted.
const SAMPLES_PER_TASK: usize = 12;

/// What tasks must respect.
#[derive(Clone, Debug, Default)]
pub struct CutRules {
    /// Key emitted before, where duplicates are left out.
    pub previous: Option<Vec<u8>>,
    /// The key of the last record is wanted.
    pub keeps_key: bool,
    /// Emit at most so many records in all; then there is one task only.
    pub limit: Option<u64>,
}

/// Cuts sources into about `tasks` tasks of about the same size. Records of equal keys stay in one
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
        for mut segment in source {
            for (share, splitter) in shares.iter_mut().zip(&splitters) {
                let at = records.position(&segment, splitter, Side::Lower, true);
                if at > segment.lo {
                    share.push(Segment { hi: at, ..segment.clone() });
                    segment.lo = at;
                }
            }
            if let (false, Some(last)) = (segment.is_empty(), shares.last_mut()) {
                last.push(segment);
            }
        }
        for (task, share) in cut.iter_mut().zip(shares) {
            if !share.is_empty() {
                task.sources.push(share);
            }
        }
    }
    // A task without records knows nothing of the key before it.
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
    for segment in sources.iter().flatten().filter(|segment| !segment.is_empty()) {
        // Small segments take turns at being sampled.
        owed += records.bytes_in(segment) * wanted;
        let count = owed / total.max(1);
        owed -= count * total.max(1);
        records.sample(segment, count as usize, &mut samples);
    }
    samples.sort_by(|a, b| records.compare_keys(a, b));
    let mut splitters: Vec<R::Bound> =
        (1..tasks).filter_map(|i| samples.get(samples.len() * i / tasks).cloned()).collect();
    splitters.dedup_by(|a, b| records.compare_keys(a, b).is_eq());
    splitters
}
