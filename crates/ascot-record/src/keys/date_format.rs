//! Dates and times in a described format, such as `%d.%m.%Y`: the directives of strptime, in English.
//!
//! ```text
//! %Y 2024   %y 24 (69 to 99: 19..)   %m 5   %b %B %h May   %d %e 1   %j day of the year   %a %A Wed (not looked at)
//! %H %k 17   %I %l 5 with %p PM   %M 30   %S 59   %f 123456 (a fraction)   %.f .123 or nothing
//! %z +0200, +02:00, +02, Z   %Z UTC, GMT   %s seconds since 1970   %F %T %R %D   %n %t blanks   %% %
//! ```
//!
//! Numbers may lack leading zeros unless another number follows at once; names may be long or short, in any case;
//! blanks match any blanks. Fields that a format omits have the values of 2000-01-01T00:00:00Z.

use super::KeyError;
use super::date::{Moment, days_before, fraction, month_days, zone};
use serde::{Deserialize, Serialize};

/// A format of dates, parsed from its text and stored as that text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DateFormat {
    text: String,
    items: Vec<Item>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Item {
    Literal(u8),
    Blanks,
    /// A number of at most this many digits; exactly as many if the next item is a number, too.
    Number {
        field: Field,
        max_digits: usize,
        exact: bool,
    },
    MonthName,
    WeekdayName,
    HalfOfDay,
    Fraction,
    /// A point and a fraction, or nothing.
    PointFraction,
    Zone,
    ZoneName,
    Epoch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Field {
    Year,
    YearOfCentury,
    Month,
    Day,
    DayOfYear,
    Hour,
    HourOfHalf,
    Minute,
    Second,
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// Digits of seconds since 1970: until the year 5138.
const EPOCH_DIGITS: usize = 11;
/// Seconds from 0000-01-01 to 1970-01-01.
const EPOCH: i64 = 719_528 * 86_400;
/// The year of dates without one: a leap year, which has all days.
const YEAR: i64 = 2_000;

impl From<DateFormat> for String {
    fn from(format: DateFormat) -> String {
        format.text
    }
}

impl TryFrom<String> for DateFormat {
    type Error = KeyError;

    fn try_from(text: String) -> Result<DateFormat, KeyError> {
        DateFormat::new(&text)
    }
}

impl std::fmt::Display for DateFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl DateFormat {
    /// Parses a format.
    ///
    /// # Errors
    /// An unknown directive, a repeated one, or one without its counterpart.
    pub fn new(text: &str) -> Result<DateFormat, KeyError> {
        let refuse = |why: String| KeyError::DateFormat { format: text.to_owned(), why };
        let spelled = text.replace("%T", "%H:%M:%S").replace("%R", "%H:%M");
        let spelled = spelled.replace("%F", "%Y-%m-%d").replace("%D", "%m/%d/%y");
        let mut items = Vec::new();
        let mut rest = spelled.bytes().peekable();
        while let Some(byte) = rest.next() {
            items.push(match byte {
                b'%' => {
                    let directive = rest.next().ok_or_else(|| refuse("it ends with a single %".into()))?;
                    match directive {
                        b'.' if rest.next_if_eq(&b'f').is_some() => Item::PointFraction,
                        other => directive_item(other).ok_or_else(|| refuse(unknown(other)))?,
                    }
                }
                blank if blank.is_ascii_whitespace() => Item::Blanks,
                byte => Item::Literal(byte),
            });
        }
        let is_number =
            |item: Option<&Item>| matches!(item, Some(Item::Number { .. } | Item::Fraction | Item::Epoch));
        for at in 1..items.len() {
            if is_number(items.get(at)) && is_number(items.get(at - 1)) {
                for item in items.iter_mut().skip(at - 1).take(2) {
                    if let Item::Number { exact, .. } = item {
                        *exact = true;
                    }
                }
            }
        }
        match contradiction(&items) {
            Some(why) => Err(refuse(why.to_owned())),
            None => Ok(DateFormat { text: text.to_owned(), items }),
        }
    }

    /// Parses all of `text` except blanks around it.
    pub(super) fn parse(&self, text: &[u8]) -> Option<Moment> {
        let mut rest = text.trim_ascii();
        let mut parts = Parts::default();
        for item in &self.items {
            rest = parts.take(*item, rest)?;
        }
        if rest.is_empty() { parts.moment() } else { None }
    }
}

fn unknown(directive: u8) -> String {
    format!(
        "%{} is not known; there are %Y %y %m %b %B %d %e %j %a %A %H %k %I %l %p %M %S %f %.f %z %Z %s %F %T %R %D %%",
        char::from(directive)
    )
}

fn directive_item(directive: u8) -> Option<Item> {
    let number = |field, max_digits| Some(Item::Number { field, max_digits, exact: false });
    match directive {
        b'Y' => Some(Item::Number { field: Field::Year, max_digits: 4, exact: true }),
        b'y' => Some(Item::Number { field: Field::YearOfCentury, max_digits: 2, exact: true }),
        b'm' => number(Field::Month, 2),
        b'd' | b'e' => number(Field::Day, 2),
        b'j' => number(Field::DayOfYear, 3),
        b'H' | b'k' => number(Field::Hour, 2),
        b'I' | b'l' => number(Field::HourOfHalf, 2),
        b'M' => number(Field::Minute, 2),
        b'S' => number(Field::Second, 2),
        b'b' | b'B' | b'h' => Some(Item::MonthName),
        b'a' | b'A' => Some(Item::WeekdayName),
        b'p' | b'P' => Some(Item::HalfOfDay),
        b'f' => Some(Item::Fraction),
        b'z' => Some(Item::Zone),
        b'Z' => Some(Item::ZoneName),
        b's' => Some(Item::Epoch),
        b'n' | b't' => Some(Item::Blanks),
        b'%' => Some(Item::Literal(b'%')),
        _ => None,
    }
}

/// The fault of a list of items, if any.
fn contradiction(items: &[Item]) -> Option<&'static str> {
    let is_number = |item: &Item, wanted| matches!(item, Item::Number { field, .. } if *field == wanted);
    let count = |test: &dyn Fn(&Item) -> bool| items.iter().filter(|item| test(item)).count();
    let of = |field| count(&|item| is_number(item, field));
    let years = of(Field::Year) + of(Field::YearOfCentury);
    let months = of(Field::Month) + count(&|item| *item == Item::MonthName);
    let days = of(Field::Day);
    let days_of_year = of(Field::DayOfYear);
    let hours = of(Field::Hour);
    let halves = of(Field::HourOfHalf);
    let fractions = count(&|item| matches!(item, Item::Fraction | Item::PointFraction));
    let zones = count(&|item| matches!(item, Item::Zone | Item::ZoneName));
    let epochs = count(&|item| *item == Item::Epoch);
    let minutes = of(Field::Minute);
    let seconds = of(Field::Second);
    let half_names = count(&|item| *item == Item::HalfOfDay);
    let counts = [years, months, days, days_of_year, hours + halves, half_names, minutes, seconds, fractions];
    let calendar = years + months + days + days_of_year;
    let clock = hours + halves + minutes + seconds;
    if counts.iter().any(|&count| count > 1) || zones > 1 || epochs > 1 {
        Some("it names the same thing twice")
    } else if epochs == 1 && calendar + clock + zones > 0 {
        Some("%s is a whole date: only a fraction goes with it")
    } else if calendar + clock + epochs == 0 {
        Some("it has no directive of a date or a time")
    } else if halves != half_names {
        Some("%I and %p go together")
    } else if days_of_year > 0 && months + days > 0 {
        Some("%j and a month or day exclude each other")
    } else if days > 0 && months == 0 {
        Some("%d needs a month")
    } else if fractions > 0 && seconds + epochs == 0 {
        Some("a fraction goes with %S or %s")
    } else {
        None
    }
}

/// The parts of a date read so far.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    afternoon: Option<bool>,
    minute: i64,
    second: i64,
    nanoseconds: u32,
    ahead_seconds: i64,
    epoch: Option<(bool, i64)>,
}

