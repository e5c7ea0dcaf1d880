//! OneDrive, OneDrive for Business and SharePoint's document libraries (`onedrive`), by Microsoft Graph.
//!
//! Files are addressed by path where a name is all that is known, and by id where they were listed. Names that differ by case alone
//! are one on the service: a write to one never replaces the other. Nothing is retried here.

mod change;
mod conditions;
mod delta;
mod downloads;
mod drive_choice;
mod error;
mod list;
mod login;
mod options;
mod read;
mod service;
mod upload;
mod version;

pub use login::PROVIDER;

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use haul_oauth::{Api, Login};
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, Domain, Lanes, ListRequest, OpenRequest, PartLimits, Read,
    Resumable, ResumedWrite, SentPart, SpaceUsage, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload, Watch,
    WriteSpec, ids::Root, one_by_one, tree, web,
};
use service::Service;
use std::{ops::Range, sync::Arc, time::Duration};

/// The kind.
pub const KIND: StoreKind = StoreKind {
    name: "onedrive",
    description: "OneDrive and SharePoint by Microsoft Graph",
    options: options::OPTIONS,
    open,
};

/// Keys of one batch that are asked about or deleted at once; the lane bounds them in the end.
const AT_ONCE: usize = 32;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let config = options::Config::read(&request)?;
    let login = Login::open(&PROVIDER, &request)?;
    let bad = |_| Error::new(ErrorKind::Invalid, "open", format!("tenant_url: {:?} is no address", config.endpoint));
    let address = url::Url::parse(&config.endpoint).map_err(bad)?;
    let host = web::authority(&address);
    let client = request.options.get("client_id").map(String::as_str).unwrap_or_default();
    let account = format!("onedrive:{}:{client}", config.drive);
    let api = Api::open(&request, &host, &account, Some(login), error::judge)?;
    let root = service::root(&config, &request.path)?;
    // Under this name each account has its own drive.
    let whose = if config.drive == options::MINE { haul_oauth::account(&request) } else { String::new() };
    let domain = Domain {
        name: format!("onedrive:{}/{}:{client}:{whose}", config.endpoint, config.drive),
        place: root.to_bytes().into(),
        on_device: None,
    };
    let hashes: Vec<_> = config.hash.into_iter().collect();
    let caps = Caps {
        set_mtime: true,
        set_dir_mtime: true,
        changed: ChangedMeaning::Unknown,
        hashes_listed: hashes.clone(),
        hashes_stored: hashes,
        parts: Some(PartLimits {
            min: options::GRANULE,
            max: options::LARGEST,
            count: u64::MAX / 2,
            preferred: config.chunk_size,
            chosen: config.chunk_size_chosen,
            multiple: options::GRANULE,
            equal: false,
            waits: true,
            sized: true,
            single: config.single,
            single_copy: u64::MAX,
        }),
        domain: Some(domain),
        deletes_version: true,
        case_insensitive: true,
        concurrency: 8,
        renames_dirs: true,
        ..web::caps()
    };
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    Ok(Arc::new(OneDrive(Arc::new(Service::new(config, root, api, caps, locator)))))
}

#[derive(Debug)]
struct OneDrive(Arc<Service>);

impl Store for OneDrive {
    fn locator(&self) -> &str {
        &self.0.locator
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        let all = request.recursive && request.prefix.is_empty() && request.limit.is_none();
        let folders: Arc<dyn tree::Folders> = match all && self.0.config.delta && service::is_drive(&self.0.root) {
            true => Arc::new(delta::WholeDrive::new(self.0.clone())),
            false => Arc::new(list::Children(self.0.clone())),
        };
        tree::list(folders, request)
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
        let key = Entry::dir(key.clone()).key;
        async move { self.0.make_dir(&key, "mkdir").await.map(|_| ()) }.boxed()
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

impl Resumable for OneDrive {
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

impl Admin for OneDrive {
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
        let message = "the service doesn't tell what was begun, and removes it after some days";
        async move { Err(Error::new(ErrorKind::Unsupported, "clean up", message)) }.boxed()
    }
}
