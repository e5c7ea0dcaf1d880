//! Output of `haul rsync` while it runs, in rsync's format, and counts for the end. A sink of the engine's events,
//! fed from any thread.

mod item;

use super::{
    delayed_lines::{DelayedLines, OutputLine},
    exit::Problems,
    format::{self, PreservedAttributes, Update, asks, clock, letters, number, shown, speed, tells},
    info::Info,
    log::{self, Log},
    named_files,
    options::Options,
    stats::Stats,
};
use haul_core::{
    Error, ErrorKind, Key, Posix, Side, attributes,
    chmod::Chmod,
    compare::{Difference, FileType, Reason},
    event::{Event, Facts, LeftOut, Sink, StepId},
    job::{CompareBy, LinkTargets},
    key,
    plan::Action,
};
use haul_terminal::{Screen, one_line};
use item::Item;
use std::{
    collections::{HashMap, HashSet},
    io::{BufWriter, Stdout, Write as _, stdout},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

/// Time between two drawings of `--info=progress2`.
const REDRAW: Duration = Duration::from_millis(100);

/// Where the names of the job under way are.
#[derive(Clone, Default)]
pub struct NameRoot {
    /// Prefix of its keys in printed names; empty or ending in `/`.
    pub prefix: Vec<u8>,
    /// The source's folder as it was typed; `None` for one on another machine.
    pub typed: Option<Vec<u8>>,
    /// One file under a name of its own is shown under the source's.
    pub one: Option<Key>,
}

/// The sink.
pub struct Lines {
    look: OutputStyle,
    screen: Arc<Screen>,
    state: Mutex<State>,
}

/// Which way the bytes go, seen from this machine.
#[derive(Clone, Copy, PartialEq)]
pub enum TransferDirection {
    /// To a remote.
    Sends,
    /// From one.
    Receives,
    /// They stay here, or go from one remote to another.
    Neither,
}

struct OutputStyle {
    /// Format of a name's line; `None` for no line.
    format: Option<String>,
    /// `-i`s, or `%i`s in the format.
    itemize: u8,
    info: Info,
    kept: PreservedAttributes,
    /// Owners go along, as far as they may.
    owner: bool,
    human: u8,
    raw_bytes: bool,
    dry_run: bool,
    hard_links: bool,
    /// A file with another time counts as transferred, in rsync's view, even if haul finds that only the time must be set.
    time_transfers: bool,
    /// A file of an alternate destination gets a second name.
    links: bool,
    way: TransferDirection,
    max_size: Option<u64>,
    /// Symlinks arrive munged, and are shown as they are before that.
    munges: bool,
    /// Permissions are reported as they are sent.
    chmod: Vec<Chmod>,
    program: &'static str,
}

struct State {
    out: BufWriter<Stdout>,
    log: Option<Log>,
    place: NameRoot,
    stats: Stats,
    trouble: Problems,
    began: Instant,
    drawn: Option<Instant>,
    /// The last line that was written is that one.
    on_drawing: bool,
    /// Names that are being linked, how that is reported, and in what they differ from the existing entry.
    to_link: HashMap<Key, (Update, Difference, Facts)>,
    /// Lines to print once the files before them are on their way.
    waiting: DelayedLines,
    /// Transfers of which nothing has come.
    under_way: HashMap<StepId, Key>,
    /// Names of several that a dry run doesn't bring.
    would_come: HashSet<Key>,
    /// Errors of listing that were told.
    unlisted: HashSet<String>,
    /// The name that the one that is being told is linked to.
    link_to: Option<Vec<u8>>,
    /// Entries to delete that are neither files nor symlinks.
    doomed: HashMap<Key, FileType>,
    /// Directories that aren't created, if that is reported.
    left: HashSet<Key>,
}

/// Reported facts of a name.
#[derive(Clone, Copy)]
struct ReportedName<'a> {
    key: &'a Key,
    size: u64,
    differs: &'a Difference,
    facts: &'a Facts,
}

