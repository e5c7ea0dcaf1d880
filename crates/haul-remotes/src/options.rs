//! Where a remote's options come from, and in which order they count: connection string, command line,
//! `HAUL_CONFIG_<NAME>_<KEY>` or `RCLONE_CONFIG_…`, `HAUL_<TYPE>_<KEY>` or `RCLONE_<TYPE>_<KEY>`, config file.

use crate::{
    Environment, Error, Result,
    config::{Config, obscure::reveal},
    registry,
    spec::{Location, Spec},
    unsupported::{Lacking, lacking, refused},
};
use haul_core::{
    text::{boolean, nearest},
    units::{parse_duration, parse_size},
};
use haul_store::{OptionKind, StoreKind};
use std::{collections::BTreeMap, fmt};

/// Options of stores as a front end's flags give them: kind, then option, then value.
pub type StoreFlags = BTreeMap<String, BTreeMap<String, String>>;

/// A remote, ready to be opened.
#[derive(Clone)]
pub struct ResolvedRemote {
    /// Its type.
    pub kind: &'static StoreKind,
    /// Its name for people; empty for a path of this machine.
    pub remote: String,
    /// Path in it.
    pub path: Vec<u8>,
    /// Options, revealed and checked.
    pub options: BTreeMap<String, String>,
    /// Options of its section that haul lacks: what they ask for is told to people.
    pub lacking: Vec<String>,
}

impl ResolvedRemote {
    /// The option, and its value, by which deleted files of this remote don't go to a trash; `None` where there is none that does it.
    pub fn for_good(&self) -> Option<(&'static str, &'static str)> {
        // Personal OneDrive has no such request.
        // In a shared drive only its managers may delete for good.
        let is_shared = || self.options.get("team_drive").is_some_and(|id| !id.is_empty());
        let is_personal = || self.options.get("drive_type").is_none_or(|kind| kind.is_empty() || kind == "personal");
        match self.kind.name {
            "box" => Some(("hard_delete", "true")),
            "drive" if !is_shared() => Some(("use_trash", "false")),
            "onedrive" if !is_personal() => Some(("hard_delete", "true")),
            _ => None,
        }
    }
}

/// Without the options, which hold secrets.
impl fmt::Debug for ResolvedRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved").field("kind", &self.kind.name).field("remote", &self.remote).finish_non_exhaustive()
    }
}

/// Looks remotes up.
pub struct Resolver<'a> {
    /// The loaded files.
    pub config: &'a dyn Fn() -> Result<&'a Config>,
    /// Options from the command line.
    pub flags: &'a StoreFlags,
    /// The environment.
    pub environment: &'a Environment,
}

/// How many aliases may point to aliases, so that a loop ends.
const MAX_ALIASES: usize = 16;
/// A remote that stands for a path on another one.
const ALIAS: &str = "alias";
/// A remote whose folders are paths on others.
const COMBINE: &str = "combine";

