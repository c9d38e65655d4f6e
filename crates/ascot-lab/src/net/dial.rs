//! Calls another peer until it answers, and proves the token to it.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::handshake::{HandshakeError, Hello, Refusal, call};
use super::participant::Participant;
use super::wire::WireError;

/// Time of an attempt, so that the end of the run is noticed.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Why no connection was made.
#[derive(Debug)]
pub(super) enum DialError {
    /// The peer refused, or did not prove the token.
    Refused(Refusal),
    /// It was not reached in time; the last reason.
    Late(String),
    /// The run ends.
    Halted,
}

/// Calls a peer until the deadline; `each_try` gets the reason of every attempt that failed.
pub(super) fn dial(
    participant: &Participant,
    hello: Hello,
    deadline: Instant,
    each_try: &mut dyn FnMut(&str),
) -> Result<TcpStream, DialError> {
    loop {
        if participant.halt.is_set() {
            return Err(DialError::Halted);
        }
        let reason = match attempt(participant, hello) {
            Ok(stream) => return Ok(stream),
            Err(HandshakeError::Refused(refusal)) => return Err(DialError::Refused(refusal)),
            Err(HandshakeError::Wire(WireError::Halted)) => return Err(DialError::Halted),
            Err(HandshakeError::Wire(error)) => error.to_string(),
        };
        each_try(&reason);
        if Instant::now() >= deadline {
            return Err(DialError::Late(reason));
        }
        sleep(PAUSE);
    }
}

fn attempt(participant: &Participant, hello: Hello) -> Result<TcpStream, HandshakeError> {
    let mut last = WireError::Os(io::Error::other("its name has no address"));
    let addresses = participant.addresses(hello.callee).map_err(WireError::Os)?;
    for address in addresses {
        match connect(&address) {
            Ok(stream) => {
                return call(&stream, hello, &participant.token, &participant.halt).map(|()| stream);
            }
            Err(error) => last = WireError::Os(error),
        }
    }
    Err(last.into())
}

fn connect(address: &SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(address, ATTEMPT)
}
