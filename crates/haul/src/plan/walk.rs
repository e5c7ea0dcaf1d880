//! One walk over both sides: takes up keys in order until they end, the job stops, or somebody pauses it.

use super::{Outlet, Planner, admission::source_of, checks::Checks};
use crate::{
    ledger::SOURCE_FILES,
    pairs::Pairs,
    part::{RunControl, RunPosition},
};
use haul_core::{ErrorKind, Key, Kind, event::LeftOut, join::Pair, plan::Action};
use std::sync::Arc;

/// Purpose of a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkPurpose {
    /// Transfers and deletions.
    Transfers,
    /// Deletions only: `--delete-before` looks for them first.
    DeletesOnly,
}

/// How far a walk came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WalkResult {
    /// It reached the end of both sides.
    pub whole: bool,
    /// All of the source was listed.
    pub src_complete: bool,
    /// The position it reached is not the end but where it was paused.
    paused: bool,
}

/// A walk under way.
pub(super) struct Walk<'a, O> {
    planner: &'a Arc<Planner>,
    out: &'a O,
    pass: WalkPurpose,
    pairs: Pairs,
    checks: Checks,
    /// Files of the source so far.
    src_files: u64,
    /// The last key that was taken up, where the walk can be paused.
    last: Option<Key>,
}

impl<'a, O: Outlet> Walk<'a, O> {
    /// Nothing was taken up yet.
    pub fn new(planner: &'a Arc<Planner>, pairs: Pairs, pass: WalkPurpose, out: &'a O) -> Self {
        let checks = Checks::new(planner.listings.checkers());
        Walk { planner, out, pass, pairs, checks, src_files: 0, last: None }
    }

    /// Walks to the end, or to where the job stops.
    pub async fn run(mut self) -> WalkResult {
        let mut walked = WalkResult::default();
        let planner = self.planner;
        while !planner.ledger.decides_no_more() {
            if !O::TAKES_UNCHANGED {
                self.pass_by_unchanged();
            }
            if is_paused(&planner.reins) && self.last.is_some() {
                (walked.whole, walked.paused) = (true, true);
                break;
            }
            let next = tokio::select! {
                biased;
                () = planner.cx.cancel.cancelled() => break,
                next = self.pairs.next() => next,
                () = paused(&planner.reins), if self.last.is_some() => continue,
            };
            self.listing_errors();
            if planner.ledger.decides_no_more() {
                break;
            }
            match next {
                Ok(Some(pair)) => {
                    if planner.reins.is_some() {
                        self.last = Some(pair.key().clone());
                    }
                    if self.takes(&pair) {
                        planner.pair(pair, self.pass, self.out, &mut self.checks).await;
                    }
                }
                Ok(None) => {
                    walked.whole = true;
                    break;
                }
                Err(error) => {
                    planner.ledger.error(error);
                    break;
                }
            }
        }
        self.end(walked).await
    }

    async fn end(mut self, mut walked: WalkResult) -> WalkResult {
        self.listing_errors();
        let Walk { planner, pass, pairs, checks, src_files, last, .. } = self;
        checks.finish(&planner.ledger).await;
        planner.ledger.count_source_files(src_files);
        // Up to where it was paused, an error would be about unseen files.
        walked.src_complete = pairs.src_complete() || walked.paused && planner.ledger.report().error_count == 0;
        if let Some(reins) = &planner.reins {
            reins.ended(reached(walked, last));
        }
        if walked.whole && pass == WalkPurpose::Transfers && walked.src_complete && planner.job.listing.part.is_all() {
            say_unknown_names(planner, src_files);
        }
        walked
    }

    /// Counts the unchanged files at the front: [`Planner::pair`] would decide the same, but moves each entry about ten times on its
    /// way.
    fn pass_by_unchanged(&mut self) {
        let Walk { planner, pairs, last, .. } = self;
        // Each of these needs more of a file than its listed facts.
        let more =
            planner.job.moves() || !planner.comparison.goes_by_listed_facts() || planner.alternates.count_for_all();
        if more || self.pass != WalkPurpose::Transfers {
            return;
        }
        let mut count = 0;
        pairs.drop_while(|src, dst| {
            let plain = src.has_bytes() && !planner.admission.is_beyond_limits(src);
            if !plain || planner.symlinks.is_read(src, Action::Keep) {
                return false;
            }
            let Some(why) = planner.comparison.unchanged(src, dst) else { return false };
            if planner.reins.is_some() {
                if is_paused(&planner.reins) && last.is_some() {
                    return false;
                }
                *last = Some(src.key.clone());
            }
            let differs = planner.comparison.difference(src, Some(dst));
            planner.ledger.decided_of(src, &src.key, (Action::Keep, why), differs);
            if count < SOURCE_FILES as u64 {
                planner.ledger.remember_source_file(src);
            }
            count += 1;
            true
        });
        if count > 0 {
            let totals = &mut planner.ledger.report().totals;
            totals.checks += count;
            totals.unchanged += count;
        }
        self.src_files += count;
    }

