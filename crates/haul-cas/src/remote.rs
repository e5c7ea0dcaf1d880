//! Which content a remote has. A directory's manifest is written after its files, so where it is, they were: that saves most
//! questions, and is believed only as far as a sample of what it promises is there too. DVC believes it always. What haul saw or wrote
//! there itself is in an index, which is audited in each run. Content of another size than is known of it is no content.

use crate::{
    address::{Address, Layout, Md5},
    subset::Subset,
    wanted::WantedContent,
};
use futures::{
    StreamExt as _, TryStreamExt as _,
    future::OptionFuture,
    stream::{self, BoxStream},
};
use haul::{
    index::{IndexScope, RemoteIndex, Settings},
    presence::{self, KeyState},
};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Result, event::Sink, key};
use haul_store::{ListRequest, Store};
use std::{
    collections::{BTreeSet, HashSet},
    hash::{BuildHasher as _, Hasher as _},
    sync::Arc,
};

/// Up to so much content is asked for piece by piece: no manifest saves enough there to be worth a doubt.
pub const FEW: u64 = 64;
/// A remote with up to this many files is listed completely, in 16 pages at most, however little is in doubt.
const SMALL: f64 = 16_000.0;
/// Pages of a larger remote's listing that are compared with what manifests promise: on S3 1,000 names each, whatever the remote's
/// size. Of 8,000 names a loss of one in a thousand, spread evenly, shows with a probability of 99.97 %.
const PAGES: usize = 8;
/// Questions about manifests at once.
const AT_ONCE: usize = 16;
/// Content that is asked of the index, or looked for, together.
const BATCH: usize = 4_096;
/// The whole of the newer layout.
const PREFIX: &str = "files/md5/";

