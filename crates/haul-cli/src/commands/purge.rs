//! `purge`: a path with all that is in it.
//!
//! Never leaves the path: what a symlink in it points to isn't touched, whatever `--copy-links` says.

use super::{
    deleting::{BATCH, MaxDelete, allowed_at, delete, delete_dirs, refuse_backups},
    listing::{Failures, folder_and_name},
};
use crate::{
    context::Context,
    error::{CommandResult, usage},
    flags,
};
use anyhow::Result;
use futures::StreamExt;
use haul_core::{Key, Listed, filter::Filter};
use haul_remotes::OpenOptions;
use haul_store::{Domain, Links, ListRequest, Store};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    sync::Arc,
};

/// Delete a path and everything in it
///
/// Ignores filters, so it refuses to run with one: use delete for that.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let filter = Filter::new(flags::filter(&ctx.flags)?).map_err(usage)?;
    if !filter.is_all() || ctx.flags.filter.max_depth.is_some_and(|d| d > 0) {
        return Err(usage("purge deletes everything and takes no filter: use delete to choose what to delete"));
    }
    if ctx.flags.filter.one_file_system {
        let what =
            "purge deletes what is mounted below the path too: leave out --one-file-system, or use delete --rmdirs";
        return Err(usage(what));
    }
    refuse_backups(ctx, "purge")?;
    if flags::links(&ctx.flags) == Links::Follow {
        return Err(usage("purge deletes links, never what they point to: leave out --copy-links"));
    }
    let keeps = OpenOptions { links: Links::Keep, ..ctx.open_options() };
    // Names go, not what they lead to: where a host's links would be followed, one that leads nowhere could not even be listed.
    let store = match ctx.open(&args.path)? {
        store if store.caps().set_dir_mtime => ctx.open_as(&args.path, &keeps)?,
        store => store,
    };
    if is_top(&args.path) {
        return Err(usage(format!("{} is all that there is: name the directory to purge", store.locator())));
    }
    // The root of a whole account: who names no bucket, or no directory, surely doesn't mean every one.
    let place = store.caps().domain.as_ref().or(store.caps().place.as_ref());
    if place.is_some_and(Domain::is_all) || ctx.session.is_whole_server(&args.path)? {
        let (all, one) =
            if store.caps().dirs { ("the whole remote", "directory") } else { ("all buckets of the remote", "one") };
        return Err(usage(format!("{} is {all}: name the {one} to purge", store.locator())));
    }
    let root = Key::new("");
    store.stat(&root).await?;
    let typed = args.path.as_bytes();
    let plain = typed.iter().rposition(|byte| *byte != b'/').map_or(typed, |last| &typed[..=last]);
    let is_link = is_link(ctx, &keeps, OsStr::from_bytes(plain)).await?;
    if is_link && plain == typed {
        let path = crate::journal::shown_path(&args.path);
        return Err(usage(format!("{path} is a symlink: write {path}/ to purge the directory that it leads to")));
    }
    if let Some(max) = MaxDelete::of(ctx) {
        count(&store, max).await?;
    }
    if !allowed_at(ctx, "purge directory", &args.path) {
        return Ok(CommandResult::Done);
    }
    let mut failures = Failures::default();
    below(&store, &root, &mut failures).await;
    // Behind a link its content goes: what it is called by leads there still.
    if failures.none() && !is_link {
        delete(&store, vec![root], &mut failures).await;
    }
    failures.finish()?;
    Ok(CommandResult::Done)
}

/// True for the root directory of a machine, as a script types it whose variable isn't set.
fn is_top(typed: &OsStr) -> bool {
    let typed = typed.as_bytes();
    let path = match typed.iter().rposition(|byte| *byte == b':') {
        Some(colon) => &typed[colon + 1..],
        None => return std::fs::canonicalize(OsStr::from_bytes(typed)).is_ok_and(|path| path.parent().is_none()),
    };
    path.starts_with(b"/") && path.split(|byte| *byte == b'/').all(|part| matches!(part, b"" | b"."))
}

/// Errors: there is more than may go; that can't be told.
async fn count(store: &Arc<dyn Store>, mut max: MaxDelete) -> Result<()> {
    let mut steps = store.list(ListRequest::all());
    while let Some(step) = steps.next().await {
        match step {
            Listed::Batch(entries) => {
                entries.iter().filter(|entry| !entry.is_dir()).try_for_each(|entry| max.add(entry.size))?;
            }
            Listed::Failed { error, .. } => return Err(error.into()),
            Listed::Vanished(_) | Listed::End => {}
        }
    }
    Ok(())
}

/// Is the last name of the path a symlink, on a file system?
async fn is_link(ctx: &Context, keeps: &OpenOptions, path: &OsStr) -> Result<bool> {
    let Some((above, leaf)) = folder_and_name(path)? else { return Ok(false) };
    let above = ctx.open_as(above, keeps)?;
    // Elsewhere a file stands for a symlink, which no directory is behind.
    Ok(above.caps().set_dir_mtime && above.stat(&Key::symlink(leaf)).await.is_ok_and(|entry| entry.is_symlink()))
}

/// Deletes all that is in a directory (the empty key, or one that ends in `/`), and leaves the directory itself.
pub async fn below(store: &Arc<dyn Store>, dir: &Key, failures: &mut Failures) {
    let dirs = delete_files(store, dir, failures).await;
    delete_dirs(store, dirs, failures).await;
}

/// Deletes all that isn't a directory, and gives back the directories.
async fn delete_files(store: &Arc<dyn Store>, dir: &Key, failures: &mut Failures) -> Vec<Key> {
    let mut steps = store.list(ListRequest { prefix: dir.as_bytes().to_vec(), ..ListRequest::all() });
    let mut dirs = Vec::new();
    while let Some(step) = steps.next().await {
        match step {
            Listed::Batch(entries) => {
                let (below, files): (Vec<_>, Vec<_>) =
                    entries.into_iter().filter(|e| e.key != *dir).partition(|e| e.is_dir());
                dirs.extend(below.into_iter().map(|e| e.key));
                for files in files.chunks(BATCH) {
                    delete(store, files.iter().map(|e| e.key.clone()).collect(), failures).await;
                }
            }
            Listed::Failed { error, .. } => failures.add(error),
            Listed::Vanished(_) | Listed::End => {}
        }
    }
    dirs
}
