//! Streams of elements: a file read or written forward, one fixed-size value at a time, in five ways.
//!
//! The four back-ends of Heinrich et al. (sections 3.2 to 3.5) and direct access differ only in how blocks of bytes
//! move between the file and memory:
//!
//! ```text
//!   kind       block            moved by                        I/Os for k streams of N elements of E bytes
//!   plain      one element      a system call for each          k N
//!   buffered   8 KiB            a system call for each block    k ceil(E N / 8192)
//!   sized      B bytes          a system call for each block    k ceil(E N / B)
//!   mapped     B bytes          a window mapped to memory       k ceil(E N / B)
//!   direct     B bytes, depth q O_DIRECT, q requests in flight  k ceil(E N / B)
//! ```
//!
//! [`ElementReader`] and [`ElementWriter`] hold the current block and move elements; a `Source` or a `Sink` moves
//! blocks. Invariants: a block is requested only if an element of it is needed, and written as soon as it is full, so
//! the requests counted are those of the table; an element that spans two blocks is put together on the way.
//!
//! ```
//! use ascot_io::elements::{ElementReader, ElementWriter, StreamKind};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("numbers");
//! let mut writer = ElementWriter::<u32>::create(&path, StreamKind::Sized { block_bytes: 64 << 10 })?;
//! for number in 0..1000 {
//!     writer.write(number)?;
//! }
//! writer.close()?;
//!
//! let mut reader = ElementReader::<u32>::open(&path, StreamKind::Mapped { window_bytes: 1 << 20 })?;
//! let mut sum = 0;
//! while !reader.end_of_stream() {
//!     sum += u64::from(reader.read_next()?);
//! }
//! assert_eq!((sum, reader.requests()), (499_500, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block_calls;
mod blocks;
mod direct_blocks;
mod element;
mod kind;
mod reader;
mod windows;
mod writer;

pub use element::Element;
pub use kind::{BUFFERED_BYTES, StreamKind};
pub use reader::ElementReader;
pub use writer::{ElementWriter, Written};