/// The wanted content that a remote has.
#[derive(Debug, Default)]
pub struct PresentContent {
    /// The existing content.
    pub there: Subset,
    /// Content that a manifest promised and that isn't there.
    pub lost: Vec<Address>,
    /// Content that is counted as there because of a manifest or the index, and wasn't looked for.
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

/// Earlier states of tracked directories, the newest first: their manifests, and what these promise.
pub type History = Vec<(Address, Vec<Md5>)>;

/// Requests to a remote before all wanted content is known: so it needn't wait for this machine's disk, nor the disk for it.
pub struct EarlyQueries {
    index: Option<Arc<RemoteIndex>>,
    requested: BTreeSet<Address>,
    /// Those of `requested` that exist.
    present: Vec<Entry>,
}

impl EarlyQueries {
    /// Opens the index of what haul saw at the remote, where there are settings for one, and asks for `manifests`, which are asked for in
    /// each run, whatever is known of them. Unless all of about `count` pieces of content are asked for anyway, the index is audited.
    ///
    /// Errors: the remote can't be asked.
    pub async fn ask(
        store: &Arc<dyn Store>,
        manifests: impl IntoIterator<Item = Address>,
        count: u64,
        proof: Proof,
        index: Option<(&Settings, &Arc<dyn Sink>)>,
    ) -> Result<EarlyQueries> {
        let sampled = proof == Proof::Sampled && store.caps().page.is_some();
        let requested: BTreeSet<Address> = manifests.into_iter().filter(|_| sampled).collect();
        let uses = if proof == Proof::Full || count <= FEW { IndexScope::Nothing } else { IndexScope::Wanted };
        let open = index.map(|(settings, sink)| RemoteIndex::open(settings, store, sink, uses));
        let (index, present) = futures::join!(OptionFuture::from(open), markers(store, requested.iter().copied()));
        let index = index.flatten();
        match present {
            Ok(present) => Ok(EarlyQueries { index, requested, present }),
            Err(error) => {
                OptionFuture::from(index.as_ref().map(|index| index.end())).await;
                Err(error)
            }
        }
    }
}

/// Looks for what is wanted, by what was asked ahead. What is there with another size than it is known to have doesn't match its name,
/// and counts as lacking. What the index has is believed, unless it turns out to be wrong; `history` is only waited for where it saves
/// questions.
///
/// Errors: the remote can't be asked.
pub async fn look(
    store: &Arc<dyn Store>,
    wanted: &WantedContent,
    history: impl Future<Output = History>,
    proof: Proof,
    ahead: EarlyQueries,
) -> Result<PresentContent> {
    let EarlyQueries { index, requested, present } = ahead;
    let looked = looked(store, wanted, history, proof, (requested, present), index.as_ref()).await;
    OptionFuture::from(index.as_ref().map(|index| index.end())).await;
    looked
}

async fn looked(
    store: &Arc<dyn Store>,
    wanted: &WantedContent,
    history: impl Future<Output = History>,
    proof: Proof,
    (requested, present): (BTreeSet<Address>, Vec<Entry>),
    index: Option<&Arc<RemoteIndex>>,
) -> Result<PresentContent> {
    let all = wanted.all().clone();
    if proof == Proof::Full || index.is_some_and(|index| index.verifies()) {
        index.iter().for_each(|index| index.lists_all());
        return exact(store, wanted, all, None, index).await;
    }
    let mut present: HashSet<Address> = wanted.which_of(&present).await?.into_iter().flatten().collect();
    let mut known = Subset::none(&all);
    let few = all.len() as u64 <= FEW;
    if let Some(index) = index.filter(|_| !few) {
        let batches = (0..all.len()).step_by(BATCH).map(|from| from..all.len().min(from + BATCH));
        let mut batches = stream::iter(batches).map(|batch| believed(wanted, index, &all[batch])).buffered(2);
        while let Some(some) = batches.next().await {
            some?.iter().for_each(|address| known.insert(address));
        }
        let markers: Vec<Address> = requested.iter().copied().collect();
        for marker in believed(wanted, index, &markers).await?.iter().filter(|address| !present.contains(address)) {
            index.lost(&marker.key());
        }
        if index.is_wrong() {
            let promised = promises(wanted, &history.await, &present);
            return exact(store, wanted, all.clone(), Some(&promised), Some(index)).await;
        }
    }
    requested.iter().for_each(|marker| known.remove(marker));
    let rest: Vec<Address> = known.lacking().filter(|address| !requested.contains(address)).copied().collect();
    let mut found = if rest.len() as u64 <= FEW || store.caps().page.is_none() {
        exact(store, wanted, rest.into(), None, index).await?
    } else {
        let history = history.await;
        let more: Vec<Address> =
            history.iter().map(|(list, _)| *list).filter(|list| !requested.contains(list)).collect();
        let (more, size) = futures::join!(markers(store, more), size(store));
        present.extend(wanted.which_of(&more?).await?.into_iter().flatten());
        beside(store, wanted, &history, rest.into(), present.clone(), size?, index).await?
    };
    found.believed += known.len();
    found.there.extend(&known);
    present.iter().for_each(|address| found.there.insert(address));
    Ok(found)
}

/// Which of these are there, as far as the index is believed: its audit notes what a listing shows, of any size.
async fn believed(wanted: &WantedContent, index: &Arc<RemoteIndex>, some: &[Address]) -> Result<Vec<Address>> {
    let entries = index.believed(some.iter().map(Address::key).collect()).await;
    Ok(wanted.which_of(&entries).await?.into_iter().flatten().collect())
}

/// Looks for `all`, of which manifests that are `present` may promise some, at a remote of about this size.
async fn beside(
    store: &Arc<dyn Store>,
    wanted: &WantedContent,
    history: &History,
    all: Arc<[Address]>,
    present: HashSet<Address>,
    size: f64,
    index: Option<&Arc<RemoteIndex>>,
) -> Result<PresentContent> {
    let mut promised = promises(wanted, history, &present);
    promised.retain(&all);
    if size <= SMALL || promised.is_empty() {
        return exact(store, wanted, all, Some(&promised), index).await;
    }
    // The pages are of the newer layout, and bear out nothing of the older.
    let older: Vec<Address> = promised.iter().filter(|address| address.layout != Layout::V3).copied().collect();
    older.iter().for_each(|address| promised.remove(address));
    if !sample(store, wanted, &promised).await? {
        tracing::info!("the remote is missing files of a directory that it lists: looking for all of them");
        return exact(store, wanted, all, Some(&promised), index).await;
    }
    let doubtful = all.iter().filter(|a| !promised.contains(a) && !present.contains(a)).copied().collect();
    let mut found = exact(store, wanted, doubtful, None, index).await?;
    present.iter().for_each(|address| found.there.insert(address));
    found.believed = promised.len();
    found.there.extend(&promised);
    Ok(found)
}

/// Looks for each of `all`, and notes in the index what is there as it should be.
async fn exact(
    store: &Arc<dyn Store>,
    wanted: &WantedContent,
    all: Arc<[Address]>,
    promised: Option<&Subset>,
    index: Option<&Arc<RemoteIndex>>,
) -> Result<PresentContent> {
    let mut there = Subset::none(wanted.all());
    let mut answers = those(store, all.clone());
    while let Some(entries) = answers.next().await {
        let entries = entries?;
        for (entry, which) in entries.iter().zip(wanted.which_of(&entries).await?) {
            match (which, index) {
                (Some(_), Some(index)) => index.note_present(entry),
                (None, Some(index)) => index.forget(&entry.key),
                (_, None) => {}
            }
            which.iter().for_each(|address| there.insert(address));
        }
    }
    let promised = |address: &&Address| promised.is_some_and(|promised| promised.contains(address));
    let lost = all.iter().filter(promised).filter(|address| !there.contains(address)).copied().collect();
    Ok(PresentContent { there, lost, believed: 0 })
}

/// The entries of those addresses that a store has, in batches and in key order. `all` is in order, each once.
///
/// Errors: it can't be asked about one.
pub fn those(store: &Arc<dyn Store>, all: Arc<[Address]>) -> BoxStream<'static, Result<Vec<Entry>>> {
    if all.is_empty() {
        return stream::empty().boxed();
    }
    let batches = (0..all.len()).step_by(BATCH).map(move |from| {
        let to = all.len().min(from + BATCH);
        all[from..to].iter().map(Address::key).collect::<Vec<Key>>()
    });
    let (answers, _) = presence::search(store, stream::iter(batches).boxed(), presence::LookupOptions::default());
    let there = answers.map(|batch| {
        let mut entries = Vec::new();
        for (key, answer) in batch {
            match answer {
                KeyState::There(entry) => entries.push(entry),
                KeyState::Absent | KeyState::NotAsked => {}
                KeyState::Unknown(error) => {
                    return Err(Error::new(error.kind(), "look", error.to_string()).with_key(&key));
                }
            }
        }
        Ok(entries)
    });
    there.boxed()
}

