//! What a job would do and why, in words: the answer to `--explain`.

use std::fmt;
use std::path::PathBuf;

use ascot_model::columns::{ColumnAccount, column_words};
use ascot_model::measurement::{Requests, VolumeRequests};
use ascot_model::plan::{MethodPlan, Plan};
use ascot_model::units;
use ascot_model::volume::VolumeProfile;
use serde::Serialize;

use crate::plan::disk_space::Shortage;
use crate::view::cost::ViewCost;

/// What a sort would do, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The plan.
    pub plan: Plan,
    /// How the records look, in words.
    pub records: String,
    /// The columns of keys of CSV, and their types.
    pub columns: Vec<ColumnAccount>,
    /// What else the user may want to know.
    pub notices: Vec<String>,
    /// Free bytes where spills and the output would go.
    pub free_bytes: u64,
    /// Whether what the plan says of the disk is an estimate, not a bound.
    pub disk_is_estimate: bool,
    /// What does not fit; none: all does.
    pub shortage: Option<Shortage>,
    /// Directories for spills.
    pub temp_dirs: Vec<PathBuf>,
    /// The files the output is divided into, and by what, in words.
    pub parts: Option<String>,
    /// What a view costs beside a file, where there could be one.
    pub view: Option<ViewCost>,
    /// The view that is made; none: a file.
    pub view_dir: Option<PathBuf>,
    /// What is followed of the volumes besides the plan's.
    #[serde(flatten)]
    pub volumes: Volumes,
}

/// The volumes of a job besides the one of its plan, and the requests each is driven with.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Volumes {
    /// Those of the plan's volume, where it was measured, within memory; none: the usual ones.
    pub requests: Option<VolumeRequests>,
    /// The volume of the inputs, where that is another.
    pub input_volume: Option<VolumeProfile>,
    /// Those of that volume.
    pub input_requests: Option<VolumeRequests>,
}

impl fmt::Display for Volumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |way: Requests| format!("{}, {} in flight", units::memory(way.bytes), way.depth);
        let line = |requests: VolumeRequests| {
            format!(
                "read by {}, written by {}: as measured, within memory",
                one(requests.read),
                one(requests.write)
            )
        };
        if let Some(volume) = &self.input_volume {
            let (name, rate) = (&volume.name, units::rate(volume.read_bytes_per_s));
            writeln!(f, "  inputs   on {name} (read {rate}), a volume of their own")?;
        }
        if let (Some(_), Some(requests)) = (&self.input_volume, self.input_requests) {
            writeln!(f, "  requests of the inputs' volume: {}", line(requests))?;
        }
        match self.requests {
            Some(requests) => writeln!(f, "  requests {}", line(requests)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.plan;
        let size = plan.input_bytes.map_or("a pipe, size not known".into(), units::bytes);
        let records = plan
            .input_records
            .map_or(String::new(), |count| format!(" in about {} records", units::count(count)));
        let rates = &plan.volume;
        writeln!(
            f,
            "{size}{records} ({}), memory {}, {} threads, volume {} (read {}, write {}{})",
            self.records,
            units::memory(plan.memory_bytes),
            plan.threads,
            rates.name,
            units::rate(rates.read_bytes_per_s),
            units::rate(rates.write_bytes_per_s),
            rates
                .duplex_bytes_per_s
                .map_or(String::new(), |rate| format!(", both at once {} each", units::rate(rate))),
        )?;
        write!(f, "{}", self.words_of_keys())?;
        let chosen = &plan.chosen;
        writeln!(f, "\n  plan     {}{}", chosen.summary, if plan.forced { " (--method)" } else { "" })?;
        if let Some(parts) = &self.parts {
            writeln!(f, "  into     {parts}")?;
        }
        if let Some(dir) = &self.view_dir {
            writeln!(f, "  into     {}, a view", dir.display())?;
        }
        write!(f, "{}", self.volumes)?;
        if plan.input_bytes.is_none() {
            writeln!(f, "  moves    all of it once, or twice where it does not fit")?;
            return write!(f, "  time     not known before all is read");
        }
        let estimate = if self.disk_is_estimate { " (an estimate: lengths vary)" } else { "" };
        let disk = match chosen.peak_disk_bytes {
            // The free space of no volume is known then.
            0 => "no disk taken".to_owned(),
            peak => format!("peak disk {} of {} free", units::bytes(peak), units::bytes(self.free_bytes)),
        };
        let (read, written) = (units::bytes(chosen.read_bytes()), units::bytes(chosen.written_bytes()));
        writeln!(f, "  moves    {read} read, {written} written, {disk}{estimate}")?;
        let refused = |shortage| format!("  no room  {shortage}: the job would be refused\n");
        write!(f, "{}", self.shortage.as_ref().map_or(String::new(), refused))?;
        write!(f, "  time     about {}, bound by {}", units::seconds(chosen.seconds()), chosen.bound_by())?;
        self.write_others(f)?;
        if let Some(cost) = &self.view {
            let lead = if plan.others.is_empty() { "\n\n  why not  " } else { "\n           " };
            let (make, read) = (units::seconds(cost.make_seconds), units::seconds(cost.read_seconds));
            if self.view_dir.is_some() {
                let (file, again) =
                    (units::seconds(cost.file_seconds), units::seconds(cost.file_read_seconds));
                write!(f, ", and {read} at each reading")?;
                return write!(
                    f,
                    "{lead}file instead of a view   about {file} now, {again} at each reading   (-o)"
                );
            }
            write!(f, "{lead}view instead of a file   about {make} now, {read} at each reading   (--view)")?;
        }
        Ok(())
    }
}

impl Explanation {
    fn write_others(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, way) in self.plan.others.iter().enumerate() {
            let lead = if number == 0 { "\n\n  why not  " } else { "\n           " };
            write!(
                f,
                "{lead}{}   about {}   {}",
                way.summary,
                units::seconds(way.seconds()),
                compare(way, &self.plan.chosen)
            )?;
        }
        Ok(())
    }

    /// What there is to say of keys and headers, in paragraphs.
    fn words_of_keys(&self) -> String {
        let keys =
            (!self.columns.is_empty()).then(|| format!("\n  keys     {}\n", column_words(&self.columns)));
        let notices = self.notices.iter().map(|notice| format!("\n  notice   {notice}\n"));
        keys.into_iter().chain(notices).collect()
    }
}

fn compare(way: &MethodPlan, chosen: &MethodPlan) -> String {
    let moved = |way: &MethodPlan| way.read_bytes() + way.written_bytes();
    let io = match moved(way).cmp(&moved(chosen)) {
        std::cmp::Ordering::Equal => "same bytes moved".to_string(),
        std::cmp::Ordering::Greater => format!("moves {} more", units::bytes(moved(way) - moved(chosen))),
        std::cmp::Ordering::Less => format!("moves {} less", units::bytes(moved(chosen) - moved(way))),
    };
    format!("{io}; {}", way.remark)
}
