//! Whether inputs look ordered already, by a few samples: sorting them then writes little.

use crate::read::inputs::Inputs;
use crate::records::Records;

/// Places looked at, and bytes of each.
const PLACES: u64 = 64;
const PLACE_BYTES: usize = 4096;
/// Keys of a place.
const PLACE_KEYS: usize = 16;
/// Places at which the order may start anew.
const MOST_BREAKS: usize = 16;

/// Whether files look like few stretches in order, by the middle keys of places spread over them.
pub fn looks_ordered<R: Records>(records: &R, inputs: &Inputs) -> bool {
    let total = inputs.record_bytes().unwrap_or(0);
    if !inputs.are_files() || total == 0 {
        return false;
    }
    let mut middles = Vec::new();
    for file in inputs.iter() {
        let size = file.size.unwrap_or(0).saturating_sub(file.start);
        let places = PLACES * size / total;
        for place in 0..places {
            let at = size / places * place;
            let at = records.record_bytes().map_or(at, |len| at / len as u64 * len as u64);
            let Ok(mut bytes) = file.sample(file.start + at, PLACE_BYTES) else { return false };
            middles.extend(middle_key(records, &mut bytes, at == 0));
        }
    }
    let falls = middles.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let rises = middles.windows(2).filter(|pair| pair[0] < pair[1]).count();
    middles.len() >= PLACES as usize / 2 && falls.min(rises) < MOST_BREAKS
}

fn middle_key<R: Records>(records: &R, bytes: &mut [u8], whole: bool) -> Option<Vec<u8>> {
    // Where records have no fixed length the first is most likely cut in two.
    let skip = if whole || records.record_bytes().is_some() { 0 } else { records.cut(bytes, 1).bytes };
    let end = skip + records.cut(&bytes[skip..], usize::MAX).bytes;
    records.normalise(&mut bytes[skip..end]);
    let mut keys = Vec::new();
    records.sample_keys(&bytes[skip..end], PLACE_KEYS, &mut keys);
    keys.sort();
    let middle = keys.len() / 2;
    keys.into_iter().nth(middle)
}
