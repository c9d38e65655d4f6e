//! Attributes requests to files by the extents that the files had at that time.
//!
//! A request lies in the extents of one file, or of several, or of none. Each of its parts that is contiguous in a
//! file becomes an event. Invariant: the bytes of all events, and the bytes counted elsewhere, are those of the
//! requests.

use std::collections::{HashMap, HashSet};

use super::held::Extents;
use super::processes::Issuer;
use super::spool::{Record, What};
use super::timeline::Placed;
use super::volumes::SECTOR_BYTES;
use crate::event::{BlockCounts, Event, Kind, Requests, TracedFile};

/// Bytes of a disk whose extents are looked up together.
const BUCKET_BYTES: u64 = 1 << 20;

/// The files, and where their bytes were.
pub struct Attribution {
    files: Vec<TracedFile>,
    /// The end of the last request of each file.
    ends: Vec<u64>,
    /// Files with events.
    seen: Vec<bool>,
    placed: Vec<(u32, Placed)>,
    /// The extents that reach into a bucket of a disk.
    buckets: HashMap<(u32, u64), Vec<u32>>,
    disks: HashSet<u32>,
    /// The numbers of processes that are not the program's.
    kernel: u32,
    first_ns: u64,
    /// The requests that became events, and those that did not.
    pub counts: BlockCounts,
}

/// The part of a request that is in one file.
struct FilePart {
    file: u32,
    offset: u64,
    bytes: u64,
}

impl Attribution {
    /// Prepares for requests since `first_ns`; `kernel` is the index of the kernel in the table of processes, after
    /// which stands that of other programs.
    pub fn new(extents: Extents, kernel: u32, first_ns: u64) -> Attribution {
        let files = extents.files.len();
        let mut attribution = Attribution {
            files: extents.files,
            ends: vec![0; files],
            seen: vec![false; files],
            placed: Vec::with_capacity(extents.placed.len()),
            buckets: HashMap::new(),
            disks: HashSet::new(),
            kernel,
            first_ns,
            counts: BlockCounts::default(),
        };
        for (disk, file, placed) in extents.placed {
            let number = attribution.placed.len() as u32;
            let last = placed.physical.saturating_add(placed.length - 1);
            for bucket in placed.physical / BUCKET_BYTES..=last / BUCKET_BYTES {
                attribution.buckets.entry((disk, bucket)).or_default().push(number);
            }
            attribution.placed.push((file, placed));
            attribution.disks.insert(disk);
        }
        attribution
    }

    /// The files, after all records.
    pub fn into_files(self) -> (Vec<TracedFile>, u64, BlockCounts) {
        let seen = self.seen.iter().filter(|seen| **seen).count() as u64;
        (self.files, seen, self.counts)
    }

    /// Passes the events of a record to `each`.
    pub fn record<E>(
        &mut self,
        record: &Record,
        mut each: impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<(), E> {
        let process = match record.issuer {
            Issuer::Program(process) => process,
            Issuer::Kernel => self.kernel,
            Issuer::Other => self.kernel + 1,
        };
        let time_ns = record.time_ns.saturating_sub(self.first_ns);
        let event = |file, kind| Event { time_ns, process, file, kind, jumped: false, offset: 0, size: 0 };
        match record.what {
            What::Open { file } => {
                self.seen[file as usize] = true;
                each(&event(file, Kind::Open))
            }
            What::Delete { file } => {
                self.seen[file as usize] = true;
                each(&event(file, Kind::Delete))
            }
            What::Request { device, sector, sectors, writes, metadata } => {
                let start = sector.saturating_mul(SECTOR_BYTES);
                let bytes = u64::from(sectors) * SECTOR_BYTES;
                let parts = self.parts(device, start, bytes, record.time_ns);
                self.count(device, record.issuer, metadata, bytes, &parts);
                let kind = if writes { Kind::Write } else { Kind::Read };
                for part in parts {
                    let end = part.offset + part.bytes;
                    let before = std::mem::replace(&mut self.ends[part.file as usize], end);
                    self.seen[part.file as usize] = true;
                    let jumped = before != part.offset;
                    each(&Event { jumped, offset: part.offset, size: part.bytes, ..event(part.file, kind) })?;
                }
                Ok(())
            }
        }
    }

    /// Counts the bytes of a request that are not in its parts. A request without parts counts once.
    fn count(&mut self, disk: u32, issuer: Issuer, metadata: bool, bytes: u64, parts: &[FilePart]) {
        let attributed: u64 = parts.iter().map(|part| part.bytes).sum();
        let counts = &mut self.counts;
        if attributed > 0 {
            counts.attributed.add(attributed);
        }
        if attributed == bytes {
            return;
        }
        let to = if !self.disks.contains(&disk) || issuer == Issuer::Other {
            &mut counts.left_out
        } else if metadata {
            &mut counts.metadata
        } else if issuer == Issuer::Kernel {
            &mut counts.kernel
        } else {
            &mut counts.unknown
        };
        to.bytes += bytes - attributed;
        to.requests += u64::from(attributed == 0);
    }

    /// The parts of a request that lie in files, in the order of the disk.
    fn parts(&self, disk: u32, start: u64, bytes: u64, at_ns: u64) -> Vec<FilePart> {
        let end = start.saturating_add(bytes);
        let buckets = start / BUCKET_BYTES..=end.saturating_sub(1) / BUCKET_BYTES;
        let numbers = buckets.filter_map(|bucket| self.buckets.get(&(disk, bucket))).flatten();
        let there = numbers.filter_map(|number| {
            let (file, placed) = self.placed.get(*number as usize)?;
            let overlaps = placed.physical < end && placed.physical + placed.length > start;
            let valid = placed.from_ns <= at_ns && at_ns <= placed.until_ns;
            (overlaps && valid).then_some((*file, placed))
        });
        let there: Vec<(u32, &Placed)> = there.collect();
        let mut bounds: Vec<u64> = there
            .iter()
            .flat_map(|(_, placed)| [placed.physical.max(start), (placed.physical + placed.length).min(end)])
            .collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut parts: Vec<FilePart> = Vec::new();
        for range in bounds.windows(2) {
            let covers =
                |placed: &Placed| placed.physical <= range[0] && range[1] <= placed.physical + placed.length;
            let best = there.iter().filter(|(_, placed)| covers(placed)).max_by_key(|(_, placed)| {
                let certain = placed.first_ns <= at_ns && at_ns <= placed.last_ns;
                (certain, placed.from_ns)
            });
            let Some((file, placed)) = best else { continue };
            let offset = placed.logical + (range[0] - placed.physical);
            let bytes = range[1] - range[0];
            match parts.last_mut() {
                Some(last) if last.file == *file && last.offset + last.bytes == offset => last.bytes += bytes,
                _ => parts.push(FilePart { file: *file, offset, bytes }),
            }
        }
        parts
    }
}

impl Requests {
    fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: u32 = 254 << 20;

