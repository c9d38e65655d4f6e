//! Values several times longer than the memory of their reader: found, read part by part in any order, scanned and
//! verified within that memory, counted at the allocator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod counting;

use std::path::Path;

use ascot_index::hash::mix;
use ascot_index::read::MIN_MEMORY_BYTES;
use ascot_index::{
    Attribute, Condition, Content, Directory, DirectoryWriter, IndexError, Layout, NumberKind, RecordValue,
    Scan, Scheme, Sign, StoredValue, Unread,
};
use ascot_io::{Crc32c, Disk};

const MEMORY: usize = MIN_MEMORY_BYTES;
/// What no plan counts: threads of the device, lists of places, a part in the hand of who takes it.
const CONSTANT_BYTES: usize = 1 << 20;
/// Four times the memory, and no whole number of blocks or chunks.
const LONG_BYTES: usize = 4 * MEMORY + 12_345;
/// Values of one key that are short, but not all of them together.
const MANY: u64 = 400;
const MANY_BYTES: usize = 30_000;
const EPOCHS: u64 = 2;

fn value(epoch: u64, number: u64, bytes: usize) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8) as u64).map(|at| mix(at ^ epoch << 60 ^ number << 40).to_le_bytes());
    let mut value: Vec<u8> = words.flatten().collect();
    value.truncate(bytes);
    value
}

/// The attribute of values: their number.
fn with_number(number: u64, mut value: Vec<u8>) -> Vec<u8> {
    value[..8].copy_from_slice(&(number as f64).to_le_bytes());
    value
}

/// The values of a key in an epoch.
fn values_of(key: &[u8], epoch: u64) -> Vec<Vec<u8>> {
    match key {
        b"long" => vec![with_number(7, value(epoch, 1, LONG_BYTES))],
        b"many" => (0..MANY).map(|number| with_number(1, value(epoch, 1000 + number, MANY_BYTES))).collect(),
        _ => vec![with_number(1, value(epoch, 2, 50))],
    }
}

const KEYS: [&[u8]; 5] = [b"a", b"long", b"many", b"short", b"z"];

fn write(path: &Path, scheme: Scheme) {
    let mut layout = Layout::new(scheme, 1, 1);
    if scheme != Scheme::Pointers {
        layout.attribute = Some(Attribute { name: "number".into(), offset: 0, kind: NumberKind::F64 });
    }
    let mut writer = DirectoryWriter::create(&Disk::default(), path, layout, 8 << 20).unwrap();
    for epoch in 0..EPOCHS {
        for key in KEYS {
            for value in values_of(key, epoch) {
                writer.append_record(key, &value).unwrap();
            }
        }
        writer.end_epoch().unwrap();
    }
    writer.close().unwrap();
}

/// Length and checksum of some bytes: what tells values apart without keeping them.
#[derive(Default)]
struct Sum(u64, Crc32c);

impl Sum {
    fn add(&mut self, part: &[u8]) -> Result<(), IndexError> {
        self.0 += part.len() as u64;
        self.1.update(part);
        Ok(())
    }

    fn finish(self) -> (u64, u32) {
        (self.0, self.1.finish())
    }
}

type Sums = Vec<(Vec<u8>, u64, u64, u32)>;

fn expected() -> Sums {
    let mut all = Sums::new();
    for key in KEYS {
        for epoch in 0..EPOCHS {
            for value in values_of(key, epoch) {
                let mut sum = Sum::default();
                sum.add(&value).unwrap();
                let (length, crc) = sum.finish();
                all.push((key.to_vec(), epoch, length, crc));
            }
        }
    }
    all
}

fn sum_of(directory: &Directory, key: &[u8], found: &StoredValue) -> (Vec<u8>, u64, u64, u32) {
    let mut sum = Sum::default();
    found.content.for_each_part(directory, |part| sum.add(part)).unwrap();
    let (length, crc) = sum.finish();
    assert_eq!(length, found.content.length());
    (key.to_vec(), found.epoch, length, crc)
}

