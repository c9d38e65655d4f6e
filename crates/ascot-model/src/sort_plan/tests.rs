//! Plans of jobs on records, compared with merging one by one and with their required gains.

use std::collections::VecDeque;

use super::*;
use crate::host::{RecordClass, RecordKind};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const ALL: Methods = Methods { merge: true, distribute: true, forced: false };
const MERGE: Methods = Methods { distribute: false, ..ALL };

fn host() -> HostProfile {
    HostProfile::assumed(64, RecordKind { class: RecordClass::Fixed, bytes: 100.0, keys: 1 })
}

fn array() -> VolumeProfile {
    VolumeProfile::simple("array", 3.5e9, 3.5e9, 0.0155)
}

/// A job with `memory` bytes, divided as a budget would.
fn job<'a>(input: u64, memory: u64, volume: &'a VolumeProfile, host: &'a HostProfile) -> RecordJob<'a> {
    let block = (memory / 512).clamp(32 << 10, MIB);
    let shares = Shares {
        all: memory / 5 * 4,
        held: 0,
        beside_held: 0,
        chunk: memory / 80,
        chunk_memory: memory / 80,
        load: memory / 5 * 2,
        part: memory / 5 * 2,
        fan_in: memory / (2 * block),
        last_fan_in: memory / (2 * block),
        fan_out: memory / (4 * block),
        streams: memory,
        parts: memory / 16 * 15,
        block,
    };
    RecordJob {
        input_bytes: Some(input),
        record_bytes: 100.0,
        top: None,
        inputs: 1,
        in_order: false,
        groups_parts: false,
        memory_bytes: memory,
        shares,
        held_parts: Vec::new(),
        disk: DiskUse {
            ahead_bytes: |_| 0,
            step_bytes: |_, _| 0,
            memory_bytes: 0,
            packing: 1.0,
            output_files: 1,
            header_bytes: 0,
            tasks: 1,
            block,
        },
        volume,
        to_files: true,
        input_volume: None,
        host,
    }
}

/// A split that memory limits to 512 files at once.
fn into(parts: u64) -> SplitShape {
    SplitShape {
        parts,
        max_intermediates: 512,
        max_parts: 512,
        unevenness: 1.0,
        sampled: false,
        in_turn: false,
        varying: false,
    }
}

/// No request of an object store exceeds its limit, in any pass and method.
#[test]
fn every_pass_has_the_requests_that_a_limit_makes() {
    let limit = 64 * MIB;
    let limited = |volume| VolumeProfile { max_request_bytes: Some(limit), ..volume };
    let (store, flash) =
        (limited(VolumeProfile::simple("store", 1.2e9, 1e9, 0.03)), VolumeProfile::assumed_flash());
    let (host, flash) = (host(), limited(flash));
    let distribute = Methods { merge: false, distribute: true, forced: true };
    for volume in [&store, &flash] {
        for (gib, memory) in [(8, 16_384), (100, 4096), (1000, 1024), (10_000, 256)] {
            let one = RecordJob { inputs: 30, ..job(gib * 1024 * MIB, memory * MIB, volume, &host) };
            for input_volume in [None, Some(volume)] {
                let job = RecordJob { input_volume, ..one.clone() };
                let mut plans = vec![job.merge_inputs(), job.split(&into(30), &|_| ()).expect("it fits")];
                plans.extend([MERGE, distribute].into_iter().filter_map(|methods| job.sort(methods)));
                assert_eq!(plans.len(), 4);
                for pass in plans.iter().flat_map(|plan| &plan.chosen.passes) {
                    let bytes = pass.read_bytes + pass.written_bytes;
                    assert!(pass.switches >= bytes / limit, "{gib} {memory} {pass:?}");
                    let waits = pass.switches as f64 * volume.switch_seconds.seconds(2.0);
                    let both = if input_volume.is_some() { 0.5 } else { 1.0 };
                    assert!(pass.device_seconds > 0.99 * both * waits, "{gib} {memory} {pass:?}");
                }
            }
        }
    }
}

