//! Blocks that stay free for outputs.

use super::*;

/// An output whose writes end at once, so that their memory is free before the engine completes them.
#[derive(Default)]
pub(super) struct AtOnce {
    begun: usize,
}

impl BlockOutput for AtOnce {
    fn begin(&mut self, buf: Buf, _len: usize) -> Result<(), IoError> {
        drop(buf);
        self.begun += 1;
        Ok(())
    }

    fn complete(&mut self) -> Result<(), IoError> {
        self.begun -= 1;
        Ok(())
    }

    fn ready(&mut self) -> bool {
        self.begun > 0
    }

    fn finish(&mut self) -> Result<u64, IoError> {
        Ok(0)
    }
}

/// Reads whenever it may, and writes if there is no memory.
struct Eager;

impl Schedule for Eager {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        if view.blocked_on == BlockedOn::OutputMemory && view.full[0] > 0 {
            return Some(Move::Write(0));
        }
        view.may_read(0).then_some(Move::Read(0))
    }
}

/// A flow that keeps the blocks it has consumed until its output is put, as a merge does, finds the memory that its
/// output is promised: reads do not take what a write has just returned.
#[test]
fn a_read_takes_no_block_that_a_write_returned_to_an_output() {
    let disk = disk();
    disk.store("in", vec![0; 100 * BLOCK]);
    let input = Reader::new(disk.open_read("in", 0..u64::MAX), BLOCK);
    let split = Split { read: 6, write: 4 };
    let output = AtOnce::default();
    let mut bowtie =
        Bowtie::with_schedule(vec![input], vec![output], blocks(10), 0.5, split, Box::new(Eager))
            .expect("memory");
    let mut kept = Vec::new();
    for _ in 0..split.read {
        bowtie.wait(BlockedOn::Input(0)).expect("a block");
        kept.extend(bowtie.take(0));
        bowtie.release(0, 1, 0.0);
    }
    assert_eq!(kept.len(), split.read as usize);
    let mut left = 20 * BLOCK;
    for _ in 0..40 {
        left -= bowtie.put(0, &vec![0; left]);
        bowtie.wait(BlockedOn::OutputMemory).expect("a block is written");
        bowtie.queue_full_blocks();
        let promised = bowtie.occupancy.write_blocks() - bowtie.output_blocks;
        assert!(bowtie.pool.free() as u32 >= promised, "{} free, {promised} promised", bowtie.pool.free());
    }
    assert_eq!(left, 0);
}
