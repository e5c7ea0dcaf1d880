//! The log: rclone's line format, or JSON lines; to standard error or a file, never through a live display.
//!
//! Levels are rclone's. `tracing` has no NOTICE, so its WARN is printed as NOTICE.

use crate::{error::one_line, screen::Screen};
use anyhow::{Context as _, Result};
use jiff::Zoned;
use std::{fmt::Write as _, fs::OpenOptions, path::PathBuf, sync::Arc};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

/// What the log shows and where it goes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This and what is graver.
    pub level: Level,
    /// Appended to, instead of standard error.
    pub file: Option<PathBuf>,
    /// Lines of JSON.
    pub json: bool,
}

/// Begins to log for the rest of the process.
pub fn start(settings: &Settings, screen: &Arc<Screen>) -> Result<()> {
    let open = |path: &PathBuf| {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.with_context(|| format!("can't open log file {}", path.display()))
    };
    screen.log_to(settings.file.as_ref().map(open).transpose()?, settings.json);
    let lines = Lines { level: settings.level, json: settings.json, screen: screen.clone() };
    // Fails only when a log runs already, as in tests: that one stays.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines));
    Ok(())
}

struct Lines {
    level: Level,
    json: bool,
    screen: Arc<Screen>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    /// haul's own events only: libraries below have their own words for what haul tells.
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("haul")
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        let now = Zoned::now();
        let level = *event.metadata().level();
        let line = if self.json { json(&now, level, event.metadata(), &seen) } else { text(&now, level, &seen) };
        self.screen.log(&line);
    }
}

/// An event's message, the key it is about, and the rest.
#[derive(Default)]
struct Seen {
    message: String,
    key: Option<String>,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            "key" => self.key = Some(text),
            name => self.fields.push((name, text)),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.into(),
            "key" => self.key = Some(value.into()),
            name => self.fields.push((name, value.into())),
        }
    }
}

fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "NOTICE",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

fn text(now: &Zoned, level: Level, seen: &Seen) -> String {
    let mut line = format!("{} {:6}: ", now.strftime("%Y/%m/%d %H:%M:%S"), name(level));
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

fn json(now: &Zoned, level: Level, metadata: &Metadata<'_>, seen: &Seen) -> String {
    let mut line = serde_json::Map::new();
    line.insert("time".into(), now.strftime("%Y-%m-%dT%H:%M:%S.%f%:z").to_string().into());
    line.insert("level".into(), name(level).to_lowercase().into());
    line.insert("msg".into(), seen.message.clone().into());
    if let Some(key) = &seen.key {
        line.insert("object".into(), key.clone().into());
    }
    for (name, value) in &seen.fields {
        line.insert((*name).into(), value.clone().into());
    }
    let source = format!("{}:{}", metadata.file().unwrap_or("haul"), metadata.line().unwrap_or(0));
    line.insert("source".into(), source.into());
    serde_json::Value::Object(line).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2026-11-21T02:22:13.5+00:00[UTC]".parse().unwrap()
    }

    #[test]
    fn lines_look_like_rclones() {
        let seen = Seen { message: "Copied (new)".into(), key: Some("a\nb".into()), ..Default::default() };
        assert_eq!(text(&now(), Level::INFO, &seen), "2026/11/21 02:22:13 INFO  : a\u{FFFD}b: Copied (new)");
        let seen = Seen { message: "Stopping".into(), ..Default::default() };
        assert_eq!(text(&now(), Level::WARN, &seen), "2026/11/21 02:22:13 NOTICE: Stopping");
        assert_eq!(text(&now(), Level::ERROR, &seen), "2026/11/21 02:22:13 ERROR : Stopping");
        assert_eq!(text(&now(), Level::DEBUG, &seen), "2026/11/21 02:22:13 DEBUG : Stopping");
    }
}
