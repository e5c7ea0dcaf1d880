//! Context of every command: flags, display, and the session that opens typed paths.

use crate::{
    bwlimit::Timetables,
    environment::environment,
    error::{CommandResult, code},
    flags::{self, Flags},
    progress::Progress,
    prompt,
};
use anyhow::Result;
use haul::{
    Cancel,
    index::{EarlierKnowledge, FileHashes, Settings as IndexSettings},
};
use haul_core::Key;
use haul_remotes::{
    OpenOptions, Session, Settings, Spec, StoreFlags,
    config::{Password, paths},
};
use haul_store::{
    Gate, Meters, Net, Store,
    layers::{LayerSettings, Stop},
};
use haul_terminal::Screen;
use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    sync::{Arc, OnceLock},
};

/// The surroundings of one command.
pub struct Context {
    /// Flags that stand before or after any command.
    pub flags: Flags,
    /// Opens remotes; one a process, so that all of them keep to the same limits.
    pub session: Session,
    /// Counts requests and retries of everything that the run opens.
    pub meters: Arc<Meters>,
    /// Stops jobs at once, and all waiting for stores.
    pub cancel: Cancel,
    /// Set by Ctrl-C and SIGTERM: the same as `cancel`, unless the command ends what it began in its own time.
    pub asked_to_stop: Cancel,
    /// Limits requests a second.
    pub gate: Arc<Gate>,
    /// The sink of every job: display, log lines, summary.
    pub progress: Arc<Progress>,
    /// The terminal.
    pub screen: Arc<Screen>,
    /// The command line, in order.
    pub line: Vec<OsString>,
    /// The line isn't a person's but a job's, which `resume` runs again.
    pub resumes: bool,
    hashes: Arc<OnceLock<Arc<FileHashes>>>,
}

impl Context {
    /// The surroundings that the flags ask for. Reads no file: a copy between local disks needs no configuration.
    pub fn new(flags: Flags, stores: StoreFlags, line: Vec<OsString>, screen: Arc<Screen>) -> Result<Context> {
        let cancel = Cancel::default();
        let asks = !flags.log.quiet && !flags.config.dry_run;
        let consent = asks.then(|| prompt::consent(screen.clone(), cancel.clone()));
        let settings = Settings { layers: layers(&flags, &cancel), consent, ..settings(&flags, stores)? };
        let (meters, gate, asked_to_stop) = (settings.meters.clone(), settings.net.gate.clone(), cancel.clone());
        let progress = Progress::start(&flags, screen.clone(), meters.clone(), settings.net.roads.clone());
        let (session, hashes, resumes) = (Session::new(settings), Arc::default(), false);
        Ok(Context { flags, session, meters, cancel, asked_to_stop, gate, progress, screen, line, resumes, hashes })
    }

    /// The surroundings of another command line, to open what it opens; display, counters and limits stay these.
    pub fn beside(&self, flags: Flags, stores: StoreFlags, line: Vec<OsString>) -> Result<Context> {
        let session = self.session.beside(settings(&flags, stores)?);
        let (meters, cancel, progress) = (self.meters.clone(), self.cancel.clone(), self.progress.clone());
        let (screen, hashes, resumes) = (self.screen.clone(), self.hashes.clone(), false);
        let (gate, asked_to_stop) = (self.gate.clone(), self.asked_to_stop.clone());
        Ok(Context { flags, session, meters, cancel, asked_to_stop, gate, progress, screen, line, resumes, hashes })
    }

    /// The folder for journals; `None` when there is none to keep them in.
    pub fn journals(&self) -> Option<PathBuf> {
        paths::journals(self.flags.config.state_dir.as_ref(), self.session.environment())
    }

    /// The folder for what haul remembers; `None` when there is none.
    pub fn state(&self) -> Option<PathBuf> {
        paths::state(self.flags.config.state_dir.as_ref(), self.session.environment())
    }

    /// Hashes of files on disk that earlier runs computed.
    pub fn hashes(&self) -> Arc<FileHashes> {
        let load = || Arc::new(FileHashes::load(self.state().map(|state| state.join("hashes"))));
        self.hashes.get_or_init(load).clone()
    }

    /// Knowledge from earlier runs that jobs may rely on: without `--index` or `--verify-index` only the places of a destination's source.
    pub fn known(&self) -> EarlierKnowledge {
        let flags = &self.flags.config;
        let paths = self.state().map(|state| state.join("paths"));
        let known = EarlierKnowledge { paths, whole: true, ..EarlierKnowledge::default() };
        if flags.no_index || !(flags.index || flags.verify_index) {
            return known;
        }
        let index = self.index(false);
        EarlierKnowledge { hashes: Some(self.hashes()), index, ..known }
    }

