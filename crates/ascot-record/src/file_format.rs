//! Recognises files of other formats by their first bytes: compressed or binary files are refused where text is
//! expected, with the name of the format and the command that converts it to text.
//!
//! A format counts as recognised only if its first bytes cannot be text, or if the bytes after the magic number also
//! agree with the format. For most text, two bytes are enough to decide.

/// A format whose bytes differ from its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878), skippable frames ahead of it included.
    Zstd,
    /// xz.
    Xz,
    /// bzip2.
    Bzip2,
    /// LZ4 frames, or its older form.
    Lz4,
    /// Zip, which office documents also use.
    Zip,
    /// Apache Parquet.
    Parquet,
    /// An Arrow file (Feather version 2).
    ArrowFile,
    /// An Arrow stream.
    ArrowStream,
    /// An SQLite database.
    Sqlite,
    /// UTF-16 with a byte order mark.
    Utf16,
    /// UTF-16 without one, the low byte first.
    Utf16Le,
    /// UTF-16 without one, the high byte first.
    Utf16Be,
    /// UTF-32 with a byte order mark.
    Utf32,
}

/// How a format is named, and converted to text.
struct Conversion {
    name: &'static str,
    /// Writes the text of the file that follows it.
    command: &'static str,
    /// The file that follows if the bytes come through a pipe: some tools need one with random access.
    default_file: Option<&'static str>,
}

const fn conversion(
    name: &'static str,
    command: &'static str,
    default_file: Option<&'static str>,
) -> Conversion {
    Conversion { name, command, default_file }
}

const PARQUET_TO_CSV: &str = "python3 -c 'import sys, pyarrow.csv as c, pyarrow.parquet as p; \
     c.write_csv(p.read_table(sys.argv[1]), sys.stdout.buffer)'";
const ARROW_FILE_TO_CSV: &str = "python3 -c 'import sys, pyarrow as a, pyarrow.csv as c; \
     c.write_csv(a.ipc.open_file(sys.argv[1]).read_all(), sys.stdout.buffer)'";
const ARROW_STREAM_TO_CSV: &str = "python3 -c 'import sys, pyarrow as a, pyarrow.csv as c; \
     c.write_csv(a.ipc.open_stream(open(sys.argv[1], \"rb\")).read_all(), sys.stdout.buffer)'";

impl FileFormat {
    fn conversion(self) -> Conversion {
        match self {
            FileFormat::Gzip => conversion("gzip data", "gzip -dc", None),
            FileFormat::Zstd => conversion("Zstandard data", "zstd -dc", None),
            FileFormat::Xz => conversion("xz data", "xz -dc", None),
            FileFormat::Bzip2 => conversion("bzip2 data", "bzip2 -dc", None),
            FileFormat::Lz4 => conversion("LZ4 data", "lz4 -dc", None),
            FileFormat::Zip => conversion("a zip archive", "unzip -p", Some("FILE")),
            FileFormat::Parquet => conversion("a Parquet file", PARQUET_TO_CSV, Some("FILE")),
            FileFormat::ArrowFile => conversion("an Arrow file", ARROW_FILE_TO_CSV, Some("FILE")),
            FileFormat::ArrowStream => conversion("an Arrow stream", ARROW_STREAM_TO_CSV, Some("/dev/stdin")),
            FileFormat::Sqlite => conversion("an SQLite database", "sqlite3 -csv -header", Some("FILE")),
            FileFormat::Utf16 => conversion("UTF-16 text", "iconv -f UTF-16 -t UTF-8", None),
            FileFormat::Utf16Le => conversion("UTF-16 text", "iconv -f UTF-16LE -t UTF-8", None),
            FileFormat::Utf16Be => conversion("UTF-16 text", "iconv -f UTF-16BE -t UTF-8", None),
            FileFormat::Utf32 => conversion("UTF-32 text", "iconv -f UTF-32 -t UTF-8", None),
        }
    }

