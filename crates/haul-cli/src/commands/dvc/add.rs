//! `dvc add`.

use super::open;
use crate::{
    context::Context,
    error::{CommandResult, usage},
};
use anyhow::Result;
use haul_core::event::Sink;
use haul_dvc::{add::add, history::GitFacts};
use std::sync::Arc;

/// Arguments of `dvc add`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files and directories to track or to update
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    if ctx.flags.config.dry_run {
        return Err(usage("haul dvc add has no --dry-run: haul dvc status shows what changed"));
    }
    let mut opened = open(ctx)?;
    let _lock = opened.lock().await?;
    let sink: Arc<dyn Sink> = ctx.progress.clone();
    let mut state = opened.repo.state();
    let mut changed: Vec<String> = Vec::new();
    let path = |target: &String| opened.repo.relative(&opened.here, target.trim_end_matches('/'));
    let paths = args.targets.iter().map(path).collect::<haul_core::Result<Vec<_>>>()?;
    let git = GitFacts::of(&opened.repo, &paths).await?;
    for path in paths {
        let done = add(&opened.repo, &opened.index, &path, &git, &mut state, &sink).await;
        // The hashes are worth keeping even if the rest failed.
        state.save();
        let done = done?;
        tracing::info!("{path}: {} tracked by {}", super::files(done.files), done.file);
        if done.changed {
            changed.push(done.file);
        }
        changed.extend(done.gitignore);
        opened.index = opened.repo.index()?;
    }
    changed.sort_unstable();
    changed.dedup();
    if !ctx.flags.log.quiet && !opened.repo.config.no_scm() && !changed.is_empty() {
        let files: Vec<String> = changed.iter().map(|file| opened.shown(file)).collect();
        ctx.screen.print(&format!("\nTo track the changes with git, run:\n\n\tgit add {}", files.join(" ")))?;
    }
    Ok(CommandResult::Done)
}
