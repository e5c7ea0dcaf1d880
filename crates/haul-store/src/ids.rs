//! Roots and directory ids of services that address everything by id.
//!
//! Nothing here asks the service: the caller holds the directory's place while it asks, so that others who want the same directory wait
//! for that answer. Bounded: the least recently used id is forgotten first.

use haul_core::Key;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::OwnedMutexGuard;

/// Directories that are kept at most, in bytes some 100 MB with names of usual length.
const MOST: usize = 500_000;

/// Bytes that are escaped in a name within a [`Root`].
const APART: AsciiSet = CONTROLS.add(b'/').add(b'%');

/// Where a store begins: a directory's id, and the way from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The id, or what stands for one.
    pub base: String,
    /// The names below it, as the service has them.
    pub names: Vec<String>,
}

impl Root {
    /// As bytes that [`Root::parse`] reads: a path, so that of a root in another's begins with it
    /// ([`Domain::place`](crate::Domain::place)).
    pub fn to_bytes(&self) -> Vec<u8> {
        let all = std::iter::once(&self.base).chain(&self.names);
        let all: Vec<String> = all.map(|name| utf8_percent_encode(name, &APART).to_string()).collect();
        format!("id {}", all.join("/")).into_bytes()
    }

    /// From [`Root::to_bytes`].
    pub fn parse(bytes: &[u8]) -> Option<Root> {
        let all = bytes.strip_prefix(b"id ")?.split(|byte| *byte == b'/');
        let mut all = all.map(|name| Some(percent_decode(name).decode_utf8().ok()?.into_owned()));
        Some(Root { base: all.next()??, names: all.collect::<Option<_>>()? })
    }

    /// It is the top of all that an account has: `root` at Google and Microsoft, `0` at Box.
    pub fn is_all(&self) -> bool {
        self.is_base() && matches!(&*self.base, "root" | "0")
    }

    /// It is a directory that was named by its id alone.
    pub fn is_base(&self) -> bool {
        self.names.is_empty()
    }
}

/// Holds a directory's id. A known id can be read at any time; only a caller that asks the service keeps others from asking too.
#[derive(Debug, Default)]
struct Slot {
    id: Mutex<Option<String>>,
    asking: Arc<tokio::sync::Mutex<()>>,
}

impl Slot {
    fn id(&self) -> MutexGuard<'_, Option<String>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a directory's id: empty while unknown. Others who want the id wait until this is dropped.
#[derive(Debug)]
pub struct IdSlot {
    slot: Arc<Slot>,
    _asking: OwnedMutexGuard<()>,
}

impl IdSlot {
    /// The id; `None` while it isn't known.
    pub fn id(&self) -> Option<String> {
        self.slot.id().clone()
    }

