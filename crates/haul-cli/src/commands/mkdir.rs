//! `mkdir`: a directory or bucket.

use super::deleting::allowed_at;
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use haul_core::Key;
use haul_store::{Domain, Store, WriteSpec};
use std::ffi::OsString;

/// Create a directory or bucket, with those above it
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let store = ctx.open(&args.path)?;
    let root = Key::new("");
    if allowed_at(ctx, "make directory", &args.path) {
        store.make_dir(&root, &WriteSpec::default()).await?;
        // Some accounts have directories of their own, which only they can tell.
        if !has_empty_dirs(&*store) && store.stat(&root).await.is_err() {
            tracing::warn!(
                "{}: this store keeps no empty directories: a directory is there once a file is in it",
                store.locator()
            );
        }
    }
    Ok(CommandResult::Done)
}

/// False for what is below a bucket, where no markers stand for directories.
fn has_empty_dirs(store: &dyn Store) -> bool {
    let caps = store.caps();
    let domain = caps.domain.as_ref().filter(|domain| Domain::place_within(&domain.place).is_none());
    let below = domain.is_some_and(|domain| {
        // The bucket, a slash, the prefix.
        domain.place.iter().position(|byte| *byte == b'/').is_some_and(|at| at + 1 < domain.place.len())
    });
    caps.keeps_empty_dirs || !below
}
