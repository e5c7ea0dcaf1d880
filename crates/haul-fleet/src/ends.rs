//! How a worker recognises the source and the destination: a job is created on one machine, and its workers may see another file
//! system under the same name, or miss one that is mounted below it.

use futures::{StreamExt, future::BoxFuture};
use haul::{ListOptions, list};
use haul_core::{
    Error, ErrorKind, Key, Listed, Result,
    filter::Filter,
    part::{KeyRange, Part},
};
use haul_store::{Store, WriteSpec};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Files that are kept as witnesses. Some may go while the job runs; all of them only where the source isn't what it was.
const WITNESSES: usize = 8;

/// Facts about a job's ends, noted when it is created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointFacts {
    /// Keys that the source had. A worker that finds none of them sees another source.
    pub witnesses: Vec<Key>,
    /// The number of the destination's inode and when that was made, where it is a directory of a file system that the machine has
    /// mounted: roots of file systems often have the same number.
    pub dst_inode: Option<(u64, Option<String>)>,
    /// The destination is on a file system whose inodes have numbers of each machine's own: no more is known of it than that.
    pub dst_is_apart: bool,
    /// Where file systems were mounted below the source, as paths in it.
    pub src_mounts: Vec<Key>,
    /// Mounts of the destination.
    pub dst_mounts: Vec<Key>,
}

/// Directories, by paths in another.
pub type DirPaths = Vec<Vec<u8>>;

/// A machine's view of its mounted file systems.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Where others are mounted below this directory, as paths in it.
    pub below: fn(&[u8]) -> DirPaths,
    /// Those of these paths that aren't mounted below it.
    pub lacking: fn(&[u8], &DirPaths) -> DirPaths,
    /// Those of [`Machine::below`] that are mounted at all times, unlike an automounter's.
    pub fixed_below: fn(&[u8]) -> DirPaths,
    /// True for a directory that is read-only for every user.
    pub is_read_only: fn(&[u8]) -> bool,
    /// True for a directory whose inode has one number on all machines.
    pub shares_inodes: fn(&[u8]) -> bool,
}

impl EndpointFacts {
    /// Looks at both, as far as `filter` goes, and on the file systems of their roots alone with `one_device`. Makes the destination,
    /// where that is a directory that this machine can make.
    ///
    /// Errors: the source can't be listed.
    pub async fn look(
        (src, dst): (&Arc<dyn Store>, &Arc<dyn Store>),
        (filter, one_device): (&Arc<Filter>, bool),
        cuts: &[Key],
        machine: Machine,
    ) -> Result<EndpointFacts> {
        let mounts = |store: &Arc<dyn Store>| {
            let below = mounted(store).filter(|_| !one_device).map(|place| (machine.below)(&place)).unwrap_or_default();
            below.into_iter().filter(|dir| goes_into(filter, dir)).map(Key::new).collect()
        };
        let (mut dst_inode, mut dst_is_apart) = (None, false);
        let witnesses = witnesses(src, filter, cuts).await?;
        // Workers may be able to make what this machine can't.
        if let Some(place) = mounted(dst)
            && dst.make_dir(&Key::new(""), &WriteSpec::default()).await.is_ok()
        {
            dst_is_apart = !(machine.shares_inodes)(&place);
            dst_inode = if dst_is_apart { None } else { inode(dst).await? };
        }
        Ok(EndpointFacts { witnesses, dst_inode, dst_is_apart, src_mounts: mounts(src), dst_mounts: mounts(dst) })
    }

    /// Checks that nothing is mounted below either end that wasn't when the job was made: others would not see what is there.
    ///
    /// Errors: `Limit`.
    pub fn check_more(
        &self,
        (src, dst): (&Arc<dyn Store>, &Arc<dyn Store>),
        filter: &Filter,
        machine: Machine,
    ) -> Result<()> {
        for (store, mounts) in [(src, &self.src_mounts), (dst, &self.dst_mounts)] {
            let there = mounted(store).map(|place| (machine.fixed_below)(&place)).unwrap_or_default();
            let more = |dir: &&Vec<u8>| goes_into(filter, dir) && !mounts.iter().any(|key| key.as_bytes() == &dir[..]);
            if let Some(more) = there.iter().find(more) {
                let more = Key::new(&more[..]);
                return other(
                    store,
                    &format!("has a file system mounted at {more}, as it had not when the job was made"),
                );
            }
        }
        Ok(())
    }

