//! What all commands that delete have in common: asking first, batches, and directories from the deepest up.

use super::listing::Failures;
use crate::{context::Context, error::one_line};
use haul_core::{Error, Key, units::size_short};
use haul_store::Store;
use std::sync::Arc;

/// Keys that are deleted together: as many as one request of the widest store takes.
pub const BATCH: usize = 1000;

/// May this be done? Says what isn't done under `--dry-run`; asks under `--interactive`.
pub fn allowed(ctx: &Context, what: &str, key: &Key, size: Option<u64>) -> bool {
    let size = size.map_or(String::new(), |n| format!(" (size {})", size_short(n)));
    let name = if key.is_root() { "the path itself".into() } else { key.display() };
    if ctx.flags.config.dry_run {
        tracing::warn!("{name}: Skipped {what} as --dry-run is set{size}");
        return false;
    }
    if ctx.flags.config.interactive && !ask(what, &name) {
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
    if keys.is_empty() {
        return;
    }
    let answers = store.delete(keys.iter().map(|k| (k.clone(), None)).collect()).await;
    for (key, answer) in keys.iter().zip(answers) {
        if failures.keep(answer.map_err(|e| named(e, key))).is_some() {
            tracing::info!("{key}: Deleted");
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

fn named(error: Error, key: &Key) -> Error {
    if error.key().is_none() && !key.is_root() { error.with_key(key) } else { error }
}
