//! Sampling a system that a test writes.

use std::fs;
use std::path::Path;

use ascot_model::resource_use::{MACHINE, Measure, PROCESS, ResourceColumn};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// The counters of the system at a moment.
struct Counters {
    busy_ticks: u64,
    idle_ticks: u64,
    sectors: u64,
    bytes: u64,
}

fn write(root: &Path, counters: &Counters) {
    let Counters { busy_ticks, idle_ticks, sectors, bytes } = counters;
    fs::create_dir_all(root.join("proc/self")).unwrap();
    fs::create_dir_all(root.join("proc/net")).unwrap();
    let file = |name: &str, text: String| fs::write(root.join("proc").join(name), text).unwrap();
    file(
        "stat",
        format!("cpu 1 0 0 1\ncpu0 {busy_ticks} 0 0 {idle_ticks} 0 0 0 0 0 0\ncpu1 0 0 0 1000\nintr 5\n"),
    );
    file("meminfo", "MemTotal: 100 kB\nMemAvailable: 70 kB\n".into());
    file("self/status", format!("Name: ascot\nVmHWM: 9 kB\nVmRSS: {} kB\n", bytes / 1024));
    file("self/io", format!("rchar: 1\nread_bytes: {bytes}\nwrite_bytes: 0\n"));
    let disks = format!("8 0 sda 1 0 {sectors} 0 1 0 0 0 0 0 0\n8 1 sda1 1 0 {sectors} 0 0 0 0 0 0 0 0\n");
    file("diskstats", format!("{disks}8 16 sdb 0 0 0 0 0 0 0 0 0 0 0\n"));
    file("net/dev", format!("a|b\n eth0: {bytes} 0 0 0 0 0 0 0 7 0\n lo: 0 0 0 0 0 0 0 0 0\n"));
}

fn found<'u>(all: &'u ResourceUse, of: &str, measure: Measure) -> Option<&'u ResourceColumn> {
    all.columns.iter().find(|column| column.quantity.of == of && column.quantity.measure == measure)
}

/// The sum of a rate over the time.
fn total(all: &ResourceUse, of: &str, measure: Measure) -> f64 {
    found(all, of, measure).unwrap().mean.unwrap() * all.seconds.last().unwrap()
}

fn near(seen: f64, expected: f64) -> bool {
    (seen - expected).abs() <= 1e-3 * expected
}

#[test]
fn samples_are_the_increase_of_counters() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), &Counters { busy_ticks: 100, idle_ticks: 9, sectors: 1 << 30, bytes: 1 << 40 });
    let monitor = Monitor::start(root.path(), HOUR);
    // The time of the job counts from its beginning, and so do the counters.
    write(root.path(), &Counters { busy_ticks: 200, idle_ticks: 9, sectors: 1 << 31, bytes: 1 << 41 });
    monitor.began(Instant::now());
    std::thread::sleep(Duration::from_millis(2));
    write(
        root.path(),
        &Counters { busy_ticks: 275, idle_ticks: 34, sectors: (1 << 31) + 1000, bytes: (1 << 41) + 3000 },
    );
    let all = monitor.finish();
    assert_eq!(all.seconds.len(), 1);
    assert!(near(total(&all, "sda", Measure::Read), 512_000.0), "{all:#?}");
    assert!(near(total(&all, PROCESS, Measure::Read), 3000.0));
    assert!(near(total(&all, "eth0", Measure::Received), 3000.0));
    assert_eq!(found(&all, "eth0", Measure::Sent).unwrap().samples, [Some(0.0)]);
    assert_eq!(found(&all, MACHINE, Measure::Available).unwrap().maximum, Some(71_680.0));
    assert_eq!(found(&all, PROCESS, Measure::PeakResident).unwrap().maximum, Some(9216.0));
    assert!(found(&all, PROCESS, Measure::Used).unwrap().mean.is_some());
    assert_eq!(found(&all, "cpu0", Measure::Busy).unwrap().samples, [Some(0.75)]);
    assert_eq!(found(&all, "cpu1", Measure::Busy).unwrap().samples, [None], "it has counted no tick");
    assert_eq!(all.idle, ["sdb", "lo"]);
    assert!(all.notices.is_empty(), "{:?}", all.notices);
    assert!(found(&all, "sda1", Measure::Read).is_none());
    // The end of a job is not sampled twice.
    write(root.path(), &Counters { busy_ticks: 900, idle_ticks: 99, sectors: 1 << 33, bytes: 1 << 43 });
    assert_eq!(monitor.finish(), all);
}

