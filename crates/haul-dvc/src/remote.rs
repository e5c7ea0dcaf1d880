//! Which content a remote has. A directory's manifest is written after its files, so where it is, they were: that saves most
//! questions, and is believed only as far as a sample of what it promises is there too. DVC believes it always.

use crate::{
    address::{Address, Layout, Md5},
    wanted::Wanted,
};
use futures::{StreamExt as _, stream};
use haul::presence::{self, Answer};
use haul_core::{Entry, ErrorKind, Key, Result};
use haul_store::{ListRequest, Store};
use std::{
    collections::{BTreeSet, HashSet},
    hash::{BuildHasher as _, Hasher as _},
    sync::Arc,
};

/// Up to so much content is asked for piece by piece: no manifest saves enough there to be worth a doubt.
const FEW: usize = 64;
/// A remote of up to so many files is looked through as a whole, in 16 requests, however little is in doubt.
const SMALL: f64 = 16_000.0;
/// Slices of 1/4096 of a larger remote that are listed and compared with what manifests promise. Of promised files lost evenly,
/// 16 slices of a remote of a million hold 3,900: if one in a thousand is lost, a run finds that with a probability of 98 %.
const SLICES: usize = 16;
/// Questions about manifests at once.
const AT_ONCE: usize = 16;
/// The whole of the newer layout.
const PREFIX: &str = "files/md5/";

/// What a remote has of what is wanted.
#[derive(Debug, Default)]
pub struct Found {
    /// What is there.
    pub there: HashSet<Address>,
    /// Content that a manifest promised and that isn't there.
    pub lost: Vec<Address>,
    /// Content that is counted as there because of a manifest, and wasn't looked for.
    pub believed: usize,
}

/// How sure to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Manifests are believed, as far as a sample bears them out.
    Sampled,
    /// Everything is looked for.
    Full,
}

/// Earlier states of tracked directories, the newest first.
pub type History = Vec<(Address, Vec<Md5>)>;

/// Looks for what is wanted.
///
/// Errors: the remote can't be asked.
pub async fn look(store: &Arc<dyn Store>, wanted: &Wanted, history: &History, proof: Proof) -> Result<Found> {
    let all: Vec<Address> = wanted.names.keys().copied().collect();
    let local = store.caps().page.is_none();
    if proof == Proof::Full || local || all.len() <= FEW {
        return exact(store, all, HashSet::new()).await;
    }
    let (present, first) = futures::join!(markers(store, wanted, history), first_page(store));
    let (present, first) = (present?, first?);
    let promised = promises(wanted, history, &present);
    if first.size <= SMALL || promised.is_empty() {
        return exact(store, all, promised).await;
    }
    let (sample, there) = slices(store, &promised).await?;
    if sample.iter().any(|address| !there.contains(address)) {
        tracing::info!("the remote lacks files that a directory's manifest promises: looking for all of them");
        return exact(store, all, promised).await;
    }
    let doubtful: Vec<Address> =
        all.iter().filter(|a| !promised.contains(a) && !present.contains(a)).copied().collect();
    let mut found = exact(store, doubtful, HashSet::new()).await?;
    found.there.extend(present);
    found.believed = all.iter().filter(|a| promised.contains(a)).count();
    found.there.extend(promised);
    Ok(found)
}

/// Looks for each.
async fn exact(store: &Arc<dyn Store>, all: Vec<Address>, promised: HashSet<Address>) -> Result<Found> {
    let entries = entries(store, all.clone()).await?;
    let there: HashSet<Address> = entries.iter().filter_map(|e| Address::of_key(e.key.as_bytes())).collect();
    let lost = all.into_iter().filter(|a| promised.contains(a) && !there.contains(a)).collect();
    Ok(Found { there, lost, believed: 0 })
}

/// The entries of those addresses that a store has, in key order.
///
/// Errors: it can't be asked about one.
pub async fn entries(store: &Arc<dyn Store>, all: Vec<Address>) -> Result<Vec<Entry>> {
    let mut keys: Vec<Key> = all.iter().map(Address::key).collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let found = presence::find(store, keys, presence::Options::default()).await;
    let mut entries = Vec::new();
    for (key, answer) in found.answers {
        match answer {
            Answer::There(entry) => entries.push(entry),
            Answer::Absent | Answer::NotAsked => {}
            Answer::Unknown(error) => {
                return Err(haul_core::Error::new(error.kind(), "look", error.to_string()).with_key(&key));
            }
        }
    }
    Ok(entries)
}

