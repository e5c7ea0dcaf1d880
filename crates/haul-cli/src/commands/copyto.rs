//! `copyto`: as `copy`, but a single file goes under the name that the destination gives.

pub use super::job::CopyArgs as Args;

use super::job;
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use haul_core::job::Verb;

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    job::to_name(Verb::Copy, args, ctx).await
}
