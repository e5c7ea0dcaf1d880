//! `haul rsync`: takes rsync's options and its trailing-slash rule, prints what rsync prints, and exits as rsync does; the
//! engine is haul's own. The program that starts it lends it a [`Context`]; [`copy`] does the same work for a front end
//! with other words.

mod context;
mod delayed_lines;
mod entry_kind;
mod exit;
mod filters;
mod format;
mod hosts;
mod info;
mod listing;
mod log;
mod meaning;
mod merge;
mod missing_names;
mod name_clashes;
mod named_files;
mod opening;
pub mod option_table;
mod options;
mod owners;
mod path_args;
mod request;
mod root_time;
mod single_entry;
mod sink;
mod source_proof;
mod sources;
mod stats;
mod stop_time;
mod sub_jobs;

pub use context::{Context, Journals};
pub use request::Request;
pub use stats::{Count, Stats};

use anyhow::Result;
use entry_kind::FarFolders;
use exit::{Problems, Refusal};
use futures::future::LocalBoxFuture;
use haul::{Cx, Report, index::EarlierKnowledge};
use haul_core::{
    Entry, Key, Mtime,
    chmod::Chmod,
    filter::{
        Filter,
        first_match::{RuleError, SelectedNames},
    },
    job::{
        AlternatePlaces, Append, Attributes, BeyondMax, Compare, Cutoff, DeleteWhen, Deletes, Dirs, Existing,
        ExtraEvents, Fsync, Job, Limits, Links, Listing, Mounts, OtherKinds, Publish, Root, Times, Verb, Write,
    },
    keep::{IdMap, Keep},
};
use haul_store::{WriteSpec, layers::rate::Rate};
use haul_terminal::{one_line, print};
use options::Options;
use path_args::{PathArg, beside, is_here, split};
use root_time::Top;
use sink::{Lines, NameRoot, TransferDirection};
use sources::Planner;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    sync::Arc,
    time::{Duration, Instant},
};
use sub_jobs::{Part, SubJob};

/// How far times of a disk may lag behind the clock: Linux stamps inodes by its tick, of which there are at least 100 a second.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Result of a run.
pub struct RunResult {
    /// Its counts.
    pub stats: Stats,
    /// How long it took.
    pub took: Duration,
    trouble: Problems,
    lines: Arc<Lines>,
}

impl RunResult {
    /// True when it was stopped by a signal: the same command line resumes it.
    pub fn was_stopped(&self) -> bool {
        self.trouble.code().0 == exit::SIGNAL
    }

    /// The problem in a few words.
    pub fn failed(&self) -> Option<&'static str> {
        Some(self.trouble.code()).filter(|(code, _)| *code != 0).map(|(_, why)| why)
    }
}

/// Runs what these words, which follow `haul rsync`, ask for, and gives the exit code.
///
/// Errors: standard output can't be written.
pub fn run<'a>(words: Vec<OsString>, ctx: &'a Context<'a>) -> LocalBoxFuture<'a, Result<u8>> {
    Box::pin(async move {
        let options = match Options::parse(words) {
            // haul's own flag, before the word rsync, counts too.
            Ok(options) => {
                Options { dry_run: options.dry_run || ctx.dry_run, ..options.within(ctx.session.environment()) }
            }
            Err(line) => return Ok(refuse(ctx, (exit::USAGE, line))),
        };
        if options.help {
            print::text(&option_table::help())?;
            return Ok(0);
        }
        if options.help_info || options.help_debug {
            print::text(&if options.help_info { info::help() } else { info::DEBUG_HELP.into() })?;
            return Ok(0);
        }
        if options.version > 0 {
            let version = env!("CARGO_PKG_VERSION");
            print::line(&match options.version {
                1 => format!("haul rsync, haul version {version}"),
                _ => format!("{{\"program\": \"haul rsync\", \"version\": \"{version}\"}}"),
            })?;
            return Ok(0);
        }
        if let Err(refusal) = check_checksum(&options) {
            return Ok(refuse(ctx, refusal));
        }
        if options.paths.is_empty() {
            return Ok(refuse(ctx, (exit::USAGE, "it needs SRC and DEST (see haul rsync --help)".into())));
        }
        may_ask(&options, ctx);
        let options = match hosts::reach(options, ctx).await {
            Ok(options) => options,
            Err(refusal) => return Ok(refuse(ctx, refusal)),
        };
        if options.list_only || options.paths.len() == 1 {
            limit_bandwidth(&options, ctx);
            return Ok(match listing::list(&options, ctx).await {
                Ok(code) => code,
                Err(refusal) => refuse(ctx, refusal),
            });
        }
        match transfer(&options, None, ctx).await {
            Ok(ended) => close(&options, &ended),
            Err(refusal) => Ok(refuse(ctx, refusal)),
        }
    })
}