    /// True for a pair to decide about; reports and counts it.
    fn takes(&mut self, pair: &Pair) -> bool {
        let (planner, src) = (self.planner, source_of(pair));
        // Before the limits, which ask the link itself.
        if let Some(src) = src.filter(|src| src.kind == Kind::Special && src.damaged) {
            planner.kinds.leads_nowhere(src);
            return false;
        }
        if planner.admission.leaves_alone(pair) {
            return false;
        }
        if planner.admission.is_pair_beyond_limits(pair) {
            if let (Some(src), WalkPurpose::Transfers, true) = (src, self.pass, planner.job.tell.details) {
                planner.ledger.left_out(src, LeftOut::Limit);
            }
            return false;
        }
        if let Some(src) = src.filter(|src| src.has_bytes()) {
            if self.src_files < SOURCE_FILES as u64 {
                planner.ledger.remember_source_file(src);
            }
            self.src_files += 1;
        }
        planner.ledger.count_source_files(self.src_files);
        true
    }

    /// Counts errors of listings. A store that can't be reached, doesn't know us, can't understand the root or has a damaged record
    /// of its contents would fail again for every file, so the job ends.
    fn listing_errors(&mut self) {
        let ledger = &self.planner.ledger;
        for (_, error) in self.pairs.errors.drain(..) {
            let hopeless = match error.kind() {
                ErrorKind::Corrupt => true,
                ErrorKind::Invalid => error.key().is_none(),
                kind => {
                    ledger.was_hopeless(kind);
                    false
                }
            };
            if hopeless {
                ledger.wind_down();
            }
            ledger.report().error(error);
        }
    }
}

/// Resolves once a walk is to take up no further key.
async fn paused(reins: &Option<RunControl>) {
    match reins {
        Some(reins) => reins.pause.cancelled().await,
        None => std::future::pending().await,
    }
}

/// Somebody wants a walk to take up no further key.
fn is_paused(reins: &Option<RunControl>) -> bool {
    reins.as_ref().is_some_and(|reins| reins.pause.is_cancelled())
}

/// How far a walk came, whose last key was `last`.
fn reached(walked: WalkResult, last: Option<Key>) -> RunPosition {
    match (walked.whole, walked.paused, last) {
        (true, true, Some(last)) => RunPosition::Key(last),
        (true, false, _) => RunPosition::End,
        _ => RunPosition::Unknown,
    }
}

/// Says how many names of `--files-from` are none of the `found` files of the source: they may be misspelt, or folders.
fn say_unknown_names(planner: &Planner, found: u64) {
    let filter = &planner.cx.filter;
    let (Some(keys), Some(given)) = (filter.files_from(), &filter.spec().files_from) else { return };
    let nameless = given.iter().filter(|name| name.iter().all(|b| *b == b'/')).count();
    let names = (keys.len() + nameless) as u64;
    // A sink that hears details names each one itself.
    if names > found && !planner.job.tell.details {
        let (unknown, src) = (names - found, planner.cx.src.locator());
        planner.ledger.notice(None, format!("{unknown} of {names} names of --files-from are no files of {src}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_known_only_of_a_walk_that_was_not_cut_short() {
        let of = |whole, paused, last: Option<&str>| {
            reached(WalkResult { whole, paused, ..WalkResult::default() }, last.map(Key::new))
        };
        assert_eq!(of(true, true, Some("a")), RunPosition::Key(Key::new("a")));
        assert_eq!(of(true, false, Some("a")), RunPosition::End);
        assert_eq!(of(true, false, None), RunPosition::End);
        assert_eq!(of(true, true, None), RunPosition::Unknown);
        assert_eq!(of(false, false, Some("a")), RunPosition::Unknown);
    }
}
