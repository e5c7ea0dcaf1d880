//! Hashes of files by commands there (`md5sum`): the names of many files go to one command, and the sessions that run them stay.

use crate::{
    hash_queue::{Command, HashRequest},
    list,
    options::Commands,
    service::{Service, at, version},
    shell::{Shell, from_here, quoted},
};
use haul_core::{
    Algo, Error, ErrorKind, Hashes, Key, Result, Retry, Version,
    hash::{from_hex, hash_bytes},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

const OP: &str = "hash";

/// How long the first of several files waits for company.
const COMPANY: Duration = Duration::from_millis(5);

/// Marks the end of the file names passed to a command: no path begins so.
const NAMES_END: &[u8] = b"haul-names-end";

/// A file that every host has and that is empty.
const EMPTY: &[u8] = b"/dev/null";

/// Commands by which hosts compute hashes, in the order in which they are tried; the hashes in the order in which they are preferred.
const KNOWN: [(Algo, &str); 13] = [
    (Algo::Md5, "md5sum"),
    (Algo::Md5, "md5 -r"),
    (Algo::Sha1, "sha1sum"),
    (Algo::Sha1, "sha1 -r"),
    (Algo::Sha1, "shasum -a 1"),
    (Algo::Sha256, "sha256sum"),
    (Algo::Sha256, "sha256 -r"),
    (Algo::Sha256, "shasum -a 256"),
    (Algo::Sha512, "sha512sum"),
    (Algo::Sha512, "sha512 -r"),
    (Algo::Sha512, "shasum -a 512"),
    (Algo::Blake3, "b3sum"),
    (Algo::Xxh128, "xxh128sum"),
];

/// See [`haul_store::Hashing::algos`].
pub async fn algos(service: &Service) -> Result<Vec<Algo>> {
    let mut algos: Vec<Algo> = commands(service).await?.iter().map(|(algo, _)| *algo).collect();
    algos.dedup();
    Ok(algos)
}

/// The command for each hash on the server, found out once.
async fn commands(service: &Service) -> Result<&[(Algo, Command)]> {
    let Commands { own, only, none, .. } = &service.commands;
    let found = service.hashers.commands.get_or_try_init(async || {
        if *none {
            return Ok(Vec::new());
        }
        service.pool.hello().await?;
        let Some(mut shell) = Shell::begin(&service.pool).await else { return Ok(Vec::new()) };
        let wanted = |algo: &Algo| only.as_ref().is_none_or(|only| only.contains(algo));
        let mut found: Vec<(Algo, Command)> = Vec::new();
        for (algo, command) in KNOWN.iter().filter(|(algo, _)| wanted(algo)) {
            if found.iter().any(|(known, _)| known == algo) || own.contains_key(algo) {
                continue;
            }
            let output = shell.ask(&for_many(command, &[EMPTY]), 0).await?;
            let empty = hash_bytes(&[*algo], b"");
            if answers(*algo, &[EMPTY], &output).is_ok_and(|said| said[0].as_deref() == empty.get(*algo)) {
                found.push((*algo, Command::Many((*command).to_owned())));
            }
        }
        service.hashers.lock().idle.push(shell);
        let named = own.iter().filter(|(algo, _)| wanted(algo));
        found.extend(named.filter_map(|(algo, own)| Some((*algo, Command::One(own.clone()?)))));
        let order = |algo: Algo| KNOWN.iter().position(|(known, _)| *known == algo).unwrap_or(KNOWN.len());
        found.sort_by_key(|(algo, _)| order(*algo));
        tracing::debug!(?found, "what hashes there");
        Ok::<_, Error>(found)
    });
    Ok(found.await?)
}

/// See [`haul_store::Hashing::hash`].
pub async fn hash(service: &Arc<Service>, key: &Key, want: Option<&Version>, algos: &[Algo]) -> Result<Hashes> {
    let path = service.path(key)?;
    if key.is_symlink() {
        let target = list::target(service, &path).await.map_err(at(OP, key))?;
        return Ok(hash_bytes(algos, &target));
    }
    let facts = async || service.facts(&path, true).await.map_err(at(OP, key));
    let changed = || Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key);
    let before = facts().await?;
    if !before.is_file() {
        return Err(Error::new(ErrorKind::NotFound, OP, "no such file").with_key(key));
    }
    let there = version(&before);
    if want.is_some_and(|want| *want != there) {
        return Err(changed());
    }
    let mut hashes = Hashes::default();
    for algo in algos {
        let value = ask(service, *algo, service.for_shell(key)?, before.size.unwrap_or(0)).await;
        hashes.set(*algo, value.map_err(|error| error.with_key(key))?);
    }
    if version(&facts().await?) != there {
        return Err(changed());
    }
    Ok(hashes)
}

