//! Sizes, durations and ages as users type them and read them: rclone's forms, in both directions.
//!
//! The command line calls it for flags and for what it prints; stores call it for their options.

use crate::Mtime;
use jiff::{Timestamp, civil, tz::TimeZone};
use std::time::Duration;

/// A size that may be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// `off`: no size applies.
    Off,
}

impl Size {
    /// The bytes, or `None` for `off`.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Size::Bytes(n) => Some(n),
            Size::Off => None,
        }
    }
}

/// Powers of 1024 and the letters that stand for them.
const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Parses a size: a number, fractions allowed, with a suffix `B`, `K`, `M`, `G`, `T`, `P`, `E` (either case, powers of
/// 1024, also `Ki` and `KiB`); KiB without a suffix; `off`.
///
/// Errors: one line with the text and the problem.
pub fn parse_size(text: &str) -> Result<Size, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(Size::Off);
    }
    let wrong = |why: &str| format!("bad size {text:?}: {why}; write a number and B, K, M, G, T, P or E, or off");
    let (number, unit) = split_size(text).ok_or_else(|| wrong("unknown suffix"))?;
    let value = number_with_underscores(number).ok_or_else(|| wrong("not a number"))?;
    if value.is_sign_negative() && value != 0.0 {
        return Err(wrong("it is negative"));
    }
    let bytes = value * unit;
    // rclone counts in signed 64 bits, and so does every store.
    if bytes >= i64::MAX as f64 {
        return Err(wrong("it is too large"));
    }
    Ok(Size::Bytes(bytes as u64))
}

/// Splits a size into its number and the bytes in its unit.
fn split_size(text: &str) -> Option<(&str, f64)> {
    let cut = |n: usize| text.get(..text.len().checked_sub(n)?);
    let letter = |back: usize| power(*text.as_bytes().get(text.len().checked_sub(back)?)?);
    match text.as_bytes().last()? {
        b'0'..=b'9' | b'.' => Some((text, 1024.0)),
        b'b' | b'B' if text.len() > 2 && text.as_bytes()[text.len() - 2] == b'i' => Some((cut(3)?, letter(3)?)),
        b'b' | b'B' => Some((cut(1)?, 1.0)),
        b'i' | b'I' => Some((cut(2)?, letter(2)?)),
        _ => Some((cut(1)?, letter(1)?)),
    }
}

/// Bytes in the unit that a letter stands for.
fn power(letter: u8) -> Option<f64> {
    let at = b"KMGTPE".iter().position(|l| *l == letter.to_ascii_uppercase())?;
    Some(1024f64.powi(at as i32 + 1))
}

/// A finite decimal number; `_` may stand between two digits, as in Go.
fn number_with_underscores(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|i| bytes.get(i)).is_some_and(u8::is_ascii_digit);
    let kept: Option<String> = bytes
        .iter()
        .enumerate()
        .filter(|(i, b)| **b != b'_' || !digit(i.checked_sub(1)) || !digit(Some(i + 1)))
        .map(|(_, b)| (b.is_ascii_digit() || b"+-.eE".contains(b)).then_some(char::from(*b)))
        .collect();
    kept?.parse::<f64>().ok().filter(|v| v.is_finite())
}

/// A size as rclone's summary prints it: `0 B`, `512 B`, `1.500 KiB`.
pub fn size_text(bytes: u64) -> String {
    let (number, unit) = scaled(bytes);
    format!("{number} {unit}B")
}

/// Bytes in units of 1024, always with three decimals, as mpiFileUtils prints sizes and rates: `0.000 B`, `1.500 KiB`.
pub fn size_decimal(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            return format!("{value:.3} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.3} PiB")
}

/// A size as listings print it under `--human-readable`, and as flags show it: `512`, `1.500Ki`.
pub fn size_short(bytes: u64) -> String {
    let (number, unit) = scaled(bytes);
    format!("{number}{unit}")
}

