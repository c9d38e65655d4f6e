//! Descriptors: numbers of a process that refer to open files, as the kernel keeps them.
//!
//! ```text
//!   process -> table -> descriptor number -> open file: file, position, append
//! ```
//!
//! Threads share a table, forks copy it; copies of a descriptor (dup, fork) share the open file and so its position.
//! Invariants: an open file lives as long as a descriptor refers to it; a table lives as long as a process uses it.

/// Descriptor numbers beyond it are left out, so that a log cannot ask for endless memory.
const MAX_DESCRIPTOR: u32 = 1 << 20;

/// An open file.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// The file.
    pub file: u32,
    /// The position of the next relative request.
    pub position: u64,
    /// The end of the last request.
    pub last_end: u64,
    /// Whether writes append.
    pub append: bool,
    /// Descriptors that refer to it.
    users: u32,
}

impl Open {
    /// A file that was just opened.
    pub fn at(file: u32, position: u64, append: bool) -> Open {
        Open { file, position, last_end: position, append, users: 0 }
    }
}

/// A descriptor: the number of an open file, and whether the next program loses it.
#[derive(Clone, Copy)]
struct Slot {
    open: u32,
    close_on_exec: bool,
}

#[derive(Default)]
struct Table {
    slots: Vec<Option<Slot>>,
    users: u32,
}

/// All tables and open files.
#[derive(Default)]
pub struct Descriptors {
    tables: Vec<Table>,
    free_tables: Vec<u32>,
    open: Vec<Open>,
    free: Vec<u32>,
}

impl Descriptors {
    /// A table without descriptors, with one user.
    pub fn new_table(&mut self) -> u32 {
        let table = self.free_tables.pop().unwrap_or_else(|| {
            self.tables.push(Table::default());
            (self.tables.len() - 1) as u32
        });
        if let Some(new) = self.tables.get_mut(table as usize) {
            new.users = 1;
        }
        table
    }

    /// Another user of a table: a thread.
    pub fn share(&mut self, table: u32) {
        if let Some(table) = self.tables.get_mut(table as usize) {
            table.users += 1;
        }
    }

    /// A copy of a table: a fork.
    pub fn copy(&mut self, table: u32) -> u32 {
        let copy = self.new_table();
        let slots = self.tables.get(table as usize).map(|table| table.slots.clone()).unwrap_or_default();
        for slot in slots.iter().flatten() {
            self.open[slot.open as usize].users += 1;
        }
        self.tables[copy as usize].slots = slots;
        copy
    }

    /// A user ends. Returns the files whose descriptors ended, once for each open file.
    pub fn leave(&mut self, table: u32) -> Vec<u32> {
        let Some(left) = self.tables.get_mut(table as usize) else { return Vec::new() };
        left.users = left.users.saturating_sub(1);
        if left.users > 0 {
            return Vec::new();
        }
        let slots = std::mem::take(&mut left.slots);
        self.free_tables.push(table);
        slots.into_iter().flatten().filter_map(|slot| self.release(slot.open)).collect()
    }

    /// Whether others use the table, too.
    pub fn is_shared(&self, table: u32) -> bool {
        self.tables.get(table as usize).is_some_and(|table| table.users > 1)
    }

    /// Another program begins: descriptors marked for it are closed. Returns the files of open files that ended.
    pub fn exec(&mut self, table: u32) -> Vec<u32> {
        let Some(kept) = self.tables.get_mut(table as usize) else { return Vec::new() };
        let mut closed = Vec::new();
        for slot in &mut kept.slots {
            if let Some(marked) = slot.take_if(|slot| slot.close_on_exec) {
                closed.push(marked.open);
            }
        }
        closed.into_iter().filter_map(|open| self.release(open)).collect()
    }

    fn release(&mut self, open: u32) -> Option<u32> {
        let released = self.open.get_mut(open as usize)?;
        released.users = released.users.saturating_sub(1);
        if released.users > 0 {
            return None;
        }
        let file = released.file;
        self.free.push(open);
        Some(file)
    }

    /// Adds an open file, to which `descriptor` refers. Returns the file of an open file that ended by that.
    pub fn insert(&mut self, table: u32, descriptor: u32, open: Open, close_on_exec: bool) -> Option<u32> {
        let number = match self.free.pop() {
            Some(number) => {
                self.open[number as usize] = open;
                number
            }
            None => {
                self.open.push(open);
                (self.open.len() - 1) as u32
            }
        };
        self.refer(table, descriptor, Slot { open: number, close_on_exec })
    }

