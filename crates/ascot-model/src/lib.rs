//! The arithmetic of moving data: the speeds of a volume and a host, the predicted cost of a job and its actual cost.
//! Plain types and functions; no files, no clock.
//!
//! In reading order; each module uses only those above it:
//!
//! * [`units`]: bytes, rates and times in text for people.
//! * [`size`]: sizes, counts and shares as people write them.
//! * [`volume`]: speeds and switch cost of a volume, and the time of a pass on it.
//! * [`host`]: speeds of the compute kernels by kind of record.
//! * [`measurement`]: measured figures of a volume, with their spread.
//! * [`host_measurement`]: measured speeds of the processors, by length of records and number of keys.
//! * [`measured_profile`]: both, as the text of a profile.
//! * [`volume_kind`]: kinds of volumes, and what is assumed of each without a measurement.
//! * [`volume_pace`]: the rates and the switch cost that a job sees, and the profile that they correct.
//! * [`known_volume`]: a volume of a job, with its profile and the origin of the profile.
//! * [`run_length`]: the run length of a bowtie, by algorithm, group sizes and memory.
//! * [`bucket_steps`]: how full each bucket of a bowtie is in the steady state, and the distance from it.
//! * [`multipass`]: the best number of passes, and the number of files in each.
//! * [`growth`]: the bytes that a user's function leaves, pass by pass.
//! * [`duplicates`]: the bytes that dropping duplicates leaves, predicted from sorted runs.
//! * [`bowtie_plan`]: the plan of one bowtie.
//! * [`codec`]: the codecs of spills.
//! * [`account_of_spills`]: the bytes of spills before and after compression, and the decisions of a job about it.
//! * [`disk_use`]: the peak disk use of a sort.
//! * [`checkpoints`]: how often a job stores its state.
//! * [`plan`]: the methods for a job, costed, and the one chosen.
//! * [`passes_plan`]: the plan of a merge, split or reshape of many files.
//! * [`sort_plan`]: the methods to sort, merge and split records.
//! * [`routing_plan`]: the cost of routing records among many processes.
//! * [`compression`]: whether compressing spills saves time, and with which codec.
//! * [`stages`]: the time that the stages of a pass spent, and its bottleneck.
//! * [`account`]: bytes moved and time spent by each pass.
//! * [`members`]: the rates of volumes or peers that work at once: mean, deviation, slowest.
//! * [`all_to_all`]: the rate of an all-to-all transfer, and its fall with more peers.
//! * [`cluster`]: the phases, time and cost of a sort on a cluster, and the cheapest cluster.
//! * [`random`]: pseudo-random numbers that are the same in every run.
//! * [`stream_cost`]: the I/Os of element streams.
//! * [`merge_sort_cost`]: the I/Os of a merge sort of N elements with runs of M and a fan-in of d.
//! * [`fit`]: measured costs as polynomials.
//! * [`resource_use`]: the use of processors, memory, disks and network over time.
//! * [`resource_lines`]: the same in text for people.
//! * [`report`]: plan and account together, as written by `--report`.

pub mod account;
pub mod account_of_spills;
pub mod all_to_all;
pub mod bowtie_plan;
pub mod bucket_steps;
pub mod checkpoints;
pub mod cluster;
pub mod codec;
pub mod compression;
pub mod disk_use;
pub mod duplicates;
pub mod fit;
pub mod growth;
pub mod host;
pub mod host_measurement;
pub mod known_volume;
pub mod measured_profile;
pub mod measurement;
pub mod members;
pub mod merge_sort_cost;
pub mod multipass;
pub mod passes_plan;
pub mod plan;
mod profile_table;
pub mod random;
pub mod report;
pub mod resource_lines;
pub mod resource_use;
pub mod routing_plan;
pub mod run_length;
mod shape;
pub mod size;
pub mod sort_plan;
pub mod stages;
pub mod stream_cost;
pub mod units;
pub mod volume;
pub mod volume_kind;
pub mod volume_pace;
