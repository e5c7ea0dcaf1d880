//! Which keys a job is about: rclone's filter language, applied alike to both sides and before directories are opened.
//!
//! A file is wanted when no directory above it is left out and the first rule that matches its name includes it (or none
//! matches), and its size and age are within limits. So a listing that never opens a directory that
//! [`Filter::descend`] refuses, and a flat listing that asks [`Filter::wants`] for each key, give the same.

pub mod first_match;
mod glob;
mod marker_files;
mod partition;
pub mod portable;
mod rules;

pub use glob::Pattern;
pub use marker_files::MarkedDirs;
pub use partition::Partition;

use crate::{Entry, Key, Kind, Meta};
use first_match::{RuleError, Selection};
use rules::Rules;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};

/// The user's filter options, in order of precedence.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FilterSpec {
    /// Rules in rclone's `--filter` form: `+ pattern`, `- pattern`, `!`.
    pub rules: Vec<String>,
    /// Only these paths (`--files-from`), as raw bytes, one a line's worth; `None` when the flag wasn't given. Nothing
    /// else of the filter counts then.
    pub files_from: Option<Vec<Vec<u8>>>,
    /// Smallest size in bytes (`--min-size`).
    pub min_size: Option<u64>,
    /// Largest size in bytes (`--max-size`).
    pub max_size: Option<u64>,
    /// Scope of the size and age limits.
    pub limits: Limits,
    /// Only files modified at or after this time (`--max-age`).
    pub newer_than: Option<crate::Mtime>,
    /// Only files modified at or before this time (`--min-age`).
    pub older_than: Option<crate::Mtime>,
    /// Patterns ignore case (`--ignore-case`).
    pub ignore_case: bool,
    /// A directory that holds a file of one of these names is left out (`--exclude-if-present`).
    pub exclude_if_present: Vec<String>,
    /// Only this part of all files (`--hash-filter`).
    pub partition: Option<Partition>,
    /// Rules on a file's metadata, in the form of `rules`; each pattern is one of `key=value` (`--metadata-filter`).
    pub meta_rules: Vec<String>,
}

/// Treatment of a file beyond a size or age limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limits {
    /// It is excluded, on both sides.
    #[default]
    Exclude,
    /// A regular file of the source isn't transferred; nothing else changes by it.
    HoldBack,
}

/// Compiled rules.
#[derive(Debug, Default)]
pub struct Filter {
    spec: FilterSpec,
    rules: Rules,
    meta: Rules,
    files: Option<Vec<Key>>,
    prefix: Vec<u8>,
    /// Rules of the other kind, where they count instead.
    selection: Option<Arc<Selection>>,
    /// It is the destination that is looked at: what it may lose must be seen.
    destination: bool,
    /// The source shows what of it is wanted, under other names: only the destination's names are filtered.
    renamed: bool,
    /// The directory last asked about and its answer: listings come in order, so nearly all questions repeat.
    last_dir: Mutex<Option<(Vec<u8>, bool)>>,
}

impl Clone for Filter {
    fn clone(&self) -> Self {
        Filter {
            spec: self.spec.clone(),
            rules: self.rules.clone(),
            meta: self.meta.clone(),
            files: self.files.clone(),
            prefix: self.prefix.clone(),
            selection: self.selection.clone(),
            destination: self.destination,
            renamed: self.renamed,
            last_dir: Mutex::default(),
        }
    }
}

impl Filter {
    /// Compiles the user's options. The error names the rule and the problem.
    pub fn new(spec: FilterSpec) -> Result<Filter, String> {
        let rules = Rules::new(&spec.rules, spec.ignore_case)?;
        let meta = Rules::new(&spec.meta_rules, false)?;
        if let (Some(newer), Some(older)) = (spec.newer_than, spec.older_than)
            && older < newer
        {
            return Err("--min-age can't be larger than --max-age: no file is that old and that young".into());
        }
        let files = spec.files_from.as_deref().map(listed_keys);
        let prefix = match &files {
            Some(files) => shared_dir(files.iter().map(Key::as_bytes)),
            None if spec.ignore_case => Vec::new(),
            None => rules_prefix(&spec.rules),
        };
        Ok(Filter { spec, rules, meta, files, prefix, ..Filter::default() })
    }

    /// A filter by rules of which the first match counts. Files outside the limits of size (in bytes) are seen but not
    /// transferred, nor are they deleted for it.
    pub fn first_match(selection: Selection, min_size: Option<u64>, max_size: Option<u64>) -> Filter {
        let limits = Limits::HoldBack;
        let selection = (!selection.is_all()).then(|| Arc::new(selection));
        let rules = selection.iter().flat_map(|selection| selection.texts()).collect();
        let spec = FilterSpec { rules, limits, min_size, max_size, ..FilterSpec::default() };
        Filter { spec, selection, ..Filter::default() }
    }

