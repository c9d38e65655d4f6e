//! The ways to sort what is at hand, costed, and the choice among them.

use std::collections::VecDeque;

use ascot_io::ahead_bytes;
use ascot_model::host::{HostProfile, KernelRates, RecordClass};
use ascot_model::plan::{Moved, PassPlan, Plan, Way};
use ascot_model::units;
use ascot_model::volume::VolumeProfile;

use crate::budget::{Budget, PieceShare};
use crate::error::SortError;
use crate::request::Method;
use crate::sorting::checkpoint_bytes;

/// What a plan is made from.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Bytes of records, where known.
    pub data_bytes: Option<u64>,
    /// Mean length of a record, bytes, from a sample.
    pub mean_bytes: f64,
    /// What kernels are at work.
    pub class: RecordClass,
    /// Keys can be sampled from anywhere in the inputs.
    pub can_sample: bool,
    /// Number of inputs.
    pub inputs: u64,
    /// Files that may be open at once.
    pub descriptors: usize,
    /// Files to be merged at once, at most.
    pub batch: usize,
    /// Only so many records are wanted.
    pub top: Option<u64>,
    /// The records seem to be in order: runs refer to them where they are.
    pub in_order: bool,
}

/// How much of a job fits where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Bytes of records that fit in memory all at once.
    pub all: u64,
    /// Bytes of records of one load.
    pub load: u64,
    /// Runs that can be merged at once.
    pub fan_in: u64,
    /// Parts that can be written at once.
    pub fan_out: u64,
}

/// Bytes assumed where the size is not known: a plan for a pipe is a guess.
const GUESSED_BYTES: u64 = 8 << 30;

/// What of a load is merged at once, and freed after it, about: one in so many.
const BATCH_SHARE: u64 = 4;

impl Shares {
    /// Shares of a budget for records of the given kind.
    pub fn of(budget: &Budget, pieces: PieceShare, facts: &Facts) -> Shares {
        let streams = budget.streams();
        let fan_in = (streams / (2 * budget.block + 2048)).min(facts.descriptors).min(facts.batch);
        let fan_out = (streams / 2 / (2 * budget.block)).min(facts.descriptors);
        Shares {
            all: (pieces.bytes * (pieces.count - pieces.unsorted)) as u64,
            load: (pieces.bytes * pieces.load()) as u64,
            fan_in: fan_in.max(2) as u64,
            fan_out: fan_out.max(2) as u64,
        }
    }
}

/// Plans a sort.
pub fn plan(
    facts: &Facts,
    budget: &Budget,
    pieces: PieceShare,
    volume: &VolumeProfile,
    method: Method,
) -> Result<Plan, SortError> {
    let shares = Shares::of(budget, pieces, facts);
    let host =
        HostProfile { threads: budget.threads, rates: KernelRates::assumed(facts.class, facts.mean_bytes) };
    let costing = Costing {
        facts,
        shares,
        volume,
        host,
        data: facts.data_bytes.unwrap_or(GUESSED_BYTES),
        block: budget.block as u64,
    };
    let forced = method != Method::Auto;
    let fits = facts.data_bytes.is_none_or(|bytes| bytes <= shares.all);
    let mut ways = Vec::new();
    if fits && method != Method::Distribute {
        ways.push(costing.in_memory());
    } else {
        if method != Method::Distribute {
            ways.push(costing.merge());
        }
        if method == Method::Distribute || (method == Method::Auto && facts.can_sample) {
            ways.push(costing.distribute());
        }
    }
    if facts.data_bytes.is_none() {
        // How much there is shows only as it is read.
        for way in &mut ways {
            way.summary = "sort in memory if all fits, else form sorted runs and merge them".into();
            way.remark = "a pipe: its size is not known".into();
        }
    }
    let (chosen, others) = Plan::cheapest(ways).ok_or(SortError::Internal("a sort without a way"))?;
    Ok(Plan {
        input_bytes: facts.data_bytes,
        input_records: facts.data_bytes.map(|bytes| (bytes as f64 / facts.mean_bytes.max(1.0)) as u64),
        memory_bytes: budget.memory as u64,
        threads: budget.threads,
        volume: volume.clone(),
        chosen,
        others,
        forced,
    })
}

