//! `move`: copies, then deletes each source file that is proved to be at the destination.

pub use super::job::MoveArgs as Args;

use super::job;
use crate::{context::Context, error::Outcome};
use anyhow::Result;
use haul_core::policy::Mode;

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<Outcome> {
    job::into_folder(Mode::Move, args, ctx).await
}
