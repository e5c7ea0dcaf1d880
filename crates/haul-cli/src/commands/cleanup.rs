//! `cleanup`: what unfinished uploads left behind; of a Drive, what is in its trash.

use super::deleting::allowed_at;
use crate::{
    context::Context,
    error::{CommandResult, verdict},
};
use anyhow::Result;
use haul_core::{ErrorKind, Key};
use haul_store::{Admin, Cleanup, UnfinishedWrites, offered};
use std::{ffi::OsString, time::Duration};

/// Uploads younger than this may still be going on.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// Remove uploads that were begun more than a day ago and never finished; empty the trash of Google Drive
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let store = ctx.open(&args.path)?;
    let dry_run = ctx.flags.config.dry_run;
    let admin = offered(store.admin(), "clean up")?;
    if ctx.flags.config.interactive && !dry_run {
        // Stores remove all that they find: so that is asked about.
        let there = remove(admin, true).await?;
        let keys = there.keys();
        keys.iter().for_each(|key| tracing::warn!("{key}: would be removed"));
        if keys.is_empty() || !allowed_at(ctx, &format!("remove {} from", keys.len()), &args.path) {
            return Ok(CommandResult::Done);
        }
    }
    let UnfinishedWrites { found, mut failed } = match remove(admin, dry_run).await? {
        Leftovers::Trash(keys) => return tell_emptied(&keys, dry_run),
        Leftovers::Uploads(unfinished) => unfinished,
    };
    for (key, _) in &found {
        match dry_run {
            true => tracing::warn!("{key}: Skipped removing pending upload as --dry-run is set"),
            false => tracing::info!("{key}: Removed pending upload"),
        }
    }
    // One of them gives the exit code.
    let last = failed.pop();
    failed.into_iter().for_each(|error| tracing::error!("{}", verdict(&error.into()).line));
    last.map_or(Ok(CommandResult::Done), |error| Err(error.into()))
}

/// Leftovers to remove, or removed.
enum Leftovers {
    Uploads(UnfinishedWrites),
    Trash(Vec<Key>),
}

impl Leftovers {
    fn keys(&self) -> Vec<&Key> {
        match self {
            Leftovers::Uploads(UnfinishedWrites { found, .. }) => found.iter().map(|(key, _)| key).collect(),
            Leftovers::Trash(keys) => keys.iter().collect(),
        }
    }
}

async fn remove(admin: &dyn Admin, dry_run: bool) -> Result<Leftovers> {
    let what = Cleanup { older_than: AGE, dry_run, below: Key::new("") };
    match admin.cleanup(what).await {
        // A service that removes them by itself has its trash to be emptied, if any.
        Err(error) if error.kind() == ErrorKind::Unsupported => match admin.empty_trash(dry_run).await {
            Err(none) if none.kind() == ErrorKind::Unsupported => Err(error.into()),
            emptied => Ok(Leftovers::Trash(emptied?)),
        },
        unfinished => Ok(Leftovers::Uploads(unfinished?)),
    }
}

fn tell_emptied(found: &[Key], dry_run: bool) -> Result<CommandResult> {
    for key in found {
        match dry_run {
            true => tracing::warn!("{key}: Skipped removing it from the trash as --dry-run is set"),
            false => tracing::info!("{key}: Removed from the trash"),
        }
    }
    Ok(CommandResult::Done)
}
