//! The keys against the sort command itself.
//!
//! Thousands of random option sets, each with lines from an alphabet that provokes its corner cases, are sorted
//! by the installed GNU sort in the C locale and by the keys; the outputs must be the same bytes. With `-s` that
//! shows which keys are equal, not only how they are ordered. GNU sort has to be installed: nothing is skipped.
//!
//! Three things it does by accident are left out: it compares two not-a-numbers (`-g`) by bytes it has never
//! set, so that their order depends on that of the input; it takes the byte 80 for a thousands separator (`-n`,
//! `-h`); and an offset near 2^64 makes it read before the line.

#![expect(clippy::expect_used, reason = "a test that cannot run its oracle has to fail")]

use ascot_record::keys::{
    Compiled, KeyDef, KeyError, KeyFlags, KeyOptions, LastResort, compile, parse_separator,
};
use ascot_record::order::WriteKey;
use std::cmp::Ordering;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// How many option sets are tried.
const CASES: u64 = 4_000;

/// A generator of random numbers (splitmix64): the cases are the same in every run. This crate stands on no other, and
/// so does not have that of `ascot-model`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn pick<'t, T: ?Sized>(&mut self, choices: &[&'t T]) -> &'t T {
        choices[self.below(choices.len())]
    }
}

/// One call of the sort command.
#[derive(Debug, Default)]
struct Case {
    arguments: Vec<String>,
    lines: Vec<Vec<u8>>,
}

/// Orders that can be combined; the first letter decides which alphabet suits.
const ORDERS: [&str; 16] =
    ["", "n", "g", "h", "M", "V", "d", "f", "i", "df", "fi", "nf", "hf", "Vd", "Vfi", "Vf"];

fn order(random: &mut Random) -> String {
    let mut letters = random.pick(&ORDERS).to_owned();
    if random.one_in(3) {
        letters.push('r');
    }
    if random.one_in(4) {
        letters.push('b');
    }
    letters
}

fn key_text(random: &mut Random) -> String {
    let mut text = (1 + random.below(4)).to_string();
    if random.one_in(3) {
        text += &format!(".{}", 1 + random.below(4));
    }
    if random.one_in(2) {
        text += &order(random);
    }
    if random.one_in(3) {
        return text;
    }
    text += &format!(",{}", 1 + random.below(4));
    if random.one_in(3) {
        text += &format!(".{}", random.below(5));
    }
    if random.one_in(4) {
        text += random.pick(&["b", "r", "br"]);
    }
    text
}

/// Pieces of which lines are made, by what they try.
const ALPHABETS: [&[&[u8]]; 7] = [
    &[b"a", b"b", b"A", b"B", b"-", b"~", b" ", b"  ", b"\t", b",", b"\x01", b"\x00", b"\xff", b"1", b"."],
    &[
        b"0",
        b"1",
        b"2",
        b"9",
        b"00",
        b"10",
        b".",
        b"-",
        b" ",
        b",",
        b"+",
        b"e",
        b"\t",
        b"123456789012345678901",
    ],
    &[
        b"0",
        b"1",
        b"5",
        b".",
        b"-",
        b"+",
        b"e",
        b"E",
        b"0x",
        b"p",
        b"a",
        b"F",
        b"inf",
        b"infinity",
        b"(1)",
        b" ",
        b",",
        b"\x0b",
        b"18446744073709551617",
        b"e-49",
        b"e49",
    ],
    &[
        b"0", b"1", b"9", b"10", b".", b"-", b"k", b"K", b"M", b"m", b"G", b"T", b"P", b"E", b"Z", b"Y",
        b"R", b"Q", b" ", b",",
    ],
    &[
        b"jan", b"FEB", b"Mar", b"apr", b"may", b"Jun", b"jUl", b"aug", b"sep", b"oct", b"nov", b"dec",
        b"ja", b" ", b",", b"1",
    ],
    &[
        b"a", b"b", b"Z", b"1", b"2", b"0", b"10", b"09", b"~", b".", b"..", b"-", b"_", b".tar", b".gz",
        b"+", b" ", b",",
    ],
    &[b" ", b"\t", b",", b"x", b"y", b"  ", b",,", b"1"],
];

fn line(random: &mut Random, alphabet: &[&[u8]], delimiter: u8) -> Vec<u8> {
    let mut line = Vec::new();
    for _ in 0..random.below(9) {
        line.extend_from_slice(random.pick(alphabet));
    }
    line.retain(|&byte| byte != delimiter);
    line
}

fn case(random: &mut Random) -> Case {
    let mut case = Case::default();
    if random.one_in(2) {
        let letters = order(random);
        if !letters.is_empty() {
            case.arguments.push(format!("-{letters}"));
        }
    }
    for _ in 0..random.below(4) {
        case.arguments.push(format!("-k{}", key_text(random)));
    }
    if random.one_in(2) {
        case.arguments.push(format!("-t{}", random.pick(&[",", " ", "\t", "1", "a", "\\0"])));
    }
    for letter in ["-s", "-s", "-u", "-z"] {
        if random.one_in(4) {
            case.arguments.push(letter.to_owned());
        }
    }
    let delimiter = if case.arguments.iter().any(|argument| argument == "-z") { 0 } else { b'\n' };
    let mut alphabet = random.pick(&ALPHABETS).to_vec();
    if delimiter == 0 {
        alphabet.push(b"\n");
    }
    for _ in 0..10 + random.below(40) {
        case.lines.push(line(random, &alphabet, delimiter));
    }
    case
}

