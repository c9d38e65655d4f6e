//! The secret that the peers share, and the proofs of it.
//!
//! A proof is HMAC-SHA-256 with the token as its key, over a label for the role and the bytes of the handshake. The
//! token itself never leaves the process, and proofs are compared in constant time.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ascot_record::hex::to_hex;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32;
/// Bytes of a nonce.
pub(super) const NONCE_BYTES: usize = 32;
/// A shorter token could be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;
/// Longer files are no tokens.
const MAX_TOKEN_BYTES: u64 = 4096;

/// A secret that all peers share.
#[derive(Clone)]
pub struct Token {
    /// The keyed function, which is large.
    mac: Box<Hmac<Sha256>>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// A token that cannot be used. No message contains any part of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{path}: cannot read the token: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// It could be guessed.
    #[error(
        "the token has {bytes} bytes, {MIN_TOKEN_BYTES} are the least\n  make one: head -c 32 /dev/urandom | base64 > \
         FILE; give the same to every peer"
    )]
    Short {
        /// Bytes without white space at both ends.
        bytes: usize,
    },
    /// The file is no token.
    #[error("{path}: longer than {MAX_TOKEN_BYTES} bytes, which is no token")]
    Long {
        /// The file.
        path: String,
    },
    /// The system has no random bytes, or the key was refused.
    #[error("cannot make a token: {0}")]
    Make(String),
}

impl Token {
    /// The token of these bytes, without white space at both ends.
    pub fn new(bytes: &[u8]) -> Result<Token, TokenError> {
        let secret = bytes.trim_ascii();
        if secret.len() < MIN_TOKEN_BYTES {
            return Err(TokenError::Short { bytes: secret.len() });
        }
        let mac = <Hmac<Sha256> as Mac>::new_from_slice(secret)
            .map_err(|error| TokenError::Make(error.to_string()))?;
        Ok(Token { mac: Box::new(mac) })
    }

    /// The token in a file.
    pub fn from_file(path: &Path) -> Result<Token, TokenError> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_TOKEN_BYTES + 1).read_to_end(&mut bytes));
        match read {
            Err(source) => Err(TokenError::File { path: name, source }),
            Ok(length) if length as u64 > MAX_TOKEN_BYTES => Err(TokenError::Long { path: name }),
            Ok(_) => Token::new(&bytes),
        }
    }

    /// A token that only this process knows.
    pub fn random() -> Result<Token, TokenError> {
        // The hexadecimal digits have no white space at their ends.
        let digits = nonce().map_err(|error| TokenError::Make(error.to_string()))?;
        Token::new(to_hex(&digits).as_bytes())
    }

    /// The proof of a role over the bytes of a handshake.
    pub(super) fn proof(&self, role: Role, transcript: &[&[u8]]) -> [u8; PROOF_BYTES] {
        self.over(role, transcript).finalize().into_bytes().into()
    }

    /// Whether `proof` is that of a role over these bytes; in constant time.
    pub(super) fn accepts(&self, role: Role, transcript: &[&[u8]], proof: &[u8; PROOF_BYTES]) -> bool {
        self.over(role, transcript).verify_slice(proof).is_ok()
    }

    fn over(&self, role: Role, transcript: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::clone(&self.mac);
        mac.update(role.label());
        transcript.iter().for_each(|part| mac.update(part));
        mac
    }
}

/// The role of a peer in a handshake. Each has its own label, so a proof cannot be sent back to its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Caller,
    Listener,
}

impl Role {
    fn label(self) -> &'static [u8; 16] {
        match self {
            Role::Caller => b"ascotnet caller\0",
            Role::Listener => b"ascotnet listen\0",
        }
    }
}

/// Random bytes that are used once.
pub(super) fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    ascot_io::random_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_token_role_and_bytes_only() {
        let token = Token::new(b"a shared secret of some length\n").unwrap();
        let same = Token::new(b"  a shared secret of some length").unwrap();
        let other = Token::new(b"another secret of some length").unwrap();
        let proof = token.proof(Role::Caller, &[b"nonce", b"challenge"]);
        assert!(same.accepts(Role::Caller, &[b"nonce", b"challenge"], &proof));
        assert!(!other.accepts(Role::Caller, &[b"nonce", b"challenge"], &proof));
        assert!(!token.accepts(Role::Listener, &[b"nonce", b"challenge"], &proof));
        assert!(!token.accepts(Role::Caller, &[b"nonce", b"other"], &proof));
        for at in 0..PROOF_BYTES {
            let mut wrong = proof;
            wrong[at] ^= 1;
            assert!(!token.accepts(Role::Caller, &[b"nonce", b"challenge"], &wrong));
        }
    }

    #[test]
    fn tokens_that_could_be_guessed_are_refused_and_none_is_shown() {
        let told = Token::new(b"   short   \n").unwrap_err().to_string();
        assert!(told.contains("5 bytes") && !told.contains("short  "), "{told}");
        let shown = format!("{:?}", Token::new(b"a shared secret of some length").unwrap());
        assert_eq!(shown, "Token(secret)");
        assert!(
            Token::from_file(Path::new("/no/such/token")).unwrap_err().to_string().contains("/no/such/token")
        );
        assert!(matches!(Token::from_file(Path::new("/dev/zero")), Err(TokenError::Long { .. })));
        assert!(Token::random().is_ok());
    }
}