/// All entries of [`those`] at once.
///
/// Errors: it can't be asked about one.
pub async fn entries(store: &Arc<dyn Store>, mut all: Vec<Address>) -> Result<Vec<Entry>> {
    all.sort_unstable();
    all.dedup();
    those(store, all.into()).try_concat().await
}

/// Those of these that exist.
async fn markers(store: &Arc<dyn Store>, requested: impl IntoIterator<Item = Address>) -> Result<Vec<Entry>> {
    let answers = stream::iter(requested)
        .map(|address| async move {
            match store.stat(&address.key()).await {
                Ok(entry) => Ok(Some(entry)),
                Err(e) if e.is_missing() => Ok(None),
                Err(e) => Err(e.with_key(&address.key())),
            }
        })
        .buffer_unordered(AT_ONCE);
    answers.try_filter_map(|entry| std::future::ready(Ok(entry))).try_collect().await
}

/// The wanted content that the existing manifests promise.
fn promises(wanted: &WantedContent, history: &History, present: &HashSet<Address>) -> Subset {
    let own = wanted.dirs.iter().filter_map(|dir| Some((dir.address, dir.children.as_ref()?)));
    let all = own.chain(history.iter().map(|(address, children)| (*address, children)));
    let mut promised = Subset::none(wanted.all());
    for (address, children) in all.filter(|(address, _)| present.contains(address)) {
        children.iter().for_each(|md5| promised.insert(&Address::file(address.layout, *md5)));
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
            Listed::Vanished(_) => {}
            Listed::End => return Ok((entries, true)),
            Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => return Ok((Vec::new(), true)),
            Listed::Failed { error, .. } => return Err(error),
        }
    }
    Ok((entries, false))
}

/// A listing as a whole; empty if the bucket or folder is missing.
///
/// Errors: of the listing; one that was cut off.
pub async fn all_of(store: &Arc<dyn Store>, request: ListRequest) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    each(store, request, |entry| entries.push(entry)).await?;
    Ok(entries)
}

/// Passes each entry of a listing to `take`; none if the bucket or folder is missing.
///
/// Errors: of the listing; one that was cut off.
pub async fn each(store: &Arc<dyn Store>, request: ListRequest, mut take: impl FnMut(Entry)) -> Result<()> {
    let (mut listing, mut absent) = (store.list(request), false);
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(batch) => batch.into_iter().for_each(&mut take),
            Listed::Vanished(_) => {}
            Listed::End => return Ok(()),
            Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => absent = true,
            Listed::Failed { error, .. } => return Err(error),
        }
    }
    if absent {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Io, "list", "the listing was cut off"))
}

