//! `lsd`: directories, or buckets, of a path.

use super::listing::{Failures, Source, depth};
use crate::{
    context::Context,
    error::CommandResult,
    show::{
        bare, go_time,
        out::{Output, quiet},
        size_field, time_of,
    },
};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use jiff::tz::TimeZone;
use std::ffi::OsString;

/// List the directories or buckets in a path
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Recurse into directories
    #[arg(long, short = 'R')]
    recursive: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    quiet(list(args, ctx).await)
}

async fn list(args: Args, ctx: &Context) -> Result<CommandResult> {
    let source = Source::open(ctx, &args.path).await?;
    let max_depth = if args.recursive { None } else { depth(&ctx.flags, false) };
    let mut entries = source.entries(ListOptions { max_depth, dirs: true, ..Default::default() });
    let (human, zone) = (ctx.flags.config.human_readable, TimeZone::system());
    let (buckets, none) = (source.lists_buckets(), ctx.flags.config.default_time());
    // How many files a directory holds isn't known without opening it.
    let items = if human { format!("{:>8}", -1) } else { format!("{:>9}", -1) };
    let (mut out, mut failures) = (Output::stdout(), Failures::default());
    while let Some(entry) = entries.next().await {
        let Some(entry) = failures.keep(entry).filter(|e| e.is_dir()) else { continue };
        // How much a bucket holds isn't known without listing it.
        let bucket = buckets && entry.key.parent().is_root();
        let size = if bucket { minus_one(human) } else { size_field(entry.size, human, 12) };
        let time = go_time::format(time_of(&entry, false, none), go_time::SECONDS, &zone);
        out.line(&format!("{size} {time:>13} {items} "), bare(entry.key.as_bytes()))?;
    }
    out.flush()?;
    failures.finish()?;
    Ok(CommandResult::Done)
}

fn minus_one(human: bool) -> String {
    if human { format!("{:>9}", -1) } else { format!("{:>12}", -1) }
}
