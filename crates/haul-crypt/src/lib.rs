//! Files whose names and content are encrypted on another store (`crypt`), in rclone's format: each program reads the other's
//! files. Requests are retried by the layers around the other store.
//!
//! Modules: `keys`, `names` (with `eme` and `base32768`) and `content` are the format, pure; `list`, `read` and `upload` are the
//! store. docs/adr/0016-crypt.md gives the reasons.

mod base32768;
pub mod content;
mod eme;
pub mod keys;
mod list;
pub mod names;
mod options;
mod part;
mod read;
mod reencrypt;
mod salsa;
mod upload;

use content::Sealer;
use futures::{
    FutureExt as _,
    future::{BoxFuture, ready},
    stream::BoxStream,
};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Meta, Mtime, Result, Version};
use haul_store::{
    Admin, Caps, ChangedMeaning, Cleanup, CopyBatch, CopyItem, Domain, Encrypted, EncryptedFile, Lanes, ListRequest,
    OpenRequest, Read, Resumable, ResumedWrite, SentPart, SpaceUsage, Store, StoreKind, StoredFacts, UnfinishedWrites,
    Upload, Watch, WriteSpec, offered, tree,
};
use names::{Mode, Names};
use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The kind.
pub const KIND: StoreKind = StoreKind {
    name: "crypt",
    description: "Names and content encrypted on another remote, as rclone does it",
    options: options::OPTIONS,
    open,
};