/// The hash of one file, which goes with others that wait.
async fn ask(service: &Arc<Service>, algo: Algo, path: Vec<u8>, size: u64) -> Result<Vec<u8>> {
    if !commands(service).await?.iter().any(|(known, _)| *known == algo) {
        return Err(Error::new(ErrorKind::Unsupported, OP, format!("the host has no command for {algo} hashes")));
    }
    service.gate.pass().await;
    let (answer, answered) = oneshot::channel();
    {
        let mut waiting = service.hashers.lock();
        waiting.files.push_back(HashRequest { algo, path, size, answer });
        if waiting.is_busy() {
            waiting.at_work += 1;
            tokio::spawn(work(service.clone()));
        }
    }
    let lost = || Error::new(ErrorKind::Io, OP, "the session was lost").with_retry(Retry::Backoff);
    answered.await.unwrap_or_else(|_| Err(lost()))
}

/// Hashes what waits until nothing does.
async fn work(service: Arc<Service>) {
    tokio::time::sleep(COMPANY).await;
    let mut shell = service.hashers.lock().idle.pop();
    loop {
        let batch = {
            let mut waiting = service.hashers.lock();
            let batch = waiting.batch();
            if batch.is_empty() {
                waiting.at_work -= 1;
                waiting.idle.extend(shell);
                return;
            }
            batch
        };
        if shell.is_none() {
            shell = Shell::begin(&service.pool).await;
        }
        let hashed = match &mut shell {
            Some(shell) => hashed(&service, shell, &batch).await,
            None => Err(Error::new(ErrorKind::Io, OP, "no session for commands").with_retry(Retry::Backoff)),
        };
        match hashed {
            Ok(hashes) => batch.into_iter().zip(hashes).for_each(|(wanted, hash)| {
                // Nobody may wait for it any more.
                let _ = wanted.answer.send(hash.ok_or_else(none));
            }),
            Err(error) => {
                shell = None;
                batch.into_iter().for_each(|wanted| {
                    let _ = wanted.answer.send(Err(error.to_report()));
                });
            }
        }
    }
}

fn none() -> Error {
    let why = "the host's command gave no hash of it: it may not read it, or finds it elsewhere than SFTP does (path_override)";
    Error::new(ErrorKind::Io, OP, why).with_retry(Retry::Never)
}

/// The hashes of a batch, in its order; `None` for a file of which the command says nothing.
async fn hashed(service: &Service, shell: &mut Shell, batch: &[HashRequest]) -> Result<Vec<Option<Vec<u8>>>> {
    let Some(algo) = batch.first().map(|first| first.algo) else { return Ok(Vec::new()) };
    let command = commands(service).await?.iter().find(|(known, _)| *known == algo).map(|(_, command)| command);
    let Some(command) = command else { return Ok(vec![None; batch.len()]) };
    let mut hashes: Vec<Option<Vec<u8>>> = vec![None; batch.len()];
    let together = |wanted: &HashRequest| matches!(command, Command::Many(_)) && !is_odd(&wanted.path);
    let many: Vec<usize> = (0..batch.len()).filter(|number| together(&batch[*number])).collect();
    if let Command::Many(command) = command
        && !many.is_empty()
    {
        let paths: Vec<&[u8]> = many.iter().map(|number| &batch[*number].path[..]).collect();
        let bytes = many.iter().fold(0, |sum: u64, number| sum.saturating_add(batch[*number].size));
        service.meters.request("Hash");
        let output = shell.ask(&for_many(command, &paths), bytes).await?;
        for (number, hash) in many.into_iter().zip(answers(algo, &paths, &output)?) {
            hashes[number] = hash;
        }
    }
    for (wanted, hash) in batch.iter().zip(&mut hashes).filter(|(wanted, _)| !together(wanted)) {
        service.meters.request("Hash");
        let output = shell.ask(&for_one(command, &wanted.path), wanted.size).await?;
        *hash = first_word(algo, &output);
    }
    Ok(hashes)
}

/// A path that commands print otherwise than it is, or that takes more than a line.
fn is_odd(path: &[u8]) -> bool {
    path.iter().any(|byte| matches!(byte, b'\n' | b'\r' | b'\\'))
}

/// A command that hashes many files, whose names it reads from standard input: a command line is bounded.
fn for_many(command: &str, paths: &[&[u8]]) -> Vec<u8> {
    let mut text =
        [&b"tr '\\n' '\\000' <<'"[..], NAMES_END, b"' | xargs -0 ", command.as_bytes(), b" 2>/dev/null\n"].concat();
    for path in paths {
        text.extend(from_here(path));
        text.push(b'\n');
    }
    text.extend_from_slice(NAMES_END);
    text
}

/// A command that hashes one file.
fn for_one(command: &Command, path: &[u8]) -> Vec<u8> {
    let (command, how) = match command {
        // Where it reads what has no name it prints none.
        Command::Many(command) => (command, &b" <"[..]),
        Command::One(command) => (command, &b" "[..]),
    };
    [command.as_bytes(), how, &quoted(path), b" 2>/dev/null"].concat()
}

fn digest(algo: Algo, word: &[u8]) -> Option<Vec<u8>> {
    from_hex(std::str::from_utf8(word).ok()?).filter(|digest| digest.len() == algo.size())
}

