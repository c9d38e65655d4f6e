//! Command lines and their requests.

use std::ffi::OsString;
use std::path::PathBuf;

use ascot_io::Compression;
use ascot_record::keys::Salt;
use ascot_record::layout::Layout;
use ascot_sort::request::{Input, Keys, Method, Output, SortRequest};

use super::*;

/// Parses a command line; spaces separate words, `_` stands for a space.
fn parse(line: &str) -> Result<SortRequest, String> {
    let root = crate::flags::root();
    let words =
        line.split(' ').filter(|word| !word.is_empty()).map(|word| OsString::from(word.replace('_', " ")));
    let words = crate::arguments::rewritten(words, root.find_subcommand("sort").unwrap());
    let all = ["ascot", "sort"].into_iter().map(OsString::from).chain(words);
    let matches = root.try_get_matches_from(all).map_err(|error| error.to_string())?;
    let (_, matches) = matches.subcommand().unwrap();
    let mode = mode(matches).map_err(|failure| failure.to_string())?;
    sort_request(matches, mode).map_err(|failure| failure.to_string())
}

fn good(line: &str) -> SortRequest {
    parse(line).unwrap_or_else(|message| panic!("{line}: {message}"))
}

fn refused(line: &str, words: &str) {
    let message = parse(line).expect_err(line);
    assert!(message.contains(words), "{line}: {message}");
    assert!(message.lines().count() >= 2, "{line} lacks advice: {message}");
    assert!(message.lines().skip(1).all(|more| more.starts_with("  ")), "{line}: {message}");
}

