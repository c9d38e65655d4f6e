//! Bytes on a connection: reads and writes that end when the run ends, when their time is over, or when the other side
//! is gone; and frames of limited length.
//!
//! ```text
//!   frame:  length (4 bytes, little endian) | JSON of that length
//! ```
//!
//! Invariant: no length from the network is used before it is compared with [`MAX_FRAME_BYTES`].

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Interval at which a wait on a connection checks whether the run goes on.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// The longest frame: the report of a thousand peers and several dozen rounds.
pub(super) const MAX_FRAME_BYTES: usize = 16 << 20;

/// Whether a run goes on: the caller may cancel it, and the run itself may end.
#[derive(Clone, Debug)]
pub(super) struct Halt {
    cancel: Arc<AtomicBool>,
    own: Arc<AtomicBool>,
}

impl Halt {
    pub(super) fn new(cancel: &Arc<AtomicBool>) -> Halt {
        Halt { cancel: Arc::clone(cancel), own: Arc::default() }
    }

    /// Ends the run.
    pub(super) fn end(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// Whether the run ends, for any reason.
    pub(super) fn is_set(&self) -> bool {
        self.is_cancelled() || self.own.load(Ordering::Relaxed)
    }

    /// Whether the caller cancelled it.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// Why bytes did not move.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// The other side closed the connection, or its process ended.
    #[error("the connection ended")]
    Ended,
    /// Nothing moved for too long.
    #[error("no answer for {0} s")]
    Silent(u64),
    /// The run ends.
    #[error("stopped")]
    Halted,
    /// Bytes that no peer of this version sends.
    #[error("an invalid message ({0})")]
    Invalid(&'static str),
    /// The system's error.
    #[error("{0}")]
    Os(io::Error),
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> WireError {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof, WriteZero,
        };
        match error.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof | WriteZero => {
                WireError::Ended
            }
            _ => WireError::Os(error),
        }
    }
}

/// The settings that all connections share.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(POLL))?;
    stream.set_write_timeout(Some(POLL))
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Ends a wait: when the run ends, or nothing has moved for `patience`.
pub(super) struct Patience<'a> {
    halt: &'a Halt,
    patience: Duration,
    since: Instant,
}

