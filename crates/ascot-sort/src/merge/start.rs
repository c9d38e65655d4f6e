//! How the threads of merges start and end, and how many stay if the system refuses some.

use std::sync::Arc;
use std::time::Duration;

use ascot_io::threads::{spawn, start_some};
use ascot_io::{BlockPool, Buf, Pool};
use crossbeam_channel::unbounded;

use super::{EmitThreads, Order, emit_thread};
use crate::api::SortError;
use crate::records::Records;

/// Threads left for other uses if the system refuses some: a reader, a sorter, two for devices and pipes.
const THREADS_OF_OTHERS: usize = 4;

impl EmitThreads {
    /// Starts `threads` threads, each with `blocks` blocks of `block_bytes` from `pool`.
    pub fn start<R: Records>(
        records: &Arc<R>,
        pool: &Pool,
        threads: usize,
        blocks: usize,
        block_bytes: usize,
    ) -> Result<Self, SortError> {
        let (send, receive) = unbounded::<Order>();
        let threads = threads.max(1);
        let region = || pool.region(blocks * block_bytes, "merged records");
        let mut regions = (0..threads).map(|_| region()).collect::<Result<Vec<_>, _>>()?;
        let started = start_some(threads, |number| {
            let blocks = BlockPool::new(regions.pop().unwrap_or_else(|| Buf::heap(0)), block_bytes);
            let records = Arc::clone(records);
            let receive = receive.clone();
            spawn(&format!("merge {number}"), move || emit_thread(&*records, &receive, &blocks))
        })?;
        let mut this = EmitThreads { orders: Some(send), threads: started };
        if this.threads.len() < threads {
            this.leave_threads_to_others();
        }
        Ok(this)
    }

    /// Ends some threads, because the system starts no more and the job's other threads are indispensable.
    fn leave_threads_to_others(&mut self) {
        let left = self.threads.len().saturating_sub(THREADS_OF_OTHERS).max(1);
        let surplus = self.threads.len() - left;
        for _ in 0..surplus {
            let _ = self.orders.as_ref().map(|orders| orders.send(Order::End));
        }
        while self.threads.len() > left {
            std::thread::sleep(Duration::from_millis(1));
            self.threads.retain(|thread| !thread.is_finished());
        }
        // The system counts a thread for a moment after its end.
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for EmitThreads {
    fn drop(&mut self) {
        self.orders = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
