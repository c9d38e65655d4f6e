//! Jobs on records larger than memory.
//!
//! The entries in `jobs` make a plan from a [`request::SortRequest`], run the passes of the plan over `ascot-bowtie`
//! and `ascot-io`, and return a report. A folder imports only folders below it:
//!
//! ```text
//!   shuffle       chunks to partitions, and partitions sorted: the passes of a sort on a cluster
//!   jobs          the entries: sort, split, make views, explain, resume, generate, remove leftovers of killed jobs
//!   flow          a user's program as the function of a bowtie
//!   check         whether records are in order, of files and of views
//!   view          runs that stay, merged when they are read
//!   methods       run and merge, partition and sort, merge inputs, reshape by a key, split, small
//!   job           the state that the passes of one job share; its end: seal the output, write the report, commit
//!   order         the first record out of order in an input
//!   partition     the partitioned write: records grouped by the part of their key, and written there
//!   merge         sorted sources merged, as a flow and in parallel
//!   runs          chunks sorted into runs; run files, their store, natural runs
//!   output        files that appear whole or not at all, or a pipe: the commit protocol
//!   plan          memory, volumes, disk space, the method
//!   pipeline      one thread reads, several work, the caller takes the results in order
//!   read          inputs, and whole records from them
//!   records       the operations of a pass on lines, CSV, fixed records, numbers
//!   report        progress while a job runs, and its report
//!   api           requests, errors, observers
//!   resources     memory, threads, descriptors, devices and turns on them
//! ```

pub mod api;
pub mod check;
pub mod flow;
pub mod job;
pub mod jobs;
pub mod merge;
pub mod methods;
mod order;
pub mod output;
pub mod partition;
pub mod pipeline;
pub mod plan;
pub mod read;
pub mod records;
pub mod report;
pub mod resources;
pub mod runs;
pub mod shuffle;
pub mod view;

pub use api::error::{ErrorKind, SortError};
pub use api::observe::{Cancel, Observer, Progress, Silent};
pub use api::request::{FileRange, Input, Keys, Method, Output, SortRequest, Volumes};
pub use api::{error, observe, request};
pub use check::is_sorted::{Sortedness, is_sorted};
pub use flow::{FlowExplanation, FlowFunction, FlowRequest, FunctionStreams, explain_flow, run_flow};
pub use jobs::explanation::{Explanation, SortPlan, ViewChoice, choose_view, explain, explain_view};
pub use jobs::generate;
pub use jobs::job_plan::{FilesTask, JobPlan, PlanRequest, PlannedFiles, PlannedJob, UserFunction, plan_job};
pub use jobs::leftovers::{Leftover, Removal, clean, is_running, leftovers};
pub use jobs::resume::{outputs_of_job, resume};
pub use jobs::sort::{make_view, sort, split};
pub use plan::find_volumes::{Writes, find_volumes, is_same_on_any_volume, volumes_for_plan, volumes_of};
pub use plan::volumes::RunOptions;
