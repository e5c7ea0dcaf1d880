//! Dropbox (`dropbox`).
//!
//! A version of a file is its `rev`. A tree is listed by one question; files are sent to sessions, small ones by one request for dozens,
//! and published many at once, since the service commits for one request of an account at a time.

mod change;
mod error;
mod gather;
mod list;
mod listed_folders;
mod options;
mod read;
mod root;
mod service;
mod session;
mod upload;
mod verified_folders;

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use haul_oauth::{Api, Login};
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, Domain, Lanes, ListRequest, OpenRequest, PartLimits, Read,
    Resumable, ResumedWrite, SentPart, SpaceUsage, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload, Watch,
    WriteSpec, one_by_one,
};
use options::Config;
use service::Service;
use std::{ops::Range, sync::Arc, time::Duration};
use tokio::sync::Semaphore;

pub use options::PROVIDER;

/// The kind.
pub const KIND: StoreKind = StoreKind { name: "dropbox", description: "Dropbox", options: options::OPTIONS, open };

/// Requests that suit it to begin with.
const CONCURRENCY: usize = 16;

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let config = Config::read(&request)?;
    let typed = service::root(&config, &request.path)?;
    // As rclone has it: what begins with a slash is in the team's space.
    let of_team = request.path.starts_with(b"/") && config.root_namespace.is_empty() && !config.shared_folders;
    let host = config.host();
    // One domain per account and namespace: server-side copies work anywhere within it.
    let namespace = if of_team { "/" } else { &*config.root_namespace };
    let name = format!("dropbox:{host}:{}:{}:{namespace}", haul_oauth::account(&request), config.impersonate);
    let api = Api::open(&request, &host, &name, Some(Login::open(&PROVIDER, &request)?), error::judge)?;
    let part = config.chunk_size.unwrap_or(options::BLOCK);
    let at = Domain { name, place: typed.as_bytes().into(), on_device: None };
    let caps = Caps {
        mtime: Some(Duration::from_secs(1)),
        set_mtime: false,
        set_dir_mtime: false,
        mtime_listed: true,
        changed: ChangedMeaning::Stored,
        dirs: true,
        symlinks: false,
        keeps_empty_dirs: true,
        hashes_listed: vec![Algo::Dropbox],
        hashes_stored: vec![Algo::Dropbox],
        cheap_reads: false,
        written_in_place: false,
        listing_may_omit: false,
        files: false,
        parts: Some(PartLimits {
            min: options::BLOCK,
            max: 144 << 20,
            count: u64::MAX / 2,
            preferred: part,
            chosen: config.chunk_size.is_some(),
            multiple: options::BLOCK,
            equal: false,
            waits: false,
            sized: false,
            single: part,
            single_copy: u64::MAX,
        }),
        relays: false,
        // Where a shared folder is shows only when it is asked for.
        domain: Some(at.clone()).filter(|_| !config.shared_folders),
        place: Some(at).filter(|_| config.shared_folders),
        renames: true,
        renames_dirs: true,
        delete_batch: 1000,
        copy_batch: 1,
        conditional: true,
        deletes_version: true,
        page: None,
        case_insensitive: true,
        meta: false,
        attributes: None,
        modes: false,
        concurrency: CONCURRENCY,
        // While as many are published the next ones are sent.
        gathers: 2000,
        rests_on: Vec::new(),
    };
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    let (place, gather, folders, seen, files, claimed, moves) = Default::default();
    let turns = Semaphore::new(service::TURNS);
    let service = Service {
        config,
        typed,
        of_team,
        place,
        caps,
        locator,
        api,
        gather,
        turns,
        folders,
        seen,
        files,
        claimed,
        moves,
    };
    Ok(Arc::new(Dropbox(Arc::new(service))))
}

#[derive(Debug)]
struct Dropbox(Arc<Service>);

impl Store for Dropbox {
    fn locator(&self) -> &str {
        &self.0.locator
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        list::list(self.0.clone(), request)
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        async move { read::stat(&self.0, &key).await }.boxed()
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let (key, want) = (key.clone(), want.cloned());
        async move {
            self.0.ready("read").await?;
            read::read(&self.0, &key, want.as_ref(), range).await
        }
        .boxed()
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let key = key.clone();
        async move {
            self.0.ready("write").await?;
            let upload = upload::Write::begin(self.0.clone(), &key, spec).await?;
            Ok(Box::new(upload) as Box<dyn Upload>)
        }
        .boxed()
    }

    fn make_dir(&self, key: &Key, _: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let key = Entry::dir(key.clone()).key;
        async move {
            self.0.ready("mkdir").await?;
            change::make_dir(&self.0, &key).await
        }
        .boxed()
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        async move {
            match self.0.ready("copy").await {
                Ok(()) => change::copy(&self.0, batch, watch).await,
                Err(error) => one_by_one::failed(batch.items.len(), &error),
            }
        }
        .boxed()
    }

    fn set_meta(&self, key: &Key, _: Option<Mtime>, _: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let message = "Dropbox takes a time with the content only";
        let error = Error::new(ErrorKind::Unsupported, "set", message).with_key(key);
        async { Err(error) }.boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        async move {
            match self.0.ready("delete").await {
                Ok(()) => change::delete(&self.0, keys).await,
                Err(error) => one_by_one::failed(keys.len(), &error),
            }
        }
        .boxed()
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

impl Resumable for Dropbox {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let (key, token) = (key.clone(), token.to_vec());
        async move {
            self.0.ready("resume").await?;
            upload::resume(&self.0, &key, &token, sent, spec).await
        }
        .boxed()
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        let (key, token) = (key.clone(), token.to_vec());
        async move {
            self.0.ready("abort").await?;
            upload::discard(&self.0, &key, &token).await
        }
        .boxed()
    }
}

impl Admin for Dropbox {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        async move { read::about(&self.0).await }.boxed()
    }

    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        async move { read::user(&self.0).await }.boxed()
    }

    fn cleanup(&self, _: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        let message = "Dropbox removes uploads that were never finished by itself, after a week";
        async move { Err(Error::new(ErrorKind::Unsupported, "clean up", message)) }.boxed()
    }
}
