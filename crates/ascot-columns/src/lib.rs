//! Arrow record batches as records that the engine sorts, and files of records as Arrow arrays.
//!
//! ```text
//!               Encoder                                 Decoder
//! RecordBatch ───────────> records ───> engine ───> records ───────────> RecordBatch
//!
//! record        [ key ........................ | row ........................... ]
//!                 key columns, memcmp-ordered    all columns that the key cannot give back
//!
//! fixed:N       [ key | row ]                    every column has a fixed width
//! prefixed:u32  [ length | key | row ]           every key column has a fixed width
//! keyed:u32     [ length | key length | key | row ]
//! ```
//!
//! `plan` is what an encoder and its decoder share, `plain` converts columns to the types of rows, and `files` reads
//! files of records as Arrow arrays.
//!
//! The engine compares only key bytes, so that a stable sort keeps the order of rows with equal keys.
//! [`Encoder::layout`] and [`Encoder::keys`] state the layout and the place of the key. The page of `key` draws the
//! encoding of keys, the page of `row` the encoding of rows.
//!
//! Invariants: two keys compare as bytes as their rows compare in Arrow's order (floats in IEEE 754 total order), equal
//! keys have equal bytes, and decoding gives the values that were encoded. Neither direction allocates per row. A
//! decoder gives an error for malformed records and never panics.
//!
//! ```
//! use std::sync::Arc;
//! use arrow_array::{RecordBatch, StringArray, UInt64Array};
//! use ascot_columns::{BatchLimits, Encoder, SortColumn};
//!
//! let id = Arc::new(UInt64Array::from(vec![7, 3])) as _;
//! let name = Arc::new(StringArray::from(vec!["b", "a"])) as _;
//! let batch = RecordBatch::try_from_iter([("id", id), ("name", name)])?;
//! let mut encoder = Encoder::new(batch.schema(), &[SortColumn::new("id")])?;
//! let mut records = Vec::new();
//! encoder.encode(&batch, &mut records)?;
//! assert_eq!(encoder.layout().to_string(), "prefixed:u32");
//!
//! let mut decoder = encoder.decoder(BatchLimits::default());
//! assert_eq!(decoder.push(&records)?, records.len());
//! decoder.finish()?;
//! assert_eq!(decoder.next_batch(), Some(batch));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decoder;
mod encoder;
mod error;
pub mod files;
mod key;
mod plain;
mod plan;
mod row;
mod sort_column;
mod type_name;
mod width;

pub use decoder::{BatchLimits, Decoder};
pub use encoder::Encoder;
pub use error::ColumnsError;
pub use sort_column::SortColumn;
pub use type_name::type_name;
