//! `ls`: sizes and names of files.

use super::listing::{Failures, Source, depth};
use crate::{
    context::Context,
    error::CommandResult,
    show::{
        out::{Output, quiet},
        size_of,
    },
};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use std::ffi::OsString;

/// List the files in a path with their sizes
///
/// Recurses; --max-depth 1 shows the top level only.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(list(args, ctx).await)
}

async fn list(args: Args, ctx: &Context) -> Result<CommandResult> {
    let source = Source::open(ctx, &args.path).await?;
    let mut entries = source.entries(ListOptions { max_depth: depth(&ctx.flags, true), ..Default::default() });
    let human = ctx.flags.config.human_readable;
    let (mut out, mut failures) = (Output::stdout(), Failures::default());
    while let Some(entry) = entries.next().await {
        let Some(entry) = failures.keep(entry) else { continue };
        out.line(&format!("{} ", size_of(&entry, human, 9)), entry.key.stored())?;
    }
    out.flush()?;
    failures.finish()?;
    Ok(CommandResult::Done)
}
