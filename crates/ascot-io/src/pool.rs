//! The memory budget: a pool accounts for all memory of a job.
//!
//! Invariants: `used <= budget` at all times. Memory is returned exactly once, when its [`Reservation`] or the last
//! part of its [`Buf`](crate::Buf) is dropped. A refused request changes nothing.
//!
//! ```text
//!   Pool (budget) --reserve--> Reservation   accounting only, for memory others allocate
//!                 --region---> Buf           memory, split and handed around
//! ```
//!
//! Regions are ranges of one [`Arena`], mapped with the first large one, and keep their pages when they are returned.
//! The memory that may be resident, in the arena (free or not) and outside it, stays within the budget too: before a
//! grant that would exceed it, free ranges of the arena give up their pages.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use ascot_model::units::memory;

use crate::arena::Arena;
use crate::sync::Unpoisoned;

/// The first region of this size maps the arena.
const ARENA_FROM_BYTES: usize = 1 << 20;

/// A memory budget in bytes, shared by all its clones.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    budget: usize,
    /// Changed only with `backing` locked; read without the lock.
    used: AtomicUsize,
    peak: AtomicUsize,
    backing: Mutex<Backing>,
}

/// The memory of the used bytes.
#[derive(Debug, Default)]
struct Backing {
    arena: Option<Arena>,
    /// The system refused an arena: every region has a mapping of its own.
    refused: bool,
    /// Used bytes that are in the arena.
    inside: usize,
}

impl Inner {
    fn backing(&self) -> MutexGuard<'_, Backing> {
        self.backing.lock().unpoisoned()
    }

    /// Counts `bytes` as used.
    fn count(&self, _backing: &mut Backing, bytes: usize, purpose: &'static str) -> Result<(), PoolError> {
        let used = self.used.load(Ordering::Relaxed);
        let sum = used.checked_add(bytes).filter(|sum| *sum <= self.budget);
        let over = PoolError::OverBudget { purpose, asked: bytes, used, budget: self.budget };
        let sum = sum.ok_or(over)?;
        self.used.store(sum, Ordering::Relaxed);
        self.peak.fetch_max(sum, Ordering::Relaxed);
        Ok(())
    }

    fn uncount(&self, _backing: &mut Backing, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The most bytes that can be resident for this pool.
    fn max_resident(&self, backing: &Backing) -> usize {
        let outside = self.used.load(Ordering::Relaxed) - backing.inside;
        outside + backing.arena.as_ref().map_or(0, Arena::max_resident)
    }

    /// Discards free ranges until the bytes that may be resident are within the budget.
    fn return_excess(&self, backing: &mut Backing) {
        let max = self.max_resident(backing);
        if max > self.budget
            && let Some(arena) = &mut backing.arena
        {
            arena.discard(max - self.budget);
        }
    }
}

/// Why a pool did not provide memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The request exceeds the rest of the budget.
    #[error(
        "{purpose}: {} of memory needed, and {} of the {} allowed are in use\n  allow more memory",
        memory(*asked as u64), memory(*used as u64), memory(*budget as u64)
    )]
    OverBudget {
        /// The purpose of the memory.
        purpose: &'static str,
        /// Bytes requested.
        asked: usize,
        /// Bytes in use at that moment.
        used: usize,
        /// Bytes allowed in total.
        budget: usize,
    },
    /// The system refused to map memory within the budget.
    #[error(
        "the system refused {asked} bytes of memory for {purpose} ({}); {used} of the {budget} bytes allowed \
         are in use; allow less memory",
        std::io::Error::from_raw_os_error(*errno)
    )]
    Refused {
        /// The purpose of the memory.
        purpose: &'static str,
        /// Bytes requested.
        asked: usize,
        /// Bytes in use at that moment.
        used: usize,
        /// Bytes allowed in total.
        budget: usize,
        /// The system's error number.
        errno: i32,
    },
}

impl Pool {
    /// A pool that provides at most `budget_bytes` at a time.
    pub fn new(budget_bytes: usize) -> Self {
        crate::memory::tune_allocator();
        let inner = Inner {
            budget: budget_bytes,
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            backing: Mutex::default(),
        };
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
        let backing = &mut *self.inner.backing();
        self.inner.count(backing, bytes, purpose)?;
        self.inner.return_excess(backing);
        Ok(Reservation { pool: self.clone(), bytes })
    }

    /// The error if the system refused `bytes` that are already counted.
    pub(crate) fn refused(&self, purpose: &'static str, bytes: usize, errno: Errno) -> PoolError {
        PoolError::Refused {
            purpose,
            asked: bytes,
            used: self.used().saturating_sub(bytes),
            budget: self.budget(),
            errno: errno.raw_os_error(),
        }
    }

