//! Listings: a directory of the other store at a time, since the order of encrypted names is another than that of plain ones.

use crate::{
    Service,
    names::{Foreign, Mode},
    options::Strict,
};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Listed, Result};
use haul_store::{
    ListRequest, pages,
    tree::{self, Folders, FoundName, WantedKeys},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// See [`haul_store::Store::list`].
pub fn list(service: Arc<Service>, request: ListRequest) -> BoxStream<'static, Listed> {
    tree::list(Arc::new(Directories { service, meta: request.meta, sweep: request.sweep }), request)
}

/// The message for a file of a size that no encrypted file has.
const CUT_OFF: &str = "no encrypted file has this size: it was cut off, or is none";

struct Directories {
    service: Arc<Service>,
    meta: bool,
    sweep: bool,
}

impl Folders for Directories {
    fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let (service, meta, sweep) = (self.service.clone(), self.meta, self.sweep);
        async move { service.directory(&dir, meta, sweep).await }.boxed()
    }

    fn has_dirs(&self) -> bool {
        self.service.caps.dirs
    }
}

impl Service {
    /// All of the directory `dir`.
    async fn directory(&self, dir: &Key, meta: bool, sweep: bool) -> Result<Vec<FoundName>> {
        let hidden = self.hidden(dir)?;
        let request = ListRequest { meta, sweep, ..ListRequest::dir(hidden.as_bytes()) };
        let mut listing = self.inner.list(request);
        let (mut found, mut foreign, mut first) = (Vec::new(), 0usize, None::<Error>);
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => {
                    for entry in entries {
                        match self.plain(dir, &hidden, &entry) {
                            Ok(Some(entry)) => found.push(entry),
                            Ok(None) => {}
                            Err(why) if self.strict == Strict::Refused => return Err(why),
                            // Desktops put them everywhere.
                            Err(_) if is_litter(&entry.key) => {}
                            Err(why) => {
                                foreign += 1;
                                if self.strict == Strict::LeftOut {
                                    tracing::warn!("{}: skipped: {}", entry.key, why.message());
                                } else if first.is_none() || why.kind() == ErrorKind::Corrupt {
                                    first = Some(why);
                                }
                            }
                        }
                    }
                }
                // An entry that can't be listed has no plain name, so the directory isn't known as a whole.
                Listed::Failed { error, .. } => return Err(error),
                Listed::Vanished(key) => found.extend(self.vanished(dir, &hidden, &key).map(FoundName::Vanished)),
                Listed::End => {
                    // A listing doesn't tell what is missing from what is empty.
                    if found.is_empty() && foreign == 0 && !hidden.is_root() {
                        if self.caps.dirs {
                            self.inner.stat(&hidden).await?;
                        } else if dir.is_root() {
                            return Err(pages::no_root(&self.locator, "list"));
                        }
                    }
                    return known(dir, found, foreign, first, self.unread());
                }
            }
        }
        Err(Error::new(ErrorKind::Io, "list", "the listing was cut off").with_key(dir))
    }

    /// The plain key of what vanished in a directory, if its name was one of ours.
    fn vanished(&self, dir: &Key, hidden: &Key, key: &Key) -> Option<Key> {
        let name = key.as_bytes().strip_prefix(hidden.as_bytes())?;
        Some(Key::new(self.plain_name(name).ok()?).below(dir.as_bytes()))
    }

    /// The plain name of a file, or of a directory with its slash.
    ///
    /// Errors: it isn't one of ours.
    fn plain_name(&self, name: &[u8]) -> Result<Vec<u8>, Foreign> {
        match name.strip_suffix(b"/") {
            Some(name) => self.names.plain_dir(name).map(|plain| [&plain[..], b"/"].concat()),
            None => self.names.plain_file(name),
        }
    }

    /// An entry of a directory with its plain name and size; `None` for what can't be a file of ours.
    ///
    /// Errors: the name isn't one of ours.
    fn plain(&self, dir: &Key, hidden: &Key, entry: &Entry) -> Result<Option<FoundName>> {
        let path = entry.key.as_bytes();
        let name = path.strip_prefix(hidden.as_bytes()).unwrap_or(path);
        if name.is_empty() || !matches!(entry.kind, Kind::File | Kind::Dir) && !entry.damaged {
            return Ok(None);
        }
        if entry.kind == Kind::Special {
            // A link that leads nowhere, to what may be a directory: of a name that isn't ours it is nothing here.
            let plain = self.names.plain_file(name).or_else(|_| self.names.plain_dir(name));
            let key = plain.map(|plain| Key::new(plain).below(dir.as_bytes()));
            return Ok(key.ok().map(|key| FoundName::Entry(Entry { key, ..entry.clone() })));
        }
        let plain = self.plain_name(name).map_err(|foreign| {
            let kind = if foreign.looks_like_ours { self.unread() } else { ErrorKind::Invalid };
            Error::new(kind, "list", format!("the name can't be decrypted: {}", foreign.why)).with_key(&entry.key)
        })?;
        if !name.ends_with(b"/") || self.names.dirs && self.names.mode != Mode::Off {
            self.proved.store(true, Relaxed);
        }
        let key = Key::new(plain).below(dir.as_bytes());
        let entry = self.shown(entry.clone(), &key);
        if entry.damaged {
            tracing::warn!("{key}: {CUT_OFF}");
        }
        Ok(Some(FoundName::Entry(entry)))
    }

    /// Kind of the error for a name that can't be decrypted: `Corrupt`, which ends a job, until one name could be. With a wrong password
    /// a job would go on to store all of it again.
    fn unread(&self) -> ErrorKind {
        if self.proved.load(Relaxed) { ErrorKind::Invalid } else { ErrorKind::Corrupt }
    }

    /// An entry of the other store with the key and size that it has here, damaged where no encrypted file has its size. Hashes are of
    /// encrypted bytes, so they are left out.
    pub fn shown(&self, mut entry: Entry, key: &Key) -> Entry {
        entry.key = key.clone();
        if !entry.is_dir() && self.content.is_some() {
            entry.hashes = Default::default();
            match self.plain_size(entry.size) {
                Some(size) => entry.size = size,
                None => entry.damaged = true,
            }
        }
        entry
    }

    /// As [`Service::shown`], for who wants the content.
    ///
    /// Errors: `Corrupt` for one that is damaged.
    pub fn whole(&self, entry: Entry, key: &Key) -> Result<Entry> {
        let entry = self.shown(entry, key);
        match entry.damaged {
            true => Err(Error::new(ErrorKind::Corrupt, "read", CUT_OFF).with_key(key)),
            false => Ok(entry),
        }
    }
}

