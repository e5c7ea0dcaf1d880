//! Points in time in Go's layouts, which is how rclone's `--time-format` is written: the layout shows the reference time
//! `Mon Jan 2 15:04:05 MST 2006`, and each part of it stands for that part of the time to be shown.

use haul_core::Mtime;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use std::fmt::Write as _;

/// `lsl`'s and `lsd`'s layouts.
pub const NANOS: &str = "2006-01-02 15:04:05.000000000";
/// To the second.
pub const SECONDS: &str = "2006-01-02 15:04:05";

/// Time shown for directories without one, as in rclone: 2000-01-01T00:00:00Z.
pub const NO_TIME: Mtime = Mtime(946_684_800_000_000_000);

/// `time` in `layout`, in `zone`. A time that no calendar holds is shown as [`NO_TIME`].
pub fn format(time: Mtime, layout: &str, zone: &TimeZone) -> String {
    let stamp = Timestamp::from_nanosecond(time.0).or_else(|_| Timestamp::from_nanosecond(NO_TIME.0));
    let zoned = stamp.unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(zone.clone());
    let mut out = String::new();
    let mut rest = layout;
    while let Some(c) = rest.chars().next() {
        match PARTS.iter().find(|(part, _)| starts(rest, part)) {
            Some((part, show)) => {
                show(&zoned, &mut out);
                rest = &rest[part.len()..];
            }
            None => {
                rest = fraction(rest, &zoned, &mut out).unwrap_or_else(|| {
                    out.push(c);
                    &rest[c.len_utf8()..]
                })
            }
        }
    }
    out
}

/// The layout that a name stands for, or the name itself when it is a layout.
pub fn layout(name: &str) -> &str {
    match name {
        "Layout" => "01/02 03:04:05PM '06 -0700",
        "ANSIC" => "Mon Jan _2 15:04:05 2006",
        "UnixDate" => "Mon Jan _2 15:04:05 MST 2006",
        "RubyDate" => "Mon Jan 02 15:04:05 -0700 2006",
        "RFC822" => "02 Jan 06 15:04 MST",
        "RFC822Z" => "02 Jan 06 15:04 -0700",
        "RFC850" => "Monday, 02-Jan-06 15:04:05 MST",
        "RFC1123" => "Mon, 02 Jan 2006 15:04:05 MST",
        "RFC1123Z" => "Mon, 02 Jan 2006 15:04:05 -0700",
        "RFC3339" => "2006-01-02T15:04:05Z07:00",
        "RFC3339Nano" => "2006-01-02T15:04:05.999999999Z07:00",
        "Kitchen" => "3:04PM",
        "Stamp" => "Jan _2 15:04:05",
        "StampMilli" => "Jan _2 15:04:05.000",
        "StampMicro" => "Jan _2 15:04:05.000000",
        "StampNano" => "Jan _2 15:04:05.000000000",
        "DateTime" => SECONDS,
        "DateOnly" => "2006-01-02",
        "TimeOnly" => "15:04:05",
        "MacFriendlyTime" | "macfriendlytime" | "mac" => "2006-01-02 0304PM",
        "YYYYMMDD" => "20060102",
        other => other,
    }
}

/// RFC 3339 with as many digits of a second as `precision` (nanoseconds) calls for.
pub fn rfc3339(precision: u128) -> String {
    with_digits("2006-01-02T15:04:05", precision) + "Z07:00"
}

/// [`SECONDS`] with as many digits of a second as `precision` (nanoseconds) calls for.
pub fn to_precision(precision: u128) -> String {
    with_digits(SECONDS, precision)
}

fn with_digits(layout: &str, precision: u128) -> String {
    let digits = (0..9).rev().find(|n| precision <= 10u128.pow(8 - n)).map_or(0, |n| n as usize + 1);
    match digits {
        0 => layout.into(),
        n => format!("{layout}.{}", "0".repeat(n)),
    }
}

type Show = fn(&Zoned, &mut String);

/// Parts of a layout, longer ones before those that they start with.
const PARTS: &[(&str, Show)] = &[
    ("January", |t, out| put(out, t.strftime("%B"))),
    ("Jan", |t, out| put(out, t.strftime("%b"))),
    ("Monday", |t, out| put(out, t.strftime("%A"))),
    ("Mon", |t, out| put(out, t.strftime("%a"))),
    ("MST", |t, out| put(out, t.strftime("%Z"))),
    ("2006", |t, out| put(out, format_args!("{:04}", t.year()))),
    ("_2006", |t, out| put(out, format_args!("_{:04}", t.year()))),
    ("__2", |t, out| put(out, format_args!("{:>3}", t.day_of_year()))),
    ("_2", |t, out| put(out, format_args!("{:>2}", t.day()))),
    ("002", |t, out| put(out, format_args!("{:03}", t.day_of_year()))),
    ("01", |t, out| put(out, format_args!("{:02}", t.month()))),
    ("02", |t, out| put(out, format_args!("{:02}", t.day()))),
    ("03", |t, out| put(out, format_args!("{:02}", hour12(t)))),
    ("04", |t, out| put(out, format_args!("{:02}", t.minute()))),
    ("05", |t, out| put(out, format_args!("{:02}", t.second()))),
    ("06", |t, out| put(out, format_args!("{:02}", t.year().rem_euclid(100)))),
    ("15", |t, out| put(out, format_args!("{:02}", t.hour()))),
    ("1", |t, out| put(out, t.month())),
    ("2", |t, out| put(out, t.day())),
    ("3", |t, out| put(out, hour12(t))),
    ("4", |t, out| put(out, t.minute())),
    ("5", |t, out| put(out, t.second())),
    ("PM", |t, out| out.push_str(if t.hour() < 12 { "AM" } else { "PM" })),
    ("pm", |t, out| out.push_str(if t.hour() < 12 { "am" } else { "pm" })),
    ("Z07:00:00", |t, out| offset(t, out, true, ":", 3)),
    ("Z070000", |t, out| offset(t, out, true, "", 3)),
    ("Z07:00", |t, out| offset(t, out, true, ":", 2)),
    ("Z0700", |t, out| offset(t, out, true, "", 2)),
    ("Z07", |t, out| offset(t, out, true, "", 1)),
    ("-07:00:00", |t, out| offset(t, out, false, ":", 3)),
    ("-070000", |t, out| offset(t, out, false, "", 3)),
    ("-07:00", |t, out| offset(t, out, false, ":", 2)),
    ("-0700", |t, out| offset(t, out, false, "", 2)),
    ("-07", |t, out| offset(t, out, false, "", 1)),
];

