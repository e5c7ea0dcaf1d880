//! Reaching a far end: a session of the user's own ssh, or any other command whose standard input and output lead there.

use crate::{
    compression::Packing,
    frame::AHEAD,
    handshake::{self, About, Hello},
    install::{self, ABSENT, Program},
};
use futures::future::BoxFuture;
use haul_core::{Error, ErrorKind, Result};
use haul_ssh::{End, OpeningSession, Remote, Ssh};
use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, BufWriter},
    time::timeout,
};

/// Pipes are written in blocks of this size.
const BLOCK: usize = 256 << 10;

/// Sessions of a login that others are left: the one that SFTP logged in with, and one for commands.
const SPARE: usize = 2;

/// Where haul is looked for on a host, after the `PATH` of a session without a terminal: where people without root install it.
const PLACES: [&str; 3] = ["haul", "~/.local/bin/haul", "~/bin/haul"];

/// A pair of pipes to a far end.
pub struct Pipe {
    /// Bytes from the far end.
    pub input: Box<dyn AsyncRead + Send + Unpin>,
    /// Bytes to the far end.
    pub output: Box<dyn AsyncWrite + Send + Unpin>,
    /// How the program between ends, if there is one.
    pub end: Option<End>,
}

/// A way to a possible far end; a greeting shows whether it is one.
pub enum Call {
    /// Pipes.
    Pipes(Pipe),
    /// A session of ssh that is about to be, and the program that is to be there, if the user wants that.
    Session(OpeningSession, Option<&'static Program>),
}

/// Makes connections.
pub trait Dial: fmt::Debug + Send + Sync {
    /// A new one.
    ///
    /// Errors: none can be had.
    fn dial(&self) -> BoxFuture<'_, Result<Call>>;

    /// A further one to the same machine while one lives, for which nobody is asked anything.
    ///
    /// Errors: none can be had.
    fn further(&self) -> BoxFuture<'_, Result<Call>> {
        Box::pin(std::future::ready(Err(Error::new(ErrorKind::Unsupported, "connect", "there is one connection only"))))
    }

    /// The name or address of the machine, where it may be reached by TCP too; `None` where nobody knows one.
    fn host(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    /// The way there as a person writes it.
    fn shown(&self) -> String {
        "haul there".to_owned()
    }

    /// Connections at once at most.
    fn most(&self) -> usize {
        1
    }
}

/// A command line for the shell.
#[derive(Clone, Debug)]
pub struct ShellCommand(pub String);

impl Dial for ShellCommand {
    fn dial(&self) -> BoxFuture<'_, Result<Call>> {
        Box::pin(async { Ok(Call::Pipes(haul_ssh::Pipe::command(&self.0)?.into())) })
    }

    fn shown(&self) -> String {
        self.0.clone()
    }
}

/// haul on a host reached by ssh, in the login that all stores on that host share.
#[derive(Clone, Debug)]
pub struct OverSsh {
    /// The way to the host.
    pub ssh: Ssh,
    /// The command that runs haul there, if the user gives one.
    pub path: Option<String>,
    /// This program is to run there, and is put there if it isn't yet.
    pub install: bool,
}

impl Dial for OverSsh {
    fn dial(&self) -> BoxFuture<'_, Result<Call>> {
        Box::pin(async {
            let program = if self.install { Some(install::program()?) } else { None };
            let command = program.map_or_else(|| command(self.path.as_deref()), Program::command);
            Ok(Call::Session(self.ssh.any(&Remote::Command(command)).await?, program))
        })
    }

    fn further(&self) -> BoxFuture<'_, Result<Call>> {
        Box::pin(async {
            // It was put there before.
            let program = if self.install { Some(install::program()?) } else { None };
            let command = program.map_or_else(|| command(self.path.as_deref()), Program::command);
            Ok(Call::Session(self.ssh.further(&Remote::Command(command)).await?, program))
        })
    }

    fn host(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(self.ssh.host_name())
    }

    fn shown(&self) -> String {
        self.ssh.shown()
    }

    fn most(&self) -> usize {
        self.ssh.limit().saturating_sub(SPARE).max(1)
    }
}

