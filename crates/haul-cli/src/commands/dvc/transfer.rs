//! `dvc push`, `dvc fetch` and `dvc pull`: what is to be moved is found out here, the engine moves it.

use super::{Opened, RevisionArgs, TargetArgs, TransferArgs, ask_ahead, by_remote, checkout, files, open, open_remote};
use crate::{
    commands::job,
    context::Context,
    error::{CommandResult, usage},
    flags,
};
use anyhow::Result;
use haul::{Cx, Report};
use haul_cas::{
    address::Address,
    remote::{Proof, look},
    transfer,
    wanted::WantedContent,
};
use haul_core::{
    Error, ErrorKind, Key,
    event::{Event, Sink as _},
    job::{Job, Verb},
};
use haul_dvc::{config::Remote, history::promised, repo::SelectedPath, wanted::content_of};
use haul_store::{Store, disk};
use std::sync::Arc;

/// Arguments of `dvc push`.
#[derive(clap::Args, Debug)]
pub struct PushArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    which: RevisionArgs,
    #[command(flatten)]
    place: TransferArgs,
    /// Look for every file on the remote, without trusting the lists of directories
    #[arg(long)]
    verify: bool,
}

/// Arguments of `dvc fetch`.
#[derive(clap::Args, Debug)]
pub struct FetchArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    which: RevisionArgs,
    #[command(flatten)]
    place: TransferArgs,
}

/// Arguments of `dvc pull`.
#[derive(clap::Args, Debug)]
pub struct PullArgs {
    #[command(flatten)]
    fetch: FetchArgs,
    #[command(flatten)]
    how: checkout::CheckoutArgs,
}

/// Runs `push`.
pub async fn push(args: PushArgs, ctx: &Context) -> Result<CommandResult> {
    let mut opened = open(ctx)?;
    opened.check_named(args.place.remote.as_deref())?;
    opened.add_revisions(args.which).await?;
    let chosen: Vec<_> = opened.choose(&args.targets)?.into_iter().filter(|c| c.tracked.out.push).collect();
    let mut report = Report::default();
    for (remote, chosen) in by_remote(chosen, args.place.remote.as_deref()) {
        let remote = opened.remote(remote.as_deref())?;
        let (cache, there) = (cache(&opened, ctx)?, open_remote(ctx, &remote)?);
        let (mut cx, job) = surroundings(ctx, cache, there, &args.place, &remote)?;
        cx.journal = job::journal(ctx, Verb::Copy, &cx, None, false)?;
        let proof = if args.verify { Proof::Full } else { Proof::Sampled };
        let ((ahead, earlier), wanted) = futures::try_join!(
            ask_ahead(ctx, &opened.repo, &cx.dst, &chosen, proof),
            content_of(&opened.repo, &chosen)
        )?;
        let found = look(&cx.dst, &wanted, promised(&opened.repo, earlier), proof, ahead).await?;
        if !found.lost.is_empty() {
            tracing::warn!(
                "{} missing from the remote although the directory was pushed; sending again",
                files(found.lost.len() as u64)
            );
        }
        let brought = transfer::push(&cx, &job, &wanted, &found).await?;
        for address in &brought.missing {
            let why = "neither the cache nor the remote has its content";
            missing(ctx, &mut report, &wanted.name(address), why, args.which.revisions().any());
        }
        report.add(brought.report);
    }
    let sent = report.totals.transfers;
    say(ctx, &report, &[(sent, "pushed")])?;
    Ok(CommandResult::Job(Box::new(report)))
}

/// Runs `fetch`.
pub async fn fetch(args: FetchArgs, ctx: &Context) -> Result<CommandResult> {
    let mut opened = open(ctx)?;
    let _lock = opened.lock().await?;
    let report = fetch_all(&args, &mut opened, ctx).await?.1;
    say(ctx, &report, &[(report.totals.transfers, "fetched")])?;
    Ok(CommandResult::Job(Box::new(report)))
}

/// Runs `pull`.
pub async fn pull(args: PullArgs, ctx: &Context) -> Result<CommandResult> {
    if ctx.flags.config.dry_run {
        return Err(usage("haul dvc pull has no --dry-run: haul dvc fetch --dry-run shows what would come"));
    }
    let mut opened = open(ctx)?;
    let _lock = opened.lock().await?;
    let (chosen, mut report) = fetch_all(&args.fetch, &mut opened, ctx).await?;
    if report.stopped.is_some() {
        return Ok(CommandResult::Job(Box::new(report)));
    }
    let done = checkout::all(&opened, &chosen, args.how, false).await?;
    checkout::show(&opened, &done, ctx)?;
    // Content that couldn't be transferred isn't reported again as missing.
    let was_ok = report.is_ok();
    for error in done.failed {
        let follows = !was_ok && error.kind() == ErrorKind::NotFound;
        if !follows && !args.how.forgives(&error) {
            count(ctx, &mut report, error);
        }
    }
    let (added, modified, deleted) = done.files;
    let counts = [(report.totals.transfers, "fetched"), (modified, "modified"), (added, "added"), (deleted, "deleted")];
    say(ctx, &report, &counts)?;
    Ok(CommandResult::Job(Box::new(report)))
}

