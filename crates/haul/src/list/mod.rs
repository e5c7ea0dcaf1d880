//! Listing one side of a job: the store's own listing, filtered before it is opened where it can be, with implied
//! directories where the store has none, down to a depth, without directories that hold a marker file.
//!
//! Called by the join of two sides and by every command that lists. Streams: holds batches, never a whole bucket.

mod by_dirs;
mod empty_dirs;
mod implied_dirs;
pub(crate) mod page;
mod ranges;

use futures::{StreamExt, future::OptionFuture, stream::BoxStream};
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Listed, MissedRange,
    filter::Filter,
    part::{KeyRange, Part},
};
use haul_store::{ListRequest, Store, task::Task};
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
    /// Facts of inodes too, where there are inodes.
    pub posix: bool,
    /// Ask for the stored mtime of each file whose listing gave none (one request a file where the store needs it).
    pub mtimes: bool,
    /// How many such questions at once; 0 is taken as 1.
    pub checkers: usize,
    /// Files refused by size, age or a marker file exist nevertheless, and on the other side they may be within the
    /// limits. So return files that only a limit refuses (see [`Filter::within_limits`]), and report where a marker hides
    /// entries (a [`Listed::Failed`] of the kind `Hidden`).
    pub for_join: bool,
    /// Don't list: ask for each key of the filter's `files_from`.
    pub ask_each: bool,
    /// Pages of the listing at once; 0 leaves it to the store's lanes.
    pub pages: usize,
    /// Entries of the listing that may wait in memory for those before them, 330 bytes each; `None`: [`haul_core::ranges::WINDOW`].
    pub waiting: Option<usize>,
    /// Directories that hold nothing but such directories are left out.
    pub prune_empty_dirs: bool,
    /// Entries beyond a mount point are left out; reported as with `for_join`.
    pub one_device: bool,
    /// With `one_device`: the mount point too.
    pub omit_mounts: bool,
    /// See [`ListRequest::sweep`].
    pub sweep: bool,
    /// Only this part.
    pub part: Part,
}

/// Lists `store` in bytewise key order, only what `filter` wants.
///
/// `Special` entries are passed on (so that a caller can say that they were left out); directories come only with
/// [`ListOptions::dirs`].
pub fn list(store: &Arc<dyn Store>, filter: &Arc<Filter>, options: ListOptions) -> BoxStream<'static, Listed> {
    let caps = store.caps();
    let options = ListOptions { meta: options.meta || filter.needs_meta(), ..options };
    let raw = if let Part::Dirs(dirs) = &options.part {
        ask_each(store.clone(), dirs.to_vec(), options.checkers)
    } else if options.ask_each {
        let keys = filter.files_from().unwrap_or_default();
        let keys = &known_as(keys, caps.symlinks)[..];
        // Only inodes have attributes that are worth a question for each directory on the way.
        let keys = if options.dirs && options.posix { with_dirs(keys) } else { keys.to_vec() };
        ask_each(store.clone(), keys, options.checkers)
    } else if options.max_depth.is_some() || !filter.markers().is_empty() {
        by_dirs::list(store.clone(), filter.clone(), options.clone())
    } else {
        flat(store, filter, &options)
    };
    let raw = if options.dirs && !caps.dirs { implied_dirs::with_implied_dirs(raw) } else { raw };
    // After the implied directories: those above the range's first key belong to whoever has the range before.
    let raw = match options.part.range() {
        Some(range) => within(raw, range.clone()),
        None => raw,
    };
    let times = (options.mtimes || filter.needs_mtime()) && !caps.mtime_listed;
    let raw = if times || filter.needs_meta() {
        with_facts(raw, store.clone(), filter.clone(), (times, options.checkers))
    } else {
        raw
    };
    filtered(raw, filter.clone(), options)
}

fn flat(store: &Arc<dyn Store>, filter: &Arc<Filter>, options: &ListOptions) -> BoxStream<'static, Listed> {
    let (meta, posix) = (options.meta, options.posix);
    let (one_device, omit_mounts) = (options.one_device, options.omit_mounts);
    let (prune_by, sweep) = ((!filter.is_all()).then(|| filter.clone()), options.sweep);
    let KeyRange { after, through: until } = options.part.range().cloned().unwrap_or_default();
    let all = ListRequest { after, until, ..ListRequest::all() };
    let request = ListRequest { meta, posix, prune_by, one_device, omit_mounts, sweep, ..all };
    ranges::list(store, request, options.pages, options.waiting)
}

