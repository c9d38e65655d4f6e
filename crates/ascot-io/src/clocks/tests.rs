//! Tests of the clocks.

use super::*;
use std::thread::sleep;

const SHORT: Duration = Duration::from_millis(20);

fn of<'a>(times: &'a Times, stage: &str) -> &'a ThreadTimes {
    times.threads.iter().find(|times| times.stage == stage).expect("the stage has times")
}

fn sum(times: &ThreadTimes) -> Duration {
    times.busy + times.input + times.memory + times.device
}

fn work(time: Duration) {
    let until = processor_time::of_thread() + time;
    while processor_time::of_thread() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn states_add_up_to_the_time_from_entering_to_leaving() {
    let clocks = Clocks::new();
    let since = Instant::now();
    let entered = clocks.enter("sort 3");
    work(SHORT);
    {
        let _input = in_state(State::Input);
        sleep(SHORT);
        let _memory = in_state(State::Memory);
        sleep(SHORT);
    }
    call(State::Device, || {
        sleep(SHORT);
        work(SHORT);
    });
    count(7);
    drop(entered);
    let around = since.elapsed();
    let times = clocks.take();
    let sort = of(&times, "sort");
    assert_eq!((sort.thread.as_str(), sort.bytes, sum(sort)), ("sort 3", 7, sort.wall));
    assert!(sort.wall <= around && around - sort.wall < SHORT, "{around:?} {sort:?}");
    // The processor time of a call is work, and not waiting.
    assert!(sort.busy >= 2 * SHORT && sort.processor >= 2 * SHORT, "{sort:?}");
    for waited in [sort.input, sort.memory, sort.device] {
        assert!(waited >= SHORT && waited < sort.wall - 3 * SHORT, "{sort:?}");
    }
    assert!(times.device >= SHORT && times.device <= sort.device + SHORT, "{times:?}");
    assert!(clocks.take().threads.is_empty(), "times are given once");
    assert_eq!(of(&clocks.so_far(), "sort"), sort);
}

#[test]
fn a_thread_that_still_waits_is_counted_until_now_and_again_from_now_on() {
    let clocks = Clocks::new();
    let _main = clocks.enter("main");
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let first = std::thread::scope(|scope| {
        let clocks = &clocks;
        scope.spawn(move || {
            let _merge = clocks.enter("merge 0");
            let _waiting = in_state(State::Input);
            gone.recv().unwrap_or_default();
        });
        sleep(2 * SHORT);
        let first = clocks.take();
        let times = of(&first, "merge");
        assert!(times.input >= SHORT && sum(times) == times.wall, "{times:?}");
        assert!(of(&first, "main").wall >= 2 * SHORT);
        sleep(SHORT);
        drop(go);
        first
    });
    let so_far = clocks.so_far();
    let second = clocks.take();
    assert_eq!(of(&so_far, "merge").wall, of(&first, "merge").wall + of(&second, "merge").wall);
    let times = of(&second, "merge");
    assert!(times.input >= SHORT && sum(times) == times.wall, "{times:?}");
}

#[test]
fn a_thread_works_for_stages_in_turns() {
    let clocks = Clocks::new();
    let main = clocks.enter("main");
    for _ in 0..2 {
        let _write = in_stage("write");
        let _waiting = in_state(State::Device);
        sleep(SHORT);
    }
    sleep(SHORT);
    drop(main);
    let times = clocks.take();
    let write = of(&times, "write");
    assert!(write.device >= 2 * SHORT && sum(write) == write.wall, "{write:?}");
    let main = of(&times, "main");
    assert!(main.busy >= SHORT && sum(main) == main.wall, "{main:?}");
    assert_eq!((main.thread.as_str(), write.thread.as_str()), ("main", "main"));
}

#[test]
fn a_thread_works_for_the_job_of_the_thread_that_starts_it() {
    let clocks = Clocks::new();
    let main = clocks.enter("main");
    let nap = || sleep(SHORT);
    crate::threads::spawn("device", nap).and_then(crate::threads::Thread::join).expect("the thread ends");
    crate::threads::scope(|scope| {
        let started = crate::threads::start_some(2, |number| scope.spawn(&format!("sort {number}"), nap))?;
        started.into_iter().try_for_each(crate::threads::ScopedThread::join)
    })
    .expect("the threads end");
    drop(main);
    let times = clocks.take();
    let sorting: Vec<_> = times.threads.iter().filter(|times| times.stage == "sort").collect();
    assert!(sorting.len() == 2 && sorting.iter().all(|times| times.wall >= SHORT), "{times:?}");
    assert!(of(&times, "device").wall >= SHORT);
    // It waited for the others to end.
    assert!(of(&times, "main").input >= 2 * SHORT - SHORT / 2, "{times:?}");
}

#[test]
fn waits_for_the_device_at_once_count_once() {
    let clocks = Clocks::new();
    let since = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let _device = clocks.enter("device");
                call(State::Device, || sleep(SHORT));
            });
        }
    });
    let times = clocks.take();
    assert!(times.device >= SHORT && times.device <= since.elapsed(), "{times:?}");
    let total: Duration = times.threads.iter().map(|times| times.device).sum();
    assert!(total >= 2 * SHORT, "{times:?}");
}

#[test]
fn threads_of_no_job_have_no_clock() {
    let _waiting = in_state(State::Input);
    assert_eq!(call(State::Device, || 3), 3);
    count(1);
    assert!(Clocks::of_thread().is_none());
}
