//! All content that tracked paths stand for: their own addresses, and those of a directory's files.

use crate::{
    address::{Address, Md5},
    cache::Cache,
    hashing::shown,
    manifest::Child,
    repo::{Chosen, Repo},
    spread::spread,
    status::children,
};
use haul_core::{Entry, Result};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

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
    /// Names for people, where they are told any.
    names: BTreeMap<Address, String>,
    /// Directories.
    pub dirs: Vec<Dir>,
    /// Content that is asked for in each run, whatever is known of it, beside directories' manifests.
    pub asked: Vec<Address>,
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
        let mut known: BTreeSet<(Address, Vec<String>)> = BTreeSet::new();
        for one in chosen.iter().filter(|one| one.tracked.out.cache) {
            let Some(address) = one.tracked.out.address else { continue };
            if !known.insert((address, one.within.clone())) {
                continue;
            }
            let children = if address.dir { children(repo, one).await? } else { None };
            found.add(one, address, children);
        }
        let Collected { names, sizes, dirs } = found;
        let content = names.keys().map(|address| (*address, sizes.get(address).copied())).collect();
        Ok(Wanted { names, dirs, cache: Some(repo.cache.clone()), ..Wanted::new(content) })
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
        let open: Vec<(usize, Address, u64)> = which
            .iter()
            .enumerate()
            .filter_map(|(n, address)| Some((n, (*address)?, entries[n].size)))
            .filter(|(_, address, size)| untold(address, *size))
            .collect();
        for (n, refuted) in spread(open, move |(n, address, size)| (n, cache.refutes(&address, size))).await? {
            if refuted {
                which[n] = None;
            }
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
        self.names.get(address).cloned().unwrap_or_else(|| address.text())
    }
}

/// What tracked paths stand for, while it is gathered.
#[derive(Default)]
struct Collected {
    names: BTreeMap<Address, String>,
    sizes: HashMap<Address, u64>,
    dirs: Vec<Dir>,
}

impl Collected {
    fn add(&mut self, one: &Chosen, address: Address, children: Option<Vec<Child>>) {
        let path = &one.tracked.path;
        let part = !one.within.is_empty();
        if !part {
            self.names.entry(address).or_insert_with(|| path.clone());
        }
        if !address.dir {
            let size = one.tracked.out.size.filter(|_| address.names_bytes());
            self.sizes.extend(size.map(|size| (address, size)));
            return;
        }
        let children = children.map(|children| {
            let mut md5s = Vec::with_capacity(children.len());
            for child in children.into_iter().filter(|c| one.holds(&c.path)) {
                let name = || shown(path, &child.path);
                self.names.entry(Address::file(address.layout, child.md5)).or_insert_with(name);
                md5s.push(child.md5);
            }
            md5s.sort_unstable();
            md5s.dedup();
            md5s
        });
        self.dirs.push(Dir { address, file: one.tracked.file.clone(), children, part });
    }
}
