//! Buffers: owned slices of a region that can be split, handed to another thread and rejoined.
//!
//! Invariant: the parts of a region never overlap. Each [`Buf`] therefore owns its bytes alone and may be sent to
//! another thread and written there. When the last part of a region is dropped, the region returns to its
//! [`Pool`] or its [`BlockPool`].
//!
//! ```text
//!   region  |----------------------------|     one owner, counted
//!   parts   |  Buf  |     Buf     | Buf  |     split_to, split_off, unsplit
//! ```

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;

use crate::PAGE_BYTES;
use crate::memory::Mapping;
use crate::pool::{Grant, Pool, PoolError, Reservation};
use crate::sync::Unpoisoned;
use crate::waits::{Held, Holders, Need, wait_for};

/// An owned slice of a region of memory.
pub struct Buf {
    start: NonNull<u8>,
    len: usize,
    owner: Arc<Owner>,
}

/// The memory that the parts of one region share.
enum Owner {
    /// Unmapped first, given back afterwards.
    Mapped {
        _mapping: Mapping,
        _reservation: Option<Reservation>,
    },
    Granted {
        _grant: Grant,
    },
    Leased {
        block: Option<Buf>,
        home: Arc<Shared>,
        _held: Held,
    },
}

// SAFETY: a `Buf` is the only way to its bytes (parts never overlap), so it moves like a `Vec<u8>`.
#[expect(unsafe_code, reason = "a buffer is a range of memory that it owns alone")]
unsafe impl Send for Buf {}
// SAFETY: `&Buf` only gives `&[u8]`.
#[expect(unsafe_code, reason = "a buffer is a range of memory that it owns alone")]
unsafe impl Sync for Buf {}

impl Pool {
    /// Memory of `bytes`, rounded up to whole pages and page-aligned; it is given back when the last part of the
    /// returned buffer is dropped. It is zeroed at first, and later holds the bytes of earlier regions. Large pools
    /// use huge pages.
    pub fn region(&self, bytes: usize, purpose: &'static str) -> Result<Buf, PoolError> {
        let rounded = bytes.max(1).checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
        let reservation = match self.grant(rounded, purpose)? {
            Ok(grant) => return Ok(Buf::from_grant(grant)),
            Err(reservation) => reservation,
        };
        let mapping = Mapping::anonymous(rounded).map_err(|errno| self.refused(purpose, rounded, errno))?;
        Ok(Buf::from_mapping(mapping, Some(reservation)))
    }
}

impl Buf {
    /// Zeroed memory outside any pool; for tests and small buffers.
    ///
    /// # Panics
    /// If the system has no memory left, as for any allocation.
    pub fn heap(len: usize) -> Self {
        Self::mapped(len, false)
    }

    /// Like [`heap`](Self::heap), but a refusal of the system is an error.
    ///
    /// # Errors
    /// The system's reason.
    pub fn try_heap(len: usize) -> io::Result<Self> {
        Self::try_mapped(len, false).map_err(io::Error::from)
    }

    /// Like [`heap`](Self::heap), for memory about to be written completely: one system call makes all pages
    /// resident, without a fault for each.
    ///
    /// # Panics
    /// As `heap`.
    pub fn heap_at_hand(len: usize) -> Self {
        Self::mapped(len, true)
    }

    fn mapped(len: usize, touch: bool) -> Self {
        Self::try_mapped(len, touch).unwrap_or_else(|_| crate::emergency::out_of_memory(len))
    }

    /// The error is an errno.
    fn try_mapped(len: usize, touch: bool) -> Result<Self, Errno> {
        let mapping = Mapping::anonymous(len.max(1).next_multiple_of(PAGE_BYTES))?;
        if touch {
            mapping.touch();
        }
        let mut buf = Self::from_mapping(mapping, None);
        buf.len = len;
        Ok(buf)
    }

    pub(crate) fn from_mapping(mapping: Mapping, reservation: Option<Reservation>) -> Self {
        let start = mapping.start();
        let len = mapping.bytes();
        let owner = Owner::Mapped { _mapping: mapping, _reservation: reservation };
        Self { start, len, owner: Arc::new(owner) }
    }

