//! Jobs on records larger than memory.
//!
//! A [`request::SortRequest`] becomes a plan, the plan a job, the job passes over `ascot-bowtie` and `ascot-io`, and
//! these a report. A folder imports only folders below it:
//!
//! ```text
//!   jobs          the entries: sort, split, explain, resume, generate, what is left of jobs that died
//!   view          runs that stay, merged when they are read
//!   methods       run and merge, partition and sort, merge inputs, split, small
//!   job           what the passes of one job share
//!   check         whether records are in order
//!   partition     records grouped by the part their key belongs to, and written there
//!   merge         sorted sources merged, as a flow and in parallel
//!   runs          pieces sorted into runs; run files, their store, natural runs
//!   output        files that appear whole or not at all, or a pipe
//!   plan          memory, volumes, disk space, the method
//!   read          inputs, and whole records from them
//!   records       what a pass needs to know of lines, CSV, fixed records, numbers
//!   report        the account of a job, while it runs and after it
//!   api           requests, errors, observers
//!   resources     memory, threads, descriptors, turns on a device
//! ```

pub mod api;
pub mod check;
pub mod job;
pub mod jobs;
pub mod merge;
pub mod methods;
pub mod output;
pub mod partition;
pub mod plan;
pub mod read;
pub mod records;
pub mod report;
pub mod resources;
pub mod runs;
pub mod view;

pub use api::error::{ErrorKind, SortError};
pub use api::observe::{Cancel, Observer, Progress, Silent};
pub use api::request::{Input, Keys, Method, Output, SortRequest};
pub use api::{error, observe, request};
pub use check::is_sorted::{Sortedness, is_sorted};
pub use jobs::explanation::Explanation;
pub use jobs::generate;
pub use jobs::leftovers::{Leftover, Removal, clean, is_running, leftovers};
pub use jobs::sort::{explain, explain_view, make_view, resume, sort, split};
pub use jobs::sort_plan::SortPlan;
pub use plan::volumes::RunOptions;
