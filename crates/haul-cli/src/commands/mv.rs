//! `move`: copies, then deletes each source file that is proved to be at the destination.

pub use super::job::MoveArgs as Args;

use super::job;
use crate::{context::Context, error::CommandResult};
use anyhow::Result;
use haul_core::job::Verb;

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    job::into_folder(Verb::Move, args, ctx).await
}
