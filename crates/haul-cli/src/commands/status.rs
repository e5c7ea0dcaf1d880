//! `status`: what a copy or a sync would do, found out by the same code that does it, as a dry run.

use super::job::{self, JobPaths};
use crate::{
    context::Context,
    error::{self, CommandResult, code},
    flags,
    show::out::{Output, quiet},
};
use anyhow::{Context as _, Result};
use haul::Report;
use haul_core::{
    Key,
    compare::Reason,
    event::{Event, Sink},
    job::Verb,
    plan::Action,
    units::size_text,
};
use serde_json::json;
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

/// Names that a group of the text shows at most; what it takes to hold more would grow with the folder.
const SHOWN: usize = 1_000;

/// Arguments of `status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    ends: JobPaths,
    /// Show what a sync would do: list extra files at DEST too, which a sync deletes
    #[arg(long)]
    sync: bool,
    /// Print JSON lines: one object for each file that differs, then one with the counts
    #[arg(long)]
    json: bool,
    /// Write a line for each file to this file (- is standard output), with a sign: = same, + to be copied, * to be changed, - to be deleted, ! error
    #[arg(long, value_name = "FILE")]
    combined: Option<PathBuf>,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(look(args, ctx).await)
}

async fn look(args: Args, ctx: &Context) -> Result<CommandResult> {
    let (src, file) = ctx.open_source(&args.ends.source).await?;
    let dst = ctx.open(&args.ends.dest)?;
    let mut job = flags::job(&ctx.flags)?;
    job.dry_run = true;
    let mut cx = job::cx(ctx, &ctx.open_options(), src, dst, &args.ends.dest)?;
    // Nothing is changed, so there is nothing to ask a person.
    cx.confirm = None;
    let tally = Arc::new(Tally::new(&args, cx.sink.clone())?);
    cx.sink = tally.clone();
    let report = match file {
        None => {
            job.verb = if args.sync { Verb::Sync } else { Verb::Copy };
            job::see_destination(&mut job)?;
            job::rename(ctx, &job, &mut cx).await?;
            haul::run(job, cx).await
        }
        Some(key) => haul::run_one(job, cx, &key, &job::renamed(ctx, key.leaf())?).await,
    };
    let mut state = tally.state();
    state.finish(&report, args.json)?;
    Ok(CommandResult::Exit(exit_code(&report, state.differs() || report.totals.renames > 0)))
}

fn exit_code(report: &Report, differs: bool) -> u8 {
    match error::report_code(report, false) {
        code::OK if differs => code::OTHER,
        // 1 says that there are differences, so an error must say something else.
        code::OTHER => code::FATAL,
        other => other,
    }
}

/// The groups that files fall into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    New,
    Changed,
    Extra,
    Same,
    /// Left as it is, whether the same or not (`--update`, `--ignore-existing`, `--existing`).
    Kept,
}

impl Group {
    const ALL: [Group; 5] = [Group::New, Group::Changed, Group::Extra, Group::Same, Group::Kept];

