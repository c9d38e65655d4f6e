//! Tests that distinguish files of other formats from text.

use super::*;
use proptest::prelude::*;

/// The verdict on a file, from its first `wanted` bytes on, and the number of bytes inspected.
fn told(bytes: &[u8], mut wanted: usize, file: bool) -> (Verdict, usize) {
    let (size, tail) =
        (file.then_some(bytes.len() as u64), bytes.last_chunk::<8>().copied().filter(|_| file));
    loop {
        let (head, whole) = (&bytes[..wanted.min(bytes.len())], bytes.len() < wanted);
        match verdict(&FileStart { bytes: head, whole, size, tail }) {
            Verdict::More(more) if !whole => {
                assert!(more > wanted, "asks for {more} and has {wanted}");
                wanted = more;
            }
            other => return (other, wanted),
        }
    }
}

fn whole(bytes: &[u8]) -> Verdict {
    told(bytes, TEXT_BYTES, true).0
}

/// A pipe is read no further than needed.
fn piped(bytes: &[u8]) -> (Verdict, usize) {
    told(bytes, 1, false)
}

fn utf16(text: &str, mark: bool, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
    let units = mark.then_some(0xFEFF).into_iter().chain(text.encode_utf16());
    units.flat_map(unit).collect()
}

fn frame(bytes: usize, behind: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x5A, 0x2A, 0x4D, 0x18];
    frame.extend_from_slice(&(bytes as u32).to_le_bytes());
    frame.resize(8 + bytes, 0);
    frame.extend_from_slice(behind);
    frame
}

const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD, 0x24, 5, 0x29, 0, 0];
const LZ4: &[u8] = &[4, 0x22, 0x4D, 0x18, 0x64, 0x40, 0xA7];
const BZIP2: &[u8] = b"BZh91AY&SY\x9a\xcb\x1c";

fn examples() -> Vec<(FileFormat, Vec<u8>)> {
    let text = "name;price\nJosé \u{1F600};1\n";
    vec![
        (FileFormat::Gzip, vec![0x1F, 0x8B, 8, 8, 0, 0, 0, 0, 0, 3, b's']),
        (FileFormat::Zstd, ZSTD.to_vec()),
        (FileFormat::Zstd, frame(10, ZSTD)),
        (FileFormat::Lz4, frame(0, &frame(300, LZ4))),
        (FileFormat::Zstd, frame(4, b"")),
        (FileFormat::Zstd, vec![0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 9, 1]),
        (FileFormat::Xz, vec![0xFD, b'7', b'z', b'X', b'Z', 0, 0, 4]),
        (FileFormat::Bzip2, BZIP2.to_vec()),
        (FileFormat::Bzip2, b"BZh1\x17\x72\x45\x38\x50\x90\0\0\0\0".to_vec()),
        (FileFormat::Lz4, LZ4.to_vec()),
        (FileFormat::Lz4, vec![2, 0x21, 0x4C, 0x18, 9, 0, 0, 0, 1]),
        (FileFormat::Zip, b"PK\x03\x04\x14\0\x08\0\x08\0aaaa".to_vec()),
        (FileFormat::Zip, [&b"PK\x05\x06"[..], &[0; 18]].concat()),
        (FileFormat::Parquet, b"PAR1\x15\x04\x15\x10 ... \x06\0\0\0PAR1".to_vec()),
        (FileFormat::ArrowFile, b"ARROW1\0\0\xff\xff\xff\xff".to_vec()),
        (FileFormat::ArrowStream, [&[0xFF; 4][..], &[0xE0, 0, 0, 0, 0x10, 0, 0, 0], &[0; 300]].concat()),
        (FileFormat::Sqlite, b"SQLite format 3\0\x10\0\x01\x01".to_vec()),
        (FileFormat::Utf16, utf16(text, true, u16::to_le_bytes)),
        (FileFormat::Utf16, utf16(text, true, u16::to_be_bytes)),
        (FileFormat::Utf16, utf16(&text.repeat(99), true, u16::to_le_bytes)),
        (FileFormat::Utf16, utf16("\u{6F22}\u{5B57}\n", true, u16::to_be_bytes)),
        (FileFormat::Utf16Le, utf16(&"id,value\r\n".repeat(9), false, u16::to_le_bytes)),
        (FileFormat::Utf16Be, utf16(&"id,value\r\n".repeat(9), false, u16::to_be_bytes)),
        (FileFormat::Utf32, vec![0xFF, 0xFE, 0, 0, b'a', 0, 0, 0]),
        (FileFormat::Utf32, vec![0, 0, 0xFE, 0xFF, 0, 0, 0, b'a']),
    ]
}

