//! The documented example, on real files.

#[path = "../examples/route_logs.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod route_logs;

use std::collections::HashMap;
use std::fs;

#[test]
fn every_line_goes_to_its_file_in_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut expected = 0;
    let inputs: Vec<_> = (0..3)
        .map(|input| {
            let mut text = String::new();
            for line in 0..40_000 * (input + 1) {
                let level = ["INFO", "WARN", "DEBUG", "ERROR"][(line + input) % 4];
                expected += usize::from(level != "DEBUG");
                let message = "x".repeat(if line % 9_999 == 0 { 40_000 } else { line % 50 });
                text += &format!("service{} {level} {input} {line} {message}\n", line * 7 % 23);
            }
            let path = directory.path().join(format!("in-{input}.log"));
            // The last line of one has no end.
            fs::write(&path, if input == 1 { text.trim_end() } else { &text }).expect("it is written");
            path
        })
        .collect();
    let (lines, dropped) = route_logs::route(&inputs, directory.path()).expect("it runs");
    assert_eq!((lines, lines - dropped), (40_000 * 6, expected as u64));
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut last: HashMap<(String, usize), usize> = HashMap::new();
    let mut seen = 0;
    for output in 0..8 {
        let text = fs::read_to_string(directory.path().join(format!("routed-{output}.log"))).expect("a file");
        assert!(text.is_empty() || text.ends_with('\n'));
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |word: usize| words[word].parse::<usize>().expect("a number");
            assert_ne!(words[1], "DEBUG");
            assert_eq!(*places.entry(words[0].to_owned()).or_insert(output), output);
            let before = last.insert((words[0].to_owned(), number(2)), number(3));
            assert!(before.is_none_or(|before| before < number(3)));
            seen += 1;
        }
    }
    assert_eq!((seen, places.len()), (expected, 23));
}
