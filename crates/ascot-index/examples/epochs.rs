//! Writes records from several ranks of one process, to plain files or to an indexed directory, and says how long it took: what
//! `./dev bench index` measures.
//!
//! ```text
//!   rank 0 ─ records ─▶ batches of 32 KiB ─▶ owner of the key: LocalWriter      ─▶ partition
//!   rank 1 ─ records ─▶ batches ...
//! ```
//!
//! Usage: `epochs OUT plain|records|pointers|ranks RANKS EPOCHS RECORDS VALUE_BYTES MEMORY_BYTES`; RECORDS of each rank and
//! epoch, MEMORY_BYTES of each rank. One line of JSON tells the outcome. Keys are the same in every epoch, each written by one rank.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

use ascot_index::hash::mix;
use ascot_index::{Coordinator, Layout, LocalWriter, Pointer, Scheme, Share};
use ascot_io::Disk;

const BATCH_BYTES: usize = 32 << 10;
const BATCHES: usize = 8;
const PLAIN_BYTES: usize = 1 << 20;
const KEY_BYTES: usize = 8;

type Failed = Box<dyn Error + Send + Sync>;

/// What is asked for.
#[derive(Clone)]
struct Job {
    out: PathBuf,
    scheme: Option<Scheme>,
    ranks: u32,
    epochs: u64,
    records: u64,
    value_bytes: usize,
    memory_bytes: usize,
}

impl Job {
    fn parse(words: &[String]) -> Result<Self, Failed> {
        let [out, scheme, ranks, epochs, records, value_bytes, memory_bytes] = words else {
            return Err(
                "epochs OUT plain|records|pointers|ranks RANKS EPOCHS RECORDS VALUE_BYTES MEMORY_BYTES"
                    .into(),
            );
        };
        let scheme = match scheme.as_str() {
            "records" => Some(Scheme::Records),
            "pointers" => Some(Scheme::Pointers),
            "ranks" => Some(Scheme::Ranks),
            "plain" => None,
            other => return Err(format!("there is no scheme {other}").into()),
        };
        Ok(Self {
            out: out.into(),
            scheme,
            ranks: ranks.parse()?,
            epochs: epochs.parse()?,
            records: records.parse()?,
            value_bytes: value_bytes.parse()?,
            memory_bytes: memory_bytes.parse()?,
        })
    }

    /// The record `number` of a rank in an epoch.
    fn record(&self, rank: u32, epoch: u64, number: u64, value: &mut [u8]) -> [u8; KEY_BYTES] {
        let key = mix(number * u64::from(self.ranks) + u64::from(rank));
        for (place, chunk) in value.chunks_mut(8).enumerate() {
            let word = mix(key ^ epoch << 56 ^ place as u64).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        key.to_be_bytes()
    }
}

fn main() -> Result<(), Failed> {
    let job = Job::parse(&std::env::args().skip(1).collect::<Vec<_>>())?;
    let since = Instant::now();
    let peak = if job.scheme.is_some() { indexed(&job)? } else { plain(&job)? };
    let seconds = since.elapsed().as_secs_f64();
    let raw = u64::from(job.ranks) * job.epochs * job.records * (KEY_BYTES + job.value_bytes) as u64;
    let mut stored = 0;
    for entry in std::fs::read_dir(&job.out)? {
        stored += entry?.metadata()?.len();
    }
    println!(
        "{{\"seconds\":{seconds},\"raw_bytes\":{raw},\"stored_bytes\":{stored},\"peak_bytes_of_a_rank\":{peak}}}"
    );
    Ok(())
}

/// A file for each rank and epoch, in writes of 1 MiB, synced.
fn plain(job: &Job) -> Result<usize, Failed> {
    std::fs::create_dir(&job.out)?;
    let each = |rank: u32| -> Result<(), Failed> {
        let mut value = vec![0; job.value_bytes];
        for epoch in 0..job.epochs {
            let mut file = std::fs::File::create(job.out.join(format!("dump-{rank:04}-{epoch:04}")))?;
            let mut buffer = Vec::with_capacity(PLAIN_BYTES);
            for number in 0..job.records {
                let key = job.record(rank, epoch, number, &mut value);
                if buffer.len() + KEY_BYTES + value.len() > PLAIN_BYTES {
                    file.write_all(&buffer)?;
                    buffer.clear();
                }
                buffer.extend_from_slice(&key);
                buffer.extend_from_slice(&value);
            }
            file.write_all(&buffer)?;
            file.sync_all()?;
        }
        Ok(())
    };
    on_all(job.ranks, each)?;
    Ok(PLAIN_BYTES)
}

fn on_all(ranks: u32, each: impl Fn(u32) -> Result<(), Failed> + Sync) -> Result<(), Failed> {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || each(rank))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a rank stopped")?)
    })
}

/// What travels: a batch of messages of one length, or the end of a rank's epoch.
enum Parcel {
    Batch(Vec<u8>),
    End,
}

/// A rank's side of the exchange.
struct Exchange {
    to: Vec<SyncSender<Parcel>>,
    from: Receiver<Parcel>,
    open: Vec<Vec<u8>>,
    ended: usize,
}

impl Exchange {
    fn send(
        &mut self,
        owner: usize,
        parcel: Parcel,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let mut parcel = parcel;
        loop {
            match self.to[owner].try_send(parcel) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) => parcel = back,
                Err(TrySendError::Disconnected(_)) => return Err("another rank stopped".into()),
            }
            // Whoever waits for room makes room.
            self.receive(take)?;
            std::thread::yield_now();
        }
    }

    fn receive(&mut self, take: &mut dyn FnMut(&[u8]) -> Result<(), Failed>) -> Result<(), Failed> {
        loop {
            match self.from.try_recv() {
                Ok(Parcel::Batch(batch)) => take(&batch)?,
                Ok(Parcel::End) => self.ended += 1,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err("all other ranks stopped".into()),
            }
        }
    }
}

