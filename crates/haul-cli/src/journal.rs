//! A command line as a journal keeps it: without secrets, in the order that `args` gave it, so that it can be run again.

use crate::flags::stores;
pub use haul_remotes::secrets::shown as shown_path;
use haul_remotes::{
    registry,
    secrets::{LEFT_OUT, holds_login, is_secret, left_out},
};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

/// Flags whose values may hold a secret, beside those of stores. A header may be any token.
const SECRET_FLAGS: [&str; 5] = ["client-pass", "header", "header-download", "header-upload", "password-command"];

/// A command line to keep.
#[derive(Debug, PartialEq, Eq)]
pub struct SavedCommand {
    /// Its words, without the program's name.
    pub words: Vec<Vec<u8>>,
    /// Nothing was left out.
    pub complete: bool,
}

/// A line without its secrets. Its first word is the program's name.
pub fn keep(line: &[OsString]) -> SavedCommand {
    let mut complete = true;
    let word = |word: &OsString| match without_secrets(word) {
        Some(rest) => {
            complete = false;
            rest
        }
        None => word.as_bytes().to_vec(),
    };
    let words = line.iter().skip(1).map(word).collect();
    SavedCommand { words, complete: complete && !reads_once(line) }
}

/// True for a line that takes a list from standard input, or from another descriptor: a second run would find nothing there.
fn reads_once(line: &[OsString]) -> bool {
    let words = || line.iter().map(|word| word.as_bytes());
    let is_list = |flag: &[u8]| flag.starts_with(b"--") && flag.windows(5).any(|five| five == b"-from");
    let gone = |file: &[u8]| {
        let descriptor: [&[u8]; 3] = [b"/dev/stdin", b"/dev/fd/", b"/proc/self/fd/"];
        file == b"-" || descriptor.iter().any(|begins| file.starts_with(begins))
    };
    let apart = words().zip(words().skip(1)).any(|(flag, file)| is_list(flag) && !flag.contains(&b'=') && gone(file));
    let joined = words().any(|word| {
        let at = word.iter().position(|byte| *byte == b'=');
        at.is_some_and(|at| is_list(&word[..at]) && gone(&word[at + 1..]))
    });
    apart || joined
}

/// The line as a person would type it.
pub fn shown(words: &[Vec<u8>]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_=./:,+@%".contains(b) || *b >= 0x80;
    let word = |word: &Vec<u8>| {
        let text = crate::error::one_line(&String::from_utf8_lossy(word));
        let quoted = word.is_empty() || !word.iter().all(plain);
        if quoted { format!("'{}'", text.replace('\'', "'\\''")) } else { text }
    };
    std::iter::once("haul".into()).chain(words.iter().map(word)).collect::<Vec<_>>().join(" ")
}

/// The words of a kept line that can be run.
pub fn words(words: &[Vec<u8>]) -> impl Iterator<Item = OsString> {
    words.iter().map(|word| OsString::from_vec(word.clone()))
}

/// The word without the secret that it holds; `None` when it holds none.
fn without_secrets(word: &OsStr) -> Option<Vec<u8>> {
    let bytes = word.as_bytes();
    let Some(flag) = bytes.strip_prefix(b"--") else {
        // A command that leads to a host may be a word by itself (`haul rsync -e`).
        let login = holds_login("", &word.to_string_lossy()).then(|| LEFT_OUT.into());
        return left_out(bytes).or(login);
    };
    let at = flag.iter().position(|b| *b == b'=')?;
    let (name, value) = (&flag[..at], &flag[at + 1..]);
    let head = |rest: &[u8]| [b"--", name, b"=", rest].concat();
    if value.is_empty() {
        return None;
    }
    let of_flag = is_secret_flag(name) || holds_login(&String::from_utf8_lossy(name), &String::from_utf8_lossy(value));
    match left_out(value) {
        Some(rest) if !is_secret_flag(name) => Some(head(&rest)),
        _ => of_flag.then(|| head(LEFT_OUT.as_bytes())),
    }
}

