//! Converts the flags of `ascot flow` to a request.

use std::path::Path;
use std::time::Duration;

use ascot_record::layout::Layout;
use ascot_sort::request::{Input, InputChecks, Keys, Output, SortRequest};
use ascot_sort::{FlowFunction, FlowRequest};
use clap::ArgMatches;

use super::records::{Records, records};
use super::resources;
use crate::failure::{Failure, Result};
use crate::numbers;
use crate::values;
use crate::volume;

/// The request of a flow.
pub fn flow_request(matches: &ArgMatches) -> Result<FlowRequest> {
    let inputs = names(matches, "inputs")?.iter().map(|name| Input::from_argument(Path::new(name))).collect();
    let outputs = names(matches, "outputs")?;
    let outputs = outputs.into_iter().map(|name| match name.to_str() {
        Some("-") => Output::Stdout,
        _ => Output::Path(name.into()),
    });
    let merged = values::flag(matches, "merge") || values::is_given(matches, "key");
    Ok(FlowRequest {
        sort: sort_part(matches, inputs, merged)?,
        merged,
        outputs: outputs.collect(),
        function: FlowFunction::Program(values::all(matches, "command").cloned().collect()),
        alpha: alpha(matches)?,
        idle_timeout: values::word(matches, "idle-timeout").map(idle_timeout).transpose()?,
        allow_unread: values::flag(matches, "allow-unread"),
    })
}

fn names(matches: &ArgMatches, id: &str) -> Result<Vec<std::ffi::OsString>> {
    let names: Vec<_> = values::all(matches, id).cloned().collect();
    match names.iter().any(|name| name.is_empty()) {
        true => Err(Failure::usage(
            format!("--{id} has an empty name"),
            "name a file, or - for a standard stream",
        )),
        false => Ok(names),
    }
}

/// The inputs, their records if they are merged, and the resources.
fn sort_part(matches: &ArgMatches, inputs: Vec<Input>, merged: bool) -> Result<SortRequest> {
    let Records { layout, keys, header, any_format, .. } = if merged {
        records(matches, &inputs)?
    } else {
        refuse_records(matches)?;
        let keys = Keys::Ranges(Vec::new());
        Records { layout: Layout::Fixed { len: 1 }, keys, header: false, any_format: true, route: None }
    };
    Ok(SortRequest {
        header,
        checks: InputChecks { any_format, strict: values::flag(matches, "strict") },
        merge_only: true,
        memory_bytes: resources::memory(matches)?,
        compression: ascot_io::Compression::None,
        threads: resources::threads(matches)?,
        volumes: volume::given(matches)?,
        ..SortRequest::new(inputs, Output::Stdout, layout, keys)
    })
}

/// Refuses flags of records if there is no merge that would use them.
fn refuse_records(matches: &ArgMatches) -> Result<()> {
    let unused =
        ["format", "csv", "header", "separator", "zero-terminated", "null", "quote", "strict", "reverse"];
    match unused.into_iter().find(|id| values::is_given(matches, id)) {
        None => Ok(()),
        Some(id) => Err(Failure::usage(
            format!("--{id} applies only to a flow whose inputs are merged"),
            "add --merge-by KEY, or leave the flag out: bytes are passed on as they are",
        )),
    }
}

fn alpha(matches: &ArgMatches) -> Result<Option<f64>> {
    const LEAST: f64 = 0.01;
    let alpha = |text| numbers::real(text, "--alpha", LEAST, 1.0 - LEAST);
    values::word(matches, "alpha").map(alpha).transpose()
}

/// `--idle-timeout`.
fn idle_timeout(text: &str) -> Result<Duration> {
    numbers::duration(text).ok_or_else(|| {
        Failure::usage(format!("--idle-timeout '{text}' is not a time"), "such as 30s, 500ms, 5m or 2h")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<FlowRequest, String> {
        let words = ["ascot", "flow"].into_iter().chain(line.split(' '));
        let matches = crate::flags::root().try_get_matches_from(words).map_err(|error| error.to_string())?;
        flow_request(matches.subcommand().unwrap().1).map_err(|failure| failure.to_string())
    }

    #[test]
    fn streams_end_where_the_next_flag_or_the_program_begins() {
        let request = parse("--inputs a - b --outputs x - --alpha 0.2 -- prog -n --inputs c").unwrap();
        assert_eq!(request.sort.inputs, [Input::Path("a".into()), Input::Stdin, Input::Path("b".into())]);
        assert_eq!(request.outputs, [Output::Path("x".into()), Output::Stdout]);
        let FlowFunction::Program(command) = request.function else {
            unreachable!("a command runs a program")
        };
        assert_eq!(command, ["prog", "-n", "--inputs", "c"]);
        assert_eq!((request.alpha, request.merged, request.idle_timeout), (Some(0.2), false, None));
        assert!(parse("--inputs a --merge-by 2,2n -- prog").unwrap().merged);
        assert!(parse("--inputs a --merge --format u64-le -- prog").unwrap().merged);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, word) in [
            ("--inputs a --format fixed:9 -- prog", "--merge-by"),
            ("--inputs a --alpha 0 -- prog", "--alpha"),
            ("--inputs a --idle-timeout soon -- prog", "30s"),
            ("--inputs a --idle-timeout 0 -- prog", "30s"),
        ] {
            let told = parse(line).expect_err(line);
            assert!(told.contains(word) && told.contains("\n  "), "{told}");
        }
    }
}