/// The part of a listing in the range; it ends as soon as nothing of that can follow.
fn within(raw: BoxStream<'static, Listed>, range: KeyRange) -> BoxStream<'static, Listed> {
    let state = Some((raw, range));
    let clipped = futures::stream::unfold(state, |state| async move {
        let (mut raw, range) = state?;
        let (step, over) = range.clip(raw.next().await?);
        let steps = match (&step, over) {
            (Listed::End, _) | (_, false) => vec![step],
            (_, true) => vec![step, Listed::End],
        };
        Some((futures::stream::iter(steps), (!over).then_some((raw, range))))
    });
    clipped.flatten().boxed()
}

/// The keys of entries that are listed by name: where there are symlinks, a name may be one's.
fn known_as(names: &[Key], symlinks: bool) -> Vec<Key> {
    let link = |name: &Key| Some(Key::of_stored(name.as_bytes())).filter(|key| symlinks && key != name);
    names.iter().flat_map(|name| std::iter::once(name.clone()).chain(link(name))).collect()
}

/// `--files-from` with `--no-traverse`: one question a key, in key order.
fn ask_each(store: Arc<dyn Store>, keys: Vec<Key>, checkers: usize) -> BoxStream<'static, Listed> {
    let answers = futures::stream::iter(keys).map(move |key| {
        let store = store.clone();
        Task::spawn(async move {
            match store.stat(&key).await {
                Ok(entry) => Listed::Batch(vec![entry]),
                Err(e) if e.kind() == ErrorKind::NotFound => Listed::Batch(vec![]),
                Err(error) => lost_key(key, error),
            }
        })
    });
    answers.buffered(checkers.max(1)).chain(futures::stream::iter([Listed::End])).boxed()
}

/// Keys in order, with the directories that they are in.
fn with_dirs(keys: &[Key]) -> Vec<Key> {
    let mut all: Vec<Key> = Vec::with_capacity(keys.len());
    let mut last: &[u8] = b"";
    for key in keys {
        let bytes = key.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1);
        all.extend(ends.map(|end| &bytes[..end]).filter(|dir| !last.starts_with(dir)).map(Key::new));
        all.push(key.clone());
        last = bytes;
    }
    all.dedup();
    all
}

/// Keeps what the filter wants; drops directories unless asked for.
fn filtered(raw: BoxStream<'static, Listed>, filter: Arc<Filter>, options: ListOptions) -> BoxStream<'static, Listed> {
    let ListOptions { dirs, for_join, prune_empty_dirs, .. } = options;
    let raw = keep_wanted(raw, filter, dirs, for_join);
    if prune_empty_dirs { empty_dirs::without_empty_dirs(raw) } else { raw }
}

fn keep_wanted(
    raw: BoxStream<'static, Listed>,
    filter: Arc<Filter>,
    dirs: bool,
    for_join: bool,
) -> BoxStream<'static, Listed> {
    if filter.is_all() && dirs {
        return raw;
    }
    raw.map(move |step| match step {
        Listed::Batch(mut entries) => {
            entries.retain(|e| match e.kind {
                Kind::Dir => dirs && filter.descend(e.key.as_bytes()),
                Kind::File | Kind::Symlink | Kind::Special if for_join => filter.wants_name(e),
                Kind::File | Kind::Symlink | Kind::Special => filter.wants(e),
            });
            Listed::Batch(entries)
        }
        // A symlink that is followed and leads nowhere: what is left out can't be missed. Of a directory that can't be opened nobody
        // knows what it holds.
        Listed::Failed { lost, error }
            if error.kind() == ErrorKind::NotFound
                && !lost.from.is_dir()
                && lost == MissedRange::only(&lost.from)
                && !filter.wants_name(&Entry::file(lost.from.clone(), 0)) =>
        {
            Listed::Batch(Vec::new())
        }
        other => other,
    })
    .boxed()
}

/// Fills in mtimes (if `times`) and metadata that the filter needs by asking for each file, several at once, keeping the order.
/// Files that the filter refuses whatever these are aren't asked for.
fn with_facts(
    raw: BoxStream<'static, Listed>,
    store: Arc<dyn Store>,
    filter: Arc<Filter>,
    (times, checkers): (bool, usize),
) -> BoxStream<'static, Listed> {
    raw.then(move |step| {
        let (store, filter) = (store.clone(), filter.clone());
        async move {
            let Listed::Batch(entries) = step else { return vec![step] };
            ask_facts(&store, &filter, entries, (times, checkers)).await
        }
    })
    .flat_map(futures::stream::iter)
    .boxed()
}

