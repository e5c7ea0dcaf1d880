//! Entries that recursive listings have shown, so that a path missing from a recent listing needn't be looked up.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    time::Duration,
};
use tokio::time::Instant;

/// Hash kept in place of a path.
pub fn hash(path: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(path)
}

/// So long a listing is believed about what wasn't in it: others may make folders meanwhile, by names of other case too.
const FRESH: Duration = Duration::from_secs(60);

/// Record of recursive listings.
#[derive(Debug, Default)]
pub struct ListedFolders {
    /// Paths of their tops in lower case, and when they were asked for.
    tops: HashMap<String, Instant>,
    /// Hashes of the paths in lower case of all that was in them.
    paths: HashSet<u64>,
}

impl ListedFolders {
    /// All that is below the folder at `top` was asked for then, and is at `paths`, which are in lower case.
    pub fn add<'a>(&mut self, top: &str, asked_at: Instant, paths: impl Iterator<Item = &'a String>) {
        self.paths.extend(paths.map(|path| hash(path)));
        self.tops.insert(top.to_ascii_lowercase(), asked_at);
    }

    /// Nothing is at this path now, by no name that folds to it. How the service folds other letters than ASCII's is its own affair.
    pub fn is_missing(&self, path: &str, now: Instant) -> bool {
        let path = path.to_ascii_lowercase();
        let fresh = |top: &str| self.tops.get(top).is_some_and(|asked_at| now.duration_since(*asked_at) < FRESH);
        path.is_ascii()
            && !self.paths.contains(&hash(&path))
            && path.match_indices('/').any(|(at, _)| fresh(&path[..at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_listed_a_while_ago_says_nothing_of_what_isnt_there_now() {
        let (mut seen, asked_at) = (ListedFolders::default(), Instant::now());
        let shown = ["/top/a".to_owned(), "/top/a/f".to_owned()];
        seen.add("/Top", asked_at, shown.iter());
        let paths = ["/Top/b", "/Top/A", "/top/a/c", "/other/b", "/top/\u{c4}"];
        let missing = |now| paths.map(|path| seen.is_missing(path, now));
        assert_eq!(missing(asked_at), [true, false, true, false, false]);
        assert_eq!(missing(asked_at + FRESH), [false; 5]);
    }
}
