//! `--delay-updates`: files arrive whole beside where they belong, in a directory `.~tmp~` of each directory, and get
//! their names together when all have arrived. A run that is killed leaves them there for the next one, which takes what is
//! still the source's and removes the rest.

use super::{attributes::Setter, delayed_files::WaitingFiles, dir_work::Dirs, in_the_way::InTheWay, results::Results};
use crate::{
    cx::Cx,
    ledger::Ledger,
    transfer::{ArrivedFile, FileTransfer, Mover},
};
use futures::StreamExt;
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind, Listed, Result,
    job::{CompareBy, Job, Publish},
    key::parent,
    plan::Replace,
};
use haul_store::{Cleanup, ListRequest, SettleItem, UnfinishedWrites, none_offered};
use std::{sync::Arc, time::Duration};

/// The directory for this; rsync's name, so that either finds what the other left.
const STAGE: &[u8] = b".~tmp~/";

/// Where a file of this name waits.
fn stage(to: &Key) -> Key {
    Key::new([parent(to.as_bytes()), STAGE].concat())
}

/// True if files get their names at the end.
pub(super) fn delays_any(job: &Job) -> bool {
    job.write.publish == Publish::AtEnd
}

/// Has files wait, and gives them their names.
pub(super) struct Delayed {
    job: Arc<Job>,
    cx: Cx,
    ledger: Arc<Ledger>,
    waiting: Arc<WaitingFiles>,
    dirs: Arc<Dirs>,
    mover: Mover,
    setter: Arc<Setter>,
    way: Arc<InTheWay>,
    results: Arc<Results>,
}

impl Delayed {
    /// Nothing waits yet.
    pub fn new(
        (ledger, dirs, mover): (&Arc<Ledger>, &Arc<Dirs>, &Mover),
        (setter, way, results): (&Arc<Setter>, &Arc<InTheWay>, &Arc<Results>),
    ) -> Delayed {
        Delayed {
            job: mover.job.clone(),
            cx: mover.cx.clone(),
            ledger: ledger.clone(),
            waiting: results.waiting.clone(),
            dirs: dirs.clone(),
            mover: mover.clone(),
            setter: setter.clone(),
            way: way.clone(),
            results: results.clone(),
        }
    }

    /// True for a file that gets its name at the end.
    pub fn delays(&self, src: &Entry) -> bool {
        delays_any(&self.job) && src.kind == Kind::File
    }

    /// The order for a transfer to the stage; `None` if the file is there already, or can't wait there.
    pub async fn to_wait(&self, order: FileTransfer) -> Option<FileTransfer> {
        let dir = stage(&order.to);
        let at = Key::new([dir.as_bytes(), order.to.name()].concat());
        self.dirs.written(&order.to);
        let left = self.left_by_earlier_run(&order.src, &at).await;
        if left.is_none()
            && self.job.moves()
            && let Err(error) = self.clear_place(&at).await
        {
            self.results.ended(&order, Err(error));
            return None;
        }
        {
            let mut state = self.waiting.state();
            state.stages.insert(dir);
            if let Some(arrived) = left {
                state.here.push((order, at, arrived));
                return None;
            }
            state.coming.insert(order.step, (order.to, order.replaced));
        }
        Some(FileTransfer { to: at, replaced: None, ..order })
    }

    /// A file that an earlier run transferred and didn't rename: it is whole, since only whole files get there, and it is
    /// the source's if size and time to the nanosecond match and both count.
    async fn left_by_earlier_run(&self, src: &Entry, at: &Key) -> Option<ArrivedFile> {
        if self.job.attributes.set_time.is_some() || self.job.compare.by != CompareBy::SizeAndTime {
            return None;
        }
        let found = self.cx.dst.stat(at).await.ok()?;
        if self.way.may_be_of_this_run(&found) {
            return None;
        }
        if found.kind != Kind::File || found.size != src.size || found.mtime.is_none() || found.mtime != src.mtime {
            return None;
        }
        self.setter.apply_attributes(src, at, false).await;
        let (size, version) = (src.size, src.version.clone());
        Some(ArrivedFile { size, by_server: true, version, ..ArrivedFile::default() })
    }

    /// Frees the stage place for a file of a move: no file that waits there is replaced, since its source may be deleted
    /// before the loss shows.
    ///
    /// Errors: deletion errors; `Exists`, where a file of this run waits whose name the destination treats as the same.
    async fn clear_place(&self, at: &Key) -> Result<()> {
        match self.cx.dst.stat(at).await {
            Ok(found) if !found.is_dir() => {
                self.way.check_older(&found)?;
                let answers = self.cx.dst.delete(vec![(at.clone(), self.way.pin(&found))]).await;
                answers.into_iter().collect::<Result<()>>().map_err(|e| e.with_key(at))
            }
            // Anything else in the way fails when it is written to.
            _ => Ok(()),
        }
    }

