//! Samples keys of a chunk: one record near each of several evenly spread offsets, so that long records count by their
//! bytes, as partitions do.

use std::fs::File;

use ascot_io::{Action, During, IoError};
use ascot_record::framing::{Partial, StartSearch};
use xxhash_rust::xxh3::xxh3_64;

use super::Shuffle;
use super::bounds::SortPosition;
use super::chunk_reader::{ChunkSpan, read_full};
use crate::api::{Cancel, Result};
use crate::records::{Records, with_records};

/// Bytes read at an offset at first, and at most.
const READ_BYTES: usize = 4 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// Bytes in which quotes may show where a row starts. A sample that is no row costs balance alone, and reading more for
/// each sample costs time.
const QUOTES_BYTES: usize = 16 << 10;

/// The sort positions of about `count` records of a chunk. Lines longer than a few hundred kilobytes may be left out.
///
/// # Errors
/// Those of reading the file.
pub fn sample_chunk(
    shuffle: &Shuffle,
    span: &ChunkSpan,
    count: u32,
    cancel: &Cancel,
) -> Result<Vec<SortPosition>> {
    let file = File::open(&span.path).during(Action::Open, &span.path)?;
    // A hint, without which the system also reads what follows an offset.
    let _refused = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
    let bytes = span.end.saturating_sub(span.start);
    let mut positions = Vec::new();
    for number in 0..u64::from(count) {
        cancel.check()?;
        let from = spread(bytes, number, count);
        let to = spread(bytes, number + 1, count);
        if from < to {
            // Within the range, the offset depends on the position alone, so it does not follow a period of the data.
            let at = span.start + from + xxh3_64(&(span.position + from).to_le_bytes()) % (to - from);
            with_records!(&shuffle.records, records => {
                positions.extend(position_near(&**records, &file, span, at)?);
            });
        }
    }
    Ok(positions)
}

fn spread(bytes: u64, number: u64, count: u32) -> u64 {
    (u128::from(bytes) * u128::from(number) / u128::from(count)) as u64
}

/// The sort position of the first record that begins at or after `at`, or of the one around it if all have one length.
fn position_near<R: Records>(
    records: &R,
    file: &File,
    span: &ChunkSpan,
    at: u64,
) -> Result<Option<SortPosition>> {
    if let Some(len) = records.record_bytes() {
        let start = at - (at - span.start) % len as u64;
        let bytes = read(file, span, start, len)?;
        return Ok(position_of(records, bytes, span, start));
    }
    // The record that ends at or after the byte before.
    let from = if at == span.records_at { at } else { at - 1 };
    let mut start = RecordStart::new(records, at == span.records_at);
    let mut wanted = READ_BYTES;
    loop {
        let bytes = read(file, span, from, wanted)?;
        let ended = bytes.len() < wanted;
        if let Some(first) = start.in_bytes(records, &bytes, ended) {
            if from + first as u64 >= span.end {
                return Ok(None);
            }
            let mut record = bytes[first..].to_vec();
            if ended && records.cut(&record, 1).bytes == 0 && !record.is_empty() {
                record.extend(records.completion());
            }
            let len = records.cut(&record, 1).bytes;
            if len > 0 {
                record.truncate(len);
                return Ok(position_of(records, record, span, from + first as u64));
            }
        }
        if ended || wanted >= READ_BYTES_MAX {
            return Ok(None);
        }
        wanted *= 4;
    }
}

/// The start of a record in bytes from the middle of a file, of which more and more are known.
struct RecordStart {
    /// Where rows may be quoted.
    search: Option<StartSearch>,
    /// Bytes searched.
    searched: usize,
    found: Option<usize>,
}

impl RecordStart {
    /// `known`: a record begins at the first byte.
    fn new<R: Records>(records: &R, known: bool) -> Self {
        RecordStart { search: records.start_search(), searched: 0, found: known.then_some(0) }
    }

    /// The start in `bytes`, which begin with those of the latest call and end with the file if `ended`.
    fn in_bytes<R: Records>(&mut self, records: &R, bytes: &[u8], ended: bool) -> Option<usize> {
        if self.found.is_some() {
            return self.found;
        }
        let Some(search) = &mut self.search else {
            return records.go_on(bytes, &mut Partial::default());
        };
        let offset = |found: u64| usize::try_from(found).ok();
        self.found = search.go_on(bytes.get(self.searched..).unwrap_or_default()).and_then(offset);
        self.searched = bytes.len();
        let takes_likely = ended || bytes.len() >= QUOTES_BYTES;
        self.found.or_else(|| search.likely().filter(|_| takes_likely).and_then(offset))
    }
}