fn is_secret_flag(name: &[u8]) -> bool {
    let of_stores = registry::kinds().iter().flat_map(|kind| {
        kind.options.iter().filter(|option| is_secret(option)).map(|option| stores::name(kind, option))
    });
    of_stores.chain(SECRET_FLAGS.map(String::from)).any(|secret| secret.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(line: &[&str]) -> (String, bool) {
        let line: Vec<OsString> = std::iter::once("haul").chain(line.iter().copied()).map(OsString::from).collect();
        let SavedCommand { words, complete } = keep(&line);
        (shown(&words), complete)
    }

    #[test]
    fn a_command_line_that_reads_standard_input_is_recorded_as_incomplete() {
        for (line, complete) in [
            (&["--exclude-from=-", "sync", "a", "b"][..], false),
            (&["sync", "a", "b", "--files-from-raw", "-"], false),
            (&["sync", "a", "b", "--filter-from=/dev/fd/63"], false),
            (&["rsync", "-a", "--exclude-from=/dev/stdin", "a/", "b/"], false),
            (&["sync", "a", "b", "--combined=-"], true),
            (&["sync", "a", "b", "--exclude-from=list"], true),
        ] {
            assert_eq!(kept(line).1, complete, "{line:?}");
        }
    }

    #[test]
    fn what_is_no_secret_is_kept_as_it_is() {
        let line = ["--s3-region=eu", "--exclude=*.tmp", "copy", ":s3,provider=Minio,env_auth:b/x", "/a b/it's"];
        let shown = r"haul --s3-region=eu '--exclude=*.tmp' copy :s3,provider=Minio,env_auth:b/x '/a b/it'\''s'";
        assert_eq!(kept(&line), (shown.into(), true));
        let line = [
            "--http-proxy=http://h:3128",
            "--sftp-ssh=ssh -p 22 anna@h",
            "--webdav-url=https://h/a@b",
            "copy",
            "a@h:b",
        ];
        assert!(kept(&line).1);
    }

    #[test]
    fn secrets_are_left_out() {
        for (word, left) in [
            ("--s3-secret-access-key=hunter2", "--s3-secret-access-key=…"),
            ("--s3-sse-customer-key=hunter2", "--s3-sse-customer-key=…"),
            ("--password-command=echo hunter2", "--password-command=…"),
            (":s3,secret_access_key=hunter2,env_auth:b/x", ":s3,…:b/x"),
            ("r,session-token=\"hun:ter2\":b", "r,…:b"),
            ("--backup-dir=:s3,secret_access_key=hunter2:b", "--backup-dir=:s3,…:b"),
            ("--header=Authorization: Bearer hunter2", "--header=…"),
            ("--header-upload=X-Key: hunter2", "--header-upload=…"),
            ("--header-download=X-Key: hunter2", "--header-download=…"),
            ("--client-pass=hunter2", "--client-pass=…"),
            ("--http-proxy=http://anna:hunter2@127.0.0.1:9", "--http-proxy=…"),
            ("--sftp-http-proxy=http://anna:hunter2@127.0.0.1:9", "--sftp-http-proxy=…"),
            ("--sftp-ssh=sshpass -p hunter2 ssh h", "--sftp-ssh=…"),
            ("--far-ssh=sshpass -phunter2 ssh h", "--far-ssh=…"),
            ("--rsh=sshpass -p hunter2 ssh", "--rsh=…"),
            ("sshpass -p hunter2 ssh", "…"),
            ("--webdav-url=https://anna:hunter2@h/dav", "--webdav-url=…"),
            (":webdav,url='https://anna:hunter2@h/dav':x", ":webdav,…:x"),
            ("--backup-dir=:webdav,url='https://anna:hunter2@h/dav':x", "--backup-dir=:webdav,…:x"),
        ] {
            assert_eq!(kept(&["copy", word, "x:"]), (format!("haul copy {left} x:"), false), "{word}");
        }
    }

    #[test]
    fn nothing_draws_on_the_terminal() {
        assert_eq!(shown(&[b"a\x1b[2J".to_vec(), Vec::new()]), "haul 'a\u{FFFD}[2J' ''");
    }
}
