//! `delete`: the files of a path that the filter wants.

use super::{
    deleting::{BATCH, MaxDelete, allowed, check_still, delete_listed, refuse_backups},
    listing::{Failures, Source, depth},
    rmdirs,
};
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

/// A file is deleted so long after it was listed at most, if others follow: not every store can tell that it has changed meanwhile.
const WAITS: Duration = Duration::from_secs(2);

/// Delete the files in a path
///
/// Deletes files that pass the filter, and keeps directories. To delete a path and everything in it, use purge.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Also delete directories that are then empty, but not the path itself
    #[arg(long)]
    rmdirs: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    refuse_backups(ctx, "delete")?;
    let source = Source::open(ctx, &args.path).await?;
    let mut entries = source.entries(ListOptions { max_depth: depth(&ctx.flags, true), ..Default::default() });
    let (mut batch, mut failures) = (Vec::new(), Failures::default());
    if let Some(mut max) = MaxDelete::of(ctx) {
        // Before the first goes it must be known that not too many go.
        let mut all = Vec::new();
        while let Some(entry) = entries.next().await {
            let entry = entry?;
            max.add(entry.size)?;
            all.push(entry);
        }
        entries = futures::stream::iter(all).map(Ok).boxed();
    }
    // The store would delete whatever has the name by then.
    let each_at_once = ctx.flags.config.interactive && !source.store.caps().deletes_version;
    let mut sent = Instant::now();
    while let Some(entry) = entries.next().await {
        let Some(entry) = failures.keep(entry) else { continue };
        if !allowed(ctx, "delete", &entry.key, Some(entry.size)) {
            continue;
        }
        if each_at_once {
            // This prompt may have been open for long, and so may the next.
            if failures.keep(check_still("delete", &source.store, &entry).await).is_some() {
                delete_listed(&source.store, vec![entry], &mut failures).await;
            }
            continue;
        }
        batch.push(entry);
        if batch.len() >= BATCH || sent.elapsed() > WAITS {
            delete_listed(&source.store, std::mem::take(&mut batch), &mut failures).await;
            sent = Instant::now();
        }
    }
    delete_listed(&source.store, batch, &mut failures).await;
    failures.finish()?;
    // Where directories are parts of keys they went with the files.
    if args.rmdirs && source.store.caps().has_dirs() {
        return rmdirs::remove(ctx, &source, true).await;
    }
    Ok(CommandResult::Done)
}
