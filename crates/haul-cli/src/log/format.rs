//! How a line of the log looks: rclone's format with the parts that `--log-format` names, JSON, and what the system's own logs take.

use crate::{
    colour::{RED, YELLOW, paint},
    error::one_line,
};
use jiff::{Zoned, tz::TimeZone};
use std::fmt::Write as _;
use tracing::{Level, Metadata};

/// The parts of a line (`--log-format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// `2026/11/24`.
    pub date: bool,
    /// `10:20:30`.
    pub time: bool,
    /// The time with its microseconds, even without `time`.
    pub microseconds: bool,
    /// Both in UTC, not by this machine's clock.
    pub utc: bool,
    /// The source file and its line.
    pub place: bool,
    /// The process's number.
    pub pid: bool,
    /// The level.
    pub level: bool,
    /// JSON instead, as with `--use-json-log`.
    pub json: bool,
}

impl Default for Format {
    fn default() -> Self {
        Format { date: true, time: true, level: true, ..Format::nothing() }
    }
}

impl Format {
    fn nothing() -> Format {
        let off = false;
        Format { date: off, time: off, microseconds: off, utc: off, place: off, pid: off, level: off, json: off }
    }

    /// Reads a list such as `date,time,UTC`; case doesn't count.
    pub fn parse(text: &str) -> Result<Format, String> {
        let mut format = Format { level: true, ..Format::nothing() };
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.to_ascii_lowercase().as_str() {
                "date" => format.date = true,
                "time" => format.time = true,
                "microseconds" => format.microseconds = true,
                "utc" => format.utc = true,
                "longfile" | "shortfile" => format.place = true,
                "pid" => format.pid = true,
                "nolevel" => format.level = false,
                "json" => format.json = true,
                _ => {
                    let all = "date, time, microseconds, UTC, longfile, shortfile, pid, nolevel, json";
                    return Err(format!("{word:?} is none of {all}"));
                }
            }
        }
        Ok(format)
    }

    /// Format for the system's own log, which adds times and processes itself.
    pub fn of_system(level: bool) -> Format {
        Format { level, ..Format::nothing() }
    }
}

/// An event's message, the key it is about, and the rest.
#[derive(Default)]
pub struct EventFields {
    /// The message.
    pub message: String,
    /// To what.
    pub key: Option<String>,
    /// Statistics as JSON, for the JSON log.
    pub stats: Option<String>,
    /// Further facts by name.
    pub fields: Vec<(&'static str, String)>,
}

/// Where and when something was logged.
pub struct Scene<'a> {
    /// By this machine's clock.
    pub now: Zoned,
    /// Its level.
    pub level: Level,
    /// From where.
    pub metadata: &'a Metadata<'a>,
}

/// A level as rclone calls it.
pub fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "NOTICE",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

/// A level as syslog and the journal of systemd number it.
pub fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 5,
        Level::INFO => 6,
        _ => 7,
    }
}

/// A line of text.
pub fn text(format: Format, scene: &Scene<'_>, seen: &EventFields, colours: bool) -> String {
    let mut line = header(format, scene, colours);
    if let Some(key) = &seen.key {
        line.push_str(&format!("{}: ", one_line(key)));
    }
    // Statistics have several lines of haul's own making; anything else is one.
    line.push_str(&if seen.key.is_none() { seen.message.clone() } else { one_line(&seen.message) });
    for (name, value) in &seen.fields {
        // Writing to a String can't fail.
        let _ = write!(line, " {name}={}", one_line(value));
    }
    line
}

