//! Every tuned constant of this crate, each with its derivation or its measurement.
//!
//! Most measurements are in `bench/results/2026-11-22-schedules`, and those of `ROUND_SPACING`, `MAX_EXCESS`,
//! `RUN_OUT_SLACK` and `SPARE_BLOCKS` in `bench/results/2026-11-23-schedules`: shapes simulated with one constant
//! changed at a time. The others are stated here only. "Equal" is a run length at equal rates as a share of its
//! formula; "varying" is that at rates that vary by half at every block, as a share of equal.

// ---------------------------------------------------------------- how full an input's bucket is made

/// Inputs are filled to this share of the largest bucket. Rounding to whole blocks makes some fillings longer at the
/// expense of those that follow, and without a margin the difference grows.
/// Measured: at 1.0 the worst shape drops from 0.930 to 0.889 (equal), at 0.97 the mean from 0.987 to 0.977.
pub(crate) const FILL_SHARE: f64 = 0.99;

/// Blocks of each input that hold little of use when a group is filled with forecasting: the consumed part of the first
/// block, the part of the last one that is needed after the next filling, and the variation of block positions.
/// Measured: merges of 64 inputs of 1000 blocks take 1533 switches at 1.0, 1479 at 1.25 and 1492 at 1.5.
pub(crate) const PARTLY_USED_BLOCKS: f64 = 1.25;

/// How far below its largest size a bucket may be filled so that inputs run out one by one.
/// Measured: at 0 the worst shape drops from 0.870 to 0.673 (varying); 0.20 gains nothing.
pub(crate) const MAX_SHORTFALL: f64 = 0.10;

/// A bucket that holds this share of its target is not filled up: a run of a fifth of a bucket is shorter than the
/// mean run, so the switch does not pay. Measured: at 1.0 the mean drops from 0.990 to 0.988 (varying); 0.6 changes
/// nothing.
pub(crate) const FULL_ENOUGH: f64 = 0.8;

/// How long after all others a streamed input runs out, as a multiple of the staircase's step. More than one step
/// drifts towards the largest size where all inputs are consumed at the same rate, which keeps memory full. Measured:
/// equal rates show no difference from 1.0 to 1.4; the worst shape has 0.917 at 1.0 and 0.827 at 1.4 (varying).
pub(crate) const STREAMED_SPACING: f64 = 1.2;

/// The same in the rounds of an interconnect (A6r): below one, the steps shrink and memory stays empty; well above one,
/// memory holds too few steps, and in time two inputs run out together. Measured on 86 shapes: at 1.0 the mean drops
/// from 0.993 to 0.986 and the worst from 0.967 to 0.954 (equal); at 1.2 they drop to 0.943 and 0.649.
pub(crate) const ROUND_SPACING: f64 = 1.01;

/// How far above its largest size a bucket may be filled in A6r, as a share of a step: a step that came out short is
/// then made good as far as there is memory. Measured on the same shapes: at 0 the mean drops from 0.993 to 0.986 and
/// the worst from 0.967 to 0.957 (equal); at 1.0 they drop to 0.992 and 0.958.
pub(crate) const MAX_EXCESS: f64 = 0.05;

/// `STREAMED_SPACING` for groups: the spacing has to cover the rounding to whole blocks. Measured: at 1.2 the worst
/// shape drops from 0.870 to 0.720 (varying) and from 0.930 to 0.902 (equal); 1.0 loses 0.0004 in the mean (equal).
pub(crate) const GROUPED_SPACING: f64 = 1.02;

/// Up to this number of groups, a group that memory does not hold shares out the blocks that there are. With more
/// groups one input stays short instead: it is filled again soon and disturbs one group only.
/// Measured: without sharing out, the worst shape drops from 0.870 to 0.858 (varying).
pub(crate) const FEW_GROUPS: u32 = 5;

