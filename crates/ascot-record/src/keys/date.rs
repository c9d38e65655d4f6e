//! ISO 8601 dates and times as memcmp-comparable bytes; `date_format` reads other formats.
//!
//! ```text
//! 2024-05-01   2024-05-01T12:30   2024-05-01 12:30:59.123456789Z   2024-05-01T12:30:00+02:00
//! ```
//!
//! A date is its first moment; a time without a zone is in UTC; fractions beyond a nanosecond are cut off. The key is
//! a tag, the seconds since 0000-01-01 in five bytes (biased, for offsets before it) and the nanoseconds in four.

/// Tag of a date in the key: between the null tags and that of texts.
const TAG: u8 = 0x40;
/// Added to the seconds so that none is negative.
const BIAS: i64 = 1 << 20;

/// A moment in seconds since 0000-01-01T00:00:00Z, and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    seconds: i64,
    nanoseconds: u32,
}

impl Moment {
    /// The moment at these seconds and nanoseconds after 0000-01-01.
    pub(super) fn new(seconds: i64, nanoseconds: u32) -> Moment {
        Moment { seconds, nanoseconds }
    }

    /// Parses all of `text` except spaces and tabs around it.
    pub(super) fn parse(text: &[u8]) -> Option<Moment> {
        let (mut seconds, rest) = date(text.trim_ascii())?;
        let Some((separator, rest)) = rest.split_first() else {
            return Some(Moment { seconds, nanoseconds: 0 });
        };
        if !matches!(separator, b'T' | b't' | b' ') {
            return None;
        }
        let (clock, nanoseconds, rest) = time(rest)?;
        let (ahead_seconds, rest) = match rest.trim_ascii_start() {
            [] => (0, rest),
            rest => zone(rest, number::<2>)?,
        };
        if !rest.is_empty() {
            return None;
        }
        seconds += clock - ahead_seconds;
        Some(Moment { seconds, nanoseconds })
    }

    /// Appends the encoding.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let [_, _, _, seconds @ ..] = ((self.seconds + BIAS) as u64).to_be_bytes();
        out.push(TAG);
        out.extend_from_slice(&seconds);
        out.extend_from_slice(&self.nanoseconds.to_be_bytes());
    }
}

/// `N` digits as a number, and the text after them.
fn number<const N: usize>(text: &[u8]) -> Option<(i64, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<N>()?;
    let mut value = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit & 15);
    }
    Some((value, rest))
}

/// The seconds up to the day at the start of `text`.
fn date(text: &[u8]) -> Option<(i64, &[u8])> {
    let (year, rest) = number::<4>(text)?;
    let (month, rest) = number::<2>(rest.strip_prefix(b"-")?)?;
    let (day, rest) = number::<2>(rest.strip_prefix(b"-")?)?;
    if !(1..=month_days(year, month)?).contains(&day) {
        return None;
    }
    Some((days_before(year, month, day) * 86_400, rest))
}

/// Days of a month of the Gregorian calendar; none if there is no such month.
pub(super) fn month_days(year: i64, month: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        4 | 6 | 9 | 11 => Some(30),
        2 => Some(28 + i64::from(leap)),
        _ => None,
    }
}

/// Days from 0000-01-01 to a date of the Gregorian calendar. Years begin in March here, so that the leap day comes
/// last; then the months before a month have 30.6 days on average, rounded.
pub(super) fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // The first of March of year 0 is day 60.
    60 + year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1
}

/// Seconds and nanoseconds into the day, and the text after them: `HH:MM[:SS[.FRACTION]]`.
fn time(text: &[u8]) -> Option<(i64, u32, &[u8])> {
    let (hour, rest) = number::<2>(text)?;
    let (minute, rest) = number::<2>(rest.strip_prefix(b":")?)?;
    let (second, rest) = match rest.strip_prefix(b":") {
        Some(rest) => number::<2>(rest)?,
        None => (0, rest),
    };
    let (nanoseconds, rest) = match rest.split_first() {
        Some((b'.' | b',', digits)) => fraction(digits)?,
        _ => (0, rest),
    };
    let midnight = hour == 24 && minute == 0 && second == 0 && nanoseconds == 0;
    // A leap second is the first of the next minute.
    if (hour > 23 && !midnight) || minute > 59 || second > 60 {
        return None;
    }
    Some((hour * 3_600 + minute * 60 + second, nanoseconds, rest))
}