/// `Jan` and `Mon` aren't parts when a lower-case letter goes on, as in `Janitor`.
fn starts(layout: &str, part: &str) -> bool {
    let Some(after) = layout.strip_prefix(part) else { return false };
    !(matches!(part, "Jan" | "Mon") && after.starts_with(|c: char| c.is_ascii_lowercase()))
}

fn put(out: &mut String, what: impl std::fmt::Display) {
    // Writing to a String can't fail.
    let _ = write!(out, "{what}");
}

fn hour12(t: &Zoned) -> i8 {
    match t.hour() % 12 {
        0 => 12,
        hour => hour,
    }
}

/// The zone's distance from UTC in one (hours) to three (seconds) pairs of digits.
fn offset(t: &Zoned, out: &mut String, z_for_zero: bool, colon: &str, pairs: usize) {
    let seconds = t.offset().seconds();
    if z_for_zero && seconds == 0 {
        out.push('Z');
        return;
    }
    let distance = seconds.unsigned_abs();
    let parts = [distance / 3600, distance / 60 % 60, distance % 60].map(|n| format!("{n:02}"));
    out.push(if seconds < 0 { '-' } else { '+' });
    out.push_str(&parts[..pairs].join(colon));
}

/// `.000` (as many digits) or `.999` (without trailing zeros), after `.` or `,`, when no digit follows. Returns the
/// rest of the layout.
fn fraction<'a>(layout: &'a str, t: &Zoned, out: &mut String) -> Option<&'a str> {
    let mark = layout.chars().next().filter(|c| ".,".contains(*c))?;
    let digits = &layout[1..];
    let kind = digits.chars().next().filter(|c| "09".contains(*c))?;
    let rest = digits.trim_start_matches(kind);
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let count = (digits.len() - rest.len()).min(9);
    let nanos = format!("{:09}", t.subsec_nanosecond());
    let shown = if kind == '0' { &nanos[..count] } else { nanos[..count].trim_end_matches('0') };
    if !shown.is_empty() {
        out.push(mark);
        out.push_str(shown);
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_show_what_go_shows() {
        let time = Mtime::new(1_704_164_645, 123_456_000);
        let zone = TimeZone::fixed(jiff::tz::offset(-5));
        for (text, expected) in [
            (NANOS, "2024-01-01 22:04:05.123456000"),
            (SECONDS, "2024-01-01 22:04:05"),
            ("RFC3339", "2024-01-01T22:04:05-05:00"),
            ("RFC3339Nano", "2024-01-01T22:04:05.123456-05:00"),
            ("ANSIC", "Mon Jan  1 22:04:05 2024"),
            ("RFC1123Z", "Mon, 01 Jan 2024 22:04:05 -0500"),
            ("Kitchen", "10:04PM"),
            ("StampMilli", "Jan  1 22:04:05.123"),
            ("Layout", "01/01 10:04:05PM '24 -0500"),
            ("YYYYMMDD", "20240101"),
            ("Monday January 2 pm 002 __2", "Monday January 1 pm 001   1"),
            ("Janitor at 3", "Janitor at 10"),
            ("ü.0001 Z07", "ü.0001 -05"),
        ] {
            assert_eq!(format(time, layout(text), &zone), expected, "{text}");
        }
        assert_eq!(format(time, "Z07:00", &TimeZone::UTC), "Z");
        assert_eq!(format(time, "-07:00", &TimeZone::UTC), "+00:00");
        assert_eq!(format(Mtime(0), "15:04:05.999", &TimeZone::UTC), "00:00:00");
    }

    #[test]
    fn digits_follow_the_precision() {
        assert_eq!(rfc3339(1), "2006-01-02T15:04:05.000000000Z07:00");
        assert_eq!(rfc3339(1_000_000), "2006-01-02T15:04:05.000Z07:00");
        assert_eq!(rfc3339(1_000_000_000), "2006-01-02T15:04:05Z07:00");
        assert_eq!(to_precision(100), "2006-01-02 15:04:05.0000000");
        assert_eq!(to_precision(100_000_000), "2006-01-02 15:04:05.0");
    }
}
