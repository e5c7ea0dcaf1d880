//! `fleet`: one job by many workers. Here are arguments, opening and words; `haul-fleet` knows how workers share a job.

use super::job::{self, JobPaths};
use crate::{
    cli::{Cli, Invocation, Parsed, parse},
    colour::Choice,
    context::Context,
    error::{self, CommandResult, code, usage},
    flags::{
        self,
        values::{Span, size, span},
    },
    journal, machine,
    show::out::quiet,
};
use anyhow::{Result, anyhow};
use clap::Args as _;
use haul::{Cx, shared::Sharing};
use haul_core::{
    Key,
    job::{DeleteWhen, Job, Mounts, Publish, Verb},
    units::{Size, count_text, size_text},
};
use haul_fleet::{
    Board, Folder, Spec as JobSpec,
    create::create,
    ends::{EndpointFacts as Seen, Machine},
    files::{discard_writes, has_write},
    protocol::{Patience, WorkerId},
    report::{Summary, records, summary},
    spec::FORMAT,
    worker::{Settings, Worker, WorkerEnd},
};
use haul_remotes::{Location, Spec};
use haul_store::layers::rate::Rate;
use haul_terminal::print;
use jiff::{Timestamp, Zoned};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::Arc,
    time::Duration,
};

/// What to do with a job of many workers.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: FleetCommand,
}

#[derive(clap::Subcommand, Debug)]
enum FleetCommand {
    /// Create a job, for any number of workers
    ///
    /// Accepts the flags of copy and sync, and the filter. Divides SOURCE into shards, and transfers nothing. Passwords and keys
    /// are never stored in the job: workers read them from their own configuration.
    ///
    /// Example: haul fleet create /lustre/run42 s3:archive/run42 --at s3:jobs/run42
    Create(CreateArgs),
    /// Work on a job until nothing is left
    ///
    /// Start any number of workers, on any machines, at any time. If a worker dies, the others take over: its lease ends after the
    /// time given by --lease without a sign of life. On SIGTERM a worker returns its lease. Exits with 0 when nothing is left, 130
    /// if stopped, 6 if the job was cancelled, 2, 3, 4 or 7 if starting it again can't help.
    ///
    /// Example: haul fleet work s3:jobs/run42
    Work(WorkArgs),
    /// Show the progress of a job until it ends
    Watch(WatchArgs),
    /// Show the results of a job
    ///
    /// Exits with 0 when everything is done, 1 after errors, 5 while work is left, 6 if the job was cancelled.
    Report(ReportArgs),
    /// Cancel a job: its workers stop
    ///
    /// Transferred files stay. haul purge removes the job's directory.
    Cancel(CancelArgs),
}

/// Arguments of `create`.
#[derive(clap::Args, Debug)]
struct CreateArgs {
    #[command(flatten)]
    ends: JobPaths,
    /// The job's directory, which all workers see: on a remote, or on a shared file system
    #[arg(long, value_name = "STORE:JOB", required = true)]
    at: OsString,
    /// Delete extra files at DEST, as sync does
    #[arg(long)]
    sync: bool,
    /// Split files of this size or larger into ranges, which any worker can transfer (0: never)
    ///
    /// Applies where the destination accepts parts of one file from several workers: S3 and compatible services, Google Cloud
    /// Storage, Azure Blob, disks. Other files, and files copied inside a service or between disks, are each transferred by one
    /// worker.
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = size)]
    split_files_from: Size,
    /// Initial number of shards; workers split them further
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    shards: u32,
    /// Also create empty directories of the source
    #[arg(long)]
    create_empty_src_dirs: bool,
    #[command(flatten)]
    keep: flags::keep::KeepFlags,
}