    /// Checks that these are the source and the destination of which was noted.
    ///
    /// Errors: `Limit`, where one of them isn't; nothing could be found out.
    pub fn check<'a>(
        &'a self,
        (src, dst): (&'a Arc<dyn Store>, &'a Arc<dyn Store>),
        machine: Machine,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if mounted(src).is_none() {
                self.check_witnesses(src).await?;
            }
            self.check_mounted((src, dst), machine).await
        })
    }

    /// Checks only the mounts that the machine may have or not, which costs no request.
    ///
    /// Errors: as for [`EndpointFacts::check`].
    pub fn check_mounted<'a>(
        &'a self,
        (src, dst): (&'a Arc<dyn Store>, &'a Arc<dyn Store>),
        machine: Machine,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if mounted(src).is_some() {
                self.check_witnesses(src).await?;
            }
            for (store, mounts) in [(src, &self.src_mounts), (dst, &self.dst_mounts)] {
                let mounts: Vec<Vec<u8>> = mounts.iter().map(|key| key.as_bytes().to_vec()).collect();
                let Some(place) = mounted(store).filter(|_| !mounts.is_empty()) else { continue };
                // A look at a path that can't be mounted may take long.
                let lacking = spawn_blocking(move || (machine.lacking)(&place, &mounts)).await.unwrap_or_default();
                if let Some(lacking) = lacking.first() {
                    let below = Key::new(&lacking[..]);
                    return other(
                        store,
                        &format!("has no file system mounted at {below}, as it had when the job was made"),
                    );
                }
            }
            let Some(place) = mounted(dst) else { return Ok(()) };
            if let Some(was) = &self.dst_inode
                && inode(dst).await?.is_none_or(|is| !same_inode(&is, was))
            {
                return other(dst, "isn't the directory that it was when the job was made");
            }
            if self.dst_is_apart && (machine.shares_inodes)(&place) {
                return other(
                    dst,
                    "isn't on a file system of the kind on which it was when the job was made (FUSE, SMB)",
                );
            }
            match (machine.is_read_only)(&place) {
                true => other(dst, "is mounted so that it can only be read"),
                false => Ok(()),
            }
        })
    }

    async fn check_witnesses(&self, src: &Arc<dyn Store>) -> Result<()> {
        for key in &self.witnesses {
            match src.stat(key).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        if self.witnesses.is_empty() {
            Ok(())
        } else {
            other(src, "has none of the files that it had when the job was made")
        }
    }
}

/// Where a directory of this machine is.
fn mounted(store: &Arc<dyn Store>) -> Option<Vec<u8>> {
    let domain = store.caps().domain.clone().filter(|domain| domain.on_device.is_some())?;
    Some(domain.place.to_vec())
}

/// True for a directory that is wanted, and each above it.
fn goes_into(filter: &Filter, dir: &[u8]) -> bool {
    filter.excluded_above(&[dir, b"/"].concat()).is_none()
}

/// Some machines don't tell when an inode was made.
fn same_inode((number, made): &(u64, Option<String>), (was, when): &(u64, Option<String>)) -> bool {
    number == was && made.as_ref().zip(when.as_ref()).is_none_or(|(made, when)| made == when)
}

async fn inode(dst: &Arc<dyn Store>) -> Result<Option<(u64, Option<String>)>> {
    match dst.stat(&Key::new("")).await {
        Ok(top) => {
            let made = top.meta.as_ref().and_then(|meta| meta.get("btime").cloned());
            Ok(top.posix.map(|posix| (posix.ino, made)))
        }
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

fn other(store: &Arc<dyn Store>, what: &str) -> Result<()> {
    let message = format!("{} {what}: is it mounted on this machine, and the same there?", store.locator());
    Err(Error::new(ErrorKind::Limit, "start", message))
}

/// Some files from all over the source.
async fn witnesses(src: &Arc<dyn Store>, filter: &Arc<Filter>, cuts: &[Key]) -> Result<Vec<Key>> {
    let step = cuts.len().div_ceil(WITNESSES).max(1);
    let starts = std::iter::once(None).chain(cuts.iter().step_by(step).cloned().map(Some)).take(WITNESSES);
    let mut found = Vec::new();
    for after in starts {
        let part = Part::Range(KeyRange { after, through: None });
        let mut listing = list(src, filter, ListOptions { part, pages: 1, ..ListOptions::default() });
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => {
                    if let Some(first) = entries.into_iter().find(|entry| entry.has_bytes()) {
                        found.push(first.key);
                        break;
                    }
                }
                // A bucket's prefix without keys holds no files; a directory that isn't there is a wrong source.
                Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound && !src.caps().dirs => break,
                Listed::Failed { error, lost } if lost.from.is_root() => return Err(error),
                Listed::Failed { .. } | Listed::Vanished(_) => {}
                Listed::End => break,
            }
        }
    }
    found.dedup();
    Ok(found)
}
