//! The plain types of a trace.
//!
//! Invariants: `file` and `process` of an event are indexes of the tables of its trace; `offset + size` of a request
//! fits 64 bits.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use ascot_model::units;
use serde::Serialize;

use crate::ranges::RangeSet;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Bytes were read; `size` may be 0 at the end of the file.
    Read = 0,
    /// Bytes were written.
    Write = 1,
    /// The file was opened.
    Open = 2,
    /// A descriptor of it was closed.
    Close = 3,
    /// The position of a descriptor moved to `offset`.
    Seek = 4,
    /// The length of the file became `offset`.
    Resize = 5,
    /// Its last name and its last descriptor are gone: its space is free.
    Delete = 6,
    /// The space of `size` bytes from `offset` on was given back, and its length stays.
    Hole = 7,
}

impl Kind {
    /// All kinds, at the index of their number.
    pub const ALL: [Kind; 8] = [
        Kind::Read,
        Kind::Write,
        Kind::Open,
        Kind::Close,
        Kind::Seek,
        Kind::Resize,
        Kind::Delete,
        Kind::Hole,
    ];

    /// Its name in CSV.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Open => "open",
            Kind::Close => "close",
            Kind::Seek => "seek",
            Kind::Resize => "resize",
            Kind::Delete => "delete",
            Kind::Hole => "hole",
        }
    }
}

/// One call that succeeded, or the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the first event of the recording, at the start of the call.
    pub time_ns: u64,
    /// The process, an index.
    pub process: u32,
    /// The file, an index.
    pub file: u32,
    /// What happened.
    pub kind: Kind,
    /// Whether a request named an offset (as `pread` does) at which its descriptor did not end.
    pub jumped: bool,
    /// The first byte of a request; see [`Kind`] for other events.
    pub offset: u64,
    /// The bytes that a request moved, or those of a hole; 0 for other events.
    pub size: u64,
}

impl Event {
    /// Whether it moved bytes.
    pub fn moves(&self) -> bool {
        self.size > 0 && matches!(self.kind, Kind::Read | Kind::Write)
    }

    /// The byte after a request.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

/// A file of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedFile {
    /// Its last name, as bytes.
    pub path: Vec<u8>,
    /// The largest length it had, as far as the calls show it.
    pub peak_bytes: u64,
    /// Whether its last name was removed.
    pub deleted: bool,
    /// The whole blocks that held data when the trace began; none if that is not known, and any may have.
    pub held: Option<RangeSet>,
}

/// A process of a trace. Threads belong to their process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedProcess {
    /// Its number in the system.
    pub pid: u32,
    /// The program that it ran last; empty if it ran none of its own.
    pub program: Vec<u8>,
}

/// How a trace was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The command line, words separated by zeros.
    pub command: Vec<u8>,
    /// The tool that observed the calls, with its version.
    pub source: Vec<u8>,
    /// The time of the first event, in nanoseconds since 1970.
    pub start_ns: u64,
    /// Requests through descriptors whose opening was not seen (received from another process); their offsets start
    /// at 0.
    pub unseen_requests: u64,
    /// Appending requests to files whose length was not known; their offsets follow from the other requests.
    pub guessed_appends: u64,
    /// Lines of the log that were not understood.
    pub skipped_lines: u64,
    /// Whether the recording ended before the program did, or lost events.
    pub incomplete: bool,
    /// What devices saw, if the trace has their requests.
    pub block: Option<BlockCounts>,
}

/// The remark on a recording that ended before the program did.
const INCOMPLETE: &str = "incomplete: the recording ended before the program did";

impl Recording {
    /// A recording of a command line, by the tool `source`.
    pub(crate) fn of_command(command: &[OsString], source: Vec<u8>) -> Recording {
        let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        Recording { command: words.join(&0), source, ..Recording::default() }
    }