fn header(format: Format, scene: &Scene<'_>, colours: bool) -> String {
    let now = if format.utc { scene.now.with_time_zone(TimeZone::UTC) } else { scene.now.clone() };
    let mut line = String::new();
    if format.date {
        line.push_str(&now.strftime("%Y/%m/%d ").to_string());
    }
    if format.microseconds {
        line.push_str(&now.strftime("%H:%M:%S.%6f ").to_string());
    } else if format.time {
        line.push_str(&now.strftime("%H:%M:%S ").to_string());
    }
    if format.place {
        let mut parts = scene.metadata.file().unwrap_or_default().rsplit('/');
        let (file, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        line.push_str(&format!("{folder}/{file}:{}: ", scene.metadata.line().unwrap_or_default()));
    }
    if format.pid {
        line.push_str(&format!("[{}] ", std::process::id()));
    }
    if format.level {
        let colour = match scene.level {
            Level::ERROR => Some(RED),
            Level::WARN => Some(YELLOW),
            _ => None,
        };
        let name = format!("{:6}", name(scene.level));
        line.push_str(&colour.map_or_else(|| name.clone(), |colour| paint(&name, colour, colours)));
        line.push_str(": ");
    }
    line
}

/// A line of JSON.
pub fn json(format: Format, scene: &Scene<'_>, seen: &EventFields) -> String {
    let mut line = serde_json::Map::new();
    line.insert("time".into(), scene.now.strftime("%Y-%m-%dT%H:%M:%S.%f%:z").to_string().into());
    line.insert("level".into(), name(scene.level).to_lowercase().into());
    line.insert("msg".into(), seen.message.clone().into());
    if let Some(key) = &seen.key {
        line.insert("object".into(), key.clone().into());
    }
    for (name, value) in &seen.fields {
        line.insert((*name).into(), value.clone().into());
    }
    if let Some(stats) = seen.stats.as_ref().and_then(|stats| serde_json::from_str(stats).ok()) {
        line.insert("stats".into(), stats);
    }
    // The part of haul that says it, as `store/s3/list`.
    let target = scene.metadata.target().trim_start_matches("haul_");
    line.insert("source".into(), target.replace("::", "/").into());
    if format.pid {
        line.insert("pid".into(), std::process::id().into());
    }
    serde_json::Value::Object(line).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::{Callsite, field::FieldSet, metadata::Kind, subscriber::Interest};

    struct LogContext;
    static HERE: LogContext = LogContext;
    static META: Metadata<'static> = Metadata::new(
        "event",
        "haul_cli::log",
        Level::INFO,
        Some("crates/haul-cli/src/log/format.rs"),
        Some(7),
        None,
        FieldSet::new(&[], tracing::callsite::Identifier(&HERE)),
        Kind::EVENT,
    );
    impl Callsite for LogContext {
        fn set_interest(&self, _: Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            &META
        }
    }

    fn line(format: &str, level: Level, seen: &EventFields, colours: bool) -> String {
        let now = "2026-11-21T02:22:13.5+01:00[+01:00]".parse().unwrap();
        let format = if format.is_empty() { Format::default() } else { Format::parse(format).unwrap() };
        text(format, &Scene { now, level, metadata: &META }, seen, colours)
    }

    #[test]
    fn lines_look_like_rclones() {
        let seen = EventFields { message: "Copied (new)".into(), key: Some("a\nb".into()), ..Default::default() };
        assert_eq!(line("", Level::INFO, &seen, false), "2026/11/21 02:22:13 INFO  : a\u{FFFD}b: Copied (new)");
        let seen = EventFields { message: "Stopping".into(), ..Default::default() };
        assert_eq!(line("", Level::WARN, &seen, false), "2026/11/21 02:22:13 NOTICE: Stopping");
        assert_eq!(line("", Level::ERROR, &seen, false), "2026/11/21 02:22:13 ERROR : Stopping");
        assert_eq!(line("", Level::DEBUG, &seen, false), "2026/11/21 02:22:13 DEBUG : Stopping");
    }

    #[test]
    fn levels_have_colours() {
        let seen = EventFields { message: "Stopping".into(), ..Default::default() };
        assert_eq!(line("", Level::WARN, &seen, true), "2026/11/21 02:22:13 \x1b[33mNOTICE\x1b[0m: Stopping");
        assert_eq!(line("", Level::ERROR, &seen, true), "2026/11/21 02:22:13 \x1b[31mERROR \x1b[0m: Stopping");
        assert_eq!(line("", Level::INFO, &seen, true), "2026/11/21 02:22:13 INFO  : Stopping");
    }

    #[test]
    fn parts_of_a_line_are_chosen() {
        let seen = EventFields { message: "Stopping".into(), ..Default::default() };
        let pid = std::process::id();
        for (format, expected) in [
            ("date", "2026/11/21 INFO  : Stopping".to_owned()),
            ("time,UTC", "01:22:13 INFO  : Stopping".into()),
            ("Microseconds", "02:22:13.500000 INFO  : Stopping".into()),
            ("date,microseconds,utc", "2026/11/21 01:22:13.500000 INFO  : Stopping".into()),
            ("shortfile", "log/format.rs:7: INFO  : Stopping".into()),
            ("pid,nolevel", format!("[{pid}] Stopping")),
            (",", "INFO  : Stopping".into()),
        ] {
            assert_eq!(line(format, Level::INFO, &seen, false), expected, "{format}");
        }
        let error = Format::parse("date,x").unwrap_err();
        assert_eq!(error, "\"x\" is none of date, time, microseconds, UTC, longfile, shortfile, pid, nolevel, json");
    }
}
