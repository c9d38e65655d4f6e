//! The bowtie: n streams in, a function, m streams out, under a memory budget.
//!
//! ```text
//!   input 0 ─▶ [blocks] ─╮                ╭─ [block] ─▶ output 0
//!   input 1 ─▶ [blocks] ─┼──▶  Flow  ─────┼─ [block] ─▶ output 1
//!      ...               │   (the f)      │      ...
//!   input n ─▶ [blocks] ─╯                ╰─ [block] ─▶ output m
//!        ▲                                       ▲
//!        └── Schedule: whose block next ─────────┘
//! ```
//!
//! * [`schedule`]: pure state machines that see occupancies and answer with the next block to move.
//! * [`occupancy`]: what streams hold, as schedules see it.
//! * [`flow`]: the function in the middle; how any other joins.
//! * [`engine`]: drives real streams as a schedule says and calls the flow.
//! * [`simulate`]: drives numbers as the very same schedules say.
//!
//! This crate moves blocks; what a record is, only the flow knows.

pub mod engine;
pub mod flow;
pub mod occupancy;
pub mod schedule;
pub mod simulate;
