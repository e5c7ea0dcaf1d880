//! A session's pipe, and what ssh says beside it.

use crate::{
    messages,
    target::{Target, without_secrets},
};
use haul_core::{Error, Result};
use std::{
    collections::VecDeque,
    ffi::OsString,
    os::fd::AsFd,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    sync::watch,
};

/// Bytes that a pipe takes before it waits: few wake-ups for large messages. The kernel's own 64 KiB where it refuses more.
const PIPE: usize = 1 << 20;

/// Lines of ssh's that are kept.
const LINES: usize = 40;

/// How long its last words may take to come after it ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How long ssh may take to end after its output did.
const ENDS: Duration = Duration::from_secs(5);

/// Keeps an interrupt that is typed from ending ssh before we have ended what is under way; a question on the terminal is given up
/// all the same.
const SHIELD: [&str; 4] = ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "ssh"];

/// Both directions of a session. When `input` is dropped the far program reads its end.
#[derive(Debug)]
pub struct Pipe {
    /// To the far program.
    pub input: ChildStdin,
    /// From the far program.
    pub output: ChildStdout,
    /// How it ends.
    pub end: End,
}

/// How a session ends, for those who wait for it.
#[derive(Clone, Debug)]
pub struct End {
    host: String,
    /// The command that a person types to get there; `None` for a command that isn't ssh.
    typed: Option<String>,
    pid: Option<u32>,
    stderr_lines: Arc<Mutex<VecDeque<String>>>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

impl Pipe {
    /// Runs a command line of a user's, whose input and output lead to a program somewhere.
    ///
    /// Errors: it can't be started.
    pub fn command(line: &str) -> Result<Pipe> {
        let words = ["/bin/sh", "-c", line].map(String::from);
        Pipe::run(&words, &[], without_secrets(line), None)
    }

    /// Runs a command whose words are `words`, with these variables of its own.
    ///
    /// Errors: it can't be started.
    pub(crate) fn start(target: &Target, words: &[String], variables: &[(&str, OsString)]) -> Result<Pipe> {
        Pipe::run(words, variables, target.shown(), Some(target.typed()))
    }

    fn run(words: &[String], variables: &[(&str, OsString)], host: String, typed: Option<String>) -> Result<Pipe> {
        let mut command = Command::new(SHIELD[0]);
        command.args(&SHIELD[1..]).args(words).envs(variables.iter().map(|(name, value)| (*name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        tracing::debug!(command = ?words, "starting a session");
        let mut child = command.spawn().map_err(|e| Error::from_io("connect", e))?;
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::new(haul_core::ErrorKind::Io, "connect", "a process was started without its pipes"));
        };
        for fd in [input.as_fd(), output.as_fd()] {
            let _ = rustix::pipe::fcntl_setpipe_size(fd, PIPE);
        }
        let pid = child.id();
        let stderr_lines = Arc::new(Mutex::new(VecDeque::new()));
        let (tell, ended) = watch::channel(None);
        tokio::spawn(watch_over(child, errors, stderr_lines.clone(), tell));
        Ok(Pipe { input, output, end: End { host, typed, pid, stderr_lines, ended } })
    }
}

/// Reads what ssh says until it ends, and reaps it.
async fn watch_over(
    mut child: Child,
    errors: ChildStderr,
    stderr_lines: Arc<Mutex<VecDeque<String>>>,
    tell: watch::Sender<Option<ExitStatus>>,
) {
    let listening = tokio::spawn(listen(errors, stderr_lines));
    let status = child.wait().await.unwrap_or_default();
    // Its last message is still in its pipe, which another process may hold open.
    let _ = tokio::time::timeout(LAST_WORDS, listening).await;
    // Nobody may be left who asks.
    let _ = tell.send(Some(status));
}

async fn listen(mut errors: ChildStderr, stderr_lines: Arc<Mutex<VecDeque<String>>>) {
    let (mut buffer, mut line) = ([0; 4096], Vec::new());
    while let Ok(got @ 1..) = errors.read(&mut buffer).await {
        for byte in &buffer[..got] {
            match byte {
                b'\n' => keep(&stderr_lines, &std::mem::take(&mut line)),
                // One without an end is shown as far as it may be.
                _ if line.len() < buffer.len() => line.push(*byte),
                _ => {}
            }
        }
    }
    keep(&stderr_lines, &line);
}

fn keep(stderr_lines: &Mutex<VecDeque<String>>, line: &[u8]) {
    let line = messages::clean(line);
    if line.is_empty() {
        return;
    }
    tracing::debug!(line, "ssh says");
    let mut stderr_lines = stderr_lines.lock().unwrap_or_else(PoisonError::into_inner);
    if stderr_lines.len() == LINES {
        stderr_lines.pop_front();
    }
    stderr_lines.push_back(line);
}

impl End {
    /// True once ssh has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// True once the far program has ended, and not ssh over it.
    pub(crate) fn ended_by_itself(&self) -> bool {
        self.ended.borrow().and_then(|status| status.code()).is_some_and(|code| code != messages::OWN)
    }

    /// Waits for that, but not for long.
    pub(crate) async fn ended_within(&self, time: Duration) {
        let mut ended = self.ended.clone();
        let _ = tokio::time::timeout(time, ended.wait_for(Option::is_some)).await;
    }

    /// Why it ended, or is about to: for who found its output at an end.
    pub(crate) async fn refusal(&self) -> messages::SessionError {
        self.ended_within(ENDS).await;
        let (stderr_lines, status) = (self.stderr_lines(), *self.ended.borrow());
        match &self.typed {
            Some(typed) => messages::refusal(&self.host, typed, status, &stderr_lines),
            None => messages::of_command(&self.host, status, &stderr_lines),
        }
    }

    fn stderr_lines(&self) -> Vec<String> {
        self.stderr_lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The error of a session whose output has ended.
    pub async fn why(&self) -> Error {
        self.refusal().await.error
    }

    /// Its code, when it has ended by itself; waits for that.
    pub async fn code(&self) -> Option<i32> {
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(Option::is_some).await;
        let status = *ended.borrow();
        status.and_then(|status| status.code())
    }

    /// Ends ssh, which removes its socket: for a session that answers no more.
    pub fn stop(&self) {
        let pid = self.pid.and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
        if let (Some(pid), false) = (pid, self.has_ended()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}
