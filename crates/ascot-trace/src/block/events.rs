//! The events of the kernel that a recording uses, as plain values.
//!
//! The place of a field differs between kernels; tracefs describes it. Invariant: a field that an event lacks is an
//! error when the recording starts, not a wrong number later.

use std::collections::HashMap;

use super::tracefs::{Instance, failed};
use crate::error::Result;

/// Flag of a task that shares the process of its maker.
const CLONE_THREAD: u64 = 0x10000;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A request went to a device.
    Issue(Issue),
    /// The device did not take a request; it is issued again.
    Requeue {
        /// The device.
        device: u32,
        /// The first sector.
        sector: u64,
    },
    /// A task was made.
    Task {
        /// The task that made it.
        parent: u32,
        /// Its number.
        task: u32,
        /// Whether it is a thread of the same process.
        thread: bool,
    },
    /// A task runs another program.
    Exec {
        /// The task.
        task: u32,
        /// The path of the program, as it was named.
        path: Vec<u8>,
    },
}

/// A request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The device, as the kernel numbers it: `major << 20 | minor`.
    pub device: u32,
    /// The first sector of 512 bytes.
    pub sector: u64,
    /// The number of sectors.
    pub sectors: u32,
    /// Whether it writes.
    pub writes: bool,
    /// Whether the file system marked it as metadata.
    pub metadata: bool,
    /// The task that issued it.
    pub task: u32,
}

/// Where a field lies in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Bio,
    Requeue,
    Task,
    Exec,
}

/// The fields in the order in which [`Events::decode`] reads them.
const KINDS: [(Kind, &str, &[&str]); 5] = [
    (Kind::Request, "block/block_rq_issue", &["dev", "sector", "nr_sector", "rwbs"]),
    (Kind::Bio, "block/block_bio_queue", &["dev", "sector", "nr_sector", "rwbs"]),
    (Kind::Requeue, "block/block_rq_requeue", &["dev", "sector"]),
    (Kind::Task, "task/task_newtask", &["pid", "clone_flags"]),
    (Kind::Exec, "sched/sched_process_exec", &["filename", "pid"]),
];

/// The layouts of the events, by their number.
pub struct Events {
    layouts: HashMap<u64, (Kind, Vec<Field>)>,
}

impl Events {
    /// Enables the events of an instance. `stacked`: whether devices without a queue of requests matter.
    pub fn enable(instance: &Instance, stacked: bool) -> Result<Events> {
        let mut layouts = HashMap::new();
        for (kind, name, fields) in KINDS {
            if kind == Kind::Bio && !stacked {
                continue;
            }
            let format = instance.format(name)?;
            let (number, layout) = layout(&format, fields).ok_or_else(|| {
                failed(name)(std::io::Error::other("this kernel describes the event in another way"))
            })?;
            layouts.insert(number, (kind, layout));
            instance.enable(name)?;
        }
        Ok(Events { layouts })
    }

    /// The event of which the ring buffer has this data; none for others and for requests that move no bytes.
    pub fn decode(&self, data: &[u8], is_stacked: impl Fn(u32) -> bool) -> Option<Seen> {
        let (kind, fields) = self.layouts.get(&number(data, Field { offset: 0, size: 2 })?)?;
        let value = |field: usize| number(data, *fields.get(field)?);
        let task = number(data, Field { offset: 4, size: 4 })? as u32;
        match kind {
            Kind::Request | Kind::Bio => {
                let device = value(0)? as u32;
                if (*kind == Kind::Bio) != is_stacked(device) {
                    return None;
                }
                let rwbs = *fields.get(3)?;
                let (writes, metadata) = direction(data.get(rwbs.offset..rwbs.offset + rwbs.size)?)?;
                let sector = value(1)?;
                let sectors = value(2)? as u32;
                (sectors > 0).then_some(Seen::Issue(Issue {
                    device,
                    sector,
                    sectors,
                    writes,
                    metadata,
                    task,
                }))
            }
            Kind::Requeue => Some(Seen::Requeue { device: value(0)? as u32, sector: value(1)? }),
            Kind::Task => Some(Seen::Task {
                parent: task,
                task: value(0)? as u32,
                thread: value(1)? & CLONE_THREAD != 0,
            }),
            Kind::Exec => {
                let location = value(0)?;
                let from = (location & 0xFFFF) as usize;
                let length = (location >> 16) as usize;
                let name = data.get(from..from.checked_add(length)?)?;
                let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                Some(Seen::Exec { task: value(1)? as u32, path: name[..end].to_vec() })
            }
        }
    }
}

