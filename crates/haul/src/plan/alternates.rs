//! `--compare-dest`, `--copy-dest` and `--link-dest`: files in an alternate destination need not be transferred.

use super::comparison::Comparison;
use crate::{
    Cx,
    attributes::{Attributes, ask},
    decide,
    index::EarlierKnowledge,
    namesakes::has_other_kind,
    recipes::Recipes,
};
use haul_core::{
    Entry, Key, Kind,
    attributes::Differs,
    compare::{Difference, Reason, Verdict},
    job::{CompareBy, Job},
    plan::{Action, AlternateFile, UseAs},
};
use haul_store::Store;
use std::sync::Arc;

/// The alternate destinations of a job.
pub(crate) struct Alternates {
    job: Arc<Job>,
    cx: Cx,
    attributes: Arc<Attributes>,
    comparison: Arc<Comparison>,
}

/// An alternate destination's entry of a file.
struct AlternateEntry {
    /// Its number among all other places.
    place: usize,
    entry: Entry,
    differs: Difference,
    /// Nothing that is to be kept differs.
    exact: bool,
}

/// Report for a file found in an alternate destination: the reason if it is copied from there, and the differences.
pub(crate) fn told_of(src: &Entry, why: Reason, found: &AlternateFile, exact: bool) -> ((Action, Reason), Difference) {
    match found.use_as {
        UseAs::Instead => ((Action::Keep, Reason::Size), Difference::of(src, Differs::default())),
        UseAs::Taken { .. } if exact => ((Action::Reuse, why), found.differs),
        UseAs::Taken { .. } => ((Action::Copy, why), found.differs),
    }
}

impl Alternates {
    /// Those of `cx`, whose files are compared by `comparison`.
    pub fn new((job, cx): (&Arc<Job>, &Cx), attributes: &Arc<Attributes>, comparison: &Arc<Comparison>) -> Alternates {
        Alternates { job: job.clone(), cx: cx.clone(), attributes: attributes.clone(), comparison: comparison.clone() }
    }

    fn stores(&self) -> impl Iterator<Item = &Arc<dyn Store>> {
        self.cx.compare_dest.iter().chain(&self.cx.copy_dest)
    }

    /// True if there is one.
    pub fn any(&self) -> bool {
        self.stores().next().is_some()
    }

    /// True if one counts even for files that the destination has: where it would replace them.
    pub fn count_for_all(&self) -> bool {
        self.job.elsewhere.exact && (!self.cx.compare_dest.is_empty() || self.job.elsewhere.link)
    }

    /// True if they are to be looked at before this is done.
    pub fn are_of_use(&self, action: Action, why: Reason, dst: Option<&Entry>) -> bool {
        let there = dst.is_none_or(|dst| dst.kind == Kind::File);
        match action {
            _ if self.job.elsewhere.exact && dst.is_some() => {
                let stays = matches!(action, Action::Keep | Action::Touch) && !why.is_left_alone();
                self.count_for_all() && there && (stays || action == Action::Copy)
            }
            Action::Copy => self.any(),
            _ => false,
        }
    }

    /// An entry of the file in one of the alternate destinations from this one on, and how it can be used.
    pub async fn find(&self, src: &Entry, to: &Key, dst: Option<&Entry>, from: usize) -> Option<AlternateFile> {
        let found = self.best(src, to, from).await?;
        let use_as = self.use_of(&found, src, to, dst).await?;
        let AlternateEntry { place, entry, differs, .. } = found;
        Some(AlternateFile { place, entry, differs, use_as })
    }

    /// How the found entry can be used.
    async fn use_of(&self, found: &AlternateEntry, src: &Entry, to: &Key, dst: Option<&Entry>) -> Option<UseAs> {
        let exact = self.job.elsewhere.exact;
        let compares = found.place < self.cx.compare_dest.len();
        if compares && (found.exact || !exact) {
            // The entry that hides the alternate destination's file there makes way for this one.
            let hidden = match dst {
                Some(dst) => dst.kind != src.kind,
                None => has_other_kind(&self.cx.dst, to).await,
            };
            return (!(exact && hidden)).then_some(UseAs::Instead);
        }
        // A link needs a file with all attributes that are to be kept.
        let link = self.job.elsewhere.link && found.exact;
        let is_it = |dst: &Entry| dst.version.is_some() && dst.version == found.entry.version;
        if dst.is_some_and(|dst| !link || is_it(dst)) && exact {
            return None;
        }
        Some(UseAs::Taken { link, copy: dst.is_none() || !exact })
    }