/// Arguments of `work`.
#[derive(clap::Args, Debug)]
struct WorkArgs {
    #[command(flatten)]
    job: JobArg,
    /// Treat a worker as dead after this long without a sign of life; must be the same for all workers
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = span)]
    lease: Span,
    /// How long running transfers may take to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = span)]
    grace: Span,
    /// Number of shards to work on at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    at_once: u16,
    /// Index of this worker, from 0, and number of workers: only for a job on a store without conditional writes
    #[arg(long, value_name = "I/N", value_parser = number)]
    worker: Option<(usize, usize)>,
}

/// Arguments of `watch`.
#[derive(clap::Args, Debug)]
struct WatchArgs {
    #[command(flatten)]
    job: JobArg,
    /// Time between two lines
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span)]
    every: Span,
    /// Show a worker as silent after this long without a sign of life; not shorter than the workers' --lease
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = span)]
    lease: Span,
}

/// Arguments of `report`.
#[derive(clap::Args, Debug)]
struct ReportArgs {
    #[command(flatten)]
    job: JobArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `cancel`.
#[derive(clap::Args, Debug)]
struct CancelArgs {
    #[command(flatten)]
    job: JobArg,
}

#[derive(clap::Args, Debug)]
struct JobArg {
    /// The job's directory
    #[arg(value_name = "STORE:JOB")]
    job: OsString,
}

impl Args {
    /// True for a worker.
    pub fn works(&self) -> bool {
        matches!(self.what, FleetCommand::Work(_))
    }