fn indexed(job: &Job) -> Result<usize, Failed> {
    let disk = Disk::default();
    let mut layout = Layout::new(job.scheme.unwrap_or(Scheme::Records), job.ranks, job.ranks);
    (layout.key_bytes, layout.value_bytes) = (Some(KEY_BYTES as u32), Some(job.value_bytes as u32));
    let coordinator = Coordinator::create(&disk, &job.out, layout)?;
    let manifest = coordinator.manifest().clone();
    let coordinator = Mutex::new(coordinator);
    let (to, from): (Vec<_>, Vec<_>) =
        (0..job.ranks).map(|_| sync_channel(BATCHES * job.ranks as usize)).unzip();
    let from: Vec<_> = from.into_iter().map(|one| Mutex::new(Some(one))).collect();
    let (barrier, peak) = (Arc::new(Barrier::new(job.ranks as usize)), Mutex::new(0));
    on_all(job.ranks, |rank| {
        let share = Share { partitions: vec![rank], writer: Some(rank) };
        let mut local = LocalWriter::open(&disk, &job.out, &manifest, &share, job.memory_bytes)?;
        let receiver =
            from[rank as usize].lock().ok().and_then(|mut one| one.take()).ok_or("a rank started twice")?;
        let mut exchange = Exchange {
            to: to.clone(),
            from: receiver,
            open: vec![Vec::with_capacity(BATCH_BYTES); job.ranks as usize],
            ended: 0,
        };
        for epoch in 0..job.epochs {
            write_epoch(job, rank, epoch, &manifest.layout, &mut local, &mut exchange)?;
            local.end_epoch()?;
            if barrier.wait().is_leader() {
                coordinator.lock().map_err(|_| "a rank stopped")?.commit(&[])?;
            }
            barrier.wait();
        }
        let own = local.pool().peak();
        local.finish()?;
        let mut peak = peak.lock().map_err(|_| "a rank stopped")?;
        *peak = own.max(*peak);
        Ok(())
    })?;
    coordinator.into_inner().map_err(|_| "a rank stopped")?.close()?;
    Ok(peak.into_inner().unwrap_or_default())
}

fn write_epoch(
    job: &Job,
    rank: u32,
    epoch: u64,
    layout: &Layout,
    local: &mut LocalWriter,
    exchange: &mut Exchange,
) -> Result<(), Failed> {
    let mut value = vec![0; job.value_bytes];
    let mut message = Vec::new();
    for number in 0..job.records {
        let key = job.record(rank, epoch, number, &mut value);
        let owner = layout.partition_of(&key, &[]) as usize;
        message.clear();
        match layout.scheme {
            Scheme::Records => message.extend_from_slice(&[&key[..], &value].concat()),
            Scheme::Pointers => {
                message.extend_from_slice(&[&key[..], &local.store_value(&value)?.to_bytes()].concat())
            }
            Scheme::Ranks => {
                local.store_record(&key, &value)?;
                message
                    .extend_from_slice(&[&layout.hash(&key).to_le_bytes()[..], &rank.to_le_bytes()].concat());
            }
        }
        let bytes = message.len();
        if owner == rank as usize {
            take(layout.scheme, rank, bytes, local, &message)?;
            continue;
        }
        if exchange.open[owner].len() + bytes > BATCH_BYTES {
            let full = std::mem::replace(&mut exchange.open[owner], Vec::with_capacity(BATCH_BYTES));
            exchange.send(owner, Parcel::Batch(full), &mut |batch| {
                take(layout.scheme, rank, bytes, local, batch)
            })?;
            exchange.receive(&mut |batch| take(layout.scheme, rank, bytes, local, batch))?;
        }
        exchange.open[owner].extend_from_slice(&message);
    }
    let bytes = message.len().max(1);
    for owner in (0..exchange.open.len()).filter(|&owner| owner != rank as usize) {
        let last = std::mem::take(&mut exchange.open[owner]);
        exchange
            .send(owner, Parcel::Batch(last), &mut |batch| take(layout.scheme, rank, bytes, local, batch))?;
        exchange.send(owner, Parcel::End, &mut |batch| take(layout.scheme, rank, bytes, local, batch))?;
    }
    while exchange.ended + 1 < exchange.open.len() {
        exchange.receive(&mut |batch| take(layout.scheme, rank, bytes, local, batch))?;
        std::thread::yield_now();
    }
    exchange.ended = 0;
    Ok(())
}

/// Puts the messages of a batch to this rank's partition.
fn take(
    scheme: Scheme,
    rank: u32,
    bytes: usize,
    local: &mut LocalWriter,
    batch: &[u8],
) -> Result<(), Failed> {
    for message in batch.chunks_exact(bytes) {
        let (key, rest) = message.split_at(KEY_BYTES);
        match scheme {
            Scheme::Records => local.put_record(rank, key, rest)?,
            Scheme::Pointers => {
                local.put_pointer(rank, key, Pointer::from_bytes(rest).ok_or("no pointer")?)?
            }
            Scheme::Ranks => {
                let hash = u64::from_le_bytes(key.try_into()?);
                local.put_rank(rank, hash, u32::from_le_bytes(rest.try_into()?))?;
            }
        }
    }
    Ok(())
}
