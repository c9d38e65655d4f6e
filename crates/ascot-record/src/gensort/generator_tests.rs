//! Tests with published vectors of the benchmark's data, and of the generator against its definition.

use super::super::{Validator, lcg};
use super::*;
use crate::hex::to_hex;

fn generate(encoding: Encoding, skewed: bool, start: u128, count: usize) -> Vec<u8> {
    let mut records = vec![0; count * RECORD_LEN];
    assert_eq!(RecordGenerator::new(encoding, skewed, start).fill(&mut records), count);
    records
}

fn checksum(encoding: Encoding, skewed: bool, start: u128, count: usize) -> u128 {
    validator().validate(&generate(encoding, skewed, start, count)).checksum
}

/// A binary record as the benchmark defines it.
fn binary_record(number: u128) -> Vec<u8> {
    let blocks = (0..10).flat_map(|j| {
        let state = lcg::state(number.wrapping_add(1 + j));
        state.to_be_bytes()[..KEY_LEN].to_vec()
    });
    blocks.zip(MASK).map(|(byte, mask)| byte ^ mask).collect()
}

fn validator() -> Validator {
    let key = 0..KEY_LEN;
    Validator::new(RECORD_LEN, vec![key])
}

#[test]
fn checksums_are_the_published_ones() {
    use Encoding::{Ascii, Binary};
    let table = [
        (1, [0x9ea5_93a0, 0x3fca_ea0a, 0x9ea5_93a0, 0x3fca_ea0a]),
        (10, [0x5_5fea_8a1a, 0x4_6930_2dca, 0x5_d955_19b3, 0x4_6073_c01c]),
        (1000, [0x1ea_6370_b955, 0x1f5_dfb3_631a, 0x1e9_6301_166b, 0x1ee_f17d_1cac]),
        (1_000_000, [0x7_a0e0_d486_8cd4, 0x7_a19c_ff46_7438, 0x7_9f9a_7e6d_e673, 0x7_a135_fbce_6df2]),
    ];
    let kinds = [(Binary, false), (Ascii, false), (Binary, true), (Ascii, true)];
    for (count, sums) in table {
        for ((encoding, skewed), sum) in kinds.into_iter().zip(sums) {
            let ours = checksum(encoding, skewed, 0, count);
            assert_eq!(ours, sum, "{count} records, {encoding:?}, skewed: {skewed}: {ours:x}");
        }
    }
}

#[test]
fn first_records_are_the_published_ones() {
    let binary = generate(Encoding::Binary, false, 0, 1);
    assert_eq!(to_hex(&binary[..16]), "4a696d4772617952495065080060836b");
    let ascii = generate(Encoding::Ascii, false, 0, 3);
    let keys: Vec<&[u8]> = ascii.chunks(RECORD_LEN).map(|record| &record[..KEY_LEN]).collect();
    assert_eq!(keys, [b"AsfAGHM5om", b"~sHd0jDv6X", b"uI^EYm8s=|"]);
}

#[test]
fn a_far_range_is_the_published_one() {
    let records = generate(Encoding::Binary, false, 1_000_000_000, 2);
    assert_eq!(to_hex(&records[..10]), "46df6d7a85582021cfd7");
    assert_eq!(validator().validate(&records).checksum, 0x1_c9a4_4bc5);
}

#[test]
fn binary_records_are_windows_of_the_stream() {
    for start in [0, 510, 1 << 64, u128::MAX - 600] {
        let records = generate(Encoding::Binary, false, start, 1200);
        for (i, record) in records.chunks(RECORD_LEN).enumerate() {
            let number = start.wrapping_add(i as u128);
            assert_eq!(record, binary_record(number), "record {number}");
        }
    }
}

#[test]
fn an_ascii_record_reads_as_a_line() {
    let number = 0x123_4567_89AB_FFFF_u128;
    let records = generate(Encoding::Ascii, false, number, 2);
    for (line, digits) in records.chunks(RECORD_LEN).zip(["012345 6789ABFFFF", "012345 6789AC0000"]) {
        let text = std::str::from_utf8(line).unwrap();
        assert_eq!(&text[10..12], "  ");
        assert_eq!(text[12..44], format!("{:0>32}", digits.replace(' ', "")));
        assert_eq!(&text[44..46], "  ");
        assert!(text[46..98].bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(line[46..98].chunks(4).all(|four| four.iter().all(|&digit| digit == four[0])));
        assert!(text.ends_with("\r\n"));
    }
}

#[test]
fn any_cut_makes_the_same_records() {
    for encoding in [Encoding::Binary, Encoding::Ascii] {
        for skewed in [false, true] {
            let whole = generate(encoding, skewed, 65_000, 3000);
            let mut generator = RecordGenerator::new(encoding, skewed, 65_000);
            let mut rest = &whole[..];
            for count in [0, 1, 511, 512, 513, 1463] {
                let mut part = vec![0; count * RECORD_LEN];
                generator.fill(&mut part);
                let (expected, behind) = rest.split_at(part.len());
                assert_eq!(part, expected, "{encoding:?}, skewed: {skewed}, {count} records");
                rest = behind;
                let next = generator.number();
                let mut jumped = RecordGenerator::new(encoding, skewed, next);
                let mut record = [0; RECORD_LEN];
                if jumped.fill(&mut record) == 1 && !rest.is_empty() {
                    assert_eq!(record, rest[..RECORD_LEN], "jumped to {next}");
                }
            }
            assert!(rest.is_empty());
        }
    }
}

#[test]
fn room_for_no_whole_record_stays_as_it_is() {
    let mut out = [7; 250];
    let mut generator = RecordGenerator::new(Encoding::Binary, false, 0);
    assert_eq!(generator.fill(&mut out[..99]), 0);
    assert_eq!(generator.fill(&mut out), 2);
    assert_eq!(out[200..], [7; 50]);
    assert_eq!(generator.number(), 2);
}
