//! The reader's cache of index logs: the segment lists of open logs, and segment heads, within a memory cap.

use std::collections::HashMap;
use std::sync::Arc;

use crate::format::head::SegmentHead;
use crate::format::names::Log;
use crate::read::log::LogReader;

/// Open logs and heads; the least recently used are evicted first.
pub struct Cache {
    max_bytes: usize,
    used: usize,
    /// Number of uses so far.
    clock: u64,
    logs: HashMap<Log, (Arc<LogReader>, u64)>,
    heads: HashMap<(Log, u64), (Arc<SegmentHead>, u64)>,
}

impl Cache {
    /// A cache of `max_bytes` bytes.
    pub fn new(max_bytes: usize) -> Self {
        Self { max_bytes, used: 0, clock: 0, logs: HashMap::new(), heads: HashMap::new() }
    }

    pub fn log(&mut self, log: Log) -> Option<Arc<LogReader>> {
        self.clock += 1;
        let (found, used) = self.logs.get_mut(&log)?;
        *used = self.clock;
        Some(Arc::clone(found))
    }

    pub fn keep_log(&mut self, log: &Arc<LogReader>) {
        self.make_space(log.memory());
        self.used += log.memory();
        self.logs.insert(log.log, (Arc::clone(log), self.clock));
    }

    pub fn head(&mut self, log: Log, at: u64) -> Option<Arc<SegmentHead>> {
        self.clock += 1;
        let (found, used) = self.heads.get_mut(&(log, at))?;
        *used = self.clock;
        Some(Arc::clone(found))
    }

    pub fn keep_head(&mut self, log: Log, at: u64, head: &Arc<SegmentHead>) {
        if head.memory() > self.max_bytes / 2 || self.heads.contains_key(&(log, at)) {
            return;
        }
        self.make_space(head.memory());
        self.used += head.memory();
        self.heads.insert((log, at), (Arc::clone(head), self.clock));
    }

    /// Evicts the least recently used quarter until `bytes` fit.
    fn make_space(&mut self, bytes: usize) {
        while self.used + bytes > self.max_bytes && !(self.heads.is_empty() && self.logs.is_empty()) {
            let mut uses: Vec<u64> =
                self.heads.values().map(|one| one.1).chain(self.logs.values().map(|one| one.1)).collect();
            uses.sort_unstable();
            let limit = uses[uses.len() / 4];
            self.heads.retain(|_, one| one.1 > limit);
            self.logs.retain(|_, one| one.1 > limit);
            let heads: usize = self.heads.values().map(|one| one.0.memory()).sum();
            self.used = heads + self.logs.values().map(|one| one.0.memory()).sum::<usize>();
        }
    }
}