    /// Remembers what an earlier run left in a directory that both sides have.
    pub async fn note_stage(&self, dir: &Key) {
        if !delays_any(&self.job) {
            return;
        }
        let stage = Key::new([dir.as_bytes(), STAGE].concat());
        if self.cx.dst.stat(&stage).await.is_ok() {
            self.waiting.state().stages.insert(stage);
        }
    }

    /// Gives all that arrived its name. After a stop it stays for the next run.
    pub async fn publish(&self) {
        let here = std::mem::take(&mut self.waiting.state().here);
        if here.is_empty() || self.cx.cancel.is_cancelled() {
            return;
        }
        let batches: Vec<Vec<_>> = here.chunks(self.cx.copy_batch()).map(<[_]>::to_vec).collect();
        let published = futures::stream::iter(batches).map(|batch| self.publish_batch(batch));
        published.buffered(self.mover.budget.checkers).for_each(|()| std::future::ready(())).await;
        self.results.moved.delete(false).await;
    }

    async fn publish_batch(&self, batch: Vec<(FileTransfer, Key, ArrivedFile)>) {
        let mut going = Vec::with_capacity(batch.len());
        for (mut order, at, arrived) in batch {
            match self.mover.keep_replaced(&mut order).await {
                Ok(()) => {
                    if self.mover.keeps_replaced_mode(&order) {
                        self.setter.apply_attributes_by(&order.src, &at, false, self.mover.keep_of(&order)).await;
                    }
                    going.push((order, at, arrived));
                }
                Err(error) => self.results.ended(&order, Err(error)),
            }
        }
        let answers = self.give_names(going.iter().map(|(order, at, _)| self.settling(order, at)).collect()).await;
        for ((order, at, arrived), answer) in going.into_iter().zip(answers) {
            let settled = match answer {
                Err(error) if error.kind() == ErrorKind::Exists => match self.way.clear_target(&order).await {
                    Ok(()) => self.give_names(vec![self.settling(&order, &at)]).await.pop().unwrap_or(Ok(())),
                    Err(error) => Err(error),
                },
                answer => answer,
            };
            self.results.ended(&order, settled.map(|()| arrived));
        }
    }

    fn settling(&self, order: &FileTransfer, at: &Key) -> SettleItem {
        let never = (self.job.existing.ignore || self.job.moves()) && order.replaced.is_none();
        let replace = if never { Replace::Absent } else { Replace::Anything };
        SettleItem { from: at.clone(), to: order.to.clone(), replace, keep: self.mover.keep_of(order) }
    }

    async fn give_names(&self, items: Vec<SettleItem>) -> Vec<Result<()>> {
        let to: Vec<Key> = items.iter().map(|item| item.to.clone()).collect();
        let answers = match self.cx.dst.inodes() {
            Some(inodes) => inodes.settle(items).await,
            None => none_offered(to.len(), "rename"),
        };
        let each = answers.into_iter().zip(to);
        each.map(|(answer, to)| answer.map_err(|e| if e.key().is_some() { e } else { e.with_key(&to) })).collect()
    }

    /// Removes the directories in which files waited, and, after a run without errors, leftovers of earlier runs in them.
    pub async fn clear_stages(&self) {
        let stages = std::mem::take(&mut self.waiting.state().stages);
        let all = !self.ledger.cut_short() && self.ledger.report().is_ok();
        for stage in stages {
            self.dirs.written(&stage);
            if all && let Err(error) = self.clear_stage(&stage).await {
                self.ledger.notice(Some(&stage), format!("what an earlier run left can't be removed: {error}"));
            }
            // The directory stays if it isn't empty.
            self.cx.dst.delete(vec![(stage, None)]).await;
        }
    }

    async fn clear_stage(&self, stage: &Key) -> Result<()> {
        // Where the source has such a directory too, it may be somebody's own.
        let absent = |error: Error| error.is_missing();
        if !self.cx.src.stat(stage).await.is_err_and(absent) {
            return Ok(());
        }
        let mut listing = self.cx.dst.list(ListRequest::dir(stage.as_bytes()));
        while let Some(step) = listing.next().await {
            match step {
                Listed::Batch(entries) => {
                    let files = entries.into_iter().filter(|entry| entry.kind == Kind::File);
                    let gone = files.map(|entry| (entry.key, entry.version)).collect();
                    self.cx.dst.delete(gone).await.into_iter().collect::<Result<()>>()?;
                }
                Listed::Failed { error, .. } => return Err(error),
                Listed::Vanished(_) | Listed::End => {}
            }
        }
        // Leftovers of a killed run.
        let Some(admin) = self.cx.dst.admin() else { return Ok(()) };
        match admin.cleanup(Cleanup { older_than: Duration::ZERO, dry_run: false, below: stage.clone() }).await {
            Ok(UnfinishedWrites { failed, .. }) => failed.into_iter().next().map_or(Ok(()), Err),
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_waits_in_a_directory_beside_its_name() {
        assert_eq!(stage(&Key::new("a/b/c")), Key::new("a/b/.~tmp~/"));
        assert_eq!(stage(&Key::new("c")), Key::new(".~tmp~/"));
    }
}
