//! Shared by `copy`, `sync`, `move`, `copyto` and `moveto`: opening both ends, the rules, and the run.

use super::{
    events::{EventFlags, Events},
    file_lists::{JobLists, Listing},
};
use crate::{context::Context, error::CommandResult, flags, journal, prompt::Prompt};
use anyhow::{Result, anyhow};
use haul::{
    Confirm, Cx, Report,
    journal::{JobId, JobInfo, Journal, mode_name},
    move_dir::{Directory, may_go_whole, move_whole},
    names::{Naming, by_folded_names},
};
use haul_core::{
    ErrorKind, Key, Mtime,
    filter::{Filter, FilterSpec},
    job::{Job, Lookup, Verb},
    names::NewNames,
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
pub struct JobPaths {
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
    ends: JobPaths,
    /// Also create empty directories of the source
    #[arg(long)]
    create_empty_src_dirs: bool,
    /// Store small files at DEST in packs: a few large tar archives with indexes
    #[arg(long)]
    pack: bool,
    #[command(flatten)]
    events: EventFlags,
    #[command(flatten)]
    keep: flags::keep::KeepFlags,
    #[command(flatten)]
    lists: JobLists,
}

/// Arguments of `move` and `moveto`.
#[derive(clap::Args, Debug)]
pub struct MoveArgs {
    /// Remove source directories that became empty
    #[arg(long)]
    delete_empty_src_dirs: bool,
    #[command(flatten)]
    copy: CopyArgs,
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
pub async fn into_folder(verb: Verb, args: impl Into<MoveArgs>, ctx: &Context) -> Result<CommandResult> {
    folder(verb, args.into(), ctx, false).await
}

/// [`into_folder`]; a move that `renames` may take the source directory itself along.
async fn folder(verb: Verb, args: MoveArgs, ctx: &Context, renames: bool) -> Result<CommandResult> {
    let ends = &args.copy.ends;
    let (src, file) = ctx.open_source(&ends.source).await?;
    let dst = ctx.open_as(&ends.dest, &OpenOptions { pack: args.copy.pack, ..ctx.open_options() })?;
    let mut job = job_from_flags(ctx, verb, &args)?;
    let mut cx = cx(ctx, &ctx.open_options(), src, dst, &ends.dest)?;
    let written = OutputFiles::open(&args, &mut cx)?;
    let report = match file {
        None => {
            see_destination(&mut job)?;
            // The source itself is gone then.
            if (renames || args.delete_empty_src_dirs)
                && let Some(report) = at_once(ctx, &job, &cx, ends, &written).await
            {
                written.finish()?;
                return Ok(CommandResult::Job(Box::new(report)));
            }
            rename(ctx, &job, &mut cx).await?;
            cx.journal = journal(ctx, verb, &cx, None, false)?;
            haul::run(job, cx).await
        }
        // One file has nothing to be deleted for.
        Some(key) => {
            see_is_no_file(ctx, &cx, &ends.dest).await?;
            job.verb = if verb == Verb::Move { Verb::Move } else { Verb::Copy };
            let to = renamed(ctx, key.leaf())?;
            cx.journal = journal(ctx, job.verb, &cx, Some((&key, &to)), false)?;
            haul::run_one(job, cx, &key, &to).await
        }
    };
    written.finish()?;
    Ok(CommandResult::Job(Box::new(report)))
}

/// Moves a directory as a whole, where the job and its stores allow that; `None` where it is to be moved file by file.
async fn at_once(ctx: &Context, job: &Job, cx: &Cx, ends: &JobPaths, written: &OutputFiles) -> Option<Report> {
    let renamed = !ctx.flags.copy.name_transform.is_empty() || ctx.flags.copy.ignore_case_sync;
    // The target of a link would be renamed as a link; and a list of each file needs each file.
    if renamed || ctx.flags.meta.copy_links || written.lists.is_some() || !may_go_whole(job, cx) {
        return None;
    }
    let [from, to] = [&ends.source, &ends.dest].map(|typed| {
        let (store, key) = ctx.open_parent(typed).ok()?;
        Some(Directory { store, key: key.with_suffix("/") })
    });
    move_whole(cx, job, &from?, &to?).await
}

/// Runs a job whose destination names the file itself, if the source is one file; else as [`into_folder`].
pub async fn to_name(verb: Verb, args: impl Into<MoveArgs>, ctx: &Context) -> Result<CommandResult> {
    let args = args.into();
    let ends = &args.copy.ends;
    let (src, file) = ctx.open_source(&ends.source).await?;
    let Some(from) = file else { return folder(verb, args, ctx, true).await };
    if args.copy.pack {
        let message = "--pack takes a directory as DEST: use copy or move, or name a file of a pack remote";
        return Err(crate::error::usage(message));
    }
    let (dst, to) = ctx.open_parent(&ends.dest)?;
    let to = if from.is_symlink() { Key::of_stored(to.as_bytes()) } else { to };
    let to = renamed(ctx, to)?;
    let mut cx = cx(ctx, &ctx.open_options(), src, dst, &ends.dest)?;
    cx.journal = journal(ctx, verb, &cx, Some((&from, &to)), true)?;
    let written = OutputFiles::open(&args, &mut cx)?;
    let report = haul::run_one(job_from_flags(ctx, verb, &args)?, cx, &from, &to).await;
    written.finish()?;
    Ok(CommandResult::Job(Box::new(report)))
}

/// Files that are written while a job runs.
struct OutputFiles {
    lists: Option<Arc<Listing>>,
    events: Option<Arc<Events>>,
}

impl OutputFiles {
    /// Puts what was asked for between the job and its sink.
    fn open(args: &MoveArgs, cx: &mut Cx) -> Result<OutputFiles> {
        let lists = Listing::open(&args.copy.lists, &cx.sink)?;
        if let Some(lists) = &lists {
            cx.sink = lists.clone();
        }
        Ok(OutputFiles { lists, events: Events::open(&args.copy.events, &mut cx.sink)? })
    }

    /// Errors: the output can't be written.
    fn finish(self) -> Result<()> {
        let events = self.events.map_or(Ok(()), |events| events.finish());
        self.lists.map_or(Ok(()), |lists| lists.finish()).and(events)
    }
}

/// The job that the flags ask for.
fn job_from_flags(ctx: &Context, verb: Verb, args: &MoveArgs) -> Result<Job> {
    let mut job = flags::job(&ctx.flags)?;
    job.verb = verb;
    job.attributes.keep = flags::keep(&args.copy.keep)?;
    job.dirs.create_empty = args.copy.create_empty_src_dirs || args.copy.keep.archive;
    job.dirs.delete_empty_sources = args.delete_empty_src_dirs;
    // With --no-traverse the lists lack what only the destination has, as in rclone.
    if args.copy.lists.want_extra() && !job.listing.no_traverse && job.listing.lookup != Lookup::Never {
        (job.listing.lookup, job.tell.extra) = (Lookup::ListAll, true);
    }
    Ok(job)
}

/// Names changed by `--name-transform`.
fn new_names(ctx: &Context) -> Result<Option<NewNames>> {
    let typed = &ctx.flags.copy.name_transform;
    let wrong = |why| crate::error::usage(format!("--name-transform {why}"));
    let spelt: Vec<String> = typed.iter().map(|text| flags::with_date(text)).collect();
    (!typed.is_empty()).then(|| NewNames::parse(&spelt).map_err(wrong)).transpose()
}

/// The name that one file gets.
pub fn renamed(ctx: &Context, name: Key) -> Result<Key> {
    Ok(Naming { new: new_names(ctx)?, ..Naming::default() }.of(&name)?)
}

/// Gives the files of a job other names at the destination, where flags say so.
///
/// Errors: flags that can't be read; the destination can't be listed.
pub async fn rename(ctx: &Context, job: &Job, cx: &mut Cx) -> Result<()> {
    let at_destination = match ctx.flags.copy.ignore_case_sync {
        true => Some(by_folded_names(&cx.dst, &cx.filter, job.listing.max_depth).await?),
        false => None,
    };
    let naming = Naming { new: new_names(ctx)?, at_destination };
    if naming.new.is_some() || naming.at_destination.is_some() {
        haul::names::rename(cx, naming);
    }
    Ok(())
}

/// A job that deletes must list the destination: only so does it see what is to be deleted.
///
/// Errors: the user says that it may not look.
pub fn see_destination(job: &mut Job) -> Result<()> {
    if job.verb != Verb::Sync {
        return Ok(());
    }
    if job.listing.lookup == Lookup::Never {
        return Err(crate::error::usage("--no-check-dest finds nothing to delete: use copy, or leave it out"));
    }
    if std::mem::take(&mut job.listing.no_traverse) {
        tracing::warn!("Ignoring --no-traverse: what is to be deleted is found by listing the destination");
    }
    Ok(())
}

/// A folder for one file must not be a file. What can't be looked at shows what is wrong with it when it is written to.
///
/// Errors: it is one.
async fn see_is_no_file(ctx: &Context, cx: &Cx, dest: &OsStr) -> Result<()> {
    // Elsewhere that is a request, or a file stands beside what is below its name.
    let above = cx.dst.caps().files.then(|| ctx.open_parent(dest).ok());
    let Some((above, key)) = above.flatten() else { return Ok(()) };
    if !above.stat(&key).await.is_ok_and(|found| found.has_bytes()) {
        return Ok(());
    }
    let dest = crate::journal::shown_path(dest);
    Err(crate::error::usage(format!(
        "{dest} is a file: name a directory, or use copyto or moveto to replace that file"
    )))
}

/// The surroundings of a job between two opened ends; what other flags name is opened with `options`.
pub fn cx(ctx: &Context, options: &OpenOptions, src: Arc<dyn Store>, dst: Arc<dyn Store>, dest: &OsStr) -> Result<Cx> {
    cx_about(ctx, options, src, dst, dest, flags::filter(&ctx.flags)?)
}

/// As [`cx`], for what another filter than that of the flags says.
pub fn cx_about(
    ctx: &Context,
    options: &OpenOptions,
    src: Arc<dyn Store>,
    dst: Arc<dyn Store>,
    dest: &OsStr,
    spec: FilterSpec,
) -> Result<Cx> {
    let open = |path: &OsString| ctx.open_as(path, options);
    let open_all = |paths: &[OsString]| paths.iter().map(open).collect::<Result<Vec<_>>>();
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
    verb: Verb,
    cx: &Cx,
    one: Option<(&Key, &Key)>,
    names_file: bool,
) -> Result<Option<Journal>> {
    let flags = &ctx.flags.config;
    let Some(folder) = ctx.journals().filter(|_| !flags.no_journal && !flags.dry_run) else { return Ok(None) };
    let id = JobId::new(verb, &*cx.src, &*cx.dst, cx.filter.spec(), one);
    let kept = journal::keep(&ctx.line);
    let here = std::env::current_dir().unwrap_or_default();
    let job = JobInfo {
        mode: mode_name(verb).into(),
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
            tracing::warn!(
                "No journal: {}. An interrupted run will restart large files from the beginning",
                error.message()
            );
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
    let (backup, dest) = (backup.locator(), journal::shown_path(dest));
    Err(crate::error::usage(format!("--backup-dir {backup} must be on the same remote as the destination {dest}")))
}
