//! Atomic outputs: complete or not at all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ascot_io::{AtomicOutput, Backend, IoError};
use common::*;

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_new_output_appears_when_committed() {
    for disk in disks() {
        let directory = directory();
        let path = directory.path().join("result");
        let mut output = AtomicOutput::create(&disk, &path, "out").unwrap();
        let temporary = output.persist_name().unwrap().to_path_buf();
        let name = temporary.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(".result.ascot-") && name.ends_with(".tmp"), "{name}");
        write_all(output.stream().unwrap(), &data(10_000), &[4096]).unwrap();
        assert!(!path.exists() && temporary.exists());
        assert_eq!(output.commit().unwrap(), 10_000);
        assert!(std::fs::read(&path).unwrap() == data(10_000));
        assert_eq!(names(directory.path()), ["result"]);
    }
}

#[test]
fn an_output_given_up_leaves_the_old_file() {
    let directory = directory();
    let path = directory.path().join("result");
    std::fs::write(&path, b"old").unwrap();
    let disk = disk(Backend::Direct, None);
    let mut output = AtomicOutput::create(&disk, &path, "out").unwrap();
    write_all(output.stream().unwrap(), b"new", &[3]).unwrap();
    drop(output);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(names(directory.path()), ["result"]);
}

#[test]
fn a_replaced_file_hands_on_its_mode_but_not_before() {
    let directory = directory();
    let path = directory.path().join("result");
    std::fs::write(&path, b"old").unwrap();
    for wanted in [0o640, 0o600, 0o755] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(wanted)).unwrap();
        let disk = disk(Backend::Direct, None);
        let output = AtomicOutput::create(&disk, &path, "out").unwrap();
        assert_eq!(mode(output.persist_name().unwrap()), 0o600);
        assert_eq!(output.commit().unwrap(), 0);
        assert_eq!(mode(&path), wanted);
    }
}

#[test]
fn links_are_followed_and_stay() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("there")).unwrap();
    symlink("there/file", at("second")).unwrap();
    symlink("second", at("first")).unwrap();
    let disk = disk(Backend::Direct, None);
    let mut output = AtomicOutput::create(&disk, &at("first"), "out").unwrap();
    assert_eq!(output.persist_name().unwrap().parent().unwrap(), at("there"));
    write_all(output.stream().unwrap(), b"new", &[3]).unwrap();
    output.commit().unwrap();
    assert!(at("first").is_symlink() && at("second").is_symlink());
    assert_eq!(std::fs::read(at("there/file")).unwrap(), b"new");
    symlink("loop", at("loop")).unwrap();
    assert!(AtomicOutput::create(&disk, &at("loop"), "out").is_err());
}

#[test]
fn what_is_no_file_is_written_directly() {
    let disk = disk(Backend::Direct, None);
    let mut output = AtomicOutput::create(&disk, Path::new("/dev/null"), "out").unwrap();
    assert_eq!(output.persist_name(), None);
    write_all(output.stream().unwrap(), b"new", &[3]).unwrap();
    assert_eq!(output.commit().unwrap(), 3);
    let directory = directory();
    assert!(AtomicOutput::create(&disk, directory.path(), "out").is_err());
    let error = AtomicOutput::create(&disk, &directory.path().join("no/where"), "out").err().unwrap();
    assert!(is_not_found(&error), "{error}");
}

#[test]
fn a_kept_output_is_continued() {
    let directory = directory();
    let path = directory.path().join("result");
    let bytes = data(20_000);
    for disk in disks() {
        let mut output = AtomicOutput::create(&disk, &path, "out").unwrap();
        let temporary = output.persist_name().unwrap().to_path_buf();
        write_all(output.stream().unwrap(), &bytes[..10_000], &[4096]).unwrap();
        output.stream().unwrap().sync().unwrap();
        let inode = output.inode();
        output.keep();
        drop(output);
        let mut output = AtomicOutput::resume(&disk, &path, &temporary, 8192, inode, "out").unwrap();
        write_all(output.stream().unwrap(), &bytes[8192..], &[4096]).unwrap();
        assert_eq!(output.commit().unwrap(), 20_000);
        assert!(std::fs::read(&path).unwrap() == bytes);
        assert_eq!(names(directory.path()), ["result"]);
    }
}

