//! Shared by all commands that delete: prompts, batches, and directories from the deepest up.

use super::listing::Failures;
use crate::{
    context::Context,
    error::{one_line, usage},
};
use haul_core::{
    Entry, Error, ErrorKind, Key, Version,
    units::{Size, size_short},
};
use haul_store::Store;
use std::{ffi::OsStr, sync::Arc};

/// Keys that are deleted together: as many as one request of the widest store takes.
pub const BATCH: usize = 1000;

/// Refuses flags that promise a backup to a command that keeps none.
pub fn refuse_backups(ctx: &Context, verb: &str) -> anyhow::Result<()> {
    let sync = &ctx.flags.sync;
    let flag = match (&sync.backup_dir, &sync.suffix) {
        (Some(_), _) => "--backup-dir",
        (_, Some(_)) => "--suffix",
        (None, None) => return Ok(()),
    };
    Err(usage(format!("{verb} keeps no backup: leave out {flag}, or move the files away with haul move")))
}

/// `--max-delete` and `--max-delete-size`: a command that would delete more deletes nothing.
pub struct MaxDelete {
    files: Option<u64>,
    bytes: Option<u64>,
    seen: (u64, u64),
}

impl MaxDelete {
    /// As the flags say; `None` where they set no limit.
    pub fn of(ctx: &Context) -> Option<MaxDelete> {
        let flags = &ctx.flags.sync;
        let files = flags.max_delete();
        let bytes = flags.max_delete_size.and_then(Size::bytes);
        (files.is_some() || bytes.is_some()).then_some(MaxDelete { files, bytes, seen: (0, 0) })
    }

    /// Adds a file of `size` bytes.
    ///
    /// Errors: `Limit` when that exceeds a limit.
    pub fn add(&mut self, size: u64) -> Result<(), Error> {
        self.seen = (self.seen.0 + 1, self.seen.1.saturating_add(size));
        let over = match (self.files, self.bytes) {
            (Some(max), _) if self.seen.0 > max => format!("more than {max} files (--max-delete)"),
            (_, Some(max)) if self.seen.1 > max => format!("more than {} (--max-delete-size)", size_short(max)),
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Limit, "delete", format!("Refused to delete {over}: nothing was deleted")))
    }
}

/// May this be done? Says what isn't done under `--dry-run`; asks under `--interactive`.
pub fn allowed(ctx: &Context, what: &str, key: &Key, size: Option<u64>) -> bool {
    is_allowed(ctx, what, &key.display(), size)
}

/// [`allowed`] for a place that was named on the command line.
pub fn allowed_at(ctx: &Context, what: &str, place: &OsStr) -> bool {
    is_allowed(ctx, what, &crate::journal::shown_path(place), None)
}

fn is_allowed(ctx: &Context, what: &str, name: &str, size: Option<u64>) -> bool {
    let size = size.map_or(String::new(), |n| format!(" (size {})", size_short(n)));
    if ctx.flags.config.dry_run {
        tracing::warn!("{name}: Skipped {what} as --dry-run is set{size}");
        return false;
    }
    if ctx.flags.config.interactive && !ask(what, name) {
        tracing::warn!("{name}: Skipped {what} as --interactive is set{size}");
        return false;
    }
    true
}

