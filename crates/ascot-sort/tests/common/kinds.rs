//! Kinds of records: how one is made of a number, and what orders two of them, told independently of
//! the library's own keys.

use std::cmp::Ordering;

use ascot_record::keys::{ByteRangeKey, CsvColumn, CsvKeySpec, CsvType, KeyDef, KeyFlags, KeyOptions, Salt};
use ascot_record::layout::{Endian, Layout, NumberFormat, NumberType};
use ascot_sort::Keys;

use super::Random;

/// Order of two records as framed, terminators and lengths included.
pub type Order = Box<dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync>;

/// Appends the record of a key and a serial number.
pub type Make = dyn Fn(u64, u64, &mut Vec<u8>) + Send + Sync;

/// A kind of records.
pub struct Kind {
    pub name: String,
    pub layout: Layout,
    pub keys: Keys,
    pub header: Option<&'static [u8]>,
    /// Appends a record: most of its order from the first number, its bulk from the second.
    pub make: Box<Make>,
    /// Order of the keys.
    pub order: Order,
    /// Whether records of equal keys are ordered by their bytes.
    pub last_resort: bool,
    /// How.
    pub tie_break: Order,
}

fn kind(name: impl Into<String>, layout: Layout, keys: Keys, order: Order) -> Kind {
    let make = Box::new(|_, _, _: &mut Vec<u8>| ());
    let tie_break: Order = Box::new(|a, b| body(a).cmp(body(b)));
    Kind { name: name.into(), layout, keys, header: None, make, order, last_resort: false, tie_break }
}

/// A line without its end, whatever byte that is.
fn body(line: &[u8]) -> &[u8] {
    line.split_last().map_or(line, |(_, body)| body)
}

fn filler(serial: u64, most: u64, out: &mut Vec<u8>) {
    let mut random = Random::new(serial);
    let len = random.below(most);
    out.extend((0..len).map(|_| b'a' + random.below(26) as u8));
}

/// Whole lines; `reverse` is the sort command's `-r`.
pub fn lines(reverse: bool) -> Kind {
    let global = KeyFlags { reverse, ..KeyFlags::default() };
    let keys = Keys::Command(KeyOptions { global, ..KeyOptions::default() });
    let turn = move |order: Ordering| if reverse { order.reverse() } else { order };
    let order: Order = Box::new(move |a, b| turn(body(a).cmp(body(b))));
    let make = |key: u64, serial: u64, out: &mut Vec<u8>| {
        out.extend_from_slice(format!("{key:016x}").as_bytes());
        if serial.is_multiple_of(3) {
            filler(serial, 120, out);
        }
        out.push(b'\n');
    };
    let name = if reverse { "lines -r" } else { "lines" };
    Kind { make: Box::new(make), ..kind(name, Layout::LINES, keys, order) }
}

/// Lines that end with NUL and hold newlines.
pub fn lines_nul() -> Kind {
    let keys = Keys::Command(KeyOptions { delimiter: 0, ..KeyOptions::default() });
    let make = |key: u64, serial: u64, out: &mut Vec<u8>| {
        // Neither part has a zero byte.
        out.extend(key.to_be_bytes().map(|byte| byte | 1));
        out.push(b'\n');
        filler(serial, 50, out);
        out.push(0);
    };
    let order: Order = Box::new(|a, b| body(a).cmp(body(b)));
    Kind { make: Box::new(make), ..kind("lines -z", Layout::Lines { delimiter: 0 }, keys, order) }
}

fn field(line: &[u8], number: usize, separator: u8) -> &[u8] {
    body(line).split(|&byte| byte == separator).nth(number - 1).unwrap_or_default()
}

