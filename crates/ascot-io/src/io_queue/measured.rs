//! Transfers outside of streams, by which a device is measured with the requests of jobs.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::{IoQueue, Request, Ticket};
use crate::buf::Buf;
use crate::ledger::Direction;

/// A transfer outside of streams that has begun.
pub struct PendingTransfer {
    ticket: Ticket,
    len: usize,
}

impl IoQueue {
    /// Begins to move all bytes of `buf`, in one request, between it and `file` at `offset`. No ledger counts them. For
    /// a file with O_DIRECT, memory, offset and length are whole pages.
    pub fn begin(&self, file: &Arc<File>, direction: Direction, offset: u64, buf: Buf) -> PendingTransfer {
        let len = buf.len();
        let file = Arc::clone(file);
        let request = Request {
            file,
            direction,
            buf,
            len,
            offset,
            part_bytes: len,
            direct: true,
            halve: false,
            receipt: None,
        };
        PendingTransfer { ticket: self.submit(request), len }
    }
}

impl PendingTransfer {
    /// Waits for its end, and for the buffer of a read.
    ///
    /// # Errors
    /// The system's, or a file that ends early.
    pub fn complete(self) -> io::Result<Option<Buf>> {
        let (buf, moved) = self.ticket.wait();
        if moved? < self.len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(buf) }
    }
}
