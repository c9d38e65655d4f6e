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
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ascot_sort::SortError;
use ascot_sort::view::{Stream, View};

/// Streams at once.
const STREAMS: usize = 4;
/// A stream nobody has read from for so long gives its memory back.
const IDLE: Duration = Duration::from_secs(5);
/// One that has been read from within this time is not taken from its reader.
const BUSY: Duration = Duration::from_millis(200);
/// Bytes of a stream kept, and bytes it may be asked for ahead of its place.
const WINDOW_BYTES: usize = 4 << 20;

/// All readers of a view.
pub struct Readers {
    view: Arc<dyn View>,
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    next: AtomicU64,
    /// Memory of a stream, bytes.
    share: usize,
    /// Held by whoever reads a few bytes: only one such read takes memory at a time.
    few: Mutex<()>,
}

#[derive(Default)]
struct Handle {
    reading: Mutex<Reading>,
}

/// What a reader has asked for of late.
#[derive(Default)]
struct Reading {
    /// Where its latest read ended.
    expected: u64,
    stream: Option<Ahead>,
}

/// A stream, and the latest bytes it gave.
struct Ahead {
    stream: Stream,
    begin: u64,
    kept: VecDeque<u8>,
    used: Instant,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Readers {
    /// Readers of `view`, which share its memory.
    pub fn new(view: Arc<dyn View>) -> Self {
        // A share is left for reads of a few bytes, and the bytes kept come out of each.
        let share = (view.memory_left() / (STREAMS + 1)).saturating_sub(WINDOW_BYTES);
        let (handles, next, few) = (Mutex::default(), AtomicU64::new(1), Mutex::default());
        Readers { view, handles, next, share, few }
    }

    /// What they read.
    pub fn view(&self) -> &dyn View {
        &*self.view
    }

    /// A new reader.
    pub fn open(&self) -> u64 {
        let handle = self.next.fetch_add(1, Relaxed);
        locked(&self.handles).insert(handle, Arc::default());
        handle
    }

    /// A reader is done.
    pub fn close(&self, handle: u64) {
        let gone = locked(&self.handles).remove(&handle);
        drop(gone);
    }

    /// At most `len` bytes at `offset` for a reader, fewer only at the end of the file.
    pub fn read(&self, handle: u64, offset: u64, len: usize) -> Result<Vec<u8>, SortError> {
        let len = len.min(usize::try_from(self.view.bytes().saturating_sub(offset)).unwrap_or(usize::MAX));
        if len == 0 {
            return Ok(Vec::new());
        }
        let Some(reader) = locked(&self.handles).get(&handle).cloned() else {
            return self.read_few(offset, len);
        };
        let mut reading = locked(&reader.reading);
        if let Some(ahead) = reading.stream.as_mut().filter(|ahead| ahead.reaches(offset)) {
            let result = ahead.read(offset, len);
            if result.is_err() {
                reading.stream = None;
            }
            return result;
        }
        let goes_on = offset == reading.expected && offset > 0;
        reading.expected = offset + len as u64;
        if goes_on && let Some(mut ahead) = self.begin(offset, &reader)? {
            let bytes = ahead.read(offset, len)?;
            reading.stream = Some(ahead);
            return Ok(bytes);
        }
        drop(reading);
        self.read_few(offset, len)
    }

    fn read_few(&self, offset: u64, len: usize) -> Result<Vec<u8>, SortError> {
        let _turn = locked(&self.few);
        self.view.read_at(offset, len)
    }

    /// A stream from `offset` on; none where there is no memory for one now.
    fn begin(&self, offset: u64, reader: &Arc<Handle>) -> Result<Option<Ahead>, SortError> {
        if !self.make_room(reader) {
            return Ok(None);
        }
        match self.view.stream(offset, self.view.bytes(), self.share) {
            Ok(stream) => {
                let kept = VecDeque::new();
                Ok(Some(Ahead { stream, begin: offset, kept, used: Instant::now() }))
            }
            // Little memory, many runs: piece by piece it can still be read.
            Err(SortError::TooLittleMemory { .. } | SortError::Memory(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sees to it that fewer streams are open than may be; false where all are in use.
    fn make_room(&self, own: &Arc<Handle>) -> bool {
        let others: Vec<Arc<Handle>> =
            locked(&self.handles).values().filter(|other| !Arc::ptr_eq(own, other)).cloned().collect();
        let mut oldest: Option<(Instant, &Arc<Handle>)> = None;
        let mut open = 0;
        for other in &others {
            // One that is being read from at this moment is in use.
            let Ok(reading) = other.reading.try_lock() else {
                open += 1;
                continue;
            };
            let Some(ahead) = &reading.stream else { continue };
            open += 1;
            if oldest.is_none_or(|(used, _)| ahead.used < used) {
                oldest = Some((ahead.used, other));
            }
        }
        if open < STREAMS {
            return true;
        }
        let Some((_, oldest)) = oldest.filter(|(used, _)| used.elapsed() > BUSY) else { return false };
        let taken = oldest.reading.try_lock().ok().and_then(|mut reading| reading.stream.take());
        taken.is_some()
    }

    /// Takes the memory of streams that nobody has read from for a while.
    pub fn tidy(&self) {
        let all: Vec<Arc<Handle>> = locked(&self.handles).values().cloned().collect();
        for handle in all {
            if let Ok(mut reading) = handle.reading.try_lock()
                && reading.stream.as_ref().is_some_and(|ahead| ahead.used.elapsed() > IDLE)
            {
                // Where it stopped the reader can go on.
                reading.expected = reading.stream.take().map_or(0, |ahead| ahead.end());
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
