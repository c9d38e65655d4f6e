//! The write cache of a device: in a burst of writes the rate falls when the cache is full.
//!
//! ```text
//!   seconds    |              . . . . .     full: the rate of the medium
//!   a piece    | . . . . . .                filling
//!              sync ────────> bytes written
//! ```
//!
//! Each burst begins after a sync, with an empty cache. The cache empties while it fills, so it holds less than was
//! written before the rate fell. A fall counts if it is clear in both bursts, at about the same byte.

use std::sync::atomic::Ordering;
use std::time::Instant;

use ascot_model::measurement::CacheMeasurement;

use crate::Clock;
use crate::area::Area;
use crate::drive::Driver;
use crate::error::Result;

/// Bytes of a request, one at a time.
const REQUEST_BYTES: usize = 4 << 20;
/// A burst has about this many pieces.
const PIECES: u64 = 64;
/// A phase has at least this many pieces.
const MIN_PIECES: usize = 4;
const BURSTS: usize = 2;
/// The rate falls at least by this factor.
const FALL: f64 = 1.5;
/// The bursts agree within this factor.
const AGREEMENT: f64 = 1.5;

/// Measures the cache with bursts into `area`, each of at most `seconds`; `None`: no cache is visible.
pub(crate) fn measure(
    area: &Area,
    driver: &Driver,
    seconds: f64,
    clock: &Clock<'_>,
) -> Result<Option<CacheMeasurement>> {
    let data = driver.noise(REQUEST_BYTES)?;
    let request = data.len();
    let requests = area.bytes() / request as u64;
    let of_piece = requests.div_ceil(PIECES).max(1);
    let mut found: Vec<CacheMeasurement> = Vec::new();
    for _ in 0..BURSTS {
        clock.tick()?;
        area.empty()?;
        area.sync()?;
        let began = Instant::now();
        let mut pieces = Vec::new();
        let mut since = began;
        for number in 0..requests / of_piece * of_piece {
            area.write(number * request as u64, &data)?;
            if (number + 1) % of_piece == 0 {
                let now = Instant::now();
                pieces.push(now.duration_since(since).as_secs_f64());
                since = now;
                if began.elapsed().as_secs_f64() > seconds || clock.cancel.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        match fall(&pieces, of_piece * request as u64) {
            Some(cache) => found.push(cache),
            None => return Ok(None),
        }
    }
    let first = found.first().copied();
    Ok(first.filter(|first| {
        let ratios = found.iter().map(|other| other.bytes as f64 / first.bytes as f64);
        ratios.into_iter().all(|ratio| (1.0 / AGREEMENT..=AGREEMENT).contains(&ratio))
    }))
}

/// The cache that the seconds of each piece show: two levels, the second clearly above the first.
fn fall(pieces: &[f64], piece_bytes: u64) -> Option<CacheMeasurement> {
    let sum = |part: &[f64]| part.iter().sum::<f64>();
    let error = |part: &[f64]| {
        let mean = sum(part) / part.len() as f64;
        part.iter().map(|seconds| (seconds - mean).powi(2)).sum::<f64>()
    };
    let last = pieces.len().checked_sub(MIN_PIECES)?;
    let at = (MIN_PIECES..=last).min_by(|&a, &b| {
        let fit = |at: usize| error(&pieces[..at]) + error(&pieces[at..]);
        fit(a).total_cmp(&fit(b))
    })?;
    let (filling, full) = pieces.split_at(at);
    // Most pieces of one phase are faster than most of the other: a few slow ones are disturbances.
    if quantile(filling, 0.75) >= quantile(full, 0.25) {
        return None;
    }
    let rate = |part: &[f64]| piece_bytes as f64 * part.len() as f64 / sum(part).max(1e-9);
    let [fast, slow] = [rate(filling), rate(full)];
    let written = piece_bytes as f64 * at as f64;
    let bytes = (written * (1.0 - slow / fast)) as u64;
    (fast >= FALL * slow).then_some(CacheMeasurement { bytes, filling: fast, full: slow })
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = (share * (sorted.len().saturating_sub(1)) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of pieces of 100 MB: `fast` until `at`, then `slow`, with some noise.
    fn burst(at: usize, count: usize, fast: f64, slow: f64) -> Vec<f64> {
        let noise = |piece: usize| 1.0 + 0.1 * ((piece * 7919) % 11) as f64 / 11.0;
        (0..count).map(|piece| if piece < at { fast } else { slow } * noise(piece)).collect()
    }

    #[test]
    fn a_full_cache_shows_as_a_fall_of_the_rate() {
        let cache = fall(&burst(20, 60, 0.03, 0.2), 100_000_000).expect("visible");
        // 2 GB written at 3.3 GB/s, while 0.5 GB/s left the cache.
        assert!((1.6e9..1.8e9).contains(&(cache.bytes as f64)), "{cache:?}");
        assert!(cache.filling > 6.0 * cache.full, "{cache:?}");
    }

    #[test]
    fn without_a_clear_fall_no_cache_is_visible() {
        assert_eq!(fall(&burst(0, 60, 0.1, 0.1), 100_000_000), None);
        assert_eq!(fall(&burst(20, 60, 0.1, 0.14), 100_000_000), None);
        assert_eq!(fall(&burst(3, 6, 0.1, 1.0), 100_000_000), None);
        // A rate that rises is no full cache.
        assert_eq!(fall(&burst(20, 60, 0.2, 0.03), 100_000_000), None);
        // Nor are a few slow pieces near the end.
        let mut hiccups = burst(60, 60, 0.05, 0.05);
        for at in [50, 54, 58] {
            hiccups[at] = 1.0;
        }
        assert_eq!(fall(&hiccups, 100_000_000), None);
        assert_eq!(fall(&[], 1), None);
    }
}
