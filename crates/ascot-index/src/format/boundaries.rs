//! The boundaries in a manifest, of every epoch, read within a bound: a short text can name very many strings of no
//! length, each of which takes memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

/// Most boundaries of all epochs of a directory, and epochs that have them, together.
pub const BOUNDARIES_MAX: usize = 1 << 20;

/// Epochs and boundaries of a list.
pub fn count(boundaries: &[Vec<String>]) -> usize {
    boundaries.iter().fold(0, |sum, keys| sum + 1 + keys.len())
}

/// Reads the boundaries of all epochs; an error as soon as there are more than [`BOUNDARIES_MAX`].
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<String>>, D::Error> {
    let mut left = BOUNDARIES_MAX;
    from.deserialize_seq(Epochs { left: &mut left })
}

/// One less is left.
fn take<E: Error>(left: &mut usize) -> Result<(), E> {
    *left = left.checked_sub(1).ok_or_else(|| E::custom("there are too many boundaries"))?;
    Ok(())
}

struct Epochs<'a> {
    left: &'a mut usize,
}

impl<'de> Visitor<'de> for Epochs<'_> {
    type Value = Vec<Vec<String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the boundaries of every epoch")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut epochs = Vec::new();
        while let Some(keys) = list.next_element_seed(Keys { left: &mut *self.left })? {
            take(self.left)?;
            epochs.push(keys);
        }
        Ok(epochs)
    }
}

/// The boundaries of one epoch.
struct Keys<'a> {
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Keys<'_> {
    type Value = Vec<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("keys in hexadecimal")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut keys = Vec::new();
        while let Some(key) = list.next_element::<String>()? {
            take(self.left)?;
            keys.push(key);
        }
        Ok(keys)
    }
}
