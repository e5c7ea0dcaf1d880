//! Hosts as rsync names them: `HOST:PATH` and `USER@HOST:PATH` become folders of haul there or, where there is none, of the host's SFTP
//! server. What is configured as a remote of that name is that.

use super::{
    Context,
    exit::{self, Refusal},
    opening,
    options::Options,
    path_args::check_daemon,
};
use haul_core::{Error, ErrorKind, Key, Retry};
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

/// Default program to reach hosts.
const SHELL: &str = "ssh";

/// How a connection string to haul at a host begins.
const FAR: &str = ":far,";

/// A host, and the path typed after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostPath<'a> {
    user: Option<&'a str>,
    host: &'a str,
    path: &'a [u8],
}

/// The options with each host in place of its name.
///
/// Errors: a daemon; a host that can't be reached, or can't keep what is asked for.
pub async fn reach(options: Options, ctx: &Context<'_>) -> Result<Options, Refusal> {
    let mut reached: HashMap<String, String> = HashMap::new();
    let (mut paths, mut last) = (Vec::with_capacity(options.paths.len()), None);
    for (number, word) in options.paths.iter().enumerate() {
        check_daemon(word)?;
        let typed = match (typed(word.as_bytes()), last) {
            (Some(typed), _) if is_remote(ctx, &typed)? => None,
            (None, Some(last)) => again(word.as_bytes(), last),
            (typed, _) => typed,
        };
        last = typed.or(last);
        let Some(typed) = typed else {
            paths.push(word.clone());
            continue;
        };
        check_host(&typed)?;
        check_home(&typed)?;
        let there = typed.there();
        if !reached.contains_key(&there) {
            let is_source = number == 0 || number + 1 < options.paths.len();
            let head = climb(&options, ctx, &typed, is_source).await?;
            reached.insert(there.clone(), head);
        }
        paths.push(OsString::from_vec([reached[&there].as_bytes(), typed.below_home()].concat()));
    }
    Ok(Options { paths, ..options })
}

/// A host with a path; `None` for a path here, and for what only haul knows: `:type:path`, `name,option=value:path`.
fn typed(word: &[u8]) -> Option<HostPath<'_>> {
    let (head, path) = match word.strip_prefix(b"[").and_then(|_| word.windows(2).position(|two| two == b"]:")) {
        // An address of IPv6.
        Some(end) => (&word[1..end], &word[end + 2..]),
        None => {
            let end = word.iter().position(|b| matches!(b, b':' | b'/' | b','))?;
            (word[end] == b':').then(|| (&word[..end], &word[end + 1..]))?
        }
    };
    let head = std::str::from_utf8(head).ok().filter(|head| !head.is_empty() && !head.starts_with('-'))?;
    let (user, host) = match head.rsplit_once('@') {
        Some((user, host)) if !user.is_empty() && !host.is_empty() => (Some(user), host.trim_start_matches('[')),
        Some(_) => return None,
        None => (None, head),
    };
    Some(HostPath { user, host, path })
}

/// Refuses a host that ssh would take for an option: ours is a whole command, of which ssh knows no host.
fn check_host(typed: &HostPath<'_>) -> Result<(), Refusal> {
    match typed.host.starts_with('-') {
        true => Err((exit::USAGE, format!("{:?} can't be the name of a host (code {})", typed.host, exit::USAGE))),
        false => Ok(()),
    }
}

/// Refuses `~NAME`, which a shell there would take for that user's home directory: nobody there is asked where it is.
fn check_home(typed: &HostPath<'_>) -> Result<(), Refusal> {
    let home = typed.path.split(|b| *b == b'/').next().unwrap_or_default();
    if home.len() < 2 || !home.starts_with(b"~") {
        return Ok(());
    }
    let (host, home, path) =
        (typed.there(), String::from_utf8_lossy(home), String::from_utf8_lossy(typed.path).into_owned());
    let line = format!(
        "Refused {host}:{path}: haul doesn't know where the home directory {home} is. Write its absolute path, or \
         {host}:./{path} for a file of that name"
    );
    Err((exit::USAGE, line))
}

/// `:path`, which means the host before it.
fn again<'a>(word: &'a [u8], last: HostPath<'a>) -> Option<HostPath<'a>> {
    let path = word.strip_prefix(b":").filter(|path| !path.contains(&b':'))?;
    Some(HostPath { path, ..last })
}

fn is_remote(ctx: &Context<'_>, typed: &HostPath<'_>) -> Result<bool, Refusal> {
    let failed = |error: haul_remotes::Error| (exit::FILE_IO, format!("{:#}", anyhow::Error::from(error)));
    ctx.session.is_remote(&typed.there()).map_err(failed)
}

impl<'a> HostPath<'a> {
    fn there(&self) -> String {
        self.user.map_or_else(|| self.host.to_owned(), |user| format!("{user}@{}", self.host))
    }