impl Resolver<'_> {
    /// The store behind what a user typed, through aliases and combined remotes.
    ///
    /// Errors: an unknown remote (with the files that were read and the nearest name), an unknown type, a value that
    /// its option can't have, an option without which the remote would hold other files.
    pub fn resolve(&self, spec: &Spec) -> Result<ResolvedRemote> {
        let mut spec = spec.clone();
        for _ in 0..MAX_ALIASES {
            let (kind, remote, typed) = self.kind(&spec.place)?;
            if kind == COMBINE {
                let (target, rest) = self.combined(&remote, &typed, &spec.path)?;
                let next = Spec::parse(target.as_bytes()).map_err(|e| e.within(format!("combine {remote:?}")))?;
                spec = Spec { path: join(&next.path, &rest), place: next.place };
                continue;
            }
            if kind != ALIAS {
                return self.finish(&kind, remote, spec.path, typed);
            }
            let target = self.value(ALIAS, &remote, "remote", &typed)?;
            let target = target
                .filter(|target| !target.is_empty())
                .ok_or_else(|| Error::config(format!("alias {remote:?} has no remote: set it with haul config")))?;
            let next = Spec::parse(target.as_bytes()).map_err(|e| e.within(format!("alias {remote:?}")))?;
            spec = Spec { path: join(&next.path, &spec.path), place: next.place };
        }
        Err(Error::config(format!("an alias points to itself, through {MAX_ALIASES} others")))
    }

    /// The target of the first part of a path in a combined remote, and the rest of the path.
    ///
    /// Errors: it has no target, or there is none.
    fn combined(&self, remote: &str, typed: &BTreeMap<String, String>, path: &[u8]) -> Result<(String, Vec<u8>)> {
        let upstreams = self.value(COMBINE, remote, "upstreams", typed)?.unwrap_or_default();
        let folders =
            folders(&upstreams).map_err(|e| Error::config(format!("combine {remote:?}, option upstreams: {e}")))?;
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let (first, rest) = match path.iter().position(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (path, &[][..]),
        };
        match folders.iter().find(|(folder, _)| folder.as_bytes() == first) {
            Some((_, target)) => Ok((target.clone(), rest.to_vec())),
            None => {
                let all: Vec<_> = folders.iter().map(|(folder, _)| format!("{remote}:{folder}")).collect();
                let all = if all.is_empty() { "set upstreams with haul config".into() } else { all.join(", ") };
                Err(Error::config(format!(
                    "combine {remote:?} is made of other remotes; name one of its directories: {all}"
                )))
            }
        }
    }

    /// A remote's type, its name, and the options typed with it.
    fn kind(&self, place: &Location) -> Result<(String, String, BTreeMap<String, String>)> {
        match place {
            Location::Local => Ok(("local".into(), String::new(), BTreeMap::new())),
            Location::Backend { kind, options } => Ok((kind.clone(), format!(":{kind}"), options.clone())),
            Location::Remote { name, options } => {
                let typed = options.get("type").cloned().or_else(|| self.variable(&config_variable(name, "type")));
                if let Some(kind) = typed {
                    return Ok((kind, name.clone(), options.clone()));
                }
                match self.type_of(name) {
                    Err(error) => match self.far_host(name)? {
                        Some((kind, host)) => {
                            Ok((kind, name.clone(), host.into_iter().chain(options.clone()).collect()))
                        }
                        None => Err(error),
                    },
                    kind => Ok((kind?, name.clone(), options.clone())),
                }
            }
        }
    }

    /// See [`Session::is_remote`](crate::Session::is_remote).
    pub fn is_remote(&self, name: &str) -> Result<bool> {
        let typed = self.variable(&config_variable(name, "type")).is_some();
        Ok(typed || (self.config)()?.source(name).is_some() || self.type_of(name).is_ok())
    }

    fn type_of(&self, name: &str) -> Result<String> {
        let config = (self.config)()?;
        if config.source(name).is_none() {
            // rclone knows these without configuration too.
            if let Some(kind) =
                registry::kinds().iter().find(|k| k.name == name && matches!(k.name, "local" | "memory" | "pack"))
            {
                return Ok(kind.name.into());
            }
            return Err(unknown(config, name));
        }
        config.get(name, "type").ok_or_else(|| {
            let why = "set one with haul config update, or create the remote again";
            Error::config(format!("remote {name:?} has no type: {why}"))
        })
    }

    /// The type of store and the options for a host that needs no remote: `user@host`, or one that the user's ssh config knows. `None`
    /// for all else, above all what is configured.
    fn far_host(&self, name: &str) -> Result<Option<(String, BTreeMap<String, String>)>> {
        if (self.config)()?.source(name).is_some() {
            return Ok(None);
        }
        Ok(registry::far_host(name))
    }

    fn finish(
        &self,
        kind: &str,
        remote: String,
        path: Vec<u8>,
        typed: BTreeMap<String, String>,
    ) -> Result<ResolvedRemote> {
        let kind = registry::kind(kind).map_err(|e| Error::from(e).within(format!("remote {remote:?}")))?;
        if let Some(bad) = typed.keys().find(|k| *k != "type" && !kind.options.iter().any(|o| o.name == *k)) {
            let near = nearest(bad, kind.options.iter().map(|o| o.name));
            let near = near.map(|n| format!(" (did you mean {n}?)")).unwrap_or_default();
            let kind = kind.name;
            return Err(Error::config(format!(
                "remote {remote:?}: a store of type {kind} has no option {bad:?}{near}"
            )));
        }
        let mut options = BTreeMap::new();
        for option in kind.options {
            let Some(value) = self.value(kind.name, &remote, option.name, &typed)? else { continue };
            let value = read(option.kind, &value)
                .map_err(|e| e.within(format!("remote {remote:?}, option {}", option.name)))?;
            options.insert(option.name.to_string(), value);
        }
        let lacking = self.lacking(kind, &remote, &typed)?;
        Ok(ResolvedRemote { kind, remote, path, options, lacking })
    }

    /// The options of a remote's section that haul lacks and that are told.
    ///
    /// Errors: one makes other files, or another root, of the remote.
    fn lacking(&self, kind: &StoreKind, remote: &str, typed: &BTreeMap<String, String>) -> Result<Vec<String>> {
        if remote.is_empty() {
            return Ok(Vec::new());
        }
        for name in refused(kind.name) {
            let value = self.value(kind.name, remote, name, typed)?.unwrap_or_default();
            if let Lacking::Refused(advice) = lacking(kind.name, name, &value) {
                let what = "haul can't do what this option asks for, and would see other files or content";
                return Err(Error::config(format!("remote {remote:?}, option {name}: {what}: {advice}")));
            }
        }
        if remote.starts_with(':') {
            return Ok(Vec::new());
        }
        let unknown = |name: &str| kind.options.iter().all(|option| option.name != name);
        let section = (self.config)()?.options(remote).into_iter();
        let reported =
            section.filter(|(name, value)| unknown(name) && lacking(kind.name, name, value) == Lacking::Told);
        Ok(reported.map(|(name, _)| name).collect())
    }

    /// An option's value by precedence; `None` leaves the default.
    fn value(
        &self,
        kind: &str,
        remote: &str,
        option: &str,
        typed: &BTreeMap<String, String>,
    ) -> Result<Option<String>> {
        if let Some(value) = typed.get(option) {
            return Ok(Some(value.clone()));
        }
        if let Some(value) = self.flags.get(kind).and_then(|of| of.get(option)) {
            return Ok(Some(value.clone()));
        }
        let configured = !remote.is_empty() && !remote.starts_with(':');
        let variable = configured.then(|| self.variable(&config_variable(remote, option))).flatten();
        if let Some(value) = variable.or_else(|| self.variable(&format!("{kind}_{option}"))) {
            return Ok(Some(value));
        }
        if !configured {
            return Ok(None);
        }
        Ok((self.config)()?.get(remote, option))
    }

    /// `HAUL_<NAME>`, else `RCLONE_<NAME>`; an empty one counts as unset.
    fn variable(&self, name: &str) -> Option<String> {
        let name = name.to_uppercase().replace('-', "_");
        let found = ["HAUL", "RCLONE"].into_iter().find_map(|p| self.environment.get(&format!("{p}_{name}")));
        found.map(|value| value.to_string_lossy().into_owned())
    }
}