/// Cycles that are tried for reads in a planned order, as shares of the longest one that memory holds at equal rates;
/// later tries take any cycle between the first and the last. Measured on eight merges of 4 to 64 inputs with 2 to 50
/// blocks of memory for each, with five sets of keys: 7759 switches, as many with every second cycle, and 7794 with
/// those from 0.90 to 1.0.
pub(crate) const CYCLE_SHARES: [f64; 14] =
    [0.78, 0.80, 0.82, 0.84, 0.86, 0.88, 0.90, 0.92, 0.94, 0.96, 0.98, 1.0, 1.02, 1.04];

/// How much the steps of later tries vary at random, as a share of a step. Measured on reads of 16 files with seven
/// blocks of memory for each: 300 tries take 138 switches at 0.2 to 0.5, 144 at 1.0, and the even cycles alone 143.
pub(crate) const STEP_SPREAD: f64 = 0.35;

/// Runs that are planned in all tries together: some 50 ms, which three switches of an array take.
pub(crate) const TRIED_RUNS: usize = 40_000;

/// Blocks that planned reads leave free. The last record of an input that runs out keeps a block. A block may also be
/// needed a record earlier than its first key says, which happens more often with more inputs: a share of their number.
/// The same merges take 7759 switches at a share of 0, too, and 7787 at 1/16.
pub(crate) const LATE_BLOCKS: u32 = 1;
pub(crate) const LATE_SHARE: f64 = 1.0 / 32.0;

// ---------------------------------------------------------------- the rounds of an interconnect

/// A round of which no more than this share is left ends now. Measured: at 0 the worst shape drops from 0.930 to
/// 0.907 (equal) and from 0.870 to 0.822 (varying), at 0.3 to 0.912 (equal).
pub(crate) const EARLY_END: f64 = 0.1;

/// The same in blocks of the streamed input, where that is more: with many inputs a round is a few blocks of each, and
/// one block of them more than `EARLY_END`. Measured by A6r with 130 blocks for each file: 28 x 56 at 0.65 has 0.935 of
/// the formula at 0 and 0.968 at 2, 64 x 64 at 0.65 0.934 and 0.959.
pub(crate) const EARLY_BLOCKS: f64 = 2.0;
/// The largest share of a bucket that these blocks may be. It is not tuned: it bounds two blocks where files have few.
pub(crate) const EARLY_BUCKET: f64 = 1.0 / 64.0;

/// An input that runs out in A6w while no more than this share of the round is left is filled for the rounds after it,
/// too. It is twice `EARLY_END`, because inputs run out in the last part of a round by design (`RUN_OUT_SLACK`).
/// Measured with 130 blocks for each file: 48 x 44 at 0.725 has 0.936 of the formula at 0.1, 0.947 at 0.15 and 0.957 at
/// 0.2; 60 x 64 at 0.8 has 0.956 at 0.2 and 0.948 at 0.3.
pub(crate) const EARLY_FILL: f64 = 0.2;

/// A round may be short by this share. It then ends that much earlier, which costs no switch, whereas one more output
/// written or one more input filled costs one. Measured: at 0 the worst shape drops from 0.930 to 0.874 (equal), at
/// 0.15 to 0.907.
pub(crate) const ROUND_SLACK: f64 = 0.05;

/// The least such share, with many groups of outputs. Measured by A6r with 130 blocks for each file: 22 x 36 at 0.8 has
/// 0.947 at 0.05 and 0.964 at 0.03; 20 x 56 at 0.8 has 0.984 at both, and 0.943 at 0.01.
pub(crate) const MIN_ROUND_SLACK: f64 = 0.03;

/// Blocks that an input filled for some rounds gets beyond its consumption in them, before rounding to whole blocks.
/// Measured with 130 blocks for each file: 64 x 20 at a share of 0.2 has 0.984 of the formula, and 0.947 at 0.25.
pub(crate) const SPARE_BLOCKS: f64 = 0.4;

/// An input that runs out in the last part of a round, of this share, is filled when the round ends: targets are whole
/// blocks, and the errors of several rounds add up. Measured: at 0.05 the worst shape has 0.913, at 0.25 0.956, and at
/// 0.5 0.803 (equal).
pub(crate) const RUN_OUT_SLACK: f64 = 0.3;