/// Inputs on a volume of their own: each volume moves only its side, and the slower one counts.
#[test]
fn volumes_that_differ_work_side_by_side() {
    let (array, host) = (array(), host());
    let slow = VolumeProfile::simple("slow", 1e9, 1e9, 0.0155);
    let data = 64_000 * MIB;
    let one = RecordJob { inputs: 30, ..job(data, 2048 * MIB, &array, &host) };
    for input_volume in [&array, &slow] {
        let two = RecordJob { input_volume: Some(input_volume), ..one.clone() };
        let reading = data as f64 / input_volume.read_bytes_per_s;
        let writing = data as f64 / array.write_bytes_per_s;
        for (alone, apart) in [
            (one.sort(MERGE).expect("a plan"), two.sort(MERGE).expect("a plan")),
            (one.merge_inputs(), two.merge_inputs()),
            (
                one.split(&into(30), &|_| ()).expect("it fits"),
                two.split(&into(30), &|_| ()).expect("it fits"),
            ),
        ] {
            let (alone, apart) = (&alone.chosen.passes[0], &apart.chosen.passes[0]);
            assert_eq!((alone.read_bytes, alone.written_bytes), (apart.read_bytes, apart.written_bytes));
            assert!(apart.switches < alone.switches, "{} {}", apart.switches, alone.switches);
            let least = reading.max(writing);
            assert!((least..1.5 * least).contains(&apart.device_seconds), "{apart:?}");
            assert!(input_volume == &slow || apart.device_seconds < 0.7 * alone.device_seconds);
        }
        // Later passes are on one volume in either case.
        let later = |job: &RecordJob<'_>| job.sort(MERGE).expect("a plan").chosen.passes[1..].to_vec();
        assert_eq!(later(&one), later(&two));
    }
}

fn merging(files: u64, bytes: u64, all_first: bool) -> Merging {
    Merging { files, bytes, held: 0, kept: bytes, times: 1, all_first, at_last: u64::MAX }
}

/// Merges the smallest files one merge at a time, until at most `last` are left.
fn merged_one_by_one(files: u64, bytes: u64, factor: u64, last: u64) -> (u64, u64) {
    let mut sizes: VecDeque<u64> = vec![bytes / files; files as usize].into();
    let (mut merges, mut moved) = (0, 0);
    while sizes.len() as u64 > last {
        let left = sizes.len() as u64;
        let taken: u64 = sizes.drain(..factor.min(left - last + 1).max(2) as usize).sum();
        (merges, moved) = (merges + 1, moved + taken);
        sizes.push_back(taken);
    }
    (merges, moved)
}

#[test]
fn what_fits_is_sorted_in_memory() {
    let (volume, host) = (VolumeProfile::assumed_flash(), host());
    let plan = job(100 * MIB, 1024 * MIB, &volume, &host).sort(ALL).expect("a plan");
    assert_eq!((plan.chosen.method.as_str(), plan.chosen.pieces), ("in memory", 1));
    assert!(plan.others.is_empty() && plan.chosen.factors.is_empty());
    let forced = Methods { merge: false, distribute: true, forced: true };
    let plan = job(100 * MIB, 1024 * MIB, &volume, &host).sort(forced).expect("a plan");
    assert_eq!((plan.chosen.method.as_str(), plan.forced), ("distribute", true));
    assert!(
        job(MIB, MIB, &volume, &host)
            .sort(Methods { merge: false, distribute: false, forced: true })
            .is_none()
    );
}

#[test]
fn switches_that_cost_much_make_more_passes() {
    let (array, flash, host) = (array(), VolumeProfile::assumed_flash(), host());
    let passes_on = |volume: &VolumeProfile| {
        let plan = job(8_000_000 * MIB, 2048 * MIB, volume, &host).sort(MERGE).expect("a plan");
        let MethodPlan { passes, factors, merge_factor, .. } = plan.chosen;
        assert_eq!(passes.len(), factors.len() + 1);
        (passes.len(), merge_factor, factors)
    };
    // 9,766 runs; memory holds 1,024 blocks of them.
    let (passes, factor, factors) = passes_on(&flash);
    assert_eq!((passes, factor), (3, None));
    assert_eq!(factors.last(), Some(&1024));
    let (passes, factor, factors) = passes_on(&array);
    assert!(passes >= 3 && factor.is_some_and(|factor| factor < 200), "{passes} {factors:?}");
    assert!(factors.iter().all(|&at_once| at_once <= factor.unwrap_or(0)), "{factors:?}");
}

#[test]
fn few_runs_of_an_array_take_one_pass() {
    let (array, host) = (array(), host());
    let way = job(64_000 * MIB, 2048 * MIB, &array, &host).sort(MERGE).expect("a plan").chosen;
    assert_eq!((way.passes.len(), way.merge_factor), (2, None), "{}", way.summary);
    // Switches are those of long runs, not of blocks.
    assert!(way.passes[1].switches < 2 * 64_000 / 20, "{}", way.passes[1].switches);
}

