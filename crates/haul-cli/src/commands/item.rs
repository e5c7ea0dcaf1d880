//! An entry with the facts that `lsf` and `lsjson` show and listings don't all give: hashes, media type, metadata.

use super::listing::Source;
use crate::show::mime;
use futures::{StreamExt, stream::BoxStream};
use haul_core::{Algo, Entry, Error, Hashes, hash::to_hex, key};
use haul_store::Store;
use serde_json::Value;
use std::sync::Arc;

/// Facts to find out about each entry.
#[derive(Clone, Default)]
pub struct Facts {
    /// The stored time; the listing itself asks for it.
    pub mtime: bool,
    /// These hashes.
    pub hashes: Vec<Algo>,
    /// Metadata with media type and tier.
    pub meta: bool,
}

/// An entry and what was found out about it.
pub struct ListedEntry {
    /// As listed, or fresher.
    pub entry: Entry,
    /// Errors of facts that couldn't be found out.
    pub failed: Vec<Error>,
}

impl Facts {
    /// Finds out, about several at once, and keeps the order.
    pub fn of(
        &self,
        source: &Source,
        entries: BoxStream<'static, Result<Entry, Error>>,
    ) -> BoxStream<'static, Result<ListedEntry, Error>> {
        let (facts, store) = (self.clone(), source.store.clone());
        let items = entries.map(move |entry| {
            let (facts, store) = (facts.clone(), store.clone());
            async move { Ok(facts.one(&store, entry?).await) }
        });
        items.buffered(source.checkers.max(1)).boxed()
    }

    async fn one(&self, store: &Arc<dyn Store>, entry: Entry) -> ListedEntry {
        let mut item = ListedEntry { entry, failed: Vec::new() };
        if item.entry.is_dir() {
            return item;
        }
        if self.meta && store.caps().meta && item.entry.meta.is_none() {
            match store.stat(&item.entry.key).await {
                Ok(fresh) => item.entry = fresh,
                Err(error) => item.failed.push(error),
            }
        }
        for algo in &self.hashes {
            match haul::hash::of(None, store, &item.entry, *algo, false).await {
                Ok(Some(value)) => item.entry.hashes.set(*algo, value),
                Ok(None) => {}
                Err(error) => item.failed.push(error),
            }
        }
        item
    }
}

impl ListedEntry {
    /// A hash in hexadecimal, if it is known.
    pub fn hash(&self, algo: Algo) -> Option<String> {
        self.entry.hashes.hex(algo)
    }

    /// All of `algos` that are known, as JSON.
    pub fn hashes_json(&self, algos: &[Algo]) -> Value {
        let hashes: &Hashes = &self.entry.hashes;
        let mut known: Vec<(&str, String)> =
            algos.iter().filter_map(|a| Some((a.name(), to_hex(hashes.get(*a)?)))).collect();
        known.sort();
        known
            .into_iter()
            .map(|(name, hex)| (name.to_string(), Value::from(hex)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The stored media type, or the one that goes with the name.
    pub fn mime(&self) -> String {
        if self.entry.is_dir() {
            return mime::DIRECTORY.into();
        }
        self.meta("content-type").unwrap_or_else(|| mime::of_name(key::name(self.entry.key.stored())))
    }

    /// The storage class.
    pub fn tier(&self) -> Option<String> {
        self.meta("tier")
    }

    /// The metadata as a JSON text.
    pub fn metadata_json(&self) -> String {
        self.metadata().to_string()
    }

    /// The metadata as JSON, in the order of its names.
    pub fn metadata(&self) -> Value {
        let pairs = self.entry.meta.iter().flat_map(|m| m.iter());
        pairs.map(|(k, v)| (k.clone(), Value::from(v.clone()))).collect::<serde_json::Map<_, _>>().into()
    }

    fn meta(&self, name: &str) -> Option<String> {
        self.entry.meta.as_ref()?.get(name).cloned()
    }
}
