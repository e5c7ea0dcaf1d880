//! Comparing an index with some pages of the store's listing, each run with others: whatever the reason why an index may be
//! wrong, what it promises must be there.

use super::index_file::Snapshot;
use crate::list::page::{Page, page};
use futures::{StreamExt, stream};
use haul_core::{Entry, ErrorKind, Key, Result, key::just_before};
use haul_store::{ListRequest, Store, disk};
use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, Hasher as _},
    io,
    ops::RangeInclusive,
    sync::Arc,
};

/// Pages that are compared: with pages of 1,000 keys, a loss of one key in a thousand, spread evenly, shows with a probability
/// of 1 − 0.999^16,000, if what they show is all in the index; and one that follows each other, of a sixteenth, always.
pub const PAGES: u64 = 16;
/// After this many keys about which the index is wrong a page looks no further: nothing is believed then.
pub const ENOUGH: usize = 1_000;

/// Result of the comparison.
#[derive(Debug, Default)]
pub struct Audit {
    /// Keys about which the index is wrong, and how.
    pub wrong: Vec<(Key, IndexError)>,
    /// Entries that the pages show and the index doesn't know, or not any more.
    pub news: Vec<Entry>,
    /// Keys of the index, believed, that the pages bore out.
    pub borne_out: u64,
    /// Keys of the index that the pages cover.
    pub compared: usize,
    /// Keys that the pages show and the index never knew.
    pub unknown: usize,
}

/// Right and wrong entries found in an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditCounts {
    /// Keys that exist with the facts of the index.
    pub right: u64,
    /// Keys that aren't there.
    pub gone: u64,
    /// Keys that exist with other facts.
    pub changed: u64,
}

/// How an index was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexError {
    /// It isn't there.
    Gone,
    /// It is another.
    Changed,
}

/// A source of unpredictable numbers, or of those that follow from a seed, for tests.
pub fn random(seed: Option<u64>) -> u64 {
    // std seeds each of its hash maps from the system's randomness.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(0);
    let mut z = seed.unwrap_or_else(|| hasher.finish()).wrapping_add(0x9E37_79B9_7F4A_7C15);
    // SplitMix64's last steps (Steele, Lea, Flood 2014).
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Numbers of the keys with which pages begin: at even distances, the first one anywhere.
fn starts(count: u64, random: u64) -> BTreeSet<u64> {
    let place = |n: u64| (u128::from(random % count) + u128::from(n) * u128::from(count) / u128::from(PAGES)) as u64;
    (0..PAGES).map(|n| place(n) % count).collect()
}

/// Where pages begin that show the rest of `count` keys, when the first page showed `shown` of them; and true when they show all of
/// it, unless the rest of the store holds more than its beginning.
fn rest(count: usize, shown: usize) -> (Vec<usize>, bool) {
    let left = count - shown;
    // A quarter is for keys that others added since.
    let needed = left.div_ceil((shown * 3 / 4).max(1));
    let pages = needed.min(PAGES as usize - 1);
    ((0..pages).map(|n| shown + n * left / pages).collect(), pages == needed)
}

/// How to compare.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Facts found out in these minutes count.
    pub young: RangeInclusive<u32>,
    /// Facts older than this that are confirmed are news.
    pub aged: u32,
    /// Entries that the index never knew are news too.
    pub unknown: bool,
    /// Keys are named by their content: another version is no other content.
    pub content: bool,
    /// Makes what is compared foreseeable.
    pub seed: Option<u64>,
}

/// Compares.
///
/// Errors: the store can't be asked; the index can't be read.
pub async fn audit(snapshot: &Arc<Snapshot>, store: &Arc<dyn Store>, terms: AuditOptions) -> Result<Audit> {
    let each = store.caps().page.unwrap_or(1);
    if snapshot.count() <= each as u64 * PAGES {
        return of_small(snapshot, store, terms).await;
    }
    let (from, numbers) = (snapshot.clone(), starts(snapshot.count(), random(terms.seed)));
    let keys = move || numbers.into_iter().map(|number| from.key(number)).collect::<io::Result<Vec<_>>>();
    let keys = disk::run(move || keys().map_err(broken)).await?;
    all_of(snapshot, store, &terms, keys, 1).await
}

/// Compares all of a small index where the store holds little else, in as many pages as that takes.
async fn of_small(snapshot: &Arc<Snapshot>, store: &Arc<dyn Store>, terms: AuditOptions) -> Result<Audit> {
    let from = snapshot.clone();
    let keys = move || {
        let (mut all, mut keys) = (from.read()?, Vec::new());
        while let Some((key, _)) = all.here() {
            keys.push(key.to_vec());
            all.next()?;
        }
        io::Result::Ok(keys)
    };
    let keys = disk::run(move || keys().map_err(broken)).await?;
    let Some(first) = keys.first() else { return Ok(Audit::default()) };
    let mut audit = one(snapshot, store, &terms, first.clone(), 1).await?;
    if audit.compared < keys.len() && audit.wrong.len() < ENOUGH {
        let (starts, whole) = rest(keys.len(), audit.compared);
        let starts = starts.into_iter().map(|start| keys[start].clone()).collect();
        audit.join(all_of(snapshot, store, &terms, starts, if whole { 2 } else { 1 }).await?);
    }
    Ok(audit)
}

