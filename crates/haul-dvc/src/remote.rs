//! Which content a remote has. A directory's manifest is written after its files, so where it is, they were: that saves most
//! questions, and is believed only as far as a sample of what it promises is there too. DVC believes it always. What haul saw or wrote
//! there itself is in an index, which is audited in each run. Content of another size than is known of it is no content.

use crate::{
    address::{Address, Layout, Md5},
    wanted::Wanted,
};
use futures::{StreamExt as _, stream};
use haul::{
    index::{RemoteIndex, Settings, Uses},
    presence::{self, Answer},
};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Result, event::Sink, key};
use haul_store::{ListRequest, Store};
use std::{
    collections::{BTreeSet, HashSet},
    hash::{BuildHasher as _, Hasher as _},
    sync::Arc,
};

/// Up to so much content is asked for piece by piece: no manifest saves enough there to be worth a doubt.
const FEW: usize = 64;
/// A remote of up to so many files is looked through as a whole, in 16 pages at most, however little is in doubt.
const SMALL: f64 = 16_000.0;
/// Pages of a larger remote's listing that are compared with what manifests promise: on S3 1,000 names each, whatever the remote's
/// size. Of 8,000 names a loss of one in a thousand, spread evenly, shows with a probability of 99.97 %.
const PAGES: usize = 8;
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

/// Looks for what is wanted. What is there with another size than it is known to have isn't what its name says, and counts as lacking.
///
/// Errors: the remote can't be asked.
pub async fn look(store: &Arc<dyn Store>, wanted: &Wanted, history: &History, proof: Proof) -> Result<Found> {
    let all: Vec<Address> = wanted.names.keys().copied().collect();
    let local = store.caps().page.is_none();
    if proof == Proof::Full || local || all.len() <= FEW {
        return exact(store, wanted, all, HashSet::new()).await;
    }
    let (present, size) = futures::join!(markers(store, wanted, history), size(store));
    beside(store, wanted, history, all, present?, size?).await
}

/// As [`look`], by the index of what haul saw at the remote: manifests are asked for in any case, and of the rest what the index doesn't
/// have. Where it is wrong, everything is looked for.
///
/// Errors: the remote can't be asked.
pub async fn look_by_index(
    store: &Arc<dyn Store>,
    wanted: &Wanted,
    history: &History,
    proof: Proof,
    settings: &Settings,
    sink: &Arc<dyn Sink>,
) -> Result<Found> {
    let uses = if proof == Proof::Full { Uses::Nothing } else { Uses::Wanted };
    let Some(index) = RemoteIndex::open(settings, store, sink, uses).await else {
        return look(store, wanted, history, proof).await;
    };
    let looked = with_index(store, wanted, history, proof, &index).await;
    index.end().await;
    looked
}

async fn with_index(
    store: &Arc<dyn Store>,
    wanted: &Wanted,
    history: &History,
    proof: Proof,
    index: &Arc<RemoteIndex>,
) -> Result<Found> {
    let all: Vec<Address> = wanted.names.keys().copied().collect();
    if proof == Proof::Full || index.verifies() {
        index.lists_all();
        return noted(store, wanted, all, HashSet::new(), index).await;
    }
    if all.len() <= FEW {
        return noted(store, wanted, all, HashSet::new(), index).await;
    }
    let known: HashSet<Address> = index
        .believed(all.iter().map(Address::key).collect())
        .await
        .iter()
        .filter_map(|entry| wanted.which(entry))
        .collect();
    let present = markers(store, wanted, history).await?;
    let asked = asked(wanted, history);
    for marker in asked.iter().filter(|address| known.contains(address) && !present.contains(address)) {
        index.lost(&marker.key());
    }
    if index.is_wrong() {
        let promised = promises(wanted, history, &present);
        return noted(store, wanted, all, promised, index).await;
    }
    let known: HashSet<Address> = known.into_iter().filter(|address| !asked.contains(address)).collect();
    let rest: Vec<Address> = all.into_iter().filter(|a| !known.contains(a) && !present.contains(a)).collect();
    let mut found = match rest.len() {
        0 => Found::default(),
        1..=FEW => noted(store, wanted, rest, HashSet::new(), index).await?,
        _ => beside(store, wanted, history, rest, present.clone(), size(store).await?).await?,
    };
    found.believed += known.len();
    found.there.extend(known);
    found.there.extend(present.into_iter().filter(|address| wanted.names.contains_key(address)));
    Ok(found)
}