    /// Of the alternate destinations from this one on, the first that has a file with all attributes to keep, else the first that has its
    /// content.
    async fn best(&self, src: &Entry, to: &Key, from: usize) -> Option<AlternateEntry> {
        let mut best = None;
        for (place, store) in self.stores().enumerate().skip(from) {
            let Some(entry) = self.same_in(store, src, to).await else { continue };
            let differs = self.comparison.difference(src, Some(&entry));
            let exact = keeps_all(&self.job, src, differs) && self.agrees_inside(store, src, to).await;
            let found = AlternateEntry { place, entry, differs, exact };
            // A file that is only copied gets the source's attributes.
            if exact || !self.job.elsewhere.exact {
                return Some(found);
            }
            best.get_or_insert(found);
        }
        best
    }

    /// The first entry of a directory in one of them.
    pub async fn dir(&self, key: &Key) -> Option<Entry> {
        for store in self.stores() {
            if let Ok(found) = store.stat(key).await {
                return Some(found);
            }
        }
        None
    }

    /// The file to compare with for the report of differences, if it is missing at the destination: the first in an alternate destination.
    pub async fn basis(&self, src: &Entry, to: &Key) -> Option<Entry> {
        if !self.job.elsewhere.exact {
            return None;
        }
        for store in self.stores() {
            if let Ok(found) = store.stat(to).await
                && found.kind == src.kind
            {
                return Some(found);
            }
        }
        None
    }

    /// An alternate destination's entry of a further name of a file: where names are linked, only one that is the same file as
    /// the first name there.
    pub async fn further_name(&self, first: &Key, src: &Entry) -> Option<Entry> {
        if !self.job.elsewhere.exact {
            return None;
        }
        for store in &self.cx.copy_dest {
            let Some(found) = self.same_in(store, src, &src.key).await else { continue };
            if !self.job.elsewhere.link {
                return Some(found);
            }
            let exact = keeps_all(&self.job, src, self.comparison.difference(src, Some(&found)));
            let first = store.stat(first).await.ok().and_then(|first| first.version);
            if exact && first.is_some() && first == found.version {
                return Some(found);
            }
        }
        None
    }

    /// For attributes that no listing has: true when the alternate destination's file has the source's.
    async fn agrees_inside(&self, store: &Arc<dyn Store>, src: &Entry, to: &Key) -> bool {
        if !self.attributes.looks_inside() {
            return true;
        }
        let items = vec![self.attributes.item(src, to, None)];
        let answers = ask(&*self.cx.src, &**store, items, self.job.links.source, false).await;
        answers.iter().all(|answer| answer.as_ref().is_ok_and(|found| !found.differs.any()))
    }

    async fn same_in(&self, store: &Arc<dyn Store>, src: &Entry, to: &Key) -> Option<Entry> {
        let mut found = store.stat(to).await.ok()?;
        let mut src = src.clone();
        // Nothing is built from the existing file.
        let known = EarlierKnowledge { recipes: Recipes::default(), ..self.cx.known.clone() };
        let cx = Cx { dst: store.clone(), known, ..self.cx.clone() };
        // The rules that keep a differing file at the destination don't apply to this one.
        let rules = decide::rules(&self.job, &cx.src, &cx.dst).for_content();
        let verdict = decide::verdict(&cx, &self.job, &rules, &mut src, &mut found).await.ok()?;
        // Where content decides, another time is no other file.
        let same = match verdict {
            Verdict::Same(_) => true,
            Verdict::Touch => self.job.elsewhere.exact && self.job.compare.by == CompareBy::Checksum,
            _ => false,
        };
        same.then_some(found)
    }
}

