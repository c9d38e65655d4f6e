//! Waiting for other ranks: time limits, and the ranks to name in errors.
//!
//! ```text
//!   nothing moves   0 ......... a quarter of patience ................ patience ............. twice that
//!                               the missing ranks are asked            those that have not    if all have answered:
//!                               whether they are present               answered are named     an error without names
//! ```
//!
//! A rank whose missing ranks all answer continues to wait: one of those ranks will detect the lost rank and report
//! it.

use std::time::{Duration, Instant};

/// Maximum wait between two checks of the patience.
pub(super) const WAIT: Duration = Duration::from_millis(50);
/// Maximum number of ranks that an error names.
const NAMED_MAX: usize = 8;

/// When the movement count last changed, and its value; `None` before the first wait.
#[derive(Default)]
pub struct Waiting(Option<(Instant, u64)>);

impl Waiting {
    /// The time for which nothing has moved. `moved` increases with every movement; time counts from its last change,
    /// because a slow rank is not a lost one.
    pub(super) fn unmoved_for(&mut self, moved: u64) -> Duration {
        let since = match self.0 {
            Some((since, before)) if before == moved => since,
            _ => self.0.insert((Instant::now(), moved)).0,
        };
        since.elapsed()
    }
}

/// A list of ranks for an error message.
pub(super) fn named(ranks: &[u32]) -> String {
    let named: Vec<String> = ranks.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let more = match ranks.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}{more}", named.join(", "))
}