#[test]
fn parts_too_many_to_be_written_at_once_are_sorted_by_runs() {
    let (flash, host) = (VolumeProfile::assumed_flash(), host());
    let distribute = Methods { merge: false, distribute: true, forced: true };
    let few = job(10_000 * MIB, 1024 * MIB, &flash, &host).sort(distribute).expect("a plan").chosen;
    assert_eq!(few.passes.len(), 2);
    let many = job(1_000_000 * MIB, 1024 * MIB, &flash, &host).sort(distribute).expect("a plan").chosen;
    assert_eq!(many.pieces, 256, "as many as memory has blocks for");
    let names: Vec<&str> = many.passes.iter().map(|pass| pass.name.as_str()).collect();
    assert_eq!(names, ["split", "form runs", "merge"]);
    assert!(many.passes.iter().all(|pass| pass.read_bytes.abs_diff(1_000_000 * MIB) < 1000));
}

#[test]
fn a_slow_processor_binds() {
    let slow = HostProfile { threads: 1, ..host() };
    let volume = VolumeProfile::simple("fast", 2e10, 2e10, 0.0);
    let way = job(100_000 * MIB, 1024 * MIB, &volume, &slow).sort(MERGE).expect("a plan").chosen;
    assert!(way.passes.iter().all(|pass| pass.compute_seconds > pass.device_seconds));
}

#[test]
fn each_block_takes_the_time_of_a_request_on_both_sides() {
    let seconds = |request_seconds: f64, device_seconds: f64| {
        let host = HostProfile { threads: 1, request_seconds, ..host() };
        let volume =
            VolumeProfile { request_seconds: device_seconds, ..VolumeProfile::simple("x", 2e9, 2e9, 0.0) };
        let way = job(100_000 * MIB, 1024 * MIB, &volume, &host).sort(MERGE).expect("a plan").chosen;
        (way.passes[0].compute_seconds, way.passes[0].device_seconds, way.passes[0].read_bytes)
    };
    let (none, slower) = (seconds(0.0, 0.0), seconds(1e-4, 1e-3));
    let host = host();
    let volume = VolumeProfile::assumed_flash();
    let block = job(100_000 * MIB, 1024 * MIB, &volume, &host).shares.block as f64;
    let blocks = 2.0 * none.2 as f64 / block;
    // Some of the data is held: fewer blocks are written than read.
    let share = (slower.0 - none.0) / (blocks * 1e-4);
    assert!((0.9..=1.0).contains(&share), "{share}");
    assert!(((slower.1 - none.1) / (blocks * 1e-3) - share).abs() < 1e-6);
}

#[test]
fn each_byte_moved_takes_time_of_the_processors() {
    let volume = VolumeProfile::simple("x", 2e9, 2e9, 0.0);
    let passes = |byte_seconds| {
        let host = HostProfile { threads: 2, byte_seconds, ..host() };
        job(100_000 * MIB, 1024 * MIB, &volume, &host).sort(MERGE).expect("a plan").chosen.passes
    };
    for (slower, none) in passes(1e-9).iter().zip(&passes(0.0)) {
        let wanted = (none.read_bytes + none.written_bytes) as f64 * 1e-9 / 2.0;
        assert!((slower.compute_seconds - none.compute_seconds - wanted).abs() < 1e-6 * wanted);
    }
}

/// The cost of a request is measured within little memory.
#[test]
fn requests_take_less_of_the_processors_with_more_memory() {
    let measured = HostProfile { request_seconds: 1.0, byte_seconds: 2.0, ..host() };
    let within = |mebibytes: u64| measured.clone().within(mebibytes * MIB);
    assert_eq!([8, 20, 32, 500].map(|mebibytes| within(mebibytes).request_seconds), [1.0, 0.75, 0.5, 0.5]);
    assert_eq!(within(500).byte_seconds, 1.0);
}

