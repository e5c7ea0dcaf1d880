//! Marks at the remote, by which pushes and gc know of each other: a push sets one before it relies on existing content, gc
//! before it looks at what is used. Each waits or refuses if it finds the other's. The age of a mark is measured by the store's clock
//! alone. [ADR 15](../../../docs/adr/0015-freeing-content.md) explains why.

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use haul_cas::address::Address;
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Listed, Mtime, Result, hash, key};
use haul_store::{ListRequest, Store, WriteSpec};
use serde::{Deserialize, Serialize};
use std::{
    hash::{BuildHasher as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

/// Where marks are, below a remote's root.
const MARKS: &str = "snapshots.marks/";
/// A mark is a line; something larger under such a name isn't one.
const LARGEST: u64 = 64 << 10;
/// A mark is set anew so often, as long as its process lives.
pub const RENEWED: Duration = Duration::from_secs(300);
/// One that wasn't for so long, by the store's clock, is a dead process's: twelve times missed.
const DEAD: i128 = 3600 * 1_000_000_000;

/// How often one's own mark is looked for, and the time between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// Owner of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A push that may rely on content that no version refers to yet.
    Push,
    /// A gc that may delete content.
    Gc,
    /// Content was deleted: what somebody remembers from before counts no more. This one stays.
    Freed,
}

impl MarkKind {
    fn prefix(self) -> String {
        let name = match self {
            MarkKind::Push => "push-",
            MarkKind::Gc => "gc-",
            MarkKind::Freed => "freed-",
        };
        format!("{MARKS}{name}")
    }
}

/// Contents of a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkContents {
    /// The machine and process, for people.
    pub by: String,
    /// DVC's lists that a push is about to store, or that a removed version had: so they aren't DVC's own.
    #[serde(default)]
    pub dirs: Vec<String>,
}

/// A mark of this process.
#[derive(Clone, Debug)]
pub struct Mark {
    store: Arc<dyn Store>,
    /// Its name.
    pub key: Key,
    contents: MarkContents,
}

impl Mark {
    /// One that isn't set yet.
    ///
    /// Errors: a time that no calendar has.
    pub fn new(store: &Arc<dyn Store>, whose: MarkKind, now: Mtime, by: &str) -> Result<Mark> {
        let time = crate::name::time_text(now).map_err(|why| Error::new(ErrorKind::Invalid, "mark", why))?;
        // std seeds each of its hash maps from the system's randomness.
        let chance = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let key = Key::new(format!("{}{time}-{chance:016x}", whose.prefix()));
        Ok(Mark { store: store.clone(), key, contents: MarkContents { by: by.into(), dirs: Vec::new() } })
    }

    /// Adds a list that is about to be stored.
    pub fn add(&mut self, dir: &Address) {
        let text = dir.text();
        if !self.contents.dirs.contains(&text) {
            self.contents.dirs.push(text);
        }
    }

    /// Sets it, or sets it anew; makes the bucket or folder where there is none.
    ///
    /// Errors: it can't be written.
    pub async fn set(&self) -> Result<()> {
        let mut line = serde_json::to_vec(&self.contents).unwrap_or_default();
        line.push(b'\n');
        match write(&self.store, &self.key, line.clone()).await {
            Err(error) if error.is_missing() => {
                self.store.make_dir(&Key::new(""), &WriteSpec::default()).await?;
                write(&self.store, &self.key, line).await
            }
            done => done,
        }
    }

    /// Takes it away.
    ///
    /// Errors: it can't be deleted.
    pub async fn clear(&self) -> Result<()> {
        remove(&self.store, vec![self.key.clone()]).await
    }
}

/// Writes a line.
///
/// Errors: it can't be written.
pub(crate) async fn write(store: &Arc<dyn Store>, key: &Key, line: Vec<u8>) -> Result<()> {
    let spec = WriteSpec { size: Some(line.len() as u64), ..WriteSpec::default() };
    let pieces = stream::iter([Ok(Bytes::from(line))]).boxed();
    haul::pipe::write(store, key, spec, pieces).await.map(drop).map_err(|error| error.with_key(key))
}

