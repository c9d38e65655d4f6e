//! Turns: if a switch costs the device more time than moving a block, the reader and the writer of a pass that sorts
//! in memory use the device alternately, also where both directions at once move more bytes
//! ([`volume`](ascot_model::volume) has the reason).
//!
//! ```text
//!   reader    ████████░░░░░░░░████████░░░░░░░░      reads until there is no memory left to read into
//!   writer    ░░░░░░░░████████░░░░░░░░████████      writes a run buffer
//! ```
//!
//! So there are two switches per run buffer, as planned, and not two per block. Sorting continues during
//! both turns.
//!
//! Invariant: a thread that waits for memory has no turn, so the other can always free memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use ascot_io::sync::Unpoisoned;
use ascot_io::waits::{Need, wait_for};
use ascot_model::volume::VolumeProfile;

use crate::resources::limits::device_of;

/// The use of the device by a thread of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads.
    Reader,
    /// Writes.
    Writer,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Role>,
    last: Option<Role>,
    waiting: [usize; 2],
}

/// The role that may use the device.
#[derive(Debug, Default)]
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

impl Turns {
    /// Turns for a pass from files to files or directories, if some of both are on one device whose profile wants long
    /// runs. A volume without a profile counts as flash.
    pub fn between(volume: Option<&VolumeProfile>, from: &[PathBuf], to: &[PathBuf]) -> Option<Arc<Turns>> {
        volume.filter(|volume| volume.wants_runs(2.0))?;
        let to: Vec<u64> = to.iter().filter_map(|path| device_of(path)).collect();
        from.iter().filter_map(|path| device_of(path)).any(|device| to.contains(&device)).then(Arc::default)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Waits for the turn. The role that had the last turn lets the other one go first.
    fn take(&self, role: Role) {
        let other = 1 - role as usize;
        let mut state = self.lock();
        state.waiting[role as usize] += 1;
        let mut waiting = None;
        while state.held.is_some() || (state.last == Some(role) && state.waiting[other] > 0) {
            waiting.get_or_insert_with(|| wait_for("the turn on the device", Need::DEVICE, None));
            state = self.changed.wait(state).unpoisoned();
        }
        state.waiting[role as usize] -= 1;
        state.held = Some(role);
        state.last = Some(role);
    }

    fn give_back(&self) {
        self.lock().held = None;
        self.changed.notify_all();
    }
}

/// One role's access to the device. It has the turn or not, and gives it back when dropped.
#[derive(Debug)]
pub struct DeviceAccess {
    turns: Option<Arc<Turns>>,
    role: Role,
    has_turn: AtomicBool,
}

impl DeviceAccess {
    /// Access in these turns; without them both roles use the device at any time.
    pub fn new(turns: Option<&Arc<Turns>>, role: Role) -> DeviceAccess {
        DeviceAccess { turns: turns.cloned(), role, has_turn: AtomicBool::new(false) }
    }

    /// Takes the turn, and waits for it if the other role has it.
    pub fn take(&self) {
        if let Some(turns) = &self.turns
            && !self.has_turn.load(Relaxed)
        {
            turns.take(self.role);
            self.has_turn.store(true, Relaxed);
        }
    }

    /// Gives the turn back, if this role has it.
    pub fn give_back(&self) {
        if let Some(turns) = &self.turns
            && self.has_turn.swap(false, Relaxed)
        {
            turns.give_back();
        }
    }
}

impl Drop for DeviceAccess {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn sides_take_turns() {
        let turns = Arc::new(Turns::default());
        let (inside, order) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for role in [Role::Reader, Role::Writer] {
                let (turns, inside, order) = (&turns, &inside, &order);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let access = DeviceAccess::new(Some(turns), role);
                        access.take();
                        access.take();
                        assert_eq!(inside.fetch_add(1, Relaxed), 0, "two at once");
                        order.lock().unpoisoned().push(role);
                        inside.fetch_sub(1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(order.into_inner().unpoisoned().len(), 400);
    }

    #[test]
    fn only_where_they_pay() {
        let here = [std::env::temp_dir()];
        let array = VolumeProfile::simple("array", 3.5e9, 3.5e9, 0.0155);
        assert!(Turns::between(Some(&array), &here, &here).is_some());
        assert!(Turns::between(Some(&array), &here, &[PathBuf::from("/proc/self")]).is_none());
        assert!(Turns::between(None, &here, &here).is_none());
        assert!(Turns::between(Some(&VolumeProfile::assumed_flash()), &here, &here).is_none());
        let both = VolumeProfile { duplex_bytes_per_s: Some(3e9), ..array };
        assert!(Turns::between(Some(&both), &here, &here).is_some());
    }
}