/// Which manifests are there, of what is wanted and of what was before.
async fn markers(store: &Arc<dyn Store>, wanted: &Wanted, history: &History) -> Result<HashSet<Address>> {
    let own = wanted.dirs.iter().filter(|dir| dir.children.is_some()).map(|dir| dir.address);
    let all: BTreeSet<Address> = own.chain(history.iter().map(|(address, _)| *address)).collect();
    let mut asked = stream::iter(all)
        .map(|address| async move {
            match store.stat(&address.key()).await {
                Ok(_) => Ok(Some(address)),
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => Ok(None),
                Err(e) => Err(e.with_key(&address.key())),
            }
        })
        .buffer_unordered(AT_ONCE);
    let mut present = HashSet::new();
    while let Some(answer) = asked.next().await {
        present.extend(answer?);
    }
    Ok(present)
}

/// What the manifests that are there promise, of what is wanted.
fn promises(wanted: &Wanted, history: &History, present: &HashSet<Address>) -> HashSet<Address> {
    let own = wanted.dirs.iter().filter_map(|dir| Some((dir.address, dir.children.as_ref()?)));
    let all = own.chain(history.iter().map(|(address, children)| (*address, children)));
    let mut promised = HashSet::new();
    for (address, children) in all.filter(|(address, _)| present.contains(address)) {
        let children = children.iter().map(|md5| Address::file(address.layout, *md5));
        promised.extend(children.filter(|child| wanted.names.contains_key(child)));
    }
    promised
}

struct FirstPage {
    /// Files of the newer layout that the remote has, about.
    size: f64,
}

/// One page from the beginning: how far it gets tells how much there is.
async fn first_page(store: &Arc<dyn Store>) -> Result<FirstPage> {
    let page = page(store, PREFIX.into()).await?;
    let last = page.last().and_then(|entry| Address::of_key(entry.key.as_bytes()));
    // Names are hashes, evenly spread: the last one's place among all that there could be.
    let place = last.map(|address| {
        f64::from(u32::from_be_bytes([address.md5[0], address.md5[1], address.md5[2], address.md5[3]]))
            / f64::from(u32::MAX)
    });
    let full = store.caps().page.is_some_and(|size| page.len() >= size);
    let size = match place {
        Some(place) if full => page.len() as f64 / place.max(1e-9),
        _ => page.len() as f64,
    };
    Ok(FirstPage { size })
}

async fn page(store: &Arc<dyn Store>, prefix: String) -> Result<Vec<Entry>> {
    let request = ListRequest { prefix: prefix.into_bytes(), limit: store.caps().page, ..ListRequest::all() };
    all_of(store, request).await
}

/// A listing as a whole; nothing where the bucket or folder isn't there yet.
pub async fn all_of(store: &Arc<dyn Store>, request: ListRequest) -> Result<Vec<Entry>> {
    let limited = request.limit.is_some();
    let mut listing = store.list(request);
    let (mut entries, mut absent) = (Vec::new(), false);
    while let Some(step) = listing.next().await {
        match step {
            haul_core::Listed::Batch(batch) => entries.extend(batch),
            haul_core::Listed::End => return Ok(entries),
            haul_core::Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => absent = true,
            haul_core::Listed::Failed { error, .. } => return Err(error),
        }
    }
    if limited || absent {
        return Ok(entries);
    }
    Err(haul_core::Error::new(ErrorKind::Io, "list", "the listing was cut off"))
}

/// Lists slices at random, each around something promised: what is promised in them, and what is there.
async fn slices(store: &Arc<dyn Store>, promised: &HashSet<Address>) -> Result<(Vec<Address>, HashSet<Address>)> {
    let mut sorted: Vec<Address> = promised.iter().filter(|a| a.layout == Layout::V3).copied().collect();
    sorted.sort_unstable();
    let mut prefixes = BTreeSet::new();
    for n in 0..if sorted.is_empty() { 0 } else { SLICES } {
        let at = random(n as u64) % sorted.len() as u64;
        prefixes.insert(sorted[at as usize].text()[..3].to_string());
    }
    let mut listings = stream::iter(prefixes.clone())
        .map(|hex| {
            let prefix = format!("{PREFIX}{}/{}", &hex[..2], &hex[2..]);
            async move { all_of(store, ListRequest { prefix: prefix.into_bytes(), ..ListRequest::all() }).await }
        })
        .buffer_unordered(SLICES);
    let mut there = HashSet::new();
    while let Some(entries) = listings.next().await {
        there.extend(entries?.iter().filter_map(|e| Address::of_key(e.key.as_bytes())));
    }
    let sample = sorted.into_iter().filter(|a| prefixes.contains(&a.text()[..3])).collect();
    Ok((sample, there))
}

/// A number that nobody can foresee: std seeds each of its hash maps from the system's randomness.
fn random(n: u64) -> u64 {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(n);
    hasher.finish()
}