    fn of(action: Action, why: Reason) -> Option<Group> {
        Some(match (action, why) {
            (Action::Copy | Action::Reuse, Reason::Missing | Reason::NotSeen) => Group::New,
            (Action::Copy | Action::Reuse | Action::Link | Action::Touch | Action::Refuse, _) => Group::Changed,
            (Action::Delete, _) => Group::Extra,
            (Action::Keep, why) if why.is_left_alone() => Group::Kept,
            (Action::Keep, _) => Group::Same,
            (Action::MakeDir | Action::Rename, _) => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Group::New => "new",
            Group::Changed => "changed",
            Group::Extra => "extra",
            Group::Same => "same",
            Group::Kept => "kept",
        }
    }

    /// As `check --combined` has them.
    fn sign(self) -> char {
        match self {
            Group::New => '+',
            Group::Changed => '*',
            Group::Extra => '-',
            Group::Same | Group::Kept => '=',
        }
    }
}

/// Takes the engine's decisions; everything else goes on to the terminal's sink.
struct Tally {
    next: Arc<dyn Sink>,
    state: Mutex<State>,
}

struct State {
    counts: [u64; Group::ALL.len()],
    /// Bytes that would be transferred.
    bytes: u64,
    /// Names to show, with why, of the groups that aren't in step.
    names: [Vec<(Key, &'static str)>; 3],
    json: bool,
    out: Output,
    combined: Option<BufWriter<Box<dyn Write + Send>>>,
    /// The first thing that could not be written.
    failed: Option<anyhow::Error>,
}

impl Tally {
    fn new(args: &Args, next: Arc<dyn Sink>) -> Result<Self> {
        let combined: Option<Box<dyn Write + Send>> = match &args.combined {
            None => None,
            Some(path) if path.as_os_str() == "-" => Some(Box::new(Output::stdout())),
            #[expect(clippy::disallowed_methods, reason = "a file that the user named for output")]
            Some(path) => {
                Some(Box::new(File::create(path).with_context(|| format!("can't create {}", path.display()))?))
            }
        };
        let state = State {
            counts: Default::default(),
            bytes: 0,
            names: Default::default(),
            json: args.json,
            out: Output::stdout(),
            combined: combined.map(BufWriter::new),
            failed: None,
        };
        Ok(Tally { next, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Sink for Tally {
    fn emit(&self, event: &Event) {
        match event {
            Event::Decided { key, action, why, size, .. } => self.state().decided(key, *action, *why, *size),
            Event::Error(error) => {
                if let Some(key) = error.key() {
                    self.state().sign('!', key);
                }
                self.next.emit(event);
            }
            other => self.next.emit(other),
        }
    }
}

impl State {
    fn decided(&mut self, key: &Key, action: Action, why: Reason, size: u64) {
        let Some(group) = Group::of(action, why) else { return };
        self.counts[group as usize] += 1;
        self.bytes += if action == Action::Copy { size } else { 0 };
        if action != Action::Refuse {
            // A refused file is an error, which has its own sign.
            self.sign(group.sign(), key);
        }
        let Some(names) = self.names.get_mut(group as usize) else { return };
        let why = reason(action, why);
        if self.json {
            let line = json!({"path": key.display(), "status": group.name(), "why": why, "size": size});
            let written = self.out.bytes(format!("{line}\n").as_bytes());
            self.keep(written);
        } else if names.len() < SHOWN {
            names.push((key.clone(), why));
        }
    }

    fn sign(&mut self, sign: char, key: &Key) {
        let Some(out) = &mut self.combined else { return };
        let mut write = || {
            write!(out, "{sign} ")?;
            out.write_all(key.stored())?;
            out.write_all(b"\n")
        };
        let written = write().context("can't write the list of files");
        self.keep(written);
    }

    fn keep(&mut self, written: Result<()>) {
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }

    fn count(&self, group: Group) -> u64 {
        self.counts[group as usize]
    }

    fn differs(&self) -> bool {
        [Group::New, Group::Changed, Group::Extra].into_iter().any(|group| self.count(group) > 0)
    }

    /// Writes what is to be said at the end.
    fn finish(&mut self, report: &Report, json: bool) -> Result<()> {
        let mut text = String::new();
        if json {
            let mut line = serde_json::Map::new();
            line.insert("summary".into(), true.into());
            line.extend(Group::ALL.map(|group| (group.name().to_owned(), self.count(group).into())));
            line.insert("bytes".into(), self.bytes.into());
            line.insert("renames".into(), report.totals.renames.into());
            line.insert("errors".into(), report.error_count.into());
            text = format!("{}\n", serde_json::Value::from(line));
        } else {
            for (group, title) in [(Group::New, "New"), (Group::Changed, "Changed"), (Group::Extra, "Extra")] {
                self.group(group, title)?;
            }
            text.push_str(&self.summary(report));
        }
        self.out.bytes(text.as_bytes())?;
        self.out.flush()?;
        if let Some(mut out) = self.combined.take() {
            out.flush().context("can't write the list of files")?;
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn group(&mut self, group: Group, title: &str) -> Result<()> {
        let (count, mut names) = (self.count(group), std::mem::take(&mut self.names[group as usize]));
        if count == 0 {
            return Ok(());
        }
        names.sort_unstable();
        self.out.bytes(format!("{title} ({count}):\n").as_bytes())?;
        let shown = names.len() as u64;
        for (key, why) in names {
            let key = error::one_line(&key.display());
            let why = if group == Group::Changed { format!("  ({why})") } else { String::new() };
            self.out.bytes(format!("  {key}{why}\n").as_bytes())?;
        }
        if count > shown {
            let more = count - shown;
            self.out.bytes(format!("  and {more} more: --json and --combined tell all\n").as_bytes())?;
        }
        Ok(())
    }

    fn summary(&self, report: &Report) -> String {
        let (same, kept) = (self.count(Group::Same), self.count(Group::Kept));
        let mut parts = Vec::new();
        let renames = report.totals.renames;
        if self.differs() || renames > 0 {
            let (new, changed) = (self.count(Group::New), self.count(Group::Changed));
            parts.push(format!("{new} new, {changed} changed ({} to transfer)", size_text(self.bytes)));
            for (count, what) in [(self.count(Group::Extra), "to delete"), (renames, "to rename")] {
                if count > 0 {
                    parts.push(format!("{count} {what}"));
                }
            }
        } else if report.is_ok() {
            parts.push("Up to date".into());
        }
        parts.push(format!("{same} the same"));
        if kept > 0 {
            parts.push(format!("{kept} left as they are"));
        }
        if report.error_count > 0 {
            parts.push(format!("{} errors", report.error_count));
        }
        parts.join(", ") + "\n"
    }
}

/// Why, in a word.
fn reason(action: Action, why: Reason) -> &'static str {
    match (action, why) {
        (Action::Touch, _) => "time only",
        (_, Reason::Missing | Reason::NotSeen) => "missing",
        (_, Reason::Extra) => "extra",
        (_, Reason::Kind) => "kind",
        (_, Reason::Size) => "size",
        (_, Reason::Mtime | Reason::StoredAfterChange | Reason::Newer) => "time",
        (_, Reason::Hash(_)) => "hash",
        (_, Reason::Forced) => "forced",
        (_, Reason::Unproved) => "unproved",
        (_, Reason::Damaged) => "damaged",
        _ => "flag",
    }
}
