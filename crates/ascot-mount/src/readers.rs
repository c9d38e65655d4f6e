//! The readers of the file: each open descriptor is one.
//!
//! A sequential reader gets a stream that merges ahead. The kernel requests several chunks at once, which arrive in
//! any order, so the latest bytes of a stream are kept:
//!
//! ```text
//!   returned and dropped | kept: repeated or late requests | merged ahead
//!                        begin                             end
//! ```
//!
//! Any other read is a separate merge. Streams have equal shares of the memory. If all are in use, the one idle for
//! longest is taken back, and so is any that was idle for a while.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ascot_sort::SortError;
use ascot_sort::view::{self, Stream, View};

use crate::Source;
use ascot_io::Unpoisoned;

/// Maximum number of streams.
const STREAMS: usize = 4;
/// A stream idle for this long returns its memory.
const IDLE: Duration = Duration::from_secs(5);
/// A stream read within this time is not taken from its reader.
const BUSY: Duration = Duration::from_millis(200);
/// How long a read waits for memory.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two attempts to get memory.
const BETWEEN_TRIES: Duration = Duration::from_millis(2);
/// Bytes of a stream that are kept, and bytes that a request may be ahead of its position.
const WINDOW_BYTES: usize = 4 << 20;

/// All readers of a view.
pub struct Readers {
    view: Arc<dyn View>,
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    next: AtomicU64,
    /// Memory of a stream, bytes.
    share: usize,
    /// A stream idle for this long returns its memory.
    idle: Duration,
    /// Held during a small read: only one such read takes memory at a time.
    few: Mutex<()>,
}

#[derive(Default)]
struct Handle {
    reading: Mutex<Reading>,
}

impl Handle {
    /// Whether it has a stream; a reader that is locked for reading counts as having one.
    fn holds_stream(&self) -> bool {
        self.reading.try_lock().map_or(true, |reading| reading.stream.is_some())
    }
}

/// The position and stream of a reader.
#[derive(Default)]
struct Reading {
    /// The end of its latest read.
    expected: u64,
    stream: Option<Ahead>,
}

impl Reading {
    /// Returns the memory of its stream, if it has one. The reader can continue at the end of the stream.
    fn give_up(&mut self) -> bool {
        let stopped = self.stream.take().map(|ahead| ahead.end());
        self.expected = stopped.unwrap_or(self.expected);
        stopped.is_some()
    }
}

/// A stream, and the latest bytes it returned.
struct Ahead {
    stream: Stream,
    begin: u64,
    kept: VecDeque<u8>,
    used: Instant,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unpoisoned()
}

impl Readers {
    /// Readers of `view`, which share its memory.
    pub fn new(view: Arc<dyn View>) -> Self {
        // One share is left for small reads, and kept bytes come out of each share.
        let share = (view.pool().available() / (STREAMS + 1)).saturating_sub(WINDOW_BYTES);
        let handles = Mutex::default();
        let next = AtomicU64::new(1);
        let few = Mutex::default();
        Readers { view, handles, next, share, idle: IDLE, few }
    }

    fn read_few(&self, offset: u64, len: usize) -> Result<Vec<u8>, SortError> {
        let _turn = locked(&self.few);
        let since = Instant::now();
        loop {
            match self.view.read_at(offset, len) {
                // A view of very many runs may need more than streams have left: the next idle stream is taken back.
                Err(error) if error.is_out_of_memory() && since.elapsed() < PATIENCE => {
                    if !self.take_oldest(Duration::ZERO) {
                        std::thread::sleep(BETWEEN_TRIES);
                    }
                }
                result => return result,
            }
        }
    }