/// How much more memory inputs get (A6w) than the rounds of the outputs need, so that rounding ends no round early.
/// Measured: at 1.0 the mean drops from 0.987 to 0.980 (equal) and the worst shape to 0.896, at 1.05 the mean to
/// 0.980.
pub(crate) const READER_MARGIN: f64 = 1.01;

// ---------------------------------------------------------------- rates

/// Rates are learned over this number of the inputs' memories. Shorter windows follow the noise of single blocks,
/// longer ones follow a real change too late. Measured: the worst shape has 0.870 at 4, 0.849 at 1 and 0.853 at 16
/// (varying).
pub(crate) const RATE_WINDOW_MEMORIES: f64 = 4.0;

/// Consumed memories that the lengths of inputs count for where they differ: sorted files of like records are consumed
/// in proportion to them. Where they are not, a longer memory of it costs switches. Measured on merges of 8 and 16
/// inputs of lengths 1, 2, 3, ... that are consumed at equal rates until they end: 0.97 and 1.07 times the switches of
/// equal lengths, 1.02 and 1.13 at 1.0. Inputs consumed in proportion to their lengths show no difference.
pub(crate) const LENGTH_MEMORIES: f64 = 0.25;

/// Lengths that differ by no more than this inverse part are taken to be equal: files that were cut into equal shares
/// differ by a block, which says nothing about their rates, and a block is less than this part of a file that takes
/// several fillings of the usual memory (`BLOCKS_PER_STREAM`).
pub(crate) const EVEN_PART: u64 = 50;

/// The least share of an input that still has blocks, as a share of an equal share: an input that rests for a while
/// must not be taken to rest for ever. Measured: 159 shapes whose rates vary by half show no difference from 0.0125 to
/// 0.2.
pub(crate) const MIN_RATE_SHARE: f64 = 0.05;

/// A bowtie that learns its share of reading follows it when the bytes written for each byte read have changed by this
/// share. Both sides of an interconnect run out at the same time only if their memory fits these bytes. Measured on 3 x
/// 8 at four bytes read for each byte written, guessed as one, with steps of 0.02: 0.90 of the formula; 0.94 if known
/// from the start, 0.78 if never followed.
pub(crate) const GAIN_STEP: f64 = 0.04;

/// A bowtie that learns its share of reading changes its algorithm or its groups for runs that are longer by this
/// share. Measured on flows of 3 x 5 at equal shares, where A6r and A6w have runs of the same length: without it, every
/// second one changed from one to the other, and took 197 switches instead of 172. At 0.04, 3 x 8 at four bytes read
/// for each byte written, guessed as nine to one, has 0.69 of the formula instead of 0.89.
pub(crate) const SCHEME_STEP: f64 = 0.01;

/// The least share of reading and of writing that a bowtie with both is divided by: a function that only reads for a
/// while may write later. A side with fewer bytes gets the memory of a twentieth of them.
pub(crate) const MIN_ALPHA: f64 = 0.05;

/// The smallest rate and the smallest gain that a time is divided by.
pub(crate) const MIN_RATE: f64 = 1e-12;
pub(crate) const MIN_GAIN: f64 = 1e-9;

// ---------------------------------------------------------------- schemes compared by simulation

/// Memories of data that a simulation moves before its runs count as its steady state: A5 begins better than it goes
/// on. Measured on 159 shapes of up to 32 x 32, whose schemes are chosen by simulation: at 1 the mean is 0.989, as at
/// 4, and nine shapes have other schemes; at 8 it is 0.991 and takes that much longer.
pub(crate) const BEGINNING_MEMORIES: u32 = 4;

/// Memories of data, and runs, over which schemes are compared: whichever takes longer. With 16 memories in all, from
/// the start, the beginning of A5 counted too much. Measured on the same shapes: at a quarter of both the worst drops
/// from 0.961 to 0.800 (equal); at twice both it stays, and so does the mean.
pub(crate) const COMPARED_MEMORIES: f64 = 24.0;
pub(crate) const COMPARED_RUNS: f64 = 300.0;

