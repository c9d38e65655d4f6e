//! Writes records from several ranks, threads of one process, to plain files or to an indexed directory, and says how
//! long it took: what `./dev bench index` measures.
//!
//! Usage: `epochs OUT plain|records|pointers|ranks RANKS EPOCHS RECORDS VALUE_BYTES MEMORY_BYTES`; RECORDS of each
//! rank and epoch, MEMORY_BYTES of each rank. One line of JSON tells the outcome. Keys are the same in every epoch,
//! each written by one rank.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ascot_index::hash::mix;
use ascot_index::rank_writer::{RankOptions, RankWriter};
use ascot_index::routing::{Route, RoutingSettings, Topology};
use ascot_index::{LayoutRequest, Opening, Scheme};
use ascot_io::Disk;
use ascot_testing::in_process::{Order, in_process};

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
    let written = bytes_written()?;
    println!(
        "{{\"seconds\":{seconds},\"raw_bytes\":{raw},\"stored_bytes\":{stored},\
         \"written_bytes\":{written},\"peak_bytes_of_a_rank\":{peak}}}"
    );
    Ok(())
}

/// Bytes this process has sent to devices.
fn bytes_written() -> Result<u64, Failed> {
    let account = std::fs::read_to_string("/proc/self/io")?;
    let line = account.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.ok_or("the system keeps no account of writes")?.parse()?)
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

fn indexed(job: &Job) -> Result<usize, Failed> {
    let disk = Disk::default();
    let request = LayoutRequest {
        scheme: job.scheme,
        partitions: Some(job.ranks),
        key_bytes: Some(KEY_BYTES as u32),
        value_bytes: Some(job.value_bytes as u32),
        ..LayoutRequest::default()
    };
    let routing = RoutingSettings { route: Route::Direct, ..RoutingSettings::default() };
    let options = RankOptions {
        opening: Opening { request, ..Opening::default() },
        memory_bytes: job.memory_bytes,
        routing,
    };
    let ends: Vec<_> = in_process(&Topology::even(job.ranks, job.ranks), Order::Free)
        .into_iter()
        .map(|end| Mutex::new(Some(end)))
        .collect();
    let peak = AtomicUsize::new(0);
    on_all(job.ranks, |rank| {
        let mut value = vec![0; job.value_bytes];
        let end = ends[rank as usize].lock().ok().and_then(|mut end| end.take());
        let mut writer = RankWriter::open(end.ok_or("a rank started twice")?, &disk, &job.out, &options)?;
        for epoch in 0..job.epochs {
            for number in 0..job.records {
                let key = job.record(rank, epoch, number, &mut value);
                writer.append(&key, &value)?;
            }
            writer.end_epoch()?;
        }
        let memory = writer.memory();
        peak.fetch_max(memory.routing + memory.logs_peak, Ordering::Relaxed);
        Ok(writer.close()?)
    })?;
    Ok(peak.into_inner())
}
