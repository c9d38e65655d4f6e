//! Schedules choose the stream that is read or written next: the published algorithms as pure state machines.
//!
//! A schedule sees how many blocks each stream holds and what the function is blocked on, and answers with one block
//! to move. It never touches a stream, so that the simulator and the engine drive the same one.
//!
//! Source: G. Stella and D. Loguinov, "On High-Latency Bowtie Data Streaming". Sections and theorems are those of
//! this paper; run lengths and group sizes are computed in [`ascot_model::run_length`].
//!
//! | algorithm | theorem or section | function |
//! | --- | --- | --- |
//! | A1, 0 x m: drain the largest bucket | III.A, theorems 1, 2 | `Staircase::plan`, `Tasks::drain` |
//! | A2, 1 x m: drain the largest buckets | III.B, theorems 3 to 5 | `Staircase::drain_group` |
//! | A3, n x 0: fill the empty bucket by streaming | III.C, theorems 6, 7 | `Staircase::stream`, `Targets::fill_up` |
//! | A4, n x 1: fill the smallest buckets | III.D, theorems 8, 9 | `Staircase::fill_group`, `Targets::fill_group` |
//! | A5, n x m: A4 and A2, one after the other | IV.A, theorem 10 | `Staircase::fill_group`, `Staircase::drain_group` |
//! | A6r, n x m: A3 with A2 | IV.B, IV.C, theorems 11 to 13 | `Staircase::stream`, `interconnect::make_room` |
//! | A6w, n x m: A4 with A1 | IV.B, IV.C, theorems 11 to 13 | `interconnect::fill_before` |
//! | optimal initial state of inputs | theorems 6, 8 | `Targets::preload` |
//! | memory of both sides, `M_r` and `M_w` | IV.A | `Split::new` |
//! | optimal group sizes | theorems 5, 9, 12, 13 | [`Scheme::best_of`](ascot_model::run_length::Scheme::best_of) |
//! | A4 with forecasting | III.D; Knuth, volume 3, 5.4.6 | `GroupedForecast` |
//! | A3 with forecasting | III.C; Knuth, volume 3, 5.4.6 | `PlannedReads` |
//! | naive allocators | III.A, III.B | `EqualParts` |
//! | forecasting | Knuth, volume 3, 5.4.6 | `Forecast` |
//! | files beside inputs that are pipes | not in the paper | `PipedInputs` |
//! | two sides kept in step | not in the paper | `interconnect`: `make_room`, `interrupt`, `fill_before` |
//! | inputs consumed at different rates | not in the paper | `Targets::largest`, `Targets::streamed` |
//! | inputs that end | not in the paper | `Staircase::follow_ends` |
//!
//! Files, each using only those before it: `split.rs` (memory of both sides), `view.rs` (what a schedule sees and
//! answers), `targets.rs` (buckets to fill and drain, and how full a bucket is made), `interconnect.rs` (two
//! sides in step), `staircase.rs` (A1 to A6), `piped_inputs.rs`, `equal_parts.rs`, `grouped_forecast.rs`,
//! `planned_reads.rs`, `forecast.rs`.

mod equal_parts;
mod forecast;
mod grouped_forecast;
mod interconnect;
mod piped_inputs;
mod planned_reads;
#[cfg(test)]
mod played;
mod split;
mod staircase;
mod targets;
mod view;

pub use crate::constants::{BLOCKS_PER_STREAM, PIPE_BLOCKS};
pub use equal_parts::EqualParts;
pub use forecast::{FewestHeld, Forecast};
pub use grouped_forecast::GroupedForecast;
pub use piped_inputs::PipedInputs;
pub use planned_reads::PlannedReads;
pub use split::Split;
pub use staircase::Staircase;
pub use view::{BlockedOn, Move, Schedule, SchedulerView, Staircases};