#[test]
fn long_names_still_have_a_temporary_name() {
    let directory = directory();
    let disk = disk(Backend::Direct, None);
    let path = directory.path().join("\u{e4}".repeat(127));
    AtomicOutput::create(&disk, &path, "out").unwrap().commit().unwrap();
    assert!(path.exists());
}

#[test]
fn another_file_in_the_place_of_the_temporary_one_is_left_alone() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("result"), b"old").unwrap();
    std::fs::set_permissions(at("result"), PermissionsExt::from_mode(0o666)).unwrap();
    for disk in disks() {
        for committed in [true, false] {
            std::fs::write(at("private"), b"private").unwrap();
            std::fs::set_permissions(at("private"), PermissionsExt::from_mode(0o600)).unwrap();
            let mut output = AtomicOutput::create(&disk, &at("result"), "out").unwrap();
            let temporary = output.persist_name().unwrap().to_path_buf();
            write_all(output.stream().unwrap(), b"new", &[3]).unwrap();
            std::fs::remove_file(&temporary).unwrap();
            symlink("private", &temporary).unwrap();
            if committed {
                let error = output.commit().unwrap_err();
                assert!(matches!(error, IoError::Replaced { .. }), "{error}");
                assert!(error.to_string().contains(temporary.to_str().unwrap()), "{error}");
            } else {
                drop(output);
            }
            assert_eq!((mode(&at("private")), mode(&at("result"))), (0o600, 0o666));
            assert_eq!(std::fs::read(at("result")).unwrap(), b"old");
            assert!(temporary.is_symlink(), "it is somebody else's");
            std::fs::remove_file(&temporary).unwrap();
        }
    }
}

#[test]
fn only_the_same_file_is_continued() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    let disk = disk(Backend::Direct, None);
    let mut output = AtomicOutput::create(&disk, &at("result"), "out").unwrap();
    let temporary = output.persist_name().unwrap().to_path_buf();
    write_all(output.stream().unwrap(), &data(8192), &[4096]).unwrap();
    let inode = output.inode();
    output.keep();
    drop(output);
    let resume = || AtomicOutput::resume(&disk, &at("result"), &temporary, 4096, inode, "out").err();
    std::fs::hard_link(&temporary, at("second name")).unwrap();
    assert!(matches!(resume(), Some(IoError::Replaced { .. })), "a second name is somebody else's");
    std::fs::remove_file(at("second name")).unwrap();
    std::fs::rename(&temporary, at("aside")).unwrap();
    std::fs::write(&temporary, data(8192)).unwrap();
    assert!(matches!(resume(), Some(IoError::Replaced { .. })));
    std::fs::remove_file(&temporary).unwrap();
    symlink("aside", &temporary).unwrap();
    assert!(resume().is_some());
    assert_eq!(std::fs::metadata(at("aside")).unwrap().len(), 8192, "nothing was cut off");
    std::fs::rename(at("aside"), &temporary).unwrap();
    assert!(resume().is_none());
}

#[test]
fn a_new_file_takes_nobodys_place() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("file"), b"old").unwrap();
    symlink("none", at("dangling")).unwrap();
    symlink("file", at("link")).unwrap();
    let disk = disk(Backend::Direct, None);
    for name in ["file", "dangling", "link"] {
        assert!(disk.create_new(&at(name), "new").is_err(), "{name}");
    }
    assert!(disk.open_append(&at("link"), 0, "log").is_err());
    assert_eq!(std::fs::read(at("file")).unwrap(), b"old");
    assert!(!at("none").exists());
}
