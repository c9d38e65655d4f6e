//! Connections between workers and writers: batches travel over TCP, from the memory of a chunk to the files of a
//! destination, or partitions from sorted chunks to the merges of workers.
//!
//! ```text
//!   listener  on the node of a writer: takes connections
//!   server    behind it, of a shuffle that pushes: receives batches, appends them to their destinations,
//!             and answers each
//!   sender    in a worker: sends the batches of a chunk to all destinations, to a group of them at once
//!   lane      one destination of a sender: opens its connection, sends its batches, and takes the answers
//!   fetch     both ends of a shuffle that pulls: a server that sends partitions, and a worker that takes them
//!   opening   opens a connection of a worker
//!   wire      the handshake, and the answers to batches
//! ```
//!
//! Invariants: batches are exchanged only with holders of the job's secret, and the secret is not sent. A batch that
//! has no answer when a connection ends counts as not appended; the chunk is mapped again, and batches that were
//! appended all the same are known then.

mod fetch;
mod lane;
mod listener;
mod opening;
mod sender;
mod server;
mod wire;

pub use fetch::{FetchEnd, FetchServer, Fetcher, Partitions};
pub use lane::{Fault, Frame, Sent, Target};
pub use sender::BatchSender;
pub use server::{BUFFERS, BatchServer, SharedFiles};
pub use wire::{SECRET_BYTES, Secret};
