//! `settier`: another storage class for files that are there.

use super::{
    deleting::allowed,
    listing::{Failures, Source, depth},
};
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use haul_core::Entry;
use haul_store::offered;
use std::ffi::OsString;

/// Which class, of which files.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Storage class, as the service calls it: STANDARD_IA, GLACIER; Hot, Cool, Archive
    #[arg(value_name = "TIER")]
    tier: String,
    /// A file, or a directory: all files in it that pass the filter are changed
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let source = Source::open(ctx, &args.path).await?;
    let admin = offered(source.store.admin(), "set the storage class")?;
    let entries = source.entries(ListOptions { max_depth: depth(&ctx.flags, true), ..Default::default() });
    let tier = args.tier.as_str();
    let set = entries.map(|entry| async move {
        let entry: Entry = entry?;
        if allowed(ctx, "setting the storage class", &entry.key, Some(entry.size)) {
            admin.set_tier(&entry.key, tier).await.map_err(|e| e.with_key(&entry.key))?;
            tracing::info!("{}: Storage class is now {tier}", entry.key);
        }
        Ok(())
    });
    let mut set = set.buffered(ctx.flags.pace.transfers.unwrap_or(source.checkers).max(1)).boxed_local();
    let mut failures = Failures::default();
    while let Some(answer) = set.next().await {
        failures.keep(answer);
    }
    failures.finish()?;
    Ok(CommandResult::Done)
}