/// A run that is quiet or changes nothing never prompts.
fn may_ask(options: &Options, ctx: &Context<'_>) {
    if options.quiet || options.dry_run {
        ctx.session.ask_nobody();
    }
}

fn refuse(ctx: &Context<'_>, (code, line): Refusal) -> u8 {
    let (code, line) = match ctx.cancel.is_cancelled() {
        // Errors on its way out are no news.
        true => (exit::SIGNAL, format!("error: stopped by a signal (code {})", exit::SIGNAL)),
        false => (code, line),
    };
    ctx.screen.log(&format!("haul rsync: {}", one_line(&line)));
    code
}

/// The words at the end, and the exit code.
fn close(options: &Options, ended: &RunResult) -> Result<u8> {
    let (lines, level) = (&ended.lines, options.info_levels().stats);
    if level > 1 {
        lines.tell(&ended.stats.lines(options.human, options.dry_run));
    }
    match level {
        0 => lines.log(&ended.stats.last(options.human, options.dry_run)),
        _ => lines.tell(&ended.stats.closing(ended.took, options.human, options.dry_run)),
    }
    let (code, why) = ended.trouble.code();
    if code != 0 {
        lines.complain(&format!("error: {why} (code {code})"));
    }
    lines.flush()?;
    Ok(code)
}

/// `--bwlimit` of rsync's own, unless haul was given one.
fn limit_bandwidth(options: &Options, ctx: &Context<'_>) {
    if let Some(rate) = options.bwlimit {
        let rate = Some(rate).filter(|rate| *rate > 0);
        ctx.session.limit_bandwidth(Arc::new(Rate::new(rate, rate)));
    }
}

/// A line of progress every so often.
#[derive(Clone, Copy, Debug)]
pub struct Reporting {
    /// How often, in seconds.
    pub every: u64,
    /// Puts the counts so far, and how long it took, in words.
    pub line: fn(&Stats, Duration) -> String,
}

/// Makes a copy that another front end asks for.
///
/// Errors: one line on what can't be meant, before anything is changed.
pub fn copy<'a>(
    request: Request,
    reporting: Option<Reporting>,
    ctx: &'a Context<'a>,
) -> LocalBoxFuture<'a, Result<RunResult, String>> {
    Box::pin(async move {
        let options = Options { dry_run: ctx.dry_run, ..request.into() };
        may_ask(&options, ctx);
        transfer(&options, reporting, ctx).await.map_err(|(_, line)| line)
    })
}