/// The command that starts the far end on a host: the user's path to haul, else the places where it may be.
fn command(path: Option<&str>) -> String {
    match path {
        Some(path) => format!("{path} far"),
        // For a POSIX shell, whichever the user's own is.
        None => format!(
            "sh -c 'for haul in {} {}; do command -v \"$haul\" >/dev/null 2>&1 && exec \"$haul\" far; done; \
             echo \"{ABSENT} $(uname -sm)\" >&2; exit 127'",
            PLACES.join(" "),
            install::found()
        ),
    }
}

impl From<haul_ssh::Pipe> for Pipe {
    fn from(pipe: haul_ssh::Pipe) -> Pipe {
        let haul_ssh::Pipe { input, output, end } = pipe;
        Pipe {
            input: Box::new(BufReader::with_capacity(AHEAD, output)),
            output: Box::new(BufWriter::with_capacity(BLOCK, input)),
            end: Some(end),
        }
    }
}

impl Call {
    /// Greets the other end, and returns the facts it reports about itself. A login may take as long as a person needs. `joins` is the
    /// token of the far end that this further pipe belongs to.
    ///
    /// Errors: no haul answers, with the other end's own output; nothing answers within `patience`.
    pub async fn greet(self, packing: Packing, patience: Duration, joins: Option<String>) -> Result<(Pipe, About)> {
        let state = RandomState::new();
        let nonce = (u128::from(state.hash_one(0)) << 64 | u128::from(state.hash_one(1))).to_be_bytes();
        let hello = Hello { joins, ..Hello::of_this(packing) };
        let silent = |patience: Duration| {
            let why = format!("no haul answered there within {} s", patience.as_secs());
            Error::new(ErrorKind::Unreachable, "connect", why)
        };
        match self {
            Call::Pipes(mut pipe) => {
                let greeted =
                    timeout(patience, handshake::greet(&mut pipe.input, &mut pipe.output, nonce, &hello)).await;
                match (greeted, &pipe.end) {
                    (Ok(Ok(about)), _) => Ok((pipe, about)),
                    (Ok(Err(error)), Some(end)) => Err(beside(&error, &end.why().await)),
                    (Ok(Err(error)), None) => Err(error),
                    (Err(_), end) => {
                        end.iter().for_each(End::stop);
                        Err(silent(patience))
                    }
                }
            }
            Call::Session(mut opening, program) => {
                let patience = opening.patience(patience);
                let silent = || silent(patience.session());
                let haul_ssh::Pipe { input, output, .. } = &mut opening.pipe;
                if let Some(program) = program
                    && let Err(error) = program.offer(output, input, &patience).await
                {
                    return Err(match error.kind() {
                        ErrorKind::Timeout => opening.give_up(error),
                        _ => beside(&error, &opening.failed().await),
                    });
                }
                match patience.wait(handshake::greet(output, input, nonce, &hello)).await {
                    Some(Ok(about)) => Ok((opening.is_up().into(), about)),
                    Some(Err(error)) if error.kind() == ErrorKind::Denied => Err(opening.give_up(error)),
                    Some(Err(error)) => Err(beside(&error, &opening.failed().await)),
                    None => Err(opening.give_up(silent())),
                }
            }
        }
    }
}

/// The error of the greeting, with the output of the program in between.
fn beside(heard: &Error, first: &Error) -> Error {
    Error::new(first.kind(), "connect", format!("{} ({})", heard.message(), first.message())).with_retry(first.retry())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests make their own files.
mod tests {
    use super::*;

    #[test]
    fn haul_is_looked_for_where_people_put_it() {
        assert_eq!(command(Some("/opt/haul/bin/haul")), "/opt/haul/bin/haul far");
        let home = tempfile::tempdir().unwrap();
        let bin = home.path().join(".local/bin");
        let run = || {
            let mut shell = std::process::Command::new("/bin/sh");
            shell.arg("-c").arg(command(None)).env("HOME", home.path()).env("PATH", "/bin:/usr/bin");
            let output = shell.output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(run(), (Some(127), String::new()));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("haul"), "#!/bin/sh\necho \"it runs $1\"\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(bin.join("haul"), executable).unwrap();
        assert_eq!(run(), (Some(0), "it runs far\n".to_owned()));
    }
}
