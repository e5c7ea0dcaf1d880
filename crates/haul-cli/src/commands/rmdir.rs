//! `rmdir`: one empty directory or bucket.

use super::{
    deleting::{allowed_at, delete},
    listing::Failures,
};
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use futures::StreamExt as _;
use haul_core::{Error, ErrorKind, Key, Listed};
use haul_store::{ListRequest, Store};
use std::{ffi::OsString, sync::Arc};

/// Delete an empty directory or bucket
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
}

/// Where a directory is a part of keys, or an object that stands for one, the store deletes that whatever else has its name before it.
///
/// Errors: `Exists` when something is in it; it can't be listed.
async fn check_empty(store: &Arc<dyn Store>) -> Result<()> {
    let mut listing = store.list(ListRequest::all());
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) if entries.iter().any(|entry| !entry.key.is_root()) => {
                let why = "is not empty: purge deletes a directory with all that is in it";
                return Err(Error::new(ErrorKind::Exists, "delete", format!("{} {why}", store.locator())).into());
            }
            Listed::Failed { error, .. } => return Err(error.into()),
            Listed::Batch(_) | Listed::Vanished(_) | Listed::End => {}
        }
    }
    Ok(())
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let store = ctx.open(&args.path)?;
    let root = Key::new("");
    // Deleting what isn't there succeeds, but whoever names a directory wants to know that it isn't.
    store.stat(&root).await?;
    if !store.caps().dirs {
        check_empty(&store).await?;
    }
    let mut failures = Failures::default();
    if allowed_at(ctx, "remove directory", &args.path) {
        delete(&store, vec![root], &mut failures).await;
    }
    failures.finish()?;
    Ok(CommandResult::Done)
}
