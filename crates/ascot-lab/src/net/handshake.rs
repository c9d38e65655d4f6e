//! The handshake of a connection: both sides prove that they know the token before anything else is sent.
//!
//! ```text
//!   caller                                       listener
//!   hello: version, kind, ranks, nonce     -->
//!                                          <--   challenge: nonce, or a refusal
//!   proof(caller; hello, challenge)        -->
//!                                          <--   proof(listener; hello, challenge), or a refusal
//! ```
//!
//! All messages have a fixed length, so nothing is allocated for a stranger. The caller proves itself first, because
//! anyone can call a listener: a stranger gets no proof to guess tokens with. Every proof covers the whole hello and
//! both nonces; so it holds for this connection, these ranks and this role only.
//!
//! The handshake keeps strangers out of the run. It does not encrypt what follows, which is not secret: numbers, and a
//! pattern of bytes.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use super::token::{NONCE_BYTES, PROOF_BYTES, Role, Token, nonce};
use super::wire::{Halt, Patience, WireError, prepare, read_exact, write_both};

/// The version of the protocol.
pub(super) const VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"ascotnet";
const HELLO_BYTES: usize = 64;
const REPLY_BYTES: usize = 48;
/// A handshake takes at most this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Messages between a peer and the first one.
    Control,
    /// The bytes of a round.
    Data {
        /// The round's number.
        round: u32,
        /// The number of the connection from its caller to its listener, from 0.
        connection: u32,
    },
}

/// The first message of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) kind: Kind,
    /// The caller's position in the list of peers.
    pub(super) caller: u32,
    /// The position of the peer that it means to call.
    pub(super) callee: u32,
}

/// Why a listener refuses a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It speaks another version.
    #[error("it has another version of ascot lab net")]
    Version,
    /// Its proof is not that of the token.
    #[error("the tokens differ")]
    Token,
    /// It means to call another peer.
    #[error("its list of peers is in another order, or has other peers")]
    List,
    /// The listener is not the first peer, or its place is taken.
    #[error("another peer has the same place in the list, or the run has begun")]
    Taken,
}

impl Refusal {
    fn code(self) -> u8 {
        match self {
            Refusal::Version => 1,
            Refusal::Token => 2,
            Refusal::List => 3,
            Refusal::Taken => 4,
        }
    }

    fn from_code(code: u8) -> Option<Refusal> {
        [Refusal::Version, Refusal::Token, Refusal::List, Refusal::Taken]
            .into_iter()
            .find(|refusal| refusal.code() == code)
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The listener refused, or did not prove itself (`Token`).
    #[error("{0}")]
    Refused(Refusal),
    /// The other side is no peer, or is gone.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        HandshakeError::Wire(error.into())
    }
}

/// A caller that a listener refused: the place that it claims, if its hello could be read.
#[derive(Debug)]
pub(super) struct RefusedCaller {
    pub(super) claimed: Option<u32>,
    pub(super) error: HandshakeError,
}

