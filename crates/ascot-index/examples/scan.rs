//! Reads all records of a folder of plain files for one key, by all processors: what finding a record takes without an
//! index, which `./dev bench index` holds queries against.
//!
//! Usage: `scan FOLDER KEY RECORD_BYTES`; the key in hexadecimal digits, at the start of each record. One line of JSON
//! tells the outcome.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use ascot_record::hex::from_hex;

const PIECE_BYTES: usize = 4 << 20;

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, key, record_bytes] = words.as_slice() else {
        return Err("scan FOLDER KEY RECORD_BYTES".into());
    };
    let key = from_hex(key).ok_or("KEY is not hexadecimal")?;
    let record_bytes: usize = record_bytes.parse()?;
    let since = Instant::now();
    let paths = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<PathBuf>, std::io::Error>>()?;
    let (next, bytes, found) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let each = || -> Result<(), Failed> {
        let mut piece = vec![0; PIECE_BYTES / record_bytes * record_bytes];
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut file = File::open(path)?;
            loop {
                let read = fill(&mut file, &mut piece)?;
                let records = piece[..read].chunks_exact(record_bytes);
                let own = records.filter(|record| record.starts_with(&key)).count();
                found.fetch_add(own as u64, Ordering::Relaxed);
                bytes.fetch_add(read as u64, Ordering::Relaxed);
                if read < piece.len() {
                    break;
                }
            }
        }
        Ok(())
    };
    let workers = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(each)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a reader stopped")?)
    })?;
    let (seconds, bytes, found) = (since.elapsed().as_secs_f64(), bytes.into_inner(), found.into_inner());
    println!("{{\"seconds\":{seconds},\"bytes\":{bytes},\"found\":{found}}}");
    Ok(())
}

/// Reads until the piece is full or the file ends.
fn fill(file: &mut File, piece: &mut [u8]) -> Result<usize, std::io::Error> {
    let mut filled = 0;
    while filled < piece.len() {
        match file.read(&mut piece[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}
