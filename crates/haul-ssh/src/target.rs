//! The host, and ssh's arguments for it. Pure.

use haul_core::{Error, ErrorKind, Result};
use std::fmt;

/// Whatever the user's config says of forwarding, terminals and commands of its own is for people, not for a pipe of bytes.
const PLAIN: [&str; 6] = [
    "-oRemoteCommand=none",
    "-oRequestTTY=no",
    "-oClearAllForwardings=yes",
    "-oForwardX11=no",
    "-oForwardAgent=no",
    "-oPermitLocalCommand=no",
];

/// A far host, and what is asked of ssh beyond what the user's config says.
#[derive(Clone, Default)]
pub struct Target {
    /// A whole command that leads to the host, in words, in place of `ssh` and all below but the secrets; empty: `ssh`.
    pub command: Vec<String>,
    /// The host, as the user's config knows it.
    pub host: String,
    /// The user there, if it isn't the config's.
    pub user: Option<String>,
    /// The port, if it isn't the config's.
    pub port: Option<u16>,
    /// Further words before the host: `-oCiphers=…`, `-i`, `key`.
    pub options: Vec<String>,
    /// Answers ssh's question for a password.
    pub password: Option<String>,
    /// Answers ssh's question for a key's passphrase.
    pub passphrase: Option<String>,
}

/// Program at the other end of a session's pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A subsystem: `sftp`.
    Subsystem(String),
    /// A command, as the far user's shell reads it.
    Command(String),
}

impl Target {
    /// ssh's own options can be added to it: without them each session logs in by itself.
    pub fn is_openssh(&self) -> bool {
        let program = self.command.first().map_or("ssh", String::as_str);
        program.rsplit('/').next() == Some("ssh")
    }

    /// The words of a command that begins a session, with `more` of ssh's own options first.
    ///
    /// Errors: `Invalid` for a host that ssh would take for an option.
    pub fn session(&self, more: &[String], remote: &Remote) -> Result<Vec<String>> {
        let (subsystem, text) = match remote {
            Remote::Subsystem(name) => (true, name),
            Remote::Command(text) => (false, text),
        };
        let mut words = self.head(more)?;
        if subsystem {
            // Behind a whole command's host too: ssh reads options there.
            let at = if self.command.is_empty() { words.len() - 1 } else { words.len() };
            words.insert(at, "-s".into());
        }
        words.push(text.clone());
        Ok(words)
    }

    /// The words of a command that asks ssh something about the host.
    ///
    /// Errors: as for [`Target::session`].
    pub fn question(&self, more: &[String]) -> Result<Vec<String>> {
        self.head(more)
    }

    fn head(&self, more: &[String]) -> Result<Vec<String>> {
        let plain = PLAIN.map(String::from);
        if let Some((program, rest)) = self.command.split_first() {
            let mut words = vec![program.clone()];
            if self.is_openssh() {
                words.extend(more.iter().chain(&plain).cloned());
            }
            words.extend_from_slice(rest);
            return Ok(words);
        }
        if self.host.is_empty() || self.host.starts_with('-') {
            let message = format!("{:?} can't be the name of a host", self.host);
            return Err(Error::new(ErrorKind::Invalid, "connect", message));
        }
        let mut words = vec!["ssh".to_owned()];
        words.extend(more.iter().chain(&plain).chain(&self.options).cloned());
        if let Some(port) = self.port {
            words.extend(["-p".into(), port.to_string()]);
        }
        if let Some(user) = &self.user {
            words.extend(["-l".into(), user.clone()]);
        }
        words.push(self.host.clone());
        Ok(words)
    }

    /// The host as a person writes it: `anna@host:2222`.
    pub fn shown(&self) -> String {
        if !self.command.is_empty() {
            return without_secrets(&self.command.join(" "));
        }
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{user}{}{port}", self.host)
    }
}

impl Target {
    /// The command that a person types to get there.
    pub fn typed(&self) -> String {
        if !self.command.is_empty() {
            return without_secrets(&self.command.join(" "));
        }
        let port = self.port.map(|port| format!("-p {port} ")).unwrap_or_default();
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        format!("ssh {port}{user}{}", self.host)
    }
}

/// A command as it may be shown: without the password that sshpass or plink is given in it.
pub(crate) fn without_secrets(line: &str) -> String {
    let (mut of_sshpass, mut next) = (false, false);
    let word = |word: &str| {
        let hidden = std::mem::take(&mut next);
        of_sshpass = of_sshpass && word.starts_with('-') || word.rsplit('/').next() == Some("sshpass");
        next = of_sshpass && word == "-p" || word == "-pw";
        match word.split_once("SSHPASS=") {
            _ if hidden => HIDDEN.to_owned(),
            Some((before, _)) => format!("{before}SSHPASS={HIDDEN}"),
            None if of_sshpass && word.len() > 2 && word.starts_with("-p") => format!("-p{HIDDEN}"),
            None => word.to_owned(),
        }
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Placeholder for a secret.
const HIDDEN: &str = "…";

/// Without the secrets.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("host", &self.shown()).field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(target: &Target, remote: &Remote) -> String {
        let words = target.session(&["-S".into(), "/s".into()], remote).unwrap();
        words.into_iter().filter(|word| !PLAIN.contains(&word.as_str())).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_command_is_shown_without_its_password() {
        for (line, shown) in [
            ("sshpass -p hunter2 ssh -p 22 h", "sshpass -p … ssh -p 22 h"),
            ("/usr/bin/sshpass -v -phunter2 ssh h", "/usr/bin/sshpass -v -p… ssh h"),
            ("env SSHPASS=hunter2 sshpass -e ssh h", "env SSHPASS=… sshpass -e ssh h"),
            ("plink -batch -pw hunter2 h", "plink -batch -pw … h"),
            ("ssh -p 22  h", "ssh -p 22  h"),
        ] {
            assert_eq!(without_secrets(line), shown);
        }
    }

    #[test]
    fn ssh_is_told_what_the_user_said() {
        let sftp = Remote::Subsystem("sftp".into());
        let host = Target { host: "host".into(), ..Target::default() };
        assert_eq!(spoken(&host, &sftp), "ssh -S /s -s host sftp");
        assert_eq!(spoken(&host, &Remote::Command("haul far".into())), "ssh -S /s host haul far");
        let more = Target {
            user: Some("anna".into()),
            port: Some(2222),
            options: vec!["-i".into(), "~/.ssh/k".into()],
            ..host.clone()
        };
        assert_eq!(spoken(&more, &sftp), "ssh -S /s -i ~/.ssh/k -p 2222 -l anna -s host sftp");
        assert_eq!((more.shown(), more.typed()), ("anna@host:2222".into(), "ssh -p 2222 anna@host".into()));
        let own = |words: &str| Target { command: words.split(' ').map(String::from).collect(), ..Target::default() };
        assert_eq!(spoken(&own("/usr/bin/ssh -4 anna@host"), &sftp), "/usr/bin/ssh -S /s -4 anna@host -s sftp");
        let other = own("dbclient anna@host");
        assert_eq!(spoken(&other, &sftp), "dbclient anna@host -s sftp");
        assert!(!other.is_openssh());
    }

    #[test]
    fn a_host_is_not_taken_for_an_option() {
        for host in ["-oProxyCommand=touch x", ""] {
            let error = Target { host: host.into(), ..Target::default() }.question(&[]).unwrap_err();
            assert_eq!(error.message(), format!("{host:?} can't be the name of a host"));
        }
    }
}
