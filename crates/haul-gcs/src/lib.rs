//! Google Cloud Storage (`gcs`), by its own JSON API.
//!
//! A version of an object is its generation, so that reads, copies and deletes address exactly the listed one. A small file is one
//! request; a larger one is sent in concurrent parts or, where those aren't available, in order by a session. Both resume after an
//! interruption. Nothing is retried here.

mod change;
mod conditions;
mod error;
mod list;
mod meta;
mod options;
mod parts;
mod read;
mod service;
mod upload;

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Algo, Entry, Key, Listed, Meta, Mtime, Result, Version};
use haul_oauth::{Api, google};
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, Domain, Lanes, ListRequest, OpenRequest, PartLimits, Read,
    Resumable, ResumedWrite, SentPart, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload, Watch, WriteSpec,
    bucket::Root,
};
use options::Config;
use service::Service;
use std::{ops::Range, sync::Arc, time::Duration};

pub use options::PROVIDER;

/// The kind.
pub const KIND: StoreKind =
    StoreKind { name: "gcs", description: "Google Cloud Storage", options: options::OPTIONS, open };

/// Requests that suit it to begin with.
const CONCURRENCY: usize = 32;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let config = Config::read(&request)?;
    let root = Root::parse(&service::WORDS, &request.path)?;
    let host = config.host();
    let name = format!("gcs:{host}:{}", config.who);
    // Where keys are other names, Google's copies would need both ends' encodings.
    let alike = config.encoding.map(|encoding| format!(" {encoding:?}")).unwrap_or_default();
    let domain = Domain { name: format!("{name}{alike}"), place: root.to_bytes().into(), on_device: None };
    let root = root.encoded(config.encoding)?;
    let api = Arc::new(Api::open(&request, &host, &name, config.tokens(&request)?, error::judge)?);
    // Parts that are smaller than those that go at once go in order.
    let at_once = config.chunk_size >= parts::LEAST;
    let caps = Caps {
        mtime: Some(Duration::from_nanos(1)),
        set_mtime: true,
        set_dir_mtime: false,
        mtime_listed: true,
        changed: ChangedMeaning::Stored,
        dirs: false,
        symlinks: false,
        keeps_empty_dirs: config.directory_markers,
        hashes_listed: vec![Algo::Md5, Algo::Crc32c],
        hashes_stored: vec![Algo::Md5, Algo::Crc32c],
        cheap_reads: false,
        written_in_place: false,
        listing_may_omit: false,
        files: false,
        parts: Some(PartLimits {
            min: if at_once { parts::LEAST } else { google::GRANULE },
            max: if at_once { parts::MOST } else { 5 << 40 },
            count: if at_once { parts::COUNT } else { u64::MAX / 2 },
            preferred: config.chunk_size,
            chosen: config.chunk_size_chosen,
            multiple: google::GRANULE,
            equal: false,
            // Those of a write under a condition do.
            waits: true,
            sized: false,
            single: config.chunk_size,
            single_copy: u64::MAX,
        }),
        relays: false,
        domain: Some(domain),
        place: None,
        renames: false,
        renames_dirs: false,
        delete_batch: change::BATCH,
        copy_batch: 1,
        conditional: true,
        deletes_version: true,
        // Directory by directory, keys aren't a row of pages.
        page: config.encoding.is_none().then_some(list::PAGE - list::BESIDE),
        case_insensitive: false,
        meta: true,
        attributes: None,
        modes: false,
        concurrency: CONCURRENCY,
        gathers: 0,
        rests_on: Vec::new(),
    };
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    Ok(Arc::new(Gcs(Arc::new(Service { config, root, caps, locator, api, made: Default::default() }))))
}

#[derive(Debug)]
struct Gcs(Arc<Service>);

impl Store for Gcs {
    fn locator(&self) -> &str {
        &self.0.locator
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        haul_store::pages::list(self.0.clone(), request)
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        async move { read::stat(&self.0, &key).await }.boxed()
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        async move { read::read(&self.0, &key, want.as_ref(), range).await }.boxed()
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let upload = upload::Write::begin(self.0.clone(), key, spec);
        async move { upload.map(|upload| Box::new(upload) as Box<dyn Upload>) }.boxed()
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let (key, mtime) = (key.clone(), spec.mtime);
        async move { change::make_dir(&self.0, &key, mtime).await }.boxed()
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        change::copy(&self.0, batch, watch).boxed()
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        async move { change::set_meta(&self.0, &key, mtime, meta.as_ref()).await }.boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        change::delete(&self.0, keys).boxed()
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        Some(&self.0.api.lanes)
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

impl Resumable for Gcs {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let (key, token) = (key.clone(), token.to_vec());
        async move { upload::resume(&self.0, &key, &token, sent, spec).await }.boxed()
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        let (key, token) = (key.clone(), token.to_vec());
        async move { upload::discard(&self.0, &key, &token).await }.boxed()
    }
}

impl Admin for Gcs {
    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        async move { change::cleanup(&self.0, &what).await }.boxed()
    }
}
