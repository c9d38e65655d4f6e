//! The writer's end: receives batches from all workers, and appends them to the files of their destinations.
//!
//! Each connection has a thread, and one descriptor. A thread reads a batch only with one of the [`BUFFERS`], so that memory does not grow
//! with the number of workers: those that wait hold back their senders.
//!
//! Invariants: a batch is appended whole before it is answered. A connection that sends nothing holds no buffer. At most
//! [`STRANGERS_MAX`] connections have not proven the secret; further ones wait until they have, or are ended.

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
use super::wire::{Answer, HANDSHAKE, LENGTH_BYTES, Secret, is_temporary, let_in, prepare};
use crate::api::SortError;

/// Batches in memory at once: one is received while another is written, on each of two processors.
pub(super) const BUFFERS: usize = 4;
/// A sender that stops within a batch for so long is gone.
const STALLED: Duration = Duration::from_secs(30);
/// Connections that may be in the handshake at once.
pub(super) const STRANGERS_MAX: usize = 256;
/// With so many, the oldest one is ended after this time: the handshake of a worker takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which the server then looks whether there is space again.
const CROWDED: Duration = Duration::from_millis(10);
/// Connections that the system keeps until the server takes them: all workers open theirs at the same time.
const BACKLOG: i32 = 4096;
/// Time after which the server tries again to take a connection, such as when no descriptor is left.
const RECOVERY: Duration = Duration::from_millis(200);
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
    /// Connections in the handshake, in the order in which they came, and when each came.
    strangers: Mutex<BTreeMap<u64, (Instant, Arc<TcpStream>)>>,
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
        rustix::net::listen(&listener, BACKLOG).map_err(io::Error::from).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let shared = Arc::new(Shared {
            secret,
            longest: longest_batch(batch_bytes),
            destinations: Mutex::default(),
            buffers: Mutex::new(vec![Vec::new(); BUFFERS]),
            given_back: Condvar::new(),
            connections: Mutex::default(),
            strangers: Mutex::default(),
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

    /// The connections in the handshake.
    #[cfg(test)]
    pub(super) fn strangers(&self) -> usize {
        self.shared.strangers.lock().unpoisoned().len()
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
    for number in 0.. {
        let stream = loop {
            if shared.is_over.load(Relaxed) {
                return;
            }
            match next(listener, shared) {
                Ok(Some(stream)) => break Arc::new(stream),
                Ok(None) => {}
                Err(_) => std::thread::sleep(RECOVERY),
            }
        };
        let mut connections = shared.connections.lock().unpoisoned();
        connections.retain(|weak| weak.strong_count() > 0);
        connections.push(Arc::downgrade(&stream));
        drop(connections);
        shared.strangers.lock().unpoisoned().insert(number, (Instant::now(), Arc::clone(&stream)));
        let own = Arc::clone(shared);
        let thread = spawn("batch", move || {
            // A worker whose connection ended tells its driver.
            let _ = own.serve(&stream, number);
        });
        if thread.is_err() {
            // The connection ends, and the worker tells.
            shared.strangers.lock().unpoisoned().remove(&number);
        }
    }
}

/// The next connection, if one comes soon and there is space for it.
fn next(listener: &TcpListener, shared: &Shared) -> io::Result<Option<TcpStream>> {
    if !shared.has_space() {
        std::thread::sleep(CROWDED);
        return Ok(None);
    }
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    // A signal ends the wait early.
    let _ = poll(&mut polled, Some(&PAUSE));
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) if is_temporary(&error) || error.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
        Err(error) => Err(error),
    }
}

impl Shared {
    /// Whether one more connection may begin its handshake. Else one that takes too long is ended.
    fn has_space(&self) -> bool {
        let strangers = self.strangers.lock().unpoisoned();
        if strangers.len() >= STRANGERS_MAX
            && let Some((came, stream)) = strangers.values().next()
            && came.elapsed() >= PATIENCE
        {
            // Its thread removes it. It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        strangers.len() < STRANGERS_MAX
    }

    fn serve(&self, mut stream: &TcpStream, number: u64) -> io::Result<()> {
        let is_in = self.greet(stream);
        self.strangers.lock().unpoisoned().remove(&number);
        if !is_in? {
            return Ok(());
        }
        loop {
            let mut length = [0; LENGTH_BYTES];
            stream.set_read_timeout(None)?;
            stream.read_exact(&mut length)?;
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

    fn greet(&self, stream: &TcpStream) -> io::Result<bool> {
        stream.set_nonblocking(false)?;
        prepare(stream)?;
        let_in(stream, &self.secret, Instant::now() + HANDSHAKE)
    }

    fn receive(&self, mut stream: &TcpStream, mut buffer: Buffer<'_>, length: usize) -> io::Result<Answer> {
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
