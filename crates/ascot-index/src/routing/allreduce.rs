//! The allreduce of all ranks at the end of an epoch: the lowest rank that failed, and sums.
//!
//! It runs up a binary tree over the ranks and down again: rank `r` receives from `2 r + 1` and `2 r + 2`, adds its
//! own, sends to `(r - 1) / 2`, and passes the answer down. Each rank has at most three connections for it.
//!
//! ```text
//!   0    1     2      6        10     14    15          15 + 8 n
//!   +----+-----+------+--------+------+-----+-----------+-------------
//!   |kind| for |epoch | failed | code | n   | n sums    | text of the
//!   |    | u8  | u32  | rank   | u32  | u8  | u64 each  | failure
//!   +----+-----+------+--------+------+-----+-----------+-------------
//!   kind  1 up, 2 down, 3 a rank gives up, 4 presence question, 5 presence answer;  failed rank 2^32 - 1: none failed
//! ```
//!
//! If no rank failed, the text has the options that must be the same at all ranks, `name=value`: each rank compares
//! those of its children with its own, so that the error names a rank that differs and its first such option.

use crate::format::bytes::Cursor;

/// Maximum number of sums of one allreduce.
pub const SUMS_MAX: usize = 16;
/// Maximum bytes of a message of this lane.
pub(super) const CONTROL_BYTES: usize = 1024;

const FIXED_BYTES: usize = 15;
const NOBODY: u32 = u32::MAX;
/// Maximum bytes of the text of a failure.
const TEXT_BYTES_MAX: usize = CONTROL_BYTES - FIXED_BYTES - 8 * SUMS_MAX;
/// The code of ranks that call different functions at the same time.
pub(super) const CODE_MISMATCH: u32 = u32::MAX;
/// The code of ranks whose options differ.
pub const CODE_DIFFERENT: u32 = u32::MAX - 1;
/// The code of a rank that does not answer: the text names all silent ranks, the sum is the seconds they had.
pub(super) const CODE_SILENT: u32 = u32::MAX - 2;

/// The outcome of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No failure.
    Well,
    /// A failure.
    Failed {
        /// The kind of failure, a number defined by the caller.
        code: u32,
        /// The text for the other ranks.
        text: String,
    },
}

/// The result of an allreduce, the same at all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combined {
    /// The lowest rank that failed, its code and its text.
    pub failure: Option<(u32, u32, String)>,
    /// The sums over all ranks.
    pub sums: Vec<u64>,
}

/// The kinds of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Up = 1,
    Down = 2,
    GivesUp = 3,
    Question = 4,
    Answer = 5,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Up, Self::Down, Self::GivesUp, Self::Question, Self::Answer];

    /// The kind of a message.
    pub fn from_message(bytes: &[u8]) -> Option<Self> {
        let first = bytes.first()?;
        Self::ALL.into_iter().find(|kind| *kind as u8 == *first)
    }
}

/// One message of the control lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControlMessage {
    pub kind: Kind,
    /// The purpose, a number defined by the caller.
    pub purpose: u8,
    pub epoch: u32,
    pub agreement: Combined,
    /// Options that must be the same at all ranks.
    pub same: String,
}

impl ControlMessage {
    pub fn new(purpose: u8, epoch: u32, rank: u32, outcome: Outcome, sums: &[u64]) -> Self {
        let failure = match outcome {
            Outcome::Well => None,
            Outcome::Failed { code, text } => Some((rank, code, text)),
        };
        let sums = sums.iter().copied().take(SUMS_MAX).collect();
        Self { kind: Kind::Up, purpose, epoch, agreement: Combined { failure, sums }, same: String::new() }
    }

    /// Adds the options that must be the same at all ranks, truncated to the space for text.
    pub fn with_same(mut self, same: &str) -> Self {
        shortened(same).clone_into(&mut self.same);
        self
    }

    /// Adds the message of a child to this one of `rank`.
    pub fn add(&mut self, rank: u32, child: u32, message: Self) {
        if (message.purpose, message.epoch) != (self.purpose, self.epoch) {
            let text = "ranks do not call the same thing (end of epoch, close) at the same time".to_owned();
            self.fail(child, CODE_MISMATCH, text);
        } else if message.agreement.failure.is_none() && message.same != self.same {
            let text = difference(rank, &self.same, child, &message.same);
            self.fail(child, CODE_DIFFERENT, text);
        }
        if let Some((rank, code, text)) = message.agreement.failure {
            self.fail(rank, code, text);
        }
        for (sum, more) in self.agreement.sums.iter_mut().zip(&message.agreement.sums) {
            *sum = sum.saturating_add(*more);
        }
    }

