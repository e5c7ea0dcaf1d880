//! The terminal's sink: keeps the counts of a job, draws them live with `-P`, tells each event in the log, and prints the
//! summary at the end. Fed by the engine from any thread; a thread of its own draws.

use crate::{
    flags::{
        Flags,
        log::{LogLevel, StatsUnit},
        values::duration,
    },
    show::go_time,
    summary::{self, ActiveTransfer, Counts},
};
use haul::Report;
use haul_core::{
    ErrorKind, Key, Mtime,
    attributes::Differs,
    compare::Reason,
    event::{Event, Sink, StepId},
    listing::Side,
    plan::{Action, Route},
    units::size_short,
};
use haul_store::{EndpointLanes, Meters};
use haul_terminal::Screen;
use jiff::Zoned;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tracing::Level;

/// Time between two drawings: at most ten a second.
const REDRAW: Duration = Duration::from_millis(100);
/// Over how long the speed is averaged.
const WINDOW: Duration = Duration::from_secs(5);
/// rclone's `--stats` where the user gives none.
const USUAL_INTERVAL: Duration = Duration::from_secs(60);

/// Start of the line with `--stats-one-line-date`, as in rclone.
const DATE: &str = "2006/01/02 15:04:05 - ";

/// The display's content, and when it is shown.
#[derive(Clone, Debug)]
struct Display {
    /// `-P` was given.
    progress: bool,
    /// `-P` on a terminal.
    live: bool,
    /// Time between statistics where nothing is drawn; `None` for never.
    interval: Option<Duration>,
    /// Statistics go out at this level; `None` is INFO, or NOTICE if there was an error.
    level: Option<Level>,
    one_line: bool,
    /// Start of the one line, as a layout of Go's.
    date: Option<String>,
    /// `--stats` was given, or something else that asks for a summary.
    summary: bool,
    /// Longest name in the display; 0 for any.
    names: usize,
}

/// The sink.
pub struct Progress {
    look: Display,
    screen: Arc<Screen>,
    meters: Arc<Meters>,
    roads: Arc<EndpointLanes>,
    state: Mutex<State>,
    wake: Condvar,
    drawer: Mutex<Option<JoinHandle<()>>>,
}

struct State {
    counts: Counts,
    moving: BTreeMap<StepId, Running>,
    began: Instant,
    /// A job has begun: before that there is nothing to show.
    active: bool,
    ended: bool,
    /// Bytes that this run had moved at earlier times, within [`WINDOW`].
    past: VecDeque<(Instant, u64)>,
}

struct Running {
    key: Key,
    size: u64,
    done: u64,
    /// Of these, what an earlier run sent.
    resumed: u64,
    began: Instant,
    server: bool,
}

impl Progress {
    /// A sink that looks as the flags say. Draws from the first event on, until [`Progress::finish`].
    pub fn start(flags: &Flags, screen: Arc<Screen>, meters: Arc<Meters>, roads: Arc<EndpointLanes>) -> Arc<Progress> {
        let log = &flags.log;
        let interval = match log.stats {
            Some(_) => duration(log.stats).filter(|d| !d.is_zero()),
            None => Some(USUAL_INTERVAL),
        };
        let wants_stats = log.stats.is_some() || flags.config.dry_run;
        let one_line = log.stats_one_line || log.stats_one_line_date || log.stats_one_line_date_format.is_some();
        let look = Display {
            progress: log.progress,
            live: log.progress && screen.is_live(),
            interval,
            level: log.stats_log_level.map(LogLevel::level).or(wants_stats.then_some(Level::WARN)),
            one_line,
            date: log.stats_one_line_date_format.clone().or(log.stats_one_line_date.then(|| DATE.into())),
            summary: log.progress || log.verbose > 0 || log.stats_log_level.is_some() || one_line || wants_stats,
            names: log.stats_file_name_length,
        };
        let state = State {
            counts: Counts {
                dry_run: flags.config.dry_run,
                bits: log.stats_unit == StatsUnit::Bits,
                ..Counts::default()
            },
            moving: BTreeMap::new(),
            began: Instant::now(),
            active: false,
            ended: false,
            past: VecDeque::new(),
        };
        let this = Arc::new(Progress {
            look,
            screen,
            meters,
            roads,
            state: Mutex::new(state),
            wake: Condvar::new(),
            drawer: Mutex::new(None),
        });
        let drawer = this.clone();
        let thread = std::thread::Builder::new().name("display".into()).spawn(move || drawer.draw_on());
        // Without the thread there is no live display; the job doesn't need one.
        *this.drawer.lock().unwrap_or_else(|e| e.into_inner()) = thread.ok();
        this
    }