    /// The name of the format.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.conversion().name
    }

    /// The command that writes the text of the file `quoted` (a shell word; `None` for standard input).
    #[must_use]
    pub fn unpack_command(self, quoted: Option<&str>) -> String {
        let Conversion { command, default_file, .. } = self.conversion();
        let command = if self == FileFormat::Gzip && quoted.is_some() { "zcat" } else { command };
        let query = (self == FileFormat::Sqlite).then_some("'SELECT * FROM TABLE'");
        let words = [Some(command), quoted.or(default_file), query];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Whether it is text in another encoding.
    #[must_use]
    pub fn is_text(self) -> bool {
        use FileFormat::{Utf16, Utf16Be, Utf16Le, Utf32};
        matches!(self, Utf16 | Utf16Le | Utf16Be | Utf32)
    }

    /// Whether the command writes CSV with a header, whatever the file's own form.
    #[must_use]
    pub fn becomes_csv(self) -> bool {
        use FileFormat::{ArrowFile, ArrowStream, Parquet, Sqlite};
        matches!(self, Parquet | ArrowFile | ArrowStream | Sqlite)
    }
}

/// The result of inspecting the first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// None of the formats.
    Other,
    /// Undecided: this many first bytes are needed.
    More(usize),
    /// One of them.
    Is(FileFormat),
}

/// The most bytes of UTF-16 that are inspected.
pub const TEXT_BYTES: usize = 256;

/// The first bytes of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileStart<'h> {
    /// The bytes.
    pub bytes: &'h [u8],
    /// The file has no more bytes.
    pub whole: bool,
    /// Length of the file, if known.
    pub size: Option<u64>,
    /// Its last eight bytes, if known.
    pub tail: Option<[u8; 8]>,
}

impl FileStart<'_> {
    /// Whether the file begins with `magic`; `None` if too few bytes are present to decide.
    fn begins(&self, magic: &[u8]) -> Option<bool> {
        let have = self.bytes.len().min(magic.len());
        if self.bytes[..have] != magic[..have] {
            return Some(false);
        }
        (have == magic.len() || self.whole).then_some(have == magic.len())
    }

    /// The verdict for a magic number; if it is present, the verdict of `rest`, given the bytes after it once `more`
    /// are present.
    fn after(&self, magic: &[u8], more: usize, rest: impl FnOnce(&[u8]) -> Verdict) -> Verdict {
        let needed = magic.len() + more;
        match self.begins(magic) {
            None => Verdict::More(magic.len()),
            Some(false) => Verdict::Other,
            Some(true) if self.bytes.len() < needed && !self.whole => Verdict::More(needed),
            Some(true) => rest(self.bytes.get(magic.len()..).unwrap_or_default()),
        }
    }
}

fn is(format: FileFormat, certain: bool) -> Verdict {
    if certain { Verdict::Is(format) } else { Verdict::Other }
}

/// A format identified by its magic number and the bytes after it.
struct Magic {
    format: FileFormat,
    bytes: &'static [u8],
    /// Bytes after it that are also checked.
    more: usize,
    /// Whether those bytes agree with the format.
    agree: fn(&[u8]) -> bool,
}

const fn magic(format: FileFormat, bytes: &'static [u8], more: usize, agree: fn(&[u8]) -> bool) -> Magic {
    Magic { format, bytes, more, agree }
}

const MAGICS: &[Magic] = &[
    // Deflate is the only method; the upper bits of the flags are reserved.
    magic(FileFormat::Gzip, &[0x1F, 0x8B, 8], 1, |rest| rest.first().is_some_and(|flags| flags & 0xE0 == 0)),
    // A reserved bit of the frame's descriptor is zero.
    magic(FileFormat::Zstd, ZSTD, 1, |rest| rest.first().is_some_and(|byte| byte & 8 == 0)),
    magic(FileFormat::Xz, &[0xFD, b'7', b'z', b'X', b'Z', 0], 0, |_| true),
    magic(FileFormat::Bzip2, b"BZh", 7, is_bzip2_block),
    // The version is 1, and a reserved bit zero.
    magic(FileFormat::Lz4, LZ4, 1, |rest| rest.first().is_some_and(|flags| flags & 0xC2 == 0x40)),
    magic(FileFormat::Lz4, &[2, 0x21, 0x4C, 0x18], 4, |rest| rest.len() >= 4),
    // The required version is small, and the method is a known one.
    magic(FileFormat::Zip, b"PK\x03\x04", 6, |rest| rest.len() >= 6 && rest[0] <= 63 && rest[5] == 0),
    magic(FileFormat::Zip, b"PK\x05\x06", 18, |rest| rest.len() >= 18 && rest.starts_with(&[0; 4])),
    magic(FileFormat::Zip, b"PK\x07\x08PK\x03\x04", 0, |_| true),
    magic(FileFormat::ArrowFile, b"ARROW1\0\0", 0, |_| true),
    magic(FileFormat::ArrowStream, &[0xFF; 4], 8, is_arrow_message),
    magic(FileFormat::Sqlite, b"SQLite format 3\0", 0, |_| true),
];

