//! Jobs on records larger than memory.
//!
//! A [`request::SortRequest`] becomes a plan, the plan a job, the job passes over
//! `ascot-bowtie` and `ascot-io`, and these a report.
//!
//! ```text
//!   records   what a pass needs to know of lines, CSV, fixed records, numbers
//!   input, reader, pieces      inputs cut into pieces of whole records
//!   form, cut, emit            pieces sorted, merged by key range in parallel
//!   runs, merge, sorting       runs written, read back, merged
//!   ordered, chunks            runs that refer to inputs in order already
//!   distribute                 parts by sampled key, each sorted
//!   small                      what fits a glance, without all of this
//!   target, store, job         output, run store, the job itself
//!   view                       runs that stay, merged when they are read
//! ```

pub mod account;
mod boundaries;
pub mod budget;
pub mod check;
pub mod chunks;
pub mod control_group;
pub mod cut;
mod damage;
mod dealing;
mod disk_room;
pub mod distribute;
pub mod emit;
pub mod error;
mod explanation;
pub mod file_format;
pub mod form;
mod freeing;
pub mod generate;
mod header;
pub mod input;
pub mod job;
pub mod keeping;
pub mod leftovers;
mod long_runs;
pub mod merge;
pub mod merging;
mod misfits;
pub mod observe;
pub mod order_check;
pub mod ordered;
pub mod part;
mod parting;
pub mod pieces;
pub mod places;
pub mod plan;
pub mod progress;
pub mod reader;
pub mod records;
pub mod refine;
pub mod request;
pub mod runs;
mod small;
pub mod sort;
pub mod sorting;
pub mod spill;
pub mod split;
mod splitting;
pub mod store;
mod sweep;
pub mod target;
mod threads;
mod turns;
pub mod view;
mod volumes;
mod watch;

pub use error::{ErrorKind, SortError};
pub use explanation::Explanation;
pub use job::RunOptions;
pub use leftovers::{Leftover, Removal, clean, is_running, leftovers};
pub use observe::{Cancel, Observer, Progress, Silent};
pub use order_check::{Sortedness, is_sorted};
pub use request::{Input, Keys, Method, Output, SortRequest};
pub use sort::{explain, explain_view, make_view, resume, sort, split};