fn command_keys(request: &SortRequest) -> &ascot_record::keys::KeyOptions {
    match &request.keys {
        Keys::Command(options) => options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_said_sorts_lines_of_standard_input() {
    let request = good("");
    assert_eq!(request.inputs, [Input::Stdin]);
    assert_eq!(request.output, Output::Stdout);
    assert_eq!(request.layout, Layout::LINES);
    assert!(command_keys(&request).keys.is_empty());
    assert!(!(request.unique || request.stable || request.merge_only || request.header));
    assert_eq!((request.method, request.compression), (Method::Auto, Compression::Auto));
}

#[test]
fn flags_of_the_sort_command() {
    let request = good("a -nrk2,2 -t, -us -m - -o out --parallel=3 --batch-size 16 -S 1M -T /x -T /y b");
    assert_eq!(request.inputs, [Input::Path("a".into()), Input::Stdin, Input::Path("b".into())]);
    assert_eq!(request.output, Output::Path("out".into()));
    let keys = command_keys(&request);
    assert!(keys.global.numeric && keys.global.reverse && !keys.global.month);
    assert_eq!((keys.keys.len(), keys.separator), (1, Some(b',')));
    assert!(request.unique && request.stable && request.merge_only);
    assert_eq!(
        (request.threads, request.batch_size, request.memory_bytes),
        (Some(3), Some(16), Some(8 << 20))
    );
    assert_eq!(request.temp_dirs, [PathBuf::from("/x"), PathBuf::from("/y")]);
}

#[test]
fn order_by_name_and_abbreviations() {
    assert!(command_keys(&good("--sort=numeric")).global.numeric);
    assert!(command_keys(&good("--sort=human-numeric")).global.human_numeric);
    assert!(command_keys(&good("--sort=v --rev")).global.version);
    assert!(command_keys(&good("--dict")).global.dictionary);
    let both = command_keys(&good("--sort=version --sort=random")).global;
    assert!(both.version && both.random, "orders by name add up, as letters do");
    refused("--sort=fast", "invalid argument 'fast'");
    assert_eq!(good("--par=2 --me").threads, Some(2));
}

#[test]
fn random_order_has_a_salt_where_a_key_needs_it() {
    let salt = |line: &str| command_keys(&good(line)).salt;
    for line in ["-R", "--sort=random", "--random-sort", "--sort ra", "-k2R", "-R -k1,1"] {
        assert_ne!(salt(line), Salt::default(), "{line}");
        assert_ne!(salt(line), salt(line), "{line}");
        assert_eq!(salt(&format!("{line} --random-source=/dev/zero")), Salt::default());
    }
    for line in ["", "-n", "-R -k1n", "--random-source=/no/such/file"] {
        assert_eq!(salt(line), Salt::default(), "{line}");
    }
    assert!(parse("-R --random-source=/no/such/file").unwrap_err().contains("/no/such/file"));
    refused("-R --random-source=/dev/null", "end of file");
    refused("--random-source=/dev/zero --random-source=/dev/null", "multiple random sources");
    refused("-R --csv", "-R orders lines");
}

#[test]
fn separators() {
    for (line, byte) in [
        ("-t=", b'='),
        ("-t \\0", 0),
        ("-t_", b' '),
        ("-t \\t", b'\t'),
        ("--separator tab", b'\t'),
        ("-t, -t,", b','),
    ] {
        assert_eq!(command_keys(&good(line)).separator, Some(byte), "{line}");
    }
    refused("-tab", "multi-character tab 'ab'");
    refused("--separator=", "empty tab");
    refused("-t, -t;", "incompatible tabs");
    assert_eq!(good("--csv -t;").layout, Layout::Csv { separator: b';', quote: b'"' });
    assert_eq!(good("--csv --quote '").layout, Layout::Csv { separator: b',', quote: b'\'' });
    assert_eq!(good("-z").layout, Layout::Lines { delimiter: 0 });
    assert_eq!(command_keys(&good("-z")).delimiter, 0);
    refused("--quote '", "--quote applies only to CSV");
    refused("-z --format fixed:10", "-z only to lines");
}

#[test]
fn layouts_and_their_keys() {
    assert!(matches!(good("--format fixed:100 --key 0..10").keys, Keys::Ranges(ranges) if ranges.len() == 1));
    assert!(
        matches!(good("--format fixed:100 -k 0..10,12..16 -r").keys, Keys::Ranges(ranges) if ranges[1].descending)
    );
    assert!(matches!(good("--format u64-le -r").keys, Keys::Value { descending: true }));
    let csv = good("e.csv --csv --key tenant,-ts");
    assert!(csv.header, "a name needs a header");
    let Keys::Columns(columns) = csv.keys else { panic!() };
    assert!(!columns[0].descending && columns[1].descending);
    assert!(!good("--csv --key #2").header);
    assert_eq!(good("--format tsv").layout, Layout::Csv { separator: b'\t', quote: b'"' });
}

#[test]
fn names_of_files_count_only_where_a_key_names_a_column() {
    assert_eq!(good("a.csv").layout, Layout::LINES);
    assert_eq!(good("a.csv -k2,2n -t,").layout, Layout::LINES);
    let named = good("a.csv b.CSV --key tenant");
    assert!(named.header && matches!(named.layout, Layout::Csv { separator: b',', .. }));
    assert!(matches!(good("a.tsv --key tenant").layout, Layout::Csv { separator: b'\t', .. }));
    refused("a.csv b.txt --key tenant", "invalid");
}

#[test]
fn conflicts_say_what_to_do() {
    refused("--key tenant a", "add --csv");
    refused("--key 0..10", "--format fixed:LEN");
    refused("-n --format fixed:100", "drop -n");
    refused("-n --csv", "--key COLUMN:number");
    refused("-M --format u64-le", "drop -M");
    refused("--format u64-le --key 0..4", "its own key");
    refused("--format fixed:100 --header", "--header applies only to");
    refused("--csv --format u64", "contradict");
    refused("--csv -r", "--key COLUMN");
    refused("--format fixed", "fixed:BYTES");
    refused("-c a b", "extra operand 'b' not allowed with -c");
    refused("-cC a", "'-cC' are incompatible");
    refused("-c a -o b", "incompatible");
    refused("-C a --top 3", "incompatible");
    refused("-o a -o b", "multiple output files");
    refused("--batch-size 1", "at least 2");
    refused("--threads 0", "at least 1");
    assert!(parse("--method fastest").is_err() && parse("--compress snappy").is_err());
    refused("--check=loud", "diagnose-first");
    refused("--files0-from=x y", "cannot be combined");
    assert!(parse("--files0-from=/no/such/list").unwrap_err().contains("cannot read the list"));
    refused("--format fixed:100 --key tenant", "no byte range");
    refused("--top many", "not a count");
}

#[test]
fn memory_in_every_spelling() {
    assert_eq!(good("--memory 1GiB").memory_bytes, Some(1 << 30));
    assert_eq!(good("-S 10M -S 30720 -S 2").memory_bytes, Some(30 << 20));
    assert_eq!(good("-S 1").memory_bytes, Some(8 << 20), "raised to the least");
    assert_eq!(good("--memory 1KiB").memory_bytes, Some(1 << 10), "left to the job to refuse");
    let half = good("--memory 50%").memory_bytes.unwrap();
    assert!(half > 0 && half <= crate::sys::memory_bytes() / 2 + 1);
    refused("--memory 512", "512MiB");
    refused("--memory 1G -S 1G", "keep one");
    refused("--memory lots", "not a size");
}

#[test]
fn compression_of_our_own_and_of_the_sort_command() {
    for (line, compression) in [
        ("--compress zstd", Compression::Zstd),
        ("--compress auto", Compression::Auto),
        ("--compress-program=lz4", Compression::Lz4),
        ("--compress-program=/usr/bin/gzip", Compression::Zstd),
        ("--compress none --compress-program=gzip", Compression::None),
    ] {
        assert_eq!(good(line).compression, compression, "{line}");
    }
}

#[test]
fn modes_of_checking() {
    let mode_of = |line: &str| {
        let root = crate::flags::root();
        let words = crate::arguments::rewritten(
            line.split(' ').map(OsString::from),
            root.find_subcommand("sort").unwrap(),
        );
        let all = ["ascot", "sort"].into_iter().map(OsString::from).chain(words);
        let matches = root.try_get_matches_from(all).unwrap();
        mode(matches.subcommand().unwrap().1).map_err(|failure| failure.to_string())
    };
    assert_eq!(mode_of("-c a"), Ok(Mode::CheckAloud));
    assert_eq!(mode_of("--check a"), Ok(Mode::CheckAloud));
    assert_eq!(mode_of("--check=diag a"), Ok(Mode::CheckAloud));
    assert_eq!(mode_of("--check=silent a"), Ok(Mode::CheckQuietly));
    assert_eq!(mode_of("-C a"), Ok(Mode::CheckQuietly));
    assert_eq!(mode_of("-nr a"), Ok(Mode::Sort));
}
