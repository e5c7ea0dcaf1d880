//! `snapshot rm` and `snapshot gc`. Neither deletes content.

use super::{Remote, named};
use crate::{
    context::Context,
    error::{Outcome, usage},
    print,
};
use anyhow::Result;
use haul::Confirm as _;
use haul_core::units::size_text;
use haul_snapshot::{
    name,
    unused::unused,
    versions::{remove, versions},
};

/// Arguments of `snapshot rm`.
#[derive(clap::Args, Debug)]
pub struct RmArgs {
    #[command(flatten)]
    at: Remote,
    /// Which version of which snapshot
    #[arg(value_name = "NAME@VERSION")]
    name: String,
}

/// Arguments of `snapshot gc`.
#[derive(clap::Args, Debug)]
pub struct GcArgs {
    #[command(flatten)]
    at: Remote,
}

/// Runs `rm`.
pub async fn rm(args: RmArgs, ctx: &Context) -> Result<Outcome> {
    let (name, typed) = named(&args.name)?;
    if typed.is_none() {
        return Err(usage("say which version is to go: NAME@VERSION, see haul snapshot list"));
    }
    let store = ctx.open(&args.at.remote)?;
    let all = versions(&store, Some(&name)).await?.remove(&name).unwrap_or_default();
    let version = name::choose(&name, &all, typed.as_deref()).map_err(usage)?;
    let label = format!("{name}@{version}");
    if ctx.flags.config.dry_run {
        tracing::warn!("{label}: Skipped delete as --dry-run is set");
        return Ok(Outcome::Done);
    }
    let prompt = crate::prompt::Prompt::new(ctx.screen.clone(), ctx.cancel.clone());
    if ctx.flags.config.interactive && !prompt.ask("delete", &name::key(&name, version)) {
        return Ok(Outcome::Done);
    }
    remove(&store, &name, version).await?;
    tracing::info!("{label}: Deleted; its content stays");
    Ok(Outcome::Done)
}

/// Runs `gc`.
pub async fn gc(args: GcArgs, ctx: &Context) -> Result<Outcome> {
    if !ctx.flags.config.dry_run {
        return Err(usage("haul snapshot gc only shows what no version has: add --dry-run"));
    }
    let store = ctx.open(&args.at.remote)?;
    let unused = unused(&store).await?;
    let lines: String = unused.iter().map(|(address, size)| format!("{size:>12} {}\n", address.key())).collect();
    print::text(&lines)?;
    let bytes: u64 = unused.iter().map(|(_, size)| size).sum();
    print::line(&match unused.len() {
        0 => "Every content is some version's.".to_string(),
        n => format!("{n} with {} are used by no version.", size_text(bytes)),
    })?;
    Ok(Outcome::Done)
}
