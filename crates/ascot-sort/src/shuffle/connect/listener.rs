//! A server of a node: takes connections, and serves those of processes that have the secret, each in a thread with one
//! descriptor.
//!
//! Invariants: at most [`STRANGERS_MAX`] connections have not proven the secret; further ones wait until they have, or
//! are ended. When no descriptor is left, a connection that has been idle for [`IDLE_MIN`] is ended in favour of one
//! that waits: idle connections of some workers do not keep others out.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ascot_io::threads::{Thread, spawn};
use ascot_io::{Action, During, Unpoisoned, is_passing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::wire::{HANDSHAKE, Secret, let_in, prepare};
use crate::api::Result;

/// Connections that may be in the handshake at once.
pub(super) const STRANGERS_MAX: usize = 256;
/// If there are `STRANGERS_MAX`, the oldest one is ended after this time: the handshake of a worker takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which the server then looks whether there is space again.
const CROWDED: Duration = Duration::from_millis(10);
/// Connections that the system keeps until the server takes them: all workers open theirs at the same time.
const BACKLOG: i32 = 4096;
/// Time after which the server tries again to take a connection, such as when no descriptor is left.
const RECOVERY: Duration = Duration::from_millis(20);
/// A connection that has been idle for so long may be ended when no descriptor is left.
const IDLE_MIN: Duration = Duration::from_millis(500);
/// Interval at which the server looks whether it should end.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The work of a server.
pub(super) trait Service: Send + Sync + 'static {
    /// Serves a connection of a process that has the secret, until it ends.
    fn serve(&self, connection: &Connection) -> io::Result<()>;
}

/// A connection of a process.
pub(super) struct Connection {
    pub stream: TcpStream,
    /// Since when it waits for its next request; none if it does not, or has never said so.
    idle_since: Mutex<Option<Instant>>,
}

impl Connection {
    fn new(stream: TcpStream) -> Connection {
        Connection { stream, idle_since: Mutex::new(None) }
    }

    /// Waits for the next request from here on. The connection may be ended meanwhile.
    pub fn set_idle(&self) {
        *self.idle_since.lock().unpoisoned() = Some(Instant::now());
    }

    /// Has a request.
    pub fn set_busy(&self) {
        *self.idle_since.lock().unpoisoned() = None;
    }

    /// Since when it has been idle, if for long enough.
    fn idle_since(&self) -> Option<Instant> {
        self.idle_since.lock().unpoisoned().filter(|since| since.elapsed() >= IDLE_MIN)
    }

    /// Ends it, for both sides. It may have ended already.
    fn end(&self) {
        self.set_busy();
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Takes connections until it is dropped.
pub(super) struct Listener<S> {
    port: u16,
    shared: Arc<Shared<S>>,
    thread: Option<Thread<()>>,
}

struct Shared<S> {
    secret: Secret,
    service: S,
    connections: Mutex<Vec<Weak<Connection>>>,
    /// Connections in the handshake, in the order in which they came, and when each came.
    strangers: Mutex<BTreeMap<u64, (Instant, Arc<Connection>)>>,
    is_over: AtomicBool,
}

impl<S: Service> Listener<S> {
    /// Listens at a free port of `address` for processes that have the secret.
    ///
    /// # Errors
    /// That of the system if it cannot listen there or start a thread.
    pub fn start(address: IpAddr, secret: Secret, service: S) -> Result<Listener<S>> {
        let name = format!("a port of {address}");
        let listener = TcpListener::bind((address, 0)).during(Action::Open, Path::new(&name))?;
        rustix::net::listen(&listener, BACKLOG)
            .map_err(io::Error::from)
            .during(Action::Open, Path::new(&name))?;
        listener.set_nonblocking(true).during(Action::Open, Path::new(&name))?;
        let port = listener.local_addr().during(Action::Open, Path::new(&name))?.port();
        let shared = Arc::new(Shared {
            secret,
            service,
            connections: Mutex::default(),
            strangers: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = spawn("connections", move || accept(&listener, &own))?;
        Ok(Listener { port, shared, thread: Some(thread) })
    }
}

impl<S> Listener<S> {
    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The work of the server.
    pub fn service(&self) -> &S {
        &self.shared.service
    }

    /// The connections in the handshake.
    #[cfg(test)]
    pub fn strangers(&self) -> usize {
        self.shared.strangers.lock().unpoisoned().len()
    }
}

impl<S> Drop for Listener<S> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
        for connection in self.shared.connections.lock().unpoisoned().iter().filter_map(Weak::upgrade) {
            connection.end();
        }
    }
}

fn accept<S: Service>(listener: &TcpListener, shared: &Arc<Shared<S>>) {
    for number in 0.. {
        let connection = loop {
            if shared.is_over.load(Relaxed) {
                return;
            }
            match next(listener, shared) {
                Ok(Some(stream)) => break Arc::new(Connection::new(stream)),
                Ok(None) => {}
                // Its thread gives the descriptor back.
                Err(_) if shared.end_idle() => std::thread::sleep(CROWDED),
                Err(_) => std::thread::sleep(RECOVERY),
            }
        };
        let mut connections = shared.connections.lock().unpoisoned();
        connections.retain(|weak| weak.strong_count() > 0);
        connections.push(Arc::downgrade(&connection));
        drop(connections);
        shared.strangers.lock().unpoisoned().insert(number, (Instant::now(), Arc::clone(&connection)));
        let own = Arc::clone(shared);
        let thread = spawn("connection", move || {
            // A worker whose connection ended tells its driver.
            let _ = own.greet_and_serve(&connection, number);
        });
        if thread.is_err() {
            // The connection ends, and the worker tells.
            shared.strangers.lock().unpoisoned().remove(&number);
        }
    }
}

/// The next connection, if one comes soon and there is space for it.
fn next<S>(listener: &TcpListener, shared: &Shared<S>) -> io::Result<Option<TcpStream>> {
    if !shared.has_space() {
        std::thread::sleep(CROWDED);
        return Ok(None);
    }
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    // A signal ends the wait early.
    let _ = poll(&mut polled, Some(&PAUSE));
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) if is_passing(&error) || error.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
        Err(error) => Err(error),
    }
}

impl<S> Shared<S> {
    /// Whether one more connection may begin its handshake. Else one that takes too long is ended.
    fn has_space(&self) -> bool {
        let strangers = self.strangers.lock().unpoisoned();
        if strangers.len() >= STRANGERS_MAX
            && let Some((came, connection)) = strangers.values().next()
            && came.elapsed() >= PATIENCE
        {
            // Its thread removes it.
            connection.end();
        }
        strangers.len() < STRANGERS_MAX
    }

    /// Ends the connection that has been idle for longest. Returns whether there was one.
    fn end_idle(&self) -> bool {
        let connections = self.connections.lock().unpoisoned();
        let idle = connections.iter().filter_map(Weak::upgrade);
        let longest = idle.filter_map(|one| Some((one.idle_since()?, one))).min_by_key(|(since, _)| *since);
        longest.is_some_and(|(_, connection)| {
            connection.end();
            true
        })
    }

    fn greet(&self, stream: &TcpStream) -> io::Result<bool> {
        stream.set_nonblocking(false)?;
        prepare(stream)?;
        let_in(stream, &self.secret, Instant::now() + HANDSHAKE)
    }
}

impl<S: Service> Shared<S> {
    fn greet_and_serve(&self, connection: &Connection, number: u64) -> io::Result<()> {
        let is_in = self.greet(&connection.stream);
        self.strangers.lock().unpoisoned().remove(&number);
        if is_in? { self.service.serve(connection) } else { Ok(()) }
    }
}
