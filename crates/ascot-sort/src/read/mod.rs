//! From inputs to whole records.
//!
//! ```text
//!   inputs ─▶ open (formats, headers) ─▶ record_reader ─▶ chunks of whole records
//!                                             ▲ its cutter also serves the inputs of a merge
//! ```

pub mod damage;
pub mod inputs;
pub mod misfits;
pub mod open;
mod part_stream;
pub mod record_reader;

pub(crate) use damage::RecordStart;
pub(crate) use inputs::{
    COMPLETION_BYTES, Fingerprint, InputFile, InputPosition, Inputs, MergedInput, PROGRAM_RECORDS, Span,
    read_index_of,
};
pub(crate) use open::{
    csv_head, keys_need_head, look_at, notice_of_unnamed, open_inputs, refuse_different, refuse_others,
    refuse_unless_text,
};
pub(crate) use part_stream::{PART_AHEAD_BLOCKS, part_ahead_bytes};
pub(crate) use record_reader::{
    LongRecord, Patience, PlacedChunk, RecordCutter, RecordReader, carry_bytes, filled_bytes,
};
