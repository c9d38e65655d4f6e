//! Routing: getting small messages of every rank to the rank they are for, in a bounded amount of memory.
//!
//! Ranks append messages of a few bytes; they travel in *batches* of 32 KiB, over a [`Transport`] that the
//! host brings. In a *direct* route a rank keeps a batch for every other rank. In a *three-hop* route
//! (Zheng et al., Streaming Data Reorganization at Scale, section 4.3) it keeps one for each neighbour of its
//! node, and one for each remote node that it *represents*:
//!
//! ```text
//!         node A                              node B
//!   sender ---local---> A's representative    B's representative ---deliver---> destination
//!                       for B ------wire-----> for A
//! ```
//!
//! Every rank of a node represents an equal share of the other nodes, so no rank is the bottleneck and
//! connections off the node are O(nodes / ranks per node), not O(ranks). Within a node nothing is on the wire.
//!
//! What holds:
//!
//! - **Memory** is what [`Layout::memory_bytes`] says, reserved from the pool and allocated when the router is
//!   made; nothing grows afterwards. Every connection owns at least one buffer, for good; a few spare ones go
//!   where they are needed.
//! - **Back-pressure.** A batch that was sent is in the way until its receiver has taken it out of the
//!   transport, and a rank takes the next batch of a lane only after it has passed on the last one. So
//!   queues cannot grow.
//! - **No deadlock.** A batch on one lane waits only for room on the next (local, wire, deliver), and what is
//!   delivered waits for no rank. Hence the last lane always moves, then the one before it.
//! - **Order.** Messages of one sender to one destination arrive in the order they were sent in: they take the
//!   same route, and every connection keeps order.
//! - **Ends by counting.** A connection's last batch of an epoch tells how many messages it carried; a lane ends
//!   when all connections that feed it have ended, and a count that differs is an error.
//!
//! One thread drives a router: progress is made inside calls. Nothing here knows what a message means.

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