    /// This filter for looking at a destination.
    pub fn for_destination(&self) -> Filter {
        Filter { destination: true, ..self.clone() }
    }

    /// This filter for listing a destination. Where files get new names, rules about the old ones don't say which of them exist:
    /// all are listed, and [`Filter::leaves_alone`] finds those that are none of theirs.
    pub fn for_listing_destination(&self) -> Filter {
        if !self.renamed {
            return self.for_destination();
        }
        let exclude_if_present = self.spec.exclude_if_present.clone();
        let spec = FilterSpec { exclude_if_present, ..FilterSpec::default() };
        Filter { spec, destination: true, ..Filter::default() }
    }

    /// Where files get new names: is this, which only the destination has, left out by its name?
    pub fn leaves_alone(&self, entry: &Entry) -> bool {
        let named = || if entry.is_dir() { self.goes_into(entry.key.as_bytes()) } else { self.names(entry) };
        self.renamed && !named()
    }

    /// This filter for a source that was filtered already, and whose files have new names now.
    pub fn for_renamed(&self) -> Filter {
        Filter { renamed: true, ..self.clone() }
    }

    /// Names say nothing.
    fn takes_all_names(&self) -> bool {
        self.renamed && !self.destination
    }

    /// Is the root itself wanted? Only rules of which the first match counts can leave it out: by the name that it has in its own folder.
    pub fn wants_root(&self) -> bool {
        self.selection.as_ref().is_none_or(|selection| selection.shows(b"", false))
    }

    /// Errors in rules from directories (`dir-merge`), one line each.
    pub fn broken_rules(&self) -> Vec<RuleError> {
        self.selection.as_ref().map(|selection| selection.broken()).unwrap_or_default()
    }

    /// True when a directory had rules that can't be parsed.
    pub fn has_broken_rules(&self) -> bool {
        self.selection.as_ref().is_some_and(|selection| selection.is_broken())
    }

    /// May the destination lose `key`, which the source doesn't show? `dying`: its directory is deleted too.
    pub fn may_delete(&self, key: &Key, dying: bool) -> bool {
        self.selection.as_ref().is_none_or(|selection| selection.may_delete(key, dying))
    }

    /// True for a directory whose attributes come from an earlier source.
    pub fn is_of_earlier_source(&self, dir: &Key) -> bool {
        self.selection.as_ref().is_some_and(|selection| selection.is_of_earlier_source(dir.as_bytes()))
    }

    /// True for a directory that isn't transferred itself, only its contents.
    pub fn is_unlisted_parent(&self, dir: &Key) -> bool {
        self.selection.as_ref().is_some_and(|selection| selection.is_unlisted_parent(dir.as_bytes()))
    }

    /// True when there may be such directories.
    pub fn has_unlisted_parents(&self) -> bool {
        self.selection.as_ref().is_some_and(|selection| selection.has_unlisted_parents())
    }

    /// True when another source of the same transfer shows this key, or may.
    pub fn shown_by_another_source(&self, key: &Key) -> bool {
        self.selection.as_ref().is_some_and(|selection| selection.shown_by_another_source(key.as_bytes()))
    }

    /// True when limits only hold transfers back ([`Limits::HoldBack`]).
    pub fn holds_back(&self) -> bool {
        self.spec.limits == Limits::HoldBack
    }

    /// True when every key is included.
    pub fn is_all(&self) -> bool {
        let spec = &self.spec;
        self.rules.is_empty()
            && self.selection.is_none()
            && self.files.is_none()
            && spec.min_size.is_none()
            && spec.max_size.is_none()
            && !self.needs_mtime()
            && !self.needs_meta()
            && spec.partition.is_none()
            && spec.exclude_if_present.is_empty()
    }

    /// Is this file within the limits of size and age, and do rules on metadata let it through? Says nothing of its name.
    pub fn within_limits(&self, entry: &Entry) -> bool {
        if self.spec.limits == Limits::HoldBack && entry.kind != Kind::File {
            return true;
        }
        self.files.is_some() || self.limit(entry).is_none()
    }

    /// Is this file wanted, judging by its name? False is final.
    pub fn wants_name(&self, entry: &Entry) -> bool {
        self.takes_all_names() || self.names(entry)
    }

