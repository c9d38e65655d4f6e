//! A transport made of functions of the host: the table `ascot_transport`.
//!
//! A batch in transit is kept here under its ticket, so its bytes do not move until the host reports that they were
//! taken. The same holds for the buffer of each lane into which the host may have started to write an incomplete
//! batch. If the host leaves in disorder, neither is ever freed: other code may still read or write it.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

use ascot_index::routing::{Lane, Sent, Topology, Transport, TransportError};

use crate::fault::Fault;

const ABI: u32 = 1;
/// `ASCOT_LANES`.
const LANES: usize = 4;

type Send = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void, usize, u64) -> c_int;
type TakeSent = unsafe extern "C" fn(*mut c_void, *mut u64) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, u32, *mut c_void, usize, *mut usize, *mut u32) -> c_int;
type Wait = unsafe extern "C" fn(*mut c_void, u32) -> c_int;

/// `ascot_transport`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Table {
    abi: u32,
    rank: u32,
    size: u32,
    node_of_rank: *const u32,
    state: *mut c_void,
    send: Option<Send>,
    sent: Option<TakeSent>,
    receive: Option<Receive>,
    wait: Option<Wait>,
    error: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut c_void, c_int)>,
}

/// A transport of the host, or none if one process writes alone.
pub enum Host {
    /// One process.
    Alone,
    /// Several, by the host's functions.
    Brought(Box<Brought>),
}

/// The host's functions, and the batches in transit.
pub struct Brought {
    table: Table,
    topology: Topology,
    send: Send,
    sent: TakeSent,
    receive: Receive,
    wait: Wait,
    under_way: HashMap<u64, Sent>,
    next_ticket: u64,
    /// By lane: the buffer into which the host may be writing.
    arriving: [Option<Vec<u8>>; LANES],
    orderly: bool,
}

// SAFETY: the header says that a writer may be used by any thread, by one at a time, and that its functions call the
// transport in that thread; the provider of a transport promises that it permits this. Nothing here is bound to a
// thread.
#[expect(unsafe_code, reason = "a writer may be used by any thread, which the header demands of a transport")]
unsafe impl std::marker::Send for Brought {}

impl Host {
    /// Checks the host's table.
    ///
    /// # Safety
    /// `table` is null or points to a table whose functions may be called with its state, and whose `node_of_rank` is
    /// null or has `size` numbers.
    #[expect(unsafe_code, reason = "it takes raw pointers of C")]
    pub unsafe fn new(table: *const Table) -> Result<Self, Fault> {
        if table.is_null() {
            return Ok(Self::Alone);
        }
        // SAFETY: not null, and a table as the caller promises.
        let table = unsafe { *table };
        let wrong = |what: &str| Fault::invalid(format!("the transport {what}"));
        if table.abi != ABI {
            return Err(wrong("is of another version of ascot.h than this library"));
        }
        if table.rank >= table.size || table.size > 1 << 24 {
            return Err(wrong("has a rank that is not below its size, or more than 16777216 ranks"));
        }
        let (Some(send), Some(sent), Some(receive), Some(wait)) =
            (table.send, table.sent, table.receive, table.wait)
        else {
            return Err(wrong("lacks one of send, sent, receive, wait"));
        };
        let topology = if table.node_of_rank.is_null() {
            Topology::even(table.size, table.size)
        } else {
            // SAFETY: the caller promises `size` numbers.
            Topology::listed(unsafe { std::slice::from_raw_parts(table.node_of_rank, table.size as usize) })
        };
        Ok(Self::Brought(Box::new(Brought {
            table,
            topology,
            send,
            sent,
            receive,
            wait,
            under_way: HashMap::new(),
            next_ticket: 0,
            arriving: Default::default(),
            orderly: false,
        })))
    }
}

impl Brought {
    #[expect(unsafe_code, reason = "it calls functions that the program brings")]
    fn failed(&self) -> TransportError {
        let text = self.table.error.map(|error| {
            // SAFETY: the host promises that its functions may be called with its state.
            unsafe { error(self.table.state) }
        });
        let what = match text {
            Some(text) if !text.is_null() => {
                // SAFETY: the host returns a C string.
                unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
            }
            _ => "the transport failed without saying why".to_owned(),
        };
        TransportError::Failed { what }
    }
}

