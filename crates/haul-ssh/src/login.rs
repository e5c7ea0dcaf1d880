//! One login, many sessions: who is logged in, by whose master, and how many sessions that takes. Nobody logs in while another does,
//! and nobody does again after they were refused.

use crate::{
    askpass::{Askpass, PasswordOwner},
    host::Config,
    messages,
    pipe::{End, Pipe},
    socket_dir,
    target::{Remote, Target},
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
    time::{Duration, Instant},
};
use tokio::{
    process::Command,
    sync::{Mutex, OwnedMutexGuard},
};

/// How long a person may take to log in; sshd itself gives up after two minutes unless its LoginGraceTime says otherwise.
const LOGIN: Duration = Duration::from_secs(600);

/// Seconds between two questions of ssh's whether the host lives, at least; the third without an answer ends the connection and all its
/// sessions, so that a host that is only busy must have the time to answer.
const ALIVE: u64 = 5;

/// Between two looks whether somebody is logged in.
const LOOK: Duration = Duration::from_millis(200);

/// Sessions that sshd takes on a connection unless its MaxSessions says otherwise.
const SESSIONS: usize = 10;
/// How long a master whose own session is over may take to end.
const ENDS: Duration = Duration::from_secs(2);
/// How long a host that couldn't be reached is left in peace: so long first, twice as long each time, and no longer.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Of a master that isn't ours: some are left for its owner.
const RIDING: usize = 8;
/// Options that stop a session that the master doesn't take from becoming a login of its own.
const NO_LOGIN: [&str; 2] = ["-oProxyCommand=false", "-oBatchMode=yes"];

/// Settings of a front end and its user.
#[derive(Clone, Debug)]
pub struct SshSettings {
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
    settings: SshSettings,
    state: Arc<Mutex<State>>,
    /// Sessions at once at most, as far as it is known.
    limit: AtomicUsize,
    reported: Once,
}

#[derive(Debug, Default)]
enum State {
    /// Nobody is logged in.
    #[default]
    Out,
    /// We were refused: asking again would only annoy the server.
    Refused(Error),
    /// The host couldn't be reached.
    Away(UnreachableHost),
    /// The user's own master.
    Riding(PathBuf),
    /// A master of ours: its first session.
    Own(PathBuf, End),
}

/// A host that couldn't be reached. It may limit how often it is asked, so it is left in peace for a while.
#[derive(Debug)]
struct UnreachableHost {
    /// As ssh said it.
    error: Error,
    /// The requested far end.
    remote: Remote,
    /// Until then it isn't asked again.
    until: Instant,
    /// How long that was.
    pause: Duration,
}

/// A session that is about to be: whoever opened it finds out from its bytes whether it came about.
#[derive(Debug)]
pub struct OpeningSession {
    /// Its pipe.
    pub pipe: Pipe,
    ssh: Arc<Inner>,
    /// Of a login: nobody else tries meanwhile.
    login: Option<Login>,
    /// Removed when the login is over.
    _askpass: Option<Askpass>,
}

/// How long the far program of a session that is about to be is waited for: a person who logs in takes as long as it takes, a program
/// doesn't.
#[derive(Clone, Debug)]
pub struct Patience {
    /// Of a login: what is there once that is done, where ssh tells it.
    login: Option<Option<PathBuf>>,
    session: Duration,
}

#[derive(Debug)]
struct Login {
    state: OwnedMutexGuard<State>,
    /// Where further sessions are taken.
    socket: Option<PathBuf>,
    /// The far end it is for.
    remote: Remote,
    /// How long the host was left in peace before.
    pause: Duration,
}

impl Ssh {
    /// A way to a host; nothing is sent yet.
    pub fn new(settings: SshSettings) -> Ssh {
        let limit = AtomicUsize::new(SESSIONS);
        Ssh(Arc::new(Inner { settings, state: Arc::default(), limit, reported: Once::new() }))
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

    /// Notes that the server took no more than this many sessions.
    pub fn lower(&self, sessions: usize) {
        let sessions = sessions.max(1);
        if self.0.limit.fetch_min(sessions, Ordering::Relaxed) > sessions {
            self.0.reported.call_once(|| {
                tracing::info!(
                    "{}: the server takes {sessions} sessions at once on a connection (MaxSessions in its sshd_config); \
                     haul uses no more",
                    self.shown()
                );
            });
        }
    }

    /// Begins the session that others depend on, if no live one exists: rides the user's own master, or logs in.
    ///
    /// A host that couldn't be reached is asked again after a pause only. Within that it isn't asked for another program than before,
    /// as a caller that tries one after the other knows already; nor if the same would only fail again.
    ///
    /// Errors: nobody could log in; later callers get the errors of the first refusal.
    pub async fn first(&self, remote: &Remote) -> Result<OpeningSession> {
        let inner = &self.0;
        let mut state = inner.state.clone().lock_owned().await;
        let mut pause = Duration::ZERO;
        if let State::Away(away) = &*state {
            let knows = away.remote != *remote || away.error.retry() == Retry::Never;
            if knows && Instant::now() < away.until {
                return Err(away.error.to_report());
            }
            tokio::time::sleep_until(away.until.into()).await;
            pause = away.pause;
            *state = State::Out;
        }
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
            State::Own(..) | State::Out | State::Away(_) => inner.log_in((state, pause), remote).await,
        }
    }

