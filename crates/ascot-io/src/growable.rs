//! Memory that grows, for data whose length is not known at its beginning.
//!
//! It is a mapping of its own, which the system lengthens without a copy. Every byte is reserved from a pool first.

use std::ops::{Deref, DerefMut};

use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::memory::Mapping;
use crate::pool::{Pool, PoolError, Reservation};

/// Zeroed memory, accounted in a [`Pool`], whose length can change.
#[derive(Debug)]
pub struct Growable {
    /// Unmapped first, given back afterwards.
    mapping: Option<Mapping>,
    reservation: Reservation,
    pool: Pool,
    purpose: &'static str,
}

impl Pool {
    /// Empty memory that can grow within the budget.
    pub fn growable(&self, purpose: &'static str) -> Result<Growable, PoolError> {
        Ok(Growable { mapping: None, reservation: self.reserve(0, purpose)?, pool: self.clone(), purpose })
    }
}

impl Growable {
    /// Grows it to at least `bytes`, in whole pages; its contents stay. After an error it is unchanged.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), PoolError> {
        let rounded = bytes.max(1).checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
        let len = self.len();
        if rounded <= len {
            return Ok(());
        }
        let more = self.pool.reserve(rounded - len, self.purpose)?;
        let mapped = match &mut self.mapping {
            Some(mapping) => mapping.resize(rounded),
            None => Mapping::reusable(rounded, PAGE_BYTES, false).map(|mapping| self.mapping = Some(mapping)),
        };
        mapped.map_err(|errno| self.pool.refused(self.purpose, more.bytes(), errno))?;
        self.reservation.absorb(more);
        Ok(())
    }

    /// Gives back everything after the first `bytes`, rounded up to whole pages.
    pub fn shrink_to(&mut self, bytes: usize) {
        let rounded = bytes.max(1).next_multiple_of(PAGE_BYTES);
        if let Some(mapping) = self.mapping.as_mut().filter(|mapping| rounded < mapping.bytes())
            && mapping.resize(rounded).is_ok()
        {
            self.reservation.shrink_to(rounded);
        }
    }

    /// Converts it to a buffer of its current length.
    pub fn into_buf(self) -> Buf {
        match self.mapping {
            Some(mapping) => Buf::from_mapping(mapping, Some(self.reservation)),
            None => Buf::heap(0),
        }
    }
}

impl Deref for Growable {
    type Target = [u8];
    #[expect(unsafe_code, reason = "the mapping belongs to this value alone")]
    fn deref(&self) -> &[u8] {
        match &self.mapping {
            // SAFETY: the mapping is initialised memory of this value alone.
            Some(mapping) => unsafe { std::slice::from_raw_parts(mapping.start().as_ptr(), mapping.bytes()) },
            None => &[],
        }
    }
}

impl DerefMut for Growable {
    #[expect(unsafe_code, reason = "the mapping belongs to this value alone")]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.mapping {
            // SAFETY: as above, and `&mut self` makes the access exclusive.
            Some(mapping) => unsafe {
                std::slice::from_raw_parts_mut(mapping.start().as_ptr(), mapping.bytes())
            },
            None => &mut [],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_stay_and_all_of_it_is_counted() {
        let pool = Pool::new(1 << 20);
        let mut memory = pool.growable("test").unwrap();
        assert_eq!((memory.len(), pool.used()), (0, 0));
        for pages in [1, 2, 40, 200] {
            let before = memory.len();
            memory.grow_to(pages * PAGE_BYTES - 1).unwrap();
            assert_eq!((memory.len(), pool.used()), (pages * PAGE_BYTES, pages * PAGE_BYTES));
            memory[before..].fill(pages as u8);
        }
        assert!(memory.grow_to(2 << 20).is_err());
        assert_eq!(pool.used(), 200 * PAGE_BYTES);
        memory.shrink_to(3 * PAGE_BYTES + 1);
        assert_eq!(pool.used(), 4 * PAGE_BYTES);
        let buf = memory.into_buf();
        assert_eq!((buf.len(), buf[0], buf[PAGE_BYTES], buf[4 * PAGE_BYTES - 1]), (4 * PAGE_BYTES, 1, 2, 40));
        drop(buf);
        assert_eq!(pool.used(), 0);
    }
}