    /// The path, which begins at the home folder where it isn't absolute.
    fn below_home(&self) -> &'a [u8] {
        match self.path {
            b"~" => b"",
            path => path.strip_prefix(b"~/").unwrap_or(path),
        }
    }
}

/// The way to a host: haul there, else its SFTP server in the same login, reported in one line.
///
/// Errors: neither exists there, or SFTP doesn't support the options.
async fn climb(options: &Options, ctx: &Context<'_>, typed: &HostPath<'_>, is_source: bool) -> Result<String, Refusal> {
    let (mut words, there) = (shell(options)?, typed.there());
    if is_ssh(&words) {
        words.extend(options.family.map(|family| format!("-{family}")));
    }
    if let Some(user) = typed.user {
        words.extend(["-l".to_owned(), user.to_owned()]);
    }
    words.push(typed.host.to_owned());
    let ssh = value(&words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
    let path = options.rsync_path.as_ref().map(|path| format!(",haul_path={}", value(path)));
    let far = format!("{FAR}ssh={ssh}{}{}", path.unwrap_or_default(), compression(options)?);
    let (installs, far) = (format!("{far},install_far_end=true:"), format!("{far}:"));
    let absent = match reach_by(options, ctx, &far).await? {
        Ok(()) => return Ok(far),
        Err(error) => error,
    };
    let stopped = |error: haul_remotes::Error| (exit::FILE_IO, format!("{:#}", anyhow::Error::from(error)));
    let failed = match ctx.session.may_install(&far, &there, &absent).await.map_err(stopped)? {
        true => match reach_by(options, ctx, &installs).await? {
            Ok(()) => return Ok(installs),
            Err(error) => error,
        },
        false => absent,
    };
    let why = failed.message();
    // A program that ends by itself, whatever it says, was reached.
    if failed.kind() != ErrorKind::Io || failed.retry() != Retry::Never {
        return Err((exit::SSH, format!("error: {there} can't be reached: {why} (code {})", exit::SSH)));
    }
    if let Some(path) = &options.rsync_path {
        let code = exit::NO_COMMAND;
        return Err((code, format!("error: `{path} far` doesn't run on {there}: {why} (code {code})")));
    }
    if let Some(asked) = unpreserved(options, is_source) {
        let line = format!(
            "{asked} needs haul on {there}: {why}. Install it there, name it with --rsync-path, or leave {asked} out"
        );
        return Err((exit::UNSUPPORTED, line));
    }
    // rclone by default follows links unasked.
    let sftp = format!(":sftp,protocol=sftp,skip_links=true,ssh={ssh}:");
    match reach_by(options, ctx, &sftp).await? {
        Ok(()) => {
            let line = "files go by SFTP, whole, without owners, groups, devices and fractions of seconds";
            ctx.screen.log(&format!("haul rsync: no haul on {there}: {line}"));
            Ok(sftp)
        }
        Err(error) => {
            let (code, sftp) = (exit::SSH, error.message());
            Err((code, format!("error: {there} has neither haul ({why}) nor SFTP ({sftp}) (code {code})")))
        }
    }
}

/// The options that say when to compress.
///
/// Errors: zstd has no such level.
fn compression(options: &Options) -> Result<String, Refusal> {
    let level = options.compress_level.map(|level| match level {
        -7..=22 => Ok(format!(",compress_level={level}")),
        _ => Err((exit::USAGE, format!("--compress-level={level}: zstd has -7 to 22"))),
    });
    let when = options.compress.map(|on| format!(",compress={}", if on { "on" } else { "off" }));
    Ok(when.unwrap_or_default() + &level.transpose()?.unwrap_or_default())
}

/// Reaches the host, and asks for the folder where a log-in begins unless haul there answers.
///
/// Errors: the store can't be meant; within: it can't be reached.
async fn reach_by(options: &Options, ctx: &Context<'_>, head: &str) -> Result<Result<(), Error>, Refusal> {
    let store = match ctx.session.open(OsStr::new(head), &opening::looked_at(options)) {
        // It is opened once haul there has answered.
        Ok(_) if head.starts_with(FAR) => return Ok(Ok(())),
        Ok(store) => store,
        Err(error) => {
            return match error.cause() {
                haul_remotes::Error::Store(failed) if failed.op() == "connect" => Ok(Err(failed.to_report())),
                _ => Err((exit::FILE_IO, format!("{:#}", anyhow::Error::from(error)))),
            };
        }
    };
    Ok(store.stat(&Key::new("")).await.map(|_| ()))
}

/// The first requested option that SFTP can't support, of those that nobody sets by habit.
fn unpreserved(options: &Options, is_source: bool) -> Option<&'static str> {
    let wanted = [
        (options.hard_links, "--hard-links"),
        (options.acls, "--acls"),
        (options.xattrs, "--xattrs"),
        (options.atimes, "--atimes"),
        (!options.users.is_empty(), "--chown or --usermap"),
        (!options.groups.is_empty(), "--chown or --groupmap"),
        // By SFTP all symlinks of a source are followed, or none.
        (is_source && options.copy_dirlinks, "--copy-dirlinks"),
        (is_source && options.copy_unsafe_links, "--copy-unsafe-links"),
    ];
    wanted.into_iter().find_map(|(wanted, name)| wanted.then_some(name))
}

