//! Deleting, and keeping house: old indexes are made into one, and what nothing names any more is removed.

use super::{
    Shared,
    gather::KeyRequest,
    index::{Facts, Head, Index, IndexEntry, Location, Record},
    keys::{FILES, PACKS, index_key, plain_key, tar_key},
    load::{Folder, id_at, time_of},
    merge::{Merge, holds},
    tar,
};
use bytes::Bytes;
use futures::{StreamExt, future::join_all};
use haul_core::{Error, ErrorKind, Key, Listed, Mtime, Result, Version, plan::Replace};
use haul_store::{Cleanup, ListRequest, UnfinishedWrites};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const OP: &str = "delete";
/// How long replaced indexes are remembered at least, in nanoseconds by their ids: 90 days, longer than any run lasts.
const REMEMBERED: u64 = 90 * 24 * 3600 * 1_000_000_000;
/// Precision that a store's times may lose, in nanoseconds: HTTP dates and S3's `LastModified` are whole seconds.
const SECOND: i128 = 1_000_000_000;

/// Deletes as [`haul_store::Store::delete`] says: keys of files together, in an index that marks them as deleted.
pub async fn delete(shared: &Arc<Shared>, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
    join_all(keys.into_iter().map(|(key, version)| async move {
        if key.is_root() {
            return delete_root(shared).await;
        }
        if key.is_dir() {
            return empty(shared, &key).await;
        }
        let joined = shared.join(key.clone(), Replace::Anything, KeyRequest::Delete(version)).await;
        joined.map(|_| ()).map_err(|failed| failed.error)
    }))
    .await
}

/// An error when there is anything in a directory.
async fn empty(shared: &Shared, key: &Key) -> Result<()> {
    let full = shared.full(key);
    match holds(Merge::new(shared.indexes(false).await?, &full), &full) {
        true => Err(Error::new(ErrorKind::Exists, OP, "the directory isn't empty").with_key(key)),
        false => Ok(()),
    }
}

/// The folder of the packs itself, when no file is in them.
async fn delete_root(shared: &Arc<Shared>) -> Result<()> {
    let root = Key::new("");
    if shared.settings.rebuild {
        return Err(Error::new(
            ErrorKind::Unsupported,
            OP,
            "a pack remote with the option rebuild is for reading only",
        ));
    }
    match shared.indexes(true).await {
        Err(error) if error.kind() == ErrorKind::DirNotFound => return Ok(()),
        loaded => drop(loaded?),
    }
    empty(shared, &root).await?;
    if !shared.prefix.is_empty() {
        return Ok(());
    }
    // One index that says that all others may be missing: whatever is deleted first, nothing deleted comes back.
    let mut known = shared.view.superseded();
    known.extend(shared.view.now().iter().map(|index| index.head.id.clone()));
    if !known.is_empty() {
        let head = Head { id: shared.view.new_id()?, replaces: known.iter().cloned().collect(), ..Head::default() };
        shared.store_index(head.clone(), &[]).await?;
        let gone = known.iter().flat_map(|id| [tar_key(id), index_key(id)]);
        remove(shared, gone.collect()).await?;
        remove(shared, vec![index_key(&head.id)]).await?;
    }
    if shared.inner.caps().dirs {
        remove_empty_dirs(shared).await?;
    }
    shared.inner.delete(vec![(root, None)]).await.pop().unwrap_or(Ok(()))?;
    shared.view.forget();
    Ok(())
}

async fn remove(shared: &Shared, keys: Vec<Key>) -> Result<()> {
    let answers = shared.inner.delete(keys.into_iter().map(|key| (key, None)).collect()).await;
    answers.into_iter().collect()
}

