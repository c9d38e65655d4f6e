//! Volumes that are made for the test: a small one that fills up, a block device. Both take a privilege;
//! where that is missing there is nothing to test on, and the test says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use ascot_io::{IoError, WriteStream};
use common::*;

/// A command that undoes another, when it is dropped.
struct Undone(Vec<String>);

impl Drop for Undone {
    fn drop(&mut self) {
        let _ = Command::new(&self.0[0]).args(&self.0[1..]).status();
    }
}

/// Runs a privileged command; what it says, if it does.
fn privileged(words: &[&str]) -> Option<String> {
    let done = Command::new(words[0]).args(&words[1..]).output().ok().filter(|done| done.status.success());
    if done.is_none() {
        println!("not tested: {} is refused", words.join(" "));
    }
    done.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

fn fill(stream: &mut dyn WriteStream) -> Result<(), IoError> {
    for _ in 0..64 {
        stream.begin(buf_of(&data(1 << 20)), 1 << 20)?;
    }
    stream.drain()
}

#[test]
fn a_full_volume_is_said_to_be_full() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let at = directory.to_str().unwrap();
    if privileged(&["mount", "-t", "tmpfs", "-o", "size=32m", "ascot-test", at]).is_none() {
        return;
    }
    let _mounted = Undone(vec!["umount".into(), at.into()]);
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
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, data(4 << 20)).unwrap();
    let Some(device) = privileged(&["losetup", "--find", "--show", "--read-only", image.to_str().unwrap()])
    else {
        return;
    };
    let _attached = Undone(vec!["losetup".into(), "--detach".into(), device.clone()]);
    let device = PathBuf::from(device);
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
