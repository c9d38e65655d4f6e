//! Connections between the workers and the writers of a cluster, or the servers of chunks
//! (`ascot_sort::shuffle::connect`).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, Mutex};

use ascot_io::Unpoisoned;
use ascot_sort::Cancel;
use ascot_sort::shuffle::BatchNumber;
use ascot_sort::shuffle::connect::{
    self, BUFFERS, Fault, FetchEnd, Frame, SECRET_BYTES, Secret, Sent, Target,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::cluster::{ChunkMapper, PartitionFiles};
use crate::cluster_pull::SpilledChunks;
use crate::errors::Failure;
use crate::running::run;

/// Bytes sent, batches that were known, and the fault of each destination that failed: what it is and its text.
type Result = (u64, u32, Vec<(u32, &'static str, String)>);

fn ip_of(address: &str) -> std::result::Result<IpAddr, Failure> {
    address.parse().map_err(|_| Failure::Request(format!("{address:?} is no address of a node")))
}

/// Receives batches from workers.
#[pyclass(frozen)]
pub struct BatchServer {
    server: connect::BatchServer,
}

#[pymethods]
impl BatchServer {
    #[new]
    #[pyo3(signature = (address, secret, batch_bytes, buffers=BUFFERS))]
    fn new(
        address: &str,
        secret: [u8; SECRET_BYTES],
        batch_bytes: usize,
        buffers: usize,
    ) -> PyResult<BatchServer> {
        let server = connect::BatchServer::start(ip_of(address)?, Secret(secret), batch_bytes, buffers);
        Ok(BatchServer { server: server.map_err(Failure::from)? })
    }

    #[getter]
    fn port(&self) -> u16 {
        self.server.port()
    }

    /// Receives batches for a destination from here on.
    fn add(&self, destination: u32, files: &PartitionFiles) {
        self.server.add(destination, Arc::clone(&files.files));
    }

    /// Bytes received and seconds of appending since the last call.
    fn account(&self) -> (u64, f64) {
        let (bytes, writing) = self.server.account();
        (bytes, writing.as_secs_f64())
    }
}

/// Sends batches to writers.
#[pyclass(frozen)]
pub struct BatchSender {
    sender: Mutex<connect::BatchSender>,
}

#[pymethods]
impl BatchSender {
    #[new]
    fn new(secret: [u8; SECRET_BYTES], window: u32, connections: usize) -> BatchSender {
        BatchSender { sender: Mutex::new(connect::BatchSender::new(Secret(secret), window, connections)) }
    }

    /// Sends the batches of the chunk that a mapper has, to destinations: number, partitions, address and port.
    fn send_chunk(
        &self,
        py: Python<'_>,
        mapper: &ChunkMapper,
        chunk: u32,
        targets: Vec<(u32, Vec<u32>, String, u16)>,
    ) -> PyResult<Result> {
        let finished = run(py, None, |_, cancel| -> std::result::Result<_, Failure> {
            let mapper = mapper.mapper();
            let mut sent_to = Vec::with_capacity(targets.len());
            for (destination, partitions, address, port) in &targets {
                let address = SocketAddr::new(ip_of(address)?, *port);
                let batches = mapper.batches(partitions);
                sent_to.push(Target { destination: *destination, address, batches });
            }
            let frame = |at: usize, number: u32| {
                let Target { destination, batches, .. } = sent_to[at];
                let number = BatchNumber { chunk, destination, number, last: number + 1 == batches };
                mapper.frame(&targets[at].1, number, batches)
            };
            Ok(self.sender.lock().unpoisoned().send(&sent_to, frame, cancel)?)
        })?;
        Ok(told(finished.result))
    }

    /// Sends batches to destinations: number, address, port and batches of each.
    fn send_batches(
        &self,
        py: Python<'_>,
        targets: Vec<(u32, String, u16, Vec<PyBackedBytes>)>,
    ) -> PyResult<Result> {
        let finished = run(py, None, |_, cancel| -> std::result::Result<_, Failure> {
            let mut sent_to = Vec::with_capacity(targets.len());
            for (destination, address, port, batches) in &targets {
                let address = SocketAddr::new(ip_of(address)?, *port);
                sent_to.push(Target { destination: *destination, address, batches: batches.len() as u32 });
            }
            let frame = |at: usize, number: u32| Frame {
                head: Vec::new(),
                pieces: vec![&targets[at].3[number as usize][..]],
            };
            Ok(self.sender.lock().unpoisoned().send(&sent_to, frame, cancel)?)
        })?;
        Ok(told(finished.result))
    }
}

fn told(sent: Sent) -> Result {
    let failed = sent.failed.into_iter().map(|(destination, fault)| match fault {
        Fault::Lost(text) => (destination, "lost", text),
        Fault::Damaged(text) => (destination, "damaged", text),
        Fault::Failed(text) => (destination, "failed", text),
    });
    (sent.bytes, sent.repeated, failed.collect())
}

/// Sends partitions to workers.
#[pyclass(frozen)]
pub struct FetchServer {
    server: connect::FetchServer,
}

#[pymethods]
impl FetchServer {
    #[new]
    fn new(address: &str, secret: [u8; SECRET_BYTES]) -> PyResult<FetchServer> {
        let server = connect::FetchServer::start(ip_of(address)?, Secret(secret));
        Ok(FetchServer { server: server.map_err(Failure::from)? })
    }

    #[getter]
    fn port(&self) -> u16 {
        self.server.port()
    }

    /// Sends partitions of a group from here on.
    fn add(&self, group: String, chunks: &SpilledChunks) {
        self.server.add(group, Arc::clone(&chunks.chunks) as Arc<dyn connect::Partitions>);
    }

    /// Forgets all groups.
    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.server.clear());
    }
}

/// Fetches partitions from servers.
#[pyclass(frozen)]
pub struct Fetcher {
    fetcher: connect::Fetcher,
}

/// The address of a node: a tuple in Python.
#[derive(FromPyObject)]
struct Address {
    #[pyo3(item(0))]
    ip: String,
    #[pyo3(item(1))]
    port: u16,
}

#[pymethods]
impl Fetcher {
    #[new]
    fn new(secret: [u8; SECRET_BYTES]) -> Fetcher {
        Fetcher { fetcher: connect::Fetcher::new(Secret(secret)) }
    }

    /// Fetches a partition of a group from an address and port, and writes it to a pipe. Returns the bytes written, and
    /// whether they are all: "whole", "lost" if not, or "unread" if the pipe was closed at its other end.
    #[expect(unsafe_code, reason = "Python gives descriptors as numbers")]
    fn fetch(
        &self,
        py: Python<'_>,
        address: Address,
        group: &str,
        partition: u32,
        pipe: RawFd,
    ) -> PyResult<(u64, &'static str)> {
        let address = SocketAddr::new(ip_of(&address.ip)?, address.port);
        // SAFETY: the caller keeps the pipe open until the call has ended.
        let pipe = unsafe { BorrowedFd::borrow_raw(pipe) };
        let fetched = py.detach(|| self.fetcher.fetch(address, group, partition, pipe, &Cancel::new()));
        let (written, end) = fetched.map_err(Failure::from)?;
        let end = match end {
            FetchEnd::Whole => "whole",
            FetchEnd::Lost => "lost",
            FetchEnd::Unread => "unread",
        };
        Ok((written, end))
    }
}
