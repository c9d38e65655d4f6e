//! The ordering options of the sort command, for one key or for all.

use super::KeyError;
use super::bytes::Ignore;
use serde::{Deserialize, Serialize};

/// Ordering options. The default is plain byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeyFlags {
    /// `b` at the start of a key: its first position counts from the first nonblank character.
    pub ignore_leading_blanks_start: bool,
    /// `b` at the end of a key, likewise for its last position.
    pub ignore_leading_blanks_end: bool,
    /// `d`: only letters, digits and blanks take part.
    pub dictionary: bool,
    /// `f`: small letters count as capitals.
    pub fold_case: bool,
    /// `i`: only printing characters take part.
    pub ignore_nonprinting: bool,
    /// `n`: decimal numbers of any length.
    pub numeric: bool,
    /// `g`: floating-point numbers.
    pub general_numeric: bool,
    /// `h`: numbers with a unit.
    pub human_numeric: bool,
    /// `M`: months.
    pub month: bool,
    /// `R`: a random order in which equal texts stay together.
    #[serde(default)]
    pub random: bool,
    /// `V`: version order.
    pub version: bool,
    /// `r`: reversed.
    pub reverse: bool,
}

/// The end of a key that the letter `b` belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyEnd {
    Start,
    End,
    Both,
}

impl KeyFlags {
    /// Turns on the option of a letter, as an option for all keys; false if the letter is not an option.
    #[must_use]
    pub fn set(&mut self, letter: char) -> bool {
        self.set_at(letter, KeyEnd::Both)
    }

    pub(super) fn set_at(&mut self, letter: char, end: KeyEnd) -> bool {
        match letter {
            'b' => {
                self.ignore_leading_blanks_start |= end != KeyEnd::End;
                self.ignore_leading_blanks_end |= end != KeyEnd::Start;
            }
            'd' => self.dictionary = true,
            'f' => self.fold_case = true,
            'g' => self.general_numeric = true,
            'h' => self.human_numeric = true,
            'i' => self.ignore_nonprinting = true,
            'M' => self.month = true,
            'n' => self.numeric = true,
            'R' => self.random = true,
            'V' => self.version = true,
            'r' => self.reverse = true,
            _ => return false,
        }
        true
    }

    /// Whether no option is set, except possibly the reverse.
    pub(super) fn is_plain(&self) -> bool {
        KeyFlags { reverse: false, ..*self } == KeyFlags::default()
    }

    pub(super) fn ignore(&self) -> Ignore {
        if self.dictionary {
            Ignore::NonDictionary
        } else if self.ignore_nonprinting {
            Ignore::NonPrinting
        } else {
            Ignore::Nothing
        }
    }

    /// Refuses two orders on one key.
    pub(super) fn check(&self) -> Result<(), KeyError> {
        let textual = self.version || self.random || self.ignore() != Ignore::Nothing;
        let orders = [self.numeric, self.general_numeric, self.human_numeric, self.month, textual];
        if orders.iter().filter(|&&on| on).count() > 1 {
            return Err(KeyError::Incompatible { letters: self.letters() });
        }
        Ok(())
    }

    /// The letters of the options that can conflict.
    fn letters(&self) -> String {
        let ignore = self.ignore();
        let letters = [
            (ignore == Ignore::NonDictionary, 'd'),
            (self.fold_case, 'f'),
            (self.general_numeric, 'g'),
            (self.human_numeric, 'h'),
            (ignore == Ignore::NonPrinting, 'i'),
            (self.month, 'M'),
            (self.numeric, 'n'),
            (self.random, 'R'),
            (self.version, 'V'),
        ];
        letters.iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect()
    }
}
