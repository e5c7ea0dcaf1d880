//! The transfers of a job: started as permits become free; each result is counted and reported, and in a move the source is
//! deleted.

use super::{
    attributes::Setter,
    delayed::delays_any,
    in_the_way::InTheWay,
    results::Results,
    start_limit::{Admission, StartLimit},
};
use crate::{
    budget::Claim,
    cx::{Cx, cancelled},
    ledger::Ledger,
    schedule::Queue,
    transfer::{ArrivedFile, FileTransfer, Mover},
};
use haul_core::{Error, ErrorKind, Kind, Result, Retry, event::Event, job::Job, plan::Route};
use haul_store::{CopyHow, SmallFile};
use std::sync::Arc;
use tokio::task::JoinSet;

/// How a file goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Through memory, by itself.
    Alone,
    /// Through memory, with other small ones.
    Bundled,
    /// By the destination's store.
    ByServer,
}

/// So many small files that go together count as one chunk under way: what is in memory of them is counted by itself.
const BUNDLED: usize = 4;

/// Brings files over.
pub(super) struct Transfers {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    mover: Mover,
    starts: StartLimit,
    setter: Arc<Setter>,
    way: Arc<InTheWay>,
    results: Arc<Results>,
}

impl Transfers {
    /// Nothing was begun yet.
    pub fn new(
        (ledger, mover): (&Arc<Ledger>, &Mover),
        (setter, way, results): (&Arc<Setter>, &Arc<InTheWay>, &Arc<Results>),
    ) -> Transfers {
        Transfers {
            job: mover.job.clone(),
            cx: mover.cx.clone(),
            ledger: ledger.clone(),
            mover: mover.clone(),
            starts: StartLimit::new(&mover.job.limits),
            setter: setter.clone(),
            way: way.clone(),
            results: results.clone(),
        }
    }

    /// Starts transfers as permits become free, until the queue is done.
    pub async fn schedule(self: Arc<Self>, mut queue: Queue) {
        let mut running = JoinSet::new();
        let budget = &self.mover.budget;
        let batches = self.cx.dst.caps().files;
        loop {
            let pinned = match &budget.transfers {
                Some(files) => files.clone().acquire_owned().await.ok(),
                None => None,
            };
            budget.room().await;
            let Some(first) = queue.next().await else { break };
            let way = self.way(&first);
            let mut batch = vec![first];
            match way {
                // A file that is created anew on another machine goes alone.
                Way::ByServer if batches && batch.iter().all(|order| order.src.kind != Kind::Special) => {
                    queue.fill(&mut batch);
                }
                Way::Bundled => {
                    let most = (SmallFile::COUNT, SmallFile::TOGETHER);
                    queue.fill_with(&mut batch, most, |order| self.way(order) == Way::Bundled);
                }
                _ => {}
            }
            batch.retain_mut(|order| self.may_start(order, way));
            if let Some(first) = batch.first() {
                let chunks = match way {
                    Way::Alone => self.mover.chunks(first.src.size),
                    Way::ByServer => 1,
                    Way::Bundled => batch.len().div_ceil(BUNDLED) as u64,
                };
                let claim = budget.claim(chunks, pinned);
                running.spawn(self.clone().transfer(batch, way, claim));
            }
            while let Some(ended) = running.try_join_next() {
                self.ledger.joined("transfer", ended);
            }
        }
        while let Some(ended) = running.join_next().await {
            self.ledger.joined("transfer", ended);
        }
    }

    /// How a file goes.
    fn way(&self, order: &FileTransfer) -> Way {
        match self.mover.route(&order.src) {
            Route::Server => Way::ByServer,
            _ if self.mover.is_bundled(order) => Way::Bundled,
            _ => Way::Alone,
        }
    }

    /// False when the job is stopping, or a limit leaves no room for this file.
    fn may_start(&self, order: &mut FileTransfer, way: Way) -> bool {
        if self.ledger.stopping() {
            return false;
        }
        match self.starts.admit(order.src.size) {
            Admission::Starts => true,
            // Transfers through this process ask chunk by chunk.
            Admission::AsksItself => way != Way::ByServer || self.mover.allows_by_server(order),
            Admission::LimitReached => {
                self.ledger.transfer_limit();
                false
            }
            Admission::TooLarge => {
                self.ledger.report().transfer_limit = true;
                false
            }
        }
    }

    async fn transfer(self: Arc<Self>, mut batch: Vec<FileTransfer>, way: Way, claim: Claim) {
        for order in &batch {
            let route = self.mover.route(&order.src);
            self.ledger.tell(Event::Begun { step: order.step, key: order.to.clone(), size: order.src.size, route });
        }
        match way {
            Way::Alone => {
                for order in &mut batch {
                    self.setter.carry_along(std::slice::from_mut(order)).await;
                    self.alone(order, &claim).await;
                }
            }
            Way::Bundled => self.bundled(batch).await,
            Way::ByServer => self.by_server(batch, &claim).await,
        }
        self.results.moved.delete(false).await;
    }

