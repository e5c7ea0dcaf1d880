//! One session a process: it knows the configuration, and all that it opens shares one limit of requests, one table of
//! lanes, one pool of buffers and one meter of bandwidth.

mod source;

#[cfg(feature = "ssh")]
use crate::far_host;
use crate::{
    Environment, Error, Result,
    config::{Config, ConfigPaths, ConfigSection, Password, paths},
    options::{ResolvedRemote, Resolver, StoreFlags},
    secrets,
    spec::{Location, Spec},
};
use haul_core::Key;
use haul_store::{
    Consent, Gate, Links, Meters, Net, OpenRequest, OptionKind, Proxies, Section, SharedObjects, Store,
    layers::{LayerSettings, rate::Rate, stack, with_links},
};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::RwLock;

/// How many remotes may be made on one another, so that a loop ends.
const MAX_WRAPPED: usize = 8;

/// Settings of a front end, for the whole session. By default there is no configuration and no limit.
#[derive(Clone, Default)]
pub struct Settings {
    /// The config files.
    pub places: ConfigPaths,
    /// The password of an encrypted one.
    pub password: Password,
    /// Variables that define remotes and set options.
    pub environment: Environment,
    /// Options of stores from the command line.
    pub flags: StoreFlags,
    /// Time limits, TLS, the limit of requests, lanes and buffers of all network stores.
    pub net: Net,
    /// Retries, bandwidth and the end of the run.
    pub layers: LayerSettings,
    /// Counts requests and retries of all stores.
    pub meters: Arc<Meters>,
    /// Asks a person before something is done that nobody asked for; `None` where there is nobody to ask.
    pub consent: Option<Consent>,
}

impl Settings {
    /// Those that the environment has for every front end: config files and their password, remotes and options.
    pub fn from_environment(environment: Environment) -> Settings {
        Settings {
            places: paths::places(None, &environment),
            password: Password::from_environment(&environment),
            environment,
            ..Settings::default()
        }
    }
}

/// A caller's options for the stores that it opens. The remotes that a remote wraps are opened the same way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// How symlinks are treated.
    pub links: Links,
    /// Symbolic links on the way to a folder on disk are followed only where they belong to root or this user.
    pub own_links: bool,
    /// Files go into packs there. A pack remote is that already.
    pub pack: bool,
    /// What is deleted goes for good where the service lets one choose, and doesn't stay in a trash: for what this process itself made.
    pub for_good: bool,
    /// Give up connecting after this long, instead of the session's time.
    pub connect_timeout: Option<Duration>,
    /// Give up when nothing moves for this long, instead of the session's time.
    pub idle_timeout: Option<Duration>,
}

/// Opens stores by name.
pub struct Session {
    settings: Settings,
    /// Set once: by the settings, or by the first who limits it later.
    rate: OnceLock<Arc<Rate>>,
    config: OnceLock<Config>,
    shared: SharedObjects,
    /// See [`ConfigSection::in_use`].
    in_use: Arc<RwLock<()>>,
}

impl Session {
    /// A session with these settings. Reads no file: a copy between local disks needs no configuration.
    pub fn new(settings: Settings) -> Session {
        let rate = settings.layers.rate.clone().map_or_else(OnceLock::new, OnceLock::from);
        let (config, shared) = (OnceLock::new(), SharedObjects::default());
        Session { settings, rate, config, shared, in_use: Arc::default() }
    }

    /// A session for what must not wait in line behind the data of this one: without its limits, and with lanes of its own.
    pub fn apart(&self) -> Session {
        let net = Net { gate: Arc::new(Gate::open()), roads: Arc::default(), ..self.settings.net.clone() };
        let layers = LayerSettings { rate: None, ..self.settings.layers.clone() };
        let (in_use, shared) = (self.in_use.clone(), self.shared.apart());
        Session { in_use, shared, ..Session::new(Settings { net, layers, ..self.settings.clone() }) }
    }

    /// Another configuration, with flags, time limits and certificates of its own, under the limits of this session: its
    /// gate, lanes, buffers, bandwidth, retries and meters count for both.
    pub fn beside(&self, other: Settings) -> Session {
        let Net { gate, roads, buffers, .. } = self.settings.net.clone();
        let (layers, meters) = (self.settings.layers.clone(), self.settings.meters.clone());
        let settings = Settings { net: Net { gate, roads, buffers, ..other.net }, layers, meters, ..other };
        let (rate, shared, in_use) = (self.rate.clone(), self.shared.clone(), self.in_use.clone());
        Session { settings, rate, config: OnceLock::new(), shared, in_use }
    }