    /// Keeps the id that the service said, and gives it back.
    pub fn keep(self, id: String) -> String {
        *self.slot.id() = Some(id.clone());
        id
    }
}

/// See the module. Keys of directories end in `/`; what they are relative to is the caller's affair.
#[derive(Debug)]
pub struct Ids {
    most: usize,
    known: Mutex<Known>,
}

/// Two generations: when the younger is full it becomes the older, and the old one is dropped. Ids that are used move to the
/// younger.
#[derive(Debug, Default)]
struct Known {
    young: BTreeMap<Key, Arc<Slot>>,
    old: BTreeMap<Key, Arc<Slot>>,
}

impl Default for Ids {
    fn default() -> Self {
        Ids::bounded(MOST)
    }
}

impl Ids {
    /// Keeps at most `most` ids.
    pub fn bounded(most: usize) -> Ids {
        Ids { most: most.max(2), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, dir: &Key) -> Arc<Slot> {
        let mut known = self.known();
        if let Some(slot) = known.young.get(dir) {
            return slot.clone();
        }
        let slot = known.old.remove(dir).unwrap_or_default();
        if known.young.len() >= self.most / 2 {
            known.old = std::mem::take(&mut known.young);
        }
        known.young.insert(dir.clone(), slot.clone());
        slot
    }

    /// The place of a directory's id, once nobody else is asking for it. Whoever finds it empty asks the service and fills it, or leaves
    /// it empty; no other place may be waited for meanwhile but that of a directory below.
    pub async fn place(&self, dir: &Key) -> IdSlot {
        let slot = self.slot(dir);
        let asking = slot.asking.clone().lock_owned().await;
        IdSlot { slot, _asking: asking }
    }

    /// The id of a directory; `None` while it isn't known.
    pub fn get(&self, dir: &Key) -> Option<String> {
        let slot = {
            let known = self.known();
            known.young.get(dir).or_else(|| known.old.get(dir)).cloned()?
        };
        slot.id().clone()
    }

    /// Keeps the id of a directory that was seen.
    pub fn put(&self, dir: &Key, id: &str) {
        // Whoever asks for it just now finds the same.
        let slot = self.slot(dir);
        if let Ok(_asking) = slot.asking.try_lock() {
            *slot.id() = Some(id.to_owned());
        }
    }

    /// The directory and all below it are there no more, or are others now: deleted, renamed, moved.
    pub fn forget(&self, dir: &Key) {
        let mut known = self.known();
        let Known { young, old } = &mut *known;
        for map in [young, old] {
            let below = map.range(dir.clone()..).map(|(key, _)| key);
            let below: Vec<Key> = below.take_while(|key| key.as_bytes().starts_with(dir.as_bytes())).cloned().collect();
            below.iter().for_each(|key| drop(map.remove(key)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text)
    }

    fn of(ids: &Ids, dirs: &[&str]) -> Vec<Option<String>> {
        dirs.iter().map(|dir| ids.get(&key(dir))).collect()
    }

    #[test]
    fn roots_are_read_back_and_those_in_others_begin_with_them() {
        let root =
            |base: &str, names: &[&str]| Root { base: base.into(), names: names.iter().map(|n| (*n).into()).collect() };
        for names in [&[][..], &["a"], &["a/b", "c%2F", "ü \n"], &["", "x"]] {
            for base in ["", "root", "items/1!2"] {
                let own = root(base, names);
                assert_eq!(Root::parse(&own.to_bytes()).as_ref(), Some(&own));
                let below = root(base, &[names, &["d"]].concat());
                assert_eq!(below.to_bytes(), [&own.to_bytes()[..], b"/d"].concat());
            }
        }
        assert_eq!(Root::parse(b"/srv/files"), None);
    }

    #[tokio::test]
    async fn what_is_deleted_or_renamed_is_forgotten_with_all_below_and_nothing_else() {
        let ids = Ids::default();
        for (dir, id) in [("", "0"), ("a/", "1"), ("a/b/", "2"), ("a/b/c/", "3"), ("a-b/", "4"), ("ab/", "5")] {
            ids.put(&key(dir), id);
        }
        ids.forget(&key("a/b/"));
        assert_eq!(of(&ids, &["a/", "a/b/", "a/b/c/"]), [Some("1".into()), None, None]);
        // A folder that is renamed keeps its id under the new name.
        ids.forget(&key("a/"));
        ids.put(&key("z/"), "1");
        assert_eq!(
            of(&ids, &["a/", "a-b/", "ab/", "z/"]),
            [None, Some("4".into()), Some("5".into()), Some("1".into())]
        );
        ids.forget(&key(""));
        assert_eq!(of(&ids, &["", "a-b/", "z/"]), [None, None, None]);
    }

    #[tokio::test]
    async fn a_second_lookup_of_an_id_waits_for_the_first() {
        let ids = Arc::new(Ids::default());
        let first = ids.place(&key("d/")).await;
        assert!(first.id().is_none() && ids.get(&key("d/")).is_none());
        let second = tokio::spawn({
            let ids = ids.clone();
            async move { ids.place(&key("d/")).await.id() }
        });
        // Looking at a place meanwhile changes nothing and blocks nobody; nor does an entry added for others.
        ids.put(&key("d/"), "seen");
        assert!(ids.place(&key("e/")).await.id().is_none());
        first.keep("7".into());
        assert_eq!(second.await.unwrap().as_deref(), Some("7"));
        // Two of one name, or a folder made anew: the last that was seen counts.
        ids.put(&key("d/"), "8");
        assert_eq!(ids.get(&key("d/")).as_deref(), Some("8"));
        // One that is forgotten while it is asked for doesn't come back with that answer.
        let asking = ids.place(&key("d/")).await;
        ids.forget(&key("d/"));
        asking.keep("old".into());
        assert!(ids.get(&key("d/")).is_none() && ids.place(&key("d/")).await.id().is_none());
        // A known id stays known to others while one looks at its place.
        ids.put(&key("d/"), "9");
        let _looking = ids.place(&key("d/")).await;
        assert_eq!(ids.get(&key("d/")).as_deref(), Some("9"));
    }

    #[tokio::test]
    async fn no_more_are_kept_than_may_be_and_those_in_use_stay() {
        let ids = Ids::bounded(100);
        for n in 0..1000 {
            ids.put(&key(&format!("{n}/")), "x");
            assert!(ids.place(&key("0/")).await.id().is_some(), "it is used all the time, at {n}");
        }
        let known = ids.known();
        assert!(known.young.len() + known.old.len() <= 100);
        assert!(known.young.len() >= 2);
    }
}
