//! The way to a host as options of a remote: rclone's names and meanings, as far as the user's own ssh can follow them. Every kind of
//! store that ssh leads to has them.

use crate::{Ssh, SshSettings, Target};
use haul_core::{Error, ErrorKind, Result};
use haul_store::{OpenRequest, OptionKind, OptionSpec};
use std::sync::{Arc, Once};

/// An option that is any text.
pub const fn text(name: &'static str, help: &'static str, advanced: bool) -> OptionSpec {
    OptionSpec { name, help, default: "", kind: OptionKind::Text, advanced, secret: false, examples: &[] }
}

/// One that is true or false.
pub const fn flag(name: &'static str, help: &'static str, default: &'static str) -> OptionSpec {
    OptionSpec { name, help, default, kind: OptionKind::Bool, advanced: true, secret: false, examples: &[] }
}

/// One that is hidden in the file.
pub const fn password(name: &'static str, help: &'static str, advanced: bool) -> OptionSpec {
    OptionSpec { name, help, default: "", kind: OptionKind::Obscured, advanced, secret: true, examples: &[] }
}

/// One that is a whole number.
pub const fn number(name: &'static str, help: &'static str, default: &'static str) -> OptionSpec {
    OptionSpec { name, help, default, kind: OptionKind::Int, advanced: true, secret: false, examples: &[] }
}

/// The options, in the order in which they are asked for.
pub const HOST: [OptionSpec; 22] = [
    text("host", "Host to connect to, as named in your ssh config.", false),
    text("user", "User on that host. Leave blank for the one in your ssh config.", false),
    OptionSpec {
        name: "port",
        help: "Port. Leave blank for the one in your ssh config, or 22.",
        default: "",
        kind: OptionKind::Int,
        advanced: false,
        secret: false,
        examples: &[],
    },
    password("pass", "Password, if ssh asks for one. Leave blank to be asked, or for keys and agents.", false),
    text("key_file", "File with the private key. Leave blank for those in your ssh config and agent.", false),
    password("key_file_pass", "Passphrase of the key file. Leave blank to be asked.", false),
    flag("key_use_agent", "Only use the agent's key that belongs to key_file, which then needn't exist.", "false"),
    text("pubkey_file", "File with a certificate for the key.", true),
    text("known_hosts_file", "File of host keys. Leave blank for ssh's own. Keys are always checked.", true),
    flag("ask_password", "Accepted for compatibility with rclone: ssh asks whenever it needs a password.", "false"),
    text(
        "ssh",
        "Command that connects to the host, such as `ssh -p 2222 anna@host`, instead of all options above.",
        true,
    ),
    text(
        "set_env",
        "Environment variables to set on the host, NAME=value NAME=value, if the server accepts them.",
        true,
    ),
    text("ciphers", "Ciphers that ssh may use, separated by spaces.", true),
    text("key_exchange", "Key exchanges that ssh may use, separated by spaces.", true),
    text("macs", "MACs that ssh may use, separated by spaces.", true),
    text("host_key_algorithms", "Host key algorithms that ssh may use, separated by spaces.", true),
    flag("use_insecure_cipher", "Not supported: name insecure algorithms in ciphers and key_exchange.", "false"),
    OptionSpec {
        name: "key_pem",
        help: "Not supported: write the key to a file and name it in key_file.",
        default: "",
        kind: OptionKind::Text,
        advanced: true,
        secret: true,
        examples: &[],
    },
    text("pubkey", "Not supported: write the certificate to a file and name it in pubkey_file.", true),
    text("host_keys", "Not supported: ssh checks hosts by its known_hosts, see known_hosts_file.", true),
    text("socks_proxy", "Not supported: set ProxyCommand in your ssh config.", true),
    text("http_proxy", "Not supported: set ProxyCommand in your ssh config.", true),
];

/// Options that lead nowhere, and what to do instead.
const IMPOSSIBLE: [(&str, &str); 4] = [
    ("key_pem", "write the key to a file and name it in key_file"),
    ("pubkey", "write the certificate to a file and name it in pubkey_file"),
    ("socks_proxy", "set ProxyCommand in your ssh config: ProxyCommand nc -X 5 -x PROXY:PORT %h %p"),
    ("http_proxy", "set ProxyCommand in your ssh config: ProxyCommand nc -X connect -x PROXY:PORT %h %p"),
];

/// An option's value; empty where it isn't set.
pub fn value<'a>(request: &'a OpenRequest, name: &str) -> &'a str {
    request.options.get(name).map(String::as_str).unwrap_or_default()
}

/// Which host a remote's options mean.
///
/// Errors: `Invalid` for what can't be meant, or what ssh can't do.
pub fn target(request: &OpenRequest) -> Result<Target> {
    let option = |name: &str| value(request, name);
    let invalid = |message: String| Error::new(ErrorKind::Invalid, "open", format!("{}: {message}", request.remote));
    for (name, instead) in IMPOSSIBLE {
        if !option(name).is_empty() {
            return Err(invalid(format!("haul connects by your own ssh, which can't take {name}: {instead}")));
        }
    }
    aside(request);
    let set = |name: &str| Some(option(name).to_owned()).filter(|value| !value.is_empty());
    let port = match set("port") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| invalid(format!("{text:?} can't be a port")))?),
    };
    let command = words(option("ssh")).ok_or_else(|| invalid("the quotes in the option ssh don't end".into()))?;
    if command.is_empty() && option("host").is_empty() {
        return Err(invalid("it has no host: set one with haul config".into()));
    }
    Ok(Target {
        command,
        host: option("host").to_owned(),
        user: set("user"),
        port,
        options: ssh_options(request),
        password: set("pass"),
        passphrase: set("key_file_pass"),
    })
}

