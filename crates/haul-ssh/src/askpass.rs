//! Answers ssh's prompts for a password or a passphrase, each secret only to the prompt that it is meant for. ssh passes a prompt to a
//! program, in words that others may have chosen: a server with prompts of its own, a jump host, a command of the user's config.
//!
//! The secrets are in no environment and in no file: they wait in named pipes, for this user alone, and end with this
//! process however that ends.

#![allow(clippy::disallowed_methods)] // Its files live as long as a login.

use haul_core::{Error, Result};
use rustix::fs::{CWD, FileType, Mode};
use std::{
    fs::{File, OpenOptions, Permissions, read_dir, remove_dir_all, set_permissions, write},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// How often one of them may be asked for. ssh asks for a passphrase three times, and for the password once.
const TIMES: usize = 8;

/// How the folders are called, and how old one must be that a killed run left: a login takes no longer.
const PREFIX: &str = "ask";
const OLD: Duration = Duration::from_secs(3600);

/// Owner of the password, as ssh names it in its prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PasswordOwner {
    /// The user there.
    pub user: String,
    /// The host, under each name that ssh may use.
    pub hosts: Vec<String>,
}

/// The program that answers, for as long as this is kept.
#[derive(Debug)]
pub struct Askpass {
    folder: tempfile::TempDir,
    /// Both ends of the pipes: what is in them waits.
    _pipes: Vec<File>,
}

impl Askpass {
    /// Makes it in a folder of this user's alone. `password` is for a prompt that names `whose`; `passphrase` for those of keys.
    ///
    /// Errors: it can't be made.
    pub fn new(dir: &Path, password: Option<(&str, &PasswordOwner)>, passphrase: Option<&str>) -> Result<Askpass> {
        let io = |e| Error::from_io("connect", e);
        forget_old(dir);
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(private).tempdir_in(dir).map_err(io)?;
        let (mut cases, mut pipes) = (String::new(), Vec::new());
        if let Some(secret) = passphrase {
            let (path, pipe) = hold(folder.path(), "passphrase", secret).map_err(io)?;
            // A server's own questions begin otherwise: ssh puts who asks before them.
            cases += &format!("'Enter passphrase for '*) from={} ;;\n", quoted(&path));
            pipes.push(pipe);
        }
        if let Some((secret, whose)) = password.filter(|(_, whose)| !whose.hosts.is_empty()) {
            let (path, pipe) = hold(folder.path(), "password", secret).map_err(io)?;
            for host in &whose.hosts {
                let named = format!("{}@{host}", whose.user);
                let (plain, asked) = (quoted(&format!("{named}'s password:")), quoted(&format!("({named}) ")));
                cases += &format!("{plain}*|{asked}*[Pp]assword*) from={} ;;\n", quoted(&path));
            }
            pipes.push(pipe);
        }
        let program = format!(
            "#!/bin/sh\ncase \"$1\" in\n{cases}*) exit 1 ;;\nesac\nIFS= read -r answer <\"$from\" || exit 1\n\
             test -n \"$answer\" || exit 1\nprintf '%s\\n' \"$answer\"\n"
        );
        let askpass = Askpass { folder, _pipes: pipes };
        write(askpass.program(), program).map_err(io)?;
        set_permissions(askpass.program(), Permissions::from_mode(0o700)).map_err(io)?;
        Ok(askpass)
    }

    /// Where it is.
    pub fn program(&self) -> PathBuf {
        self.folder.path().join("program")
    }
}

