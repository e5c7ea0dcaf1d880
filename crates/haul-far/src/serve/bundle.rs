//! Many small files with one request. CRCs are those of what arrived, and of what leaves.

use super::{
    OpenFolder,
    keys::{far, near_entry},
};
use crate::{crc64_of, message::WholeFile, read::other_bytes};
use bytes::Bytes;
use haul_core::{Algo, Error, ErrorKind, Key, Result, Version};
use haul_store::{SmallFile, StoredFacts, WriteSpec, none_offered};

/// Writes files; with the CRC-64/NVME of each as it arrived. Errors name keys of the store.
pub async fn put(folder: &OpenFolder, files: Vec<SmallFile>) -> Vec<Result<(StoredFacts, u64)>> {
    let Some(bundles) = folder.store.bundles() else { return none_offered(files.len(), "write") };
    let crcs: Vec<Result<u64>> = files.iter().map(|file| arrived(&file.spec, crc64_of(&file.bytes))).collect();
    let here = |file: SmallFile| SmallFile { key: far(folder, &file.key), ..file };
    let whole = files.into_iter().zip(&crcs).filter(|(_, crc)| crc.is_ok()).map(|(file, _)| here(file));
    let mut stored = bundles.put(whole.collect()).await.into_iter();
    crcs.into_iter().map(|crc| crc.and_then(|crc| Ok((stored.next().unwrap_or_else(no_answer)?, crc)))).collect()
}

/// The checksum of what arrived, unless the near end says that it sent something else: that must not be published.
///
/// Errors: `Corrupt`.
pub fn arrived(spec: &WriteSpec, crc64: u64) -> Result<u64> {
    match spec.hashes.get(Algo::Crc64Nvme) {
        Some(sent) if *sent != crc64.to_be_bytes() => Err(other_bytes("write")),
        _ => Ok(crc64),
    }
}

fn no_answer<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Io, "write", "the store gave no answer"))
}

/// Reads files. Errors name keys of the store.
pub async fn get(folder: &OpenFolder, wanted: Vec<(Key, Option<Version>)>) -> Vec<Result<WholeFile>> {
    let Some(bundles) = folder.store.bundles() else { return none_offered(wanted.len(), "read") };
    let here = |(key, version): (Key, _)| (far(folder, &key), version);
    let files = bundles.fetch(wanted.into_iter().map(here).collect()).await;
    let whole_file =
        |(entry, bytes): (_, Bytes)| WholeFile { entry: near_entry(folder, entry), crc64: crc64_of(&bytes), bytes };
    files.into_iter().map(|file| file.map(whole_file)).collect()
}
