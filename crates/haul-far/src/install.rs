//! Putting this program where a host can run it (`install_far_end`): into the user's cache there, under its own SHA-256, which the host
//! checks. In the session in which the far end then speaks, and only when the user asked for it.

#![allow(clippy::disallowed_methods)] // It reads this program.

use haul_core::{
    Algo, Error, ErrorKind, Result,
    hash::{hash_bytes, to_hex},
};
use haul_ssh::Patience;
use std::sync::OnceLock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes that are written at a time.
const PIECE: usize = 64 << 10;

/// Prefix of the host's output about the installation.
const MARK: &str = "haul-far-end";

/// Its lines are no longer, and a login shell prints no more before them.
const MOST: usize = 64 << 10;

/// Where far ends are, as a shell there finds them.
const DIR: &str = "${XDG_CACHE_HOME:-$HOME/.cache}/haul/far";

/// Output of a host without haul, before that of `uname -sm`.
pub const ABSENT: &str = "haul: not found on";

/// Bytes of this program, where a connection failed as the host has no haul and is of this machine's kind: it can be put there then.
pub fn fits(error: &Error) -> Option<u64> {
    let (_, said) = error.message().split_once(ABSENT)?;
    let machine = said.split([';', ')']).next()?.trim();
    if machine != here() {
        return None;
    }
    std::fs::metadata("/proc/self/exe").ok().map(|program| program.len())
}

/// This program.
#[derive(Debug)]
pub struct Program {
    bytes: Vec<u8>,
    sha256: String,
}

/// This program, read once.
///
/// Errors: it can't be read.
pub fn program() -> Result<&'static Program> {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    if let Some(program) = PROGRAM.get() {
        return Ok(program);
    }
    let bytes = std::fs::read("/proc/self/exe").map_err(|e| Error::from_io("install haul there", e))?;
    let sha256 = hash_bytes(&[Algo::Sha256], &bytes).get(Algo::Sha256).map(to_hex).unwrap_or_default();
    Ok(PROGRAM.get_or_init(|| Program { bytes, sha256 }))
}

/// So many stay that were installed: machines of several versions may share a host.
const KEPT: usize = 3;

/// The word that is what was installed last, for a shell that looks for haul.
pub fn found() -> String {
    format!("\"$(ls -td \"{DIR}\"/* 2>/dev/null | head -n 1)\"")
}

impl Program {
    /// The command for the user's shell there: runs the far end, and requests the program first where it is missing. Under its name the
    /// program is complete or missing.
    pub fn command(&self) -> String {
        let (sha, size, older) = (&self.sha256, self.bytes.len(), KEPT + 1);
        format!(
            "sh -c 'umask 077; d={DIR}; f=\"$d/{sha}\"; \
             if ! [ -x \"$f\" ]; then mkdir -p \"$d\" && t=$(mktemp \"$d/.new.XXXXXX\") || exit; \
             echo {MARK} wants $(uname -sm); head -c {size} >\"$t\"; \
             if echo \"{sha}  $t\" | sha256sum -c >/dev/null 2>&1 && chmod 700 \"$t\" && \"$t\" version >/dev/null; \
             then mv -f \"$t\" \"$f\" || exit; \
             ls -td \"$d\"/* | tail -n +{older} | while read -r o; do rm -f \"$o\"; done; \
             else rm -f \"$t\"; echo {MARK} fails; exit 1; fi; fi; \
             echo {MARK} is there; exec \"$f\" far'"
        )
    }

    /// Gives it to a host that wants it. However long the line takes for it; but the host says or takes something within `patience`.
    ///
    /// Errors: the host is of another kind, it can't run it, or something else speaks there; it is silent.
    pub async fn offer(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        patience: &Patience,
    ) -> Result<()> {
        let refused = |why: String| Error::new(ErrorKind::Unreachable, "install haul there", why);
        let lost = |e| Error::from_io("install haul there", e);
        let silent = || {
            let why = format!("the host was silent for {} s", patience.session().as_secs());
            Error::new(ErrorKind::Timeout, "install haul there", why)
        };
        loop {
            let answer_line = patience.wait(answer(from)).await.ok_or_else(silent)??;
            let Some(answer_line) = answer_line else { return Err(refused("no haul answered there".to_owned())) };
            match answer_line.split_once(' ').unwrap_or((&answer_line, "")) {
                ("is", "there") => return Ok(()),
                ("wants", machine) if machine == here() => {
                    for piece in self.bytes.chunks(PIECE) {
                        patience.wait(to.write_all(piece)).await.ok_or_else(silent)?.map_err(lost)?;
                    }
                    patience.wait(to.flush()).await.ok_or_else(silent)?.map_err(lost)?;
                }
                ("wants", machine) => {
                    return Err(refused(format!(
                        "haul can't be installed there: this one is for {}, the host is {machine}",
                        here()
                    )));
                }
                _ => {
                    return Err(refused(
                        "haul can't be installed there: it doesn't run, such as where the C library is older"
                            .to_owned(),
                    ));
                }
            }
        }
    }
}