/// A pipe of this name in which a secret waits, as often as it may be asked for. Behind that are empty lines: no answer.
fn hold(folder: &Path, name: &str, secret: &str) -> std::io::Result<(String, File)> {
    let path = folder.join(name);
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    // Both of its ends, so that opening it waits for nobody.
    let mut pipe = OpenOptions::new().read(true).write(true).open(&path)?;
    pipe.write_all(format!("{secret}\n").repeat(TIMES).as_bytes())?;
    pipe.write_all(&[b'\n'; 4 * TIMES])?;
    Ok((path.display().to_string(), pipe))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Removes what runs left that were killed while they logged in. It holds no secret, and is in nobody's way.
fn forget_old(dir: &Path) {
    for entry in read_dir(dir).into_iter().flatten().flatten() {
        let old =
            entry.metadata().and_then(|facts| facts.modified()).is_ok_and(|at| at.elapsed().is_ok_and(|age| age > OLD));
        if old && entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            let path = entry.path();
            // Of an earlier version it is a file.
            let _ = remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose() -> PasswordOwner {
        PasswordOwner { user: "anna".into(), hosts: vec!["host.example.com".into(), "al'ias".into()] }
    }

    fn ask(askpass: &Askpass, question: &str) -> Option<String> {
        let output = std::process::Command::new(askpass.program()).arg(question).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn a_secret_is_only_for_who_it_is_meant_for() {
        let dir = tempfile::tempdir().unwrap();
        let askpass = Askpass::new(dir.path(), Some((r" pa$s\n %s", &whose())), Some("phrase")).unwrap();
        let (password, phrase) = (Some(" pa$s\\n %s\n"), Some("phrase\n"));
        for (question, answer) in [
            ("anna@host.example.com's password: ", password),
            ("(anna@host.example.com) Password: ", password),
            ("(anna@host.example.com) Password for anna@host.example.com:", password),
            ("anna@al'ias's password: ", password),
            ("Enter passphrase for key '/k': ", phrase),
            // A server that asks what it likes, by keyboard-interactive.
            ("(anna@host.example.com) Enter passphrase for key '/k': ", None),
            // The jump host on the way, and hosts of similar names.
            ("anna@jump's password: ", None),
            ("(anna@jump) Password: ", None),
            ("bert@host.example.com's password: ", None),
            ("anna@host.example.com.evil's password: ", None),
            ("(anna@jump) (anna@host.example.com) Password: ", None),
            ("Password: ", None),
            ("Are you sure you want to continue connecting (yes/no)? ", None),
            ("(anna@host.example.com) Verification code: ", None),
        ] {
            assert_eq!(ask(&askpass, question).as_deref(), answer, "{question}");
        }
    }

    #[test]
    fn a_missing_secret_is_not_given() {
        let dir = tempfile::tempdir().unwrap();
        let password = Askpass::new(dir.path(), Some(("secret", &whose())), None).unwrap();
        assert_eq!(ask(&password, "Enter passphrase for key '/k': "), None);
        let nobodys = Askpass::new(dir.path(), Some(("secret", &PasswordOwner::default())), Some("phrase")).unwrap();
        assert_eq!(ask(&nobodys, "@'s password: "), None);
        assert_eq!(ask(&nobodys, "anna@host.example.com's password: "), None);
        // Answered as often as ssh asks. Further prompts get no answer at once, so that nothing waits for one.
        let answers: Vec<_> = (0..2 * TIMES).map(|_| ask(&nobodys, "Enter passphrase for key '/k': ")).collect();
        assert!(answers.iter().take(TIMES).all(Option::is_some) && answers.iter().skip(TIMES).all(Option::is_none));
    }

    #[test]
    fn secrets_are_in_no_file_and_go_with_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let askpass = Askpass::new(dir.path(), Some(("s3cret", &whose())), Some("phr4se")).unwrap();
        for entry in read_dir(askpass.folder.path()).unwrap().flatten() {
            let facts = entry.metadata().unwrap();
            assert_eq!(facts.permissions().mode() & 0o077, 0, "{entry:?}");
            if facts.is_file() {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                assert!(!text.contains("s3cret") && !text.contains("phr4se"), "{text}");
            }
        }
        assert_eq!(std::fs::metadata(askpass.folder.path()).unwrap().permissions().mode() & 0o077, 0);
        // One that a killed run left: its pipes are empty by now.
        let left = dir.path().join("askLEFT");
        std::fs::create_dir(&left).unwrap();
        let other = dir.path().join("0123456789abcdef");
        write(&other, "a socket of somebody's").unwrap();
        for path in [&left, &other] {
            File::open(path).unwrap().set_modified(std::time::SystemTime::now() - 2 * OLD).unwrap();
        }
        drop(Askpass::new(dir.path(), None, Some("x")).unwrap());
        assert!(!left.exists() && other.exists() && askpass.program().exists());
        drop(askpass);
        assert_eq!(read_dir(dir.path()).unwrap().count(), 1);
    }
}
