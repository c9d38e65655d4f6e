//! Sorts a file of fixed-length items with the `extsort` crate: 100-byte records by their first ten bytes,
//! or little-endian u64 integers by value. Buffers of 1 MiB each way; the output is synced before it ends.
//!
//!     extsort-peer KIND INPUT OUTPUT TEMP SEGMENT_BYTES [parallel]

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use extsort::{ExternalSorter, Sortable};

const BUFFER: usize = 1 << 20;

/// A benchmark record; the key is its first ten bytes.
struct Record([u8; 100]);

impl Sortable for Record {
    fn encode<W: Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(&self.0)
    }

    fn decode<R: Read>(reader: &mut R) -> io::Result<Self> {
        let mut bytes = [0; 100];
        reader.read_exact(&mut bytes)?;
        Ok(Record(bytes))
    }
}

/// A little-endian integer.
struct Integer(u64);

impl Sortable for Integer {
    fn encode<W: Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(&self.0.to_le_bytes())
    }

    fn decode<R: Read>(reader: &mut R) -> io::Result<Self> {
        let mut bytes = [0; 8];
        reader.read_exact(&mut bytes)?;
        Ok(Integer(u64::from_le_bytes(bytes)))
    }
}

/// What the command line asks for.
struct Job {
    input: PathBuf,
    output: PathBuf,
    temp: PathBuf,
    segment_bytes: usize,
    parallel: bool,
}

/// Items of a file until its end; a read error ends the program's work with that error later on.
struct Items<T> {
    reader: BufReader<File>,
    left: u64,
    error: io::Result<()>,
    kind: std::marker::PhantomData<T>,
}

impl<T: Sortable> Iterator for &mut Items<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        match T::decode(&mut self.reader) {
            Ok(item) => Some(item),
            Err(error) => {
                self.error = Err(error);
                None
            }
        }
    }
}

fn sort<T: Sortable, K: Ord>(
    job: &Job,
    item_bytes: usize,
    key: impl Fn(&T) -> K + Send + Sync + Clone,
) -> io::Result<()> {
    let input = File::open(&job.input)?;
    let mut items = Items::<T> {
        left: input.metadata()?.len() / item_bytes as u64,
        reader: BufReader::with_capacity(BUFFER, input),
        error: Ok(()),
        kind: std::marker::PhantomData,
    };
    let mut sorter = ExternalSorter::new()
        .with_segment_size((job.segment_bytes / item_bytes).max(1))
        .with_sort_dir(job.temp.clone());
    if job.parallel {
        sorter = sorter.with_parallel_sort();
    }
    let compare = move |a: &T, b: &T| key(a).cmp(&key(b));
    let sorted = sorter.sort_by(&mut items, compare)?;
    let mut output = BufWriter::with_capacity(BUFFER, File::create(&job.output)?);
    for item in sorted {
        item?.encode(&mut output)?;
    }
    items.error?;
    output.into_inner()?.sync_all()
}

fn run(words: &[String]) -> io::Result<()> {
    let usage = "extsort-peer records|u64 INPUT OUTPUT TEMP SEGMENT_BYTES [parallel]";
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, usage);
    let [kind, input, output, temp, segment, rest @ ..] = words else {
        return Err(wrong());
    };
    let job = Job {
        input: input.into(),
        output: output.into(),
        temp: temp.into(),
        segment_bytes: segment.parse().map_err(|_| wrong())?,
        parallel: rest.iter().any(|word| word == "parallel"),
    };
    match kind.as_str() {
        "records" => sort(&job, 100, |record: &Record| -> [u8; 10] { std::array::from_fn(|i| record.0[i]) }),
        "u64" => sort(&job, 8, |integer: &Integer| integer.0),
        _ => Err(wrong()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extsort-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
