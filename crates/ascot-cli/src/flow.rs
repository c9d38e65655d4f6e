//! `ascot flow`: runs a user's program on the streams of the flags, or explains the flow.

use clap::ArgMatches;

use ascot_sort::request::{Output, SortRequest};
use ascot_sort::{FlowRequest, Volumes, Writes};

use crate::failure::{Failure, Result};
use crate::progress::Screen;
use crate::report_file::{ReportFile, refuse_files_of_job};
use crate::request;
use crate::sort::{find_volumes, job, tell_notices};
use crate::sys::{self, print};
use crate::values;
use crate::view_flags::refuse_views;

/// Runs the command; returns the exit status.
pub fn flow(matches: &ArgMatches) -> Result<u8> {
    let mut flow_request = request::flow_request(matches)?;
    refuse_views(&flow_request.sort.inputs)?;
    let screen = Screen::of_job(matches, !flow_request.outputs.contains(&Output::Stdout));
    tell_notices(matches, &screen);
    find_volume(matches, &mut flow_request, &screen)?;
    refuse_report(matches, &flow_request)?;
    let report_file = ReportFile::prepare(matches, Some(&flow_request.sort))?;
    if matches.get_flag("explain") {
        let explanation = ascot_sort::explain_flow(&flow_request)?;
        if let Some(file) = report_file {
            file.write_at_once(&explanation)?;
        }
        print(explanation.to_string())?;
        return Ok(0);
    }
    sys::standard_input_for(&flow_request.sort.inputs)?;
    if flow_request.outputs.contains(&Output::Stdout) {
        sys::standard_output().map_err(Failure::Output)?;
    }
    job(matches, report_file, &screen, |options, observer, cancel| {
        ascot_sort::run_flow(&flow_request, &options, observer, cancel)
    })
    .inspect(|_| sys::leave_standard_input_read(&flow_request.sort.inputs))
}

/// Finds the volume of the outputs, whose switches the schedule saves; inputs on another one are taken to be on it,
/// too.
fn find_volume(matches: &ArgMatches, flow_request: &mut FlowRequest, screen: &Screen) -> Result<()> {
    let outputs = || flow_request.outputs.iter().filter(|output| matches!(output, Output::Path(_)));
    let Some(output) = outputs().next().cloned() else { return Ok(()) };
    let mut request = SortRequest { output, ..flow_request.sort.clone() };
    find_volumes(matches, &mut request, Writes::Output, screen)?;
    let Volumes { volume, host, requests, origins, .. } = request.volumes;
    flow_request.sort.volumes = Volumes { volume, host, requests, origins, ..Volumes::default() };
    Ok(())
}

/// Refuses a report or a trace that would replace an output.
fn refuse_report(matches: &ArgMatches, flow_request: &FlowRequest) -> Result<()> {
    for flag in ["report", "trace"] {
        let Some(path) = values::path(matches, flag) else { continue };
        for output in &flow_request.outputs {
            let request = SortRequest { output: output.clone(), ..flow_request.sort.clone() };
            refuse_files_of_job(flag, &path, &request, None)?;
        }
    }
    Ok(())
}
