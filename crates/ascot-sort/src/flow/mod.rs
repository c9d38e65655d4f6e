//! A user's program as the function of a bowtie (`ascot flow`).
//!
//! ```text
//!   files ─▶ engine ─▶ pipes ─▶ program ─▶ pipes ─▶ engine ─▶ files
//!              ╰── one memory, one schedule: A5 or A6, or A1 to A4 where a side has one file or none ──╯
//! ```
//!
//! In reading order: `request.rs` (what is run), `ends.rs` (files and pipes of the user), `program.rs` (the process),
//! `exchange.rs` (bytes between both), `plan.rs` (memory, schedule and predicted switches), `job.rs` (what both
//! kinds of jobs share), `merged.rs` (inputs merged into one), `run.rs` (each input by itself).

mod ends;
mod exchange;
mod job;
mod merged;
mod plan;
mod program;
pub mod request;
mod run;

pub use plan::{FlowExplanation, explain_flow};
pub use request::FlowRequest;
pub use run::run_flow;
