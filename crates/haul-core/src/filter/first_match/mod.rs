//! rsync's filter rules: for each name the first match wins, an excluded directory excludes everything below it, hiding
//! at the source and protecting at the destination are separate, and directories may add rules of their own.
//!
//! Pure: rule files are read through [`RuleFiles`], which the caller implements.

mod parse;
mod pattern;
mod portable;
mod selection;

pub use parse::{Builder, RuleError};
pub use pattern::Pattern;
pub use portable::Portable;
pub use selection::{OtherSources, SelectedNames, Selection};

use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// Reads rule files for the compiler of rules.
pub trait RuleFiles: fmt::Debug + Send + Sync {
    /// The rules that the directory `dir` (an absolute path ending in `/`) holds in a file of this name; `None` when it has
    /// none.
    ///
    /// Errors: one line that says why it can't be read.
    fn of_dir(&self, dir: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, String>;

    /// A file that a rule or option names.
    ///
    /// Errors: one line that says why it can't be read.
    fn named(&self, path: &[u8]) -> Result<Vec<u8>, String>;
}

/// Whom a rule speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the source shows.
    Hide,
    /// What the destination may lose.
    Protect,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Rule {
    pattern: Pattern,
    include: bool,
    hide: bool,
    protect: bool,
    /// Matches what the pattern doesn't.
    negated: bool,
    /// Not for entries deleted together with their directory.
    perishable: bool,
    /// The pattern is of an absolute path: this is the one that names are below, ending in `/`.
    absolute: Option<Arc<[u8]>>,
}

#[derive(Clone, Debug)]
enum Item {
    Rule(Rule),
    /// Rules that each directory may hold, in a file of this name.
    PerDir(Arc<PerDir>),
    /// Rules that can't be parsed: it isn't known what they exclude, so everything is left alone on both sides.
    Unknown,
}

/// A `dir-merge` rule.
#[derive(Clone, Debug)]
struct PerDir {
    /// Tells it from others whose rules are remembered.
    id: usize,
    name: Vec<u8>,
    /// The directory whose file names it: rules of directories above that one are ignored.
    since: Vec<u8>,
    /// Names of the files that it is named in, by one another: naming one of them again adds nothing.
    within: Vec<Vec<u8>>,
    /// Directories above the transfer's root are looked at too.
    from_above: bool,
    /// Rules don't reach into directories below.
    no_inherit: bool,
    defaults: parse::Defaults,
}

/// Rules that directories brought: by the `dir-merge` rule and the directory.
type OfDirs = HashMap<(usize, Vec<u8>), Arc<Vec<Item>>>;

/// The rules of the directories that were asked about last.
#[derive(Debug, Default)]
struct RuleCache {
    recent: OfDirs,
    /// Entries that were recent before.
    older: OfDirs,
}

impl RuleCache {
    fn get(&mut self, at: &(usize, Vec<u8>)) -> Option<Arc<Vec<Item>>> {
        if let Some(rules) = self.recent.get(at) {
            return Some(rules.clone());
        }
        // Still in use, as those of directories above the current one are.
        let (at, rules) = self.older.remove_entry(at)?;
        self.put(at, rules.clone());
        Some(rules)
    }

