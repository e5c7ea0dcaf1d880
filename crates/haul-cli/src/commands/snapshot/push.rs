//! `snapshot push`.

use super::{in_words, refuse};
use crate::{
    commands::job,
    context::Context,
    error::{CommandResult, usage},
    flags,
};
use anyhow::Result;
use haul_cas::{remote::Proof, state::State};
use haul_core::{Error, ErrorKind, Mtime, job::Verb};
use haul_remotes::{Location, OpenOptions, Spec};
use haul_snapshot::{
    name,
    push::{PushOptions, PushOutcome as Came, push},
};
use haul_store::Links;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

/// Arguments of `snapshot push`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The directory, local or on a remote
    #[arg(value_name = "DIR")]
    folder: OsString,
    #[command(flatten)]
    to: super::Remote,
    /// Name of the snapshot [default: the directory's own name]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Look for every file on the remote, without trusting the lists of versions
    #[arg(long)]
    verify: bool,
}

impl Args {
    /// Where to, as typed.
    pub fn destination(&self) -> &OsStr {
        &self.to.remote
    }
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let given =
        [(ctx.flags.sync.backup_dir.is_some(), "--backup-dir"), (ctx.flags.config.interactive, "--interactive")];
    refuse(ctx, &given)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => own_name(&args.folder)?,
    };
    name::check(&name).map_err(usage)?;
    // Symlinks are kept as such, unless what they point to is asked for.
    let kept = !ctx.flags.meta.copy_links;
    let options = OpenOptions { links: if kept { Links::Keep } else { Links::Follow }, ..ctx.open_options() };
    let (src, dst) = (ctx.open_as(&args.folder, &options)?, ctx.open_as(&args.to.remote, &options)?);
    let mut cx = job::cx(ctx, &options, src, dst, &args.to.remote)?;
    cx.journal = job::journal(ctx, Verb::Copy, &cx, None, false)?;
    // Content under a hash name can't change, so the remote's index is used unasked.
    cx.known.index = ctx.known_content().index;
    let job = flags::job(&ctx.flags)?;
    let state = State::new(ctx.hashes());
    let now = Mtime(jiff::Timestamp::now().as_nanosecond());
    let proof = if args.verify { Proof::Full } else { Proof::Sampled };
    let pushed =
        push(&cx, &job, &PushOptions { name: name.clone(), now, proof, by: super::this_process() }, &state).await?;
    if pushed.lost > 0 {
        tracing::warn!(
            "The remote lost {} files of earlier versions; those of this directory are sent again",
            pushed.lost
        );
    }
    if pushed.left_out > 0 {
        tracing::warn!("{} devices, FIFOs and sockets left out: no version keeps them", pushed.left_out);
    }
    match &pushed.outcome {
        Came::Made(version, record) => {
            tracing::info!("made {name}@{version}: {}", in_words(&record.totals));
            ctx.screen.print(&format!("{name}@{version}"))?;
        }
        Came::Unchanged(version, record) => {
            tracing::info!("nothing changed since {name}@{version}: {}", in_words(&record.totals));
            ctx.screen.print(&format!("{name}@{version}"))?;
        }
        Came::None if ctx.flags.config.dry_run => {}
        Came::None => tracing::warn!("No version was made; what arrived isn't sent again when this is run again"),
    }
    Ok(CommandResult::Job(Box::new(pushed.report)))
}

/// The last part of a path.
fn own_name(folder: &OsStr) -> Result<String> {
    let spec = Spec::parse(folder.as_bytes())?;
    let path = Path::new(OsStr::from_bytes(&spec.path));
    let whole = match spec.place {
        Location::Local => path.canonicalize().map_err(|_| {
            Error::new(ErrorKind::DirNotFound, "open", format!("{}: no such directory", folder.display()))
        })?,
        _ => path.to_path_buf(),
    };
    let name = whole.file_name().and_then(OsStr::to_str);
    name.map(str::to_string).ok_or_else(|| usage("this directory's own name can't be a snapshot's: add a NAME"))
}
