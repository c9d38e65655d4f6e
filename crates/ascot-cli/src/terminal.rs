//! Keeps bytes that are not text off a terminal, which would interpret them as commands.

use std::fs::File;
use std::io::{IsTerminal, Read};

use ascot_record::layout::Layout;
use ascot_sort::request::{Input, Output, SortRequest};
use clap::ArgMatches;

use crate::failure::{Failure, Result};
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

/// Whether standard error is a terminal that shows block characters: its locale is one of UTF-8.
pub fn shows_blocks() -> bool {
    // The first of them that is not empty decides.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(std::env::var_os)
        .find(|value| !value.is_empty())
        .unwrap_or_default();
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !dumb && is_utf8(&locale.to_string_lossy())
}

/// Whether a locale such as `en_GB.UTF-8` or `C.utf8@euro` has this encoding.
fn is_utf8(locale: &str) -> bool {
    let encoding = locale.split_once('.').map_or("", |(_, encoding)| encoding);
    let encoding = encoding.split('@').next().unwrap_or_default();
    ["UTF-8", "UTF8"].iter().any(|name| encoding.eq_ignore_ascii_case(name))
}

/// Fails if `bytes`, the first to be written, would go to a terminal and are not text.
pub fn spare(bytes: &[u8]) -> Result<()> {
    if is_binary(bytes) && is_stdout() { Err(refusal()) } else { Ok(()) }
}

/// Fails if a sort would write binary records to a terminal, unless `-o` names it.
pub fn spare_of_sort(matches: &ArgMatches, request: &SortRequest) -> Result<()> {
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
pub fn spare_of_records() -> Result<()> {
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
    fn locales_name_their_encoding() {
        for locale in ["en_GB.UTF-8", "C.utf8", "de_DE.UTF-8@euro"] {
            assert!(is_utf8(locale), "{locale}");
        }
        for locale in ["", "C", "POSIX", "de_DE.ISO-8859-1", "UTF-8", "x.UTF-16"] {
            assert!(!is_utf8(locale), "{locale}");
        }
    }

    #[test]
    fn text_is_no_binary() {
        assert!(!is_binary("id;Größe\tπ\r\n\x1b[1mx\x1b[0m\n".as_bytes()));
        assert!(is_binary(&7_u64.to_le_bytes()));
        assert!(is_binary(b"text\0"));
    }
}
