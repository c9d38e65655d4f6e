//! `ascot simulate`: runs the schedules on numbers, and compares them with the formulas.

use ascot_bowtie::simulate::{ScheduleChoice, SimulationError, SimulationRequest};
use clap::ArgMatches;

use crate::chart;
use crate::failure::{Failure, Result};
use crate::numbers;
use crate::report_file::write_whole;
use crate::values;

/// `ascot simulate`.
pub fn run(matches: &ArgMatches) -> Result<u8> {
    let report = request(matches)?.run().map_err(refused)?;
    if let Some(path) = values::path(matches, "plot") {
        let written = write_whole(&path, chart::occupancies(&report).as_bytes());
        written.map_err(Failure::file(&path, "cannot write the chart"))?;
    }
    numbers::show(matches, &report)
}

fn request(matches: &ArgMatches) -> Result<SimulationRequest> {
    let given = |id| values::is_given(matches, id).then(|| numbers::data(matches, id, 0)).transpose();
    let usual = SimulationRequest::default();
    Ok(SimulationRequest {
        inputs: numbers::streams(matches, "inputs", usual.inputs)?,
        outputs: numbers::streams(matches, "outputs", usual.outputs)?,
        alpha: numbers::alpha(matches)?,
        memory_bytes: numbers::memory(matches, "memory", usual.memory_bytes)?,
        block_bytes: given("block")?,
        total_bytes: given("total")?,
        schedule: match values::word(matches, "schedule") {
            None => ScheduleChoice::Best,
            Some(name) => name.parse().map_err(refused)?,
        },
        group: numbers::whole(matches, "group")?,
        skew: values::word(matches, "skew").map_or(Ok(usual.skew), str::parse).map_err(refused)?,
        seed: numbers::whole(matches, "seed")?.unwrap_or(usual.seed),
    })
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(error: SimulationError) -> Failure {
    Failure::Usage(error.to_string())
}
