//! `lsl`: sizes, times and names of files.

use super::listing::{Failures, Source, depth};
use crate::{
    context::Context,
    error::CommandResult,
    show::{
        go_time,
        out::{Output, quiet},
        size_of, time_of,
    },
};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use jiff::tz::TimeZone;
use std::ffi::OsString;

/// List the files in a path with their sizes and modification times
///
/// Recurses; --max-depth 1 shows the top level only. If the store's listings don't include the stored time, haul requests it for
/// each file; --use-server-modtime avoids that.
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
    let server = ctx.flags.meta.use_server_modtime;
    let options = ListOptions { max_depth: depth(&ctx.flags, true), mtimes: !server, ..Default::default() };
    let mut entries = source.entries(options);
    let (human, zone) = (ctx.flags.config.human_readable, TimeZone::system());
    let none = ctx.flags.config.default_time();
    let (mut out, mut failures) = (Output::stdout(), Failures::default());
    while let Some(entry) = entries.next().await {
        let Some(entry) = failures.keep(entry) else { continue };
        let time = go_time::format(time_of(&entry, server, none), go_time::NANOS, &zone);
        out.line(&format!("{} {time} ", size_of(&entry, human, 9)), entry.key.stored())?;
    }
    out.flush()?;
    failures.finish()?;
    Ok(CommandResult::Done)
}
