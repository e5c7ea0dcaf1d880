//! `rmdir`: one empty directory or bucket.

use super::{
    change::{allowed_at, delete},
    listing::Failures,
};
use crate::{context::Context, error::Outcome};
use anyhow::Result;
use haul_core::Key;
use std::ffi::OsString;

/// Delete an empty directory or bucket
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<Outcome> {
    let store = ctx.open(&args.path)?;
    let root = Key::new("");
    // Deleting what isn't there succeeds, but whoever names a directory wants to know that it isn't.
    store.stat(&root).await?;
    let mut failures = Failures::default();
    if allowed_at(ctx, "remove directory", &args.path) {
        delete(&store, vec![root], &mut failures).await;
    }
    failures.finish()?;
    Ok(Outcome::Done)
}
