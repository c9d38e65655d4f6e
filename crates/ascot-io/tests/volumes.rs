//! Volumes a test cannot make by itself: a small one that fills up, a block device.
//!
//! Each test passes at once unless its variable names something to work on:
//!
//! ```text
//!   ASCOT_SMALL_VOLUME   a directory on a volume with less than 64 MiB free
//!   ASCOT_BLOCK_DEVICE   a readable block device nobody writes to
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ascot_io::{IoError, WriteStream};
use common::*;

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

fn fill(stream: &mut dyn WriteStream) -> Result<(), IoError> {
    for _ in 0..64 {
        stream.begin(buf_of(&data(1 << 20)), 1 << 20)?;
    }
    stream.drain()
}

#[test]
fn a_full_volume_is_said_to_be_full() {
    let Some(directory) = named("ASCOT_SMALL_VOLUME") else { return };
    let path = directory.join("filler");
    for disk in disks() {
        let mut stream = disk.create(&path, "test").unwrap();
        let error = fill(stream.as_mut()).unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        let text = error.to_string();
        assert!(text.contains("filler") && text.contains("left"), "{text}");
        assert!(stream.finish().unwrap_err().is_disk_full());
        disk.remove_file(&path).unwrap();
        // What fits still has its exact length, whatever was allocated ahead.
        create(&disk, &path, &data(1_234_567), &[65536]).unwrap();
        assert!(std::fs::read(&path).unwrap() == data(1_234_567));
        disk.remove_file(&path).unwrap();
    }
}

#[test]
fn block_devices_read_like_files() {
    let Some(device) = named("ASCOT_BLOCK_DEVICE") else { return };
    let mut expected = vec![0; 3 << 20];
    std::fs::File::open(&device).unwrap().read_exact_at(&mut expected, 0).unwrap();
    for disk in disks() {
        for start in [0, 5000] {
            let mut stream = disk.open_read(&device, start..3 << 20, "test").unwrap();
            assert_eq!(stream.len_hint(), Some((3 << 20) - start));
            let read = read_all(stream.as_mut(), &[65536], 3).unwrap();
            assert!(read == expected[start as usize..]);
        }
    }
}
