//! `delete`: the files of a path that the filter wants.

use super::{
    change::{BATCH, allowed, delete},
    listing::{Failures, Source, depth},
    rmdirs,
};
use crate::{context::Context, error::Outcome};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use std::ffi::OsString;

/// Delete the files in a path
///
/// Keeps to the filter and leaves directories. To delete a path with all that is in it, use purge.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Then delete directories that are empty, but not the path itself
    #[arg(long)]
    rmdirs: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<Outcome> {
    let source = Source::open(ctx, &args.path).await?;
    let mut entries = source.entries(ListOptions { max_depth: depth(&ctx.flags, true), ..Default::default() });
    let (mut batch, mut failures) = (Vec::new(), Failures::default());
    while let Some(entry) = entries.next().await {
        let Some(entry) = failures.keep(entry) else { continue };
        if !allowed(ctx, "delete", &entry.key, Some(entry.size)) {
            continue;
        }
        batch.push(entry.key);
        if batch.len() >= BATCH {
            delete(&source.store, std::mem::take(&mut batch), &mut failures).await;
        }
    }
    delete(&source.store, batch, &mut failures).await;
    failures.finish()?;
    if args.rmdirs {
        return rmdirs::remove(ctx, &source, true).await;
    }
    Ok(Outcome::Done)
}