/// The arguments as this crate takes them.
#[derive(Debug, Default)]
struct Request {
    options: KeyOptions,
    stable: bool,
    unique: bool,
}

fn request(arguments: &[String]) -> Result<Request, KeyError> {
    let mut request = Request::default();
    for argument in arguments {
        match argument.split_at(2) {
            ("-k", text) => request.options.keys.push(KeyDef::parse(text)?),
            ("-t", text) => request.options.separator = Some(parse_separator(text.as_bytes())?),
            ("-s", _) => request.stable = true,
            ("-u", _) => request.unique = true,
            ("-z", _) => request.options.delimiter = 0,
            _ => {
                for letter in argument.chars().skip(1) {
                    assert!(request.options.global.set(letter), "{argument}");
                }
            }
        }
    }
    Ok(request)
}

fn in_direction(order: Ordering, reverse: bool) -> Ordering {
    if reverse { order.reverse() } else { order }
}

/// What the command should print, by the keys.
fn sort_by_keys(lines: &[Vec<u8>], request: &Request) -> Result<Vec<u8>, KeyError> {
    let mut keyed: Vec<(Vec<u8>, &Vec<u8>)> = Vec::new();
    let compiled = compile(&request.options)?;
    for line in lines {
        let mut key = Vec::new();
        match &compiled {
            Compiled::WholeBody { .. } => key.extend_from_slice(line),
            Compiled::Program(program) => program.write_key(line, &mut key),
        }
        keyed.push((key, line));
    }
    let reverse = matches!(compiled, Compiled::WholeBody { reverse: true });
    let last_resort = request.options.last_resort(request.stable, request.unique);
    keyed.sort_by(|a, b| {
        in_direction(a.0.cmp(&b.0), reverse).then_with(|| match last_resort {
            LastResort::None => Ordering::Equal,
            LastResort::Bytes => a.1.cmp(b.1),
            LastResort::BytesReversed => b.1.cmp(a.1),
        })
    });
    if request.unique {
        keyed.dedup_by(|later, first| later.0 == first.0);
    }
    Ok(keyed.iter().flat_map(|(_, line)| [line.as_slice(), &[request.options.delimiter]].concat()).collect())
}

fn gnu_sort(arguments: &[String], input: &Path) -> Output {
    // `-k` or `-t` alone would take the next word for its argument: the empty one has to be a word of its own.
    let split = |word: &String| match word.as_str() {
        "-k" | "-t" => vec![word.clone(), String::new()],
        _ => vec![word.clone()],
    };
    let arguments = arguments.iter().flat_map(split);
    let mut command = Command::new("sort");
    command.env_clear().env("LC_ALL", "C").env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.arg("--parallel=1").args(arguments).arg(input).output().expect("GNU sort has to be installed")
}

#[track_caller]
fn check(case: &Case, input: &Path) {
    let request = request(&case.arguments);
    let delimiter = request.as_ref().map_or(b'\n', |request| request.options.delimiter);
    let text: Vec<u8> = case.lines.iter().flat_map(|line| [line.as_slice(), &[delimiter]].concat()).collect();
    fs::write(input, text).expect("write the lines");
    let theirs = gnu_sort(&case.arguments, input);
    match request.and_then(|request| sort_by_keys(&case.lines, &request)) {
        Ok(ours) => {
            assert!(theirs.status.success() && ours == theirs.stdout, "{}", difference(case, &ours, &theirs))
        }
        Err(error) => {
            let message = String::from_utf8_lossy(&theirs.stderr);
            assert_eq!(message.trim_end(), format!("sort: {error}"), "{:?}", case.arguments);
        }
    }
}

fn difference(case: &Case, ours: &[u8], theirs: &Output) -> String {
    let lines = |text: &[u8]| text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (ours, expected) = (lines(ours), lines(&theirs.stdout));
    let first = ours.iter().zip(&expected).take_while(|(a, b)| a == b).count();
    let show =
        |lines: &[Vec<u8>]| lines.iter().skip(first).take(3).map(|l| l.escape_ascii().to_string()).collect();
    let (ours, expected): (Vec<String>, Vec<String>) = (show(&ours), show(&expected));
    let message = String::from_utf8_lossy(&theirs.stderr);
    format!("sort {:?}, from line {first}:\nkeys: {ours:?}\nsort: {expected:?} {message}", case.arguments)
}

fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("ascot-keys-{name}-{}", std::process::id()))
}

fn check_cases(name: &str, seed: u64) {
    let input = scratch(name);
    let mut random = Random(seed);
    for _ in 0..CASES / 2 {
        check(&case(&mut random), &input);
    }
    fs::remove_file(&input).expect("remove the lines");
}

