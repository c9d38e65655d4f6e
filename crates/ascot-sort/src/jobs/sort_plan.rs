//! What a sort of a file that need not be there would take: the plan that an explanation makes of such a file.

use std::fmt;

use ascot_model::plan::{MethodPlan, PassPlan, Plan};
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use serde::Serialize;

use crate::api::error::SortError;
use crate::api::request::SortRequest;
use crate::plan::budget::default_memory;
use crate::plan::planner::plan_ahead;

/// The plan of a sort, and its cost in all.
#[derive(Serialize)]
pub struct SortPlan {
    job: String,
    /// Whether the processors were measured; else their speeds are assumed.
    host_measured: bool,
    /// Of the way chosen, in all.
    seconds: f64,
    bytes: u64,
    switches: u64,
    /// In the currency of the profile; 0 where it has no prices.
    money: f64,
    plan: Plan,
}

impl SortPlan {
    /// Plans a sort of `input_bytes` in records of about `mean_bytes`.
    ///
    /// # Errors
    /// A request that memory has no room for.
    pub fn new(request: &SortRequest, input_bytes: u64, mean_bytes: f64) -> Result<Self, SortError> {
        let plan = plan_ahead(request, input_bytes, mean_bytes)?;
        let memory = units::memory(request.memory_bytes.unwrap_or_else(default_memory));
        let chosen = &plan.chosen;
        Ok(SortPlan {
            job: format!("sort {} ({}), {memory}", units::bytes(input_bytes), request.layout),
            host_measured: request.host.is_some(),
            seconds: chosen.seconds(),
            bytes: moved_bytes(chosen),
            switches: chosen.switches(),
            money: chosen.passes.iter().map(|pass| money(pass, &plan.volume)).sum(),
            plan,
        })
    }
}

impl fmt::Display for SortPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { chosen, others, threads, volume, .. } = &self.plan;
        let most = chosen.passes.iter().map(|pass| pass.inputs + pass.outputs).max().unwrap_or(1);
        writeln!(f, "job       {}, {}", self.job, units::plural(*threads as u64, "thread"))?;
        writeln!(f, "volume    {}", volume.summary(u32::try_from(most).unwrap_or(u32::MAX)))?;
        writeln!(f, "method    {}", chosen.summary)?;
        for (number, pass) in chosen.passes.iter().enumerate() {
            writeln!(f, "pass {:<4} {}", number + 1, pass_line(pass))?;
        }
        writeln!(f, "in all    {}", totals(chosen))?;
        if self.money > 0.0 {
            writeln!(f, "money     {:.2}", self.money)?;
        }
        if others.is_empty() {
            writeln!(f, "why       {}", chosen.remark)?;
        }
        for other in others {
            writeln!(f, "why not   {}: {}", other.summary, totals(other))?;
        }
        if !self.host_measured {
            writeln!(f, "note      speeds of the processors are assumed; ascot probe measures them")?;
        }
        Ok(())
    }
}

fn pass_line(pass: &PassPlan) -> String {
    let times = match pass.times {
        1 => "once".to_owned(),
        times => format!("{} times", units::count(times)),
    };
    let (seconds, bound_by) = (units::seconds(pass.seconds()), pass.bound_by());
    format!("{}: {} x {}, {times}, {seconds}, bound by {bound_by}", pass.name, pass.inputs, pass.outputs)
}

/// What a pass costs, its switches being requests of both ways as the bytes are.
fn money(pass: &PassPlan, volume: &VolumeProfile) -> f64 {
    let (read, switches) = (pass.read_bytes as f64, pass.switches as f64);
    let share = read / (read + pass.written_bytes as f64).max(1.0);
    volume.money(switches * share, switches * (1.0 - share), pass.seconds())
}

fn moved_bytes(way: &MethodPlan) -> u64 {
    way.read_bytes() + way.written_bytes()
}

fn totals(way: &MethodPlan) -> String {
    format!(
        "{}, {} moved, {} switches",
        units::seconds(way.seconds()),
        units::bytes(moved_bytes(way)),
        units::count(way.switches())
    )
}
