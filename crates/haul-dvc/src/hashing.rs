//! The MD5s of what is in the workspace, each file hashed only if nothing tells its MD5.

use crate::{
    cache::{Cache, hash_file},
    paths::joined,
    workspace::WorkspaceFile,
};
use haul::index::now;
use haul_cas::{
    address::{Address, Layout, Md5},
    facts::Facts,
    parallel::spread,
    state::State,
};
use haul_core::Result;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// The MD5 of each file, in the same order. `expected` is what is tracked: a file that is the cache's own is known by that.
///
/// Errors: a file that can't be read.
pub async fn md5s(
    cache: &Cache,
    root: &Path,
    found: &[WorkspaceFile],
    layout: Layout,
    expected: &HashMap<&str, Md5>,
    state: &mut State,
) -> Result<Vec<Md5>> {
    let looked = now();
    let mut md5s: Vec<Option<Md5>> = Vec::with_capacity(found.len());
    for file in found {
        let own = || expected.get(file.path.as_str()).copied().filter(|md5| is_caches_own(cache, file, layout, *md5));
        md5s.push(state.get(&file.facts, layout).or_else(own));
    }
    let unknown: Vec<(usize, PathBuf)> = md5s
        .iter()
        .enumerate()
        .filter(|(_, md5)| md5.is_none())
        .map(|(n, _)| (n, path_of(root, &found[n].path)))
        .collect();
    let hashed = spread(unknown, move |(n, path)| hash_file(&path, layout.algo()).map(|hashed| (n, hashed))).await?;
    for one in hashed {
        let (n, hashed) = one?;
        md5s[n] = Some(hashed.md5);
        if hashed.steady && hashed.facts.same(&found[n].facts) {
            state.put(&hashed.facts, layout, hashed.md5, looked);
        }
    }
    Ok(md5s.into_iter().map(Option::unwrap_or_default).collect())
}

/// The path of a file in a tracked directory; the tracked file's own for an empty one.
pub fn path_of(root: &Path, below: &str) -> PathBuf {
    if below.is_empty() { root.into() } else { root.join(below) }
}

/// True for another name of the cache's file, or a link to it, while that is protected. Root is kept from writing by nothing: for it such
/// a file is hashed as any other, once.
fn is_caches_own(cache: &Cache, file: &WorkspaceFile, layout: Layout, md5: Md5) -> bool {
    if !file.link && file.facts.nlink < 2 || rustix::process::geteuid().is_root() {
        return false;
    }
    let cached = Facts::get(&cache.path(&Address::file(layout, md5)), true).ok().flatten();
    cached.is_some_and(|c| (c.dev, c.ino) == (file.facts.dev, file.facts.ino) && c.mode & 0o7777 == 0o444)
}

/// A path for people: below the root, with the file in the directory.
pub fn shown(tracked: &str, below: &str) -> String {
    if below.is_empty() { tracked.into() } else { joined(tracked, below) }
}
