//! Snapshots of a remote: which there are, and reading one. Everything read is verified by its hash.

use crate::{
    list::Reader,
    marks::{self, MarkContents},
    name::{self, Version},
    record::Record,
    small_files,
    tree::Tree,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use haul_cas::remote::all_of;
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::{ListRequest, Store, WriteSpec};
use std::{collections::BTreeMap, sync::Arc};

/// Records of removed versions until their content is freed: which lists were theirs.
pub(crate) const REMOVED: &str = "snapshots.removed/";
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

/// As [`versions`], for who only reads or removes them.
///
/// Errors: also `DirNotFound`, where there is none because the place doesn't exist.
pub async fn existing(store: &Arc<dyn Store>, name: Option<&str>) -> Result<BTreeMap<String, Vec<Version>>> {
    let found = versions(store, name).await?;
    if found.is_empty() {
        store.stat(&Key::new("")).await?;
    }
    Ok(found)
}

/// The version that is meant by `NAME` or `NAME@VERSION`, and its record.
///
/// Errors: `NotFound` when there is none; `Invalid` when it could be several; a record that isn't right.
pub async fn find(store: &Arc<dyn Store>, name: &str, typed: Option<&str>) -> Result<(Version, Record)> {
    let all = existing(store, Some(name)).await?.remove(name).unwrap_or_default();
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
    let bytes = small_files::small(store, &key, LARGEST_RECORD).await?;
    let wrong = |why: String| Error::new(ErrorKind::Corrupt, "read", why).with_key(&key);
    Record::parse(name, version, &bytes).map_err(wrong)
}

/// The records of versions, in their order.
pub async fn records(store: &Arc<dyn Store>, name: &str, versions: &[Version]) -> Vec<Result<Record>> {
    stream::iter(versions).map(|version| record(store, name, version)).buffered(AT_ONCE).collect().await
}

/// The list of a version's folder.
///
/// Errors: it isn't on the remote, or something else is in its place.
pub async fn tree(store: &Arc<dyn Store>, record: &Record) -> Result<Tree> {
    let key = record.tree_address().key();
    let wrong = |why: String| Error::new(ErrorKind::Corrupt, "read", why).with_key(&key);
    let mut reader = Reader::default();
    small_files::read(store, &key, record.tree_size, |piece| reader.take(piece)).await?;
    let (md5, tree) = reader.end();
    if md5 != record.tree {
        return Err(wrong("the list of the directory doesn't match its name".into()));
    }
    let tree = tree.map_err(wrong)?;
    match tree.totals() == record.totals {
        true => Ok(tree),
        false => Err(wrong("the list of the directory isn't the one of this record".into())),
    }
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

/// Removes the record of a version, and no content, which may be another version's too. Which list of files it had is remembered, so that gc
/// knows it from DVC's own.
///
/// Errors: it can't be removed.
pub async fn remove(store: &Arc<dyn Store>, name: &str, version: &Version) -> Result<()> {
    if let Ok(record) = record(store, name, version).await {
        let contents = MarkContents { dirs: vec![record.dir_address().text()], ..MarkContents::default() };
        remember(store, &format!("{name}/{version}"), contents).await?;
    }
    marks::remove(store, vec![name::key(name, version)]).await
}

/// Remembers lists that snapshots made.
///
/// Errors: they can't be written down.
pub(crate) async fn remember(store: &Arc<dyn Store>, name: &str, contents: MarkContents) -> Result<()> {
    if contents.dirs.is_empty() {
        return Ok(());
    }
    let line = serde_json::to_vec(&contents).map_err(|e| Error::new(ErrorKind::Invalid, "mark", e.to_string()))?;
    marks::write(store, &Key::new(format!("{REMOVED}{name}")), line).await
}
