//! Cuts at folder boundaries, found by one request with a delimiter: keys in folders hardly show how far the next folder is.

use crate::{Entry, Key};

/// Part of a page that a range between folders may end short of a whole one without being taken to reach into the next: folders differ.
const SURE: f64 = 0.05;
/// Part of what was seen that is most of it.
const MOST_OF: f64 = 0.5;

/// The folders of a directory, and how much there is in one.
#[derive(Debug, Default)]
pub(super) struct Folders {
    requested: bool,
    /// In order, each with its `/`.
    known: Vec<Key>,
    too_many: bool,
    /// Pages of one, on the average; 0 until something shows it.
    pages: f64,
    /// The directory whose folders are counted: the one that all keys so far are in.
    dir: Vec<u8>,
    /// Folders of it that were seen from the first to the last key in one page, and the keys in them.
    whole: usize,
    keys: usize,
    /// Those hold most of what was seen, so that they say what a folder has.
    small: bool,
}

/// The directory that two keys are in.
fn dir_of_both<'a>(first: &'a Key, last: &Key) -> &'a [u8] {
    let (first, last) = (first.as_bytes(), last.as_bytes());
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    &first[..first[..common].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)]
}

impl Folders {
    /// The directory that two keys are in, in folders of their own; once.
    pub fn wanted(&mut self, first: &Key, last: &Key) -> Option<Key> {
        if self.requested {
            return None;
        }
        let dir = dir_of_both(first, last);
        self.requested = [first, last].iter().all(|key| key.as_bytes()[dir.len()..].contains(&b'/'));
        self.requested.then(|| Key::new(dir))
    }

