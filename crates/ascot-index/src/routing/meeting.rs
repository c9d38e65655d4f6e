//! Ranks that meet: before anything is routed each tells whether it can take part, and as what.
//!
//! ```text
//!   Meeting ─ allreduce: all can, with the same options ─▶ Router
//!      └─ one cannot, or has other options ─▶ all ranks get its number and the reason
//! ```
//!
//! Words take the same way whatever the settings of each rank are, so a rank whose settings are wrong can still
//! say so.

use std::time::Duration;

use ascot_io::Pool;

use super::allreduce::{Combined, ControlMessage, Outcome};
use super::control::Control;
use super::error::RouteError;
use super::layout::{RoutingSettings, tree_neighbours};
use super::parts::Parts;
use super::router::Router;
use super::transport::Transport;

/// A rank among others, before they route anything.
pub struct Meeting<T: Transport> {
    router: Router<T>,
}

impl<T: Transport> Meeting<T> {
    /// Meets the other ranks of `transport`, and waits for them for as long as `patience`.
    pub fn new(transport: T, patience: Duration) -> Self {
        let control = Control::new(tree_neighbours(&transport.topology(), transport.rank()));
        let settings = RoutingSettings { patience, ..RoutingSettings::default() };
        let parts = Parts::of_words(&transport, settings);
        Self { router: Router::of(transport, control, parts) }
    }

    /// The parts of a router, made while a failure can still be reported to all ranks.
    ///
    /// # Errors
    /// Those of [`Parts::new`].
    pub fn prepare(&self, settings: RoutingSettings, pool: &Pool) -> Result<Parts, RouteError> {
        Parts::new(self.router.transport(), settings, pool)
    }

    /// Combines the outcomes of all ranks. `same` are options `name=value` that must be the same
    /// at all of them: the failure of one that differs has the code [`CODE_DIFFERENT`](super::CODE_DIFFERENT).
    pub fn allreduce(&mut self, purpose: u8, outcome: Outcome, same: &str) -> Result<Combined, RouteError> {
        let message = ControlMessage::of(purpose, self.router.epoch(), self.router.rank(), outcome, &[]);
        self.router.allreduce_message(message.with_same(same))
    }

    /// Leaves in good order, after an allreduce.
    pub fn leave(mut self) {
        self.router.leave();
    }

    /// Begins to route.
    pub fn begin(mut self, parts: Parts) -> Router<T> {
        self.router.take_parts(parts);
        self.router
    }
}
