//! The bytes written are those of the golden directories, so that later readers can read directories written today.
//!
//! `ASCOT_WRITE_GOLDEN=1 cargo test -p ascot-index golden` writes them again, for a new version of the format.

use std::path::{Path, PathBuf};

use ascot_io::Disk;

use crate::format::names::LOCK;
use crate::hash::mix;
use crate::write::{Coordinator, DirectoryWriter, LayoutRequest, OpenMode, Opening};
use crate::{Attribute, Directory, Layout, NumberKind, Scheme};

const MEMORY: usize = 8 << 20;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn layouts() -> [(&'static str, Layout); 3] {
    let mut records = Layout::new(Scheme::Records, 1, 1);
    (records.key_bytes, records.value_bytes, records.block_bytes) = (Some(8), Some(16), 4096);
    records.attribute = Some(Attribute { name: "energy".into(), offset: 8, kind: NumberKind::F64 });
    let mut ranks = Layout::new(Scheme::Ranks, 1, 1);
    (ranks.key_bytes, ranks.value_bytes) = (Some(8), Some(16));
    [("records", records), ("pointers", Layout::new(Scheme::Pointers, 1, 1)), ("ranks", ranks)]
}

fn record(epoch: u64, number: u64) -> (Vec<u8>, Vec<u8>) {
    let value = [&(number << 8 | epoch).to_le_bytes()[..], &(number as f64).to_le_bytes()].concat();
    (mix(number).to_be_bytes().to_vec(), value)
}

fn write(path: &Path, layout: Layout) {
    let disk = Disk::default();
    let coordinator = Coordinator::create_numbered(&disk, path, layout, 0x0123_4567_89ab_cdef).unwrap();
    let mut writer = DirectoryWriter::begin(&disk, coordinator, MEMORY).unwrap();
    (0..2).for_each(|epoch| append(&mut writer, epoch));
    writer.close().unwrap();
}

/// The same with another shape: the second epoch has three partitions. That requires version 2 of the manifest.
fn write_reshaped(path: &Path, layout: Layout) {
    let disk = Disk::default();
    let coordinator = Coordinator::create_numbered(&disk, path, layout, 0x0123_4567_89ab_cdef).unwrap();
    let mut writer = DirectoryWriter::begin(&disk, coordinator, MEMORY).unwrap();
    append(&mut writer, 0);
    writer.close().unwrap();
    let request = LayoutRequest { partitions: Some(3), ..LayoutRequest::default() };
    let opening = Opening { mode: OpenMode::Append, request, ..Opening::default() };
    let mut writer = DirectoryWriter::open(&disk, path, &opening, MEMORY).unwrap();
    append(&mut writer, 1);
    writer.close().unwrap();
}

fn append(writer: &mut DirectoryWriter, epoch: u64) {
    for number in 0..200 {
        let (key, value) = record(epoch, number);
        writer.append_record(&key, &value).unwrap();
    }
    writer.end_epoch().unwrap();
}

#[test]
fn golden_directories_are_written_and_read() {
    let reshaped = ("reshaped", Layout::new(Scheme::Ranks, 1, 1));
    for (name, layout) in layouts().into_iter().chain([reshaped]) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(name);
        if name == "reshaped" {
            write_reshaped(&path, layout)
        } else {
            write(&path, layout)
        }
        let golden = golden(name);
        if std::env::var_os("ASCOT_WRITE_GOLDEN").is_some() {
            std::fs::create_dir_all(&golden).unwrap();
        }
        let mut files = 0;
        for entry in std::fs::read_dir(&path).unwrap() {
            let name = entry.unwrap().file_name();
            if name == LOCK {
                continue;
            }
            if std::env::var_os("ASCOT_WRITE_GOLDEN").is_some() {
                std::fs::copy(path.join(&name), golden.join(&name)).unwrap();
            }
            let (written, wanted) =
                (std::fs::read(path.join(&name)).unwrap(), std::fs::read(golden.join(&name)).unwrap());
            assert!(written == wanted, "{}", golden.join(&name).display());
            files += 1;
        }
        assert_eq!(std::fs::read_dir(&golden).unwrap().count(), files);
        let directory = Directory::open(&Disk::default(), &golden, MEMORY).unwrap();
        assert!(directory.verify().unwrap().is_whole());
        for number in 0..200 {
            let values = directory.get(&record(0, number).0).unwrap();
            assert!(values.iter().map(|value| &value.bytes).eq(&[record(0, number).1, record(1, number).1]));
        }
    }
}
