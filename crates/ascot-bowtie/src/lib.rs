//! The bowtie: n streams in, a function, m streams out, under a memory budget.
//!
//! ```text
//!   input 0 ─▶ [blocks] ─╮                ╭─ [block] ─▶ output 0
//!   input 1 ─▶ [blocks] ─┼──▶  Flow  ─────┼─ [block] ─▶ output 1
//!      ...               │   (the f)      │      ...
//!   input n ─▶ [blocks] ─╯                ╰─ [block] ─▶ output m
//!        ▲                                       ▲
//!        └── Schedule: the next block to move ───┘
//! ```
//!
//! This crate moves blocks; only the flow knows records.
//!
//! # Words
//!
//! | word | meaning |
//! | --- | --- |
//! | stream | a file that is read or written forward only |
//! | bucket | the blocks of memory that one stream holds |
//! | group | streams whose buckets are filled, or written, one directly after the other |
//! | run | bytes of one stream moved without moving another in between |
//! | switch | the change from one stream to another; every run begins with one |
//! | fan-in, fan-out | the numbers of inputs and of outputs, n and m |
//! | interconnect | a bowtie with several inputs and several outputs |
//! | round | of an interconnect: one run of the side that streams, with the group of the other side |
//!
//! # Modules
//!
//! In reading order. Each uses only those above it:
//!
//! * `constants`: every tuned constant, with its reason.
//! * [`schedule`]: the published algorithms as pure state machines; which block moves next.
//! * [`occupancy`]: what the streams hold, how fast they are consumed and filled, and the view that a schedule gets.
//! * [`simulate`]: drives numbers with the schedules.
//! * [`engine`]: drives real streams with the same schedules.
//! * [`flow`]: the function in the middle, and the loop that runs it.

mod constants;
pub mod engine;
pub mod flow;
pub mod occupancy;
pub mod schedule;
pub mod simulate;
