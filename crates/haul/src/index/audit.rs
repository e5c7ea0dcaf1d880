//! Comparing an index with some pages of the store's listing, each run with others: whatever the reason why an index may be
//! wrong, what it promises must be there.

use super::{kept::Snapshot, record};
use crate::list::page::{Page, page};
use futures::{StreamExt, stream};
use haul_core::{Entry, ErrorKind, Key, Kind, Result, key::just_before};
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
/// Keys that are found wrong on a page, at most.
const ENOUGH: usize = 20;

/// What the comparison showed.
#[derive(Debug, Default)]
pub struct Audit {
    /// Keys about which the index is wrong, and how.
    pub wrong: Vec<(Key, Wrong)>,
    /// What the pages show and the index doesn't know, or not any more.
    pub news: Vec<Entry>,
    /// Keys of the index, believed, that the pages bore out.
    pub borne_out: u64,
}

/// How an index was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It isn't there.
    Gone,
    /// It is another.
    Changed,
}

/// A source of numbers that nobody can foresee, or of those that follow from a seed, for tests.
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

/// Numbers of the keys with which pages of `page` keys begin: all of a small index is looked at, of a larger one pages at even
/// distances, the first one anywhere.
fn starts(count: u64, page: u64, random: u64) -> BTreeSet<u64> {
    if count <= page * PAGES {
        return (0..count).step_by(page as usize).collect();
    }
    let place = |n: u64| (u128::from(random % count) + u128::from(n) * u128::from(count) / u128::from(PAGES)) as u64;
    (0..PAGES).map(|n| place(n) % count).collect()
}

/// How to compare.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What was found out in these minutes counts.
    pub young: RangeInclusive<u32>,
    /// What was found out before this, and is borne out, is news.
    pub aged: u32,
    /// What the index never knew is news too.
    pub unknown: bool,
    /// Makes what is compared foreseeable.
    pub seed: Option<u64>,
}

/// Compares.
///
/// Errors: the store can't be asked; the index can't be read.
pub async fn audit(snapshot: &Arc<Snapshot>, store: &Arc<dyn Store>, terms: Terms) -> Result<Audit> {
    let limit = store.caps().page;
    let numbers = starts(snapshot.count(), limit.unwrap_or(1) as u64, random(terms.seed));
    // Where a small index begins few pages, what else is there may fill them: then more are read.
    let each = PAGES / numbers.len().max(1) as u64;
    let from = snapshot.clone();
    let keys = disk::run(move || {
        let keys: io::Result<Vec<_>> = numbers.into_iter().map(|number| from.key(number)).collect();
        keys.map_err(|error| haul_core::Error::from_io("read the index", error))
    })
    .await?;
    let mut compared = stream::iter(keys)
        .map(|key| {
            let (snapshot, terms) = (snapshot.clone(), terms.clone());
            async move {
                let shown = pages(store, just_before(&key), limit, each).await?;
                disk::run(move || compare(&snapshot, &key, shown, &terms)).await
            }
        })
        .buffer_unordered(PAGES as usize);
    let mut all = Audit::default();
    while let Some(one) = compared.next().await {
        let Audit { wrong, news, borne_out } = one?;
        all.wrong.extend(wrong);
        all.news.extend(news);
        all.borne_out += borne_out;
    }
    Ok(all)
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

/// Compares what a page shows with what the index says of those keys.
fn compare(snapshot: &Snapshot, from: &[u8], shown: Page, terms: &Terms) -> Result<Audit> {
    let broken = |error| haul_core::Error::from_io("read the index", error);
    let mut audit = Audit::default();
    let mut index = snapshot.read().map_err(broken)?;
    index.seek(from).map_err(broken)?;
    let last = shown.entries.last().map(|entry| entry.key.clone());
    let mut entries = shown.entries.into_iter().filter(|entry| entry.kind == Kind::File).peekable();
    while let Some((key, body)) = index.here().filter(|_| audit.wrong.len() < ENOUGH) {
        // The first key is in any case among what the page would hold.
        let covered = shown.ended || key == from || last.as_ref().is_some_and(|last| key <= last.as_bytes());
        if !covered {
            break;
        }
        while let Some(entry) = entries.next_if(|entry| entry.key.as_bytes() < key) {
            audit.news.extend(Some(entry).filter(|_| terms.unknown));
        }
        let entry = entries.next_if(|entry| entry.key.as_bytes() == key);
        let fact = record::read(key, body).filter(|fact| terms.young.contains(&fact.minute));
        match (fact, entry) {
            (None, None) => {}
            (None, Some(entry)) => audit.news.push(entry),
            (Some(fact), None) => audit.wrong.push((fact.entry.key, Wrong::Gone)),
            (Some(fact), Some(entry)) if !agree(&fact.entry, &entry) => {
                audit.wrong.push((fact.entry.key, Wrong::Changed));
                audit.news.push(entry);
            }
            (Some(fact), Some(entry)) => {
                audit.borne_out += 1;
                let aged = fact.minute < terms.aged;
                audit.news.extend(aged.then_some(Entry { mtime: entry.mtime.or(fact.entry.mtime), ..entry }));
            }
        }
        index.next().map_err(broken)?;
    }
    audit.news.extend(entries.filter(|_| terms.unknown));
    Ok(audit)
}

/// True unless what the index has is surely another content than what the store has.
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
        assert_eq!(starts(0, 10, 7), BTreeSet::new());
        assert_eq!(starts(25, 10, 7), [0, 10, 20].into());
        assert_eq!(starts(160, 10, 7).len(), 16);
        for seed in 0..1_000 {
            let starts: Vec<u64> = starts(1_000_003, 1_000, random(Some(seed))).into_iter().collect();
            assert_eq!(starts.len(), 16);
            let gaps = starts.windows(2).map(|pair| pair[1] - pair[0]);
            let round = 1_000_003 - starts[15] + starts[0];
            assert!(gaps.chain([round]).all(|gap| gap.abs_diff(62_500) <= 1), "{seed}: {starts:?}");
        }
        assert_ne!(random(None), random(None));
    }
}
