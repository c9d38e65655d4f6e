//! The bytes, the space and the time of DiskBench, before it starts.
//!
//! The time comes from the profiles of the volumes: the stored ones (`ascot probe`), else the rates of a first short
//! measurement. Directories on one device share its rates.

use ascot_model::volume::VolumeProfile;
use serde::Serialize;

use super::bench::Sizes;
use super::phase::Pass;
use super::volume::Volume;

/// Space that a volume needs in addition to the files, as a share of them and at least: the file system's own blocks.
const SPARE_SHARE: u64 = 256;
const MIN_SPARE_BYTES: u64 = 1 << 20;

/// What DiskBench will move and take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Bytes read and written in all rounds, with the layout of the inputs.
    pub moved_bytes: u64,
    /// Peak space on each device, by its first directory.
    pub space: Vec<Space>,
    /// Seconds.
    pub seconds: f64,
    /// Where the rates come from: `stored profiles`, or `a first short measurement`.
    pub origin: &'static str,
}

/// The space that is taken on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Space {
    /// The first directory on the device.
    pub directory: String,
    /// Peak bytes.
    pub bytes: u64,
}

/// The files on a device: bytes of inputs, and bytes of outputs.
#[derive(Clone, Debug)]
pub(super) struct DeviceShare {
    pub(super) first: Volume,
    pub(super) input_bytes: u64,
    pub(super) output_bytes: u64,
}

impl DeviceShare {
    /// The shares of all devices, in the order in which they are named.
    pub(super) fn all(inputs: &[Volume], outputs: &[Volume], sizes: &Sizes) -> Vec<DeviceShare> {
        let mut shares: Vec<DeviceShare> = Vec::new();
        let named = inputs.iter().map(|volume| (volume, sizes.input_bytes(), 0));
        let numbers = (0..).zip(outputs).map(|(number, volume)| (volume, 0, sizes.output_bytes(number)));
        for (volume, input_bytes, output_bytes) in named.chain(numbers) {
            match shares.iter_mut().find(|share| share.first.device == volume.device) {
                Some(share) => {
                    share.input_bytes = share.input_bytes.saturating_add(input_bytes);
                    share.output_bytes = share.output_bytes.saturating_add(output_bytes);
                }
                None => shares.push(DeviceShare { first: volume.clone(), input_bytes, output_bytes }),
            }
        }
        shares
    }

    /// Bytes of the files on the device.
    pub(super) fn bytes(&self) -> u64 {
        self.input_bytes.saturating_add(self.output_bytes)
    }

    /// Free bytes that the device must have.
    pub(super) fn needed_bytes(&self) -> u64 {
        self.bytes().saturating_add((self.bytes() / SPARE_SHARE).max(MIN_SPARE_BYTES))
    }
}

/// Seconds of the layout and of `rounds` rounds of `passes`; `profiles` are those of the shares' devices.
pub(super) fn seconds(
    shares: &[DeviceShare],
    profiles: &[VolumeProfile],
    passes: &[Pass],
    rounds: u32,
) -> f64 {
    let slowest = |read: bool, written: bool, is_layout: bool| {
        let of_device = |(share, profile): (&DeviceShare, &VolumeProfile)| {
            let input = share.input_bytes as f64;
            let read_bytes = if read { input } else { 0.0 };
            let output = if written { share.output_bytes as f64 } else { 0.0 };
            let written_bytes = if is_layout { input } else { output };
            profile.seconds(read_bytes, written_bytes, 0.0, 2.0)
        };
        shares.iter().zip(profiles).map(of_device).fold(0.0, f64::max)
    };
    let of_round: f64 =
        passes.iter().map(|pass| slowest(pass.reads_inputs(), pass.writes_outputs(), false)).sum();
    slowest(false, false, true) + f64::from(rounds) * of_round
}

/// Bytes read and written by the layout and `rounds` rounds of `passes`.
pub(super) fn moved_bytes(sizes: &Sizes, passes: &[Pass], rounds: u32) -> u64 {
    let all = sizes.input_bytes().saturating_mul(sizes.inputs);
    let directions = passes
        .iter()
        .map(|pass| u64::from(pass.reads_inputs()) + u64::from(pass.writes_outputs()))
        .sum::<u64>();
    all.saturating_mul(1 + u64::from(rounds) * directions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, device: u64) -> Volume {
        Volume { directory: name.into(), name: name.into(), device, is_direct: true, is_memory: false }
    }

    const SIZES: Sizes = Sizes { request_bytes: 1 << 20, input_requests: 100, inputs: 2, outputs: 1 };

    #[test]
    fn directories_on_one_device_share_its_space() {
        let inputs = [volume("/a/in", 1), volume("/b/in", 2)];
        let shares = DeviceShare::all(&inputs, &[volume("/a/out", 1)], &SIZES);
        let bytes: Vec<u64> = shares.iter().map(|share| share.bytes() >> 20).collect();
        assert_eq!(bytes, [300, 100]);
        assert_eq!(shares[0].needed_bytes() - shares[0].bytes(), (300 << 20) / 256);
        assert_eq!(shares[1].needed_bytes() - shares[1].bytes(), 1 << 20);
    }

    #[test]
    fn sizes_that_no_volume_has_do_not_wrap_around() {
        let sizes = Sizes { input_requests: (1 << 63) / SIZES.request_bytes, inputs: 1, ..SIZES };
        let shares = DeviceShare::all(&[volume("/a", 1)], &[volume("/a", 1)], &sizes);
        assert_eq!(shares[0].needed_bytes(), u64::MAX);
    }

    #[test]
    fn the_slowest_device_of_a_pass_decides() {
        let inputs = [volume("/a", 1), volume("/b", 2)];
        let shares = DeviceShare::all(&inputs, &[volume("/c", 3)], &SIZES);
        let rate = f64::from(1 << 20);
        let profile = |read: f64, write: f64| VolumeProfile::simple("x", read * rate, write * rate, 0.0);
        // The layout: 100 MiB at 50 and at 25. Reading: at 100 and at 20. Writing: 200 at 10.
        let profiles = [profile(100.0, 50.0), profile(20.0, 25.0), profile(1.0, 10.0)];
        let passes = Pass::all();
        let wanted = 4.0 + 2.0 * (4.0 * 20.0 + 4.0 * 20.0 + 5.0);
        assert!((seconds(&shares, &profiles, &passes, 2) - wanted).abs() < 1e-9);
        assert_eq!(moved_bytes(&SIZES, &passes, 2) >> 20, 200 * (1 + 2 * 13));
    }
}