/// The speed of merges is measured on eight files.
#[test]
fn merges_of_many_files_compute_more_and_overlap_less() {
    let (host, volume) = (host(), VolumeProfile::simple("x", 2e9, 2e9, 0.0));
    let merge = |memory| {
        let passes = job(100_000 * MIB, memory, &volume, &host).sort(MERGE).expect("a plan").chosen.passes;
        passes.last().cloned().expect("a merge")
    };
    let (few, many) = (merge(40_000 * MIB), merge(1_000 * MIB));
    assert!(few.inputs < 8 && many.inputs > 64, "{few:?} {many:?}");
    let rate = |pass: &PassPlan| pass.read_bytes as f64 / pass.compute_seconds;
    let doublings = (many.inputs as f64 / 8.0).log2();
    let share = rate(&few) / rate(&many) - 1.0;
    assert!((share - 0.08 * doublings).abs() < 1e-3, "{share} {doublings}");
    assert_eq!((few.overlap, many.overlap), (1.2, 1.2));
    let within =
        |mebibytes| PassPlan::new("x", Moved::default(), &[], &volume, &host).within(mebibytes * MIB);
    assert_eq!([8, 20, 32, 500].map(|mebibytes| within(mebibytes).overlap), [1.0, 1.25, 1.5, 1.5]);
    assert_eq!([8, 500].map(|mebibytes| within(mebibytes).merging().overlap), [1.0, 1.2]);
}

/// The speed of splits is measured in distributions.
#[test]
fn splits_overlap_more_than_distributions_and_records_of_varying_length_are_more_work() {
    let (host, volume) = (host(), VolumeProfile::simple("x", 2e9, 2e9, 0.0));
    let pass = |memory, shape| {
        let plan = job(10_000 * MIB, memory, &volume, &host).split(&shape, &|_| ()).expect("a plan");
        plan.chosen.passes.into_iter().next().expect("a pass")
    };
    let varying = SplitShape { varying: true, ..into(64) };
    let [fixed, text, little] =
        [pass(500 * MIB, into(64)), pass(500 * MIB, varying), pass(8 * MIB, into(64))];
    assert_eq!([fixed.overlap, text.overlap, little.overlap], [2.0, 2.0, 1.0]);
    let work = text.compute_seconds / fixed.compute_seconds;
    assert!((work - 1.35).abs() < 0.01, "as measured: {text:?} {fixed:?}");
    let distribute = Methods { merge: false, distribute: true, forced: true };
    let of_sort =
        job(10_000 * MIB, 500 * MIB, &volume, &host).sort(distribute).expect("a plan").chosen.passes;
    assert_eq!((of_sort[0].name.as_str(), of_sort[0].overlap), ("split", 1.5));
}

/// Every run buffer, every step of a merge and every part is a checkpoint.
#[test]
fn the_device_needs_the_time_of_its_checkpoints() {
    let host = host();
    let slow = VolumeProfile { checkpoint_seconds: 5e-3, ..VolumeProfile::simple("x", 2e9, 2e9, 0.0) };
    let quick = VolumeProfile { checkpoint_seconds: 0.0, ..slow.clone() };
    let step_bytes = |bytes: u64, _| bytes / 8;
    let chosen = |volume: &VolumeProfile, methods| {
        let one = job(2_000 * MIB, 64 * MIB, volume, &host);
        let one = RecordJob { disk: DiskUse { step_bytes, ..one.disk }, ..one };
        one.sort(methods).expect("a plan").chosen
    };
    let distribute = Methods { merge: false, ..ALL };
    for methods in [MERGE, distribute] {
        let (slower, faster) = (chosen(&slow, methods), chosen(&quick, methods));
        for (with, without) in slower.passes.iter().zip(&faster.passes) {
            let wanted = with.checkpoints as f64 * 5e-3;
            assert!((with.device_seconds - without.device_seconds - wanted).abs() < 1e-6, "{with:?}");
        }
        assert!(slower.passes[0].checkpoints >= 12, "{slower:?}");
        assert!(slower.passes.last().is_some_and(|pass| pass.checkpoints >= 8), "{slower:?}");
    }
}

/// Also if its switches come from a simulation, or if the inputs lie on another volume.
#[test]
fn the_device_needs_the_time_of_its_requests_in_every_pass() {
    let host = host();
    let slow = VolumeProfile { request_seconds: 1e-3, ..VolumeProfile::simple("x", 2e9, 2e9, 0.0) };
    let quick = VolumeProfile { request_seconds: 0.0, ..slow.clone() };
    let passes = |volume: &VolumeProfile, inputs: Option<&VolumeProfile>| {
        let one = RecordJob { input_volume: inputs, ..job(100_000 * MIB, 1024 * MIB, volume, &host) };
        one.sort(MERGE).expect("a plan").chosen.passes
    };
    for mut pass in passes(&slow, None) {
        let before = pass.device_seconds;
        assert_eq!(pass.requests, (pass.read_bytes + pass.written_bytes).div_ceil(MIB));
        pass.set_switches(pass.switches, &slow);
        assert_eq!(pass.device_seconds, before);
        pass.set_switches(pass.switches, &quick);
        let requests_s = pass.requests as f64 * 1e-3;
        assert!((before - pass.device_seconds - requests_s).abs() < 1e-6 * before);
    }
    let apart = |inputs| passes(&quick, Some(inputs))[0].clone();
    let (with, without) = (apart(&slow), apart(&quick));
    let requests_s = with.read_bytes.div_ceil(MIB) as f64 * 1e-3;
    assert!((with.device_seconds - without.device_seconds - requests_s).abs() < 1e-6 * with.device_seconds);
}

