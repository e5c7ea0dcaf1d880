//! `jobs`: what was cut short, and cleaning up after it.

use super::{
    deleting::allowed,
    resume::{self, find},
};
use crate::{
    context::Context,
    error::{CommandResult, code, of_stores, one_line, usage},
    journal, print,
    show::go_time,
};
use anyhow::{Context as _, Result, anyhow};
use haul::journal::{JobId, JobInfo, Journal, UnfinishedJob, UnfinishedWrite, unfinished};
use haul_core::{Error, ErrorKind, Key, Retry, units::size_text};
use haul_store::{Store, offered};
use jiff::tz::TimeZone;
use std::{ffi::OsStr, path::PathBuf, sync::Arc};

/// List interrupted jobs
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: Option<JobsCommand>,
}

#[derive(clap::Subcommand, Debug)]
enum JobsCommand {
    /// Remove what unfinished jobs left at their destinations, and forget these jobs
    ///
    /// Aborts the uploads that the jobs began, and deletes their hidden partial files; files that arrived stay.
    Clean {
        /// Ids of jobs, or prefixes of ids [default: all jobs]
        #[arg(value_name = "JOB")]
        jobs: Vec<String>,
    },
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let folder = ctx.journals();
    let folder = folder.ok_or_else(|| usage("no directory for journals: set one with --state-dir"))?;
    let (jobs, unreadable) = unfinished(&folder)?;
    for error in &unreadable {
        tracing::error!("{}", error.message());
    }
    let outcome = match args.what {
        None => list(&jobs),
        Some(JobsCommand::Clean { jobs: names }) => clean(folder, &jobs, &names, ctx).await,
    };
    match outcome? {
        CommandResult::Done if !unreadable.is_empty() => Ok(CommandResult::Exit(code::OTHER)),
        outcome => Ok(outcome),
    }
}

fn list(jobs: &[UnfinishedJob]) -> Result<CommandResult> {
    if jobs.is_empty() {
        return Ok(CommandResult::Done);
    }
    print::line(&format!("{:16}  {:19}  {:7}  {:>5}  {:>11}  {}", "ID", "BEGUN", "STATE", "FILES", "SENT", "COMMAND"))?;
    let zone = TimeZone::system();
    for UnfinishedJob { id, job, halves, running, ended } in jobs {
        let state = match (running, ended) {
            (true, _) => "running",
            (_, true) => "stopped",
            _ => "killed",
        };
        let begun = go_time::format(job.begun, go_time::SECONDS, &zone);
        let sent = size_text(halves.iter().map(UnfinishedWrite::bytes).sum());
        let mut command = journal::shown(&job.argv);
        if is_elsewhere(job) {
            command += &format!("  (on {})", one_line(&job.host));
        }
        print::line(&format!("{id}  {begun:19}  {state:7}  {:>5}  {sent:>11}  {command}", halves.len()))?;
    }
    Ok(CommandResult::Done)
}

/// True for a job that another machine ran last, with the same state folder. Not every shared file system tells one machine what
/// another has locked, so it may be running.
fn is_elsewhere(job: &JobInfo) -> bool {
    !job.host.is_empty() && job.host != crate::machine::host()
}

