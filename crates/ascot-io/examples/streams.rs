//! Measures a volume through the direct back-end: sequential reading, writing, and both at once,
//! for each block size and depth.
//!
//! ```text
//!   cargo run --release -p ascot-io --example streams -- DIRECTORY [MIB] [KIB,KIB,..] [DEPTH,DEPTH,..]
//! ```
//!
//! Two files of MIB (default 1024) are written to DIRECTORY and removed at the end. Rates are in
//! MB/s; "both" is the sum of the two directions.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ascot_io::{Backend, BlockPool, Buf, Disk, DiskOptions, Pool, ReadStream, WriteStream};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory =
        PathBuf::from(arguments.next().ok_or("usage: streams DIRECTORY [MIB] [KIB,..] [DEPTH,..]")?);
    let bytes = arguments.next().map_or(Ok(1024), |mib| mib.parse::<u64>())? << 20;
    let blocks = list(arguments.next(), "128,256,512,1024,2048,4096")?;
    let depths = list(arguments.next(), "1,2,4,8,16,32")?;
    let files = Files { old: directory.join("ascot-streams-old"), new: directory.join("ascot-streams-new") };
    let start = Bench::new(1 << 20, 8)?;
    println!("{} bytes a file, queue: {}", bytes, start.disk.io_queue(0).kind());
    start.write(&files.old, bytes)?;
    println!("{:>9} {:>5} {:>8} {:>8} {:>8}", "block KiB", "depth", "read", "write", "both");
    for &kib in &blocks {
        for &depth in &depths {
            let bench = Bench::new(kib << 10, depth)?;
            let read = rate(bytes, || bench.read(&files.old))?;
            let write = rate(bytes, || bench.write(&files.new, bytes))?;
            let both = rate(2 * bytes, || bench.copy(&files.old, &files.new))?;
            println!("{kib:>9} {depth:>5} {read:>8.0} {write:>8.0} {both:>8.0}");
        }
    }
    Ok(())
}

fn list(argument: Option<String>, default: &str) -> Result<Vec<usize>, Box<dyn Error>> {
    let list = argument.unwrap_or_else(|| default.into());
    Ok(list.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

fn rate(bytes: u64, work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    work()?;
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// The two files, removed at the end.
struct Files {
    old: PathBuf,
    new: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.old, &self.new] {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// One block size and depth.
struct Bench {
    disk: Disk,
    blocks: BlockPool,
    depth: usize,
}

impl Bench {
    fn new(block_bytes: usize, depth: usize) -> Result<Self, Box<dyn Error>> {
        let options =
            DiskOptions { backend: Backend::Direct, depth, request_bytes: block_bytes, ..Default::default() };
        let bytes = 3 * depth * block_bytes;
        let mut region = Pool::new(bytes).region(bytes, "blocks")?;
        region.fill(1);
        let blocks = BlockPool::new(region, block_bytes);
        Ok(Self { disk: Disk::new(options), blocks, depth })
    }

    fn block(&self) -> Result<Buf, Box<dyn Error>> {
        self.blocks.take(|| false).ok_or_else(|| "no block".into())
    }

    fn read(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let mut stream = self.disk.open_read(path, 0..u64::MAX, "read")?;
        for _ in 0..self.depth {
            stream.begin(self.block()?)?;
        }
        while !stream.complete()?.is_empty() {
            stream.begin(self.block()?)?;
        }
        Ok(())
    }

    fn write(&self, path: &Path, bytes: u64) -> Result<(), Box<dyn Error>> {
        let mut stream = self.disk.create(path, "write")?;
        let mut left = bytes;
        while left > 0 {
            let block = self.block()?;
            let len = left.min(block.len() as u64) as usize;
            stream.begin(block, len)?;
            left -= len as u64;
        }
        stream.sync()?;
        stream.finish()?;
        Ok(())
    }

    /// Reads one file and writes the other at once, blocks going from hand to hand.
    fn copy(&self, from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
        let mut from: Box<dyn ReadStream> = self.disk.open_read(from, 0..u64::MAX, "read")?;
        let mut to: Box<dyn WriteStream> = self.disk.create(to, "write")?;
        for _ in 0..self.depth {
            from.begin(self.block()?)?;
        }
        loop {
            let filled = from.complete()?;
            if filled.is_empty() {
                break;
            }
            let len = filled.end;
            to.begin(filled.buf, len)?;
            from.begin(self.block()?)?;
        }
        to.sync()?;
        to.finish()?;
        Ok(())
    }
}
