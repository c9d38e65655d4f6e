//! Tests of dates in described formats.

use super::*;
use proptest::prelude::*;

fn parse(format: &str, text: &str) -> Option<Moment> {
    DateFormat::new(format).unwrap().parse(text.as_bytes())
}

fn iso(text: &str) -> Moment {
    Moment::parse(text.as_bytes()).unwrap()
}

#[test]
fn forms_mean_what_iso_says() {
    for (format, text, same) in [
        ("%d.%m.%Y", "01.05.2024", "2024-05-01"),
        ("%d.%m.%Y", " 1.5.2024 ", "2024-05-01"),
        ("%m/%d/%y", "5/1/24", "2024-05-01"),
        ("%D", "12/31/69", "1969-12-31"),
        ("%Y%m%d", "20240501", "2024-05-01"),
        ("%Y%m%d%H%M%S", "20240501123059", "2024-05-01T12:30:59"),
        ("%d %b %Y", "01  may 2024", "2024-05-01"),
        ("%B %e, %Y", "September  9, 2024", "2024-09-09"),
        ("%A, %d-%h-%y", "Wednesday, 01-May-24", "2024-05-01"),
        ("%d/%b/%Y:%H:%M:%S %z", "10/Oct/2000:13:55:36 -0700", "2000-10-10T13:55:36-07:00"),
        ("%I:%M %p %F", "12:30 am 2024-05-01", "2024-05-01T00:30"),
        ("%l:%M%p %F", " 1:30PM 2024-05-01", "2024-05-01T13:30"),
        ("%F %T.%f", "2024-05-01 12:30:59.25", "2024-05-01T12:30:59.25"),
        ("%FT%T%.f%z", "2024-05-01T12:30:59Z", "2024-05-01T12:30:59"),
        ("%FT%T%.f%z", "2024-05-01T12:30:59,5+01", "2024-05-01T11:30:59.5"),
        ("%Y-%j", "2024-366", "2024-12-31"),
        ("%s", "1714566659", "2024-05-01T12:30:59"),
        ("%s%.f", "-1.25", "1969-12-31T23:59:58.75"),
        ("%H:%M", "7:05", "2000-01-01T07:05"),
        ("%d.%m.", "29.02.", "2000-02-29"),
        ("%d%% %m", "07% 3", "2000-03-07"),
        ("%F %T %Z", "2024-05-01 12:30:59 GMT", "2024-05-01T12:30:59"),
    ] {
        assert_eq!(parse(format, text), Some(iso(same)), "{format} {text}");
    }
}

#[test]
fn others_do_not_fit() {
    for (format, text) in [
        ("%d.%m.%Y", "31.04.2024"),
        ("%d.%m.%Y", "29.02.2023"),
        ("%d.%m.%Y", "2024-05-01"),
        ("%d.%m.%Y", "01.05.2024 x"),
        ("%d.%m.%Y", "01.05.24"),
        ("%d.%m.%Y", "00.05.2024"),
        ("%d.%m.%Y", "1.13.2024"),
        ("%Y%m%d", "2024051"),
        ("%Y-%j", "2023-366"),
        ("%d %b %Y", "01 Mai 2024"),
        ("%I:%M %p", "13:00 pm"),
        ("%H:%M", "24:00"),
        ("%S.%f", "1."),
        ("%s", "99999999999999"),
        ("%s", "-99999999999"),
        ("%F %z", "2024-05-01 0200"),
        ("%F %z", "2024-05-01 +2"),
        ("%F", ""),
    ] {
        assert_eq!(parse(format, text), None, "{format} {text}");
    }
}