async fn clean(folder: PathBuf, jobs: &[UnfinishedJob], names: &[String], ctx: &Context) -> Result<CommandResult> {
    let chosen = match names {
        [] => {
            let (elsewhere, here): (Vec<_>, Vec<_>) =
                jobs.iter().filter(|job| !job.running).partition(|job| is_elsewhere(&job.job));
            for UnfinishedJob { id, job, .. } in elsewhere {
                let host = one_line(&job.host);
                tracing::warn!(
                    "job {id} is {host}'s and may be running there: run haul jobs clean there, or name the job"
                );
            }
            here
        }
        names => names.iter().map(|name| find(jobs, name)).collect::<Result<Vec<_>>>()?,
    };
    let mut failed = false;
    for UnfinishedJob { id, .. } in chosen {
        let errors = match Journal::find(&folder, id) {
            Ok(Some(journal)) => clean_one(id, journal, !names.is_empty(), ctx).await.unwrap_or_else(|e| vec![e]),
            // It ended meanwhile.
            Ok(None) => Vec::new(),
            Err(error) => vec![error.into()],
        };
        // While another try may do it, the journal is all that knows what was sent.
        let is_final = !errors.iter().any(may_pass);
        for (number, error) in errors.iter().enumerate() {
            let error = one_line(&format!("{error:#}"));
            let job = if error.contains(&id.to_string()) { String::new() } else { format!("job {id}: ") };
            let path = folder.join(format!("{id}.journal"));
            let forget = format!(" (to forget it with what it left, delete {})", path.display());
            let is_last = number + 1 == errors.len();
            tracing::error!("{job}{error}{}", if is_final && is_last { forget.as_str() } else { "" });
            failed = true;
        }
    }
    Ok(if failed { CommandResult::Exit(code::OTHER) } else { CommandResult::Done })
}

/// True when the same may go well later: another haul has the job now, the network or the disk is away.
fn may_pass(error: &anyhow::Error) -> bool {
    of_stores(error).any(|e| e.retry() != Retry::Never)
}

/// Errors: why it could not be begun; given back is what could not be removed.
async fn clean_one(id: &JobId, journal: Journal, is_named: bool, ctx: &Context) -> Result<Vec<anyhow::Error>> {
    let halves = journal.take_rest();
    let mut errors: Vec<anyhow::Error> = Vec::new();
    if !halves.is_empty() {
        let store = destination(id, journal.job(), ctx)?;
        // A disk that isn't mounted now still has what was sent; its mount point may be there, though.
        if store.caps().files && !is_named {
            let away = |error: Error| error.with_retry(Retry::Backoff);
            let root = store.stat(&Key::new("")).await.map_err(away);
            root.context("its destination is missing: mount it, or name the job")?;
        }
        for half in halves {
            errors.extend(remove(&*store, &journal, half, is_named, ctx).await.err().map(Into::into));
        }
    }
    if !ctx.flags.config.dry_run {
        errors.extend(journal.end().await.err().map(Into::into));
    }
    Ok(errors)
}

/// The store of a job's destination, as the job opened it.
///
/// Errors: the job can't be run again; of rsync's jobs, its folder is another machine's.
fn destination(id: &JobId, job: &JobInfo, ctx: &Context) -> Result<Arc<dyn Store>> {
    let given = resume::again(id, job, Vec::new())?;
    let typed = given.cli.command.destination().map(OsStr::to_os_string);
    let there = ctx.beside(given.cli.flags, given.backends, given.line)?;
    let Some(typed) = typed else {
        // One of the words of rsync or dcp may be several jobs: each notes its own folder.
        if job.dst.starts_with('/') {
            return there.open(OsStr::new(&job.dst));
        }
        return Err(anyhow!("what it left lies at another machine: run it again, and it goes on (haul resume {id})"));
    };
    if job.names_file { Ok(there.open_parent(&typed)?.0) } else { there.open(&typed) }
}

async fn remove(
    store: &dyn Store,
    journal: &Journal,
    half: UnfinishedWrite,
    is_named: bool,
    ctx: &Context,
) -> haul_core::Result<()> {
    let key = &half.opened.to;
    if allowed(ctx, "removing what was sent", key, Some(half.bytes())) {
        let gone = offered(store.resumable(), "discard")?.discard(key, &half.opened.token).await?;
        if !gone && store.caps().files && !is_named {
            let message = "its partial file is missing: mount its disk, or name the job";
            return Err(Error::new(ErrorKind::NotFound, "discard", message).with_key(key).with_retry(Retry::Backoff));
        }
        journal.closed(half.write);
        tracing::info!("{key}: Removed what was sent");
    }
    Ok(())
}
