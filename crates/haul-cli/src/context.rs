//! What every command is given: flags, configuration, counters, display, and the way from a typed remote to a store.

use crate::{
    app::{BackendFlags, Given, env},
    bwlimit,
    config::{Config, Password, paths},
    error::{Outcome, code},
    flags::{self, Flags},
    journal,
    progress::Progress,
    remote::{Place, Resolved, Resolver, Spec},
    screen::Screen,
};
use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use haul::{
    Cancel,
    index::{FileHashes, Known, Settings},
};
use haul_core::{Error, ErrorKind, Key, Listed};
use haul_store::{
    ListRequest, Meters, Net, OpenRequest, OptionKind, Store,
    layers::{LayerSettings, Stop, stack, with_links},
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

/// How many remotes may be made on one another, so that a loop ends.
const MAX_WRAPPED: usize = 8;

/// The surroundings of one command.
pub struct Context {
    /// Flags that stand before or after any command.
    pub flags: Flags,
    /// Counts requests and retries of everything that the run opens.
    pub meters: Arc<Meters>,
    /// Stops jobs; set by Ctrl-C.
    pub cancel: Cancel,
    /// The sink of every job: display, log lines, summary.
    pub progress: Arc<Progress>,
    /// The terminal.
    pub screen: Arc<Screen>,
    /// The command line, in order.
    pub line: Vec<OsString>,
    /// The line isn't a person's but a job's, which `resume` runs again.
    pub resumes: bool,
    backends: BackendFlags,
    net: Net,
    layers: LayerSettings,
    config: OnceLock<Config>,
    hashes: Arc<OnceLock<Arc<FileHashes>>>,
}

impl Context {
    /// The surroundings that the flags ask for. Reads no file: a copy between local disks needs no configuration.
    pub fn new(flags: Flags, backends: BackendFlags, line: Vec<OsString>, screen: Arc<Screen>) -> Result<Context> {
        let meters = Arc::new(Meters::default());
        let net = flags::net(&flags);
        let progress = Progress::start(&flags, screen.clone(), meters.clone(), net.roads.clone());
        let cancel = Cancel::default();
        let rate = flags.network.bwlimit.clone().map(|table| bwlimit::follow(table, &cancel));
        let stop = {
            let cancel = cancel.clone();
            Stop::new(move || {
                let cancel = cancel.clone();
                Box::pin(async move { cancel.cancelled().await })
            })
        };
        let mut layers = LayerSettings { rate, stop: Some(stop), ..LayerSettings::default() };
        if let Some(tries) = flags.pace.low_level_retries {
            (layers.tries, layers.tries_unanswered) = (tries, tries);
        }
        let (config, hashes) = (OnceLock::new(), Arc::default());
        let resumes = false;
        Ok(Context { flags, meters, cancel, progress, screen, line, resumes, backends, net, layers, config, hashes })
    }

    /// The surroundings of another command line, to open what it opens; display, counters and layers stay these.
    pub fn of(&self, given: Given) -> Context {
        let Given { cli, backends, line } = given;
        let (meters, cancel, progress) = (self.meters.clone(), self.cancel.clone(), self.progress.clone());
        let (net, layers, screen) = (flags::net(&cli.flags), self.layers.clone(), self.screen.clone());
        let (config, hashes) = (OnceLock::new(), self.hashes.clone());
        let (flags, resumes) = (cli.flags, false);
        Context { flags, meters, cancel, progress, screen, line, resumes, backends, net, layers, config, hashes }
    }

    /// The same surroundings with some flags changed: what they say of connections, links and bandwidth holds for what is
    /// opened from here on.
    pub fn with_flags(&self, change: impl FnOnce(&mut Flags)) -> Context {
        let mut flags = self.flags.clone();
        change(&mut flags);
        let (meters, cancel, progress) = (self.meters.clone(), self.cancel.clone(), self.progress.clone());
        let (net, mut layers, screen) = (flags::net(&flags), self.layers.clone(), self.screen.clone());
        if let Some(table) = flags.network.bwlimit.clone().filter(|_| layers.rate.is_none()) {
            layers.rate = Some(bwlimit::follow(table, &cancel));
        }
        let (line, backends, config) = (self.line.clone(), self.backends.clone(), OnceLock::new());
        let (hashes, resumes) = (self.hashes.clone(), self.resumes);
        Context { flags, meters, cancel, progress, screen, line, resumes, backends, net, layers, config, hashes }
    }

    /// The folder for journals; `None` when there is none to keep them in.
    pub fn journals(&self) -> Option<PathBuf> {
        paths::journals(self.flags.config.state_dir.as_ref(), &env, paths::home().as_deref())
    }

    /// The folder for what haul remembers; `None` when there is none.
    pub fn state(&self) -> Option<PathBuf> {
        paths::state(self.flags.config.state_dir.as_ref(), &env, paths::home().as_deref())
    }

    /// Hashes of files on disk that earlier runs computed.
    pub fn hashes(&self) -> Arc<FileHashes> {
        let load = || Arc::new(FileHashes::load(self.state().map(|state| state.join("hashes"))));
        self.hashes.get_or_init(load).clone()
    }

    /// What jobs may go by of what earlier runs found out: nothing without `--index` or `--verify-index`.
    pub fn known(&self) -> Known {
        let flags = &self.flags.config;
        if flags.no_index || !(flags.index || flags.verify_index) {
            return Known::default();
        }
        let index = self.index(false);
        Known { hashes: Some(self.hashes()), index }
    }

    /// The same for remotes whose keys are named by their content, with `--index` or without, but not with `--no-index`.
    pub fn known_content(&self) -> Known {
        let index = if self.flags.config.no_index { None } else { self.index(true) };
        Known { index, ..self.known() }
    }

    /// Where indexes of destinations are; of those whose keys are named by their content, if so.
    fn index(&self, content: bool) -> Option<Settings> {
        let folder = self.state()?.join("index");
        Some(Settings { folder, verify: self.flags.config.verify_index, content, seed: None, minute: None })
    }

    /// Keeps hashes that this run computed for the next one.
    pub fn keep_hashes(&self) {
        if let Some(hashes) = self.hashes.get() {
            hashes.save();
        }
    }

    /// The configuration, read when it is first asked for.
    pub fn config(&self) -> Result<&Config> {
        if self.config.get().is_none() {
            // Two threads may both read it; the first to finish counts.
            let _ = self.config.set(self.load_config()?);
        }
        self.config.get().ok_or_else(|| anyhow::anyhow!("the configuration can't be kept"))
    }

    /// Where the config files are.
    pub fn places(&self) -> paths::Places {
        paths::places(self.flags.config.config.as_ref(), &env, paths::home().as_deref())
    }

    /// The configuration, read afresh, for a command that changes it.
    pub fn load_config(&self) -> Result<Config> {
        let places = self.places();
        let password = Password {
            command: self.flags.config.password_command.clone(),
            env: env("HAUL_CONFIG_PASS").or_else(|| env("RCLONE_CONFIG_PASS")),
            ask: self.flags.config.ask_password,
        };
        Config::load(&places, password)
    }

    /// Opens what the user typed as a folder, bucket or remote root. That it exists isn't checked.
    pub fn open(&self, typed: &OsStr) -> Result<Arc<dyn Store>> {
        self.open_resolved(self.resolve(&Spec::parse(typed.as_bytes())?)?)
    }

    /// Opens what another program's configuration names, as if it were typed so.
    pub fn open_spec(&self, spec: &Spec) -> Result<Arc<dyn Store>> {
        self.open_resolved(self.resolve(spec)?)
    }

    /// Opens what the user typed as a source: when it names one file, the store is of the folder that holds it, and the
    /// key is the file's.
    pub async fn open_source(&self, typed: &OsStr) -> Result<(Arc<dyn Store>, Option<Key>)> {
        let spec = Spec::parse(typed.as_bytes())?;
        let resolved = self.resolve(&spec)?;
        let store = self.open_resolved(resolved.clone())?;
        // A bare remote is never a file; nor is a bucket alone. What is made on another remote has no buckets.
        let Some((parent, leaf)) = split(&spec.path).and_then(|_| split(&resolved.path)) else {
            return Ok((store, None));
        };
        if parent.is_empty() && !store.caps().dirs && !resolved.kind.wraps() {
            return Ok((store, None));
        }
        let parent = self.open_resolved(Resolved { path: parent.to_vec(), ..resolved.clone() })?;
        let file = if store.caps().dirs { file(&*parent, leaf).await? } else { key(&*parent, leaf).await? };
        Ok(if file.is_some() { (parent, file) } else { (store, None) })
    }

    /// Opens the folder of what the user typed as one file's destination; the key is the file's.
    pub fn open_parent(&self, typed: &OsStr) -> Result<(Arc<dyn Store>, Key)> {
        let spec = Spec::parse(typed.as_bytes())?;
        let resolved = self.resolve(&spec)?;
        let Some((parent, leaf)) = split(&spec.path).and_then(|_| split(&resolved.path)) else {
            let message = format!("{} names a folder: give the file a name", journal::told(typed));
            return Err(crate::error::usage(message));
        };
        let (parent, key) = (parent.to_vec(), Key::new(leaf));
        Ok((self.open_resolved(Resolved { path: parent, ..resolved })?, key))
    }

    fn resolve(&self, spec: &Spec) -> Result<Resolved> {
        Resolver { config: &|| self.config(), flags: &self.backends, env: &env }.resolve(spec)
    }

    /// Opens what the user typed as the place of packs: files then go into packs there. A pack remote is that already.
    pub fn open_packed(&self, typed: &OsStr) -> Result<Arc<dyn Store>> {
        let resolved = self.resolve(&Spec::parse(typed.as_bytes())?)?;
        if resolved.kind.wraps() {
            return self.open_resolved(resolved);
        }
        let place = Place::Backend { kind: haul_store::pack::KIND.name.into(), options: BTreeMap::new() };
        let pack = self.resolve(&Spec { place, path: Vec::new() })?;
        let wrapped = [("remote".to_string(), self.open_nested(resolved, MAX_WRAPPED)?)].into();
        Ok(with_links(self.open_on(pack, wrapped)?, flags::links(&self.flags)))
    }

    fn open_resolved(&self, resolved: Resolved) -> Result<Arc<dyn Store>> {
        Ok(with_links(self.open_nested(resolved, MAX_WRAPPED)?, flags::links(&self.flags)))
    }

    fn open_nested(&self, resolved: Resolved, left: usize) -> Result<Arc<dyn Store>> {
        let mut wrapped = BTreeMap::new();
        for option in resolved.kind.options.iter().filter(|option| option.kind == OptionKind::Remote) {
            let Some(text) = resolved.options.get(option.name).filter(|text| !text.is_empty()) else { continue };
            let name = &resolved.remote;
            if left == 0 {
                anyhow::bail!("remote {name:?} is made on itself, through {MAX_WRAPPED} others");
            }
            let inner = Spec::parse(text.as_bytes()).and_then(|spec| self.resolve(&spec));
            let inner = inner.with_context(|| format!("remote {name:?}, option {}", option.name))?;
            wrapped.insert(option.name.to_string(), self.open_nested(inner, left - 1)?);
        }
        self.open_on(resolved, wrapped)
    }

    fn open_on(&self, resolved: Resolved, wrapped: BTreeMap<String, Arc<dyn Store>>) -> Result<Arc<dyn Store>> {
        let wraps = resolved.kind.wraps();
        let store = (resolved.kind.open)(OpenRequest {
            remote: resolved.remote,
            path: resolved.path,
            options: resolved.options,
            net: self.net.clone(),
            meters: self.meters.clone(),
            links: flags::links(&self.flags),
            own_links: self.flags.meta.own_links,
            wrapped,
        })?;
        // The layers are around what it is made on.
        Ok(if wraps { store } else { stack(store, &self.layers, &self.meters) })
    }

    /// Runs a command until it ends or the user stops it. One that `finishes_itself` is told to stop and ends in its own
    /// order; any other is dropped.
    pub async fn until_stopped(
        &self,
        finishes_itself: bool,
        command: impl Future<Output = Result<Outcome>>,
    ) -> Result<Outcome> {
        let outcome = if finishes_itself {
            command.await
        } else {
            tokio::select! {
                outcome = command => outcome,
                () = self.cancel.cancelled() => return Ok(Outcome::Exit(code::INTERRUPTED)),
            }
        };
        match outcome {
            // What it met on its way out is no news.
            Err(_) if self.cancel.is_cancelled() => Ok(Outcome::Exit(code::INTERRUPTED)),
            outcome => outcome,
        }
    }
}

/// A path's folder and last name; `None` when it can only be a folder.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let (parent, leaf) = path.split_at(at);
    if matches!(leaf, b"" | b"." | b"..") {
        return None;
    }
    // The slash between the two belongs to neither, but the root keeps its own; and where two come together the folder's name
    // is empty, which a folder that ends in one slash alone would not say.
    let keeps = parent.len() < 2 || parent.ends_with(b"//");
    Some((if keeps { parent } else { &parent[..parent.len() - 1] }, leaf))
}

