//! A cell of the study: one measurement, and its I/Os by the formulas of Heinrich et al., with blocks of B bytes. (From
//! B = 4096 on they count blocks of 4092 bytes.)

use std::fmt;
use std::str::FromStr;

use ascot_io::Direction;
use ascot_io::elements::StreamKind;
use ascot_model::stream_cost::{block_ios, plain_ios};

/// Bytes of an element: the study moves 32-bit integers, as Heinrich et al. do.
pub const ELEMENT_BYTES: u64 = 4;
/// Requests that a direct stream of the study keeps in flight.
pub const DIRECT_DEPTH: usize = 8;
/// The greatest exponent of a block.
pub const MAX_EXPONENT: u8 = 30;

/// A back-end of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// One system call for each element.
    Plain,
    /// System calls of 8 KiB.
    Buffered,
    /// System calls of B bytes.
    Sized,
    /// Windows of B bytes.
    Mapped,
    /// O_DIRECT requests of B bytes, several in flight.
    Direct,
}

impl Backend {
    /// All back-ends, in the order of Heinrich et al.
    pub const ALL: [Self; 5] = [Self::Plain, Self::Buffered, Self::Sized, Self::Mapped, Self::Direct];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Buffered => "buffered",
            Self::Sized => "sized",
            Self::Mapped => "mapped",
            Self::Direct => "direct",
        }
    }

    /// Its name in Heinrich et al.
    pub const fn published_name(self) -> Option<&'static str> {
        match self {
            Self::Plain => Some("Simple"),
            Self::Buffered => Some("Buffer"),
            Self::Sized => Some("BufferB"),
            Self::Mapped => Some("Mapping"),
            Self::Direct => None,
        }
    }

    /// Its streams, with B = 2^exponent bytes where B is a parameter.
    pub fn kind(self, exponent: u8) -> StreamKind {
        let bytes = 1_usize << exponent.min(MAX_EXPONENT);
        match self {
            Self::Plain => StreamKind::Plain,
            Self::Buffered => StreamKind::Buffered,
            Self::Sized => StreamKind::Sized { block_bytes: bytes },
            Self::Mapped => StreamKind::Mapped { window_bytes: bytes },
            Self::Direct => StreamKind::Direct { block_bytes: bytes, depth: DIRECT_DEPTH },
        }
    }

    /// Whether B is a parameter of it.
    pub const fn has_blocks(self) -> bool {
        matches!(self, Self::Sized | Self::Mapped | Self::Direct)
    }

    /// The smallest exponent of a block. A window holds whole integers (Heinrich et al., section 3.5.1), and direct
    /// access moves whole pages.
    pub const fn min_exponent(self) -> u8 {
        match self {
            Self::Mapped => 2,
            Self::Direct => 12,
            _ => 0,
        }
    }
}

impl FromStr for Backend {
    type Err = ();

    /// A word of this study or a name of Heinrich et al., in any case.
    fn from_str(text: &str) -> Result<Self, ()> {
        let named = |backend: &&Self| {
            let published = backend.published_name().unwrap_or_default();
            [backend.word(), published].iter().any(|name| !name.is_empty() && name.eq_ignore_ascii_case(text))
        };
        Self::ALL.iter().find(named).copied().ok_or(())
    }
}

/// The state of the page cache in a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cache {
    /// Reading: the files are not in the cache. Writing: the time ends when the data is on the device.
    Cold,
    /// Reading: the files are in the cache as far as memory allows. Writing: the time ends when the files are closed.
    Warm,
}

impl Cache {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }

    /// The state that has this word.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Cold, Self::Warm].into_iter().find(|cache| cache.word() == word)
    }
}

/// The word of a direction.
pub const fn direction_word(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

/// One measurement: k streams of N integers each, interleaved element by element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// Reading or writing.
    pub direction: Direction,
    /// The back-end.
    pub backend: Backend,
    /// B = 2^exponent bytes; 0 for back-ends without B.
    pub exponent: u8,
    /// k: streams open at once.
    pub streams: u32,
    /// N: integers of each stream.
    pub elements: u64,
    /// The page cache.
    pub cache: Cache,
    /// Times that the loop runs; the first is left out.
    pub loops: u32,
}

impl Cell {
    /// The kind of its streams.
    pub fn kind(&self) -> StreamKind {
        self.backend.kind(self.exponent)
    }

    /// B in bytes, for back-ends that have one.
    pub fn block_bytes(&self) -> Option<u64> {
        self.backend.has_blocks().then(|| 1 << self.exponent)
    }

    /// The I/Os by formula.
    pub fn predicted_ios(&self) -> u64 {
        let streams = u64::from(self.streams);
        match self.backend {
            Backend::Plain => plain_ios(streams, self.elements),
            _ => {
                let block = self.kind().request_bytes(ELEMENT_BYTES as usize) as u64;
                block_ios(streams, self.elements, ELEMENT_BYTES, block)
            }
        }
    }

    /// The I/Os that are expected exactly: those of the formula for each stream, which has a last block of its own.
    pub fn expected_ios(&self) -> u64 {
        u64::from(self.streams).saturating_mul(Self { streams: 1, ..*self }.predicted_ios())
    }

    /// Integers of all streams.
    pub fn total_elements(&self) -> u64 {
        u64::from(self.streams).saturating_mul(self.elements)
    }

    /// Bytes of all files.
    pub fn data_bytes(&self) -> u64 {
        self.total_elements().saturating_mul(ELEMENT_BYTES)
    }

    /// Memory of all streams, in bytes. A block longer than the file is not filled.
    pub fn memory_bytes(&self) -> u64 {
        let file_bytes = usize::try_from(self.elements.saturating_mul(ELEMENT_BYTES)).unwrap_or(usize::MAX);
        let stream =
            self.kind().memory_bytes(ELEMENT_BYTES as usize).min(file_bytes.saturating_mul(2).max(1 << 16));
        u64::from(self.streams).saturating_mul(stream as u64)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", direction_word(self.direction), self.backend.word())?;
        if self.backend.has_blocks() {
            write!(f, ", B = 2^{}", self.exponent)?;
        }
        write!(f, ", N = {}, k = {}, {}", self.elements, self.streams, self.cache.word())
    }
}
