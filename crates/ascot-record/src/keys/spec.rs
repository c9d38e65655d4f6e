//! The keys of the sort command: parses `-k`, applies the options given for all keys, and compiles.
//!
//! The rules are those of the sort command in the C locale. A key without an option of its own, not even `r`,
//! inherits those given for all; without any key, the options given for all make the whole line the key.

use super::bytes::{Ending, Ignore};
use super::field::{LineKey, LineOrder, LinePosition};
use super::flags::{KeyEnd, KeyFlags};
use super::random::Salt;
use super::{Compiled, KeyError, KeyProgram, LastResort, Source};
use serde::{Deserialize, Serialize};

/// A position in a line: the field, counted from 1, and a character in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPosition {
    /// The field, from 1.
    pub field: usize,
    /// The character, from 1; at the end of a key 0 means the last one of the field.
    pub char: usize,
}

/// One `-k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyDef {
    /// The first character of the key.
    pub start: KeyPosition,
    /// The last character of the key; `None` for the end of the line.
    pub end: Option<KeyPosition>,
    /// The key's own options.
    pub flags: KeyFlags,
}

impl KeyDef {
    /// Parses `F[.C][OPTIONS][,F[.C][OPTIONS]]`.
    ///
    /// # Errors
    /// The errors of the sort command, in its words.
    pub fn parse(text: &str) -> Result<KeyDef, KeyError> {
        let refuse = |reason| KeyError::FieldSpec { reason, spec: text.to_owned() };
        let mut flags = KeyFlags::default();
        let (field, rest) = count(text, "invalid number at field start")?;
        if field == 0 {
            return Err(refuse("field number is zero"));
        }
        let mut start = KeyPosition { field, char: 1 };
        let mut rest = rest;
        if let Some(text) = rest.strip_prefix('.') {
            (start.char, rest) = count(text, "invalid number after '.'")?;
            if start.char == 0 {
                return Err(refuse("character offset is zero"));
            }
        }
        rest = options(rest, KeyEnd::Start, &mut flags);
        let mut end = None;
        if let Some(text) = rest.strip_prefix(',') {
            let position;
            (position, rest) = end_position(text, &refuse)?;
            end = Some(position);
            rest = options(rest, KeyEnd::End, &mut flags);
        }
        if !rest.is_empty() {
            return Err(refuse("stray character in field spec"));
        }
        Ok(KeyDef { start, end, flags })
    }
}

fn end_position<'t>(
    text: &'t str,
    refuse: &impl Fn(&'static str) -> KeyError,
) -> Result<(KeyPosition, &'t str), KeyError> {
    let (field, rest) = count(text, "invalid number after ','")?;
    if field == 0 {
        return Err(refuse("field number is zero"));
    }
    let (char, rest) = match rest.strip_prefix('.') {
        Some(text) => count(text, "invalid number after '.'")?,
        None => (0, rest),
    };
    Ok((KeyPosition { field, char }, rest))
}

/// The number at the start of `text`, after optional white space and a plus sign; numbers too large saturate.
fn count<'t>(text: &'t str, place: &'static str) -> Result<(usize, &'t str), KeyError> {
    let number = text.trim_start_matches(|c: char| matches!(c, ' ' | '\t'..='\r'));
    let number = number.strip_prefix('+').unwrap_or(number);
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(KeyError::Count { place, text: text.to_owned() });
    }
    let (digits, rest) = number.split_at(digits);
    Ok((digits.parse().unwrap_or(usize::MAX), rest))
}

/// The text after the ordering options at the start of `text`.
fn options<'t>(text: &'t str, place: KeyEnd, flags: &mut KeyFlags) -> &'t str {
    let mut rest = text;
    while let Some(letter) = rest.chars().next().filter(|&letter| flags.set_at(letter, place)) {
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
    }
    rest
}

/// Parses the argument of `-t`: one byte, or `\0` for NUL.
///
/// # Errors
/// An empty argument, or more than one byte.
pub fn parse_separator(text: &[u8]) -> Result<u8, KeyError> {
    match text {
        [] => Err(KeyError::EmptySeparator),
        [byte] => Ok(*byte),
        b"\\0" => Ok(0),
        _ => Err(KeyError::LongSeparator { text: String::from_utf8_lossy(text).into_owned() }),
    }
}

