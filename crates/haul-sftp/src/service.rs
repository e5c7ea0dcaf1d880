//! Shared by all requests of a store: the sessions, its root, and the mapping of attributes to entries and of statuses to errors.

use crate::{
    hash_queue::Hashers,
    options::Commands,
    pool::{self, Claim, Fault, Pool},
    wire::{Attrs, Request, status},
};
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Meta, Mtime, Result, Retry, Version, concurrency::RequestResult};
use haul_store::{Caps, Direction, Gate, Lanes, Links, Meters, lanes::LanePermit, tree::is_odd};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

/// Permission bits, with set-id and sticky.
const MODE: u32 = 0o7777;

/// A store's part of a host.
#[derive(Debug)]
pub struct Service {
    /// The sessions.
    pub pool: Arc<Pool>,
    /// Where keys begin: empty (the user's home), or ending in `/`.
    pub root: Vec<u8>,
    /// How symlinks are treated.
    pub links: Links,
    /// They are left out.
    pub skip_links: bool,
    /// Times are set.
    pub set_times: bool,
    /// A server-side copy is another name of the same file.
    pub copy_is_hardlink: bool,
    /// The user's hash commands.
    pub commands: Commands,
    /// Files whose hashes are wanted.
    pub hashers: Hashers,
    /// See [`haul_store::Store::caps`].
    pub caps: Caps,
    /// See [`haul_store::Store::locator`].
    pub locator: String,
    /// So many requests a second.
    pub gate: Arc<Gate>,
    /// So many at once.
    pub lanes: Arc<Lanes>,
    /// How many there were.
    pub meters: Arc<Meters>,
    /// The server lists a directory's own name with those in it.
    pub lists_dots: AtomicBool,
    /// The first names of its topmost directory say so, where those were asked for.
    pub dots_at_the_top: tokio::sync::OnceCell<bool>,
    /// Directories that are known to be there.
    pub made: Mutex<BTreeSet<Key>>,
    /// Directories that are known to be none behind a symlink.
    pub real: Mutex<BTreeSet<Key>>,
}

/// A place in a lane and a session.
pub struct SessionTurn {
    pass: LanePermit,
    /// The session.
    pub claim: Claim,
}

impl SessionTurn {
    /// The request has been answered, or not.
    pub fn end<T>(self, result: &Result<T, Fault>) {
        self.pass.end(match result {
            Err(Fault::Lost(_)) => RequestResult::Failed,
            _ => RequestResult::Done,
        });
    }

    /// Counts `bytes` of content as moved.
    pub fn moved(&self, bytes: u64) {
        self.pass.moved(bytes);
    }

    /// It waits for us.
    pub fn waits(&mut self, waits: bool) {
        self.pass.waits(waits);
    }
}

impl Service {
    /// A turn for a request of this kind that moves `bytes` bytes of content.
    ///
    /// Errors: login failed.
    pub async fn turn(&self, kind: &'static str, direction: Direction, bytes: u64) -> Result<SessionTurn> {
        self.gate.pass().await;
        let pass = self.lanes.lane(direction).enter().await;
        let claim = self.pool.claim(bytes).await?;
        self.meters.request(kind);
        Ok(SessionTurn { pass, claim })
    }

    /// Asks one question.
    ///
    /// Errors: what the server said instead.
    pub async fn ask<T>(
        &self,
        kind: &'static str,
        work: impl AsyncFnOnce(&Claim) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let turn = self.turn(kind, Direction::Meta, 0).await?;
        let result = work(&turn.claim).await;
        turn.end(&result);
        result
    }

    /// Where a key is.
    ///
    /// Errors: `Invalid` for what can't be a name there.
    pub fn path(&self, key: &Key) -> Result<Vec<u8>> {
        below(&self.root, key)
    }

    /// Where it is for a shell, which may see other directories than SFTP does.
    ///
    /// Errors: as [`Service::path`].
    pub fn for_shell(&self, key: &Key) -> Result<Vec<u8>> {
        let Some(place) = &self.commands.place else { return self.path(key) };
        match place.strip_prefix('@') {
            Some(before) => Ok([before.trim_end_matches('/').as_bytes(), b"/", &self.path(key)?].concat()),
            None => below(format!("{}/", place.trim_end_matches('/')).as_bytes(), key),
        }
    }

    /// Facts of a name: what a symlink leads to where it is followed and leads somewhere, else its own.
    ///
    /// Errors: `NO_SUCH_FILE`, and others.
    pub async fn facts(&self, path: &[u8], follow: bool) -> Result<Attrs, Fault> {
        self.ask("Lstat", async |channel| {
            let own = pool::attrs(channel.ask(&Request::Lstat(path))).await?;
            if !(own.is_link() && follow) {
                return Ok(own);
            }
            match pool::attrs(channel.ask(&Request::Stat(path))).await {
                Err(fault) if fault.is(status::NO_SUCH_FILE) => Ok(own),
                other => other,
            }
        })
        .await
    }