fn open(request: OpenRequest) -> Result<Arc<dyn Store>> {
    let missing =
        || Error::new(ErrorKind::Invalid, "open", "a crypt remote needs the option remote: where the files are");
    let inner = request.wrapped.get("remote").cloned().ok_or_else(missing)?;
    let options::Settings { names, data, strict, alike } = options::settings(&request.options)?;
    let path = request.path.strip_prefix(b"/").unwrap_or(&request.path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let prefix = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
    let content = data.map(Sealer::new);
    // Location of its files in the other store. A path that can't be encrypted is reported when it is used.
    let dir = names.hidden(&Key::new(&prefix[..])).unwrap_or_else(|_| Key::new(""));
    let caps = caps(inner.caps(), names.mode, content.is_some(), &alike, (&prefix, &dir));
    let locator = format!("{}:{}", request.remote, String::from_utf8_lossy(&request.path));
    let nonces = Default::default();
    let proved = AtomicBool::new(false);
    Ok(Arc::new(Crypt(Arc::new(Service { inner, names, content, strict, prefix, caps, locator, nonces, proved }))))
}

/// The other store's caps, as far as they hold for encrypted files.
///
/// `prefix`: prefix of all keys, and the key of that directory in the other store.
fn caps(inner: &Caps, mode: Mode, sealed: bool, alike: &str, (prefix, dir): (&[u8], &Key)) -> Caps {
    let within = |domain: &Domain| domain.within(&format!("crypt {alike}"), prefix);
    Caps {
        symlinks: false,
        // Facts remembered by an inode belong to the other store's file.
        changed: match inner.changed {
            ChangedMeaning::Inode if sealed => ChangedMeaning::Unknown,
            changed => changed,
        },
        hashes_listed: if sealed { Vec::new() } else { inner.hashes_listed.clone() },
        hashes_stored: if sealed { Vec::new() } else { inner.hashes_stored.clone() },
        files: inner.files && !sealed,
        relays: inner.relays && !sealed,
        parts: if sealed { inner.parts.map(upload::limits) } else { inner.parts },
        domain: inner.domain.as_ref().map(within),
        place: inner.place.as_ref().map(within),
        page: None,
        case_insensitive: inner.case_insensitive && mode != Mode::Standard,
        attributes: None,
        modes: false,
        rests_on: inner.ground(&[dir.as_bytes()]),
        ..inner.clone()
    }
}

struct Service {
    /// Holds the encrypted files; the layers are around it.
    inner: Arc<dyn Store>,
    names: Names,
    /// `None` where content stays as it is.
    content: Option<Sealer>,
    /// Treatment of foreign names.
    strict: options::Strict,
    /// Plain prefix of all keys below the other store's root: empty, or a directory with its `/`.
    prefix: Vec<u8>,
    caps: Caps,
    locator: String,
    nonces: read::Nonces,
    /// An encrypted name was decrypted: the password is right.
    proved: AtomicBool,
}

impl Service {
    /// A key as the other store has it.
    ///
    /// Errors: `Invalid` for a name that is too long.
    fn hidden(&self, key: &Key) -> Result<Key> {
        self.hidden_below(&self.prefix, key)
    }

    fn hidden_below(&self, prefix: &[u8], key: &Key) -> Result<Key> {
        let path = key.as_bytes().strip_suffix(b"/").unwrap_or(key.as_bytes());
        if !key.is_root() && path.split(|byte| *byte == b'/').any(tree::is_odd) {
            let message = "an encrypted remote can't hold this name: rename it";
            return Err(Error::new(ErrorKind::Invalid, "encrypt", message).with_key(key));
        }
        self.names.hidden(&key.below(prefix))
    }

    /// Plain size of a file with this encrypted size; `None` when no encrypted file can have it.
    fn plain_size(&self, size: u64) -> Option<u64> {
        if self.content.is_some() { content::plain_size(size) } else { Some(size) }
    }

    fn copied(&self, from: &[u8], item: &CopyItem) -> Result<CopyItem> {
        let spec = WriteSpec { hashes: Default::default(), size: None, ..item.spec.clone() };
        Ok(CopyItem {
            from: self.hidden_below(from, &item.from)?,
            to: self.hidden(&item.to)?,
            size: if self.content.is_some() { content::sealed_size(item.size) } else { item.size },
            spec,
            ..item.clone()
        })
    }

    async fn copy(&self, batch: CopyBatch, watch: Watch) -> Vec<Result<StoredFacts>> {
        let Some((place, from)) = Domain::place_within(&batch.from) else {
            let wrong = || Err(Error::new(ErrorKind::Unsupported, "copy", "the other end is another kind of store"));
            return batch.items.iter().map(|_| wrong()).collect();
        };
        let mut answers: Vec<Option<Result<StoredFacts>>> = Vec::with_capacity(batch.items.len());
        let (mut items, mut sizes, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, item) in batch.items.iter().enumerate() {
            match self.copied(from, item) {
                Ok(hidden) => {
                    answers.push(None);
                    sizes.push(item);
                    numbers.push(number);
                    items.push(hidden);
                }
                Err(error) => answers.push(Some(Err(error))),
            }
        }
        let watch = match self.content {
            Some(_) => plain_progress(&watch, numbers, &batch.items),
            None => watch.of(numbers),
        };
        let inner = CopyBatch { from: place.into(), items, links: batch.links };
        let copied = self.inner.copy(inner, watch).await;
        let mut copied = copied.into_iter().zip(sizes).map(|(answer, item)| match answer {
            Ok(stored) if self.content.is_some() => {
                let size = content::plain_size(stored.size).unwrap_or(item.size);
                Ok(StoredFacts { size, hashes: Default::default(), ..stored })
            }
            Ok(stored) => Ok(stored),
            Err(error) => Err(error.with_key(&item.from)),
        });
        let lost = || Err(Error::new(ErrorKind::Io, "copy", "the other store gave no answer"));
        answers.into_iter().map(|answer| answer.or_else(|| copied.next()).unwrap_or_else(lost)).collect()
    }

    async fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
        let hidden: Vec<Result<Key>> = keys.iter().map(|(key, _)| self.hidden(key)).collect();
        let items = hidden
            .iter()
            .zip(&keys)
            .filter_map(|(hidden, (_, version))| Some((hidden.as_ref().ok()?.clone(), version.clone())));
        let mut answers = self.inner.delete(items.collect()).await.into_iter();
        let lost = || Err(Error::new(ErrorKind::Io, "delete", "the other store gave no answer"));
        hidden
            .into_iter()
            .zip(&keys)
            .map(|(hidden, (key, _))| {
                hidden.and_then(|_| answers.next().unwrap_or_else(lost)).map_err(|e| e.with_key(key))
            })
            .collect()
    }

    async fn cleanup(&self, what: Cleanup) -> Result<UnfinishedWrites> {
        let what = Cleanup { below: self.hidden(&what.below)?, ..what };
        let UnfinishedWrites { found, failed } = offered(self.inner.admin(), "clean up")?.cleanup(what).await?;
        let found = found.into_iter().map(|(key, time)| (self.shown_key(key), time)).collect();
        Ok(UnfinishedWrites { found, failed })
    }

    /// The plain key behind one of the other store, from its root on.
    ///
    /// Errors: `Invalid` for one that hides none.
    fn plain_key(&self, hidden: &Key) -> Result<Key> {
        let mut plain = Vec::new();
        let mut parts = hidden.as_bytes().split(|byte| *byte == b'/').peekable();
        while let Some(part) = parts.next() {
            let shown = match parts.peek() {
                Some(_) => self.names.plain_dir(part),
                // A directory's key ends in a slash.
                None if part.is_empty() && !plain.is_empty() => Ok(Vec::new()),
                None => self.names.plain_file(part),
            };
            let invalid = |why: names::Foreign| Error::new(ErrorKind::Invalid, "decrypt", why.why).with_key(hidden);
            plain.extend(shown.map_err(invalid)?);
            if parts.peek().is_some() {
                plain.push(b'/');
            }
        }
        Ok(Key::new(plain))
    }

    /// A key of the other store as people know it; as it is there where it can't be decrypted.
    fn shown_key(&self, hidden: Key) -> Key {
        let plain = self.plain_key(&hidden).ok();
        let below = plain.as_ref().and_then(|plain| plain.as_bytes().strip_prefix(&self.prefix[..])).map(Key::new);
        below.unwrap_or(hidden)
    }
}

