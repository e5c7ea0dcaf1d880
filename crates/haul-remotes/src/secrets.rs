//! Remotes as people are shown them: a connection string may hold secrets.

use crate::{Location, Spec, registry};
use haul_store::{OptionKind, OptionSpec};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

/// Placeholder for text that was left out.
pub const LEFT_OUT: &str = "…";

/// True for an option whose value nobody is to see.
pub fn is_secret(option: &OptionSpec) -> bool {
    option.secret || option.kind == OptionKind::Obscured
}

/// True for a value of this option (or flag) that holds a login, though not every value of it is secret: a user in an address,
/// `https://user:password@host`, or a password in a command, `sshpass -p password ssh`.
pub fn holds_login(name: &str, value: &str) -> bool {
    // Proxies are also typed without a scheme.
    let of_proxy = name.ends_with("proxy") && value.contains('@');
    of_proxy || has_user(value) || has_password(value)
}

fn has_user(value: &str) -> bool {
    value
        .split("://")
        .skip(1)
        .any(|rest| rest.split(['/', '?', '#', ' ']).next().is_some_and(|host| host.contains('@')))
}

fn has_password(command: &str) -> bool {
    let mut words = command.split_whitespace();
    // Of its own options these have a value, which may be a word by itself; what follows them is ssh's.
    let mut of_sshpass = false;
    if words.any(|word| word.rsplit('/').next() == Some("sshpass")) {
        while let Some(option) = words.next().filter(|word| word.starts_with('-')) {
            of_sshpass |= option.starts_with("-p");
            if matches!(option, "-f" | "-d" | "-P") {
                words.next();
            }
        }
    }
    command.contains("SSHPASS=")
        || of_sshpass
        || command.split_whitespace().any(|word| word == "-pw") && command.contains("plink")
}

/// A connection string without its options, when one of them is secret; `None` when it holds no secret. A remote's name
/// doesn't tell its type here, so an option counts as secret when it is one in any type.
pub fn left_out(text: &[u8]) -> Option<Vec<u8>> {
    let Spec { place, path } = Spec::parse(text).ok()?;
    let (name, options) = match &place {
        Location::Local => return None,
        Location::Remote { name, options } => (name.clone(), options),
        Location::Backend { kind, options } => (format!(":{kind}"), options),
    };
    let secret = |name: &str| {
        let mut all = registry::kinds().iter().flat_map(|kind| kind.options);
        all.any(|option| option.name == name && is_secret(option))
    };
    let held = options.iter().any(|(name, value)| secret(name) || holds_login(name, value));
    held.then(|| [name.as_bytes(), b",", LEFT_OUT.as_bytes(), b":", &path].concat())
}

/// The typed remote, for a message.
pub fn shown(typed: &OsStr) -> String {
    match left_out(typed.as_bytes()) {
        Some(rest) => String::from_utf8_lossy(&rest).into_owned(),
        None => typed.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_no_secret() {
        assert_eq!(shown(OsStr::new(":s3,secret_access_key=hunter2:b/x")), ":s3,…:b/x");
        assert_eq!(shown(OsStr::new("r,session-token=\"hun:ter2\":b")), "r,…:b");
        assert_eq!(shown(OsStr::new(":s3,env_auth:b/x")), ":s3,env_auth:b/x");
        assert_eq!(shown(OsStr::new("r:b/x")), "r:b/x");
        assert_eq!(shown(OsStr::new(":webdav,url='https://anna:pw@host/dav':x")), ":webdav,…:x");
        assert_eq!(shown(OsStr::new(":sftp,ssh='sshpass -p pw ssh h':x")), ":sftp,…:x");
    }

    #[test]
    fn logins_in_values_are_found() {
        for (name, value) in [
            ("url", "https://anna:pw@host"),
            ("http-proxy", "http://anna:pw@127.0.0.1:9"),
            ("socks_proxy", "anna:pw@host:1080"),
            ("ssh", "/usr/bin/sshpass -ppw ssh h"),
            ("ssh", "env SSHPASS=pw sshpass -e ssh h"),
            ("ssh", "plink -batch -pw pw h"),
        ] {
            assert!(holds_login(name, value), "{name} {value}");
        }
        for (name, value) in [
            ("url", "https://host/a@b"),
            ("url", "https://host?mail=a@b"),
            ("ssh", "ssh -p 2222 anna@host"),
            ("ssh", "sshpass -f file ssh -p 22 h"),
            ("ssh", "sshpass -e ssh -p 2222 h"),
            ("http-proxy", "http://host:3128"),
        ] {
            assert!(!holds_login(name, value), "{name} {value}");
        }
    }
}
