//! DVC's configuration: INI files of four levels, laid over one another, and what they say of the cache and of remotes.
//! Pure: the caller reads the files.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

type Section = BTreeMap<String, String>;

/// All levels in one.
#[derive(Clone, Debug, Default)]
pub struct Config {
    sections: BTreeMap<String, Section>,
}

/// How a file of the cache comes into the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A copy that shares its blocks until one is changed.
    Reflink,
    /// Another name of the cache's file.
    Hardlink,
    /// A link to the cache's file.
    Symlink,
    /// A copy.
    Copy,
}

/// A remote as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub place: RemoteLocation,
    /// `remote.NAME.jobs`.
    pub jobs: Option<usize>,
}

/// Where a remote is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteLocation {
    /// A folder of this machine.
    Local(PathBuf),
    /// `bucket/path`, and options of haul's store `s3`.
    S3 {
        /// Bucket and path.
        path: String,
        /// Options by name.
        options: BTreeMap<String, String>,
        /// Don't verify certificates.
        insecure: bool,
    },
    /// One of haul's own remotes with a path, as typed: `url = haul:NAME:PATH`.
    Haul(String),
}

/// DVC's options of an S3 remote and haul's names for them.
const S3_OPTIONS: [(&str, &str); 14] = [
    ("endpointurl", "endpoint"),
    ("region", "region"),
    ("access_key_id", "access_key_id"),
    ("secret_access_key", "secret_access_key"),
    ("session_token", "session_token"),
    ("profile", "profile"),
    ("credentialpath", "shared_credentials_file"),
    ("sse", "server_side_encryption"),
    ("sse_kms_key_id", "sse_kms_key_id"),
    ("sse_customer_algorithm", "sse_customer_algorithm"),
    ("sse_customer_key", "sse_customer_key_base64"),
    ("acl", "acl"),
    ("storage_class", "storage_class"),
    ("role_arn", "role_arn"),
];

/// Options that need no counterpart: haul finds out by itself what they set, or they don't change what is stored.
const S3_IGNORED: [&str; 14] = [
    "url",
    "jobs",
    "checksum_jobs",
    "use_ssl",
    "ssl_verify",
    "read_timeout",
    "connect_timeout",
    "allow_anonymous_login",
    "verify",
    // Those that dvc itself ignores by now, and those that are false: true is refused.
    "listobjects",
    "no_traverse",
    "cache_regions",
    "version_aware",
    "worktree",
];

