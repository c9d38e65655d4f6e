//! The flags of `ascot merge`, `ascot reshape` and `ascot split`: the flags of `ascot sort` that apply to them, and
//! those for the number of files.

use clap::{Arg, Command};

use super::sort::{job, layouts, memory_and_disks, ordering, output, records, resources};
use super::{JOB, ORDERING, OUTPUT, RECORDS, RESOURCES, choice, file_option, files, help_flag, option};

/// Flags of `ascot sort` that neither a merge nor a reshape uses.
const NOT_OF_MERGE: &[&str] = &["resume", "method", "compress-program", "debug"];
/// Flags of `ascot sort` that a split does not use.
const NOT_OF_SPLIT: &[&str] =
    &["resume", "method", "compress-program", "debug", "unique", "stable", "top", "batch-size"];

/// `ascot merge`.
pub fn merge() -> Command {
    moving("merge", "FILE...", NOT_OF_MERGE)
        .about("Merge sorted files of any number into one")
        .long_about(
            "Merge FILEs that are sorted by the given keys into one. The number of files is not limited: if \
             memory or the limit of open files does not allow all of them at once, they are merged in \
             several passes; ascot sort --resume continues such a merge after a kill. A record out of \
             order is an error that names its file and number, and nothing is written. Equal records keep the order of \
             their files.",
        )
        .before_help("Files must be sorted by the same keys; a record out of order is an error.")
        .after_help(
            "Examples:\n\
             \x20 ascot merge monday.log tuesday.log -k1,1 -o week.log\n\
             \x20 ascot merge part-*.rec --format fixed:100 --key 0..10 -o all.rec",
        )
        .next_help_heading(JOB)
        .arg(super::views::joining())
}

/// `ascot reshape`.
pub fn reshape() -> Command {
    moving("reshape", "FILE... --parts N -o PATTERN", NOT_OF_MERGE)
        .about("Turn n sorted files into m sorted ones")
        .long_about(
            "Merge FILEs that are sorted already and write the result as N sorted files. --by range, the default: \
             each has a range of keys and an equal share of the bytes; all keys of one file come before those of \
             the next, and equal keys share a file. --by hash or value: the hash or the value of a key, which may \
             be another one than that of the order, decides on the file of each record. All data is read once and \
             written once, unless a reshape by range has more files than can be merged at once; ascot sort --resume \
             continues it after a kill. All parts appear when the last one is complete, or none.",
        )
        .before_help("--by range: the parts, in order of their names, are the merged file.")
        .after_help(
            "Examples:\n\
             \x20 ascot reshape in-* --format fixed:100 --key 0..10 --parts 9 -o 'out-{}'\n\
             \x20 ascot reshape a.csv b.csv --key ts --parts 4 -o 'quarter{}.csv'\n\
             \x20 ascot reshape a.csv b.csv --key ts --by hash:tenant --parts 9 -o 't{}.csv'",
        )
        .arg(
            option(
                "route",
                "WHAT",
                "range (of keys), hash or value; hash:KEY, value:KEY",
                "How the file of a record is chosen: range, by the range of its key; hash, by the XXH3 hash of its \
                 key, as ascot split does; value, one file for each value, in the order in which values first \
                 come. hash:KEY and value:KEY use another key than the order, in the syntax of -k. Each file is \
                 sorted by -k in any case.",
            )
            .long("by")
            .help_heading(JOB),
        )
        .mut_arg("parts", |flag| flag.required(true))
        .mut_arg("output", |flag| flag.required(true))
}

/// `ascot split`.
pub fn split() -> Command {
    moving("split", "FILE... --parts N -o PATTERN", NOT_OF_SPLIT)
        .about("Split files into parts by key, by hash or by size")
        .long_about(
            "Write the records of all FILEs to N files. --by range: each file has a range of keys; the \
             ranges are sampled so that files have about the same size. --by hash: records of equal keys \
             share a file. --by size (the default without a key): each file has an equal share of the bytes, \
             cut between records. Files hold records in the order of the inputs. All data is read once and \
             written once, unless memory does not allow so many files at once or several passes are faster on \
             the volume: then intermediate files are split again, and a killed job can be resumed (ascot sort \
             --resume DIR). All parts appear when the last one is complete, or none.",
        )
        .before_help("Records are never cut in two; within a part they keep their order.")
        .after_help(
            "Examples:\n\
             \x20 ascot split big.log --parts 100 -o 'part-{:05}'\n\
             \x20 ascot split events.csv --key tenant --by hash --parts 16 -o 'events-{:02}.csv'\n\
             \x20 ascot split big.rec --format fixed:100 --key 0..10 --parts 8 -o 'r{}'",
        )
        .arg(
            choice(
                "by",
                "WHAT",
                ["range", "hash", "size"],
                "range (of keys), hash (of the key) or size",
                "How the part of a record is chosen: range, by the range of its key; hash, by the XXH3 hash \
                 of its key; size, by its position. If not given: range with a key, size without.",
            )
            .help_heading(JOB),
        )
        .arg(
            file_option(
                "boundaries",
                "cut --by range at the keys of FILE's records",
                "Cut --by range at the keys of the records in FILE, in the format and order of the inputs, \
                 without a header: one fewer than parts, each the first key of a part. Inputs may then be \
                 pipes. If not given, ranges are sampled.",
            )
            .help_heading(JOB),
        )
        .mut_arg("parts", |flag| flag.required(true))
        .mut_arg("output", |flag| flag.required(true))
}

/// A command with the flags of `ascot sort`, except those `omitted`.
fn moving(name: &'static str, operands: &str, omitted: &[&str]) -> Command {
    let kept = |flags: Vec<Arg>| -> Vec<Arg> {
        flags.into_iter().filter(|flag| !omitted.contains(&flag.get_id().as_str())).collect()
    };
    Command::new(name)
        .override_usage(format!("ascot {name} [OPTION]... {operands}"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .infer_long_args(true)
        .next_help_heading(ORDERING)
        .args(kept(ordering()))
        .next_help_heading(RECORDS)
        .args(records())
        .args(layouts())
        .next_help_heading(JOB)
        .args(kept(job()))
        .next_help_heading(RESOURCES)
        .args(kept(memory_and_disks()))
        .args(kept(resources()))
        .next_help_heading(OUTPUT)
        .args(output())
        .arg(help_flag(None).hide_short_help(true))
        .arg(
            files("files to read; - is standard input", "Files to read, in this order; - is standard input.")
                .hide_short_help(true)
                .help_heading(None::<&str>),
        )
}
