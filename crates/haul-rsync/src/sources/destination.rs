//! The destination as typed: what is there before the first job, whether it may be made, and which directories are said to be new.

use super::errno_text;
use crate::{
    Context,
    entry_kind::{EntryKind, FarFolders, kind, look},
    exit::{self, Refusal},
    opening,
    options::Options,
    path_args::{PathArg, absolute},
    sink::Lines,
    sub_jobs::{Dest, SubJob},
};
use futures::StreamExt as _;
use haul_core::{Key, Listed};
use haul_store::{ListRequest, Store};
use rustix::io::Errno;
use std::sync::Arc;

/// The destination of a run.
pub(super) struct Destination<'a> {
    pub(super) options: &'a Options,
    pub(super) ctx: &'a Context<'a>,
    pub(super) lines: &'a Lines,
    /// Looks at paths on other machines.
    pub(super) far: &'a FarFolders<'a>,
    /// Its path.
    pub(super) to: &'a PathArg,
}

impl Destination<'_> {
    /// Says what of the destination must be made, or that it can't be.
    pub(super) async fn check(&self, there: Dest, jobs: &[SubJob]) -> Result<(), Refusal> {
        let to = self.to;
        let names_file = jobs.len() == 1 && jobs[0].alone;
        match there {
            Dest::Dir => return Ok(()),
            _ if jobs.is_empty() => return Ok(()),
            Dest::File if names_file && jobs[0].one.is_none() => {
                return Err((exit::SELECTION, "ERROR: cannot overwrite non-directory with a directory".into()));
            }
            Dest::File if names_file => return Ok(()),
            Dest::File => {
                let line = "ERROR: destination must be a directory when copying more than 1 file";
                return Err((exit::SELECTION, line.into()));
            }
            Dest::Missing => {}
        }
        if to.here() && !self.options.mkpath {
            let whole = absolute(&to.path);
            let parent = haul_core::key::parent(&whole);
            // As in rsync, where a directory is only said to be made.
            if kind(parent, true).is_none() && (names_file || !self.options.dry_run) {
                let (code, path) = if names_file { (exit::SELECTION, parent) } else { (exit::FILE_IO, &whole[..]) };
                return Err((code, format!("{} (--mkpath creates it)", no_dir(path, Errno::NOENT))));
            }
        }
        if to.here() && !self.options.dry_run {
            // A directory to create must not be a dangling symlink, nor be behind one.
            let whole = absolute(&to.path);
            let mut above = if names_file { haul_core::key::parent(&whole) } else { &whole[..] };
            while above.len() > 1 && kind(above, true).is_none() {
                let path = above.strip_suffix(b"/").unwrap_or(above);
                if kind(path, false).is_some() {
                    let code = if names_file { exit::SELECTION } else { exit::FILE_IO };
                    return Err((code, no_dir(path, Errno::EXIST)));
                }
                above = haul_core::key::parent(above);
            }
        }
        if !jobs.is_empty() && self.lines.tells_names() {
            self.tell_made(names_file).await?;
        }
        Ok(())
    }

    /// Refuses a destination on another machine that is missing with the directory that is to hold it.
    pub(super) async fn check_above(&self, jobs: &[SubJob]) -> Result<(), Refusal> {
        let to = self.to;
        let names_file = jobs.len() == 1 && jobs[0].alone;
        // As in rsync, where a directory is only said to be made.
        if self.options.mkpath || jobs.is_empty() || self.options.dry_run && !names_file {
            return Ok(());
        }
        let path = to.path.strip_suffix(b"/").unwrap_or(&to.path);
        let parent = haul_core::key::parent(path);
        // A symlink there will do: haul there may not follow any.
        if self.far.kind_of(to, parent, false).await?.is_some() {
            return Ok(());
        }
        let (code, path) = if names_file { (exit::SELECTION, parent) } else { (exit::FILE_IO, path) };
        Err((code, format!("{} (--mkpath creates it)", no_dir(path, Errno::NOENT))))
    }

    /// Says which directories of the destination's path are new.
    async fn tell_made(&self, names_file: bool) -> Result<(), Refusal> {
        let to = self.to;
        let path = to.path.strip_suffix(b"/").unwrap_or(&to.path);
        let dir = if names_file { haul_core::key::parent(path) } else { path };
        let shown = String::from_utf8_lossy(dir.strip_suffix(b"/").unwrap_or(dir)).into_owned();
        let counts = self.options.mkpath && (to.here() || self.far.has_dirs(to)?);
        if counts {
            match self.missing_dirs(dir).await? {
                0 => {}
                1 => self.lines.tell(&format!("created 1 directory for {shown}")),
                made => self.lines.tell(&format!("created {made} directories for {shown}")),
            }
        }
        // With --mkpath it is there by now, but in a dry run.
        if !names_file && (!counts || self.options.dry_run) {
            self.lines.tell(&format!("created directory {shown}"));
        }
        Ok(())
    }

    /// How many directories of the path `dir` at the destination aren't there.
    async fn missing_dirs(&self, dir: &[u8]) -> Result<usize, Refusal> {
        let to = self.to;
        let whole = if to.here() { absolute(dir) } else { [dir.strip_suffix(b"/").unwrap_or(dir), b"/"].concat() };
        let (mut above, mut missing) = (&whole[..], 0);
        while above.len() > 1 {
            let is_there = match to.here() {
                true => kind(above, true).is_some(),
                // `DIR/.` is no directory of its own.
                false if matches!(above, b"./") || above.ends_with(b"/./") => {
                    above = haul_core::key::parent(above);
                    continue;
                }
                // A symlink there will do: haul there may not follow any.
                false => self.far.kind_of(to, above, false).await?.is_some(),
            };
            if is_there {
                break;
            }
            (above, missing) = (haul_core::key::parent(above), missing + 1);
        }
        Ok(missing)
    }

    /// What is there now.
    pub(super) async fn look(&self) -> Result<Dest, Refusal> {
        let to = self.to;
        if to.here() {
            return match look(&to.path, true) {
                Ok(EntryKind::Dir) => Ok(Dest::Dir),
                Ok(_) => Ok(Dest::File),
                Err(Errno::NOENT) if to.path.is_empty() => Ok(Dest::Dir),
                Err(Errno::NOENT) => Ok(Dest::Missing),
                Err(errno) if self.options.mkpath => Err((exit::FILE_IO, no_dir(&to.path, errno))),
                Err(errno) => {
                    let path = String::from_utf8_lossy(&to.path).into_owned();
                    Err((exit::SELECTION, format!("ERROR: cannot stat destination \"{path}\": {}", errno_text(errno))))
                }
            };
        }
        let (file, is_dir) = if self.far.has_dirs(to)? {
            // Both questions at once, as each is a round trip.
            let dir = self.far.open(to, &to.path, false)?;
            let (opened, is_dir) = tokio::join!(open(self.options, self.ctx, to), holds_something(&dir));
            (opened?.1, is_dir)
        } else {
            let (store, file) = open(self.options, self.ctx, to).await?;
            let is_dir = file.is_none() && holds_something(&store).await;
            (file, is_dir)
        };
        Ok(match file {
            Some(_) => Dest::File,
            None if is_dir => Dest::Dir,
            None => Dest::Missing,
        })
    }
}

/// Opens a path on another machine; also its key, where it is a file.
pub(super) async fn open(
    options: &Options,
    ctx: &Context<'_>,
    typed: &PathArg,
) -> Result<(Arc<dyn Store>, Option<Key>), Refusal> {
    let opened = ctx.open_source_as(&typed.word(&typed.path), &opening::looked_at(options)).await;
    opened.map_err(|error| (exit::FILE_IO, format!("{error:#}")))
}

fn no_dir(path: &[u8], errno: Errno) -> String {
    let path = String::from_utf8_lossy(path.strip_suffix(b"/").unwrap_or(path)).into_owned();
    format!("mkdir \"{path}\" failed: {}", errno_text(errno))
}

async fn holds_something(store: &Arc<dyn Store>) -> bool {
    if store.caps().dirs {
        return store.stat(&Key::new("")).await.is_ok();
    }
    let mut listing = store.list(ListRequest { limit: Some(1), ..ListRequest::all() });
    while let Some(step) = listing.next().await {
        if matches!(&step, Listed::Batch(entries) if !entries.is_empty()) {
            return true;
        }
    }
    false
}
