//! Notices for the user about queries that succeeded: a bounded list, and the number of those dropped.

/// Maximum number of notices kept until they are taken.
const KEPT_MAX: usize = 64;

/// The notices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    texts: Vec<String>,
    more: u64,
}

impl Notices {
    /// Adds a notice unless it is already listed.
    pub(crate) fn add(&mut self, text: String) {
        if self.texts.contains(&text) {
            return;
        }
        if self.texts.len() < KEPT_MAX {
            self.texts.push(text);
        } else {
            self.more += 1;
        }
    }

    /// The notices kept.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Number of notices kept.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are no notices.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Number of notices dropped.
    pub fn more(&self) -> u64 {
        self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_bounded() {
        let mut notices = Notices::default();
        (0..100).for_each(|number| notices.add(format!("block {number}")));
        notices.add("block 3".into());
        assert_eq!((notices.len(), notices.more(), notices.iter().next()), (64, 36, Some("block 0")));
        assert!(!notices.is_empty());
    }
}