/// All settings of the sort command's order of lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOptions {
    /// The keys, the most important first.
    pub keys: Vec<KeyDef>,
    /// The options given for all keys.
    pub global: KeyFlags,
    /// `-t`; `None`: fields begin where a blank follows a nonblank.
    pub separator: Option<u8>,
    /// The byte that ends a line. Lines with another terminator may hold newlines, which count as blanks.
    pub delimiter: u8,
    /// The salt of random orders (`-R`): the same salt gives the same order. It is stored with the job, so a resumed
    /// job and a view keep their order.
    #[serde(default)]
    pub salt: Salt,
}

impl Default for KeyOptions {
    fn default() -> KeyOptions {
        KeyOptions {
            keys: Vec::new(),
            global: KeyFlags::default(),
            separator: None,
            delimiter: b'\n',
            salt: Salt::default(),
        }
    }
}

impl KeyOptions {
    /// Whether the whole line, in byte order, is the only key.
    #[must_use]
    pub fn is_whole_body(&self) -> bool {
        self.keys.is_empty() && self.global.is_plain()
    }

    /// Whether a key is in random order, so that the salt matters.
    #[must_use]
    pub fn needs_salt(&self) -> bool {
        effective_keys(self).iter().any(|def| def.flags.random)
    }

    /// The order of lines with equal keys: only input order with `stable` (`-s`) or `unique` (`-u`), or if the key is
    /// the line itself.
    #[must_use]
    pub fn last_resort(&self, stable: bool, unique: bool) -> LastResort {
        if stable || unique || self.is_whole_body() {
            LastResort::None
        } else if self.global.reverse {
            LastResort::BytesReversed
        } else {
            LastResort::Bytes
        }
    }
}

/// Compiles the sort command's keys.
///
/// # Errors
/// Two orders on one key.
pub fn compile(options: &KeyOptions) -> Result<Compiled, KeyError> {
    if options.is_whole_body() {
        return Ok(Compiled::WholeBody { reverse: options.global.reverse });
    }
    let defs = effective_keys(options);
    let last = defs.len() - 1;
    let keys = defs.iter().enumerate().map(|(at, def)| line_key(def, options.salt, at == last));
    let keys = keys.collect::<Result<_, _>>()?;
    Ok(Compiled::Program(KeyProgram { source: Source::Lines { separator: options.separator, keys } }))
}

/// The keys with the options they inherit; the whole line if no key is given. Never empty.
fn effective_keys(options: &KeyOptions) -> Vec<KeyDef> {
    let inherit = |def: &KeyDef| match def.flags == KeyFlags::default() {
        true => KeyDef { flags: options.global, ..*def },
        false => *def,
    };
    let whole = KeyDef { start: KeyPosition { field: 1, char: 1 }, end: None, flags: options.global };
    match options.keys.as_slice() {
        [] => vec![whole],
        keys => keys.iter().map(inherit).collect(),
    }
}

fn line_key(def: &KeyDef, salt: Salt, last: bool) -> Result<LineKey, KeyError> {
    let flags = &def.flags;
    flags.check()?;
    let order = if flags.numeric {
        LineOrder::Numeric
    } else if flags.general_numeric {
        LineOrder::General
    } else if flags.human_numeric {
        LineOrder::Human
    } else if flags.month {
        LineOrder::Month
    } else if flags.random {
        LineOrder::Random { salt }
    } else if flags.version {
        LineOrder::Version
    } else {
        LineOrder::Text
    };
    Ok(LineKey {
        start: LinePosition {
            field: def.start.field.saturating_sub(1),
            char: def.start.char.saturating_sub(1),
            skip_blanks: flags.ignore_leading_blanks_start,
        },
        end: def.end.map(|end| LinePosition {
            field: end.field.saturating_sub(1),
            char: end.char,
            skip_blanks: flags.ignore_leading_blanks_end,
        }),
        order,
        fold: flags.fold_case,
        ignore: match order {
            LineOrder::Text | LineOrder::Version | LineOrder::Random { .. } => flags.ignore(),
            _ => Ignore::Nothing,
        },
        reverse: flags.reverse,
        ending: if last && !flags.reverse { Ending::Open } else { Ending::Closed },
    })
}
