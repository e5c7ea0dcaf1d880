//! `link`: a public link to a file.

use super::listing::open_file;
use crate::{
    context::Context,
    error::{CommandResult, usage},
    flags::values::{Span, span},
    show::out::{Output, quiet},
};
use anyhow::Result;
use haul_core::Key;
use haul_store::offered;
use std::{ffi::OsString, time::Duration};

/// How long a link lasts by default: the longest that signed S3 links may.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Print a public link to a file
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The file
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// How long the link is valid [default: as long as the store allows, at most 1w]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    expire: Option<Span>,
    /// Revoke the link
    #[arg(long)]
    unlink: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(link(args, ctx).await)
}

async fn link(args: Args, ctx: &Context) -> Result<CommandResult> {
    if args.unlink {
        return Err(usage("--unlink: the links that the stores here make can't be taken back; they end by themselves"));
    }
    let (store, key) = open_file(ctx, &args.path).await?;
    let expire = args.expire.and_then(|s| s.0).unwrap_or(WEEK);
    let link = offered(store.admin(), "link")?.link(&key.unwrap_or_else(|| Key::new("")), expire).await?;
    let mut out = Output::stdout();
    out.line(&link, b"")?;
    out.flush()?;
    Ok(CommandResult::Done)
}