/// The key of the file or symlink that is called so, as far as there is one.
async fn file(parent: &dyn Store, name: &[u8]) -> Result<Option<Key>> {
    for key in keys_of(parent, name) {
        match parent.stat(&key).await {
            Ok(entry) if entry.has_bytes() => return Ok(Some(key)),
            Ok(_) => {}
            // What isn't there is told by the command, in its own words, when it opens it as a folder.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound | ErrorKind::Invalid) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}

/// The keys that what is called so may have: where symlinks are kept, one goes by the name that it is stored under.
fn keys_of(parent: &dyn Store, name: &[u8]) -> impl Iterator<Item = Key> {
    let link = Some(Key::of_stored(name)).filter(|key| key.is_symlink() && parent.caps().symlinks);
    std::iter::once(Key::new(name)).chain(link)
}

/// The same by one listing, which tells a key from a prefix; where keys may be read but not listed, questions do.
async fn key(parent: &dyn Store, name: &[u8]) -> Result<Option<Key>> {
    let request = ListRequest { prefix: name.to_vec(), recursive: true, limit: Some(1), ..ListRequest::default() };
    let mut listing = parent.list(request);
    while let Some(step) = listing.next().await {
        match step {
            // The key itself sorts before all that it is a prefix of.
            Listed::Batch(entries) => match entries.into_iter().next() {
                Some(entry) => return Ok(Some(entry.key).filter(|key| key.stored() == name && !key.is_dir())),
                None => continue,
            },
            Listed::Failed { error, .. } if error.kind() == ErrorKind::Denied => return file(parent, name).await,
            Listed::Failed { error, .. } => return Err(error.into()),
            Listed::End => return Ok(None),
        }
    }
    Err(Error::new(ErrorKind::Io, "list", "the listing was cut off").with_key(&Key::new(name)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_splits_into_folder_and_name() {
        for (path, parts) in [
            ("a/b/c", Some(("a/b", "c"))),
            ("a", Some(("", "a"))),
            ("/a", Some(("/", "a"))),
            ("a//b", Some(("a//", "b"))),
            ("a///b", Some(("a///", "b"))),
            ("//b", Some(("//", "b"))),
            ("a/", None),
            ("", None),
            ("/", None),
            ("..", None),
            ("a/.", None),
        ] {
            let parts = parts.map(|(p, l)| (p.as_bytes(), l.as_bytes()));
            assert_eq!(split(path.as_bytes()), parts, "{path}");
        }
    }
}
