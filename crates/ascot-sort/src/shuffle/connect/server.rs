//! The writer's end: receives batches from all workers, and appends them to the files of their destinations.
//!
//! Each connection has a thread. A thread reads a batch only with one of the [`BUFFERS`], so that memory does not grow
//! with the number of workers: those that wait hold back their senders.
//!
//! Invariants: a batch is appended whole before it is answered. A connection that sends nothing holds no buffer.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use ascot_io::threads::{Thread, spawn};
use ascot_io::{Action, IoError, Unpoisoned};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::PartitionFiles;
use super::super::batch::{Batch, longest_batch};
use super::wire::{Answer, LENGTH_BYTES, Secret, let_in, prepare};
use crate::api::SortError;

/// Batches in memory at once: one is received while another is written, on each of two processors.
pub(super) const BUFFERS: usize = 4;
/// A sender that stops within a batch for so long is gone.
const STALLED: Duration = Duration::from_secs(30);
/// Interval at which the server looks whether it should end.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The files of a destination; none once they were removed.
pub type SharedFiles = Arc<Mutex<Option<PartitionFiles>>>;

/// Receives batches until it is dropped.
pub struct BatchServer {
    port: u16,
    shared: Arc<Shared>,
    thread: Option<Thread<()>>,
}

struct Shared {
    secret: Secret,
    /// Maximum length of a batch, bytes.
    longest: usize,
    destinations: Mutex<BTreeMap<u32, SharedFiles>>,
    buffers: Mutex<Vec<Vec<u8>>>,
    given_back: Condvar,
    connections: Mutex<Vec<Weak<TcpStream>>>,
    is_over: AtomicBool,
    bytes: AtomicU64,
    writing_ns: AtomicU64,
}

impl BatchServer {
    /// Listens at a free port of `address` for workers that have the secret, and batches of about `batch_bytes`.
    ///
    /// # Errors
    /// That of the system if it cannot listen there or start a thread.
    pub fn start(address: IpAddr, secret: Secret, batch_bytes: usize) -> Result<BatchServer, SortError> {
        let name = format!("a port of {address}");
        let failed = |error| IoError::from_os(Action::Open, Path::new(&name), 0, error);
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let shared = Arc::new(Shared {
            secret,
            longest: longest_batch(batch_bytes),
            destinations: Mutex::default(),
            buffers: Mutex::new(vec![Vec::new(); BUFFERS]),
            given_back: Condvar::new(),
            connections: Mutex::default(),
            is_over: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            writing_ns: AtomicU64::new(0),
        });
        let own = Arc::clone(&shared);
        let thread = spawn("batches", move || accept(&listener, &own))?;
        Ok(BatchServer { port, shared, thread: Some(thread) })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Receives batches for a destination from here on.
    pub fn add(&self, destination: u32, files: SharedFiles) {
        self.shared.destinations.lock().unpoisoned().insert(destination, files);
    }

    /// The buffers that no thread has, and their bytes.
    #[cfg(test)]
    pub(super) fn buffers(&self) -> (usize, usize) {
        let buffers = self.shared.buffers.lock().unpoisoned();
        (buffers.len(), buffers.iter().map(Vec::capacity).sum())
    }

    /// Bytes received and time spent appending them since the last call.
    pub fn account(&self) -> (u64, Duration) {
        let writing = Duration::from_nanos(self.shared.writing_ns.swap(0, Relaxed));
        (self.shared.bytes.swap(0, Relaxed), writing)
    }
}

impl Drop for BatchServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
        for stream in self.shared.connections.lock().unpoisoned().drain(..).filter_map(|weak| weak.upgrade())
        {
            // One that has ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.is_over.load(Relaxed) {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        // A signal ends the wait early.
        let _ = poll(&mut polled, Some(&PAUSE));
        while let Ok((stream, _)) = listener.accept() {
            let stream = Arc::new(stream);
            let mut connections = shared.connections.lock().unpoisoned();
            connections.retain(|weak| weak.strong_count() > 0);
            connections.push(Arc::downgrade(&stream));
            drop(connections);
            let own = Arc::clone(shared);
            // Without a thread the connection ends, and the worker tells.
            let _ = spawn("batch", move || {
                // A worker whose connection ended tells its driver.
                let _ = own.serve(&stream);
            });
        }
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        prepare(stream)?;
        let mut handle = stream.try_clone()?;
        if !let_in(&mut handle, &self.secret)? {
            return Ok(());
        }
        loop {
            let mut length = [0; LENGTH_BYTES];
            handle.set_read_timeout(None)?;
            handle.read_exact(&mut length)?;
            handle.set_read_timeout(Some(STALLED))?;
            let length = u32::from_le_bytes(length) as usize;
            if length > self.longest {
                let answer = Answer::Damaged(format!("a batch of {length} bytes is too long"));
                return handle.write_all(&answer.encode());
            }
            let buffer = Buffer { bytes: self.take_buffer(), owner: self };
            let answer = self.receive(&mut handle, buffer, length)?;
            handle.write_all(&answer.encode())?;
        }
    }

    fn receive(&self, stream: &mut TcpStream, mut buffer: Buffer<'_>, length: usize) -> io::Result<Answer> {
        if buffer.bytes.len() < length {
            buffer.bytes.resize(length, 0);
        }
        let bytes = &mut buffer.bytes[..length];
        stream.read_exact(bytes)?;
        let began = Instant::now();
        let answer = self.append(bytes);
        self.bytes.fetch_add(length as u64, Relaxed);
        self.writing_ns.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
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
    owner: &'a Shared,
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.owner.buffers.lock().unpoisoned().push(std::mem::take(&mut self.bytes));
        self.owner.given_back.notify_one();
    }
}