/// Magic numbers of frames, which may follow skippable frames.
const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
const LZ4: &[u8] = &[4, 0x22, 0x4D, 0x18];

/// The level, and the magic number of a block or of the end.
fn is_bzip2_block(rest: &[u8]) -> bool {
    let Some((level, block)) = rest.split_first() else { return false };
    let known = block.starts_with(&[0x31, 0x41, 0x59, 0x26, 0x53, 0x59])
        || block.starts_with(&[0x17, 0x72, 0x45, 0x38, 0x50, 0x90]);
    (b'1'..=b'9').contains(level) && known
}

/// Skippable frames begin alike in zstd and LZ4; the bytes after them distinguish the two.
fn skippable(head: &FileStart<'_>) -> Verdict {
    const LONGEST: usize = 64 << 10;
    let mut at = 0;
    loop {
        let rest = head.bytes.get(at..).unwrap_or_default();
        let frame = rest.first().is_some_and(|first| first & 0xF0 == 0x50);
        let magic = [rest.first().copied().unwrap_or(0x50), 0x2A, 0x4D, 0x18];
        let here = FileStart { bytes: rest, whole: head.whole, size: None, tail: None };
        if at > 0 && here.begins(ZSTD) == Some(true) {
            return Verdict::Is(FileFormat::Zstd);
        }
        if at > 0 && here.begins(LZ4) == Some(true) {
            return Verdict::Is(FileFormat::Lz4);
        }
        if here.begins(&magic) != Some(true) || !frame {
            let undecided = rest.len() < 4 && !head.whole && (at > 0 || frame || rest.is_empty());
            return if undecided { Verdict::More(at + 4) } else { Verdict::Other };
        }
        let Some(&[a, b, c, d]) = rest.get(4..8) else {
            return if head.whole { Verdict::Other } else { Verdict::More(at + 8) };
        };
        let next = at.saturating_add(8).saturating_add(u32::from_le_bytes([a, b, c, d]) as usize);
        if next > LONGEST {
            // The magic number contains a control character: it is not text, whatever follows.
            return Verdict::Is(FileFormat::Zstd);
        }
        if head.bytes.len() < next + 4 && !head.whole {
            return Verdict::More(next + 4);
        }
        if head.bytes.len() == next {
            return Verdict::Is(FileFormat::Zstd);
        }
        at = next;
    }
}

/// The magic number is at both ends; if the input is a pipe, the first page must begin as pages do.
fn parquet(head: &FileStart<'_>) -> Verdict {
    for magic in [b"PAR1", b"PARE"] {
        let verdict = head.after(magic, 1, |rest| {
            let certain = match head.tail {
                // The length of the footer is before the magic number.
                Some([a, b, c, d, end @ ..]) => {
                    let footer = u64::from(u32::from_le_bytes([a, b, c, d]));
                    end == *magic && head.size.is_some_and(|size| footer + 12 <= size)
                }
                None if head.size.is_some() => false,
                None => rest.first() == Some(&0x15),
            };
            is(FileFormat::Parquet, certain)
        });
        if verdict != Verdict::Other {
            return verdict;
        }
    }
    Verdict::Other
}

/// The length of the metadata, and its first table: within it, and correctly aligned.
fn is_arrow_message(rest: &[u8]) -> bool {
    let word = |at: usize| rest.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    match (word(0), word(4)) {
        (Some(length), Some(root)) => {
            length % 8 == 0 && (16..1 << 30).contains(&length) && root < length && root >= 4
        }
        _ => false,
    }
}

