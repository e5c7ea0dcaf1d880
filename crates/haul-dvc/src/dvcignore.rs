//! `.dvcignore`: gitignore's syntax, one file a folder, deeper ones count first. ripgrep's `ignore` knows the syntax.

use haul_cas::facts::invalid;
use haul_core::Result;
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use std::{path::Path, sync::Arc};

/// The name of such files.
pub const NAME: &str = ".dvcignore";

/// The rules that hold in a folder: its own and those of the folders above. Cheap to clone.
#[derive(Clone, Default)]
pub struct Ignored(Option<Arc<Rules>>);

struct Rules {
    own: Gitignore,
    above: Ignored,
}

impl Ignored {
    /// The rules in a folder that has a `.dvcignore` of its own with this text.
    ///
    /// Errors: a pattern that can't be read.
    pub fn with(&self, folder: &Path, text: &str) -> Result<Ignored> {
        let mut builder = GitignoreBuilder::new(folder);
        for line in text.lines() {
            builder
                .add_line(None, &without_alternatives(line))
                .map_err(|e| invalid("read", &folder.join(NAME), e.to_string()))?;
        }
        let own = builder.build().map_err(|e| invalid("read", &folder.join(NAME), e.to_string()))?;
        Ok(Ignored(Some(Arc::new(Rules { own, above: self.clone() }))))
    }

    /// True for a path, by the absolute path of which the folder above isn't ignored.
    pub fn is(&self, path: &Path, dir: bool) -> bool {
        let mut rules = &self.0;
        while let Some(here) = rules {
            match here.own.matched(path, dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => rules = &here.above.0,
            }
        }
        false
    }

    /// True when nothing is ignored.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// A pattern whose braces are plain letters, as to git and DVC; to ripgrep they are alternatives unless a backslash is before them, or they
/// are in brackets.
fn without_alternatives(line: &str) -> String {
    let (mut out, mut letters, mut bracket) = (String::with_capacity(line.len()), line.chars(), None);
    while let Some(letter) = letters.next() {
        match (letter, bracket) {
            ('\\', _) => {
                out.push(letter);
                out.extend(letters.next());
                bracket = bracket.map(|length: usize| length + 1);
                continue;
            }
            // The first one in it is no end of it.
            (']', Some(1..)) => bracket = None,
            ('!' | '^', Some(0)) => {}
            (_, Some(length)) => bracket = Some(length + 1),
            ('[', None) => bracket = Some(0),
            ('{' | '}', None) => out.push('\\'),
            _ => {}
        }
        out.push(letter);
    }
    out
}

/// Folders of tools, which are never tracked.
pub fn is_tools_own(name: &[u8]) -> bool {
    matches!(name, b".dvc" | b".git" | b".hg")
}

/// The part of a path below the repository that is such a folder, also where the file system takes another case for the same: whoever
/// writes in there has his programs run.
pub fn tools_own(path: &str) -> Option<&str> {
    path.split('/').find(|part| is_tools_own(part.to_ascii_lowercase().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeper_rules_count_first() {
        let top = Ignored::default().with(Path::new("/r"), "# c\n*.tmp\n/build/\ncache*\n").unwrap();
        let below = top.with(Path::new("/r/a"), "!keep.tmp\n*.log\n").unwrap();
        for (rules, path, dir, ignored) in [
            (&top, "/r/x.tmp", false, true),
            (&top, "/r/a/x.tmp", false, true),
            (&top, "/r/build", true, true),
            (&top, "/r/build", false, false),
            (&top, "/r/a/build", true, false),
            (&top, "/r/a/x.log", false, false),
            (&below, "/r/a/x.log", false, true),
            (&below, "/r/a/keep.tmp", false, false),
            (&below, "/r/a/other.tmp", false, true),
            (&below, "/r/a/cached", true, true),
        ] {
            assert_eq!(rules.is(Path::new(path), dir), ignored, "{path}");
        }
        let braces = Ignored::default().with(Path::new("/r"), "{a,b}\n").unwrap();
        assert!(!braces.is(Path::new("/r/a"), false) && braces.is(Path::new("/r/{a,b}"), false));
        for (line, same) in [
            ("{a,b}", r"\{a,b\}"),
            (r"\{a\}", r"\{a\}"),
            ("[{]x", "[{]x"),
            ("[{}]*", "[{}]*"),
            ("[]{]{", r"[]{]\{"),
            ("[!]{]}", r"[!]{]\}"),
        ] {
            assert_eq!(without_alternatives(line), same, "{line}");
        }
        assert!(Ignored::default().is_empty() && !top.is_empty());
    }
}
