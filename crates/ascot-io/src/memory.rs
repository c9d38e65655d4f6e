//! Raw memory: anonymous mappings, file windows and heap blocks, each freed exactly once.
//!
//! All `unsafe` of memory ownership is here, in `arena.rs`, `pool.rs`, `buf.rs` and `growable.rs`: a [`Mapping`] owns
//! `[start, start + bytes)`, and nothing else hands that range out.

use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MremapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use crate::PAGE_BYTES;

/// The size from which huge pages pay.
const HUGE_FROM_BYTES: usize = 4 << 20;
/// Bytes of a huge page.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Sets how the C library's allocator uses the system's memory.
///
/// It returns large blocks as soon as they are freed: blocks kept for reuse would count against the cap as well. Heaps
/// grow in large steps, of which only the pages in use are resident: a step waits until no other thread faults a page
/// in, and small steps kept sorting threads waiting for up to a third of their time where the machine's memory is
/// fresh. If the address space is limited, there are no per-thread heaps, of 64 MiB each; if it or writable memory is,
/// steps stay small.
#[expect(unsafe_code, reason = "a mapping owns its addresses")]
pub(crate) fn tune_allocator() {
    const LARGE_BYTES: libc::c_int = 1 << 20;
    const STEP_BYTES: libc::c_int = 4 << 20;
    #[cfg(target_env = "gnu")]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: sets numbers of the allocator, which takes its own lock.
        ONCE.call_once(|| unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
            let is_limited = |resource| getrlimit(resource).current.is_some();
            if is_limited(Resource::As) {
                libc::mallopt(libc::M_ARENA_MAX, 1);
            } else if !is_limited(Resource::Data) {
                libc::mallopt(libc::M_TOP_PAD, STEP_BYTES);
            }
        });
    }
}