/// Up to `bytes` bytes from `offset` on, not beyond the size of the file when the job began.
fn read(file: &File, span: &ChunkSpan, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; bytes.min(usize::try_from(span.size.saturating_sub(offset)).unwrap_or(bytes))];
    let done = read_full(file, &span.path, &mut out, offset)?;
    if done < out.len() {
        let path = span.path.clone();
        return Err(IoError::Truncated { path, offset: offset + done as u64, expected: span.size }.into());
    }
    Ok(out)
}

fn position_of<R: Records>(
    records: &R,
    mut record: Vec<u8>,
    span: &ChunkSpan,
    start: u64,
) -> Option<SortPosition> {
    records.normalise(&mut record);
    let position = span.position + (start - span.start);
    let mut found = None;
    records.each_key(&record, &mut |range, key| {
        found = Some(SortPosition::new(records, &record[range], key, position));
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Input, Keys, Output, SortRequest};
    use ascot_record::keys::{KeyOptions, parse_csv_keys, parse_ranges};
    use ascot_record::layout::Layout;

    fn sampled(
        layout: Layout,
        keys: Keys,
        content: &[u8],
        span: (u64, u64),
        count: u32,
    ) -> Vec<SortPosition> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("a disk");
        let (start, end) = span;
        let size = content.len() as u64;
        let span =
            ChunkSpan { path: file.path().into(), start, end, records_at: 0, size, position: 1000 + start };
        let request = SortRequest::new(vec![Input::Program], Output::Stdout, layout, keys);
        let shuffle = Shuffle::new(&request).expect("records");
        sample_chunk(&shuffle, &span, count, &Cancel::new()).expect("sampled")
    }

    #[test]
    fn samples_of_records_of_one_length_are_records() {
        let content: Vec<u8> = (0..100u32).flat_map(u32::to_be_bytes).collect();
        let keys = Keys::Ranges(parse_ranges("0..4").expect("a key"));
        let positions = sampled(Layout::Fixed { len: 4 }, keys, &content, (40, 400), 30);
        assert_eq!(positions.len(), 30);
        for found in positions {
            let number = u32::from_be_bytes(found.key.try_into().expect("a key of 4 bytes"));
            assert!(number >= 10 && found.position == 1000 + 4 * u64::from(number));
        }
    }

    #[test]
    fn samples_of_lines_are_lines_that_begin_in_the_chunk() {
        let content = "one\ntwo\nthree\nfour\nlast line";
        let lines = |from, to, count| {
            let options = Keys::Command(KeyOptions::default());
            let layout = Layout::Lines { delimiter: b'\n' };
            let positions = sampled(layout, options, content.as_bytes(), (from, to), count);
            positions.into_iter().map(|found| String::from_utf8(found.key).expect("text")).collect::<Vec<_>>()
        };
        let mut found = lines(0, content.len() as u64, 200);
        found.dedup();
        assert_eq!(found, ["one", "two", "three", "four", "last line"]);
        let mut found = lines(5, 15, 200);
        found.dedup();
        assert_eq!(found, ["three", "four"]);
    }

    #[test]
    fn samples_of_rows_are_no_lines_within_quotes() {
        // Each line is half a row, and begins like one.
        let rows: String = (0..500).map(|number| format!("{number},\"x\n9999,x\"\n")).collect();
        let layout = Layout::Csv { separator: b',', quote: b'"' };
        let keys = || Keys::Columns(parse_csv_keys("#1:number").expect("a key"));
        let found = sampled(layout, keys(), rows.as_bytes(), (0, rows.len() as u64), 200);
        let lines = sampled(layout, keys(), "9999,x\n".repeat(50).as_bytes(), (0, 100), 9);
        assert!(found.len() > 150, "{}", found.len());
        assert!(found.iter().all(|place| place.key < lines[0].key));
    }

    #[test]
    fn long_lines_are_found_and_longer_ones_left_out() {
        let line = |bytes: usize| [vec![b'a'; bytes], vec![b'\n']].concat();
        let keys = || Keys::Command(KeyOptions::default());
        let layout = Layout::Lines { delimiter: b'\n' };
        let content = line(30_000).repeat(3);
        assert!(!sampled(layout, keys(), &content, (0, content.len() as u64), 20).is_empty());
        let content = line(1 << 20);
        assert!(sampled(layout, keys(), &content, (10, content.len() as u64), 5).is_empty());
    }
}
