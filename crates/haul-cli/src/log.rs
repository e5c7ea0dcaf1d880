//! The log: rclone's line format, or JSON lines; to standard error or a file, never through a live display.
//!
//! Levels are rclone's. `tracing` has no NOTICE, so its WARN is printed as NOTICE.

use crate::{
    colour::{RED, YELLOW, paint},
    error::one_line,
};
use anyhow::{Context as _, Result};
use haul_terminal::Screen;
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
        let line = match self.json {
            true => json(&now, level, event.metadata(), &seen),
            false => text(&now, level, &seen, self.screen.colours_log()),
        };
        self.screen.log(&line);
    }
}

/// An event's message, the key it is about, and the rest.
#[derive(Default)]
struct Seen {
    message: String,
    key: Option<String>,
    /// Statistics as JSON, for the JSON log.
    stats: Option<String>,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            "key" => self.key = Some(text),
            "stats" => self.stats = Some(text),
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

fn text(now: &Zoned, level: Level, seen: &Seen, colours: bool) -> String {
    let colour = match level {
        Level::ERROR => Some(RED),
        Level::WARN => Some(YELLOW),
        _ => None,
    };
    let name = format!("{:6}", name(level));
    let name = colour.map_or_else(|| name.clone(), |colour| paint(&name, colour, colours));
    let mut line = format!("{} {name}: ", now.strftime("%Y/%m/%d %H:%M:%S"));
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
    if let Some(stats) = seen.stats.as_ref().and_then(|stats| serde_json::from_str(stats).ok()) {
        line.insert("stats".into(), stats);
    }
    // The part of haul that says it, as `store/s3/list`.
    line.insert("source".into(), metadata.target().trim_start_matches("haul_").replace("::", "/").into());
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
        assert_eq!(text(&now(), Level::INFO, &seen, false), "2026/11/21 02:22:13 INFO  : a\u{FFFD}b: Copied (new)");
        let seen = Seen { message: "Stopping".into(), ..Default::default() };
        assert_eq!(text(&now(), Level::WARN, &seen, false), "2026/11/21 02:22:13 NOTICE: Stopping");
        assert_eq!(text(&now(), Level::ERROR, &seen, false), "2026/11/21 02:22:13 ERROR : Stopping");
        assert_eq!(text(&now(), Level::DEBUG, &seen, false), "2026/11/21 02:22:13 DEBUG : Stopping");
    }

    #[test]
    fn levels_have_colours() {
        let seen = Seen { message: "Stopping".into(), ..Default::default() };
        assert_eq!(text(&now(), Level::WARN, &seen, true), "2026/11/21 02:22:13 \x1b[33mNOTICE\x1b[0m: Stopping");
        assert_eq!(text(&now(), Level::ERROR, &seen, true), "2026/11/21 02:22:13 \x1b[31mERROR \x1b[0m: Stopping");
        assert_eq!(text(&now(), Level::INFO, &seen, true), "2026/11/21 02:22:13 INFO  : Stopping");
    }
}