impl<'a> Patience<'a> {
    pub(super) fn new(halt: &'a Halt, patience: Duration) -> Patience<'a> {
        Patience { halt, patience, since: Instant::now() }
    }

    /// Something moved.
    fn renew(&mut self) {
        self.since = Instant::now();
    }

    fn check(&self) -> Result<(), WireError> {
        if self.halt.is_set() {
            Err(WireError::Halted)
        } else if self.since.elapsed() > self.patience {
            Err(WireError::Silent(self.patience.as_secs()))
        } else {
            Ok(())
        }
    }
}

/// Fills `bytes`; `each_wait` is called whenever nothing arrived for a moment.
pub(super) fn read_exact(
    mut stream: &TcpStream,
    bytes: &mut [u8],
    patience: &mut Patience<'_>,
    mut each_wait: impl FnMut() -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) => return Err(WireError::Ended),
            Ok(count) => {
                done += count;
                patience.renew();
                if patience.halt.is_set() {
                    return Err(WireError::Halted);
                }
            }
            Err(error) if is_later(&error) => {
                patience.check()?;
                each_wait()?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes `head` and then `body`, in as few system calls as possible.
pub(super) fn write_both(
    mut stream: &TcpStream,
    head: &[u8],
    body: &[u8],
    patience: &mut Patience<'_>,
) -> Result<(), WireError> {
    let mut head = head;
    let mut body = body;
    while !head.is_empty() || !body.is_empty() {
        match stream.write_vectored(&[IoSlice::new(head), IoSlice::new(body)]) {
            Ok(0) => return Err(WireError::Ended),
            Ok(count) => {
                let of_head = count.min(head.len());
                head = head.get(of_head..).unwrap_or_default();
                body = body.get(count - of_head..).unwrap_or_default();
                patience.renew();
                if patience.halt.is_set() {
                    return Err(WireError::Halted);
                }
            }
            Err(error) if is_later(&error) => patience.check()?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A message as a frame.
pub(super) fn frame(message: &impl Serialize) -> Result<Vec<u8>, WireError> {
    let body = serde_json::to_vec(message).map_err(|_| WireError::Invalid("it has no text"))?;
    if body.len() > MAX_FRAME_BYTES {
        return Err(WireError::Invalid("it is too long"));
    }
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads a frame; `each_wait` is called whenever nothing arrived for a moment.
pub(super) fn read_frame<M: DeserializeOwned>(
    stream: &TcpStream,
    patience: &mut Patience<'_>,
    mut each_wait: impl FnMut() -> Result<(), WireError>,
) -> Result<M, WireError> {
    let mut length = [0; 4];
    read_exact(stream, &mut length, patience, &mut each_wait)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(WireError::Invalid("it is too long"));
    }
    let mut body = vec![0; length];
    read_exact(stream, &mut body, patience, &mut each_wait)?;
    serde_json::from_slice(&body).map_err(|_| WireError::Invalid("it is not of this version"))
}

/// A text from another peer, for display: without control characters, and not too long.
pub(super) fn displayed(text: &str) -> String {
    const MAX_CHARS: usize = 600;
    let plain = |letter: char| if letter.is_control() && letter != '\n' { '?' } else { letter };
    text.chars().take(MAX_CHARS).map(plain).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Both ends of a connection.
    pub(crate) fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        for stream in [&one, &other] {
            prepare(stream).unwrap();
        }
        (one, other)
    }

    fn halt() -> Halt {
        Halt::new(&Arc::default())
    }

    fn no_wait() -> Result<(), WireError> {
        Ok(())
    }

    #[test]
    fn frames_arrive_as_they_were_sent() {
        let (one, other) = pair();
        let halt = halt();
        let mut patience = Patience::new(&halt, Duration::from_secs(5));
        let message = vec!["a".to_owned(), "ü".to_owned()];
        write_both(&one, &frame(&message).unwrap(), b"", &mut patience).unwrap();
        assert_eq!(read_frame::<Vec<String>>(&other, &mut patience, no_wait).unwrap(), message);
        drop(one);
        assert!(matches!(read_frame::<u8>(&other, &mut patience, no_wait), Err(WireError::Ended)));
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_memory_is_taken() {
        let (one, other) = pair();
        let halt = halt();
        let mut patience = Patience::new(&halt, Duration::from_secs(5));
        write_both(&one, &u32::MAX.to_le_bytes(), b"", &mut patience).unwrap();
        assert!(matches!(read_frame::<u8>(&other, &mut patience, no_wait), Err(WireError::Invalid(_))));
        write_both(&one, &5_u32.to_le_bytes(), b"{nono", &mut patience).unwrap();
        assert!(matches!(read_frame::<u8>(&other, &mut patience, no_wait), Err(WireError::Invalid(_))));
    }

    #[test]
    fn waits_end_with_the_run_and_with_patience() {
        let (_one, other) = pair();
        let ended = halt();
        ended.end();
        let mut patience = Patience::new(&ended, Duration::from_secs(60));
        assert!(matches!(read_exact(&other, &mut [0], &mut patience, no_wait), Err(WireError::Halted)));
        let going = halt();
        let mut patience = Patience::new(&going, Duration::ZERO);
        assert!(matches!(read_exact(&other, &mut [0], &mut patience, no_wait), Err(WireError::Silent(_))));
        let full = vec![0; 64 << 20];
        assert!(matches!(write_both(&other, &full, b"", &mut patience), Err(WireError::Silent(_))));
    }

    #[test]
    fn texts_of_others_cannot_move_the_cursor() {
        assert_eq!(displayed("a\x1b[2Jb\nc"), "a?[2Jb\nc");
        assert_eq!(displayed(&"x".repeat(9999)).len(), 600);
    }
}
