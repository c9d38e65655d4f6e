//! Tests of parts that no thread performs.

use std::sync::Arc;

use super::Request;
use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::ledger::{Direction, Ledger};

#[test]
fn who_waits_for_a_dropped_part_gets_an_error() {
    let file = Arc::new(tempfile::tempfile().unwrap());
    let mut meter = Ledger::new().meter("a file", "a file".as_ref(), 0, 0, Direction::Read);
    let (buf, len, receipt) = (Buf::heap(2 * PAGE_BYTES), 2 * PAGE_BYTES, meter.issue(0, 2, 1));
    let (direction, part_bytes) = (Direction::Read, PAGE_BYTES);
    let request = Request {
        file,
        direction,
        buf,
        len,
        offset: 0,
        part_bytes,
        direct: false,
        halve: false,
        receipt: Some(receipt),
    };
    let (ticket, parts) = request.into_parts();
    assert!(parts.len() == 2 && !ticket.is_finished());
    drop(parts);
    assert!(ticket.wait().1.is_err());
}
