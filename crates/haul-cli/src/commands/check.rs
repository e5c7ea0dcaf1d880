//! `check`: compares two sides and says of each file where it stands; changes nothing.

use super::{
    events::{EventFlags, Events},
    file_lists::{Lists, Writers},
    hash_sums,
    job::{JobPaths, cx, rename},
};
use crate::{
    context::Context,
    error::{CommandResult, code, usage},
    flags,
    show::out::quiet,
};
use anyhow::{Context as _, Result, bail};
use haul::check::{CheckOptions, CheckReport, CheckResult, Checked, Content, check};
use haul_core::{
    Algo,
    compare::Reason,
    event::Event,
    filter::{Filter, FilterSpec},
};
use std::sync::Arc;

/// Arguments of `check`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    ends: JobPaths,
    /// Read SOURCE as a file of hashes of this type, such as md5, and check DEST against it
    #[arg(long, short = 'C', value_name = "HASH", conflicts_with = "events")]
    checkfile: Option<String>,
    /// Compare the content by reading both sides instead of comparing hashes
    #[arg(long)]
    download: bool,
    /// Ignore files that exist only at the destination
    #[arg(long)]
    one_way: bool,
    #[command(flatten)]
    events: EventFlags,
    #[command(flatten)]
    lists: Lists,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    if let Some(hash) = &args.checkfile {
        let algo: Algo = hash.parse().map_err(usage)?;
        let how = hash_sums::SumsOptions { download: args.download, one_way: args.one_way, lists: Some(&args.lists) };
        return quiet(hash_sums::check(algo, &args.ends.dest, &args.ends.source, how, ctx).await);
    }
    let content = if args.download { Content::Bytes } else { Content::Hashes };
    compare(&args.ends, (&args.lists, &args.events), CheckOptions { content, one_way: args.one_way }, ctx).await
}

/// Compares two ends, writes lists and events and says what was found.
pub async fn compare(
    ends: &JobPaths,
    (lists, events): (&Lists, &EventFlags),
    options: CheckOptions,
    ctx: &Context,
) -> Result<CommandResult> {
    let (mut src, file) = ctx.open_source(&ends.source).await?;
    let mut dst = ctx.open(&ends.dest)?;
    let sealed = options.content == Content::Sealed;
    if sealed && dst.encrypted().is_none() {
        bail!(
            "{} isn't an encrypted remote: cryptcheck takes the plain files first, then the encrypted ones",
            dst.locator()
        );
    }
    let job = flags::job(&ctx.flags)?;
    let mut cx = cx(ctx, &ctx.open_options(), src.clone(), dst.clone(), &ends.dest)?;
    if let Some(key) = file {
        // One file is compared with its namesake in the destination.
        (src, dst) = (cx.src.clone(), cx.dst.clone());
        let spec = FilterSpec { files_from: Some(vec![key.stored().to_vec()]), ..FilterSpec::default() };
        cx.filter = Arc::new(Filter::new(spec).map_err(crate::error::usage)?);
    } else {
        rename(ctx, &job, &mut cx).await?;
    }
    let mut out = Writers::open(lists)?;
    let events = Events::open(events, &mut cx.sink)?;
    let names = (src.locator().to_owned(), dst.locator().to_owned());
    let mut failed = None;
    let mut each = |checked: &Checked| {
        tell(checked, &names, sealed);
        if let Some((events, event)) = events.as_ref().zip(event(checked)) {
            events.write(&event);
        }
        if let Err(error) = out.write(checked.found, &checked.key) {
            failed.get_or_insert(error);
        }
    };
    let report = check(&job, &cx, options, &mut each).await;
    out.finish()?;
    events.map_or(Ok(()), |events| events.finish())?;
    if let Some(error) = failed {
        return Err(error).context("can't write the list of files");
    }
    if sealed && report.unhashed > 0 && report.unhashed >= report.matches {
        let dst = &names.1;
        tracing::error!(
            "{dst}: no hash of an encrypted file could be had, so nothing is proved: use haul check --download"
        );
        conclude(&report, dst);
        return Ok(CommandResult::Exit(code::OTHER));
    }
    let outcome = conclude(&report, &names.1);
    if sealed && report.unhashed > 0 {
        tracing::warn!(
            "{}: {} files match by size alone, which proves nothing of their content (-v names them): use haul check --download",
            names.1,
            report.unhashed
        );
    }
    Ok(outcome)
}

/// The result as the decision of a job that is only planned.
fn event(checked: &Checked) -> Option<Event> {
    match (&checked.step, &checked.error) {
        (Some(step), _) => Event::decided(step, true),
        (None, error) => error.clone().map(Event::Error),
    }
}

/// One line for each file that isn't the same.
fn tell(checked: &Checked, names: &(String, String), sealed: bool) {
    let key = &checked.key;
    match (checked.found, checked.step.as_ref().map(|step| step.why)) {
        (CheckResult::Same, Some(Reason::Hash(algo))) => tracing::debug!(%key, "OK: same {algo}"),
        (CheckResult::Same, _) if sealed => {
            tracing::info!(%key, "same size, not proved: there is no hash of the encrypted file")
        }
        (CheckResult::Same, _) => tracing::debug!(%key, "OK: same size"),
        (CheckResult::Differs, Some(Reason::Hash(algo))) => tracing::error!(%key, "{algo} differ"),
        (CheckResult::Differs, Some(Reason::Damaged)) => tracing::error!(%key, "damaged, can't be compared"),
        (CheckResult::Differs, _) => tracing::error!(%key, "sizes differ"),
        (CheckResult::MissingAtDst, _) => tracing::error!(%key, "file not in {}", names.1),
        (CheckResult::MissingAtSrc, _) => tracing::error!(%key, "file not in {}", names.0),
        (CheckResult::Error, _) => {
            let why = checked.error.as_ref().map(|e| e.message().to_owned()).unwrap_or_default();
            tracing::error!(%key, "could not be compared: {why}");
        }
    }
}

/// The counts at the end, and the exit code.
fn conclude(report: &CheckReport, dst: &str) -> CommandResult {
    if report.missing_at_dst > 0 {
        tracing::warn!("{dst}: {} files missing", report.missing_at_dst);
    }
    if report.missing_at_src > 0 {
        tracing::warn!("{dst}: {} files not in the source", report.missing_at_src);
    }
    tracing::warn!("{dst}: {} differences found", report.differences);
    if report.unhashed > 0 {
        tracing::warn!("{dst}: {} hashes could not be checked", report.unhashed);
    }
    if report.matches > 0 {
        tracing::warn!("{dst}: {} matching files", report.matches);
    }
    if report.errors.is_empty() && report.differences == 0 {
        return CommandResult::Done;
    }
    if !report.errors.is_empty() {
        tracing::warn!("{dst}: {} errors while checking", report.errors.len());
    }
    let dir_lost = report.errors.iter().any(|e| e.kind() == haul_core::ErrorKind::DirNotFound);
    CommandResult::Exit(if dir_lost { code::DIR_NOT_FOUND } else { code::OTHER })
}
