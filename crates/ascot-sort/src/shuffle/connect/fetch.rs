//! Partitions from the node that has their chunks to the workers that merge them.
//!
//! ```text
//!   worker   length of the name of a group, partition, the name             2 + 4 + length
//!   server   for each block: its length, its bytes                          4 + length
//!            at the end: 0, or FAILED if the partition cannot be read       4
//! ```
//!
//! The server sends a partition as fast as the worker takes it. The worker moves it from the connection to a pipe
//! without looking at it; the merge at the other end of the pipe checks the records.
//!
//! Invariants: a connection has one block in memory, and a server [`FETCHES_MAX`] connections. A fetch that did not end
//! with a 0 was not whole, and its caller knows how much of it came.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use ascot_io::Unpoisoned;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::pipe::{SpliceFlags, splice};

use super::super::SpilledChunks;
use super::listener::{Connection, Listener, Service};
use super::opening::open;
use super::wire::{HANDSHAKE, LENGTH_BYTES, Secret};
use crate::api::{Cancel, Result};

/// Bytes of a block.
const BLOCK_BYTES: usize = 256 << 10;
/// Connections that a server serves at once; together they have 16 MiB. A further one is closed, and its worker fetches
/// by calls.
const FETCHES_MAX: usize = 64;
/// Length of the name of a group at most.
const NAME_BYTES_MAX: usize = 64;
const REQUEST_BYTES: usize = 6;
/// In place of the length of a block.
const FAILED: u32 = u32::MAX;

/// Bytes of partitions.
pub trait Partitions: Send + Sync {
    /// Reads bytes of a partition from `offset` on, as many as fit. Returns how many: fewer only at its end.
    ///
    /// # Errors
    /// Those of reading them.
    fn read_into(&self, partition: u32, offset: u64, out: &mut [u8]) -> Result<usize>;
}

impl Partitions for SpilledChunks {
    fn read_into(&self, partition: u32, offset: u64, out: &mut [u8]) -> Result<usize> {
        SpilledChunks::read_into(self, partition, offset, out)
    }
}

/// Sends partitions to workers until it is dropped.
pub struct FetchServer {
    listener: Listener<Groups>,
}

#[derive(Default)]
struct Groups {
    groups: Mutex<BTreeMap<String, Arc<dyn Partitions>>>,
    connections: AtomicUsize,
}

impl FetchServer {
    /// Listens at a free port of `address` for workers that have the secret.
    ///
    /// # Errors
    /// That of the system if it cannot listen there or start a thread.
    pub fn start(address: IpAddr, secret: Secret) -> Result<FetchServer> {
        Ok(FetchServer { listener: Listener::start(address, secret, Groups::default())? })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.listener.port()
    }

    /// Sends partitions of a group from here on.
    pub fn add(&self, group: String, partitions: Arc<dyn Partitions>) {
        self.listener.service().groups.lock().unpoisoned().insert(group, partitions);
    }

    /// Forgets all groups.
    pub fn clear(&self) {
        self.listener.service().groups.lock().unpoisoned().clear();
    }
}

/// Counts a connection.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Service for Groups {
    fn serve(&self, connection: &Connection) -> io::Result<()> {
        let mut stream = &connection.stream;
        let others = self.connections.fetch_add(1, Relaxed);
        let _counted = Counted(&self.connections);
        if others >= FETCHES_MAX {
            return Ok(());
        }
        // A merge may need nothing of a source for long, and its worker then takes no bytes.
        sockopt::set_tcp_user_timeout(stream, 0)?;
        let mut block = vec![0; LENGTH_BYTES + BLOCK_BYTES];
        loop {
            let mut request = [0; REQUEST_BYTES];
            stream.read_exact(&mut request)?;
            let [low, high, partition @ ..] = request;
            let mut name = vec![0; usize::from(u16::from_le_bytes([low, high])).min(NAME_BYTES_MAX)];
            stream.read_exact(&mut name)?;
            let group = self.groups.lock().unpoisoned().get(&*String::from_utf8_lossy(&name)).cloned();
            let is_sent = match group {
                Some(group) => send(stream, &*group, u32::from_le_bytes(partition), &mut block)?,
                None => false,
            };
            stream.write_all(&if is_sent { 0 } else { FAILED }.to_le_bytes())?;
        }
    }
}

