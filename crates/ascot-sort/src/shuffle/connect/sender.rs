//! The worker's end: sends the batches of a chunk to all destinations at once.
//!
//! One thread serves all connections: it writes where a connection takes bytes, and reads answers where some came. The
//! bytes of a batch are written from where the chunk has them; only their head is made for each batch.
//!
//! Invariants: a destination has at most `window` batches without an answer. A destination that failed gets no further
//! batches of this chunk, and its connection is closed: what came of an unfinished batch does not count.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::event::{PollFd, PollFlags, poll};

use super::opening::open_all;
use super::wire::{ANSWERS_BYTES_MAX, Answer, HANDSHAKE, LENGTH_BYTES, PAUSE, Secret, is_temporary};
use crate::api::{Cancel, SortError};

/// Slices of one call of the system.
const SLICES_MAX: usize = 256;

/// Sends the batches of one chunk after another.
pub struct BatchSender {
    secret: Secret,
    window: u32,
    connections: BTreeMap<u32, TcpStream>,
}

/// A destination, where its writer listens, and the number of batches for it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The destination.
    pub destination: u32,
    /// The address of its writer.
    pub address: SocketAddr,
    /// The number of batches.
    pub batches: u32,
}

/// The bytes of a batch: its head, and those of its pieces.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Header and table of pieces.
    pub head: Vec<u8>,
    /// The rest, in order.
    pub pieces: Vec<&'a [u8]>,
}

/// Why a destination did not get its batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ended, or there was none.
    Lost(String),
    /// A batch arrived damaged.
    Damaged(String),
    /// The writer could not append a batch.
    Failed(String),
}

/// The result of sending a chunk.
#[derive(Debug, Default)]
pub struct Sent {
    /// Bytes of batches that were sent whole.
    pub bytes: u64,
    /// Batches that the writers had already.
    pub repeated: u32,
    /// The destinations that failed.
    pub failed: BTreeMap<u32, Fault>,
}

impl BatchSender {
    /// A sender with at most `window` batches for a destination without an answer.
    pub fn new(secret: Secret, window: u32) -> BatchSender {
        BatchSender { secret, window: window.max(1), connections: BTreeMap::new() }
    }

    /// Sends all batches of a chunk and waits for the answers. `frame` makes a batch: of the target of this number,
    /// the batch of that number.
    ///
    /// # Errors
    /// [`SortError::Cancelled`]. The faults of destinations are in the result.
    pub fn send<'a>(
        &mut self,
        targets: &[Target],
        mut frame: impl FnMut(usize, u32) -> Frame<'a>,
        cancel: &Cancel,
    ) -> Result<Sent, SortError> {
        let mut sent = Sent::default();
        let mut streams: Vec<Option<TcpStream>> = targets.iter().map(|target| self.kept(target)).collect();
        let missing: Vec<usize> = (0..targets.len()).filter(|&at| streams[at].is_none()).collect();
        let addresses: Vec<SocketAddr> = missing.iter().map(|&at| targets[at].address).collect();
        let opened = open_all(&addresses, &self.secret, HANDSHAKE, cancel)?;
        for (at, stream) in missing.into_iter().zip(opened) {
            match stream {
                Ok(stream) => streams[at] = Some(stream),
                Err(error) => {
                    sent.failed.insert(targets[at].destination, lost(&targets[at], &error));
                }
            }
        }
        let mut lanes: Vec<Lane<'a>> = targets
            .iter()
            .zip(streams)
            .enumerate()
            .filter_map(|(at, (target, stream))| Some(Lane::new(at, *target, stream?)))
            .collect();
        while !lanes.is_empty() {
            cancel.check()?;
            for lane in &mut lanes {
                lane.begin_batch(self.window, &mut frame);
            }
            let ready = wait(&lanes);
            let mut open = Vec::with_capacity(lanes.len());
            for (mut lane, ready) in lanes.into_iter().zip(ready) {
                match lane.advance(ready, &mut sent) {
                    Ok(()) if lane.is_done() => {
                        self.connections.insert(lane.target.destination, lane.stream);
                    }
                    Ok(()) => open.push(lane),
                    Err(fault) => {
                        sent.failed.insert(lane.target.destination, fault);
                    }
                }
            }
            lanes = open;
        }
        Ok(sent)
    }

    /// The connection of the chunk before, if its writer is still the same.
    fn kept(&mut self, target: &Target) -> Option<TcpStream> {
        let stream = self.connections.remove(&target.destination)?;
        stream.peer_addr().is_ok_and(|peer| peer == target.address).then_some(stream)
    }
}

