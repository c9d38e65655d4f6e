//! The watchdog of debug builds: registers every wait, and reports a standstill on standard error.
//!
//! ```text
//!   merge 0   has waited 12 s for a free block: 6 taken by merge 0
//!   view      has waited 12 s for chunks of a task
//!   main      has waited 12 s for thread view to end
//! ```
//!
//! A thread is registered from its start ([`threads`](crate::threads)) or from its first wait until it ends. A
//! standstill occurs if every registered thread has waited for `PATIENCE` and one of them has work that cannot
//! continue. A thread that waits outside the process, for a device or a pipe, counts as running.

use crate::sync::Unpoisoned;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::thread;
use std::time::{Duration, Instant};

use super::Need;

/// Duration of a standstill before it is reported; `ASCOT_STALL_SECONDS` overrides it.
const PATIENCE: Duration = Duration::from_secs(20);
/// The watchdog calls no deep function.
const STACK_BYTES: usize = 256 << 10;

/// The threads that hold a resource that others wait for.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    counts: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Holders {
    /// Notes that this thread has taken one resource.
    pub fn taken(&self) -> Held {
        let name = name_of_thread();
        *locked(&self.counts).entry(name.clone()).or_default() += 1;
        Held { name, holders: self.clone() }
    }
}

/// A held resource.
#[derive(Debug)]
pub struct Held {
    name: String,
    holders: Holders,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = locked(&self.holders.counts);
        match counts.get_mut(&self.name) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.name)),
        }
    }
}

struct Wait {
    what: &'static str,
    need: Need,
    since: Instant,
    holders: Option<Holders>,
}

#[derive(Default)]
struct Thread {
    name: String,
    /// The innermost wait last.
    waits: Vec<Wait>,
}

#[derive(Default)]
struct Registry {
    threads: BTreeMap<u64, Thread>,
    next: u64,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { threads: BTreeMap::new(), next: 0 });
static WATCHDOG: Once = Once::new();

/// A thread's entry, until the thread ends.
struct Entry(u64);

impl Entry {
    fn new() -> Self {
        let mut registry = locked(&REGISTRY);
        registry.next += 1;
        let number = registry.next;
        registry.threads.insert(number, Thread { name: name_of_thread(), waits: Vec::new() });
        Entry(number)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        locked(&REGISTRY).threads.remove(&self.0);
    }
}

thread_local! {
    static ENTRY: Entry = Entry::new();
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unpoisoned()
}

fn name_of_thread() -> String {
    let this = thread::current();
    this.name().map_or_else(|| format!("{:?}", this.id()), str::to_owned)
}

/// Registers this thread.
pub fn register_thread() {
    let _ = ENTRY.try_with(|_| ());
}

/// A registered wait, until it is dropped.
#[derive(Debug)]
pub struct Registered {
    thread: Option<u64>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(number) = self.thread else { return };
        if let Some(thread) = locked(&REGISTRY).threads.get_mut(&number) {
            thread.waits.pop();
        }
    }
}

/// Registers that this thread waits.
pub fn register(what: &'static str, need: Need, holders: Option<&Holders>) -> Registered {
    // A thread that is ending has no entry any more.
    let Ok(number) = ENTRY.try_with(|entry| entry.0) else { return Registered { thread: None } };
    if let Some(thread) = locked(&REGISTRY).threads.get_mut(&number) {
        thread.waits.push(Wait { what, need, since: Instant::now(), holders: holders.cloned() });
    }
    if matches!(need, Need::Blocked(_)) {
        WATCHDOG.call_once(|| {
            // If its thread cannot start, there is no watchdog.
            let _ = thread::Builder::new().name("watchdog".into()).stack_size(STACK_BYTES).spawn(watch);
        });
    }
    Registered { thread: Some(number) }
}

fn watch() {
    let asked = std::env::var("ASCOT_STALL_SECONDS").ok().and_then(|text| text.parse().ok());
    let patience = asked.map_or(PATIENCE, Duration::from_secs);
    let mut reported = None;
    loop {
        thread::sleep(patience / 4);
        let standstill = locked(&REGISTRY).standstill(patience);
        if let Some((since, text)) = standstill
            && reported != Some(since)
        {
            reported = Some(since);
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        }
    }
}

impl Registry {
    /// The time when the last thread began to wait, and a list of the waits, if no thread can continue.
    fn standstill(&self, patience: Duration) -> Option<(Instant, String)> {
        let waits: Option<Vec<(&Thread, &Wait)>> =
            self.threads.values().map(|thread| Some((thread, thread.waits.last()?))).collect();
        let waits = waits?;
        let since = waits.iter().map(|(_, wait)| wait.since).max()?;
        if since.elapsed() < patience || waits.iter().all(|(_, wait)| matches!(wait.need, Need::Idle(_))) {
            return None;
        }
        let mut text = String::from("ascot: nothing goes on any more; the threads wait for each other:\n");
        for (thread, Wait { what, since, holders, .. }) in waits {
            let seconds = since.elapsed().as_secs();
            let _ = write!(text, "  {} has waited {seconds} s for {what}", thread.name);
            let counts = holders.as_ref().map(|holders| locked(&holders.counts).clone());
            for (number, (name, count)) in counts.iter().flatten().enumerate() {
                let sign = if number == 0 { ':' } else { ',' };
                let _ = write!(text, "{sign} {count} taken by {name}");
            }
            text.push('\n');
        }
        Some((since, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(name: &str, need: Need, holders: Option<Holders>) -> Thread {
        let since = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
        Thread { name: name.into(), waits: vec![Wait { what: "a free block", need, since, holders }] }
    }

    #[test]
    fn a_standstill_names_who_waits_and_who_holds() {
        let holders = Holders::default();
        let (held, _second) = (holders.taken(), holders.taken());
        drop(held);
        let mut registry = Registry::default();
        registry.threads.insert(1, thread("merge 0", Need::MEMORY, Some(holders)));
        registry.threads.insert(2, thread("read", Need::WORK, None));
        assert!(registry.standstill(Duration::from_secs(60)).is_none(), "too early");
        let (_, text) = registry.standstill(Duration::from_secs(1)).unwrap();
        let held_by = format!("merge 0 has waited 5 s for a free block: 1 taken by {}\n", name_of_thread());
        assert!(text.contains(&held_by) && text.contains("read has waited"), "{text}");
        // A running thread may release the others.
        registry.threads.insert(3, Thread { name: "main".into(), waits: Vec::new() });
        assert!(registry.standstill(Duration::from_secs(1)).is_none());
    }

    #[test]
    fn idle_threads_alone_are_no_standstill() {
        let mut registry = Registry::default();
        assert!(registry.standstill(Duration::ZERO).is_none());
        registry.threads.insert(1, thread("device", Need::WORK, None));
        assert!(registry.standstill(Duration::ZERO).is_none());
    }
}
