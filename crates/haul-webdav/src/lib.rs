//! Folders on a server that speaks WebDAV (`webdav`): Nextcloud, ownCloud, nginx, Apache, a NAS.
//!
//! A file is sent to a hidden name beside its own and moved, since servers differ in what a reader sees of a PUT that is under way or
//! was cut; a large one goes to Nextcloud in chunks, which it puts together under the hidden name. Nothing is retried here.

mod answer;
mod change;
mod chunks;
mod cleanup;
mod copy;
mod list;
mod multistatus;
mod names;
mod options;
mod proof;
mod read;
mod upload;

use chunks::Chunks;
use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, Domain, KeyLocks, Lanes, ListRequest, OpenRequest, PartLimits,
    Read, Resumable, ResumedWrite, SentPart, SpaceUsage, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload,
    Watch, WriteSpec, moves::LostMoves, one_by_one, tree, web,
};
use options::Vendor;
use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, Mutex, Once},
    time::Duration,
};

/// The kind.
pub const KIND: StoreKind = StoreKind {
    name: "webdav",
    description: "WebDAV: Nextcloud, ownCloud, nginx, Apache and others",
    options: options::OPTIONS,
    open,
};

/// Keys of one batch that are asked about or deleted at once; the lane bounds them in the end.
const AT_ONCE: usize = 32;
/// That files go as a whole is said once.
static WHOLE: Once = Once::new();

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let option = |name: &str| request.options.get(name).map(String::as_str).unwrap_or_default();
    let vendor = options::vendor(&request)?;
    let mut headers = web::headers(option("headers"))?;
    let auth = match option("bearer_token") {
        "" => web::basic(option("user").as_bytes(), option("pass").as_bytes()),
        token => http::HeaderValue::from_str(&format!("Bearer {token}")).ok().map(|mut value| {
            value.set_sensitive(true);
            value
        }),
    };
    if let Some(auth) = auth {
        headers.insert(http::header::AUTHORIZATION, auth);
    }
    let web = web::Web::open(&request, KIND.name, headers)?;
    let place = web.root.as_str().as_bytes().to_vec();
    // Where keys are other names, the server's copies would need both ends' encodings.
    let alike = web.encoding.map(|encoding| format!(" {encoding:?}")).unwrap_or_default();
    let name = format!("webdav:{}://{}:{}{alike}", web.root.scheme(), web::authority(&web.root), option("user"));
    let domain = Domain { name, place: place.into(), on_device: None };
    let size = if vendor.chunks { options::chunk_size(&request)? } else { None };
    let chunks = size.and_then(|size| Chunks::of(&web.root, size));
    if size.is_some() && chunks.is_none() {
        WHOLE.call_once(|| {
            tracing::warn!(
                "{}: Large files go as a whole and aren't resumed. For chunks, set a url like \
                 https://HOST/remote.php/dav/files/USER",
                request.remote
            );
        });
    }
    let caps = Caps {
        mtime: vendor.oc_mtime.then_some(Duration::from_secs(1)),
        set_mtime: vendor.prop_mtime,
        set_dir_mtime: vendor.dir_mtime,
        // Only a server that keeps times for us shows those of files, others those of their uploads.
        changed: if vendor.oc_mtime { ChangedMeaning::Unknown } else { ChangedMeaning::Stored },
        hashes_listed: vendor.hashes.to_vec(),
        hashes_stored: vendor.hashes.to_vec(),
        parts: Some(chunks.as_ref().map_or(PartLimits::WHOLE, Chunks::limits)),
        relays: true,
        deletes_version: true,
        domain: Some(domain),
        renames_dirs: true,
        ..web::caps()
    };
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    Ok(Arc::new(WebDav(Arc::new(Service {
        web,
        vendor,
        chunks,
        caps,
        locator,
        made: Default::default(),
        making: KeyLocks::default(),
        moves: LostMoves::default(),
    }))))
}

/// State that requests need.
#[derive(Debug)]
struct Service {
    web: web::Web,
    vendor: &'static Vendor,
    /// Where large files go in chunks.
    chunks: Option<Chunks>,
    caps: Caps,
    locator: String,
    /// Directories that are known to be there, by their keys.
    made: Mutex<BTreeSet<Key>>,
    /// Whoever makes a directory: a server may refuse the second of two that come at once as locked (SeaweedFS).
    making: KeyLocks,
    moves: LostMoves,
}

impl Service {
    /// The time that a server tells, where it is its own and not one that was given to it.
    fn changed(&self, modified: Option<Mtime>) -> Option<Mtime> {
        modified.filter(|_| self.caps.changed == ChangedMeaning::Stored)
    }
}

const ONE: &str = "a file is sent by one request";

#[derive(Debug)]
struct WebDav(Arc<Service>);

fn unsupported<T>(op: &'static str, message: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, op, message))
}

impl Store for WebDav {
    fn locator(&self) -> &str {
        &self.0.locator
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        tree::list(Arc::new(list::Collections(self.0.clone())), request)
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
        let service = self.0.clone();
        let upload = match &self.0.chunks {
            Some(chunks) => chunks::Chunked::begin(service, chunks, key, spec).map(|u| Box::new(u) as Box<dyn Upload>),
            None => upload::FileUpload::begin(service, key, spec).map(|u| Box::new(u) as Box<dyn Upload>),
        };
        async move { upload }.boxed()
    }

    fn make_dir(&self, key: &Key, _: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let key = Entry::dir(key.clone()).key;
        async move { change::make_dir(&self.0, &key).await }.boxed()
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        async move {
            let from = &batch.from;
            one_by_one::copied(
                batch.items,
                &watch,
                AT_ONCE,
                |item| async move { copy::copy(&self.0, from, &item).await },
            )
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
        Some(&self.0.web.lanes)
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        self.0.chunks.is_some().then_some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

impl Resumable for WebDav {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let Some(chunks) = &self.0.chunks else { return async { unsupported("resume", ONE) }.boxed() };
        let (key, token) = (key.clone(), token.to_vec());
        async move { chunks::resume(&self.0, chunks, &key, &token, sent, spec).await }.boxed()
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        let Some(chunks) = &self.0.chunks else { return async { unsupported("discard", ONE) }.boxed() };
        let (key, token) = (key.clone(), token.to_vec());
        async move { chunks::discard(&self.0, chunks, &key, &token).await }.boxed()
    }
}

impl Admin for WebDav {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        async move { list::about(&self.0).await }.boxed()
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        async move { cleanup::cleanup(&self.0, what).await }.boxed()
    }
}
