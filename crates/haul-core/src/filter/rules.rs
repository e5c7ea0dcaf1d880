//! Rules in order: the first that matches decides, and what none matches is included.

use super::glob::{Pattern, dir_globs};

/// Rules for files and the rules for directories that follow from them.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    files: Vec<Rule>,
    dirs: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    include: bool,
    pattern: Pattern,
    /// As the user gave it.
    text: String,
}

/// A rule's decision: include or not, and the rule's text.
pub(super) type Verdict<'a> = Option<(bool, &'a str)>;

impl Rules {
    /// Compiles rules in the form of `--filter`.
    pub fn new(rules: &[String], ignore_case: bool) -> Result<Rules, String> {
        let mut this = Rules::default();
        for rule in rules {
            this.add(rule, ignore_case).map_err(|why| format!("bad filter rule {rule:?}: {why}"))?;
        }
        Ok(this)
    }

    fn add(&mut self, text: &str, ignore_case: bool) -> Result<(), String> {
        if text == "!" {
            *self = Rules::default();
            return Ok(());
        }
        let (include, glob) = split(text).ok_or("write `+ pattern`, `- pattern` or `!`")?;
        let rule = |glob: &str| -> Result<Rule, String> {
            Ok(Rule { include, pattern: Pattern::new(glob, ignore_case)?, text: text.into() })
        };
        let dir_only = glob.ends_with('/');
        // Excluding a directory excludes its contents.
        let glob = if dir_only && !include { format!("{glob}**") } else { glob.to_string() };
        let both = glob.contains("**");
        if both || !dir_only {
            self.files.push(rule(&glob)?);
            // An exclusion of files says nothing about directories, unless it is of all files.
            if include || glob == "*" {
                for dir in dir_globs(&glob) {
                    self.dirs.push(rule(&dir)?);
                }
            }
        }
        if both || dir_only {
            self.dirs.push(rule(&glob)?);
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.dirs.is_empty()
    }

    /// True when some directory may be left out.
    pub fn prune(&self) -> bool {
        self.dirs.iter().any(|r| !r.include)
    }

    /// The first rule that matches the name of a file.
    pub fn file(&self, key: &[u8]) -> Verdict<'_> {
        first(&self.files, key)
    }

    /// The first rule that matches any of these texts.
    pub fn of_many(&self, texts: &[Vec<u8>]) -> Verdict<'_> {
        let rule = self.files.iter().find(|rule| texts.iter().any(|text| rule.pattern.matches(text)))?;
        Some((rule.include, rule.text.as_str()))
    }

    /// The first rule that matches a directory's key.
    pub fn dir(&self, key: &[u8]) -> Verdict<'_> {
        first(&self.dirs, key)
    }
}

/// A rule's sign and pattern.
pub(super) fn split(rule: &str) -> Option<(bool, &str)> {
    match rule.split_at_checked(2)? {
        ("+ ", glob) => Some((true, glob)),
        ("- ", glob) => Some((false, glob)),
        _ => None,
    }
}

fn first<'a>(rules: &'a [Rule], key: &[u8]) -> Verdict<'a> {
    rules.iter().find(|r| r.pattern.matches(key)).map(|r| (r.include, r.text.as_str()))
}