/// The way there. All stores of a session that go to one host as one user, asked for in the same way, share its login.
///
/// Errors: as for [`target`].
pub fn way(request: &OpenRequest) -> Result<Arc<Ssh>> {
    let (target, net) = (target(request)?, &request.net);
    request.shared.get(&format!("ssh {target:?}"), || {
        Ok(Ssh::new(SshSettings {
            target,
            runtime: net.runtime.clone(),
            connect_timeout: net.connect_timeout,
            idle_timeout: net.idle_timeout,
        }))
    })
}

/// Logs, once, the differences from a config file of rclone's.
fn aside(request: &OpenRequest) {
    let option = |name: &str| value(request, name);
    static KEYS: Once = Once::new();
    static CIPHERS: Once = Once::new();
    let remote = &request.remote;
    if !option("host_keys").is_empty() || option("known_hosts_file") == "none" {
        KEYS.call_once(|| {
            tracing::warn!("{remote}: ssh checks the host's key by its known_hosts, whatever the remote says")
        });
    }
    if option("use_insecure_cipher") == "true" {
        CIPHERS.call_once(|| {
            tracing::warn!(
                "{remote}: use_insecure_cipher does nothing: name what you need in ciphers and key_exchange"
            );
        });
    }
}

fn ssh_options(request: &OpenRequest) -> Vec<String> {
    let option = |name: &str| value(request, name);
    let mut words = Vec::new();
    match (option("key_file"), option("key_use_agent") == "true") {
        ("", _) => {}
        // With the public key ssh asks the agent for the other half.
        (file, true) => words.extend(["-oIdentitiesOnly=yes".into(), "-i".into(), format!("{file}.pub")]),
        (file, false) => words.extend(["-oIdentitiesOnly=yes".into(), "-i".into(), file.to_owned()]),
    }
    let lists = [
        ("ciphers", "Ciphers"),
        ("key_exchange", "KexAlgorithms"),
        ("macs", "MACs"),
        ("host_key_algorithms", "HostKeyAlgorithms"),
    ];
    for (name, own) in lists {
        let list: Vec<&str> = option(name).split_whitespace().collect();
        if !list.is_empty() {
            words.push(format!("-o{own}={}", list.join(",")));
        }
    }
    if !option("pubkey_file").is_empty() {
        words.push(format!("-oCertificateFile={}", option("pubkey_file")));
    }
    if !matches!(option("known_hosts_file"), "" | "none") {
        words.push(format!("-oUserKnownHostsFile={}", option("known_hosts_file")));
    }
    if !option("set_env").is_empty() {
        words.push(format!("-oSetEnv={}", option("set_env")));
    }
    words
}

/// A command in words, which quotes and backslashes hold together; `None` where a quote doesn't end.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(chars.next()?),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(options: &[(&str, &str)]) -> Result<Target> {
        target(&OpenRequest {
            remote: "r".into(),
            options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..OpenRequest::default()
        })
    }

    #[test]
    fn rclones_keys_become_sshs_words() {
        let target = at(&[
            ("host", "h"),
            ("user", "anna"),
            ("port", "2222"),
            ("key_file", "~/.ssh/k"),
            ("ciphers", "aes128-gcm@openssh.com  aes128-ctr"),
            ("known_hosts_file", "/k"),
        ])
        .unwrap();
        assert_eq!(target.shown(), "anna@h:2222");
        let words = ["-oIdentitiesOnly=yes", "-i", "~/.ssh/k", "-oCiphers=aes128-gcm@openssh.com,aes128-ctr"];
        assert_eq!(target.options[..4], words);
        assert_eq!(target.options[4], "-oUserKnownHostsFile=/k");
    }

    #[test]
    fn what_ssh_cannot_do_is_said() {
        let error = |options: &[(&str, &str)]| at(options).unwrap_err().message().to_owned();
        assert_eq!(error(&[]), "r: it has no host: set one with haul config");
        assert_eq!(
            error(&[("host", "h"), ("key_pem", "x")]),
            "r: haul connects by your own ssh, which can't take key_pem: write the key to a file and name it in key_file"
        );
        assert_eq!(error(&[("ssh", "ssh 'h")]), "r: the quotes in the option ssh don't end");
        assert_eq!(error(&[("host", "h"), ("port", "x")]), "r: \"x\" can't be a port");
    }

    #[test]
    fn a_command_is_read_in_words() {
        let read = |text: &str| words(text).map(|words| words.join("|"));
        assert_eq!(read("ssh -o 'A B=c'  anna@h").as_deref(), Some("ssh|-o|A B=c|anna@h"));
        assert_eq!(read("a\\ b \"c\\\"d\" ''").as_deref(), Some("a b|c\"d|"));
        assert_eq!(read("  ").as_deref(), Some(""));
        assert_eq!(read("'a"), None);
    }
}
