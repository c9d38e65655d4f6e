//! Finds the records of many keys at once, several times: what `./dev bench python` holds the Python package against.
//!
//! Usage: `get DIRECTORY KEYS KEY_BYTES TIMES`; the file KEYS has the keys one after the other. One line of JSON tells
//! the records found and the seconds of each time.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use ascot_index::Directory;
use ascot_io::Disk;

const MEMORY_BYTES: usize = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, keys, key_bytes, times] = words.as_slice() else {
        return Err("get DIRECTORY KEYS KEY_BYTES TIMES".into());
    };
    let directory = Directory::open(&Disk::default(), Path::new(directory), MEMORY_BYTES)?;
    let bytes = std::fs::read(keys)?;
    let keys: Vec<&[u8]> = bytes.chunks_exact(key_bytes.parse()?).collect();
    let mut seconds = Vec::new();
    let mut found = Vec::new();
    for _ in 0..times.parse::<usize>()? {
        found.clear();
        let since = Instant::now();
        directory.get_many(&keys, None, |number, values| {
            found.extend(values.into_iter().map(|value| (number, value.epoch, value.bytes)));
            Ok(())
        })?;
        seconds.push(since.elapsed().as_secs_f64());
    }
    println!("{{\"found\":{},\"seconds\":{seconds:?}}}", found.len());
    Ok(())
}