    fn placed(file: u32, logical: u64, physical: u64, length: u64, times: [u64; 4]) -> (u32, u32, Placed) {
        let [from_ns, first_ns, last_ns, until_ns] = times;
        (DISK, file, Placed { logical, physical, length, from_ns, first_ns, last_ns, until_ns })
    }

    fn attribution(placed: Vec<(u32, u32, Placed)>) -> Attribution {
        Attribution::new(Extents { files: vec![TracedFile::default(); 3], placed }, 1, 0)
    }

    fn events(
        of: &mut Attribution,
        time_ns: u64,
        issuer: Issuer,
        disk: u32,
        sector: u64,
        sectors: u32,
    ) -> Vec<(u32, u64, u64)> {
        let what = What::Request { device: disk, sector, sectors, writes: true, metadata: false };
        let mut found = Vec::new();
        let done: Result<(), ()> = of.record(&Record { time_ns, issuer, what }, |event| {
            found.push((event.file, event.offset, event.size));
            Ok(())
        });
        done.unwrap();
        found
    }

    #[test]
    fn a_request_is_divided_among_the_files_that_it_reaches() {
        let always = [0, 1, u64::MAX, u64::MAX];
        let mut all = attribution(vec![
            placed(0, 4096, 1 << 20, 4096, always),
            placed(1, 0, (1 << 20) + 4096, 4096, always),
            // The next piece of the same file lies elsewhere in it.
            placed(1, 65536, (1 << 20) + 8192, 4096, always),
        ]);
        let found = events(&mut all, 5, Issuer::Kernel, DISK, 2048 - 8, 8 * 6);
        assert_eq!(found, [(0, 4096, 4096), (1, 0, 4096), (1, 65536, 4096)]);
        let counts = all.counts;
        assert_eq!((counts.attributed.requests, counts.attributed.bytes), (1, 3 * 4096));
        assert_eq!((counts.kernel.requests, counts.kernel.bytes), (0, 3 * 4096));
    }

    #[test]
    fn blocks_that_another_file_had_before_count_for_it_then() {
        let mut all = attribution(vec![
            placed(0, 0, 0, 4096, [10, 20, 30, 40]),
            placed(1, 8192, 0, 4096, [35, 50, u64::MAX, u64::MAX]),
        ]);
        let mut at = |time_ns| events(&mut all, time_ns, Issuer::Program(0), DISK, 0, 8);
        assert_eq!(at(5), [], "no file had it then");
        assert_eq!(at(12), [(0, 0, 4096)], "written before it was seen there");
        assert_eq!(at(33), [(0, 0, 4096)]);
        assert_eq!(at(38), [(1, 8192, 4096)], "perhaps the old one, rather the new one");
        assert_eq!(at(60), [(1, 8192, 4096)]);
        assert_eq!((all.counts.unknown.requests, all.counts.unknown.bytes), (1, 4096));
    }

    #[test]
    fn requests_without_a_file_count_by_their_issuer() {
        let mut all = attribution(vec![placed(0, 0, 0, 4096, [0, 1, u64::MAX, u64::MAX])]);
        events(&mut all, 5, Issuer::Program(0), DISK, 800, 1);
        events(&mut all, 5, Issuer::Kernel, DISK, 800, 2);
        events(&mut all, 5, Issuer::Other, DISK, 800, 3);
        events(&mut all, 5, Issuer::Kernel, DISK + 1, 0, 4);
        let counts = all.counts;
        let sectors = [counts.attributed, counts.unknown, counts.kernel, counts.metadata, counts.left_out];
        assert_eq!(
            sectors.map(|all| (all.requests, all.bytes / 512)),
            [(0, 0), (1, 1), (1, 2), (0, 0), (2, 7)]
        );
    }
}
