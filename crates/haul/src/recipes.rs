//! Chunks of two files, from their comparison, for the build of one from the other: neither has to be read twice.

use haul_core::{
    Algo, Entry, Key, Kind, Result,
    compare::HashAnswer,
    delta::{Chunking, LEAST, Recipe},
    job::{CompareBy, Job},
};
use haul_store::{Store, offered};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Semaphore;

/// Bytes of recipes that are kept at most; recipes beyond that are computed again.
const MOST: usize = 32 << 20;

/// Bytes of recipes that are asked for at once to compare: those of two files of more than 2 GiB, at both ends.
const ASKED: u32 = 32 << 20;

/// A file and the one that it replaces, in pieces.
#[derive(Debug)]
pub(crate) struct Pair {
    pub new: Recipe,
    pub old: Recipe,
}

/// Recipes computed so far, by the keys at the destination. Clones share them.
#[derive(Clone)]
pub struct Recipes(Arc<(Mutex<Told>, Semaphore)>);

impl Default for Recipes {
    fn default() -> Self {
        Recipes(Arc::new((Mutex::default(), Semaphore::new(ASKED as usize))))
    }
}

#[derive(Default)]
struct Told {
    pairs: HashMap<Key, Pair>,
    bytes: usize,
}

impl fmt::Debug for Recipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipes({})", self.lock().pairs.len())
    }
}

impl Pair {
    fn bytes(&self) -> usize {
        self.new.bytes() + self.old.bytes()
    }
}

impl Recipes {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, key: &Key, pair: Pair) {
        let mut kept = self.lock();
        if kept.bytes + pair.bytes() <= MOST {
            kept.bytes += pair.bytes();
            let before = kept.pairs.insert(key.clone(), pair).map_or(0, |before| before.bytes());
            kept.bytes -= before;
        }
    }

    /// The recipes of these two files, once.
    pub(crate) fn take(&self, src: &Entry, dst: &Entry) -> Option<Pair> {
        let mut kept = self.lock();
        let pair = kept.pairs.remove(&dst.key)?;
        kept.bytes -= pair.bytes();
        (pair.new.version == src.version && pair.old.version == dst.version).then_some(pair)
    }
}

/// A store, and a file that it has.
type Side<'a> = (&'a Arc<dyn Store>, &'a Entry);

/// How a file and the one that it replaces are cut; `None` where it is sent whole.
pub(crate) fn cut(job: &Job, (from, src): Side<'_>, (to, dst): Side<'_>) -> Option<Chunking> {
    let wanted = job.write.delta && !job.compare.ignore_size && [src, dst].iter().all(|entry| entry.kind == Kind::File);
    // Between disks the bytes go by themselves, and faster than they could be compared.
    let near = from.caps().files && to.caps().files;
    if !wanted || near || dst.size.min(src.size) < LEAST || dst.version.is_none() {
        return None;
    }
    let smallest = from.deltas()?.smallest_block().max(to.deltas()?.smallest_block());
    Some(Chunking::of(dst.size, src.size, smallest))
}

/// Has both ends tell what they hold.
///
/// Errors: the stores'; `Unsupported` where one doesn't tell; as [`Recipe::check`].
pub(crate) async fn ask((from, src): Side<'_>, (to, dst): Side<'_>, cut: Chunking) -> Result<Pair> {
    let recipe_of = async |(store, entry): Side<'_>| {
        let deltas = offered(store.deltas(), "read")?;
        let recipe = deltas.recipe(&entry.key, entry.version.as_ref(), cut).await?;
        recipe.check().map(|()| recipe)
    };
    let (new, old) = futures::future::try_join(recipe_of((from, src)), recipe_of((to, dst))).await?;
    Ok(Pair { new, old })
}

/// Compares what two files of one size hold, where one would be built from the other. `None` where that has to be found out otherwise.
/// Not where most files are the same, whatever their times: a hash of the whole is less to tell. Nor where a source is deleted for it: an
/// end may tell what it remembers of a file, and for that the file is read.
pub(crate) async fn compare(recipes: &Recipes, job: &Job, src: Side<'_>, dst: Side<'_>) -> Option<HashAnswer> {
    if job.dry_run || job.moves() || job.compare.by != CompareBy::SizeAndTime {
        return None;
    }
    let key = &dst.1.key;
    let cut = cut(job, src, dst)?;
    // Closed never.
    let _room = recipes.0.1.acquire_many(cut.bytes(src.1.size).saturating_mul(2).min(ASKED)).await.ok();
    let asked_pair = ask(src, dst, cut).await;
    let pair = asked_pair.inspect_err(|error| tracing::debug!(%error, %key, "compared by hash")).ok()?;
    let same = pair.new.whole == pair.old.whole && pair.new.size == pair.old.size;
    if !same {
        recipes.keep(key, pair);
    }
    Some(HashAnswer::Known(Algo::Blake3, same))
}
