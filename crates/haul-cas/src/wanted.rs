//! Content that is to be somewhere: files, and the directories that are made of them.

use crate::{
    address::{Address, Md5},
    parallel::spread_batches,
};
use haul_core::{Entry, Result};
use std::{fmt, sync::Arc};

/// A directory.
#[derive(Clone, Debug)]
pub struct Dir {
    /// Its manifest.
    pub address: Address,
    /// The file that tracks it.
    pub file: String,
    /// Its files, sorted; `None` when nobody here has the manifest.
    pub children: Option<Vec<Md5>>,
    /// Only some of the files are meant, so the manifest isn't: it would say that all are there.
    pub part: bool,
}

/// Content.
#[derive(Clone, Debug, Default)]
pub struct WantedContent {
    all: Arc<[Address]>,
    /// Bytes of each of `all`, where they are known.
    sizes: Vec<Option<u64>>,
    /// Bytes of each that is held here, where that was asked.
    cached: Vec<Option<u64>>,
    /// Names of each for people, if there are any.
    names: Vec<String>,
    /// Directories.
    pub dirs: Vec<Dir>,
    /// Knows sizes too, of what it holds.
    held_here: Option<Arc<dyn LocalContent>>,
}

/// One piece of content, as it was met.
#[derive(Clone, Debug)]
pub struct ContentItem {
    /// Where it is.
    pub address: Address,
    /// Bytes, where they are known.
    pub size: Option<u64>,
    /// Its name for people.
    pub name: String,
}

/// Content that this machine holds.
pub trait LocalContent: fmt::Debug + Send + Sync {
    /// Takes addresses, each with a number of bytes, best in order: true when the content held of that address proves that content of
    /// this size isn't that. Blocks.
    fn refutes(&self, some: &[(Address, u64)]) -> Vec<bool>;
}

impl WantedContent {
    /// This content, with its bytes where they are known; it has no names for people.
    pub fn new(mut content: Vec<(Address, Option<u64>)>) -> WantedContent {
        content.sort_unstable();
        content.dedup_by_key(|(address, _)| *address);
        let all = content.iter().map(|(address, _)| *address).collect();
        WantedContent { all, sizes: content.into_iter().map(|(_, size)| size).collect(), ..WantedContent::default() }
    }

    /// This content, each called as it was met first, and the directories that it makes; `held` knows sizes that aren't told here.
    pub fn named(mut content: Vec<ContentItem>, dirs: Vec<Dir>, held: Arc<dyn LocalContent>) -> WantedContent {
        content.sort_by_key(|known| known.address);
        content.dedup_by(|again, first| {
            let same = again.address == first.address;
            first.size = if same { first.size.or(again.size) } else { first.size };
            same
        });
        let all = content.iter().map(|known| known.address).collect();
        let (sizes, names) = content.into_iter().map(|known| (known.size, known.name)).unzip();
        WantedContent { all, sizes, names, dirs, held_here: Some(held), ..WantedContent::default() }
    }

    /// Everything, in order, each once.
    pub fn all(&self) -> &Arc<[Address]> {
        &self.all
    }

    /// The content that an entry is by its name; `None` when it isn't that: it has another size than is known of it, or is damaged.
    pub fn which(&self, entry: &Entry) -> Option<Address> {
        if entry.damaged {
            return None;
        }
        let address = Address::of_key(entry.key.as_bytes())?;
        let size = self.all.binary_search(&address).ok().and_then(|place| self.sizes[place]);
        size.is_none_or(|size| size == entry.size).then_some(address)
    }

    /// As [`WantedContent::which`] of each, by the sizes of what is held here too.
    ///
    /// Errors: a disk thread was lost.
    pub async fn which_of(&self, entries: &[Entry]) -> Result<Vec<Option<Address>>> {
        let mut which: Vec<Option<Address>> = entries.iter().map(|entry| self.which(entry)).collect();
        let Some(held) = self.held_here.clone() else { return Ok(which) };
        let untold = |address: &Address, size: u64| {
            let place = self.all.binary_search(address);
            place.is_ok_and(|place| self.sizes[place].is_none() && self.cached.get(place) != Some(&Some(size)))
        };
        let of = |n: usize| Some((which[n]?, entries[n].size)).filter(|(address, size)| untold(address, *size));
        let (open, known): (Vec<usize>, Vec<(Address, u64)>) =
            (0..which.len()).filter_map(|n| Some((n, of(n)?))).unzip();
        let refuted = spread_batches(known, move |batch| held.refutes(&batch)).await?;
        for (n, _) in open.into_iter().zip(refuted).filter(|(_, refuted)| *refuted) {
            which[n] = None;
        }
        Ok(which)
    }

    /// Takes in what was found to be held here: it needn't be asked again of what is there in the same size.
    pub fn held(&mut self, held: &[(Address, Option<u64>)]) {
        self.cached = vec![None; self.all.len()];
        for (address, size) in held {
            if let Ok(place) = self.all.binary_search(address) {
                self.cached[place] = *size;
            }
        }
    }

    /// Its bytes, where they are known.
    pub fn size(&self, address: &Address) -> Option<u64> {
        self.all.binary_search(address).ok().and_then(|place| self.sizes.get(place).copied().flatten())
    }

    /// How it is called.
    pub fn name(&self, address: &Address) -> String {
        let name = self.all.binary_search(address).ok().and_then(|place| self.names.get(place));
        name.cloned().unwrap_or_else(|| address.text())
    }
}