    /// Counts the folders that lie whole in a page; `first` is the first key of all. Once the folders were asked for, those of the
    /// same directory.
    pub fn seen(&mut self, first: &Key, page: &[Entry]) {
        let Some(last) = page.last() else { return };
        let dir = dir_of_both(first, &last.key);
        if dir != self.dir {
            if self.requested {
                return;
            }
            (self.dir, self.whole, self.keys) = (dir.to_vec(), 0, 0);
        }
        let folder = |entry: &'_ Entry| {
            let below = entry.key.as_bytes().get(self.dir.len()..)?;
            Some(self.dir.len() + below.iter().position(|byte| *byte == b'/')? + 1)
        };
        let (mut before, mut begins, mut count) = (None::<&[u8]>, None, 0);
        for (at, entry) in page.iter().enumerate() {
            let Some(end) = folder(entry) else { continue };
            let name = &entry.key.as_bytes()[..end];
            // The page may begin within its first folder.
            if before.is_some_and(|before| before != name) {
                let from = *begins.get_or_insert(at);
                (self.keys, self.whole) = (self.keys + at - from - count, self.whole + usize::from(at > from));
                count = at - from;
            }
            before = Some(name);
        }
    }

    /// Folders of the directory that all keys are in which were seen whole.
    pub fn whole(&self) -> usize {
        self.whole
    }

    /// Takes the folders, as far as one page names them.
    pub fn known(&mut self, folders: Vec<Key>) {
        self.known = folders;
    }

    /// There are more than one page names, which isn't worth it yet: they may be asked for once more.
    pub fn too_many(&mut self) {
        (self.requested, self.too_many) = (false, true);
    }

    /// They were too many for one page.
    pub fn are_too_many(&self) -> bool {
        self.too_many
    }

    /// How many folders begin up to `key`.
    fn up_to(&self, key: &Key) -> usize {
        self.known.partition_point(|folder| folder <= key)
    }

    /// Reckons what a folder has, in pages of `page` keys: from those that were seen whole, where they hold most of the `useful` pages so
    /// far, else from parts of the listing: from where to where, and how many pages.
    pub fn measure<'a>(&mut self, page: usize, useful: f64, seen: impl Iterator<Item = (&'a Key, &'a Key, f64)>) {
        if self.known.is_empty() {
            return;
        }
        let whole = self.keys as f64 / page as f64;
        self.small = self.whole > 1 && whole > MOST_OF * useful;
        if self.small {
            self.pages = whole / self.whole as f64;
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

    /// How many folders make up some `pages`, and what part of the last page they waste by that: where several fit in one page, so many
    /// that they end just before a page does.
    fn fit(&self, pages: f64) -> (f64, f64) {
        let waste = |count: f64| {
            let left = 1.0 - (count * self.pages).fract();
            if left < SURE { 1.0 } else { left }
        };
        let about = (pages / self.pages).round().max(1.0);
        let more = (1.0 / self.pages).floor() as usize;
        let fits = (0..=more).map(|more| about + more as f64).map(|count| (count, waste(count)));
        fits.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((about, 1.0))
    }

    /// Part of a page that a cut after some `pages` wastes, if folders are as they were; `None` where pages don't hold several.
    pub fn waste(&self, pages: f64) -> Option<f64> {
        (self.pages > 0.0 && self.small).then(|| self.fit(pages).1)
    }

    /// Where a range from `start` to `until` is to be cut so that its first part has some `pages`, how many those are, and how many there
    /// are in all folders from `start`; `None` where the folders that are known, or the range, don't reach so far.
    pub fn cut(&self, start: &Key, until: Option<&Key>, pages: f64) -> Option<(Key, f64, f64)> {
        if self.pages <= 0.0 {
            return None;
        }
        // The first folder that begins there or later.
        let next = self.known.partition_point(|folder| folder < start);
        let count = if self.small { self.fit(pages).0 } else { (pages / self.pages).round().max(1.0) };
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
    fn small_folders_are_counted_and_fill_pages() {
        let page = |from: u64, to: u64| -> Vec<Entry> {
            (from..to).map(|n| Entry::file(Key::new(format!("d/{:03}/{n:06}", n / 100)), 1)).collect()
        };
        let mut folders = Folders::default();
        let first = Key::new("d/000/000000");
        // Of the first and the last folder of a page it doesn't show how much there is.
        folders.seen(&first, &page(0, 450));
        assert_eq!((folders.whole, folders.keys, &folders.dir[..]), (3, 300, &b"d/"[..]));
        folders.seen(&first, &page(450, 900));
        assert_eq!((folders.whole, folders.keys), (6, 600));
        folders.seen(&first, &page(900, 1_000));
        assert_eq!(folders.whole, 6);
        folders.known((0..100).map(|number| Key::new(format!("d/{number:03}/"))).collect());
        folders.measure(450, 1_000.0 / 450.0, std::iter::empty());
        // Nine make two pages to the key, and may make a little more.
        assert_eq!(folders.fit(2.0).0, 13.0);
        assert!((folders.waste(2.0).unwrap() - 1.0 / 9.0).abs() < 1e-9);
        let (cut, pages, left) = folders.cut(&Key::new("d/010/"), None, 2.0).unwrap();
        assert_eq!((cut, (pages * 450.0).round(), (left * 450.0).round()), (Key::new("d/023/"), 1_300.0, 9_000.0));
    }

    #[test]
    fn cuts_lie_before_folders_at_page_distances() {
        let mut folders = Folders::default();
        folders.known((0..100).map(|number| Key::new(format!("{number:02}/"))).collect());
        assert_eq!(folders.cut(&Key::new("00/x"), None, 8.0), None);
        folders.measure(1_000, 2.0, [(&Key::new("00/a"), &Key::new("04/z"), 2.0)].into_iter());
        assert_eq!(folders.cut(&Key::new("04/z"), None, 8.0), Some((Key::new("21/"), 8.0, 47.5)));
        assert_eq!(folders.cut(&Key::new("04/z"), Some(&Key::new("21/")), 8.0), None);
        assert_eq!(folders.cut(&Key::new("90/z"), None, 8.0), None);
        let mut alike = Folders::default();
        alike.known(["data-1/", "data-2/", "data/", "other/"].map(Key::new).into());
        alike.measure(1_000, 9.0, [(&Key::new("data-1/a"), &Key::new("data-1/z"), 9.0)].into_iter());
        for start in ["data-1/x", "data-2/x"] {
            let start = Key::new(start);
            assert!(alike.cut(&start, None, 8.0).is_none_or(|(cut, ..)| cut > start));
        }
        folders.measure(1_000, 2.0, [(&Key::new("00/a"), &Key::new("00/z"), 9.0)].into_iter());
        assert_eq!(folders.cut(&Key::new("00/z"), None, 8.0), Some((Key::new("02/"), 18.0, 99.0 * 18.0)));
    }
}