    /// True when symlinks are copied as such unless they are followed.
    pub fn keeps_links(&self) -> bool {
        matches!(&self.what, FleetCommand::Create(args) if args.keep.archive)
    }
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    match args.what {
        FleetCommand::Create(args) => new_job(args, ctx).await,
        FleetCommand::Work(args) => work(args, ctx).await,
        FleetCommand::Watch(args) => quiet(watch(args, ctx).await),
        FleetCommand::Report(args) => quiet(report(args, ctx).await),
        FleetCommand::Cancel(args) => cancel(args, ctx).await,
    }
}

async fn cancel(args: CancelArgs, ctx: &Context) -> Result<CommandResult> {
    let (board, spec) = open(&args.job, ctx).await?;
    match now(&board, &spec).await {
        Ok(Summary { complete: true, .. }) => {
            print::line("Nothing to cancel: the job is complete")?;
            return Ok(CommandResult::Done);
        }
        // Nobody need understand a job to cancel it.
        Err(error) => tracing::debug!("{}", error::verdict(&error).line),
        Ok(_) => {}
    }
    board.cancel().await?;
    // Workers remove their own writes that they begin before they see the cancellation.
    let unknown = |error| vec![error::verdict(&error).line];
    for why in remove_unfinished(&board, &spec, ctx).await.unwrap_or_else(unknown) {
        tracing::warn!("Parts of a large file may still be at the destination: {why}");
    }
    print::line("Cancelled: workers stop at their next look at the job")?;
    Ok(CommandResult::Done)
}

/// Removes what was sent of large files that nobody finishes any more; why some of it could not be removed.
async fn remove_unfinished(board: &Board, spec: &JobSpec, ctx: &Context) -> Result<Vec<String>> {
    let view = board.look().await?;
    let records = records(board, spec, &view, &mut BTreeMap::new()).await?;
    // An unreadable record may be of a write.
    let unread = records.values().filter(|record| record.by.is_unread());
    let mut failed: Vec<String> = unread.flat_map(|record| record.outcome.errors.clone()).collect();
    if !records.values().any(has_write) {
        return Ok(failed);
    }
    match line_of(spec, ctx).and_then(|(job_ctx, create)| ends(spec, &job_ctx, &create)) {
        Ok((job, cx)) => {
            let errors = discard_writes(&Sharing::new(job, cx), &records).await;
            failed.extend(errors.iter().map(|error| error::verdict(&error.to_report().into()).line));
        }
        // This machine may know nothing of the destination; workers do.
        Err(error) => failed.push(error::verdict(&error).line),
    }
    Ok(failed)
}

/// The job and the surroundings of the engine, as a command line asks for them that was read again.
fn ends(spec: &JobSpec, job_ctx: &Context, create: &CreateArgs) -> Result<(Job, Cx)> {
    let job = job_from_flags(job_ctx, create)?;
    let (src, dst) = (job_ctx.open(OsStr::new(&spec.src))?, job_ctx.open(OsStr::new(&spec.dst))?);
    let cx = job::cx_about(job_ctx, &job_ctx.open_options(), src, dst, OsStr::new(&spec.dst), spec.filter.clone())?;
    Ok((job, cx))
}

/// How far a job is. Of workers elsewhere one look doesn't tell whether they live.
async fn now(board: &Board, spec: &JobSpec) -> Result<Summary> {
    let view = board.look().await?;
    let summary = summary(spec, &view, &records(board, spec, &view, &mut BTreeMap::new()).await?);
    Ok(Summary { silent: view.signs.keys().filter(|worker| has_ended(worker)).count(), ..summary })
}

async fn open(job: &JobArg, ctx: &Context) -> Result<(Board, JobSpec)> {
    let folder = Folder::new(ctx.open_apart(&job.job)?);
    let spec = folder.spec().await?;
    Ok((Board::new(folder, &spec), spec))
}

fn number(text: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("{text:?} isn't I/N with I below N, such as 0/4 for the first of four");
    let (worker, of) = text.split_once('/').ok_or_else(wrong)?;
    let (worker, of) = (worker.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
    if worker < of { Ok((worker, of)) } else { Err(wrong()) }
}

/// The typed path in a form that means the same on every machine.
fn anywhere(typed: &OsStr) -> Result<String> {
    let wrong = |why: &str| usage(format!("{}: {why}", journal::shown_path(typed)));
    let text = match Spec::parse(typed.as_bytes())?.place {
        Location::Local => std::path::absolute(typed)?.into_os_string(),
        _ => typed.to_owned(),
    };
    if !journal::keep(&["haul".into(), text.clone()]).complete {
        return Err(wrong("it holds a secret, which can't be written into a job: configure a remote on each machine"));
    }
    text.into_string().map_err(|_| wrong("a job can't hold a name that isn't UTF-8"))
}

/// The flags of `create`, for workers to read again.
fn flags_to_keep(ctx: &Context) -> Result<Vec<String>> {
    let kept = journal::keep(&ctx.line);
    if !kept.complete {
        let secret = |word: &&OsString| !journal::keep(&["haul".into(), (*word).clone()]).complete;
        let flag = ctx.line.iter().find(secret).and_then(|word| word.to_str()?.strip_prefix("--")?.split_once('='));
        let flag = flag.map_or("a remote".into(), |(name, _)| format!("--{name}"));
        return Err(usage(format!(
            "{flag} holds a secret, which can't be written into a job: configure a remote on each machine"
        )));
    }
    let words = journal::words(&kept.words).map(OsString::into_string).collect::<Result<Vec<_>, _>>();
    let words = words.map_err(|_| usage("a job can't hold flags that aren't UTF-8"))?;
    let own = |word: &String| ["--at=", "--shards=", "--split-files-from="].iter().any(|own| word.starts_with(own));
    let kept = words.into_iter().take_while(|word| word != "--");
    kept.filter(|word| word.starts_with("--") && !own(word)).map(flag_anywhere).collect()
}

/// Flags that name what `anywhere` takes.
const PLACES: [&str; 3] = ["--backup-dir", "--compare-dest", "--copy-dest"];
/// Flags that name files of the machine.
const FILES: [&str; 4] = ["--ca-cert", "--client-cert", "--client-key", "--config"];

/// A flag with its value, so that it means the same in every worker's directory.
fn flag_anywhere(word: String) -> Result<String> {
    let Some((flag, value)) = word.split_once('=').filter(|(_, value)| !value.is_empty()) else { return Ok(word) };
    // `~/` is each machine's own home.
    if FILES.contains(&flag) && !value.starts_with("~/") {
        let path = std::path::absolute(value)?.into_os_string().into_string();
        return path
            .map(|path| format!("{flag}={path}"))
            .map_err(|_| usage("a job can't hold a name that isn't UTF-8"));
    }
    if PLACES.contains(&flag) { Ok(format!("{flag}={}", anywhere(OsStr::new(value))?)) } else { Ok(word) }
}

/// Refuses what needs one process that sees all of the job.
fn check(job: &Job, ctx: &Context) -> Result<()> {
    let (flags, keep) = (&ctx.flags, &job.attributes.keep);
    let refused = [
        (job.dry_run, "--dry-run"),
        (flags.config.interactive, "--interactive"),
        (job.elsewhere.renamed.is_some(), "--track-renames"),
        (job.deletes.when != DeleteWhen::After, "--delete-before and --delete-during"),
        (job.deletes.max.is_some(), "--max-delete"),
        (job.deletes.max_size.is_some(), "--max-delete-size"),
        (job.deletes.ignore_errors, "--ignore-errors"),
        (job.limits.transfer.is_some(), "--max-transfer"),
        (job.limits.duration.is_some(), "--max-duration"),
        (job.write.publish == Publish::AtEnd, "--delay-updates"),
        (keep.hard_links, "--hard-links"),
        (!flags.copy.name_transform.is_empty(), "--name-transform"),
        (flags.copy.ignore_case_sync, "--ignore-case-sync"),
        (flags.network.bwlimit.as_ref().is_some_and(|table| !table.is_fixed()), "--bwlimit by the time of the day"),
    ];
    match refused.iter().find(|(given, _)| *given) {
        Some((_, flag)) => Err(usage(format!("{flag} can't be shared between workers: use copy or sync for that"))),
        None => Ok(()),
    }
}

/// The job that the flags of `create` ask for.
fn job_from_flags(ctx: &Context, args: &CreateArgs) -> Result<Job> {
    let mut job = flags::job(&ctx.flags)?;
    job.verb = if args.sync { Verb::Sync } else { Verb::Copy };
    job.attributes.keep = flags::keep(&args.keep)?;
    job.dirs.create_empty = args.create_empty_src_dirs || args.keep.archive;
    job::see_destination(&mut job)?;
    check(&job, ctx)?;
    Ok(job)
}

async fn new_job(args: CreateArgs, ctx: &Context) -> Result<CommandResult> {
    let job = job_from_flags(ctx, &args)?;
    let (src, file) = ctx.open_source(&args.ends.source).await?;
    if file.is_some() {
        return Err(usage(format!("{} is one file: use copy for that", journal::shown_path(&args.ends.source))));
    }
    let dst = ctx.open(&args.ends.dest)?;
    // An end that can't be opened is better found here than by a thousand workers.
    let cx = job::cx(ctx, &ctx.open_options(), src.clone(), dst.clone(), &args.ends.dest)?;
    haul::overlap::check(&cx, job.verb)?;
    haul::overlap::check_backup(&cx, &job)?;
    let at = ctx.open_apart(&args.at)?;
    haul::overlap::check_records(&at, &cx, &job)?;
    let limit = ctx.flags.network.bwlimit.as_ref().map(|table| table.now(&Zoned::now())).unwrap_or_default();
    // Its answer tells how far the source's clock is ahead, if it is.
    let made = src.stat(&Key::new("")).await.is_ok().then(|| made(cx.meters.clock().ahead()));
    let caps = dst.caps();
    let spec = JobSpec {
        format: FORMAT,
        haul: env!("CARGO_PKG_VERSION").into(),
        id: name(),
        flags: flags_to_keep(ctx)?,
        src: anywhere(&args.ends.source)?,
        dst: anywhere(&args.ends.dest)?,
        filter: cx.filter.spec().clone(),
        sync: args.sync,
        cuts: Vec::new(),
        fixed: false,
        ends: Seen::default(),
        requests_a_second: ctx.flags.network.tpslimit,
        bytes_a_second: (limit.up, limit.down),
        finish: caps.has_dirs(),
        split_files_from: args.split_files_from.bytes().unwrap_or(0),
        made,
    };
    let folder = Folder::new(at);
    let spec = create(
        &folder,
        spec,
        (&src, &dst),
        args.shards as usize,
        (MACHINE, job.listing.mounts != Mounts::Cross),
        job.deletes.allow_empty_source,
    )
    .await?;
    let at = anywhere(&args.at)?;
    let number = if spec.fixed { " --worker I/N" } else { "" };
    print::line(&format!(
        "Created a job of {} shards: start workers with haul fleet work{number} {at}",
        spec.cuts.len() + 1
    ))?;
    if spec.fixed {
        tracing::warn!(
            "{} keeps no conditions on writes: each worker needs a number, and what a dead one held waits until it is started again",
            folder.locator()
        );
    }
    Ok(CommandResult::Done)
}

/// This one's file systems.
const MACHINE: Machine = Machine {
    below: |place| haul_fs::mounts::below(path(place)),
    lacking: |place, wanted| haul_fs::mounts::lacking(path(place), wanted).into_iter().map(<[u8]>::to_vec).collect(),
    fixed_below: |place| haul_fs::mounts::fixed_below(path(place)),
    shares_inodes: |place| haul_fs::mounts::shares_inodes(path(place)),
    is_read_only: |place| haul_fs::mounts::is_read_only(path(place)),
};

fn path(place: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(place))
}

/// A moment that has not come yet by a clock that is so far ahead: one that is less than two seconds ahead counts as right.
fn made(ahead: Duration) -> i64 {
    Timestamp::now().as_second().saturating_add_unsigned(ahead.as_secs() + 3)
}

/// A name that nobody has had, with what tells later that its process has ended.
fn name() -> String {
    let host: String = machine::host().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(32).collect();
    let place = haul_fs::process::place().unwrap_or_default();
    format!("{host}-{:x}-{place:016x}-{}", Timestamp::now().as_nanosecond(), std::process::id())
}

/// True for a worker of this machine whose process has ended: one that is started in its place needn't wait for its lease to end.
fn has_ended(worker: &WorkerId) -> bool {
    let mut parts = worker.0.rsplit('-');
    let number = parts.next().and_then(|number| number.parse().ok());
    let place = parts.next().and_then(|place| u64::from_str_radix(place, 16).ok());
    place.zip(number).is_some_and(|(place, number)| haul_fs::process::has_ended(place, number))
}

/// The surroundings and arguments of the command line that made the job, read again, with this one's flags after its own.
fn line_of(spec: &JobSpec, ctx: &Context) -> Result<(Context, CreateArgs)> {
    let own = ctx.line.iter().skip(1).take_while(|word| word.as_bytes().starts_with(b"--")).cloned();
    let mut line: Vec<OsString> = vec!["haul".into(), "fleet".into(), "create".into(), "--at=-".into()];
    line.extend(spec.flags.iter().map(OsString::from).chain(own));
    line.extend(["--".into(), OsString::from(&spec.src), OsString::from(&spec.dst)]);
    let wrong = |why: &str| {
        anyhow!(
            "this haul ({}) doesn't understand the job, which haul {} made: {why}",
            env!("CARGO_PKG_VERSION"),
            spec.haul
        )
    };
    match parse(line, Choice::Auto) {
        Ok(Parsed::Run(given)) => {
            let Invocation { cli: Cli { flags, command }, backends, line } = *given;
            match command {
                super::Command::Fleet(Args { what: FleetCommand::Create(args) }) => {
                    Ok((ctx.beside(flags, backends, line)?, args))
                }
                _ => Err(wrong("it holds another command")),
            }
        }
        Ok(Parsed::Said(_)) => Err(wrong("it asks for help")),
        Err(e) => Err(wrong(&e.0)),
    }
}

/// Refuses what a worker can't have for itself: it would do other work than the others.
fn check_own() -> Result<()> {
    // The words as typed: variables may be those with which the job was created.
    let line: Vec<OsString> = std::env::args_os().skip(1).collect();
    let filters = flags::filter::FilterFlags::augment_args(clap::Command::new("filter"));
    let is_filter = |word: &&str| {
        let name = word.split('=').next().unwrap_or(word);
        filters.get_arguments().any(|arg| arg.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long)))
    };
    match line.iter().filter_map(|word| word.to_str()).find(is_filter) {
        Some(word) => {
            let name = word.split('=').next().unwrap_or(word);
            Err(usage(format!("{name} counts for the whole job: give it to haul fleet create")))
        }
        None => Ok(()),
    }
}

