//! Routing: delivers small messages of every rank to their destination ranks within a memory bound.
//!
//! Ranks append messages of a few bytes; they travel in *batches* of 32 KiB, over a [`Transport`] that the host
//! provides. On a *direct* route a rank keeps a batch for every other rank. On a *three-hop* route (Zheng et al.,
//! Streaming Data Reorganization at Scale, section 4.3) it keeps one for each neighbour of its node, and one for each
//! remote node that it *represents*:
//!
//! ```text
//!         node A                              node B
//!   sender ---local---> A's representative    B's representative ---deliver---> destination
//!                       for B ------wire-----> for A
//! ```
//!
//! Every rank of a node represents an equal share of the other nodes, so no rank is the bottleneck and connections off
//! the node are O(nodes / ranks per node), not O(ranks). Messages within a node do not use the wire.
//!
//! Invariants:
//!
//! - **Memory** is given by [`Layout::memory_bytes`], reserved from the pool and allocated when the router is made;
//!   nothing grows afterwards. Every connection permanently owns at least one buffer; a few spare ones go where they
//!   are needed.
//! - **Back-pressure.** A batch in transit keeps its buffer until its receiver has taken it out of the transport, and
//!   a rank takes the next batch of a lane only after it has passed on the last one. So queues cannot grow.
//! - **No deadlock.** A batch on one lane waits only for space on the next (local, wire, deliver), and delivery waits
//!   for no rank. Hence the last lane always moves, then the one before it.
//! - **Order.** Messages of one sender to one destination arrive in the order they were sent: they take the same
//!   route, and every connection keeps order.
//! - **Ends by counting.** A connection's last batch of an epoch has the number of messages it carried; a lane ends
//!   when all connections that feed it have ended, and a count that differs is an error.
//!
//! One thread drives a router: progress is made inside calls. Routing does not interpret messages.

mod allreduce;
pub mod batch;
mod control;
mod counts;
mod error;
mod lane;
mod layout;
mod next_hop;
mod parts;
mod patience;
mod presence;
mod router;
mod topology;
mod transport;

pub use allreduce::{CODE_DIFFERENT, Combined, Outcome, SUMS_MAX};
pub use counts::{HopCount, RoutingCounts};
pub use error::RouteError;
pub use layout::{Layout, RoutingSettings};
pub use parts::Parts;
pub use patience::Waiting;
pub use router::{Delivery, Router};
pub use topology::{Route, Topology};
pub use transport::{Lane, Sent, Transport, TransportError};
