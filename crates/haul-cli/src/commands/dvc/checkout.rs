//! `dvc checkout`, and the end of `dvc pull`.

use super::{Opened, TargetArgs, files, open};
use crate::{
    context::Context,
    error::{CommandResult, code, error_text, one_line, usage},
};
use anyhow::Result;
use haul_core::{Error, ErrorKind};
use haul_dvc::{
    checkout::{CheckoutOptions, CheckoutResult, checkout},
    repo::SelectedPath,
};

/// Arguments of `dvc checkout`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    how: CheckoutArgs,
    /// Recreate all links and copies
    #[arg(long)]
    relink: bool,
    /// Show counts only
    #[arg(long)]
    summary: bool,
}

/// What `checkout` and `pull` share.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct CheckoutArgs {
    /// Discard unsaved changes in the workspace
    #[arg(long, short = 'f')]
    force: bool,
    /// Don't fail on files missing from the cache
    #[arg(long)]
    pub allow_missing: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    if ctx.flags.config.dry_run {
        return Err(usage("haul dvc checkout has no --dry-run: haul dvc status shows what differs"));
    }
    let opened = open(ctx)?;
    let chosen = opened.choose(&args.targets)?;
    let _lock = opened.lock().await?;
    let done = all(&opened, &chosen, args.how, args.relink).await?;
    if args.summary && !ctx.flags.log.quiet {
        ctx.screen.print(&counts(&done).unwrap_or_else(|| "No changes.".into()))?;
    } else {
        show(&opened, &done, ctx)?;
    }
    let failed = failed(&done, args.how);
    Ok(if failed { CommandResult::Exit(code::OTHER) } else { CommandResult::Done })
}

/// Checks out, and keeps what was hashed for it.
pub async fn all(opened: &Opened, chosen: &[SelectedPath], how: CheckoutArgs, relink: bool) -> Result<CheckoutResult> {
    let mut state = opened.repo.state();
    let options = CheckoutOptions { force: how.force, relink };
    let done = checkout(&opened.repo, chosen, options, &mut state).await;
    state.save();
    Ok(done?)
}

/// Lists the paths that changed, as dvc does.
pub fn show(opened: &Opened, done: &CheckoutResult, ctx: &Context) -> Result<()> {
    if ctx.flags.log.quiet {
        return Ok(());
    }
    for (letter, paths) in [("M", &done.modified), ("A", &done.added)] {
        for path in paths {
            ctx.screen.print(&format!("{letter}\t{}", one_line(&opened.shown(path))))?;
        }
    }
    Ok(())
}

/// Tells what failed; true when that is an error.
pub fn failed(done: &CheckoutResult, how: CheckoutArgs) -> bool {
    let (forgiven, wrong): (Vec<&Error>, Vec<&Error>) = done.failed.iter().partition(|error| how.forgives(error));
    forgiven.iter().for_each(|error| tracing::warn!("{}", error_text(error)));
    wrong.iter().for_each(|error| tracing::error!("{}", error_text(error)));
    !wrong.is_empty()
}

impl CheckoutArgs {
    /// True for content that isn't there, where that may be so.
    pub fn forgives(self, error: &Error) -> bool {
        self.allow_missing && error.kind() == ErrorKind::NotFound
    }
}

/// `2 files modified and 1 file added`; `None` for nothing.
pub fn counts(done: &CheckoutResult) -> Option<String> {
    let (added, modified, deleted) = done.files;
    let all = [(modified, "modified"), (added, "added"), (deleted, "deleted")];
    let words: Vec<String> =
        all.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{} {word}", files(*n))).collect();
    let (last, first) = words.split_last()?;
    Some(if first.is_empty() { last.clone() } else { format!("{} and {last}", first.join(", ")) })
}