/// Whether a request writes, and whether it is marked as metadata. None for flushes, discards and others.
fn direction(rwbs: &[u8]) -> Option<(bool, bool)> {
    let end = rwbs.iter().position(|byte| *byte == 0).unwrap_or(rwbs.len());
    let rwbs = &rwbs[..end];
    // A first F asks for a flush before the request.
    let operation = rwbs.strip_prefix(b"F").unwrap_or(rwbs);
    let writes = match operation.first()? {
        b'R' => false,
        b'W' => true,
        _ => return None,
    };
    Some((writes, operation.contains(&b'M')))
}

/// The number of an event and the places of its fields, from the description of tracefs.
fn layout(format: &str, names: &[&str]) -> Option<(u64, Vec<Field>)> {
    let number = format.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
    let field = |wanted: &&str| format.lines().find_map(|line| parse_field(line, wanted));
    let fields: Option<Vec<Field>> = names.iter().map(field).collect();
    Some((number, fields?))
}

/// Such as `field:char rwbs[10]; offset:34; size:10; signed:0;`
fn parse_field(line: &str, wanted: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';');
    let declared = parts.next()?.rsplit_once(' ')?.1;
    let name = declared.split('[').next()?;
    let mut values = parts.filter_map(|part| part.trim().split_once(':'));
    let (_, offset) = values.next()?;
    let (_, size) = values.next()?;
    (name == wanted).then_some(Field { offset: offset.parse().ok()?, size: size.parse().ok()? })
}

/// An unsigned number of at most eight bytes.
fn number(data: &[u8], field: Field) -> Option<u64> {
    let bytes = data.get(field.offset..field.offset.checked_add(field.size)?)?;
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_of_a_request_is_read() {
        let cases: [(&[u8], _); 9] = [
            (b"R\0\0", Some((false, false))),
            (b"RA", Some((false, false))),
            (b"RSM\0", Some((false, true))),
            (b"W", Some((true, false))),
            (b"FWFSM\0", Some((true, true))),
            (b"FF\0", None),
            (b"D", None),
            (b"N", None),
            (b"\0", None),
        ];
        for (rwbs, expected) in cases {
            assert_eq!(direction(rwbs), expected, "{rwbs:?}");
        }
    }

    #[test]
    fn fields_are_found_by_their_names() {
        let format = "name: x\nID: 2104\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
                      \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
                      \tfield:__data_loc char[] filename;\toffset:12;\tsize:4;\tsigned:0;\n\
                      \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n";
        let field = |offset, size| Field { offset, size };
        let expected = vec![field(34, 10), field(8, 4), field(12, 4)];
        assert_eq!(layout(format, &["rwbs", "dev", "filename"]), Some((2104, expected)));
        assert_eq!(layout(format, &["sector"]), None);
    }

    #[test]
    fn events_shorter_than_their_fields_are_left_out() {
        let fields = vec![Field { offset: 8, size: 4 }, Field { offset: 12, size: 8 }];
        let events = Events { layouts: HashMap::from([(7, (Kind::Requeue, fields))]) };
        let mut data = vec![7, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let seen = events.decode(&data, |_| false);
        assert_eq!(seen, Some(Seen::Requeue { device: 5, sector: 9 }));
        data.pop();
        assert_eq!(events.decode(&data, |_| false), None);
    }
}