#[test]
fn inputs_that_are_many_are_all_merged_twice_at_least() {
    let (flash, host) = (VolumeProfile::assumed_flash(), host());
    let mut merge = RecordJob { inputs: 1000, ..job(10_000 * MIB, 64 * MIB, &flash, &host) };
    merge.shares.fan_in = 10;
    let way = merge.merge_inputs().chosen;
    assert_eq!(way.factors, [10, 10, 10]);
    assert_eq!(way.passes.iter().map(|pass| pass.times).collect::<Vec<_>>(), [100, 10, 1]);
    merge.shares.fan_in = 1000;
    assert_eq!(merge.merge_inputs().chosen.passes.len(), 1);
}

proptest! {
    #[test]
    fn early_passes_are_those_of_merging_one_by_one(files in 1u64..3000, factor in 2u64..200, last in 2u64..200) {
        let what = Merging { at_last: last, ..merging(files, files * 1000, false) };
        let last = last.min(factor);
        let (passes, left) = early_passes(&what, factor);
        let merges: u64 = passes.iter().map(|pass| pass.merges).sum();
        let moved: u64 = passes.iter().map(|pass| pass.bytes).sum();
        prop_assert_eq!((merges, moved), merged_one_by_one(files, files * 1000, factor, last));
        prop_assert!(left <= last && passes.iter().all(|pass| (2..=factor).contains(&pass.files)));
    }

    /// A plan on an array takes at most the time of merges with the maximum fan-in.
    #[test]
    fn the_factor_is_a_gain(gb in 10u64..20_000, memory in 8u64..8192, delta in 1e-3f64..0.05) {
        let switch_seconds = crate::volume::SwitchCost::Constant(delta);
        let volume = VolumeProfile { switch_seconds, ..array() };
        let host = host();
        let job = job(gb * 1_000_000_000, memory * MIB, &volume, &host);
        let files = job.data().div_ceil(job.shares.load);
        let what = merging(files, job.data(), false);
        let best = job.merges(&what);
        prop_assert!(best.seconds() <= job.merges_by(&what, job.shares.fan_in).seconds());
        prop_assert!(best.fan_in <= job.shares.fan_in);
    }
}

/// Forty runs of 100 MB within memory for ten files at once: each run and each merge keeps at most the records wanted.
#[test]
fn merges_write_no_more_than_is_wanted() {
    let (flash, host) = (VolumeProfile::assumed_flash(), host());
    let mut job = job(4_000_000_000, 64 * MIB, &flash, &host);
    job.shares = Shares { load: 100_000_000, fan_in: 10, last_fan_in: 10, ..job.shares };
    let moved = |top| {
        let plan = RecordJob { top, ..job.clone() }.sort(MERGE).expect("a method").chosen;
        plan.passes.iter().map(|pass| (pass.read_bytes, pass.written_bytes)).collect::<Vec<_>>()
    };
    let all = 4_000_000_000;
    // 34 runs become four files: three merges of ten, one of four.
    assert_eq!(moved(None), [(all, all), (3_400_000_000, 3_400_000_000), (all, all)]);
    // 80 MB are wanted: a run keeps 80 MB, and so does each merge.
    let kept = 80_000_000;
    let spilled = 40 * kept;
    assert_eq!(moved(Some(800_000)), [(all, spilled), (34 * kept, 4 * kept), (10 * kept, kept)]);
}

/// The same job, with nine tenths of the memory for records until the last merge.
fn holding<'a>(job: RecordJob<'a>) -> RecordJob<'a> {
    let shares = Shares { held: job.memory_bytes / 10 * 9, ..job.shares };
    RecordJob { shares, ..job }
}

