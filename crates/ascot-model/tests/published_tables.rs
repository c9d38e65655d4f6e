//! The published tables, predicted from figures outside them: passes exactly, rates within 15 percent, and the page of
//! the guide as printed.

#![allow(clippy::expect_used, reason = "a test may fail")]

#[path = "../examples/published_tables.rs"]
mod example;

use ascot_model::volume::VolumeProfile;
use example::{
    Device, Row, device_sort_mb_s, plan, replay_mb_s, report, rows, stxxl_passes, stxxl_replay_mb_s,
    switches_ratio,
};

/// How far a predicted rate of the bowtie may be from the published one.
const TOLERANCE: f64 = 0.15;

/// Rows with other passes than published, or with a rate beyond the tolerance.
fn misses(volume: &VolumeProfile) -> Vec<String> {
    let miss = |row: Row| {
        let plan = plan(&row, volume);
        let off = replay_mb_s(&row, &plan) / row.tuxedo_replay - 1.0;
        let told = format!("({}, {}): {:?}, {off:+.3}", row.memory_gb, row.input_gb, plan.factors());
        (plan.passes.len() != row.tuxedo_passes || off.abs() > TOLERANCE).then_some(told)
    };
    rows().into_iter().filter_map(miss).collect()
}

#[test]
fn all_rows_follow_from_figures_outside_the_tables() {
    assert_eq!(rows().len(), 7);
    let corners = [(0.0, 0.0), (-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)];
    for (binary, two) in corners {
        let device = Device::rounded(binary, two);
        assert_eq!(misses(&device.constant()), Vec::<String>::new());
        assert_eq!(misses(&device.curve()), Vec::<String>::new());
    }
}

/// The figures decide: the nominal ones of the device and the switch cost at 8,000 files miss rows.
#[test]
fn other_figures_miss_rows() {
    let device = Device::published();
    let nominal = VolumeProfile::simple("nominal", 4e9, 4e9, 0.010);
    let double = VolumeProfile::simple("double", device.speed, device.speed, 2.0 * device.switch_s);
    for volume in [nominal, device.far(), double] {
        assert!(!misses(&volume).is_empty(), "{volume:?}");
    }
}

/// Computing takes time too, so a sort of the paper is never faster than its device.
#[test]
fn the_device_bounds_the_sorts() {
    let device = Device::published();
    for row in rows() {
        let bound = device_sort_mb_s(&row, &plan(&row, &device.constant()), &device);
        assert!(row.tuxedo_sort < bound && bound < 1.5 * row.tuxedo_sort, "{bound} for {}", row.tuxedo_sort);
    }
}

#[test]
fn small_requests_take_the_published_passes_and_switches() {
    for row in rows() {
        assert_eq!(stxxl_passes(&row), row.stxxl_passes, "({}, {})", row.memory_gb, row.input_gb);
        let published = match row.input_gb as u32 {
            8 => 66.0,
            1280 => 249.0,
            _ => continue,
        };
        assert!((switches_ratio(&row) / published - 1.0).abs() < 0.06, "{}", switches_ratio(&row));
    }
}

/// The delta of 8,000 files is that of runs of 2 MB; runs of 4 MB cost it too, if the cache joins none of them.
#[test]
fn small_requests_take_the_published_time() {
    let far = Device::published().far();
    for row in rows().into_iter().skip(1) {
        let (rate, _) = stxxl_replay_mb_s(&row, &far);
        assert!((rate / row.stxxl_replay - 1.0).abs() < 0.09, "{rate} for {}", row.stxxl_replay);
    }
}

#[test]
fn the_page_shows_what_the_example_prints() {
    let page = include_str!("../../../docs/published.md");
    let shown = page.split("--example published_tables\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(shown.expect("the page shows the example"), report());
}