/// A count as rclone prints it to people, in powers of 1000: `999`, `1.234k`, `2M`.
pub fn count_text(count: u64) -> String {
    const LETTERS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let step = (count.checked_ilog10().unwrap_or(0) / 3) as usize;
    let number = count as f64 / 1000f64.powi(step as i32);
    match number.fract() == 0.0 {
        true => format!("{number:.0}{}", LETTERS[step]),
        false => format!("{number:.3}{}", LETTERS[step]),
    }
}

fn scaled(bytes: u64) -> (String, &'static str) {
    let step = (u64::BITS - bytes.leading_zeros()).saturating_sub(1) / 10;
    let number = bytes as f64 / 1024f64.powi(step as i32);
    let text = if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.3}") };
    (text, UNITS[step as usize])
}

/// Reads a duration: Go's form (`1h30m`, `100ms`, `1.5h`), or one number with `d`, `w`, `M` (30 days), `y` (365 days) or
/// no suffix (seconds). `off` is `None`.
///
/// Errors: one line; a negative duration is one.
pub fn parse_duration(text: &str) -> Result<Option<Duration>, String> {
    if text == "off" {
        return Ok(None);
    }
    let nanos = signed_nanos(text).ok_or_else(|| {
        format!("bad duration {text:?}: write a number and ms, s, m, h, d, w, M or y (1h30m, 2d), or off")
    })?;
    match u64::try_from(nanos) {
        Ok(nanos) => Ok(Some(Duration::from_nanos(nanos))),
        Err(_) => Err(format!("bad duration {text:?}: it is negative")),
    }
}

/// Reads an age as a point in time: a duration back from `now` (a negative one lies ahead), or a date (RFC 3339,
/// `2006-01-02T15:04:05`, `2006-01-02 15:04:05`, `2006-01-02`), which is in `zone` when it names none. `off` is `None`.
///
/// Errors: one line that names the text.
pub fn parse_age(text: &str, now: Mtime, zone: &TimeZone) -> Result<Option<Mtime>, String> {
    if text == "off" {
        return Ok(None);
    }
    if let Some(nanos) = signed_nanos(text) {
        return Ok(Some(Mtime(now.0 - i128::from(nanos))));
    }
    parse_date(text, zone).map(Some).ok_or_else(|| {
        format!(
            "bad age {text:?}: write a number and ms, s, m, h, d, w, M or y, a date such as 2006-01-02T15:04:05, or off"
        )
    })
}

/// Reads a date as [`parse_age`] does.
pub fn parse_date(text: &str, zone: &TimeZone) -> Option<Mtime> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(Mtime(at.as_nanosecond()));
    }
    let civil: civil::DateTime = text.parse().ok()?;
    let at = civil.to_zoned(zone.clone()).ok()?;
    Some(Mtime(at.timestamp().as_nanosecond()))
}

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 24 * 3600 * SECOND;

/// Nanoseconds of a duration, which may be negative; `None` if it isn't one or doesn't fit (about 292 years).
fn signed_nanos(text: &str) -> Option<i64> {
    go_nanos(text).or_else(|| suffix_nanos(text))
}