/// Deletes keys.
///
/// Errors: the first that can't be deleted; the others may be.
pub(crate) async fn remove(store: &Arc<dyn Store>, keys: Vec<Key>) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let answers = store.delete(keys.iter().map(|key| (key.clone(), None)).collect()).await;
    if answers.len() != keys.len() {
        return Err(Error::new(ErrorKind::Io, "delete", "the store answered for another number of keys"));
    }
    let failed = keys.iter().zip(answers).find_map(|(key, answer)| answer.err().map(|error| error.with_key(key)));
    failed.map_or(Ok(()), Err)
}

/// The marks that are there.
#[derive(Debug, Default)]
pub struct Marks {
    pushes: Vec<Entry>,
    gcs: Vec<Entry>,
    freed: Vec<Key>,
}

/// Marks beside one's own.
#[derive(Debug, Default)]
pub struct OtherMarks {
    /// Of pushes that live, as far as can be known.
    pub pushes: Vec<Key>,
    /// Of gcs that live.
    pub gcs: Vec<Key>,
    /// Of dead processes.
    pub dead: Vec<Key>,
}

impl Marks {
    /// Lists the marks, as they are now.
    ///
    /// Errors: they can't be listed to the end.
    pub async fn at(store: &Arc<dyn Store>) -> Result<Marks> {
        let mut seen = Marks::default();
        for entry in listed(store, MARKS).await? {
            let is = |whose: MarkKind| entry.key.as_bytes().starts_with(whose.prefix().as_bytes());
            if is(MarkKind::Push) {
                seen.pushes.push(entry);
            } else if is(MarkKind::Gc) {
                seen.gcs.push(entry);
            } else if is(MarkKind::Freed) {
                seen.freed.push(entry.key);
            }
        }
        Ok(seen)
    }

    /// A short text for all deletions so far, which changes with each gc that deleted; `None` before any. Independent of clocks.
    pub fn freed(&self) -> Option<String> {
        let names: Vec<&[u8]> = self.freed.iter().map(Key::as_bytes).collect();
        if names.is_empty() {
            return None;
        }
        let mut hex = hash::hash_bytes(&[Algo::Blake3], &names.join(&b'\n')).hex(Algo::Blake3).unwrap_or_default();
        hex.truncate(16);
        Some(hex)
    }

    /// The marks of pushes, dead or not.
    pub fn all_pushes(&self) -> impl Iterator<Item = &Key> {
        self.pushes.iter().map(|entry| &entry.key)
    }

    /// The marks of gcs that deleted.
    pub fn all_freed(&self) -> &[Key] {
        &self.freed
    }

    /// True if there is a gc's mark, be it dead or not.
    pub fn has_gc(&self) -> bool {
        !self.gcs.is_empty()
    }

    /// All but `own`, whose time gives the others' age: it was set just now, and the store dated both.
    ///
    /// Errors: the store doesn't list `own`: another process took it for dead, or the listing can't be relied on.
    pub fn beside(&self, own: &Key) -> Result<OtherMarks> {
        let all = || self.pushes.iter().chain(&self.gcs);
        let Some(mine) = all().find(|entry| entry.key == *own) else {
            let message = "this run's own mark isn't listed at the remote any more";
            return Err(Error::new(ErrorKind::Changed, "list", message).with_key(own));
        };
        let is_dead = |entry: &Entry| match (entry.changed, mine.changed) {
            (Some(then), Some(now)) => now.0 - then.0 > DEAD,
            _ => false,
        };
        let mut others = OtherMarks::default();
        for entry in all().filter(|entry| entry.key != *own) {
            let to = match (is_dead(entry), self.gcs.iter().any(|gc| gc.key == entry.key)) {
                (true, _) => &mut others.dead,
                (false, true) => &mut others.gcs,
                (false, false) => &mut others.pushes,
            };
            to.push(entry.key.clone());
        }
        Ok(others)
    }
}

