//! `cleanup`: what unfinished uploads left behind; of a Drive, what is in its trash.

use super::change::allowed_at;
use crate::{
    context::Context,
    error::{Outcome, verdict},
};
use anyhow::Result;
use haul_core::{ErrorKind, Key};
use haul_store::{Admin, Cleanup, Unfinished, offered};
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
pub async fn run(args: Args, ctx: &Context) -> Result<Outcome> {
    let store = ctx.open(&args.path)?;
    let dry_run = ctx.flags.config.dry_run;
    let admin = offered(store.admin(), "clean up")?;
    if ctx.flags.config.interactive && !dry_run {
        // Stores remove all that they find: so that is asked about.
        let there = remove(admin, true).await?;
        let keys = there.keys();
        keys.iter().for_each(|key| tracing::warn!("{key}: would be removed"));
        if keys.is_empty() || !allowed_at(ctx, &format!("remove {} from", keys.len()), &args.path) {
            return Ok(Outcome::Done);
        }
    }
    let Unfinished { found, mut failed } = match remove(admin, dry_run).await? {
        There::Trash(keys) => return tell_emptied(&keys, dry_run),
        There::Uploads(unfinished) => unfinished,
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
    last.map_or(Ok(Outcome::Done), |error| Err(error.into()))
}

/// Leftovers to remove, or removed.
enum There {
    Uploads(Unfinished),
    Trash(Vec<Key>),
}

impl There {
    fn keys(&self) -> Vec<&Key> {
        match self {
            There::Uploads(Unfinished { found, .. }) => found.iter().map(|(key, _)| key).collect(),
            There::Trash(keys) => keys.iter().collect(),
        }
    }
}

async fn remove(admin: &dyn Admin, dry_run: bool) -> Result<There> {
    let what = Cleanup { older_than: AGE, dry_run, below: Key::new("") };
    match admin.cleanup(what).await {
        // A service that removes them by itself has its trash to be emptied, if any.
        Err(error) if error.kind() == ErrorKind::Unsupported => match admin.empty_trash(dry_run).await {
            Err(none) if none.kind() == ErrorKind::Unsupported => Err(error.into()),
            emptied => Ok(There::Trash(emptied?)),
        },
        unfinished => Ok(There::Uploads(unfinished?)),
    }
}

fn tell_emptied(found: &[Key], dry_run: bool) -> Result<Outcome> {
    for key in found {
        match dry_run {
            true => tracing::warn!("{key}: Skipped removing it from the trash as --dry-run is set"),
            false => tracing::info!("{key}: Removed from the trash"),
        }
    }
    Ok(Outcome::Done)
}
