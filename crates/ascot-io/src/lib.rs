//! Streams, blocks, the memory pool, run files, the ledger of runs and switches, and the clocks of threads.
//!
//! All bytes a job reads or writes pass through here, and all memory it uses is accounted here:
//!
//! ```text
//!   Pool -> Buf, BlockPool             memory: the pool is the budget
//!   Disk -> ReadStream, WriteStream    files: one interface, several back-ends, a fault hook
//!           \-> IoQueue                the device: several requests in flight
//!   RunWriter, RunReader               checksummed blocks on top of streams
//!   AtomicOutput                       complete or not at all
//!   elements                           a file as a sequence of values, in five ways
//!   Ledger                             what moved, in how many runs
//!   Clocks                             what the threads of a job spend their time on
//!   VirtualDevice                      the time a device would have taken
//! ```
//!
//! The files:
//!
//! ```text
//!   memory, ranges, arena, pool, buf, growable    mappings, the budget, regions of it, blocks, memory that grows
//!   disk/, backend, stream, stream_context        opens files; the traits of streams, and what each stream uses
//!   direct, io_queue/, random_access              requests to a device; a file read at any offset
//!   pipe, program_streams                         streams without offsets
//!   run/                                          run files: blocks, their index, codecs
//!   elements/, virtual_device                     files of values; the clock of a device
//!   output, removal, emergency                    AtomicOutput; large files that are removed; unfinished files of a
//!                                                 process that must end at once
//!   space_reservation, system, error              space on volumes; system calls; errors
//!   ledger/, clocks, processor_time               what moved, and what threads spent their time on
//!   threads, waits/, sync                         starting threads, waiting, locks
//! ```
//!
//! Nothing in this crate depends on the form of records, or on the order in which streams are served.

mod arena;
mod backend;
mod buf;
pub mod clocks;
mod direct;
mod disk;
pub mod elements;
pub mod emergency;
mod error;
mod growable;
mod io_queue;
mod ledger;
mod memory;
mod output;
mod pipe;
mod pool;
pub mod processor_time;
mod program_streams;
mod random_access;
mod ranges;
mod removal;
mod run;
mod space_reservation;
mod stream;
mod stream_context;
pub mod sync;
mod system;
pub mod threads;
mod virtual_device;
pub mod waits;

pub use ascot_model::codec::{Codec, Compression};
pub use backend::Backend;
pub use buf::{BlockPool, Buf};
pub use direct::PendingRead;
pub use disk::{DEFAULT_DEPTH, DEFAULT_REQUEST_BYTES, Disk, DiskOptions, read_range};
pub use error::{Action, During, IoError, STANDARD_OUTPUT, is_passing};
pub use growable::Growable;
pub use io_queue::{IoQueue, PendingTransfer};
pub use ledger::{
    Direction, FileAccount, FileNumber, IssuedRequest, Ledger, NO_DEVICE, Occupancies, RequestObserver,
    SharingStreams, StreamAccount, Totals,
};
pub use output::{
    AtomicOutput, directory_of, is_temporary, name_of_temporary, orphaned_outputs, remove_orphan,
};
pub use pool::{Pool, PoolError, Reservation};
pub use program_streams::{BlockSink, ByteSource, ProgramStreams};
pub use random_access::{MetadataCalls, RandomAccessFile};
pub use run::{
    BlockEntry, ChooseCodec, Crc32c, RunFile, RunId, RunIndex, RunReader, RunWriter, SpillCodec,
    block_checksum, codec_bytes, crc32c, read_index, sample_codec, u32_at, u64_at,
};
pub use space_reservation::{PendingRemoval, SpaceReservation, ahead_bytes};
pub use stream::{Filled, ReadStream, WriteStream};
pub use stream_context::{Effect, FaultHook};
pub use sync::Unpoisoned;
pub use system::{
    await_written, begin_writing, cached_and_dirty_bytes, descriptor_limit, device_of, random_bytes,
    without_octal_escapes,
};
pub use threads::ThreadError;
pub use virtual_device::{VirtualDevice, VirtualStream};

/// The unit of direct access: buffers, offsets and lengths are multiples of it.
pub const PAGE_BYTES: usize = 4096;

/// For opening files in directories where other users may have put a link of the same name.
pub const O_NOFOLLOW: i32 = libc::O_NOFOLLOW;

/// The unit in which devices count.
pub(crate) const SECTOR_BYTES: usize = 512;
