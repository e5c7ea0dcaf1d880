//! What `copy`, `sync`, `move`, `copyto` and `moveto` share: opening both ends, the rules, and the run.

use super::lists::{JobLists, Listing};
use crate::{context::Context, error::Outcome, flags, journal, prompt::Prompt};
use anyhow::{Result, anyhow};
use haul::{
    Confirm, Cx,
    journal::{Job, JobId, Journal, mode_name},
};
use haul_core::{
    ErrorKind, Key, Mtime,
    filter::Filter,
    policy::{Mode, Policy},
};
use haul_remotes::OpenOptions;
use haul_store::Store;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStringExt as _,
    sync::Arc,
};

/// From where to where, as typed.
#[derive(clap::Args, Debug)]
pub struct Ends {
    /// Source: a remote or local path
    #[arg(value_name = "SOURCE:PATH")]
    pub source: OsString,
    /// Destination: a remote or local path
    #[arg(value_name = "DEST:PATH")]
    pub dest: OsString,
}

/// Arguments of `copy`, `copyto` and `sync`.
#[derive(clap::Args, Debug)]
pub struct CopyArgs {
    #[command(flatten)]
    ends: Ends,
    /// Also create empty directories of the source
    #[arg(long)]
    create_empty_src_dirs: bool,
    #[command(flatten)]
    keep: flags::keep::KeepFlags,
    #[command(flatten)]
    lists: JobLists,
    /// Store small files at DEST in packs: a few large tar archives with indexes
    #[arg(long)]
    pack: bool,
}

/// Arguments of `move` and `moveto`.
#[derive(clap::Args, Debug)]
pub struct MoveArgs {
    #[command(flatten)]
    copy: CopyArgs,
    /// Remove source directories that became empty
    #[arg(long)]
    delete_empty_src_dirs: bool,
}

impl CopyArgs {
    /// True when symlinks are copied as such unless they are followed.
    pub fn keeps_links(&self) -> bool {
        self.keep.archive
    }

    /// Where to, as typed.
    pub fn destination(&self) -> &OsStr {
        &self.ends.dest
    }
}

impl MoveArgs {
    /// As [`CopyArgs::keeps_links`].
    pub fn keeps_links(&self) -> bool {
        self.copy.keeps_links()
    }

    /// Where to, as typed.
    pub fn destination(&self) -> &OsStr {
        self.copy.destination()
    }
}

impl From<CopyArgs> for MoveArgs {
    fn from(copy: CopyArgs) -> Self {
        MoveArgs { copy, delete_empty_src_dirs: false }
    }
}

/// Runs a job into a folder; a source that is one file goes into it under its own name.
pub async fn into_folder(mode: Mode, args: impl Into<MoveArgs>, ctx: &Context) -> Result<Outcome> {
    let args = args.into();
    let ends = &args.copy.ends;
    let (src, file) = ctx.open_source(&ends.source).await?;
    let dst = ctx.open_as(&ends.dest, &OpenOptions { pack: args.copy.pack, ..ctx.open_options() })?;
    let mut policy = policy(ctx, &args)?;
    let mut cx = cx(ctx, &ctx.open_options(), src, dst, &ends.dest)?;
    let lists = lists(&args, &mut cx)?;
    let report = match file {
        None => {
            see_destination(mode, &mut policy)?;
            cx.journal = journal(ctx, mode, &cx, None, false)?;
            haul::run(mode, policy, cx).await
        }
        // One file has nothing to be deleted for.
        Some(key) => {
            let mode = if mode == Mode::Move { Mode::Move } else { Mode::Copy };
            let to = key.leaf();
            cx.journal = journal(ctx, mode, &cx, Some((&key, &to)), false)?;
            haul::run_one(mode, policy, cx, &key, &to).await
        }
    };
    lists.map_or(Ok(()), |lists| lists.finish())?;
    Ok(Outcome::Job(Box::new(report)))
}

/// Runs a job whose destination names the file itself, if the source is one file; else as [`into_folder`].
pub async fn to_name(mode: Mode, args: impl Into<MoveArgs>, ctx: &Context) -> Result<Outcome> {
    let args = args.into();
    let ends = &args.copy.ends;
    let (src, file) = ctx.open_source(&ends.source).await?;
    let Some(from) = file else { return into_folder(mode, args, ctx).await };
    if args.copy.pack {
        let message = "--pack takes a folder as DEST: use copy or move, or name a file of a pack remote";
        return Err(crate::error::usage(message));
    }
    let (dst, to) = ctx.open_parent(&ends.dest)?;
    let to = if from.is_symlink() { Key::of_stored(to.as_bytes()) } else { to };
    let mut cx = cx(ctx, &ctx.open_options(), src, dst, &ends.dest)?;
    cx.journal = journal(ctx, mode, &cx, Some((&from, &to)), true)?;
    let lists = lists(&args, &mut cx)?;
    let report = haul::run_one(mode, policy(ctx, &args)?, cx, &from, &to).await;
    lists.map_or(Ok(()), |lists| lists.finish())?;
    Ok(Outcome::Job(Box::new(report)))
}

