//! A debug build reports a standstill: a process whose threads really wait for each other says who waits for whom.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ascot_io::{BlockPool, Pool, threads};

/// What the child's threads wait for is never given back.
const CHILD: &str = "ASCOT_TEST_WAITS";
/// A report is due after a second; a machine under load is slow.
const WATCHDOG: Duration = Duration::from_secs(120);

/// One thread holds all blocks and waits for another to end, which waits for a block.
fn wait_for_ever() {
    let pool = Pool::new(1 << 20);
    let blocks = BlockPool::new(pool.region(2 * 4096, "blocks of a test").unwrap(), 4096);
    let held: Vec<_> = (0..2).map(|_| blocks.take(|| false)).collect();
    let taker = threads::spawn("taker", move || drop(blocks.take(|| false))).unwrap();
    taker.join().unwrap();
    drop(held);
}

#[test]
fn a_standstill_is_reported() {
    if std::env::var_os(CHILD).is_some() {
        let holder = threads::spawn("holder", wait_for_ever).unwrap();
        holder.join().unwrap();
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_standstill_is_reported", "--nocapture"])
        .env(CHILD, "1")
        .env("ASCOT_STALL_SECONDS", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
    let wanted = [
        "ascot: nothing goes on any more; the threads wait for each other:",
        "holder has waited",
        "for another thread to end",
        "taker has waited",
        "for a free block: 2 taken by holder",
    ];
    let mut told = String::new();
    while !wanted.iter().all(|words| told.contains(words)) {
        let Ok(line) = receive.recv_timeout(WATCHDOG) else { break };
        told += &line;
        told.push('\n');
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for words in wanted {
        assert!(told.contains(words), "'{words}' is not in:\n{told}");
    }
}
