//! Taking from another place what it has of a file (`--compare-dest`, `--copy-dest`, `--link-dest`).

use super::Executor;
use crate::{
    Cx,
    backup::Kept,
    plan::told_of,
    transfer::{Arrived, Mover, Order},
};
use haul_core::{
    Entry, Key,
    compare::Reason,
    event::Event,
    plan::{Elsewhere, Route, Step, UseAs},
};
use haul_store::CopyHow;

/// Outcome of a search in the alternate destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
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
    pub(super) async fn take_elsewhere(&self, step: &mut Step) -> Outcome {
        let mut next = step.elsewhere.take();
        let Some(src) = &step.src else { return Outcome::Nothing };
        let (to, dst, why) = (step.to.as_ref().unwrap_or(&src.key), step.dst.as_ref(), step.why);
        while let Some(found) = next {
            let (link, copy) = match found.use_as {
                UseAs::Instead => {
                    self.is_spare(src, to, dst, &found);
                    return Outcome::Done;
                }
                UseAs::Taken { link, copy } => (link, copy),
            };
            for (how, wanted) in [(CopyHow::Link, link), (CopyHow::Copy, copy)] {
                let taken =
                    if wanted { self.take_from(src, to, dst, why, &found, how).await } else { Outcome::Nothing };
                if taken != Outcome::Nothing {
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
        Outcome::Nothing
    }

    /// Leaves a file out that `--compare-dest` has; what the destination has of it goes at the end.
    fn is_spare(&self, src: &Entry, to: &Key, dst: Option<&Entry>, found: &Elsewhere) {
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
        found: &Elsewhere,
        how: CopyHow,
    ) -> Outcome {
        self.will_write(to).await;
        let mut places = self.cx.compare_dest.iter().chain(&self.cx.copy_dest);
        let Some(place) = places.nth(found.place) else { return Outcome::Nothing };
        let mover = Mover { cx: Cx { src: place.clone(), ..self.cx.clone() }, ..self.mover.clone() };
        let step = self.ledger.next_step();
        let entry = Entry { mtime: src.mtime.or(found.entry.mtime), ..found.entry.clone() };
        let mut order = Order::new(step, entry, to.clone(), dst.cloned());
        let mut answers = mover.bring_by_server(std::slice::from_mut(&mut order), how).await;
        let Some(Ok(arrived)) = answers.pop() else {
            return match order.kept {
                _ if dst.is_none() || !self.mover.backup.is_on() => Outcome::Nothing,
                Kept::No => Outcome::Differs,
                _ => Outcome::SetAside,
            };
        };
        let (key, size) = (to.clone(), src.size);
        let (decision, differs) = told_of(src, why, found, self.job.elsewhere.exact);
        self.ledger.decided_of(src, to, decision, differs);
        self.ledger.tell(Event::Begun { step, key, size, route: Route::Server });
        // The file came from an alternate destination, but it is this job's source that was transferred by it.
        let arrived = Arrived { version: src.version.clone(), ..arrived };
        if how != CopyHow::Link {
            // Another name has all of it, and attributes set on it are set on the alternate destination's file.
            self.setter.apply_attributes(src, to, true).await;
        }
        self.results.arrived(&Order { src: src.clone(), ..order }, arrived);
        Outcome::Done
    }
}
