//! Census, cut and export of traces whose numbers are known.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::census::{Census, census};
use crate::cut::cut;
use crate::event::{BlockCounts, Event, Kind, Recording, TracedFile, TracedProcess};
use crate::export;
use crate::format::{TraceReader, TraceWriter};
use crate::replay::Pace;

const MS: u64 = 1_000_000;

/// An event of process `process`; times count up by a millisecond in [`written`].
fn event(process: u32, file: u32, kind: Kind, offset: u64, size: u64) -> Event {
    Event { time_ns: 0, process, file, kind, jumped: false, offset, size }
}

struct Written {
    dir: tempfile::TempDir,
    path: PathBuf,
}

fn written(events: &[Event]) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.trace");
    let mut writer = TraceWriter::create(&path).unwrap();
    for (time_ns, event) in (0..).step_by(MS as usize).zip(events) {
        writer.push(&Event { time_ns, ..*event }).unwrap();
    }
    let names: [&[u8]; 3] = [b"/d/a", b"/d/b, \"c\"", b"/d/unused"];
    let files =
        names.map(|name| TracedFile { path: name.to_vec(), peak_bytes: 1000, ..TracedFile::default() });
    let processes = [10, 11].map(|pid| TracedProcess { pid, program: b"/bin/x".to_vec() });
    let recording = Recording {
        command: b"x\0-y".to_vec(),
        start_ns: 5,
        unseen_requests: 1,
        guessed_appends: 2,
        skipped_lines: 3,
        incomplete: true,
        block: Some(BlockCounts::from_numbers([1; 11])),
        ..Recording::default()
    };
    writer.finish(&files, &processes, &recording).unwrap();
    Written { dir, path }
}

fn census_of(path: &Path) -> Census {
    census(&TraceReader::open(path).unwrap()).unwrap()
}

#[test]
fn a_run_goes_on_in_another_process_and_through_seeks() {
    let written = written(&[
        event(0, 0, Kind::Open, 0, 0),
        event(0, 0, Kind::Read, 0, 100),
        event(0, 0, Kind::Seek, 900, 0),
        event(1, 0, Kind::Open, 0, 0),
        event(1, 0, Kind::Seek, 100, 0),
        event(1, 0, Kind::Read, 100, 50),
        event(1, 0, Kind::Read, 150, 0),
        event(0, 0, Kind::Write, 150, 50),
        event(0, 1, Kind::Write, 200, 8),
        event(0, 0, Kind::Read, 200, 1),
        event(0, 0, Kind::Read, 200, 1),
    ]);
    let found = census_of(&written.path);
    let counts = &found.counts;
    assert_eq!((counts.runs, counts.attempts, counts.opens), (4, 2, 2));
    assert_eq!((counts.reads, counts.writes, counts.read_bytes, counts.written_bytes), (4, 2, 152, 58));
    assert_eq!((found.processes, found.files, found.events), (2, 2, 11));
    let lengths: Vec<_> = counts.run_lengths.iter().map(|l| (l.from_bytes, l.runs, l.bytes)).collect();
    assert_eq!(lengths, [(1, 2, 2), (8, 1, 8), (128, 1, 200)]);
    assert_eq!(counts.mean_run_bytes, 210 / 4);
    let by_file: Vec<_> = found.by_file.iter().map(|file| (&file.path[..], file.counts.runs)).collect();
    assert_eq!(by_file, [("/d/a", 3), ("/d/b, \"c\"", 1)]);
    assert_eq!(found.command, "x -y");
    assert_eq!(found.duration_ns, 10 * MS);
}

/// Space of deleted and shortened files is free again, that of holes, too, and gaps of sparse files take none.
#[test]
fn live_data_are_blocks_that_were_touched_and_not_given_back() {
    const B: u64 = 4096;
    let written = written(&[
        event(0, 0, Kind::Write, 0, 10 * B),
        event(0, 0, Kind::Resize, B + 1, 0),
        event(0, 1, Kind::Write, 1 << 40, 8 * B),
        event(0, 1, Kind::Hole, (1 << 40) + 1, 3 * B),
        event(0, 0, Kind::Resize, 1 << 45, 0),
        event(0, 2, Kind::Write, 0, 3 * B - 1),
        event(0, 1, Kind::Delete, 0, 0),
        event(0, 2, Kind::Write, 3 * B, 2 * B),
    ]);
    // Two blocks of the first file, six of the second, which loses two whole ones, three of the third.
    assert_eq!(census_of(&written.path).peak_live_bytes, 11 * B);
}

