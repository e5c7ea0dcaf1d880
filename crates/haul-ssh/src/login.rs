//! One login, many sessions: who is logged in, by whose master, and how many sessions that takes. Nobody logs in while another does,
//! and nobody does again after they were refused.

use crate::{
    dir,
    host::Config,
    pipe::{End, Pipe},
    target::{Remote, Target},
    words,
};
use haul_core::{Error, ErrorKind, Result, Retry};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    process::Command,
    sync::{Mutex, OwnedMutexGuard},
};

/// How long a person may take to log in; sshd itself gives up after two minutes unless its LoginGraceTime says otherwise.
pub const LOGIN: Duration = Duration::from_secs(600);

/// Sessions that sshd takes on a connection unless its MaxSessions says otherwise.
const SESSIONS: usize = 10;
/// How long a master whose own session is over may take to end.
const ENDS: Duration = Duration::from_secs(2);
/// Of a master that isn't ours: some are left for its owner.
const RIDING: usize = 8;
/// What nobody may take for an answer of ours: with it a session that the master doesn't take can't become a login of its own.
const NO_LOGIN: [&str; 2] = ["-oProxyCommand=false", "-oBatchMode=yes"];

/// What a front end and its user say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to.
    pub target: Target,
    /// Where the system keeps what a session's processes need.
    pub runtime: Option<PathBuf>,
    /// Give up connecting after this long.
    pub connect_timeout: Duration,
    /// Give up when nothing is heard of the host for this long.
    pub idle_timeout: Duration,
}

/// A way to a host. Clones share it.
#[derive(Clone, Debug)]
pub struct Ssh(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    state: Arc<Mutex<State>>,
    /// Sessions at once at most, as far as it is known.
    limit: AtomicUsize,
    told: Once,
}

#[derive(Debug, Default)]
enum State {
    /// Nobody is logged in.
    #[default]
    Out,
    /// We were refused: asking again would only annoy the server.
    Refused(Error),
    /// The user's own master.
    Riding(PathBuf),
    /// A master of ours: its first session.
    Own(PathBuf, End),
}

/// A session that is about to be: whoever opened it finds out from its bytes whether it came about.
#[derive(Debug)]
pub struct Opening {
    /// Its pipe.
    pub pipe: Pipe,
    ssh: Arc<Inner>,
    /// Of a login: nobody else tries meanwhile.
    login: Option<(OwnedMutexGuard<State>, Option<PathBuf>)>,
    /// Removed when the login is over.
    _askpass: Option<tempfile::TempPath>,
}

impl Ssh {
    /// A way to a host; nothing is sent yet.
    pub fn new(settings: Settings) -> Ssh {
        let limit = AtomicUsize::new(SESSIONS);
        Ssh(Arc::new(Inner { settings, state: Arc::default(), limit, told: Once::new() }))
    }

    /// Where it leads.
    pub fn target(&self) -> &Target {
        &self.0.settings.target
    }

    /// The host as a person writes it.
    pub fn shown(&self) -> String {
        self.0.settings.target.shown()
    }

    /// The host's name or address by which ssh itself connects, as the user's config has it; `None` where ssh can't be asked. Behind a
    /// jump host or a command of the user's it may mean something there alone.
    pub async fn host_name(&self) -> Option<String> {
        self.0.config().await?.get("hostname").map(str::to_owned)
    }

    /// Sessions at once at most, as far as it is known.
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// The server took no more than so many.
    pub fn lower(&self, sessions: usize) {
        let sessions = sessions.max(1);
        if self.0.limit.fetch_min(sessions, Ordering::Relaxed) > sessions {
            self.0.told.call_once(|| {
                tracing::info!(
                    "{}: the server takes {sessions} sessions at once on a connection (MaxSessions in its sshd_config); \
                     haul uses no more",
                    self.shown()
                );
            });
        }
    }

    /// Begins the session that others depend on, for who has none that lives: rides the user's own master, or logs in.
    ///
    /// Errors: nobody could log in; those of the first who was refused are told to all who ask later.
    pub async fn first(&self, remote: &Remote) -> Result<Opening> {
        let inner = &self.0;
        let mut state = inner.state.clone().lock_owned().await;
        if let State::Own(_, end) = &*state {
            // Its own session is over, and with it whatever was on it.
            end.ended_within(ENDS).await;
            end.stop();
            *state = State::Out;
        }
        if let State::Out | State::Riding(_) = *state {
            *state = match inner.users_master().await {
                Some(path) => {
                    tracing::debug!(path = %path.display(), "riding the user's own connection");
                    inner.limit.fetch_min(RIDING, Ordering::Relaxed);
                    State::Riding(path)
                }
                None => State::Out,
            };
        }
        match &*state {
            State::Refused(error) => Err(error.to_report()),
            State::Riding(path) => inner.ride(path, remote),
            State::Own(..) | State::Out => inner.log_in(state, remote),
        }
    }

    /// Begins a session for who shares the way with others: a further one where somebody is logged in, else the first.
    ///
    /// Errors: as [`Ssh::first`].
    pub async fn any(&self, remote: &Remote) -> Result<Opening> {
        let lives = match &*self.0.state.lock().await {
            State::Own(_, end) => !end.has_ended(),
            State::Out | State::Refused(_) | State::Riding(_) => false,
        };
        if lives { self.further(remote).await } else { self.first(remote).await }
    }

