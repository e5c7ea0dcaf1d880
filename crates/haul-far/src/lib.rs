//! haul at both ends (`far`): the store contract over a pair of pipes, such as those of an ssh session. The near end ([`KIND`]) is an
//! ordinary store; the far end ([`serve`]) answers with a store of its own machine. Many requests are under way at once, and many
//! small files share one, so that thousands of files cost few round trips.

mod bundle;
mod channel;
mod compression;
mod dial;
mod extra_pipes;
mod frame;
#[cfg(test)]
mod golden;
mod handshake;
mod history;
mod idle_timeout;
mod install;
mod list;
mod listen_address;
mod message;
mod open;
mod read;
mod serve;
mod settings;
mod tcp;
mod upload;
mod wire;

pub use dial::{Call, Dial, OverSsh, Pipe, ShellCommand};
pub use install::fits;
pub use open::{HAUL_PATH, INSTALL, KIND, TCP, connect, is_confined, open_on};
pub use serve::{serve, serve_on};
pub use settings::{Open, Settings};

use channel::{Channel, ExtraPipeSettings, Sessions, Tcp};
use compression::Packing;
use futures::{future::BoxFuture, stream::BoxStream};
use handshake::About;
use haul_core::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Listed, Meta, Mtime, Result, Retry, Version,
    attributes::FileAttributes,
    delta::{self, Chunking, Recipe},
    hash::hash_bytes,
};
use haul_store::{
    Admin, AttributesBatch, AttributesResult, Bundles, Caps, Cleanup, CopyBatch, CopyItem, Deltas, Hashing, Inodes,
    ListRequest, Meters, Read, Resumable, ResumedWrite, SentPart, SettleItem, SpaceUsage, Store, StoredFacts,
    UnfinishedWrites, Upload, Watch, WriteSpec, one_by_one,
};
use message::{Answer, Folder, Request};
use std::{
    fmt,
    ops::Range,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, Semaphore};
use wire::{Exchange, Incoming, Named, Wire, unexpected};

/// Keys of one delete request.
const DELETE_BATCH: usize = 1000;

/// A folder at the far end.
struct FarStore {
    far: Arc<Far>,
    caps: Caps,
    locator: String,
}

/// A folder there, and the way to it.
struct Far {
    line: Arc<Line>,
    folder: Folder,
    opened: Mutex<Option<(Arc<Channel>, Named)>>,
    meters: Arc<Meters>,
}

/// The way to another machine, which all stores there share.
struct Line {
    dial: Arc<dyn Dial>,
    /// Reaching it takes no longer, apart from what a person types.
    patience: Duration,
    /// Compression at both ends.
    packing: Packing,
    /// Ports that the far end may listen on; `None` where the user asked for none.
    ports: Option<listen_address::Ports>,
    /// A far end that says nothing for so long is given up.
    idle: Duration,
    channel: Mutex<Option<Arc<Channel>>>,
    /// The far end's facts about itself.
    about: OnceLock<About>,
    /// Bytes of content that are on their way there.
    on_the_way: Arc<Semaphore>,
    /// No further pipe is to be had.
    refused: Arc<AtomicBool>,
    /// TCP isn't used, and the user was told so.
    barred: Arc<AtomicBool>,
}

impl fmt::Debug for FarStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FarStore({:?})", self.locator)
    }
}

impl Line {
    /// The connection; a new one where there is none, or it broke.
    ///
    /// Errors: none can be had.
    async fn channel(&self) -> Result<Arc<Channel>> {
        let mut kept = self.channel.lock().await;
        if let Some(open) = kept.as_ref().filter(|channel| channel.is_open()) {
            return Ok(open.clone());
        }
        let greeted = async { self.dial.dial().await?.greet(self.packing, self.patience, None).await };
        let (pipe, about) = greeted.await.map_err(|error| match error.kind() {
            // haul was there before: what keeps it from answering now may pass.
            ErrorKind::Unreachable if self.about.get().is_some() => error.with_retry(Retry::Backoff),
            _ => error,
        })?;
        let packing = about.agreed(self.packing);
        let further = ExtraPipeSettings { dial: self.dial.clone(), packing, patience: self.patience, idle: self.idle };
        let sessions = about.joins.clone().map(|token| Sessions { token, refused: self.refused.clone() });
        let tcp = self.ports.map(|ports| Tcp::new(ports, about.listens, self.barred.clone()));
        let opens_along = about.opens_along;
        // The first that answered counts: what a store can do doesn't change.
        let _ = self.about.set(about);
        let first = Wire::new(pipe, self.idle, packing, self.dial.shown());
        Ok(kept.insert(Channel::new(first, opens_along, further, sessions, tcp)).clone())
    }
}