    /// The memory of a grant, whose only user this buffer is.
    pub(crate) fn from_grant(grant: Grant) -> Self {
        Self { start: grant.start, len: grant.bytes, owner: Arc::new(Owner::Granted { _grant: grant }) }
    }

    /// Bytes in this part.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the part has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Cuts off and returns the first `n` bytes; this buffer keeps the rest.
    ///
    /// # Panics
    /// If `n` is more than [`len`](Self::len).
    #[expect(unsafe_code, reason = "a buffer is a range of memory that it owns alone")]
    pub fn split_to(&mut self, n: usize) -> Self {
        assert!(n <= self.len, "split_to({n}) of a buffer of {} bytes", self.len);
        let front = Self { start: self.start, len: n, owner: Arc::clone(&self.owner) };
        // SAFETY: `n <= len`, so the new start is in the region or one past its end.
        self.start = unsafe { self.start.add(n) };
        self.len -= n;
        front
    }

    /// Cuts off and returns everything from byte `n`; this buffer keeps the first `n` bytes.
    ///
    /// # Panics
    /// If `n` is more than [`len`](Self::len).
    pub fn split_off(&mut self, n: usize) -> Self {
        let front = self.split_to(n);
        std::mem::replace(self, front)
    }

    /// Rejoins `tail` if it starts exactly at this part's end in the same region; otherwise returns it.
    #[expect(unsafe_code, reason = "a buffer is a range of memory that it owns alone")]
    pub fn unsplit(&mut self, tail: Self) -> Result<(), Self> {
        // SAFETY: one past the end of this part is in the region or one past its end.
        let end = unsafe { self.start.add(self.len) };
        if end == tail.start && Arc::ptr_eq(&self.owner, &tail.owner) {
            self.len += tail.len;
            Ok(())
        } else {
            Err(tail)
        }
    }

    /// Whether the first byte's address is a multiple of `bytes`.
    pub(crate) fn is_aligned_to(&self, bytes: usize) -> bool {
        (self.start.as_ptr() as usize).is_multiple_of(bytes)
    }

    /// The address of the first byte, for requests that outlive a borrow.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Deref for Buf {
    type Target = [u8];
    #[expect(unsafe_code, reason = "a buffer is a range of memory that it owns alone")]
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is initialised memory (mappings start zeroed) of this part alone,
        // alive as long as the owner.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    #[expect(unsafe_code, reason = "a buffer is a range of memory that it owns alone")]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes at {:p})", self.len, self.start)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Self::Leased { block, home, .. } = self
            && let Some(block) = block.take()
        {
            home.lock().push(block);
            home.returned.notify_one();
        }
    }
}

/// Interval at which a thread that waits for a block checks whether the block is still needed.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Equal blocks cut from one region; a dropped block returns to the pool.
#[derive(Clone)]
pub struct BlockPool {
    shared: Arc<Shared>,
    total: usize,
}

struct Shared {
    block_bytes: usize,
    free: Mutex<Vec<Buf>>,
    returned: Condvar,
    holders: Holders,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Buf>> {
        self.free.lock().unpoisoned()
    }
}

impl BlockPool {
    /// Cuts `region` into blocks of `block_bytes`; a remainder smaller than a block stays unused.
    ///
    /// # Panics
    /// If `block_bytes` is 0.
    pub fn new(mut region: Buf, block_bytes: usize) -> Self {
        assert!(block_bytes > 0, "blocks of no bytes");
        let total = region.len() / block_bytes;
        let mut free = Vec::with_capacity(total);
        while region.len() >= block_bytes {
            free.push(region.split_to(block_bytes));
        }
        // Handed out from the region's front: neighbours in time are neighbours in memory.
        free.reverse();
        let shared = Shared {
            block_bytes,
            free: Mutex::new(free),
            returned: Condvar::new(),
            holders: Holders::default(),
        };
        Self { shared: Arc::new(shared), total }
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.shared.block_bytes
    }

