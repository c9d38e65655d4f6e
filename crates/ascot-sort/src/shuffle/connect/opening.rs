//! Opens the connections of a worker: to all writers at once, so that those that do not answer cost one wait together.
//!
//! Invariant: a connection that is given has proven the secret of the job.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::wire::{GREETING_BYTES, Nonces, PAUSE, PROOF_BYTES, Secret, Side, is_temporary, prepare};
use crate::api::{Cancel, SortError};

/// Opens a connection to each address, all within `time`.
///
/// # Errors
/// [`SortError::Cancelled`].
pub(super) fn open_all(
    addresses: &[SocketAddr],
    secret: &Secret,
    time: Duration,
    cancel: &Cancel,
) -> Result<Vec<io::Result<TcpStream>>, SortError> {
    let until = Instant::now() + time;
    let mut done = BTreeMap::new();
    let mut opening = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        match begin(address) {
            Ok(stream) => {
                opening.push(Opening { number, stream, state: State::Connecting, came: Vec::new() })
            }
            Err(error) => {
                done.insert(number, Err(error));
            }
        }
    }
    while !opening.is_empty() {
        cancel.check()?;
        let ready = wait(&opening);
        let is_late = Instant::now() >= until;
        let mut open = Vec::with_capacity(opening.len());
        for (mut one, is_ready) in opening.into_iter().zip(ready) {
            let is_open = if is_ready { one.advance(secret) } else { Ok(false) };
            match is_open {
                Ok(true) => {
                    done.insert(one.number, Ok(one.stream));
                }
                Ok(false) if is_late => {
                    done.insert(one.number, Err(one.late()));
                }
                Ok(false) => open.push(one),
                Err(error) => {
                    done.insert(one.number, Err(error));
                }
            }
        }
        opening = open;
    }
    Ok(done.into_values().collect())
}

fn begin(address: &SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    match connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// Whether something has happened on each connection.
fn wait(opening: &[Opening]) -> Vec<bool> {
    let mut polled: Vec<PollFd<'_>> = opening
        .iter()
        .map(|one| {
            let is_connecting = matches!(one.state, State::Connecting);
            PollFd::new(&one.stream, if is_connecting { PollFlags::OUT } else { PollFlags::IN })
        })
        .collect();
    // After a signal nothing is ready, and the caller looks at the job.
    let _ = poll(&mut polled, Some(&PAUSE));
    polled.iter().map(|one| !one.revents().is_empty()).collect()
}

/// A connection that is not open yet.
struct Opening {
    number: usize,
    stream: TcpStream,
    state: State,
    /// What has come of the message of the writer.
    came: Vec<u8>,
}

enum State {
    Connecting,
    /// The greeting comes.
    Greeting,
    /// The proof of the writer comes.
    Proof(Nonces),
}

impl Opening {
    /// Does the next step. Returns whether the connection is open.
    fn advance(&mut self, secret: &Secret) -> io::Result<bool> {
        match &self.state {
            State::Connecting => {
                sockopt::socket_error(&self.stream)??;
                prepare(&self.stream)?;
                self.state = State::Greeting;
            }
            State::Greeting => {
                if self.has_come(GREETING_BYTES)? {
                    let (nonces, entry) = secret.enter(&self.came)?;
                    // So few bytes always have space.
                    self.stream.write_all(&entry)?;
                    self.came.clear();
                    self.state = State::Proof(nonces);
                }
            }
            State::Proof(nonces) => {
                let nonces = nonces.clone();
                if self.has_come(PROOF_BYTES)? {
                    if !secret.accepts(Side::Writer, &nonces, &self.came) {
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
    fn has_come(&mut self, bytes: usize) -> io::Result<bool> {
        let mut buffer = [0; GREETING_BYTES];
        match self.stream.read(&mut buffer[..bytes - self.came.len()]) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended in the handshake")),
            Ok(read) => {
                self.came.extend(&buffer[..read]);
                Ok(self.came.len() == bytes)
            }
            Err(error) if is_temporary(&error) => Ok(false),
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
    use super::super::wire::{ENTRY_BYTES, MAGIC, let_in};
    use super::*;

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
    fn writers_that_do_not_answer_cost_one_wait_together() {
        let full: Vec<_> = (0..4).map(|_| full()).collect();
        let (silent, silent_address) = listener();
        let (writer, own_address) = listener();
        let mut addresses: Vec<SocketAddr> = full.iter().map(|(_, address, _)| *address).collect();
        addresses.extend([silent_address, own_address]);
        let writer = thread::spawn(move || {
            let (stream, _) = writer.accept().expect("a worker");
            let until = Instant::now() + Duration::from_secs(5);
            assert!(let_in(&stream, &OWN, until).expect("a handshake"));
            stream
        });
        let began = Instant::now();
        let time = Duration::from_millis(1000);
        let opened = open_all(&addresses, &OWN, time, &Cancel::new()).expect("not cancelled");
        let took = began.elapsed();
        assert!(took >= time && took < 2 * time, "{took:?}");
        let texts: Vec<String> = opened
            .iter()
            .map(|one| one.as_ref().map_or_else(|error| error.to_string(), |_| "open".to_owned()))
            .collect();
        let late = "timed out";
        assert_eq!(texts, [late, late, late, late, "timed out in the handshake", "open"]);
        drop((silent, writer.join().expect("the writer")));
    }

    #[test]
    fn a_job_that_is_cancelled_does_not_wait_for_connections() {
        let (_listener, address, _first) = full();
        let cancel = Cancel::new();
        cancel.cancel();
        assert!(matches!(open_all(&[address], &OWN, Duration::MAX / 4, &cancel), Err(SortError::Cancelled)));
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
        let opened = open_all(&[address], &OWN, time, &Cancel::new()).expect("not cancelled");
        let error = opened.into_iter().next().expect("one").expect_err("a stranger");
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
