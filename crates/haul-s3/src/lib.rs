//! S3 and what speaks like it: one client over HTTP/1.1, keys as raw bytes, quirks of providers as data.
//!
//! Nothing is retried here but two things that are no failures: a wrong region, which the answer corrects, and the
//! first write into a bucket that doesn't exist yet.

mod address;
mod admin;
mod body;
mod copy;
mod credentials;
mod delete;
mod error;
mod list;
mod meta;
mod options;
mod proof;
pub mod provider;
mod read;
mod resume;
mod service;
mod sign;
mod token;
mod upload;
mod versions;

use address::{Endpoint, ObjectAddress};
use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version, plan::Replace};
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, Domain, Lanes, ListRequest, OpenRequest, Part, PartLimits, Read,
    Resumable, ResumedWrite, SentPart, SpaceUsage, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload, Watch,
    WriteSpec,
};
use haul_store::{bucket::Root, pages, xml};
use options::Config;
use provider::Checksum;
use service::Service;
use std::{
    ops::Range,
    sync::{Arc, RwLock},
    time::Duration,
};
use tokio::sync::Semaphore;

/// The kind.
pub const KIND: StoreKind = StoreKind {
    name: "s3",
    description: "Amazon S3 and compatible services: AWS, Minio, Ceph, Backblaze B2, Cloudflare R2, Wasabi, GCS and others",
    options: options::OPTIONS,
    open,
};

/// Requests in flight when the user doesn't say: enough to hide 100 ms of latency on small files.
const CONCURRENCY: usize = 32;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let plain = S3::open(request)?;
    Ok(match plain.0.config.versions {
        Some(wanted) => Arc::new(versions::Versions::new(plain, wanted)),
        None => Arc::new(plain),
    })
}

/// A bucket, a prefix in one, or all buckets of an account.
#[derive(Debug)]
pub struct S3(Arc<Service>);

impl S3 {
    /// Opens a store; sends nothing.
    ///
    /// Errors: `Invalid`, naming the option that is wrong.
    pub fn open(request: OpenRequest) -> Result<S3> {
        let config = Config::read(&request)?;
        let root = Root::parse(&address::WORDS, &request.path)?;
        let endpoint = Endpoint::read(&config)?;
        let http = haul_net::Http::new(&request.net, endpoint.tls() || config.env_auth || !config.role_arn.is_empty())?;
        let source = credentials::Source::new(&config, &http);
        let region = [
            Some(config.region.clone()).filter(|r| !r.is_empty()),
            config.provider.region_of(&endpoint.authority("")),
            Some(config.provider.region.to_owned()),
        ];
        let region: Arc<str> = region.into_iter().flatten().next().unwrap_or_default().into();
        let name = format!("s3:{}:{}", endpoint.authority(&region), source.account());
        let lanes = request.net.roads.to(&name, &endpoint.authority(&region));
        // Directory buckets list in no order; listings of buckets have no pages.
        let by_directory = config.provider.lists_by_directory;
        let ordered = !by_directory && root.bucket.as_ref().is_some_and(|bucket| list::in_order(bucket));
        // Where keys are other names, the service's copies would need both ends' encodings.
        let alike = config.encoding.map(|encoding| format!(" {encoding:?}")).unwrap_or_default();
        let domain = Domain { name: format!("{name}{alike}"), place: root.to_bytes().into(), on_device: None };
        let root = root.encoded(config.encoding)?;
        let caps = caps(&config, ordered && config.encoding.is_none(), domain);
        let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
        Ok(S3(Arc::new(Service {
            config,
            root,
            endpoint,
            caps,
            locator,
            http,
            source,
            net: request.net,
            meters: request.meters,
            lanes,
            signer: sign::Signer::new("s3"),
            region: RwLock::new(region),
            keys_known: Default::default(),
            buckets_made: Default::default(),
            buckets_missed: Default::default(),
            lists_by_directory: by_directory.into(),
            asks_no_checksums: Default::default(),
            takes_no_relays: Default::default(),
            relays_tried: Default::default(),
            takes_relays: Default::default(),
            gathering: Semaphore::new(upload::GATHERED as usize),
        })))
    }

    /// Parts of an unfinished multipart upload, in order, by [`Upload::token`]. Their receipts are valid for
    /// [`Upload::publish`]. Empty when it has no parts yet.
    ///
    /// Errors: `NotFound` when the upload no longer exists.
    pub async fn parts(&self, token: &[u8]) -> Result<Vec<Part>> {
        resume::parts(&self.0, token).await
    }
}

fn caps(config: &Config, ordered: bool, domain: Domain) -> Caps {
    let mut stored = vec![Algo::Md5];
    if config.provider.checksum == Checksum::Crc64Nvme {
        stored.push(Algo::Crc64Nvme);
    }
    Caps {
        mtime: Some(Duration::from_nanos(1)),
        set_mtime: false,
        set_dir_mtime: false,
        mtime_listed: false,
        changed: ChangedMeaning::Stored,
        dirs: false,
        symlinks: false,
        keeps_empty_dirs: config.directory_markers,
        hashes_listed: if config.etag_is_md5() { vec![Algo::Md5] } else { Vec::new() },
        hashes_stored: stored,
        cheap_reads: false,
        written_in_place: false,
        listing_may_omit: false,
        files: false,
        parts: Some(PartLimits {
            min: options::MIN_PART,
            max: options::MAX_SINGLE,
            count: config.max_upload_parts,
            preferred: config.chunk_size,
            chosen: config.chunk_size_chosen,
            multiple: 1,
            equal: config.provider.equal_parts,
            waits: false,
            sized: false,
            single: config.upload_cutoff,
            single_copy: config.copy_cutoff,
        }),
        domain: Some(domain),
        place: None,
        renames: false,
        renames_dirs: false,
        delete_batch: if config.provider.batch_delete { delete::BATCH } else { 1 },
        conditional: config.provider.conditional,
        deletes_version: false,
        page: ordered.then_some(config.list_chunk),
        case_insensitive: false,
        meta: true,
        attributes: None,
        modes: false,
        concurrency: CONCURRENCY,
        copy_batch: 1,
        gathers: 0,
        rests_on: Vec::new(),
        // A signature over the body needs all of it first.
        relays: config.unsigned_payload != Some(false),
    }
}

