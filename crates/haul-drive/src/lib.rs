//! Google Drive (`drive`).
//!
//! Drive identifies files by id, and names need not be unique. Ids of directories are cached; a version is a file's id and
//! revision, so that exactly the listed file is read and deleted. Nothing is retried here.

mod change;
mod documents;
mod doubles;
mod drive_choice;
mod error;
mod exports;
mod facts;
mod formats;
mod gather;
mod list;
mod login;
mod options;
mod pending_folders;
mod placement;
mod read;
mod service;
mod upload;

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Algo, Entry, Key, Listed, Meta, Mtime, Result, Version};
use haul_oauth::{Api, google};
use haul_store::{
    Admin, Caps, ChangedMeaning, CopyBatch, Direction, Domain, Doubles, Lanes, ListRequest, OpenRequest, PartLimits,
    Read, Resumable, ResumedWrite, SentPart, SpaceUsage, Store, StoreKind, StoredFacts, Upload, Watch, WriteSpec,
    one_by_one, tree,
};
use options::Config;
use service::Service;
use std::{ops::Range, sync::Arc, time::Duration};

pub use login::PROVIDER;

/// The kind.
pub const KIND: StoreKind = StoreKind { name: "drive", description: "Google Drive", options: options::OPTIONS, open };

/// Requests that suit it to begin with.
const CONCURRENCY: usize = 8;
/// Files that are created at once to begin with: Google takes two or three a second, and counts what it refuses.
const CREATIONS: usize = 4;
/// Keys of one batch that are asked about or deleted at once; the lane bounds them in the end.
const AT_ONCE: usize = 32;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let config = Config::read(&request)?;
    let root = service::root(&config, &request.path)?;
    let host = config.host();
    let name = format!("drive:{host}:{}", config.who);
    // A view shows other files under the same names.
    let views = [(config.trashed_only, "trashed"), (config.shared_with_me, "shared"), (config.starred_only, "starred")];
    let view: Vec<&str> = views.iter().filter(|(on, _)| *on).map(|(_, view)| *view).collect();
    let place = Domain { name: format!("{name}:{}", view.join("+")), place: root.to_bytes().into(), on_device: None };
    let judge = if config.stop_on_upload_limit { error::judge_stop } else { error::judge };
    let api = Arc::new(Api::open(&request, &host, &name, Some(login::tokens(&config, &request)?), judge)?);
    for direction in [Direction::Up, Direction::Copy] {
        api.lanes.begin_with(direction, CREATIONS);
    }
    let hashes = vec![Algo::Md5, Algo::Sha1, Algo::Sha256];
    let caps = Caps {
        mtime: Some(Duration::from_millis(1)),
        set_mtime: true,
        set_dir_mtime: true,
        mtime_listed: true,
        changed: ChangedMeaning::Unknown,
        dirs: true,
        symlinks: false,
        keeps_empty_dirs: true,
        hashes_listed: hashes.clone(),
        hashes_stored: hashes,
        cheap_reads: false,
        written_in_place: false,
        listing_may_omit: false,
        files: false,
        parts: Some(PartLimits {
            min: google::GRANULE,
            max: 5 << 40,
            count: u64::MAX / 2,
            preferred: config.chunk_size,
            chosen: config.chunk_size_chosen,
            multiple: google::GRANULE,
            equal: false,
            waits: true,
            sized: false,
            single: config.upload_cutoff,
            single_copy: u64::MAX,
        }),
        relays: false,
        domain: Some(place),
        place: None,
        renames: true,
        // Entries that are left out would be moved too.
        renames_dirs: !(config.skip_gdocs || config.skip_shortcuts) && view.is_empty(),
        delete_batch: 1,
        copy_batch: 1,
        conditional: false,
        deletes_version: true,
        page: None,
        case_insensitive: false,
        meta: false,
        attributes: None,
        modes: false,
        concurrency: CONCURRENCY,
        gathers: 0,
        rests_on: Vec::new(),
    };
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    Ok(Arc::new(Drive(Arc::new(Service::new(config, root, caps, locator, api)))))
}

#[derive(Debug)]
struct Drive(Arc<Service>);

impl Store for Drive {
    fn locator(&self) -> &str {
        &self.0.locator
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        tree::list(Arc::new(list::Directories::new(self.0.clone(), request.recursive)), request)
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

    fn make_dir(&self, key: &Key, _: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let key = if key.is_root() { key.clone() } else { Entry::dir(key.clone()).key };
        async move { change::make_dir(&self.0, &key).await.map(|_| ()) }.boxed()
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        change::copy(&self.0, batch, watch).boxed()
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

    fn doubles(&self) -> Option<&dyn Doubles> {
        Some(self)
    }
}

impl Doubles for Drive {
    fn all_in(&self, dir: &Key) -> BoxFuture<'_, Result<Vec<Entry>>> {
        let dir = dir.clone();
        async move { doubles::all_in(&self.0, &dir).await }.boxed()
    }

    fn check_one(&self, entry: &Entry) -> BoxFuture<'_, Result<()>> {
        let entry = entry.clone();
        async move { doubles::check_one(&self.0, &entry).await }.boxed()
    }

    fn delete_one(&self, entry: &Entry) -> BoxFuture<'_, Result<()>> {
        let entry = entry.clone();
        async move { doubles::delete_one(&self.0, &entry).await }.boxed()
    }

    fn rename_one(&self, entry: &Entry, to: &Key) -> BoxFuture<'_, Result<()>> {
        let (entry, to) = (entry.clone(), to.clone());
        async move { doubles::rename_one(&self.0, &entry, &to).await }.boxed()
    }

    fn merge_dirs(&self, dirs: Vec<Entry>) -> BoxFuture<'_, Result<()>> {
        async move { doubles::merge_dirs(&self.0, &dirs).await }.boxed()
    }
}

impl Resumable for Drive {
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

impl Admin for Drive {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        async move { read::about(&self.0).await }.boxed()
    }

    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        async move { read::user(&self.0).await }.boxed()
    }

    fn empty_trash(&self, dry_run: bool) -> BoxFuture<'_, Result<Vec<Key>>> {
        async move { change::empty_trash(&self.0, dry_run).await }.boxed()
    }
}
