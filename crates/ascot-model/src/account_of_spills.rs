//! The account of the compression of spills: the bytes of each pass by codec, and the decisions of `--compress auto`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::codec::{Codec, Compression, StoredBlock};
use crate::units;

/// Decisions that a report lists at most: data that keeps changing must not fill memory.
const MAX_DECISIONS: usize = 32;

/// The compression of the spills of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpillsAccount {
    /// What the user asked for.
    pub asked: Compression,
    /// The blocks of each pass, by the codec that was tried.
    pub passes: Vec<CodecAccount>,
    /// The decisions of `auto`, the first one first.
    pub decisions: Vec<Decision>,
    /// Number of further decisions.
    pub decisions_left_out: u64,
}

/// The blocks of spills that a pass wrote with one codec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecAccount {
    /// The pass.
    pub pass: String,
    /// The codec. A block that it does not make smaller is stored as it is.
    pub codec: Codec,
    /// Bytes of the blocks.
    pub bytes: u64,
    /// Bytes stored.
    pub stored_bytes: u64,
    /// Seconds of processors that compressed.
    pub seconds: f64,
}

impl CodecAccount {
    /// Bytes stored for each byte.
    pub fn ratio(&self) -> f64 {
        if self.bytes == 0 { 1.0 } else { self.stored_bytes as f64 / self.bytes as f64 }
    }
}

/// A choice of codec, or a change of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The pass in which it was made.
    pub pass: String,
    /// Bytes of spills written before it, all passes.
    pub after_bytes: u64,
    /// The codec before; none for the first decision.
    pub from: Option<Codec>,
    /// The codec after.
    pub to: Codec,
    /// The reason, in words.
    pub reason: String,
}

impl SpillsAccount {
    pub(crate) fn new(asked: Compression) -> Self {
        SpillsAccount { asked, ..SpillsAccount::default() }
    }

    pub(crate) fn note(&mut self, pass: &str, block: &StoredBlock) {
        let codec = block.codec;
        let same = |known: &CodecAccount| known.codec == codec && known.pass == pass;
        let known = self.passes.iter().position(same);
        let at = known.unwrap_or(self.passes.len());
        if known.is_none() {
            let pass = pass.into();
            self.passes.push(CodecAccount { pass, codec, bytes: 0, stored_bytes: 0, seconds: 0.0 });
        }
        let account = &mut self.passes[at];
        account.bytes += block.bytes;
        account.stored_bytes += block.stored_bytes;
        account.seconds += block.seconds;
    }

    pub(crate) fn decide(&mut self, decision: Decision) {
        if self.decisions.len() < MAX_DECISIONS {
            self.decisions.push(decision);
        } else {
            self.decisions_left_out += 1;
        }
    }

    /// Bytes stored for each byte of spills that the pass `pass` wrote; 1 if it wrote none.
    pub fn ratio_of(&self, pass: &str) -> f64 {
        let of = |figure: fn(&CodecAccount) -> u64| {
            self.passes.iter().filter(|one| one.pass == pass).map(figure).sum::<u64>()
        };
        match of(|one| one.bytes) {
            0 => 1.0,
            bytes => of(|one| one.stored_bytes) as f64 / bytes as f64,
        }
    }

    /// Processor seconds of all codecs.
    pub fn seconds(&self) -> f64 {
        self.passes.iter().map(|pass| pass.seconds).sum()
    }

    /// Whether any block became smaller, or the job changed its mind.
    pub fn is_worth_a_word(&self) -> bool {
        self.decisions.len() > 1 || self.passes.iter().any(|pass| pass.codec != Codec::None)
    }
}

impl fmt::Display for SpillsAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |one: &CodecAccount| {
            let bytes = units::bytes(one.bytes);
            match one.codec {
                Codec::None => format!("{} {bytes} as they are", one.pass),
                codec => {
                    let percent = (one.ratio() * 100.0).round();
                    format!("{} {bytes} to {percent} percent with {}", one.pass, codec.word())
                }
            }
        };
        let passes: Vec<String> = self.passes.iter().map(words).collect();
        write!(f, "spills compressed: {}", passes.join(", "))?;
        for decision in &self.decisions {
            let when = match decision.from {
                None => "at first".into(),
                Some(_) => format!("after {}", units::bytes(decision.after_bytes)),
            };
            write!(f, "\n    {when} {}: {}", decision.to.word(), decision.reason)?;
        }
        match self.decisions_left_out {
            0 => Ok(()),
            more => write!(f, "\n    and {} more", units::plural(more, "change")),
        }
    }
}
