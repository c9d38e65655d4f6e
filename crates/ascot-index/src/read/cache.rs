//! What a reader keeps of index logs: their segments' places, and heads, as long as there is memory for them.

use std::collections::HashMap;
use std::sync::Arc;

use ascot_io::crc32c;

use crate::error::{IndexError, Result};
use crate::format::footer::Entry;
use crate::format::head::{Head, Kind};
use crate::format::names::Log;
use crate::read::fetch::{Spot, fetch_all};
use crate::read::log::{LogReader, Tail};
use crate::read::{Directory, Segment, count};

/// Logs opened at once.
pub(crate) const LOGS_AT_ONCE: usize = 16;

/// Open logs and heads, the least recently used of which go first.
pub struct Cache {
    most: usize,
    used: usize,
    /// Counts uses.
    clock: u64,
    logs: HashMap<Log, (Arc<LogReader>, u64)>,
    heads: HashMap<(Log, u64), (Arc<Head>, u64)>,
}

impl Cache {
    /// A cache of `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { most, used: 0, clock: 0, logs: HashMap::new(), heads: HashMap::new() }
    }

    fn log(&mut self, log: Log) -> Option<Arc<LogReader>> {
        self.clock += 1;
        let (found, used) = self.logs.get_mut(&log)?;
        *used = self.clock;
        Some(Arc::clone(found))
    }

    fn keep_log(&mut self, log: &Arc<LogReader>) {
        self.make_room(log.memory());
        self.used += log.memory();
        self.logs.insert(log.log, (Arc::clone(log), self.clock));
    }

    fn head(&mut self, log: Log, at: u64) -> Option<Arc<Head>> {
        self.clock += 1;
        let (found, used) = self.heads.get_mut(&(log, at))?;
        *used = self.clock;
        Some(Arc::clone(found))
    }

    fn keep_head(&mut self, log: Log, at: u64, head: &Arc<Head>) {
        if head.memory() > self.most / 2 || self.heads.contains_key(&(log, at)) {
            return;
        }
        self.make_room(head.memory());
        self.used += head.memory();
        self.heads.insert((log, at), (Arc::clone(head), self.clock));
    }

    /// Drops what was not used for longest, a quarter of all at a time, until there is room.
    fn make_room(&mut self, bytes: usize) {
        while self.used + bytes > self.most && !(self.heads.is_empty() && self.logs.is_empty()) {
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

impl Directory {
    /// A log, opened if it is not.
    pub(crate) fn log(&self, log: Log) -> Result<Arc<LogReader>> {
        if let Some(found) = self.cache().log(log) {
            return Ok(found);
        }
        self.open_log(log, None)
    }

    fn open_log(&self, log: Log, tail: Option<Tail>) -> Result<Arc<LogReader>> {
        let opened = Arc::new(LogReader::open(self, log, tail)?);
        self.cache().keep_log(&opened);
        Ok(opened)
    }

    /// Opens logs that are about to be asked for, reading the ends of several at once. What is wrong with one is told when it is asked
    /// for itself.
    pub(crate) fn open_logs(&self, wanted: impl Iterator<Item = Log>) {
        let mut absent: Vec<Log> = Vec::new();
        if self.manifest.epochs == 0 {
            return;
        }
        for log in wanted {
            if self.cache().logs.contains_key(&log) || absent.contains(&log) {
                continue;
            }
            absent.push(log);
            if absent.len() == LOGS_AT_ONCE {
                self.open_absent(&std::mem::take(&mut absent));
            }
        }
        self.open_absent(&absent);
    }

    fn open_absent(&self, logs: &[Log]) {
        if logs.len() < 2 {
            return;
        }
        let spot = |log: &Log| {
            let path = log.index(&self.path);
            let size = self.files.get(&path).ok()?.size();
            Some((*log, Tail::spot(path, size)))
        };
        let (logs, spots): (Vec<Log>, Vec<Spot>) = logs.iter().filter_map(spot).unzip();
        let mut tails: Vec<Tail> = Vec::new();
        let done = fetch_all(self, &spots, |number, bytes| {
            tails.push(Tail::new(&spots[number], bytes));
            Ok(())
        });
        count(&self.counters.opening_reads, tails.len() as u64);
        if done.is_ok() {
            for (log, tail) in logs.into_iter().zip(tails) {
                let _ = self.open_log(log, Some(tail));
            }
        }
    }

    /// The heads of segments, read where they are not in memory.
    pub(crate) fn segments(&self, wanted: &[(Arc<LogReader>, Entry)], kind: Kind) -> Result<Vec<Segment>> {
        let mut found: Vec<Option<Arc<Head>>> = {
            let mut cache = self.cache();
            wanted.iter().map(|(log, entry)| cache.head(log.log, entry.head.at)).collect()
        };
        let absent: Vec<usize> = (0..wanted.len()).filter(|&index| found[index].is_none()).collect();
        let spot = |&index: &usize| {
            let (log, entry) = &wanted[index];
            Spot { path: log.index.clone(), at: entry.head.at, bytes: entry.head.bytes as usize }
        };
        let spots: Vec<Spot> = absent.iter().map(spot).collect();
        count(&self.counters.opening_reads, spots.len() as u64);
        fetch_all(self, &spots, |number, bytes| {
            let (log, entry) = &wanted[absent[number]];
            let head = Arc::new(self.parse_head(log, entry, kind, bytes)?);
            self.cache().keep_head(log.log, entry.head.at, &head);
            found[absent[number]] = Some(head);
            Ok(())
        })?;
        let segments = wanted.iter().zip(found);
        Ok(segments
            .filter_map(|((log, _), head)| Some(Segment { log: Arc::clone(log), head: head? }))
            .collect())
    }

    fn parse_head(&self, log: &LogReader, entry: &Entry, kind: Kind, bytes: &[u8]) -> Result<Head> {
        let damaged = |what| IndexError::damaged(&log.index, entry.head.at, what);
        if crc32c(&[bytes]) != entry.head.crc {
            return Err(damaged("the checksum of a segment's head is wrong"));
        }
        // What a head becomes in memory is no more than a few times its bytes.
        let _memory = self.pool.reserve(bytes.len(), "the head of a segment")?;
        let head = Head::parse(bytes.to_vec()).map_err(damaged)?;
        let facts = &head.facts;
        if facts.log != log.id.0
            || facts.epoch != entry.epoch
            || facts.kind != kind
            || facts.records != entry.records
        {
            return Err(damaged("a segment's head belongs somewhere else"));
        }
        Ok(head)
    }
}
