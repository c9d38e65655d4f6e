//! Errors in a description of keys, in words that help a user.
//!
//! The messages about the sort command's keys use that command's own wording after the program's name, because
//! scripts match on it.

/// An unusable description of keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A position of `-k` does not begin with a number.
    #[error("{place}: invalid count at start of '{text}'")]
    Count {
        /// The position within the key.
        place: &'static str,
        /// The text found instead of the number.
        text: String,
    },
    /// A `-k` that counts from zero, or has extra characters.
    #[error("{reason}: invalid field specification '{spec}'")]
    FieldSpec {
        /// The fault.
        reason: &'static str,
        /// The whole key as given.
        spec: String,
    },
    /// Orders that exclude each other, such as `-n` and `-M` on one key.
    #[error("options '-{letters}' are incompatible")]
    Incompatible {
        /// The letters of the options in effect.
        letters: String,
    },
    /// `-t` with an empty argument.
    #[error("empty tab")]
    EmptySeparator,
    /// `-t` with more than one byte.
    #[error("multi-character tab '{text}'")]
    LongSeparator {
        /// The text given.
        text: String,
    },
    /// A list of keys with an empty entry.
    #[error("key {position} of '{text}' is empty; write a column name or #number between the commas")]
    EmptyKey {
        /// The number of the entry, from 1.
        position: usize,
        /// The whole list as given.
        text: String,
    },
    /// A quoted column name that is never closed.
    #[error("the quoted column name in '{text}' has no closing quote")]
    OpenQuote {
        /// The whole list as given.
        text: String,
    },
    /// A word after a colon that is not a modifier.
    #[error(
        "unknown modifier '{modifier}' in key '{key}'; use asc, desc, text, number, number(,), date, date(%d.%m.%Y), \
         auto, nulls-first or nulls-last (quote a column name that holds ':' or ',')"
    )]
    Modifier {
        /// The word.
        modifier: String,
        /// Its key.
        key: String,
    },
    /// An invalid date format.
    #[error("date({format}): {why}")]
    DateFormat {
        /// The format.
        format: String,
        /// The fault.
        why: String,
    },
    /// Invalid marks of numbers.
    #[error(
        "number({marks}): give the decimal mark, as number(,), or the mark of thousands before it, as number(.,)"
    )]
    NumberMarks {
        /// The marks.
        marks: String,
    },
    /// A column that no row has.
    #[error(
        "there is no column #{number}: row 1 has {columns} column{}, and no sampled row has more",
        if *columns == 1 { "" } else { "s" }
    )]
    ColumnBeyondRows {
        /// The number given.
        number: usize,
        /// The number of columns in the first row.
        columns: usize,
    },
    /// Two modifiers of one key that contradict each other, or the same one twice.
    #[error("key '{key}' says its {what} twice; keep one")]
    Repeated {
        /// The key.
        key: String,
        /// The property given twice.
        what: &'static str,
    },
    /// `#0`, `#x`.
    #[error("'{text}' is no column number; columns count from #1")]
    ColumnNumber {
        /// The text given.
        text: String,
    },
    /// A column number beyond the header.
    #[error("there is no column #{number}: the header has {columns}{}", other_separator(.names))]
    ColumnBeyond {
        /// The number given.
        number: usize,
        /// The number of columns in the header.
        columns: usize,
        /// Their names.
        names: Vec<String>,
    },
    /// A name that the header lacks.
    #[error(
        "no column '{name}'{}; the header has: {}{}{}",
        .nearest.as_ref().map(|n| format!(" (did you mean '{n}'?)")).unwrap_or_default(),
        .columns.join(", "),
        by_number(name),
        other_separator(.columns)
    )]
    UnknownColumn {
        /// The name given.
        name: String,
        /// The names in the header.
        columns: Vec<String>,
        /// The most similar of them, if any is similar.
        nearest: Option<String>,
    },
    /// A name that the header has more than once.
    #[error("column '{name}' occurs more than once in the header; use #{first} or #{second}")]
    AmbiguousColumn {
        /// The name given.
        name: String,
        /// The first column of that name, from 1.
        first: usize,
        /// The second, from 1.
        second: usize,
    },
    /// A name without a header to look it up in.
    #[error("column '{name}' cannot be found without a header; give its number, as #1{}", by_number(name))]
    NoHeader {
        /// The name given.
        name: String,
    },
    /// An invalid byte range.
    #[error(
        "'{text}' is no byte range; write START..END, counted from 0, END not included, as 0..10 or 4..8:desc"
    )]
    Range {
        /// The text given.
        text: String,
    },
    /// A byte range that ends beyond the records.
    #[error("key {start}..{end} reaches beyond the record of {len} bytes")]
    RangeBeyond {
        /// First byte of the range.
        start: usize,
        /// End of the range.
        end: usize,
        /// Length of a record in bytes.
        len: usize,
    },
}

/// The separator that the file probably has, if its header is read as one column.
fn other_separator(columns: &[String]) -> String {
    let [only] = columns else { return String::new() };
    let found = [(';', "-t ';'"), ('\t', "-t tab"), ('|', "-t '|'"), (',', "-t ,")];
    let found = found.into_iter().find(|(separator, _)| only.contains(*separator));
    found.map_or(String::new(), |(_, flag)| {
        format!("\n  the header is one column that holds another separator: {flag} (--separator) cuts there")
    })
}

/// A suggestion for a name that looks like a field of the sort command's keys: `2`, `2n`, `2.1`.
fn by_number(name: &str) -> String {
    let digits = name.len() - name.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = name.split_at(digits);
    let options = |c: char| c == '.' || c.is_ascii_digit() || c.is_ascii_alphabetic();
    if number.is_empty() || number.bytes().all(|byte| byte == b'0') || !rest.chars().all(options) {
        return String::new();
    }
    format!(
        "\n  columns by number begin with '#': '#{number}', as numbers '#{number}:number', turned round '-#{number}'"
    )
}