impl Hello {
    fn to_bytes(self, nonce: &[u8; NONCE_BYTES]) -> [u8; HELLO_BYTES] {
        let (kind, round, connection) = match self.kind {
            Kind::Control => (0, 0, 0),
            Kind::Data { round, connection } => (1, round, connection),
        };
        let mut bytes = [0; HELLO_BYTES];
        let (head, tail) = bytes.split_at_mut(HELLO_BYTES - NONCE_BYTES);
        head[..8].copy_from_slice(&MAGIC);
        head[8..10].copy_from_slice(&VERSION.to_le_bytes());
        head[10] = kind;
        for (at, number) in [(12, self.caller), (16, self.callee), (20, round), (24, connection)] {
            head[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        tail.copy_from_slice(nonce);
        bytes
    }

    fn from_bytes(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, HandshakeError> {
        let number = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        if bytes[..8] != MAGIC {
            return Err(WireError::Invalid("no hello").into());
        }
        if bytes[8..10] != VERSION.to_le_bytes() {
            return Err(HandshakeError::Refused(Refusal::Version));
        }
        let kind = match bytes[10] {
            0 => Kind::Control,
            1 => Kind::Data { round: number(20), connection: number(24) },
            _ => return Err(WireError::Invalid("no hello").into()),
        };
        Ok(Hello { kind, caller: number(12), callee: number(16) })
    }
}

/// A message of fixed length after the hello.
enum Reply {
    Challenge([u8; NONCE_BYTES]),
    Proof([u8; PROOF_BYTES]),
    Refused(Refusal),
}

impl Reply {
    fn send(&self, stream: &TcpStream, patience: &mut Patience<'_>) -> Result<[u8; REPLY_BYTES], WireError> {
        let (code, refusal, body) = match self {
            Reply::Challenge(nonce) => (0, 0, *nonce),
            Reply::Proof(proof) => (1, 0, *proof),
            Reply::Refused(refusal) => (2, refusal.code(), [0; PROOF_BYTES]),
        };
        let mut bytes = [0; REPLY_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = code;
        bytes[11] = refusal;
        bytes[REPLY_BYTES - PROOF_BYTES..].copy_from_slice(&body);
        write_both(stream, &bytes, b"", patience)?;
        Ok(bytes)
    }

    fn receive(
        stream: &TcpStream,
        patience: &mut Patience<'_>,
    ) -> Result<(Reply, [u8; REPLY_BYTES]), WireError> {
        let mut bytes = [0; REPLY_BYTES];
        read_exact(stream, &mut bytes, patience, || Ok(()))?;
        if bytes[..8] != MAGIC {
            return Err(WireError::Invalid("no peer of ascot lab net"));
        }
        let mut body = [0; PROOF_BYTES];
        body.copy_from_slice(&bytes[REPLY_BYTES - PROOF_BYTES..]);
        let reply = match bytes[10] {
            _ if bytes[8..10] != VERSION.to_le_bytes() => Reply::Refused(Refusal::Version),
            0 => Reply::Challenge(body),
            1 => Reply::Proof(body),
            2 => Reply::Refused(Refusal::from_code(bytes[11]).ok_or(WireError::Invalid("no reason"))?),
            _ => return Err(WireError::Invalid("no reply")),
        };
        Ok((reply, bytes))
    }
}

/// The caller's side. Afterwards both sides know that the other has the token.
pub(super) fn call(
    stream: &TcpStream,
    hello: Hello,
    token: &Token,
    halt: &Halt,
) -> Result<(), HandshakeError> {
    prepare(stream)?;
    let mut patience = Patience::new(halt, PATIENCE);
    let hello = hello.to_bytes(&nonce()?);
    write_both(stream, &hello, b"", &mut patience)?;
    let challenge = match Reply::receive(stream, &mut patience)? {
        (Reply::Challenge(_), bytes) => bytes,
        (Reply::Refused(refusal), _) => return Err(HandshakeError::Refused(refusal)),
        (Reply::Proof(_), _) => return Err(WireError::Invalid("a proof before the challenge").into()),
    };
    let transcript: [&[u8]; 2] = [&hello, &challenge];
    Reply::Proof(token.proof(Role::Caller, &transcript)).send(stream, &mut patience)?;
    match Reply::receive(stream, &mut patience)?.0 {
        Reply::Proof(proof) if token.accepts(Role::Listener, &transcript, &proof) => Ok(()),
        Reply::Proof(_) => Err(HandshakeError::Refused(Refusal::Token)),
        Reply::Refused(refusal) => Err(HandshakeError::Refused(refusal)),
        Reply::Challenge(_) => Err(WireError::Invalid("a second challenge").into()),
    }
}

/// The listener's side; `place` decides about a caller that has proved itself.
pub(super) fn answer(
    stream: &TcpStream,
    token: &Token,
    halt: &Halt,
    place: impl FnOnce(&Hello) -> Result<(), Refusal>,
) -> Result<Hello, RefusedCaller> {
    let mut claimed = None;
    let shake = || -> Result<Hello, HandshakeError> {
        prepare(stream)?;
        let mut patience = Patience::new(halt, PATIENCE);
        let mut bytes = [0; HELLO_BYTES];
        read_exact(stream, &mut bytes, &mut patience, || Ok(()))?;
        let hello = Hello::from_bytes(&bytes);
        if let Err(HandshakeError::Refused(refusal)) = &hello {
            Reply::Refused(*refusal).send(stream, &mut patience)?;
        }
        let hello = hello?;
        claimed = Some(hello.caller);
        let challenge = Reply::Challenge(nonce()?).send(stream, &mut patience)?;
        let (Reply::Proof(proof), _) = Reply::receive(stream, &mut patience)? else {
            return Err(WireError::Invalid("no proof").into());
        };
        let transcript: [&[u8]; 2] = [&bytes, &challenge];
        let has_token = token.accepts(Role::Caller, &transcript, &proof);
        let decided = if has_token { place(&hello) } else { Err(Refusal::Token) };
        match decided {
            Ok(()) => {
                Reply::Proof(token.proof(Role::Listener, &transcript)).send(stream, &mut patience)?;
                Ok(hello)
            }
            Err(refusal) => {
                Reply::Refused(refusal).send(stream, &mut patience)?;
                Err(HandshakeError::Refused(refusal))
            }
        }
    };
    let shaken = shake();
    shaken.map_err(|error| RefusedCaller { claimed, error })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::super::wire::tests::pair;
    use super::*;

    const HELLO: Hello = Hello { kind: Kind::Data { round: 3, connection: 1 }, caller: 2, callee: 0 };

    fn token(text: &str) -> Token {
        Token::new(text.as_bytes()).unwrap()
    }

    fn halt() -> Halt {
        Halt::new(&std::sync::Arc::default())
    }

    /// Both sides of a handshake, with their tokens.
    fn shake(caller: &str, listener: &str, place: Result<(), Refusal>) -> (Option<Refusal>, Option<Hello>) {
        let (one, other) = pair();
        let own = token(caller);
        let calling = std::thread::spawn(move || call(&one, HELLO, &own, &halt()));
        let answered = answer(&other, &token(listener), &halt(), |_| place);
        let refused = match calling.join().unwrap() {
            Ok(()) => None,
            Err(HandshakeError::Refused(refusal)) => Some(refusal),
            Err(error) => panic!("{error}"),
        };
        (refused, answered.ok())
    }

    #[test]
    fn peers_with_one_token_know_each_other() {
        assert_eq!(shake("0123456789abcdef", "0123456789abcdef", Ok(())), (None, Some(HELLO)));
        let taken = shake("0123456789abcdef", "0123456789abcdef", Err(Refusal::Taken));
        assert_eq!(taken, (Some(Refusal::Taken), None));
    }

    #[test]
    fn other_tokens_are_refused_on_both_sides() {
        assert_eq!(shake("0123456789abcdef", "fedcba9876543210", Ok(())), (Some(Refusal::Token), None));
    }

    #[test]
    fn a_listener_that_does_not_prove_itself_is_no_peer() {
        let (one, other) = pair();
        let calling = std::thread::spawn(move || call(&one, HELLO, &token("0123456789abcdef"), &halt()));
        let mut bytes = [0; HELLO_BYTES];
        (&other).read_exact(&mut bytes).unwrap();
        let halt = halt();
        let mut patience = Patience::new(&halt, PATIENCE);
        Reply::Challenge([7; NONCE_BYTES]).send(&other, &mut patience).unwrap();
        let (Reply::Proof(proof), _) = Reply::receive(&other, &mut patience).unwrap() else {
            panic!("no proof")
        };
        // The proof of the caller, sent back, is not that of a listener.
        Reply::Proof(proof).send(&other, &mut patience).unwrap();
        let refused = calling.join().unwrap();
        assert!(matches!(refused, Err(HandshakeError::Refused(Refusal::Token))), "{refused:?}");
    }

    #[test]
    fn another_version_is_named() {
        let (one, other) = pair();
        let mut bytes = HELLO.to_bytes(&[0; NONCE_BYTES]);
        bytes[8] = 99;
        (&one).write_all(&bytes).unwrap();
        let refused = answer(&other, &token("0123456789abcdef"), &halt(), |_| Ok(())).unwrap_err();
        assert!(matches!(refused.error, HandshakeError::Refused(Refusal::Version)));
        let halt = halt();
        let mut patience = Patience::new(&halt, PATIENCE);
        let (reply, _) = Reply::receive(&one, &mut patience).unwrap();
        assert!(matches!(reply, Reply::Refused(Refusal::Version)));
    }

    #[test]
    fn strangers_are_no_peers() {
        for said in
            [&b"GET / HTTP/1.1\r\nHost: here\r\nAccept: everything that there may be\r\n\r\n"[..], &[0; 64]]
        {
            let (one, other) = pair();
            (&one).write_all(said).unwrap();
            let refused = answer(&other, &token("0123456789abcdef"), &halt(), |_| Ok(())).unwrap_err();
            assert!(refused.claimed.is_none());
            assert!(
                matches!(refused.error, HandshakeError::Wire(WireError::Invalid(_))),
                "{:?}",
                refused.error
            );
        }
    }

    #[test]
    fn a_hello_keeps_its_fields() {
        let bytes = HELLO.to_bytes(&[9; NONCE_BYTES]);
        assert_eq!(Hello::from_bytes(&bytes).unwrap(), HELLO);
        let control = Hello { kind: Kind::Control, ..HELLO };
        assert_eq!(Hello::from_bytes(&control.to_bytes(&[9; NONCE_BYTES])).unwrap(), control);
    }
}
