//! Memory for records on their way through a pass: leases of buffers that return to their pool when dropped.
//!
//! A [`ChunkPool`] lends buffers of one size, allocated from the job's pool when first needed
//! and reused afterwards. A chunk that fills little of one, at the end of an input, gets a buffer of its own size, and
//! a record that does not fit one grows in memory of its own ([`Long`]); free buffers are released for these. Their
//! total never exceeds the pool's share.
//!
//! Invariant: only one thread of a pass waits for memory, the reader. The buffers that it passes on
//! return without needing more memory, so the wait ends.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use ascot_io::sync::Unpoisoned;
use ascot_io::waits::{Held, Holders, Need, wait_for};
use ascot_io::{Buf, Growable, PAGE_BYTES, Pool, PoolError};

struct Shelf {
    free: Vec<Buf>,
    /// Number of buffers of the common size in existence.
    made: usize,
    /// Bytes of buffers of other sizes, and of long records.
    other_bytes: usize,
    /// Bytes that a thread waits for.
    wanted: usize,
    /// Whether buffers return to the job's pool instead of being kept for reuse.
    closed: bool,
}

struct Inner {
    pool: Pool,
    chunk_bytes: usize,
    max_chunks: usize,
    /// Maximum bytes of buffers and long records.
    share: usize,
    shelf: Mutex<Shelf>,
    returned: Condvar,
    holders: Holders,
}

/// Number of chunks being read at once.
pub const CHUNKS_READ: usize = 3;

/// Number of chunks that cannot hold records until the end of the input is sorted: the copy of the last that is sorted.
/// The chunks being read then are among those that hold records.
pub const HELD_FREE_CHUNKS: usize = 1;

/// Inverse of the share of a buffer that a chunk must leave empty to get one of its own size.
const EMPTY_SHARE: usize = 8;

/// Buffers of one size for chunks.
#[derive(Clone)]
pub struct ChunkPool {
    inner: Arc<Inner>,
}

/// A buffer that returns to its pool when dropped.
pub struct Lease {
    buf: Option<Buf>,
    /// The memory before and after the part that is lent.
    around_lent: Option<(Buf, Buf)>,
    home: Option<Arc<Inner>>,
    /// Bytes of a buffer of another size, or of a long record's memory; 0 for a buffer of the common size.
    other_bytes: usize,
    /// A block that is freed together with the buffer.
    _block: Option<Buf>,
    _held: Option<Held>,
}

/// A record that fits no chunk, as read so far.
pub struct Long {
    memory: Option<Growable>,
    len: usize,
    home: Arc<Inner>,
}

/// Called before waiting for memory.
pub type Starving<'a> = &'a dyn Fn();

impl ChunkPool {
    /// At most `max_chunks` buffers of `chunk_bytes` each, from `pool`. Buffers and long records take at most `share`
    /// bytes.
    pub fn new(pool: &Pool, chunk_bytes: usize, max_chunks: usize, share: usize) -> Self {
        let shelf = Mutex::new(Shelf { free: Vec::new(), made: 0, other_bytes: 0, wanted: 0, closed: false });
        let pool = pool.clone();
        let inner = Inner {
            pool,
            chunk_bytes,
            max_chunks,
            share,
            shelf,
            returned: Condvar::new(),
            holders: Holders::default(),
        };
        ChunkPool { inner: Arc::new(inner) }
    }

    /// Maximum number of buffers.
    pub fn max_chunks(&self) -> usize {
        self.inner.max_chunks
    }

    /// Size of a buffer, bytes.
    pub fn chunk_bytes(&self) -> usize {
        self.inner.chunk_bytes
    }

    /// Whether a thread waits for memory that is not available.
    pub fn starves(&self) -> bool {
        let shelf = self.inner.lock();
        shelf.wanted > self.inner.free(&shelf)
    }

    /// Error for a job whose reader waits for memory that no other thread can return.
    pub fn too_few(&self) -> PoolError {
        let shelf = self.inner.lock();
        let asked = shelf.wanted;
        let budget = self.inner.share;
        let used = shelf.made * self.inner.chunk_bytes + shelf.other_bytes;
        PoolError::OverBudget { purpose: "chunks of records", asked, used, budget }
    }