/// The entries with these facts; before them those of which they could not be found out though the filter must know them.
async fn ask_facts(
    store: &Arc<dyn Store>,
    filter: &Filter,
    entries: Vec<Entry>,
    (times, checkers): (bool, usize),
) -> Vec<Listed> {
    let entries_with_facts = entries.into_iter().map(|entry| {
        let lacks = (times && entry.mtime.is_none()) || (filter.needs_meta() && entry.meta.is_none());
        let known = !entry.has_bytes() || !lacks || !filter.wants_but_for_facts(&entry);
        let asking = (!known).then(|| {
            let (store, key) = (store.clone(), entry.key.clone());
            Task::spawn(async move { store.stat(&key).await })
        });
        async move {
            match OptionFuture::from(asking).await {
                None => Ok(entry),
                Some(Ok(fresh)) => Ok(fresh),
                Some(Err(error)) if filter.needs_mtime() || filter.needs_meta() => Err(lost_key(entry.key, error)),
                Some(Err(error)) => {
                    // Gone or forbidden since it was listed: the time of storing is the best that is known.
                    tracing::debug!("{}: {error}", entry.key);
                    Ok(Entry { mtime: entry.changed, ..entry })
                }
            }
        }
    });
    let (mut steps, mut known) = (Vec::new(), Vec::new());
    let mut answers = futures::stream::iter(entries_with_facts).buffered(checkers.max(1)).boxed();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(entry) => known.push(entry),
            Err(failed) => steps.push(failed),
        }
    }
    steps.push(Listed::Batch(known));
    steps
}

/// One key of which nothing could be learnt.
fn lost_key(key: Key, error: Error) -> Listed {
    let error = error.with_key(&key);
    let to = Some(key.with_suffix([0]));
    Listed::Failed { lost: MissedRange { from: key, to }, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{Mtime, filter::FilterSpec};
    use haul_mem::MemStore;

    #[tokio::test]
    async fn a_directory_that_could_not_be_opened_is_missed_whatever_is_wanted_of_it() {
        let rules = vec!["+ *.jpg".to_owned(), "- *".to_owned()];
        let filter = Arc::new(Filter::new(FilterSpec { rules, ..FilterSpec::default() }).unwrap());
        let gone = |key: &str, lost: MissedRange| Listed::Failed {
            lost,
            error: Error::new(ErrorKind::NotFound, "list", "gone").with_key(&Key::new(key)),
        };
        for (key, lost, told) in [
            ("sub/", MissedRange::below(&Key::new("sub/")), true),
            ("sub/", MissedRange { from: Key::new("sub/"), to: None }, true),
            ("link", MissedRange::from(Key::new("link")), true),
            // A symlink that leads nowhere.
            ("link", MissedRange::only(&Key::new("link")), false),
            ("link.jpg", MissedRange::only(&Key::new("link.jpg")), true),
        ] {
            let raw = futures::stream::iter([gone(key, lost.clone())]).boxed();
            let steps: Vec<Listed> = keep_wanted(raw, filter.clone(), false, true).collect().await;
            assert_eq!(matches!(steps[..], [Listed::Failed { .. }]), told, "{lost:?}");
        }
    }

    #[test]
    fn directories_come_once_before_what_is_in_them() {
        let keys: Vec<Key> = ["a-b", "a/b/x", "a/b/y", "a/c", "b/d/e"].map(Key::new).into();
        let all: Vec<String> = with_dirs(&keys).iter().map(Key::to_string).collect();
        assert_eq!(all, ["a-b", "a/", "a/b/", "a/b/x", "a/b/y", "a/c", "b/", "b/d/", "b/d/e"]);
    }

    #[tokio::test]
    async fn a_file_whose_age_cannot_be_found_out_is_lost_and_not_left_out() {
        let store: Arc<dyn Store> = Arc::new(MemStore::new());
        let spec = FilterSpec { older_than: Some(Mtime(1)), ..FilterSpec::default() };
        let incomplete =
            [Entry::file(Key::new("a"), 1), Entry { mtime: Some(Mtime(0)), ..Entry::file(Key::new("b"), 1) }];
        let steps = ask_facts(&store, &Filter::new(spec).unwrap(), incomplete.into(), (true, 1)).await;
        assert!(matches!(&steps[0], Listed::Failed { lost, .. } if lost.holds(&Key::new("a"))));
        assert!(matches!(&steps[1], Listed::Batch(known) if known.len() == 1));
    }
}