    /// Total number of blocks.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Number of free blocks.
    pub fn free(&self) -> usize {
        self.shared.lock().len()
    }

    /// Takes a block. Waits until one is free, or returns `None` once `stopped` is true: the holders of the blocks
    /// may be waiting for an outside process, such as the reader of a pipe.
    pub fn take(&self, stopped: impl Fn() -> bool) -> Option<Buf> {
        let mut free = self.shared.lock();
        let mut waiting = None;
        loop {
            if let Some(block) = free.pop() {
                return Some(self.lease(block));
            }
            if stopped() {
                return None;
            }
            waiting.get_or_insert_with(|| wait_for("a free block", Need::MEMORY, Some(&self.shared.holders)));
            let woken = self.shared.returned.wait_timeout(free, BETWEEN_LOOKS);
            free = woken.unpoisoned().0;
        }
    }

    /// Takes a block if one is free.
    pub fn try_take(&self) -> Option<Buf> {
        let block = self.shared.lock().pop()?;
        Some(self.lease(block))
    }

    fn lease(&self, block: Buf) -> Buf {
        let Buf { start, len, .. } = block;
        let owner = Owner::Leased {
            block: Some(block),
            home: Arc::clone(&self.shared),
            _held: self.shared.holders.taken(),
        };
        Buf { start, len, owner: Arc::new(owner) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_rejoin_only_with_their_neighbour() {
        let mut all = Buf::heap(100);
        for (at, byte) in all.iter_mut().enumerate() {
            *byte = at as u8;
        }
        let tail = all.split_off(60);
        let mut front = all.split_to(10);
        assert_eq!((front.len(), all.len(), tail.len()), (10, 50, 40));
        assert_eq!((front[9], all[0], tail[0]), (9, 10, 60));
        let tail = front.unsplit(tail).unwrap_err();
        front.unsplit(all).unwrap();
        front.unsplit(tail).unwrap();
        assert_eq!(front.len(), 100);
        assert!(front.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        assert!(front.unsplit(Buf::heap(5)).is_err());
        let mut empty = Buf::heap(0);
        assert!(empty.is_empty() && empty.split_to(0).is_empty());
    }

    #[test]
    fn blocks_come_back() {
        let pool = BlockPool::new(Buf::heap(10_000), 4096);
        assert_eq!((pool.total(), pool.free(), pool.block_bytes()), (2, 2, 4096));
        let mut first = pool.take(|| false).unwrap();
        let second = pool.try_take().unwrap();
        assert!(pool.try_take().is_none());
        let tail = first.split_off(100);
        drop(first);
        assert_eq!(pool.free(), 0);
        drop(tail);
        assert_eq!(pool.free(), 1);
        drop(second);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn take_waits_for_a_return() {
        let pool = BlockPool::new(Buf::heap(4096), 4096);
        let held = pool.take(|| false).unwrap();
        let waiting = pool.clone();
        let waiter = std::thread::spawn(move || waiting.take(|| false).unwrap().len());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiter.is_finished());
        drop(held);
        assert_eq!(waiter.join().unwrap(), 4096);
    }

    #[test]
    fn take_ends_when_nobody_wants_the_block_any_more() {
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        let pool = BlockPool::new(Buf::heap(4096), 4096);
        let held = pool.take(|| true).unwrap();
        assert!(pool.take(|| true).is_none());
        let (waiting, stop) = (pool.clone(), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&stop);
        let waiter = std::thread::spawn(move || waiting.take(|| flag.load(Relaxed)).is_none());
        stop.store(true, Relaxed);
        assert!(waiter.join().unwrap());
        drop(held);
    }

    #[test]
    fn a_lease_outlives_its_pool() {
        let pool = BlockPool::new(Buf::heap(8192), 4096);
        let mut block = pool.take(|| false).unwrap();
        drop(pool);
        block.fill(3);
        assert_eq!(block[4095], 3);
    }
}
