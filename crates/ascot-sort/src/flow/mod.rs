//! A user's program, or a function of this process, as the function of a bowtie (`ascot flow`, `ascot.flow`).
//!
//! ```text
//!   files ─▶ engine ─▶ pipes ─▶ program ─▶ pipes ─▶ engine ─▶ files
//!              ╰── one memory, one schedule: A5 or A6, or A1 to A4 where a side has one file or none ──╯
//! ```
//!
//! In reading order: `function.rs` (the queues of a function in this process, which replace the pipes), `request.rs`
//! (what is run), `ends.rs` (files and pipes of the user), `program.rs` (the process), `peer.rs` (the program or
//! function, and the ways to it), `exchange.rs` (bytes between both), `plan.rs` (memory, schedule and predicted
//! switches), `job.rs` (what both kinds of jobs share), `merged.rs` (inputs merged into one), `run.rs` (each input by
//! itself).

mod ends;
mod exchange;
mod function;
mod job;
mod merged;
mod peer;
mod plan;
mod program;
pub mod request;
mod run;

pub use function::{FunctionStreams, Moved};
pub use plan::{FlowExplanation, explain_flow};
pub use request::{FlowFunction, FlowRequest};
pub use run::run_flow;