async fn work(args: WorkArgs, ctx: &Context) -> Result<CommandResult> {
    let (board, spec) = open(&args.job, ctx).await?;
    if spec.fixed && args.worker.is_none() {
        return Err(usage(
            "the job's store keeps no conditions on writes: each worker needs a number, --worker 0/4 for the first of four",
        ));
    }
    // One limit for all that this worker opens; it follows how many others there are.
    let (own_rate, own_requests) = (ctx.flags.network.bwlimit.is_some(), ctx.flags.network.tpslimit);
    let rate = Arc::new(Rate::new(spec.bytes_a_second.0, spec.bytes_a_second.1));
    if spec.bytes_a_second != (None, None) && !own_rate {
        ctx.session.limit_bandwidth(rate.clone());
    }
    check_own()?;
    let (job_ctx, create) = line_of(&spec, ctx)?;
    let (job, cx) = ends(&spec, &job_ctx, &create)?;
    let (gate, total, bytes) = (ctx.gate.clone(), spec.requests_a_second, spec.bytes_a_second);
    let living = Arc::new(move |living: usize| {
        if total > 0.0 {
            let share = total / living as f64;
            gate.set(if own_requests > 0.0 { share.min(own_requests) } else { share });
        }
        let share = |limit: Option<u64>| limit.map(|limit| (limit / living as u64).max(1));
        rate.set(share(bytes.0), share(bytes.1));
    });
    let lease = lease_of(args.lease);
    let defaults = Settings::default();
    let worker = Worker {
        me: WorkerId(name()),
        board: board.clone(),
        spec,
        job,
        cx,
        settings: Settings {
            interval: lease / defaults.patience,
            shards: args.at_once.into(),
            grace: args.grace.0.unwrap_or_default(),
            number: args.worker,
            ..defaults
        },
        machine: MACHINE,
        stop: ctx.asked_to_stop.clone(),
        living,
        gone: Arc::new(has_ended),
        line: Arc::new(|error| error::verdict(&error.to_report().into()).line),
    };
    let ended = worker.work().await?;
    tracing::info!("{} requests to the job's directory", board.requests());
    match ended {
        WorkerEnd::NothingLeft(summary) => {
            print::line(&text(&summary))?;
            if summary.outcome.error_count > 0 {
                tracing::warn!("There were errors: haul fleet report {} shows them", typed(&args.job));
            }
            Ok(CommandResult::Exit(code::OK))
        }
        WorkerEnd::Stopped => {
            tracing::warn!("Stopped. What this worker held is given back; start it again, or leave the rest to others");
            Ok(CommandResult::Exit(code::INTERRUPTED))
        }
        WorkerEnd::Cancelled => {
            tracing::warn!("The job was cancelled");
            Ok(CommandResult::Exit(code::NO_RETRY))
        }
    }
}