fn number(text: &[u8]) -> i64 {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

/// Lines of `serial,number,text` by `-t, -k2,2n -k3,3r`.
pub fn lines_by_fields(reverse: bool) -> Kind {
    let keys = ["2,2n", "3,3r"].map(|text| KeyDef::parse(text).unwrap()).to_vec();
    let global = KeyFlags { reverse, ..KeyFlags::default() };
    let keys = Keys::Command(KeyOptions {
        keys,
        global,
        separator: Some(b','),
        delimiter: b'\n',
        salt: Salt::default(),
    });
    let order: Order = Box::new(|a, b| {
        let by_number = number(field(a, 2, b',')).cmp(&number(field(b, 2, b',')));
        by_number.then_with(|| field(b, 3, b',').cmp(field(a, 3, b',')))
    });
    let make = |key: u64, serial: u64, out: &mut Vec<u8>| {
        let value = key as i64 >> 8;
        out.extend_from_slice(format!("{:x},{value},{:x}", serial % 1000, key % 5).as_bytes());
        out.push(b',');
        filler(serial, 60, out);
        out.push(b'\n');
    };
    // `-r` turns the last resort round, and keys without flags of their own: there are none here.
    let tie_break: Order =
        Box::new(move |a, b| if reverse { body(b).cmp(body(a)) } else { body(a).cmp(body(b)) });
    let name = if reverse { "lines -t, -k2,2n -k3,3r -r" } else { "lines -t, -k2,2n -k3,3r" };
    Kind { make: Box::new(make), last_resort: true, tie_break, ..kind(name, Layout::LINES, keys, order) }
}

/// CSV with a header, quoted newlines and separators: `tenant`, then `t,s` as a number, largest first
/// (both turned round where `descending`).
pub fn csv(descending: bool) -> Kind {
    let column = |name: &str, kind, descending| CsvKeySpec {
        column: CsvColumn::Name(name.into()),
        descending,
        kind: Some(kind),
        nulls_first: false,
        nulls: Vec::new(),
    };
    let keys = Keys::Columns(vec![
        column("tenant", CsvType::Text, descending),
        column("t,s", CsvType::Number, !descending),
    ]);
    let order: Order = Box::new(move |a, b| {
        let (a, b) = (csv_fields(a), csv_fields(b));
        let tenants = a[1].cmp(&b[1]);
        let times = number(&b[3]).cmp(&number(&a[3]));
        let order = tenants.then(times);
        if descending { order.reverse() } else { order }
    });
    let make = |key: u64, serial: u64, out: &mut Vec<u8>| {
        let (tenant, time) = (key >> 40, key as i64 % 1_000_000);
        out.extend_from_slice(format!("{serial},").as_bytes());
        match serial % 4 {
            0 => out.extend_from_slice(format!("\"t{tenant:x}\"").as_bytes()),
            1 => out.extend_from_slice(format!("\"t{tenant:x}, \"\"q\"\"\n\"").as_bytes()),
            _ => out.extend_from_slice(format!("t{tenant:x}").as_bytes()),
        }
        out.extend_from_slice(b",\"note\n");
        filler(serial, 300, out);
        out.extend_from_slice(format!(",\",{time}").as_bytes());
        out.extend_from_slice(if serial.is_multiple_of(5) { b"\r\n" } else { b"\n" });
    };
    let layout = Layout::Csv { separator: b',', quote: b'"' };
    let name = if descending { "csv desc" } else { "csv" };
    let header: &[u8] = b"id,tenant,note,\"t,s\"\n";
    Kind { header: Some(header), make: Box::new(make), ..kind(name, layout, keys, order) }
}

fn csv_fields(row: &[u8]) -> Vec<Vec<u8>> {
    let row = row.strip_suffix(b"\n").unwrap_or(row);
    let row = row.strip_suffix(b"\r").unwrap_or(row);
    let (mut fields, mut quoted, mut at) = (vec![Vec::new()], false, 0);
    while at < row.len() {
        let doubled = quoted && row[at..].starts_with(b"\"\"");
        match row[at] {
            b'"' if doubled => {
                fields.last_mut().unwrap().push(b'"');
                at += 1;
            }
            b'"' => quoted = !quoted,
            b',' if !quoted => fields.push(Vec::new()),
            byte => fields.last_mut().unwrap().push(byte),
        }
        at += 1;
    }
    fields
}

fn by_ranges(ranges: &[ByteRangeKey], skip: usize) -> Order {
    let ranges = ranges.to_vec();
    Box::new(move |a, b| {
        let whole = [ByteRangeKey { start: 0, end: usize::MAX, descending: false }];
        let ranges = if ranges.is_empty() { &whole[..] } else { &ranges[..] };
        let mut orders = ranges.iter().map(|range| {
            let part = |body: &'_ [u8]| range.start.min(body.len())..range.end.min(body.len());
            let (a, b) = (&a[skip..], &b[skip..]);
            let order = a[part(a)].cmp(&b[part(b)]);
            if range.descending { order.reverse() } else { order }
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    })
}

/// Records of `len` bytes by ranges: `start..end`, whether descending.
pub fn fixed(len: usize, ranges: &[(usize, usize, bool)]) -> Kind {
    let ranges: Vec<ByteRangeKey> =
        ranges.iter().map(|&(start, end, descending)| ByteRangeKey { start, end, descending }).collect();
    let order = by_ranges(&ranges, 0);
    let make = move |key: u64, serial: u64, out: &mut Vec<u8>| {
        let start = out.len();
        out.extend_from_slice(&key.to_be_bytes());
        let mut random = Random::new(serial);
        while out.len() < start + len {
            out.extend_from_slice(&random.next().to_be_bytes());
        }
        // Key bytes behind the prefix tie often.
        if let Some(byte) = out.get_mut(start + 8) {
            *byte &= 3;
        }
        out.truncate(start + len);
    };
    let name = format!(
        "fixed:{len} {:?}",
        ranges.iter().map(|r| (r.start, r.end, r.descending)).collect::<Vec<_>>()
    );
    Kind { make: Box::new(make), ..kind(name, Layout::Fixed { len }, Keys::Ranges(ranges), order) }
}

/// Length-prefixed records by ranges of their bodies; bodies are shorter than the ranges at times.
pub fn prefixed(width: u8, endian: Endian, ranges: &[(usize, usize, bool)]) -> Kind {
    let ranges: Vec<ByteRangeKey> =
        ranges.iter().map(|&(start, end, descending)| ByteRangeKey { start, end, descending }).collect();
    let order = by_ranges(&ranges, usize::from(width));
    let layout = Layout::Prefixed { width, endian, keyed: false };
    // A record that ends before its key does is an error.
    let reach = |range: &ByteRangeKey| if range.end == usize::MAX { range.start } else { range.end };
    let least = ranges.iter().map(reach).max().unwrap_or(0);
    let make = move |key: u64, serial: u64, out: &mut Vec<u8>| {
        let mut record = key.to_be_bytes().to_vec();
        record.truncate(if serial % 50 == 7 { (serial % 9) as usize } else { 8 });
        if record.len() == 8 {
            filler(serial, if width == 1 { 200 } else { 300 }, &mut record);
        }
        record.resize(record.len().max(least), b'+');
        let len = (record.len() as u64).to_be_bytes();
        let len = &len[8 - usize::from(width)..];
        match endian {
            Endian::Big => out.extend_from_slice(len),
            Endian::Little => out.extend(len.iter().rev()),
        }
        out.extend_from_slice(&record);
    };
    let name =
        format!("{layout} {:?}", ranges.iter().map(|r| (r.start, r.end, r.descending)).collect::<Vec<_>>());
    Kind { make: Box::new(make), ..kind(name, layout, Keys::Ranges(ranges), order) }
}

/// Length-prefixed records that state the length of their key. Keys are short at times, and may be empty.
pub fn keyed(endian: Endian) -> Kind {
    const WIDTH: usize = 4;
    let layout = Layout::Prefixed { width: WIDTH as u8, endian, keyed: true };
    let number = move |bytes: &[u8]| match endian {
        Endian::Big => bytes.iter().fold(0, |value, &byte| value << 8 | usize::from(byte)),
        Endian::Little => bytes.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)),
    };
    let key = move |record: &[u8]| {
        let len = number(&record[WIDTH..2 * WIDTH]);
        record[2 * WIDTH..2 * WIDTH + len].to_vec()
    };
    let order: Order = Box::new(move |a, b| key(a).cmp(&key(b)));
    let make = move |key: u64, serial: u64, out: &mut Vec<u8>| {
        let key = &key.to_be_bytes()[..8 - (serial % 9) as usize];
        let mut rest = Vec::new();
        filler(serial, 100, &mut rest);
        for len in [WIDTH + key.len() + rest.len(), key.len()] {
            match endian {
                Endian::Big => out.extend((len as u32).to_be_bytes()),
                Endian::Little => out.extend((len as u32).to_le_bytes()),
            }
        }
        out.extend_from_slice(key);
        out.extend_from_slice(&rest);
    };
    Kind { make: Box::new(make), ..kind(layout.to_string(), layout, Keys::Ranges(Vec::new()), order) }
}

/// Bare numbers.
pub fn numbers(format: NumberFormat, descending: bool) -> Kind {
    let NumberFormat { kind: which, endian } = format;
    let order: Order = Box::new(move |a, b| {
        let bits = |bytes: &[u8]| match endian {
            Endian::Big => bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)),
            Endian::Little => bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
        };
        let (a, b) = (bits(a), bits(b));
        let order = match which {
            NumberType::U32 | NumberType::U64 => a.cmp(&b),
            NumberType::I32 => (a as i32).cmp(&(b as i32)),
            NumberType::F32 => f32::from_bits(a as u32).total_cmp(&f32::from_bits(b as u32)),
            NumberType::I64 => (a as i64).cmp(&(b as i64)),
            NumberType::F64 => f64::from_bits(a).total_cmp(&f64::from_bits(b)),
        };
        if descending { order.reverse() } else { order }
    });
    let make = move |key: u64, _: u64, out: &mut Vec<u8>| {
        let mut bytes = key.to_be_bytes()[..which.width()].to_vec();
        if endian == Endian::Little {
            bytes.reverse();
        }
        out.extend_from_slice(&bytes);
    };
    let layout = Layout::Number(format);
    let name = format!("{layout}{}", if descending { " descending" } else { "" });
    Kind { make: Box::new(make), ..kind(name, layout, Keys::Value { descending }, order) }
}

