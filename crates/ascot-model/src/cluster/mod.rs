//! A sort of more data than the memory of a cluster: its two phases, their bottlenecks, their time and their cost.
//!
//! ```text
//!   sample            map-and-shuffle                            sort-and-reduce
//!   keys of all  ->   read -> map -> network -> write runs  ->   read a partition -> sort -> write it
//! ```
//!
//! Every node reads, sends, receives and writes its share of the data, and the slowest stage of the slowest node ends a
//! phase (Conley, Vahdat and Porter, "Sorting 100 TB on Google Compute Engine", sections 3.2, 5 and 6):
//!
//! ```text
//!   D = input / N                                     the bytes of a node
//!   map-and-shuffle    D / min(disks, mappers, network)
//!   sort-and-reduce    (D + partition) / disks        writers wait until the first partition is in memory
//!   a stage            mean - z(N) deviation          the slowest of N nodes; z: the expected maximum of N normals
//! ```
//!
//! * [`node_type`]: what was measured of a kind of machine, its space and its price.
//! * [`plan`]: the phases of a job on N nodes of a type.
//! * [`cheapest`]: the cheapest number of nodes of any type that meets a deadline.

pub mod cheapest;
pub mod node_type;
pub mod plan;

pub use cheapest::{Cheapest, ClusterSearch};
pub use node_type::{BadNodeType, NodeType, SpreadRate};
pub use plan::{ClusterPlan, ClusterRequest, DoesNotFit, Network};
