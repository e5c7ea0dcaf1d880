//! `snapshot gc`: frees content that no version has.

use super::{Remote, this_process};
use crate::{
    context::Context,
    error::CommandResult,
    flags::values::{Span, duration, span},
    print,
};
use anyhow::Result;
use haul_core::{Error, Mtime, units::size_text};
use haul_snapshot::gc::{GcOptions, Plan, collect, plan};

/// Arguments of `snapshot gc`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    at: Remote,
    /// Delete even if DVC seems to keep content on this remote too
    ///
    /// Content that only DVC repositories need is deleted with the rest.
    #[arg(long)]
    despite_dvc: bool,
    /// Assume that pushes and other runs that seem to be active were killed
    ///
    /// Otherwise their marks count until they haven't been renewed for an hour.
    #[arg(long)]
    ignore_marks: bool,
    /// How long to wait before deleting, so that every client sees this run's mark [default: 65s in directories, 0s elsewhere]
    ///
    /// Clients of network file systems may show a directory as it was a minute ago. On a disk of this machine use 0s.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    settle: Option<Span>,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    if ctx.flags.config.interactive {
        return Err(crate::error::usage(
            "--interactive has no meaning here: use --dry-run to see what would be deleted",
        ));
    }
    let store = ctx.open(&args.at.remote)?;
    if ctx.flags.config.dry_run {
        let plan = plan(&store).await?;
        let lines: String = plan.all().map(|(address, size)| format!("{size:>12} {}\n", address.key())).collect();
        print::text(&lines)?;
        print::line(&match sum(&plan) {
            (0, _) => "Every content is some version's.".to_string(),
            (n, bytes) => format!("{} used by no version would be deleted.", pieces(n, bytes)),
        })?;
        if let Some(sign) = plan.dvc() {
            tracing::warn!("DVC seems to keep content here too: {sign}; gc refuses without --despite-dvc");
        }
        return Ok(CommandResult::Done);
    }
    let how = GcOptions {
        by: this_process(),
        now: Mtime(jiff::Timestamp::now().as_nanosecond()),
        settle: args.settle.map(|settle| duration(Some(settle)).unwrap_or_default()),
        despite_dvc: args.despite_dvc,
        ignore_marks: args.ignore_marks,
    };
    let freed = collect(&store, &how, &ctx.cancel).await?;
    let (used, bytes) = freed.plan.used;
    let (all, _) = sum(&freed.plan);
    let versions = match freed.plan.versions {
        1 => "1 version".to_string(),
        n => format!("{n} versions"),
    };
    print::line(&format!(
        "Deleted {}; kept {} of {versions}.",
        pieces(freed.deleted, freed.bytes),
        pieces(used, bytes)
    ))?;
    // Packs.
    if store.caps().place.is_some() && freed.deleted > 0 {
        tracing::info!("archives in which nothing is left are removed by haul cleanup {}", args.at.remote.display());
    }
    match freed.error {
        Some(error) => {
            let left = all - freed.deleted;
            let message = format!("{} ({left} of {all} are left: run this again to delete the rest)", error.message());
            let reworded = Error::new(error.kind(), "gc", message).with_retry(error.retry());
            Err(match error.key() {
                Some(key) => reworded.with_key(key),
                None => reworded,
            }
            .into())
        }
        None => Ok(CommandResult::Done),
    }
}

fn sum(plan: &Plan) -> (u64, u64) {
    plan.all().fold((0, 0), |(n, bytes), (_, size)| (n + 1, bytes + size))
}

fn pieces(n: u64, bytes: u64) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} content{s} with {}", size_text(bytes))
}