/// Every format of numbers.
pub fn number_formats() -> Vec<NumberFormat> {
    let endians = [Endian::Little, Endian::Big];
    let kinds = [
        NumberType::U32,
        NumberType::U64,
        NumberType::I32,
        NumberType::I64,
        NumberType::F32,
        NumberType::F64,
    ];
    kinds.into_iter().flat_map(|kind| endians.map(|endian| NumberFormat { kind, endian })).collect()
}

/// Every kind of lines and CSV.
pub fn text_kinds() -> Vec<Kind> {
    vec![
        lines(false),
        lines(true),
        lines_nul(),
        lines_by_fields(false),
        lines_by_fields(true),
        csv(false),
        csv(true),
    ]
}

/// Every kind of fixed and length-prefixed records.
pub fn binary_kinds() -> Vec<Kind> {
    let (little, big) = (Endian::Little, Endian::Big);
    vec![
        fixed(100, &[(0, 10, false)]),
        fixed(100, &[(0, 10, true)]),
        fixed(7, &[]),
        fixed(24, &[(4, 12, true), (0, 4, false)]),
        fixed(5000, &[(0, 9, false)]),
        prefixed(1, little, &[(0, 8, false)]),
        prefixed(2, big, &[(0, 8, true)]),
        prefixed(4, little, &[(2, 12, false)]),
        prefixed(2, little, &[]),
        prefixed(4, big, &[(0, 4, true), (4, 9, false)]),
        keyed(little),
        keyed(big),
    ]
}

/// Every kind of numbers, some of them descending.
pub fn number_kinds() -> Vec<Kind> {
    let formats = number_formats();
    let mut kinds: Vec<Kind> = formats.iter().map(|&format| numbers(format, false)).collect();
    kinds.extend(formats.iter().step_by(3).map(|&format| numbers(format, true)));
    kinds
}
