//! `snapshot pull`.

use super::{in_words, named, refuse};
use crate::{commands::job, context::Context, error::CommandResult, flags};
use anyhow::Result;
use haul_core::{Error, ErrorKind, job::Verb};
use haul_remotes::OpenOptions;
use haul_snapshot::pull::{open, pull, surroundings};
use haul_store::Links;
use std::ffi::{OsStr, OsString};

/// Arguments of `snapshot pull`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    from: super::Remote,
    /// The snapshot, and its version [default: the newest]
    #[arg(value_name = "NAME[@VERSION]")]
    name: String,
    /// The directory to restore into, local or on a remote
    #[arg(value_name = "DIR")]
    folder: OsString,
    /// Delete files that aren't in the version, if there was no error
    ///
    /// For a version that was pushed with a filter, this requires --delete-excluded.
    #[arg(long)]
    delete: bool,
}

impl Args {
    /// Where to, as typed.
    pub fn destination(&self) -> &OsStr {
        &self.folder
    }
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    refuse(ctx, &[(ctx.flags.meta.copy_links, "--copy-links")])?;
    let (name, typed) = named(&args.name)?;
    let options = OpenOptions { links: Links::Keep, ..ctx.open_options() };
    let (src, dst) = (ctx.open_as(&args.from.remote, &options)?, ctx.open_as(&args.folder, &options)?);
    let version = open(&src, &name, typed.as_deref()).await?;
    let label = format!("{name}@{}", version.version);
    if args.delete && version.record.filtered && !ctx.flags.filter.delete_excluded {
        let why = format!(
            "Refused to delete: {label} was pushed through a filter, so --delete could delete files that it excluded (--delete-excluded if that is intended)"
        );
        return Err(Error::new(ErrorKind::Invalid, "pull", why).into());
    }
    tracing::info!("restoring {label}: {}", in_words(&version.record.totals));
    let mut job = flags::job(&ctx.flags)?;
    job.verb = if args.delete { Verb::Sync } else { Verb::Copy };
    // Symlinks are such in a snapshot: nothing is written to where one of the folder leads.
    job.links.replace_links = true;
    job::see_destination(&mut job)?;
    let cx = job::cx(ctx, &options, src, dst, &args.folder)?;
    let mut cx = surroundings(cx, &version, job.attributes.keep_setid)?;
    cx.journal = job::journal(ctx, job.verb, &cx, None, false)?;
    let pulled = pull(&cx, &job, &version).await;
    if let Some(more) = pulled.more.filter(|more| *more > 0 && job.verb == Verb::Copy) {
        let files = if more == 1 { "1 file".into() } else { format!("{more} files") };
        tracing::warn!("Kept {files} not in {label}; use --delete to remove them");
    }
    Ok(CommandResult::Job(Box::new(pulled.report)))
}
