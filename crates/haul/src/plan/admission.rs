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
