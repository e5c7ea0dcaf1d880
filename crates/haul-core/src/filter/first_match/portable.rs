//! A selection as data, where it is nothing else: rules that no directory adds to, and no other sources that must be asked.

use super::{Item, Rule, RuleFiles, RuleSet, SelectedNames, Selection};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A selection that means the same on any machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Portable {
    rules: Rules,
    kept: Option<Rules>,
    only: Option<SelectedNames>,
    prefix: Vec<u8>,
    unlisted_parents: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Rules {
    items: Vec<Rule>,
    root: Arc<[u8]>,
    bare_root: bool,
    texts: Vec<String>,
}

impl Selection {
    /// The rules as data; `None` where they depend on the machine.
    pub fn portable(&self) -> Option<Portable> {
        if self.others.is_some() {
            return None;
        }
        let kept = match &self.kept {
            Some(kept) => Some(Rules::of(kept)?),
            None => None,
        };
        let (only, prefix, unlisted_parents) = (self.only.clone(), self.prefix.clone(), self.unlisted_parents);
        Some(Portable { rules: Rules::of(&self.rules)?, kept, only, prefix, unlisted_parents })
    }
}

impl From<Portable> for Selection {
    fn from(portable: Portable) -> Selection {
        let Portable { rules, kept, only, prefix, unlisted_parents } = portable;
        let selection = Selection::new(rules.into(), only, prefix).with_kept(kept.map(RuleSet::from));
        selection.with_unlisted_parents(unlisted_parents)
    }
}

impl Rules {
    fn of(set: &RuleSet) -> Option<Rules> {
        let items = set.items.iter().map(|item| match item {
            Item::Rule(rule) => Some(rule.clone()),
            Item::PerDir(_) | Item::Unknown => None,
        });
        let (root, bare_root, texts) = (set.root.clone(), set.bare_root, set.texts.clone());
        Some(Rules { items: items.collect::<Option<_>>()?, root, bare_root, texts })
    }
}

impl From<Rules> for RuleSet {
    fn from(rules: Rules) -> RuleSet {
        let Rules { items, root, bare_root, texts } = rules;
        RuleSet {
            items: items.into_iter().map(Item::Rule).collect(),
            root,
            bare_root,
            files: Arc::new(NoFiles),
            texts,
            next_id: Default::default(),
            of_dirs: Default::default(),
            is_broken: Default::default(),
            broken: Default::default(),
        }
    }
}

/// No rule names a file.
#[derive(Debug)]
struct NoFiles;

impl RuleFiles for NoFiles {
    fn of_dir(&self, _: &[u8], _: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn named(&self, _: &[u8]) -> Result<Vec<u8>, String> {
        Err("rules that crossed a wire name no files".into())
    }
}
