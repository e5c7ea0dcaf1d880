//! A POSIX shell on the server, on a separate session, where the host allows one: never assumed, but found out from its output.

use crate::pool::Pool;
use haul_core::{Algo, Error, ErrorKind, Result, Retry, hash::from_hex};
use haul_ssh::{End, Pipe, Remote};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdin, ChildStdout},
};

/// The shell, whichever the user's own is: it reads commands as they come.
const SHELL: &str = "exec sh";

/// Marks the start of a command's output, after anything that a login shell prints, and its end.
const MARK: &[u8] = b"haul-is-here";

/// Bytes of an output at most.
const OUTPUT: usize = 16 << 20;

/// Bytes a second that a host reads and hashes at least.
const SPEED: u64 = 10_000_000;

/// A shell that waits for commands.
#[derive(Debug)]
pub struct Shell {
    to: ChildStdin,
    from: ChildStdout,
    end: End,
    /// How long it may be silent, apart from what it reads.
    idle: Duration,
    /// Bytes received and not consumed yet.
    rest: Vec<u8>,
}

impl Shell {
    /// Begins one; `None` where there is none for us.
    pub async fn begin(pool: &Arc<Pool>) -> Option<Shell> {
        // It is a further session of a login.
        if pool.no_shell.load(Ordering::Relaxed) || pool.hello().await.is_ok_and(|hello| hello.takes_one_session()) {
            return None;
        }
        let opening = match pool.ssh.further(&Remote::Command(SHELL.to_owned())).await {
            Ok(opening) => opening,
            Err(error) => {
                tracing::debug!(%error, "no session for commands");
                return None;
            }
        };
        let Pipe { input: to, output: from, end } = opening.is_up();
        let mut shell = Shell { to, from, end, idle: pool.idle, rest: Vec::new() };
        match shell.ask(b"LC_ALL=C; export LC_ALL", 0).await {
            Ok(_) => Some(shell),
            Err(error) => {
                tracing::debug!(%error, "there is no shell for commands");
                pool.no_shell.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Output of commands that read `bytes` bytes on the server. After a failure the shell can't be used any more.
    ///
    /// Errors: the shell has ended, is silent, or its output doesn't end.
    pub async fn ask(&mut self, commands: &[u8], bytes: u64) -> Result<Vec<u8>> {
        let silence = self.idle + Duration::from_secs(bytes / SPEED);
        let text = [commands, b"\necho\necho ", MARK, b"\n"].concat();
        let Shell { to, from, rest, .. } = self;
        let send = async {
            // A failed write shows in the missing output.
            let _ = to.write_all(&text).await;
            let _ = to.flush().await;
        };
        let receive = async {
            loop {
                if let Some(output) = before_mark(rest) {
                    return Ok(output);
                }
                let why = match tokio::time::timeout(silence, from.read_buf(rest)).await {
                    Ok(Ok(1..)) if rest.len() <= OUTPUT => continue,
                    Ok(Ok(1..)) => "prints without an end".to_owned(),
                    Ok(_) => "has ended".to_owned(),
                    Err(_) => format!("was silent for {} s", silence.as_secs()),
                };
                return Err(why);
            }
        };
        let received = {
            let mut receive = std::pin::pin!(receive);
            // A shell that stops reading may print why.
            tokio::select! {
                received = &mut receive => received,
                () = send => receive.await,
            }
        };
        received.map_err(|why| {
            self.end.stop();
            let message = format!("the shell there {why}");
            Error::new(ErrorKind::Io, "hash", message).with_retry(Retry::Backoff)
        })
    }
}

/// Takes out what stands before the next line that is the mark.
fn before_mark(rest: &mut Vec<u8>) -> Option<Vec<u8>> {
    let line = [&b"\n"[..], MARK, b"\n"].concat();
    let at = rest.windows(line.len()).position(|window| window == line)?;
    let behind = rest.split_off(at + line.len());
    let mut output = std::mem::replace(rest, behind);
    output.truncate(at);
    Some(output)
}

/// A path as a shell reads it.
pub fn quoted(path: &[u8]) -> Vec<u8> {
    let mut word = b"'".to_vec();
    for byte in from_here(path) {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            byte => word.push(byte),
        }
    }
    word.push(b'\'');
    word
}

/// A path that no command takes for an option.
pub fn from_here(path: &[u8]) -> Vec<u8> {
    let before: &[u8] = if path.starts_with(b"/") { b"" } else { b"./" };
    [before, path].concat()
}

/// SHA-256 of stretches of a file, each an offset and a size, by a command there. `None` where that can't be had.
pub async fn stretches(pool: &Arc<Pool>, path: &[u8], of: &[(u64, u64)]) -> Option<Vec<Vec<u8>>> {
    let mut shell = Shell::begin(pool).await?;
    let mut commands = [&b"file="[..], &quoted(path), b"\n"].concat();
    for (at, size) in of {
        let from = at + 1;
        commands.extend(format!("tail -c +{from} \"$file\" | head -c {size} | sha256sum\n").into_bytes());
    }
    let bytes = of.iter().map(|(_, size)| size).sum();
    let output = shell.ask(&commands, bytes).await.inspect_err(|error| tracing::debug!(%error, "no hashes")).ok()?;
    digests(&output).filter(|found| found.len() == of.len())
}

/// The hashes of an output, one a line.
fn digests(output: &[u8]) -> Option<Vec<Vec<u8>>> {
    let lines = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let digest = from_hex(std::str::from_utf8(line).ok()?.split_whitespace().next()?)?;
            (digest.len() == Algo::Sha256.size()).then_some(digest)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word_of_a_shell() {
        for (path, word) in
            [(&b"/a b"[..], &b"'/a b'"[..]), (b"-x/it's", b"'./-x/it'\\''s'"), (b"\xff\n$x", b"'./\xff\n$x'")]
        {
            assert_eq!(quoted(path), word);
        }
    }

    #[test]
    fn an_output_ends_with_the_mark() {
        let mut rest = b"motd haul-is-here\nfirst\n\nhaul-is-here\nsecond\nhaul-is-he".to_vec();
        assert_eq!(before_mark(&mut rest).as_deref(), Some(&b"motd haul-is-here\nfirst\n"[..]));
        assert_eq!(before_mark(&mut rest), None);
        rest.extend(b"re\n");
        assert_eq!(before_mark(&mut rest).as_deref(), Some(&b"second"[..]));
        assert!(rest.is_empty());
    }

    #[test]
    fn only_hashes_are_hashes() {
        let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digests(format!("{hash}  -\n{hash}  -\n").as_bytes()).map(|found| found.len()), Some(2));
        assert_eq!(digests(b"sh: sha256sum: not found\n"), None);
        assert_eq!(digests(b"d41d8cd98f00b204e9800998ecf8427e  -\n"), None);
    }
}
