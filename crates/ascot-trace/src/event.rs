//! The plain types of a trace.
//!
//! Invariants: `file` and `process` of an event are indexes of the tables of its trace; `offset + size` of a request
//! fits 64 bits.

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
}

impl Kind {
    /// All kinds, at the index of their number.
    pub const ALL: [Kind; 7] =
        [Kind::Read, Kind::Write, Kind::Open, Kind::Close, Kind::Seek, Kind::Resize, Kind::Delete];

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
    /// The bytes that a request moved; 0 for other events.
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
}
