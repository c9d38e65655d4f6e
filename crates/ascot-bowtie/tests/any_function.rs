//! A function that writes more than it reads, as much, or less, through the public interface: everything arrives, in
//! runs as long as the formulas say.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use ascot_bowtie::engine::{Bowtie, Reader, Writer};
use ascot_bowtie::flow::{Flow, Step, run};
use ascot_io::{BlockPool, Buf, IoError};
use ascot_model::run_length::{Scheme, Shape};
use ascot_model::volume::VolumeProfile;
use ascot_testing::virtual_disk::VirtualDisk;

const INPUTS: usize = 3;
const OUTPUTS: usize = 8;
const BLOCK_BYTES: usize = 512;
const MEMORY_BLOCKS: usize = 768;
const INPUT_BYTES: usize = 6 << 20;
/// Bytes of an input that go to one output at a time.
const PORTION: usize = 64;

/// Writes `written` bytes for each `read` bytes: the first byte of each portion, repeated.
struct Swell {
    read: usize,
    written: usize,
    /// The next input.
    next: usize,
    /// The output, the byte and the number of repetitions still to be put.
    leaving: Option<(usize, u8, usize)>,
    random: u64,
}

impl Flow for Swell {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
        if let Some((output, byte, left)) = self.leaving {
            let put = streams.put(output, &vec![byte; left]);
            self.leaving = (put < left).then_some((output, byte, left - put));
            return Ok(if put == 0 { Step::Full } else { Step::Progress });
        }
        let Some(input) = (0..INPUTS).map(|k| (self.next + k) % INPUTS).find(|&i| !streams.exhausted(i))
        else {
            return Ok(Step::Done);
        };
        let taken = streams.data(input).len().min(PORTION);
        let Some(&byte) = streams.data(input).first() else { return Ok(Step::Need(input)) };
        streams.consume(input, taken);
        self.next = input + 1;
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let output = (self.random >> 40) as usize % OUTPUTS;
        self.leaving = Some((output, byte, taken * self.written / self.read));
        Ok(Step::Progress)
    }
}

/// Runs the function with memory divided for `guess`, the assumed share of reading, and checks that everything arrives;
/// the mean run as a share of the formula for the true share.
fn share_of_formula(read: usize, written: usize, guess: f64, adapting: bool) -> f64 {
    let alpha = read as f64 / (read + written) as f64;
    let disk = VirtualDisk::new(VolumeProfile::simple("array", 1e9, 1e9, 0.01));
    let readers = (0..INPUTS).map(|input| {
        let name = format!("in {input}");
        disk.store(&name, vec![input as u8 + 1; INPUT_BYTES]);
        Reader::new(disk.open_read(&name, 0..u64::MAX), BLOCK_BYTES)
    });
    let readers = readers.collect();
    let writers = (0..OUTPUTS).map(|output| Writer::new(disk.create(&format!("out {output}")))).collect();
    let blocks = BlockPool::new(Buf::heap(MEMORY_BLOCKS * BLOCK_BYTES), BLOCK_BYTES);
    let shape = |alpha| Shape { inputs: INPUTS as u32, outputs: OUTPUTS as u32, alpha };
    let scheme = Scheme::best(shape(guess));
    let mut bowtie = Bowtie::new(readers, writers, blocks, &scheme).unwrap().depth(1);
    if adapting {
        bowtie = bowtie.adapting(&scheme);
    }
    let mut flow = Swell { read, written, next: 0, leaving: None, random: 9 };
    run(&mut bowtie, &mut flow, || Ok(())).unwrap();

    let mut counts = [0_usize; INPUTS];
    for output in 0..OUTPUTS {
        disk.contents(&format!("out {output}")).iter().for_each(|&byte| counts[byte as usize - 1] += 1);
    }
    assert_eq!(counts, [INPUT_BYTES * written / read; INPUTS], "alpha {alpha}");
    let input = INPUTS * INPUT_BYTES;
    let moved = (input + input * written / read) as f64;
    let formula = Scheme::best(shape(alpha)).run_length((MEMORY_BLOCKS * BLOCK_BYTES) as f64);
    moved / disk.switches() as f64 / formula
}

#[test]
fn runs_are_as_long_as_the_formulas_say_for_any_share_of_reading() {
    for (read, written) in [(1, 4), (1, 1), (4, 1)] {
        let alpha = read as f64 / (read + written) as f64;
        let share = share_of_formula(read, written, alpha, false);
        assert!((0.85..1.3).contains(&share), "alpha {alpha}: {share:.3} of the formula");
        println!("alpha {alpha}: {share:.3} of the formula's run length");
    }
}

#[test]
fn a_wrong_guess_of_the_share_of_reading_is_corrected() {
    for (read, written, guess) in [(1, 4, 0.9), (1, 4, 0.5), (4, 1, 0.5)] {
        let alpha = read as f64 / (read + written) as f64;
        let [known, learned, kept] = [(alpha, false), (guess, true), (guess, false)]
            .map(|(guess, adapting)| share_of_formula(read, written, guess, adapting));
        println!("alpha {alpha}, {guess} at first: {learned:.3}, {known:.3} if known, {kept:.3} if kept");
        assert!(learned > 0.95 * known, "alpha {alpha}, {guess} at first: {learned:.3}, {known:.3} if known");
        assert!(learned > 1.02 * kept, "alpha {alpha}, {guess} at first: {learned:.3}, {kept:.3} if kept");
    }
}