    /// Begins a further session beside one that lives. Never logs in.
    ///
    /// Errors: nobody is logged in.
    pub async fn further(&self, remote: &Remote) -> Result<Opening> {
        let inner = &self.0;
        let path = match &*inner.state.lock().await {
            State::Riding(path) => Some(path.clone()),
            State::Own(path, end) => (!end.has_ended()).then(|| path.clone()),
            State::Out | State::Refused(_) => None,
        };
        match path {
            Some(path) => inner.ride(&path, remote),
            None => {
                let message = format!("{}: there is no connection for a further session", self.shown());
                Err(Error::new(ErrorKind::Io, "connect", message).with_retry(Retry::Backoff))
            }
        }
    }
}

impl Inner {
    fn options(&self) -> Vec<String> {
        let alive = (self.settings.idle_timeout.as_secs() / 4).max(1);
        vec![
            format!("-oConnectTimeout={}", self.settings.connect_timeout.as_secs().max(1)),
            format!("-oServerAliveInterval={alive}"),
            "-oServerAliveCountMax=3".to_owned(),
        ]
    }

    /// A first session, whose ssh takes further ones where it can.
    fn log_in(self: &Arc<Self>, state: OwnedMutexGuard<State>, remote: &Remote) -> Result<Opening> {
        let target = &self.settings.target;
        let dir = dir::of_user(self.settings.runtime.as_deref())?;
        let mut more = self.options();
        let socket = target.is_openssh().then(|| dir::new_name(&dir));
        match &socket {
            Some(socket) => {
                more.extend(["-oControlMaster=yes".into(), "-oControlPersist=no".into(), "-S".into(), shown(socket)]);
            }
            // Each session of another program is a login.
            None => self.limit.store(1, Ordering::Relaxed),
        }
        let mut variables: Vec<(&str, OsString)> = Vec::new();
        let mut askpass = None;
        if target.password.is_some() || target.passphrase.is_some() {
            let program = dir::askpass(&dir)?;
            variables.push(("SSH_ASKPASS", dir::variable(&program)));
            variables.push(("SSH_ASKPASS_REQUIRE", "force".into()));
            variables.push(("HAUL_SSH_PASSWORD", target.password.clone().unwrap_or_default().into()));
            variables.push(("HAUL_SSH_PASSPHRASE", target.passphrase.clone().unwrap_or_default().into()));
            more.push("-oNumberOfPasswordPrompts=1".into());
            askpass = Some(program);
        }
        let words = target.session(&more, remote)?;
        let pipe = Pipe::start(target, &words, &variables)?;
        Ok(Opening { pipe, ssh: self.clone(), login: Some((state, socket)), _askpass: askpass })
    }

    /// A further session on a master.
    fn ride(self: &Arc<Self>, socket: &Path, remote: &Remote) -> Result<Opening> {
        let target = &self.settings.target;
        let mut more: Vec<String> = NO_LOGIN.map(String::from).into();
        more.extend(["-oControlMaster=no".into(), "-S".into(), shown(socket)]);
        let pipe = Pipe::start(target, &target.session(&more, remote)?, &[])?;
        Ok(Opening { pipe, ssh: self.clone(), login: None, _askpass: None })
    }

    /// What the user's config says of the host.
    async fn config(&self) -> Option<Config> {
        let target = &self.settings.target;
        if !target.is_openssh() {
            return None;
        }
        Some(Config::parse(&output(target.question(&["-G".into()]).ok()?).await?))
    }

    /// Where the user's own master listens, if it lives.
    async fn users_master(&self) -> Option<PathBuf> {
        let target = &self.settings.target;
        let path = self.config().await?.control_path().filter(|path| path.exists())?;
        let check = ["-O", "check", "-S"].map(String::from).into_iter().chain([shown(&path)]).collect::<Vec<_>>();
        output(target.question(&check).ok()?).await.map(|_| path)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// What a command prints, if it succeeds.
async fn output(words: Vec<String>) -> Option<String> {
    let (program, rest) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(20), command.output()).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Opening {
    /// How long its far program may take to answer, where a session without a login has so long.
    pub fn patience(&self, session: Duration) -> Duration {
        if self.login.is_some() { LOGIN } else { session }
    }

    /// The far program has answered: the session is there, and others may follow.
    pub fn is_up(self) -> Pipe {
        if let Some((mut state, socket)) = self.login {
            match socket.filter(|socket| socket.exists()) {
                Some(socket) => *state = State::Own(socket, self.pipe.end.clone()),
                None => self.ssh.limit.store(1, Ordering::Relaxed),
            }
        }
        self.pipe
    }

    /// The far program's output has ended before it answered: says why, and remembers what must not be tried again.
    pub async fn failed(self) -> Error {
        let words::Refusal { error, is_full } = self.pipe.end.refusal().await;
        let by_itself = self.pipe.end.ended_by_itself();
        match self.login {
            Some((mut state, _)) => {
                if error.kind() == ErrorKind::Unauthenticated {
                    *state = State::Refused(error.to_report());
                }
                error
            }
            // The session was there, and what ran in it ended by itself.
            None if is_full || by_itself => error,
            // Whatever ssh says: of a login it can't be, and the connection that it was to use may have ended.
            None => Error::new(ErrorKind::Io, "connect", error.message()).with_retry(Retry::Backoff),
        }
    }

    /// It can't be used, for this reason of the caller's.
    pub fn give_up(self, error: Error) -> Error {
        self.pipe.end.stop();
        error
    }
}
