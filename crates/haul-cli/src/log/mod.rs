//! The log: lines (`format`) to standard error, a file, which may begin anew at a size (`rotate`), or a log of the system's own
//! (`system`); never through a live display.
//!
//! Levels are rclone's. `tracing` has no NOTICE, so its WARN is printed as NOTICE.

pub mod format;
pub mod rotate;
pub mod system;

use anyhow::{Context as _, Result};
use format::{EventFields, Format, Scene, json, text};
use haul_terminal::Screen;
use jiff::Zoned;
use std::{fs::OpenOptions, io::Write, path::PathBuf, sync::Arc};
use system::{Facility, Journal};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

/// Level, format and target of the log.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The lowest level that is logged.
    pub level: Level,
    /// Where.
    pub target: Target,
    /// How a line looks.
    pub format: Format,
}

/// Where the log goes.
#[derive(Clone, Debug)]
pub enum Target {
    /// To standard error.
    Terminal,
    /// Appended to this file, which begins anew within these limits.
    File(PathBuf, Option<rotate::Limits>),
    /// To syslog.
    Syslog(Facility),
    /// To the journal of systemd.
    Journal,
}

/// Begins to log for the rest of the process.
pub fn start(settings: &Settings, screen: &Arc<Screen>) -> Result<()> {
    let mut format = settings.format;
    let (mut framing, mut to): (_, Option<Box<dyn Write + Send>>) = (Framing::Line, None);
    match &settings.target {
        Target::Terminal => {}
        Target::File(path, limits) => {
            let file: std::io::Result<Box<dyn Write + Send>> = match limits {
                None => OpenOptions::new().create(true).append(true).open(path).map(|file| Box::new(file) as _),
                Some(limits) => rotate::Rotating::open(path, *limits).map(|file| Box::new(file) as _),
            };
            to = Some(file.with_context(|| format!("can't open log file {}", path.display()))?);
        }
        Target::Syslog(facility) => {
            to = Some(Box::new(system::Syslog::connect().context("can't reach syslog")?));
            (framing, format) = (Framing::Syslog(*facility), Format { json: format.json, ..Format::of_system(false) });
        }
        Target::Journal => {
            to = Journal::connect().map(|journal| Box::new(journal) as _);
            // Without a journal the lines go to standard error, which a service's manager reads by levels in front of lines.
            framing = if to.is_some() { Framing::Journal } else { Framing::Prefixed };
            format = Format { json: format.json, ..Format::of_system(true) };
        }
    }
    screen.log_to(to, format.json || framing != Framing::Line);
    let lines = Lines { level: settings.level, format, framing, screen: screen.clone() };
    // Fails only when a log runs already, as in tests: that one stays.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines));
    Ok(())
}

struct Lines {
    level: Level,
    format: Format,
    framing: Framing,
    screen: Arc<Screen>,
}

/// Framing of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// Nothing.
    Line,
    /// Format of syslog.
    Syslog(Facility),
    /// Format of the journal.
    Journal,
    /// The level in front, as services write it.
    Prefixed,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    /// haul's own events only: libraries below have their own words for what haul tells.
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("haul")
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = EventFields::default();
        event.record(&mut seen);
        let level = *event.metadata().level();
        let scene = Scene { now: Zoned::now(), level, metadata: event.metadata() };
        let line = match self.format.json {
            true => json(self.format, &scene, &seen),
            false => text(self.format, &scene, &seen, self.screen.colours_log()),
        };
        self.screen.log(&match self.framing {
            Framing::Line => line,
            Framing::Syslog(facility) => system::to_syslog(facility, level, &scene.now, &line),
            Framing::Journal => system::to_journal(level, &line),
            Framing::Prefixed => system::with_severity(level, &line),
        });
    }
}

impl Visit for EventFields {
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