fn config_variable(remote: &str, key: &str) -> String {
    format!("CONFIG_{remote}_{key}")
}

fn join(base: &[u8], path: &[u8]) -> Vec<u8> {
    match (base, path) {
        (base, []) => base.to_vec(),
        ([], path) => path.to_vec(),
        (base, path) if base.ends_with(b"/") => [base, path].concat(),
        (base, path) => [base, b"/", path].concat(),
    }
}

/// A value as a store reads it: passwords revealed, the rest checked.
fn read(kind: OptionKind, value: &str) -> Result<String> {
    let bad = |want: &str| Error::config(format!("{value:?} isn't {want}"));
    match kind {
        OptionKind::Text => {}
        // A bare word is more likely the beginning of a remote whose quotes were forgotten than a folder here.
        OptionKind::Remote if !value.is_empty() && !value.contains([':', '/']) => {
            let write = format!("write it in quotes as \"{value}:PATH\", or ./{value} for a directory here");
            return Err(Error::config(format!("{value:?} isn't a remote with a path: {write}")));
        }
        OptionKind::Remote => {}
        OptionKind::Obscured if value.is_empty() => {}
        OptionKind::Obscured => return reveal(value),
        OptionKind::Bool => {
            // An empty or `unset` one leaves the choice to the store.
            let set = !value.is_empty() && value != "unset";
            let read = boolean(value);
            return match (set, read) {
                (false, _) => Ok(String::new()),
                (true, Some(on)) => Ok(on.to_string()),
                (true, None) => Err(bad("true or false")),
            };
        }
        OptionKind::Int => {
            value.parse::<i64>().map_err(|_| bad("a whole number"))?;
        }
        OptionKind::Size => {
            parse_size(value).map_err(Error::config)?;
        }
        OptionKind::Duration => {
            parse_duration(value).map_err(Error::config)?;
        }
    }
    Ok(value.into())
}

