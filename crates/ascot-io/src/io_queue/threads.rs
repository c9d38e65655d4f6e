//! The queue without io_uring: threads that read and write at offsets.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;

use super::part_queue::PartQueue;
use super::transfer::Part;
use crate::clocks::{self, State};
use crate::ledger::Direction;
use crate::threads::{Thread, ThreadError};

/// Starts the given number of threads for each direction, or none if the system refuses the first one for either.
pub(super) fn start(queue: &Arc<PartQueue>, reads: usize, writes: usize) -> Vec<Thread<()>> {
    let mut threads = Vec::with_capacity(reads + writes);
    for number in 0..reads.max(writes) {
        let wanted = [(Direction::Read, number < reads), (Direction::Write, number < writes)];
        let wanted = wanted.into_iter().filter(|(_, wanted)| *wanted);
        let pair: Vec<_> = wanted.map(|(direction, _)| spawn(queue, direction)).collect();
        let all_refused = pair.iter().any(Result::is_err);
        threads.extend(pair.into_iter().flatten());
        if all_refused && number == 0 {
            queue.close();
            threads.drain(..).for_each(|thread| drop(thread.join()));
        }
        if all_refused {
            break;
        }
    }
    threads
}

fn spawn(queue: &Arc<PartQueue>, direction: Direction) -> Result<Thread<()>, ThreadError> {
    let queue = Arc::clone(queue);
    crate::threads::spawn("device", move || {
        let _abandon = queue.abandon_on_panic();
        while let Some(part) = queue.wait(direction) {
            perform(part);
        }
    })
}

/// Moves a part completely on the calling thread.
pub(super) fn perform(part: Part) {
    let mut next = Some(part);
    while let Some(part) = next {
        let result = clocks::call(State::Device, || call(&part));
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            thread::yield_now();
        }
        next = part.record(result);
    }
}

#[expect(unsafe_code, reason = "the system writes to a part of a shared buffer")]
fn call(part: &Part) -> io::Result<usize> {
    let offset =
        libc::off_t::try_from(part.offset()).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    let (memory, len) = part.memory();
    let fd = part.file().as_raw_fd();
    // SAFETY: the part's memory is valid for `len` bytes and of no other thread until it ends; the
    // descriptor is open as long as the part holds the file.
    let moved = unsafe {
        match part.direction() {
            Direction::Read => libc::pread(fd, memory.cast(), len, offset),
            Direction::Write => libc::pwrite(fd, memory.cast(), len, offset),
        }
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}