/// A range of mapped memory, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory owned by this value; nothing in it is tied to a thread.
#[expect(unsafe_code, reason = "a mapping owns its addresses")]
unsafe impl Send for Mapping {}
// SAFETY: a shared `Mapping` gives out only its address; the owner is responsible for access to the bytes.
#[expect(unsafe_code, reason = "a mapping owns its addresses")]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory of `bytes` (a multiple of the page size, not 0). Errors are errnos.
    pub(crate) fn anonymous(bytes: usize) -> Result<Self, Errno> {
        let huge = bytes >= HUGE_FROM_BYTES;
        Self::reusable(bytes, if huge { HUGE_PAGE_BYTES } else { PAGE_BYTES }, huge)
    }

    /// Zeroed private memory of `bytes` that starts at a multiple of `align` (the page's size or the huge page's);
    /// requests huge pages if `huge`.
    #[expect(unsafe_code, reason = "a mapping owns its addresses")]
    pub(crate) fn reusable(bytes: usize, align: usize, huge: bool) -> Result<Self, Errno> {
        let aligned = align > PAGE_BYTES;
        let slack = if aligned { HUGE_PAGE_BYTES } else { 0 };
        let asked = bytes.checked_add(slack).ok_or(Errno::NOMEM)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory
        // that exists already.
        let raw = unsafe { mm::mmap_anonymous(ptr::null_mut(), asked, protection, flags)? };
        let whole = Self::from_raw(raw, asked)?;
        let mapping = if aligned { whole.trim_to_huge(bytes) } else { whole };
        if huge {
            mapping.advise(0..bytes, Advice::LinuxHugepage);
        }
        Ok(mapping)
    }

    /// From now on, no huge page covers any of `range` (whole pages).
    pub(crate) fn keep_small(&self, range: Range<usize>) {
        self.advise(range, Advice::LinuxNoHugepage);
    }

    /// Makes all pages resident now, instead of each one when it is first touched.
    pub(crate) fn touch(&self) {
        self.advise(0..self.bytes, Advice::LinuxPopulateWrite);
    }

    /// Advice that changes no contents; a refusal changes only speed.
    #[expect(unsafe_code, reason = "a mapping owns its addresses")]
    fn advise(&self, range: Range<usize>, advice: Advice) {
        assert!(!matches!(advice, Advice::LinuxDontNeed), "the advice changes no contents");
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: the range is in our own mapping; the advice changes no contents.
        let _ = unsafe { mm::madvise(self.start.add(range.start).as_ptr().cast(), range.len(), advice) };
    }

    /// Resizes it to `bytes` (a multiple of the page size, not 0), if need be at another address. Its contents stay
    /// and zeros follow them; after a refusal (an errno) it is unchanged.
    #[expect(unsafe_code, reason = "a mapping owns its addresses")]
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Errno> {
        // SAFETY: the range is our own mapping, and `&mut self` shows that its address is not in use.
        let raw = unsafe { mm::mremap(self.start.as_ptr().cast(), self.bytes, bytes, MremapFlags::MAYMOVE)? };
        self.start = NonNull::new(raw.cast::<u8>()).ok_or(Errno::NOMEM)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Gives the pages of `range` (whole pages) back to the system; they then read as zeros. Refused only for memory
    /// locked to stay resident, which then keeps its contents.
    ///
    /// # Safety
    /// The mapping is anonymous, and the range is not in use.
    #[expect(unsafe_code, reason = "a mapping owns its addresses")]
    pub(crate) unsafe fn discard(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: the range is in our own mapping, and the caller guarantees that it is not in use.
        let _ = unsafe {
            mm::madvise(self.start.add(range.start).as_ptr().cast(), range.len(), Advice::LinuxDontNeed)
        };
    }

    /// Bytes of the mapping that are resident.
    #[cfg(test)]
    #[expect(unsafe_code, reason = "a mapping owns its addresses")]
    pub(crate) fn resident(&self) -> usize {
        let mut pages = vec![0_u8; self.bytes / PAGE_BYTES];
        // SAFETY: the range is our own mapping, and `pages` has a byte for each of its pages.
        let answer = unsafe { libc::mincore(self.start.as_ptr().cast(), self.bytes, pages.as_mut_ptr()) };
        assert_eq!(answer, 0);
        pages.iter().filter(|page| **page & 1 == 1).count() * PAGE_BYTES
    }

    /// A shared window of a file. `offset` must be a multiple of the page size.
    #[expect(unsafe_code, reason = "a mapping owns its addresses")]
    pub(crate) fn window(file: &File, offset: u64, bytes: usize, write: bool) -> Result<Self, Errno> {
        let protection = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: as above, a fresh mapping at an address of the kernel's choice.
        let raw = unsafe { mm::mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, offset)? };
        let window = Self::from_raw(raw, bytes)?;
        window.advise(0..bytes, Advice::Sequential);
        Ok(window)
    }

    fn from_raw(raw: *mut c_void, bytes: usize) -> Result<Self, Errno> {
        let start = NonNull::new(raw.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, bytes })
    }

    /// Keeps `bytes` from the first huge-page boundary on and unmaps the rest.
    #[expect(unsafe_code, reason = "a mapping owns its addresses")]
    fn trim_to_huge(self, bytes: usize) -> Self {
        let address = self.start.as_ptr() as usize;
        let front = address.next_multiple_of(HUGE_PAGE_BYTES) - address;
        let back = self.bytes - front - bytes;
        debug_assert!(front.is_multiple_of(PAGE_BYTES) && back.is_multiple_of(PAGE_BYTES));
        // SAFETY: `front + bytes + back == self.bytes`, so all three parts lie in our mapping, and
        // the parts unmapped here are not part of the mapping returned.
        let start = unsafe {
            let start = self.start.add(front);
            if front > 0 {
                let _ = mm::munmap(self.start.as_ptr().cast(), front);
            }
            if back > 0 {
                let _ = mm::munmap(start.add(bytes).as_ptr().cast(), back);
            }
            start
        };
        std::mem::forget(self);
        Self { start, bytes }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "a mapping owns its addresses")]
    fn drop(&mut self) {
        // SAFETY: the range is ours, mapped once, and no reference to it remains.
        let _ = unsafe { mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
