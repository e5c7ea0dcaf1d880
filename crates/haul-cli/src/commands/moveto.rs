//! `moveto`: as `move`, but a single file goes under the name that the destination gives.

use super::job::{self, Ends, Own};
use crate::{context::Context, error::Outcome};
use anyhow::Result;
use haul_core::policy::Mode;

/// Arguments of `moveto`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    ends: Ends,
    /// Create empty directories of the source too
    #[arg(long)]
    create_empty_src_dirs: bool,
    /// Remove directories of the source that are left empty
    #[arg(long)]
    delete_empty_src_dirs: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<Outcome> {
    let own = Own { create_empty_dirs: args.create_empty_src_dirs, delete_empty_src_dirs: args.delete_empty_src_dirs };
    job::to_name(Mode::Move, args.ends, own, ctx).await
}