/// Runs all jobs of a command line.
///
/// Errors: the command line can't be carried out; reported before anything is changed.
async fn transfer(options: &Options, reporting: Option<Reporting>, ctx: &Context<'_>) -> Result<RunResult, Refusal> {
    if ctx.interactive {
        let line = "--interactive works with haul's own commands only: use haul copy or haul sync, or leave it out";
        return Err((exit::USAGE, line.into()));
    }
    limit_bandwidth(options, ctx);
    let stop = stop_time(options)?;
    let Some((dest, sources)) = options.paths.split_last() else {
        return Err((exit::USAGE, "it needs SRC and DEST".into()));
    };
    let all_here = sources.iter().all(|source| is_here(source));
    let way = match (all_here, is_here(dest)) {
        (true, false) => TransferDirection::Sends,
        (false, true) => TransferDirection::Receives,
        _ => TransferDirection::Neither,
    };
    let lines = Arc::new(Lines::new(options, ctx.screen.clone(), way));
    let receives = is_here(dest) && !sources.iter().any(|source| is_here(source));
    lines.receives(receives);
    if options.info_levels().flist > 0 {
        let late = options.delete_delay && options.delete == Some(DeleteWhen::After);
        let whole = matches!(options.delete, Some(DeleteWhen::Before | DeleteWhen::After)) && !late;
        let grows =
            options.recursive && !(whole || options.whole_list || options.delay_updates || options.prune_empty_dirs);
        lines.say(match (receives, grows) {
            (true, true) => "receiving incremental file list",
            (true, false) => "receiving file list ... done",
            (false, true) => "sending incremental file list",
            (false, false) => "building file list ... done",
        });
    }
    check_munging(options, sources)?;
    named_files::check_dest(options.insecure_links, dest)?;
    let there = FarFolders::new(options, ctx);
    check_temp_dir(options, dest, &there).await?;
    let mut planner = Planner { options, ctx, lines: &lines, incomplete: false, shares: false, there };
    let jobs = planner.plan(sources, dest).await?;
    let mut incomplete = planner.incomplete && !options.ignore_errors;
    check_sources(options, ctx, &jobs)?;
    check_backup_dir(options, ctx, &jobs).await?;
    let reporter = reporting.map(|reporting| tokio::spawn(report_on(lines.clone(), reporting)));
    let mut trouble = Problems::default();
    let began = now();
    if options.remove_source || options.keep_dirlinks {
        // Files of this run then have later times than the existing ones.
        tokio::time::sleep(CLOCK_TICK).await;
    }
    let (mut deleted, mut stopped) = (0, false);
    let mut top = Top::new(options, dest);
    if jobs.first().is_some_and(|job| job.part == Part::Deletes) {
        let proof = source_proof::look(options, ctx, &lines, &jobs).await?;
        incomplete |= !proof.whole && !options.ignore_errors;
        stopped = proof.broken;
    }
    for job in jobs {
        if stopped {
            break;
        }
        if job.part == Part::Deletes && incomplete && !options.ignore_errors {
            lines.complain("IO error encountered -- skipping file deletion");
            continue;
        }
        let left = stop.map(|stop| stop.saturating_duration_since(Instant::now()));
        // Sources that are all here know of each other, and so does what they do last.
        let brings_top = !all_here && job.one.is_none() && job.top && job.into.is_empty();
        let report = self::job(options, ctx, &lines, job, dest, (incomplete, deleted, began), left).await?;
        if report.time_limit {
            lines.complain("stopping at requested limit");
        }
        incomplete |= !report.is_ok() && !options.ignore_errors;
        deleted += report.totals.deletes + report.totals.dirs_deleted;
        trouble.take(&report);
        lines.trouble(|noted| {
            trouble.rules |= noted.rules;
            trouble.io |= noted.io;
        });
        stopped = trouble.signal || trouble.io || trouble.rules || report.time_limit;
        if brings_top && !stopped {
            top.note();
        }
    }
    top.restore();
    // As in rsync, which creates nothing if nothing was received.
    if !options.dry_run && !stopped && !receives {
        sources::make_named_dir(dest);
    }
    if let Some(reporter) = reporter {
        reporter.abort();
    }
    lines.trouble(|noted| {
        noted.signal |= trouble.signal;
        noted.io |= trouble.io;
        noted.timeout |= trouble.timeout;
        noted.max_delete |= trouble.max_delete;
    });
    let (stats, trouble, took) = lines.end();
    Ok(RunResult { stats, trouble, took, lines })
}

/// When the run is to end, if it is.
///
/// Errors: it can't be meant.
fn stop_time(options: &Options) -> Result<Option<Instant>, Refusal> {
    let now = jiff::Zoned::now();
    let at = match &options.stop_at {
        Some(text) => Some(stop_time::at(text, &now).map_err(|line| (exit::USAGE, line))?),
        None => None,
    };
    let until = at.and_then(|at| Duration::try_from(now.duration_until(&at)).ok());
    let after = options.stop_after.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
    let left = [until, after].into_iter().flatten().min();
    Ok(left.and_then(|left| Instant::now().checked_add(left)))
}