#[test]
fn formats_are_recognised_in_files_and_in_pipes() {
    for (format, bytes) in examples() {
        assert_eq!(whole(&bytes), Verdict::Is(format), "{bytes:02X?}");
        assert_eq!(piped(&bytes).0, Verdict::Is(format), "{bytes:02X?}");
    }
}

#[test]
fn text_that_begins_like_one_is_text() {
    let texts: &[&[u8]] = &[
        b"",
        b"\n",
        b"\0",
        b"a",
        b"P",
        b"PK",
        b"PK,1\n",
        b"PK\x03\n",
        b"PK\x03\x04\n1,2,3\n",
        b"BZh",
        b"BZh9 is bzip2\n",
        b"BZh91AY&\n",
        b"PAR1\nPAR2\n",
        b"PAR1",
        b"PAR1 and the end is PAR1",
        b"ARROW1\n",
        b"ARROW1,2\n",
        b"SQLite format 3\n",
        b"SQLite format 3",
        b"7zXZ\n",
        b"\x1f\x8b\n",
        b"\x1f",
        b"\x1f\x8b\x08\xff\n",
        b"(\xb5/\xfd",
        b"*M\x18\n",
        b"P*M\n",
        b"\xff\xfe",
        b"\xff\xfe\n",
        b"\xfe\xff\n",
        b"\xff\xfe\x01\0\n\0",
        b"\xff\xff\xff\xff\n",
        b"\xff\xff\xff\xffabcdefgh",
        b"\xef\xbb\xbfid,value\n",
        b"a\0b\0c\0",
        b"\0a\0b",
        b"a\nb\nc\n",
    ];
    for text in texts {
        assert_eq!(whole(text), Verdict::Other, "{}", text.escape_ascii());
        assert_eq!(piped(text).0, Verdict::Other, "{}", text.escape_ascii());
    }
}

#[test]
fn of_most_text_two_bytes_are_enough() {
    for text in ["id,value\n", "2024-01-01\n", "\"quoted\"\n", "zebra\n"] {
        assert_eq!(piped(text.as_bytes()), (Verdict::Other, 2), "{text}");
    }
}

/// Any byte, and often one that begins a format.
fn any_or_special_byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), prop::sample::select(vec![0u8, 0x18, 0x2A, 0x4D, 0x50, 0xFE, 0xFF])]
}

proptest! {
    #[test]
    fn printable_text_is_never_refused(
        text in "[ -~\\t\\n\\r]{0,300}",
        lead in prop::sample::select(vec!["", "PK", "BZh9", "PAR1", "ARROW1", "SQLite format 3", "7zXZ", "P*M"]),
    ) {
        let text = format!("{lead}{text}");
        prop_assert_eq!(whole(text.as_bytes()), Verdict::Other);
        prop_assert_eq!(piped(text.as_bytes()).0, Verdict::Other);
    }

    #[test]
    fn any_bytes_are_told_in_bounded_time(
        bytes in prop::collection::vec(any_or_special_byte(), 0..300),
        kind in 0usize..40,
    ) {
        let mut bytes = bytes;
        if let Some((_, example)) = examples().get(kind) {
            let head = example.len().min(6);
            bytes.splice(0..0, example[..head].iter().copied());
        }
        let (_, read) = piped(&bytes);
        prop_assert!(read <= (64 << 10) + 12);
        whole(&bytes);
    }
}
