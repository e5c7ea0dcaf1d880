//! Proof that the two ends of a job are two places, before something is deleted. One place can be reached in two ways: a shared file system
//! and another node behind SSH, a directory and the server that exports it. So a file with a unique name is written at one end and looked
//! up at the other.
//!
//! A move deletes at the source every file that the destination has already: for a single place that would be everything. A sync deletes
//! every file below its destination that its source doesn't have: where that is the source, that would be everything too.

use crate::{Cx, index::random, overlap::PROBE, pipe, spool::Spool};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::{Store, WriteSpec};
use std::{collections::BTreeMap, sync::Arc};

/// Directories that are remembered, and those of them that are looked at: what is the source has all of its files, others few.
const SUSPECTS: usize = 10_000;
const LOOKED_AT: usize = 16;

/// Proves that the file `from` of the source isn't the file `to` of the destination, by a probe beside either.
///
/// Errors: `Invalid` if both are one; a request or a write at an end fails.
pub async fn are_two(cx: &Cx, from: &Key, to: &Key) -> Result<()> {
    let name = fresh_name();
    let src = (&cx.src, name.below(from.parent().as_bytes()));
    let dst = (&cx.dst, name.below(to.parent().as_bytes()));
    // A move must be able to delete at its source; at its destination it may be allowed to write alone.
    let seen = match shows(&src, &dst).await {
        // A server may remember for minutes what is in a directory. A disk doesn't.
        Ok(false) if cx.src.caps().files && cx.dst.caps().dirs && !cx.dst.caps().files => {
            shows(&dst, &src).await.unwrap_or(false)
        }
        Err(Unproved::Refused(_)) => shows(&dst, &src).await.map_err(Unproved::into_error)?,
        seen => seen.map_err(Unproved::into_error)?,
    };
    if seen {
        let message = "source and destination are one place, reached in two ways: moving would delete what is there";
        return Err(Error::new(ErrorKind::Invalid, "move", message).with_key(from));
    }
    Ok(())
}

/// The destination directory that is the source itself, if there is one, judged by these files: some of the source, and those to be
/// deleted. A probe is written only where some of the latter have a name and size of the former.
///
/// Errors: requests and writes at the destination that fail, where much is to be deleted.
pub async fn source_among(cx: &Cx, source: &[(Key, u64)], gone: &mut Spool) -> Result<Option<Key>> {
    // How many of the source's files are called like some in it, and the first of them.
    let mut suspects: BTreeMap<Key, (usize, Key)> = BTreeMap::new();
    gone.each(|gone| {
        for (key, _) in source.iter().filter(|(_, size)| *size == gone.size) {
            let dir = gone.key.as_bytes().strip_suffix(key.as_bytes());
            if let Some(dir) = dir.filter(|dir| dir.ends_with(b"/"))
                && suspects.len() < SUSPECTS
            {
                suspects.entry(Key::new(dir)).or_insert_with(|| (0, key.clone())).0 += 1;
            }
        }
    })?;
    let mut suspects: Vec<_> = suspects.into_iter().collect();
    suspects.sort_by_key(|(_, (alike, _))| std::cmp::Reverse(*alike));
    for (dir, (_, key)) in suspects.into_iter().take(LOOKED_AT) {
        let name = fresh_name().below(key.parent().as_bytes());
        let dst = (&cx.dst, name.below(dir.as_bytes()));
        if shows(&dst, &(&cx.src, name)).await.map_err(Unproved::into_error)? {
            return Ok(Some(dir));
        }
    }
    Ok(None)
}

/// A unique name.
fn fresh_name() -> Key {
    Key::new(format!("{PROBE}{:016x}", random(None)))
}

/// One end, and the key of the file there.
type End<'a> = (&'a Arc<dyn Store>, Key);

enum Unproved {
    /// The file can't be put there.
    Refused(Error),
    /// The other end gives no answer.
    Unanswered(Error),
}

impl Unproved {
    fn into_error(self) -> Error {
        let (Unproved::Refused(error) | Unproved::Unanswered(error)) = self;
        error
    }
}

/// Puts the file at one end, and says whether the other shows it.
async fn shows((writer, key): &End<'_>, (other, there): &End<'_>) -> Result<bool, Unproved> {
    put(writer, key).await.map_err(|error| Unproved::Refused(error.with_key(key)))?;
    let found = other.stat(there).await;
    for gone in writer.delete(vec![(key.clone(), None)]).await {
        if let Err(error) = gone {
            tracing::warn!("{key}: it could not be deleted and stays: {error}");
        }
    }
    match found {
        Ok(_) => Ok(true),
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(Unproved::Unanswered(error.with_key(there))),
    }
}

async fn put(store: &Arc<dyn Store>, key: &Key) -> Result<()> {
    let bytes = Bytes::from_static(b"haul asks whether two remotes are one place. This can be deleted.\n");
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..WriteSpec::default() };
    pipe::write(store, key, spec, stream::iter([Ok(bytes)]).boxed()).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_mem::MemStore;
    use haul_store::ListRequest;

    fn cx(src: MemStore, dst: MemStore) -> Cx {
        Cx::between(Arc::new(src), Arc::new(dst))
    }

    #[tokio::test]
    async fn one_place_is_known_by_what_is_put_there_and_nothing_stays() {
        let (one, other) = (MemStore::new(), MemStore::new());
        let (key, moved) = (Key::new("d/f"), Key::new("e/g"));
        let at = |store: &MemStore| cx(one.clone(), store.clone());
        let error = are_two(&at(&one), &key, &key).await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Invalid, Some(&key)));
        are_two(&at(&other), &key, &key).await.unwrap();
        // The files have other names at the two ends.
        are_two(&at(&one), &key, &moved).await.unwrap();
        for store in [&one, &other] {
            let mut listed = store.list(ListRequest::all());
            while let Some(step) = listed.next().await {
                let haul_core::Listed::Batch(entries) = step else { continue };
                assert!(entries.iter().all(|entry| entry.is_dir()), "{entries:?}");
            }
        }
    }
}