/// Empty directories of the wrapped store below the two folders, the deepest first.
async fn remove_empty_dirs(shared: &Shared) -> Result<()> {
    let mut dirs = Vec::new();
    let mut listing = shared.inner.list(ListRequest::all());
    while let Some(step) = listing.next().await {
        if let Listed::Batch(entries) = step {
            dirs.extend(entries.into_iter().filter(|e| e.is_dir()).map(|e| e.key));
        }
    }
    dirs.retain(|key| [PACKS, FILES].iter().any(|folder| key.as_bytes().starts_with(folder.as_bytes())));
    dirs.reverse();
    for dir in dirs {
        match shared.inner.delete(vec![(dir, None)]).await.pop() {
            Some(Err(error)) if error.kind() != ErrorKind::Exists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// See [`haul_store::Admin::cleanup`]: what the other store has of unfinished writes, and what is superseded.
pub async fn cleanup(shared: &Arc<Shared>, what: Cleanup) -> Result<UnfinishedWrites> {
    let Cleanup { older_than, dry_run, .. } = what;
    let mut unfinished = match shared.inner.admin() {
        Some(admin) => match admin.cleanup(what).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => UnfinishedWrites::default(),
            found => found?,
        },
        None => UnfinishedWrites::default(),
    };
    unfinished.found.extend(tidy(shared, older_than, dry_run).await?);
    Ok(unfinished)
}

/// Merges all older indexes into one, drops deleted keys, and removes packs and files that no index names.
///
/// Younger ones stay as they are: they may belong to a running job. As the new index takes the place of the oldest
/// ones, all writes meanwhile still come after it.
async fn tidy(shared: &Arc<Shared>, older_than: Duration, dry_run: bool) -> Result<Vec<(Key, Option<Mtime>)>> {
    if shared.settings.rebuild {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "clean up",
            "a pack remote with the option rebuild is for reading only",
        ));
    }
    let indexes = shared.indexes(true).await?;
    let (folder, now) = look(shared, dry_run).await?;
    let before = now - i128::try_from(older_than.as_nanos()).unwrap_or(i128::MAX);
    let old = |id: &str| time_of(id).is_some_and(|time| i128::from(time) < before);
    let superseded: Vec<String> = shared.view.superseded().into_iter().filter(|id| old(id)).collect();
    let count = indexes.iter().take_while(|index| old(&index.head.id)).count();
    let oldest = &indexes[..count];
    let mut unneeded: BTreeMap<Key, Option<Mtime>> = BTreeMap::new();
    let when = |id: &str| time_of(id).map(|time| Mtime(i128::from(time)));
    // By the store's clock too: the writer's clock may differ from this machine's.
    let left = |id: &str, stored: Option<Mtime>| old(id) && stored.is_none_or(|stored| stored.0 < before);
    for (id, _) in folder.tars.iter().filter(|(id, tar)| left(id, tar.stored)) {
        unneeded.insert(tar_key(id), when(id));
    }
    for entry in shared.list_whole(FILES).await? {
        let name = entry.key.as_bytes()[FILES.len()..].split(|b| *b == b'/').next().unwrap_or_default();
        let id = std::str::from_utf8(name).unwrap_or_default();
        if left(id, entry.changed) {
            unneeded.insert(entry.key.clone(), when(id));
        }
    }
    if !dry_run && count > 1 {
        replace(shared, oldest, &indexes[count..]).await?;
    }
    // Read again after all that may be removed was found: what has got its index meanwhile is needed.
    let indexes = shared.indexes(true).await?;
    let mut named = Named::default();
    let (oldest, newer) = indexes.split_at(indexes.iter().take_while(|index| old(&index.head.id)).count());
    Merge::new(Arc::new(oldest.to_vec()), b"").for_each(|(key, facts)| named.add(facts.as_ref(), &key));
    for index in newer {
        (0..index.len()).for_each(|n| named.add(index.entry_at(n).and_then(IndexEntry::facts).as_ref(), index.key(n)));
    }
    unneeded.retain(|key, _| !named.packs.contains(key) && !named.files.contains(key));
    if !dry_run {
        let indexes = superseded.iter().map(|id| index_key(id));
        remove(shared, indexes.chain(unneeded.keys().cloned()).collect()).await?;
    }
    Ok(unneeded.into_iter().collect())
}

/// Contents of the folder of packs, and the current time: this machine's, but no later than the store's, so that a machine whose
/// clock is fast doesn't take running writes for left behind. The store's time comes from a file stored for that purpose.
async fn look(shared: &Shared, dry_run: bool) -> Result<(Folder, i128)> {
    let clock = if dry_run { None } else { Some(shared.view.new_id()?) };
    if let Some(id) = &clock {
        let nothing = [Bytes::from_static(&tar::END)];
        shared.put(&tar_key(id), &nothing, tar::END.len() as u64).await?;
    }
    let mut folder = shared.folder().await?;
    let now = jiff::Timestamp::now().as_nanosecond();
    let Some(id) = clock else { return Ok((folder, now)) };
    let there = folder.tars.remove(&id).and_then(|tar| tar.stored).map(|stored| stored.0 + SECOND);
    remove(shared, vec![tar_key(&id)]).await?;
    Ok((folder, there.map_or(now, |there| now.min(there))))
}

/// Packs and files that some records name.
#[derive(Default)]
struct Named {
    packs: BTreeSet<Key>,
    files: BTreeSet<Key>,
}

impl Named {
    fn add(&mut self, facts: Option<&Facts>, full: &[u8]) {
        match facts.map(|facts| &facts.place) {
            Some(Location::Packed { pack, .. }) => drop(self.packs.insert(tar_key(pack))),
            Some(Location::Plain { folder }) => drop(self.files.insert(plain_key(folder, full))),
            None => {}
        }
    }
}

/// Stores one index in the place of the oldest ones, then removes those. The `newer` ones stay.
async fn replace(shared: &Shared, oldest: &[Arc<Index>], newer: &[Arc<Index>]) -> Result<()> {
    let records: Vec<Record> = Merge::new(Arc::new(oldest.to_vec()), b"")
        .filter_map(|(key, facts)| Some(Record { key: key.to_vec(), entry: IndexEntry::Stored(facts?) }))
        .collect();
    let Some(last) = oldest.last().and_then(|last| time_of(&last.head.id)) else { return Ok(()) };
    // Later than the last of them, before any other that is made, and never the one that another run makes of them.
    let id = id_at(last + 1)?;
    // An index that still exists because the run that replaced it was stopped would count again if it were forgotten. One that a newer
    // index names would seem lost; and a run that began earlier may still name one that was replaced before.
    let there = shared.view.superseded();
    let named: BTreeSet<&String> = newer.iter().flat_map(|index| &index.head.previous).collect();
    let young = |id: &str| time_of(id).is_some_and(|time| time >= last.saturating_sub(REMEMBERED));
    let before = oldest.iter().flat_map(|index| &index.head.replaces);
    let before = before.filter(|id| there.contains(*id) || named.contains(id) || young(id)).cloned();
    let replaces: BTreeSet<String> = oldest.iter().map(|index| index.head.id.clone()).chain(before).collect();
    let head = Head { id, replaces: replaces.into_iter().collect(), ..Head::default() };
    shared.store_index(head, &records).await?;
    remove(shared, oldest.iter().map(|index| index_key(&index.head.id)).collect()).await
}