impl Config {
    /// Lays one more file over what was read before. `folder` holds the file; `home` is what `~` stands for.
    ///
    /// Errors: the line that can't be understood.
    pub fn add(&mut self, text: &str, folder: &Path, home: Option<&Path>) -> Result<(), String> {
        let mut name = String::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let inner = rest.find(']').map(|_| rest.rsplit_once(']').map_or(rest, |(inner, _)| inner));
                let inner = inner.ok_or_else(|| format!("line {}: the section's ] is missing", number + 1))?;
                name = section_name(inner);
                continue;
            }
            let (key, value) = line.split_once('=').ok_or_else(|| format!("line {}: it has no =", number + 1))?;
            let key = unquoted(key.trim()).to_lowercase();
            let mut value = plain_value(value.trim());
            if is_path(&name, &key) {
                value = resolve(&value, folder, home);
            }
            self.sections.entry(name.clone()).or_default().insert(key, value);
        }
        Ok(())
    }

    fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.sections.get(section)?.get(key).map(String::as_str).filter(|v| !v.is_empty())
    }

    fn flag(&self, section: &str, key: &str) -> bool {
        self.get(section, key).is_some_and(|v| matches!(v.to_lowercase().as_str(), "true" | "1" | "yes" | "on"))
    }

    /// The cache's folder, when it isn't the usual one.
    pub fn cache_dir(&self) -> Option<PathBuf> {
        self.get("cache", "dir").map(PathBuf::from)
    }

    /// The repository isn't in git.
    pub fn no_scm(&self) -> bool {
        self.flag("core", "no_scm")
    }

    /// `core.hardlink_lock`: a lock that haul doesn't know.
    pub fn hardlink_lock(&self) -> bool {
        self.flag("core", "hardlink_lock")
    }

    /// Link types for files in the workspace; the first that works is used.
    ///
    /// Errors: an unknown one.
    pub fn links(&self) -> Result<Vec<Link>, String> {
        let text = self.get("cache", "type").unwrap_or("reflink,copy");
        let one = |word: &str| match word.trim().trim_matches(['"', '\'']) {
            "reflink" => Ok(Link::Reflink),
            "hardlink" => Ok(Link::Hardlink),
            "symlink" => Ok(Link::Symlink),
            "copy" => Ok(Link::Copy),
            other => Err(format!("cache.type {other:?} is none of reflink, hardlink, symlink and copy")),
        };
        text.split(',').map(one).collect()
    }

    /// The cache is shared by a group (`cache.shared = group`).
    pub fn shared(&self) -> bool {
        self.get("cache", "shared") == Some("group")
    }

    /// The remote of this name, or the usual one.
    ///
    /// Errors: there is none, or it is one that haul can't use.
    pub fn remote(&self, name: Option<&str>) -> Result<Remote, String> {
        let name = name.or_else(|| self.get("core", "remote"));
        let name = name.ok_or("no remote is named: give one with -r, or set one with dvc remote default NAME")?;
        let section = self.section_of(name)?;
        if ["version_aware", "worktree"].into_iter().any(|key| self.flag(&remote_section(name), key)) {
            return Err(format!(
                "remote {name:?} keeps versions in the cloud (version_aware or worktree): use dvc for it"
            ));
        }
        let url = section.get("url").filter(|u| !u.is_empty()).ok_or_else(|| format!("remote {name:?} has no url"))?;
        let place = self.place(name, url, section, 0)?;
        let jobs = section.get("jobs").and_then(|j| j.parse().ok());
        Ok(Remote { name: name.into(), place, jobs })
    }

    fn section_of(&self, name: &str) -> Result<&Section, String> {
        self.sections.get(&remote_section(name)).ok_or_else(|| {
            let all: Vec<_> = self.sections.keys().filter_map(|s| s.strip_prefix("remote ")).collect();
            let known = if all.is_empty() { "it defines none".into() } else { format!("it has {}", all.join(", ")) };
            format!("remote {name:?} isn't in the configuration of DVC: {known}")
        })
    }

    fn place(&self, name: &str, url: &str, section: &Section, depth: usize) -> Result<RemoteLocation, String> {
        if let Some(rest) = url.strip_prefix("haul:") {
            return Ok(RemoteLocation::Haul(rest.into()));
        }
        let Some((scheme, rest)) = url.split_once("://") else { return Ok(RemoteLocation::Local(PathBuf::from(url))) };
        match scheme {
            "s3" => self.s3(name, rest, section),
            "file" | "local" => Ok(RemoteLocation::Local(PathBuf::from(rest))),
            "remote" if depth < 8 => {
                let (other, path) = rest.split_once('/').unwrap_or((rest, ""));
                let base = self.section_of(other)?;
                let url = base.get("url").ok_or_else(|| format!("remote {other:?} has no url"))?;
                let url = format!("{}/{path}", url.trim_end_matches('/'));
                // The remote's own values override those of the remote that it refers to.
                let both = base.iter().chain(section).map(|(k, v)| (k.clone(), v.clone())).collect();
                self.place(name, url.trim_end_matches('/'), &both, depth + 1)
            }
            _ => Err(format!(
                "remote {name:?} is on {scheme}://, which haul can't reach as DVC does: use url = haul:REMOTE:PATH with one \
                 of haul's own remotes"
            )),
        }
    }

    fn s3(&self, name: &str, path: &str, section: &Section) -> Result<RemoteLocation, String> {
        let mut options = BTreeMap::new();
        for (key, value) in section.iter().filter(|(_, v)| !v.is_empty()) {
            match S3_OPTIONS.iter().find(|(theirs, _)| theirs == key) {
                Some((_, ours)) => drop(options.insert(ours.to_string(), value.clone())),
                None if S3_IGNORED.contains(&key.as_str()) => {}
                None => return Err(format!("remote {name:?}: haul has nothing for DVC's option {key}")),
            }
        }
        let remote = remote_section(name);
        let own_keys = options.contains_key("access_key_id");
        if !own_keys && !self.flag(&remote, "allow_anonymous_login") {
            options.insert("env_auth".into(), "true".into());
        }
        if let Some(endpoint) = options.get_mut("endpoint")
            && !endpoint.contains("://")
        {
            let scheme =
                if section.get("use_ssl").is_some_and(|v| v.eq_ignore_ascii_case("false")) { "http" } else { "https" };
            *endpoint = format!("{scheme}://{endpoint}");
        }
        let provider = if options.contains_key("endpoint") { "Other" } else { "AWS" };
        options.insert("provider".into(), provider.into());
        let insecure = section.get("ssl_verify").is_some_and(|v| v.eq_ignore_ascii_case("false"));
        Ok(RemoteLocation::S3 { path: path.trim_end_matches('/').into(), options, insecure })
    }
}