/// Plans a merge of sorted inputs, `fan_in` of which can be read at once.
pub fn plan_merge(facts: &Facts, budget: &Budget, fan_in: u64, volume: &VolumeProfile) -> Plan {
    let host =
        HostProfile { threads: budget.threads, rates: KernelRates::assumed(facts.class, facts.mean_bytes) };
    let data = facts.data_bytes.unwrap_or(GUESSED_BYTES);
    let kept = facts.kept(data);
    let pass = |name: &str, inputs, outputs, written_bytes| {
        let switches = (data + written_bytes) / budget.block as u64;
        let moved = Moved { read_bytes: data, written_bytes, switches, inputs, outputs };
        PassPlan::new(name, moved, &[(data, host.rates.merge_bytes_per_s)], volume, &host)
    };
    let groups = facts.inputs.div_ceil(fan_in.max(2));
    let inputs = units::plural(facts.inputs, "sorted input");
    let again = merged_again(groups, fan_in.max(2), data);
    let (passes, summary) = if groups > 1 {
        let mut passes = vec![pass("merge some", fan_in, groups, data)];
        let mut summary = format!("merge {inputs} in {groups} groups, then those");
        if again > 0 {
            let switches = 2 * again / budget.block as u64;
            let moved =
                Moved { read_bytes: again, written_bytes: again, switches, inputs: fan_in, outputs: 1 };
            let work = [(again, host.rates.merge_bytes_per_s)];
            passes.push(PassPlan::new("merge some again", moved, &work, volume, &host));
            summary += ", some of them again before";
        }
        passes.push(pass("merge", groups.min(fan_in), 1, kept));
        (passes, summary)
    } else {
        (vec![pass("merge", facts.inputs, 1, kept)], format!("merge {inputs} in one pass"))
    };
    let spilled = if groups > 1 { data } else { 0 };
    let chosen = Way {
        method: "merge inputs".into(),
        summary,
        passes,
        peak_disk_bytes: kept + spilled,
        remark: "the inputs are sorted".into(),
    };
    plan_of(facts, budget, volume, chosen)
}

/// Bytes that are merged into larger runs until no more than `fan_in` of `runs` equal ones are left: the
/// smallest first, and no more of them than needed.
fn merged_again(runs: u64, fan_in: u64, data_bytes: u64) -> u64 {
    let mut sizes: VecDeque<u64> = vec![data_bytes / runs.max(1); runs as usize].into();
    let mut moved = 0;
    while sizes.len() as u64 > fan_in {
        let left = sizes.len() as u64;
        let taken: u64 = sizes.drain(..fan_in.min(left - fan_in + 1).max(2) as usize).sum();
        moved += taken;
        // What is merged is the largest so far.
        sizes.push_back(taken);
    }
    moved
}

/// Plans splitting into `parts` files: one pass.
pub fn plan_split(facts: &Facts, budget: &Budget, parts: u64, volume: &VolumeProfile) -> Plan {
    let host =
        HostProfile { threads: budget.threads, rates: KernelRates::assumed(facts.class, facts.mean_bytes) };
    let data = facts.data_bytes.unwrap_or(GUESSED_BYTES);
    let switches = 2 * data / budget.block as u64;
    let moved = Moved { read_bytes: data, written_bytes: data, switches, inputs: 1, outputs: parts };
    let pass = PassPlan::new("split", moved, &[(data, host.rates.split_bytes_per_s)], volume, &host);
    let chosen = Way {
        method: "split".into(),
        summary: format!("split into {} in one pass", units::plural(parts, "part")),
        passes: vec![pass],
        peak_disk_bytes: data,
        remark: "each record is moved once".into(),
    };
    plan_of(facts, budget, volume, chosen)
}

/// A plan with one way to go.
fn plan_of(facts: &Facts, budget: &Budget, volume: &VolumeProfile, chosen: Way) -> Plan {
    let input_records = facts.data_bytes.map(|bytes| (bytes as f64 / facts.mean_bytes.max(1.0)) as u64);
    Plan {
        input_bytes: facts.data_bytes,
        input_records,
        memory_bytes: budget.memory as u64,
        threads: budget.threads,
        volume: volume.clone(),
        chosen,
        others: Vec::new(),
        forced: false,
    }
}

impl Facts {
    /// Bytes of `data` bytes that are wanted.
    fn kept(&self, data: u64) -> u64 {
        self.top.map_or(data, |top| data.min((top as f64 * self.mean_bytes) as u64))
    }
}

struct Costing<'a> {
    facts: &'a Facts,
    shares: Shares,
    volume: &'a VolumeProfile,
    host: HostProfile,
    data: u64,
    block: u64,
}