#[test]
fn missing_files_are_a_notice() {
    let root = tempfile::tempdir().unwrap();
    let nothing = Monitor::start(root.path(), HOUR).finish();
    let [notice] = &nothing.notices[..] else { panic!("{:?}", nothing.notices) };
    for name in ["/proc/stat", "/proc/meminfo", "/proc/self/status", "/proc/diskstats", "/proc/net/dev"] {
        assert!(notice.contains(name), "{notice}");
    }
    assert_eq!(nothing.columns.len(), 1, "only the processor time of the process");

    write(root.path(), &Counters { busy_ticks: 0, idle_ticks: 0, sectors: 0, bytes: 1024 });
    fs::remove_file(root.path().join("proc/diskstats")).unwrap();
    fs::write(root.path().join("proc/stat"), b"cpu \xff broken").unwrap();
    let some = Monitor::start(root.path(), HOUR).finish();
    let [notice] = &some.notices[..] else { panic!("{:?}", some.notices) };
    assert_eq!(
        notice,
        "not shown by this system: the load of the cores (/proc/stat), disks (/proc/diskstats)"
    );
    assert!(found(&some, PROCESS, Measure::Resident).is_some());
}

#[test]
fn a_device_that_disappears_has_no_values() {
    let root = tempfile::tempdir().unwrap();
    let mut counters = Counters { busy_ticks: 0, idle_ticks: 0, sectors: 0, bytes: 0 };
    write(root.path(), &counters);
    let mut sampler = Sampler::new(root.path(), HOUR);
    counters.sectors = 8;
    write(root.path(), &counters);
    sampler.sample();
    // Another device is in its place, and the interface was reset.
    fs::write(root.path().join("proc/diskstats"), "8 0 sdz 1 0 999999 0 1 0 0 0 0 0 0\n").unwrap();
    fs::write(root.path().join("proc/net/dev"), "eth0: 1 0 0 0 0 0 0 0 3 0\n").unwrap();
    sampler.sample();
    let all = sampler.finish();
    let read = &found(&all, "sda", Measure::Read).unwrap().samples;
    assert!(read[0].is_some() && read[1].is_none(), "{read:?}");
    let sent = &found(&all, "eth0", Measure::Sent).unwrap().samples;
    assert_eq!(sent[1], None, "a counter that decreases was reset");
    assert!(found(&all, "sdz", Measure::Read).is_none());
}

#[test]
fn no_sample_is_much_shorter_than_the_interval() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), &Counters { busy_ticks: 0, idle_ticks: 0, sectors: 0, bytes: 0 });
    let mut sampler = Sampler::new(root.path(), HOUR);
    sampler.sample();
    sampler.sample();
    // The job ends just after the second sample, which therefore ends with the job.
    assert_eq!(sampler.finish().seconds.len(), 2);
    // One sample is late by most of an interval: the one after it is left out.
    let interval = Duration::from_secs(10);
    let mut sampler = Sampler::new(root.path(), interval);
    sampler.next = Instant::now().checked_sub(interval.mul_f64(1.8)).unwrap();
    sampler.sample();
    assert!(sampler.next >= Instant::now() + interval / 2);
}

#[test]
fn the_thread_samples_at_its_interval_and_ends() {
    let interval = Duration::from_millis(5);
    let monitor = Monitor::start(Path::new("/"), interval);
    let enough = |monitor: &Monitor| monitor.sampler.lock().unpoisoned().series.len() >= 5;
    let since = Instant::now();
    while !enough(&monitor) && since.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(interval);
    }
    let all = monitor.finish();
    assert!(all.seconds.len() >= 5, "{}", all.seconds.len());
    assert!(all.seconds.is_sorted_by(|a, b| a < b));
    let resident = found(&all, PROCESS, Measure::Resident).and_then(|column| column.mean);
    assert!(resident.is_none_or(|bytes| bytes > 1e5));
    let sampler = Arc::downgrade(&monitor.sampler);
    drop(monitor);
    assert!(sampler.upgrade().is_none(), "the thread has ended and holds nothing");
}