pub(super) fn fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = super::numeric::take_digits(text);
    if digits.is_empty() {
        return None;
    }
    let padded = digits.iter().map(|digit| u32::from(digit & 15)).chain(std::iter::repeat(0));
    Some((padded.take(9).fold(0, |value, digit| value * 10 + digit), rest))
}

/// Seconds by which the zone at the start of `text` is ahead of UTC, and the text after it. `digits` reads two
/// digits.
pub(super) fn zone(text: &[u8], digits: impl Fn(&[u8]) -> Option<(i64, &[u8])>) -> Option<(i64, &[u8])> {
    let (sign, rest) = match text.split_first()? {
        (b'Z' | b'z', rest) => return Some((0, rest)),
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => return None,
    };
    let (hours, rest) = digits(rest)?;
    let minutes = rest.strip_prefix(b":").unwrap_or(rest);
    let (minutes, rest) =
        if minutes.first().is_some_and(u8::is_ascii_digit) { digits(minutes)? } else { (0, rest) };
    (hours < 24 && minutes < 60).then_some((sign * (hours * 3_600 + minutes * 60), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> Option<Moment> {
        Moment::parse(text.as_bytes())
    }

    fn key(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        moment(text).unwrap().append(&mut out);
        out
    }

    #[test]
    fn days_count_without_gaps() {
        let mut expected = 0;
        for year in 0..2_100 {
            for month in 1..=12 {
                for day in 1..=31 {
                    if let Some((seconds, _)) = date(format!("{year:04}-{month:02}-{day:02}").as_bytes()) {
                        assert_eq!(seconds, expected * 86_400, "{year}-{month}-{day}");
                        expected += 1;
                    }
                }
            }
        }
        // 1970-01-01 is day 719,528 of the proleptic Gregorian calendar.
        assert_eq!(moment("1970-01-01").unwrap().seconds, 719_528 * 86_400);
    }

    #[test]
    fn ascending_table() {
        let texts = [
            "0000-01-01T00:00+23:59",
            "0000-01-01",
            "1969-12-31 23:59:59.999999999",
            "1970-01-01",
            "1970-01-01T00:00:00.000000001Z",
            "1970-01-01T00:01",
            "2024-02-29",
            "2024-02-29T24:00:00.0",
            "2024-03-01T00:00:00-00:30",
            "9999-12-31T23:59:60",
            "9999-12-31T23:59-23:59",
        ];
        for pair in texts.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn equal_table() {
        for (a, b) in [
            ("2024-05-01", "2024-05-01T00:00"),
            ("2024-05-01t12:00:00Z", " 2024-05-01 14:00+02:00 "),
            ("2024-05-01T12:00:00,5", "2024-05-01 12:00:00.500z"),
            ("2024-05-01T12:00-0530", "2024-05-01T17:30"),
            ("2024-05-01T12:00+02", "2024-05-01T12:00 +0200"),
            ("2024-05-01T12:00:00.1234567891", "2024-05-01T12:00:00.123456789"),
        ] {
            assert_eq!(key(a), key(b), "{a} {b}");
        }
    }

    #[test]
    fn others_are_no_dates() {
        for text in [
            "",
            "2024",
            "20240501",
            "2024-5-1",
            "2023-02-29",
            "2024-13-01",
            "2024-00-10",
            "2024-01-00",
            "2024-01-01T",
            "2024-01-01T25:00",
            "2024-01-01T24:01",
            "2024-01-01T12",
            "2024-01-01T12:60",
            "2024-01-01T12:00:00.",
            "2024-01-01T12:00+",
            "2024-01-01T12:00+2",
            "2024-01-01T12:00+02:",
            "2024-01-01T12:00+02:00x",
            "1714521600",
            "2024-01-01T12:00ZZ",
            "2024-01-01Z",
        ] {
            assert_eq!(moment(text), None, "{text:?}");
        }
    }
}
