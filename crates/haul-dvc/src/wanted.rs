//! All content that tracked paths stand for: their own addresses, and those of a directory's files.

use crate::{
    address::{Address, Layout, Md5},
    hashing::shown,
    manifest::Child,
    repo::{Chosen, Repo},
    status::children,
};
use haul_core::{Entry, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
    /// Everything, with a name for people.
    pub names: BTreeMap<Address, String>,
    /// Directories.
    pub dirs: Vec<Dir>,
    /// Bytes of content, where they are known.
    pub sizes: HashMap<Address, u64>,
}

impl Wanted {
    /// What was chosen stands for; manifests come from the cache. Blocks on no network.
    ///
    /// Errors: a manifest that can't be understood.
    pub async fn of(repo: &Repo, chosen: &[Chosen]) -> Result<Wanted> {
        let mut wanted = Wanted::default();
        let mut known: BTreeSet<(Address, Option<String>)> = BTreeSet::new();
        for one in chosen.iter().filter(|one| one.tracked.out.cache) {
            let Some(address) = one.tracked.out.address else { continue };
            if !known.insert((address, one.within.clone())) {
                continue;
            }
            let children = if address.dir { children(repo, one).await? } else { None };
            wanted.add(one, address, children);
        }
        Ok(wanted)
    }

    fn add(&mut self, one: &Chosen, address: Address, children: Option<Vec<Child>>) {
        let path = &one.tracked.path;
        let part = one.within.is_some();
        if !part {
            self.names.entry(address).or_insert_with(|| path.clone());
        }
        if !address.dir {
            // The older layout hashes text of two sizes to one name.
            let size = one.tracked.out.size.filter(|_| address.layout == Layout::V3);
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

    /// The content that an entry is by its name; `None` when it isn't that: it has another size than is known of it.
    pub fn which(&self, entry: &Entry) -> Option<Address> {
        let address = Address::of_key(entry.key.as_bytes())?;
        self.sizes.get(&address).is_none_or(|size| *size == entry.size).then_some(address)
    }

    /// How it is called.
    pub fn name(&self, address: &Address) -> String {
        self.names.get(address).cloned().unwrap_or_else(|| address.text())
    }
}
