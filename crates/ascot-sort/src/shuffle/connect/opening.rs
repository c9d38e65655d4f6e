//! Opens a connection of a worker in steps, so that one thread can open several at once and use others meanwhile.
//!
//! Invariant: a connection that is given has proven the secret of the job.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ascot_io::is_passing;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::wire::{GREETING_BYTES, Nonces, PAUSE, PROOF_BYTES, Role, Secret, prepare};
use crate::api::{Cancel, Result};

/// Opens a connection within `time`.
///
/// # Errors
/// [`SortError::Cancelled`](crate::api::SortError::Cancelled).
pub(super) fn open(
    address: &SocketAddr,
    secret: &Secret,
    time: Duration,
    cancel: &Cancel,
) -> Result<io::Result<TcpStream>> {
    let (mut stream, mut opening) = match Opening::begin(address, time) {
        Ok(begun) => begun,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        cancel.check()?;
        let mut polled = [PollFd::new(&stream, opening.wanted())];
        // After a signal nothing is ready, and the loop looks at the job.
        let _ = poll(&mut polled, Some(&PAUSE));
        let is_ready = !polled[0].revents().is_empty();
        match opening.advance(&mut stream, is_ready, secret) {
            Ok(true) => return Ok(Ok(stream)),
            Ok(false) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// How far a connection is that is not open yet.
pub(super) struct Opening {
    state: State,
    /// What has come of the message of the writer.
    came: Vec<u8>,
    until: Instant,
}

enum State {
    Connecting,
    /// The greeting comes.
    Greeting,
    /// The proof of the writer comes.
    Proof(Nonces),
}

impl Opening {
    /// Begins to open a connection, which must be open within `time`.
    ///
    /// # Errors
    /// That of the system, such as that no descriptor is left.
    pub fn begin(address: &SocketAddr, time: Duration) -> io::Result<(TcpStream, Opening)> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let opening = Opening { state: State::Connecting, came: Vec::new(), until: Instant::now() + time };
        Ok((socket.into(), opening))
    }

    /// What the next step waits for.
    pub fn wanted(&self) -> PollFlags {
        if matches!(self.state, State::Connecting) { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Does the next step if the connection is ready for it. Returns whether the connection is open.
    ///
    /// # Errors
    /// Those of the connection, and one that is not open in time.
    pub fn advance(&mut self, stream: &mut TcpStream, is_ready: bool, secret: &Secret) -> io::Result<bool> {
        if is_ready && self.step(stream, secret)? {
            return Ok(true);
        }
        if Instant::now() >= self.until { Err(self.late()) } else { Ok(false) }
    }

    fn step(&mut self, stream: &mut TcpStream, secret: &Secret) -> io::Result<bool> {
        match &self.state {
            State::Connecting => {
                sockopt::socket_error(&*stream)??;
                prepare(stream)?;
                self.state = State::Greeting;
            }
            State::Greeting => {
                if self.has_come(stream, GREETING_BYTES)? {
                    let (nonces, entry) = secret.enter(&self.came)?;
                    // So few bytes always have space.
                    stream.write_all(&entry)?;
                    self.came.clear();
                    self.state = State::Proof(nonces);
                }
            }
            State::Proof(nonces) => {
                let nonces = nonces.clone();
                if self.has_come(stream, PROOF_BYTES)? {
                    if !secret.accepts(Role::Writer, &nonces, &self.came) {
                        return Err(io::Error::other(
                            "another program listens there: it does not have the secret of the job",
                        ));
                    }
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Reads what is there of a message. Returns whether it is whole.
    fn has_come(&mut self, stream: &mut TcpStream, bytes: usize) -> io::Result<bool> {
        let mut buffer = [0; GREETING_BYTES];
        match stream.read(&mut buffer[..bytes - self.came.len()]) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended in the handshake")),
            Ok(read) => {
                self.came.extend(&buffer[..read]);
                Ok(self.came.len() == bytes)
            }
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The error for a connection that is not open in time.
    fn late(&self) -> io::Error {
        let text = match self.state {
            State::Connecting => "timed out",
            State::Greeting | State::Proof(_) => "timed out in the handshake",
        };
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::super::SECRET_BYTES;
    use super::super::wire::{ENTRY_BYTES, MAGIC};
    use super::*;
    use crate::api::SortError;

    const OWN: Secret = Secret([7; SECRET_BYTES]);

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        (listener, address)
    }

    /// A listener without space for one more connection, to which packets are dropped.
    fn full() -> (TcpListener, SocketAddr, TcpStream) {
        let (listener, address) = listener();
        rustix::net::listen(&listener, 0).expect("a listener");
        let first = TcpStream::connect(address).expect("the only connection");
        (listener, address, first)
    }

    #[test]
    fn a_job_that_is_cancelled_does_not_wait_for_connections() {
        let (_listener, address, _first) = full();
        let cancel = Cancel::new();
        cancel.cancel();
        assert!(matches!(open(&address, &OWN, Duration::from_secs(60), &cancel), Err(SortError::Cancelled)));
    }

    /// A listener without the secret, which answers the worker's entry. Returns what it got.
    fn entered(time: Duration, answer: fn(&[u8]) -> Vec<u8>) -> io::Error {
        let (listener, address) = listener();
        let stranger = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a worker");
            stream.write_all(&[&MAGIC[..], &[9; 32]].concat()).expect("sent");
            let mut entry = [0; ENTRY_BYTES];
            stream.read_exact(&mut entry).expect("an entry");
            stream.write_all(&answer(&entry)).expect("sent");
            // The worker sends nothing more.
            let mut more = Vec::new();
            let _ = stream.read_to_end(&mut more);
            assert!(more.is_empty(), "{} bytes", more.len());
        });
        let opened = open(&address, &OWN, time, &Cancel::new()).expect("not cancelled");
        let error = opened.expect_err("a stranger");
        stranger.join().expect("the stranger");
        error
    }

    #[test]
    fn a_listener_without_the_secret_gets_no_batches() {
        for answer in [
            |_: &[u8]| vec![1; PROOF_BYTES],
            // The worker's own proof.
            |entry: &[u8]| entry[ENTRY_BYTES - PROOF_BYTES..].to_vec(),
        ] {
            assert!(entered(Duration::from_secs(10), answer).to_string().contains("not have the secret"));
        }
        let error = entered(Duration::from_millis(500), |_| vec![1]);
        assert_eq!(error.to_string(), "timed out in the handshake");
    }
}