    /// Takes the display away and prints the summary of a job, if one ran.
    pub fn finish(&self, report: Option<&Report>) {
        self.lock().ended = true;
        self.wake.notify_all();
        let thread = self.drawer.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(thread) = thread {
            // A display that panicked has nothing more to show.
            let _ = thread.join();
        }
        self.screen.finish();
        let Some(report) = report else { return };
        let mut counts = self.lock().counts.clone();
        counts.take(report);
        counts.over = true;
        counts.lanes = summary::lanes(&self.roads.all());
        let nothing_to_tell = report.is_ok() || counts.listed == 0 && counts.bytes == 0;
        if !self.look.summary && nothing_to_tell {
            return;
        }
        let elapsed = self.lock().began.elapsed();
        let text = summary::last(&counts, elapsed, report, &self.meters, self.look.one_line);
        let object = summary::json(&counts, elapsed, &[], report.stopped.is_some());
        self.say(&text, &object, !report.is_ok());
    }

    /// Statistics where they belong: with `-P` on standard output, else in the log, which has them as an object too if it is JSON.
    fn say(&self, text: &str, stats: &serde_json::Value, amiss: bool) {
        let text = self.dated(text);
        if self.look.progress {
            let _ = self.screen.print(&text);
            return;
        }
        let text = block(&text, self.look.one_line);
        match self.look.level.unwrap_or(if amiss { Level::WARN } else { Level::INFO }) {
            Level::ERROR => tracing::error!(%stats, "{text}"),
            Level::WARN => tracing::warn!(%stats, "{text}"),
            Level::INFO => tracing::info!(%stats, "{text}"),
            _ => tracing::debug!(%stats, "{text}"),
        }
    }

    /// One line of statistics with date and time in front, where they are wanted.
    fn dated(&self, text: &str) -> String {
        let Some(layout) = &self.look.date else { return text.to_owned() };
        let now = Zoned::now();
        let time = Mtime(now.timestamp().as_nanosecond());
        format!("{}{text}", go_time::format(time, layout, now.time_zone()))
    }

