//! Shared by all commands that list: where they list, how deep, and what happens to unreadable entries.

use crate::{
    context::Context,
    error::{error_text, usage},
    flags::{self, Flags},
};
use anyhow::Result;
use futures::{StreamExt, stream::BoxStream};
use haul::ListOptions;
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Listed, filter::Filter, job::ExtraEvents};
use haul_remotes::{OpenOptions, Spec};
use haul_store::{Encrypted, ListRequest, Store};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Requests at once when the user doesn't say, as in rclone.
const CHECKERS: usize = 8;

/// Source of a listing: a folder through the filter, or one file.
pub struct Source {
    /// The folder, or the one that holds the file.
    pub store: Arc<dyn Store>,
    /// Filter for its entries.
    pub filter: Arc<Filter>,
    /// How much is asked for at once.
    pub checkers: usize,
    /// How many pages of a listing at once; 0 leaves it to haul.
    pages: usize,
    /// One file was named.
    pub file: Option<Key>,
    /// File systems are listed for themselves, without what is mounted in them.
    one_device: bool,
    /// Reporting of entries that can't be copied.
    tell: ExtraEvents,
}

impl Source {
    /// Opens the path named by the user.
    ///
    /// Errors: the path can't be opened; usage errors of the filter flags.
    pub async fn open(ctx: &Context, path: &OsStr) -> Result<Source> {
        Source::open_as(ctx, path, &ctx.open_options()).await
    }

    /// Opens it with other options than those of the flags.
    ///
    /// Errors: as for [`Source::open`].
    pub async fn open_as(ctx: &Context, path: &OsStr, options: &OpenOptions) -> Result<Source> {
        let (store, file) = ctx.open_source_as(path, options).await?;
        let mut spec = flags::filter(&ctx.flags)?;
        let filter = Filter::new(spec.clone()).map_err(usage)?;
        if let Some(key) = &file {
            if !filter.is_all() {
                let path = crate::journal::shown_path(path);
                return Err(usage(format!("{path} is a file: a filter can't be used with a single file")));
            }
            spec.files_from = Some(vec![key.stored().to_vec()]);
        }
        let filter = if file.is_some() { Filter::new(spec).map_err(usage)? } else { filter };
        let suits = haul::questions(&*store);
        let checkers = ctx.flags.pace.checkers.unwrap_or(suits.max(CHECKERS));
        let pages = ctx.flags.pace.checkers.unwrap_or(0);
        let (one_device, tell) = (ctx.flags.filter.one_file_system, flags::tell(&ctx.flags));
        Ok(Source { store, filter: Arc::new(filter), checkers, pages, file, one_device, tell })
    }

    /// Entries in key order, one error for each part that can't be read. Files that can't be copied (devices, links that
    /// aren't followed) are left out.
    pub fn entries(&self, options: ListOptions) -> BoxStream<'static, Result<Entry, Error>> {
        let ask_each = self.file.is_some();
        self.list(&self.filter, ListOptions { ask_each, ..options })
    }

    /// The encrypted names behind the plain ones.
    ///
    /// Errors: the remote has none.
    pub fn encrypted(&self) -> Result<&dyn Encrypted> {
        self.store.encrypted().ok_or_else(|| {
            let place = self.store.locator();
            usage(format!("{place} has no encrypted names: only a remote of type crypt has"))
        })
    }

    /// Are the directories at the top buckets? So it is where a store without directories is listed from its root.
    pub fn lists_buckets(&self) -> bool {
        !self.store.caps().dirs && self.store.locator().ends_with(':')
    }

    /// As [`Source::entries`], whatever the filter says.
    pub fn all(&self, options: ListOptions) -> BoxStream<'static, Result<Entry, Error>> {
        self.list(&Arc::new(Filter::default()), options)
    }

    fn list(&self, filter: &Arc<Filter>, options: ListOptions) -> BoxStream<'static, Result<Entry, Error>> {
        let options = ListOptions {
            checkers: self.checkers,
            pages: self.pages,
            one_device: self.one_device,
            omit_mounts: self.one_device,
            posix: options.posix || self.tell.needs_posix(),
            ..options
        };
        one_by_one(haul::list(&self.store, filter, options), self.tell)
    }
}

/// Opens the folder of the file that the user named, which need not be there yet; no key when the path can only be a
/// folder. Where symlinks are kept, one goes by the name that it is stored under.
pub async fn open_file(ctx: &Context, path: &OsStr) -> Result<(Arc<dyn Store>, Option<Key>)> {
    let Some((folder, leaf)) = folder_and_name(path)? else { return Ok((ctx.open(path)?, None)) };
    let (store, link) = (ctx.open(folder)?, Key::of_stored(leaf));
    let named = Key::new(leaf);
    let may = link.is_symlink() && store.caps().symlinks && store.stat(&named).await.is_err();
    let as_link = may && store.stat(&link).await.is_ok();
    Ok((store, Some(if as_link { link } else { named })))
}

