//! Kinds of volumes, and a careful profile for each: what a job assumes of a volume that was not measured.
//!
//! All assumed figures are in this file. They are round numbers near the slow end of their kind. A rate only predicts
//! the time. The cost of a switch changes how a job works: from [`VolumeProfile::wants_runs`] on (a switch costs more
//! than moving 1 MiB) merges and splits move long runs.

use serde::{Deserialize, Serialize};

use crate::volume::VolumeProfile;

/// A kind of volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeKind {
    /// A disk whose head moves.
    Rotational,
    /// Solid state.
    Flash,
    /// Files or blocks of another machine.
    Network,
    /// A file system that a program provides.
    Fuse,
    /// Memory.
    Memory,
    /// A disk that a hypervisor provides. Its kind is not visible: many report `rotational` above flash.
    Virtual,
    /// Any other.
    Unknown,
}

/// The figures of one kind. Rates are bytes/s.
struct Assumed {
    read: f64,
    write: f64,
    duplex: Option<f64>,
    switch_seconds: f64,
}

/// A disk of 7,200 turns a minute: 150 MB/s is its mean rate over the whole surface; a switch takes half a turn (4
/// ms) and a seek among files that lie near each other (6 ms). One head serves both directions.
const ROTATIONAL: Assumed = Assumed { read: 150e6, write: 150e6, duplex: None, switch_seconds: 10e-3 };

/// A link of 10 Gb/s shared with others, and a server with disks: a switch takes a round trip and a seek that the
/// server's own cache hides half of the time. The link carries both directions at once, which pays only where the job
/// finds that switches cost less.
const NETWORK: Assumed = Assumed { read: 400e6, write: 300e6, duplex: Some(250e6), switch_seconds: 5e-3 };

/// A program copies every request. What lies below it is not visible: a remote server or an object store is common,
/// and there a new position costs a round trip and the data read ahead. One program serves both directions.
const FUSE: Assumed = Assumed { read: 300e6, write: 300e6, duplex: None, switch_seconds: 4e-3 };

/// One thread copies at this rate within one socket. A switch is a system call.
const MEMORY: Assumed = Assumed { read: 2e9, write: 2e9, duplex: Some(1.5e9), switch_seconds: 2e-6 };

impl VolumeKind {
    /// Every kind that has a name of its own.
    pub const NAMED: [VolumeKind; 6] =
        [Self::Rotational, Self::Flash, Self::Network, Self::Fuse, Self::Memory, Self::Virtual];

    /// The word for the kind, as `--volume` accepts it.
    pub fn word(self) -> &'static str {
        match self {
            VolumeKind::Rotational => "rotational",
            VolumeKind::Flash => "flash",
            VolumeKind::Network => "network",
            VolumeKind::Fuse => "fuse",
            VolumeKind::Memory => "memory",
            VolumeKind::Virtual => "virtual",
            VolumeKind::Unknown => "unknown",
        }
    }

    /// The kind with its noun.
    pub fn words(self) -> &'static str {
        match self {
            VolumeKind::Rotational => "a rotational disk",
            VolumeKind::Flash => "flash",
            VolumeKind::Network => "a network volume",
            VolumeKind::Fuse => "a FUSE file system",
            VolumeKind::Memory => "memory",
            VolumeKind::Virtual => "a virtual disk",
            VolumeKind::Unknown => "a volume of an unknown kind",
        }
    }

    /// The kind of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|kind| kind.word() == word)
    }

    /// The assumed profile; `None`: jobs assume [flash](VolumeProfile::assumed_flash). A virtual disk and an unknown
    /// volume count as flash: most are, and on flash long runs only take turns where both directions could work.
    pub fn profile(self) -> Option<VolumeProfile> {
        let assumed = match self {
            VolumeKind::Rotational => ROTATIONAL,
            VolumeKind::Network => NETWORK,
            VolumeKind::Fuse => FUSE,
            VolumeKind::Memory => MEMORY,
            VolumeKind::Flash | VolumeKind::Virtual | VolumeKind::Unknown => return None,
        };
        let Assumed { read, write, duplex, switch_seconds } = assumed;
        let name = match self {
            VolumeKind::Rotational => "rotational disk, assumed",
            VolumeKind::Network => "network, assumed",
            VolumeKind::Fuse => "FUSE, assumed",
            _ => "memory, assumed",
        };
        let simple = VolumeProfile::simple(name, read, write, switch_seconds);
        Some(VolumeProfile { duplex_bytes_per_s: duplex, ..simple })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_remote_volumes_want_runs_and_the_others_do_not() {
        let wants = |kind: VolumeKind| kind.profile().is_some_and(|profile| profile.wants_runs(3.0));
        for kind in VolumeKind::NAMED {
            let seeks = matches!(kind, VolumeKind::Rotational | VolumeKind::Network | VolumeKind::Fuse);
            assert_eq!(wants(kind), seeks, "{kind:?}");
            if let Some(profile) = kind.profile() {
                assert_eq!(profile.check(), Ok(()), "{kind:?}");
                assert!(!profile.measured);
            }
            assert_eq!(VolumeKind::from_word(kind.word()), Some(kind));
        }
        assert!(!wants(VolumeKind::Unknown));
        assert_eq!(VolumeKind::from_word("unknown"), None);
    }

    #[test]
    fn only_memory_reads_and_writes_at_once() {
        for kind in VolumeKind::NAMED {
            let Some(profile) = kind.profile() else { continue };
            let alone_s = 1e9 / profile.read_bytes_per_s + 1e9 / profile.write_bytes_per_s;
            let overlaps = profile.seconds(1e9, 1e9, 0.0, 2.0) < 0.99 * alone_s;
            assert_eq!(overlaps, kind == VolumeKind::Memory, "{kind:?}");
        }
    }
}