/// Looks for each, and notes in the index what is there as it should be.
async fn noted(
    store: &Arc<dyn Store>,
    wanted: &Wanted,
    all: Vec<Address>,
    promised: HashSet<Address>,
    index: &RemoteIndex,
) -> Result<Found> {
    let entries = entries(store, all.clone()).await?;
    for entry in &entries {
        match wanted.which(entry) {
            Some(_) => index.saw(entry),
            None => index.forget(&entry.key),
        }
    }
    Ok(found(wanted, all, promised, &entries))
}

/// Looks for `all`, of which manifests that are `present` may promise some, at a remote of about this size.
async fn beside(
    store: &Arc<dyn Store>,
    wanted: &Wanted,
    history: &History,
    all: Vec<Address>,
    present: HashSet<Address>,
    size: f64,
) -> Result<Found> {
    let promised: HashSet<Address> = {
        let all: HashSet<&Address> = all.iter().collect();
        promises(wanted, history, &present).into_iter().filter(|address| all.contains(address)).collect()
    };
    if size <= SMALL || promised.is_empty() {
        return exact(store, wanted, all, promised).await;
    }
    if !sample(store, wanted, &promised).await? {
        tracing::info!("the remote lacks files that a directory's manifest promises: looking for all of them");
        return exact(store, wanted, all, promised).await;
    }
    let doubtful: Vec<Address> =
        all.iter().filter(|a| !promised.contains(a) && !present.contains(a)).copied().collect();
    let mut found = exact(store, wanted, doubtful, HashSet::new()).await?;
    found.there.extend(present);
    found.believed = all.iter().filter(|a| promised.contains(a)).count();
    found.there.extend(promised);
    Ok(found)
}

/// Looks for each.
async fn exact(
    store: &Arc<dyn Store>,
    wanted: &Wanted,
    all: Vec<Address>,
    promised: HashSet<Address>,
) -> Result<Found> {
    let entries = entries(store, all.clone()).await?;
    Ok(found(wanted, all, promised, &entries))
}

fn found(wanted: &Wanted, all: Vec<Address>, promised: HashSet<Address>, entries: &[Entry]) -> Found {
    let there: HashSet<Address> = entries.iter().filter_map(|entry| wanted.which(entry)).collect();
    let lost = all.into_iter().filter(|a| promised.contains(a) && !there.contains(a)).collect();
    Found { there, lost, believed: 0 }
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
                return Err(Error::new(error.kind(), "look", error.to_string()).with_key(&key));
            }
        }
    }
    Ok(entries)
}

/// Manifests that are asked for in each run.
fn asked(wanted: &Wanted, history: &History) -> BTreeSet<Address> {
    let own = wanted.dirs.iter().filter(|dir| dir.children.is_some()).map(|dir| dir.address);
    own.chain(history.iter().map(|(address, _)| *address)).collect()
}

/// Which manifests are there, of what is wanted and of what was before.
async fn markers(store: &Arc<dyn Store>, wanted: &Wanted, history: &History) -> Result<HashSet<Address>> {
    let mut asked = stream::iter(asked(wanted, history))
        .map(|address| async move {
            match store.stat(&address.key()).await {
                Ok(entry) => Ok(wanted.which(&entry)),
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

/// Files of the newer layout that the remote has, about: one page from the beginning tells by how far it gets.
async fn size(store: &Arc<dyn Store>) -> Result<f64> {
    let (entries, ended) = page(store, None).await?;
    let last = entries.last().and_then(|entry| Address::of_key(entry.key.as_bytes()));
    let count = entries.len() as f64;
    // Names are hashes, evenly spread: the last one's place among all that there could be.
    let place =
        |a: Address| f64::from(u32::from_be_bytes([a.md5[0], a.md5[1], a.md5[2], a.md5[3]])) / f64::from(u32::MAX);
    Ok(last.filter(|_| !ended).map_or(count, |last| count / place(last).max(1e-9)))
}

/// One page of the newer layout, after a key; true when nothing comes after it.
async fn page(store: &Arc<dyn Store>, after: Option<Key>) -> Result<(Vec<Entry>, bool)> {
    let request = ListRequest { prefix: PREFIX.into(), after, limit: store.caps().page, ..ListRequest::all() };
    let (mut listing, mut entries) = (store.list(request), Vec::new());
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(batch) => entries.extend(batch),
            Listed::End => return Ok((entries, true)),
            Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => return Ok((Vec::new(), true)),
            Listed::Failed { error, .. } => return Err(error),
        }
    }
    Ok((entries, false))
}

/// A listing as a whole; nothing where the bucket or folder isn't there yet.
///
/// Errors: those of the listing; one that was cut off.
pub async fn all_of(store: &Arc<dyn Store>, request: ListRequest) -> Result<Vec<Entry>> {
    let mut listing = store.list(request);
    let (mut entries, mut absent) = (Vec::new(), false);
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(batch) => entries.extend(batch),
            Listed::End => return Ok(entries),
            Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => absent = true,
            Listed::Failed { error, .. } => return Err(error),
        }
    }
    if absent {
        return Ok(entries);
    }
    Err(Error::new(ErrorKind::Io, "list", "the listing was cut off"))
}