    fn draw_on(&self) {
        let mut reported_at = Instant::now();
        loop {
            let pause = if self.look.live { REDRAW } else { self.look.interval.unwrap_or(USUAL_INTERVAL) };
            let mut state = self.lock();
            let ended = |state: &mut State| !state.ended;
            state = match self.wake.wait_timeout_while(state, pause, ended) {
                Ok((state, _)) => state,
                Err(e) => e.into_inner().0,
            };
            if state.ended {
                return;
            }
            if !state.active {
                reported_at = Instant::now();
                continue;
            }
            let (mut counts, elapsed) = state.snapshot();
            counts.lanes = summary::lanes(&self.roads.all());
            if self.look.live {
                let moving = state.moving_now();
                drop(state);
                let (one_line, names) = (self.look.one_line, self.look.names);
                let mut lines = summary::live(&counts, elapsed, &moving, one_line, names, self.screen.size());
                if let Some(first) = lines.first_mut() {
                    *first = self.dated(first);
                }
                self.screen.draw(lines);
            } else if self.look.interval.is_some_and(|i| reported_at.elapsed() >= i) {
                let moving = state.moving_now();
                drop(state);
                reported_at = Instant::now();
                let object = summary::json(&counts, elapsed, &moving, false);
                self.say(&summary::stats(&counts, elapsed, self.look.one_line), &object, counts.errors > 0);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Several lines begin below the log's time, as in rclone.
fn block(text: &str, one_line: bool) -> String {
    if one_line { text.to_string() } else { format!("\n{text}\n") }
}

impl State {
    /// The counts with the speed of the last seconds.
    fn snapshot(&mut self) -> (Counts, Duration) {
        let now = Instant::now();
        let moved = self.counts.bytes.saturating_sub(self.counts.resumed);
        self.past.push_back((now, moved));
        while self.past.len() > 2 && now - self.past[0].0 > WINDOW {
            self.past.pop_front();
        }
        let (since, bytes) = self.past[0];
        let span = now.duration_since(since).as_secs_f64();
        let mut counts = self.counts.clone();
        if span > 0.0 {
            counts.speed = Some(moved.saturating_sub(bytes) as f64 / span);
        }
        (counts, self.began.elapsed())
    }

    fn moving_now(&self) -> Vec<ActiveTransfer> {
        let one = |r: &Running| ActiveTransfer {
            name: r.key.display().into_owned(),
            size: r.size,
            done: r.done,
            speed: r.done.saturating_sub(r.resumed) as f64 / r.began.elapsed().as_secs_f64().max(0.001),
        };
        self.moving.values().map(one).collect()
    }

    /// Takes an event into the counts; a finished transfer is given back.
    fn count(&mut self, event: &Event) -> Option<Running> {
        if !self.active {
            self.active = true;
            self.began = Instant::now();
        }
        let counts = &mut self.counts;
        match event {
            Event::Listed { files, .. } => counts.listed += files,
            Event::Decided { action, why, size, dry_run, .. } => counts.decide(*action, *why, *size, *dry_run),
            Event::Begun { step, key, size, route } => {
                let server = *route == Route::Server;
                let running =
                    Running { key: key.clone(), size: *size, done: 0, resumed: 0, began: Instant::now(), server };
                self.moving.insert(*step, running);
            }
            Event::Moved { step, bytes } => {
                // A step that was never begun is no transfer: a rename inside the store moves nothing.
                if let Some(running) = self.moving.get_mut(step) {
                    counts.bytes = counts.bytes.saturating_add_signed(*bytes);
                    counts.taken_back += 0.max(-bytes).unsigned_abs();
                    running.done = running.done.saturating_add_signed(*bytes);
                }
            }
            Event::Resumed { step, bytes } => {
                if let Some(running) = self.moving.get_mut(step) {
                    counts.bytes = counts.bytes.saturating_add_signed(*bytes);
                    counts.resumed = counts.resumed.saturating_add_signed(*bytes);
                    running.done = running.done.saturating_add_signed(*bytes);
                    running.resumed = running.resumed.saturating_add_signed(*bytes);
                }
            }
            Event::Done { step, size, .. } => {
                counts.transfers += 1;
                let running = self.moving.remove(step);
                // A copy inside the provider may tell nothing on its way.
                let counted = running.as_ref().map_or(*size, |r| r.done);
                counts.bytes = (counts.bytes + size).saturating_sub(counted);
                return running;
            }
            Event::Failed { step, error } => {
                // A stopped transfer didn't fail; why it was stopped is said once, at the end.
                counts.errors += u64::from(error.kind() != ErrorKind::Cancelled);
                return self.moving.remove(step);
            }
            Event::RangeDone { step } => {
                self.moving.remove(step);
            }
            Event::Skipped { step } => {
                counts.total_transfers = counts.total_transfers.saturating_sub(1);
                return self.moving.remove(step);
            }
            Event::Deleted { size, .. } => {
                counts.deletes += 1;
                counts.deleted_bytes += size;
            }
            Event::Renamed { .. } => counts.renames += 1,
            Event::ListFailed { .. } | Event::Error(_) => counts.errors += 1,
            _ => {}
        }
        None
    }
}

impl Sink for Progress {
    fn emit(&self, event: &Event) {
        let running = self.lock().count(event);
        tell(event, running.as_ref().map(|r| (&r.key, r.server)));
    }
}

/// An event as a line of the log, in rclone's words; `running` is the transfer that it ends, and whether the provider
/// copied.
fn tell(event: &Event, running: Option<(&Key, bool)>) {
    match event {
        Event::Decided { key, action, why, size, dry_run: true, .. } => {
            let attributes = matches!(why, Reason::Attributes(_)).then_some("set attributes");
            if let Some(what) = attributes.or(would(*action)) {
                tracing::warn!(%key, "Skipped {what} as --dry-run is set{}", sized(*action, *size));
            } else {
                tracing::debug!(%key, "{}", unchanged(*why));
            }
        }
        Event::Decided { key, action: Action::Keep, why, .. } => tracing::debug!(%key, "{}", unchanged(*why)),
        Event::Decided { key, action, why, .. } => tracing::debug!(%key, "{action:?}: {why:?}"),
        Event::Begun { key, size, route, .. } => {
            tracing::debug!(%key, "Transferring {} by {route:?}", size_short(*size))
        }
        Event::Retried { error, wait, .. } => {
            tracing::info!("{error}: trying again in {:.1}s", wait.as_secs_f64());
        }
        Event::Done { key, replaced, proved, .. } => {
            if let Some(algo) = proved {
                tracing::debug!(%key, "{algo} OK");
            }
            let server = running.is_some_and(|(_, server)| server);
            tracing::info!(%key, "Copied ({})", copied(*replaced, server));
        }
        Event::Failed { error, .. } if error.kind() == ErrorKind::Cancelled => {
            if let Some((key, _)) = running {
                tracing::debug!(%key, "Stopped before it was complete");
            }
        }
        Event::Failed { error, .. } => failed(error, running.map(|(key, _)| key)),
        Event::ListFailed { error, side } => {
            let side = if *side == Side::Src { "source" } else { "destination" };
            match error.key() {
                Some(key) => tracing::error!(%key, "error reading {side} directory: {}", error.message()),
                None => tracing::error!("error reading {side}: {}", error.message()),
            }
        }
        Event::Error(error) => failed(error, None),
        Event::Deleted { key, .. } => tracing::info!(%key, "Deleted"),
        Event::DirMade { key } => tracing::info!(%key, "Made directory"),
        Event::Touched { key, differs } if *differs == (Differs { mtime: true, ..Differs::default() }) => {
            tracing::info!(%key, "Updated modification time in destination");
        }
        Event::Touched { key, .. } => tracing::info!(%key, "Set attributes in destination"),
        Event::Linked { key, to } => tracing::info!(%key, "Linked to {to}"),
        Event::Renamed { from, to } => tracing::info!(key = %from, "Renamed to {to}"),
        Event::Notice { key: Some(key), message } => tracing::warn!(%key, "{message}"),
        Event::Notice { key: None, message } => tracing::warn!("{message}"),
        _ => {}
    }
}

fn failed(error: &haul_core::Error, key: Option<&Key>) {
    // A guard that holds back deletions didn't fail: its message says what it refused.
    if error.kind() == ErrorKind::Limit && error.op() == "delete" {
        return tracing::error!("{}", error.message());
    }
    let line = failure(error);
    match error.key().or(key) {
        Some(key) if key.is_root() => tracing::error!(key = "top directory", "{line}"),
        Some(key) => tracing::error!(%key, "{line}"),
        None => tracing::error!("{line}"),
    }
}

/// One line about a failure. A missing path that was only asked about is reported as such.
fn failure(error: &haul_core::Error) -> String {
    let message = error.message();
    match error.op() {
        "stat" if error.is_missing() => match message.strip_suffix(": no such file or directory") {
            Some(what) => format!("{what} doesn't exist"),
            None => message.to_owned(),
        },
        "stat" => format!("Failed to read attributes: {message}"),
        op => format!("Failed to {op}: {message}"),
    }
}

fn would(action: Action) -> Option<&'static str> {
    match action {
        Action::Copy => Some("copy"),
        Action::Touch => Some("update modification time"),
        Action::Link => Some("link"),
        Action::MakeDir => Some("make directory"),
        Action::Delete => Some("delete"),
        _ => None,
    }
}

fn sized(action: Action, size: u64) -> String {
    if action == Action::MakeDir { String::new() } else { format!(" (size {})", size_short(size)) }
}

fn unchanged(why: Reason) -> &'static str {
    match why {
        Reason::Existing => "Destination exists, skipping",
        Reason::NotExisting => "Destination doesn't exist, skipping as --existing is set",
        Reason::Newer => "Destination is newer than source, skipping",
        Reason::Extra => "Not in the source, left alone",
        Reason::NotSeen => "Not proved absent from the source, left alone",
        _ => "Unchanged skipping",
    }
}

fn copied(replaced: bool, server: bool) -> &'static str {
    match (replaced, server) {
        (_, true) => "server-side copy",
        (true, false) => "replaced existing",
        (false, false) => "new",
    }
}