async fn all_of(
    snapshot: &Arc<Snapshot>,
    store: &Arc<dyn Store>,
    terms: &AuditOptions,
    keys: Vec<Vec<u8>>,
    pages: u64,
) -> Result<Audit> {
    let each = keys.into_iter().map(|key| one(snapshot, store, terms, key, pages));
    let mut compared = stream::iter(each).buffer_unordered(PAGES as usize);
    let mut all = Audit::default();
    while let Some(one) = compared.next().await {
        all.join(one?);
    }
    Ok(all)
}

/// Compares this many pages from a key on.
async fn one(
    snapshot: &Arc<Snapshot>,
    store: &Arc<dyn Store>,
    terms: &AuditOptions,
    key: Vec<u8>,
    count: u64,
) -> Result<Audit> {
    let shown = pages(store, just_before(&key), store.caps().page, count).await?;
    let (snapshot, terms) = (snapshot.clone(), terms.clone());
    disk::run(move || compare(&snapshot, &key, shown, &terms)).await
}

fn broken(error: io::Error) -> haul_core::Error {
    haul_core::Error::from_io("read the index", error)
}

impl Audit {
    fn join(&mut self, other: Audit) {
        self.wrong.extend(other.wrong);
        self.news.extend(other.news);
        self.borne_out += other.borne_out;
        self.compared += other.compared;
        self.unknown += other.unknown;
    }
}

/// So many pages that follow each other, as one.
async fn pages(store: &Arc<dyn Store>, after: Vec<u8>, limit: Option<usize>, count: u64) -> Result<Page> {
    let mut all = Page { entries: Vec::new(), ended: false };
    for _ in 0..count {
        let after = all.entries.last().map_or_else(|| Key::new(&after), |last| last.key.clone());
        match page(store, ListRequest { after: Some(after), limit, ..ListRequest::all() }).await {
            Ok(next) => {
                all.entries.extend(next.entries);
                all.ended = next.ended;
            }
            // A store that isn't there holds nothing.
            Err(e) if e.kind() == ErrorKind::DirNotFound => all.ended = true,
            Err(error) => return Err(error),
        }
        if all.ended {
            break;
        }
    }
    Ok(all)
}

/// Compares a page with the index's facts of those keys.
fn compare(snapshot: &Snapshot, from: &[u8], shown: Page, terms: &AuditOptions) -> Result<Audit> {
    let same = |index: &Entry, store: &Entry| match terms.content {
        true => index.size == store.size,
        false => agree(index, store),
    };
    let mut audit = Audit::default();
    let mut index = snapshot.read().map_err(broken)?;
    index.seek(from).map_err(broken)?;
    let last = shown.entries.last().map(|entry| entry.key.clone());
    let mut entries = shown.entries.into_iter().filter(Entry::has_bytes).peekable();
    while let Some((key, body)) = index.here().filter(|_| audit.wrong.len() < ENOUGH) {
        // The first key is in any case among what the page would hold.
        let covered = shown.ended || key == from || last.as_ref().is_some_and(|last| key <= last.stored());
        if !covered {
            break;
        }
        while let Some(entry) = entries.next_if(|entry| entry.key.stored() < key) {
            audit.unknown += 1;
            audit.news.extend(Some(entry).filter(|_| terms.unknown));
        }
        let entry = entries.next_if(|entry| entry.key.stored() == key);
        let fact = snapshot.fact(key, body).filter(|fact| terms.young.contains(&fact.minute));
        match (fact, entry) {
            (None, None) => {}
            (None, Some(entry)) => audit.news.push(entry),
            (Some(fact), None) => audit.wrong.push((fact.entry.key, IndexError::Gone)),
            (Some(fact), Some(entry)) if !same(&fact.entry, &entry) => {
                audit.wrong.push((fact.entry.key, IndexError::Changed));
                audit.news.push(entry);
            }
            (Some(fact), Some(entry)) => {
                audit.borne_out += 1;
                let aged = fact.minute < terms.aged;
                audit.news.extend(aged.then_some(Entry { mtime: entry.mtime.or(fact.entry.mtime), ..entry }));
            }
        }
        audit.compared += 1;
        index.next().map_err(broken)?;
    }
    let unknown: Vec<Entry> = entries.collect();
    audit.unknown += unknown.len();
    audit.news.extend(unknown.into_iter().filter(|_| terms.unknown));
    Ok(audit)
}

/// True unless the index's content certainly differs from the store's.
pub fn agree(index: &Entry, store: &Entry) -> bool {
    let version = match (&index.version, &store.version) {
        (Some(a), Some(b)) => a == b,
        // Answers to questions know whole seconds.
        _ => index.changed.zip(store.changed).is_none_or(|(a, b)| a.secs() == b.secs()),
    };
    version && index.size == store.size && index.hashes.agree(&store.hashes).is_none_or(|(_, same)| same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_at_even_distances_and_a_small_index_is_seen_whole() {
        for seed in 0..1_000 {
            let starts: Vec<u64> = starts(1_000_003, random(Some(seed))).into_iter().collect();
            assert_eq!(starts.len(), 16);
            let gaps = starts.windows(2).map(|pair| pair[1] - pair[0]);
            let round = 1_000_003 - starts[15] + starts[0];
            assert!(gaps.chain([round]).all(|gap| gap.abs_diff(62_500) <= 1), "{seed}: {starts:?}");
        }
        assert_ne!(random(None), random(None));
        assert_eq!(rest(1_700, 1_000), (vec![1_000], true));
        assert_eq!(rest(5_000, 1_000), (vec![1_000, 1_666, 2_333, 3_000, 3_666, 4_333], true));
        let (starts, whole) = rest(3_000, 4);
        assert!(starts.len() == 15 && !whole && starts[0] == 4 && starts[14] > 2_700);
    }
}
