//! `snapshot rm`: removes one version, but no content.

use super::{Remote, named};
use crate::{
    context::Context,
    error::{CommandResult, usage},
};
use anyhow::Result;
use haul::{Answer, Confirm as _};
use haul_snapshot::{
    name,
    versions::{existing, remove},
};

/// Arguments of `snapshot rm`.
#[derive(clap::Args, Debug)]
pub struct RmArgs {
    #[command(flatten)]
    at: Remote,
    /// The snapshot and its version
    #[arg(value_name = "NAME@VERSION")]
    name: String,
}

/// Runs `rm`.
pub async fn rm(args: RmArgs, ctx: &Context) -> Result<CommandResult> {
    let (name, typed) = named(&args.name)?;
    if typed.is_none() {
        return Err(usage("say which version is to go: NAME@VERSION, see haul snapshot list"));
    }
    let store = ctx.open(&args.at.remote)?;
    let all = existing(&store, Some(&name)).await?.remove(&name).unwrap_or_default();
    let version = name::choose(&name, &all, typed.as_deref()).map_err(usage)?;
    let label = format!("{name}@{version}");
    if ctx.flags.config.dry_run {
        tracing::warn!("{label}: Skipped delete as --dry-run is set");
        return Ok(CommandResult::Done);
    }
    let prompt = crate::prompt::Prompt::new(ctx.screen.clone(), ctx.cancel.clone());
    if ctx.flags.config.interactive && prompt.ask("delete", &name::key(&name, version)) != Answer::Yes {
        return Ok(CommandResult::Done);
    }
    remove(&store, &name, version).await?;
    tracing::info!("{label}: Deleted; its content stays until haul snapshot gc");
    Ok(CommandResult::Done)
}