    /// Begins a session that shares the way with others: a further one if somebody is logged in, else the first.
    ///
    /// Errors: as for [`Ssh::first`].
    pub async fn any(&self, remote: &Remote) -> Result<OpeningSession> {
        let lives = match &*self.0.state.lock().await {
            State::Own(_, end) => !end.has_ended(),
            State::Out | State::Refused(_) | State::Away(_) | State::Riding(_) => false,
        };
        if lives { self.further(remote).await } else { self.first(remote).await }
    }

    /// Begins a further session beside one that lives. Never logs in.
    ///
    /// Errors: nobody is logged in.
    pub async fn further(&self, remote: &Remote) -> Result<OpeningSession> {
        let inner = &self.0;
        let path = match &*inner.state.lock().await {
            State::Riding(path) => Some(path.clone()),
            State::Own(path, end) => (!end.has_ended()).then(|| path.clone()),
            State::Out | State::Refused(_) | State::Away(_) => None,
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

impl Drop for Inner {
    /// A master ends with its last session, which a far program that hangs never does.
    fn drop(&mut self) {
        if let Ok(state) = self.state.try_lock()
            && let State::Own(_, end) = &*state
        {
            end.stop();
        }
    }
}

impl Inner {
    fn options(&self) -> Vec<String> {
        let alive = (self.settings.idle_timeout.as_secs() / 4).max(ALIVE);
        vec![
            format!("-oConnectTimeout={}", self.settings.connect_timeout.as_secs().max(1)),
            format!("-oServerAliveInterval={alive}"),
            "-oServerAliveCountMax=3".to_owned(),
        ]
    }

    /// A first session, whose ssh takes further ones where it can.
    async fn log_in(
        self: &Arc<Self>,
        (state, pause): (OwnedMutexGuard<State>, Duration),
        remote: &Remote,
    ) -> Result<OpeningSession> {
        let target = &self.settings.target;
        let dir = socket_dir::of_user(self.settings.runtime.as_deref())?;
        let mut more = self.options();
        let socket = target.is_openssh().then(|| socket_dir::new_name(&dir));
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
            let whose = if target.password.is_some() { self.whose().await } else { PasswordOwner::default() };
            let password = target.password.as_deref().map(|password| (password, &whose));
            let program = Askpass::new(&dir, password, target.passphrase.as_deref())?;
            variables.push(("SSH_ASKPASS", program.program().into_os_string()));
            variables.push(("SSH_ASKPASS_REQUIRE", "force".into()));
            more.push("-oNumberOfPasswordPrompts=1".into());
            askpass = Some(program);
        }
        let words = target.session(&more, remote)?;
        let pipe = Pipe::start(target, &words, &variables)?;
        let login = Login { state, socket, remote: remote.clone(), pause };
        Ok(OpeningSession { pipe, ssh: self.clone(), login: Some(login), _askpass: askpass })
    }

    /// A further session on a master.
    fn ride(self: &Arc<Self>, socket: &Path, remote: &Remote) -> Result<OpeningSession> {
        let target = &self.settings.target;
        let mut more: Vec<String> = NO_LOGIN.map(String::from).into();
        more.extend(["-oControlMaster=no".into(), "-S".into(), shown(socket)]);
        let pipe = Pipe::start(target, &target.session(&more, remote)?, &[])?;
        Ok(OpeningSession { pipe, ssh: self.clone(), login: None, _askpass: None })
    }

    /// The owner that ssh will name in its password prompt: none, if that is unknown.
    async fn whose(&self) -> PasswordOwner {
        let Some(config) = self.config().await else { return PasswordOwner::default() };
        let user = config.get("user").unwrap_or_default().to_owned();
        let hosts = ["hostname", "hostkeyalias"].into_iter().filter_map(|name| config.get(name));
        // It writes a host's name in small letters.
        let mut hosts: Vec<String> = hosts.flat_map(|host| [host.to_owned(), host.to_lowercase()]).collect();
        hosts.dedup();
        PasswordOwner { user, hosts }
    }

    /// The user's configuration of the host.
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

/// Output of a command, if it succeeds.
async fn output(words: Vec<String>) -> Option<String> {
    let (program, rest) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(20), command.output()).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Patience {
    /// With a program that nobody has to log in for.
    pub fn of(session: Duration) -> Patience {
        Patience { login: None, session }
    }

    /// How long a program may be silent once it is there.
    pub fn session(&self) -> Duration {
        self.session
    }

    /// Result of `work`; `None` if it took too long.
    pub async fn wait<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.ends() => None,
        }
    }

    async fn ends(&self) {
        match &self.login {
            Some(Some(socket)) => {
                let logged_in = async {
                    while !socket.exists() {
                        tokio::time::sleep(LOOK).await;
                    }
                };
                // Nobody may log in at all.
                if tokio::time::timeout(LOGIN, logged_in).await.is_ok() {
                    tokio::time::sleep(self.session).await;
                }
            }
            Some(None) => tokio::time::sleep(LOGIN).await,
            None => tokio::time::sleep(self.session).await,
        }
    }
}

impl OpeningSession {
    /// How long its far program is waited for, where one that nobody has to log in for has so long.
    pub fn patience(&self, session: Duration) -> Patience {
        let login = self.login.as_ref().map(|login| login.socket.clone());
        Patience { login, session }
    }