/// The words of the command that reaches hosts: those of `-e`, else of `RSYNC_RSH`.
///
/// Errors: a quote that doesn't end.
fn shell(options: &Options) -> Result<Vec<String>, Refusal> {
    let text = options.rsh.as_deref().filter(|text| !text.trim().is_empty()).unwrap_or(SHELL);
    split(text).ok_or_else(|| (exit::USAGE, format!("--rsh={text}: a quote doesn't end")))
}

fn is_ssh(words: &[String]) -> bool {
    words.first().is_some_and(|program| program.rsplit('/').next() == Some(SHELL))
}

/// The words of a command; a quote within quotes of the other kind is itself, and a doubled one within its own.
fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open && chars.peek() == Some(&open) => {
                chars.next();
                word.get_or_insert_default().push(c);
            }
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@' | '=' | '+' | ':' | '%');
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// An option's value as a connection string has it.
fn value(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_rsync_reads_them() {
        let host = |user, host, path: &'static str| Some(HostPath { user, host, path: path.as_bytes() });
        for (word, want) in [
            ("h:dir", host(None, "h", "dir")),
            ("h:", host(None, "h", "")),
            ("anna@h.example.com:/d:e", host(Some("anna"), "h.example.com", "/d:e")),
            ("[::1]:d", host(None, "::1", "d")),
            ("[anna@::1]:d", host(Some("anna"), "::1", "d")),
            ("a/b:c", None),
            ("./h:c", None),
            (":sftp,host=x:y", None),
            ("r,type=sftp:y", None),
            ("-oProxyCommand=x:y", None),
            ("plain", None),
            ("@h:x", None),
        ] {
            assert_eq!(typed(word.as_bytes()), want, "{word}");
        }
        for word in ["a@-oProxyCommand=x:y", "[a@-oProxyCommand=x]:y", "a@[-oProxyCommand=x]:y"] {
            let refused = typed(word.as_bytes()).map(|typed| check_host(&typed));
            assert!(refused.is_none_or(|checked| checked.is_err_and(|(code, _)| code == exit::USAGE)), "{word}");
        }
        let typed_host = typed(b"a@-oProxyCommand=x:y").unwrap();
        let message = "\"-oProxyCommand=x\" can't be the name of a host (code 1)";
        assert_eq!(check_host(&typed_host).unwrap_err(), (exit::USAGE, message.to_owned()));
        assert!(check_host(&typed(b"-a@h:x").unwrap_or(typed(b"h:x").unwrap())).is_ok());
        assert_eq!(again(b":d2", typed(b"u@h:d").unwrap()), host(Some("u"), "h", "d2"));
        assert_eq!(typed(b"h:~/d").unwrap().below_home(), b"d");
        for (word, message) in [
            (
                "u@h:~anna/d",
                "the home directory ~anna is. Write its absolute path, or u@h:./~anna/d for a file of that name",
            ),
            ("h:~*", "the home directory ~* is. Write its absolute path, or h:./~* for a file of that name"),
        ] {
            let (code, line) = check_home(&typed(word.as_bytes()).unwrap()).unwrap_err();
            assert_eq!((code, line), (exit::USAGE, format!("Refused {word}: haul doesn't know where {message}")));
        }
        for word in ["h:~", "h:~/~anna", "h:./~anna", "h:d/~anna", "h:/~anna", "h:"] {
            assert!(check_home(&typed(word.as_bytes()).unwrap()).is_ok(), "{word}");
        }
        assert!(check_daemon(OsStr::new("h::m")).is_err() && check_daemon(OsStr::new("h:m::n/")).is_err());
        assert!(check_daemon(OsStr::new("./h::m")).is_ok());
    }

    #[test]
    fn a_shell_is_words_with_quotes() {
        let words = |text| split(text).map(|words| words.join("|"));
        assert_eq!(words("ssh -p 2222"), Some("ssh|-p|2222".into()));
        assert_eq!(
            words(r#"ssh -o "ProxyCommand nc %h 'x'" -i 'a''b' """#),
            Some("ssh|-o|ProxyCommand nc %h 'x'|-i|a'b|".into())
        );
        assert_eq!(words("ssh 'x"), None);
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(value("a\"b"), "\"a\"\"b\"");
    }
}