/// A byte order mark, and text after it.
fn utf(head: &FileStart<'_>) -> Verdict {
    match head.bytes {
        [] if !head.whole => Verdict::More(1),
        [0xFF | 0xFE] | [0xFF, 0xFE] | [0xFE, 0xFF] if !head.whole => Verdict::More(TEXT_BYTES),
        [0, ..] | [0xFF, 0xFE, 0, 0, ..] if head.begins(&[0, 0, 0xFE, 0xFF]).is_none() => Verdict::More(4),
        [0, 0, 0xFE, 0xFF, ..] => is(FileFormat::Utf32, head.size.is_none_or(|size| size % 4 == 0)),
        [0xFF, 0xFE, 0, 0, ..] => is(FileFormat::Utf32, head.size.is_none_or(|size| size % 4 == 0)),
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] if head.bytes.len() < TEXT_BYTES && !head.whole => {
            Verdict::More(TEXT_BYTES)
        }
        [0xFF, 0xFE, text @ ..] => is(FileFormat::Utf16, is_utf16(head, text, u16::from_le_bytes)),
        [0xFE, 0xFF, text @ ..] => is(FileFormat::Utf16, is_utf16(head, text, u16::from_be_bytes)),
        _ => Verdict::Other,
    }
}

/// Whether `text`, after a mark, consists of UTF-16 characters that a text may hold.
fn is_utf16(head: &FileStart<'_>, text: &[u8], unit: fn([u8; 2]) -> u16) -> bool {
    let even = match head.size {
        Some(size) => size % 2 == 0,
        None => !head.whole || text.len().is_multiple_of(2),
    };
    let (units, _) = text[..text.len().min(TEXT_BYTES)].as_chunks::<2>();
    let mut units: Vec<u16> = units.iter().map(|bytes| unit(*bytes)).collect();
    // The second half of a pair may lie beyond the inspected bytes.
    if units.last().is_some_and(|last| (0xD800..0xDC00).contains(last)) && text.len() >= TEXT_BYTES - 2 {
        units.pop();
    }
    let is_text = |unit: &u16| *unit >= 32 || (9..=13).contains(unit);
    let paired = char::decode_utf16(units.iter().copied()).all(|char| char.is_ok());
    even && !units.is_empty() && units.iter().all(is_text) && paired
}

/// ASCII characters with a zero byte beside each.
fn utf16_without_mark(head: &FileStart<'_>) -> Verdict {
    const UNITS: usize = 32;
    let is_text = |byte: u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
    let pairs = head.bytes[..head.bytes.len().min(2 * UNITS)].as_chunks::<2>().0;
    for (format, zero) in [(FileFormat::Utf16Le, 1), (FileFormat::Utf16Be, 0)] {
        if !pairs.is_empty() && pairs.iter().all(|pair| pair[zero] == 0 && is_text(pair[1 - zero])) {
            return match pairs.len() {
                UNITS => Verdict::Is(format),
                _ if head.whole => Verdict::Other,
                _ => Verdict::More(2 * UNITS),
            };
        }
    }
    let undecided = !head.whole && matches!(head.bytes, [byte] if *byte == 0 || is_text(*byte));
    if undecided { Verdict::More(2) } else { Verdict::Other }
}

/// The verdict on the file that begins with `head`.
#[must_use]
pub fn verdict(head: &FileStart<'_>) -> Verdict {
    let by_magic = MAGICS
        .iter()
        .map(|magic| head.after(magic.bytes, magic.more, |rest| is(magic.format, (magic.agree)(rest))));
    let others = [skippable, parquet, utf, utf16_without_mark].into_iter().map(|check| check(head));
    let mut more = None;
    for verdict in by_magic.chain(others) {
        match verdict {
            Verdict::Is(format) => return Verdict::Is(format),
            Verdict::More(bytes) => more = Some(more.unwrap_or(bytes).min(bytes)),
            Verdict::Other => {}
        }
    }
    more.map_or(Verdict::Other, Verdict::More)
}

#[cfg(test)]
#[path = "file_format_tests.rs"]
mod tests;