    fn names(&self, entry: &Entry) -> bool {
        if let Some(selection) = &self.selection {
            let at = entry.key.as_bytes();
            return self.opened(crate::key::parent(at)) && selection.shows(at, self.destination);
        }
        match &self.files {
            Some(files) => files.binary_search_by(|key| key.as_bytes().cmp(entry.key.stored())).is_ok(),
            None => self.opened(crate::key::parent(entry.key.as_bytes())) && self.name(entry),
        }
    }

    /// Is this file wanted? Looks at the key, the size and, where an age was given, the mtime (or, where that isn't known,
    /// when the store last saw it change; a file of which neither is known is not refused for its age). With rules on metadata,
    /// a file of which none is known has none.
    pub fn wants(&self, entry: &Entry) -> bool {
        self.wants_but_for_facts(entry)
            && (self.files.is_some() || (self.age_limit(entry).is_none() && self.meta_limit(entry).is_none()))
    }

    /// The first limit that the file breaks, as its flag or rule is called.
    fn limit(&self, entry: &Entry) -> Option<&str> {
        self.size_limit(entry).or_else(|| self.age_limit(entry)).or_else(|| self.meta_limit(entry))
    }

    /// The rule on metadata that refuses the file.
    fn meta_limit(&self, entry: &Entry) -> Option<&str> {
        if self.meta.is_empty() {
            return None;
        }
        let (include, text) = self.meta.of_many(&pairs(entry.meta.as_deref()))?;
        (!include).then_some(text)
    }

    /// The first limit of size that the file breaks.
    fn size_limit(&self, entry: &Entry) -> Option<&'static str> {
        let spec = &self.spec;
        if spec.min_size.is_some_and(|min| entry.size < min) {
            return Some("--min-size");
        }
        if spec.max_size.is_some_and(|max| entry.size > max) {
            return Some("--max-size");
        }
        None
    }

    /// The first limit of age that the file breaks.
    fn age_limit(&self, entry: &Entry) -> Option<&'static str> {
        let spec = &self.spec;
        let time = entry.mtime.or(entry.changed)?;
        if spec.newer_than.is_some_and(|newer| time < newer) {
            return Some("--max-age");
        }
        if spec.older_than.is_some_and(|older| time > older) {
            return Some("--min-age");
        }
        None
    }

    fn name(&self, entry: &Entry) -> bool {
        let key = entry.key.stored();
        self.spec.partition.is_none_or(|part| part.holds(key))
            && self.rules.file(key).is_none_or(|(include, _)| include)
    }

    /// Is this file wanted, judging by its key and size? False is final; true may still fail on age or metadata.
    pub fn wants_but_for_facts(&self, entry: &Entry) -> bool {
        (self.files.is_some() || self.size_limit(entry).is_none()) && self.wants_name(entry)
    }

    /// True when `wants` needs the mtime of entries.
    pub fn needs_mtime(&self) -> bool {
        self.files.is_none() && (self.spec.newer_than.is_some() || self.spec.older_than.is_some())
    }

    /// True when `wants` needs the metadata of entries.
    pub fn needs_meta(&self) -> bool {
        self.files.is_none() && !self.meta.is_empty()
    }

    /// Can anything below the directory `dir` (its key, ending in `/`) be wanted? False means that it need not be
    /// opened; the directory itself is then excluded too.
    pub fn descend(&self, dir: &[u8]) -> bool {
        self.takes_all_names() || self.goes_into(dir)
    }

    /// The outermost directory that is excluded and holds this key, or is it.
    pub fn excluded_above<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let mut dirs = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &key[..=at]);
        dirs.find(|dir| !self.descend(dir))
    }

    fn goes_into(&self, dir: &[u8]) -> bool {
        let Some(files) = &self.files else { return self.opened(dir) };
        let at = files.partition_point(|key| key.as_bytes() < dir);
        dir.is_empty() || files.get(at).is_some_and(|key| key.as_bytes().starts_with(dir))
    }

    /// Is this directory wanted for itself, for instance to be created when it is empty?
    pub fn wants_dir(&self, dir: &[u8]) -> bool {
        self.descend(dir)
    }

    /// Do the rules let a listing come into `dir`, through all the directories above it?
    fn opened(&self, dir: &[u8]) -> bool {
        if dir.is_empty() || (self.selection.is_none() && !self.rules.prune()) {
            return true;
        }
        let Ok(mut last) = self.last_dir.try_lock() else { return !self.shut(dir) };
        if let Some((key, answer)) = last.as_ref()
            && key == dir
        {
            return *answer;
        }
        let answer = !self.shut(dir);
        *last = Some((dir.to_vec(), answer));
        answer
    }

    fn shut(&self, dir: &[u8]) -> bool {
        match &self.selection {
            Some(selection) => selection.shut(dir, self.destination),
            None => self.shut_by(dir).is_some(),
        }
    }

    /// The rule that shuts `dir` or a directory above it, the topmost first.
    fn shut_by(&self, dir: &[u8]) -> Option<&str> {
        let ends = (0..dir.len()).filter(|i| dir[*i] == b'/');
        ends.filter_map(|i| self.rules.dir(&dir[..=i])).find(|(include, _)| !include).map(|(_, text)| text)
    }

    /// Reason for the decision about this entry: the text of a rule as given, or the name of the flag that refuses it; `None`
    /// when nothing matches it, so that it is included.
    pub fn explain(&self, entry: &Entry) -> Option<&str> {
        let key = entry.key.stored();
        if self.files.is_some() {
            return Some("--files-from");
        }
        if entry.is_dir() {
            return self.shut_by(key).or_else(|| self.rules.dir(key).map(|(_, text)| text));
        }
        let partition = self.spec.partition.is_some_and(|part| !part.holds(key)).then_some("--hash-filter");
        self.limit(entry)
            .or(partition)
            .or_else(|| self.shut_by(crate::key::parent(key)))
            .or_else(|| self.rules.file(key).map(|(_, text)| text))
    }

    /// Bytes with which every included key starts, up to and with a `/`: a listing may begin there. Empty when there is
    /// no such directory or it isn't known.
    pub fn common_prefix(&self) -> &[u8] {
        if self.takes_all_names() { b"" } else { &self.prefix }
    }

    /// Names whose presence excludes the directory that holds them.
    pub fn markers(&self) -> &[String] {
        if self.takes_all_names() { &[] } else { &self.spec.exclude_if_present }
    }

    /// Does this entry exclude the directory that holds it?
    pub fn is_marker(&self, entry: &Entry) -> bool {
        let name = crate::key::name(entry.key.stored());
        !entry.is_dir() && self.markers().iter().any(|marker| marker.as_bytes() == name)
    }

    /// The options that it was built from.
    pub fn spec(&self) -> &FilterSpec {
        &self.spec
    }

    /// The keys of `--files-from`, sorted, without repeats.
    pub fn files_from(&self) -> Option<&[Key]> {
        self.files.as_deref().filter(|_| !self.takes_all_names())
    }
}