    fn refer(&mut self, table: u32, descriptor: u32, slot: Slot) -> Option<u32> {
        self.open[slot.open as usize].users += 1;
        let slots = self.tables.get_mut(table as usize).map(|table| &mut table.slots);
        let Some(slots) = slots.filter(|_| descriptor < MAX_DESCRIPTOR) else {
            return self.release(slot.open);
        };
        if slots.len() <= descriptor as usize {
            slots.resize(descriptor as usize + 1, None);
        }
        let replaced = slots[descriptor as usize].replace(slot);
        replaced.and_then(|replaced| self.release(replaced.open))
    }

    fn slot(&mut self, table: u32, descriptor: u32) -> Option<&mut Option<Slot>> {
        self.tables.get_mut(table as usize)?.slots.get_mut(descriptor as usize)
    }

    /// The open file of a descriptor.
    pub fn get(&mut self, table: u32, descriptor: u32) -> Option<&mut Open> {
        let slot = (*self.slot(table, descriptor)?)?;
        self.open.get_mut(slot.open as usize)
    }

    /// Makes `to` refer to the open file of `from`, if it has one. Returns the file of an open file that ended.
    pub fn duplicate(&mut self, table: u32, from: u32, to: u32, close_on_exec: bool) -> Option<u32> {
        match self.slot(table, from).and_then(|slot| *slot) {
            Some(slot) if from != to => self.refer(table, to, Slot { open: slot.open, close_on_exec }),
            Some(_) => None,
            None => self.close(table, to).and_then(|(_, ended)| ended),
        }
    }

    /// Closes a descriptor. Returns its file, and the file again if that was the last descriptor of the open file;
    /// none if the descriptor is not one of a file.
    pub fn close(&mut self, table: u32, descriptor: u32) -> Option<(u32, Option<u32>)> {
        let slot = self.slot(table, descriptor)?.take()?;
        let file = self.open.get(slot.open as usize)?.file;
        Some((file, self.release(slot.open)))
    }

    /// Sets whether the next program loses a descriptor.
    pub fn mark(&mut self, table: u32, descriptor: u32, close_on_exec: bool) {
        if let Some(Some(slot)) = self.slot(table, descriptor) {
            slot.close_on_exec = close_on_exec;
        }
    }

    /// The descriptors of a table in a range that refer to files.
    pub fn within(&self, table: u32, first: u32, last: u32) -> Vec<u32> {
        let slots = self.tables.get(table as usize).map_or(&[][..], |table| &table.slots);
        let used = slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        used.map(|(number, _)| number as u32).filter(|number| (first..=last).contains(number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_a_position_and_end_together() {
        let mut all = Descriptors::default();
        let parent = all.new_table();
        assert_eq!(all.insert(parent, 3, Open::at(7, 0, false), false), None);
        assert_eq!(all.duplicate(parent, 3, 10, true), None);
        let child = all.copy(parent);
        all.get(child, 10).unwrap().position = 99;
        assert_eq!(all.get(parent, 3).unwrap().position, 99);
        assert!(all.exec(child).is_empty() && all.get(child, 10).is_none() && all.get(child, 3).is_some());
        assert_eq!(all.close(parent, 3), Some((7, None)));
        assert_eq!(all.close(parent, 10), Some((7, None)));
        assert_eq!(all.leave(child), [7]);
        assert!(all.leave(parent).is_empty());
    }

    #[test]
    fn a_number_used_again_closes_its_file() {
        let mut all = Descriptors::default();
        let table = all.new_table();
        all.insert(table, 3, Open::at(1, 0, false), false);
        all.insert(table, 4, Open::at(2, 0, false), false);
        assert_eq!(all.duplicate(table, 4, 3, false), Some(1));
        assert_eq!(all.duplicate(table, 9, 4, false), None, "a pipe, say, takes the place of 4");
        assert!(all.get(table, 4).is_none());
        assert_eq!(all.within(table, 0, 100), [3]);
        assert_eq!(all.insert(table, u32::MAX, Open::at(3, 0, false), false), Some(3), "too large to keep");
    }
}