    /// Waits until every token that is being renewed is kept, but no longer than this. For the end of a program, even one that was told
    /// to stop: a service may have taken the old token back.
    pub async fn tokens_are_kept(&self, within: Duration) {
        // Later than that, the next run has to log in.
        let _ = tokio::time::timeout(within, self.in_use.write()).await;
    }

    /// This session, which reads the configuration again: for a front end that has just changed it.
    pub fn reread(&self) -> Session {
        self.beside(self.settings.clone())
    }

    /// Asks a person whether haul may be installed at `host`, to which `far` leads, after opening that failed with this error: yes means
    /// with the option `install_far_end`. No if haul isn't what is missing, or if the user has said so.
    ///
    /// Errors: as for [`Session::open`]; the person stopped the run.
    #[cfg(feature = "ssh")]
    pub async fn may_install(&self, far: impl AsRef<OsStr>, host: &str, error: &haul_core::Error) -> Result<bool> {
        let ResolvedRemote { options, .. } = self.resolve(&Spec::parse(far.as_ref().as_bytes())?)?;
        Ok(far_host::may_install(&options, self.settings.consent.as_ref(), host, error).await?)
    }

    /// Always no: this build has no ssh.
    ///
    /// Errors: none.
    #[cfg(not(feature = "ssh"))]
    pub async fn may_install(&self, _far: impl AsRef<OsStr>, _host: &str, _error: &haul_core::Error) -> Result<bool> {
        Ok(false)
    }

    /// From here on nobody is asked anything that a store may ask: for a command that finds out late that no person waits for it.
    pub fn ask_nobody(&self) {
        if let Some(consent) = &self.settings.consent {
            consent.silence();
        }
    }

    /// Limits the bandwidth of all that is opened from here on, unless it is limited already.
    pub fn limit_bandwidth(&self, rate: Arc<Rate>) {
        // The first limit counts.
        let _ = self.rate.set(rate);
    }

    /// Where the config files are.
    pub fn places(&self) -> &ConfigPaths {
        &self.settings.places
    }

    /// The environment that the front end saw.
    pub fn environment(&self) -> &Environment {
        &self.settings.environment
    }

    /// The configuration, read at the first request.
    ///
    /// Errors: as for [`Config::load`].
    pub fn config(&self) -> Result<&Config> {
        match self.config.get() {
            Some(config) => Ok(config),
            None => {
                let loaded = self.load_config()?;
                // Two threads may both read it; the first to finish counts.
                Ok(self.config.get_or_init(|| loaded))
            }
        }
    }

    /// The configuration, read again, for a command that changes it.
    ///
    /// Errors: as for [`Config::load`].
    pub fn load_config(&self) -> Result<Config> {
        Config::load(&self.settings.places, self.settings.password.clone())
    }

    /// True for the name of a remote: one that a file or variable configures, or a kind that needs no configuration.
    ///
    /// Errors: as for [`Config::load`].
    pub fn is_remote(&self, name: &str) -> Result<bool> {
        let Settings { flags, environment, .. } = &self.settings;
        Resolver { config: &|| self.config(), flags, environment }.is_remote(name)
    }

    /// Opens what a user typed as a folder, bucket or remote root. That it exists isn't checked.
    ///
    /// Errors: it can't be meant, names no remote, or has an option that can't be used.
    pub fn open(&self, typed: impl AsRef<OsStr>, options: &OpenOptions) -> Result<Arc<dyn Store>> {
        self.open_spec(&Spec::parse(typed.as_ref().as_bytes())?, options)
    }

    /// Opens a store named by another program's configuration, as if it were typed so.
    ///
    /// Errors: as for [`Session::open`].
    pub fn open_spec(&self, spec: &Spec, options: &OpenOptions) -> Result<Arc<dyn Store>> {
        self.open_resolved(self.resolve(spec)?, options)
    }