/// Which checksum rsync would take changes nothing here, but it must be one.
///
/// Errors: rsync knows none of that name.
fn check_checksum(options: &Options) -> Result<(), Refusal> {
    const NAMES: [&str; 9] = ["auto", "xxh128", "xxh3", "xxh64", "xxhash", "md5", "md4", "sha1", "none"];
    let names = options.checksum_choice.iter().flat_map(|choice| choice.splitn(2, ','));
    match names.map(str::to_ascii_lowercase).find(|name| !NAMES.contains(&name.as_str())) {
        Some(name) => Err((exit::UNSUPPORTED, format!("unknown checksum name: {name}"))),
        None => Ok(()),
    }
}

/// Errors: the directory for partial files is missing.
async fn check_temp_dir(options: &Options, dest: &OsStr, there: &FarFolders<'_>) -> Result<(), Refusal> {
    let Some(dir) = &options.temp_dir else { return Ok(()) };
    let to = PathArg::parse(dest)?;
    // Other remotes have no such directories.
    if !to.here() && !there.has_dirs(&to)? {
        return Ok(());
    }
    // A file gets its name in the directory that holds it.
    let above = to.word(split(to.path.strip_suffix(b"/").unwrap_or(&to.path)).0);
    if there.is_dir(&PathArg::parse(&beside(dest, dir, b"")?)?).await?
        || !there.is_dir(&to).await? && there.is_dir(&PathArg::parse(&beside(&above, dir, b"")?)?).await?
    {
        return Ok(());
    }
    Err((exit::USAGE, format!("The temp-dir does not exist: {}", String::from_utf8_lossy(dir))))
}

/// Errors: symlinks can't be munged there, or could be followed although they are.
fn check_munging(options: &Options, sources: &[OsString]) -> Result<(), Refusal> {
    if !options.munge.changes() {
        return Ok(());
    }
    if !sources.iter().all(|source| is_here(source)) {
        let line = "--munge-links needs sources on this machine: what a remote keeps of symlinks goes as it is";
        return Err((exit::UNSUPPORTED, line.into()));
    }
    let place = haul_core::links::MUNGED.strip_suffix(b"/").unwrap_or_default();
    if sources::is_dir(place) {
        let line = "Symlink munging is unsafe when a /rsyncd-munged directory exists.";
        return Err((exit::UNSUPPORTED, line.into()));
    }
    Ok(())
}

/// Where files go from the destination or from sources, no job may come into a source of another: it would delete there, or
/// replace, what is yet to be copied.
///
/// Errors: which source it is.
fn check_sources(options: &Options, ctx: &Context<'_>, jobs: &[SubJob]) -> Result<(), Refusal> {
    if options.delete.is_none() && !options.remove_source {
        return Ok(());
    }
    let opening = opening::looked_at(options);
    let open = |path: &OsStr| ctx.open_as(path, &opening).map_err(|e| (exit::FILE_IO, format!("{e:#}")));
    // A job of one file writes that name alone.
    for (at, job) in jobs.iter().enumerate().filter(|(_, job)| job.one.is_none()) {
        let filter = filters::filter(options, job.scope.clone())?;
        let dst = open(&job.dst)?;
        for (_, other) in jobs.iter().enumerate().filter(|(other, _)| *other != at) {
            haul::overlap::check_beside(&open(&other.src)?, &dst, &filter)
                .map_err(|error| (exit::USAGE, error.message().to_owned()))?;
        }
    }
    Ok(())
}

async fn report_on(lines: Arc<Lines>, Reporting { every, line }: Reporting) {
    let mut ticks = tokio::time::interval(Duration::from_secs(every.max(1)));
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (stats, took) = lines.so_far();
        lines.say(&line(&stats, took));
    }
}