impl Lines {
    /// A sink that prints what the options ask for.
    pub fn new(options: &Options, screen: Arc<Screen>, way: TransferDirection) -> Lines {
        let root = rustix::process::geteuid().is_root();
        let look = OutputStyle {
            format: form(options),
            itemize: itemize(options),
            info: options.info_levels(),
            kept: options.kept(root),
            owner: options.owner,
            human: options.human,
            raw_bytes: options.raw_bytes,
            dry_run: options.dry_run,
            hard_links: options.hard_links,
            time_transfers: options.compare() == CompareBy::SizeAndTime,
            links: !options.link_dest.is_empty(),
            way,
            max_size: options.max_size,
            munges: options.munge.on,
            chmod: options.chmod.clone(),
            program: options.program,
        };
        let state = State {
            out: BufWriter::with_capacity(64 << 10, stdout()),
            log: None,
            place: NameRoot::default(),
            stats: Stats::default(),
            trouble: Problems::default(),
            began: Instant::now(),
            drawn: None,
            on_drawing: false,
            to_link: HashMap::new(),
            waiting: DelayedLines::default(),
            under_way: HashMap::new(),
            would_come: HashSet::new(),
            unlisted: HashSet::new(),
            link_to: None,
            doomed: HashMap::new(),
            left: HashSet::new(),
        };
        let lines = Lines { look, screen, state: Mutex::new(state) };
        lines.begin_log(options);
        lines
    }

    /// Files come from a remote to this machine.
    pub fn receives(&self, receives: bool) {
        self.lock().stats.receives = receives;
    }

    /// Opens the log; a failure is reported, and stops nothing.
    fn begin_log(&self, options: &Options) {
        let Some(path) = &options.log_file else { return };
        match Log::open(path, options) {
            Ok(mut log) => match log.write(b"building file list") {
                Ok(()) => self.lock().log = Some(log),
                Err(error) => self.no_log(path, &error),
            },
            Err(error) => self.no_log(path, &error),
        }
    }

    fn no_log(&self, path: &[u8], error: &std::io::Error) {
        let path = String::from_utf8_lossy(path).into_owned();
        self.complain(&format!("--log-file {path}: {}: there will be no log", named_files::why(error)));
    }

    /// Writes to the log; the first failure is reported, and ends the log.
    fn write_log(&self, state: &mut State, line: &[u8]) {
        let written = state.log.as_mut().map_or(Ok(()), |log| log.write(line));
        if let Err(error) = written {
            state.log = None;
            let why = named_files::why(&error);
            self.screen.log(&format!("{}: --log-file: {why}: the log ends here", self.look.program));
        }
    }

    /// The names that follow are of this job.
    pub fn enter(&self, place: NameRoot) {
        let mut state = self.lock();
        state.place = place;
        // Lines left over from the job before.
        self.end_waiting(&mut state);
    }

    /// A line on standard output.
    pub fn say(&self, line: &str) {
        self.line(&mut self.lock(), line.as_bytes());
    }

    /// A line in the log.
    pub fn log(&self, line: &str) {
        self.write_log(&mut self.lock(), line.as_bytes());
    }

    /// A line on standard output, and in the log.
    pub fn tell(&self, line: &str) {
        self.say(line);
        self.log(line);
    }

    /// A line about something that went wrong, in the log too.
    pub fn complain(&self, line: &str) {
        self.complain_in(&mut self.lock(), line);
    }

    fn complain_in(&self, state: &mut State, line: &str) {
        let _ = state.out.flush();
        let line = format!("{}: {}", self.look.program, one_line(line));
        self.write_log(state, line.as_bytes());
        self.screen.log(&line);
    }

    /// Are names told, or what changes of them?
    pub fn tells_names(&self) -> bool {
        self.look.info.name > 0 || self.look.itemize > 0 && self.look.format.is_some()
    }

