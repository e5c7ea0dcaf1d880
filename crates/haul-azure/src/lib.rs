//! Azure Blob Storage (`azureblob`), and Azurite.
//!
//! A file is a block blob. A small one is one request; a larger one is sent in blocks, which stay invisible until their list is committed.
//! Nothing is retried here.

mod certificate;
mod change;
mod copy;
mod error;
mod list;
mod meta;
mod options;
mod read;
mod service;
mod sign;
mod token;
mod upload;

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, Domain, Lanes, ListRequest, OpenRequest, PartLimits, Read,
    Resumable, ResumedWrite, SentPart, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload, Watch, WriteSpec,
    bucket::Root, web,
};
use options::Config;
use service::Service;
use std::{ops::Range, sync::Arc, time::Duration};

/// The kind.
pub const KIND: StoreKind =
    StoreKind { name: "azureblob", description: "Microsoft Azure Blob Storage", options: options::OPTIONS, open };

/// Requests that suit it to begin with.
const CONCURRENCY: usize = 32;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let config = Config::read(&request)?;
    let root = Root::parse(&service::WORDS, &request.path)?;
    let http = haul_net::Http::new(
        &request.net,
        config.endpoint.scheme() == "https" || matches!(config.auth, options::Auth::Token(_)),
    )?;
    let host = web::authority(&config.endpoint);
    let name = format!("azureblob:{host}:{}", config.account);
    let lanes = request.net.roads.to(&name, &host);
    // Where keys are other names, Azure's copies would need both ends' encodings.
    let alike = config.encoding.map(|encoding| format!(" {encoding:?}")).unwrap_or_default();
    let domain = Domain { name: format!("{name}{alike}"), place: root.to_bytes().into(), on_device: None };
    let root = root.encoded(config.encoding)?;
    let caps = Caps {
        mtime: Some(Duration::from_nanos(1)),
        set_mtime: true,
        set_dir_mtime: false,
        mtime_listed: true,
        changed: ChangedMeaning::Stored,
        dirs: false,
        symlinks: false,
        keeps_empty_dirs: false,
        hashes_listed: vec![Algo::Md5],
        hashes_stored: vec![Algo::Md5],
        cheap_reads: false,
        written_in_place: false,
        listing_may_omit: false,
        files: false,
        parts: Some(PartLimits {
            min: 1,
            max: options::LARGEST,
            count: options::BLOCKS,
            preferred: config.chunk_size,
            chosen: config.chunk_size_chosen,
            multiple: 1,
            equal: false,
            waits: false,
            sized: false,
            single: config.chunk_size,
            single_copy: u64::MAX,
        }),
        // The MD5 is sent before the body.
        relays: false,
        domain: Some(domain),
        place: None,
        renames: false,
        renames_dirs: false,
        delete_batch: change::BATCH,
        copy_batch: 1,
        conditional: true,
        deletes_version: true,
        // Azurite can't begin a listing at a name, and directory by directory keys aren't a row of pages.
        page: (!config.emulator && config.encoding.is_none())
            .then_some(config.list_chunk.saturating_sub(list::BESIDE).max(1)),
        case_insensitive: false,
        meta: true,
        attributes: None,
        modes: false,
        concurrency: CONCURRENCY,
        gathers: 0,
        rests_on: Vec::new(),
    };
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    let token = match &config.auth {
        options::Auth::Token(identity) => Some(token::Source::new(identity.clone())),
        _ => None,
    };
    let (net, meters, made) = (request.net, request.meters, Default::default());
    let (crc64, whole_listings, namespace, whole_copies) = Default::default();
    Ok(Arc::new(Azure(Arc::new(Service {
        config,
        root,
        caps,
        locator,
        http,
        token,
        net,
        meters,
        lanes,
        crc64,
        whole_listings,
        namespace,
        whole_copies,
        made,
    }))))
}

#[derive(Debug)]
struct Azure(Arc<Service>);

impl Store for Azure {
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
        let upload = upload::Blocks::begin(self.0.clone(), key, spec);
        async move { upload.map(|upload| Box::new(upload) as Box<dyn Upload>) }.boxed()
    }

    fn make_dir(&self, key: &Key, _: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let key = key.clone();
        async move { change::make_dir(&self.0, &key).await }.boxed()
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        copy::copy(&self.0, batch, watch).boxed()
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        async move { change::set_meta(&self.0, &key, mtime, meta.as_ref()).await }.boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        change::delete(&self.0, keys).boxed()
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        Some(&self.0.lanes)
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

impl Resumable for Azure {
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
        let answer = upload::discard(&self.0, key, token);
        async move { answer }.boxed()
    }
}

impl Admin for Azure {
    fn set_tier(&self, key: &Key, tier: &str) -> BoxFuture<'_, Result<()>> {
        let (key, tier) = (key.clone(), tier.to_owned());
        async move { change::set_tier(&self.0, &key, &tier).await }.boxed()
    }

    fn cleanup(&self, _: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        let message = "Azure removes blocks that were never put together by itself, after a week";
        async move { Err(Error::new(ErrorKind::Unsupported, "clean up", message)) }.boxed()
    }
}
