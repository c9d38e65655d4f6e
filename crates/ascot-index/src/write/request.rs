//! The properties that a program requests of a directory: a new one gets them, an existing one must have them.

use std::fmt::Display;

use crate::error::{IndexError, Result};
use crate::format::layout::{Attribute, AuxiliaryKind, Layout, Named, PartitionBy, Scheme};

/// Requested properties; `None`: the default, or the directory's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutRequest {
    /// The bytes that are sent.
    pub scheme: Option<Scheme>,
    /// Partitions; the only property that may change between epochs.
    pub partitions: Option<u32>,
    /// Bytes of every key.
    pub key_bytes: Option<u32>,
    /// Bytes of every value.
    pub value_bytes: Option<u32>,
    /// Seed of the keys' hash.
    pub seed: Option<u64>,
    /// How the partition of a key is determined.
    pub partition_by: Option<PartitionBy>,
    /// A number in every value.
    pub attribute: Option<Attribute>,
    /// Bytes of a data block.
    pub block_bytes: Option<u32>,
    /// The structure of auxiliary tables.
    pub auxiliary: Option<AuxiliaryKind>,
    /// Bits of a fingerprint in auxiliary tables.
    pub fingerprint_bits: Option<u8>,
    /// How records were divided into keys and values, if they came from files.
    pub source: Option<String>,
}

impl LayoutRequest {
    /// The layout of a new directory, with `partitions` partitions if the request has no number.
    pub fn layout(&self, partitions: u32, writers: u32) -> Layout {
        let usual = Layout::new(
            self.scheme.unwrap_or(Scheme::Records),
            self.partitions.unwrap_or(partitions),
            writers,
        );
        Layout {
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            seed: self.seed.unwrap_or(usual.seed),
            partition_by: self.partition_by.unwrap_or(usual.partition_by),
            attribute: self.attribute.clone(),
            block_bytes: self.block_bytes.unwrap_or(usual.block_bytes),
            auxiliary: self.auxiliary.unwrap_or(usual.auxiliary),
            fingerprint_bits: self.fingerprint_bits.unwrap_or(usual.fingerprint_bits),
            source: self.source.clone(),
            ..usual
        }
    }

    /// Refuses a request that contradicts the existing directory.
    ///
    /// # Errors
    /// The first property that differs.
    pub fn check_same(&self, there: &Layout) -> Result<()> {
        let length =
            |bytes: Option<u32>| bytes.map_or_else(|| "any length".to_owned(), |bytes| bytes.to_string());
        let attribute = there.attribute.as_ref().map_or_else(|| "none".to_owned(), Attribute::to_string);
        same("scheme", self.scheme.map(Scheme::name), there.scheme.name())?;
        same("key", self.key_bytes.map(|bytes| bytes.to_string()), length(there.key_bytes))?;
        same("value", self.value_bytes.map(|bytes| bytes.to_string()), length(there.value_bytes))?;
        same("partition_by", self.partition_by.map(PartitionBy::name), there.partition_by.name())?;
        same("attribute", self.attribute.as_ref().map(Attribute::to_string), attribute)?;
        same("seed", self.seed, there.seed)?;
        same("block_bytes", self.block_bytes, there.block_bytes)?;
        if there.scheme == Scheme::Ranks {
            same("auxiliary", self.auxiliary.map(AuxiliaryKind::name), there.auxiliary.name())?;
            same("fingerprint_bits", self.fingerprint_bits, there.fingerprint_bits)?;
        }
        Ok(())
    }
}

fn same<T: PartialEq + Display>(what: &str, asked: Option<T>, there: T) -> Result<()> {
    match asked.filter(|asked| *asked != there) {
        None => Ok(()),
        Some(asked) => Err(IndexError::Request(format!(
            "the directory was made with {what} {there}, and {what} {asked} was given: leave {what} out, or \
             name another directory"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NumberKind;

    #[test]
    fn what_is_not_asked_for_is_as_it_is_there() {
        let mut there = Layout::new(Scheme::Ranks, 4, 4);
        (there.key_bytes, there.seed) = (Some(8), 9);
        LayoutRequest::default().check_same(&there).unwrap();
        let same = LayoutRequest {
            scheme: Some(there.scheme),
            partitions: Some(there.partitions),
            key_bytes: there.key_bytes,
            seed: Some(there.seed),
            ..LayoutRequest::default()
        };
        same.check_same(&there).unwrap();
        assert_eq!(same.layout(1, 4), there);
        let more = LayoutRequest { partitions: Some(9), ..LayoutRequest::default() };
        more.check_same(&there).unwrap();
        let none = LayoutRequest::default;
        let attribute = Attribute { name: "e".into(), offset: 0, kind: NumberKind::F64 };
        for (asked, wanted) in [
            (
                LayoutRequest { scheme: Some(Scheme::Records), ..none() },
                "made with scheme ranks, and scheme records was given",
            ),
            (LayoutRequest { key_bytes: Some(9), ..none() }, "key 8"),
            (LayoutRequest { value_bytes: Some(9), ..none() }, "value any length"),
            (LayoutRequest { seed: Some(8), ..none() }, "seed 8"),
            (LayoutRequest { partition_by: Some(PartitionBy::Range), ..none() }, "partition_by hash"),
            (LayoutRequest { attribute: Some(attribute), ..none() }, "attribute e:0:f64"),
            (LayoutRequest { block_bytes: Some(4096), ..none() }, "block_bytes 4096"),
            (LayoutRequest { auxiliary: Some(AuxiliaryKind::Static), ..none() }, "auxiliary cuckoo"),
            (LayoutRequest { fingerprint_bits: Some(3), ..none() }, "fingerprint_bits 3"),
        ] {
            let error = asked.check_same(&there).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("or name another directory"), "{error}");
        }
    }
}