fn unknown(config: &Config, name: &str) -> Error {
    let known = config.remotes();
    if let Some(file) = config.file().filter(|f| !f.exists) {
        let path = file.path.display();
        let why = format!("there is no config file {path} (create a remote with haul config)");
        return Error::config(format!("unknown remote {name:?}: {why}"));
    }
    let near = match (nearest(name, known.iter().copied()), known.as_slice()) {
        (Some(near), _) => format!("did you mean {near}:?"),
        (None, []) => "it defines none: create one with haul config".into(),
        (None, _) => "see haul listremotes".into(),
    };
    let files: Vec<String> =
        config.sources().iter().filter(|s| s.exists).map(|s| s.path.display().to_string()).collect();
    let files = match files.as_slice() {
        [] => "no config file is in use".into(),
        files => format!("not in {}", files.join(" or ")),
    };
    Error::config(format!("unknown remote {name:?}: {files} ({near})"))
}

/// Folders and what they stand for: `FOLDER=REMOTE:PATH`, with spaces between, and quotation marks around one that has spaces.
///
/// Errors: it isn't written so.
fn folders(text: &str) -> Result<Vec<(String, String)>> {
    let (mut words, mut quoted, mut begun) = (vec![String::new()], false, false);
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        let Some(word) = words.last_mut() else { break };
        match next {
            '"' if quoted && rest.next_if_eq(&'"').is_some() => word.push('"'),
            '"' if quoted || !begun => (quoted, begun) = (!quoted, true),
            ' ' if !quoted => {
                words.push(String::new());
                begun = false;
            }
            other => {
                word.push(other);
                begun = true;
            }
        }
    }
    let each = |word: &String| match word.split_once('=') {
        Some((folder, target)) if !folder.is_empty() && !folder.contains('/') && !target.is_empty() => {
            Ok((folder.to_owned(), target.to_owned()))
        }
        _ => Err(Error::config(format!("{word:?}: write DIR=REMOTE:PATH, with a space between several"))),
    };
    words.iter().filter(|word| !word.is_empty()).map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::store_for_tests;

    fn resolve(text: &str, conf: &str, flags: &[(&str, &str, &str)], vars: &[(&str, &str)]) -> Result<ResolvedRemote> {
        let (_dir, config) = store_for_tests(conf);
        let mut backend = StoreFlags::new();
        for (kind, option, value) in flags {
            backend.entry(kind.to_string()).or_default().insert(option.to_string(), value.to_string());
        }
        let environment = Environment::new(vars.iter().map(|(name, value)| (name.into(), value.into())));
        let resolver = Resolver { config: &|| Ok(&config), flags: &backend, environment: &environment };
        resolver.resolve(&Spec::parse(text.as_bytes())?)
    }

    #[test]
    fn aliases_lead_on() {
        let conf =
            "[a]\ntype = alias\nremote = b:dir\n[b]\ntype = alias\nremote = /base/\n[c]\ntype = alias\nremote = c:\n";
        let found = resolve("a:x/y", conf, &[], &[]).unwrap();
        assert_eq!((found.kind.name, found.path), ("local", b"/base/dir/x/y".to_vec()));
        assert_eq!(
            resolve("c:", conf, &[], &[]).unwrap_err().to_string(),
            "an alias points to itself, through 16 others"
        );
    }

    #[test]
    fn folders_of_a_combined_remote_are_other_remotes() {
        let conf = "[all]\ntype = combine\nupstreams = \"big files=local:/data/big files\" up=a:x\n[a]\ntype = alias\nremote = /base\n[bad]\ntype = combine\nupstreams = x\n[none]\ntype = combine\n[round]\ntype = combine\nupstreams = r=round:r\n";
        let path = |typed: &str| resolve(typed, conf, &[], &[]).map(|found| String::from_utf8(found.path).unwrap());
        assert_eq!(path("all:big files/d/f").unwrap(), "/data/big files/d/f");
        assert_eq!(path("all:up").unwrap(), "/base/x");
        assert_eq!(path("all:/up/y/").unwrap(), "/base/x/y/");
        let why = |typed: &str| path(typed).unwrap_err().to_string();
        let named = "combine \"all\" is made of other remotes; name one of its directories: all:big files, all:up";
        assert_eq!((why("all:"), why("all:upper/x")), (named.into(), named.into()));
        assert_eq!(
            why("bad:x"),
            "combine \"bad\", option upstreams: \"x\": write DIR=REMOTE:PATH, with a space between several"
        );
        assert!(why("none:x").ends_with("set upstreams with haul config"), "{}", why("none:x"));
        assert!(why("round:r").contains("points to itself"));
    }

    #[test]
    fn remotes_may_be_defined_by_the_environment() {
        let found = resolve("my-rem:x", "", &[], &[("RCLONE_CONFIG_MY_REM_TYPE", "memory")]).unwrap();
        assert_eq!((found.kind.name, found.remote.as_str()), ("memory", "my-rem"));
        let vars = [("RCLONE_CONFIG_R_TYPE", "memory"), ("HAUL_CONFIG_R_TYPE", "local")];
        assert_eq!(resolve("r:", "", &[], &vars).unwrap().kind.name, "local");
    }

    #[test]
    fn an_unknown_remote_names_the_file_and_the_nearest() {
        let error = |text: &str, conf: &str| {
            let message = resolve(text, conf, &[], &[]).unwrap_err().to_string();
            let path = message.split(' ').find(|w| w.starts_with('/')).unwrap().to_string();
            message.replace(&path, "FILE")
        };
        assert_eq!(
            error("mino:b", "[minio]\ntype = s3\n"),
            "unknown remote \"mino\": not in FILE (did you mean minio:?)"
        );
        assert_eq!(error("x:b", "[minio]\ntype = s3\n"), "unknown remote \"x\": not in FILE (see haul listremotes)");
        assert_eq!(
            error("x:b", "# nothing\n"),
            "unknown remote \"x\": not in FILE (it defines none: create one with haul config)"
        );
    }

    #[test]
    fn a_type_that_haul_lacks_is_named() {
        let error = resolve("x:b", "[x]\ntype = teleport\n", &[], &[]).unwrap_err();
        let message = format!("{error}: {}", error.cause());
        assert!(
            message.starts_with("remote \"x\": open: unknown type of store \"teleport\"; haul has local, s3, "),
            "{message}"
        );
        let rclones = resolve("x:b", "[x]\ntype = google cloud storage\nanonymous = true\n", &[], &[]).unwrap();
        assert_eq!(rclones.kind.name, "gcs");
    }

    #[test]
    fn each_source_of_an_option_counts_before_the_next() {
        let conf = "[m]\ntype = s3\nregion = file\n";
        let flags = [("s3", "region", "flag")];
        let vars = [
            ("HAUL_CONFIG_M_REGION", "own-remote"),
            ("RCLONE_CONFIG_M_REGION", "remote"),
            ("HAUL_S3_REGION", "own-type"),
            ("RCLONE_S3_REGION", "type"),
        ];
        let region = |text: &str, flags: &[(&str, &str, &str)], vars: &[(&str, &str)]| {
            resolve(text, conf, flags, vars).unwrap().options["region"].clone()
        };
        assert_eq!(region("m,region=typed:b", &flags, &vars), "typed");
        assert_eq!(region("m:b", &flags, &vars), "flag");
        assert_eq!(region("m:b", &[], &vars), "own-remote");
        assert_eq!(region("m:b", &[], &vars[1..]), "remote");
        assert_eq!(region("m:b", &[], &vars[2..]), "own-type");
        assert_eq!(region("m:b", &[], &vars[3..]), "type");
        assert_eq!(region("m:b", &[], &[]), "file");
        assert_eq!(region(":s3:b", &[], &vars), "own-type", "no remote, no variable of one");
        assert_eq!(
            resolve("m,regoin=x:b", conf, &[], &[]).unwrap_err().to_string(),
            "remote \"m\": a store of type s3 has no option \"regoin\" (did you mean region?)"
        );
    }

    #[test]
    fn what_a_section_asks_for_in_vain_is_told_or_refused() {
        let conf = "[d]\ntype = dropbox\nshared_files = false\npacer_min_sleep = 1s\nbatch_commit_timeout = 1m\nexport_formats = md\n[s]\ntype = dropbox\nshared_files = true\n";
        assert_eq!(resolve("d:", conf, &[], &[]).unwrap().lacking, ["export_formats"]);
        let why = |typed: &str, vars: &[(&str, &str)]| resolve(typed, conf, &[], vars).unwrap_err().to_string();
        let message = "option shared_files: haul can't do what this option asks for, and would see other files or content: use rclone for it, or remove the option";
        assert_eq!(why("s:x", &[]), format!("remote \"s\", {message}"));
        assert_eq!(why("d:x", &[("RCLONE_DROPBOX_SHARED_FILES", "true")]), format!("remote \"d\", {message}"));
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(read(OptionKind::Bool, "1").unwrap(), "true");
        assert_eq!(read(OptionKind::Bool, "unset").unwrap(), "");
        assert_eq!(read(OptionKind::Bool, "maybe").unwrap_err().to_string(), "\"maybe\" isn't true or false");
        assert_eq!(read(OptionKind::Int, "x").unwrap_err().to_string(), "\"x\" isn't a whole number");
        assert_eq!(read(OptionKind::Obscured, "YWFhYWFhYWFhYWFhYWFhYXMaGgIlEQ").unwrap(), "potato");
    }
}
