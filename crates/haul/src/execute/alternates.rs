//! Taking from another place what it has of a file (`--compare-dest`, `--copy-dest`, `--link-dest`).

use super::Executor;
use crate::{
    Cx,
    backup::ReplacedFile,
    plan::told_of,
    transfer::{ArrivedFile, FileTransfer, Mover},
};
use haul_core::{
    Entry, Key,
    compare::Reason,
    event::Event,
    plan::{AlternateFile, Route, Step, UseAs},
};
use haul_store::CopyHow;

/// Outcome of a search in the alternate destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlternateResult {
    /// Nothing is left to do about the file.
    Done,
    /// Nothing was done.
    Nothing,
    /// The destination's file is another one than was found, and wasn't replaced.
    Differs,
    /// The destination's file was moved to the backup, and nothing replaced it.
    SetAside,
}

impl Executor {
    /// Takes a file from another place that has it.
    pub(super) async fn take_elsewhere(&self, step: &mut Step) -> AlternateResult {
        let mut next = step.elsewhere.take();
        let Some(src) = &step.src else { return AlternateResult::Nothing };
        let (to, dst, why) = (step.to.as_ref().unwrap_or(&src.key), step.dst.as_ref(), step.why);
        while let Some(found) = next {
            let (link, copy) = match found.use_as {
                UseAs::Instead => {
                    self.skip_redundant(src, to, dst, &found);
                    return AlternateResult::Done;
                }
                UseAs::Taken { link, copy } => (link, copy),
            };
            for (how, wanted) in [(CopyHow::Link, link), (CopyHow::Copy, copy)] {
                let taken = if wanted {
                    self.take_from(src, to, dst, why, &found, how).await
                } else {
                    AlternateResult::Nothing
                };
                if taken != AlternateResult::Nothing {
                    return taken;
                }
            }
            // A file that was set aside can't be set aside again; otherwise it could not be copied from there, and another place may have
            // it too.
            next = match self.job.elsewhere.exact {
                true => None,
                false => self.planner.alternates.find(src, to, dst, found.place + 1).await.map(Box::new),
            };
        }
        AlternateResult::Nothing
    }

    /// Leaves a file out that `--compare-dest` has; what the destination has of it goes at the end.
    fn skip_redundant(&self, src: &Entry, to: &Key, dst: Option<&Entry>, found: &AlternateFile) {
        self.ledger.report().totals.unchanged += 1;
        if !self.job.elsewhere.exact {
            return;
        }
        let (decision, differs) = told_of(src, Reason::Size, found, true);
        self.ledger.decided_of(src, to, decision, differs);
        // Not where it is the very file that was found.
        let Some(dst) = dst.filter(|dst| dst.version.is_some() && dst.version != found.entry.version) else { return };
        if self.job.elsewhere.drop_spare {
            self.deleter.take_redundant(dst.clone().into());
        }
    }

    /// Takes what was found, if that can be.
    async fn take_from(
        &self,
        src: &Entry,
        to: &Key,
        dst: Option<&Entry>,
        why: Reason,
        found: &AlternateFile,
        how: CopyHow,
    ) -> AlternateResult {
        self.will_write(to).await;
        let mut places = self.cx.compare_dest.iter().chain(&self.cx.copy_dest);
        let Some(place) = places.nth(found.place) else { return AlternateResult::Nothing };
        let mover = Mover { cx: Cx { src: place.clone(), ..self.cx.clone() }, ..self.mover.clone() };
        let step = self.ledger.next_step();
        let entry = Entry { mtime: src.mtime.or(found.entry.mtime), ..found.entry.clone() };
        let mut order = FileTransfer::new(step, entry, to.clone(), dst.cloned());
        let mut answers = mover.copy_by_server(std::slice::from_mut(&mut order), how).await;
        let Some(Ok(arrived)) = answers.pop() else {
            return match order.kept {
                _ if dst.is_none() || !self.mover.backup.is_on() => AlternateResult::Nothing,
                ReplacedFile::No => AlternateResult::Differs,
                _ => AlternateResult::SetAside,
            };
        };
        let (key, size) = (to.clone(), src.size);
        let (decision, differs) = told_of(src, why, found, self.job.elsewhere.exact);
        self.ledger.decided_of(src, to, decision, differs);
        self.ledger.tell(Event::Begun { step, key, size, route: Route::Server });
        // The file came from an alternate destination, but it is this job's source that was transferred by it.
        let arrived = ArrivedFile { version: src.version.clone(), ..arrived };
        if how != CopyHow::Link {
            // Another name has all of it, and attributes set on it are set on the alternate destination's file.
            self.setter.apply_attributes(src, to, true).await;
        }
        self.results.arrived(&FileTransfer { src: src.clone(), ..order }, arrived);
        AlternateResult::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, executor, file, has, job, put};
    use haul_core::{compare::Difference, job::Verb, plan::Action};
    use haul_mem::MemStore;
    use haul_store::Store as _;
    use std::sync::Arc;

