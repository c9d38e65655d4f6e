//! Pipes whose partners send nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::promised_blocks::AtOnce;
use super::*;
use crate::occupancy::UNKNOWN_BLOCKS;

/// A stream without an end, and the number of its blocks in flight. Nobody may wait for a block of a silent one.
struct End {
    is_silent: bool,
    begun: VecDeque<Buf>,
    in_flight: Arc<AtomicU32>,
}

impl BlockInput for End {
    type Block = Buf;

    fn remaining(&self) -> u32 {
        UNKNOWN_BLOCKS
    }

    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        self.begun.push_back(buf);
        self.in_flight.fetch_add(1, Relaxed);
        Ok(())
    }

    fn complete(&mut self) -> Result<Completed<Buf>, IoError> {
        assert!(!self.is_silent, "the engine waits for a silent pipe");
        self.in_flight.fetch_sub(1, Relaxed);
        Ok(self.begun.pop_front().map_or(Completed::Ended, Completed::Block))
    }

    fn ready(&mut self) -> bool {
        false
    }
}

/// A flow that needs a file whose block cannot be requested yet waits for requests of files alone: the partner of a
/// pipe may be one that sends only when it gets what the flow makes of the file.
#[test]
fn a_flow_that_needs_a_file_waits_for_no_pipe() {
    let is_pipe = vec![true, false, false];
    let in_flight: [Arc<AtomicU32>; 3] = Default::default();
    let end = |(&is_silent, in_flight): (&bool, &Arc<AtomicU32>)| End {
        is_silent,
        begun: VecDeque::new(),
        in_flight: in_flight.clone(),
    };
    let inputs = is_pipe.iter().zip(&in_flight).map(end).collect();
    let scheme =
        Scheme::best_of(Shape { inputs: 2, outputs: 1, alpha: 0.5 }, Algorithm::A4).expect("it fits");
    let outputs = vec![AtOnce::default()];
    let mut bowtie = Bowtie::with_pipes(inputs, is_pipe, outputs, blocks(40), &scheme).expect("memory");
    bowtie.pump().expect("a block is requested");
    let now = in_flight.each_ref().map(|number| number.load(Relaxed));
    assert!(now[0] > 0 && now[1] + now[2] == 1, "{now:?}");
    bowtie.depth = 1;
    let other = if now[1] == 0 { 1 } else { 2 };
    bowtie.wait(BlockedOn::Input(other)).expect("a block of the other file");
    assert_eq!(in_flight[3 - other].load(Relaxed), 0);
}