/// Reads pages of the listing, each from something promised at random on: is all there that is promised in them? All of it is of
/// the newer layout.
async fn sample(store: &Arc<dyn Store>, wanted: &WantedContent, promised: &Subset) -> Result<bool> {
    let sorted: Vec<Address> = promised.iter().copied().collect();
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
        let there: HashSet<Address> = wanted.which_of(&entries).await?.into_iter().flatten().collect();
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
    use haul_mem::MemStore;
    use haul_store::{LateFacts, Payload, WriteSpec};

    async fn put(store: &Arc<dyn Store>, address: &Address, content: &'static [u8]) {
        let spec = WriteSpec { size: Some(content.len() as u64), ..WriteSpec::default() };
        let upload = store.write(&address.key(), spec).await.unwrap();
        let part = upload.part(0, 0, Payload::from(Bytes::from_static(content))).await.unwrap();
        upload.publish(vec![part], LateFacts::default()).await.unwrap();
    }

    async fn found(store: &Arc<dyn Store>, wanted: &WantedContent, proof: Proof) -> PresentContent {
        let lists = wanted.dirs.iter().map(|dir| dir.address);
        let ahead = EarlyQueries::ask(store, lists, wanted.all().len() as u64, proof, None).await.unwrap();
        look(store, wanted, std::future::ready(History::new()), proof, ahead).await.unwrap()
    }

    /// A power cut left the file without its bytes: neither its name nor a list's promise makes it content.
    #[tokio::test]
    async fn content_of_another_size_is_lacking_and_no_sample_bears_it_out() {
        let store: Arc<dyn Store> = Arc::new(MemStore::new().with_caps(|caps| caps.page = Some(10)));
        let address = |n: u8| Address::file(Layout::V3, [n; 16]);
        let dir = Address { layout: Layout::V3, md5: [200; 16], dir: true };
        let wanted_with = |list: u64| {
            let content = (0..100).map(|n| (address(n), Some(4)));
            let mut wanted = WantedContent::new(content.chain([(dir, Some(list))]).collect());
            let children = Some((0..100).map(|n| address(n).md5).collect());
            wanted.dirs.push(crate::wanted::Dir { address: dir, file: "d.dvc".into(), children, part: false });
            wanted
        };
        let wanted = wanted_with(4);
        for n in 0..100 {
            put(&store, &address(n), b"four").await;
        }
        let mut promised = Subset::none(wanted.all());
        (0..100).for_each(|n| promised.insert(&address(n)));
        assert!(sample(&store, &wanted, &promised).await.unwrap());
        put(&store, &dir, b"list").await;
        put(&store, &address(7), b"").await;
        for proof in [Proof::Sampled, Proof::Full] {
            let found = found(&store, &wanted, proof).await;
            let lost = if proof == Proof::Full { vec![] } else { vec![address(7)] };
            assert_eq!((found.there.len(), found.lost), (100, lost), "{proof:?}");
            assert!(!found.there.contains(&address(7)), "{proof:?}");
        }
        for n in 0..100 {
            put(&store, &address(n), b"").await;
        }
        assert!(!sample(&store, &wanted, &promised).await.unwrap());
        // The list itself.
        let wanted = wanted_with(3);
        let found = found(&store, &wanted, Proof::Sampled).await;
        assert!(found.there.is_empty(), "{found:?}");
    }

    #[tokio::test]
    async fn what_a_list_of_the_older_layout_promises_is_looked_for_beside_much_of_the_newer() {
        let store: Arc<dyn Store> = Arc::new(MemStore::new().with_caps(|caps| caps.page = Some(10)));
        for n in 0..20 {
            // All at the beginning, as of very many.
            put(&store, &Address::file(Layout::V3, std::array::from_fn(|at| if at == 3 { n } else { 0 })), b"four")
                .await;
        }
        let address = |n: u8| Address::file(Layout::V2, [n; 16]);
        let dir = Address { layout: Layout::V2, md5: [200; 16], dir: true };
        let content = (0..100).map(|n| (address(n), None));
        let mut wanted = WantedContent::new(content.chain([(dir, Some(4))]).collect());
        let children = Some((0..100).map(|n| address(n).md5).collect());
        wanted.dirs.push(crate::wanted::Dir { address: dir, file: "d.dvc".into(), children, part: false });
        for n in 1..100 {
            put(&store, &address(n), b"four").await;
        }
        put(&store, &dir, b"list").await;
        assert!(size(&store).await.unwrap() > SMALL);
        let found = found(&store, &wanted, Proof::Sampled).await;
        assert!(found.there.len() == 100 && !found.there.contains(&address(0)), "{found:?}");
    }
}