    /// Opens a source as a user typed it: when it names one file, the store is of the folder that holds it, and the key is
    /// the file's.
    ///
    /// Errors: as for [`Session::open`]; the store can't say whether it is a file.
    pub async fn open_source(
        &self,
        typed: impl AsRef<OsStr>,
        options: &OpenOptions,
    ) -> Result<(Arc<dyn Store>, Option<Key>)> {
        let spec = Spec::parse(typed.as_ref().as_bytes())?;
        let resolved = self.resolve(&spec)?;
        let store = self.open_resolved(resolved.clone(), options)?;
        // A bare remote is never a file; nor is a bucket alone. What is made on another remote has no buckets.
        let Some((parent, leaf)) = source::split(&spec.path).and_then(|_| source::split(&resolved.path)) else {
            return Ok((store, None));
        };
        if parent.is_empty() && !store.caps().dirs && !resolved.kind.wraps() {
            return Ok((store, None));
        }
        let parent = self.open_resolved(ResolvedRemote { path: parent.to_vec(), ..resolved.clone() }, options)?;
        let file = match store.caps().dirs {
            true => source::file(&*parent, leaf).await?,
            false => source::key(&*parent, leaf).await?,
        };
        Ok(if file.is_some() { (parent, file) } else { (store, None) })
    }

    /// Asks for what is at an address of the web. What comes of it isn't behind this session's layers: see [`Session::layered`].
    ///
    /// Errors: it is no address; the server's.
    #[cfg(feature = "http")]
    pub async fn find(&self, url: &str) -> haul_core::Result<haul_http::address::UrlFacts> {
        let request = OpenRequest {
            remote: haul_http::KIND.name.into(),
            path: Vec::new(),
            options: BTreeMap::new(),
            net: self.net(),
            meters: self.settings.meters.clone(),
            links: Links::default(),
            own_links: false,
            wrapped: BTreeMap::new(),
            section: None,
            shared: self.shared.clone(),
            consent: self.settings.consent.clone(),
        };
        haul_http::address::find(request, url).await
    }

    /// A store that a caller made, with retries and limits of bandwidth as all of this session.
    pub fn layered(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let layers = LayerSettings { rate: self.rate.get().cloned(), ..self.settings.layers.clone() };
        stack(store, &layers, &self.settings.meters)
    }

    /// Opens the folder of one file's destination as a user typed it; the key is the file's.
    ///
    /// Errors: as for [`Session::open`]; it can only be a folder.
    pub fn open_parent(&self, typed: impl AsRef<OsStr>, options: &OpenOptions) -> Result<(Arc<dyn Store>, Key)> {
        let typed = typed.as_ref();
        let spec = Spec::parse(typed.as_bytes())?;
        let resolved = self.resolve(&spec)?;
        let Some((parent, leaf)) = source::split(&spec.path).and_then(|_| source::split(&resolved.path)) else {
            let shown = secrets::shown(typed);
            return Err(Error::Typed(format!("{shown} names a directory: give the file a name")));
        };
        let (parent, key) = (parent.to_vec(), Key::new(leaf));
        Ok((self.open_resolved(ResolvedRemote { path: parent, ..resolved }, options)?, key))
    }

    /// Where a remote's token is kept, if it has one and this is it: what is typed or in a variable is kept nowhere.
    fn section(&self, resolved: &ResolvedRemote) -> Result<Option<Arc<dyn Section>>> {
        let Some(token) = resolved.options.get("token") else { return Ok(None) };
        let config = self.config()?;
        let Some(source) = config.source(&resolved.remote) else { return Ok(None) };
        if source.ini.get(&resolved.remote, "token").as_ref() != Some(token) {
            return Ok(None);
        }
        let (path, secret, password) = (source.path.clone(), source.secret.clone(), config.password().clone());
        let (remote, in_use) = (resolved.remote.clone(), self.in_use.clone());
        Ok(Some(Arc::new(ConfigSection { path, secret, password, remote, in_use })))
    }

    fn resolve(&self, spec: &Spec) -> Result<ResolvedRemote> {
        let Settings { flags, environment, .. } = &self.settings;
        let resolved = Resolver { config: &|| self.config(), flags, environment }.resolve(spec)?;
        if !resolved.lacking.is_empty() && self.shared.tells(&format!("{} lacks options", resolved.remote)) {
            for option in &resolved.lacking {
                tracing::warn!(
                    "{}: a store of type {} has no option {option:?}: without effect in haul",
                    resolved.remote,
                    resolved.kind.name
                );
            }
        }
        Ok(resolved)
    }