    /// A job with one other place, to compare with or to copy from, that has the file `a`.
    async fn sample(compares: bool, exact: bool) -> (Sample, Entry) {
        let (place, dst) = (MemStore::new(), MemStore::new());
        put(&place, "a").await;
        put(&dst, "old").await;
        let entry = place.stat(&Key::new("a")).await.unwrap();
        let job = job(Verb::Copy, |job| (job.elsewhere.exact, job.elsewhere.drop_spare) = (exact, true));
        let mut sample = Sample::new(job, MemStore::new(), dst);
        let places = if compares { &mut sample.cx.compare_dest } else { &mut sample.cx.copy_dest };
        places.push(Arc::new(place));
        (sample, entry)
    }

    fn step(entry: &Entry, dst: Option<Entry>, use_as: UseAs) -> Step {
        let found = AlternateFile { place: 0, entry: entry.clone(), differs: Difference::default(), use_as };
        let step = Step::new(Action::Copy, Some(file("a")), dst, Reason::Missing);
        Step { elsewhere: Some(Box::new(found)), ..step }
    }

    #[tokio::test]
    async fn what_a_place_to_compare_with_has_is_not_copied() {
        let (sample, entry) = sample(true, false).await;
        let outcome = executor(&sample).take_elsewhere(&mut step(&entry, None, UseAs::Instead)).await;
        assert_eq!(outcome, AlternateResult::Done);
        assert!(!has(&sample.cx.dst, "a").await);
        assert_eq!((sample.totals().unchanged, sample.errors()), (1, 0));
    }

    #[tokio::test]
    async fn the_destinations_copy_is_redundant_unless_it_is_the_same_file() {
        for same in [false, true] {
            let (sample, entry) = sample(true, true).await;
            let old = sample.cx.dst.stat(&Key::new("old")).await.unwrap();
            let found = if same { old.clone() } else { Entry { version: None, ..entry } };
            let executor = executor(&sample);
            executor.take_elsewhere(&mut step(&found, Some(old), UseAs::Instead)).await;
            executor.deleter.delete_redundant().await;
            assert_eq!(has(&sample.cx.dst, "old").await, same);
        }
    }

    #[tokio::test]
    async fn a_file_is_copied_from_the_place_that_has_it() {
        let (sample, entry) = sample(false, false).await;
        let taken = UseAs::Taken { link: false, copy: true };
        let outcome = executor(&sample).take_elsewhere(&mut step(&entry, None, taken)).await;
        assert_eq!(outcome, AlternateResult::Done);
        assert!(has(&sample.cx.dst, "a").await);
        assert_eq!(sample.totals().transfers, 1);
    }

    #[tokio::test]
    async fn nothing_is_done_where_the_place_has_lost_it() {
        let (sample, entry) = sample(false, true).await;
        sample.cx.copy_dest[0].delete(vec![(Key::new("a"), None)]).await;
        let taken = UseAs::Taken { link: false, copy: true };
        let outcome = executor(&sample).take_elsewhere(&mut step(&entry, None, taken)).await;
        assert_eq!(outcome, AlternateResult::Nothing);
        assert_eq!((sample.totals().transfers, sample.errors()), (0, 0));
    }
}