    /// A buffer of the common size; calls `starving` before it waits for one. Fails if the system refuses
    /// memory that the budget allows: a wait would help only if another program returned some.
    pub fn take_for(&self, starving: Starving<'_>) -> Result<Lease, PoolError> {
        let mut shelf = self.inner.lock();
        loop {
            if let Some(lease) = self.find(&mut shelf)? {
                shelf.wanted = 0;
                return Ok(lease);
            }
            shelf = self.inner.wait(shelf, self.inner.chunk_bytes, starving);
        }
    }

    /// A buffer for a chunk of `bytes`, which is of the common size or smaller; calls `starving` before it waits for
    /// memory.
    pub fn take_fitting(&self, bytes: usize, starving: Starving<'_>) -> Result<Lease, PoolError> {
        let Some(bytes) = self.smaller(bytes) else { return self.take_for(starving) };
        let mut shelf = self.inner.lock();
        loop {
            if let Some(lease) = self.find_smaller(&mut shelf, bytes)? {
                shelf.wanted = 0;
                return Ok(lease);
            }
            if !self.inner.release_free(&mut shelf) {
                shelf = self.inner.wait(shelf, bytes, starving);
            }
        }
    }

    /// A buffer for a chunk of `bytes` that is smaller than those of the common size, if there is memory for it.
    pub fn try_take_smaller(&self, bytes: usize) -> Option<Lease> {
        self.find_smaller(&mut self.inner.lock(), self.smaller(bytes)?).ok().flatten()
    }

    /// The size of a buffer for a chunk of `bytes`, if one of the common size would be rather empty.
    fn smaller(&self, bytes: usize) -> Option<usize> {
        let common = self.inner.chunk_bytes;
        Some(bytes.next_multiple_of(PAGE_BYTES)).filter(|&bytes| bytes + common / EMPTY_SHARE <= common)
    }