    /// Knowledge that jobs may use for remotes whose keys are named by their content: with `--index` or without, but not with `--no-index`.
    pub fn known_content(&self) -> EarlierKnowledge {
        let index = if self.flags.config.no_index { None } else { self.index(true) };
        EarlierKnowledge { index, whole: false, ..self.known() }
    }

    /// Where indexes of destinations are; of those whose keys are named by their content, if so.
    fn index(&self, content: bool) -> Option<IndexSettings> {
        let folder = self.state()?.join("index");
        Some(IndexSettings { folder, verify: self.flags.config.verify_index, content, seed: None, minute: None })
    }

    /// Keeps hashes that this run computed for the next one.
    pub fn keep_hashes(&self) {
        if let Some(hashes) = self.hashes.get() {
            hashes.save();
        }
    }

    /// How the flags say that stores are opened.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions { links: flags::links(&self.flags), ..OpenOptions::default() }
    }

    /// Opens what the user typed as a folder, bucket or remote root. That it exists isn't checked.
    pub fn open(&self, typed: &OsStr) -> Result<Arc<dyn Store>> {
        self.open_as(typed, &self.open_options())
    }

    /// Opens what the user typed in another way than the flags say.
    pub fn open_as(&self, typed: &OsStr, options: &OpenOptions) -> Result<Arc<dyn Store>> {
        Ok(self.session.open(typed, options)?)
    }

    /// Opens what must not wait in line behind the data that is transferred.
    pub fn open_apart(&self, typed: &OsStr) -> Result<Arc<dyn Store>> {
        Ok(self.session.apart().open(typed, &self.open_options())?)
    }

    /// Opens what another program's configuration names, as if it were typed so.
    pub fn open_spec(&self, spec: &Spec) -> Result<Arc<dyn Store>> {
        Ok(self.session.open_spec(spec, &self.open_options())?)
    }

    /// Opens what the user typed as a source: when it names one file, the store is of the folder that holds it, and the
    /// key is the file's.
    pub async fn open_source(&self, typed: &OsStr) -> Result<(Arc<dyn Store>, Option<Key>)> {
        self.open_source_as(typed, &self.open_options()).await
    }

    /// Opens a source in another way than the flags say.
    pub async fn open_source_as(&self, typed: &OsStr, options: &OpenOptions) -> Result<(Arc<dyn Store>, Option<Key>)> {
        Ok(self.session.open_source(typed, options).await?)
    }

    /// Opens the folder of what the user typed as one file's destination; the key is the file's.
    pub fn open_parent(&self, typed: &OsStr) -> Result<(Arc<dyn Store>, Key)> {
        Ok(self.session.open_parent(typed, &self.open_options())?)
    }

    /// Runs a command until it ends or the user stops it. One that `finishes_itself` gets a signal and ends in its own
    /// order; any other is dropped.
    pub async fn until_stopped(
        &self,
        finishes_itself: bool,
        command: impl Future<Output = Result<CommandResult>>,
    ) -> Result<CommandResult> {
        let outcome = if finishes_itself {
            command.await
        } else {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => Ok(CommandResult::Exit(code::INTERRUPTED)),
                outcome = command => outcome,
            }
        };
        match outcome {
            // Errors on its way out are no news.
            Err(_) if self.cancel.is_cancelled() => Ok(CommandResult::Exit(code::INTERRUPTED)),
            Ok(CommandResult::Exit(_)) if self.cancel.is_cancelled() && !finishes_itself => {
                Ok(CommandResult::Exit(code::INTERRUPTED))
            }
            outcome => outcome,
        }
    }
}

/// Settings of the command line for remotes and the network.
fn settings(flags: &Flags, stores: StoreFlags) -> Result<Settings> {
    let environment = environment();
    Ok(Settings {
        places: paths::places(flags.config.config.as_ref(), &environment),
        password: Password {
            command: flags.config.password_command.clone(),
            ask: flags.config.ask_password.then(|| Arc::new(prompt::config_password) as _),
            ..Password::from_environment(&environment)
        },
        flags: stores,
        net: Net { state: paths::state(flags.config.state_dir.as_ref(), &environment), ..flags::net(flags)? },
        environment,
        ..Settings::default()
    })
}

/// Retries, bandwidth and the end of the run, as the flags say.
fn layers(flags: &Flags, cancel: &Cancel) -> LayerSettings {
    let stop = {
        let cancel = cancel.clone();
        Stop::new(move || {
            let cancel = cancel.clone();
            Box::pin(async move { cancel.cancelled().await })
        })
    };
    let tables = Timetables { all: flags.network.bwlimit.clone(), each: flags.network.bwlimit_file.clone() };
    let rate = tables.follow(cancel);
    let mut layers = LayerSettings { rate, stop: Some(stop), ..LayerSettings::default() };
    if let Some(tries) = flags.pace.low_level_retries {
        (layers.tries, layers.tries_unanswered) = (tries, tries);
    }
    layers
}
