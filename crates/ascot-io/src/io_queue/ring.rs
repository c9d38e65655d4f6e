//! The queue on io_uring: one thread that owns a ring.
//!
//! Invariants: a part stays in `slots` from its submission to its completion, so its memory and its descriptor
//! outlive the kernel's use of them; at most `depth` parts of each direction are in the ring, which holds all of them
//! and the bell; the thread ends only with empty slots.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use io_uring::{IoUring, Probe, opcode, types};

use super::part_queue::PartQueue;
use super::transfer::Part;
use crate::clocks::{State, call};
use crate::ledger::Direction;
use crate::threads::{Thread, spawn};
use crate::waits::{Need, wait_for};

/// The user data of the bell's completion.
const BELL: u64 = u64::MAX;

/// Starts the ring's thread; `None` if io_uring or a thread is not available.
pub(super) fn start(queue: &Arc<PartQueue>, depth: [usize; 2]) -> Option<Thread<()>> {
    let (answer, started) = mpsc::channel();
    let queue = Arc::clone(queue);
    let thread = spawn("device", move || match Ring::new(&queue, depth) {
        Ok(mut ring) => {
            // The starter waits for this answer, so the channel is open.
            let _ = answer.send(true);
            let _abandon = queue.abandon_on_panic();
            ring.serve(&queue);
        }
        Err(_) => {
            let _ = answer.send(false);
        }
    })
    .ok()?;
    if started.recv().unwrap_or(false) {
        Some(thread)
    } else {
        let _ = thread.join();
        None
    }
}

struct Ring {
    ring: IoUring,
    slots: Vec<Option<Part>>,
    vacant: Vec<usize>,
    /// Most parts in flight, by direction.
    depth: [usize; 2],
    /// Parts in flight, by direction.
    in_flight: [usize; 2],
    bell_polled: bool,
    taken: Vec<Part>,
    reaped: Vec<(u64, i32)>,
}

impl Ring {
    fn new(queue: &PartQueue, depth: [usize; 2]) -> io::Result<Self> {
        if queue.bell().is_none() {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let slots = depth.iter().sum::<usize>();
        let entries = (slots + 1).next_power_of_two() as u32;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(Self {
            ring,
            slots: (0..slots).map(|_| None).collect(),
            vacant: (0..slots).rev().collect(),
            depth,
            in_flight: [0; 2],
            bell_polled: false,
            taken: Vec::with_capacity(slots),
            reaped: Vec::with_capacity(slots + 1),
        })
    }

    fn serve(&mut self, queue: &PartQueue) {
        loop {
            let most = [0, 1].map(|direction| self.depth[direction] - self.in_flight[direction]);
            let mut taken = std::mem::take(&mut self.taken);
            let closed = queue.take(most, &mut taken);
            taken.drain(..).for_each(|part| self.submit(part));
            self.taken = taken;
            let idle = self.in_flight == [0; 2];
            if closed && idle {
                return;
            }
            self.poll_bell(queue);
            self.enter(idle);
            self.reap(queue);
        }
    }

    /// Submits the requests that wait for that, and waits for a completion.
    fn enter(&mut self, idle: bool) {
        let submitted = if idle {
            let _waiting = wait_for("requests to the device", Need::WORK, None);
            self.ring.submit_and_wait(1)
        } else {
            call(State::Device, || self.ring.submit_and_wait(1))
        };
        // Interrupted, or the kernel lacks a resource: the requests it has taken complete, and the next round submits
        // the rest.
        if submitted.is_err() {
            thread::yield_now();
        }
    }

    #[expect(unsafe_code, reason = "io_uring takes raw memory")]
    fn submit(&mut self, part: Part) {
        // `take` requested no more parts than there are vacant slots.
        let Some(slot) = self.vacant.pop() else {
            super::threads::perform(part);
            return;
        };
        self.in_flight[part.direction() as usize] += 1;
        let (memory, len) = part.memory();
        let fd = types::Fd(part.file().as_raw_fd());
        let entry = match part.direction() {
            Direction::Read => opcode::Read::new(fd, memory, len as u32).offset(part.offset()).build(),
            Direction::Write => opcode::Write::new(fd, memory, len as u32).offset(part.offset()).build(),
        };
        // SAFETY: the part is kept in its slot until its completion, and with it the memory
        // (exclusively this part's) and the open descriptor.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        match pushed {
            Ok(()) => self.slots[slot] = Some(part),
            Err(_) => {
                self.vacate(slot, part.direction());
                super::threads::perform(part);
            }
        }
    }

    #[expect(unsafe_code, reason = "io_uring takes raw memory")]
    fn poll_bell(&mut self, queue: &PartQueue) {
        if self.bell_polled {
            return;
        }
        let Some(bell) = queue.bell() else { return };
        let entry = opcode::PollAdd::new(types::Fd(bell.as_raw_fd()), libc::POLLIN as u32).build();
        // SAFETY: a poll touches no memory of ours.
        self.bell_polled = unsafe { self.ring.submission().push(&entry.user_data(BELL)) }.is_ok();
    }

    fn reap(&mut self, queue: &PartQueue) {
        let mut reaped = std::mem::take(&mut self.reaped);
        reaped.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (data, result) in reaped.drain(..) {
            if data == BELL {
                self.bell_polled = false;
                queue.hush();
            } else {
                let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                self.record(data as usize, result);
            }
        }
        self.reaped = reaped;
    }

    fn record(&mut self, slot: usize, result: io::Result<usize>) {
        let Some(part) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        self.vacate(slot, part.direction());
        // The kernel cancels a request if it cannot start a worker for it: the process limit is reached.
        if matches!(&result, Err(error) if error.raw_os_error() == Some(libc::ECANCELED)) {
            super::threads::perform(part);
            return;
        }
        if let Some(part) = part.record(result) {
            self.submit(part);
        }
    }

    fn vacate(&mut self, slot: usize, direction: Direction) {
        self.in_flight[direction as usize] -= 1;
        self.vacant.push(slot);
    }
}