    /// A stream from `offset`; `None` if there is not enough memory now.
    fn begin(&self, offset: u64, reader: &Arc<Handle>) -> Result<Option<Ahead>, SortError> {
        if !self.make_space(reader) {
            return Ok(None);
        }
        match self.view.stream(
            offset,
            self.view.bytes(),
            view::Reading { memory: self.share, ..Default::default() },
        ) {
            Ok(stream) => {
                let kept = VecDeque::new();
                Ok(Some(Ahead { stream, begin: offset, kept, used: Instant::now() }))
            }
            // With little memory and many runs, separate small reads still work.
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Frees a place among the streams if all are taken; false if all are in use. The reader's `own` handle is locked
    /// and has no stream.
    fn make_space(&self, own: &Arc<Handle>) -> bool {
        let held = |other: &&Arc<Handle>| !Arc::ptr_eq(own, other) && other.holds_stream();
        let open = locked(&self.handles).values().filter(held).count();
        open < STREAMS || self.take_oldest(BUSY)
    }

    /// Takes back the stream that has been idle for longest, if it was idle longer than `min_age`; false if there is
    /// none.
    fn take_oldest(&self, min_age: Duration) -> bool {
        let all: Vec<Arc<Handle>> = locked(&self.handles).values().cloned().collect();
        let used = |handle: &&Arc<Handle>| {
            let reading = handle.reading.try_lock().ok()?;
            reading.stream.as_ref().map(|ahead| ahead.used)
        };
        let ages = all.iter().filter_map(|handle| Some((used(&handle)?, handle)));
        let oldest = ages.min_by_key(|(used, _)| *used).filter(|(used, _)| used.elapsed() > min_age);
        let Some((_, oldest)) = oldest else { return false };
        oldest.reading.try_lock().is_ok_and(|mut reading| reading.give_up())
    }
}

impl Source for Readers {
    fn bytes(&self) -> u64 {
        self.view.bytes()
    }

    fn name(&self) -> &str {
        self.view.name()
    }

    fn open(&self) -> u64 {
        let handle = self.next.fetch_add(1, Relaxed);
        locked(&self.handles).insert(handle, Arc::default());
        handle
    }

    fn close(&self, handle: u64) {
        let gone = locked(&self.handles).remove(&handle);
        drop(gone);
    }

    fn read(&self, handle: u64, offset: u64, len: usize) -> Result<Vec<u8>, Box<dyn Error>> {
        let len = len.min(usize::try_from(self.view.bytes().saturating_sub(offset)).unwrap_or(usize::MAX));
        if len == 0 {
            return Ok(Vec::new());
        }
        let Some(reader) = locked(&self.handles).get(&handle).cloned() else {
            return Ok(self.read_few(offset, len)?);
        };
        let mut reading = locked(&reader.reading);
        if let Some(ahead) = reading.stream.as_mut().filter(|ahead| ahead.reaches(offset)) {
            let result = ahead.read(offset, len);
            if result.is_err() {
                reading.stream = None;
            }
            return Ok(result?);
        }
        let goes_on = offset == reading.expected && offset > 0;
        reading.expected = offset + len as u64;
        if goes_on && let Some(mut ahead) = self.begin(offset, &reader)? {
            let bytes = ahead.read(offset, len)?;
            reading.stream = Some(ahead);
            return Ok(bytes);
        }
        drop(reading);
        Ok(self.read_few(offset, len)?)
    }

    fn tidy(&self) {
        let all: Vec<Arc<Handle>> = locked(&self.handles).values().cloned().collect();
        for handle in all {
            if let Ok(mut reading) = handle.reading.try_lock()
                && reading.stream.as_ref().is_some_and(|ahead| ahead.used.elapsed() > self.idle)
            {
                reading.give_up();
            }
        }
    }
}

impl Ahead {
    fn end(&self) -> u64 {
        self.begin + self.kept.len() as u64
    }

    /// Whether the byte at `offset` is kept, or not far ahead.
    fn reaches(&self, offset: u64) -> bool {
        offset >= self.begin && offset <= self.end() + WINDOW_BYTES as u64 / 2
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, SortError> {
        self.used = Instant::now();
        let wanted = offset + len as u64;
        while self.end() < wanted {
            let bytes = self.stream.next_bytes()?;
            let count = bytes.len().min((wanted - self.begin) as usize - self.kept.len());
            if count == 0 {
                return Err(SortError::Internal("a view ended before its size"));
            }
            self.kept.extend(&bytes[..count]);
            self.stream.consume(count);
        }
        let from = (offset - self.begin) as usize;
        let (front, back) = self.kept.as_slices();
        let mut bytes = Vec::with_capacity(len);
        if from < front.len() {
            bytes.extend_from_slice(&front[from..front.len().min(from + len)]);
        }
        if from + len > front.len() {
            let start = from.saturating_sub(front.len());
            bytes.extend_from_slice(&back[start..from + len - front.len()]);
        }
        let surplus = self.kept.len().saturating_sub(WINDOW_BYTES);
        self.kept.drain(..surplus);
        self.begin += surplus as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use ascot_sort::request::{Input, SortRequest};
    use ascot_sort::view::OpenView;
    use ascot_sort::{Cancel, RunOptions, Silent};

    use super::*;

    /// A view of eight-byte numbers in many runs, with `memory_mib` MiB for its readers.
    fn readers(dir: &std::path::Path, memory_mib: u64) -> (Readers, Vec<u8>) {
        let number = |it: u64| (it.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8).to_le_bytes();
        let data: Vec<u8> = (0..3 << 20).flat_map(number).collect();
        let input = dir.join("input");
        std::fs::write(&input, &data).unwrap();
        let asked: SortRequest = serde_json::from_value(serde_json::json!({
            "inputs": [Input::Path(input)], "output": "Stdout", "layout": "u64-le",
            "keys": {"Value": {"descending": false}}, "header": false, "unique": false, "stable": false,
            "merge_only": false, "top": null, "memory_bytes": 8 << 20, "temp_dirs": [], "method": "auto",
            "compression": "none", "threads": 1, "batch_size": null
        }))
        .unwrap();
        let path = dir.join("v.view");
        ascot_sort::make_view(&asked, &path, &RunOptions::default(), &Silent, &Cancel::new()).unwrap();
        let opening =
            OpenView { memory_bytes: Some(memory_mib << 20), threads: Some(1), ..OpenView::default() };
        let mut sorted: Vec<u64> =
            data.chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().unwrap())).collect();
        sorted.sort_unstable();
        let sorted = sorted.into_iter().flat_map(u64::to_le_bytes).collect();
        let mut readers = Readers::new(opening.open(&path).unwrap());
        readers.idle = Duration::from_millis(20);
        (readers, sorted)
    }

    /// Waits until all memory except that of `streams` streams is free again.
    fn becomes_free(readers: &Readers, all: usize, streams: usize) -> bool {
        let since = Instant::now();
        // A stream may take less than its share if the view is small.
        while all - readers.view.pool().available() > streams * readers.share {
            if since.elapsed().as_secs() > 10 {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    const PIECE: usize = 128 << 10;

    #[test]
    fn many_readers_stay_under_the_cap_and_idle_ones_give_back() {
        let dir = tempfile::tempdir().unwrap();
        let (readers, sorted) = readers(dir.path(), 64);
        let all = readers.view.pool().available();
        let handles: Vec<u64> = (0..12).map(|_| readers.open()).collect();
        for at in 0..8 {
            for &handle in &handles {
                let bytes = readers.read(handle, (at * PIECE) as u64, PIECE).unwrap();
                assert!(bytes == sorted[at * PIECE..(at + 1) * PIECE]);
                assert!(all - readers.view.pool().available() <= 64 << 20);
                let open = locked(&readers.handles).values().filter(|it| it.holds_stream()).count();
                assert!(open <= STREAMS, "{open} streams");
            }
        }
        // They stop; the next reader gets a stream, and finally all memory is free again.
        std::thread::sleep(BUSY + Duration::from_millis(50));
        let next = readers.open();
        for at in 0..4 {
            readers.read(next, (at * PIECE) as u64, PIECE).unwrap();
        }
        assert!(locked(&readers.handles)[&next].holds_stream());
        std::thread::sleep(readers.idle + Duration::from_millis(10));
        readers.tidy();
        assert!(becomes_free(&readers, all, 0), "{} of {all}", readers.view.pool().available());
        // A reader continues where it stopped.
        let at = 8 * PIECE;
        let bytes = readers.read(handles[0], at as u64, PIECE).unwrap();
        assert!(bytes == sorted[at..at + PIECE]);
    }

    #[test]
    fn closed_readers_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (readers, sorted) = readers(dir.path(), 32);
        let all = readers.view.pool().available();
        std::thread::scope(|scope| {
            for reader in 0..6 {
                let (readers, sorted) = (&readers, &sorted);
                scope.spawn(move || {
                    let handle = readers.open();
                    for at in (reader..40).map(|it| it * PIECE) {
                        assert!(readers.read(handle, at as u64, PIECE).unwrap() == sorted[at..at + PIECE]);
                    }
                    readers.close(handle);
                });
            }
        });
        assert!(becomes_free(&readers, all, 0), "{} of {all}", readers.view.pool().available());
    }
}
