//! `mkdir`: a directory or bucket.

use super::change::allowed_at;
use crate::{context::Context, error::Outcome};
use anyhow::Result;
use haul_core::Key;
use haul_store::WriteSpec;
use std::ffi::OsString;

/// Create a directory or bucket, with those above it
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
    if allowed_at(ctx, "make directory", &args.path) {
        store.make_dir(&root, &WriteSpec::default()).await?;
    }
    Ok(Outcome::Done)
}
