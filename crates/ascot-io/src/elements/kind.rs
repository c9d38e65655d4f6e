//! The kinds of element streams.

use std::fmt;

use crate::{DEFAULT_DEPTH, PAGE_BYTES};

/// Bytes of the block of a buffered stream.
pub const BUFFERED_BYTES: usize = 8 << 10;

/// The largest block or window.
const MAX_BLOCK_BYTES: usize = 1 << 40;

/// How the blocks of an element stream move between file and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// One system call for each element (Heinrich et al., section 3.2).
    Plain,
    /// System calls of [`BUFFERED_BYTES`] (section 3.3).
    Buffered,
    /// System calls of `block_bytes`, at least 1 (section 3.4).
    Sized {
        /// Bytes of a block.
        block_bytes: usize,
    },
    /// Windows of `window_bytes`, at least 1, mapped to memory (section 3.5). Another process must not truncate or
    /// change the file meanwhile: an access to a page that is gone ends the process (SIGBUS).
    Mapped {
        /// Bytes of a window.
        window_bytes: usize,
    },
    /// Requests of `block_bytes`, a multiple of 4096, past the page cache, with `depth` of them in flight.
    Direct {
        /// Bytes of a request.
        block_bytes: usize,
        /// Requests in flight, at least 1.
        depth: usize,
    },
}

/// Blocks of a direct stream: those in flight, the program's, and a spare one, which the device begins at once when
/// another is done. More spare blocks make reads slower: the memory that takes turns no longer stays in the cache.
pub(super) const fn direct_blocks(depth: usize) -> usize {
    depth.saturating_add(2)
}

impl StreamKind {
    /// Direct access with blocks of `block_bytes` and the usual depth.
    pub const fn direct(block_bytes: usize) -> Self {
        Self::Direct { block_bytes, depth: DEFAULT_DEPTH }
    }

    /// Bytes of one request, for elements of `element_bytes`.
    pub const fn request_bytes(self, element_bytes: usize) -> usize {
        match self {
            Self::Plain => element_bytes,
            Self::Buffered => BUFFERED_BYTES,
            Self::Sized { block_bytes } | Self::Direct { block_bytes, .. } => block_bytes,
            Self::Mapped { window_bytes } => window_bytes,
        }
    }

    /// Memory that an open stream occupies, in bytes, for elements of `element_bytes`. The pages of a window belong to
    /// the page cache; they count here because they are mapped.
    pub const fn memory_bytes(self, element_bytes: usize) -> usize {
        match self {
            Self::Direct { block_bytes, depth } => block_bytes.saturating_mul(direct_blocks(depth)),
            // A window starts at a page, so it may cover one more than its bytes need.
            Self::Mapped { window_bytes } => window_bytes.saturating_add(2 * PAGE_BYTES),
            _ => self.request_bytes(element_bytes).saturating_add(PAGE_BYTES),
        }
    }

    /// The word for the kind: `plain`, `buffered`, `sized`, `mapped` or `direct`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Buffered => "buffered",
            Self::Sized { .. } => "sized",
            Self::Mapped { .. } => "mapped",
            Self::Direct { .. } => "direct",
        }
    }

    /// Why no stream can have these values, if none can.
    pub(crate) fn impossible(self) -> Option<&'static str> {
        if self.request_bytes(1) > MAX_BLOCK_BYTES {
            return Some("a block of a stream has at most 1 TiB");
        }
        match self {
            Self::Sized { block_bytes: 0 } => Some("a block of a sized stream needs at least one byte"),
            Self::Mapped { window_bytes: 0 } => Some("a window of a mapped stream needs at least one byte"),
            Self::Direct { depth: 0, .. } => Some("a direct stream needs at least one request in flight"),
            Self::Direct { block_bytes, .. }
                if block_bytes == 0 || !block_bytes.is_multiple_of(PAGE_BYTES) =>
            {
                Some("a block of a direct stream must be a multiple of 4096 bytes")
            }
            _ => None,
        }
    }
}

impl fmt::Display for StreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain | Self::Buffered => f.write_str(self.word()),
            Self::Sized { block_bytes: bytes } | Self::Mapped { window_bytes: bytes } => {
                write!(f, "{} {bytes}", self.word())
            }
            Self::Direct { block_bytes, depth } => write!(f, "direct {block_bytes} x {depth}"),
        }
    }
}
