//! rsync's rules from the command line and the files that they name.

use super::{
    exit::{self, Refusal},
    named_files,
    options::{Options, RuleArg},
    path_args::clean,
};
use haul_core::filter::{
    Filter,
    first_match::{Builder, OtherSources, RuleError, RuleFiles, RuleSet, SelectedNames, Selection},
};
use std::{os::unix::ffi::OsStrExt as _, sync::Arc};

/// Rule files on this machine's disks.
#[derive(Debug)]
struct Disks {
    /// Links of any owner are followed to them.
    any_links: bool,
    input: named_files::InputFiles,
}

impl RuleFiles for Disks {
    fn of_dir(&self, dir: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, String> {
        use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        match named_files::read(&[dir, name].concat(), self.any_links) {
            Ok(text) => Ok(Some(text)),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory | IsADirectory) => Ok(None),
            // Other users with write access there must not turn files they can't read into rules.
            Err(error) if named_files::is_foreign_link(&error) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn named(&self, path: &[u8]) -> Result<Vec<u8>, String> {
        self.input.text(path, self.any_links)
    }
}

/// The files that one job covers.
#[derive(Clone, Default)]
pub struct Scope {
    /// Absolute path that names are relative to, ending in `/`; `None` for a source that isn't here.
    pub root: Option<Vec<u8>>,
    /// The destination's folder, where it is on this machine and rules in its own directories say what may be deleted.
    pub dest: Option<Vec<u8>>,
    /// Prefix of keys in printed names.
    pub prefix: Vec<u8>,
    /// The root itself is no part of it: it holds what arguments name.
    pub bare_root: bool,
    /// The names that arguments give.
    pub only: Option<SelectedNames>,
    /// Names at the root that other sources transfer, and that must not be deleted because of that.
    pub others: Vec<Vec<u8>>,
    /// Sources whose names may be the same.
    pub merged: Option<Arc<dyn OtherSources>>,
}

/// The filter of one job.
///
/// Errors: the exit code, and one line that names the rule or its file.
pub fn filter(options: &Options, scope: Scope) -> Result<Filter, Refusal> {
    Ok(Filter::first_match(selection(options, scope)?, options.min_size, options.max_size))
}

/// The selection of one job.
///
/// Errors: the exit code, and one line that names the rule or its file.
pub fn selection(options: &Options, scope: Scope) -> Result<Selection, Refusal> {
    let refusal = |wrong| match wrong {
        RuleError::Rule(line) => (exit::USAGE, line),
        RuleError::File(line) => (exit::FILE_IO, line),
    };
    let root = scope.root.clone().unwrap_or_else(|| b"/".to_vec());
    let rules = compile(options, &scope, root).map_err(refusal)?;
    if scope.root.is_none() && rules.per_dir() {
        let line = "per-directory rules (-F, -C, dir-merge) need a local source";
        return Err((exit::USAGE, line.into()));
    }
    let kept = match scope.dest.clone().filter(|_| rules.per_dir()) {
        Some(dest) => Some(compile(options, &scope, dest).map_err(refusal)?),
        None => None,
    };
    Ok(Selection::new(rules, scope.only, scope.prefix)
        .with_kept(kept)
        .beside(scope.merged)
        .with_unlisted_parents(options.no_implied_dirs))
}

/// Checks that a host loses nothing that rules in its own directories may protect: they aren't read there. What `.cvsignore` files name is
/// made anew; who deletes by them knows that.
///
/// Errors: directories may bring rules; the exit code, and one line that says what to do.
pub fn check_far_rules(options: &Options, scopes: impl IntoIterator<Item = Scope>) -> Result<(), Refusal> {
    let options = Options { cvs: false, ..options.clone() };
    for scope in scopes {
        if selection(&options, scope)?.rules().per_dir() {
            let line = "Refused to delete by per-directory rules (-F, dir-merge) at a host: its own files of rules aren't read. Give the \
                        rules as --filter='merge FILE', or leave the deletion out";
            return Err((exit::USAGE, line.into()));
        }
    }
    Ok(())
}

/// A folder for backups that is inside the destination, without slashes around it.
pub fn backup_dir_inside(options: &Options) -> Option<&[u8]> {
    relative_backup_dir(options).filter(|dir| !dir.split(|b| *b == b'/').any(|part| matches!(part, b"" | b"." | b"..")))
}

/// One that is named from there, wherever that leads.
fn relative_backup_dir(options: &Options) -> Option<&[u8]> {
    let dir = options.backup_dir.as_ref().filter(|dir| !dir.starts_with(b"/") && !dir.contains(&b':'))?;
    let dir = dir.strip_prefix(b"./").unwrap_or(dir);
    Some(dir.strip_suffix(b"/").unwrap_or(dir))
}

/// The rules, and those of the directories below `root`.
fn compile(options: &Options, scope: &Scope, root: Vec<u8>) -> Result<RuleSet, RuleError> {
    let disks = Arc::new(Disks { any_links: options.insecure_links, input: options.input.clone() });
    let mut rules = Builder::new(root, disks, options.delete_excluded, options.from0)
        .with_absolute(scope.root.clone().unwrap_or_else(|| b"/".to_vec()))
        .with_bare_root(scope.bare_root)
        .with_cvs_words(cvs_words(options));
    for name in &scope.others {
        rules.filter(&[b"P /", &escape(name)[..]].concat())?;
    }
    if let Some(dir) = relative_backup_dir(options) {
        let dir = escape(dir);
        // Whatever is deleted, no backup is; that the source has nothing there was checked.
        rules.filter(&[b"P /", &dir[..], b"/"].concat())?;
        rules.filter(&[b"P /", &dir[..], b"/**"].concat())?;
        rules.filter(&[b"- /", &dir[..], b"/"].concat())?;
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
        rules.cvs()?;
    }
    if options.backup && options.backup_dir.is_none() && options.delete.is_some() && !options.delete_excluded {
        let suffix = options.backup_suffix().unwrap_or_default();
        rules.filter(&[b"P *", &escape(suffix.as_bytes())[..]].concat())?;
    }
    if let Some(dir) = partial_dir(options) {
        rules.filter(&[b"-p ", &dir[..], b"/"].concat())?;
    }
    Ok(rules.build())
}

/// The directory beside each file where rsync leaves what is cut short: on neither side is that anybody's file.
fn partial_dir(options: &Options) -> Option<Vec<u8>> {
    let usual = || options.usual_partial_dir.clone().filter(|_| options.partial);
    let dir = options.partial_dir.clone().or_else(usual).filter(|dir| !dir.starts_with(b"/"))?;
    Some(clean(&dir)).filter(|dir| !dir.is_empty())
}

/// The user's additions to CVS's list.
fn cvs_words(options: &Options) -> Vec<Vec<u8>> {
    let own = options.home.as_ref().map(|home| home.join(".cvsignore"));
    let own = own.and_then(|path| named_files::read(path.as_os_str().as_bytes(), options.insecure_links).ok());
    own.into_iter().chain(options.cvs_words.clone()).collect()
}

/// A name as a pattern that matches it alone.
fn escape(name: &[u8]) -> Vec<u8> {
    let wild = name.iter().any(|b| b"*?[".contains(b));
    name.iter().flat_map(|b| if wild && b"*?[\\".contains(b) { vec![b'\\', *b] } else { vec![*b] }).collect()
}