fn lost(target: &Target, error: &io::Error) -> Fault {
    Fault::Lost(format!("connection to {}: {error}", target.address))
}

/// What can be done on each connection: take bytes, give answers.
fn wait(lanes: &[Lane<'_>]) -> Vec<Ready> {
    let mut polled: Vec<PollFd<'_>> = lanes
        .iter()
        .map(|lane| {
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, lane.writing.is_some());
            PollFd::new(&lane.stream, wanted)
        })
        .collect();
    // After a signal nothing is ready, and the caller looks at the job.
    let _ = poll(&mut polled, Some(&PAUSE));
    polled
        .iter()
        .map(|one| {
            let found = one.revents();
            Ready { write: found.contains(PollFlags::OUT), read: found.intersects(!PollFlags::OUT) }
        })
        .collect()
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    write: bool,
    /// There are answers, or the connection has ended.
    read: bool,
}

/// A destination while a chunk is sent.
struct Lane<'a> {
    /// The number of the target.
    number: usize,
    target: Target,
    stream: TcpStream,
    /// The number of the next batch.
    next: u32,
    unanswered: u32,
    writing: Option<Writing<'a>>,
    answers: Vec<u8>,
}

impl<'a> Lane<'a> {
    fn new(number: usize, target: Target, stream: TcpStream) -> Lane<'a> {
        Lane { number, target, stream, next: 0, unanswered: 0, writing: None, answers: Vec::new() }
    }

    fn is_done(&self) -> bool {
        self.next == self.target.batches && self.unanswered == 0
    }

    fn begin_batch(&mut self, window: u32, frame: &mut impl FnMut(usize, u32) -> Frame<'a>) {
        if self.writing.is_none() && self.unanswered < window && self.next < self.target.batches {
            self.writing = Some(Writing::new(frame(self.number, self.next)));
            self.next += 1;
            self.unanswered += 1;
        }
    }

    fn advance(&mut self, ready: Ready, sent: &mut Sent) -> Result<(), Fault> {
        if ready.write
            && let Some(writing) = &mut self.writing
            && writing.write(&mut self.stream).map_err(|error| lost(&self.target, &error))?
        {
            sent.bytes += writing.bytes as u64;
            self.writing = None;
        }
        if ready.read {
            self.read(sent)?;
        }
        Ok(())
    }

    fn read(&mut self, sent: &mut Sent) -> Result<(), Fault> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err(lost(&self.target, &io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => self.answers.extend(&bytes[..read]),
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(lost(&self.target, &error)),
        }
        if self.answers.len() > ANSWERS_BYTES_MAX {
            return Err(lost(&self.target, &io::Error::other("the answers are too long")));
        }
        let fault = |what: &str| lost(&self.target, &io::Error::other(what));
        while let Some(answer) = Answer::take(&mut self.answers).map_err(fault)? {
            match answer {
                Answer::New => {}
                Answer::Known => sent.repeated += 1,
                Answer::Damaged(text) => return Err(Fault::Damaged(text)),
                Answer::Failed(text) => return Err(Fault::Failed(text)),
            }
            self.unanswered = self.unanswered.checked_sub(1).ok_or_else(|| fault("an answer to no batch"))?;
        }
        Ok(())
    }
}

/// A batch of which some bytes are sent.
struct Writing<'a> {
    head: Vec<u8>,
    pieces: Vec<&'a [u8]>,
    /// All of its bytes, without its length.
    bytes: usize,
    /// The slice that is sent next, 0 for the head, and the bytes of it that are sent.
    slice: usize,
    done: usize,
}

