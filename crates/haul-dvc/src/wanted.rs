//! All content that tracked paths stand for: their own addresses, and those of a directory's files.

use crate::{
    address::{Address, Md5},
    cache::Cache,
    hashing::shown,
    manifest::Child,
    repo::{Chosen, Repo},
    spread::spread_batches,
    status::children,
};
use haul_core::{Entry, Result};
use std::{collections::BTreeSet, sync::Arc};

/// A directory.
#[derive(Clone, Debug)]
pub struct Dir {
    /// Its manifest.
    pub address: Address,
    /// The `.dvc` file or `dvc.lock` that tracks it.
    pub file: String,
    /// Its files, sorted; `None` when the cache lacks the manifest.
    pub children: Option<Vec<Md5>>,
    /// Only some of the files are meant, so the manifest isn't: it would say that all are there.
    pub part: bool,
}

/// Content.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    all: Arc<[Address]>,
    /// Bytes of each of `all`, where they are known.
    sizes: Vec<Option<u64>>,
    /// Bytes of each in the cache, where that was asked.
    cached: Vec<Option<u64>>,
    /// Names of each for people, where they are told any.
    names: Vec<String>,
    /// Directories.
    pub dirs: Vec<Dir>,
    /// Knows sizes too, of what it holds.
    cache: Option<Cache>,
}

impl Wanted {
    /// This content, with its bytes where they are known; nobody is told names of it.
    pub fn new(mut content: Vec<(Address, Option<u64>)>) -> Wanted {
        content.sort_unstable();
        content.dedup_by_key(|(address, _)| *address);
        let all = content.iter().map(|(address, _)| *address).collect();
        Wanted { all, sizes: content.into_iter().map(|(_, size)| size).collect(), ..Wanted::default() }
    }

    /// What was chosen stands for; manifests come from the cache. Blocks on no network.
    ///
    /// Errors: a manifest that can't be understood.
    pub async fn of(repo: &Repo, chosen: &[Chosen]) -> Result<Wanted> {
        let mut found = Collected::default();
        let mut known: BTreeSet<(Address, Option<String>)> = BTreeSet::new();
        for one in chosen.iter().filter(|one| one.tracked.out.cache) {
            let Some(address) = one.tracked.out.address else { continue };
            if !known.insert((address, one.within.clone())) {
                continue;
            }
            let children = if address.dir { children(repo, one).await? } else { None };
            found.add(one, address, children);
        }
        let Collected { mut content, dirs } = found;
        // What is tracked twice is called as it was met first.
        content.sort_by_key(|known| known.address);
        content.dedup_by(|again, first| {
            let same = again.address == first.address;
            first.size = if same { first.size.or(again.size) } else { first.size };
            same
        });
        let all = content.iter().map(|known| known.address).collect();
        let (sizes, names) = content.into_iter().map(|known| (known.size, known.name)).unzip();
        Ok(Wanted { all, sizes, names, dirs, cache: Some(repo.cache.clone()), ..Wanted::default() })
    }

    /// Everything, in order, each once.
    pub fn all(&self) -> &Arc<[Address]> {
        &self.all
    }

    /// The content that an entry is by its name; `None` when it isn't that: it has another size than is known of it.
    pub fn which(&self, entry: &Entry) -> Option<Address> {
        let address = Address::of_key(entry.key.as_bytes())?;
        let size = self.all.binary_search(&address).ok().and_then(|place| self.sizes[place]);
        size.is_none_or(|size| size == entry.size).then_some(address)
    }

    /// As [`Wanted::which`] of each, by the sizes of what the cache holds too.
    ///
    /// Errors: a disk thread was lost.
    pub async fn which_of(&self, entries: &[Entry]) -> Result<Vec<Option<Address>>> {
        let mut which: Vec<Option<Address>> = entries.iter().map(|entry| self.which(entry)).collect();
        let Some(cache) = self.cache.clone() else { return Ok(which) };
        let untold = |address: &Address, size: u64| {
            let place = self.all.binary_search(address);
            place.is_ok_and(|place| self.sizes[place].is_none() && self.cached.get(place) != Some(&Some(size)))
        };
        let of = |n: usize| Some((which[n]?, entries[n].size)).filter(|(address, size)| untold(address, *size));
        let (open, known): (Vec<usize>, Vec<(Address, u64)>) =
            (0..which.len()).filter_map(|n| Some((n, of(n)?))).unzip();
        let refuted = spread_batches(known, move |batch| cache.refutes(&batch)).await?;
        for (n, _) in open.into_iter().zip(refuted).filter(|(_, refuted)| *refuted) {
            which[n] = None;
        }
        Ok(which)
    }

    /// Takes in what the cache was found to hold: it needn't be asked again of what is there in the same size.
    pub fn held(&mut self, held: &[(Address, Option<u64>)]) {
        self.cached = vec![None; self.all.len()];
        for (address, size) in held {
            if let Ok(place) = self.all.binary_search(address) {
                self.cached[place] = *size;
            }
        }
    }

    /// How it is called.
    pub fn name(&self, address: &Address) -> String {
        let name = self.all.binary_search(address).ok().and_then(|place| self.names.get(place));
        name.cloned().unwrap_or_else(|| address.text())
    }
}

/// What tracked paths stand for, while it is gathered.
#[derive(Default)]
struct Collected {
    content: Vec<Known>,
    dirs: Vec<Dir>,
}

/// One file or manifest, as it was met.
struct Known {
    address: Address,
    size: Option<u64>,
    name: String,
}

impl Collected {
    fn add(&mut self, one: &Chosen, address: Address, children: Option<Vec<Child>>) {
        let path = &one.tracked.path;
        let part = one.within.is_some();
        if !part {
            let size = one.tracked.out.size.filter(|_| !address.dir && address.names_bytes());
            self.content.push(Known { address, size, name: path.clone() });
        }
        if !address.dir {
            return;
        }
        let children = children.map(|children| {
            let mut md5s = Vec::with_capacity(children.len());
            for child in children.into_iter().filter(|c| one.holds(&c.path)) {
                let address = Address::file(address.layout, child.md5);
                self.content.push(Known { address, size: None, name: shown(path, &child.path) });
                md5s.push(child.md5);
            }
            md5s.sort_unstable();
            md5s.dedup();
            md5s
        });
        self.dirs.push(Dir { address, file: one.tracked.file.clone(), children, part });
    }
}