/// A job in one line.
fn text(summary: &Summary) -> String {
    let Summary { shards, done, held, workers, silent, outcome, .. } = summary;
    let state = match (summary.complete, summary.cancelled) {
        (true, _) => "Complete",
        (_, true) => "Cancelled",
        _ => "Running",
    };
    let errors = match outcome.error_count {
        1 => "1 error".into(),
        n => format!("{} errors", count_text(n)),
    };
    let one = if *workers == 1 { "worker" } else { "workers" };
    let silent = if *silent > 0 { format!(" ({silent} silent)") } else { String::new() };
    format!(
        "{state}: {done} of {shards} shards done, {held} leased, {workers} {one}{silent}; {} transferred ({}), {} unchanged, {} deleted, {errors}",
        count_text(outcome.transfers),
        size_text(outcome.bytes),
        count_text(outcome.unchanged),
        count_text(outcome.deletes),
    )
}

/// The next step for a job, if there is one.
fn next_step(summary: &Summary, job: &str) -> Option<String> {
    let Summary { complete, cancelled, workers, silent, .. } = summary;
    let nobody = !complete && !cancelled && workers == silent;
    nobody.then(|| format!("No worker is running: start some with haul fleet work {job}"))
}

fn exit_code(summary: &Summary) -> u8 {
    match summary {
        Summary { complete: false, cancelled: true, .. } => code::NO_RETRY,
        Summary { complete: false, .. } => code::RETRY,
        summary if summary.outcome.error_count > 0 => code::OTHER,
        _ => code::OK,
    }
}

