//! Reading ahead: whoever reads many files of a pack reads neighbours, so from the third file of a stretch on the whole
//! stretch is fetched by one request. A single file stays a single small range.

use super::{Shared, keys::tar_key, load::whole};
use bytes::Bytes;
use haul_core::Result;
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::OnceCell;

/// Bytes of a stretch: at 25 MB/s it takes 80 ms, about what the requests for a few of its files would.
const STRETCH: u64 = 2 << 20;
/// Stretches that are remembered: 32 MiB at most, and as many packs read side by side.
const REMEMBERED: usize = 16;
/// Files that are read by themselves before the stretch is.
const SINGLE: u32 = 2;

/// Stretches of packs that were read lately.
#[derive(Default)]
pub struct RecentReads(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    /// The one that was used last is the last.
    stretches: VecDeque<Stretch>,
    /// Sizes of packs, as far as they were told.
    sizes: BTreeMap<Arc<str>, u64>,
}

struct Stretch {
    pack: Arc<str>,
    number: u64,
    reads: u32,
    bytes: Arc<OnceCell<Bytes>>,
}

impl RecentReads {
    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// So large is a pack, if an index or an answer told it.
    pub fn learn(&self, pack: &Arc<str>, size: Option<u64>) {
        let mut recent = self.recent();
        if let Some(size) = size.filter(|_| !recent.sizes.contains_key(pack)) {
            recent.sizes.insert(pack.clone(), size);
        }
    }

    /// Counts a read of a range; gives the stretch it is in, and what is or will be there, if that is to be used.
    fn stretch(&self, pack: &Arc<str>, range: &Range<u64>) -> Option<(Range<u64>, Arc<OnceCell<Bytes>>)> {
        let number = range.start / STRETCH;
        let mut recent = self.recent();
        let at = recent.stretches.iter().position(|s| s.number == number && s.pack == *pack);
        let mut stretch = match at.and_then(|at| recent.stretches.remove(at)) {
            Some(stretch) => stretch,
            None => Stretch { pack: pack.clone(), number, reads: 0, bytes: Arc::default() },
        };
        stretch.reads += 1;
        let (reads, bytes) = (stretch.reads, stretch.bytes.clone());
        recent.stretches.push_back(stretch);
        if recent.stretches.len() > REMEMBERED {
            recent.stretches.pop_front();
        }
        let size = *recent.sizes.get(pack)?;
        let whole = number * STRETCH..((number + 1) * STRETCH).min(size);
        (reads > SINGLE && range.end <= whole.end).then_some((whole, bytes))
    }
}

impl Shared {
    /// A range of a pack, if it is better read together with its surroundings.
    ///
    /// Errors: a failed read of the wrapped store.
    pub async fn read_ahead(&self, pack: &Arc<str>, range: &Range<u64>) -> Option<Result<Bytes>> {
        let (stretch, cell) = self.ahead.stretch(pack, range)?;
        let fetch = || async {
            let read = self.inner.read(&tar_key(pack), None, Some(stretch.clone())).await?;
            whole(read).await
        };
        let bytes = match cell.get_or_try_init(fetch).await {
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error)),
        };
        let (start, end) = ((range.start - stretch.start) as usize, (range.end - stretch.start) as usize);
        // A copy, so that one small file doesn't keep a stretch in memory. The caller verifies the length, and notices missing bytes.
        Some(Ok(Bytes::copy_from_slice(bytes.get(start..end).unwrap_or_default())))
    }
}
