//! Small inputs and pipes: read one buffer at a time, several inputs to a chunk.

use ascot_io::{Filled, PAGE_BYTES};

use super::{Fill, RecordReader, UNKNOWN};
use crate::api::{Result, SortError};
use crate::read::inputs::COMPLETION_BYTES;
use crate::records::RecordEnds;
use crate::resources::Starving;

impl<R: RecordEnds + ?Sized> RecordReader<R> {
    /// Fills a chunk from small inputs and pipes. The bytes that continue a long record are not cut yet.
    pub(super) fn fill_small(&mut self, starving: Starving<'_>) -> Result<Fill> {
        let mut fill = self.start_small(starving)?;
        loop {
            let space = (fill.lease.bytes().len() - COMPLETION_BYTES).saturating_sub(fill.bytes.end)
                / PAGE_BYTES
                * PAGE_BYTES;
            if space == 0 {
                if let Some(open) = self.open.as_mut().filter(|open| open.pipe) {
                    open.to_ask = Some(UNKNOWN);
                }
                return Ok(fill);
            }
            fill.ends = self.read(&mut fill, space)?;
            if self.cutter.long.is_some() {
                if fill.ends {
                    return Ok(fill);
                }
                continue;
            }
            self.cut(&mut fill, 0)?;
            if !fill.ends {
                continue;
            }
            self.end_input(&mut fill)?;
            let more = !self.separate && self.open_input()?;
            let small = self.open.as_ref().is_some_and(|open| open.to_ask.is_none());
            if !more || !small {
                return Ok(fill);
            }
        }
    }

    /// A buffer that begins with the carry, unless the carry starts a long record.
    fn start_small(&mut self, starving: Starving<'_>) -> Result<Fill> {
        let carry = self.cutter.carry.len();
        if carry + 2 * PAGE_BYTES > self.chunks.chunk_bytes() {
            self.start_long(0, starving)?;
            return Ok(Fill::new(self.lease(starving)?, 0..0));
        }
        let lease = self.lease(starving)?;
        let end = carry.next_multiple_of(PAGE_BYTES);
        self.join_carry(lease, end..end, starving)
    }

    /// Reads up to `space` bytes after the bytes there are; true if the input has ended.
    fn read(&mut self, fill: &mut Fill, space: usize) -> Result<bool> {
        let Some(open) = &mut self.open else { return Ok(true) };
        let Some(area) = fill.lease.lend(fill.bytes.end..fill.bytes.end + space) else {
            return Err(SortError::Internal("a chunk without memory"));
        };
        if !open.pipe {
            self.access.take();
        }
        open.stream.begin(area)?;
        let Filled { buf, start, end } = open.stream.complete()?;
        fill.lease.take_back(buf);
        if start > 0 {
            // Only at an unaligned start: the carry moves next to the bytes read.
            let held = fill.bytes.len();
            fill.lease.bytes_mut().copy_within(fill.bytes.clone(), fill.bytes.start + start);
            fill.bytes = fill.bytes.start + start..fill.bytes.start + start + held;
            fill.cut += start;
        }
        fill.bytes.end += end - start;
        let read = (end - start) as u64;
        self.cutter.at.offset += read;
        self.stops_after = self.stops_after.map(|stop| stop.saturating_sub(read));
        Ok(end < space)
    }
}
