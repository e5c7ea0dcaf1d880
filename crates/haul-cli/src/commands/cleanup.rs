//! `cleanup`: what unfinished uploads left behind; of a Drive, what is in its trash.

use crate::{
    context::Context,
    error::{Outcome, verdict},
};
use anyhow::Result;
use haul_core::{ErrorKind, Key};
use haul_store::{Cleanup, Unfinished, offered};
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
    let what = Cleanup { older_than: AGE, dry_run, below: Key::new("") };
    let admin = offered(store.admin(), "clean up")?;
    let Unfinished { found, mut failed } = match admin.cleanup(what).await {
        // A service that removes them by itself has its trash to be emptied, if any.
        Err(error) if error.kind() == ErrorKind::Unsupported => match admin.empty_trash(dry_run).await {
            Err(none) if none.kind() == ErrorKind::Unsupported => return Err(error.into()),
            emptied => return tell_emptied(&emptied?, dry_run),
        },
        unfinished => unfinished?,
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

fn tell_emptied(found: &[Key], dry_run: bool) -> Result<Outcome> {
    for key in found {
        match dry_run {
            true => tracing::warn!("{key}: Skipped removing it from the trash as --dry-run is set"),
            false => tracing::info!("{key}: Removed from the trash"),
        }
    }
    Ok(Outcome::Done)
}
