//! Which keys a job is about: rclone's filter language, applied alike to both sides and before directories are opened.

use crate::{Entry, Key};

/// What the user gave, in the order in which it counts.
#[derive(Clone, Debug, Default)]
pub struct FilterSpec {
    /// Rules in rclone's `--filter` form: `+ pattern`, `- pattern`, `!`.
    pub rules: Vec<String>,
    /// Only these paths (`--files-from`), as raw bytes, one a line's worth; `None` when the flag wasn't given.
    pub files_from: Option<Vec<Vec<u8>>>,
    /// Smallest size in bytes (`--min-size`).
    pub min_size: Option<u64>,
    /// Largest size in bytes (`--max-size`).
    pub max_size: Option<u64>,
    /// Only files modified at or after this time (`--max-age`).
    pub newer_than: Option<crate::Mtime>,
    /// Only files modified at or before this time (`--min-age`).
    pub older_than: Option<crate::Mtime>,
    /// Patterns ignore case (`--ignore-case`).
    pub ignore_case: bool,
    /// A directory that holds a file of one of these names is left out (`--exclude-if-present`).
    pub exclude_if_present: Vec<String>,
}

/// Compiled rules.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    spec: FilterSpec,
}

impl Filter {
    /// Compiles what the user gave. The error names the rule and what is wrong with it.
    pub fn new(spec: FilterSpec) -> Result<Filter, String> {
        Ok(Filter { spec })
    }

    /// True when every key is included.
    pub fn is_all(&self) -> bool {
        true
    }

    /// Is this file wanted? Looks at the key, the size and, where an age was given, the mtime.
    pub fn wants(&self, _entry: &Entry) -> bool {
        true
    }

    /// Is this file wanted, as far as its key and size tell? False is final; true may still fail on age.
    pub fn wants_but_for_age(&self, _entry: &Entry) -> bool {
        true
    }

    /// True when `wants` needs the mtime of entries.
    pub fn needs_mtime(&self) -> bool {
        self.spec.newer_than.is_some() || self.spec.older_than.is_some()
    }

    /// Can anything below the directory `dir` (its key, ending in `/`) be wanted? False means that it need not be
    /// opened; the directory itself is then excluded too.
    pub fn descend(&self, _dir: &[u8]) -> bool {
        true
    }

    /// Names whose presence excludes the directory that holds them.
    pub fn markers(&self) -> &[String] {
        &self.spec.exclude_if_present
    }

    /// The keys of `--files-from`, sorted, without repeats.
    pub fn files_from(&self) -> Option<&[Key]> {
        None
    }
}
