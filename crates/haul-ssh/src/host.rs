//! The user's ssh config for a host, as ssh itself prints it (`ssh -G`).

use crate::target::Target;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};

/// A host that nobody has in a config.
const NOBODY: &str = "haul-asks-for-a-host-that-is-not-there.invalid";

/// ssh's configuration for a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config(BTreeMap<String, String>);

impl Config {
    /// From what `ssh -G` prints.
    pub fn parse(text: &str) -> Config {
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        Config(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    /// A setting, if it has one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| *value != "none")
    }

    /// Where the user's own master listens, if they have one.
    pub fn control_path(&self) -> Option<PathBuf> {
        self.get("controlpath").map(PathBuf::from)
    }

    /// True when two hosts are treated differently beyond their names.
    fn differs(&self, name: &str, other: &Config, other_name: &str) -> bool {
        let plain = |config: &Config, name: &str| {
            // A path of a socket holds a hash of the name.
            let settings = config.0.iter().filter(|(key, _)| !matches!(&***key, "host" | "controlpath"));
            // Only where it stands for the host: a short name is part of many words.
            let replaced = settings.map(|(key, value)| match value.strip_prefix(name) {
                Some("") => (key.clone(), "%h".to_owned()),
                Some(domain) if key == "hostname" => (key.clone(), format!("%h{domain}")),
                _ => (key.clone(), value.clone()),
            });
            replaced.collect::<BTreeMap<_, _>>()
        };
        plain(self, name) != plain(other, other_name)
    }
}

/// Whether the user's ssh config knows a host of this name: ssh treats it otherwise than one that nobody knows. `false` where ssh can't
/// be asked.
pub fn is_known(host: &str) -> bool {
    let ask = |host: &str| ask_blocking(&Target { host: host.to_owned(), ..Target::default() });
    let unlikely = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    if host.is_empty() || host.contains(unlikely) {
        return false;
    }
    match (ask(host), ask(NOBODY)) {
        (Some(own), Some(nobody)) => own.differs(host, &nobody, NOBODY),
        _ => false,
    }
}

fn ask_blocking(target: &Target) -> Option<Config> {
    let words = target.question(&["-G".to_owned()]).ok()?;
    let (program, rest) = words.split_first()?;
    let output = Command::new(program).args(rest).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| Config::parse(&String::from_utf8_lossy(&output.stdout)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_settings_of_its_own_is_known() {
        let of = |name: &str, more: &str| Config::parse(&format!("host {name}\nhostname {name}\nport 22\n{more}"));
        let nobody = of("nobody", "controlpath /c/1\n");
        assert!(!of("web", "controlpath /c/2\n").differs("web", &nobody, "nobody"));
        assert!(of("web", "user anna\n").differs("web", &nobody, "nobody"));
        let other = Config::parse("host web\nhostname 10.0.0.1\nport 22\n");
        assert!(other.differs("web", &nobody, "nobody"));
        // Names that are part of other words, and hosts that all get a domain.
        let short =
            |name: &str| Config::parse(&format!("host {name}\nhostname {name}\nforwardx11 no\nciphers aes,axe\n"));
        assert!(!short("x").differs("x", &short("nobody"), "nobody"));
        let domain = |name: &str| Config::parse(&format!("host {name}\nhostname {name}.example.com\n"));
        assert!(!domain("x").differs("x", &domain("nobody"), "nobody"));
        assert_eq!(nobody.control_path(), Some("/c/1".into()));
        assert_eq!(Config::parse("controlpath none\n").control_path(), None);
    }
}
