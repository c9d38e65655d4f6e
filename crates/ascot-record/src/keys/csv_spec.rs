//! Parses the description of CSV keys.

use super::KeyError;
use super::csv::CsvType;
use super::date_format::DateFormat;
use super::numeric::NumberMarks;
use serde::{Deserialize, Serialize};

/// A column, as a key names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CsvColumn {
    /// By its name in the header.
    Name(String),
    /// By its number, from 1.
    Number(usize),
}

/// One column of a description of CSV keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvKeySpec {
    /// The column.
    pub column: CsvColumn,
    /// Whether the greatest come first.
    pub descending: bool,
    /// The type; `None` if it is inferred from a sample.
    pub kind: Option<CsvType>,
    /// Whether nulls come before all values, instead of after them.
    pub nulls_first: bool,
    /// Content that is also null, besides empty content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nulls: Vec<String>,
}

/// Parses `column[:asc|desc][:text|number|date|auto][:nulls-first|nulls-last],...`. A column is a name, a name in
/// double quotes (a quote in it doubled), or `#` and a number from 1; a minus sign before it means `:desc`. Types may
/// be `number(,)` and `date(%d.%m.%Y)`.
///
/// # Errors
/// An empty entry, an unknown or repeated modifier, a bad number, an unclosed quote.
pub fn parse_csv_keys(text: &str) -> Result<Vec<CsvKeySpec>, KeyError> {
    let entries = split_unquoted(text, ',', text)?;
    entries.iter().enumerate().map(|(at, entry)| parse_entry(entry, at + 1, text)).collect()
}

fn parse_entry(entry: &str, position: usize, text: &str) -> Result<CsvKeySpec, KeyError> {
    let parts = split_unquoted(entry, ':', text)?;
    let (column, modifiers) = parts.split_first().map_or(("", &[][..]), |(column, rest)| (*column, rest));
    let (minus, column) =
        column.trim().strip_prefix('-').map_or((false, column.trim()), |column| (true, column));
    if column.is_empty() {
        return Err(KeyError::EmptyKey { position, text: text.to_owned() });
    }
    let mut given = Modifiers { descending: minus.then_some(true), ..Modifiers::default() };
    for modifier in modifiers {
        given.take(modifier.trim(), entry)?;
    }
    Ok(CsvKeySpec {
        column: parse_column(column)?,
        descending: given.descending.unwrap_or(false),
        kind: given.kind.unwrap_or(None),
        nulls_first: given.nulls_first.unwrap_or(false),
        nulls: Vec::new(),
    })
}

fn parse_column(text: &str) -> Result<CsvColumn, KeyError> {
    if let Some(number) = text.strip_prefix('#') {
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        return match number.parse::<usize>() {
            Ok(number) if number > 0 && digits => Ok(CsvColumn::Number(number)),
            _ => Err(KeyError::ColumnNumber { text: text.to_owned() }),
        };
    }
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    Ok(CsvColumn::Name(quoted.map_or_else(|| text.to_owned(), |name| name.replace("\"\"", "\""))))
}

/// Splits at `separator` outside double quotes, and outside the parentheses of a modifier: parentheses in a column's
/// name are part of it.
fn split_unquoted<'t>(part: &'t str, separator: char, text: &str) -> Result<Vec<&'t str>, KeyError> {
    let mut quoted = false;
    let mut modifier = false;
    let mut depth = 0;
    let split = |c: char| {
        match c {
            '(' if modifier && !quoted => depth += 1,
            ')' if depth > 0 => depth -= 1,
            '"' if depth == 0 => quoted = !quoted,
            _ => {}
        }
        let outside = !quoted && depth == 0;
        modifier = if c == ',' && outside { false } else { modifier || (c == ':' && outside) };
        c == separator && outside
    };
    let parts = part.split(split).collect();
    if quoted {
        return Err(KeyError::OpenQuote { text: text.to_owned() });
    }
    Ok(parts)
}

/// The modifiers of one key that have been read so far.
#[derive(Default)]
struct Modifiers {
    descending: Option<bool>,
    kind: Option<Option<CsvType>>,
    nulls_first: Option<bool>,
}

