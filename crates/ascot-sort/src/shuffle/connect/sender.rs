//! The worker's end: sends the batches of a chunk to all destinations.
//!
//! One thread serves all connections: it writes where a connection takes bytes, and reads answers where some came.
//!
//! ```text
//!   destinations   0 1 2 3 4 5 6 7 8 9        of one chunk, with three connections
//!                        [------]             the group moves on as destinations are done, from another place in each
//!                           ──▶               worker, so that workers do not visit the same writers
//! ```
//!
//! Each worker sends to a *group* of destinations at once, for which it has connections; one that has all of its
//! answers makes way for the next destination. The next chunk begins with the destinations whose connections are still
//! open. A connection that was idle and ends without an answer is opened once more, and the batches are sent from the
//! first one on: its writer may have ended it in favour of others, and ignores batches that it has.
//!
//! Invariants: at most `connections` are open at any time, and a destination has at most `window` batches without an
//! answer. A destination that failed gets no further batches of this chunk, and its connection is closed: what came of
//! an unfinished batch does not count.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpStream;
use std::time::Duration;

use super::lane::{Fault, Frame, Lane, Sent, Target, wait};
use super::wire::{HANDSHAKE, Secret};
use crate::api::{Cancel, Result};

/// Sends the batches of one chunk after another.
pub struct BatchSender {
    secret: Secret,
    window: u32,
    connections: usize,
    /// Open connections without a batch, each with its destination, the one used longest ago first.
    idle: VecDeque<(u32, TcpStream)>,
    /// The place among the destinations from which on connections are opened.
    place: usize,
    /// A connection is open within this time.
    handshake: Duration,
}

impl BatchSender {
    /// A sender with at most `window` batches for a destination without an answer, and at most `connections` at a time.
    pub fn new(secret: Secret, window: u32, connections: usize) -> BatchSender {
        BatchSender {
            secret,
            window: window.max(1),
            connections: connections.max(1),
            idle: VecDeque::new(),
            // Any number: those of workers should differ.
            place: RandomState::new().hash_one(0) as usize,
            handshake: HANDSHAKE,
        }
    }

