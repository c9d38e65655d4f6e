//! Directories changed by somebody who knows the format: every checksum above the change is made anew, so that nothing
//! but the reader's own looking stands between a bad number and what it would do with it.
//!
//! ```text
//!   change a byte or a number of: a block, a value, a region, a head, a root, a footer, the manifest
//!        ╰─ its checksum ─▶ in the head ─▶ the head's ─▶ in the root ─▶ the root's ─▶ in the footer ─▶ the footer's
//! ```
//!
//! What must hold: no panic; memory and time within bounds; where records themselves were not changed, no value is
//! found under a key that it was not written under.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod counting;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ascot_index::format::bytes::Cursor;
use ascot_index::format::footer::{FOOTER_BYTES, Footer, PAGE, Root};
use ascot_index::format::layout::PartitionBy;
use ascot_index::format::names::{LOCK, Log};
use ascot_index::format::pointer::{value_head, value_lengths};
use ascot_index::hash::mix;
use ascot_index::{
    AuxiliaryKind, Content, Directory, DirectoryWriter, Earlier, Layout, Manifest, RecordValue, Scan, Scheme,
    Shape, Unread,
};
use ascot_io::{Disk, block_checksum, crc32c};

const MEMORY: usize = 8 << 20;
/// What a reader may have: its memory, and a constant for what no plan counts.
const MAX_BYTES: usize = MEMORY + (4 << 20);
/// Longest time that all questions of one case may take, by far.
const MAX_TIME: Duration = Duration::from_secs(20);
/// Changes tried in each directory.
const CASES: u64 = 30;

type Oracle = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

fn layouts() -> Vec<Layout> {
    let mut all = Vec::new();
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        for fixed in [true, false] {
            let mut layout = Layout::new(scheme, 2, 1);
            layout.block_bytes = 4096;
            if fixed {
                (layout.key_bytes, layout.value_bytes) = (Some(8), Some(24));
                layout.auxiliary = AuxiliaryKind::Static;
            } else {
                layout.partition_by = PartitionBy::Range;
            }
            all.push(layout);
        }
    }
    all
}

fn write(path: &Path, layout: &Layout) -> Oracle {
    let mut writer = DirectoryWriter::create(&Disk::default(), path, layout.clone(), MEMORY).unwrap();
    let mut oracle = Oracle::new();
    for epoch in 0..3u64 {
        for number in 0..400u64 {
            let key = mix(number % 300).to_be_bytes().to_vec();
            let bytes = if layout.value_bytes.is_some() { 24 } else { number % 60 + number / 399 * 9000 };
            let value: Vec<u8> = (0..bytes).map(|at| mix(at ^ number << 8 ^ epoch << 40) as u8).collect();
            writer.append_record(&key, &value).unwrap();
            oracle.entry(key).or_default().insert(value);
        }
        writer.end_epoch().unwrap();
    }
    writer.close().unwrap();
    oracle
}

/// Some bytes of a file, and the checksum that covers them: where it is kept, and what it is of.
struct Sealed {
    level: Level,
    file: PathBuf,
    at: usize,
    bytes: usize,
    seal: (PathBuf, usize),
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Data,
    Region,
    SegmentHead,
    Root,
    Footer,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Of the bytes alone.
    Plain,
    /// Of the log's number, the place, and the bytes.
    Placed(u64),
    /// Of a data block.
    Block(u64),
}

/// All files, as they are or as they are changed.
type Files = BTreeMap<PathBuf, Vec<u8>>;