/// Reads pages of the listing, each from something promised at random on: is all there that is promised in them?
async fn sample(store: &Arc<dyn Store>, wanted: &Wanted, promised: &HashSet<Address>) -> Result<bool> {
    let mut sorted: Vec<Address> = promised.iter().filter(|a| a.layout == Layout::V3).copied().collect();
    sorted.sort_unstable();
    if sorted.is_empty() {
        return Ok(true);
    }
    let starts: BTreeSet<usize> = (0..PAGES as u64).map(|n| (random(n) % sorted.len() as u64) as usize).collect();
    let mut pages = stream::iter(starts)
        .map(|start| {
            let after = Key::new(key::just_before(sorted[start].key().as_bytes()));
            async move { page(store, Some(after)).await.map(|page| (start, page)) }
        })
        .buffer_unordered(PAGES);
    while let Some(page) = pages.next().await {
        let (start, (entries, ended)) = page?;
        let there: HashSet<Address> = entries.iter().filter_map(|entry| wanted.which(entry)).collect();
        let last = entries.last().map(|entry| entry.key.clone());
        // The first is in any case among what the page would hold.
        let seen = |a: &&Address| ended || last.as_ref().is_some_and(|last| a.key() <= *last);
        let of_page = sorted[start..].iter().take_while(seen);
        if !there.contains(&sorted[start]) || of_page.into_iter().any(|a| !there.contains(a)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A number that nobody can foresee: std seeds each of its hash maps from the system's randomness.
fn random(n: u64) -> u64 {
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(n);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use haul_store::{Late, Payload, WriteSpec, mem::MemStore};

    async fn put(store: &Arc<dyn Store>, address: &Address, content: &'static [u8]) {
        let spec = WriteSpec { size: Some(content.len() as u64), ..WriteSpec::default() };
        let upload = store.write(&address.key(), spec).await.unwrap();
        let part = upload.part(0, 0, Payload::from(Bytes::from_static(content))).await.unwrap();
        upload.publish(vec![part], Late::default()).await.unwrap();
    }

    /// A power cut left the file without its bytes: neither its name nor a list's promise makes it content.
    #[tokio::test]
    async fn content_of_another_size_is_lacking_and_no_sample_bears_it_out() {
        let store: Arc<dyn Store> = Arc::new(MemStore::new().with_caps(|caps| caps.page = Some(10)));
        let address = |n: u8| Address::file(Layout::V3, [n; 16]);
        let mut wanted = Wanted::default();
        for n in 0..100 {
            put(&store, &address(n), b"four").await;
            wanted.names.insert(address(n), String::new());
            wanted.sizes.insert(address(n), 4);
        }
        let all: Vec<Address> = wanted.names.keys().copied().collect();
        let promised: HashSet<Address> = all.iter().copied().collect();
        assert!(sample(&store, &wanted, &promised).await.unwrap());
        let dir = Address { layout: Layout::V3, md5: [200; 16], dir: true };
        put(&store, &dir, b"list").await;
        wanted.names.insert(dir, String::new());
        let children = Some(all.iter().map(|address| address.md5).collect());
        wanted.dirs.push(crate::wanted::Dir { address: dir, file: "d.dvc".into(), children, part: false });
        put(&store, &address(7), b"").await;
        let history = History::new();
        for proof in [Proof::Sampled, Proof::Full] {
            let found = look(&store, &wanted, &history, proof).await.unwrap();
            let lost = if proof == Proof::Full { vec![] } else { vec![address(7)] };
            assert_eq!((found.there.len(), found.lost), (100, lost), "{proof:?}");
            assert!(!found.there.contains(&address(7)), "{proof:?}");
        }
        for n in 0..100 {
            put(&store, &address(n), b"").await;
        }
        assert!(!sample(&store, &wanted, &promised).await.unwrap());
        // The list itself.
        wanted.sizes.insert(dir, 3);
        let found = look(&store, &wanted, &history, Proof::Sampled).await.unwrap();
        assert!(found.there.is_empty(), "{found:?}");
    }
}