/// Converts progress in encrypted bytes to plain bytes.
fn plain_progress(watch: &Watch, numbers: Vec<usize>, items: &[CopyItem]) -> Watch {
    let copied: Vec<(AtomicU64, u64)> = items.iter().map(|item| (AtomicU64::new(0), item.size)).collect();
    let plain = |sealed: u64, size: u64| match sealed >= content::sealed_size(size) {
        true => size,
        false => sealed.min(size),
    };
    let progress = watch.clone();
    watch.through(numbers, move |number, bytes| {
        let Some((copied, size)) = copied.get(number) else { return };
        let before = copied.fetch_add(bytes, Ordering::Relaxed);
        let more = plain(before + bytes, *size) - plain(before, *size);
        progress.copied(number, more);
    })
}

/// Encrypted files on another store.
struct Crypt(Arc<Service>);

impl fmt::Debug for Crypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crypt({:?})", self.0.locator)
    }
}

impl Store for Crypt {
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
        async move { read::read(&self.0, &key, want.as_ref(), range).await }.boxed()
    }

    fn write(&self, key: &Key, spec: WriteSpec) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let key = key.clone();
        async move { upload::begin(self.0.clone(), &key, spec).await }.boxed()
    }

    fn make_dir(&self, key: &Key, spec: &WriteSpec) -> BoxFuture<'_, Result<()>> {
        let (dir, spec) = (Entry::dir(key.clone()).key, spec.clone());
        async move {
            // A store without directories has its own root to be made.
            let hidden = if dir.is_root() && !self.0.caps.dirs { dir.clone() } else { self.0.hidden(&dir)? };
            self.0.inner.make_dir(&hidden, &spec).await.map_err(|e| e.with_key(&dir))
        }
        .boxed()
    }

    fn copy(&self, batch: CopyBatch, watch: Watch) -> BoxFuture<'_, Vec<Result<StoredFacts>>> {
        async move { self.0.copy(batch, watch).await }.boxed()
    }

    fn set_meta(&self, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> BoxFuture<'_, Result<()>> {
        let (key, meta) = (key.clone(), meta.cloned());
        async move {
            let hidden = self.0.hidden(&key)?;
            self.0.inner.set_meta(&hidden, mtime, meta.as_ref()).await.map_err(|e| e.with_key(&key))
        }
        .boxed()
    }

    fn delete(&self, keys: Vec<(Key, Option<Version>)>) -> BoxFuture<'_, Vec<Result<()>>> {
        async move { self.0.delete(keys).await }.boxed()
    }

    fn lanes(&self) -> Option<&Arc<Lanes>> {
        self.0.inner.lanes()
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        self.0.inner.resumable().map(|_| self as &dyn Resumable)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.0.inner.admin().map(|_| self as &dyn Admin)
    }

    fn encrypted(&self) -> Option<&dyn Encrypted> {
        Some(self)
    }
}

