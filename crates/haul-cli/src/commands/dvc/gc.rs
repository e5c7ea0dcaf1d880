//! `dvc gc`: shows what nothing uses. Removing is left to dvc.

use super::{RevisionArgs, by_remote, open, open_remote};
use crate::{
    context::Context,
    error::{CommandResult, usage},
    print,
};
use anyhow::Result;
use haul_cas::address::Address;
use haul_core::units::size_text;
use haul_dvc::gc::{UsedContent, unused, unused_at};

/// Arguments of `dvc gc`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Keep what the workspace uses
    #[arg(long, short = 'w')]
    workspace: bool,
    #[command(flatten)]
    which: RevisionArgs,
    /// Check the remote too
    #[arg(long, short = 'c')]
    cloud: bool,
    /// The remote [default: core.remote]
    #[arg(long, short = 'r', value_name = "NAME", requires = "cloud")]
    remote: Option<String>,
    /// Only show; same as --dry-run
    #[arg(long)]
    dry: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    if !args.dry && !ctx.flags.config.dry_run {
        return Err(usage("haul dvc gc only shows what nothing uses: add --dry-run; dvc gc removes it"));
    }
    if !args.workspace && !args.which.revisions().any() {
        return Err(usage(
            "say what to keep: -w what the workspace uses, -a all branches, -T all tags, -A all commits",
        ));
    }
    let mut opened = open(ctx)?;
    opened.add_revisions(args.which).await?;
    let chosen = opened.index.choose(&[], false)?;
    let used = UsedContent::of(&opened.repo, &chosen).await?;
    let gone = unused(&opened.repo, &used).await?;
    show("the cache", |address| opened.repo.cache.path(address).display().to_string(), &gone)?;
    if !args.cloud {
        return Ok(CommandResult::Done);
    }
    let mut remotes: Vec<Option<String>> =
        by_remote(chosen, args.remote.as_deref()).into_iter().map(|(name, _)| name).collect();
    if remotes.is_empty() {
        remotes.push(args.remote);
    }
    for name in remotes {
        let remote = opened.remote(name.as_deref())?;
        let store = open_remote(ctx, &remote)?;
        let gone = unused_at(&store, &used).await?;
        show(&format!("remote {}", remote.name), |address| format!("{}/{}", store.locator(), address.key()), &gone)?;
    }
    Ok(CommandResult::Done)
}

fn show(place: &str, path: impl Fn(&Address) -> String, gone: &[(Address, u64)]) -> Result<()> {
    let lines: String = gone.iter().map(|(address, size)| format!("{size:>12} {}\n", path(address))).collect();
    print::text(&lines)?;
    let bytes: u64 = gone.iter().map(|(_, size)| size).sum();
    match gone.len() {
        0 => print::line(&format!("Nothing in {place} is unused.")),
        n => print::line(&format!("{} with {} in {place} would go.", super::files(n as u64), size_text(bytes))),
    }
}
