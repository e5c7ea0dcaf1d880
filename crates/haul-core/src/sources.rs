//! Several sources of one copy: whether two of them bring a file of one name. Who calls looks at the paths.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
};

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Nothing that can be seen.
    Missing,
    /// Anything but a directory.
    File,
    /// A directory with these names.
    Dir(BTreeSet<OsString>),
}

/// Checks that no two of several sources bring a file to one place, each with the path that it, or what is in it, comes to. Directories
/// may come to one place: what is in them goes together there. `look` says what is at a path of a source, and is asked once a source and
/// place.
///
/// Errors: one line, which names two that come to one place. Of two that do, one would be lost.
pub fn check_places(sources: &[(PathBuf, PathBuf)], look: &dyn Fn(&Path) -> SourceKind) -> Result<(), String> {
    let mut at: BTreeMap<&Path, Vec<PathBuf>> = BTreeMap::new();
    for (source, to) in sources {
        at.entry(to).or_default().push(source.clone());
    }
    for (to, own) in &at {
        // What is in a directory may come to where another source does.
        let parents = to.parent().zip(to.file_name()).map(|(parent, name)| (at.get(parent), name));
        let within =
            parents.into_iter().flat_map(|(dirs, name)| dirs.into_iter().flatten().map(move |dir| dir.join(name)));
        check_place(&within.chain(own.iter().cloned()).collect::<Vec<_>>(), to, look)?;
    }
    Ok(())
}

/// The same for the sources of one place.
fn check_place(sources: &[PathBuf], to: &Path, look: &dyn Fn(&Path) -> SourceKind) -> Result<(), String> {
    if sources.len() < 2 {
        return Ok(());
    }
    let refused = |one: &Path, other: &Path| {
        Err(format!("Refused to copy both {} and {} to {}", one.display(), other.display(), to.display()))
    };
    let mut first: Option<(&Path, bool)> = None;
    let mut dirs = BTreeSet::new();
    let mut within: BTreeMap<OsString, Vec<PathBuf>> = BTreeMap::new();
    for source in sources {
        let (names, is_dir) = match look(source) {
            SourceKind::Missing => continue,
            SourceKind::File => (BTreeSet::new(), false),
            SourceKind::Dir(names) => (names, true),
        };
        match first {
            Some((earlier, is_first_dir)) if !(is_dir && is_first_dir) => return refused(earlier, source),
            _ if !dirs.insert(source) => return refused(source, source),
            _ => first = first.or(Some((source, is_dir))),
        }
        for name in names {
            within.entry(name.clone()).or_default().push(source.join(name));
        }
    }
    within.iter().try_for_each(|(name, sources)| check_place(sources, &to.join(name), look))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_go_together_and_files_dont() {
        let tree = ["one/x", "one/d/y", "two/x", "two/d/z", "three/z", "three/x/q", "x"];
        let look = |path: &Path| {
            let below: BTreeSet<OsString> = tree
                .iter()
                .filter_map(|file| Path::new(file).strip_prefix(path).ok()?.iter().next().map(OsString::from))
                .collect();
            match (tree.iter().any(|file| Path::new(file) == path), below.is_empty()) {
                (true, _) => SourceKind::File,
                (_, true) => SourceKind::Missing,
                _ => SourceKind::Dir(below),
            }
        };
        let check = |sources: &[(&str, &str)]| {
            let sources: Vec<_> = sources.iter().map(|(source, to)| (source.into(), to.into())).collect();
            check_places(&sources, &look)
        };
        let refused = |one: &str, other: &str, to: &str| Err(format!("Refused to copy both {one} and {other} to {to}"));
        assert_eq!(check(&[("one", "dst/one"), ("two", "dst/two"), ("x", "dst/x")]), Ok(()));
        assert_eq!(check(&[("one/d", "dst"), ("two/d", "dst")]), Ok(()), "what is in both");
        assert_eq!(check(&[("one/d", "dst/d"), ("two/d", "dst/d")]), Ok(()), "two directories of one name");
        assert_eq!(check(&[("one", "dst"), ("two", "dst")]), refused("one/x", "two/x", "dst/x"));
        assert_eq!(check(&[("one", "dst"), ("three", "dst")]), refused("one/x", "three/x", "dst/x"));
        assert_eq!(check(&[("two/d", "dst/d"), ("three", "dst/d")]), refused("two/d/z", "three/z", "dst/d/z"));
        for sources in [&[("one", "dst"), ("x", "dst/x")][..], &[("x", "dst/x"), ("one", "dst")]] {
            assert_eq!(check(sources), refused("one/x", "x", "dst/x"));
        }
        assert_eq!(check(&[("one", "dst"), ("two/d", "dst/d")]), Ok(()));
        assert_eq!(check(&[("one/x", "dst/x"), ("two/x", "dst/x")]), refused("one/x", "two/x", "dst/x"));
        assert_eq!(check(&[("one", "dst"), ("one", "dst")]), refused("one", "one", "dst"));
        assert_eq!(check(&[("none", "dst"), ("one", "dst")]), Ok(()));
    }
}