#[test]
fn on_flash_only_the_excess_is_spilled() {
    let flash = VolumeProfile::assumed_flash();
    let host = host();
    for (share, most) in [(1.1, 2.4), (1.5, 2.9), (8.0, 3.8)] {
        let memory = 1024 * MIB;
        let data = (memory as f64 * share) as u64;
        let plan = holding(job(data, memory, &flash, &host)).sort(MERGE).expect("a merge").chosen;
        let moved = (plan.read_bytes() + plan.written_bytes()) as f64 / data as f64;
        assert!(moved <= most, "{share}: {moved}");
        assert!(plan.held_bytes <= memory / 10 * 9, "{plan:?}");
    }
}

#[test]
fn a_volume_that_wants_long_runs_holds_what_is_fastest() {
    let array = array();
    let host = host();
    for data in [300 * MIB, 600 * MIB, 4000 * MIB, 20_000 * MIB] {
        let of = job(data, 256 * MIB, &array, &host);
        let spilling = of.clone().sort(MERGE).expect("a merge").chosen;
        let plan = holding(of).sort(MERGE).expect("a merge").chosen;
        assert!(plan.seconds() <= spilling.seconds(), "{data}: {} {}", plan.summary, spilling.summary);
        assert!(
            plan.held_bytes > 0 || data > 1000 * MIB,
            "a short merge has memory to spare: {}",
            plan.summary
        );
    }
}

#[test]
fn a_split_takes_the_passes_that_memory_and_switches_ask_for() {
    let array = VolumeProfile::simple("24 disks", 3549e6, 3549e6, 0.0155);
    let flash = VolumeProfile::assumed_flash();
    let passes = |volume: &VolumeProfile, shape: SplitShape| {
        let host = host();
        let job = job(1 << 40, 2 << 30, volume, &host);
        job.split(&shape, &|_| ()).map(|plan| plan.chosen.factors)
    };
    assert_eq!(passes(&flash, into(512)), Some(vec![512]));
    assert_eq!(passes(&flash, into(513)), Some(vec![23, 23]));
    assert_eq!(passes(&array, into(512)).map(|factors| factors.len()), Some(2));
    let few = SplitShape { max_intermediates: 8, max_parts: 5, ..into(36) };
    assert_eq!(passes(&flash, few), Some(vec![8, 5]));
    assert_eq!(passes(&flash, SplitShape { max_parts: 1, ..few }), None);
    assert_eq!(passes(&array, SplitShape { in_turn: true, ..into(5000) }), Some(vec![5000]));
}

#[test]
fn ways_to_split_are_compared_by_their_counted_switches() {
    let (array, host) = (array(), host());
    let job = job(1 << 40, 2 << 30, &array, &host);
    let few_passes = job.split(&into(512), &|_| ()).expect("it fits").chosen;
    let passes = few_passes.passes.len();
    let count = |way: &mut MethodPlan| {
        if way.passes.len() == passes {
            way.passes.iter_mut().for_each(|pass| pass.set_switches(100 * pass.switches, &array));
        }
    };
    let counted = job.split(&into(512), &count).expect("it fits").chosen;
    assert!(counted.passes.len() != passes, "{counted:?}");
}

/// The sample of a distribution counts in its bytes, switches and seconds.
#[test]
fn distributions_count_their_sample() {
    let (array, host) = (array(), host());
    let distribute = Methods { merge: false, distribute: true, forced: true };
    let plan = job(100_000 * MIB, 1024 * MIB, &array, &host).sort(distribute).expect("a method").chosen;
    let sample = plan.sample.as_ref().expect("a sample");
    let sum = |figure: &dyn Fn(&PassPlan) -> u64| plan.passes.iter().map(figure).sum::<u64>();
    assert_eq!(sample.switches, 8 * plan.pieces);
    assert_eq!(
        sample.read_bytes,
        SamplePlaces::new(plan.pieces, 100_000 * MIB, 100).read_bytes(100_000 * MIB)
    );
    assert_eq!(plan.switches(), sample.switches + sum(&|pass| pass.switches));
    assert_eq!(plan.read_bytes(), sample.read_bytes + sum(&|pass| pass.read_bytes));
    let waits = sample.switches as f64 * 0.0155;
    assert!(sample.device_seconds > waits && sample.compute_seconds > 0.0, "{sample:?}");
    let passes_s: f64 = plan.passes.iter().map(PassPlan::seconds).sum();
    assert!(plan.seconds() >= passes_s + waits, "{} {passes_s} {waits}", plan.seconds());
}
