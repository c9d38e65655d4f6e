//! The flags that apply to a merge of views, and the errors of commands that accept no view.
//!
//! Invariant: every given flag is honoured, or refused with an alternative; none is ignored. The order of records
//! belongs to the views: flags that repeat it are accepted, others are refused by the library.

use ascot_model::units;
use ascot_sort::request::Input;
use ascot_sort::view::is_view;
use clap::ArgMatches;

use crate::failure::{Failure, Result};
use crate::flags;
use crate::values;

/// Flags that every merge of views honours.
const HONOURED: [&str; 9] =
    ["files", "view", "memory", "buffer-size", "threads", "monitor", "progress", "quiet", "verbose"];

/// Whether flags define the order of records.
pub fn say_an_order(matches: &ArgMatches) -> bool {
    matches.ids().any(|id| values::is_given(matches, id.as_str()) && flags::says_an_order(id.as_str()))
}

/// Fails if a flag is given that a merge of views does not honour; `also` names those it honours besides the usual
/// ones.
pub fn refuse_others(matches: &ArgMatches, also: &[&str]) -> Result<()> {
    let taken = |id: &str| HONOURED.contains(&id) || also.contains(&id) || flags::says_an_order(id);
    match matches.ids().map(clap::Id::as_str).find(|id| values::is_given(matches, id) && !taken(id)) {
        None => Ok(()),
        Some(id) => Err(Failure::usage(format!("views cannot be combined with --{id}"), way_out(id))),
    }
}

/// The alternative.
fn way_out(id: &str) -> &'static str {
    match id {
        "output" => "a view shows all records of its parts; ascot view DIR -o FILE writes the file",
        "explain" => {
            "all runs of views are always merged at once; ascot sort FILE --view DIR --explain shows the \
             cost of making a view"
        }
        "top" => "a view shows all records: ascot merge VIEW... --view DIR, then ascot view DIR --head N",
        "parts" => {
            "write one file first: ascot merge VIEW... -o FILE, then ascot reshape FILE --parts N -o PATTERN"
        }
        "unique" => "write one file first: ascot merge VIEW... -o FILE, then ascot merge -u FILE -o OTHER",
        "report" => "leave it out: a merge of views writes no report",
        "files0-from" => "name the views as arguments",
        _ => "leave it out: all runs of views are merged at once, and nothing is spilled",
    }
}

/// Fails if a command that reads files is given a view.
pub fn refuse_views(inputs: &[Input]) -> Result<()> {
    match inputs.iter().filter_map(Input::path).find(|path| is_view(path)) {
        None => Ok(()),
        Some(view) => Err(Failure::usage(
            format!("{} is a view, not a file", view.display()),
            format!(
                "ascot merge reads views: ascot merge VIEW... -o FILE\n  or first write the view to a file: \
                 ascot view {} -o FILE",
                units::in_shell(view)
            ),
        )),
    }
}