fn remote_section(name: &str) -> String {
    format!("remote {}", name.to_lowercase())
}

/// `'remote "s"'` and `remote "s"` are the remote `s`.
fn section_name(inner: &str) -> String {
    let inner = unquoted(inner.trim());
    match inner.split_once(' ') {
        Some((kind, name)) => format!("{} {}", kind.to_lowercase(), unquoted(name.trim()).to_lowercase()),
        None => inner.to_lowercase(),
    }
}

fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        if text.len() > 1 && text.starts_with(quote) && text.ends_with(quote) {
            return &text[1..text.len() - 1];
        }
    }
    text
}

/// A value without its quotes and without the comment after it.
fn plain_value(text: &str) -> String {
    if let Some(quote @ ('"' | '\'')) = text.chars().next()
        && let Some(end) = text[1..].find(quote)
    {
        return text[1..=end].to_string();
    }
    let end = text.match_indices('#').find(|(at, _)| *at == 0 || text[..*at].ends_with([' ', '\t']));
    text[..end.map_or(text.len(), |(at, _)| at)].trim_end().to_string()
}

/// Keys whose values are paths, relative to the file that holds them.
fn is_path(section: &str, key: &str) -> bool {
    section == "cache" && key == "dir"
        || section.starts_with("remote ") && matches!(key, "url" | "credentialpath" | "configpath")
}

fn resolve(value: &str, folder: &Path, home: Option<&Path>) -> String {
    let remote = value.starts_with("haul:") || value.contains("://") || value.is_empty() || value.starts_with('/');
    if remote {
        return value.into();
    }
    if let (Some(rest), Some(home)) = (value.strip_prefix('~'), home)
        && (rest.is_empty() || rest.starts_with('/'))
    {
        return format!("{}{rest}", home.display());
    }
    normal(&folder.join(value)).display().to_string()
}