impl Far {
    /// The connection, and what this folder is called on it.
    ///
    /// Errors: there is none; the far end refuses the folder, unless it opens it along with what is asked of it.
    async fn opened(&self) -> Result<(Arc<Channel>, Named)> {
        let channel = self.line.channel().await?;
        let mut kept = self.opened.lock().await;
        if let Some(opened) = kept.as_ref().filter(|(known, _)| Arc::ptr_eq(known, &channel)) {
            return Ok(opened.clone());
        }
        let folder = match channel.name(&self.folder) {
            Some(named) => named,
            None => {
                let began = Instant::now();
                let Answer::Folder(id) = channel.answer(&0.into(), &Request::Open(self.folder.clone())).await? else {
                    return Err(unexpected());
                };
                channel.took(began.elapsed());
                id.into()
            }
        };
        Ok(kept.insert((channel, folder)).clone())
    }

    /// Sends a request.
    ///
    /// Errors: as [`Far::opened`].
    async fn begin(&self, kind: &'static str, request: &Request) -> Result<Exchange> {
        let (channel, folder) = self.opened().await?;
        self.meters.request(kind);
        channel.ask(&folder, request)
    }

    /// Asks something that has one answer.
    ///
    /// Errors: the far end's; it can't be reached.
    async fn ask(&self, kind: &'static str, request: Request) -> Result<Answer> {
        let (channel, folder) = self.opened().await?;
        self.meters.request(kind);
        let (is_first, began) = (folder.is_new(), Instant::now());
        let answer = channel.answer(&folder, &request).await?;
        if is_first {
            channel.took(began.elapsed());
        }
        Ok(answer)
    }

    /// Asks for something whose answer carries no data.
    ///
    /// Errors: as [`Far::ask`].
    async fn done(&self, kind: &'static str, request: Request) -> Result<()> {
        match self.ask(kind, request).await? {
            Answer::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }
}

impl Store for FarStore {
    fn locator(&self) -> &str {
        &self.locator
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn list(&self, request: ListRequest) -> BoxStream<'static, Listed> {
        list::list(self.far.clone(), request)
    }

    fn stat(&self, key: &Key) -> BoxFuture<'_, Result<Entry>> {
        let key = key.clone();
        Box::pin(async move {
            match self.far.ask("STAT", Request::Stat(key)).await? {
                Answer::Entry(entry) => Ok(list::near(entry)),
                _ => Err(unexpected()),
            }
        })
    }

    fn read(&self, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Read>> {
        let request = Request::Read(key.clone(), want.cloned(), range);
        Box::pin(async move {
            let (channel, folder) = self.far.opened().await?;
            self.far.meters.request("READ");
            read::read(channel.room(request.weight()).await.ask(&folder, &request)?).await
        })
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let upload = upload::FarUpload::new(self.far.clone(), key.clone(), spec);
        Box::pin(async move { Ok(Box::new(upload) as Box<dyn Upload>) })
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let request = Request::MakeDir(key.clone(), upload::wire_spec(spec));
        Box::pin(self.far.done("MKDIR", request))
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        Box::pin(async move {
            let count = batch.items.len();
            let all = |error: Error| one_by_one::failed(count, &error);
            self.copied(batch, &watch).await.unwrap_or_else(all)
        })
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let request = Request::SetMeta(key.clone(), mtime, meta.cloned());
        Box::pin(self.far.done("SETMETA", request))
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(keys.len());
            for batch in keys.chunks(DELETE_BATCH) {
                answers.extend(self.deleted(batch.to_vec()).await);
            }
            answers
        })
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }

    fn inodes(&self) -> Option<&dyn Inodes> {
        self.caps.attributes.as_ref().map(|_| self as &dyn Inodes)
    }

    fn hashing(&self) -> Option<&dyn Hashing> {
        self.caps.attributes.as_ref().map(|_| self as &dyn Hashing)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn deltas(&self) -> Option<&dyn Deltas> {
        Some(self)
    }

    fn bundles(&self) -> Option<&dyn Bundles> {
        // Before it has said anything of itself nobody knows.
        Some(self).filter(|_| self.far.line.about.get().is_none_or(About::takes_bundles)).map(|own| own as &dyn Bundles)
    }
}

impl Deltas for FarStore {
    fn smallest_block(&self) -> u32 {
        match self.far.line.about.get().is_some_and(|about| about.small_blocks) {
            true => delta::SMALLEST_BLOCK,
            false => delta::SMALLEST,
        }
    }

    fn recipe(&self, key: &Key, version: Option<&Version>, cut: Chunking) -> BoxFuture<'_, Result<Recipe>> {
        let request = Request::Recipe(key.clone(), version.cloned(), cut);
        Box::pin(async move {
            match self.far.ask("RECIPE", request).await? {
                Answer::Recipe(recipe) => Ok(recipe),
                _ => Err(unexpected()),
            }
        })
    }
}

impl FarStore {
    async fn deleted(&self, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
        let request = (keys.len(), Request::Delete(keys));
        self.batch("DELETE", request, |answer| match answer {
            Answer::Deleted(answers) => Some(answers),
            _ => None,
        })
        .await
    }

