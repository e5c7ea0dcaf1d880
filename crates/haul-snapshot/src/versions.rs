//! What a remote has of snapshots: which there are, and reading one. Nothing is believed that its hash doesn't bear out.

use crate::{
    list::Reader,
    name::{self, Version},
    record::Record,
    tree::Tree,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use haul_core::{Entry, Error, ErrorKind, Key, Result};
use haul_dvc::remote::all_of;
use haul_store::{ListRequest, Store, WriteSpec};
use std::{collections::BTreeMap, sync::Arc};

/// A record is a line; something larger under such a name isn't one.
const LARGEST_RECORD: u64 = 64 << 10;
/// Records read at once.
const AT_ONCE: usize = 16;

/// All versions of one snapshot, or of all, oldest first.
///
/// Errors: the remote can't be listed to the end.
pub async fn versions(store: &Arc<dyn Store>, name: Option<&str>) -> Result<BTreeMap<String, Vec<Version>>> {
    let prefix = name.map_or(name::RECORDS.to_string(), name::prefix);
    let request = ListRequest { prefix: prefix.into_bytes(), ..ListRequest::all() };
    let mut found: BTreeMap<String, Vec<Version>> = BTreeMap::new();
    for entry in all_of(store, request).await?.into_iter().filter(|entry| !entry.is_dir()) {
        if let Some((name, version)) = name::of_key(entry.key.as_bytes()) {
            found.entry(name).or_default().push(version);
        }
    }
    found.values_mut().for_each(|all| all.sort_unstable());
    Ok(found)
}

/// The version that is meant by `NAME` or `NAME@VERSION`, and its record.
///
/// Errors: `NotFound` when there is none; `Invalid` when it could be several; a record that isn't right.
pub async fn find(store: &Arc<dyn Store>, name: &str, typed: Option<&str>) -> Result<(Version, Record)> {
    let all = versions(store, Some(name)).await?.remove(name).unwrap_or_default();
    let version = name::choose(name, &all, typed).map_err(|why| {
        let kind = if why.contains("could be") { ErrorKind::Invalid } else { ErrorKind::NotFound };
        Error::new(kind, "find", why)
    })?;
    Ok((version.clone(), record(store, name, version).await?))
}

/// The record of a version.
///
/// Errors: it can't be read, or isn't right.
pub async fn record(store: &Arc<dyn Store>, name: &str, version: &Version) -> Result<Record> {
    let key = name::key(name, version);
    let mut bytes = Vec::new();
    read(store, &key, LARGEST_RECORD, |piece| bytes.extend_from_slice(piece)).await?;
    let wrong = |why: String| Error::new(ErrorKind::Corrupt, "read", why).with_key(&key);
    Record::parse(name, version, &bytes).map_err(wrong)
}

/// The records of versions, in their order.
pub async fn records(store: &Arc<dyn Store>, name: &str, versions: &[Version]) -> Vec<Result<Record>> {
    stream::iter(versions).map(|version| record(store, name, version)).buffered(AT_ONCE).collect().await
}

/// The list of a version's folder.
///
/// Errors: the remote lacks it, or has something else in its place.
pub async fn tree(store: &Arc<dyn Store>, record: &Record) -> Result<Tree> {
    let key = record.tree_address().key();
    let wrong = |why: String| Error::new(ErrorKind::Corrupt, "read", why).with_key(&key);
    let mut reader = Reader::default();
    read(store, &key, record.tree_size, |piece| reader.take(piece)).await?;
    let (md5, tree) = reader.end();
    if md5 != record.tree {
        return Err(wrong("the list of the folder doesn't match its name".into()));
    }
    let tree = tree.map_err(wrong)?;
    match tree.totals() == record.totals {
        true => Ok(tree),
        false => Err(wrong("the list of the folder isn't the one of this record".into())),
    }
}

/// Gives all of a key to `take`, if that isn't more than `most` bytes.
async fn read(store: &Arc<dyn Store>, key: &Key, most: u64, mut take: impl FnMut(&[u8])) -> Result<()> {
    let mut pieces = haul::pipe::read(store, &Entry::file(key.clone(), 0), None).await.map_err(|e| e.with_key(key))?;
    let mut got = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|e| e.with_key(key))?;
        got += piece.len() as u64;
        if got > most {
            return Err(Error::new(ErrorKind::Corrupt, "read", "it is larger than it can be").with_key(key));
        }
        take(&piece);
    }
    Ok(())
}

/// Writes the record that makes a version exist; `fsync` has it on the device, where what it refers to is by then. What is there
/// already under its key, which holds its hash, are these bytes or damaged ones: so it may be written, and tried again, without
/// a condition.
///
/// Errors: it can't be written.
pub async fn make(store: &Arc<dyn Store>, record: &Record, fsync: bool) -> Result<Version> {
    let (bytes, version) = record.write().map_err(|why| Error::new(ErrorKind::Invalid, "push", why))?;
    let key = record.key(&version);
    let spec = WriteSpec { size: Some(bytes.len() as u64), fsync, ..WriteSpec::default() };
    let pieces = stream::iter([Ok(Bytes::from(bytes))]).boxed();
    haul::pipe::write(store, &key, spec, pieces).await.map_err(|error| error.with_key(&key))?;
    Ok(version)
}

/// Removes the record of a version, and nothing else: its content may be another version's too.
///
/// Errors: it can't be removed.
pub async fn remove(store: &Arc<dyn Store>, name: &str, version: &Version) -> Result<()> {
    let key = name::key(name, version);
    let mut answers = store.delete(vec![(key.clone(), None)]).await;
    answers.pop().unwrap_or(Ok(())).map_err(|e| e.with_key(&key))
}