    /// Symlinks are what they lead to.
    pub fn follows(&self) -> bool {
        match self.links {
            Links::Skip => !self.skip_links,
            Links::Follow => true,
            Links::Keep => false,
            Links::By(_) => self.links.follows_dirs(),
        }
    }

    /// The entry of what is called `plain` (which ends in no `/`); `None` where what there is isn't known.
    pub fn entry(&self, plain: &Key, attrs: &Attrs, meta: bool) -> Option<Entry> {
        attrs.mode?;
        let (key, kind) = match () {
            () if attrs.is_dir() => (if plain.is_root() { plain.clone() } else { plain.with_suffix("/") }, Kind::Dir),
            () if attrs.is_file() => (plain.clone(), Kind::File),
            () if attrs.is_link() && self.links.keeps() => (Key::symlink(plain.as_bytes()), Kind::Symlink),
            () => (plain.clone(), Kind::Special),
        };
        let has_bytes = matches!(kind, Kind::File | Kind::Symlink);
        let size = if has_bytes { attrs.size? } else { 0 };
        let mtime = attrs.times.map(|(_, mtime)| Mtime::new(mtime.into(), 0));
        Some(Entry {
            kind,
            mtime,
            version: has_bytes.then(|| version(attrs)),
            meta: meta.then(|| Box::new(meta_of(attrs))),
            ..Entry::file(key, size)
        })
    }

