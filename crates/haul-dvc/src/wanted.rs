//! All content that tracked paths stand for: their own addresses, and those of a directory's files.

use crate::{
    cache::Cache,
    hashing::shown,
    repo::{Repo, SelectedPath},
    status::children,
};
use haul_cas::{
    address::Address,
    manifest::Child,
    wanted::{ContentItem, Dir, LocalContent, WantedContent},
};
use haul_core::Result;
use std::{collections::BTreeSet, sync::Arc};

impl LocalContent for Cache {
    fn refutes(&self, some: &[(Address, u64)]) -> Vec<bool> {
        Cache::refutes(self, some)
    }
}

/// Content of the chosen paths; manifests come from the cache. Blocks on no network.
///
/// Errors: a manifest that can't be parsed.
pub async fn content_of(repo: &Repo, chosen: &[SelectedPath]) -> Result<WantedContent> {
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
    Ok(WantedContent::named(found.content, found.dirs, Arc::new(repo.cache.clone())))
}

/// Content of tracked paths, while it is gathered.
#[derive(Default)]
struct Collected {
    content: Vec<ContentItem>,
    dirs: Vec<Dir>,
}

impl Collected {
    fn add(&mut self, one: &SelectedPath, address: Address, children: Option<Vec<Child>>) {
        let path = &one.tracked.path;
        let part = !one.within.is_empty();
        if !part {
            let size = one.tracked.out.size.filter(|_| !address.dir && address.names_bytes());
            self.content.push(ContentItem { address, size, name: path.clone() });
        }
        if !address.dir {
            return;
        }
        let children = children.map(|children| {
            let mut md5s = Vec::with_capacity(children.len());
            for child in children.into_iter().filter(|c| one.holds(&c.path)) {
                let address = Address::file(address.layout, child.md5);
                self.content.push(ContentItem { address, size: None, name: shown(path, &child.path) });
                md5s.push(child.md5);
            }
            md5s.sort_unstable();
            md5s.dedup();
            md5s
        });
        self.dirs.push(Dir { address, file: one.tracked.file.clone(), children, part });
    }
}