/// Contents of a mark, or of the record of a removed version; empty if it can't be read.
pub async fn read_contents(store: &Arc<dyn Store>, key: &Key) -> MarkContents {
    let line = crate::small_files::small(store, key, LARGEST).await;
    line.ok().and_then(|line| serde_json::from_slice(&line).ok()).unwrap_or_default()
}

/// The marks, once one's own, set just now, is listed: some stores list a name only a while after it was written.
///
/// Errors: as for [`Marks::at`] and [`Marks::beside`], after some tries.
pub async fn beside(store: &Arc<dyn Store>, own: &Key) -> Result<(Marks, OtherMarks)> {
    let mut tries = 1;
    loop {
        let seen = Marks::at(store).await?;
        match seen.beside(own) {
            Ok(others) => return Ok((seen, others)),
            Err(error) if tries == TRIES => return Err(error),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Files below a prefix that ends in `/`, as they are now: a pack reads its indexes anew only when it is listed from the root.
///
/// Errors: they can't be listed to the end.
pub(crate) async fn listed(store: &Arc<dyn Store>, prefix: &str) -> Result<Vec<Entry>> {
    if store.caps().gathers == 0 {
        let request = ListRequest { prefix: prefix.into(), ..ListRequest::all() };
        return Ok(haul_cas::remote::all_of(store, request).await?.into_iter().filter(|e| !e.is_dir()).collect());
    }
    let after = Some(Key::new(key::just_before(prefix.as_bytes())));
    let (mut listing, mut found) = (store.list(ListRequest { after, ..ListRequest::all() }), Vec::new());
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(batch) => {
                let past = batch.last().is_some_and(|last| {
                    last.key.as_bytes() > prefix.as_bytes() && !last.key.as_bytes().starts_with(prefix.as_bytes())
                });
                let is = |entry: &Entry| entry.key.as_bytes().starts_with(prefix.as_bytes()) && !entry.is_dir();
                found.extend(batch.into_iter().filter(is));
                if past {
                    return Ok(found);
                }
            }
            Listed::Vanished(_) => {}
            Listed::End => return Ok(found),
            Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => return Ok(found),
            Listed::Failed { error, .. } => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::Io, "list", "the listing was cut off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, secs: Option<i128>) -> Entry {
        Entry { changed: secs.map(|s| Mtime(s * 1_000_000_000)), ..Entry::file(Key::new(key), 1) }
    }

    #[test]
    fn a_mark_is_dead_by_the_stores_clock_alone() {
        let seen = |own, other| Marks {
            pushes: vec![entry("snapshots.marks/push-a", other)],
            gcs: vec![entry("snapshots.marks/gc-b", own)],
            freed: Vec::new(),
        };
        let own = Key::new("snapshots.marks/gc-b");
        for (mine, other, dead) in [
            (Some(10_000), Some(10_000), false),
            (Some(10_000), Some(6_400), false),
            (Some(10_000), Some(6_399), true),
            (Some(10_000), Some(99_999), false),
            (Some(10_000), None, false),
            (None, Some(0), false),
        ] {
            let others = seen(mine, other).beside(&own).unwrap();
            assert_eq!((others.dead.len(), others.pushes.len()), (usize::from(dead), usize::from(!dead)), "{other:?}");
        }
        let error = seen(Some(1), Some(1)).beside(&Key::new("snapshots.marks/gc-c")).unwrap_err();
        assert_eq!(error.message(), "this run's own mark isn't listed at the remote any more");
    }

    #[test]
    fn each_gc_changes_what_was_freed_whatever_its_clock_says() {
        let freed = |names: &[&str]| Marks { freed: names.iter().map(Key::new).collect(), ..Marks::default() }.freed();
        assert_eq!(freed(&[]), None);
        let [one, both, earlier] = [&["freed-2"][..], &["freed-1", "freed-2"], &["freed-1"]].map(freed);
        assert!(one != both && both != earlier && one != earlier && one.is_some_and(|text| text.len() == 16));
    }
}