impl<'a> Writing<'a> {
    fn new(frame: Frame<'a>) -> Writing<'a> {
        let bytes = frame.head.len() + frame.pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let head = [&(bytes as u32).to_le_bytes()[..LENGTH_BYTES], &frame.head].concat();
        Writing { head, pieces: frame.pieces, bytes, slice: 0, done: 0 }
    }

    fn slice(&self, at: usize) -> Option<&[u8]> {
        if at == 0 { Some(&self.head) } else { self.pieces.get(at - 1).copied() }
    }

    /// Writes what the connection takes. Returns whether all is sent.
    fn write(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        loop {
            let slices: Vec<IoSlice<'_>> = (self.slice..self.slice + SLICES_MAX)
                .map_while(|at| self.slice(at))
                .enumerate()
                .map(|(at, slice)| IoSlice::new(if at == 0 { &slice[self.done..] } else { slice }))
                .collect();
            if slices.is_empty() {
                return Ok(true);
            }
            let written = match stream.write_vectored(&slices) {
                Ok(written) => written,
                Err(error) if is_temporary(&error) => return Ok(false),
                Err(error) => return Err(error),
            };
            self.pass(written);
        }
    }

    /// Moves on by so many bytes, and over slices without bytes.
    fn pass(&mut self, bytes: usize) {
        self.done += bytes;
        while let Some(length) = self.slice(self.slice).map(<[u8]>::len)
            && self.done >= length
        {
            self.done -= length;
            self.slice += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener};
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use super::super::super::batch::{BatchNumber, batch_bytes, longest_batch, write_batch};
    use super::super::super::partition_files::partition_path;
    use super::super::listener::STRANGERS_MAX;
    use super::super::server::BUFFERS;
    use super::super::wire::let_in;
    use super::super::{BatchServer, SECRET_BYTES};
    use super::*;
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
        let server = BatchServer::start(HERE, OWN, BATCH_BYTES).expect("a server");
        for &number in destinations {
            let files = PartitionFiles::open(&dir.join(number.to_string()), JOB, number).expect("files");
            server.add(number, Arc::new(Mutex::new(Some(files))));
        }
        server
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
        let mut sender = BatchSender::new(OWN, 2);
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
        let sent = send(&mut BatchSender::new(OWN, 2), &targets, &batches);
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
        let sent = send(&mut BatchSender::new(other, 2), &targets, &[vec![batch(0, 1, 0, 1, b"abc")]]);
        assert!(matches!(&sent.failed[&1], Fault::Lost(_)), "{sent:?}");
        let long = vec![vec![batch(0, 1, 0, 1, &vec![0; longest_batch(BATCH_BYTES)])]];
        let sent = send(&mut BatchSender::new(OWN, 2), &targets, &long);
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
                send(&mut BatchSender::new(OWN, 2), &targets, &[vec![batch(0, 1, 0, 1, b"abc")]]).failed
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
        let server = server(dir.path(), &[1]);
        let workers: Vec<_> = (0..5 * BUFFERS as u32)
            .map(|chunk| {
                let targets = [target(&server, 1, 3)];
                std::thread::spawn(move || {
                    let bytes = vec![b'x'; BATCH_BYTES];
                    let batches = vec![(0..3).map(|number| batch(chunk, 1, number, 3, &bytes)).collect()];
                    send(&mut BatchSender::new(OWN, 2), &targets, &batches).failed
                })
            })
            .collect();
        for worker in workers {
            assert_eq!(worker.join().expect("a worker"), BTreeMap::new());
        }
        let (count, bytes) = server.buffers();
        assert!(
            count <= BUFFERS && bytes <= BUFFERS * longest_batch(BATCH_BYTES),
            "{count} buffers, {bytes} bytes"
        );
        assert!(server.account().0 > 5 * BUFFERS as u64 * 3 * BATCH_BYTES as u64);
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
        let mut sender = BatchSender::new(OWN, 1);
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
        assert!(BatchSender::new(OWN, 2).send(&targets, frame, &cancel).is_err());
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
        let mut sender = BatchSender::new(OWN, 2);
        let frame = |_: usize, _: u32| Frame { head: Vec::new(), pieces: vec![bytes.as_slice()] };
        let error = sender.send(&targets, frame, &cancel).expect_err("cancelled");
        assert!(matches!(error, SortError::Cancelled));
        drop(writer.join().expect("the writer"));
    }
}
