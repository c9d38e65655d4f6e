//! Memory of arrays that were dropped, for the arrays of the next batch: fresh memory costs a page fault for each page.
//!
//! Invariant: a column under construction keeps one block of memory beside its own, of the last array that was dropped.

use std::sync::{Arc, Mutex, Weak};

use arrow_buffer::{ArrowNativeType, Buffer, MutableBuffer};
use bytes::Bytes;

/// The memory of an array that was dropped, if there was one.
type Spare = Mutex<Option<MutableBuffer>>;

/// Values of one width under construction.
#[derive(Default)]
pub(super) struct ReusedBuffer {
    buffer: MutableBuffer,
    /// Bytes of the last array: the next one has about as many.
    expected_bytes: usize,
    spare: Arc<Spare>,
}

impl ReusedBuffer {
    /// Bytes of all values.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Appends values.
    pub(super) fn extend_from_slice<T: ArrowNativeType>(&mut self, values: &[T]) {
        self.filling().extend_from_slice(values);
    }

    /// Appends `count` zeros, and returns them.
    pub(super) fn extend_zeros<T: ArrowNativeType>(&mut self, count: usize) -> &mut [T] {
        let buffer = self.filling();
        buffer.extend_zeros(count * size_of::<T>());
        let values = buffer.typed_data_mut();
        let at = values.len() - count;
        &mut values[at..]
    }

    /// The values, whose memory comes back when the last array of them is dropped. None are left here.
    pub(super) fn finish(&mut self) -> Buffer {
        let buffer = std::mem::take(&mut self.buffer);
        self.expected_bytes = buffer.len();
        if buffer.capacity() == 0 {
            return buffer.into();
        }
        Bytes::from_owner(Lent { buffer, home: Arc::downgrade(&self.spare) }).into()
    }

    /// The buffer, with memory. It takes memory only when its first value comes: by then the reader of the batches has
    /// dropped what it does not keep.
    fn filling(&mut self) -> &mut MutableBuffer {
        if self.buffer.capacity() == 0 {
            let spare = self.spare.lock().ok().and_then(|mut spare| spare.take());
            // A reader may keep many small arrays after a large one.
            let fitting = spare.filter(|spare| spare.capacity() / 2 <= self.expected_bytes);
            self.buffer = fitting.unwrap_or_else(|| MutableBuffer::new(self.expected_bytes));
        }
        &mut self.buffer
    }
}

/// The memory of an array.
struct Lent {
    buffer: MutableBuffer,
    home: Weak<Spare>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        if let Ok(mut spare) = home.lock() {
            *spare = Some(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffer: &mut ReusedBuffer, value: u8) -> Buffer {
        buffer.extend_zeros::<u8>(100_000).fill(value);
        buffer.finish()
    }

    #[test]
    fn the_memory_of_a_dropped_array_is_that_of_the_next_one() {
        let mut buffer = ReusedBuffer::default();
        let first = filled(&mut buffer, 1);
        let second = filled(&mut buffer, 2);
        let places = [first.as_ptr(), second.as_ptr()];
        assert_ne!(places[0], places[1]);
        let part = first.slice(50_000);
        drop(first);
        let third = filled(&mut buffer, 3);
        // A part of the array still has its memory.
        assert!(!places.contains(&third.as_ptr()) && part.iter().all(|&byte| byte == 1));
        drop(part);
        assert_eq!(filled(&mut buffer, 4).as_ptr(), places[0]);
        assert!(second.iter().all(|&byte| byte == 2) && third.iter().all(|&byte| byte == 3));
    }

    #[test]
    fn reused_memory_has_the_next_values_only() {
        let mut buffer = ReusedBuffer::default();
        drop(filled(&mut buffer, 1));
        assert!(buffer.extend_zeros::<u8>(10).iter().all(|&byte| byte == 0));
        buffer.extend_from_slice(&[7u32, 8]);
        assert_eq!(buffer.len(), 18);
        assert_eq!(buffer.finish().as_slice(), [&[0; 10][..], &[7, 0, 0, 0, 8, 0, 0, 0]].concat());
        assert_eq!(buffer.finish().len(), 0);
    }

    #[test]
    fn small_arrays_do_not_keep_the_memory_of_large_ones() {
        let mut buffer = ReusedBuffer::default();
        let large = filled(&mut buffer, 1);
        buffer.extend_zeros::<u8>(100);
        drop((large, buffer.finish()));
        assert!(buffer.filling().capacity() < 1_000);
    }

    #[test]
    fn one_block_is_kept_however_many_arrays_are_dropped() {
        let mut buffer = ReusedBuffer::default();
        let arrays: Vec<_> = (0..5).map(|value| filled(&mut buffer, value)).collect();
        drop(arrays);
        assert!(buffer.spare.lock().expect("a lock").is_some());
        let kept = filled(&mut buffer, 5);
        assert!(buffer.spare.lock().expect("a lock").is_none());
        drop(buffer);
        assert!(kept.iter().all(|&byte| byte == 5));
    }
}