/// Output of `uname -sm` on this machine.
fn here() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.machine().to_string_lossy())
}

/// The next line with the mark, behind whatever else is printed; `None` where that ends.
async fn answer(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<String>> {
    let (mut line, mut seen) = (Vec::new(), 0);
    loop {
        match from.read_u8().await {
            Ok(b'\n') => {
                let text = String::from_utf8_lossy(&line);
                if let Some(said) = text.split_once(MARK).map(|(_, said)| said.trim().to_owned()) {
                    return Ok(Some(said));
                }
                line.clear();
            }
            Ok(byte) if seen < MOST => line.push(byte),
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(Error::from_io("install haul there", error)),
        }
        seen += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{process::Stdio, time::Duration};
    use tokio::process::Command;

    fn program(bytes: &[u8]) -> Program {
        let hashes = hash_bytes(&[Algo::Sha256], bytes);
        Program { bytes: bytes.to_vec(), sha256: to_hex(hashes.get(Algo::Sha256).unwrap()) }
    }

    /// Runs what a host's shell would, and gives what the far end said after it was offered the program; the files in the cache.
    async fn install(program: &Program, cache: &std::path::Path) -> (Result<String>, Vec<String>) {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("echo Welcome; {}", program.command())).env("XDG_CACHE_HOME", cache);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let offered = program.offer(&mut from, &mut to, &Patience::of(Duration::from_secs(60))).await;
        drop(to);
        let mut output = String::new();
        from.read_to_string(&mut output).await.unwrap();
        child.wait().await.unwrap();
        let listed = std::fs::read_dir(cache.join("haul/far")).unwrap().flatten();
        (offered.map(|()| output), listed.map(|entry| entry.file_name().into_string().unwrap()).collect())
    }

    #[test]
    fn it_fits_where_haul_is_absent_and_the_machine_is_the_same() {
        let fits = |said: &str| fits(&Error::new(ErrorKind::Io, "connect", said)).is_some();
        let here = here();
        assert!(fits(&format!("no haul answered there (h: ssh ended with code 127: {ABSENT} {here})")));
        assert!(fits(&format!("no haul answered there (h: ssh ended with code 127: {ABSENT} {here}; bye)")));
        assert!(!fits(&format!("no haul answered there (h: ssh ended with code 127: {ABSENT} {here}el)")));
        assert!(!fits(&format!("no haul answered there (h: ssh ended with code 127: {ABSENT} )")));
        assert!(!fits("no haul answered there (h: ssh ended with code 127: sh: 1: haul: not found)"));
        assert!(!fits("no haul answered there within 20 s"));
    }

    #[tokio::test]
    async fn it_is_installed_once_whole_and_only_where_it_runs() {
        let cache = tempfile::tempdir().unwrap();
        // A shell script of the size of a program.
        let runs = program(format!("#!/bin/sh\necho \"it runs $1\"\n#{}\n", "x".repeat(300_000)).as_bytes());
        for _ in 0..2 {
            let (said, files) = install(&runs, cache.path()).await;
            assert_eq!((said.unwrap().as_str(), files), ("it runs far\n", vec![runs.sha256.clone()]));
        }
        // Of those that were installed before, the latest stay.
        for (old, number) in ["a", "b", "c", "d"].into_iter().zip(1..) {
            let path = cache.path().join("haul/far").join(old);
            std::fs::write(&path, "#!/bin/sh\necho old\n").unwrap();
            std::fs::File::open(&path)
                .unwrap()
                .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(number))
                .unwrap();
        }
        let newer = program(b"#!/bin/sh\necho \"it runs anew $1\"\n");
        let (said, mut files) = install(&newer, cache.path()).await;
        files.sort();
        let mut kept = vec!["d".to_owned(), newer.sha256.clone(), runs.sha256.clone()];
        kept.sort();
        assert_eq!((said.unwrap().as_str(), files), ("it runs anew far\n", kept));
        // And the last one is what is found without being asked for.
        let mut shell = std::process::Command::new("/bin/sh");
        shell.arg("-c").arg(format!("printf %s {}", found())).env("XDG_CACHE_HOME", cache.path());
        let found = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        assert!(found.ends_with(&newer.sha256), "{found}");
        for name in ["d", &newer.sha256] {
            std::fs::remove_file(cache.path().join("haul/far").join(name)).unwrap();
        }
        let broken = program(b"#!/no/such/interpreter\n");
        let (said, files) = install(&broken, cache.path()).await;
        let expected = "haul can't be installed there: it doesn't run, such as where the C library is older";
        assert_eq!((said.unwrap_err().message(), files), (expected, vec![runs.sha256.clone()]));
        // A program that arrives damaged isn't kept.
        let other = Program { sha256: runs.sha256.replace(|_: char| true, "0"), bytes: runs.bytes.clone() };
        let (said, files) = install(&other, cache.path()).await;
        assert!(said.is_err() && files == [runs.sha256.clone()]);
    }
}
