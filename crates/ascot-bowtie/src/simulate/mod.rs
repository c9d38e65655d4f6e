//! Bowties of numbers: the schedules drive streams that are only counters, and a function that consumes its inputs
//! and fills its outputs at given rates. The result is what a device would see: runs, their lengths, and what the
//! streams hold.
//!
//! The function is infinitely fast and runs as far as it can between any two blocks that move, as in the published
//! model (section II.A: the device is the bottleneck).
//!
//! Files, each using only those before it: `rate_model.rs` (what to simulate, and the function), `simulator.rs` (the
//! loop), `choose.rs` (the scheme of an interconnect), `report.rs` (the outcome in bytes, beside the formulas),
//! `request.rs` (a simulation by the numbers that users give).

mod choose;
mod rate_model;
mod report;
mod request;
mod simulator;
#[cfg(test)]
mod tests;

pub use choose::best_scheme;
pub use rate_model::UNITS;
#[cfg(test)]
pub(crate) use rate_model::{RateModel, StreamState};
pub use rate_model::{Setup, Skew};
pub use report::{Simulation, SimulationReport, simulate_equal_parts};
pub use request::{ScheduleChoice, SimulationError, SimulationRequest};
pub use simulator::{Deadlock, Outcome, simulate, simulate_by};
