//! By what a worker knows the source and the destination again: a job is made on one machine, and its workers may see another file
//! system under the same name, or lack one that is mounted below it.

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

/// Files that are kept as witnesses. Some may go while the job runs; all of them only where the source isn't what it was.
const WITNESSES: usize = 8;

/// What a job notes of its ends when it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ends {
    /// Keys that the source had. A worker that finds none of them sees another source.
    pub witnesses: Vec<Key>,
    /// The number of the destination's inode, where it is a directory of a file system that the machine has mounted.
    pub dst_inode: Option<u64>,
    /// Where file systems were mounted below the source, as paths in it.
    pub src_mounts: Vec<Key>,
    /// The same of the destination.
    pub dst_mounts: Vec<Key>,
}

/// What a machine says of the file systems that it has mounted.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Where others are mounted below this directory, as paths in it.
    pub below: fn(&[u8]) -> Vec<Vec<u8>>,
    /// Those of these that aren't mounted below it.
    pub lacking: fn(&[u8], &[Vec<u8>]) -> Vec<Vec<u8>>,
    /// True for a directory in which nothing may be written, whoever asks.
    pub is_read_only: fn(&[u8]) -> bool,
}

impl Ends {
    /// Looks at both. Makes the destination, where that is a directory of this machine.
    ///
    /// Errors: the source can't be listed; the destination can't be made.
    pub async fn look(
        (src, dst): (&Arc<dyn Store>, &Arc<dyn Store>),
        filter: &Arc<Filter>,
        cuts: &[Key],
        machine: Machine,
    ) -> Result<Ends> {
        let mounts = |store: &Arc<dyn Store>| {
            let below = mounted(store).map(|place| (machine.below)(&place)).unwrap_or_default();
            below.into_iter().map(Key::new).collect()
        };
        let mut dst_inode = None;
        let witnesses = witnesses(src, filter, cuts).await?;
        if mounted(dst).is_some() {
            dst.make_dir(&Key::new(""), &WriteSpec::default()).await?;
            dst_inode = inode(dst).await?;
        }
        Ok(Ends { witnesses, dst_inode, src_mounts: mounts(src), dst_mounts: mounts(dst) })
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

    /// The same of what the machine may have mounted or not, which costs no request.
    ///
    /// Errors: as [`Ends::check`].
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
                if let Some(lacking) = (machine.lacking)(&place, &mounts).first() {
                    let below = Key::new(&lacking[..]);
                    return other(
                        store,
                        &format!("has no file system mounted at {below}, as it had when the job was made"),
                    );
                }
            }
            let Some(place) = mounted(dst) else { return Ok(()) };
            if self.dst_inode.is_some() && inode(dst).await? != self.dst_inode {
                return other(dst, "isn't the directory that it was when the job was made");
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

async fn inode(dst: &Arc<dyn Store>) -> Result<Option<u64>> {
    match dst.stat(&Key::new("")).await {
        Ok(top) => Ok(top.posix.map(|posix| posix.ino)),
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