/// Errors: of the kind `unread`, where nothing of a directory is ours: with a wrong password everything would seem to be missing.
/// Where some aren't, that counts as much of the directory that may be missing (`first` is the error of one of them): a service may have
/// renamed a file, and what it was called must not count as absent.
fn known(
    dir: &Key,
    mut found: Vec<FoundName>,
    foreign: usize,
    first: Option<Error>,
    unread: ErrorKind,
) -> Result<Vec<FoundName>> {
    if foreign > found.len() {
        let message = format!(
            "{foreign} of {} names can't be decrypted: the password is another, or what is there isn't encrypted",
            foreign + found.len()
        );
        return Err(Error::new(unread, "list", message).with_key(dir));
    }
    if let Some(first) = first {
        let more = if foreign > 1 { format!(", nor can {} more", foreign - 1) } else { String::new() };
        let name = first.key().map(|key| key.to_string()).unwrap_or_default();
        let message = format!(
            "the name {name} can't be decrypted{more}: rename or remove it, or leave such names out (strict_names = false)"
        );
        found.push(FoundName::Failed(dir.clone(), Error::new(first.kind(), "list", message).with_key(dir)));
    }
    Ok(found)
}

/// Files that desktops and synchronising programs leave in directories on their own.
fn is_litter(key: &Key) -> bool {
    let name = key.name();
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let known: [&[u8]; 5] = [b".DS_Store", b"Thumbs.db", b"desktop.ini", b".directory", b".localized"];
    known.contains(&name) || name.starts_with(b"._")
}
