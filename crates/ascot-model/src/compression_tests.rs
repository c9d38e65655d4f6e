//! Tests of the choice of a codec, on numbers alone.

use super::*;

const LZ4: CodecFigures = CodecFigures { ratio: 0.5, compress_bytes_per_s: 600e6, expand_bytes_per_s: 2e9 };
const ZSTD: CodecFigures =
    CodecFigures { ratio: 0.3, compress_bytes_per_s: 300e6, expand_bytes_per_s: 900e6 };
const USELESS: CodecFigures =
    CodecFigures { ratio: 1.0, compress_bytes_per_s: 900e6, expand_bytes_per_s: 9e9 };

fn passes(bytes: f64) -> Vec<SpillPass> {
    let pass = |name: &str, forms: f64| SpillPass {
        name: name.into(),
        inputs_read: forms * bytes,
        output_written: (1.0 - forms) * bytes,
        spills_read: (1.0 - forms) * bytes,
        spills_written: forms * bytes,
        switches: 0.0,
        files: 2.0,
        compute_seconds: bytes / 600e6,
    };
    vec![pass("form runs", 1.0), pass("merge", 0.0)]
}

fn slow() -> VolumeProfile {
    VolumeProfile::simple("slow", 100e6, 100e6, 0.01)
}

fn cost<'a>(passes: &'a [SpillPass], volume: &'a VolumeProfile) -> SpillCost<'a> {
    SpillCost {
        passes,
        volume,
        input_volume: None,
        threads: 2.0,
        compute_factor: 1.0,
        processor_factor: 1.0,
        device_factor: 1.0,
        realised: [1.0; 3],
        read_ratio: 1.0,
    }
}

fn samples(lz4: CodecFigures, zstd: CodecFigures) -> [Sample; 2] {
    [Sample { codec: Codec::Lz4, figures: lz4 }, Sample { codec: Codec::Zstd, figures: zstd }]
}

/// Notes blocks of `bytes` in all until a review is due.
fn write(choice: &mut CodecChoice, ratio: f64, most_bytes: u64) -> u64 {
    const BLOCK: u64 = 1 << 18;
    let mut written = 0;
    while !choice.is_due() && written < most_bytes {
        let codec = choice.codec();
        let (stored_bytes, seconds) = match codec {
            Codec::None => (BLOCK, 0.0),
            _ => ((BLOCK as f64 * ratio) as u64, BLOCK as f64 / 300e6),
        };
        choice.note("form runs", StoredBlock { codec, bytes: BLOCK, stored_bytes, seconds });
        written += BLOCK;
    }
    written
}

#[test]
fn a_slow_volume_is_spared_and_flash_is_not() {
    let passes = passes(10e9);
    let slow = slow();
    let on_slow = cost(&passes, &slow);
    assert!(on_slow.seconds(Codec::Zstd, &ZSTD) < 0.7 * on_slow.seconds_of_none());
    let flash = VolumeProfile::simple("flash", 3e9, 3e9, 0.0);
    let on_flash = cost(&passes, &flash);
    assert!(!on_flash.may_pay() && on_slow.may_pay());
    // The thread that compresses would be slower than the volume, even with many processors.
    let quick = SpillCost { threads: 64.0, compute_factor: 0.01, ..cost(&passes, &flash) };
    assert!(quick.may_pay() && quick.seconds(Codec::Lz4, &LZ4) > quick.seconds_of_none());
}

#[test]
fn bytes_of_spills_shrink_and_those_of_inputs_and_output_do_not() {
    let passes = passes(1e9);
    let slow = slow();
    let half = CodecFigures { ratio: 0.5, ..CodecFigures::NONE };
    assert!((cost(&passes, &slow).seconds_of_none() - 40.0).abs() < 1e-6);
    assert!((cost(&passes, &slow).seconds(Codec::Lz4, &half) - 30.0).abs() < 1e-6);
    // In the last pass nothing is written to spills any more.
    let last = SpillCost { read_ratio: 0.5, ..cost(&passes[1..], &slow) };
    assert!((last.seconds(Codec::Lz4, &half) - 15.0).abs() < 1e-6);
    assert!((last.seconds_of_none() - 15.0).abs() < 1e-6);
    // Inputs on a quick volume of their own leave the slow one to the spills.
    let quick = VolumeProfile::simple("quick", 1e9, 1e9, 0.0);
    let apart = SpillCost { input_volume: Some(&quick), ..cost(&passes, &slow) };
    assert!((apart.seconds(Codec::Lz4, &half) - (5.0 + 15.0)).abs() < 1e-6);
}

#[test]
fn the_first_choice_follows_the_sample() {
    let passes = passes(10e9);
    let volume = slow();
    let cost = cost(&passes, &volume);
    let choose = |lz4, zstd| {
        let mut choice = CodecChoice::new(Compression::Auto);
        assert!(choice.is_due());
        choice.review("form runs", &cost, &samples(lz4, zstd));
        assert!(!choice.is_due());
        choice
    };
    assert_eq!(choose(LZ4, ZSTD).codec(), Codec::Zstd);
    assert_eq!(choose(LZ4, USELESS).codec(), Codec::Lz4);
    let none = choose(USELESS, USELESS);
    assert_eq!(none.codec(), Codec::None);
    let [first] = &none.account().decisions[..] else { panic!("one decision") };
    assert_eq!((first.from, first.to), (None, Codec::None));
    assert!(first.reason.contains("shrinks only to 100 percent"), "{}", first.reason);
}

