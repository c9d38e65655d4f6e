//! A file shown through the same mount library, read with nothing in between: what a mount can give at most.
//!
//! passthrough FILE MNT: stays until it is unmounted.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ascot_mount::{Mounted, Owner, Shown, Source};

struct Passthrough(File, u64);

impl Source for Passthrough {
    fn bytes(&self) -> u64 {
        self.1
    }

    fn name(&self) -> &str {
        "file"
    }

    fn open(&self) -> u64 {
        0
    }

    fn close(&self, _: u64) {}

    fn read(&self, _: u64, offset: u64, len: usize) -> Result<Vec<u8>, Box<dyn Error>> {
        let left = usize::try_from(self.1.saturating_sub(offset))?;
        let mut bytes = vec![0; len.min(left)];
        self.0.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [file, at] = &arguments[..] else { return Err("usage: passthrough FILE MNT".into()) };
    let file = File::open(file)?;
    let size = file.metadata()?.len();
    let log = Arc::new(|line: &str| eprintln!("passthrough: {line}"));
    let shown = Shown { modified: UNIX_EPOCH, owner: Owner { uid: 0, gid: 0 }, allow_other: false, log };
    let mounted = Mounted::from_source(Arc::new(Passthrough(file, size)), at, &shown)?;
    while !mounted.has_ended() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(mounted.end()?)
}