#[test]
fn a_cut_has_the_events_files_and_processes_of_its_range() {
    let written = written(&[
        event(0, 0, Kind::Read, 0, 1),
        event(1, 1, Kind::Read, 1, 2),
        event(1, 1, Kind::Read, 3, 3),
        event(0, 0, Kind::Read, 6, 4),
    ]);
    let trace = TraceReader::open(&written.path).unwrap();
    let path = written.dir.path().join("part.trace");
    cut(&trace, 0, u64::MAX, &path).unwrap();
    assert_eq!(TraceReader::open(&path).unwrap().recording(), trace.recording(), "all of it");
    cut(&trace, MS, 3 * MS, &path).unwrap();
    let part = TraceReader::open(&path).unwrap();
    let events: Vec<Event> = part.events().map(Result::unwrap).collect();
    let wanted = [event(0, 0, Kind::Read, 1, 2), Event { time_ns: MS, ..event(0, 0, Kind::Read, 3, 3) }];
    assert_eq!(events, wanted);
    assert_eq!(part.files().len(), 1);
    assert_eq!(part.files()[0], trace.files()[1]);
    assert_eq!(part.processes().to_vec(), trace.processes()[1..].to_vec());
    let wanted =
        Recording { command: b"x\0-y".to_vec(), start_ns: 5 + MS, incomplete: true, ..Recording::default() };
    assert_eq!(part.recording(), &wanted, "no count of the whole");
    let before = std::fs::read(&path).unwrap();
    let refused = cut(&trace, 50 * MS, 60 * MS, &path).unwrap_err().to_string();
    assert!(refused.contains("no event is in that range"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), before, "an old trace stays");
}

#[test]
fn csv_has_every_event_and_quotes_names() {
    let written = written(&[event(0, 0, Kind::Open, 0, 0), event(1, 1, Kind::Write, 7, 8)]);
    let trace = TraceReader::open(&written.path).unwrap();
    let path = written.dir.path().join("out.csv");
    assert_eq!(export::csv(&trace, &path).unwrap(), 2);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "time_ns,pid,kind,offset,bytes,path",
            "0,10,open,0,0,/d/a",
            "1000000,11,write,7,8,\"/d/b, \"\"c\"\"\""
        ]
    );
}

#[test]
fn a_log_for_fio_names_files_of_its_own() {
    let written = written(&[
        event(0, 0, Kind::Read, 100, 50),
        event(0, 1, Kind::Write, 0, 10),
        event(0, 0, Kind::Read, 0, 20),
    ]);
    let trace = TraceReader::open(&written.path).unwrap();
    let log = written.dir.path().join("log");
    let files = written.dir.path().join("files");
    assert_eq!(export::fio(&trace, &log, &files, Pace::Fast).unwrap(), 3);
    let text = fs::read_to_string(&log).unwrap().replace(&format!("{}/", files.display()), "");
    let wanted = "fio version 2 iolog\n000000 add\n000001 add\n000000 open\n000000 read 100 50\n000001 open\n\
                  000001 write 0 10\n000001 close\n000000 read 0 20\n000000 close\n";
    assert_eq!(text, wanted);
    assert_eq!(fs::metadata(files.join("000000")).unwrap().len(), 150);
    assert!(!files.join("000002").exists());
    assert!(export::fio(&trace, &log, Path::new("a b"), Pace::Fast).is_err());
}

/// The two events are a millisecond apart; the first one of the trace is no request.
#[test]
fn a_log_for_fio_has_microseconds_from_one_on() {
    let written = written(&[
        event(0, 0, Kind::Open, 0, 0),
        event(0, 0, Kind::Read, 100, 50),
        event(0, 1, Kind::Write, 0, 10),
    ]);
    let trace = TraceReader::open(&written.path).unwrap();
    let log = written.dir.path().join("log");
    let files = written.dir.path().join("files");
    assert_eq!(export::fio(&trace, &log, &files, Pace::Recorded).unwrap(), 2);
    let text = fs::read_to_string(&log).unwrap().replace(&format!("{}/", files.display()), "");
    let wanted = "fio version 3 iolog\n1 000000 add\n1 000001 add\n1001 000000 open\n1001 000000 read 100 50\n\
                  1001 000000 close\n2001 000001 open\n2001 000001 write 0 10\n2001 000001 close\n";
    assert_eq!(text, wanted);
}

proptest! {
    /// Against a count that keeps all requests: a run begins wherever a request does not continue the one before.
    #[test]
    fn runs_are_those_of_the_definition(
        moves in prop::collection::vec((0..2_u32, 0..6_u64, 0..3_u64, any::<bool>()), 0..60),
    ) {
        let events: Vec<Event> = moves
            .iter()
            .map(|&(file, offset, size, write)| {
                event(0, file, if write { Kind::Write } else { Kind::Read }, offset, size)
            })
            .collect();
        let moving: Vec<&Event> = events.iter().filter(|event| event.size > 0).collect();
        let continues = |pair: &[&Event]| pair[0].file == pair[1].file && pair[0].end() == pair[1].offset;
        let broken = moving.windows(2).filter(|pair| !continues(pair)).count() as u64;
        let found = census_of(&written(&events).path);
        prop_assert_eq!(found.counts.runs, broken + u64::from(!moving.is_empty()));
        let bytes: u64 = moving.iter().map(|event| event.size).sum();
        prop_assert_eq!(found.counts.run_lengths.iter().map(|l| l.bytes).sum::<u64>(), bytes);
        let in_files: u64 = found.by_file.iter().map(|file| file.counts.runs).sum();
        prop_assert_eq!(in_files, found.counts.runs);
    }
}