impl Store for S3 {
    fn locator(&self) -> &str {
        &self.0.locator
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        pages::list(self.0.clone(), request)
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
        let upload = upload::S3Upload::new(self.0.clone(), key, spec);
        async move { upload.map(|u| Box::new(u) as Box<dyn Upload>) }.boxed()
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let (key, spec) = (key.clone(), spec.clone());
        async move { make_dir(&self.0, &key, &spec).await }.boxed()
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        copy::copy(&self.0, batch, watch).boxed()
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        async move { copy::touch(&self.0, &key, mtime, meta.as_ref(), None).await.map(|_| ()) }.boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        delete::delete(&self.0, keys).boxed()
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

impl Resumable for S3 {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let (key, token) = (key.clone(), token.to_vec());
        async move { resume::resume(&self.0, &key, &token, sent, spec).await }.boxed()
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        let (key, token) = (key.clone(), token.to_vec());
        async move { resume::discard(&self.0, &key, &token).await }.boxed()
    }

    fn whole_version(&self, _key: &Key, parts: &[Part]) -> Option<Version> {
        upload::whole_version(&self.0, parts)
    }
}

impl Admin for S3 {
    fn set_tier(&self, key: &Key, tier: &str) -> BoxFuture<'_, Result<()>> {
        let (key, tier) = (key.clone(), tier.to_owned());
        async move { admin::set_tier(&self.0, &key, &tier).await }.boxed()
    }

    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        let message = "S3 has no quota to report: add sizes up with `haul size`";
        async move { Err(Error::new(ErrorKind::Unsupported, "about", message)) }.boxed()
    }

    fn link(&self, key: &Key, lasts: Duration) -> BoxFuture<'_, Result<String>> {
        let key = key.clone();
        async move { admin::link(&self.0, &key, lasts).await }.boxed()
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        async move { admin::cleanup(&self.0, what).await }.boxed()
    }
}

async fn make_dir(service: &Service, key: &Key, spec: &WriteSpec) -> Result<()> {
    let dir = Entry::dir(key.clone()).key;
    if key.is_root() && service.root.bucket.is_none() {
        return Ok(());
    }
    let place = service.place(&dir)?;
    if key.is_root() || place.object.is_empty() {
        if !service.config.no_check_bucket {
            let made = service.create_bucket(&place.bucket).await;
            made.map_err(|f| f.error("mkdir"))?;
        }
        if place.object.is_empty() {
            return Ok(());
        }
    }
    if !service.config.directory_markers {
        return Ok(());
    }
    put_markers(service, &dir, spec).await
}

/// Markers for a directory and all those above it: each is one PUT. Those that are there already stay as they are, but for the
/// attributes of the directory itself.
async fn put_markers(service: &Service, dir: &Key, spec: &WriteSpec) -> Result<()> {
    let mut dirs = vec![dir.clone()];
    while let Some(last) = dirs.last().filter(|d| !d.is_root()) {
        let above = last.parent();
        dirs.push(above);
    }
    for dir in dirs.iter().rev() {
        let place = service.place(dir)?;
        if place.object.is_empty() {
            continue;
        }
        let own = if dir == dirs.first().unwrap_or(dir) { spec.clone() } else { WriteSpec::default() };
        let has_attributes = own.mtime.is_some() || own.meta.is_some();
        let spec = WriteSpec { replace: Replace::Absent, hashes: Default::default(), ..own };
        match upload::put(service, dir, &place, &spec, haul_store::Payload::default()).await {
            Err(error) if error.kind() == ErrorKind::Exists && has_attributes => {
                replace_marker(service, dir, &place, spec).await?;
            }
            Err(error) if error.kind() == ErrorKind::Exists => {}
            put => drop(put?),
        }
    }
    Ok(())
}

/// Errors: `Exists` where the object has content, which no marker has.
async fn replace_marker(service: &Service, dir: &Key, place: &ObjectAddress, spec: WriteSpec) -> Result<()> {
    let headers = read::head(service, dir, place, None).await?;
    if read::size(&headers, dir)? > 0 {
        let message = "an object with content has the directory's name";
        return Err(Error::new(ErrorKind::Exists, "mkdir", message).with_key(dir));
    }
    let version = meta::etag(&headers).map(meta::version);
    let spec = WriteSpec { replace: version.map_or(Replace::Absent, Replace::Exactly), ..spec };
    upload::put(service, dir, place, &spec, haul_store::Payload::default()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request to open a store at `path`, with an endpoint unless the options name a provider.
    pub fn request(path: &str, options: Vec<(String, String)>) -> OpenRequest {
        let mut options: std::collections::BTreeMap<_, _> = options.into_iter().collect();
        if !options.contains_key("provider") {
            options.entry("endpoint".into()).or_insert("http://127.0.0.1:1".into());
        }
        OpenRequest { remote: "r".into(), path: path.into(), options, ..OpenRequest::default() }
    }
}
