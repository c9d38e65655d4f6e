//! Bytes, rates, times and counts in text for people: `8.00 GB`, `1 GiB`, `526 MB/s`, `15 s`.

use std::path::Path;

/// Names of powers of 1000 bytes.
const DECIMAL: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
/// Names of powers of 1024 bytes.
const BINARY: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Bytes in decimal units with three significant digits: `512 B`, `19.7 GB`.
pub fn bytes(count: u64) -> String {
    scaled(count as f64, &DECIMAL, 1000.0)
}

/// Bytes in binary units with three significant digits: `61.4 MiB`.
pub fn rounded_memory(bytes: f64) -> String {
    scaled(bytes, &BINARY, 1024.0)
}

/// The largest decimal unit of which `bytes` has at least one: its bytes and its name.
pub fn decimal_unit(bytes: f64) -> (f64, &'static str) {
    largest_unit(bytes, DECIMAL, 1000.0)
}

/// The largest binary unit of which `bytes` has at least one: its bytes and its name.
pub fn binary_unit(bytes: f64) -> (f64, &'static str) {
    largest_unit(bytes, BINARY, 1024.0)
}

fn largest_unit(bytes: f64, names: [&'static str; 6], base: f64) -> (f64, &'static str) {
    let units = (0..).zip(names).map(|(power, name)| (base.powi(power), name));
    units.take_while(|(unit, _)| *unit <= bytes.max(1.0)).last().unwrap_or((1.0, names[0]))
}

/// Bytes in binary units, as memory is quoted: `64 MiB`, `1 GiB`, `1.50 GiB`.
pub fn memory(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.2} {}", units[unit])
    }
}

/// A rate in bytes/s: `526 MB/s`.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{}/s", scaled(bytes_per_s, &["B", "kB", "MB", "GB", "TB"], 1000.0))
}

/// A time in seconds: `0.42 s`, `15 s`, `2 min 5 s`, `3 h 20 min`.
pub fn seconds(time_s: f64) -> String {
    if time_s < 10.0 {
        return format!("{} s", (time_s * 10.0).round() / 10.0);
    }
    let whole = time_s.round() as u64;
    match whole {
        0..=119 => format!("{whole} s"),
        120..=7199 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A time of which small values matter: three significant digits below ten seconds, `2.46 s`, `12.3 ms`.
pub fn fine_seconds(time_s: f64) -> String {
    match time_s {
        s if s == 0.0 || s >= 9.995 => seconds(s),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.1 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}

/// A count with thousands separated: `80,000,000`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 run`, `9 runs`: a count with its noun.
pub fn plural(value: u64, noun: &str) -> String {
    plural_form(value, noun, &format!("{noun}s"))
}

/// `1 process`, `9 processes`: a count with its noun, of which both forms are given.
pub fn plural_form(value: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { several })
}

/// Text for a page of HTML: letters that HTML gives a meaning are escaped.
pub fn in_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A path for a shell: in quotes if it has any special character.
pub fn in_shell(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn scaled(value: f64, units: &[&str], base: f64) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= base * 0.9995 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(8_000_000_000), "8.00 GB");
        assert_eq!(bytes(19_740_000_000), "19.7 GB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(memory(1 << 30), "1 GiB");
        assert_eq!(memory(3 << 29), "1.50 GiB");
        assert_eq!(rate(526e6), "526 MB/s");
        assert_eq!(rounded_memory(1.5 * 1024.0 * 1024.0), "1.50 MiB");
        assert_eq!((decimal_unit(999.0), decimal_unit(2e6)), ((1.0, "B"), (1e6, "MB")));
        assert_eq!((binary_unit(0.0), binary_unit(1024.0)), ((1.0, "B"), (1024.0, "KiB")));
    }

    #[test]
    fn paths_with_special_characters_are_quoted() {
        assert_eq!(in_shell(Path::new("/fast/ascot-7f3a")), "/fast/ascot-7f3a");
        assert_eq!(in_shell(Path::new("/my disk/a")), "'/my disk/a'");
        assert_eq!(in_shell(Path::new("it's")), "'it'\\''s'");
        assert_eq!(in_shell(Path::new("")), "''");
    }

    #[test]
    fn times_and_counts_read_well() {
        assert_eq!(seconds(0.42), "0.4 s");
        let times = [0.0, 0.000_045, 0.002_2, 0.0495, 0.42, 2.456, 9.999, 12.4].map(fine_seconds);
        assert_eq!(times, ["0 s", "45.0 µs", "2.200 ms", "49.500 ms", "0.420 s", "2.46 s", "10 s", "12 s"]);
        assert_eq!(seconds(125.0), "2 min 5 s");
        assert_eq!(seconds(12_000.0), "3 h 20 min");
        assert_eq!(count(80_000_000), "80,000,000");
        assert_eq!(plural(1, "run"), "1 run");
        assert_eq!(plural(1234, "run"), "1,234 runs");
        assert_eq!(plural_form(1, "process", "processes"), "1 process");
        assert_eq!(plural_form(1234, "process", "processes"), "1,234 processes");
    }
}