impl Modifiers {
    fn take(&mut self, modifier: &str, key: &str) -> Result<(), KeyError> {
        let (what, repeated) = match modifier {
            "asc" | "desc" => ("direction", self.descending.replace(modifier == "desc").is_some()),
            "nulls-first" | "nulls-last" => {
                ("place of nulls", self.nulls_first.replace(modifier == "nulls-first").is_some())
            }
            "auto" => ("type", self.kind.replace(None).is_some()),
            _ => match named_type(modifier)? {
                Some(kind) => ("type", self.kind.replace(Some(kind)).is_some()),
                None => {
                    return Err(KeyError::Modifier { modifier: modifier.to_owned(), key: key.to_owned() });
                }
            },
        };
        if repeated {
            return Err(KeyError::Repeated { key: key.to_owned(), what });
        }
        Ok(())
    }
}

/// The type with this name, which may include marks or a format; `None` if it is not the name of a type.
fn named_type(name: &str) -> Result<Option<CsvType>, KeyError> {
    let argument = |type_name: &str| name.strip_prefix(type_name)?.strip_prefix('(')?.strip_suffix(')');
    Ok(match name {
        "text" => Some(CsvType::Text),
        "number" => Some(CsvType::Number),
        "date" => Some(CsvType::Date),
        _ => match (argument("number"), argument("date")) {
            (Some(marks), _) => {
                let wrong = || KeyError::NumberMarks { marks: marks.to_owned() };
                Some(CsvType::MarkedNumber(NumberMarks::read(marks).ok_or_else(wrong)?))
            }
            (_, Some(format)) => Some(CsvType::FormattedDate(DateFormat::new(format)?)),
            _ => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(text: &str) -> CsvKeySpec {
        parse_csv_keys(text).unwrap().remove(0)
    }

    #[test]
    fn descriptions_read() {
        let plain = CsvKeySpec {
            column: CsvColumn::Name("ts".into()),
            descending: false,
            kind: None,
            nulls_first: false,
            nulls: Vec::new(),
        };
        assert_eq!(parse_one("ts"), plain);
        assert_eq!(parse_one("ts:asc:auto:nulls-last"), plain);
        assert_eq!(parse_one("-ts"), CsvKeySpec { descending: true, ..plain.clone() });
        let full =
            CsvKeySpec { descending: true, kind: Some(CsvType::Number), nulls_first: true, ..plain.clone() };
        assert_eq!(parse_one("ts:number:nulls-first:desc"), full);
        assert_eq!(parse_one("#12").column, CsvColumn::Number(12));
        assert_eq!(parse_one("\"a, \"\"b\"\": c\":desc").column, CsvColumn::Name("a, \"b\": c".into()));
        assert_eq!(parse_one("\"-x\"").column, CsvColumn::Name("-x".into()));
        assert_eq!(parse_csv_keys("tenant,-ts:date, #3 ").unwrap().len(), 3);
        let kinds = |text| {
            parse_csv_keys(text)
                .unwrap()
                .iter()
                .map(|key| key.kind.as_ref().map_or("auto".into(), CsvType::to_string))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            kinds("a:number(,):desc,b:date(%b %d, %Y %H:%M),c"),
            ["number(,)", "date(%b %d, %Y %H:%M)", "auto"]
        );
        assert_eq!(kinds("a:number(.,),b:number( ,):nulls-first"), ["number(.,)", "number( ,)"]);
        assert_eq!(
            parse_one("price (EUR, net):number(,)".split(", net").next().unwrap()).column,
            CsvColumn::Name("price (EUR".into())
        );
        assert_eq!(parse_one("price (EUR):number").column, CsvColumn::Name("price (EUR)".into()));
    }

    #[test]
    fn descriptions_refused() {
        for (text, words) in [
            ("", "key 1 of '' is empty"),
            ("a,,b", "key 2"),
            ("-", "key 1"),
            ("a:up", "unknown modifier 'up'"),
            ("a:desc:asc", "direction twice"),
            ("-a:desc", "direction twice"),
            ("a:text:date", "type twice"),
            ("a:nulls-first:nulls-first", "place of nulls twice"),
            ("#0", "column number"),
            ("#x", "column number"),
            ("#+1", "column number"),
            ("\"a", "no closing quote"),
            ("a:number()", "number(): give the decimal mark"),
            ("a:number(,,)", "number(,,)"),
            ("a:number(1)", "number(1)"),
            ("a:date(%Q)", "date(%Q): %Q is not known"),
            ("a:date(%Y", "unknown modifier 'date(%Y'"),
            ("a:number:number(,)", "type twice"),
        ] {
            let message = parse_csv_keys(text).unwrap_err().to_string();
            assert!(message.contains(words), "{text:?}: {message}");
        }
    }
}
