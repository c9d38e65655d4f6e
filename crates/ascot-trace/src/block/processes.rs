//! The processes of a recording: the program, its descendants, and the others.
//!
//! Invariants: a task belongs to the program if the task that made it did. A number that is used again for a task of
//! another program loses its old meaning.

use std::collections::{HashMap, HashSet};
use std::fs;

use crate::event::TracedProcess;

/// Flag of a task of the kernel, in its status.
const PF_KTHREAD: u64 = 0x0020_0000;

/// Who issued a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Issuer {
    /// A process of the program, an index.
    Program(u32),
    /// The kernel.
    Kernel,
    /// Another program.
    Other,
}

/// The processes of the program.
pub struct Processes {
    table: Vec<TracedProcess>,
    /// The process of every task.
    tasks: HashMap<u32, u32>,
    /// Numbers of processes that belong to the program or did.
    pids: HashSet<u32>,
    /// Whether other tasks belong to the kernel.
    kernel: HashMap<u32, bool>,
    root: u32,
    /// Whether the kernel reported that the program was started, with the number that this process sees.
    pub root_seen: bool,
}

impl Processes {
    /// Begins with the process of the program.
    pub fn new(root: u32, program: Vec<u8>) -> Processes {
        Processes {
            table: vec![TracedProcess { pid: root, program }],
            tasks: HashMap::from([(root, 0)]),
            pids: HashSet::from([root]),
            // The recorder has dirty pages written in place of the kernel.
            kernel: HashMap::from([(std::process::id(), true)]),
            root,
            root_seen: false,
        }
    }

    /// A task was made.
    pub fn made(&mut self, parent: u32, task: u32, thread: bool) {
        self.kernel.remove(&task);
        if task == self.root {
            self.root_seen = true;
            return;
        }
        match self.tasks.get(&parent).copied() {
            Some(process) if thread => {
                self.tasks.insert(task, process);
            }
            Some(process) => {
                let program = self.table[process as usize].program.clone();
                self.tasks.insert(task, self.table.len() as u32);
                self.table.push(TracedProcess { pid: task, program });
                self.pids.insert(task);
            }
            None => {
                self.tasks.remove(&task);
                self.pids.remove(&task);
            }
        }
    }

    /// A task runs another program.
    pub fn runs(&mut self, task: u32, path: Vec<u8>) {
        if let Some(&process) = self.tasks.get(&task) {
            self.table[process as usize].program = path;
        }
    }

    /// The index of a process, if it belongs to the program.
    pub fn of(&self, pid: u32) -> Option<u32> {
        self.pids.contains(&pid).then(|| self.tasks.get(&pid).copied())?
    }

    /// The numbers of all processes of the program.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.pids.iter().copied()
    }

    /// The number of processes of the program that have not ended.
    pub fn alive(&self) -> u64 {
        self.pids.iter().filter(|pid| is_alive(**pid)).count() as u64
    }

    /// The number of processes of the program.
    pub fn count(&self) -> u32 {
        self.table.len() as u32
    }

    /// The issuer of a request by a task.
    pub fn issuer(&mut self, task: u32) -> Issuer {
        if let Some(&process) = self.tasks.get(&task) {
            return Issuer::Program(process);
        }
        let kernel = *self.kernel.entry(task).or_insert_with(|| is_kernel(task));
        if kernel { Issuer::Kernel } else { Issuer::Other }
    }

    /// The table, with an entry for the kernel and one for all other programs after those of the program.
    pub fn into_table(self) -> Vec<TracedProcess> {
        let mut table = self.table;
        for name in ["[kernel]", "[other programs]"] {
            table.push(TracedProcess { pid: 0, program: name.as_bytes().to_vec() });
        }
        table
    }
}

/// Whether a process runs, and does not only wait for its parent to take its status.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| !matches!(state, "Z" | "X"))
}

/// Whether a task belongs to the kernel. One that ended meanwhile did not: tasks of the kernel that issue requests
/// live long.
fn is_kernel(task: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{task}/stat")).unwrap_or_default();
    let flags =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    task == 0 || flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_belong_to_the_program_until_their_number_is_used_again() {
        let mut processes = Processes::new(u32::MAX - 9, b"sh".to_vec());
        let [root, thread, child, grandchild, stranger] = [9, 8, 7, 6, 5].map(|n| u32::MAX - n);
        processes.made(1, root, false);
        processes.made(root, thread, true);
        processes.made(thread, child, false);
        processes.runs(child, b"/bin/sort".to_vec());
        processes.made(child, grandchild, false);
        processes.made(1, stranger, false);
        assert!(processes.root_seen);
        assert_eq!(processes.issuer(thread), Issuer::Program(0));
        assert_eq!((processes.of(thread), processes.of(child)), (None, Some(1)), "a thread is no process");
        assert_eq!(processes.issuer(grandchild), Issuer::Program(2));
        assert_eq!(processes.issuer(stranger), Issuer::Other);
        processes.made(stranger, child, false);
        assert_eq!((processes.issuer(child), processes.of(child)), (Issuer::Other, None));
        let programs: Vec<_> = processes.into_table().into_iter().map(|process| process.program).collect();
        assert_eq!(programs[..3], [b"sh".to_vec(), b"/bin/sort".to_vec(), b"/bin/sort".to_vec()]);
    }

    #[test]
    fn tasks_of_the_kernel_are_known() {
        assert!(!is_kernel(std::process::id()));
    }
}