async fn report(args: ReportArgs, ctx: &Context) -> Result<CommandResult> {
    let (board, spec) = open(&args.job, ctx).await?;
    let summary = now(&board, &spec).await?;
    if args.json {
        print::line(&serde_json::to_string(&summary)?)?;
    } else {
        print::line(&text(&summary))?;
        let Summary { outcome, .. } = &summary;
        for error in &outcome.errors {
            print::line(&format!("  {error}"))?;
        }
        let more = outcome.error_count.saturating_sub(outcome.errors.len() as u64);
        if more > 0 {
            print::line(&format!("  … and {} more, in the output of the workers", count_text(more)))?;
        }
        if let Some(step) = next_step(&summary, &typed(&args.job)) {
            print::line(&step)?;
        }
    }
    Ok(CommandResult::Exit(exit_code(&summary)))
}

async fn watch(args: WatchArgs, ctx: &Context) -> Result<CommandResult> {
    let (board, spec) = open(&args.job, ctx).await?;
    let every = args.every.0.unwrap_or_default().max(Duration::from_millis(100));
    let looks = lease_of(args.lease).as_millis().div_ceil(every.as_millis());
    let mut patience = Patience::new(u32::try_from(looks).unwrap_or(u32::MAX));
    let (mut known, mut reported) = (BTreeMap::new(), None);
    loop {
        let view = board.look().await?;
        patience.look(&view.signs, &BTreeSet::new());
        let silent = view.signs.keys().filter(|worker| patience.is_dead(worker) || has_ended(worker)).count();
        let summary = summary(&spec, &view, &records(&board, &spec, &view, &mut known).await?);
        let summary = Summary { silent, ..summary };
        print::line(&text(&summary))?;
        let step = next_step(&summary, &typed(&args.job));
        if let Some(step) = step.as_ref().filter(|_| reported != step) {
            print::line(step)?;
        }
        reported = step;
        if summary.complete || summary.cancelled {
            return Ok(CommandResult::Exit(exit_code(&summary)));
        }
        tokio::time::sleep(every).await;
    }
}

fn lease_of(lease: Span) -> Duration {
    lease.0.filter(|lease| !lease.is_zero()).unwrap_or(Duration::from_secs(60))
}

/// A job's directory as it was typed.
fn typed(job: &JobArg) -> String {
    journal::shown_path(&job.job).to_string()
}