/// The hash at the beginning of an output; a leading backslash marks an escaped file name.
fn first_word(algo: Algo, output: &[u8]) -> Option<Vec<u8>> {
    let output = output.strip_prefix(b"\\").unwrap_or(output);
    digest(algo, output.split(u8::is_ascii_whitespace).next()?)
}

/// The hashes of an output whose lines are a hash and a name, in the order of the names; `None` for a missing one.
///
/// Errors: `Corrupt` for a line that isn't a hash, or names another file than the next ones: then none of it can be trusted.
fn answers(algo: Algo, paths: &[&[u8]], output: &[u8]) -> Result<Vec<Option<Vec<u8>>>> {
    let mut hashes = vec![None; paths.len()];
    let mut next = 0;
    for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let parse = || {
            let (hash, rest) = line.split_at_checked(2 * algo.size())?;
            let (hash, name) = (digest(algo, hash)?, rest.strip_prefix(b" ")?);
            // md5sum has a character more, which says how it reads, and BSD's doesn't.
            let is = |path: &[u8], name: &[u8]| name == from_here(path);
            let marked = name.strip_prefix(b" ").or(name.strip_prefix(b"*"));
            let at = (next..paths.len())
                .find(|at| is(paths[*at], name) || marked.is_some_and(|name| is(paths[*at], name)))?;
            Some((at, hash))
        };
        let Some((at, hash)) = parse() else {
            let line = String::from_utf8_lossy(&line[..line.len().min(200)]);
            let why = format!("the host's command answered what can't be read: {}", line.escape_debug());
            return Err(Error::new(ErrorKind::Corrupt, OP, why).with_retry(Retry::Never));
        };
        hashes[at] = Some(hash);
        next = at + 1;
    }
    Ok(hashes)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests make their own files.
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{io::Write as _, os::unix::ffi::OsStrExt as _, path::Path, process};

    fn run(shell: &str, text: &[u8], dir: &Path) -> Vec<u8> {
        let mut child = process::Command::new(shell)
            .current_dir(dir)
            .stdin(process::Stdio::piped())
            .stdout(process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        child.wait_with_output().unwrap().stdout
    }

    const NAMES: [&[u8]; 8] =
        [b"a", b"-n", b"two  words", b"'q\"$HOME`", b"\xff\xfe", b"*x", b" leading", b"haul-names-end"];
    const ODD: [&[u8]; 3] = [b"new\nline", b"back\\slash", b"re\rturn"];

    #[test]
    fn every_shell_tells_each_file_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let hash = |name: &[u8]| hash_bytes(&[Algo::Md5], name).get(Algo::Md5).map(<[u8]>::to_vec);
        for name in NAMES.iter().chain(&ODD) {
            std::fs::write(dir.path().join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
        }
        for shell in ["sh", "dash", "bash"].into_iter().filter(|shell| Path::new("/bin").join(shell).exists()) {
            let mut paths = NAMES.to_vec();
            paths.insert(3, b"missing");
            let answered = answers(Algo::Md5, &paths, &run(shell, &for_many("md5sum", &paths), dir.path())).unwrap();
            let wanted: Vec<_> = paths.iter().map(|name| hash(name).filter(|_| *name != b"missing")).collect();
            assert_eq!(answered, wanted, "{shell}");
            for name in ODD {
                assert!(is_odd(name));
                for command in [Command::Many("md5sum".into()), Command::One("md5sum --".into())] {
                    let output = run(shell, &for_one(&command, name), dir.path());
                    assert_eq!(first_word(Algo::Md5, &output), hash(name), "{shell} {command:?}");
                }
            }
            let none = run(shell, &for_one(&Command::Many("md5sum".into()), b"none"), dir.path());
            assert_eq!(first_word(Algo::Md5, &none), None);
        }
    }

    #[test]
    fn what_is_no_answer_is_not_taken_for_one() {
        let (one, two) = ("d41d8cd98f00b204e9800998ecf8427e", "0cc175b9c0f1b6a831c399e269772661");
        let parsed = |output: &str| answers(Algo::Md5, &[b"/a", b"/b", b"/c"], output.as_bytes());
        let some = |hash: &str| from_hex(hash);
        assert_eq!(parsed(&format!("{one}  /a\n{two} */c\n")).unwrap(), [some(one), None, some(two)]);
        assert_eq!(parsed(&format!("{one} /b\n")).unwrap(), [None, some(one), None], "as BSD's md5 -r");
        for wrong in [
            format!("{one}  /c\n{two}  /a\n"),
            format!("{one}  /a\n{two}  /a\n"),
            format!("{one}  /d\n"),
            format!("{one}0  /a\n"),
            format!("{}  /a\n", &one[1..]),
            "md5sum: /a: Permission denied\n".to_owned(),
            format!("\\{one}  /a\n"),
        ] {
            assert_eq!(parsed(&wrong).unwrap_err().kind(), ErrorKind::Corrupt, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_an_answer_or_an_error(output in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (answers(Algo::Md5, &[b"/a"], &output), first_word(Algo::Md5, &output));
        }
    }
}