/// Sends the blocks of a partition. Returns whether it could be read.
fn send(
    mut stream: &TcpStream,
    group: &dyn Partitions,
    partition: u32,
    block: &mut [u8],
) -> io::Result<bool> {
    let mut offset = 0;
    loop {
        let Ok(read) = group.read_into(partition, offset, &mut block[LENGTH_BYTES..]) else {
            return Ok(false);
        };
        if read > 0 {
            block[..LENGTH_BYTES].copy_from_slice(&(read as u32).to_le_bytes());
            stream.write_all(&block[..LENGTH_BYTES + read])?;
        }
        if read < BLOCK_BYTES {
            return Ok(true);
        }
        offset += read as u64;
    }
}

/// The end of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchEnd {
    /// The partition is whole.
    Whole,
    /// The server could not read it, or there is no connection to it.
    Lost,
    /// The other end of the pipe was closed.
    Unread,
}

/// Fetches partitions for a worker; threads may share it.
pub struct Fetcher {
    secret: Secret,
    /// Connections without a fetch.
    kept: Mutex<BTreeMap<SocketAddr, Vec<TcpStream>>>,
}

impl Fetcher {
    /// A fetcher of a job.
    pub fn new(secret: Secret) -> Fetcher {
        Fetcher { secret, kept: Mutex::default() }
    }

    /// Fetches a partition of a group from the server at `address`, and writes it to the pipe `out`. Returns the bytes
    /// that were written.
    ///
    /// # Errors
    /// [`SortError::Cancelled`](crate::api::SortError::Cancelled).
    pub fn fetch(
        &self,
        address: SocketAddr,
        group: &str,
        partition: u32,
        out: BorrowedFd<'_>,
        cancel: &Cancel,
    ) -> Result<(u64, FetchEnd)> {
        let kept = self.kept.lock().unpoisoned().get_mut(&address).and_then(Vec::pop);
        let opened = match kept {
            Some(stream) => Ok(stream),
            None => open(&address, &self.secret, HANDSHAKE, cancel)?,
        };
        let mut written = 0;
        let Ok(stream) = opened else { return Ok((0, FetchEnd::Lost)) };
        let end = receive(&stream, group, partition, out, &mut written).unwrap_or(FetchEnd::Lost);
        if end == FetchEnd::Whole {
            self.kept.lock().unpoisoned().entry(address).or_default().push(stream);
        }
        Ok((written, end))
    }
}

