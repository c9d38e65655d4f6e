//! Who reads the file: each open descriptor a reader.
//!
//! A reader that goes on where it stopped gets a stream that merges ahead. The kernel asks for several
//! pieces at once, and they arrive in any order, so the latest bytes of a stream are kept:
//!
//! ```text
//!   given and forgotten | kept: asked for again, or late | merged ahead
//!                       begin                            end
//! ```
//!
//! Any other read is merged by itself. Streams have equal shares of the memory; where all are taken, the
//! one that has waited longest goes, and so does any that nobody has read from for a while.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ascot_sort::SortError;
use ascot_sort::view::{Stream, View};

use crate::Source;
use ascot_io::Unpoisoned;

/// Streams at once.
const STREAMS: usize = 4;
/// A stream that is not read from for this long returns its memory.
const IDLE: Duration = Duration::from_secs(5);
/// One that has been read from within this time is not taken from its reader.
const BUSY: Duration = Duration::from_millis(200);
/// How long a read waits for memory that others hold.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it looks for some.
const BETWEEN_TRIES: Duration = Duration::from_millis(2);
/// Bytes of a stream kept, and bytes it may be asked for ahead of its place.
const WINDOW_BYTES: usize = 4 << 20;

/// All readers of a view.
pub struct Readers {
    view: Arc<dyn View>,
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    next: AtomicU64,
    /// Memory of a stream, bytes.
    share: usize,
    /// A stream that is not read from for this long returns its memory.
    idle: Duration,
    /// Held during a read of a few bytes: only one such read takes memory at a time.
    few: Mutex<()>,
}

#[derive(Default)]
struct Handle {
    reading: Mutex<Reading>,
}

impl Handle {
    /// Whether it has a stream; one that is being read from at this moment has.
    fn holds_stream(&self) -> bool {
        self.reading.try_lock().map_or(true, |reading| reading.stream.is_some())
    }
}

/// The latest requests of a reader.
#[derive(Default)]
struct Reading {
    /// Where its latest read ended.
    expected: u64,
    stream: Option<Ahead>,
}

impl Reading {
    /// Gives the memory of its stream back, if it has one. Where that stopped the reader can go on.
    fn give_up(&mut self) -> bool {
        let stopped = self.stream.take().map(|ahead| ahead.end());
        self.expected = stopped.unwrap_or(self.expected);
        stopped.is_some()
    }
}

/// A stream, and the latest bytes it gave.
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
        // A share is left for reads of a few bytes, and the bytes kept come out of each.
        let share = (view.memory_left() / (STREAMS + 1)).saturating_sub(WINDOW_BYTES);
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
                // A view of very many runs may need more than what streams have left: the next that is not
                // being read from goes.
                Err(error) if error.is_out_of_memory() && since.elapsed() < PATIENCE => {
                    if !self.take_oldest(Duration::ZERO) {
                        std::thread::sleep(BETWEEN_TRIES);
                    }
                }
                result => return result,
            }
        }
    }

    /// A stream from `offset` on; none where there is no memory for one now.
    fn begin(&self, offset: u64, reader: &Arc<Handle>) -> Result<Option<Ahead>, SortError> {
        if !self.make_room(reader) {
            return Ok(None);
        }
        match self.view.stream(offset, self.view.bytes(), self.share, false) {
            Ok(stream) => {
                let kept = VecDeque::new();
                Ok(Some(Ahead { stream, begin: offset, kept, used: Instant::now() }))
            }
            // Little memory, many runs: piece by piece it can still be read.
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sees to it that fewer streams are open than may be; false where all are in use. The reader's `own` is
    /// locked, and has none.
    fn make_room(&self, own: &Arc<Handle>) -> bool {
        let held = |other: &&Arc<Handle>| !Arc::ptr_eq(own, other) && other.holds_stream();
        let open = locked(&self.handles).values().filter(held).count();
        open < STREAMS || self.take_oldest(BUSY)
    }

    /// Takes the stream that has waited longest for its reader, and longer than `least`; false where there
    /// is none.
    fn take_oldest(&self, least: Duration) -> bool {
        let all: Vec<Arc<Handle>> = locked(&self.handles).values().cloned().collect();
        let used = |handle: &&Arc<Handle>| {
            let reading = handle.reading.try_lock().ok()?;
            reading.stream.as_ref().map(|ahead| ahead.used)
        };
        let ages = all.iter().filter_map(|handle| Some((used(&handle)?, handle)));
        let oldest = ages.min_by_key(|(used, _)| *used).filter(|(used, _)| used.elapsed() > least);
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

    /// Whether what is at `offset` is kept, or not far ahead.
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

    /// A view of eight-byte numbers in many runs, with so much memory for its readers.
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

    /// Waits until all memory but that of `streams` streams is there again.
    fn settles(readers: &Readers, all: usize, streams: usize) -> bool {
        let since = Instant::now();
        // A stream takes what it needs of its share: less than that where the view is small.
        while all - readers.view.memory_left() > streams * readers.share {
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
        let all = readers.view.memory_left();
        let handles: Vec<u64> = (0..12).map(|_| readers.open()).collect();
        for at in 0..8 {
            for &handle in &handles {
                let bytes = readers.read(handle, (at * PIECE) as u64, PIECE).unwrap();
                assert!(bytes == sorted[at * PIECE..(at + 1) * PIECE]);
                assert!(all - readers.view.memory_left() <= 64 << 20);
                let open = locked(&readers.handles).values().filter(|it| it.holds_stream()).count();
                assert!(open <= STREAMS, "{open} streams");
            }
        }
        // They stop; the next one gets a stream, and in the end all memory is there again.
        std::thread::sleep(BUSY + Duration::from_millis(50));
        let next = readers.open();
        for at in 0..4 {
            readers.read(next, (at * PIECE) as u64, PIECE).unwrap();
        }
        assert!(locked(&readers.handles)[&next].holds_stream());
        std::thread::sleep(readers.idle + Duration::from_millis(10));
        readers.tidy();
        assert!(settles(&readers, all, 0), "{} of {all}", readers.view.memory_left());
        // Where it stopped a reader goes on.
        let at = 8 * PIECE;
        let bytes = readers.read(handles[0], at as u64, PIECE).unwrap();
        assert!(bytes == sorted[at..at + PIECE]);
    }

    #[test]
    fn closed_readers_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (readers, sorted) = readers(dir.path(), 32);
        let all = readers.view.memory_left();
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
        assert!(settles(&readers, all, 0), "{} of {all}", readers.view.memory_left());
    }
}
