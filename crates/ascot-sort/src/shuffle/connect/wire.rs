//! The bytes of a connection between a worker and a writer.
//!
//! ```text
//!   writer   magic "ASCTCON2", its nonce                            8 + 32
//!   worker   its nonce, its proof                                   32 + 32
//!   writer   its proof                                              32     or the connection ends
//!
//!   worker   for each batch: its length, the batch                  4 + length
//!   writer   for each batch: kind of the answer, length of the text, the text                1 + 2 + length
//! ```
//!
//! A proof is the HMAC-SHA-256, with the secret of the job, of a text, of the side that gives it, and of both nonces,
//! the writer's first. The side is part of it, so that no side can send back what it got. Integers are little-endian.
//! Answers come in the order of the batches.
//!
//! The proofs keep out processes without the secret, and nothing else: what follows is neither encrypted nor
//! authenticated.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ascot_io::is_passing;
use hmac::{Hmac, Mac};
use rustix::event::Timespec;
use rustix::net::sockopt;
use sha2::Sha256;

use super::super::batch::BATCHES_MAX;

pub(super) const MAGIC: &[u8; 8] = b"ASCTCON2";
pub(super) const NONCE_BYTES: usize = 32;
pub(super) const PROOF_BYTES: usize = 32;
pub(super) const GREETING_BYTES: usize = MAGIC.len() + NONCE_BYTES;
pub(super) const ENTRY_BYTES: usize = NONCE_BYTES + PROOF_BYTES;
/// Bytes of the secret of a job.
pub const SECRET_BYTES: usize = 32;
/// The length before a batch.
pub(super) const LENGTH_BYTES: usize = 4;
/// Kind and length of an answer.
pub(super) const ANSWER_BYTES: usize = 3;
/// Longer texts of answers are cut.
const TEXT_BYTES_MAX: usize = 1000;
/// A connection is there, and its handshake done, within this time.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Interval at which a worker looks whether the job was cancelled.
pub(super) const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
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

/// The role of the process that gives a proof.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Worker,
    Writer,
}

/// The nonces of a connection.
#[derive(Clone, Debug)]
pub(super) struct Nonces {
    writer: [u8; NONCE_BYTES],
    worker: [u8; NONCE_BYTES],
}

impl Secret {
    fn mac(&self, role: Role, nonces: &Nonces) -> io::Result<Hmac<Sha256>> {
        let mut mac =
            <Hmac<Sha256> as Mac>::new_from_slice(&self.0).map_err(|_| io::ErrorKind::InvalidInput)?;
        mac.update(b"batches of a cluster job");
        mac.update(match role {
            Role::Worker => b"worker",
            Role::Writer => b"writer",
        });
        mac.update(&nonces.writer);
        mac.update(&nonces.worker);
        Ok(mac)
    }

    /// The proof of a role over both nonces.
    fn proof(&self, role: Role, nonces: &Nonces) -> io::Result<[u8; PROOF_BYTES]> {
        Ok(self.mac(role, nonces)?.finalize().into_bytes().into())
    }

    /// Whether a proof is that of the role; compares in constant time.
    pub(super) fn accepts(&self, role: Role, nonces: &Nonces, proof: &[u8]) -> bool {
        self.mac(role, nonces).is_ok_and(|mac| mac.verify_slice(proof).is_ok())
    }

    /// The worker's answer to the greeting of a writer, and the nonces of the connection.
    pub(super) fn enter(&self, greeting: &[u8]) -> io::Result<(Nonces, Vec<u8>)> {
        let writer = greeting.strip_prefix(MAGIC).and_then(|nonce| nonce.try_into().ok());
        let Some(writer) = writer else {
            return Err(io::Error::other("another program, or another version of Ascot, listens there"));
        };
        let nonces = Nonces { writer, worker: nonce()? };
        let proof = self.proof(Role::Worker, &nonces)?;
        let entry = [nonces.worker, proof].concat();
        Ok((nonces, entry))
    }
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    Ok(nonce)
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

/// The handshake of the writer, which ends at `until`. Returns whether the worker has the secret.
pub(super) fn let_in(mut stream: &TcpStream, secret: &Secret, until: Instant) -> io::Result<bool> {
    let own = nonce()?;
    stream.write_all(&[&MAGIC[..], &own].concat())?;
    let mut entry = [0; ENTRY_BYTES];
    read_until(stream, &mut entry, until)?;
    let mut nonces = Nonces { writer: own, worker: [0; NONCE_BYTES] };
    let (worker, proof) = entry.split_at(NONCE_BYTES);
    nonces.worker.copy_from_slice(worker);
    if !secret.accepts(Role::Worker, &nonces, proof) {
        return Ok(false);
    }
    stream.write_all(&secret.proof(Role::Writer, &nonces)?)?;
    Ok(true)
}

/// Reads all of `bytes`, however few come at a time, until a time.
fn read_until(mut stream: &TcpStream, bytes: &mut [u8], until: Instant) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let time = until.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(time))?;
        match stream.read(left) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => left = &mut left[read..],
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
    use std::net::TcpListener;

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
    fn a_proof_is_that_of_one_secret_one_side_and_two_nonces() {
        let (own, other) = (Secret([1; SECRET_BYTES]), Secret([2; SECRET_BYTES]));
        let nonces = Nonces { writer: [3; NONCE_BYTES], worker: [4; NONCE_BYTES] };
        let proof = own.proof(Role::Worker, &nonces).expect("a proof");
        assert!(own.accepts(Role::Worker, &nonces, &proof));
        assert!(!other.accepts(Role::Worker, &nonces, &proof));
        assert!(!own.accepts(Role::Writer, &nonces, &proof));
        for nonces in [
            Nonces { writer: [5; NONCE_BYTES], ..nonces.clone() },
            Nonces { worker: [5; NONCE_BYTES], ..nonces },
        ] {
            assert!(!own.accepts(Role::Worker, &nonces, &proof));
        }
    }

    #[test]
    fn a_handshake_ends_in_time_however_slowly_bytes_come() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let slow = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("a connection");
            let began = Instant::now();
            while stream.write_all(&[0]).is_ok() && began.elapsed() < Duration::from_secs(3) {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let (stream, _) = listener.accept().expect("a stranger");
        let began = Instant::now();
        let ended = let_in(&stream, &Secret([1; SECRET_BYTES]), began + Duration::from_millis(300));
        assert_eq!(ended.expect_err("no proof came").kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(2));
        drop(stream);
        slow.join().expect("the stranger");
    }
}
