//! Who is read and who is written next: the published algorithms as pure state machines.
//!
//! A schedule sees how many blocks each stream holds and what the function is blocked on, and answers with one block
//! to move. It never touches a stream, so that the simulator and the engine drive the same one.
//!
//! Source: G. Stella and D. Loguinov, "On High-Latency Bowtie Data Streaming". Sections and theorems are those of
//! this paper; run lengths and group sizes are computed in [`ascot_model::run_length`].
//!
//! | algorithm | bowtie | source | reads by | writes by |
//! | --- | --- | --- | --- | --- |
//! | A1 | 0 x m | III.A, theorems 1, 2 | | `Staircase::plan`: the fullest bucket, `Tasks::drain` |
//! | A2 | 1 x m | III.B, theorems 3 to 5 | `Staircase::stream` | `Staircase::drain_group` |
//! | A3 | n x 0 | III.C, theorems 6, 7 | `Staircase::stream`, `Targets::fill_up` | |
//! | A4 | n x 1 | III.D, theorems 8, 9 | `Staircase::fill_group` | `Staircase::plan`: the fullest bucket |
//! | A5 | n x m | IV.A, theorem 10 | as A4 | as A2 |
//! | A6r | n x m | IV.B, C, theorems 11 to 13 | as A3 | `interconnect::make_room`, `interconnect::interrupt` |
//! | A6w | n x m | IV.B, C, theorems 11 to 13 | `interconnect::fill_before` | as A1 |
//! | initial state | n x m | theorems 6, 8 | `Targets::preload` | |
//! | division of memory | n x m | IV.A, `M_r` and `M_w` | `Split::new` | `Split::new` |
//! | equal parts | n x m | III.A, III.B, "naive" | `EqualParts` | `EqualParts` |
//! | forecasting | n x m | Knuth, volume 3, 5.4.6 | `Forecast` | the fullest bucket |
//! | `make_room`, `interrupt`, `fill_before`, uneven rates, inputs that end | n x m | not in the paper | drawn in `interconnect.rs`, `targets.rs` | |
//!
//! Files, each using only those before it: `view.rs` (what a schedule sees and answers), `split.rs` (memory of both
//! sides), `tasks.rs` (buckets to fill and drain), `targets.rs` (how full a bucket is made), `interconnect.rs` (two
//! sides in step), `staircase.rs` (A1 to A6), `equal_parts.rs`, `forecast.rs`.

mod equal_parts;
mod forecast;
mod interconnect;
mod split;
mod staircase;
mod targets;
mod tasks;
mod view;

pub use equal_parts::EqualParts;
pub use forecast::{FewestHeld, Forecast};
pub use split::Split;
pub use staircase::Staircase;
pub use view::{BlockedOn, Move, Schedule, SchedulerView};
