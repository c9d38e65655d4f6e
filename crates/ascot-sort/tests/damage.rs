//! Jobs killed, their spills damaged, then resumed: an error that names the spill, never a wrong
//! output. Undamaged they go on and finish.
//!
//! The job to be killed runs in a process of its own: this test binary, started again with the
//! job's directory in its environment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ascot_io::read_index;
use ascot_model::report::Report;
use ascot_sort::runs::store::{Manifest, load};
use ascot_sort::{Cancel, Method, RunOptions, Silent, SortError, SortRequest, resume, sort};
use common::kinds::{Kind, fixed, lines, numbers};
use common::shapes::{Shape, data};
use common::{JobDirs, Wanted, assert_same, expected};

const REQUEST: &str = "ASCOT_TEST_REQUEST";

/// Does nothing unless it is the process to be killed.
#[test]
fn child() {
    let Some(path) = std::env::var_os(REQUEST) else { return };
    let request: SortRequest = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    sort(&request, &RunOptions::default(), &Silent, &Cancel::new()).unwrap();
}

/// Starts the job and kills it once its manifest is as `enough` wants it. None: it was done before.
fn kill(
    dirs: &JobDirs,
    request: &SortRequest,
    enough: &dyn Fn(&Manifest) -> bool,
) -> Option<(PathBuf, Manifest)> {
    let path = dirs.path().join("in-request");
    fs::write(&path, serde_json::to_vec(request).unwrap()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env(REQUEST, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let since = Instant::now();
    let killed = loop {
        assert!(since.elapsed() < Duration::from_secs(60), "the job hangs");
        let dir = fs::read_dir(dirs.temp()).unwrap().next().map(|entry| entry.unwrap().path());
        if dir.and_then(|dir| load(&dir).ok()).is_some_and(|manifest| enough(&manifest)) {
            child.kill().unwrap();
            break true;
        }
        if child.try_wait().unwrap().is_some() {
            break false;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    child.wait().unwrap();
    let dir = fs::read_dir(dirs.temp()).unwrap().next()?.unwrap().path();
    assert!(killed);
    let manifest = load(&dir).unwrap();
    Some((dir, manifest))
}

/// Resumes under a watchdog.
fn go_on(dir: &Path) -> Result<Report, SortError> {
    let (send, receive) = channel();
    let dir = dir.to_path_buf();
    std::thread::spawn(move || {
        drop(send.send(resume(&dir, &RunOptions::default(), &Silent, &Cancel::new())))
    });
    receive.recv_timeout(Duration::from_secs(60)).expect("the resumed job hangs or panics")
}

/// A way to damage one of the spills; gives the names of those an error may name.
type Damage = fn(&Manifest) -> Vec<PathBuf>;

/// The spills the manifest counts on.
fn spills(manifest: &Manifest) -> Vec<PathBuf> {
    let parts = manifest.parts.iter().map(|part| part.run.path.clone());
    manifest.runs.iter().filter(|run| run.records > 0).map(|run| run.path.clone()).chain(parts).collect()
}

/// Where the second block of a spill lies, and its length.
fn block(path: &Path) -> (usize, usize) {
    let disk = ascot_io::Disk::new(ascot_io::DiskOptions::default());
    let index = read_index(&disk, path).unwrap();
    let (first, second) = (&index.blocks[0], &index.blocks[1]);
    (second.offset as usize, (second.offset - first.offset) as usize)
}

fn change(path: &Path, how: &dyn Fn(&mut Vec<u8>)) -> Vec<PathBuf> {
    let mut bytes = fs::read(path).unwrap();
    how(&mut bytes);
    fs::write(path, bytes).unwrap();
    vec![path.to_path_buf()]
}

const DAMAGES: [(&str, Damage); 9] = [
    ("a bit of a block", |manifest| {
        let path = &spills(manifest)[0];
        let (at, _) = block(path);
        change(path, &|bytes| bytes[at + 100] ^= 4)
    }),
    ("a block of zeros", |manifest| {
        let path = &spills(manifest)[1];
        let (at, len) = block(path);
        change(path, &|bytes| bytes[at..at + len].fill(0))
    }),
    ("two blocks swapped", |manifest| {
        let path = &spills(manifest)[0];
        let (at, len) = block(path);
        change(path, &|bytes| {
            let (front, back) = bytes.split_at_mut(at);
            front[at - len..].swap_with_slice(&mut back[..len]);
        })
    }),
    ("a block of another spill", |manifest| {
        let all = spills(manifest);
        let other = fs::read(&all[1]).unwrap();
        let (at, len) = block(&all[0]);
        change(&all[0], &|bytes| bytes[at..at + len].copy_from_slice(&other[at..at + len]))
    }),
    ("a bit of the index", |manifest| {
        change(&spills(manifest)[0], &|bytes| {
            let at = bytes.len() - 20;
            bytes[at] ^= 1;
        })
    }),
    ("a spill cut short", |manifest| change(&spills(manifest)[0], &|bytes| bytes.truncate(bytes.len() / 2))),
    ("a spill that is gone", |manifest| {
        let path = spills(manifest)[1].clone();
        fs::remove_file(&path).unwrap();
        vec![path]
    }),
    ("two spills swapped", |manifest| {
        let all = spills(manifest);
        let (first, second) = (fs::read(&all[0]).unwrap(), fs::read(&all[1]).unwrap());
        fs::write(&all[0], second).unwrap();
        fs::write(&all[1], first).unwrap();
        vec![all[0].clone(), all[1].clone()]
    }),
    ("a digit of the manifest", |manifest| {
        let dir = &manifest.dirs[0];
        change(&dir.join("manifest.json"), &|bytes| {
            // Still JSON, and still a manifest: of a job that is elsewhere.
            let at = bytes.iter().rposition(u8::is_ascii_digit).unwrap();
            let end = bytes[..at].iter().rposition(|&byte| byte == b'\n').unwrap();
            let digit = bytes[..end].iter_mut().rfind(|byte| byte.is_ascii_digit()).unwrap();
            *digit = if *digit == b'9' { b'1' } else { b'9' };
        });
        vec![dir.clone()]
    }),
];

struct Case {
    kind: Kind,
    shape: Shape,
    method: Method,
    enough: fn(&Manifest) -> bool,
}

impl Case {
    /// Kills the job, damages a spill, resumes.
    fn suffer(&self, dirs: &JobDirs, request: &SortRequest, name: &str, damage: Damage) -> bool {
        let Some((dir, manifest)) = kill(dirs, request, &self.enough) else { return false };
        let files = damage(&manifest);
        let what = format!("{} {:?}: {name}", self.kind.name, self.method);
        let error = match go_on(&dir) {
            Ok(_) => panic!("{what}: the resumed job did not see it"),
            Err(error) => error.to_string(),
        };
        let named = files.iter().any(|path| error.contains(path.to_str().unwrap()));
        assert!(named, "{what}: the error does not name the file: {error}");
        assert!(!dirs.out().exists(), "{what}: there is an output");
        true
    }

    fn run(&self) {
        let dirs = JobDirs::new();
        let data = data(&self.kind, self.shape, 48 << 20, 9);
        let wanted = expected(&self.kind, &data.records(), Wanted::default());
        let inputs = vec![dirs.input(0, &[&data.bytes])];
        let request = dirs.request(&self.kind, inputs, 8 << 20);
        let request = SortRequest { method: self.method, batch_size: Some(4), ..request };
        let mut killed = 0;
        for (name, damage) in DAMAGES {
            killed += u32::from(self.suffer(&dirs, &request, name, damage));
            clear(&dirs);
        }
        if let Some((dir, _)) = kill(&dirs, &request, &self.enough) {
            go_on(&dir).unwrap_or_else(|error| panic!("{}: {error}", self.kind.name));
            killed += 1;
        }
        assert!(killed >= 3, "{}: hardly ever killed in time", self.kind.name);
        assert_same(&fs::read(dirs.out()).unwrap(), &wanted, &self.kind.name);
        assert!(dirs.litter().is_empty(), "{:?}", dirs.litter());
    }
}

/// Leaves nothing of an earlier job.
fn clear(dirs: &JobDirs) {
    let _ = fs::remove_file(dirs.out());
    for path in dirs.litter() {
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
}

#[test]
fn killed_while_it_forms_runs() {
    let enough = |manifest: &Manifest| manifest.runs.len() >= 3;
    Case { kind: fixed(100, &[(0, 10, false)]), shape: Shape::Random, method: Method::Merge, enough }.run();
}

#[test]
fn killed_while_it_merges_some() {
    let enough = |manifest: &Manifest| manifest.all_read && manifest.runs.len() >= 2;
    Case { kind: lines(false), shape: Shape::Random, method: Method::Merge, enough }.run();
}

#[test]
fn killed_while_it_sorts_parts() {
    let enough = |manifest: &Manifest| manifest.all_read && manifest.runs.len() >= 4;
    let kind = numbers(common::kinds::number_formats()[2], false);
    Case { kind, shape: Shape::Random, method: Method::Distribute, enough }.run();
}
