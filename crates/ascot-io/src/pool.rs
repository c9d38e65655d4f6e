//! The one place where memory is accounted: a pool *is* the memory budget.
//!
//! Invariants: `used <= budget` at all times; what is handed out is given back exactly once,
//! when the [`Reservation`] or the last part of a region's [`Buf`] is dropped. A refused request
//! changes nothing.
//!
//! ```text
//!   Pool (budget) --reserve--> Reservation   accounting only, for memory others allocate
//!                 --region---> Buf           mapped memory, split and handed around
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::memory::Mapping;

/// A memory budget in bytes, shared by all its clones.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    budget: usize,
    used: AtomicUsize,
    peak: AtomicUsize,
}

/// Why a pool gave no memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The request does not fit what is left of the budget.
    #[error(
        "{purpose} needs {asked} bytes of memory, but {used} of the {budget} allowed are in use; allow more memory"
    )]
    OverBudget {
        /// What the memory was for.
        purpose: &'static str,
        /// Bytes asked for.
        asked: usize,
        /// Bytes in use at that moment.
        used: usize,
        /// Bytes allowed in all.
        budget: usize,
    },
    /// The system refused to map memory that the budget would have allowed.
    #[error(
        "the system refused {asked} bytes of memory for {purpose} (error {errno}); {used} of the {budget} bytes allowed are in use; allow less memory"
    )]
    Refused {
        /// What the memory was for.
        purpose: &'static str,
        /// Bytes asked for.
        asked: usize,
        /// Bytes in use at that moment.
        used: usize,
        /// Bytes allowed in all.
        budget: usize,
        /// The system's error number.
        errno: i32,
    },
}

impl Pool {
    /// A pool that hands out at most `budget_bytes` at a time.
    pub fn new(budget_bytes: usize) -> Self {
        let inner = Inner { budget: budget_bytes, used: AtomicUsize::new(0), peak: AtomicUsize::new(0) };
        Self { inner: Arc::new(inner) }
    }

    /// Bytes that may be in use at once.
    pub fn budget(&self) -> usize {
        self.inner.budget
    }

    /// Bytes in use now.
    pub fn used(&self) -> usize {
        self.inner.used.load(Ordering::Relaxed)
    }

    /// Bytes not in use now.
    pub fn available(&self) -> usize {
        self.budget() - self.used()
    }

    /// The most bytes ever in use.
    pub fn peak(&self) -> usize {
        self.inner.peak.load(Ordering::Relaxed)
    }

    /// Counts `bytes` as used until the reservation is dropped; allocates nothing.
    pub fn reserve(&self, bytes: usize, purpose: &'static str) -> Result<Reservation, PoolError> {
        let taken = self.inner.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.inner.budget)
        });
        match taken {
            Ok(before) => {
                self.inner.peak.fetch_max(before + bytes, Ordering::Relaxed);
                Ok(Reservation { pool: self.clone(), bytes })
            }
            Err(used) => {
                Err(PoolError::OverBudget { purpose, asked: bytes, used, budget: self.inner.budget })
            }
        }
    }

    /// Maps zeroed memory of `bytes`, rounded up to whole pages; it is unmapped and given back
    /// when the last part of the returned buffer is dropped. Regions of 4 MiB and more start at
    /// 2 MiB and ask for huge pages.
    pub fn region(&self, bytes: usize, purpose: &'static str) -> Result<Buf, PoolError> {
        let rounded = bytes.max(1).checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
        let reservation = self.reserve(rounded, purpose)?;
        let mapping = Mapping::anonymous(rounded).map_err(|errno| PoolError::Refused {
            purpose,
            asked: rounded,
            used: self.used() - rounded,
            budget: self.budget(),
            errno,
        })?;
        Ok(Buf::from_mapping(mapping, Some(reservation)))
    }
}

/// Bytes counted against a [`Pool`], given back on drop.
#[derive(Debug)]
pub struct Reservation {
    pool: Pool,
    bytes: usize,
}

impl Reservation {
    /// Bytes this reservation holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back all but `bytes`; asking for more than is held changes nothing.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.pool.inner.used.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
            self.bytes = bytes;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pool.inner.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_given_back() {
        let pool = Pool::new(100);
        let mut first = pool.reserve(60, "first").unwrap();
        assert_eq!(
            pool.reserve(41, "second").unwrap_err(),
            PoolError::OverBudget { purpose: "second", asked: 41, used: 60, budget: 100 }
        );
        first.shrink_to(20);
        first.shrink_to(90);
        assert_eq!(first.bytes(), 20);
        let second = pool.reserve(80, "second").unwrap();
        assert_eq!((pool.used(), pool.peak(), pool.available()), (100, 100, 0));
        drop(first);
        drop(second);
        assert_eq!((pool.used(), pool.peak()), (0, 100));
        assert!(pool.reserve(usize::MAX, "too much").is_err());
    }

    #[test]
    fn a_region_lives_until_its_last_part_goes() {
        let pool = Pool::new(16 << 20);
        let mut region = pool.region(5 << 20, "test").unwrap();
        assert_eq!(region.len(), 5 << 20);
        assert_eq!(region.as_ptr() as usize % (2 << 20), 0);
        let mut front = region.split_to(4096);
        front.fill(7);
        region.fill(9);
        assert_eq!(front[4095], 7);
        drop(region);
        assert_eq!(pool.used(), 5 << 20);
        assert_eq!(front[0], 7);
        drop(front);
        assert_eq!(pool.used(), 0);
        let odd = pool.region(5000, "odd").unwrap();
        assert_eq!(odd.len(), 8192);
        assert!(pool.region(usize::MAX, "too much").is_err());
    }
}
