//! Listings that come in pages: whether they get on. It keeps no entries; whoever asks for the pages does.

use crate::{Fault, FaultResult};
use haul_core::{ErrorKind, Retry};
use std::{
    collections::HashSet,
    hash::{BuildHasher, Hash, RandomState},
};

/// Entries of one listing that is kept whole: as many as the largest libraries hold (SharePoint's).
const ENTRIES: usize = 30_000_000;
/// Pages in a row with nothing in them: services that look through what was deleted send some.
const EMPTY: usize = 10_000;
/// Pages in a row that hold only what came before: an entry that moves while it is listed comes twice.
const REPEATED: usize = 100;

/// The pages of one listing so far.
#[derive(Debug, Default)]
pub struct Pages {
    /// Hashes of what led to each page …
    tokens: HashSet<u64>,
    /// … and of what was in them.
    entries: HashSet<u64>,
    random: RandomState,
    empty: usize,
    repeated: usize,
    /// Entries of this page, and how many of them are new.
    page: (usize, usize),
}

impl Pages {
    /// Counts an entry of this page; false for one that came before.
    pub fn is_new(&mut self, id: &str) -> bool {
        let is_new = self.entries.insert(self.random.hash_one(id));
        self.page = (self.page.0 + 1, self.page.1 + usize::from(is_new));
        is_new
    }

    /// This page's entries were told on in order: what was before them can't come again.
    pub fn passed(&mut self) {
        self.tokens.clear();
        self.page = (1, 1);
    }

    /// A page has come, and the next one is asked for by `token`.
    ///
    /// Errors: it was asked for before, or nothing new comes any more: the listing has no end.
    pub fn next(&mut self, token: &(impl Hash + ?Sized)) -> FaultResult<()> {
        if !self.tokens.insert(self.random.hash_one(token)) {
            return Err(Fault::broken("the listing does not advance"));
        }
        match std::mem::take(&mut self.page) {
            (0, _) => self.empty += 1,
            (_, 0) => self.repeated += 1,
            _ => (self.empty, self.repeated) = (0, 0),
        }
        match self.entries.len() > ENTRIES || self.empty > EMPTY || self.repeated > REPEATED {
            true => Err(Fault::new(ErrorKind::Invalid, Retry::Never, "the service lists without an end")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_that_does_not_get_on_is_an_error() {
        let mut pages = Pages::default();
        for token in ["a", "b", "c"] {
            pages.next(token).unwrap();
        }
        assert_eq!(pages.next("b").unwrap_err().message, "the listing does not advance");
        pages.passed();
        pages.next("b").unwrap();
    }

    #[test]
    fn nothing_new_for_long_is_no_listing() {
        for (ids, most) in [(&[][..], EMPTY), (&["x", "y"], REPEATED)] {
            let mut pages = Pages::default();
            ids.iter().for_each(|id| assert!(pages.is_new(id)));
            pages.next("first").unwrap();
            let mut turn = |n: usize| {
                ids.iter().for_each(|id| assert!(!pages.is_new(id)));
                pages.next(&n.to_string())
            };
            let begun = usize::from(ids.is_empty());
            (begun..most).for_each(|n| turn(n).unwrap());
            let end = turn(most).unwrap_err();
            assert_eq!((end.retry, &*end.message), (Retry::Never, "the service lists without an end"));
        }
    }
}
