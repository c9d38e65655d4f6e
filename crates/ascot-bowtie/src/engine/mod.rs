//! Drives real streams with a schedule and calls the flow: n inputs, m outputs, one memory.
//!
//! ```text
//!   input 0 ─▶ [filled] ─╮                 ╭─ [being filled][full] ─▶ output 0
//!      ...               ├──▶  Flow  ──────┤        ...
//!   input n ─▶ [filled] ─╯                 ╰─ [being filled][full] ─▶ output m
//!        ▲                                            ▲
//!        ╰────────── Schedule: the next block ────────╯
//! ```
//!
//! Files, each using only those before it: `device_loads.rs` (the requests of each device), `inputs.rs` and
//! `outputs.rs` (streams of blocks), `streams.rs` (files as such streams), `bowtie.rs` (asks the schedule, moves
//! blocks, waits), `access.rs` (the blocks and bytes that a flow takes and puts).

mod access;
mod bowtie;
mod device_loads;
mod inputs;
mod outputs;
mod streams;
#[cfg(test)]
mod tests;

pub use bowtie::{Bowtie, TooFewBlocks};
pub use inputs::{BlockInput, Completed};
pub use outputs::BlockOutput;
pub use streams::{NoInput, NoOutput, Reader, Writer, complete_down_to};
