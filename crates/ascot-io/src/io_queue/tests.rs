//! Tests of parts that no thread performs.

use std::sync::Arc;

use super::{PartQueue, Request, perform};
use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::ledger::{Direction, Ledger};

/// A request of two parts.
fn request(direction: Direction) -> Request {
    let file = Arc::new(tempfile::tempfile().unwrap());
    let mut meter = Ledger::new().meter("a file", "a file".as_ref(), 0, 0, direction);
    let (buf, len, receipt) = (Buf::heap(2 * PAGE_BYTES), 2 * PAGE_BYTES, meter.issue(0, 2, 1));
    Request {
        file,
        direction,
        buf,
        len,
        offset: 0,
        part_bytes: PAGE_BYTES,
        direct: false,
        halve: false,
        receipt: Some(receipt),
    }
}

#[test]
fn who_waits_for_a_dropped_part_gets_an_error() {
    let (ticket, parts) = request(Direction::Read).into_parts();
    assert!(parts.len() == 2 && !ticket.is_finished());
    drop(parts);
    assert!(ticket.wait().1.is_err());
}

#[test]
fn a_queue_that_ends_performs_writes_and_no_reads() {
    let queue = PartQueue::for_threads();
    let [read, write] = [Direction::Read, Direction::Write].map(|direction| {
        let (ticket, parts) = request(direction).into_parts();
        queue.push(parts);
        ticket
    });
    queue.close();
    assert!(read.is_finished() && read.wait().1.is_err());
    assert!(!write.is_finished());
    assert!(queue.wait(Direction::Read).is_none());
    while let Some(part) = queue.wait(Direction::Write) {
        perform(part);
    }
    assert_eq!(write.wait().1.unwrap(), 2 * PAGE_BYTES);
}