    /// Directories that are known to be there.
    pub fn made(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directories that are known to be none behind a symlink.
    pub fn real(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.real.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a key is below a root.
///
/// Errors: `Invalid` for what can't be a name there.
pub fn below(root: &[u8], key: &Key) -> Result<Vec<u8>> {
    let plain = key.path();
    if key.is_root() {
        return Ok(match root {
            b"" => b".".to_vec(),
            b"/" => b"/".to_vec(),
            root => root.strip_suffix(b"/").unwrap_or(root).to_vec(),
        });
    }
    if plain.split(|b| *b == b'/').any(is_odd) {
        return Err(Error::new(ErrorKind::Invalid, "name", "this can't be the name of a file").with_key(key));
    }
    Ok([root, plain].concat())
}

/// Version of content: size and time. SFTP has no inode numbers, and only whole seconds.
pub fn version(attrs: &Attrs) -> Version {
    let (size, time) = (attrs.size.unwrap_or(0), attrs.times.map_or(0, |(_, mtime)| mtime));
    Version::new([&size.to_be_bytes()[..], &time.to_be_bytes()[..]].concat())
}

fn meta_of(attrs: &Attrs) -> Meta {
    let mut meta = Meta::new();
    if let Some(mode) = attrs.mode {
        meta.insert("mode".into(), format!("{mode:o}"));
    }
    if let Some((uid, gid)) = attrs.owner {
        meta.insert("uid".into(), uid.to_string());
        meta.insert("gid".into(), gid.to_string());
    }
    if let Some((atime, mtime)) = attrs.times {
        for (name, time) in [("atime", atime), ("mtime", mtime)] {
            if let Ok(time) = jiff::Timestamp::from_second(time.into()) {
                meta.insert(name.into(), time.to_string());
            }
        }
    }
    meta
}

/// Attributes to set, apart from the owner, which not everybody may set.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeChange {
    /// Permissions and times.
    pub attrs: Attrs,
    /// The owner and group.
    pub owner: Option<(u32, u32)>,
}

impl AttributeChange {
    /// The attributes for an mtime and metadata.
    ///
    /// Errors: `Invalid` for a time that SFTP can't represent.
    pub fn new(key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>, keep_setid: bool) -> Result<AttributeChange> {
        let number = |name: &str| meta?.get(name)?.parse::<u32>().ok();
        let time = |name: &str| {
            let time: jiff::Timestamp = meta?.get(name)?.parse().ok()?;
            Some(Mtime(time.as_nanosecond()))
        };
        let mode = meta.and_then(|meta| u32::from_str_radix(meta.get("mode")?, 8).ok());
        let mode = mode.map(|mode| mode & if keep_setid { MODE } else { 0o777 });
        let times = match mtime.or_else(|| time("mtime")) {
            None => None,
            Some(mtime) => {
                let seconds = u32::try_from(mtime.secs()).map_err(|_| {
                    let message = "SFTP has no times before 1970 or after 2106: set another (touch)";
                    Error::new(ErrorKind::Invalid, "write", message).with_key(key)
                })?;
                let atime = time("atime").and_then(|time| u32::try_from(time.secs()).ok());
                let now = || u32::try_from(jiff::Timestamp::now().as_second()).unwrap_or(seconds);
                Some((atime.unwrap_or_else(now), seconds))
            }
        };
        let owner = number("uid").zip(number("gid"));
        Ok(AttributeChange { attrs: Attrs { mode, times, ..Attrs::default() }, owner })
    }

    /// Nothing.
    pub fn is_empty(&self) -> bool {
        self.attrs == Attrs::default() && self.owner.is_none()
    }
}

/// Turns a fault into the error of `op` on `key`.
pub fn at<'a>(op: &'static str, key: &'a Key) -> impl Fn(Fault) -> Error + 'a {
    move |fault| match fault {
        Fault::Lost(error) => error.with_key(key),
        Fault::Status(code, words) => refused(op, code, &words).with_key(key),
    }
}

fn refused(op: &'static str, code: u32, words: &str) -> Error {
    let lower = words.to_lowercase();
    let says = |text: &str| lower.contains(text);
    let (kind, message) = match code {
        status::NO_SUCH_FILE => (ErrorKind::NotFound, "no such file or directory"),
        status::PERMISSION_DENIED => (ErrorKind::Denied, "the server says: permission denied"),
        status::UNSUPPORTED => (ErrorKind::Unsupported, "the server can't do this"),
        // So OpenSSH answers to names that are too long, and others to those that they can't have.
        status::BAD_MESSAGE => {
            (ErrorKind::Invalid, "the server can't have this: the name may be too long or not valid")
        }
        _ if says("no space") || says("quota") || says("disk full") => (ErrorKind::NoSpace, "no space is left there"),
        _ if says("not empty") => (ErrorKind::Exists, "the directory isn't empty"),
        _ if says("exist") && !says("not exist") => (ErrorKind::Exists, "is there already"),
        _ => {
            let words = if words.is_empty() { "failure" } else { words };
            let message = format!("the server says: {} (code {code})", words.trim_end_matches('.'));
            return Error::new(ErrorKind::Io, op, message).with_retry(Retry::Never);
        }
    };
    Error::new(kind, op, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_below_the_root() {
        let path = |root: &str, key: &str| {
            below(root.as_bytes(), &Key::new(key)).map(|path| String::from_utf8(path).unwrap()).ok()
        };
        assert_eq!(path("", "").as_deref(), Some("."));
        assert_eq!(path("/", "").as_deref(), Some("/"));
        assert_eq!(path("d/", "").as_deref(), Some("d"));
        assert_eq!(path("d/", "a/b/").as_deref(), Some("d/a/b"));
        for odd in ["../x", "a/../b", "a//b", "/a", "a/./b", "a\0b"] {
            assert_eq!(path("d/", odd), None, "{odd:?}");
        }
        assert_eq!(below(b"d/", &Key::symlink("l")).unwrap(), b"d/l");
    }

    #[test]
    fn what_servers_say_has_its_meaning() {
        let refusal = |code, words: &str| {
            let error = refused("write", code, words);
            (error.kind(), error.message().to_owned())
        };
        assert_eq!(refusal(2, "x"), (ErrorKind::NotFound, "no such file or directory".into()));
        assert_eq!(refusal(3, "x"), (ErrorKind::Denied, "the server says: permission denied".into()));
        assert_eq!(refusal(4, "write /x: no space left on device").0, ErrorKind::NoSpace);
        assert_eq!(refusal(4, "Disk quota exceeded").0, ErrorKind::NoSpace);
        assert_eq!(refusal(4, "mkdir /x: file exists").0, ErrorKind::Exists);
        assert_eq!(refusal(4, "Failure"), (ErrorKind::Io, "the server says: Failure (code 4)".into()));
        assert_eq!(refusal(9, ""), (ErrorKind::Io, "the server says: failure (code 9)".into()));
        assert_eq!(refusal(4, "file does not exist").0, ErrorKind::Io);
    }

    #[test]
    fn a_time_that_sftp_lacks_is_refused() {
        let wish = |secs| AttributeChange::new(&Key::new("f"), Some(Mtime::new(secs, 5)), None, false);
        assert_eq!(wish(0).unwrap().attrs.times.unwrap().1, 0);
        assert_eq!(wish(u32::MAX.into()).unwrap().attrs.times.unwrap().1, u32::MAX);
        for secs in [-1, i64::from(u32::MAX) + 1] {
            let message = "f: write: SFTP has no times before 1970 or after 2106: set another (touch)";
            assert_eq!(wish(secs).unwrap_err().to_string(), message);
        }
        let meta =
            Meta::from([("mode".into(), "104755".into()), ("uid".into(), "7".into()), ("gid".into(), "8".into())]);
        let wish = AttributeChange::new(&Key::new("f"), None, Some(&meta), false).unwrap();
        assert_eq!((wish.attrs.mode, wish.owner, wish.attrs.times), (Some(0o755), Some((7, 8)), None));
    }
}