    /// Remarks on what the recording does not show.
    pub fn remarks(&self) -> Vec<String> {
        let counted = [
            (
                self.unseen_requests,
                "request used a descriptor that came from elsewhere: its position counts from 0",
                "requests used descriptors that came from elsewhere: their positions count from 0",
            ),
            (
                self.guessed_appends,
                "append went to a file of unknown length: its offset is a lower bound",
                "appends went to files of unknown length: their offsets are lower bounds",
            ),
            (
                self.skipped_lines,
                "line of the log was not understood",
                "lines of the log were not understood",
            ),
        ];
        let mut remarks: Vec<String> = counted
            .into_iter()
            .filter(|(count, _, _)| *count > 0)
            .map(|(count, one, many)| {
                format!("{} {}", units::count(count), if count == 1 { one } else { many })
            })
            .collect();
        // Lost events have a remark of their own.
        if self.incomplete && self.block.is_none_or(|block| block.lost_events == 0) {
            remarks.insert(0, INCOMPLETE.to_owned());
        }
        remarks.extend(self.block.map(|counts| counts.remarks()).unwrap_or_default());
        remarks
    }
}

/// Requests, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Their number.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The requests that devices got while a program was recorded, by what is known of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockCounts {
    /// Requests of which a part lies in a file of the program, and the bytes that do: the events of the trace.
    pub attributed: Requests,
    /// Metadata and the journal: issued for the program or by the kernel, and marked as such by the file system.
    pub metadata: Requests,
    /// Other requests of the kernel on disks that have files of the program.
    pub kernel: Requests,
    /// Other requests of the program.
    pub unknown: Requests,
    /// Requests of other programs, and on other disks, which have no part in the trace.
    pub left_out: Requests,
    /// Reports that the kernel had no memory for: requests may be missing.
    pub lost_events: u64,
}

impl BlockCounts {
    /// All numbers, in the order of the trace file.
    pub fn numbers(&self) -> [u64; 11] {
        let BlockCounts { attributed, metadata, kernel, unknown, left_out, lost_events } = *self;
        let [a, b, c, d, e] =
            [attributed, metadata, kernel, unknown, left_out].map(|all| [all.requests, all.bytes]);
        [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1], e[0], e[1], lost_events]
    }

    /// The counts of these numbers.
    pub fn from_numbers(numbers: [u64; 11]) -> BlockCounts {
        let requests = |at: usize| Requests { requests: numbers[at], bytes: numbers[at + 1] };
        BlockCounts {
            attributed: requests(0),
            metadata: requests(2),
            kernel: requests(4),
            unknown: requests(6),
            left_out: requests(8),
            lost_events: numbers[10],
        }
    }

    /// What the trace does not have, for the user.
    pub fn remarks(&self) -> Vec<String> {
        let unattributed = self.unattributed();
        let all_requests = unattributed.requests.saturating_add(self.attributed.requests);
        let all_bytes = unattributed.bytes.saturating_add(self.attributed.bytes);
        let share = |part: u64, all: u64| part as f64 * 100.0 / all.max(1) as f64;
        let one = |requests: Requests| {
            format!("{} ({})", units::plural(requests.requests, "request"), units::bytes(requests.bytes))
        };
        let mut remarks = vec![format!(
            "attributed to no file: {} of requests, {} of bytes; metadata and journal {}, others of the kernel {}, \
             others of the program {}",
            percent(share(unattributed.requests, all_requests)),
            percent(share(unattributed.bytes, all_bytes)),
            one(self.metadata),
            one(self.kernel),
            one(self.unknown)
        )];
        if self.left_out.requests > 0 {
            remarks.push(format!("left out: {} of other programs and disks", one(self.left_out)));
        }
        if self.lost_events > 0 {
            remarks.push(format!(
                "the trace is incomplete: the buffers of the kernel lost {}; record with a larger --buffer",
                units::plural(self.lost_events, "event")
            ));
        }
        remarks
    }

    /// The requests that belong to no file although they may be the program's.
    pub fn unattributed(&self) -> Requests {
        let all = [self.metadata, self.kernel, self.unknown];
        Requests {
            requests: all.iter().fold(0, |sum, some| sum.saturating_add(some.requests)),
            bytes: all.iter().fold(0, |sum, some| sum.saturating_add(some.bytes)),
        }
    }
}

/// A share with one digit, so that a small one does not look like none.
fn percent(share: f64) -> String {
    format!("{share:.1}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_count_one_or_many() {
        let recording = Recording { unseen_requests: 1, guessed_appends: 4000, ..Recording::default() };
        assert_eq!(
            recording.remarks(),
            [
                "1 request used a descriptor that came from elsewhere: its position counts from 0",
                "4,000 appends went to files of unknown length: their offsets are lower bounds",
            ]
        );
    }
}