    async fn copied(&self, batch: CopyBatch, watch: &Watch) -> Result<Vec<Result<StoredFacts>>> {
        let count = batch.items.len();
        let described = |item: &CopyItem| CopyItem { spec: upload::wire_spec(&item.spec), ..item.clone() };
        let items = batch.items.iter().map(described);
        let request = Request::Copy(CopyBatch { items: items.collect(), ..batch });
        let mut exchange = self.far.begin("COPY", &request).await?;
        loop {
            match exchange.next().await? {
                Incoming::Answer(Answer::Progress(item, bytes)) if item < count => {
                    watch.copied(item, bytes);
                }
                Incoming::Answer(Answer::Copied(answers)) if answers.len() == count => return Ok(answers),
                _ => return Err(unexpected()),
            }
        }
    }
}

impl Resumable for FarStore {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let (key, token) = (key.clone(), token.to_vec());
        Box::pin(async move {
            let (channel, folder) = self.far.opened().await?;
            self.far.meters.request("RESUME");
            let request = Request::Resume(key.clone(), token, sent, upload::wire_spec(&spec));
            match channel.answer(&folder, &request).await? {
                Answer::Resumed(id, parts) => {
                    let place = upload::WriteSession { channel, folder, id };
                    let upload = upload::FarUpload::found(self.far.clone(), key, spec, place);
                    Ok((Box::new(upload) as Box<dyn Upload>, parts))
                }
                _ => Err(unexpected()),
            }
        })
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        let request = Request::Discard(key.clone(), token.to_vec());
        Box::pin(async move {
            match self.far.ask("DISCARD", request).await? {
                Answer::Flag(gone) => Ok(gone),
                _ => Err(unexpected()),
            }
        })
    }
}

impl FarStore {
    /// Asks about a batch: an answer for each of `count`, made of one by `each`.
    async fn batch<T>(
        &self,
        kind: &'static str,
        (count, request): (usize, Request),
        each: impl Fn(Answer) -> Option<Vec<Result<T>>>,
    ) -> Vec<Result<T>> {
        answers(self.far.ask(kind, request).await, count, each)
    }
}

/// Answers about `count` items, made from one answer by `each`; its error for all where there is none.
fn answers<T>(answer: Result<Answer>, count: usize, each: impl Fn(Answer) -> Option<Vec<Result<T>>>) -> Vec<Result<T>> {
    let answers = answer.and_then(|answer| each(answer).filter(|all| all.len() == count).ok_or_else(unexpected));
    answers.unwrap_or_else(|error| one_by_one::failed(count, &error))
}

impl Inodes for FarStore {
    fn attributes(&self, batch: AttributesBatch) -> BoxFuture<'_, Vec<Result<AttributesResult>>> {
        let AttributesBatch { from, items, set, links: _ } = batch;
        let request = (items.len(), Request::Attributes { from: from.to_vec(), items, set });
        Box::pin(self.batch("ATTRIBUTES", request, |answer| match answer {
            Answer::Attributed(answers) => Some(answers),
            _ => None,
        }))
    }

    fn carry(&self, keys: Vec<Key>, inside: bool) -> BoxFuture<'_, Vec<Result<FileAttributes>>> {
        let request = (keys.len(), Request::Carry(keys, inside));
        Box::pin(self.batch("CARRY", request, |answer| match answer {
            Answer::Carried(answers) => Some(answers),
            _ => None,
        }))
    }

    fn settle(&self, items: Vec<SettleItem>) -> BoxFuture<'_, Vec<Result<()>>> {
        let request = (items.len(), Request::Settle(items));
        Box::pin(self.batch("SETTLE", request, |answer| match answer {
            Answer::Settled(answers) => Some(answers),
            _ => None,
        }))
    }
}

impl Hashing for FarStore {
    fn algos(&self) -> BoxFuture<'_, Result<Vec<Algo>>> {
        Box::pin(async { Ok(Algo::ALL.into()) })
    }

    fn hash(&self, key: &Key, version: Option<&Version>, algos: &[Algo]) -> BoxFuture<'_, Result<Hashes>> {
        let request = Request::Hash(key.clone(), version.cloned(), algos.to_vec());
        Box::pin(async move {
            match self.far.ask("HASH", request).await? {
                Answer::Hashes(hashes) => Ok(hashes),
                _ => Err(unexpected()),
            }
        })
    }
}

impl Admin for FarStore {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        Box::pin(async move {
            match self.far.ask("ABOUT", Request::About).await? {
                Answer::Space(space) => Ok(space),
                _ => Err(unexpected()),
            }
        })
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        Box::pin(async move {
            match self.far.ask("CLEANUP", Request::Cleanup(what)).await? {
                Answer::Unfinished(found, failed) => Ok(UnfinishedWrites { found, failed }),
                _ => Err(unexpected()),
            }
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.far.done("SYNC", Request::Sync))
    }
}

/// CRC-64/NVME of bytes.
fn crc64_of(bytes: &[u8]) -> u64 {
    crc64(&hash_bytes(&[Algo::Crc64Nvme], bytes))
}

/// CRC-64/NVME among hashes.
fn crc64(hashes: &Hashes) -> u64 {
    // They were asked to have it.
    hashes.crc64().unwrap_or_default()
}
