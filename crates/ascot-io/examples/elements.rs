//! Times streams of elements for `./dev bench streams`.
//!
//! ```text
//!   elements loop DIR BYTES ROUNDS     element streams beside a loop over a slice that is copied block by block, warm
//!   elements direct read|write FILE BYTES BLOCK DEPTH     a direct stream, element by element; prints bytes per second
//!   elements blocks read|write FILE BYTES BLOCK DEPTH     the same stream, whose blocks are not looked into
//! ```
//!
//! Both loops fold every element into one number, in order, so that neither can be left out or vectorised away.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use ascot_io::elements::{BUFFERED_BYTES, ElementReader, ElementWriter, StreamKind};

type Timed = Result<f64, Box<dyn Error>>;

/// What a loop goes over.
#[derive(Clone, Copy)]
enum Way {
    Elements,
    Slices,
}

fn fold(sum: u32, element: u32) -> u32 {
    sum.rotate_left(5) ^ element
}

/// Takes the number by value: by reference, the compiler would store it after every element.
fn check(expected: &mut Option<u32>, sum: u32) {
    assert_eq!(*expected.get_or_insert(sum), sum, "other elements were read");
}

fn read_elements(path: &Path, kind: StreamKind, expected: &mut Option<u32>) -> Timed {
    let since = Instant::now();
    let mut reader = ElementReader::<u32>::open(path, kind)?;
    let mut sum = 0;
    while !reader.end_of_stream() {
        sum = fold(sum, reader.read_next()?);
    }
    reader.close();
    let seconds = since.elapsed().as_secs_f64();
    check(expected, sum);
    Ok(seconds)
}

fn read_slices(path: &Path, block_bytes: usize, expected: &mut Option<u32>) -> Timed {
    let since = Instant::now();
    let mut file = File::open(path)?;
    let mut block = vec![0; block_bytes];
    let mut sum = 0;
    loop {
        let filled = file.read(&mut block)?;
        if filled == 0 {
            break;
        }
        for bytes in block[..filled].chunks_exact(4) {
            sum = fold(sum, u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
    }
    let seconds = since.elapsed().as_secs_f64();
    check(expected, sum);
    Ok(seconds)
}

fn write_elements(path: &Path, kind: StreamKind, count: u32) -> Timed {
    let since = Instant::now();
    let mut writer = ElementWriter::<u32>::create(path, kind)?;
    let mut sum = 0;
    for number in 0..count {
        sum = fold(sum, number);
        writer.write(sum)?;
    }
    writer.close()?;
    Ok(since.elapsed().as_secs_f64())
}

fn write_slices(path: &Path, block_bytes: usize, count: u32) -> Timed {
    let since = Instant::now();
    let mut file = File::create(path)?;
    let mut block = vec![0; block_bytes];
    let mut sum = 0;
    let mut number = 0;
    while number < count {
        let some = (count - number).min(block_bytes as u32 / 4);
        for bytes in block[..4 * some as usize].chunks_exact_mut(4) {
            sum = fold(sum, number);
            bytes.copy_from_slice(&sum.to_le_bytes());
            number += 1;
        }
        file.write_all(&block[..4 * some as usize])?;
    }
    drop(file);
    Ok(since.elapsed().as_secs_f64())
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Times two ways in turns, each first in every other round.
fn in_turns(rounds: usize, mut time: impl FnMut(Way) -> Timed) -> Result<[Vec<f64>; 2], Box<dyn Error>> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let order = if round % 2 == 0 { [Way::Elements, Way::Slices] } else { [Way::Slices, Way::Elements] };
        for way in order {
            times[way as usize].push(time(way)?);
        }
    }
    Ok(times)
}

fn compare(directory: &Path, bytes: u32, rounds: usize) -> Result<(), Box<dyn Error>> {
    let path = directory.join("elements");
    let count = bytes / 4;
    let kinds = [
        (StreamKind::Buffered, BUFFERED_BYTES),
        (StreamKind::Sized { block_bytes: 1 << 16 }, 1 << 16),
        (StreamKind::Sized { block_bytes: 1 << 20 }, 1 << 20),
    ];
    for (kind, block_bytes) in kinds {
        let written = in_turns(rounds, |way| match way {
            Way::Elements => write_elements(&path, kind, count),
            Way::Slices => write_slices(&path, block_bytes, count),
        })?;
        // Otherwise the device is still taking what was written while it is read.
        File::open(&path)?.sync_all()?;
        let mut expected = None;
        let read = in_turns(rounds, |way| match way {
            Way::Elements => read_elements(&path, kind, &mut expected),
            Way::Slices => read_slices(&path, block_bytes, &mut expected),
        })?;
        for (ways, [elements, slices]) in [("write", written), ("read", read)] {
            let shares: Vec<f64> =
                elements.iter().zip(&slices).map(|(elements, slices)| slices / elements).collect();
            println!(
                "{{\"kind\": \"{kind}\", \"direction\": \"{ways}\", \"elements_s\": {}, \"slices_s\": {}, \
                 \"rate_share\": {:.3}}}",
                median(&elements),
                median(&slices),
                median(&shares)
            );
        }
    }
    std::fs::remove_file(path)?;
    Ok(())
}

/// Reads whole blocks; returns the seconds.
fn read_blocks(path: &Path, kind: StreamKind) -> Timed {
    let since = Instant::now();
    let mut reader = ElementReader::<u8>::open(path, kind)?;
    while !reader.end_of_stream() {
        let bytes = reader.fill()?.len();
        reader.consume(bytes);
    }
    reader.close();
    Ok(since.elapsed().as_secs_f64())
}

/// Writes whole blocks with whatever they hold; returns the seconds.
fn write_blocks(path: &Path, kind: StreamKind, bytes: u32) -> Timed {
    let since = Instant::now();
    let mut writer = ElementWriter::<u8>::create(path, kind)?;
    let mut left = bytes as usize;
    while left > 0 {
        let some = writer.space()?.len().min(left);
        writer.advance(some)?;
        left -= some;
    }
    writer.close()?;
    Ok(since.elapsed().as_secs_f64())
}

fn blocks(ways: &str, path: &Path, bytes: u32, kind: StreamKind) -> Result<(), Box<dyn Error>> {
    let seconds = match ways {
        "write" => write_blocks(path, kind, bytes)?,
        _ => read_blocks(path, kind)?,
    };
    println!("{:.0}", f64::from(bytes) / seconds);
    Ok(())
}

fn direct(ways: &str, path: &Path, bytes: u32, kind: StreamKind) -> Result<(), Box<dyn Error>> {
    let seconds = match ways {
        "write" => write_elements(path, kind, bytes / 4)?,
        _ => read_elements(path, kind, &mut None)?,
    };
    println!("{:.0}", f64::from(bytes) / seconds);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["loop", directory, bytes, rounds] => compare(Path::new(directory), bytes.parse()?, rounds.parse()?),
        [mode @ ("direct" | "blocks"), ways, path, bytes, block, depth] => {
            let kind = StreamKind::Direct { block_bytes: block.parse()?, depth: depth.parse()? };
            let run = if mode == "direct" { direct } else { blocks };
            run(ways, Path::new(path), bytes.parse()?, kind)
        }
        _ => {
            Err("usage: elements loop DIR BYTES ROUNDS, or elements direct|blocks read|write FILE BYTES BLOCK DEPTH"
                .into())
        }
    }
}