/// Brings what the cache lacks; gives what was chosen of the workspace, and what came of it.
async fn fetch_all(args: &FetchArgs, opened: &mut Opened, ctx: &Context) -> Result<(Vec<SelectedPath>, Report)> {
    opened.check_named(args.place.remote.as_deref())?;
    // Only the workspace's own is checked out.
    let own = opened.choose(&args.targets);
    opened.add_revisions(args.which).await?;
    let chosen = opened.choose(&args.targets)?;
    let own = own.unwrap_or_default();
    let mut report = Report::default();
    for (remote, chosen) in by_remote(chosen, args.place.remote.as_deref()) {
        // Content in the cache needs no remote.
        let wanted = content_of(&opened.repo, &chosen).await?;
        let mut lacking = lacking(opened, &wanted).await?;
        if lacking.is_empty() {
            continue;
        }
        let remote = opened.remote(remote.as_deref())?;
        let (cache, there) = (cache(opened, ctx)?, open_remote(ctx, &remote)?);
        let (mut cx, job) = surroundings(ctx, there, cache, &args.place, &remote)?;
        let lists: Vec<Address> =
            wanted.dirs.iter().map(|dir| dir.address).filter(|a| lacking_has(&lacking, a, &wanted)).collect();
        let mut wanted = wanted;
        if !lists.is_empty() {
            let first = Cx { journal: None, ..cx.clone() };
            // The lists tell what else there is, so a dry run reads them too.
            let real = job.clone().with(|job| job.dry_run = false);
            let brought = transfer::fetch(&first, &real, lists).await?;
            tell_missing(ctx, &mut report, &wanted, &brought.missing, args);
            report.add(brought.report);
            wanted = content_of(&opened.repo, &chosen).await?;
            lacking = self::lacking(opened, &wanted).await?;
            lacking.retain(|address| !address.dir);
        }
        cx.journal = job::journal(ctx, Verb::Copy, &cx, None, false)?;
        let kept = if job.dry_run { Vec::new() } else { opened.repo.cache.keep_wrong()? };
        let brought = transfer::fetch(&cx, &job, lacking).await;
        opened.repo.cache.tell_kept(kept);
        let brought = brought?;
        tell_missing(ctx, &mut report, &wanted, &brought.missing, args);
        report.add(brought.report);
    }
    Ok((own, report))
}

fn lacking_has(lacking: &[Address], list: &Address, wanted: &WantedContent) -> bool {
    // The list of a directory of which only a part is wanted isn't among what is wanted, but says what that is.
    lacking.contains(list) || wanted.dirs.iter().any(|dir| dir.address == *list && dir.children.is_none())
}

fn tell_missing(ctx: &Context, report: &mut Report, wanted: &WantedContent, addresses: &[Address], args: &FetchArgs) {
    for address in addresses {
        let why = "the remote doesn't have its content";
        missing(ctx, report, &wanted.name(address), why, args.which.revisions().any());
    }
}

/// Content missing from the cache.
async fn lacking(opened: &Opened, wanted: &WantedContent) -> Result<Vec<Address>> {
    let mut all: Vec<Address> = wanted.all().to_vec();
    all.extend(wanted.dirs.iter().filter(|dir| dir.part && dir.children.is_none()).map(|dir| dir.address));
    let mut lacking = Vec::new();
    for (address, held) in opened.repo.held(all).await? {
        let size = wanted.size(&address).filter(|size| held.is_some_and(|held| held != *size));
        let held = match size {
            None => held,
            // Cut off, though it has the mark of what is whole.
            Some(size) => {
                let cache = opened.repo.cache.clone();
                disk::run(move || cache.holds_whole(&address, Some(size))).await?
            }
        };
        lacking.extend(held.is_none().then_some(address));
    }
    Ok(lacking)
}

fn cache(opened: &Opened, ctx: &Context) -> Result<Arc<dyn Store>> {
    ctx.open(opened.repo.cache.root.as_os_str())
}

/// The surroundings and rules of a job between cache and remote.
fn surroundings(
    ctx: &Context,
    src: Arc<dyn Store>,
    dst: Arc<dyn Store>,
    place: &TransferArgs,
    remote: &Remote,
) -> Result<(Cx, Job)> {
    let mut job = flags::job(&ctx.flags)?;
    if let Some(jobs) = place.jobs.or(remote.jobs).filter(|jobs| *jobs > 0) {
        job.pace.transfers = job.pace.transfers.or(Some(jobs));
        job.pace.checkers = job.pace.checkers.or(Some(jobs));
    }
    let cx = Cx {
        src,
        dst,
        backup: None,
        compare_dest: Vec::new(),
        copy_dest: Vec::new(),
        filter: Arc::default(),
        sink: ctx.progress.clone(),
        meters: ctx.meters.clone(),
        cancel: ctx.cancel.clone(),
        confirm: None,
        journal: None,
        known: ctx.known_content(),
    };
    Ok((cx, job))
}

/// Content that isn't anywhere: an error of what is in the workspace, a warning when it may be of an old commit.
fn missing(ctx: &Context, report: &mut Report, name: &str, why: &str, old: bool) {
    if old {
        tracing::warn!("{name}: {why}");
        return;
    }
    count(ctx, report, Error::new(ErrorKind::NotFound, "transfer", why).with_key(&Key::new(name)));
}

fn count(ctx: &Context, report: &mut Report, error: Error) {
    let error = Arc::new(error);
    ctx.progress.emit(&Event::Error(error.clone()));
    report.error(error);
}

/// The last line, as dvc has it.
fn say(ctx: &Context, report: &Report, counts: &[(u64, &str)]) -> Result<()> {
    // The summary of a dry run says what would be done.
    if ctx.flags.log.quiet || ctx.flags.config.dry_run || !report.is_ok() {
        return Ok(());
    }
    let words: Vec<String> =
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{} {word}", files(*n))).collect();
    ctx.screen.print(&match words.split_last() {
        None => "Everything is up to date.".to_string(),
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
    })
}