    fn put(&mut self, at: (usize, Vec<u8>), rules: Arc<Vec<Item>>) {
        if self.recent.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(at, rules);
    }
}

/// Compiled rules.
#[derive(Debug)]
pub struct RuleSet {
    items: Vec<Item>,
    /// Absolute path of the directory that names are relative to, ending in `/`: directories with rules of their own are below it.
    root: Arc<[u8]>,
    /// That directory only holds what arguments name: it is one of those above the transfer.
    bare_root: bool,
    files: Arc<dyn RuleFiles>,
    /// As given, for what must know whether two jobs have the same rules.
    texts: Vec<String>,
    /// The next [`PerDir::id`].
    next_id: AtomicUsize,
    of_dirs: Mutex<RuleCache>,
    /// Something is in `broken`.
    is_broken: AtomicBool,
    broken: Mutex<Vec<RuleError>>,
}

/// Least number of directories whose rules are remembered. A destination's rule files are read once, before the transfer may
/// replace them, and count as they were then: a listing must never run this many directories ahead of the decisions.
const REMEMBERED: usize = 16_384;

impl RuleSet {
    /// True when no rule was given.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// True when directories may add rules of their own.
    pub fn per_dir(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::PerDir(_)))
    }

    /// The rules as given.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// True when a directory had rules that can't be parsed.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Errors in rules from directories, one line each.
    pub fn broken(&self) -> Vec<RuleError> {
        self.broken.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Is this name left out, as far as rules speak of itself (not of the directories above)? `dying`: the directory that
    /// holds it is to be deleted.
    pub fn leaves_out(&self, name: &[u8], is_dir: bool, side: Side, dying: bool) -> bool {
        let name = name.strip_suffix(b"/").unwrap_or(name);
        self.first(&self.items, &|rule| self.says(rule, name, is_dir, side, dying), crate::key::parent(name))
            == Some(false)
    }

    /// The answer of the first of these rules that applies, for an entry in `dir`.
    fn first(&self, items: &[Item], says: &dyn Fn(&Rule) -> Option<bool>, dir: &[u8]) -> Option<bool> {
        items.iter().find_map(|item| match item {
            Item::Rule(rule) => says(rule),
            Item::PerDir(_) if self.bare_root && dir.is_empty() => None,
            Item::PerDir(per_dir) => self.first(&self.of_dir(per_dir, dir), says, dir),
            Item::Unknown => Some(false),
        })
    }

    fn says(&self, rule: &Rule, name: &[u8], is_dir: bool, side: Side, dying: bool) -> Option<bool> {
        let applies = match side {
            Side::Hide => rule.hide,
            Side::Protect => rule.protect,
        };
        if !applies || (rule.perishable && dying) {
            return None;
        }
        let matches = match &rule.absolute {
            Some(root) => rule.pattern.matches(&[&root[1..], name].concat(), is_dir),
            None => rule.pattern.matches(name, is_dir),
        };
        (matches != rule.negated).then_some(rule.include)
    }

    fn remembered(&self) -> MutexGuard<'_, RuleCache> {
        self.of_dirs.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The rules of a `dir-merge` rule for an entry in `dir`: the directory's own first, then those of the
    /// directories above.
    fn of_dir(&self, per_dir: &PerDir, dir: &[u8]) -> Arc<Vec<Item>> {
        let at = (per_dir.id, dir.to_vec());
        if let Some(rules) = self.remembered().get(&at) {
            return rules;
        }
        let inherited = match (dir == per_dir.since, per_dir.no_inherit) {
            (_, true) => Arc::default(),
            (true, false) if per_dir.from_above => self.above(per_dir),
            (true, false) => Arc::default(),
            (false, false) => self.of_dir(per_dir, crate::key::parent(dir)),
        };
        let path = [&self.root[..], dir].concat();
        let bare = self.bare_root && dir.is_empty();
        // A file named there is looked up beside it.
        let looks_above = per_dir.from_above || !per_dir.within.is_empty();
        let rules = match bare && (per_dir.no_inherit || !looks_above) {
            true => inherited,
            false => self.add(per_dir, &path, dir, false, inherited),
        };
        self.remembered().put(at, rules.clone());
        rules
    }

    /// Rules of the directories above the transfer's root, the topmost last.
    fn above(&self, per_dir: &PerDir) -> Arc<Vec<Item>> {
        let above = &self.root[..self.root.len() - 1];
        let ends = (0..above.len()).filter(|at| above[*at] == b'/');
        ends.fold(Arc::default(), |rules, end| self.add(per_dir, &above[..=end], &above[1..=end], true, rules))
    }

    /// A directory's own rules before those that it inherits.
    fn add(
        &self,
        per_dir: &PerDir,
        path: &[u8],
        dir: &[u8],
        absolute: bool,
        inherited: Arc<Vec<Item>>,
    ) -> Arc<Vec<Item>> {
        let place = parse::RuleFileContext {
            path,
            root: &self.root,
            dir,
            absolute,
            files: &*self.files,
            next_id: &self.next_id,
        };
        match self.files.of_dir(path, &per_dir.name).map_err(RuleError::Rule).and_then(|text| match text {
            Some(text) => parse::of_dir(&text, per_dir, &place).map(Some),
            None => Ok(None),
        }) {
            Ok(None) => inherited,
            Ok(Some((rules, true))) => Arc::new(rules),
            Ok(Some((mut rules, false))) => {
                rules.extend(inherited.iter().cloned());
                Arc::new(rules)
            }
            Err(why) => {
                let file = [path, &per_dir.name].concat();
                let line = |why: String| format!("{}: {why}", String::from_utf8_lossy(&file));
                let line = match why {
                    RuleError::Rule(why) => RuleError::Rule(line(why)),
                    RuleError::File(why) => RuleError::File(line(why)),
                };
                let mut broken = self.broken.lock().unwrap_or_else(|e| e.into_inner());
                if !broken.contains(&line) {
                    broken.push(line);
                }
                self.is_broken.store(true, Ordering::Relaxed);
                Arc::new(vec![Item::Unknown])
            }
        }
    }
}
