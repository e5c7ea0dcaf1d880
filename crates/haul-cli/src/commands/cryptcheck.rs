//! `cryptcheck`: compares files with their encrypted copies by hashes of what is stored, without reading that.

use super::{check, events::EventFlags, file_lists::Lists, job::JobPaths};
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use haul::check::{CheckOptions, Content};

/// Arguments of `cryptcheck`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    ends: JobPaths,
    /// Ignore files that exist only at the destination
    #[arg(long)]
    one_way: bool,
    #[command(flatten)]
    events: EventFlags,
    #[command(flatten)]
    lists: Lists,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let options = CheckOptions { content: Content::Sealed, one_way: args.one_way };
    check::compare(&args.ends, (&args.lists, &args.events), options, ctx).await
}
