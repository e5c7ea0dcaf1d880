//! Many small files with one request. CRCs are those of what arrived, and of what leaves.

use super::{
    Opened,
    keys::{far, near_entry},
};
use crate::{crc64_of, message::Whole};
use bytes::Bytes;
use haul_core::{Key, Result, Version};
use haul_store::{Small, Stored, none_offered};

/// Writes files; with the CRC-64/NVME of each as it arrived. Errors name keys of the store.
pub async fn put(folder: &Opened, files: Vec<Small>) -> Vec<Result<(Stored, u64)>> {
    let Some(bundles) = folder.store.bundles() else { return none_offered(files.len(), "write") };
    let crcs: Vec<u64> = files.iter().map(|file| crc64_of(&file.bytes)).collect();
    let here = |file: Small| Small { key: far(folder, &file.key), ..file };
    let stored = bundles.put(files.into_iter().map(here).collect()).await;
    stored.into_iter().zip(crcs).map(|(stored, crc)| Ok((stored?, crc))).collect()
}

/// Reads files. Errors name keys of the store.
pub async fn get(folder: &Opened, wanted: Vec<(Key, Option<Version>)>) -> Vec<Result<Whole>> {
    let Some(bundles) = folder.store.bundles() else { return none_offered(wanted.len(), "read") };
    let here = |(key, version): (Key, _)| (far(folder, &key), version);
    let files = bundles.fetch(wanted.into_iter().map(here).collect()).await;
    let told = |(entry, bytes): (_, Bytes)| Whole { entry: near_entry(folder, entry), crc64: crc64_of(&bytes), bytes };
    files.into_iter().map(|file| file.map(told)).collect()
}
