//! The writer's end: receives batches from all workers, and appends them to the files of their destinations.
//!
//! A thread reads a batch only with one of a few buffers, so that memory does not grow with the number of workers:
//! those that wait hold back their senders.
//!
//! Invariants: a batch is appended whole before it is answered. A connection that sends nothing holds no buffer.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ascot_io::{IoError, Unpoisoned};

use super::super::PartitionFiles;
use super::super::batch::{Batch, longest_batch};
use super::listener::{Connection, Listener, Service};
use super::wire::{Answer, LENGTH_BYTES, Secret};
use crate::api::{Result, SortError};

/// Buffers of a server unless it is told otherwise: one batch is received while another is written, on each of two
/// processors.
pub const BUFFERS: usize = 4;
/// A sender that stops within a batch for so long is gone.
const STALLED: Duration = Duration::from_secs(30);

/// The files of a destination; none once they were removed.
pub type SharedFiles = Arc<Mutex<Option<PartitionFiles>>>;

/// Receives batches until it is dropped.
pub struct BatchServer {
    listener: Listener<Batches>,
}

struct Batches {
    /// Maximum length of a batch, bytes.
    longest: usize,
    destinations: Mutex<BTreeMap<u32, SharedFiles>>,
    buffers: Mutex<Vec<Vec<u8>>>,
    given_back: Condvar,
    bytes: AtomicU64,
    appending: Mutex<Appending>,
}

/// The time in which at least one batch was being appended: what several threads do at once counts once, so that it is
/// never more than the time that passed.
#[derive(Default)]
struct Appending {
    threads: usize,
    /// When the first of these threads began, or the time was taken last.
    since: Option<Instant>,
    total: Duration,
}

impl Appending {
    fn begin(&mut self, now: Instant) {
        self.threads += 1;
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant) {
        self.threads -= 1;
        if self.threads == 0 {
            self.total += self.since.take().map_or(Duration::ZERO, |since| now - since);
        }
    }

    /// The time since it was taken last.
    fn take(&mut self, now: Instant) -> Duration {
        if let Some(since) = &mut self.since {
            self.total += now.saturating_duration_since(*since);
            *since = now;
        }
        std::mem::take(&mut self.total)
    }
}

impl BatchServer {
    /// Listens at a free port of `address` for workers that have the secret, and batches of about `batch_bytes`, of
    /// which at most `buffers` are in memory at once.
    ///
    /// # Errors
    /// That of the system if it cannot listen there or start a thread.
    pub fn start(address: IpAddr, secret: Secret, batch_bytes: usize, buffers: usize) -> Result<BatchServer> {
        let batches = Batches {
            longest: longest_batch(batch_bytes),
            destinations: Mutex::default(),
            buffers: Mutex::new(vec![Vec::new(); buffers.max(1)]),
            given_back: Condvar::new(),
            bytes: AtomicU64::new(0),
            appending: Mutex::default(),
        };
        Ok(BatchServer { listener: Listener::start(address, secret, batches)? })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.listener.port()
    }

    /// Receives batches for a destination from here on.
    pub fn add(&self, destination: u32, files: SharedFiles) {
        self.listener.service().destinations.lock().unpoisoned().insert(destination, files);
    }

    /// The buffers that no thread has, and their bytes.
    #[cfg(test)]
    pub(super) fn buffers(&self) -> (usize, usize) {
        let buffers = self.listener.service().buffers.lock().unpoisoned();
        (buffers.len(), buffers.iter().map(Vec::capacity).sum())
    }

    /// The connections in the handshake.
    #[cfg(test)]
    pub(super) fn strangers(&self) -> usize {
        self.listener.strangers()
    }

    /// Bytes received, and the time in which batches were appended, since the last call.
    pub fn account(&self) -> (u64, Duration) {
        let own = self.listener.service();
        let appending = own.appending.lock().unpoisoned().take(Instant::now());
        (own.bytes.swap(0, Relaxed), appending)
    }
}

impl Service for Batches {
    fn serve(&self, connection: &Connection) -> io::Result<()> {
        let mut stream = &connection.stream;
        loop {
            let mut length = [0; LENGTH_BYTES];
            stream.set_read_timeout(None)?;
            connection.set_idle();
            stream.read_exact(&mut length)?;
            connection.set_busy();
            stream.set_read_timeout(Some(STALLED))?;
            let length = u32::from_le_bytes(length) as usize;
            if length > self.longest {
                let answer = Answer::Damaged(format!("a batch of {length} bytes is too long"));
                return stream.write_all(&answer.encode());
            }
            let buffer = Buffer { bytes: self.take_buffer(), owner: self };
            let answer = self.receive(stream, buffer, length)?;
            stream.write_all(&answer.encode())?;
        }
    }
}

impl Batches {
    fn receive(&self, mut stream: &TcpStream, mut buffer: Buffer<'_>, length: usize) -> io::Result<Answer> {
        if buffer.bytes.len() < length {
            buffer.bytes.resize(length, 0);
        }
        let bytes = &mut buffer.bytes[..length];
        stream.read_exact(bytes)?;
        self.appending.lock().unpoisoned().begin(Instant::now());
        let answer = self.append(bytes);
        self.appending.lock().unpoisoned().end(Instant::now());
        self.bytes.fetch_add(length as u64, Relaxed);
        Ok(answer)
    }

    fn append(&self, bytes: &[u8]) -> Answer {
        let batch = match Batch::parse(bytes) {
            Ok(batch) => batch,
            Err(what) => return Answer::Damaged(what.into()),
        };
        let number = batch.number.destination;
        let files = self.destinations.lock().unpoisoned().get(&number).cloned();
        let Some(files) = files else {
            return Answer::Failed(format!("destination {number} is not on this node"));
        };
        match files.lock().unpoisoned().as_mut().map(|files| files.append_batch(&batch)) {
            Some(Ok(true)) => Answer::New,
            Some(Ok(false)) => Answer::Known,
            Some(Err(SortError::Io(error @ IoError::Corrupt { .. }))) => Answer::Damaged(error.to_string()),
            Some(Err(error)) => Answer::Failed(error.to_string()),
            None => Answer::Failed(format!("the files of destination {number} were removed")),
        }
    }

    fn take_buffer(&self) -> Vec<u8> {
        let mut buffers = self.buffers.lock().unpoisoned();
        loop {
            if let Some(buffer) = buffers.pop() {
                return buffer;
            }
            buffers = self.given_back.wait(buffers).unpoisoned();
        }
    }
}

/// A buffer that goes back to the others.
struct Buffer<'a> {
    bytes: Vec<u8>,
    owner: &'a Batches,
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.owner.buffers.lock().unpoisoned().push(std::mem::take(&mut self.bytes));
        self.owner.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_are_appended_at_the_same_time_count_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut appending = Appending::default();
        appending.begin(at(0));
        appending.begin(at(10));
        appending.end(at(30));
        assert_eq!(appending.take(at(40)), Duration::from_millis(40), "one still appends");
        appending.end(at(50));
        appending.begin(at(70));
        appending.end(at(75));
        assert_eq!(appending.take(at(100)), Duration::from_millis(15));
        assert_eq!(appending.take(at(200)), Duration::ZERO);
    }
}