/// Within the counted memory: `work` may keep what is small.
fn bounded<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let (done, bytes) = counting::peak_of(work);
    assert!(bytes <= MEMORY + CONSTANT_BYTES, "{what}: {bytes} bytes");
    done
}

#[test]
fn values_longer_than_memory_are_read_within_it() {
    let all = expected();
    let samples: Vec<(u64, Vec<u8>)> = [0, 1, 131_071, 5_000_000, LONG_BYTES as u64 - 3]
        .map(|at| (at, values_of(b"long", 1)[0].iter().copied().skip(at as usize).take(70_000).collect()))
        .to_vec();
    for scheme in [Scheme::Records, Scheme::Pointers, Scheme::Ranks] {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.dir");
        write(&path, scheme);
        let open = || Directory::open(&Disk::default(), &path, MEMORY).unwrap();
        let found = bounded("finding", || {
            let (directory, mut found) = (open(), Sums::new());
            let keys = KEYS.map(<[u8]>::to_vec);
            let take = |number: usize, values: Vec<StoredValue>, gaps: Vec<_>| {
                assert!(gaps.is_empty(), "{gaps:?}");
                found.extend(values.iter().map(|value| sum_of(&directory, &keys[number], value)));
                Ok(())
            };
            directory.stored_many_there(&keys, None, take).unwrap();
            found
        });
        assert!(found == all, "{scheme:?}");
        bounded("parts", || {
            let directory = open();
            let values = directory.stored(b"long", Some(1)).unwrap();
            assert!(matches!(values[..], [StoredValue { epoch: 1, content: Content::Long(_) }]));
            let mut part = vec![0; 70_000];
            for (at, bytes) in &samples {
                let read = values[0].content.read_at(&directory, *at, &mut part).unwrap();
                assert_eq!(&part[..read], bytes, "{scheme:?} {at}");
            }
            assert_eq!(values[0].content.read_at(&directory, LONG_BYTES as u64 + 1, &mut part).unwrap(), 0);
        });
        scans(scheme, &open, &all);
        bounded("verifying", || {
            let verified = open().verify().unwrap();
            assert!(verified.is_whole(), "{verified:?}");
        });
        let refused = bounded("too little memory", || open().get(b"long").unwrap_err());
        assert!(matches!(refused, IndexError::Memory(_)), "{refused}");
        let roomy = Directory::open(&Disk::default(), &path, 64 << 20).unwrap();
        let whole = roomy.get(b"long").unwrap();
        assert!(whole.iter().zip(0..).all(|(one, epoch)| one.bytes == values_of(b"long", epoch)[0]));
    }
}

fn scans(scheme: Scheme, open: &dyn Fn() -> Directory, all: &Sums) {
    for by_key in [true, false] {
        for condition in [None, Some(Condition { sign: Sign::Above, number: 5.0 })] {
            if condition.is_some() && scheme == Scheme::Pointers {
                continue;
            }
            let scan = Scan { by_key, condition, ..Scan::default() };
            let mut found = bounded("a scan", || {
                let (directory, mut found, mut unread) = (open(), Sums::new(), Unread::default());
                directory
                    .scan_stored_there(&scan, &mut unread, |record| {
                        let mut sum = Sum::default();
                        match record.value {
                            RecordValue::Bytes(bytes) => sum.add(bytes)?,
                            RecordValue::Long(long) => {
                                long.for_each_part(&directory, |part| sum.add(part))?
                            }
                        }
                        let (length, crc) = sum.finish();
                        found.push((record.key.to_vec(), record.epoch, length, crc));
                        Ok(())
                    })
                    .unwrap();
                assert!(unread.is_nothing(), "{unread:?}");
                found
            });
            let mut wanted: Sums =
                all.iter().filter(|one| condition.is_none() || one.0 == b"long").cloned().collect();
            if !by_key {
                found.sort();
                wanted.sort();
            }
            assert!(found == wanted, "{scheme:?} {scan:?}: {} {}", found.len(), wanted.len());
        }
    }
    let error = open().scan(&Scan::default(), |_| Ok(())).unwrap_err();
    assert!(matches!(error, IndexError::Memory(_)), "{error}");
}
