//! Whether inputs look sorted by a few samples. Sorting them by runs and merges then writes little.

use crate::read::inputs::Inputs;
use crate::records::Records;

/// Samples taken, and bytes of each.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: usize = 4096;
/// Keys of a sample.
const SAMPLE_KEYS: usize = 16;
/// Most samples at which a new sorted sequence begins.
const BREAKS_MAX: usize = 16;

/// Whether files look like a few sorted sequences, by the middle keys of samples spread over them.
pub fn looks_ordered<R: Records>(records: &R, inputs: &Inputs) -> bool {
    let total = inputs.record_bytes().unwrap_or(0);
    if !inputs.are_files() || total == 0 {
        return false;
    }
    let mut middles = Vec::new();
    for file in inputs.iter() {
        let size = file.size.unwrap_or(0).saturating_sub(file.start);
        let samples = SAMPLES * size / total;
        for sample in 0..samples {
            let at = size / samples * sample;
            let at = records.record_bytes().map_or(at, |len| at / len as u64 * len as u64);
            let Ok(mut bytes) = file.sample(file.start + at, SAMPLE_BYTES) else { return false };
            middles.extend(middle_key(records, &mut bytes, at == 0));
        }
    }
    let falls = middles.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let rises = middles.windows(2).filter(|pair| pair[0] < pair[1]).count();
    middles.len() >= SAMPLES as usize / 2 && falls.min(rises) < BREAKS_MAX
}

fn middle_key<R: Records>(records: &R, bytes: &mut [u8], whole: bool) -> Option<Vec<u8>> {
    // Without a fixed record length the sample most likely begins within a record.
    let skip = if whole || records.record_bytes().is_some() { 0 } else { records.cut(bytes, 1).bytes };
    let end = skip + records.cut(&bytes[skip..], usize::MAX).bytes;
    records.normalise(&mut bytes[skip..end]);
    let mut keys = Vec::new();
    records.sample_keys(&bytes[skip..end], SAMPLE_KEYS, &mut keys);
    keys.sort();
    let middle = keys.len() / 2;
    keys.into_iter().nth(middle)
}