    /// Flushes the output.
    ///
    /// Errors: of standard output, except for a reader that went away.
    pub fn flush(&self) -> std::io::Result<()> {
        match self.lock().out.flush() {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }

    /// Notes something that went wrong for the exit code.
    pub fn trouble(&self, note: impl FnOnce(&mut Problems)) {
        note(&mut self.lock().trouble);
    }

    /// Counts so far.
    pub fn so_far(&self) -> (Stats, Duration) {
        let state = self.lock();
        (state.stats.clone(), state.began.elapsed())
    }

    /// Counts and problems at the end; all output is flushed.
    pub fn end(&self) -> (Stats, Problems, Duration) {
        let mut state = self.lock();
        if state.drawn.is_some() {
            self.draw(&mut state, true);
            self.leave_drawing(&mut state);
        }
        self.end_waiting(&mut state);
        let _ = state.out.flush();
        (state.stats.clone(), state.trouble.clone(), state.began.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn line(&self, state: &mut State, bytes: &[u8]) {
        self.put(state, Some(bytes.to_vec()), None);
    }

    /// The line of a name.
    fn output_line(&self, state: &State, update: Update, seen: ReportedName) -> OutputLine {
        let ReportedName { key, size, differs, facts } = seen;
        let letters = letters(update, differs, &self.look.kept);
        // Plain names are printed for transferred, created or linked files, not for those that only get attributes.
        let is_reported = tells(&letters) || update == Update::Tied;
        let only_set = update == Update::None && differs.what != FileType::Dir && self.look.info.name < 2;
        let shown =
            if self.look.itemize == 0 { is_reported && !only_set } else { is_reported || self.look.itemize > 1 };
        if !is_reported && self.look.info.name > 1 && self.look.itemize == 0 && differs.what != FileType::Dir {
            let line = [&self.name(state, key, differs.what)[..], b" is uptodate"].concat();
            return OutputLine { line: Some(line), logged: None };
        }
        let in_log = self.log_format(state).filter(|_| is_reported || shown);
        let item = Item { lines: self, state, key, what: differs.what, letters, size, facts };
        let line = self.look.format.as_ref().filter(|_| shown).map(|format| format::fill(format, &item));
        let logged = in_log.map(|format| format::fill(&format, &item));
        OutputLine { line, logged }
    }

    /// Prints a name with what happens to it, if that is to be told.
    fn item(&self, state: &mut State, update: Update, seen: ReportedName) {
        let OutputLine { line, logged } = self.output_line(state, update, seen);
        self.put(state, line, logged);
    }

    /// Prints a name with what happens to it, once its transfer has begun.
    fn coming(&self, state: &mut State, update: Update, seen: ReportedName) {
        let OutputLine { line, logged } = self.output_line(state, update, seen);
        let waits = seen.differs.what == FileType::File && !self.look.dry_run;
        match waits && (line.is_some() || logged.is_some()) {
            true => state.waiting.hold(seen.key.clone(), OutputLine { line, logged }),
            false => self.put(state, line, logged),
        }
    }

    /// A file is on its way or has arrived, with `more` to print; or it failed.
    fn came(&self, state: &mut State, key: &Key, came: bool, more: Option<Vec<u8>>) {
        // One file alone may get another name.
        let file = if state.place.one.is_some() { state.waiting.any() } else { Some(key.clone()) };
        match (file, came) {
            (Some(file), false) => state.waiting.lost(&file),
            (file, _) => {
                if let Some(mut more) = file.map_or(more.clone(), |file| state.waiting.came(&file, more)) {
                    // Its name was told when it began, and others have come since.
                    let name = plain(state, key);
                    more.extend_from_slice(b"  ");
                    more.extend_from_slice(&shown(&name, self.look.raw_bytes));
                    self.line(state, &more);
                }
            }
        }
        self.tell_ready(state);
    }

    fn end_waiting(&self, state: &mut State) {
        state.waiting.end();
        state.under_way.clear();
        self.tell_ready(state);
    }

    fn tell_ready(&self, state: &mut State) {
        while let Some(OutputLine { line, logged }) = state.waiting.next() {
            if let Some(line) = line {
                self.leave_drawing(state);
                // A reader that went away isn't told.
                let _ = state.out.write_all(&line).and_then(|()| state.out.write_all(b"\n"));
                if self.screen.is_live() {
                    let _ = state.out.flush();
                }
            }
            logged.iter().for_each(|line| self.write_log(state, line));
        }
    }

    /// The form of the log's lines about names: in a dry run nothing happens to any.
    fn log_format(&self, state: &State) -> Option<String> {
        state.log.as_ref().and_then(|log| log.format.clone()).filter(|_| !self.look.dry_run)
    }

    /// A line on standard output, and one in the log.
    fn put(&self, state: &mut State, line: Option<Vec<u8>>, logged: Option<Vec<u8>>) {
        state.waiting.add(OutputLine { line, logged });
        self.tell_ready(state);
    }

    /// A file skipped because of options.
    fn left(&self, state: &mut State, key: &Key, why: Reason, differs: &Difference) {
        if self.look.info.skip == 0 || differs.what == FileType::Dir {
            return;
        }
        if self.is_left_with_another(state, key) {
            return;
        }
        let name = self.name(state, key, differs.what);
        let line = match why {
            Reason::Newer => [&name[..], b" is newer"].concat(),
            Reason::Existing => [&name[..], b" exists"].concat(),
            Reason::NotExisting => [b"not creating new file \"", &name[..], b"\""].concat(),
            _ => return,
        };
        self.put(state, Some(line.clone()), Some(line));
    }

    /// True for what a directory holds that isn't made: nothing more is said of it.
    fn is_left_with_another(&self, state: &State, key: &Key) -> bool {
        let mut ends = key.as_bytes().iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1);
        !state.left.is_empty() && ends.any(|end| state.left.contains(&Key::new(&key.as_bytes()[..end])))
    }

    /// Something of the source that isn't to be transferred counts as what is there all the same.
    fn left_out(&self, state: &mut State, seen: ReportedName, why: LeftOut) {
        let ReportedName { key, size, differs: &Difference { what, .. }, facts } = seen;
        let link = facts.posix.as_ref().filter(|_| what == FileType::Link).map(|posix| posix.size);
        state.stats.seen(what, link.unwrap_or(size));
        let name = shown(&plain(state, key), self.look.raw_bytes);
        let name = name.strip_suffix(b"/").unwrap_or(&name);
        let line = match why {
            LeftOut::Kind(Some(why)) => {
                return self.left(state, key, why, seen.differs);
            }
            LeftOut::Kind(None) if self.look.info.nonreg > 0 => [b"skipping non-regular file \"", name, b"\""].concat(),
            LeftOut::New if self.look.info.skip > 0 && !self.is_left_with_another(state, key) => {
                state.left.insert(key.clone());
                [b"not creating new directory \"", name, b"\""].concat()
            }
            LeftOut::Limit if self.look.info.skip > 0 => {
                let bound = if self.look.max_size.is_some_and(|max| size > max) { "over max" } else { "under min" };
                [name, b" is ", bound.as_bytes(), b"-size"].concat()
            }
            LeftOut::InTheWay => [b"cannot delete non-empty directory: ", name].concat(),
            LeftOut::Kind(None) | LeftOut::New | LeftOut::Limit => return,
        };
        self.put(state, Some(line.clone()), Some(line));
    }

    /// A name as it is shown.
    fn name(&self, state: &State, key: &Key, what: FileType) -> Vec<u8> {
        let mut name = plain(state, key);
        if what == FileType::Dir {
            name = if name.is_empty() {
                b"./".to_vec()
            } else {
                [name.strip_suffix(b"/").unwrap_or(&name), b"/"].concat()
            };
        }
        shown(&name, self.look.raw_bytes)
    }

    fn deleting(&self, state: &mut State, key: &Key, what: FileType) {
        state.stats.deleted.add(what);
        let name = self.name(state, key, what);
        let plain = [b"deleting ", &name[..]].concat();
        let in_log = self.log_format(state);
        let facts = &Facts::default();
        let item = Item { lines: self, state, key, what, letters: "*deleting  ".into(), size: 0, facts };
        // A format without the kind of change would show the file as transferred.
        let form = |format: &String| match asks(format, 'i') || asks(format, 'o') {
            true => format::fill(format, &item),
            false => plain.clone(),
        };
        let line = match &self.look.format {
            Some(format) => Some(form(format)),
            None => Some(plain.clone()).filter(|_| self.look.info.del > 0),
        };
        let logged = in_log.as_ref().map(form);
        self.put(state, line, logged);
    }

    fn decided(&self, state: &mut State, action: Action, why: Reason, seen: ReportedName) {
        let ReportedName { key, size, differs, facts } = seen;
        state.stats.seen(differs.what, size);
        let bytes = if self.look.way == TransferDirection::Sends { Update::Sent } else { Update::Received };
        let carried = if differs.what == FileType::File { bytes } else { Update::Local };
        match action {
            Action::Copy => {
                state.stats.transferred(differs, size);
                if self.look.dry_run && self.look.hard_links && may_have_names(facts) {
                    state.would_come.insert(key.clone());
                }
                self.coming(state, carried, seen);
            }
            Action::Touch if differs.mtime && differs.what == FileType::File && self.look.time_transfers => {
                state.stats.transferred(differs, 0);
                self.item(state, carried, seen);
            }
            Action::Reuse => {
                state.stats.created.add(differs.what);
                let same = !tells(&letters(Update::None, differs, &self.look.kept));
                let update = if same && self.look.links { Update::Linked } else { Update::Found };
                // rsync reports entries other than regular files only if attributes differ.
                let update = match update {
                    Update::Found if same && differs.what != FileType::File && self.look.itemize < 2 => return,
                    _ => update,
                };
                self.item(state, update, seen);
            }
            Action::Touch => self.item(state, Update::None, seen),
            Action::Keep if matches!(why, Reason::NotExisting | Reason::Existing | Reason::Newer) => {
                self.left(state, key, why, differs);
            }
            Action::Keep if why == Reason::Linked => self.item(state, Update::Linked, seen),
            Action::Keep => self.item(state, Update::None, seen),
            Action::Link | Action::Rename | Action::MakeDir | Action::Delete | Action::Refuse => {}
        }
    }

    /// A name that becomes another one of a file; its line waits until the file's name is known.
    fn linked(&self, state: &mut State, to: &Key, update: Update, seen: ReportedName) {
        let differs = seen.differs;
        if differs.new {
            state.stats.created.add(differs.what);
        }
        state.link_to = Some(shown(&plain(state, to), self.look.raw_bytes));
        self.item(state, update, seen);
        state.link_to = None;
    }

    /// `listed`: it is of a listing, which another walk may find out again.
    fn failed(&self, state: &mut State, error: &Error, listed: bool) {
        if error.kind() == ErrorKind::Cancelled {
            return;
        }
        let name = error.key().map(|key| String::from_utf8_lossy(&plain(state, key)).into_owned());
        let line = match (name, error.kind(), error.op()) {
            (Some(name), ErrorKind::NotFound, "read" | "copy" | "stat") => format!("file has vanished: {name:?}"),
            (Some(name), _, op) => format!("{op} {name:?} failed: {}", error.message()),
            (None, _, op) => format!("{op} failed: {}", error.message()),
        };
        if !(listed || error.op() == "list") || state.unlisted.insert(line.clone()) {
            state.trouble.note(error);
            self.complain_in(state, &line);
        }
    }

    fn arrived(&self, state: &mut State, size: u64, took: Duration) -> Option<Vec<u8>> {
        let stats = &mut state.stats;
        stats.arrived += 1;
        if self.look.info.progress != 1 {
            return None;
        }
        let rate = size as f64 / took.as_secs_f64().max(0.001);
        let left = stats.files.total().saturating_sub(stats.arrived);
        let line = format!(
            "{:>15} 100% {:>11} {} (xfr#{}, to-chk={left}/{})",
            number(size, self.look.human),
            speed(rate),
            clock(took),
            stats.arrived,
            stats.files.total()
        );
        Some(line.into_bytes())
    }

    /// Begins a new line where the last one is that of `--info=progress2`.
    fn leave_drawing(&self, state: &mut State) {
        if std::mem::take(&mut state.on_drawing) {
            let _ = writeln!(state.out);
        }
    }

    /// The one line of `--info=progress2`.
    fn draw(&self, state: &mut State, all: bool) {
        if self.look.info.progress < 2 || (!all && state.drawn.is_some_and(|at| at.elapsed() < REDRAW)) {
            return;
        }
        state.drawn = Some(Instant::now());
        let (took, stats) = (state.began.elapsed(), &state.stats);
        let share = stats.moved * 100 / stats.transferred_bytes.max(1);
        let left = stats.files.total().saturating_sub(stats.arrived);
        let line = format!(
            "\r{:>15} {:>3}% {:>11} {} (xfr#{}, to-chk={left}/{})",
            number(stats.moved, self.look.human),
            share.min(100),
            speed(stats.moved as f64 / took.as_secs_f64().max(0.001)),
            clock(took),
            stats.arrived,
            stats.files.total()
        );
        state.on_drawing = true;
        let _ = state.out.write_all(line.as_bytes()).and_then(|()| state.out.flush());
    }
}

/// True for a file of the source that could not be opened, so that nothing of it came.
fn is_unread(error: &Error) -> bool {
    error.op() == "read" || error.kind() == ErrorKind::NotFound && matches!(error.op(), "copy" | "stat")
}

/// Format of a name's line; `None` for no line.
fn form(options: &Options) -> Option<String> {
    let form = match (&options.out_format, options.itemize) {
        (Some(format), _) => Some(format.clone()).filter(|f| !f.is_empty()),
        (None, 1..) => Some("%i %n%L".into()),
        (None, 0) if options.info_levels().name > 0 => Some("%n%L".into()),
        _ => None,
    };
    form.filter(|_| !options.quiet)
}

/// How much of what changes is itemized: with 2 also what stays as it is, which -vv shows, too.
fn itemize(options: &Options) -> u8 {
    let in_format = options.out_format.as_ref().is_some_and(|format| asks(format, 'i'));
    match options.itemize.max(u8::from(in_format)) {
        _ if options.out_format.is_some() && !in_format => 0,
        1 if options.info_levels().name > 1 => 2,
        itemize => itemize,
    }
}

/// Which symlinks' targets are printed or logged.
pub fn targets(options: &Options) -> LinkTargets {
    let log = options.log_file.as_ref().map(|_| options.log_format.as_deref().unwrap_or(log::FORMAT));
    let is_shown = form(options).is_some_and(|form| asks(&form, 'L')) || log.is_some_and(|form| asks(form, 'L'));
    match itemize(options) {
        _ if !is_shown => LinkTargets::None,
        0 | 1 => LinkTargets::OfChanges,
        _ => LinkTargets::OfAll,
    }
}

/// False for a file that provably has this name alone.
fn may_have_names(facts: &Facts) -> bool {
    let alone = |posix: &Posix| attributes::is_regular(posix.mode) && posix.nlink == 1;
    !facts.posix.as_deref().is_some_and(alone)
}

/// A key as a name: with what stands before it, without a link's ending.
fn plain(state: &State, key: &Key) -> Vec<u8> {
    let key = state.place.one.as_ref().unwrap_or(key).as_bytes();
    [&state.place.prefix[..], key::plain(key)].concat()
}

impl Sink for Lines {
    fn emit(&self, event: &Event) {
        let mut state = self.lock();
        let state = &mut *state;
        match event {
            Event::Decided { key, action: Action::Delete, differs, dry_run: true, .. } => {
                self.deleting(state, key, differs.what);
            }
            // Told when it is done.
            Event::Decided { key, action: Action::Delete, differs, .. }
                if !matches!(differs.what, FileType::File | FileType::Link) =>
            {
                state.doomed.insert(key.clone(), differs.what);
            }
            Event::Decided { action: Action::Delete, .. } => {}
            Event::Decided { key, action: Action::Link, why, size, differs, facts, .. } => {
                state.stats.seen(differs.what, *size);
                let update = if *why == Reason::Linked { Update::Tied } else { Update::Linked };
                state.to_link.insert(key.clone(), (update, *differs, facts.clone()));
            }
            Event::Linked { key, to } => {
                if let Some((update, differs, facts)) = state.to_link.remove(key) {
                    let seen = ReportedName { key, size: 0, differs: &differs, facts: &facts };
                    // As in rsync, where a name that would only come isn't known yet.
                    match state.would_come.contains(to) {
                        true => self.item(state, Update::Linked, seen),
                        false => self.linked(state, to, update, seen),
                    }
                }
            }
            Event::Decided { key, action, why, size, differs, facts, .. } => {
                self.decided(state, *action, *why, ReportedName { key, size: *size, differs, facts });
            }
            Event::DirSeen { key, differs, elsewhere, facts } => {
                state.stats.seen(FileType::Dir, 0);
                if differs.new || *elsewhere {
                    state.stats.created.add(FileType::Dir);
                }
                let update = if differs.new || *elsewhere { Update::Local } else { Update::None };
                self.item(state, update, ReportedName { key, size: 0, differs, facts });
            }
            Event::Deleted { side: Side::Dst, key, .. } => {
                let what = if key.is_symlink() { FileType::Link } else { FileType::File };
                let what = state.doomed.remove(key).unwrap_or(what);
                self.deleting(state, key, what);
            }
            Event::Deleted { side: Side::Src, key, .. } if self.look.info.remove > 0 => {
                let name = shown(&plain(state, key), self.look.raw_bytes);
                let line = [b"sender removed ", &name[..]].concat();
                self.put(state, Some(line.clone()), Some(line));
            }
            Event::UnsafeLink { key, target } if self.look.info.name > 0 => {
                let name = shown(&plain(state, key), self.look.raw_bytes);
                let target = shown(target.as_bytes(), self.look.raw_bytes);
                let line = [b"ignoring unsafe symlink \"", &name[..], b"\" -> \"", &target[..], b"\""].concat();
                self.line(state, &line);
            }
            Event::DirExtra { key, deleted: true, .. } => self.deleting(state, key, FileType::Dir),
            Event::DirExtra { key, deleted: false, .. } => {
                let name = plain(state, key);
                let name = shown(name.strip_suffix(b"/").unwrap_or(&name), self.look.raw_bytes);
                self.line(state, &[b"cannot delete non-empty directory: ", &name[..]].concat());
            }
            Event::Begun { step, key, .. } if !state.waiting.is_over() => {
                _ = state.under_way.insert(*step, key.clone())
            }
            Event::Moved { step, bytes } | Event::Resumed { step, bytes } => {
                if let Some(key) = state.under_way.remove(step) {
                    self.came(state, &key, true, None);
                }
                state.stats.moved = state.stats.moved.saturating_add_signed(*bytes);
                if matches!(event, Event::Resumed { .. }) {
                    state.stats.matched = state.stats.matched.saturating_add_signed(*bytes);
                }
                self.draw(state, false);
            }
            Event::Done { step, size, key, .. } => {
                state.under_way.remove(step);
                if !key.is_symlink() {
                    state.stats.arrived_bytes += size;
                }
                let took = state.began.elapsed();
                let more = self.arrived(state, *size, took);
                self.came(state, key, true, more);
                self.draw(state, false);
            }
            Event::Failed { step, error } => {
                let key = state.under_way.remove(step).or_else(|| error.key().cloned());
                if let Some(key) = key {
                    self.came(state, &key, !is_unread(error), None);
                }
                self.failed(state, error, false);
            }
            Event::ListFailed { error, .. } => self.failed(state, error, true),
            Event::Error(error) => self.failed(state, error, false),
            Event::LeftOut { key, what, size, why, facts } => {
                let differs = &Difference { what: *what, ..Difference::default() };
                self.left_out(state, ReportedName { key, size: *size, differs, facts }, *why);
            }
            Event::Notice { message, .. } => self.complain_in(state, message),
            _ => {}
        }
    }
}
