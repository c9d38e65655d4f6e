//! Keeps bytes that are not text off a terminal, which would interpret them as commands.

use std::fs::File;
use std::io::{IsTerminal, Read};

use ascot_record::layout::Layout;
use ascot_sort::request::{Input, Output, SortRequest};
use clap::ArgMatches;

use crate::failure::Failure;
use crate::values;

/// Bytes inspected.
pub const SAMPLED_BYTES: usize = 512;

/// Whether bytes are not text: they include control bytes other than those for position and colour.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte, 0..=6 | 14..=26 | 28..=31 | 127))
}

/// Whether standard output is a terminal.
pub fn is_stdout() -> bool {
    std::io::stdout().is_terminal()
}

/// Fails if `bytes`, the first to be written, would go to a terminal and are not text.
pub fn spare(bytes: &[u8]) -> Result<(), Failure> {
    if is_binary(bytes) && is_stdout() { Err(refusal()) } else { Ok(()) }
}

/// Fails if a sort would write binary records to a terminal, unless `-o` names it.
pub fn spare_of_sort(matches: &ArgMatches, request: &SortRequest) -> Result<(), Failure> {
    let wanted = !matches!(request.output, Output::Stdout) || values::is_given(matches, "output");
    if wanted || !is_stdout() {
        return Ok(());
    }
    let binary = match request.layout {
        Layout::Number(_) | Layout::Prefixed { .. } => true,
        // Lines that end in NUL were requested by a flag.
        Layout::Lines { delimiter: 0 } => false,
        Layout::Fixed { .. } | Layout::Lines { .. } | Layout::Csv { .. } => {
            request.inputs.iter().filter_map(head_of).any(|head| is_binary(&head))
        }
    };
    if binary { Err(refusal()) } else { Ok(()) }
}

/// Fails if binary records would go to a terminal.
pub fn spare_of_records() -> Result<(), Failure> {
    if is_stdout() { Err(refusal()) } else { Ok(()) }
}

/// The first bytes of an input, if it is a file.
fn head_of(input: &Input) -> Option<Vec<u8>> {
    let Input::Path(path) = input else { return None };
    let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|stat| stat.is_file()))?;
    let mut head = Vec::new();
    file.take(SAMPLED_BYTES as u64).read_to_end(&mut head).ok()?;
    Some(head)
}

fn refusal() -> Failure {
    Failure::usage(
        "binary records would go to the terminal",
        "write them to a file (-o FILE), or to the terminal all the same: -o /dev/stdout, or | cat",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_binary() {
        assert!(!is_binary("id;Größe\tπ\r\n\x1b[1mx\x1b[0m\n".as_bytes()));
        assert!(is_binary(&7_u64.to_le_bytes()));
        assert!(is_binary(b"text\0"));
    }
}
