//! `rmdirs`: empty directories below a path.

use super::{
    deleting::{allowed, allowed_at, delete_dirs},
    listing::{Failures, Source, depth},
};
use crate::{
    context::Context,
    error::{CommandResult, usage},
};
use anyhow::Result;
use futures::StreamExt;
use haul::ListOptions;
use haul_core::{Entry, Key, filter::MarkedDirs, key};
use std::ffi::{OsStr, OsString};

/// Delete empty directories below a path, and the path itself when it is empty
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Keep the path itself
    #[arg(long)]
    leave_root: bool,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let source = Source::open(ctx, &args.path).await?;
    if source.file.is_some() {
        return Err(usage(format!("{}: is a file, not a directory", crate::journal::shown_path(&args.path))));
    }
    remove(ctx, &source, args.leave_root).await
}

fn may_remove(ctx: &Context, source: &Source, dir: &Key) -> bool {
    match dir.is_root() {
        true => allowed_at(ctx, "remove directory", OsStr::new(source.store.locator())),
        false => allowed(ctx, "remove directory", dir, None),
    }
}

/// Deletes the directories that hold nothing but empty directories.
pub async fn remove(ctx: &Context, source: &Source, leave_root: bool) -> Result<CommandResult> {
    let max_depth = depth(&ctx.flags, true);
    // A file that the filter refuses still fills its directory.
    let mut entries = source.all(ListOptions { max_depth, dirs: true, ..Default::default() });
    let (mut empty, mut failures) = (Empty::new(leave_root), Failures::default());
    let mut marked = MarkedDirs::default();
    while let Some(entry) = entries.next().await {
        match entry {
            Ok(entry) => {
                marked.see(&source.filter, &entry);
                empty.see(&entry);
            }
            // The contents of an unreadable directory are unknown, so neither it nor those above it are empty.
            Err(error) => {
                empty.keep(error.key().cloned().unwrap_or_else(|| Key::new("")).as_bytes());
                failures.add(error);
            }
        }
    }
    let wanted =
        empty.dirs.into_iter().filter(|dir| source.filter.wants_dir(dir.as_bytes()) && !marked.holds(dir.as_bytes()));
    let dirs = wanted.filter(|dir| may_remove(ctx, source, dir)).collect();
    delete_dirs(&source.store, dirs, &mut failures).await;
    failures.finish()?;
    Ok(CommandResult::Done)
}

/// The directories seen so far in which no file was seen, in key order.
struct Empty {
    dirs: Vec<Key>,
}

impl Empty {
    fn new(leave_root: bool) -> Self {
        Empty { dirs: if leave_root { Vec::new() } else { vec![Key::new("")] } }
    }

    fn see(&mut self, entry: &Entry) {
        match entry.is_dir() {
            true => self.dirs.push(entry.key.clone()),
            false => self.keep(key::parent(entry.key.as_bytes())),
        }
    }

    /// `dir` and all above it aren't empty.
    fn keep(&mut self, dir: &[u8]) {
        // In key order those above stand before what they hold, with only empty directories in between, so a search by
        // key finds each.
        let ends = (0..dir.len()).filter(|i| dir[*i] == b'/').map(|i| &dir[..=i]);
        for above in [&b""[..]].into_iter().chain(ends) {
            if let Ok(at) = self.dirs.binary_search_by(|key| key.as_bytes().cmp(above)) {
                self.dirs.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(keys: &[&str], leave_root: bool) -> Vec<String> {
        let mut empty = Empty::new(leave_root);
        for key in keys {
            let key = Key::from(*key);
            empty.see(&if key.is_dir() { Entry::dir(key) } else { Entry::file(key, 0) });
        }
        empty.dirs.iter().map(Key::to_string).collect()
    }

    #[test]
    fn only_what_holds_no_file_is_empty() {
        assert_eq!(
            run(&["a/", "a/b/", "a/b/c/", "d/", "d/e/", "d/e/f", "d/g/"], false),
            ["a/", "a/b/", "a/b/c/", "d/g/"]
        );
        assert_eq!(run(&["a/"], false), ["", "a/"]);
        assert_eq!(run(&["a/"], true), ["a/"]);
        assert_eq!(run(&["x"], false), Vec::<String>::new());
    }
}