    /// The far program has answered: the session is there, and others may follow.
    pub fn is_up(self) -> Pipe {
        if let Some(Login { mut state, socket, .. }) = self.login {
            match socket.filter(|socket| socket.exists()) {
                Some(socket) => *state = State::Own(socket, self.pipe.end.clone()),
                None => self.ssh.limit.store(1, Ordering::Relaxed),
            }
        }
        self.pipe
    }

    /// The far program's output has ended before it answered: says why, and remembers what must not be tried again.
    pub async fn failed(self) -> Error {
        let messages::SessionError { error, is_full } = self.pipe.end.refusal().await;
        let by_itself = self.pipe.end.ended_by_itself();
        match self.login {
            Some(Login { mut state, remote, pause, .. }) => {
                match error.kind() {
                    ErrorKind::Unauthenticated => *state = State::Refused(error.to_report()),
                    ErrorKind::Unreachable => {
                        let pause = (2 * pause).clamp(PAUSE.0, PAUSE.1);
                        let until = Instant::now() + pause;
                        *state = State::Away(UnreachableHost { error: error.to_report(), remote, until, pause });
                    }
                    _ => {}
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

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests make their own files.
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// An ssh that says `line` to each who wants a session, notes that it was asked, and knows no config.
    fn fake(dir: &Path, line: &str) -> Ssh {
        let program = dir.join("ssh");
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *-G*) exit 1;; esac\necho asked >>{0}/asked\necho '{line}' >&2\nexit 255\n",
            dir.display()
        );
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let target = Target { command: vec![program.display().to_string(), "far".into()], ..Target::default() };
        let (connect_timeout, idle_timeout) = (Duration::from_secs(5), Duration::from_secs(20));
        Ssh::new(SshSettings { target, runtime: Some(dir.to_owned()), connect_timeout, idle_timeout })
    }

    async fn fails(ssh: &Ssh, remote: &Remote) -> Error {
        match ssh.any(remote).await {
            Ok(opening) => opening.failed().await,
            Err(error) => error,
        }
    }

    #[tokio::test]
    async fn a_host_that_refuses_is_left_in_peace_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let ssh = fake(dir.path(), "kex_exchange_identification: Connection closed by remote host");
        let prompts = || std::fs::read_to_string(dir.path().join("asked")).unwrap().lines().count();
        let (sftp, far) = (Remote::Subsystem("sftp".into()), Remote::Command("haul far".into()));
        let began = Instant::now();
        let first = fails(&ssh, &sftp).await;
        assert_eq!((first.kind(), prompts()), (ErrorKind::Unreachable, 1));
        // A caller that tries the other way gets the same error, and nobody is asked.
        let other = fails(&ssh, &far).await;
        assert_eq!((other.message(), prompts()), (first.message(), 1));
        fails(&ssh, &sftp).await;
        assert!(prompts() == 2 && began.elapsed() >= PAUSE.0, "{:?}", began.elapsed());
        fails(&ssh, &sftp).await;
        assert!(prompts() == 3 && began.elapsed() >= 3 * PAUSE.0, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_person_is_waited_for_and_a_program_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let session = Duration::from_millis(10);
        let silent = async |login| Patience { login, session }.wait(std::future::pending::<()>()).await;
        assert!(silent(None).await.is_none());
        // Before the login a person may still be typing. Other programs than OpenSSH show no login at all.
        for login in [Some(Some(socket.clone())), Some(None)] {
            assert!(tokio::time::timeout(2 * LOOK, silent(login)).await.is_err());
        }
        std::fs::write(&socket, "").unwrap();
        assert!(silent(Some(Some(socket))).await.is_none());
        assert_eq!(Patience::of(session).wait(std::future::ready(7)).await, Some(7));
    }

    #[tokio::test]
    async fn who_was_refused_is_not_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let ssh = fake(dir.path(), "a@h: Permission denied (publickey).");
        for remote in [Remote::Subsystem("sftp".into()), Remote::Command("haul far".into())] {
            assert_eq!(fails(&ssh, &remote).await.kind(), ErrorKind::Unauthenticated);
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("asked")).unwrap(), "asked\n");
    }
}
