//! Box (`box`).
//!
//! Everything has an id, and ids of folders are kept; a version is a file's id and tag. Large files go to upload sessions, whose part size
//! the service says, in parts of any order; the SHA-1 of the whole, which the service wants at the end, is taken in order meanwhile.
//! Names that differ by case alone are one on the service: a write to one never replaces the other. Nothing is retried here.

mod change;
mod downloads;
mod error;
mod facts;
mod list;
mod options;
mod read;
mod service;
mod upload;
mod whole_hash;

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use haul_oauth::Api;
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, Domain, Lanes, ListRequest, OpenRequest, PartLimits, Read,
    Resumable, ResumedWrite, SentPart, SpaceUsage, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload, Watch,
    WriteSpec, ids::Root, one_by_one, tree, web,
};
use options::Config;
use service::Service;
use std::{ops::Range, sync::Arc, time::Duration};

pub use options::PROVIDER;

/// The kind.
pub const KIND: StoreKind = StoreKind { name: "box", description: "Box", options: options::OPTIONS, open };

/// Requests that suit it to begin with: the service takes 1000 a minute of one person.
const CONCURRENCY: usize = 8;
/// Keys of one batch that are asked about or deleted at once; the lane bounds them in the end.
const AT_ONCE: usize = 32;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let config = Config::read(&request)?;
    let root = service::root(&config, &request.path)?;
    let host = config.host();
    // One domain per account: server-side copies work anywhere within it.
    let name = format!("box:{host}:{}:{}", haul_oauth::account(&request), config.impersonate);
    let api = Api::open(&request, &host, &name, Some(config.tokens(&request)?), error::judge)?;
    let caps = Caps {
        set_mtime: true,
        changed: ChangedMeaning::Unknown,
        hashes_listed: vec![Algo::Sha1],
        hashes_stored: vec![Algo::Sha1],
        parts: Some(PartLimits {
            min: upload::PART,
            max: upload::LARGEST,
            count: u64::MAX / 2,
            preferred: upload::PART,
            chosen: true,
            multiple: 1,
            equal: false,
            waits: true,
            sized: true,
            single: config.upload_cutoff,
            single_copy: u64::MAX,
        }),
        domain: Some(Domain { name, place: root.to_bytes().into(), on_device: None }),
        conditional: true,
        deletes_version: true,
        case_insensitive: true,
        concurrency: CONCURRENCY,
        renames_dirs: true,
        ..web::caps()
    };
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    Ok(Arc::new(Cloud(Arc::new(Service::new(config, root, api, caps, locator)))))
}

#[derive(Debug)]
struct Cloud(Arc<Service>);

impl Store for Cloud {
    fn locator(&self) -> &str {
        &self.0.locator
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        tree::list(Arc::new(list::Directories(self.0.clone())), request)
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        async move { list::stat(&self.0, &key).await }.boxed()
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        async move { read::read(&self.0, &key, want.as_ref(), range).await }.boxed()
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let upload = upload::Write::begin(self.0.clone(), key, spec);
        async move { upload.map(|upload| Box::new(upload) as Box<dyn Upload>) }.boxed()
    }

    fn make_dir(&self, key: &Key, _: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let key = if key.is_root() { key.clone() } else { Entry::dir(key.clone()).key };
        async move { change::make_dir(&self.0, &key).await }.boxed()
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        async move {
            let from = &Root::parse(&batch.from);
            one_by_one::copied(batch.items, &watch, AT_ONCE, |item| async move {
                change::copy(&self.0, from.as_ref(), &item).await
            })
            .await
        }
        .boxed()
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, _: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let key = key.clone();
        async move { change::set_mtime(&self.0, &key, mtime).await }.boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        let service = &self.0;
        let delete =
            move |key, version: Option<Version>| async move { change::delete(service, &key, version.as_ref()).await };
        one_by_one::deleted(keys, AT_ONCE, delete).boxed()
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

impl Resumable for Cloud {
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

impl Admin for Cloud {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        async move { list::about(&self.0).await }.boxed()
    }

    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        async move { list::user(&self.0).await }.boxed()
    }

    fn link(&self, key: &Key, lasts: Duration) -> BoxFuture<'_, Result<String>> {
        let key = key.clone();
        async move { change::link(&self.0, &key, lasts).await }.boxed()
    }

    fn cleanup(&self, _: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        let message = "Box doesn't tell what was begun, and removes it by itself after a week";
        async move { Err(Error::new(ErrorKind::Unsupported, "clean up", message)) }.boxed()
    }
}