    fn find_smaller(&self, shelf: &mut Shelf, bytes: usize) -> Result<Option<Lease>, PoolError> {
        if self.inner.left(shelf) < bytes {
            return Ok(None);
        }
        match self.inner.pool.region(bytes, "a small chunk of records") {
            Ok(buf) => {
                let bytes = buf.len();
                shelf.other_bytes += bytes;
                Ok(Some(Lease::new(&self.inner, buf, bytes)))
            }
            Err(PoolError::OverBudget { .. }) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// Waits until this many buffers are free, or all of the pool; calls `starving` before it waits.
    pub fn wait_for(&self, chunks: usize, starving: Starving<'_>) {
        let mut shelf = self.inner.lock();
        loop {
            let free = self.inner.free(&shelf);
            let lent = (shelf.made - shelf.free.len()) * self.inner.chunk_bytes + shelf.other_bytes;
            let wanted = (chunks.saturating_mul(self.inner.chunk_bytes)).min(free + lent);
            if free >= wanted {
                shelf.wanted = 0;
                return;
            }
            shelf = self.inner.wait(shelf, wanted, starving);
        }
    }

    /// Returns the free buffers to the job's pool, and the others as soon as they are dropped: nothing more is read.
    pub fn close(&self) {
        let mut shelf = self.inner.lock();
        shelf.closed = true;
        shelf.made -= shelf.free.len();
        shelf.free.clear();
    }

    /// A buffer of the common size, if one is free.
    pub fn try_take(&self) -> Option<Lease> {
        self.find(&mut self.inner.lock()).ok().flatten()
    }

    fn find(&self, shelf: &mut Shelf) -> Result<Option<Lease>, PoolError> {
        let lease = |buf| Lease::new(&self.inner, buf, 0);
        if let Some(buf) = shelf.free.pop() {
            return Ok(Some(lease(buf)));
        }
        if shelf.made >= self.inner.max_chunks || self.inner.left(shelf) < self.inner.chunk_bytes {
            return Ok(None);
        }
        match self.inner.pool.region(self.inner.chunk_bytes, "chunks of records") {
            Ok(buf) => {
                shelf.made += 1;
                Ok(Some(lease(buf)))
            }
            // Other parts of the job may return some memory.
            Err(PoolError::OverBudget { .. }) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// An empty long record.
    pub fn long(&self) -> Result<Long, PoolError> {
        let memory = self.inner.pool.growable("one very long record")?;
        Ok(Long { memory: Some(memory), len: 0, home: Arc::clone(&self.inner) })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unpoisoned()
    }

    /// Bytes that can be lent now.
    fn free(&self, shelf: &Shelf) -> usize {
        self.left(shelf).min(self.pool.available()) + shelf.free.len() * self.chunk_bytes
    }

    /// Returns a free buffer to the job's pool; false if there is none.
    fn release_free(&self, shelf: &mut Shelf) -> bool {
        let released = shelf.free.pop().is_some();
        shelf.made -= usize::from(released);
        released
    }

    /// Unused bytes of the share.
    fn left(&self, shelf: &Shelf) -> usize {
        self.share.saturating_sub(shelf.made * self.chunk_bytes + shelf.other_bytes)
    }

    /// Records the bytes that are needed, and waits until memory is returned.
    fn wait<'s>(
        &self,
        mut shelf: MutexGuard<'s, Shelf>,
        bytes: usize,
        starving: Starving<'_>,
    ) -> MutexGuard<'s, Shelf> {
        shelf.wanted = bytes;
        starving();
        let _waiting = wait_for("memory for records", Need::MEMORY, Some(&self.holders));
        self.returned.wait(shelf).unpoisoned()
    }
}

impl Long {
    /// Appends `part`. Releases free buffers for it, and waits for others to be returned. Fails if it would need more
    /// than the share less the `held` bytes of buffers that the caller keeps.
    pub fn append(&mut self, part: &[u8], held: usize, starving: Starving<'_>) -> Result<(), PoolError> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        // Space for the byte that completes a last record.
        let needed = (self.len + part.len() + 1).next_multiple_of(PAGE_BYTES);
        let mut shelf = self.home.lock();
        while needed > memory.len() {
            let before = memory.len();
            let more = needed - before;
            let refused = match self.home.left(&shelf) >= more {
                true => memory.grow_to(needed).err(),
                false => None,
            };
            if memory.len() > before {
                shelf.other_bytes += memory.len() - before;
                break;
            }
            if self.home.release_free(&mut shelf) {
                continue;
            }
            if let Some(PoolError::Refused { .. }) = refused {
                return refused.map_or(Ok(()), Err);
            }
            if needed.saturating_add(held) > self.home.share {
                let purpose = "one very long record";
                let budget = self.home.share;
                let over =
                    PoolError::OverBudget { purpose, asked: more, used: before.saturating_add(held), budget };
                return Err(refused.unwrap_or(over));
            }
            shelf = self.home.wait(shelf, more, starving);
        }
        shelf.wanted = 0;
        drop(shelf);
        memory[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }

    /// Length so far, bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// The complete record, in no more memory than it needs.
    pub fn into_lease(mut self) -> Lease {
        let Some(mut memory) = self.memory.take() else { return Lease::plain(Buf::heap(0)) };
        let before = memory.len();
        memory.shrink_to(self.len);
        let long = memory.len();
        let home = Arc::clone(&self.home);
        home.lock().other_bytes -= before - long;
        home.returned.notify_all();
        Lease::new(&home, memory.into_buf(), long)
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        let bytes = memory.len();
        drop(memory);
        self.home.lock().other_bytes -= bytes;
        self.home.returned.notify_all();
    }
}

impl Lease {
    fn new(home: &Arc<Inner>, buf: Buf, other_bytes: usize) -> Self {
        let held = home.holders.taken();
        let home = Some(Arc::clone(home));
        Lease { buf: Some(buf), around_lent: None, home, other_bytes, _block: None, _held: Some(held) }
    }

    /// A buffer from outside a chunk pool: a block that returns to its own pool, or plain memory.
    pub fn plain(buf: Buf) -> Self {
        Lease { buf: Some(buf), around_lent: None, home: None, other_bytes: 0, _block: None, _held: None }
    }

    /// For a record assembled from blocks: it holds the last `block`, so that dropping the record frees a block, as
    /// the schedule of a merge expects.
    pub fn holding(mut self, block: Option<Buf>) -> Self {
        self._block = block;
        self
    }

    /// Its bytes; none while a part of it is lent: the stream may write to that part.
    pub fn bytes(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or_default()
    }

    /// Its bytes, for writing; none while a part of it is lent.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buf.as_deref_mut().unwrap_or_default()
    }

    /// Lends a part of the buffer to a stream, until [`Lease::take_back`]; none while another part is lent.
    pub fn lend(&mut self, part: Range<usize>) -> Option<Buf> {
        let mut before = self.buf.take()?;
        let mut lent = before.split_off(part.start);
        let after = lent.split_off(part.len());
        self.around_lent = Some((before, after));
        Some(lent)
    }

    /// Takes back the part that is lent; returns where it begins.
    pub fn take_back(&mut self, lent: Buf) -> usize {
        debug_assert!(self.around_lent.is_some(), "a part comes back that was not lent");
        let Some((mut buf, after)) = self.around_lent.take() else { return 0 };
        let start = buf.len();
        assert!(buf.unsplit(lent).is_ok() && buf.unsplit(after).is_ok(), "parts of one buffer rejoin");
        self.buf = Some(buf);
        start
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(home) = self.home.take() else { return };
        let buf = self.buf.take();
        let mut shelf = home.lock();
        match buf {
            Some(buf) if self.other_bytes == 0 && !shelf.closed => shelf.free.push(buf),
            buf if self.other_bytes == 0 => {
                drop(buf);
                shelf.made -= 1;
            }
            buf => {
                drop(buf);
                shelf.other_bytes -= self.other_bytes;
            }
        }
        drop(shelf);
        home.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn buffers_come_back() {
        let pool = Pool::new(3 * MIB);
        let chunks = ChunkPool::new(&pool, MIB, 3, MIB * 3);
        let leases: Vec<Lease> = (0..3).map(|_| chunks.take_for(&|| ()).unwrap()).collect();
        assert!(chunks.try_take().is_none());
        drop(leases);
        assert!(chunks.try_take().is_some());
        assert_eq!(pool.used(), 3 * MIB, "buffers are kept for reuse");
    }

    #[test]
    fn a_small_chunk_takes_no_more_than_its_pages() {
        let pool = Pool::new(3 * MIB);
        let chunks = ChunkPool::new(&pool, MIB, 3, MIB * 3);
        drop((0..3).map(|_| chunks.take_for(&|| ()).unwrap()).collect::<Vec<_>>());
        let small: Vec<Lease> = (0..9).map(|_| chunks.take_fitting(300_000, &|| ()).unwrap()).collect();
        assert!(small.iter().all(|lease| lease.bytes().len() == 303_104));
        assert!(pool.used() <= 3 * MIB, "buffers of the common size were released for them");
        assert!(chunks.try_take_smaller(500_000).is_none());
        assert!(chunks.try_take_smaller(MIB - 1).is_none(), "it needs one of the common size");
        std::thread::scope(|scope| {
            let (waits, told) = std::sync::mpsc::channel();
            let taken = scope.spawn({
                let chunks = chunks.clone();
                move || chunks.take_fitting(600_000, &|| waits.send(()).expect("somebody listens"))
            });
            told.recv().expect("it waits");
            assert!(chunks.starves());
            drop(small);
            assert_eq!(taken.join().expect("no panic").expect("memory").bytes().len(), 602_112);
        });
        assert_eq!(chunks.take_fitting(MIB - 1, &|| ()).unwrap().bytes().len(), MIB);
    }

    #[test]
    fn a_wait_for_several_buffers_ends_when_so_many_are_free_or_all() {
        let pool = Pool::new(4 * MIB);
        let chunks = ChunkPool::new(&pool, MIB, 4, MIB * 4);
        let first = chunks.take_for(&|| ()).unwrap();
        let second = chunks.take_for(&|| ()).unwrap();
        chunks.wait_for(2, &|| unreachable!("two can be made"));
        std::thread::scope(|scope| {
            let (waits, told) = std::sync::mpsc::channel();
            let waiting = scope.spawn({
                let chunks = chunks.clone();
                move || chunks.wait_for(9, &|| waits.send(()).expect("somebody listens"))
            });
            told.recv().expect("it waits");
            assert!(chunks.starves());
            drop(first);
            told.recv().expect("it waits again");
            drop(second);
            waiting.join().expect("no panic");
        });
        assert!(!chunks.starves());
    }

    #[test]
    fn a_lent_part_comes_back_to_its_place_or_its_buffer_is_lost() {
        let pool = Pool::new(2 * MIB);
        let chunks = ChunkPool::new(&pool, MIB, 2, MIB * 2);
        let mut lease = chunks.take_for(&|| ()).unwrap();
        let mut part = lease.lend(5..9).unwrap();
        part.copy_from_slice(&[7; 4]);
        assert!(lease.bytes().is_empty());
        assert_eq!(lease.take_back(part), 5);
        assert_eq!((lease.bytes().len(), &lease.bytes()[4..10]), (MIB, &[0, 7, 7, 7, 7, 0][..]));
        let part = lease.lend(0..MIB / 2);
        drop(lease);
        drop(part);
        let buffers: Vec<Lease> = (0..2).map(|_| chunks.take_for(&|| ()).unwrap()).collect();
        assert!(buffers.iter().all(|buffer| buffer.bytes().len() == MIB));
    }

    #[test]
    fn a_closed_pool_keeps_no_buffers() {
        let pool = Pool::new(3 * MIB);
        let chunks = ChunkPool::new(&pool, MIB, 3, MIB * 3);
        let held = chunks.take_for(&|| ()).unwrap();
        drop(chunks.take_for(&|| ()).unwrap());
        chunks.close();
        assert_eq!(pool.used(), MIB);
        drop(held);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn a_long_record_takes_the_place_of_buffers() {
        let pool = Pool::new(4 * MIB);
        let chunks = ChunkPool::new(&pool, MIB, 4, MIB * 4);
        drop((0..4).map(|_| chunks.take_for(&|| ()).unwrap()).collect::<Vec<_>>());
        let mut long = chunks.long().expect("nothing yet");
        let part = vec![7; MIB - 1];
        for _ in 0..3 {
            long.append(&part, 0, &|| ()).expect("fits the share");
        }
        let kept = chunks.take_for(&|| ()).unwrap();
        assert!(long.append(&part, MIB, &|| ()).is_err(), "a buffer is kept");
        assert_eq!((long.bytes(), pool.used()), (3 * part.len(), 4 * MIB));
        drop(kept);
        let lease = long.into_lease();
        assert_eq!((lease.bytes().len(), lease.bytes()[0]), (3 * MIB, 7));
        assert!(chunks.try_take().is_some() && pool.used() <= 4 * MIB);
        drop(lease);
        assert_eq!((0..4).map(|_| chunks.take_for(&|| ()).unwrap()).collect::<Vec<_>>().len(), 4);
    }

    #[test]
    fn a_wait_ends_when_enough_has_come_back() {
        let pool = Pool::new(4 * MIB);
        let chunks = ChunkPool::new(&pool, MIB, 4, MIB * 4);
        let leases: Vec<Lease> = (0..4).map(|_| chunks.take_for(&|| ()).unwrap()).collect();
        std::thread::scope(|scope| {
            let (waits, told) = std::sync::mpsc::channel();
            let chunks = &chunks;
            let waiting = scope.spawn(move || {
                let mut long = chunks.long().expect("nothing yet");
                let say = || waits.send(()).expect("somebody listens");
                long.append(&vec![1; 2 * MIB - 1], 0, &say).map(|()| long.bytes())
            });
            for lease in leases {
                if told.recv().is_err() {
                    break;
                }
                assert!(chunks.starves());
                drop(lease);
            }
            assert_eq!(waiting.join().expect("no panic").ok(), Some(2 * MIB - 1));
        });
        assert!(!chunks.starves());
    }
}