impl Transport for Host {
    fn rank(&self) -> u32 {
        match self {
            Self::Alone => 0,
            Self::Brought(host) => host.table.rank,
        }
    }

    fn topology(&self) -> Topology {
        match self {
            Self::Alone => Topology::even(1, 1),
            Self::Brought(host) => host.topology.clone(),
        }
    }

    #[expect(unsafe_code, reason = "it calls functions that the program brings")]
    fn send(&mut self, to: u32, lane: Lane, batch: Vec<u8>) -> Result<(), TransportError> {
        let Self::Brought(host) = self else { return Err(TransportError::PeerGone { rank: to }) };
        let ticket = host.next_ticket;
        host.next_ticket += 1;
        let bytes = batch.as_ptr().cast();
        let length = batch.len();
        host.under_way.insert(ticket, Sent { to, lane, buffer: batch });
        // SAFETY: the bytes stay in `under_way`, unmoved on the heap, until their ticket comes back.
        let code = unsafe { (host.send)(host.table.state, to, lane as u32, bytes, length, ticket) };
        if code < 0 { Err(host.failed()) } else { Ok(()) }
    }

    #[expect(unsafe_code, reason = "it calls functions that the program brings")]
    fn sent(&mut self) -> Result<Option<Sent>, TransportError> {
        let Self::Brought(host) = self else { return Ok(None) };
        if host.under_way.is_empty() {
            return Ok(None);
        }
        let mut ticket = 0;
        // SAFETY: the host promises that its functions may be called with its state.
        match unsafe { (host.sent)(host.table.state, &raw mut ticket) } {
            0 => Ok(None),
            1.. => Ok(host.under_way.remove(&ticket)),
            _ => Err(host.failed()),
        }
    }

    #[expect(unsafe_code, reason = "it calls functions that the program brings")]
    fn receive(&mut self, lane: Lane, into: &mut Vec<u8>) -> Result<Option<u32>, TransportError> {
        let Self::Brought(host) = self else { return Ok(None) };
        let lane_at = lane as usize;
        let Some(place) = host.arriving.get_mut(lane_at) else { return Ok(None) };
        // The caller's buffer stays here until a whole batch is in it.
        let buffer = place.get_or_insert_with(|| std::mem::take(into));
        buffer.clear();
        let mut length = 0;
        let mut from = 0;
        let bytes = buffer.as_mut_ptr().cast();
        let capacity = buffer.capacity();
        // SAFETY: there are `capacity` bytes at `bytes`, the host writes no more, and they stay there until the host
        // reports a complete batch, or for good.
        let code = unsafe {
            (host.receive)(host.table.state, lane as u32, bytes, capacity, &raw mut length, &raw mut from)
        };
        match code {
            0 => Ok(None),
            1.. if length <= capacity => {
                *into = place.take().unwrap_or_default();
                // SAFETY: the host has written `length` bytes, which fit.
                unsafe { into.set_len(length) };
                Ok(Some(from))
            }
            1.. => Err(TransportError::Failed { what: "it gave a batch longer than asked for".to_owned() }),
            _ => Err(host.failed()),
        }
    }

    #[expect(unsafe_code, reason = "it calls functions that the program brings")]
    fn wait(&mut self, timeout: Duration) -> Result<(), TransportError> {
        let Self::Brought(host) = self else { return Ok(()) };
        let microseconds = u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX);
        // SAFETY: the host promises that its functions may be called with its state.
        let code = unsafe { (host.wait)(host.table.state, microseconds) };
        if code < 0 { Err(host.failed()) } else { Ok(()) }
    }

    fn leave(&mut self) {
        if let Self::Brought(host) = self {
            host.orderly = true;
        }
    }
}

impl Drop for Brought {
    #[expect(unsafe_code, reason = "it calls functions that the program brings")]
    fn drop(&mut self) {
        if let Some(release) = self.table.release {
            // SAFETY: this is the last call with this state.
            unsafe { release(self.table.state, c_int::from(self.orderly)) };
        }
        if !self.orderly {
            self.under_way.drain().for_each(|(_, sent)| std::mem::forget(sent.buffer));
            self.arriving.iter_mut().filter_map(Option::take).for_each(std::mem::forget);
        }
    }
}
