//! rsync's filter rules: first match wins for each name, a directory that is left out takes all below it along, hiding
//! at the source and protecting at the destination are two things, and directories may bring rules of their own.
//!
//! Pure: files of rules come through [`RuleFiles`], which the caller makes.

mod parse;
mod pattern;
mod selection;

pub use parse::Builder;
pub use selection::{Only, OtherSources, Selection};

use pattern::Pattern;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

/// Reads files of rules for whoever compiles rules.
pub trait RuleFiles: fmt::Debug + Send + Sync {
    /// The rules that the source's directory `dir` (an absolute path ending in `/`) holds in a file of this name; `None`
    /// when it has none.
    fn of_dir(&self, dir: &[u8], name: &[u8]) -> Option<Vec<u8>>;

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

#[derive(Clone, Debug)]
struct Rule {
    pattern: Pattern,
    include: bool,
    hide: bool,
    protect: bool,
    /// Matches what the pattern doesn't.
    negated: bool,
    /// Not for what goes with the directory that holds it.
    perishable: bool,
    /// The pattern is of an absolute path.
    absolute: bool,
}

#[derive(Clone, Debug)]
enum Item {
    Rule(Rule),
    /// Rules that each directory may hold, in a file of this name.
    PerDir(Arc<PerDir>),
}

/// A `dir-merge` rule.
#[derive(Clone, Debug)]
struct PerDir {
    name: Vec<u8>,
    /// Directories above the transfer's root are looked at too.
    from_above: bool,
    /// Rules don't reach into directories below.
    no_inherit: bool,
    defaults: parse::Defaults,
}

/// Rules that directories brought: by the number of the `dir-merge` rule and the directory.
type OfDirs = HashMap<(usize, Vec<u8>), Arc<Vec<Rule>>>;

/// Compiled rules.
#[derive(Debug)]
pub struct RuleSet {
    items: Vec<Item>,
    /// Absolute path of the directory that names are relative to, ending in `/`.
    root: Vec<u8>,
    files: Arc<dyn RuleFiles>,
    /// As given, for what must know whether two jobs have the same rules.
    texts: Vec<String>,
    of_dirs: Mutex<OfDirs>,
    broken: Mutex<Vec<String>>,
}

/// Directories whose rules are remembered. Listings come in order, so the ones above the current one are among them.
const REMEMBERED: usize = 4096;

impl RuleSet {
    /// True when no rule was given.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// True when directories may bring rules of their own.
    pub fn per_dir(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::PerDir(_)))
    }

    /// The rules as given.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// What is wrong with rules that directories brought, in one line each.
    pub fn broken(&self) -> Vec<String> {
        self.broken.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Is this name left out, as far as rules speak of itself (not of the directories above)? `dying`: the directory that
    /// holds it is to be deleted.
    pub fn leaves_out(&self, name: &[u8], is_dir: bool, side: Side, dying: bool) -> bool {
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let dir = crate::key::parent(name);
        for (at, item) in self.items.iter().enumerate() {
            let said = match item {
                Item::Rule(rule) => self.says(rule, name, is_dir, side, dying),
                Item::PerDir(per_dir) => {
                    let rules = self.of_dir(at, per_dir, dir);
                    rules.iter().find_map(|rule| self.says(rule, name, is_dir, side, dying))
                }
            };
            if let Some(include) = said {
                return !include;
            }
        }
        false
    }

    fn says(&self, rule: &Rule, name: &[u8], is_dir: bool, side: Side, dying: bool) -> Option<bool> {
        let asked = match side {
            Side::Hide => rule.hide,
            Side::Protect => rule.protect,
        };
        if !asked || (rule.perishable && dying) {
            return None;
        }
        let matches = match rule.absolute {
            true => rule.pattern.matches(&[&self.root[1..], name].concat(), is_dir),
            false => rule.pattern.matches(name, is_dir),
        };
        (matches != rule.negated).then_some(rule.include)
    }

    fn remembered(&self) -> MutexGuard<'_, OfDirs> {
        self.of_dirs.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The rules that a `dir-merge` rule finds for what is in `dir`: the directory's own first, then those of the
    /// directories above.
    fn of_dir(&self, at: usize, per_dir: &PerDir, dir: &[u8]) -> Arc<Vec<Rule>> {
        if let Some(rules) = self.remembered().get(&(at, dir.to_vec())) {
            return rules.clone();
        }
        let inherited = match (dir.is_empty(), per_dir.no_inherit) {
            (_, true) => Arc::default(),
            (true, false) if per_dir.from_above => self.above(per_dir),
            (true, false) => Arc::default(),
            (false, false) => self.of_dir(at, per_dir, crate::key::parent(dir)),
        };
        let path = [&self.root, dir].concat();
        let rules = self.add(per_dir, &path, dir, false, inherited);
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert((at, dir.to_vec()), rules.clone());
        rules
    }

    /// Rules of the directories above the transfer's root, the topmost last.
    fn above(&self, per_dir: &PerDir) -> Arc<Vec<Rule>> {
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
        inherited: Arc<Vec<Rule>>,
    ) -> Arc<Vec<Rule>> {
        let Some(text) = self.files.of_dir(path, &per_dir.name) else { return inherited };
        match parse::of_dir(&text, per_dir, dir, absolute) {
            Ok((rules, true)) => Arc::new(rules),
            Ok((mut rules, false)) => {
                rules.extend(inherited.iter().cloned());
                Arc::new(rules)
            }
            Err(why) => {
                let file = [path, &per_dir.name].concat();
                let line = format!("{}: {why}", String::from_utf8_lossy(&file));
                let mut broken = self.broken.lock().unwrap_or_else(|e| e.into_inner());
                if !broken.contains(&line) {
                    broken.push(line);
                }
                inherited
            }
        }
    }
}