#[test]
fn data_that_stops_shrinking_is_soon_written_as_it_is() {
    let passes = passes(10e9);
    let volume = slow();
    let cost = cost(&passes, &volume);
    let mut choice = CodecChoice::new(Compression::Auto);
    choice.review("form runs", &cost, &samples(LZ4, ZSTD));
    write(&mut choice, 0.3, 64 << 20);
    choice.review("form runs", &cost, &samples(LZ4, ZSTD)[..1]);
    assert_eq!(choice.codec(), Codec::Zstd);
    let useless = write(&mut choice, 1.0, 64 << 20);
    assert!(useless <= 2 << 20, "{useless} bytes were compressed in vain");
    assert_eq!(choice.to_sample().collect::<Vec<_>>(), [Codec::Lz4]);
    choice.review("form runs", &cost, &samples(USELESS, USELESS)[..1]);
    assert_eq!(choice.codec(), Codec::None);
    let changes: Vec<_> = choice.account().decisions.iter().map(|it| (it.from, it.to)).collect();
    assert_eq!(changes, [(None, Codec::Zstd), (Some(Codec::Zstd), Codec::None)]);
}

#[test]
fn data_that_begins_to_shrink_is_compressed_from_then_on() {
    let passes = passes(10e9);
    let volume = slow();
    let cost = cost(&passes, &volume);
    let mut choice = CodecChoice::new(Compression::Auto);
    choice.review("form runs", &cost, &samples(USELESS, USELESS));
    for _ in 0..9 {
        let between = write(&mut choice, 1.0, 1 << 30);
        assert!(between <= MAX_REVIEW_BYTES, "{between} bytes without a review");
        choice.review("form runs", &cost, &samples(USELESS, USELESS));
    }
    write(&mut choice, 1.0, 1 << 30);
    choice.review("form runs", &cost, &samples(LZ4, ZSTD));
    assert_eq!(choice.codec(), Codec::Zstd);
}

#[test]
fn a_volume_that_turns_out_otherwise_changes_the_choice() {
    let passes = passes(10e9);
    let volume = slow();
    let flash = VolumeProfile::simple("flash", 3e9, 3e9, 0.0);
    let mut choice = CodecChoice::new(Compression::Auto);
    choice.review("form runs", &cost(&passes, &volume), &samples(LZ4, ZSTD));
    assert_eq!(choice.codec(), Codec::Zstd);
    write(&mut choice, 0.3, 64 << 20);
    choice.review("form runs", &cost(&passes, &flash), &[]);
    assert_eq!(choice.codec(), Codec::None);
    assert!(choice.account().decisions[1].reason.contains("is not the bottleneck"));
    write(&mut choice, 0.3, 64 << 20);
    choice.review("form runs", &cost(&passes, &volume), &samples(LZ4, ZSTD));
    assert_eq!(choice.codec(), Codec::Zstd);
}

/// The rate of reading does not rise when less is written: the volume moves both directions side by side.
#[test]
fn a_codec_that_saves_bytes_but_no_time_is_given_up() {
    let passes = passes(10e9);
    let volume = slow();
    let mut choice = CodecChoice::new(Compression::Auto);
    choice.review("form runs", &cost(&passes, &volume), &samples(LZ4, ZSTD));
    write(&mut choice, 0.3, 64 << 20);
    let useless = SpillCost { realised: [1.0, 0.0, 0.0], ..cost(&passes, &volume) };
    choice.review("form runs", &useless, &samples(LZ4, ZSTD)[..1]);
    assert_eq!(choice.codec(), Codec::None);
    write(&mut choice, 0.3, 64 << 20);
    choice.review("form runs", &useless, &samples(LZ4, ZSTD));
    assert_eq!(choice.codec(), Codec::None);
}

#[test]
fn figures_that_vary_a_little_change_nothing() {
    let seconds = |none: f64, lz4: f64, zstd: f64| {
        move |codec: Codec| match codec {
            Codec::None => none,
            Codec::Lz4 => lz4,
            Codec::Zstd => zstd,
        }
    };
    assert_eq!(next_codec(Codec::None, &seconds(1.0, 0.95, 0.94)), Codec::None);
    assert_eq!(next_codec(Codec::None, &seconds(1.0, 0.85, 0.9)), Codec::Lz4);
    assert_eq!(next_codec(Codec::Lz4, &seconds(1.0, 0.98, 0.97)), Codec::Lz4);
    assert_eq!(next_codec(Codec::Lz4, &seconds(1.0, 1.01, 0.97)), Codec::None);
    assert_eq!(next_codec(Codec::Lz4, &seconds(1.0, 0.9, 0.8)), Codec::Zstd);
    assert_eq!(next_codec(Codec::Zstd, &seconds(1.0, 0.4, 1.2)), Codec::Lz4);
}

#[test]
fn what_the_user_chose_is_never_reviewed() {
    let mut choice = CodecChoice::new(Compression::Lz4);
    assert_eq!(write(&mut choice, 1.0, 1 << 30), 1 << 30);
    assert_eq!(choice.codec(), Codec::Lz4);
    let account = choice.account();
    assert_eq!((account.passes[0].ratio(), account.decisions.len()), (1.0, 0));
    assert_eq!(account.ratio_of("merge some"), 1.0);
    assert!(account.is_worth_a_word() && !CodecChoice::new(Compression::Auto).account().is_worth_a_word());
}