/// Puts the lists that were asked for between the job and its sink.
fn lists(args: &MoveArgs, cx: &mut Cx) -> Result<Option<Arc<Listing>>> {
    let lists = Listing::open(&args.copy.lists, &cx.sink)?;
    if let Some(lists) = &lists {
        cx.sink = lists.clone();
    }
    Ok(lists)
}

fn policy(ctx: &Context, args: &MoveArgs) -> Result<Policy> {
    let mut policy = flags::policy(&ctx.flags)?;
    policy.keep = flags::keep(&args.copy.keep)?;
    policy.create_empty_dirs = args.copy.create_empty_src_dirs || args.copy.keep.archive;
    policy.delete_empty_src_dirs = args.delete_empty_src_dirs;
    // With --no-traverse the lists lack what only the destination has, as in rclone.
    if args.copy.lists.want_extra() && !policy.no_traverse && !policy.no_check_dest {
        (policy.list_all, policy.tell_extra) = (true, true);
    }
    Ok(policy)
}

/// A job that deletes must list the destination: only so does it see what is to be deleted.
///
/// Errors: the user says that it may not look.
pub fn see_destination(mode: Mode, policy: &mut Policy) -> Result<()> {
    if mode != Mode::Sync {
        return Ok(());
    }
    if policy.no_check_dest {
        return Err(crate::error::usage("--no-check-dest finds nothing to delete: use copy, or leave it out"));
    }
    if std::mem::take(&mut policy.no_traverse) {
        tracing::warn!("Ignoring --no-traverse: what is to be deleted is found by listing the destination");
    }
    Ok(())
}

/// The surroundings of a job between two opened ends; what other flags name is opened with `options`.
pub fn cx(ctx: &Context, options: &OpenOptions, src: Arc<dyn Store>, dst: Arc<dyn Store>, dest: &OsStr) -> Result<Cx> {
    let open = |path: &OsString| ctx.open_as(path, options);
    let open_all = |paths: &[OsString]| paths.iter().map(open).collect::<Result<Vec<_>>>();
    let spec = flags::filter(&ctx.flags)?;
    let interactive = ctx.flags.config.interactive;
    let backup = ctx.flags.sync.backup_dir.as_ref().map(open).transpose()?;
    if let Some(backup) = &backup {
        check_backup(backup, &dst, dest)?;
    }
    Ok(Cx {
        src,
        dst,
        backup,
        compare_dest: open_all(&ctx.flags.copy.compare_dest)?,
        copy_dest: open_all(&ctx.flags.copy.copy_dest)?,
        filter: Arc::new(Filter::new(spec).map_err(crate::error::usage)?),
        sink: ctx.progress.clone(),
        meters: ctx.meters.clone(),
        cancel: ctx.cancel.clone(),
        confirm: interactive.then(|| Arc::new(Prompt::new(ctx.screen.clone(), ctx.cancel.clone())) as Arc<dyn Confirm>),
        journal: None,
        known: ctx.known(),
    })
}

/// The journal of a job; `None`, after a word on why, when none can be kept. `one` is the one file that is brought over;
/// `names_file` when the destination as typed names it.
///
/// Errors: `resume` finds that another process has resumed the job meanwhile.
pub fn journal(
    ctx: &Context,
    mode: Mode,
    cx: &Cx,
    one: Option<(&Key, &Key)>,
    names_file: bool,
) -> Result<Option<Journal>> {
    let flags = &ctx.flags.config;
    let Some(folder) = ctx.journals().filter(|_| !flags.no_journal && !flags.dry_run) else { return Ok(None) };
    let id = JobId::new(mode, &*cx.src, &*cx.dst, cx.filter.spec(), one);
    let kept = journal::keep(&ctx.line);
    let here = std::env::current_dir().unwrap_or_default();
    let job = Job {
        mode: mode_name(mode).into(),
        src: cx.src.locator().into(),
        dst: cx.dst.locator().into(),
        argv: kept.words,
        complete: kept.complete,
        folder: here.into_os_string().into_vec(),
        names_file,
        begun: Mtime(jiff::Timestamp::now().as_nanosecond()),
        host: crate::machine::host(),
    };
    match Journal::open(&folder, &id, job) {
        Ok(journal) => Ok(Some(journal)),
        Err(error) if ctx.resumes && error.kind() == ErrorKind::Busy => Err(anyhow!("job {id} is running now")),
        Err(error) => {
            tracing::warn!("No journal: {}. Large files begin again if this run is cut short", error.message());
            Ok(None)
        }
    }
}

/// A backup that can't be reached by moving is refused before anything is changed.
fn check_backup(backup: &Arc<dyn Store>, dst: &Arc<dyn Store>, dest: &OsStr) -> Result<()> {
    let same = match (&backup.caps().domain, &dst.caps().domain) {
        (Some(a), Some(b)) => a.name == b.name,
        _ => false,
    };
    if same {
        return Ok(());
    }
    let (backup, dest) = (backup.locator(), journal::told(dest));
    Err(crate::error::usage(format!("--backup-dir {backup} must be on the same remote as the destination {dest}")))
}