/// The path without `.` and `..`, as it is written (no link is followed).
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Config {
        let mut config = Config::default();
        config.add(text, Path::new("/r/.dvc"), Some(Path::new("/home/u"))).unwrap();
        config
    }

    fn options(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn an_s3_remote() {
        let mut config = of("# c\n[core]\n    remote = S\n['remote \"s\"']\n    url = s3://b/r/ # here\n    \
                             endpointurl = http://127.0.0.1:9000\n    jobs = 4\n");
        config
            .add("['remote \"s\"']\naccess_key_id = k\nsecret_access_key = \"s#x\"\n", Path::new("/x"), None)
            .unwrap();
        let remote = config.remote(None).unwrap();
        let want = options(&[
            ("endpoint", "http://127.0.0.1:9000"),
            ("access_key_id", "k"),
            ("secret_access_key", "s#x"),
            ("provider", "Other"),
        ]);
        assert_eq!(remote.place, RemoteLocation::S3 { path: "b/r".into(), options: want, insecure: false });
        assert_eq!((remote.name.as_str(), remote.jobs), ("S", Some(4)));
    }

    #[test]
    fn keys_from_the_environment_unless_they_are_configured() {
        let remote = of("[remote \"x\"]\nurl=s3://b\nprofile = p\n").remote(Some("x")).unwrap();
        let want = options(&[("env_auth", "true"), ("profile", "p"), ("provider", "AWS")]);
        assert_eq!(remote.place, RemoteLocation::S3 { path: "b".into(), options: want, insecure: false });
    }

    #[test]
    fn options_that_change_nothing_are_no_error() {
        let text = "[remote \"x\"]\nurl=s3://b\nprofile = p\nversion_aware = false\nworktree = false\nlistobjects = true\n\
                    no_traverse = true\ncache_regions = true\nverify = true\n";
        assert!(of(text).remote(Some("x")).is_ok());
        let error = of("[remote \"x\"]\nurl=s3://b\ngrant_read = id\n").remote(Some("x")).unwrap_err();
        assert_eq!(error, "remote \"x\": haul has nothing for DVC's option grant_read");
    }

    #[test]
    fn folders_are_relative_to_the_file() {
        let place = |url: &str| of(&format!("[remote \"x\"]\nurl = {url}\n")).remote(Some("x")).unwrap().place;
        assert_eq!(place("../../rem"), RemoteLocation::Local("/rem".into()));
        assert_eq!(place("../rem"), RemoteLocation::Local("/r/rem".into()));
        assert_eq!(place("/abs"), RemoteLocation::Local("/abs".into()));
        assert_eq!(place("~/x"), RemoteLocation::Local("/home/u/x".into()));
        assert_eq!(place("haul:minio:b/x"), RemoteLocation::Haul("minio:b/x".into()));
    }

    #[test]
    fn a_remote_below_another() {
        let config = of("[remote \"a\"]\nurl = s3://b/base\nregion = eu\n[remote \"c\"]\nurl = remote://a/sub/x\n");
        let want = options(&[("region", "eu"), ("env_auth", "true"), ("provider", "AWS")]);
        assert_eq!(
            config.remote(Some("c")).unwrap().place,
            RemoteLocation::S3 { path: "b/base/sub/x".into(), options: want, insecure: false }
        );
    }

    #[test]
    fn what_haul_cannot_use_is_told() {
        for (text, name, message) in [
            ("", None, "no remote is named: give one with -r, or set one with dvc remote default NAME"),
            ("[remote \"a\"]\nurl=/x\n", Some("b"), "remote \"b\" isn't in the configuration of DVC: it has a"),
            (
                "[remote \"a\"]\nurl=gs://b\n",
                Some("a"),
                "remote \"a\" is on gs://, which haul can't reach as DVC does: use url = haul:REMOTE:PATH with one of \
                 haul's own remotes",
            ),
            (
                "[remote \"a\"]\nurl=s3://b\nversion_aware = true\n",
                Some("a"),
                "remote \"a\" keeps versions in the cloud (version_aware or worktree): use dvc for it",
            ),
            (
                "[remote \"a\"]\nurl=s3://b\ngrant_read = x\n",
                Some("a"),
                "remote \"a\": haul has nothing for DVC's option grant_read",
            ),
        ] {
            assert_eq!(of(text).remote(name).unwrap_err(), message);
        }
        let mut config = Config::default();
        assert_eq!(config.add("[core\n", Path::new("/"), None).unwrap_err(), "line 1: the section's ] is missing");
        assert_eq!(config.add("\nx\n", Path::new("/"), None).unwrap_err(), "line 2: it has no =");
    }

    #[test]
    fn link_types_in_their_order() {
        assert_eq!(of("").links().unwrap(), [Link::Reflink, Link::Copy]);
        assert_eq!(of("[cache]\ntype = \"hardlink, symlink\"\n").links().unwrap(), [Link::Hardlink, Link::Symlink]);
        assert_eq!(
            of("[cache]\ntype = magic\n").links().unwrap_err(),
            "cache.type \"magic\" is none of reflink, hardlink, symlink and copy"
        );
    }
}
