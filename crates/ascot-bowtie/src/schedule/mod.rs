//! Who is read and who is written next. A schedule is pure: it sees how many blocks each stream holds
//! and why the function in the middle stands still, and answers with one block to move. It never
//! touches a stream, so the simulator and the engine drive the very same one.
//!
//! * [`staircase`]: the algorithms A1 to A6, for long runs on devices whose switches cost time.
//! * [`forecast`]: blocks in the order in which a merge needs them, for devices without.
//! * [`rates`]: how fast each input is being consumed, as far as that has been seen.

pub mod forecast;
pub mod rates;
pub mod staircase;

pub use forecast::{FewestHeld, Forecast, Occupancies, Schedule};
pub use rates::Rates;
pub use staircase::{Sight, Staircase, Stall, Step};