/// Blocks of memory above which whole blocks no longer matter, and a simulation would take long: `BLOCKS_PER_STREAM`
/// for each of 126 streams.
pub(crate) const MAX_COMPARED_BLOCKS: u32 = 1 << 14;

/// Blocks of memory for a stream below which real functions, which consume and fill their streams unevenly, differ more
/// from the simulation than the schemes do from one another. Measured on a reshape of 8 x 8 with 12 blocks for each:
/// the scheme chosen by simulation took 411 switches of 363, that of the formula 421 of 400.
pub(crate) const MIN_BLOCKS_PER_STREAM: u32 = 64;

// ---------------------------------------------------------------- simulations and plans

/// Blocks of memory for a stream above which whole blocks hardly matter. A plan gives a stream no more of them but
/// larger ones, and simulates a pass with larger blocks as long as it has as many. Measured on 159 shapes of up to 32 x
/// 32 with 65, 130 and 260 blocks for each stream: 0.975, 0.986 and 0.991 of the formula in the mean, 0.917, 0.952 and
/// 0.954 at the worst (equal).
pub const BLOCKS_PER_STREAM: u32 = 130;

/// Blocks of the memory of a simulation unless a block size is given: 130 for each of 126 streams, and 64 for each of
/// 256, so that a remainder smaller than a block is negligible.
pub(crate) const SIMULATED_BLOCKS: u64 = 1 << 14;

/// Memories of data that a simulation moves unless a number of bytes is given: ten times those that are its beginning
/// (`BEGINNING_MEMORIES`), so that the beginning is a small part of the mean.
pub(crate) const SIMULATED_MEMORIES: u64 = 40;

// ---------------------------------------------------------------- devices and requests

/// Where the device of the next block is busy, forecasting looks this number of blocks per input ahead for a block on
/// another device: twice the two requests that keep a device busy.
pub(crate) const LOOK_AHEAD_BLOCKS: usize = 4;

/// Requests that keep a device busy: the one it performs and the one that follows.
pub(crate) const BUSY_REQUESTS: u32 = 2;

/// Requests in flight where the caller sets no depth: two for reading and two for writing.
pub(crate) const DEFAULT_DEPTH: usize = 2 * MIN_DEVICE_DEPTH;

/// Requests of files in flight beside inputs that are pipes. More would empty a bucket before the flow, which merges
/// the pipes meanwhile, could add to it.
/// Measured: merges of one and six pipes into four files, 29 memories: 1.00 of the simulated switches at 2, 1.04 to
/// 1.16 at 3, and at half the length 1.03 to 1.19 at 4. Four files and six pipes into three files, 20 memories: 1.08 at
/// 2 and 1.11 at 4.
pub(crate) const PIPED_DEPTH: usize = 2;

/// The least number of requests in flight for each device where there are several.
pub(crate) const MIN_DEVICE_DEPTH: usize = BUSY_REQUESTS as usize;

// ---------------------------------------------------------------- bytes that wait in files

/// Blocks of the memory of an output whose bytes wait in a file: half a block of each output is no full one, a 32nd of
/// the memory.
pub(crate) const WAITING_BLOCKS: u32 = 16;

/// What the device has in flight at most, which outputs do not hold any more: this inverse share of the memory, but no
/// more than 4 MiB, which keep a fast device busy.
pub(crate) const WRITE_AHEAD_SHARE: u64 = 16;
pub(crate) const WRITE_AHEAD_BYTES: u64 = 4 << 20;

/// So much may wait even where runs need less: appends go on while the device is slow for a moment. It is written
/// within two seconds at 150 MB/s, the rate of a rotating disk, so that the end does not take long.
/// Measured on a sort of 4 GB on four nodes of one machine: with 12 MiB, a sixteenth of it in flight, the mapping took
/// 8.4 s, and with this 7.3 s.
pub(crate) const SLACK_BYTES: u64 = 256 << 20;

/// Blocks of a pipe beside files in long runs: one that is consumed, one that waits, and two being read.
pub const PIPE_BLOCKS: u32 = 4;