/// True when another name of a file would do: nothing that is to be kept differs.
fn keeps_all(job: &Job, src: &Entry, differs: Difference) -> bool {
    let keep = &job.attributes.keep;
    let all = keep.perms || keep.acls;
    let perms = !src.is_symlink() && (all && differs.perms || keep.executability && differs.executable);
    let times = !job.attributes.no_update_mtime && differs.mtime;
    !(perms || times || keep.owner && differs.owner || keep.group && differs.group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, file, job, put};
    use haul_core::job::Verb;
    use haul_mem::MemStore;

    fn alternates(sample: &Sample) -> Alternates {
        let comparison = Arc::new(Comparison::new(sample.parts(), &Arc::default(), None));
        Alternates::new((&sample.job, &sample.cx), &Arc::default(), &comparison)
    }

    /// Places to compare with and to copy from; each has these keys.
    async fn sample(change: impl FnOnce(&mut Job), compare: &[&[&str]], copy: &[&[&str]]) -> Sample {
        let mut sample = Sample::of(job(Verb::Copy, change));
        for (places, to) in [(compare, &mut sample.cx.compare_dest), (copy, &mut sample.cx.copy_dest)] {
            for keys in places {
                let store = MemStore::new();
                for key in *keys {
                    put(&store, key).await;
                }
                to.push(Arc::new(store));
            }
        }
        sample
    }

    fn by_size(job: &mut Job) {
        job.compare.by = CompareBy::SizeOnly;
    }

    fn exact(job: &mut Job) {
        (job.compare.by, job.elsewhere.exact) = (CompareBy::SizeOnly, true);
    }

    #[tokio::test]
    async fn they_count_for_missing_files_or_where_they_replace_existing_ones() {
        let of_use = async |change: fn(&mut Job), action, there: bool| {
            let sample = sample(change, &[&[]], &[]).await;
            let dst = file("a");
            alternates(&sample).are_of_use(action, Reason::Size, there.then_some(&dst))
        };
        assert!(of_use(by_size, Action::Copy, false).await && of_use(by_size, Action::Copy, true).await);
        assert!(!of_use(by_size, Action::Keep, true).await);
        assert!(of_use(exact, Action::Keep, true).await && of_use(exact, Action::Copy, false).await);
        assert!(!of_use(exact, Action::Refuse, true).await);
        let none = Sample::of(job(Verb::Copy, |_| {}));
        assert!(!alternates(&none).are_of_use(Action::Copy, Reason::Missing, None));
    }

    #[tokio::test]
    async fn a_file_that_is_left_alone_needs_no_other_place() {
        let alternates = alternates(&sample(exact, &[&[]], &[]).await);
        assert!(!alternates.are_of_use(Action::Keep, Reason::Newer, Some(&file("a"))));
    }

    #[tokio::test]
    async fn places_to_compare_with_come_first_and_have_the_first_numbers() {
        let sample = sample(by_size, &[&["a"], &["b"]], &[&["a", "b", "c"]]).await;
        let alternates = alternates(&sample);
        let find = async |key: &str, from| {
            let src = file(key);
            alternates.find(&src, &src.key, None, from).await.map(|found| (found.place, found.use_as))
        };
        assert_eq!(find("a", 0).await, Some((0, UseAs::Instead)));
        assert_eq!(find("b", 0).await, Some((1, UseAs::Instead)));
        let taken = UseAs::Taken { link: false, copy: true };
        assert_eq!(find("c", 0).await, Some((2, taken)));
        assert_eq!(find("a", 1).await, Some((2, taken)));
        assert_eq!(find("d", 0).await, None);
    }

    #[tokio::test]
    async fn another_content_is_not_found() {
        let sample = sample(by_size, &[], &[&["a"]]).await;
        let src = Entry { size: 2, ..file("a") };
        assert!(alternates(&sample).find(&src, &src.key, None, 0).await.is_none());
    }

    #[test]
    fn a_hard_link_will_do_where_no_kept_attribute_differs() {
        let all = Difference { perms: true, owner: true, group: true, mtime: true, ..Difference::default() };
        let does = |change: fn(&mut Job), differs| keeps_all(&job(Verb::Copy, change), &file("a"), differs);
        assert!(!does(|_| {}, all), "times are kept");
        let no_times = |job: &mut Job| job.attributes.no_update_mtime = true;
        assert!(does(no_times, all));
        assert!(does(|_| {}, Difference { mtime: false, ..all }));
        let perms = |job: &mut Job| job.attributes.keep.perms = true;
        assert!(!does(perms, Difference { perms: true, ..Difference::default() }));
        let owner = |job: &mut Job| job.attributes.keep.owner = true;
        assert!(!does(owner, Difference { owner: true, ..Difference::default() }));
        assert!(does(owner, Difference { group: true, perms: true, ..Difference::default() }));
    }
}
