//! `sync`: makes the destination equal to the source, deleting what the source lacks.

pub use super::job::CopyArgs as Args;

use super::job;
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use haul_core::job::Verb;

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    job::into_folder(Verb::Sync, args, ctx).await
}
