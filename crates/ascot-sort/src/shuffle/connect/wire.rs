//! The bytes of a connection between a worker and a writer.
//!
//! ```text
//!   writer   magic "ASCTCON1", nonce                                8 + 32
//!   worker   proof: HMAC-SHA-256 of the nonce, with the secret      32
//!   writer   1                                                      1      or the connection ends
//!
//!   worker   for each batch: its length, the batch                  4 + length
//!   writer   for each batch: kind of the answer, length of the text, the text                1 + 2 + length
//! ```
//!
//! Integers are little-endian. Answers come in the order of the batches.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hmac::{Hmac, Mac};
use rustix::net::sockopt;
use sha2::Sha256;

use super::super::batch::BATCHES_MAX;

pub(super) const MAGIC: &[u8; 8] = b"ASCTCON1";
pub(super) const NONCE_BYTES: usize = 32;
pub(super) const PROOF_BYTES: usize = 32;
/// Bytes of the secret of a job.
pub const SECRET_BYTES: usize = 32;
/// The length before a batch.
pub(super) const LENGTH_BYTES: usize = 4;
/// Kind and length of an answer.
pub(super) const ANSWER_BYTES: usize = 3;
/// Longer texts of answers are cut.
const TEXT_BYTES_MAX: usize = 1000;
/// A handshake ends within this time.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// A peer whose system answers nothing for so long is gone, seconds: `IDLE`, then probes every `INTERVAL`.
const GONE: u32 = 30;
const IDLE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(5);

/// The secret of a job, which its workers and writers share.
#[derive(Clone)]
pub struct Secret(pub [u8; SECRET_BYTES]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    fn mac(&self, nonce: &[u8]) -> io::Result<Hmac<Sha256>> {
        let mut mac =
            <Hmac<Sha256> as Mac>::new_from_slice(&self.0).map_err(|_| io::ErrorKind::InvalidInput)?;
        mac.update(b"batches of a cluster job");
        mac.update(nonce);
        Ok(mac)
    }

    /// The proof for a nonce.
    fn proof(&self, nonce: &[u8]) -> io::Result<[u8; PROOF_BYTES]> {
        Ok(self.mac(nonce)?.finalize().into_bytes().into())
    }

    /// Whether a proof is that for the nonce; compares in constant time.
    fn accepts(&self, nonce: &[u8], proof: &[u8]) -> bool {
        self.mac(nonce).is_ok_and(|mac| mac.verify_slice(proof).is_ok())
    }
}

/// Sets both ends of a connection to end if the peer's system is gone, and to send at once.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, IDLE)?;
    sockopt::set_tcp_keepintvl(stream, INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, (GONE - IDLE.as_secs() as u32) / INTERVAL.as_secs() as u32)?;
    sockopt::set_tcp_user_timeout(stream, GONE * 1000)?;
    Ok(())
}

/// The handshake of the writer. Returns whether the worker has the secret.
pub(super) fn let_in(stream: &mut TcpStream, secret: &Secret) -> io::Result<bool> {
    stream.set_read_timeout(Some(HANDSHAKE))?;
    let mut nonce = [0; NONCE_BYTES];
    rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    stream.write_all(&[&MAGIC[..], &nonce].concat())?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof)?;
    if !secret.accepts(&nonce, &proof) {
        return Ok(false);
    }
    stream.write_all(&[1])?;
    Ok(true)
}

/// The handshake of the worker.
pub(super) fn enter(stream: &mut TcpStream, secret: &Secret) -> io::Result<()> {
    stream.set_read_timeout(Some(HANDSHAKE))?;
    let mut greeting = [0; MAGIC.len() + NONCE_BYTES];
    stream.read_exact(&mut greeting)?;
    let (magic, nonce) = greeting.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(io::Error::other("another program, or another version of Ascot, listens there"));
    }
    stream.write_all(&secret.proof(nonce)?)?;
    stream.read_exact(&mut [0])?;
    stream.set_read_timeout(None)
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was appended.
    New,
    /// It was there.
    Known,
    /// Its bytes are not those that were sent.
    Damaged(String),
    /// The destination cannot take it.
    Failed(String),
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, text) = match self {
            Answer::New => (0, ""),
            Answer::Known => (1, ""),
            Answer::Damaged(text) => (2, text.as_str()),
            Answer::Failed(text) => (3, text.as_str()),
        };
        let text = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
        let mut bytes = vec![kind];
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text);
        bytes
    }

    /// Takes the first answer of `bytes`, if all of it is there. An error is a text of what is wrong.
    pub(super) fn take(bytes: &mut Vec<u8>) -> Result<Option<Answer>, &'static str> {
        let [kind, low, high, rest @ ..] = bytes.as_slice() else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let Some(text) = rest.get(..length) else { return Ok(None) };
        let text = String::from_utf8_lossy(text).into_owned();
        let answer = match kind {
            0 => Answer::New,
            1 => Answer::Known,
            2 => Answer::Damaged(text),
            3 => Answer::Failed(text),
            _ => return Err("the writer gave an answer of no known kind"),
        };
        bytes.drain(..ANSWER_BYTES + length);
        Ok(Some(answer))
    }
}

/// Maximum length of answers to all batches of a chunk, bytes.
pub(super) const ANSWERS_BYTES_MAX: usize = BATCHES_MAX as usize * (ANSWER_BYTES + TEXT_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_written_wherever_they_are_cut() {
        let all =
            [Answer::New, Answer::Failed("full".into()), Answer::Known, Answer::Damaged("x".repeat(2000))];
        let bytes: Vec<u8> = all.iter().flat_map(Answer::encode).collect();
        let (mut read, mut found) = (Vec::new(), Vec::new());
        for byte in bytes {
            read.push(byte);
            while let Some(answer) = Answer::take(&mut read).expect("an answer") {
                found.push(answer);
            }
        }
        assert_eq!(found[..3], all[..3]);
        assert_eq!(found[3], Answer::Damaged("x".repeat(TEXT_BYTES_MAX)));
        assert!(Answer::take(&mut vec![9, 0, 0]).is_err());
    }

    #[test]
    fn a_proof_is_that_of_one_secret_and_one_nonce() {
        let (own, other) = (Secret([1; SECRET_BYTES]), Secret([2; SECRET_BYTES]));
        let proof = own.proof(b"nonce").expect("a proof");
        assert!(own.accepts(b"nonce", &proof));
        assert!(!own.accepts(b"other", &proof) && !other.accepts(b"nonce", &proof));
    }
}