/// Metadata as the texts that rules look at. What has none has one that only a rule for everything matches, as in rclone.
fn pairs(meta: Option<&Meta>) -> Vec<Vec<u8>> {
    let pairs: Vec<Vec<u8>> = meta.into_iter().flatten().map(|(k, v)| format!("{k}={v}").into_bytes()).collect();
    if pairs.is_empty() { vec![b"\0=\0".to_vec()] } else { pairs }
}

/// The rules or paths in a file given to a `-from` flag: lines without white space around them, without blank lines and
/// those that start with `#` or `;`.
pub fn parse_lines(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';'])).map(String::from).collect()
}

/// Paths as keys: `/` at either end doesn't count.
fn listed_keys(paths: &[Vec<u8>]) -> Vec<Key> {
    let mut keys: Vec<Key> = paths.iter().map(|p| Key::new(trim_slashes(p))).filter(|k| !k.is_root()).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn trim_slashes(mut path: &[u8]) -> &[u8] {
    while let Some(rest) = path.strip_prefix(b"/") {
        path = rest;
    }
    while let Some(rest) = path.strip_suffix(b"/") {
        path = rest;
    }
    path
}

/// The directory that holds everything that rules include: those that include something, up to one that leaves out all
/// the rest, must be anchored.
fn rules_prefix(rules: &[String]) -> Vec<u8> {
    let after_clear = rules.iter().rposition(|r| r == "!").map_or(0, |at| at + 1);
    let mut included = Vec::new();
    for (include, glob) in rules[after_clear..].iter().filter_map(|r| rules::split(r)) {
        match (include, glob) {
            (true, glob) => included.push(glob::literal_prefix(glob).as_bytes()),
            (false, "*" | "**" | "/**") => return shared_dir(included.into_iter()),
            _ => {}
        }
    }
    Vec::new()
}

/// The longest beginning that all share, up to its last `/`.
fn shared_dir<'a>(mut keys: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let Some(first) = keys.next() else { return Vec::new() };
    let shared = keys.fold(first, |shared, key| {
        let same = shared.iter().zip(key).take_while(|(a, b)| a == b).count();
        &shared[..same]
    });
    let end = shared.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    shared[..end].to_vec()
}