fn now() -> Mtime {
    Mtime(jiff::Timestamp::now().as_nanosecond())
}

/// Runs one job. `before`: whether some source is missing, how much was deleted by jobs before it, and when the first began;
/// `left`: the time that it may take.
async fn job(
    options: &Options,
    ctx: &Context<'_>,
    lines: &Arc<Lines>,
    leg: SubJob,
    dest: &OsStr,
    before: (bool, u64, Mtime),
    left: Option<Duration>,
) -> Result<Report, Refusal> {
    let of_source = opening::of_source(options, &leg);
    let above = leg.above();
    let SubJob { src, into, dst, scope, top, one, part, alone } = leg;
    let of_destination = opening::of_destination(options);
    let open = |path: &OsStr| named_files::store(ctx, path, &of_destination);
    // The directory that the one file goes into.
    let dest = if alone && one.is_some() { &dst[..] } else { dest };
    let beside_dest = |paths: &[Vec<u8>]| {
        let opened = paths.iter().map(|path| match open(&beside(dest, path, &into)?) {
            // As in rsync it counts as one that isn't there.
            Err((exit::SELECTION, line)) => {
                lines.complain(&line);
                Ok(None)
            }
            opened => opened.map(Some),
        });
        opened.filter_map(Result::transpose).collect::<Result<Vec<_>, Refusal>>()
    };
    lines.enter(NameRoot {
        prefix: scope.prefix.clone(),
        typed: is_here(&src).then(|| src.as_bytes().to_vec()),
        one: one.as_ref().map(|(from, _)| from.clone()),
    });
    let filter = filters::filter(options, scope)?;
    let from = ctx.open_as(&src, &of_source).map_err(|e| (exit::FILE_IO, format!("{e:#}")))?;
    let to = open(&dst)?;
    let left_out = match &one {
        Some((name, _)) => !filter.wants_name(&Entry::file(name.clone(), 0)),
        None => !into.is_empty() && !filter.wants_root(),
    };
    if left_out {
        return Ok(Report::default());
    }
    let (incomplete, deleted, began) = before;
    if options.delay_updates && !to.caps().files {
        let line = "--delay-updates needs a destination on this machine: a remote shows each file when it is whole";
        return Err((exit::UNSUPPORTED, line.into()));
    }
    let builds = from.deltas().is_some() && to.deltas().is_some();
    if options.append && !builds {
        lines.complain("--append: only files on disks can be added to; what is longer at the source goes whole");
    }
    let verb = match (options.delete, options.remove_source) {
        (Some(_), _) if part == Part::Deletes => Verb::Sync,
        (Some(_), _) if one.is_none() && !incomplete && part == Part::Whole => Verb::Sync,
        (_, true) => Verb::Move,
        _ => Verb::Copy,
    };
    let job = rules(options, ctx, from.caps().files && to.caps().files).with(|job| {
        job.verb = verb;
        (job.limits.duration, job.limits.cutoff) = (left, Cutoff::Hard);
        job.existing.began = Some(began);
        job.deletes.max = job.deletes.max.map(|max| max.saturating_sub(deleted));
        job.deletes.alone = part == Part::Deletes;
        job.deletes.sources &= part != Part::Deletes;
        // The parts before have just made them.
        job.existing.spares_backups = part == Part::Deletes;
        job.elsewhere.drop_spare = !incomplete;
        job.dirs.root = if top && one.is_none() { Root::Included } else { Root::Excluded };
        job.links.safe = (options.safe_links && !options.copy_unsafe_links).then_some(above);
    });
    let cx = Cx {
        src: from,
        dst: to,
        backup: options.backup_dir.as_ref().map(|dir| open(&beside(dest, dir, &into)?)).transpose()?,
        compare_dest: beside_dest(&options.compare_dest)?,
        copy_dest: beside_dest(if options.link_dest.is_empty() { &options.copy_dest } else { &options.link_dest })?,
        filter: Arc::new(filter),
        sink: lines.clone(),
        meters: ctx.meters.clone(),
        cancel: ctx.cancel.clone(),
        confirm: None,
        journal: None,
        known: EarlierKnowledge { index: None, whole: false, ..ctx.known.clone() },
    };
    let base = one.is_some() || top && into.is_empty();
    // A directory that gets the destination's name is made as one that is new.
    let base = base && !(alone && one.is_none());
    if options.mkpath && base && cx.dst.caps().dirs && !options.dry_run && part != Part::Deletes {
        // rsync compares directories that it creates beforehand with the source as if they had existed.
        let made = match haul::overlap::check(&cx, verb) {
            Ok(()) => cx.dst.make_dir(&Key::new(""), &WriteSpec::default()).await,
            // The job says so.
            Err(_) => Ok(()),
        };
        made.map_err(|error| (exit::FILE_IO, error.to_string()))?;
    }
    let filter = cx.filter.clone();
    let names = one.as_ref().map(|(from, to)| (from, to));
    let journal = match part {
        Part::Deletes => None,
        _ if options.dry_run => None,
        _ => (ctx.journals)(verb, &cx, names).map_err(|e| (exit::FILE_IO, format!("{e:#}")))?,
    };
    let cx = Cx { journal, ..cx };
    let report = match &one {
        Some((from, to)) => haul::run_one(job, cx, from, to).await,
        None => haul::run(job, cx).await,
    };
    if report.totals.not_deleted > 0 {
        let skipped = report.totals.not_deleted;
        lines.complain(&format!("Deletions stopped due to --max-delete limit ({skipped} skipped)"));
    }
    tell_broken_rules(&filter, lines);
    Ok(report)
}