/// Asks on the terminal; only a clear yes is one.
fn ask(what: &str, name: &str) -> bool {
    eprint!("haul: {what} \"{}\"? y/N> ", one_line(name));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Deletes keys, all that can be, and says what can't.
pub async fn delete(store: &Arc<dyn Store>, keys: Vec<Key>, failures: &mut Failures) {
    delete_versions(store, keys.into_iter().map(|key| (key, None)).collect(), failures).await;
}

/// Deletes what was listed, as far as it is still there: what has changed since stays, if the store can tell.
pub async fn delete_listed(store: &Arc<dyn Store>, entries: Vec<Entry>, failures: &mut Failures) {
    let tells = store.caps().deletes_version;
    let keys = entries.into_iter().map(|entry| (entry.key, entry.version.filter(|_| tells)));
    delete_versions(store, keys.collect(), failures).await;
}

async fn delete_versions(store: &Arc<dyn Store>, keys: Vec<(Key, Option<Version>)>, failures: &mut Failures) {
    if keys.is_empty() {
        return;
    }
    let answers = store.delete(keys.clone()).await;
    for ((key, version), answer) in keys.iter().zip(answers) {
        match answer {
            Err(error) if error.kind() == ErrorKind::Changed && version.is_some() => {
                tracing::warn!("{key}: changed since it was listed: it stays");
            }
            answer => {
                if failures.keep(answer.map_err(|e| named(e, key))).is_some() {
                    tracing::info!("{key}: Deleted");
                }
            }
        }
    }
}

/// Deletes directories, the deepest first, those of one depth together.
pub async fn delete_dirs(store: &Arc<dyn Store>, mut dirs: Vec<Key>, failures: &mut Failures) {
    let depth = |key: &Key| key.as_bytes().iter().filter(|b| **b == b'/').count();
    dirs.sort_by_key(|key| std::cmp::Reverse(depth(key)));
    for level in dirs.chunk_by(|a, b| depth(a) == depth(b)) {
        for batch in level.chunks(BATCH) {
            delete(store, batch.to_vec(), failures).await;
        }
    }
}

/// Errors: the file isn't any more what was listed; those of the store.
pub async fn check_still(op: &'static str, store: &Arc<dyn Store>, listed: &Entry) -> Result<(), Error> {
    let still = store.stat(&listed.key).await.and_then(|now| match is_still(listed, &now) {
        true => Ok(()),
        false => {
            let message = "changed since it was listed: it stays, and nothing is deleted for it";
            Err(Error::new(ErrorKind::Changed, op, message))
        }
    });
    still.map_err(|error| error.with_key(&listed.key))
}

/// By all that both tell, this is still the file that was listed.
fn is_still(listed: &Entry, now: &Entry) -> bool {
    let versions = listed.version.as_ref().zip(now.version.as_ref());
    let times = listed.mtime.zip(now.mtime);
    let hashes = listed.hashes.agree(&now.hashes);
    listed.size == now.size
        && versions.is_none_or(|(a, b)| a == b)
        && times.is_none_or(|(a, b)| a == b)
        && hashes.is_none_or(|(_, same)| same)
}

fn named(error: Error, key: &Key) -> Error {
    if error.key().is_none() && !key.is_root() { error.with_key(key) } else { error }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests make their own files.
mod tests {
    use super::*;
    use haul_core::Mtime;
    use haul_store::Links;
    use haul_testkit::disk;
    use std::fs;

    #[test]
    fn a_file_must_still_be_what_was_listed() {
        let file = |version: &[u8], time| Entry {
            mtime: time,
            version: Some(Version::new(version)),
            ..Entry::file(Key::new("a"), 3)
        };
        let listed = file(b"1", Some(Mtime(5)));
        assert!(is_still(&listed, &listed));
        // A question may tell more than a listing.
        assert!(is_still(&Entry { mtime: None, ..listed.clone() }, &listed));
        assert!(!is_still(&listed, &file(b"2", Some(Mtime(5)))));
        assert!(!is_still(&listed, &Entry { size: 4, ..listed.clone() }));
        assert!(!is_still(&listed, &Entry { version: None, ..file(b"1", Some(Mtime(6))) }));
    }

    #[tokio::test]
    async fn what_changed_since_it_was_listed_stays() {
        let temp = tempfile::tempdir().unwrap();
        let store = disk::open(temp.path(), Links::Skip);
        let mut listed = Vec::new();
        for name in ["a", "b"] {
            fs::write(temp.path().join(name), "old").unwrap();
            listed.push(store.stat(&Key::new(name)).await.unwrap());
        }
        fs::write(temp.path().join("a"), "written since").unwrap();
        let mut failures = Failures::default();
        delete_listed(&store, listed, &mut failures).await;
        assert!(failures.none());
        assert_eq!(fs::read_to_string(temp.path().join("a")).unwrap(), "written since");
        assert!(!temp.path().join("b").exists());
    }
}