    /// Sends all batches of a chunk and waits for the answers. `frame` makes a batch: of the target of this number,
    /// the batch of that number.
    ///
    /// # Errors
    /// [`SortError::Cancelled`](crate::api::SortError::Cancelled). The faults of destinations are in the result.
    pub fn send<'a>(
        &mut self,
        targets: &[Target],
        mut frame: impl FnMut(usize, u32) -> Frame<'a>,
        cancel: &Cancel,
    ) -> Result<Sent> {
        let mut sent = Sent::default();
        let mut later = self.order(targets);
        let mut lanes: Vec<Lane<'a>> = Vec::new();
        loop {
            cancel.check()?;
            while lanes.len() < self.connections
                && let Some(number) = later.pop_front()
            {
                match self.lane(number, targets[number], lanes.len()) {
                    Ok(lane) => lanes.push(lane),
                    Err(fault) => _ = sent.failed.insert(targets[number].destination, fault),
                }
            }
            if lanes.is_empty() {
                return Ok(sent);
            }
            for lane in &mut lanes {
                lane.begin_batch(self.window, &mut frame);
            }
            let ready = wait(&lanes);
            let mut open = Vec::with_capacity(lanes.len());
            for (mut lane, ready) in lanes.into_iter().zip(ready) {
                let destination = lane.target.destination;
                let advanced = match lane.advance(ready, &self.secret, &mut sent) {
                    Err(Fault::Lost(_)) if lane.was_idle => lane.again(self.handshake),
                    advanced => advanced.map(|()| lane),
                };
                match advanced {
                    Ok(lane) if lane.is_done() => self.idle.push_back((destination, lane.stream)),
                    Ok(lane) => open.push(lane),
                    Err(fault) => _ = sent.failed.insert(destination, fault),
                }
            }
            lanes = open;
        }
    }

    /// The numbers of targets in the order in which they are visited: first those with an open connection, then the
    /// others, from the place on where the chunk before ended.
    fn order(&mut self, targets: &[Target]) -> VecDeque<usize> {
        let place = self.place % targets.len().max(1);
        let has_connection =
            |number: &usize| self.idle.iter().any(|(one, _)| *one == targets[*number].destination);
        let (mut order, others): (VecDeque<usize>, VecDeque<usize>) =
            (place..targets.len()).chain(0..place).partition(has_connection);
        if let Some(last) = others.back() {
            self.place = last + 1;
        }
        order.extend(others);
        order
    }

    /// A lane to a target, beside `others`: over its idle connection, if its writer is still the same, or over a new
    /// one, for which those are closed that were used longest ago.
    fn lane<'a>(&mut self, number: usize, target: Target, others: usize) -> Result<Lane<'a>, Fault> {
        let at = self.idle.iter().position(|(destination, _)| *destination == target.destination);
        let idle = at.and_then(|at| self.idle.remove(at));
        if let Some((_, stream)) = idle
            && stream.peer_addr().is_ok_and(|peer| peer == target.address)
        {
            return Ok(Lane::over(number, target, stream));
        }
        let free = self.connections.saturating_sub(others + 1);
        self.idle.drain(..self.idle.len().saturating_sub(free));
        Lane::opening(number, target, self.handshake)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use super::super::super::batch::{BatchNumber, batch_bytes, longest_batch, write_batch};
    use super::super::super::partition_files::partition_path;
    use super::super::listener::STRANGERS_MAX;
    use super::super::server::BUFFERS;
    use super::super::wire::{Answer, LENGTH_BYTES, let_in};
    use super::super::{BatchServer, SECRET_BYTES};
    use super::*;
    use crate::api::SortError;
    use crate::shuffle::PartitionFiles;

    const JOB: [u8; 16] = [5; 16];
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const OWN: Secret = Secret([7; SECRET_BYTES]);
    const BATCH_BYTES: usize = 1 << 20;

    fn batch(chunk: u32, destination: u32, number: u32, count: u32, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![0; batch_bytes(&[(3, bytes.len())])];
        let number = BatchNumber { chunk, destination, number, last: number + 1 == count };
        write_batch(JOB, number, &[(3, bytes.len())], &mut out, |_, own| own.copy_from_slice(bytes));
        out
    }

    fn server(dir: &Path, destinations: &[u32]) -> BatchServer {
        let server = BatchServer::start(HERE, OWN, BATCH_BYTES, BUFFERS).expect("a server");
        destinations.iter().for_each(|&number| add(&server, dir, number));
        server
    }

    fn add(server: &BatchServer, dir: &Path, number: u32) {
        let files = PartitionFiles::open(&dir.join(number.to_string()), JOB, number).expect("files");
        server.add(number, Arc::new(Mutex::new(Some(files))));
    }

    fn target(server: &BatchServer, destination: u32, batches: u32) -> Target {
        Target { destination, address: (HERE, server.port()).into(), batches }
    }

    /// Sends these batches, whole ones as the heads of their frames.
    fn send(sender: &mut BatchSender, targets: &[Target], batches: &[Vec<Vec<u8>>]) -> Sent {
        let frame = |target: usize, number: u32| {
            let whole: &[u8] = &batches[target][number as usize];
            let (head, rest) = whole.split_at(whole.len().min(20));
            // Many small slices, some of them empty.
            let pieces = rest.chunks(1000).flat_map(|piece| [piece, &[]]).collect();
            Frame { head: head.to_vec(), pieces }
        };
        sender.send(targets, frame, &Cancel::new()).expect("sent")
    }

    #[test]
    fn batches_arrive_in_the_files_of_their_destinations() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = server(dir.path(), &[1, 2]);
        let bytes = |number: u8| vec![b'a' + number; 700_001];
        let batches: Vec<Vec<Vec<u8>>> = [1, 2]
            .map(|destination| {
                (0..5).map(|number| batch(0, destination, number, 5, &bytes(number as u8))).collect()
            })
            .into();
        let targets = [target(&server, 1, 5), target(&server, 2, 5)];
        let mut sender = BatchSender::new(OWN, 2, 64);
        let sent = send(&mut sender, &targets, &batches);
        let whole: usize = batches.iter().flatten().map(Vec::len).sum();
        assert_eq!((sent.bytes, sent.repeated, sent.failed.len()), (whole as u64, 0, 0));
        let expected: Vec<u8> = (0..5).flat_map(bytes).collect();
        for number in ["1", "2"] {
            assert_eq!(std::fs::read(partition_path(&dir.path().join(number), 3)).expect("a file"), expected);
        }
        // The same connections serve the next chunk; batches that are there count once.
        let sent = send(&mut sender, &targets, &batches);
        assert_eq!((sent.repeated, sent.failed.len()), (10, 0));
        assert_eq!(server.account().0, 2 * whole as u64);
    }

    #[test]
    fn a_fault_concerns_its_destination_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = server(dir.path(), &[1]);
        let nobody = TcpListener::bind((HERE, 0)).expect("a port");
        let free = nobody.local_addr().expect("an address");
        drop(nobody);
        let mut damaged = batch(0, 2, 0, 1, b"abc");
        damaged[60] ^= 1;
        let batches =
            [batch(0, 1, 0, 1, b"abc"), damaged, batch(0, 3, 0, 1, b"abc"), batch(0, 4, 0, 1, b"abc")];
        let batches: Vec<Vec<Vec<u8>>> = batches.map(|one| vec![one]).into();
        let mut targets = [1, 2, 3, 4].map(|number| target(&server, number, 1));
        targets[3].address = free;
        let sent = send(&mut BatchSender::new(OWN, 2, 64), &targets, &batches);
        assert!(!sent.failed.contains_key(&1));
        assert!(matches!(&sent.failed[&2], Fault::Damaged(_)), "{sent:?}");
        assert!(
            matches!(&sent.failed[&3], Fault::Failed(text) if text.contains("destination 3")),
            "{sent:?}"
        );
        assert!(
            matches!(&sent.failed[&4], Fault::Lost(text) if text.contains(&free.to_string())),
            "{sent:?}"
        );
    }

    #[test]
    fn nobody_is_heard_without_the_secret_and_nothing_too_long() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = server(dir.path(), &[1]);
        let targets = [target(&server, 1, 1)];
        let other = Secret([8; SECRET_BYTES]);
        let sent = send(&mut BatchSender::new(other, 2, 64), &targets, &[vec![batch(0, 1, 0, 1, b"abc")]]);
        assert!(matches!(&sent.failed[&1], Fault::Lost(_)), "{sent:?}");
        let long = vec![vec![batch(0, 1, 0, 1, &vec![0; longest_batch(BATCH_BYTES)])]];
        let sent = send(&mut BatchSender::new(OWN, 2, 64), &targets, &long);
        assert!(sent.failed.contains_key(&1), "{sent:?}");
        assert_eq!(server.account().0, 0);
    }

    #[test]
    fn strangers_do_not_keep_workers_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = server(dir.path(), &[1]);
        let connect = |_| TcpStream::connect((HERE, server.port())).expect("a connection");
        let strangers: Vec<TcpStream> = (0..STRANGERS_MAX + 20).map(connect).collect();
        let watched = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let targets = [target(&server, 1, 1)];
                send(&mut BatchSender::new(OWN, 2, 64), &targets, &[vec![batch(0, 1, 0, 1, b"abc")]]).failed
            });
            let mut most = 0;
            while !worker.is_finished() {
                most = most.max(server.strangers());
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(worker.join().expect("the worker"), BTreeMap::new());
            most
        });
        assert_eq!(watched, STRANGERS_MAX);
        drop(strangers);
    }

    #[test]
    fn the_memory_of_a_writer_does_not_grow_with_the_number_of_workers() {
        let dir = tempfile::tempdir().expect("a directory");
        let buffers = 2;
        let server = BatchServer::start(HERE, OWN, BATCH_BYTES, buffers).expect("a server");
        add(&server, dir.path(), 1);
        let workers: Vec<_> = (0..20)
            .map(|chunk| {
                let targets = [target(&server, 1, 3)];
                std::thread::spawn(move || {
                    let bytes = vec![b'x'; BATCH_BYTES];
                    let batches = vec![(0..3).map(|number| batch(chunk, 1, number, 3, &bytes)).collect()];
                    send(&mut BatchSender::new(OWN, 2, 64), &targets, &batches).failed
                })
            })
            .collect();
        for worker in workers {
            assert_eq!(worker.join().expect("a worker"), BTreeMap::new());
        }
        let (count, bytes) = server.buffers();
        assert!(
            count <= buffers && bytes <= buffers * longest_batch(BATCH_BYTES),
            "{count} buffers, {bytes} bytes"
        );
        assert!(server.account().0 > 20 * 3 * BATCH_BYTES as u64);
    }

    #[test]
    fn a_batch_has_a_piece_for_each_partition_however_short_batches_are() {
        let pieces: Vec<(u32, usize)> = (0..1 << 16).map(|partition| (partition, 7)).collect();
        let bytes = batch_bytes(&pieces);
        assert!(bytes <= longest_batch(pieces.len() * 7 / 2), "{bytes}");
    }

    #[test]
    fn a_writer_that_ends_is_a_fault_and_a_new_one_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = server(dir.path(), &[1]);
        let mut sender = BatchSender::new(OWN, 1, 64);
        let one = |chunk| vec![vec![batch(chunk, 1, 0, 1, b"abc")]];
        assert!(send(&mut sender, &[target(&first, 1, 1)], &one(0)).failed.is_empty());
        let old = target(&first, 1, 1);
        drop(first);
        let sent = send(&mut sender, &[old], &one(1));
        assert!(matches!(&sent.failed[&1], Fault::Lost(_)), "{sent:?}");
        let next = server(dir.path(), &[1]);
        assert!(send(&mut sender, &[target(&next, 1, 1)], &one(1)).failed.is_empty());
    }

    #[test]
    fn batches_beyond_the_window_wait_for_answers() {
        let silent = TcpListener::bind((HERE, 0)).expect("a port");
        let address = silent.local_addr().expect("an address");
        let cancel = Cancel::new();
        let own = cancel.clone();
        let writer = std::thread::spawn(move || {
            let (stream, _) = silent.accept().expect("a worker");
            let until = Instant::now() + HANDSHAKE;
            assert!(let_in(&stream, &OWN, until).expect("a handshake"));
            stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
            let mut came = Vec::new();
            // It ends when nothing has come for a while.
            assert!((&stream).read_to_end(&mut came).is_err());
            own.cancel();
            (came.len(), stream)
        });
        let targets = [Target { destination: 1, address, batches: 5 }];
        let frame = |_: usize, _: u32| Frame { head: vec![0; 100], pieces: Vec::new() };
        assert!(BatchSender::new(OWN, 2, 64).send(&targets, frame, &cancel).is_err());
        let (came, _stream) = writer.join().expect("the writer");
        assert_eq!(came, 2 * (LENGTH_BYTES + 100));
    }

    #[test]
    fn a_cancelled_job_does_not_wait_for_a_writer_that_is_silent() {
        let silent = TcpListener::bind((HERE, 0)).expect("a port");
        let address = silent.local_addr().expect("an address");
        let cancel = Cancel::new();
        let own = cancel.clone();
        let writer = std::thread::spawn(move || {
            let (stream, _) = silent.accept().expect("a worker");
            let until = Instant::now() + HANDSHAKE;
            assert!(let_in(&stream, &OWN, until).expect("a handshake"));
            std::thread::sleep(Duration::from_millis(50));
            own.cancel();
            stream
        });
        let targets = [Target { destination: 1, address, batches: 1 }];
        let bytes = vec![0; 64 << 20];
        let mut sender = BatchSender::new(OWN, 2, 64);
        let frame = |_: usize, _: u32| Frame { head: Vec::new(), pieces: vec![bytes.as_slice()] };
        let error = sender.send(&targets, frame, &cancel).expect_err("cancelled");
        assert!(matches!(error, SortError::Cancelled));
        drop(writer.join().expect("the writer"));
    }

    /// A sender to destinations 0, 1, ... at one address, in a thread.
    fn sends(address: SocketAddr, count: u32, connections: usize) -> std::thread::JoinHandle<Sent> {
        let targets: Vec<Target> =
            (0..count).map(|destination| Target { destination, address, batches: 1 }).collect();
        std::thread::spawn(move || {
            let frame = |_: usize, _: u32| Frame { head: vec![0; 100], pieces: Vec::new() };
            BatchSender::new(OWN, 2, connections).send(&targets, frame, &Cancel::new()).expect("sent")
        })
    }

    fn accept(listener: &TcpListener) -> TcpStream {
        let (stream, _) = listener.accept().expect("a worker");
        assert!(let_in(&stream, &OWN, Instant::now() + HANDSHAKE).expect("a handshake"));
        stream.set_read_timeout(Some(HANDSHAKE)).expect("a socket");
        stream
    }

    fn answer(mut stream: &TcpStream) {
        stream.read_exact(&mut [0; LENGTH_BYTES + 100]).expect("a batch");
        stream.write_all(&Answer::New.encode()).expect("an answer");
    }

    #[test]
    fn a_connection_is_closed_before_one_too_many_is_opened() {
        let listener = TcpListener::bind((HERE, 0)).expect("a port");
        let (count, connections) = (8, 3);
        let sender = sends(listener.local_addr().expect("an address"), count, connections);
        let mut open: VecDeque<TcpStream> = (0..connections).map(|_| accept(&listener)).collect();
        // Without answers no more come.
        std::thread::sleep(Duration::from_millis(200));
        listener.set_nonblocking(true).expect("a socket");
        assert!(listener.accept().is_err());
        listener.set_nonblocking(false).expect("a socket");
        for _ in connections as u32..count {
            let mut oldest = open.pop_front().expect("a connection");
            answer(&oldest);
            open.push_back(accept(&listener));
            // It ended before the next one came.
            oldest.set_nonblocking(true).expect("a socket");
            assert_eq!(oldest.read(&mut [0]).expect("its end"), 0);
        }
        open.iter().for_each(answer);
        assert!(sender.join().expect("the sender").failed.is_empty());
    }

    #[test]
    fn the_next_chunk_begins_with_the_destinations_whose_connections_are_open() {
        let listener = TcpListener::bind((HERE, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let targets: Vec<Target> =
            (0..6).map(|destination| Target { destination, address, batches: 1 }).collect();
        let mut sender = BatchSender::new(OWN, 2, 2);
        sender.place = 4;
        let mut order_with_open = |open: &[u32]| {
            let stream = || TcpStream::connect(address).expect("a connection");
            sender.idle = open.iter().map(|&destination| (destination, stream())).collect();
            Vec::from(sender.order(&targets))
        };
        assert_eq!(order_with_open(&[]), [4, 5, 0, 1, 2, 3]);
        assert_eq!(order_with_open(&[2, 3]), [2, 3, 4, 5, 0, 1]);
        assert_eq!(order_with_open(&[0, 1]), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn writers_that_do_not_answer_cost_one_wait_together() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = server(dir.path(), &[9]);
        // Listeners without space for one more connection, to which packets are dropped; and one that says nothing.
        let full: Vec<(TcpListener, TcpStream)> = (0..4)
            .map(|_| {
                let listener = TcpListener::bind((HERE, 0)).expect("a port");
                rustix::net::listen(&listener, 0).expect("a listener");
                let first = TcpStream::connect(listener.local_addr().expect("an address"));
                (listener, first.expect("the only connection"))
            })
            .collect();
        let silent = TcpListener::bind((HERE, 0)).expect("a port");
        let mut targets: Vec<Target> = full
            .iter()
            .map(|(listener, _)| listener)
            .chain([&silent])
            .zip(0..)
            .map(|(listener, destination)| {
                let address = listener.local_addr().expect("an address");
                Target { destination, address, batches: 1 }
            })
            .collect();
        targets.push(target(&server, 9, 1));
        let mut sender = BatchSender::new(OWN, 2, 64);
        sender.handshake = Duration::from_millis(500);
        let began = Instant::now();
        let batches = vec![vec![batch(0, 9, 0, 1, b"abc")]; 6];
        let sent = send(&mut sender, &targets, &batches);
        let took = began.elapsed();
        assert!(took >= sender.handshake && took < 2 * sender.handshake, "{took:?}");
        let texts: Vec<String> = sent.failed.values().map(|fault| format!("{fault:?}")).collect();
        assert_eq!(texts.len(), 5);
        assert!(texts[..4].iter().all(|text| text.contains(": timed out\")")), "{texts:?}");
        assert!(texts[4].contains("timed out in the handshake"), "{texts:?}");
    }
}