#[test]
fn random_options_and_lines_first_half() {
    check_cases("first", 1);
}

#[test]
fn random_options_and_lines_second_half() {
    check_cases("second", 2);
}

/// Sorts all of `values` under each of the `options`.
fn check_values(name: &str, options: &[&str], values: &[Vec<u8>]) {
    let input = scratch(name);
    for option in options {
        let arguments = vec![(*option).to_owned(), "-s".to_owned()];
        check(&Case { arguments, lines: values.to_vec() }, &input);
    }
    fs::remove_file(&input).expect("remove the lines");
}

#[test]
fn numbers_near_ties_and_limits() {
    let mut random = Random(3);
    let mut values: Vec<Vec<u8>> = Vec::new();
    let mut add = |text: String| values.push(text.into_bytes());
    for _ in 0..3_000 {
        let digits: String =
            (0..1 + random.below(45)).map(|_| char::from(b'0' + random.below(10) as u8)).collect();
        let (whole, fraction) = digits.split_at(random.below(digits.len()));
        let sign = random.pick(&["", "-", "+"]);
        let exponent = random.below(80) as i64 - 40;
        add(format!("{sign}{whole}.{fraction}e{exponent}"));
    }
    for exponent in (-4_975..-4_920).chain(4_900..4_945) {
        let digits = random.next();
        add(format!("{digits}e{}", exponent - 19));
        add(format!("-0.{digits}e{exponent}"));
        add(format!("0x{digits:x}p{}", exponent * 10 / 3));
        add(format!("0x{digits:x}.{digits:x}p{}", exponent * 332 / 100));
    }
    // Integers around 2^64 and 2^65, where neighbouring values lie 1, 2 and 4 apart; halves are ties.
    for base in [1u128 << 63, 1 << 64, 1 << 65, 3 << 64] {
        for near in base - 12..base + 13 {
            for tail in [
                "",
                ".5",
                ".25",
                ".49999999999999999999999999",
                ".50000000000000000000000000001",
                "e-30",
                "e300",
            ] {
                add(format!("{near}{tail}"));
            }
            add(format!("0x{near:x}.8"));
            add(format!("0x{near:x}.80000000000000000000000000000001p-3"));
        }
    }
    add("nan".to_owned());
    check_values("numbers", &["-g", "-n", "-h", "-V", "-gr"], &values);
}

#[test]
fn every_byte_in_every_order() {
    let mut values: Vec<Vec<u8>> = Vec::new();
    for byte in (0..=255).filter(|byte| !matches!(byte, b'\n' | 0x80)) {
        for pattern in
            [&b"?"[..], b"?a", b"a?b", b"1?", b"1?2", b"-?1", b"a.?", b".?", b"??", b"5.?K", b"jan?", b"1e?5"]
        {
            values.push(pattern.iter().map(|&c| if c == b'?' { byte } else { c }).collect());
        }
    }
    let options = [
        "-k1",
        "-d",
        "-f",
        "-i",
        "-df",
        "-n",
        "-g",
        "-h",
        "-hf",
        "-M",
        "-V",
        "-Vd",
        "-Vi",
        "-b",
        "-k1.2b,1.3",
    ];
    check_values("bytes", &options, &values);
}

#[test]
fn refusals_are_the_commands_own() {
    let input = scratch("refusals");
    for argument in [
        "-k",
        "-k0",
        "-kx",
        "-k1.0",
        "-k1.x",
        "-k1,0",
        "-k1,",
        "-k1,x",
        "-k1,2.",
        "-k1x",
        "-k1,2x",
        "-k1n,2.3z",
        "-k-1",
        "-k1nM",
        "-k1gh",
        "-k1dn",
        "-k1,1iM",
        "-k1Vh",
        "-k1bfnMr",
        "-k1idng",
        "-k1Vg",
        "-nM",
        "-dih",
        "-fVn",
        "-t",
        "-tab",
    ] {
        let case = Case { arguments: vec![argument.to_owned(), "-s".to_owned()], lines: vec![b"a".to_vec()] };
        check(&case, &input);
    }
    for argument in ["-k 1", "-k+2", "-k1,1.0", "-k1Vd", "-k99999999999999999999", "-t\\0"] {
        check(
            &Case { arguments: vec![argument.to_owned()], lines: vec![b"b a".to_vec(), b"a b".to_vec()] },
            &input,
        );
    }
    fs::remove_file(&input).expect("remove the lines");
}

#[test]
fn flags_default_to_byte_order() {
    let request = Request::default();
    assert_eq!(compile(&request.options), Ok(Compiled::WholeBody { reverse: false }));
    let reverse =
        KeyOptions { global: KeyFlags { reverse: true, ..KeyFlags::default() }, ..KeyOptions::default() };
    assert_eq!(compile(&reverse), Ok(Compiled::WholeBody { reverse: true }));
    assert_eq!(reverse.last_resort(false, false), LastResort::None);
}