impl Costing<'_> {
    fn pass(&self, name: &str, moved: Moved, work: &[(u64, f64)]) -> PassPlan {
        PassPlan::new(name, moved, work, self.volume, &self.host)
    }

    fn in_memory(&self) -> Way {
        let rates = &self.host.rates;
        let reading = Moved { read_bytes: self.data, inputs: self.facts.inputs, ..Moved::default() };
        let kept = self.facts.kept(self.data);
        let writing = Moved { written_bytes: kept, outputs: 1, ..Moved::default() };
        Way {
            method: "in memory".into(),
            summary: "sort in memory, without spills".into(),
            passes: vec![
                self.pass("read and sort", reading, &[(self.data, rates.sort_bytes_per_s)]),
                self.pass("write", writing, &[(kept, rates.merge_bytes_per_s)]),
            ],
            peak_disk_bytes: kept,
            remark: "everything fits in memory".into(),
        }
    }

    fn merge(&self) -> Way {
        let rates = &self.host.rates;
        let runs = self.data.div_ceil(self.shares.load.max(1)).max(1);
        // No run needs more than what is wanted of the whole.
        let kept = self.facts.kept(self.data);
        let spilled = self.data.min(runs.saturating_mul(kept));
        let written = if self.facts.in_order { 0 } else { spilled };
        let form = Moved {
            read_bytes: self.data,
            written_bytes: written,
            switches: 2 * runs,
            inputs: self.facts.inputs,
            outputs: runs,
        };
        let mut passes = vec![self.pass(
            "form runs",
            form,
            &[(self.data, rates.sort_bytes_per_s), (written, rates.merge_bytes_per_s)],
        )];
        let mut left = if self.facts.in_order { 1 } else { runs };
        let mut most_merged = 0;
        while left > self.shares.fan_in {
            let take = self.shares.fan_in.min(left - self.shares.fan_in + 1).max(2);
            let bytes = spilled / runs * take;
            let moved = Moved {
                read_bytes: bytes,
                written_bytes: bytes,
                switches: bytes / self.block,
                inputs: take,
                outputs: 1,
            };
            passes.push(self.pass("merge some", moved, &[(bytes, rates.merge_bytes_per_s)]));
            left = left - take + 1;
            most_merged = most_merged.max(bytes);
        }
        let last = Moved {
            read_bytes: spilled,
            written_bytes: kept,
            switches: spilled / self.block,
            inputs: left,
            outputs: 1,
        };
        passes.push(self.pass("merge", last, &[(spilled, rates.merge_bytes_per_s)]));
        let more = if passes.len() > 2 {
            format!(", {} of them in groups first", units::plural(runs - left, "run"))
        } else {
            String::new()
        };
        Way {
            method: "merge".into(),
            summary: if self.facts.in_order {
                "find what is in order and leave it where it is, sort the rest, merge them in one pass".into()
            } else {
                format!("form {}, then merge them in one pass{more}", units::plural(runs, "sorted run"))
            },
            passes,
            peak_disk_bytes: written.max(kept)
                + ahead_bytes(written.max(kept))
                + checkpoint_bytes(kept).min(kept).max(most_merged)
                + (self.shares.load / BATCH_SHARE).min(kept),
            remark: "works on any input, keeps the order of equals".into(),
        }
    }

    fn distribute(&self) -> Way {
        let rates = &self.host.rates;
        let parts = part_count(self.data, self.shares.load);
        let split = Moved {
            read_bytes: self.data,
            written_bytes: self.data,
            switches: self.data / self.block,
            inputs: self.facts.inputs,
            outputs: parts,
        };
        let sort = Moved {
            read_bytes: self.data,
            written_bytes: self.data,
            switches: 2 * parts,
            inputs: 1,
            outputs: 1,
        };
        Way {
            method: "distribute".into(),
            summary: format!("split into {} by key, then sort each", units::plural(parts, "part")),
            passes: vec![
                self.pass("split", split, &[(self.data, rates.split_bytes_per_s)]),
                self.pass(
                    "sort parts",
                    sort,
                    &[(self.data, rates.sort_bytes_per_s), (self.data, rates.merge_bytes_per_s)],
                ),
            ],
            peak_disk_bytes: self.data + ahead_bytes(self.data) + self.data / parts,
            remark: "needs a sample of the keys".into(),
        }
    }
}

/// Parts such that even an unlucky one fits a load.
pub fn part_count(data_bytes: u64, load_bytes: u64) -> u64 {
    (data_bytes * 4 / 3).div_ceil(load_bytes.max(1)).max(2)
}