#[test]
fn formats_that_make_no_sense_are_refused() {
    for (format, words) in [
        ("", "no directive"),
        ("%A", "no directive"),
        ("%d.%m.%Q", "%Q is not known"),
        ("%d.%m.%", "single %"),
        ("%Y %y", "twice"),
        ("%m %b", "twice"),
        ("%I:%M", "go together"),
        ("%H:%M %p", "go together"),
        ("%s %Y", "whole date"),
        ("%d", "needs a month"),
        ("%Y-%j-%d", "exclude"),
        ("%H %f", "goes with %S"),
    ] {
        let message = DateFormat::new(format).unwrap_err().to_string();
        assert!(message.contains(words), "{format}: {message}");
    }
}

#[test]
fn a_format_is_stored_as_its_text() {
    let format = DateFormat::new("%d.%m.%Y").unwrap();
    let stored = serde_json::to_string(&format).unwrap();
    assert_eq!(stored, "\"%d.%m.%Y\"");
    assert_eq!(serde_json::from_str::<DateFormat>(&stored).unwrap(), format);
    assert!(serde_json::from_str::<DateFormat>("\"%Q\"").is_err());
}

proptest! {
    #[test]
    fn every_date_is_read_as_it_was_written(
        year in 0i64..10_000, month in 1usize..13, day in 1i64..32, clock in 0i64..86_400,
        nanoseconds in 0u32..1_000_000_000, zone in -1_439i64..1_440, form in 0usize..6,
    ) {
        let date = format!("{year:04}-{month:02}-{day:02}");
        let (hour, minute, second) = (clock / 3_600, clock / 60 % 60, clock % 60);
        let half = if hour < 12 { "AM" } else { "pm" };
        let (sign, ahead) = (if zone < 0 { '-' } else { '+' }, zone.abs());
        let (format, text) = [
            (
                "%d.%m.%Y %H:%M:%S.%f %z",
                format!(
                    "{day}.{month}.{year:04} {hour}:{minute}:{second}.{nanoseconds:09} {sign}{:02}{:02}",
                    ahead / 60,
                    ahead % 60
                ),
            ),
            (
                "%Y%m%d%H%M%S%f%z",
                format!(
                    "{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}{nanoseconds:09}{sign}{:02}:{:02}",
                    ahead / 60,
                    ahead % 60
                ),
            ),
            (
                "%B %d, %Y %I:%M:%S%.f %p%z",
                format!(
                    "{} {day}, {year:04} {}:{minute:02}:{second:02}.{nanoseconds:09} {half}{sign}{:02}{:02}",
                    MONTHS[month - 1],
                    (hour + 11) % 12 + 1,
                    ahead / 60,
                    ahead % 60
                ),
            ),
            (
                "%z %T%.f %e-%b-%Y",
                format!(
                    "{sign}{:02}{:02} {hour:02}:{minute:02}:{second:02},{nanoseconds:09} {day:2}-{}-{year:04}",
                    ahead / 60,
                    ahead % 60,
                    &MONTHS[month - 1][..3].to_uppercase()
                ),
            ),
            (
                "%F%z%n%T%.f",
                format!(
                    "{date}{sign}{:02}:{:02} \t{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}",
                    ahead / 60,
                    ahead % 60
                ),
            ),
            (
                "%m/%d/%Y %k.%M.%S%.f %z",
                format!(
                    "{month}/{day}/{year:04} {hour:2}.{minute:02}.{second:02}.{nanoseconds:09} {sign}{:02}{:02}",
                    ahead / 60,
                    ahead % 60
                ),
            ),
        ][form].clone();
        let same = format!(
            "{date}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}{sign}{:02}:{:02}",
            ahead / 60,
            ahead % 60
        );
        prop_assert_eq!(parse(format, &text), Moment::parse(same.as_bytes()), "{} {}", format, text);
    }

    #[test]
    fn any_text_is_read_or_refused(format in "[%YmdHMSfzsbp.: -]{0,12}", text in "[0-9 :./+zaprjn-]{0,20}") {
        if let Ok(format) = DateFormat::new(&format)
            && let Some(moment) = format.parse(text.as_bytes())
        {
            let mut key = Vec::new();
            moment.append(&mut key);
            prop_assert_eq!(key.len(), 10);
        }
    }
}