/// Checks that no source has a directory where backups go: its files and they would replace each other.
///
/// Errors: one has it, and no rule leaves it out; a source can't be asked.
async fn check_backup_dir(options: &Options, ctx: &Context<'_>, jobs: &[SubJob]) -> Result<(), Refusal> {
    let Some(dir) = filters::backup_dir_inside(options) else { return Ok(()) };
    let inside = [dir, b"/"].concat();
    let bare = Options { backup_dir: None, ..options.clone() };
    // A job of one file transfers that alone.
    for job in jobs.iter().filter(|job| job.one.is_none()) {
        let scope = &job.scope;
        let dir = match inside.strip_prefix(&scope.prefix[..]) {
            Some(below) => Key::new(below),
            None if scope.prefix.starts_with(&inside) => Key::new(""),
            None => continue,
        };
        let first = dir.as_bytes().split(|b| *b == b'/').next().unwrap_or_default();
        let brought = |only: &SelectedNames| only.names().iter().any(|name| name == first);
        if !dir.is_root() && !scope.only.as_ref().is_none_or(brought) {
            continue;
        }
        let filter = filters::filter(&bare, scope.clone())?;
        let shown = if dir.is_root() { filter.wants_root() } else { filter.descend(dir.as_bytes()) };
        if !shown {
            continue;
        }
        let from = ctx.open_as(&job.src, &opening::of_source(options, job));
        match from.map_err(|e| (exit::FILE_IO, format!("{e:#}")))?.stat(&dir).await {
            // A closed directory yields no files, as the job reports.
            Err(error) if entry_kind::is_of_path(&error) => continue,
            Err(error) => return Err((exit::FILE_IO, error.to_string())),
            Ok(_) => {}
        }
        let name = String::from_utf8_lossy(&inside).into_owned();
        let why = "the source has a directory of this name, whose files would get among the backups";
        let line = format!("--backup-dir={name}: {why}: choose another, or leave it out with --exclude=/{name}");
        return Err((exit::USAGE, line));
    }
    Ok(())
}

/// Reports rules of directories that can't be parsed; true if there are any.
fn tell_broken_rules(filter: &Filter, lines: &Lines) -> bool {
    let broken = filter.broken_rules();
    for wrong in &broken {
        let (RuleError::Rule(line) | RuleError::File(line)) = wrong;
        lines.complain(line);
        lines.trouble(|trouble| match wrong {
            RuleError::Rule(_) => trouble.rules = true,
            RuleError::File(_) => trouble.io = true,
        });
    }
    !broken.is_empty()
}