    /// A range of the arena; only a reservation if there is no arena, or no free range in it is long enough.
    pub(crate) fn grant(
        &self,
        bytes: usize,
        purpose: &'static str,
    ) -> Result<Result<Grant, Reservation>, PoolError> {
        let backing = &mut *self.inner.backing();
        self.inner.count(backing, bytes, purpose)?;
        if backing.arena.is_none() && !backing.refused && bytes >= ARENA_FROM_BYTES {
            backing.arena = Arena::map(self.budget());
            backing.refused = backing.arena.is_none();
        }
        let taken = backing.arena.as_mut().and_then(|arena| {
            let at = arena.take(bytes)?;
            Some((at, arena.address(at)))
        });
        let pool = self.clone();
        let granted = match taken {
            Some((at, start)) => {
                backing.inside += bytes;
                Ok(Grant { pool, at, start, bytes })
            }
            None => Err(Reservation { pool, bytes }),
        };
        self.inner.return_excess(backing);
        Ok(granted)
    }
}

/// A range of a pool's arena, handed out once and given back on drop.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Keeps the arena mapped.
    pool: Pool,
    at: usize,
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
}

// SAFETY: a grant is plain memory of its own; nothing in it is tied to a thread.
#[expect(unsafe_code, reason = "a grant owns its range of the pool")]
unsafe impl Send for Grant {}
// SAFETY: a shared `Grant` gives out only its address; the owner is responsible for access to the bytes.
#[expect(unsafe_code, reason = "a grant owns its range of the pool")]
unsafe impl Sync for Grant {}

