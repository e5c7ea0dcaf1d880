//! Compares the two entries of a name: what counts as the same, and what is to be done where they differ.

use crate::{Cx, attributes::Attributes, decide, index::SettlesPair, ledger::Ledger};
use haul_core::{
    Entry, Kind, Mtime, Result,
    compare::{Difference, HashAnswer, Need, Reason, Rules, Verdict, compare},
    job::{CompareBy, Job, Publish},
    plan::{self, Step},
    refine,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A job's way to compare.
pub(crate) struct Comparison {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    attributes: Arc<Attributes>,
    rules: Rules,
    /// It was said that content can't be compared.
    said_by_size: AtomicBool,
}

impl Comparison {
    /// Compares by the rules of the job. `made`: when the job was created, where earlier runs of it may have ended unheard.
    pub fn new(
        (job, cx, ledger): (&Arc<Job>, &Cx, &Arc<Ledger>),
        attributes: &Arc<Attributes>,
        made: Option<Mtime>,
    ) -> Comparison {
        let made = made.filter(|_| decide::is_one_clock(&*cx.src, &*cx.dst));
        Comparison {
            rules: Rules { made, ..decide::rules(job, &cx.src, &cx.dst) },
            job: job.clone(),
            cx: cx.clone(),
            ledger: ledger.clone(),
            attributes: attributes.clone(),
            said_by_size: AtomicBool::new(false),
        }
    }

    /// The rules, with the present knowledge of the stores' clocks.
    pub fn rules(&self) -> Rules {
        decide::by_the_clock(&self.rules, self.cx.meters.clock().ahead())
    }

    /// Which pairs an index of the destination settles.
    pub fn settles(&self) -> SettlesPair {
        let (rules, clock) = (self.rules, self.cx.meters.clock().clone());
        Arc::new(move |src: &Entry, dst: &Entry| {
            match compare(src, dst, &decide::by_the_clock(&rules, clock.ahead()), false, HashAnswer::NotAsked) {
                Verdict::Same(_) => true,
                // The hashes are in the index.
                Verdict::Ask(Need::Hash) => {
                    !dst.hashes.is_empty() && (rules.compare == CompareBy::Checksum || src.is_symlink())
                }
                _ => false,
            }
        })
    }

    /// True if the listed facts of two files may settle that nothing is to be done.
    pub fn goes_by_listed_facts(&self) -> bool {
        !self.job.compare.server_mtime && !self.attributes.asks_more()
    }

    /// Why a file counts as unchanged by its listed facts; `None` if it may have changed. Only where
    /// [`Comparison::goes_by_listed_facts`].
    pub fn unchanged(&self, src: &Entry, dst: &Entry) -> Option<Reason> {
        match compare(src, dst, &self.rules(), false, HashAnswer::NotAsked) {
            Verdict::Same(why) if self.attributes.agree(src, dst) => Some(why),
            _ => None,
        }
    }

    /// The verdict on a file by its listed facts, which may be that the stores must be asked.
    pub fn by_listed_facts(&self, src: &Entry, dst: &Entry) -> Verdict {
        match src.kind {
            _ if self.job.compare.server_mtime => Verdict::Ask(Need::Mtime),
            Kind::Special => refine::compare_special(src, dst, &self.rules()),
            _ => compare(src, dst, &self.rules(), false, HashAnswer::NotAsked),
        }
    }

    /// The verdict on a file, from the stores where listed facts aren't enough. Fresh facts replace the listed ones.
    ///
    /// Errors: a side can't be asked or read.
    pub async fn verdict(&self, src: &mut Entry, dst: &mut Entry) -> Result<Verdict> {
        if src.kind == Kind::Special {
            return Ok(refine::compare_special(src, dst, &self.rules()));
        }
        decide::verdict(&self.cx, &self.job, &self.rules(), src, dst).await
    }

    /// Says once that a file counts as the same by its size alone, though content was to be compared.
    pub fn say_by_size(&self, verdict: Verdict) {
        let by_size = verdict == Verdict::Same(Reason::Size) && self.job.compare.by == CompareBy::Checksum;
        if by_size && !self.said_by_size.swap(true, Ordering::Relaxed) {
            let text =
                "--checksum: source and destination have no hash in common, so files of one size count as the same";
            self.ledger.notice(None, text);
        }
    }

    /// The step for a file on both sides, by the verdict on it; `None` if there is nothing to do.
    pub fn step(&self, src: Entry, dst: Entry, verdict: Verdict) -> Option<Step> {
        // Otherwise the job's author defined what makes a file different.
        let by_time = self.job.compare.by == CompareBy::SizeAndTime;
        let names = |entry: &Entry| entry.posix.as_ref().map_or(1, |posix| posix.nlink);
        // As many as the source's file has may be this job's own, where it handles all names of a file.
        let own = if self.attributes.hard_links() { names(&src) } else { 1 };
        let has_names = names(&dst) > own;
        let verdict = match self.with_attributes(verdict, &src, &dst) {
            // Its other names may be another tree's, which keeps its time: what comes is a new file.
            Verdict::Touch if has_names && by_time && self.job.write.publish != Publish::InPlace => {
                Verdict::Differ(Reason::Mtime)
            }
            verdict => verdict,
        };
        plan::both(src, dst, verdict, &self.job)
    }

    /// Adds what the facts of inodes say about attributes to a verdict on bytes.
    fn with_attributes(&self, verdict: Verdict, src: &Entry, dst: &Entry) -> Verdict {
        let Some(keep) = &self.attributes.keep else { return verdict };
        let (verdict, unpreserved) = refine::refine(verdict, src, dst, keep, &self.attributes.rights);
        if !self.attributes.looks_inside() && matches!(verdict, Verdict::Same(_)) {
            self.ledger.count_unpreserved(unpreserved);
        }
        verdict
    }

    /// Facts and kept attributes in which a source and the destination's entry differ.
    pub fn difference(&self, src: &Entry, dst: Option<&Entry>) -> Difference {
        self.attributes.difference(&self.rules(), src, dst)
    }

    /// True when the attributes of an unchanged file must be examined before it counts as unchanged.
    pub fn must_look(&self, why: Reason) -> bool {
        !why.is_left_alone() && self.attributes.looks_inside()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, file, job, posix};
    use haul_core::{event::Event, job::Verb, keep::Keep, plan::Action};

    fn comparison(sample: &Sample, keep: Option<Keep>) -> Comparison {
        let attributes = keep.map_or_else(Attributes::default, Attributes::keeping);
        Comparison::new(sample.parts(), &Arc::new(attributes), None)
    }

    fn at(seconds: i128) -> Entry {
        Entry { mtime: Some(Mtime(seconds * 1_000_000_000)), ..file("a") }
    }

    #[test]
    fn a_file_is_unchanged_only_if_bytes_and_kept_attributes_agree() {
        let sample = Sample::of(job(Verb::Copy, |_| {}));
        let plain = comparison(&sample, None);
        assert_eq!(plain.unchanged(&at(1), &at(1)), Some(Reason::Mtime));
        assert_eq!(plain.unchanged(&at(1), &at(2)), None);
        assert_eq!(plain.unchanged(&at(1), &Entry { size: 2, ..at(1) }), None);
        let keeps = comparison(&sample, Some(Keep { perms: true, ..Keep::default() }));
        let with = |mode| {
            let mut entry = Entry { posix: posix(1, 1), ..at(1) };
            entry.posix.as_mut().unwrap().mode = mode;
            entry
        };
        assert_eq!(keeps.unchanged(&with(0o100_644), &with(0o100_644)), Some(Reason::Mtime));
        assert_eq!(keeps.unchanged(&with(0o100_644), &with(0o100_600)), None);
    }

    #[test]
    fn listed_facts_are_not_enough_where_times_of_servers_count_or_hard_links_are_kept() {
        let server = Sample::of(job(Verb::Copy, |job| job.compare.server_mtime = true));
        let plain = Sample::of(job(Verb::Copy, |_| {}));
        assert!(comparison(&plain, None).goes_by_listed_facts());
        assert!(!comparison(&server, None).goes_by_listed_facts());
        assert_eq!(comparison(&server, None).by_listed_facts(&at(1), &at(1)), Verdict::Ask(Need::Mtime));
        let links = Keep { hard_links: true, ..Keep::default() };
        assert!(!comparison(&plain, Some(links)).goes_by_listed_facts());
    }

    #[test]
    fn a_file_with_other_names_is_replaced_instead_of_getting_another_time() {
        let action = |change: fn(&mut Job), keep: Option<Keep>, nlink| {
            let sample = Sample::of(job(Verb::Copy, change));
            let dst = Entry { posix: posix(1, nlink), ..at(1) };
            let src = Entry { posix: posix(2, 2), ..at(2) };
            comparison(&sample, keep).step(src, dst, Verdict::Touch).map(|step| step.action)
        };
        assert_eq!(action(|_| {}, None, 1), Some(Action::Touch));
        assert_eq!(action(|_| {}, None, 2), Some(Action::Copy));
        assert_eq!(action(|job| job.write.publish = Publish::InPlace, None, 2), Some(Action::Touch));
        assert_eq!(action(|job| job.compare.by = CompareBy::Checksum, None, 2), Some(Action::Touch));
        let links = Keep { hard_links: true, ..Keep::default() };
        assert_eq!(action(|_| {}, Some(links.clone()), 2), Some(Action::Touch), "all its names are handled");
        assert_eq!(action(|_| {}, Some(links), 3), Some(Action::Copy), "one of its names is no other of the job's");
    }

    #[test]
    fn that_only_sizes_could_be_compared_is_said_once() {
        let sample = Sample::of(job(Verb::Copy, |job| job.compare.by = CompareBy::Checksum));
        let comparison = comparison(&sample, None);
        let notices = || sample.heard(|event| matches!(event, Event::Notice { .. }));
        comparison.say_by_size(Verdict::Same(Reason::Mtime));
        comparison.say_by_size(Verdict::Differ(Reason::Size));
        assert_eq!(notices(), 0);
        comparison.say_by_size(Verdict::Same(Reason::Size));
        comparison.say_by_size(Verdict::Same(Reason::Size));
        assert_eq!(notices(), 1);
    }
}