    /// Transfers a file through memory, with its attributes.
    async fn alone(&self, order: &mut FileTransfer, claim: &Claim) {
        let result = self.transfer_file(order, claim).await;
        if result.is_ok() && order.carried.is_none() {
            self.setter.apply_attributes_of(&[order]).await;
        }
        self.results.ended(order, result);
    }

    /// Transfers small files together, and those alone that can't go so.
    async fn bundled(&self, mut batch: Vec<FileTransfer>) {
        self.setter.carry_along(&mut batch).await;
        let answers = self.mover.transfer_bundle(&batch).await;
        let bare = |(order, answer): (&FileTransfer, &Result<ArrivedFile>)| answer.is_ok() && order.carried.is_none();
        let bare: Vec<&FileTransfer> =
            batch.iter().zip(&answers).filter(|each| bare(*each)).map(|(order, _)| order).collect();
        self.setter.apply_attributes_of(&bare).await;
        for (mut order, answer) in batch.into_iter().zip(answers) {
            match answer {
                Err(error) if goes_alone(&error) && !self.ledger.stopping() => {
                    tracing::debug!(%error, key = %order.to, "goes alone");
                    self.mover.note_lost(&mut order, &error);
                    // The bundle's claim is for all that are left.
                    let claim = self.mover.budget.claim(self.mover.chunks(order.src.size), None);
                    self.alone(&mut order, &claim).await;
                }
                // The file itself is fine, only nobody transfers it any more.
                Err(error) if error.kind() == ErrorKind::Unsupported => self.results.ended(&order, Err(cancelled())),
                answer => self.results.ended(&order, answer),
            }
        }
    }

    /// Has the destination's store copy files.
    async fn by_server(&self, mut batch: Vec<FileTransfer>, claim: &Claim) {
        let how = if self.renames(&batch) { CopyHow::Rename } else { CopyHow::Copy };
        if how == CopyHow::Rename {
            batch = self.without_own(batch).await;
        }
        let answers = self.mover.copy_by_server(&mut batch, how).await;
        for (order, answer) in batch.iter_mut().zip(answers) {
            if answer.is_err() {
                self.mover.give_back(order);
            }
            let answer = match answer {
                // Stores copy once more where an answer was lost.
                Err(error)
                    if error.kind() == ErrorKind::Exists && order.is_file() && !self.mover.cx.dst.caps().files =>
                {
                    let before = self.mover.stored_before(order, &order.src).await;
                    before.map(|arrived| ArrivedFile { by_server: true, ..arrived }).ok_or(error)
                }
                answer => answer,
            };
            let result = match answer {
                // Another route may work where the store's own copy doesn't, or the file has stopped changing.
                Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::Changed) && order.is_file() => {
                    let brought = self.transfer_file(order, claim).await;
                    if brought.is_ok() {
                        self.setter.apply_attributes_of(&[order]).await;
                    }
                    brought
                }
                Err(e) if self.way.may_clear(&e) => self.way.in_place_of_another_kind(&self.mover, order, how).await,
                other => other,
            };
            self.results.ended(order, result);
        }
    }

    /// Transfers a file through memory. Something of another kind at its name is replaced if the job allows it.
    async fn transfer_file(&self, order: &mut FileTransfer, claim: &Claim) -> Result<ArrivedFile> {
        match self.mover.transfer_file(order, claim).await {
            Err(error) if self.way.may_clear(&error) => {
                self.way.clear_target(order).await?;
                self.mover.transfer_file(order, claim).await
            }
            brought => brought,
        }
    }

    /// Leaves out what is to replace a file that may be the source itself, reached in another way: renamed onto itself it could be lost.
    async fn without_own(&self, batch: Vec<FileTransfer>) -> Vec<FileTransfer> {
        let replace = batch.iter().filter(|order| order.replaced.is_some());
        let one = self
            .results
            .moved
            .in_one_place(replace.map(|order| (order.src.key.clone(), order.to.clone())).collect())
            .await;
        let own = |order: &FileTransfer| order.replaced.is_some() && one.contains(&order.src.key.parent());
        let (own, apart): (Vec<FileTransfer>, Vec<FileTransfer>) = batch.into_iter().partition(own);
        // The reason was reported.
        own.iter().for_each(|order| self.results.ended(order, Err(cancelled())));
        apart
    }

    /// True when these files may be moved by renaming. Not where the store doesn't, nor if they wait for their names (until then the
    /// source must stay), nor if a file has other names elsewhere and needs an inode of its own.
    fn renames(&self, batch: &[FileTransfer]) -> bool {
        let shared = |order: &FileTransfer| order.src.posix.as_ref().is_some_and(|posix| posix.nlink > 1);
        // Attributes that aren't kept must not come along with the inode.
        let (keep, only_kept) = (&self.job.attributes.keep, self.job.attributes.only_kept);
        let kept = !only_kept || keep.perms && keep.owner && keep.group;
        let renames = self.job.moves() && self.cx.dst.caps().renames;
        renames && kept && !delays_any(&self.job) && !(only_kept && batch.iter().any(shared))
    }
}

