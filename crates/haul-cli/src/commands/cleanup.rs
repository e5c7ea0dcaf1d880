//! `cleanup`: what unfinished uploads left behind; of a Drive, what is in its trash.

use crate::{
    context::Context,
    error::{Outcome, verdict},
};
use anyhow::{Result, bail};
use haul_store::{Answer, Extra};
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
    let asked = Extra::Cleanup { older_than: AGE, dry_run, below: haul_core::Key::new("") };
    let (found, mut failed) = match store.extra(asked).await? {
        Answer::Unfinished { found, failed } => (found, failed),
        Answer::Trash(found) => {
            for key in &found {
                match dry_run {
                    true => tracing::warn!("{key}: Skipped removing it from the trash as --dry-run is set"),
                    false => tracing::info!("{key}: Removed from the trash"),
                }
            }
            return Ok(Outcome::Done);
        }
        _ => bail!("{}: the store answered something else than its unfinished uploads", store.locator()),
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
