//! rsync's rules from the command line and the files that they name.

use super::options::{Options, RuleArg};
use haul_core::filter::{
    Filter,
    rsync::{Builder, Only, OtherSources, RuleFiles, Selection},
};
use std::{ffi::OsStr, fs::File, io::Read as _, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

/// Rule files on this machine's disks.
#[derive(Debug)]
struct Disks;

impl RuleFiles for Disks {
    fn of_dir(&self, dir: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, String> {
        use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        match read(&[dir, name].concat()) {
            Ok(text) => Ok(Some(text)),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory | IsADirectory) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn named(&self, path: &[u8]) -> Result<Vec<u8>, String> {
        read_input(path)
    }
}

/// A file of this machine.
pub fn read(path: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(Path::new(OsStr::from_bytes(path)))?.read_to_end(&mut text)?;
    Ok(text)
}

/// A file that an option names; `-` is standard input.
///
/// Errors: one line that names it.
pub fn read_input(path: &[u8]) -> Result<Vec<u8>, String> {
    if path == b"-" {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text).map_err(|e| format!("standard input: {e}"))?;
        return Ok(text);
    }
    read(path).map_err(|e| format!("{}: {e}", String::from_utf8_lossy(path)))
}

/// What one job is about.
#[derive(Clone, Default)]
pub struct Scope {
    /// Absolute path that names are relative to, ending in `/`; `None` for a source that isn't here.
    pub root: Option<Vec<u8>>,
    /// What stands before keys in names.
    pub prefix: Vec<u8>,
    /// The names that arguments give.
    pub only: Option<Only>,
    /// Names at the root that other sources bring, and that must not be deleted for that.
    pub others: Vec<Vec<u8>>,
    /// Sources whose names may be the same.
    pub merged: Option<Arc<dyn OtherSources>>,
}

/// The filter of one job.
///
/// Errors: one line that names the rule.
pub fn filter(options: &Options, scope: Scope) -> Result<Filter, String> {
    Ok(Filter::rsync(selection(options, scope)?, options.min_size, options.max_size))
}

/// What one job takes.
///
/// Errors: one line that names the rule.
pub fn selection(options: &Options, scope: Scope) -> Result<Selection, String> {
    let here = scope.root.is_some();
    let mut rules = Builder::new(
        scope.root.unwrap_or_else(|| b"/".to_vec()),
        Arc::new(Disks),
        options.delete_excluded,
        options.from0,
    );
    for name in &scope.others {
        rules.filter(&[b"P /", &escape(name)[..]].concat())?;
    }
    if let Some(dir) = options.backup_dir.as_ref().filter(|dir| !dir.starts_with(b"/") && !dir.contains(&b':')) {
        let dir = dir.strip_prefix(b"./").unwrap_or(dir);
        rules.filter(&[b"- /", &escape(dir.strip_suffix(b"/").unwrap_or(dir))[..], b"/"].concat())?;
    }
    if options.delay_updates {
        rules.filter(b"-p .~tmp~/")?;
    }
    for rule in &options.rules {
        match rule {
            RuleArg::Filter(rule) => rules.filter(rule)?,
            RuleArg::Pattern(include, pattern) => rules.pattern(*include, pattern)?,
            RuleArg::From(include, path) => rules.patterns_from(*include, path)?,
        }
    }
    if options.cvs {
        let home =
            crate::config::paths::home().and_then(|home| read(home.join(".cvsignore").as_os_str().as_bytes()).ok());
        let env = crate::app::env("CVSIGNORE");
        rules.cvs(home.as_deref(), env.as_ref().map(|env| env.as_bytes()))?;
    }
    if options.backup && options.backup_dir.is_none() && options.delete.is_some() && !options.delete_excluded {
        let suffix = options.backup_suffix().unwrap_or_default();
        rules.filter(&[b"P *", &escape(suffix.as_bytes())[..]].concat())?;
    }
    let rules = rules.build();
    if !here && rules.per_dir() {
        return Err("rules that directories bring (-F, -C, dir-merge) need a source on this machine".into());
    }
    Ok(Selection::new(rules, scope.only, scope.prefix, options.links)
        .beside(scope.merged)
        .with_bare_way(options.no_implied_dirs))
}

/// A name as a pattern that matches it alone.
fn escape(name: &[u8]) -> Vec<u8> {
    let wild = name.iter().any(|b| b"*?[".contains(b));
    name.iter().flat_map(|b| if wild && b"*?[\\".contains(b) { vec![b'\\', *b] } else { vec![*b] }).collect()
}