/// The folder of what was typed, with its remote, and the last name; `None` where the path can only be a folder.
///
/// Errors: no path was typed.
pub fn folder_and_name(path: &OsStr) -> Result<Option<(&OsStr, &[u8])>> {
    let typed = path.as_bytes();
    let path = Spec::parse(typed)?.path;
    let length = path.rsplit(|b| *b == b'/').next().map_or(0, <[u8]>::len);
    // The path is the end of what was typed, so cutting off the name leaves the folder.
    let (folder, leaf) = typed.split_at(typed.len().saturating_sub(length));
    let folder = if folder.is_empty() { b"." } else { folder };
    Ok((!matches!(leaf, b"" | b"." | b"..")).then(|| (OsStr::from_bytes(folder), leaf)))
}

/// Does the store hold any key?
pub async fn holds_something(store: &Arc<dyn Store>) -> Result<bool> {
    let mut steps = store.list(ListRequest { limit: Some(1), ..ListRequest::all() });
    while let Some(step) = steps.next().await {
        match step {
            Listed::Vanished(_) => {}
            Listed::Batch(entries) if entries.is_empty() => {}
            Listed::Batch(_) => return Ok(true),
            Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => return Ok(false),
            Listed::Failed { error, .. } => return Err(error.into()),
            Listed::End => break,
        }
    }
    Ok(false)
}

/// A listing as single entries. If it breaks off before its end without an error, its last item says so.
fn one_by_one(steps: BoxStream<'static, Listed>, tell: ExtraEvents) -> BoxStream<'static, Result<Entry, Error>> {
    let reported = Arc::new(AtomicBool::new(false));
    let end = reported.clone();
    let entries = steps.flat_map(move |step| {
        let items: Vec<Result<Entry, Error>> = match step {
            Listed::Batch(entries) => entries.into_iter().filter(|e| copiable(e, &tell)).map(Ok).collect(),
            Listed::Vanished(_) => Vec::new(),
            // A mount point that is left out is no error.
            Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => Vec::new(),
            Listed::Failed { error, .. } => {
                end.store(true, Relaxed);
                vec![Err(error)]
            }
            Listed::End => {
                end.store(true, Relaxed);
                Vec::new()
            }
        };
        futures::stream::iter(items)
    });
    let last = futures::stream::once(async move {
        let broke_off = !reported.load(Relaxed);
        broke_off.then(|| Err(Error::new(ErrorKind::Io, "list", "the listing broke off: what follows is not shown")))
    });
    entries.chain(last.filter_map(|e| async move { e })).boxed()
}

fn copiable(entry: &Entry, tell: &ExtraEvents) -> bool {
    if entry.kind == Kind::Special && tell.of_left_out(entry) {
        tracing::warn!("{}: left out: a symlink or special file (see --links and --copy-links)", entry.key);
    }
    entry.kind != Kind::Special
}

/// How deep to list: `--max-depth` if given, else everything or, when the command doesn't recurse, one level.
pub fn depth(flags: &Flags, recurse: bool) -> Option<usize> {
    match flags.filter.max_depth {
        Some(depth) if depth > 0 => usize::try_from(depth).ok(),
        Some(0) => None,
        _ if recurse => None,
        _ => Some(1),
    }
}

/// Errors that don't end a command: each is said once, and the last decides the exit code.
#[derive(Default)]
pub struct Failures(Option<Error>);

impl Failures {
    /// Keeps an error; says the one before it.
    pub fn add(&mut self, error: Error) {
        if let Some(before) = self.0.replace(error) {
            tracing::error!("{}", error_text(&before));
        }
    }

    /// True as long as there was no error.
    pub fn none(&self) -> bool {
        self.0.is_none()
    }

    /// The value, or the error if there was one.
    pub fn keep<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|e| self.add(e)).ok()
    }

    /// The last error, if there was one; the caller's caller says it.
    pub fn finish(self) -> Result<()> {
        match self.0 {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{Key, MissedRange};

    async fn run(steps: Vec<Listed>) -> Vec<String> {
        let entries = one_by_one(futures::stream::iter(steps).boxed(), ExtraEvents::default());
        entries.map(|e| e.map_or_else(|e| format!("error: {e}"), |e| e.key.to_string())).collect().await
    }

    fn batch(keys: &[&str]) -> Listed {
        Listed::Batch(keys.iter().map(|k| Entry::file(Key::from(*k), 1)).collect())
    }

    #[tokio::test]
    async fn a_listing_that_breaks_off_says_so() {
        assert_eq!(run(vec![batch(&["a", "b"]), batch(&["c"]), Listed::End]).await, ["a", "b", "c"]);
        assert_eq!(
            run(vec![batch(&["a"])]).await,
            ["a", "error: list: the listing broke off: what follows is not shown"]
        );
        let failed = Listed::Failed {
            lost: MissedRange::below(&Key::new("d/")),
            error: Error::new(ErrorKind::Denied, "list", "no").with_key(&Key::new("d/")),
        };
        assert_eq!(run(vec![failed, batch(&["e"])]).await, ["error: d/: list: no", "e"]);
    }
}
