//! The complete epochs in which a log takes part, and the shape of later epochs: continuing with another shape,
//! rolling back.

use std::ops::Range;

use crate::error::{IndexError, Result, counted};
use crate::format::manifest::Manifest;
use crate::format::names::Log;
use crate::format::shape::{Earlier, Shape};

impl Manifest {
    /// The number of complete epochs in the last footer of a log, after the last epoch in which it takes part.
    pub fn epochs_of(&self, log: Log) -> u64 {
        self.sections_of(log).map(|epochs| epochs.end).last().unwrap_or(0)
    }

    /// The number of complete epochs in which a log takes part.
    pub fn epochs_taken(&self, log: Log) -> u64 {
        self.sections_of(log).map(|epochs| epochs.end - epochs.start).sum()
    }

    /// The ranges of epochs that a log takes part in.
    fn sections_of(&self, log: Log) -> impl Iterator<Item = Range<u64>> + '_ {
        let own = self.sections().filter(move |(_, shape)| shape.has(self.layout.scheme, log));
        own.map(|(epochs, _)| epochs)
    }

    /// The first complete epoch from `epoch` in which a log takes part.
    pub fn next_epoch_of(&self, log: Log, epoch: u64) -> Option<u64> {
        self.sections_of(log).find(|epochs| epochs.end > epoch).map(|epochs| epochs.start.max(epoch))
    }

    /// The maximum numbers of partitions and writers so far.
    pub fn max_shape(&self) -> Shape {
        self.earlier.iter().fold(self.layout.shape(), |most, one| Shape {
            partitions: most.partitions.max(one.shape.partitions),
            writers: most.writers.max(one.shape.writers),
        })
    }

    /// All logs of any epoch, ordered by number.
    pub fn logs(&self) -> impl Iterator<Item = Log> + use<> {
        let max_shape = self.max_shape();
        Log::all(self.layout.scheme, max_shape.partitions, max_shape.writers)
    }

    /// Sets the shape of later epochs.
    pub fn reshape(&mut self, shape: Shape) {
        // The shape before may have no epochs.
        self.drop_empty();
        if self.layout.shape() == shape {
            return;
        }
        if self.epochs > 0 {
            self.earlier.push(Earlier { epochs: self.epochs, shape: self.layout.shape() });
        }
        self.layout.set_shape(shape);
    }

    /// Drops all epochs after the first `epochs`; returns the number dropped.
    ///
    /// # Errors
    /// Fewer epochs than that.
    pub fn roll_back(&mut self, epochs: u64) -> Result<u64> {
        let Some(dropped) = self.epochs.checked_sub(epochs) else {
            return Err(IndexError::Request(format!(
                "cannot roll back to {}: the directory has {}; name the directory that belongs to this checkpoint",
                counted(epochs, "epoch"),
                counted(self.epochs, "complete epoch")
            )));
        };
        self.epochs = epochs;
        // A vector always fits in memory.
        self.boundaries.truncate(usize::try_from(epochs).unwrap_or(usize::MAX));
        if dropped > 0 {
            self.drop_empty();
        }
        Ok(dropped)
    }

    /// Makes the last shape that has an epoch the current one.
    fn drop_empty(&mut self) {
        while let Some(last) = self.earlier.pop_if(|last| last.epochs >= self.epochs) {
            self.layout.set_shape(last.shape);
        }
    }

    /// Boundaries for the next epoch: those of the last one, thinned out or repeated if the number of partitions
    /// changed.
    pub fn next_boundaries(&self) -> Vec<Vec<u8>> {
        let Some(last) = self.epochs.checked_sub(1) else { return Vec::new() };
        let before = self.boundaries_of(last);
        let partitions = self.layout.partitions as usize;
        if self.shape_at(last).partitions as usize == partitions || before.is_empty() {
            return before;
        }
        let parts = before.len() + 1;
        let place = |part: usize| (part * parts / partitions).clamp(1, before.len()) - 1;
        (1..partitions).filter_map(|part| before.get(place(part)).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::{Layout, PartitionBy, Scheme};

    fn shape(partitions: u32, writers: u32) -> Shape {
        Shape { partitions, writers }
    }

    /// Three epochs of four ranks, two of two, one of six.
    fn changed() -> Manifest {
        let mut manifest = Manifest::new(Layout::new(Scheme::Ranks, 4, 4), 7);
        for (epochs, ranks) in [(3, 4), (2, 2), (1, 6)] {
            manifest.reshape(shape(ranks, ranks));
            manifest.epochs += epochs;
        }
        manifest
    }

    #[test]
    fn logs_have_the_epochs_of_their_shapes() {
        let manifest = changed();
        let sections: Vec<_> = manifest.sections().collect();
        assert_eq!(sections, [(0..3, shape(4, 4)), (3..5, shape(2, 2)), (5..6, shape(6, 6))]);
        assert_eq!((manifest.shape_at(2), manifest.shape_at(3)), (shape(4, 4), shape(2, 2)));
        assert_eq!((manifest.shape_at(5), manifest.shape_at(9)), (shape(6, 6), shape(6, 6)));
        let of = |log| (manifest.epochs_of(log), manifest.epochs_taken(log));
        assert_eq!((of(Log::Auxiliary(1)), of(Log::Writer(3)), of(Log::Writer(5))), ((6, 6), (6, 4), (6, 1)));
        assert_eq!((of(Log::Writer(6)), of(Log::Partition(0))), ((0, 0), (0, 0)));
        let next = [0, 2, 3, 4, 5, 6].map(|epoch| manifest.next_epoch_of(Log::Writer(3), epoch));
        assert_eq!(next, [Some(0), Some(2), Some(5), Some(5), Some(5), None]);
        assert_eq!(manifest.logs().count(), 12);
        assert!(manifest.shapes_can_be());
    }

    #[test]
    fn rolling_back_brings_the_shape_of_the_last_epoch_that_stays() {
        for (epochs, wanted, earlier) in [(6, 6, 2), (5, 2, 1), (4, 2, 1), (3, 4, 0), (1, 4, 0), (0, 4, 0)] {
            let mut manifest = changed();
            assert_eq!(manifest.roll_back(epochs).unwrap(), 6 - epochs);
            assert_eq!((manifest.layout.shape(), manifest.earlier.len()), (shape(wanted, wanted), earlier));
            assert!(manifest.shapes_can_be());
        }
        let error = changed().roll_back(7).unwrap_err().to_string();
        assert!(error.contains("back to 7 epochs: the directory has 6 complete epochs"), "{error}");
    }

    #[test]
    fn a_shape_without_an_epoch_leaves_no_trace() {
        let mut manifest = changed();
        let before = manifest.clone();
        manifest.reshape(shape(3, 3));
        assert_eq!(manifest.earlier.len(), 3);
        manifest.reshape(shape(6, 6));
        assert_eq!(manifest, before);
        let mut fresh = Manifest::new(Layout::new(Scheme::Records, 4, 4), 7);
        fresh.reshape(shape(2, 2));
        assert_eq!((fresh.layout.shape(), fresh.earlier.len()), (shape(2, 2), 0));
    }

    #[test]
    fn boundaries_are_as_many_as_partitions_become() {
        let mut manifest = Manifest::new(Layout::new(Scheme::Records, 4, 4), 7);
        manifest.layout.partition_by = PartitionBy::Range;
        assert_eq!(manifest.next_boundaries(), Vec::<Vec<u8>>::new());
        manifest.epochs = 1;
        manifest.boundaries = vec![vec!["10".into(), "20".into(), "30".into()]];
        assert_eq!(manifest.next_boundaries(), [[0x10], [0x20], [0x30]]);
        manifest.reshape(shape(2, 2));
        assert_eq!(manifest.next_boundaries(), [[0x20]]);
        manifest.reshape(shape(8, 8));
        let eight = manifest.next_boundaries();
        assert_eq!(eight, [[0x10], [0x10], [0x10], [0x20], [0x20], [0x30], [0x30]]);
    }
}
