//! Commands there, where the host has a shell for us: never assumed, found out by what comes back.

use crate::pool::Pool;
use haul_core::{Algo, Result, hash::from_hex};
use haul_ssh::{Pipe, Remote};
use std::{sync::atomic::Ordering, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What comes before a command's own output, behind whatever else a login shell prints.
const MARK: &str = "haul-begins-here";

/// Bytes of an output at most.
const OUTPUT: u64 = 16 << 20;

/// How long nothing may come: it reads files meanwhile.
const SILENCE: Duration = Duration::from_secs(120);

/// Reads stretches of a file that are told as lines `OFFSET SIZE`, and prints the SHA-256 of each.
const STRETCHES: &str = "while read at size; do tail -c +$((at + 1)) \"$file\" | head -c \"$size\" | sha256sum; done";

/// SHA-256 of stretches of a file, each an offset and a size, by a command there. `None` where that can't be had.
pub async fn stretches(pool: &Pool, path: &[u8], of: &[(u64, u64)]) -> Result<Option<Vec<Vec<u8>>>> {
    let Some(path) = quoted(path) else { return Ok(None) };
    let lines: String = of.iter().map(|(at, size)| format!("{at} {size}\n")).collect();
    let Some(output) = run(pool, &format!("file={path}; {STRETCHES}"), lines.into_bytes()).await? else {
        return Ok(None);
    };
    Ok(digests(&output).filter(|found| found.len() == of.len()))
}

/// The hashes of an output, one a line.
fn digests(output: &str) -> Option<Vec<Vec<u8>>> {
    let lines = output.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let digest = from_hex(line.split_whitespace().next()?)?;
            (digest.len() == Algo::Sha256.size()).then_some(digest)
        })
        .collect()
}

/// A path as a shell reads it; `None` for one that isn't UTF-8.
fn quoted(path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok()?;
    let from_here = if path.starts_with('/') { "" } else { "./" };
    Some(format!("'{from_here}{}'", path.replace('\'', "'\\''")))
}

/// What a command of a POSIX shell prints that reads `input`; `None` where there is no such shell, or it is none of ours.
async fn run(pool: &Pool, script: &str, input: Vec<u8>) -> Result<Option<String>> {
    if pool.no_shell.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let command = format!("echo {MARK}; {script}");
    let opening = match pool.ssh.further(&Remote::Command(command)).await {
        Ok(opening) => opening,
        Err(error) => {
            tracing::debug!(%error, "no session for a command");
            return Ok(None);
        }
    };
    let Pipe { input: mut to, output: mut from, end } = opening.is_up();
    let send = async move {
        // What can't be written is told by what comes back.
        let _ = to.write_all(&input).await;
    };
    let receive = async {
        let mut all = Vec::new();
        let mut from = (&mut from).take(OUTPUT);
        loop {
            match tokio::time::timeout(SILENCE, from.read_buf(&mut all)).await {
                Ok(Ok(0) | Err(_)) => return Some(all),
                Ok(Ok(_)) => {}
                Err(_) => return None,
            }
        }
    };
    let ((), output) = tokio::join!(send, receive);
    end.stop();
    let output = output.unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let own = text.split_once(&format!("{MARK}\n")).map(|(_, own)| own.to_owned());
    if own.is_none() {
        tracing::debug!("there is no shell for commands");
        pool.no_shell.store(true, Ordering::Relaxed);
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word_of_a_shell() {
        assert_eq!(quoted(b"/a b").as_deref(), Some("'/a b'"));
        assert_eq!(quoted(b"-x/it's").as_deref(), Some("'./-x/it'\\''s'"));
        assert_eq!(quoted(b"\xff"), None);
    }

    #[test]
    fn only_hashes_are_hashes() {
        let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digests(&format!("{hash}  -\n{hash}  -\n")).map(|found| found.len()), Some(2));
        assert_eq!(digests("sh: sha256sum: not found\n"), None);
        assert_eq!(digests("d41d8cd98f00b204e9800998ecf8427e  -\n"), None);
    }
}
