//! Memory for records on their way through a pass: leases of buffers that return home by themselves.
//!
//! A [`PiecePool`] hands out buffers of one size, allocated from the job's pool when first needed
//! and reused afterwards. A record that does not fit one asks for a larger buffer, for which free
//! ones are given up; the job's budget is never exceeded.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ascot_io::Buf;
use ascot_io::{Pool, PoolError};

struct Shelf {
    free: Vec<Buf>,
    /// Buffers of the common size in existence.
    made: usize,
}

struct Inner {
    pool: Pool,
    piece_bytes: usize,
    most: usize,
    shelf: Mutex<Shelf>,
    returned: Condvar,
}

/// Buffers of one size for pieces.
#[derive(Clone)]
pub struct PiecePool {
    inner: Arc<Inner>,
}

/// A buffer that returns to where it came from.
pub struct Lease {
    buf: Option<Buf>,
    home: Option<Arc<Inner>>,
}

impl PiecePool {
    /// At most `most` buffers of `piece_bytes` each, from `pool`.
    pub fn new(pool: &Pool, piece_bytes: usize, most: usize) -> Self {
        let shelf = Mutex::new(Shelf { free: Vec::new(), made: 0 });
        let inner = Inner { pool: pool.clone(), piece_bytes, most, shelf, returned: Condvar::new() };
        PiecePool { inner: Arc::new(inner) }
    }

    /// Size of a buffer, bytes.
    pub fn piece_bytes(&self) -> usize {
        self.inner.piece_bytes
    }

    /// Most buffers there will be.
    pub fn most(&self) -> usize {
        self.inner.most
    }

    /// Whether [`PiecePool::take`] would have to wait.
    pub fn is_exhausted(&self) -> bool {
        let shelf = self.inner.lock();
        shelf.free.is_empty()
            && (shelf.made >= self.inner.most || self.inner.pool.available() < self.inner.piece_bytes)
    }

    /// A buffer of the common size; waits until one is free.
    pub fn take(&self) -> Lease {
        let mut shelf = self.inner.lock();
        loop {
            if let Some(buf) = shelf.free.pop() {
                return self.lease(buf);
            }
            if shelf.made < self.inner.most
                && let Ok(buf) = self.inner.pool.region(self.inner.piece_bytes, "pieces of records")
            {
                shelf.made += 1;
                return self.lease(buf);
            }
            shelf = self.inner.returned.wait(shelf).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A buffer of the common size, if one is free.
    pub fn try_take(&self) -> Option<Lease> {
        let mut shelf = self.inner.lock();
        if let Some(buf) = shelf.free.pop() {
            return Some(self.lease(buf));
        }
        if shelf.made >= self.inner.most {
            return None;
        }
        let buf = self.inner.pool.region(self.inner.piece_bytes, "pieces of records").ok()?;
        shelf.made += 1;
        Some(self.lease(buf))
    }

    /// A buffer of at least `bytes`, for a record that fits no other; gives up free buffers for it
    /// and waits for more to come free. Fails where all of them would not do.
    pub fn take_large(&self, bytes: usize) -> Result<Lease, PoolError> {
        let mut shelf = self.inner.lock();
        loop {
            match self.inner.pool.region(bytes, "one very long record") {
                Ok(buf) => return Ok(self.lease(buf)),
                Err(_) if !shelf.free.is_empty() => {
                    shelf.free.pop();
                    shelf.made -= 1;
                }
                Err(error) => {
                    let could_be = shelf.made * self.inner.piece_bytes + self.inner.pool.available();
                    if could_be < bytes {
                        return Err(error);
                    }
                    shelf = self.inner.returned.wait(shelf).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// A buffer of at least `bytes`; calls `starving` before it waits for one.
    pub fn take_for(&self, bytes: usize, starving: &dyn Fn(bool)) -> Result<Lease, PoolError> {
        if bytes > self.inner.piece_bytes {
            starving(true);
            return self.take_large(bytes);
        }
        Ok(self.try_take().unwrap_or_else(|| {
            starving(false);
            self.take()
        }))
    }

    fn lease(&self, buf: Buf) -> Lease {
        Lease { buf: Some(buf), home: Some(Arc::clone(&self.inner)) }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// A buffer that knows its own way home (a block of a block pool), or has none.
    pub fn plain(buf: Buf) -> Self {
        Lease { buf: Some(buf), home: None }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or_default()
    }

    /// Its bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buf.as_deref_mut().unwrap_or_default()
    }

    /// Size, bytes.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether its buffer is lent, or of no size.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the buffer out for a stream to fill; put it back with [`Lease::put`].
    pub fn lend(&mut self) -> Option<Buf> {
        self.buf.take()
    }

    /// Puts the buffer back.
    pub fn put(&mut self, buf: Buf) {
        self.buf = Some(buf);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(home) = self.home.take() else { return };
        let mut shelf = home.lock();
        match self.buf.take() {
            Some(buf) if buf.len() == home.piece_bytes => shelf.free.push(buf),
            Some(large) => drop(large),
            None => shelf.made -= 1,
        }
        drop(shelf);
        home.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back() {
        let pool = Pool::new(3 << 20);
        let pieces = PiecePool::new(&pool, 1 << 20, 3);
        let leases: Vec<Lease> = (0..3).map(|_| pieces.take()).collect();
        assert!(pieces.is_exhausted());
        drop(leases);
        assert!(!pieces.is_exhausted());
        assert_eq!(pool.used(), 3 << 20, "buffers are kept for reuse");
    }

    #[test]
    fn a_large_buffer_takes_the_place_of_small_ones() {
        let pool = Pool::new(4 << 20);
        let pieces = PiecePool::new(&pool, 1 << 20, 4);
        drop((0..4).map(|_| pieces.take()).collect::<Vec<_>>());
        let large = pieces.take_large(3 << 20).expect("fits the budget");
        assert!(large.len() >= 3 << 20 && pool.used() <= 4 << 20);
        drop(large);
        assert_eq!((0..4).map(|_| pieces.take()).collect::<Vec<_>>().len(), 4);
        assert!(pieces.take_large(5 << 20).is_err());
    }
}
