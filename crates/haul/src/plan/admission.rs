//! Which pairs of a walk come to be compared, and as which pair: limits of size and age, parents that are only on the way, unsafe
//! symlinks, and what is behind symlinks of the destination.

use super::{dirlinks::Dirlinks, symlinks::Symlinks};
use haul_core::{Entry, filter::Filter, job::Job, join::Pair};
use std::sync::Arc;

/// Admits pairs.
pub(super) struct Admission {
    job: Arc<Job>,
    filter: Arc<Filter>,
    symlinks: Arc<Symlinks>,
    dirlinks: Arc<Dirlinks>,
}

/// The source's entry of a pair.
pub(super) fn source_of(pair: &Pair) -> Option<&Entry> {
    match pair {
        Pair::Both(src, _) | Pair::SrcOnly(src) | Pair::SrcUnknown(src) => Some(src),
        Pair::DstOnly(_) | Pair::DstUnknown(_) => None,
    }
}

impl Admission {
    /// By the rules of `job` and `filter`.
    pub fn new(job: &Arc<Job>, filter: &Arc<Filter>, symlinks: &Arc<Symlinks>, dirlinks: &Arc<Dirlinks>) -> Admission {
        Admission { job: job.clone(), filter: filter.clone(), symlinks: symlinks.clone(), dirlinks: dirlinks.clone() }
    }

    /// True for an entry of the destination alone that the job has nothing to do with.
    pub fn leaves_alone(&self, pair: &Pair) -> bool {
        matches!(pair, Pair::DstOnly(dst) if !self.job.deletes.excluded && self.filter.leaves_alone(dst))
    }

    /// True for a file that is left out for its size or age.
    pub fn is_beyond_limits(&self, entry: &Entry) -> bool {
        !entry.is_dir() && !self.filter.within_limits(entry)
    }

    /// Applies the limits of size and age to a pair, by the source's facts where both sides have the file. A file that the limits
    /// leave out at the source is not missing there.
    pub fn is_pair_beyond_limits(&self, pair: &Pair) -> bool {
        match pair {
            Pair::Both(entry, _) | Pair::SrcOnly(entry) | Pair::SrcUnknown(entry) => self.is_beyond_limits(entry),
            Pair::DstOnly(entry) if !self.job.deletes.excluded && !self.filter.holds_back() => {
                self.is_beyond_limits(entry)
            }
            Pair::DstOnly(_) | Pair::DstUnknown(_) => false,
        }
    }

    /// True for a pair that [`Admission::admit`] may change.
    pub fn must_ask(&self, pair: &Pair) -> bool {
        let Some(src) = source_of(pair) else { return false };
        let (existing, links) = (&self.job.existing, &self.job.links);
        let closed = links.keep_dirlinks || existing.ignore && existing.other_kinds.are_replaced();
        closed || src.is_dir() && self.filter.has_unlisted_parents() || src.is_symlink() && links.safe.is_some()
    }

    /// The pair after these rules; `None` when it is left out.
    pub async fn admit(&self, pair: Pair) -> Option<Pair> {
        if let Some(src) = source_of(&pair)
            && (self.symlinks.is_unsafe(src).await || src.is_dir() && self.filter.is_unlisted_parent(&src.key))
        {
            return None;
        }
        match pair {
            Pair::SrcOnly(src) => self.dirlinks.pair(src).await,
            pair => Some(pair),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, dir, disk, file, first_match, job, symlink};
    use haul_core::{
        filter::{FilterSpec, Limits},
        job::{OtherKinds, Verb},
    };

    fn admission(sample: &Sample) -> Admission {
        let (symlinks, dirlinks) = (Symlinks::new(sample.parts()), Dirlinks::new(sample.parts()));
        Admission::new(&sample.job, &sample.cx.filter, &Arc::new(symlinks), &Arc::new(dirlinks))
    }

    fn large_only(limits: Limits) -> Filter {
        Filter::new(FilterSpec { min_size: Some(2), limits, ..FilterSpec::default() }).unwrap()
    }

    #[test]
    fn limits_go_by_the_source_where_both_have_the_file() {
        let admission = admission(&Sample::of(job(Verb::Sync, |_| {})).with(large_only(Limits::Exclude)));
        let (small, large) = (file("a"), Entry { size: 2, ..file("a") });
        assert!(admission.is_pair_beyond_limits(&Pair::Both(small.clone(), large.clone())));
        assert!(!admission.is_pair_beyond_limits(&Pair::Both(large.clone(), small.clone())));
        assert!(admission.is_pair_beyond_limits(&Pair::SrcOnly(small.clone())));
        assert!(admission.is_pair_beyond_limits(&Pair::SrcUnknown(small.clone())));
        assert!(!admission.is_pair_beyond_limits(&Pair::SrcOnly(dir("a/"))));
    }

    #[test]
    fn limits_spare_what_only_the_destination_has_unless_excluded_files_go() {
        let pair = Pair::DstOnly(file("a"));
        let spares = |excluded, limits| {
            let job = job(Verb::Sync, |job| job.deletes.excluded = excluded);
            admission(&Sample::of(job).with(large_only(limits))).is_pair_beyond_limits(&pair)
        };
        assert!(spares(false, Limits::Exclude));
        assert!(!spares(true, Limits::Exclude));
        assert!(!spares(false, Limits::HoldBack));
    }

    #[tokio::test]
    async fn a_directory_on_the_way_to_names_is_left_out() {
        let admission = admission(&Sample::of(job(Verb::Copy, |_| {})).with(first_match(&[], &["a/b"], None)));
        for (key, stays) in [("a/", false), ("a/b/", true)] {
            let pair = Pair::SrcOnly(dir(key));
            assert!(admission.must_ask(&pair));
            assert_eq!(admission.admit(pair).await.is_some(), stays, "{key}");
        }
        assert!(!admission.must_ask(&Pair::SrcOnly(file("a/b/c"))));
        assert!(!admission.must_ask(&Pair::DstOnly(dir("a/"))));
    }

    #[test]
    fn only_rules_that_can_change_a_pair_cost_a_look() {
        let asks = |change: fn(&mut Job), pair| {
            let sample = Sample::new(job(Verb::Sync, change), disk(), disk());
            admission(&sample).must_ask(&pair)
        };
        assert!(!asks(|_| {}, Pair::SrcOnly(symlink("a"))));
        assert!(asks(|job| job.links.safe = Some(0), Pair::SrcOnly(symlink("a"))));
        assert!(!asks(|job| job.links.safe = Some(0), Pair::SrcOnly(file("a"))));
        assert!(asks(|job| job.links.keep_dirlinks = true, Pair::SrcOnly(file("a"))));
        assert!(!asks(|job| job.existing.ignore = true, Pair::SrcOnly(file("a"))));
        let closed = |job: &mut Job| (job.existing.ignore, job.existing.other_kinds) = (true, OtherKinds::Replace);
        assert!(asks(closed, Pair::SrcOnly(file("a"))));
    }
}
