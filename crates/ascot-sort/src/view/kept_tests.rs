//! The indexes and keys of a view: from the blocks of its runs, and as older versions kept them.

use std::fs;
use std::path::Path;

use ascot_io::{Disk, DiskOptions, RunIndex, crc32c};
use ascot_record::keys::KeyOptions;
use ascot_record::layout::Layout;

use super::kept::{Batch, IndexAndKeys};
use super::tests::{data, request};
use super::*;
use crate::api::request::{Keys, SortRequest};
use crate::records::{AnyRecords, with_records};
use crate::runs::read_keys;
use crate::{Cancel, RunOptions, Silent};

/// Makes the view `v.view` of the file `input`.
fn make(dir: &Path, layout: Layout, keys: Keys) -> std::path::PathBuf {
    let view = dir.join("v.view");
    let asked = request(&dir.join("input"), layout, keys);
    crate::make_view(&asked, &view, &RunOptions::default(), &Silent, &Cancel::new()).expect("a view");
    view
}

/// The index and the keys of each member.
fn kept(view: &Path, disk: &Disk) -> Vec<IndexAndKeys> {
    let members = ViewManifest::load(view).expect("a manifest").members;
    let mut kept = Vec::new();
    while let Some(batch) = Batch::first_of(&members[kept.len()..], disk, view).expect("indexes") {
        kept.extend(batch.members.iter().map(|member| batch.of(member, disk, view).expect("one")));
    }
    kept
}

/// A job that was killed has the runs, but not their keys.
#[test]
fn keys_are_those_of_the_blocks_of_a_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cases: Vec<_> = (0..5).map(|kind| data(kind, 12 << 20, 1 << 20, 3)).collect();
    let long: Vec<u8> = (0..200_000u32)
        .flat_map(|it| {
            let len = if it % 20_000 == 0 { 300_000 } else { 20 };
            [format!("{:08x}", it.wrapping_mul(0x9e37_79b9)).as_bytes(), &vec![b'x'; len], b"\n"].concat()
        })
        .collect();
    cases.push((Layout::LINES, Keys::Command(KeyOptions::default()), long));
    let disk = Disk::new(DiskOptions::default());
    for (layout, keys, data) in cases {
        fs::write(dir.path().join("input"), &data).expect("an input");
        let view = make(dir.path(), layout, keys);
        let manifest = ViewManifest::load(&view).expect("a manifest");
        let head = manifest.head().expect("a head");
        assert!(manifest.members.len() > 1);
        for (member, kept) in manifest.members.iter().zip(kept(&view, &disk)) {
            let run = member.open(&view, &kept.index).expect("a run");
            let records = AnyRecords::new(&manifest.request, &head).expect("records");
            let cancel = Cancel::new();
            let read =
                with_records!(records, records => read_keys(&*records, &disk, &run, &kept.index, &cancel));
            assert!(read.expect("keys") == kept.keys, "{layout:?} {}", member.number);
        }
        fs::remove_dir_all(&view).expect("removed");
    }
}

/// Gives a run file the index of version 1 of its format, and returns the checksum of that index.
fn as_run_of_version_1(path: &Path, index: &RunIndex) -> u32 {
    let mut run = fs::read(path).expect("a run");
    let footer = run.len() - 64;
    run[footer + 8..footer + 12].copy_from_slice(&1u32.to_le_bytes());
    let crc = crc32c(&[&run[footer..footer + 60]]);
    run[footer + 60..].copy_from_slice(&crc.to_le_bytes());
    fs::write(path, &run).expect("written");
    crc32fast::hash(&run[index.data_end() as usize..])
}

/// Writes a view as version 3 kept it: with files beside its runs, which have the format of that time.
fn as_version_3(view: &Path, disk: &Disk) {
    let mut manifest = ViewManifest::load(view).expect("a manifest");
    for (member, kept) in manifest.members.iter_mut().zip(kept(view, disk)) {
        let beside = view.join(format!("run-{:06}", member.number));
        fs::write(beside.with_extension("keys"), &kept.keys).expect("keys");
        if let Some(file) = &mut member.file {
            fs::write(beside.with_extension("blocks"), &kept.index_bytes).expect("blocks");
            file.beside = Some(beside.file_name().expect("a name").into());
        } else {
            member.index_crc = as_run_of_version_1(&view.join(&member.path), &kept.index);
        }
        member.index = None;
    }
    manifest.version = 3;
    fs::remove_file(view.join("view.index")).expect("removed");
    fs::remove_file(view.join("view.json")).expect("removed");
    manifest.store(disk, view).expect("a manifest");
}

fn whole(view: &Path) -> Vec<u8> {
    let opening = OpenView { memory_bytes: Some(32 << 20), ..OpenView::default() };
    let view = opening.open(view).expect("a view");
    view.read_at(0, view.bytes() as usize).expect("bytes")
}

#[test]
fn views_of_version_3_are_read_alone_and_as_parts() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let (layout, keys, data) = data(0, 6 << 20, u64::MAX, 9);
    fs::write(path("input"), &data).expect("an input");
    let made = make(dir.path(), layout, keys.clone());
    let sorted = whole(&made);
    fs::write(path("sorted"), &sorted).expect("a file");
    let asked = SortRequest { memory_bytes: None, ..request(&path("input"), layout, keys) };
    let join = |parts: &[&str], view: &str| {
        let parts: Vec<_> = parts.iter().map(|part| path(part)).collect();
        join_parts(&parts, Some(&asked), &path(view), &Silent, &Cancel::new()).expect("a view");
    };
    join(&["sorted"], "f.view");
    let disk = Disk::new(DiskOptions::default());
    for view in ["v.view", "f.view"] {
        as_version_3(&path(view), &disk);
        assert!(whole(&path(view)) == sorted, "{view}");
    }
    join(&["v.view", "f.view"], "both.view");
    let twice: Vec<u8> = sorted.chunks(100).flat_map(|record| [record, record].concat()).collect();
    assert!(whole(&path("both.view")) == twice);
    let members = ViewManifest::load(&path("both.view")).expect("a manifest").members;
    assert!(members.iter().all(|member| member.in_index().is_some_and(|(path, _)| path == "view.index")));
}
