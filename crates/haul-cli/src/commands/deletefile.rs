//! `deletefile`: one file, whatever the filter says.

use super::{
    deleting::{allowed, delete, refuse_backups},
    listing::{Failures, open_file},
};
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use haul_core::{Error, ErrorKind, Kind};
use std::ffi::OsString;

/// Delete one file
///
/// Ignores the filter, and never deletes a directory.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The file
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    refuse_backups(ctx, "deletefile")?;
    let shown = crate::journal::shown_path(&args.path);
    let missing = || Error::new(ErrorKind::NotFound, "delete", format!("{shown} is a directory or doesn't exist"));
    let (store, Some(key)) = open_file(ctx, &args.path).await? else { return Err(missing().into()) };
    let entry = match store.stat(&key).await {
        Ok(entry) if entry.kind != Kind::Dir => entry,
        Ok(_) => return Err(missing().into()),
        Err(e) if e.is_missing() => return Err(missing().into()),
        Err(e) => return Err(e.into()),
    };
    let mut failures = Failures::default();
    if allowed(ctx, "delete", &key, Some(entry.size)) {
        delete(&store, vec![key], &mut failures).await;
    }
    failures.finish()?;
    Ok(CommandResult::Done)
}