    fn fail(&mut self, rank: u32, code: u32, text: String) {
        let failure = &mut self.agreement.failure;
        if failure.as_ref().is_none_or(|(before, ..)| rank < *before) {
            *failure = Some((rank, code, text));
        }
    }

    pub fn write(&self, into: &mut Vec<u8>) {
        let (rank, code, text) = match &self.agreement.failure {
            Some((rank, code, text)) => (*rank, *code, shortened(text)),
            None => (NOBODY, 0, self.same.as_str()),
        };
        into.clear();
        into.push(self.kind as u8);
        into.push(self.purpose);
        for number in [self.epoch, rank, code] {
            into.extend_from_slice(&number.to_le_bytes());
        }
        into.push(self.agreement.sums.len() as u8);
        for sum in &self.agreement.sums {
            into.extend_from_slice(&sum.to_le_bytes());
        }
        into.extend_from_slice(text.as_bytes());
    }

    pub fn read(bytes: &[u8]) -> Option<Self> {
        let kind = Kind::from_message(bytes)?;
        let mut cursor = Cursor::new(bytes.get(1..)?);
        let purpose = cursor.u8()?;
        let epoch = cursor.u32()?;
        let rank = cursor.u32()?;
        let code = cursor.u32()?;
        let count = usize::from(cursor.u8()?);
        if count > SUMS_MAX {
            return None;
        }
        let sums = (0..count).map(|_| cursor.u64()).collect::<Option<Vec<u64>>>()?;
        let text = String::from_utf8_lossy(cursor.take(cursor.left())?).into_owned();
        let (failure, same) =
            if rank == NOBODY { (None, text) } else { (Some((rank, code, text)), String::new()) };
        Some(Self { kind, purpose, epoch, agreement: Combined { failure, sums }, same })
    }
}

/// The first option in which two ranks differ.
fn difference(rank: u32, own: &str, child: u32, theirs: &str) -> String {
    let words = |options: &str| options.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let own = words(own);
    let theirs = words(theirs);
    let differ = (0..own.len().max(theirs.len())).find(|&at| own.get(at) != theirs.get(at)).unwrap_or(0);
    let word = |words: &[String]| words.get(differ).cloned().unwrap_or_default();
    format!("rank {} has {} and rank {} has {}", child, word(&theirs), rank, word(&own))
}

/// The longest prefix of whole characters that fits a message.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_fit_their_buffer() {
        let outcome = Outcome::Failed { code: 28, text: "é".repeat(2000) };
        let message = ControlMessage::new(1, 9, 4, outcome, &[u64::MAX; SUMS_MAX]);
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        assert!(bytes.len() <= CONTROL_BYTES);
        let back = ControlMessage::read(&bytes).unwrap();
        assert_eq!((back.kind, back.purpose, back.epoch), (Kind::Up, 1, 9));
        assert_eq!(back.agreement.sums, message.agreement.sums);
        assert_eq!(back.agreement.failure.map(|(rank, code, _)| (rank, code)), Some((4, 28)));
        for length in 0..bytes.len() {
            let _ = ControlMessage::read(&bytes[..length]);
        }
    }

    #[test]
    fn the_lowest_rank_that_failed_is_told_and_sums_add_up() {
        let mut message = ControlMessage::new(1, 0, 2, Outcome::Well, &[1, 10]);
        message.add(
            2,
            6,
            ControlMessage::new(1, 0, 6, Outcome::Failed { code: 1, text: "six".into() }, &[2, 20]),
        );
        message.add(
            2,
            5,
            ControlMessage::new(1, 0, 5, Outcome::Failed { code: 1, text: "five".into() }, &[3, 30]),
        );
        assert_eq!(message.agreement.sums, [6, 60]);
        assert_eq!(message.agreement.failure, Some((5, 1, "five".to_owned())));
        let mut message = ControlMessage::new(1, 0, 0, Outcome::Well, &[]);
        message.add(0, 1, ControlMessage::new(2, 0, 1, Outcome::Well, &[]));
        assert_eq!(message.agreement.failure.map(|(rank, code, _)| (rank, code)), Some((1, CODE_MISMATCH)));
    }

    #[test]
    fn who_says_something_else_is_named_with_the_word() {
        let options = |text: &str, rank| ControlMessage::new(1, 0, rank, Outcome::Well, &[]).with_same(text);
        let mut message = options("key=8 batch=4096", 2);
        message.add(2, 5, options("key=8 batch=4096", 5));
        assert_eq!(message.agreement.failure, None);
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        assert_eq!(ControlMessage::read(&bytes), Some(message.clone()));
        message.add(2, 6, options("key=8 batch=64", 6));
        let (rank, code, text) = message.agreement.failure.unwrap();
        assert_eq!((rank, code), (6, CODE_DIFFERENT));
        assert_eq!(text, "rank 6 has batch=64 and rank 2 has batch=4096");
    }
}
