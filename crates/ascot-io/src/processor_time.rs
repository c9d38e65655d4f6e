//! The processor time of threads and of this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of the calling thread: other programs that compute do not count.
pub fn of_thread() -> Duration {
    so_far(ClockId::ThreadCPUTime)
}

/// Processor time of all threads of this process.
pub fn of_process() -> Duration {
    so_far(ClockId::ProcessCPUTime)
}

fn so_far(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The kernel's clock of a thread's processor time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessorClock {
    id: libc::clockid_t,
}

impl ProcessorClock {
    /// The clock of the calling thread; none if the system has no such clock.
    #[expect(unsafe_code, reason = "only the C library gives the clock of a thread")]
    pub(crate) fn of_caller() -> Option<Self> {
        let mut id = 0;
        // SAFETY: the calling thread exists, and `id` outlives the call.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut id) };
        (failed == 0).then_some(Self { id })
    }

    /// The time so far; none if the thread has ended.
    #[expect(unsafe_code, reason = "the number of the clock is known only at run time")]
    pub(crate) fn read(self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` outlives the call, and the kernel refuses the number of a thread that has ended.
        let failed = unsafe { libc::clock_gettime(self.id, &raw mut time) };
        (failed == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
    }
}
