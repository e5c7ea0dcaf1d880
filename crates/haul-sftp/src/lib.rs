//! Folders on hosts that the user's own ssh reaches (`sftp`): any OpenSSH server, and others that speak SFTP version 3.
//!
//! One login carries several sessions (`haul_ssh`), each with many requests under way (`channel`), as many sessions as there is work for
//! (`pool`). A file is written under a hidden name beside its own and renamed. Names are raw bytes. Nothing is retried here.

mod change;
mod channel;
mod dir_names;
mod hash;
mod hash_queue;
mod hidden;
mod list;
mod options;
mod pool;
mod read;
mod service;
mod shell;
mod upload;
mod wire;

use futures::{FutureExt, future::BoxFuture, stream::BoxStream};
use haul_core::{Algo, Entry, Hashes, Key, Listed, Meta, Mtime, Result, Version};
use haul_ssh::Ssh;
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, Domain, Hashing, Lanes, ListRequest, OpenRequest, PartLimits,
    Read, Resumable, ResumedWrite, SentPart, SpaceUsage, Store, StoreKind, StoredFacts, UnfinishedWrites, Upload,
    Watch, WriteSpec, one_by_one, tree,
};
use options::Config;
use pool::Pool;
use service::Service;
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// The kind.
pub const KIND: StoreKind =
    StoreKind { name: "sftp", description: "SFTP: any host that your ssh reaches", options: options::OPTIONS, open };

/// Keys of one batch that are asked about or deleted at once; the lane bounds them in the end.
const AT_ONCE: usize = 64;

/// Begins the first session of a host, which others share.
///
/// Errors: nobody can log in; `Unsupported` where something else than SFTP answers.
pub async fn log_in(request: &OpenRequest) -> Result<()> {
    let (config, ssh) = (options::read(request)?, haul_ssh::options::way(request)?);
    sessions(request, &config, &ssh)?.hello().await.map(drop)
}

/// The sessions to a host. Stores that go there as the same user share them, if they are asked for in the same way.
fn sessions(request: &OpenRequest, config: &Config, ssh: &Ssh) -> Result<Arc<Pool>> {
    let Config { remote, chunk, connections, .. } = config;
    let way = format!("sftp {:?} {remote:?} {chunk:?} {connections:?}", ssh.target());
    let times = (request.net.connect_timeout, request.net.idle_timeout);
    request.shared.get(&way, || Ok(Pool::new(ssh.clone(), remote.clone(), times, *connections, *chunk)))
}

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let (config, ssh) = (options::read(&request)?, haul_ssh::options::way(&request)?);
    let (net, label) = (&request.net, ssh.shown());
    let name = format!("sftp:{label}");
    let pool = sessions(&request, &config, &ssh)?;
    if config.no_shell {
        pool.no_shell.store(true, Ordering::Relaxed);
    }
    let root = root(&request.path);
    let lanes = net.roads.to(&name, &label);
    let domain = Domain { name, place: root.clone().into(), on_device: None };
    let caps = Caps {
        set_mtime: config.set_times,
        set_dir_mtime: config.set_times,
        symlinks: request.links.tells(),
        domain: Some(domain),
        ..caps()
    };
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    Ok(Arc::new(Sftp(Arc::new(Service {
        pool,
        root,
        links: request.links,
        skip_links: config.skip_links,
        set_times: config.set_times,
        copy_is_hardlink: config.copy_is_hardlink,
        commands: config.commands,
        hashers: Default::default(),
        caps,
        locator,
        gate: net.gate.clone(),
        lanes,
        meters: request.meters.clone(),
        lists_dots: Default::default(),
        dots_at_the_top: Default::default(),
        made: Default::default(),
        real: Default::default(),
    }))))
}

/// Where keys begin: empty for the user's home, else ending in `/`.
fn root(path: &[u8]) -> Vec<u8> {
    let home = path.strip_prefix(b"~/").or((path == b"~").then_some(&b""[..])).unwrap_or(path);
    let end = home.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    match (&home[..end], home.first()) {
        (b"", Some(b'/')) => b"/".to_vec(),
        (b"" | b".", _) => Vec::new(),
        (path, _) => [path, b"/"].concat(),
    }
}

fn caps() -> Caps {
    Caps {
        mtime: Some(Duration::from_secs(1)),
        set_mtime: true,
        set_dir_mtime: true,
        mtime_listed: true,
        changed: ChangedMeaning::Unknown,
        dirs: true,
        symlinks: false,
        keeps_empty_dirs: true,
        hashes_listed: Vec::new(),
        hashes_stored: Vec::new(),
        cheap_reads: false,
        written_in_place: true,
        listing_may_omit: true,
        files: false,
        parts: Some(PartLimits::FILE),
        relays: true,
        domain: None,
        place: None,
        renames: true,
        renames_dirs: true,
        delete_batch: 1,
        copy_batch: 1,
        conditional: false,
        deletes_version: true,
        page: None,
        case_insensitive: false,
        meta: true,
        attributes: None,
        modes: true,
        concurrency: 32,
        gathers: 0,
        rests_on: Vec::new(),
    }
}

#[derive(Debug)]
struct Sftp(Arc<Service>);

impl Store for Sftp {
    fn locator(&self) -> &str {
        &self.0.locator
    }

    fn caps(&self) -> &Caps {
        &self.0.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        let directories = list::Directories::new(&self.0, &request);
        tree::list(Arc::new(directories), request)
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
        let upload = upload::begin(&self.0, key, spec);
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
                |item| async move { change::copy(&self.0, from, &item).await },
            )
            .await
        }
        .boxed()
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        async move { change::set_meta(&self.0, &key, mtime, meta.as_ref()).await }.boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        let service = &self.0;
        let delete =
            move |key, version: Option<Version>| async move { change::delete(service, &key, version.as_ref()).await };
        one_by_one::deleted(keys, AT_ONCE, delete).boxed()
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        Some(&self.0.lanes)
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        (!self.0.commands.none).then_some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

impl Hashing for Sftp {
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>> {
        async move { hash::algos(&self.0).await }.boxed()
    }

    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>> {
        let (key, version, algos) = (key.clone(), version.cloned(), algos.to_vec());
        async move { hash::hash(&self.0, &key, version.as_ref(), &algos).await }.boxed()
    }
}

impl Resumable for Sftp {
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

impl Admin for Sftp {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        async move {
            let (total, free, available) = change::space(&self.0).await?;
            Ok(SpaceUsage { total: Some(total), used: Some(total.saturating_sub(free)), free: Some(available) })
        }
        .boxed()
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        async move { Ok(change::cleanup(&self.0, what).await) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_at_home_or_at_the_root() {
        for (path, want) in [
            ("", ""),
            (".", ""),
            ("~", ""),
            ("~/", ""),
            ("~/d/", "d/"),
            ("d", "d/"),
            ("d/e//", "d/e/"),
            ("/", "/"),
            ("//", "/"),
            ("/srv", "/srv/"),
        ] {
            assert_eq!(root(path.as_bytes()), want.as_bytes(), "{path}");
        }
    }
}
