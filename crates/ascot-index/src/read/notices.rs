//! Notices for the user about queries that succeeded: a bounded list, and the number of those dropped.

/// Maximum number of notices kept until they are taken.
const KEPT_MAX: usize = 64;

/// The notices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// The first notices.
    pub texts: Vec<String>,
    /// Number of notices dropped.
    pub more: u64,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_bounded() {
        let mut notices = Notices::default();
        (0..100).for_each(|number| notices.add(format!("block {number}")));
        notices.add("block 3".into());
        assert_eq!((notices.texts.len(), notices.more, notices.texts[0].as_str()), (64, 36, "block 0"));
    }
}
