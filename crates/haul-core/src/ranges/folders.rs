//! Cuts at folder boundaries, found by one request with a delimiter: keys in folders hardly show how far the next folder is.

use crate::Key;

/// The folders of a directory, and how much there is in one.
#[derive(Debug, Default)]
pub(super) struct Folders {
    requested: bool,
    /// In order, each with its `/`.
    known: Vec<Key>,
    /// Pages of one, on the average; 0 until something shows it.
    pages: f64,
}

impl Folders {
    /// The directory that two keys are in, in folders of their own; once.
    pub fn wanted(&mut self, first: &Key, last: &Key) -> Option<Key> {
        if self.requested {
            return None;
        }
        let (first, last) = (first.as_bytes(), last.as_bytes());
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let dir = first[..common].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        self.requested = [first, last].iter().all(|key| key[dir..].contains(&b'/'));
        self.requested.then(|| Key::new(&first[..dir]))
    }

    pub fn known(&mut self, folders: Vec<Key>) {
        self.known = folders;
    }

    /// How many folders begin up to `key`.
    fn up_to(&self, key: &Key) -> usize {
        self.known.partition_point(|folder| folder <= key)
    }

    /// Reckons what a folder has from parts of the listing: from where to where, and how many pages.
    pub fn measure<'a>(&mut self, seen: impl Iterator<Item = (&'a Key, &'a Key, f64)>) {
        if self.known.is_empty() {
            return;
        }
        let (folders, pages) = seen.fold((0, 0.0), |(folders, all), (from, to, pages)| {
            (folders + self.up_to(to).saturating_sub(self.up_to(from)), all + pages)
        });
        if pages > 0.0 {
            // A part that ends in the folder that it began in gives that folder's minimum.
            self.pages = pages / (folders as f64).max(0.5);
        }
    }

    /// Pages between two keys, where several of the folders that are known lie between them.
    pub fn between(&self, after: &Key, until: &Key) -> Option<f64> {
        let count = self.up_to(until).saturating_sub(self.up_to(after));
        let known = self.pages > 0.0 && self.known.last().is_some_and(|last| until < last);
        (known && count > 1).then_some(count as f64 * self.pages)
    }

    /// Where a range from `start` to `until` is to be cut so that its first part has some `pages`, how many those are, and how many there
    /// are in all folders from `start`; `None` where the folders that are known, or the range, don't reach so far.
    pub fn cut(&self, start: &Key, until: Option<&Key>, pages: f64) -> Option<(Key, f64, f64)> {
        if self.pages <= 0.0 {
            return None;
        }
        let next = self.up_to(start);
        let count = (pages / self.pages).round().max(1.0);
        let rest = self.known.len() - next;
        if count >= rest as f64 {
            return None;
        }
        // With its slash: without it, `data` would sort before the keys in `data-1/`, and so before the start.
        let cut = &self.known[next + count as usize];
        let inside = until.is_none_or(|until| cut < until);
        inside.then(|| (cut.clone(), count * self.pages, rest as f64 * self.pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_of_the_directory_that_holds_both_keys() {
        let wanted = |first: &str, last: &str| Folders::default().wanted(&Key::new(first), &Key::new(last));
        assert_eq!(wanted("a/b/c", "a/d/e"), Some(Key::new("a/")));
        assert_eq!(wanted("ab/c", "ad/e"), Some(Key::new("")));
        // Files of one folder, and files beside folders.
        assert_eq!((wanted("a/b", "a/c"), wanted("a", "b/c")), (None, None));
        let mut once = Folders::default();
        assert!(once.wanted(&Key::new("a/b"), &Key::new("c/d")).is_some());
        assert!(once.wanted(&Key::new("a/b"), &Key::new("c/d")).is_none());
    }

    #[test]
    fn cuts_lie_before_folders_at_page_distances() {
        let mut folders = Folders::default();
        folders.known((0..100).map(|number| Key::new(format!("{number:02}/"))).collect());
        assert_eq!(folders.cut(&Key::new("00/x"), None, 8.0), None);
        folders.measure([(&Key::new("00/a"), &Key::new("04/z"), 2.0)].into_iter());
        assert_eq!(folders.cut(&Key::new("04/z"), None, 8.0), Some((Key::new("21/"), 8.0, 47.5)));
        assert_eq!(folders.cut(&Key::new("04/z"), Some(&Key::new("21/")), 8.0), None);
        assert_eq!(folders.cut(&Key::new("90/z"), None, 8.0), None);
        let mut alike = Folders::default();
        alike.known(["data-1/", "data-2/", "data/", "other/"].map(Key::new).into());
        alike.measure([(&Key::new("data-1/a"), &Key::new("data-1/z"), 9.0)].into_iter());
        for start in ["data-1/x", "data-2/x"] {
            let start = Key::new(start);
            assert!(alike.cut(&start, None, 8.0).is_none_or(|(cut, ..)| cut > start));
        }
        folders.measure([(&Key::new("00/a"), &Key::new("00/z"), 9.0)].into_iter());
        assert_eq!(folders.cut(&Key::new("00/z"), None, 8.0), Some((Key::new("02/"), 18.0, 99.0 * 18.0)));
    }
}
