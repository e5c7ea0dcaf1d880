//! Listing one side of a job: the store's own listing, filtered before it is opened where it can be, with implied
//! directories where the store has none, down to a depth, without directories that hold a marker file.
//!
//! Called by the join of two sides and by every command that lists. Streams: holds batches, never a whole bucket.

mod by_dirs;
mod implied;

use futures::{StreamExt, stream::BoxStream};
use haul_core::{Entry, Key, Kind, Listed, Lost, filter::Filter};
use haul_store::{ListRequest, Store};
use std::sync::Arc;

/// How to list a side.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Recurse at most this deep: 1 is the top level only; `None` is everything.
    pub max_depth: Option<usize>,
    /// Directories too. Stores without real directories then give those that their keys imply.
    pub dirs: bool,
    /// Metadata too, where it costs no request for each key.
    pub meta: bool,
    /// Ask for the stored mtime of each file whose listing gave none (one request a file where the store needs it).
    pub mtimes: bool,
    /// How many such questions at once; 0 is taken as 1.
    pub checkers: usize,
    /// Don't list: ask for each key of the filter's `files_from`.
    pub ask_each: bool,
}

/// Lists `store` in bytewise key order, only what `filter` wants.
///
/// `Special` entries are passed on (so that a caller can say that they were left out); directories come only with
/// [`ListOptions::dirs`].
pub fn list(store: &Arc<dyn Store>, filter: &Arc<Filter>, options: ListOptions) -> BoxStream<'static, Listed> {
    let caps = store.caps();
    let raw = if options.ask_each {
        ask_each(store.clone(), filter.files_from().unwrap_or_default().to_vec(), options.checkers)
    } else if options.max_depth.is_some() || !filter.markers().is_empty() {
        by_dirs::list(store.clone(), filter.clone(), options.clone())
    } else {
        flat(store, filter, &options)
    };
    let raw = if options.dirs && !caps.dirs { implied::with_implied_dirs(raw) } else { raw };
    let raw = if (options.mtimes || filter.needs_mtime()) && !caps.mtime_listed {
        with_mtimes(raw, store.clone(), filter.clone(), options.checkers)
    } else {
        raw
    };
    filtered(raw, filter.clone(), options.dirs)
}

fn flat(store: &Arc<dyn Store>, filter: &Arc<Filter>, options: &ListOptions) -> BoxStream<'static, Listed> {
    let mut request = ListRequest { meta: options.meta, ..ListRequest::all() };
    if !filter.is_all() {
        let filter = filter.clone();
        request.descend = Some(Arc::new(move |dir| filter.descend(dir)));
    }
    store.list(request)
}

/// `--files-from` with `--no-traverse`: one question a key, in key order.
fn ask_each(store: Arc<dyn Store>, keys: Vec<Key>, checkers: usize) -> BoxStream<'static, Listed> {
    let answers = futures::stream::iter(keys).map(move |key| {
        let store = store.clone();
        async move {
            match store.stat(&key).await {
                Ok(entry) => Listed::Batch(vec![entry]),
                Err(e) if e.kind() == haul_core::ErrorKind::NotFound => Listed::Batch(vec![]),
                Err(error) => {
                    let to = Some(key.with_suffix([0]));
                    Listed::Failed { lost: Lost { from: key, to }, error }
                }
            }
        }
    });
    answers.buffered(checkers.max(1)).chain(futures::stream::iter([Listed::End])).boxed()
}

/// Keeps what the filter wants; drops directories unless asked for.
fn filtered(raw: BoxStream<'static, Listed>, filter: Arc<Filter>, dirs: bool) -> BoxStream<'static, Listed> {
    if filter.is_all() && dirs {
        return raw;
    }
    raw.map(move |step| match step {
        Listed::Batch(mut entries) => {
            entries.retain(|e| match e.kind {
                Kind::Dir => dirs && filter.descend(e.key.as_bytes()),
                Kind::File | Kind::Special => filter.wants(e),
            });
            Listed::Batch(entries)
        }
        other => other,
    })
    .boxed()
}

/// Fills in mtimes by asking for each file, several at once, keeping the order. Files that the filter refuses
/// whatever their time aren't asked for.
fn with_mtimes(
    raw: BoxStream<'static, Listed>,
    store: Arc<dyn Store>,
    filter: Arc<Filter>,
    checkers: usize,
) -> BoxStream<'static, Listed> {
    raw.then(move |step| {
        let (store, filter) = (store.clone(), filter.clone());
        async move {
            let Listed::Batch(entries) = step else { return step };
            Listed::Batch(ask_mtimes(&store, &filter, entries, checkers).await)
        }
    })
    .boxed()
}

async fn ask_mtimes(store: &Arc<dyn Store>, filter: &Filter, entries: Vec<Entry>, checkers: usize) -> Vec<Entry> {
    let asked = entries.into_iter().map(|entry| async move {
        if entry.kind != Kind::File || entry.mtime.is_some() || !filter.wants_but_for_age(&entry) {
            return entry;
        }
        match store.stat(&entry.key).await {
            Ok(fresh) => fresh,
            Err(error) => {
                // Gone or forbidden since it was listed: the time of storing is the best that is known.
                tracing::debug!("{}: {error}", entry.key);
                Entry { mtime: entry.changed, ..entry }
            }
        }
    });
    futures::stream::iter(asked).buffered(checkers.max(1)).collect().await
}