impl Parts {
    /// Reads an item at the start of `text`; returns the text after it.
    fn take<'t>(&mut self, item: Item, text: &'t [u8]) -> Option<&'t [u8]> {
        match item {
            Item::Literal(byte) => text.strip_prefix(&[byte]),
            Item::Blanks => Some(text.trim_ascii_start()),
            Item::Number { field, max_digits, exact } => {
                let (value, rest) = number(text, max_digits, exact)?;
                self.set(field, value)?;
                Some(rest)
            }
            Item::MonthName => {
                let (month, rest) = name(&MONTHS, text)?;
                self.month = Some(month + 1);
                Some(rest)
            }
            Item::WeekdayName => name(&WEEKDAYS, text).map(|(_, rest)| rest),
            Item::HalfOfDay => {
                let (half, rest) = text.split_first_chunk::<2>()?;
                self.afternoon = Some(half.eq_ignore_ascii_case(b"pm"));
                (self.afternoon == Some(true) || half.eq_ignore_ascii_case(b"am")).then_some(rest)
            }
            Item::Fraction => {
                let (nanoseconds, rest) = fraction(text)?;
                self.nanoseconds = nanoseconds;
                Some(rest)
            }
            Item::PointFraction => match text.split_first() {
                Some((b'.' | b',', digits)) => self.take(Item::Fraction, digits),
                _ => Some(text),
            },
            Item::Zone => {
                let (ahead_seconds, rest) = zone(text, |digits| number(digits, 2, true))?;
                self.ahead_seconds = ahead_seconds;
                Some(rest)
            }
            Item::ZoneName => [&b"UTC"[..], b"GMT", b"Z"].iter().find_map(|name| {
                let (head, rest) = text.split_at_checked(name.len())?;
                head.eq_ignore_ascii_case(name).then_some(rest)
            }),
            Item::Epoch => {
                let (negative, digits) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
                let (value, rest) = number(digits, EPOCH_DIGITS, false)?;
                self.epoch = Some((negative, value));
                Some(rest)
            }
        }
    }

    /// `None` if the value is out of range.
    fn set(&mut self, field: Field, value: i64) -> Option<()> {
        let within = |range: std::ops::RangeInclusive<i64>| range.contains(&value).then_some(value);
        match field {
            Field::Year => self.year = Some(value),
            Field::YearOfCentury => self.year = Some(value + if value < 69 { 2_000 } else { 1_900 }),
            Field::Month => self.month = Some(within(1..=12)?),
            Field::Day => self.day = Some(within(1..=31)?),
            Field::DayOfYear => self.day_of_year = Some(within(1..=366)?),
            Field::Hour => self.hour = within(0..=23)?,
            Field::HourOfHalf => self.hour = within(1..=12)? % 12,
            Field::Minute => self.minute = within(0..=59)?,
            // A leap second is the first of the next minute.
            Field::Second => self.second = within(0..=60)?,
        }
        Some(())
    }

    fn moment(&self) -> Option<Moment> {
        if let Some((negative, value)) = self.epoch {
            return Some(match (negative, self.nanoseconds) {
                (false, nanoseconds) => Moment::new(EPOCH + value, nanoseconds),
                // Times before the year 0 are not supported.
                (true, _) if value >= EPOCH => return None,
                (true, 0) => Moment::new(EPOCH - value, 0),
                (true, nanoseconds) => Moment::new(EPOCH - value - 1, 1_000_000_000 - nanoseconds),
            });
        }
        let year = self.year.unwrap_or(YEAR);
        let days = match self.day_of_year {
            Some(day) => {
                let days = days_before(year, 1, 1) + day - 1;
                (days < days_before(year + 1, 1, 1)).then_some(days)?
            }
            None => {
                let month = self.month.unwrap_or(1);
                let day = self.day.unwrap_or(1);
                (day <= month_days(year, month)?).then(|| days_before(year, month, day))?
            }
        };
        let hour = self.hour + if self.afternoon == Some(true) { 12 } else { 0 };
        let clock = hour * 3_600 + self.minute * 60 + self.second;
        Some(Moment::new(days * 86_400 + clock - self.ahead_seconds, self.nanoseconds))
    }
}

/// A number of up to `max_digits` digits at the start of `text`, and the text after it.
fn number(text: &[u8], max_digits: usize, exact: bool) -> Option<(i64, &[u8])> {
    // Short numbers may be padded with blanks.
    let text = text.strip_prefix(b" ").filter(|_| max_digits == 2).unwrap_or(text);
    let digits = text.iter().take(max_digits).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || (exact && digits < max_digits) {
        return None;
    }
    let (digits, rest) = text.split_at(digits);
    Some((digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit & 15)), rest))
}

/// The number of the name, of `names`, with which the text begins, in full or by three letters, and the text after
/// it.
fn name<'t>(names: &[&str], text: &'t [u8]) -> Option<(i64, &'t [u8])> {
    let begins =
        |name: &str| text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name.as_bytes()));
    (0..).zip(names).find_map(|(at, name)| {
        let short = name.get(..3).filter(|short| begins(short))?;
        let length = if begins(name) { name.len() } else { short.len() };
        Some((at, text.get(length..).unwrap_or_default()))
    })
}

#[cfg(test)]
#[path = "date_format_tests.rs"]
mod tests;