    fn open_resolved(&self, resolved: ResolvedRemote, options: &OpenOptions) -> Result<Arc<dyn Store>> {
        let packs = options.pack && !resolved.kind.wraps();
        let store = self.open_nested(resolved, options, MAX_WRAPPED)?;
        if !packs {
            return Ok(with_links(store, options.links));
        }
        let place = Location::Backend { kind: "pack".into(), options: BTreeMap::new() };
        let pack = self.resolve(&Spec { place, path: Vec::new() })?;
        let packed = self.open_on(pack, [("remote".to_string(), store)].into(), options)?;
        Ok(with_links(packed, options.links))
    }

    fn open_nested(&self, resolved: ResolvedRemote, options: &OpenOptions, left: usize) -> Result<Arc<dyn Store>> {
        let mut wrapped = BTreeMap::new();
        for option in resolved.kind.options.iter().filter(|option| option.kind == OptionKind::Remote) {
            let Some(text) = resolved.options.get(option.name).filter(|text| !text.is_empty()) else { continue };
            let name = &resolved.remote;
            if left == 0 {
                let why = format!("remote {name:?} is made on itself, through {MAX_WRAPPED} others");
                return Err(Error::Config(why));
            }
            let inner = Spec::parse(text.as_bytes()).and_then(|spec| self.resolve(&spec));
            let inner = inner.map_err(|e| e.within(format!("remote {name:?}, option {}", option.name)))?;
            // Symlinks are those of the store that is made on it: what is below it holds files.
            let below =
                OpenOptions { links: if options.links.keeps() { Links::Skip } else { options.links }, ..*options };
            wrapped.insert(option.name.to_string(), self.open_nested(inner, &below, left - 1)?);
        }
        self.open_on(resolved, wrapped, options)
    }

    /// Network state that the session's requests share, with proxies as they were typed, else as the environment says.
    pub fn net(&self) -> Net {
        let Settings { net, environment, meters, .. } = &self.settings;
        let variable = |name: &str| environment.get(name)?.into_string().ok();
        let proxies = if net.proxies.any() { net.proxies.clone() } else { Proxies::from_variables(variable) };
        let runtime = net.runtime.clone().or_else(|| environment.get("XDG_RUNTIME_DIR").map(PathBuf::from));
        Net { proxies, runtime, clock: meters.clock().clone(), ..net.clone() }
    }

    /// True where nothing below the address of a server was typed: what is meant is all that the remote has.
    ///
    /// Errors: it can't be meant.
    pub fn is_whole_server(&self, typed: &OsStr) -> Result<bool> {
        let resolved = self.resolve(&Spec::parse(typed.as_bytes())?)?;
        let has_address = resolved.kind.options.iter().any(|option| option.name == "url");
        Ok(has_address && resolved.path.split(|byte| *byte == b'/').all(|part| matches!(part, b"" | b".")))
    }

    /// True where [`OpenOptions::for_good`] keeps files of what was typed out of a trash. Directories may stay there, empty.
    ///
    /// Errors: it can't be meant.
    pub fn removes_for_good(&self, typed: &OsStr) -> Result<bool> {
        let resolved = self.resolve(&Spec::parse(typed.as_bytes())?)?;
        Ok(resolved.for_good().is_some())
    }

    fn open_on(
        &self,
        mut resolved: ResolvedRemote,
        wrapped: BTreeMap<String, Arc<dyn Store>>,
        options: &OpenOptions,
    ) -> Result<Arc<dyn Store>> {
        let meters = &self.settings.meters;
        let net = self.net();
        let wraps = resolved.kind.wraps();
        let section = self.section(&resolved)?;
        if let Some((option, value)) = resolved.for_good().filter(|_| options.for_good) {
            resolved.options.insert(option.into(), value.into());
        }
        let store = (resolved.kind.open)(OpenRequest {
            remote: resolved.remote,
            path: resolved.path,
            options: resolved.options,
            net: Net {
                connect_timeout: options.connect_timeout.unwrap_or(net.connect_timeout),
                idle_timeout: options.idle_timeout.unwrap_or(net.idle_timeout),
                ..net
            },
            meters: meters.clone(),
            links: options.links,
            own_links: options.own_links,
            wrapped,
            section,
            shared: self.shared.clone(),
            consent: self.settings.consent.clone(),
        })?;
        // The layers are around what it is made on.
        Ok(if wraps { store } else { self.layered(store) })
    }
}
