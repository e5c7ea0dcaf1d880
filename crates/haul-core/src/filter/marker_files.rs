//! Directories that `--exclude-if-present` excludes, for callers that list everything.

use super::Filter;
use crate::{Entry, key};
use std::collections::BTreeSet;

/// Directories in which a marker was seen: they and all below them are excluded.
#[derive(Debug, Default)]
pub struct MarkedDirs(BTreeSet<Vec<u8>>);

impl MarkedDirs {
    /// Sees an entry of a listing that no filter cut.
    pub fn see(&mut self, filter: &Filter, entry: &Entry) {
        if filter.is_marker(entry) {
            self.0.insert(key::parent(entry.key.as_bytes()).to_vec());
        }
    }

    /// True for a marked directory and everything below it; known once the listing is complete.
    pub fn holds(&self, dir: &[u8]) -> bool {
        let mut above = (0..dir.len()).filter(|at| dir[*at] == b'/').map(|at| &dir[..=at]);
        !self.0.is_empty() && (self.0.contains(&b""[..]) || above.any(|dir| self.0.contains(dir)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, filter::FilterSpec};

    #[test]
    fn a_marker_excludes_its_directory_and_all_below() {
        let spec = FilterSpec { exclude_if_present: vec![".ignore".into()], ..FilterSpec::default() };
        let filter = Filter::new(spec).unwrap();
        let mut marked = MarkedDirs::default();
        assert!(!marked.holds(b"a/"));
        for key in ["a/.ignore", "b/x", "c/.ignore/"] {
            let key = Key::from(key);
            marked.see(&filter, &if key.is_dir() { Entry::dir(key) } else { Entry::file(key, 0) });
        }
        assert_eq!(
            [&b"a/"[..], b"a/b/c/", b"ab/", b"b/", b"c/", b""].map(|dir| marked.holds(dir)),
            [true, true, false, false, false, false]
        );
        marked.see(&filter, &Entry::file(Key::from(".ignore"), 0));
        assert!(marked.holds(b"b/") && marked.holds(b""));
    }
}