impl Sealed {
    fn reseal(&self, files: &mut Files) {
        let bytes = &files[&self.file][self.at..self.at + self.bytes];
        let at = self.at as u64;
        let crc = match self.kind {
            Kind::Plain => crc32c(&[bytes]),
            Kind::Placed(id) => crc32c(&[&id.to_le_bytes(), &at.to_le_bytes(), bytes]),
            Kind::Block(id) => block_checksum(ascot_io::RunId(id), at, bytes),
        };
        let (file, place) = &self.seal;
        files.get_mut(file).unwrap()[*place..*place + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Everything that has a checksum in a log, in the order in which checksums are made.
fn sealed(path: &Path, layout: &Layout, id: u64, log: Log, files: &Files) -> Vec<Sealed> {
    let (index, id) = (log.index(path), log.id(id).0);
    let data = log.data(path);
    let bytes = &files[&index];
    let mut all = Vec::new();
    let sealed = |level, file: &Path, at, bytes, seal: usize, kind| Sealed {
        level,
        file: file.to_path_buf(),
        at,
        bytes,
        seal: (index.clone(), seal),
        kind,
    };
    let pages = (PAGE as usize..=bytes.len()).step_by(PAGE as usize).map(|end| end - FOOTER_BYTES);
    for at in pages {
        let Some(footer) = Footer::parse(&bytes[at..at + FOOTER_BYTES], at as u64, id) else { continue };
        let root_at = footer.root.at as usize;
        all.push(sealed(Level::Footer, &index, at, 60, at + 60, Kind::Plain));
        all.push(sealed(Level::Root, &index, root_at, footer.root.bytes as usize, at + 56, Kind::Plain));
        let root = Root::parse(&bytes[root_at..root_at + footer.root.bytes as usize], id).unwrap();
        for (number, entry) in root.entries.iter().enumerate().filter(|(_, entry)| entry.head.bytes > 0) {
            let (head_at, head_bytes) = (entry.head.at as usize, entry.head.bytes as usize);
            let seal = root_at + 40 + 40 * number + 20;
            all.push(sealed(Level::SegmentHead, &index, head_at, head_bytes, seal, Kind::Plain));
            let head = &bytes[head_at..head_at + head_bytes];
            for (region_at, region_bytes, seal) in regions(head) {
                let kind = Kind::Placed(id);
                all.push(sealed(Level::Region, &index, region_at, region_bytes, head_at + seal, kind));
            }
            for (block_at, block_bytes, seal) in blocks(head) {
                let file = data.as_deref().unwrap_or(&index);
                let kind = Kind::Block(id);
                all.push(sealed(Level::Data, file, block_at, block_bytes, head_at + seal, kind));
            }
        }
    }
    if let (Scheme::Pointers, Log::Writer(_), Some(data)) = (layout.scheme, log, data) {
        values(layout, &files[&data], id, |at, bytes| {
            let seal = (data.clone(), at);
            // The checksum is of what is behind it, but of the place of the whole.
            let kind = Kind::Placed(id);
            all.push(Sealed { level: Level::Data, file: data.clone(), at, bytes, seal, kind });
        });
    }
    all.sort_by_key(|one| one.level);
    all
}

/// Of each region its place, its bytes, and where in the head its checksum is.
fn regions(head: &[u8]) -> Vec<(usize, usize, usize)> {
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
    let mut place = number(56);
    let found = (0..number(36)).map(|region| {
        let (at, bytes) = (place, number(65 + 8 * region));
        place += bytes;
        (at, bytes, 65 + 8 * region + 4)
    });
    found.collect()
}

/// The same of each block.
fn blocks(head: &[u8]) -> Vec<(usize, usize, usize)> {
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
    let mut cursor = Cursor::new(head);
    cursor.take(65 + 8 * number(36)).unwrap();
    let mut tables = Vec::new();
    for _ in 0..number(32) {
        tables.push((cursor.u64().unwrap() as usize, cursor.u32().unwrap()));
        cursor.varint().unwrap();
        if cursor.u8().unwrap() == 1 {
            cursor.sized().unwrap();
        }
    }
    let mut found = Vec::new();
    for (mut at, count) in tables {
        for _ in 0..count {
            let bytes = cursor.u32().unwrap() as usize;
            found.push((at, bytes, cursor.at()));
            cursor.u32().unwrap();
            if cursor.u8().unwrap() & 1 == 1 {
                cursor.sized().unwrap();
            }
            at += bytes.next_multiple_of(4096);
        }
    }
    found
}

/// Calls `each` with the place and the bytes of every value.
fn values(layout: &Layout, data: &[u8], id: u64, mut each: impl FnMut(usize, usize)) {
    let mut at = 0;
    while at < data.len() {
        let Some((head, length)) = value_lengths(layout.value_bytes, &data[at..]) else { return };
        let whole = head + length as usize;
        let fixed = layout.value_bytes.is_some();
        let value = data.get(at + head..at + whole).unwrap_or_default();
        if data[at..].starts_with(&value_head(ascot_io::RunId(id), at as u64, fixed, value)) {
            each(at, whole);
            at += whole;
        } else {
            at = (at + 1).next_multiple_of(4096);
        }
    }
}

/// Changes some bytes: one of them, or a number.
fn change(bytes: &mut [u8], random: u64) {
    let at = mix(random) as usize % bytes.len();
    let odd =
        [0, 1, 2, 0x7f, 0xff, 0xffff, 1 << 24, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX >> 1, u64::MAX];
    let number = odd[(random >> 8) as usize % odd.len()];
    let put = |bytes: &mut [u8], number: &[u8]| {
        let room = bytes.len().min(number.len());
        bytes[..room].copy_from_slice(&number[..room]);
    };
    match random % 4 {
        0 => bytes[at] ^= 1 << (random >> 16 & 7),
        1 => bytes[at] = number as u8,
        2 => put(&mut bytes[at..], &(number as u32).to_le_bytes()),
        _ => put(&mut bytes[at / 8 * 8..], &number.to_le_bytes()),
    }
}

/// The bytes of a value that was found whole.
fn read(directory: &Directory, content: &Content) -> Vec<u8> {
    let mut whole = Vec::new();
    let done = content.for_each_part(directory, |part| {
        whole.extend_from_slice(part);
        Ok(())
    });
    done.unwrap();
    whole
}

/// Asks everything; values that were found must be among those written under their keys, if `held`.
fn ask(path: &Path, oracle: &Oracle, held: bool) {
    let Ok(directory) = Directory::open(&Disk::default(), path, MEMORY) else { return };
    let known = |key: &[u8], value: &[u8]| {
        assert!(!held || oracle.get(key).is_some_and(|values| values.contains(value)), "a wrong value");
    };
    let keys: Vec<&Vec<u8>> = oracle.keys().collect();
    let _ = directory.get_many(&keys, None, |number, values| {
        values.iter().for_each(|value| known(keys[number], &value.bytes));
        Ok(())
    });
    let _ = directory.stored_many_there(&keys[..9], None, |number, values, _| {
        values.iter().for_each(|value| known(keys[number], &read(&directory, &value.content)));
        Ok(())
    });
    for by_key in [true, false] {
        let scan = Scan { by_key, ..Scan::default() };
        let _ = directory.scan(&scan, |record| {
            known(record.key, record.value);
            Ok(())
        });
        let _ = directory.scan_stored_there(&scan, &mut Unread::default(), |record| {
            match record.value {
                RecordValue::Bytes(value) => known(record.key, value),
                RecordValue::Long(long) => known(record.key, &read(&directory, &Content::Long(long.clone()))),
            }
            Ok(())
        });
    }
    // Values that are left in the files are read by other ways.
    for key in &keys[..9] {
        for value in directory.stored_places(key, None).unwrap_or_default() {
            let mut whole = Vec::new();
            let read = value.content.for_each_part(&directory, |part| {
                whole.extend_from_slice(part);
                Ok(())
            });
            read.is_ok().then(|| known(key, &whole));
        }
    }
    let _ = (directory.get_at(keys[0], 1), directory.info(), directory.verify());
}

fn bounded(what: &str, ask: impl FnOnce()) {
    let since = Instant::now();
    let ((), bytes) = counting::peak_of(ask);
    assert!(bytes <= MAX_BYTES, "{what}: {bytes} bytes");
    assert!(since.elapsed() < MAX_TIME, "{what}: {:?}", since.elapsed());
}

/// One after the other: memory is counted for all of the process.
#[test]
fn whatever_is_said_is_read_within_bounds() {
    sealed_anew();
    manifests_that_claim();
}

fn sealed_anew() {
    for (number, layout) in layouts().iter().enumerate() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let oracle = write(&path, layout);
        let manifest = Manifest::read(&path).unwrap();
        let names = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        let whole: Files = names
            .filter(|name| !name.ends_with(LOCK))
            .map(|name| (name.clone(), std::fs::read(name).unwrap()))
            .collect();
        let of_log = |log| sealed(&path, layout, manifest.id, log, &whole);
        let all: Vec<Vec<Sealed>> = manifest.logs().map(of_log).collect();
        // Nothing changed, all is as it was: the seals are those of the format.
        for one in all.iter().flatten() {
            let mut files = whole.clone();
            one.reseal(&mut files);
            let value = one.seal == (one.file.clone(), one.at);
            assert!(value || files == whole, "{:?} at {} of {}", one.level, one.at, one.file.display());
        }
        for case in 0..CASES {
            let random = mix(case << 8 ^ number as u64);
            let log = &all[random as usize % all.len()];
            // Every level as often, however many there are of it.
            let levels: BTreeSet<Level> = log.iter().map(|one| one.level).collect();
            let level = *levels.iter().nth((random >> 32) as usize % levels.len()).unwrap();
            let of_level: Vec<&Sealed> = log.iter().filter(|one| one.level == level).collect();
            let chosen = of_level[(random >> 40) as usize % of_level.len()];
            let mut files = whole.clone();
            let value = chosen.seal == (chosen.file.clone(), chosen.at);
            let from = chosen.at + if value { 4 } else { 0 };
            change(&mut files.get_mut(&chosen.file).unwrap()[from..chosen.at + chosen.bytes], mix(random));
            reseal(log, chosen, value, &mut files);
            for (name, bytes) in files.iter().filter(|(name, bytes)| whole[*name] != **bytes) {
                std::fs::write(name, bytes).unwrap();
            }
            let what = format!("{:?} of {} (layout {number}, case {case})", level, chosen.file.display());
            bounded(&what, || ask(&path, &oracle, level != Level::Data));
            for (name, bytes) in &whole {
                std::fs::write(name, bytes).unwrap();
            }
        }
    }
}

/// Makes the checksums above a change anew.
fn reseal(log: &[Sealed], chosen: &Sealed, value: bool, files: &mut Files) {
    if value {
        let Kind::Placed(id) = chosen.kind else { return };
        let bytes = &files[&chosen.file][chosen.at + 4..chosen.at + chosen.bytes];
        let crc = crc32c(&[&id.to_le_bytes(), &(chosen.at as u64).to_le_bytes(), bytes]);
        files.get_mut(&chosen.file).unwrap()[chosen.at..chosen.at + 4].copy_from_slice(&crc.to_le_bytes());
        return;
    }
    chosen.reseal(files);
    log.iter().filter(|one| one.level > chosen.level).for_each(|one| one.reseal(files));
}

fn manifests_that_claim() {
    for layout in layouts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        let oracle = write(&path, &layout);
        let manifest = Manifest::read(&path).unwrap();
        type Change = fn(&mut Manifest);
        let changes: [Change; 12] = [
            |manifest| manifest.epochs = 2,
            |manifest| manifest.epochs = 1 << 60,
            |manifest| manifest.epochs = u64::MAX,
            |manifest| {
                manifest.earlier = vec![Earlier { epochs: 1, shape: Shape { partitions: 2, writers: 2 } }];
                manifest.epochs = 1 << 60;
            },
            |manifest| {
                manifest.earlier =
                    vec![Earlier { epochs: 1 << 59, shape: Shape { partitions: 1, writers: 1 } }];
                manifest.epochs = (1 << 59) + 1;
                manifest.layout.partitions = 1 << 20;
            },
            |manifest| manifest.layout.partitions = 1 << 20,
            |manifest| manifest.layout.writers = 1 << 20,
            |manifest| manifest.layout.key_bytes = Some(1 << 20),
            |manifest| manifest.layout.value_bytes = Some(u32::MAX),
            |manifest| (manifest.layout.key_bytes, manifest.layout.value_bytes) = (Some(0), Some(0)),
            |manifest| manifest.layout.scheme = Scheme::Pointers,
            |manifest| manifest.id ^= 1,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = manifest.clone();
            change(&mut changed);
            changed.write(&Disk::default(), &path).unwrap();
            bounded(&format!("change {number} of {:?}", layout.scheme), || ask(&path, &oracle, number < 7));
        }
    }
}
