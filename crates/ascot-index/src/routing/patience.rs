//! Waiting for others: how long, and who is named when it was too long.
//!
//! ```text
//!   nothing moves   0 ......... a quarter of patience ................ patience ............. twice that
//!                               those that are missing are asked       those that have not    all have answered:
//!                               whether they are there                 answered are named     nobody is
//! ```
//!
//! A rank that all answer to goes on waiting: one of those it waits for will find out who is gone, and tell it.

use std::time::{Duration, Instant};

/// The longest wait before the patience is looked at.
pub(super) const WAIT: Duration = Duration::from_millis(50);
/// Most ranks that a message names.
const NAMED_MAX: usize = 8;

/// Since when nothing has moved, and what had by then; nothing before the first wait.
#[derive(Default)]
pub struct Waiting(Option<(Instant, u64)>);

impl Waiting {
    /// For how long nothing has moved. `moved` grows with everything that moves; time counts from the last change of
    /// it, because a slow rank is not a rank that is gone.
    pub(super) fn unmoved_for(&mut self, moved: u64) -> Duration {
        let since = match self.0 {
            Some((since, before)) if before == moved => since,
            _ => self.0.insert((Instant::now(), moved)).0,
        };
        since.elapsed()
    }
}

/// Some ranks, for a message.
pub(super) fn named(ranks: &[u32]) -> String {
    let named: Vec<String> = ranks.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let more = match ranks.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}{more}", named.join(", "))
}
