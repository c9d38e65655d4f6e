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
//! Files, each using only those before it: `device_loads.rs` (the requests of each device), `adaption.rs` (a share of
//! reading that is learned), `observed.rs` (what an observer sees of the buckets), `streams.rs` (streams of blocks, and
//! files as such streams), `bowtie.rs` (asks the schedule, moves blocks, waits, and gives the flow its blocks),
//! `consume.rs` and `produce.rs` (the flow's bytes, out of inputs and into outputs), `observing.rs` (sets the
//! observer), `piped.rs` (a bowtie some of whose inputs are pipes). `write_behind.rs` uses none of them: outputs
//! without a flow, whose bytes the system holds.

mod adaption;
mod bowtie;
mod consume;
mod device_loads;
mod observed;
mod observing;
mod piped;
mod produce;
mod streams;
#[cfg(test)]
mod tests;
mod write_behind;

pub use bowtie::Bowtie;
pub use streams::{
    BlockInput, BlockOutput, Completed, FileWriter, Reader, TooFewBlocks, Writer, complete_down_to,
};
pub use write_behind::{WaitingMemory, Write, WriteBehind};