impl Resumable for Crypt {
    fn resume(
        &self,
        key: &Key,
        token: &[u8],
        sent: Vec<SentPart>,
        spec: WriteSpec,
    ) -> BoxFuture<'_, Result<ResumedWrite>> {
        let (key, token) = (key.clone(), token.to_vec());
        async move { upload::resume(self.0.clone(), &key, &token, sent, spec).await }.boxed()
    }

    fn discard(&self, key: &Key, token: &[u8]) -> BoxFuture<'_, Result<bool>> {
        let invalid = || Error::new(ErrorKind::Invalid, "discard", "the token is none of an encrypted write");
        let Some(token) = upload::inner_token(&self.0, token).map(<[u8]>::to_vec) else {
            return ready(Err(invalid().with_key(key))).boxed();
        };
        let key = key.clone();
        async move {
            let inner = offered(self.0.inner.resumable(), "discard")?;
            inner.discard(&self.0.hidden(&key)?, &token).await.map_err(|e| e.with_key(&key))
        }
        .boxed()
    }
}

impl Admin for Crypt {
    fn about(&self) -> BoxFuture<'_, Result<SpaceUsage>> {
        async move { offered(self.0.inner.admin(), "about")?.about().await }.boxed()
    }

    fn user(&self) -> BoxFuture<'_, Result<Vec<(&'static str, String)>>> {
        async move { offered(self.0.inner.admin(), "userinfo")?.user().await }.boxed()
    }

    fn link(&self, key: &Key, _: Duration) -> BoxFuture<'_, Result<String>> {
        let message = "a link would lead to the encrypted file, which nobody else can read";
        ready(Err(Error::new(ErrorKind::Unsupported, "link", message).with_key(key))).boxed()
    }

    fn cleanup(&self, what: Cleanup) -> BoxFuture<'_, Result<UnfinishedWrites>> {
        async move { self.0.cleanup(what).await }.boxed()
    }

    fn empty_trash(&self, dry_run: bool) -> BoxFuture<'_, Result<Vec<Key>>> {
        async move {
            let found = offered(self.0.inner.admin(), "empty the trash")?.empty_trash(dry_run).await?;
            Ok(found.into_iter().map(|key| self.0.shown_key(key)).collect())
        }
        .boxed()
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        async move { offered(self.0.inner.admin(), "sync")?.sync().await }.boxed()
    }
}

impl Encrypted for Crypt {
    fn sealed(&self, key: &Key, version: Option<&Version>) -> BoxFuture<'_, Result<EncryptedFile>> {
        let (key, version) = (key.clone(), version.cloned());
        async move { reencrypt::like(&self.0, &key, version.as_ref()).await }.boxed()
    }

    fn hidden(&self, key: &Key) -> Result<Key> {
        self.0.names.hidden(key)
    }

    fn plain(&self, hidden: &Key) -> Result<Key> {
        self.0.plain_key(hidden)
    }
}