fn receive(
    mut stream: &TcpStream,
    group: &str,
    partition: u32,
    out: BorrowedFd<'_>,
    written: &mut u64,
) -> io::Result<FetchEnd> {
    stream.set_nonblocking(false)?;
    let length = (group.len() as u16).to_le_bytes();
    stream.write_all(&[&length[..], &partition.to_le_bytes(), group.as_bytes()].concat())?;
    loop {
        let mut length = [0; LENGTH_BYTES];
        stream.read_exact(&mut length)?;
        let mut left = match u32::from_le_bytes(length) {
            0 => return Ok(FetchEnd::Whole),
            FAILED => return Ok(FetchEnd::Lost),
            length => length as usize,
        };
        while left > 0 {
            match splice(stream, None, out, None, left, SpliceFlags::MOVE) {
                Ok(0) => return Ok(FetchEnd::Lost),
                Ok(moved) => {
                    left -= moved;
                    *written += moved as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => return Ok(FetchEnd::Unread),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd;

    use super::super::SECRET_BYTES;
    use super::*;
    use crate::api::SortError;

    const OWN: Secret = Secret([7; SECRET_BYTES]);
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Partitions in memory; those that are none cannot be read, nor those that are damaged beyond an offset.
    struct InMemory {
        partitions: Vec<Vec<u8>>,
        damaged_from: u64,
    }

    impl Partitions for InMemory {
        fn read_into(&self, partition: u32, offset: u64, out: &mut [u8]) -> Result<usize, SortError> {
            let all = self.partitions.get(partition as usize).ok_or(SortError::Internal("no partition"))?;
            let rest = &all[offset as usize..];
            let read = rest.len().min(out.len());
            if offset + read as u64 > self.damaged_from {
                return Err(SortError::Internal("damaged"));
            }
            out[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        }
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| ((at * 7919) >> 5) as u8).collect()
    }

    fn server(partitions: Vec<Vec<u8>>, damaged_from: u64) -> (FetchServer, SocketAddr) {
        let server = FetchServer::start(HERE, OWN).expect("a server");
        server.add("0-4".into(), Arc::new(InMemory { partitions, damaged_from }));
        let address = (HERE, server.port()).into();
        (server, address)
    }

    /// The end of a fetch, and the bytes that came out of the pipe.
    fn fetched(fetcher: &Fetcher, address: SocketAddr, group: &str, partition: u32) -> (FetchEnd, Vec<u8>) {
        let (mut read, write) = io::pipe().expect("a pipe");
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut came = Vec::new();
                read.read_to_end(&mut came).expect("read");
                came
            });
            let end = fetcher.fetch(address, group, partition, write.as_fd(), &Cancel::new());
            drop(write);
            let (written, end) = end.expect("not cancelled");
            let came = reader.join().expect("the reader");
            assert_eq!(came.len() as u64, written);
            (end, came)
        })
    }

    #[test]
    fn partitions_of_all_sizes_arrive_whole_over_the_same_connection() {
        let sizes = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5_000_000];
        let (_server, address) = server(sizes.map(bytes).into(), u64::MAX);
        let fetcher = Fetcher::new(OWN);
        for (partition, size) in sizes.into_iter().enumerate() {
            let (end, came) = fetched(&fetcher, address, "0-4", partition as u32);
            assert_eq!((end, came == bytes(size)), (FetchEnd::Whole, true), "{size}");
            assert_eq!(fetcher.kept.lock().unpoisoned()[&address].len(), 1);
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_whole() {
        let (server, address) = server(vec![bytes(3 * BLOCK_BYTES)], 2 * BLOCK_BYTES as u64);
        let fetcher = Fetcher::new(OWN);
        let (end, came) = fetched(&fetcher, address, "0-4", 0);
        assert_eq!((end, came == bytes(2 * BLOCK_BYTES)), (FetchEnd::Lost, true));
        assert_eq!(fetched(&fetcher, address, "0-4", 1), (FetchEnd::Lost, Vec::new()));
        assert_eq!(fetched(&fetcher, address, "5-9", 0), (FetchEnd::Lost, Vec::new()));
        server.clear();
        assert_eq!(fetched(&fetcher, address, "0-4", 0), (FetchEnd::Lost, Vec::new()));
        drop(server);
        assert_eq!(fetched(&fetcher, address, "0-4", 0), (FetchEnd::Lost, Vec::new()));
        let other = Fetcher::new(Secret([8; SECRET_BYTES]));
        let (_server, address) = self::server(vec![bytes(1)], u64::MAX);
        assert_eq!(fetched(&other, address, "0-4", 0), (FetchEnd::Lost, Vec::new()));
    }

    #[test]
    fn a_merge_that_ended_ends_its_fetches() {
        let (_server, address) = server(vec![bytes(20 << 20)], u64::MAX);
        let (read, write) = io::pipe().expect("a pipe");
        let fetcher = Fetcher::new(OWN);
        std::thread::scope(|scope| {
            let fetch = scope
                .spawn(|| fetcher.fetch(address, "0-4", 0, write.as_fd(), &Cancel::new()).expect("ended"));
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(read);
            assert_eq!(fetch.join().expect("the fetch").1, FetchEnd::Unread);
        });
        // Its connection still had bytes of the partition.
        assert_eq!(fetcher.kept.lock().unpoisoned().len(), 0);
    }

    #[test]
    fn a_server_has_no_more_connections_than_it_has_memory_for() {
        let (_server, address) = server(vec![bytes(3)], u64::MAX);
        let fetchers: Vec<_> = (0..FETCHES_MAX).map(|_| Fetcher::new(OWN)).collect();
        assert!(fetchers.iter().all(|one| fetched(one, address, "0-4", 0).0 == FetchEnd::Whole));
        assert_eq!(fetched(&Fetcher::new(OWN), address, "0-4", 0).0, FetchEnd::Lost);
        assert_eq!(fetched(&fetchers[0], address, "0-4", 0).0, FetchEnd::Whole);
    }
}