/// True if transferring a small file alone may fix the failure: not if no space is left or a limit is met, nor if the host can't be reached
/// at all.
fn goes_alone(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::NoSpace | ErrorKind::Limit => false,
        ErrorKind::Unreachable | ErrorKind::Unauthenticated => error.retry() != Retry::Never,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, executor, file, job, posix};
    use haul_core::{
        Entry, Key,
        job::{Cutoff, Verb},
    };
    use haul_mem::MemStore;

    fn order(sample: &Sample, src: Entry) -> FileTransfer {
        let to = Key::new(src.key.path());
        FileTransfer::new(sample.ledger.next_step(), src, to, None)
    }

    fn apart(change: impl FnOnce(&mut Job)) -> Sample {
        let elsewhere = |caps: &mut haul_store::Caps| caps.domain = None;
        Sample::new(job(Verb::Copy, change), MemStore::new().with_caps(elsewhere), MemStore::new())
    }

    #[test]
    fn a_store_copies_within_its_own_domain_only() {
        let goes = |sample: &Sample| executor(sample).transfers.way(&order(sample, file("a")));
        assert!(goes(&Sample::of(job(Verb::Copy, |_| {}))) == Way::ByServer);
        assert!(goes(&apart(|_| {})) == Way::Alone);
    }

    #[test]
    fn nothing_starts_once_the_job_ends_or_a_limit_is_reached() {
        let sample = apart(|job| (job.limits.transfer, job.limits.cutoff) = (Some(1), Cutoff::Soft));
        let transfers = executor(&sample).transfers.clone();
        let starts = |key| transfers.may_start(&mut order(&sample, file(key)), Way::Alone);
        assert!(starts("a") && !sample.ledger.stopping());
        assert!(!starts("b") && sample.ledger.report().transfer_limit);
        let sample = apart(|_| {});
        sample.cx.cancel.cancel();
        assert!(!executor(&sample).transfers.may_start(&mut order(&sample, file("a")), Way::Alone));
    }

    #[test]
    fn one_that_is_too_large_leaves_its_room_to_others() {
        let sample = apart(|job| (job.limits.transfer, job.limits.cutoff) = (Some(1), Cutoff::Cautious));
        let transfers = executor(&sample).transfers.clone();
        let starts = |size| transfers.may_start(&mut order(&sample, Entry { size, ..file("a") }), Way::Alone);
        assert!(!starts(2) && starts(1));
        assert!(sample.ledger.report().transfer_limit && !sample.ledger.stopping());
    }

    #[test]
    fn files_are_renamed_only_if_nothing_else_needs_their_inodes() {
        let renames = |verb, change: fn(&mut Job), nlink| {
            let sample = Sample::of(job(verb, change));
            executor(&sample).transfers.renames(&[order(&sample, Entry { posix: posix(1, nlink), ..file("a") })])
        };
        assert!(renames(Verb::Move, |_| {}, 2));
        assert!(!renames(Verb::Copy, |_| {}, 1));
        let only_kept = |job: &mut Job| {
            let keep = &mut job.attributes.keep;
            (keep.perms, keep.owner, keep.group, job.attributes.only_kept) = (true, true, true, true);
        };
        assert!(renames(Verb::Move, only_kept, 1) && !renames(Verb::Move, only_kept, 2));
        assert!(!renames(Verb::Move, |job| job.attributes.only_kept = true, 1), "what isn't kept would come along");
    }

    #[test]
    fn a_bundled_file_is_tried_alone_unless_that_would_fail_too() {
        let goes = |kind| goes_alone(&Error::new(kind, "write", "no"));
        assert!(goes(ErrorKind::Unsupported) && goes(ErrorKind::Changed));
        assert!(!goes(ErrorKind::NoSpace) && !goes(ErrorKind::Limit));
        let unreachable = Error::new(ErrorKind::Unreachable, "write", "no");
        assert!(goes_alone(&unreachable.with_retry(Retry::Backoff)));
        assert!(!goes_alone(&Error::new(ErrorKind::Unreachable, "write", "no").with_retry(Retry::Never)));
    }
}