/// The engine's rules.
fn rules(options: &Options, ctx: &Context<'_>, disks: bool) -> Job {
    let now = now();
    Job {
        dry_run: options.dry_run,
        compare: Compare {
            by: options.compare(),
            window: u64::try_from(options.modify_window).ok().map(Duration::from_secs),
            // Between disks a copy is as quick as reading both sides to find out; to a remote it isn't.
            times: Times::Attribute { nanoseconds: options.modify_window < 0, decide: disks },
            ..Compare::default()
        },
        existing: Existing {
            ignore: options.ignore_existing,
            only: options.existing,
            update: options.update,
            append: options.append.then_some(Append { verify: options.append_verify }),
            // A job that may delete may also delete to make way.
            other_kinds: match options.force || options.delete.is_some() {
                true => OtherKinds::ReplaceWhole,
                false => OtherKinds::Replace,
            },
            backup_suffix: options.backup_suffix(),
            spares_backups: false,
            ..Existing::default()
        },
        deletes: Deletes {
            when: options.delete_when().unwrap_or_default(),
            sources: options.remove_source,
            specials: true,
            below_max_depth: true,
            max: options.max_delete,
            beyond_max: BeyondMax::KeepRest,
            ignore_errors: options.ignore_errors,
            errors_spare_transfers: true,
            allow_empty_source: true,
            ..Deletes::default()
        },
        elsewhere: AlternatePlaces { exact: true, link: !options.link_dest.is_empty(), ..AlternatePlaces::default() },
        listing: Listing {
            max_depth: options.max_depth(),
            mounts: match options.one_file_system {
                0 => Mounts::Cross,
                // Without recursion a mount point is a directory like others, as in rsync.
                2.. if options.max_depth().is_none() => Mounts::Omit,
                _ => Mounts::Stay,
            },
            ..Listing::default()
        },
        dirs: Dirs { create_empty: true, prune_empty: options.prune_empty_dirs, ..Dirs::default() },
        // An entry of another kind makes way in any case.
        links: Links { source: options.source_links(), keep_dirlinks: options.keep_dirlinks, ..Links::default() },
        attributes: Attributes {
            keep: keep(options),
            no_update_mtime: !options.times,
            no_update_dir_mtime: !options.times
                || options.omit_dir_times
                || (options.backup && options.backup_dir.is_none()),
            set_time: (!options.times).then_some(now),
            omit_link_times: options.omit_link_times.then_some(now),
            only_kept: true,
            ..Attributes::default()
        },
        write: Write {
            publish: match (options.inplace, options.delay_updates) {
                (true, _) => Publish::InPlace,
                (false, true) => Publish::AtEnd,
                (false, false) => Publish::WhenWhole,
            },
            sparse: options.sparse,
            drop_cache: options.drop_cache,
            delta: options.whole_file != Some(true),
            fsync: if options.fsync { Fsync::File } else { Fsync::None },
            ..Write::default()
        },
        limits: Limits { memory: ctx.memory, ..Limits::default() },
        tell: ExtraEvents { details: true, targets: sink::targets(options), ..ExtraEvents::default() },
        ..Job::default()
    }
}

/// Attributes that go along with files.
fn keep(options: &Options) -> Keep {
    // Without --perms a new file has the source's permissions less the umask: so it is where there is any --chmod.
    let unchanged = Chmod { dirs: true, files: true, clear: 0, set: 0, exec_if_any: 0, copied: None };
    let chmod = if options.chmod.is_empty() && !options.perms { vec![unchanged] } else { options.chmod.clone() };
    Keep {
        perms: options.perms,
        executability: options.executability,
        owner: options.owner,
        group: options.group,
        atime: options.atimes,
        xattrs: options.xattrs,
        acls: options.acls,
        devices: options.devices,
        specials: options.specials,
        hard_links: options.hard_links,
        chmod,
        users: if options.owner { options.users.clone() } else { IdMap::default() },
        groups: if options.group { options.groups.clone() } else { IdMap::default() },
    }
}