impl Drop for Grant {
    #[expect(unsafe_code, reason = "a grant owns its range of the pool")]
    fn drop(&mut self) {
        let backing = &mut *self.pool.inner.backing();
        self.pool.inner.uncount(backing, self.bytes);
        backing.inside -= self.bytes;
        if let Some(arena) = &mut backing.arena {
            // SAFETY: the range is this grant's, taken once, and its owner is gone.
            unsafe { arena.give(self.at..self.at + self.bytes) };
        }
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

    /// Takes over the bytes of `more`, which belongs to the same pool.
    pub fn absorb(&mut self, mut more: Reservation) {
        self.bytes += std::mem::take(&mut more.bytes);
    }

    /// Gives back all but `bytes`; a larger number changes nothing.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            let more = self.bytes - bytes;
            self.pool.inner.uncount(&mut self.pool.inner.backing(), more);
            self.bytes = bytes;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pool.inner.uncount(&mut self.pool.inner.backing(), self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PAGE_BYTES;
    use crate::buf::Buf;

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

    const MIB: usize = 1 << 20;

    /// Bytes resident in the arena, and the most that may be resident in total.
    fn resident(pool: &Pool) -> (usize, usize) {
        let backing = pool.inner.backing();
        (backing.arena.as_ref().map_or(0, Arena::resident), pool.inner.max_resident(&backing))
    }

    #[test]
    fn a_region_is_used_again() {
        let pool = Pool::new(8 * MIB);
        let small = pool.region(PAGE_BYTES, "small").unwrap();
        assert!(pool.inner.backing().arena.is_none(), "a small region maps no arena");
        let mut region = pool.region(3 * MIB, "first").unwrap();
        region.fill(5);
        let address = region.as_ptr();
        drop(region);
        assert_eq!((pool.used(), resident(&pool)), (PAGE_BYTES, (3 * MIB, 3 * MIB + PAGE_BYTES)));
        let region = pool.region(2 * MIB, "second").unwrap();
        assert_eq!((region.as_ptr(), region[0]), (address, 5));
        drop(pool);
        assert_eq!(region[2 * MIB - 1], 5, "a region keeps its arena");
        drop((region, small));
    }

    #[test]
    fn neighbours_that_come_back_are_one_again() {
        let pool = Pool::new(8 * MIB);
        let parts: Vec<Buf> = (0..8).map(|_| pool.region(MIB, "part").unwrap()).collect();
        let address = parts.iter().map(|part| part.as_ptr()).min().unwrap();
        assert!(pool.region(1, "too much").is_err());
        drop(parts);
        assert_eq!(pool.region(8 * MIB, "all").unwrap().as_ptr(), address);
    }

    #[test]
    fn a_region_that_fits_no_hole_gets_the_pages_of_the_holes() {
        let pool = Pool::new(8 * MIB);
        let mut parts: Vec<Option<Buf>> = (0..8).map(|_| pool.region(MIB, "part").ok()).collect();
        parts.iter_mut().flatten().for_each(|part| part.fill(1));
        assert_eq!(resident(&pool), (8 * MIB, 8 * MIB));
        for at in [1, 3, 5, 7] {
            parts[at] = None;
        }
        let mut wide = pool.region(3 * MIB, "wide").unwrap();
        wide.fill(2);
        assert_eq!(resident(&pool), (5 * MIB, 8 * MIB));
        let narrow = pool.region(MIB, "narrow").unwrap();
        assert_eq!((pool.used(), resident(&pool).1), (8 * MIB, 8 * MIB));
        assert!(parts.iter().flatten().all(|part| part.iter().all(|byte| *byte == 1)));
        drop((wide, narrow, parts));
        assert_eq!(pool.used(), 0);
        assert!(resident(&pool).0 <= 8 * MIB);
    }

    #[test]
    fn what_others_allocate_takes_pages_from_the_arena() {
        let pool = Pool::new(8 * MIB);
        pool.region(8 * MIB, "all").unwrap().fill(1);
        let mut reserved = pool.reserve(3 * MIB, "others").unwrap();
        assert_eq!(resident(&pool), (5 * MIB, 8 * MIB));
        reserved.shrink_to(MIB);
        let mut max = pool.region(7 * MIB, "most").unwrap();
        max.fill(2);
        assert_eq!(resident(&pool), (7 * MIB, 8 * MIB));
    }

    #[test]
    fn threads_share_a_pool() {
        let pool = Pool::new(16 * MIB);
        std::thread::scope(|scope| {
            for id in 1..=4_u8 {
                let pool = &pool;
                scope.spawn(move || {
                    for turn in 0..200_usize {
                        let bytes = (1 + (turn * 7 + usize::from(id) * 3) % 40) * 100_000;
                        let reserved = pool.reserve(bytes / 10, "others");
                        let Ok(mut region) = pool.region(bytes, "region") else { continue };
                        region.fill(id);
                        std::thread::yield_now();
                        assert!(region.iter().all(|byte| *byte == id));
                        assert!(resident(pool).1 <= 16 * MIB);
                        drop((region, reserved));
                    }
                });
            }
        });
        assert_eq!(pool.used(), 0);
        drop(pool.region(16 * MIB, "all").unwrap());
    }

    /// One step of a random test sequence.
    #[derive(Debug, Clone)]
    enum Step {
        Region(usize),
        Reserve(usize),
        Shrink(usize, usize),
        Drop(usize),
    }

    fn step(budget: usize) -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1..budget / 2).prop_map(Step::Region),
            2 => (1..200_000_usize).prop_map(Step::Region),
            2 => (1..budget / 3).prop_map(Step::Reserve),
            1 => (any::<usize>(), 1..budget / 3).prop_map(|(which, bytes)| Step::Shrink(which, bytes)),
            5 => any::<usize>().prop_map(Step::Drop),
        ]
    }

    enum Held {
        Region(Buf, u8),
        Reserved(Reservation),
    }

    impl Held {
        fn bytes(&self) -> usize {
            match self {
                Self::Region(buf, _) => buf.len(),
                Self::Reserved(reserved) => reserved.bytes(),
            }
        }

        /// Every page still has the byte written to it.
        fn is_whole(&self) -> bool {
            match self {
                Self::Region(buf, mark) => buf.iter().step_by(PAGE_BYTES).all(|byte| byte == mark),
                Self::Reserved(_) => true,
            }
        }
    }

    /// Plays `steps` on a pool and on a model: the list of held memory.
    fn play(budget: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
        let pool = Pool::new(budget);
        let mut held: Vec<Held> = Vec::new();
        for (turn, step) in steps.into_iter().enumerate() {
            let used: usize = held.iter().map(Held::bytes).sum();
            match step {
                Step::Region(bytes) => {
                    let rounded = bytes.next_multiple_of(PAGE_BYTES);
                    let region = pool.region(bytes, "region");
                    prop_assert_eq!(region.is_ok(), used + rounded <= budget);
                    if let Ok(mut region) = region {
                        let mark = turn as u8;
                        region.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = mark);
                        held.push(Held::Region(region, mark));
                    }
                }
                Step::Reserve(bytes) => {
                    let reserved = pool.reserve(bytes, "others");
                    prop_assert_eq!(reserved.is_ok(), used + bytes <= budget);
                    held.extend(reserved.map(Held::Reserved));
                }
                Step::Shrink(which, bytes) => {
                    let count = held.len().max(1);
                    if let Some(Held::Reserved(reserved)) = held.get_mut(which % count) {
                        reserved.shrink_to(bytes);
                    }
                }
                Step::Drop(which) if !held.is_empty() => {
                    let one = held.swap_remove(which % held.len());
                    prop_assert!(one.is_whole());
                }
                Step::Drop(_) => {}
            }
            prop_assert_eq!(pool.used(), held.iter().map(Held::bytes).sum::<usize>());
            let (inside, max) = resident(&pool);
            let outside = pool.used() - pool.inner.backing().inside;
            prop_assert!(inside + outside <= max && max <= budget, "{inside} + {outside}, {max}");
        }
        prop_assert!(held.iter().all(Held::is_whole));
        drop(held);
        prop_assert_eq!(pool.used(), 0);
        prop_assert!(pool.region(budget / PAGE_BYTES * PAGE_BYTES, "all").is_ok());
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_small_pool_is_like_a_list(
            (budget, steps) in (1_200_000..9 * MIB)
                .prop_flat_map(|budget| (Just(budget), prop::collection::vec(step(budget), 1..80)))
        ) {
            play(budget, steps)?;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn a_pool_with_huge_pages_is_like_a_list(steps in prop::collection::vec(step(67 * MIB), 1..60)) {
            play(67 * MIB, steps)?;
        }
    }
}