/// Go's own form: an optional sign, then numbers with units.
fn go_nanos(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        total = total.checked_add(times(number, go_unit(unit)?)?)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn go_unit(unit: &str) -> Option<i64> {
    match unit {
        "ns" => Some(1),
        "us" | "µs" | "μs" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(SECOND),
        "m" => Some(60 * SECOND),
        "h" => Some(3600 * SECOND),
        _ => None,
    }
}

/// `number` (digits with at most one point, at least one digit) times `unit`, cut to whole nanoseconds.
fn times(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Nine digits are nanoseconds of a second; sixteen are enough for the fraction of an hour.
    let fraction = &fraction[..fraction.len().min(16)];
    let scale = 10i128.pow(fraction.len() as u32);
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    whole.checked_mul(i128::from(unit))?.checked_add(part * i128::from(unit) / scale)
}

/// One number with a suffix that Go doesn't know, or none for seconds.
fn suffix_nanos(text: &str) -> Option<i64> {
    let (number, unit) = match text.as_bytes().last()? {
        b'd' => (&text[..text.len() - 1], DAY),
        b'w' => (&text[..text.len() - 1], 7 * DAY),
        b'M' => (&text[..text.len() - 1], 30 * DAY),
        b'y' => (&text[..text.len() - 1], 365 * DAY),
        _ => (text, SECOND),
    };
    let nanos = number_with_underscores(number)? * unit as f64;
    (nanos.abs() < i64::MAX as f64).then_some(nanos as i64)
}

/// A time span as rclone prints the time that a run took: tenths of seconds after `y`, `w`, `d`, `h` and `m`, those that
/// are zero left out: `0.0s`, `1m2.3s`, `1d2h0.5s`.
pub fn duration_text(span: Duration) -> String {
    let tenths = span.subsec_millis() / 100;
    let seconds = span.as_secs();
    format!("{}{}.{tenths}s", units_text(seconds - seconds % 60, usize::MAX), seconds % 60)
}

/// A time span in whole units, the three largest that aren't zero, as rclone prints an estimate: `3s`, `1h2m3s`, `3d23h47m`.
pub fn duration_short(span: Duration) -> String {
    match units_text(span.as_secs(), 3) {
        text if text.is_empty() => "0s".into(),
        text => text,
    }
}

/// Whole seconds as years, weeks, days, hours, minutes and seconds, at most `most` of them, without those that are zero.
fn units_text(seconds: u64, most: usize) -> String {
    let days = seconds / 86_400;
    let parts = [
        (days / 365, 'y'),
        (days % 365 / 7, 'w'),
        (days % 365 % 7, 'd'),
        (seconds / 3600 % 24, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    parts.iter().filter(|(n, _)| *n > 0).take(most).map(|(n, unit)| format!("{n}{unit}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1024;
    const E: u64 = 1 << 60;

    // Each line was tried on rclone 1.75.1 (`rc options/get` with `--max-size`).
    #[test]
    fn sizes_read_as_rclone_reads_them() {
        for (text, bytes) in [
            ("0", 0),
            ("1", K),
            ("1b", 1),
            ("1B", 1),
            ("1k", K),
            ("1K", K),
            ("1Ki", K),
            ("1KiB", K),
            ("1kib", K),
            ("1kiB", K),
            ("1mI", K * K),
            ("1GiB", K * K * K),
            ("1Gib", K * K * K),
            ("1M", K * K),
            ("100M", 104_857_600),
            ("1.5", 1536),
            ("1.5k", 1536),
            (".5G", 536_870_912),
            ("5.", 5 * K),
            ("+5", 5 * K),
            ("2T", 2_199_023_255_552),
            ("1P", 1 << 50),
            ("1E", E),
            ("3ei", 3 * E),
            ("7E", 7 * E),
            ("1e3", 1_024_000),
            ("1e3B", 1000),
            ("1_000", 1_024_000),
            ("1.999b", 1),
            ("1024b", 1024),
        ] {
            assert_eq!(parse_size(text), Ok(Size::Bytes(bytes)), "{text}");
        }
        for text in ["off", "OFF", "Off"] {
            assert_eq!(parse_size(text), Ok(Size::Off));
        }
        for text in [
            "", "k", "-1", "1.2.3", "x", "1x", "10i", ".", "0x10", "inf", "infk", "nan", "1ib", "1iB", "iB", "B", " 1",
            "1 k", "1KB", "8E", "1__0", "_1", "é", "1é",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bad_size_says_what_to_write() {
        assert_eq!(
            parse_size("12q").unwrap_err(),
            "bad size \"12q\": unknown suffix; write a number and B, K, M, G, T, P or E, or off"
        );
    }

    #[test]
    fn sizes_print_as_rclone_prints_them() {
        for (bytes, text, short) in [
            (0, "0 B", "0"),
            (1, "1 B", "1"),
            (1023, "1023 B", "1023"),
            (1024, "1 KiB", "1Ki"),
            (1536, "1.500 KiB", "1.500Ki"),
            (1025, "1.001 KiB", "1.001Ki"),
            (K * K - 1, "1023.999 KiB", "1023.999Ki"),
            (K * K, "1 MiB", "1Mi"),
            (5 * K * K * K + 1, "5.000 GiB", "5.000Gi"),
            (2_199_023_255_552, "2 TiB", "2Ti"),
            (1 << 50, "1 PiB", "1Pi"),
            (7 * E, "7 EiB", "7Ei"),
            (u64::MAX, "16 EiB", "16Ei"),
        ] {
            assert_eq!(size_text(bytes), text);
            assert_eq!(size_short(bytes), short);
        }
    }

    #[test]
    fn counts_print_as_rclone_prints_them() {
        for (count, text) in
            [(0, "0"), (999, "999"), (1000, "1k"), (1234, "1.234k"), (2_000_000, "2M"), (u64::MAX, "18.447E")]
        {
            assert_eq!(count_text(count), text);
        }
    }

    // Each line was tried on rclone 1.75.1 (`rc options/get` with `--max-age`).
    #[test]
    fn durations_read_as_rclone_reads_them() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("1", 1_000_000_000),
            ("1.5", 1_500_000_000),
            ("100", 100_000_000_000),
            ("1s", 1_000_000_000),
            ("1ms", 1_000_000),
            ("0.1ms", 100_000),
            ("1us", 1_000),
            ("1µs", 1_000),
            ("1ns", 1),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("0.0000001h", 360_000),
            ("1.5ms1us", 1_501_000),
            ("+1h", 3_600_000_000_000),
            ("2d", 172_800_000_000_000),
            ("1.5d", 129_600_000_000_000),
            ("1w", 604_800_000_000_000),
            ("1M", 2_592_000_000_000_000),
            ("1y", 31_536_000_000_000_000),
            (".5y", 15_768_000_000_000_000),
            ("1e3", 1_000_000_000_000),
            ("+5", 5_000_000_000),
            ("5.", 5_000_000_000),
            ("1_0", 10_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Some(Duration::from_nanos(nanos))), "{text}");
        }
        assert_eq!(parse_duration("off"), Ok(None));
        for text in [
            "",
            "OFF",
            "1d12h",
            "1m1",
            "x",
            "1x",
            " 1s",
            "1h-1m",
            ".s",
            "3000000h",
            "500y",
            "-",
            "1dd",
            "-1h",
            "-1d",
            "2020-01-02",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_are_back_from_now_or_dates() {
        let now = Mtime::new(1_700_000_000, 5);
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        for (text, secs, nanos) in [
            ("0", 1_700_000_000, 5),
            ("10", 1_699_999_990, 5),
            ("1d", 1_699_913_600, 5),
            ("-1h", 1_700_003_600, 5),
            ("2020-01-02T03:04:05Z", 1_577_934_245, 0),
            ("2020-01-02T03:04:05.25+01:00", 1_577_930_645, 250_000_000),
            ("2020-01-02T03:04:05", 1_577_927_045, 0),
            ("2020-01-02 03:04:05", 1_577_927_045, 0),
            ("2020-01-02", 1_577_916_000, 0),
            ("1969-12-31T23:59:59Z", -1, 0),
        ] {
            assert_eq!(parse_age(text, now, &zone), Ok(Some(Mtime::new(secs, nanos))), "{text}");
        }
        assert_eq!(parse_age("off", now, &zone), Ok(None));
        for text in ["", "yesterday", "2020-13-01", "2020-01-32", "1d12h"] {
            assert!(parse_age(text, now, &zone).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_print_as_rclone_prints_them() {
        for (millis, long, short) in [
            (0, "0.0s", "0s"),
            (99, "0.0s", "0s"),
            (999, "0.9s", "0s"),
            (62_300, "1m2.3s", "1m2s"),
            (3_600_000, "1h0.0s", "1h"),
            (3_660_500, "1h1m0.5s", "1h1m"),
            (93_600_500, "1d2h0.5s", "1d2h"),
            (345_999_000, "4d6m39.0s", "4d6m39s"),
            (31_536_000_000 + 604_800_000 + 86_400_000 + 3_600_000, "1y1w1d1h0.0s", "1y1w1d"),
            (364 * 86_400_000, "52w0.0s", "52w"),
        ] {
            let span = Duration::from_millis(millis);
            assert_eq!(duration_text(span), long);
            assert_eq!(duration_short(span), short);
        }
    }
}
