//! Small files between stores that read and write many at once: a disk on one thread without a break, haul at a far end with one request.
//! A file that fails, for whatever reason, is transferred alone, and retried as any other.

use super::{ArrivedFile, FileTransfer, Mover, pump};
use crate::{backup::ReplacedFile, cx::cancelled};
use bytes::Bytes;
use haul_core::{Entry, Error, ErrorKind, Hashes, Kind, Result, hash::hash_bytes, job::Publish};
use haul_store::{SmallFile, StoredFacts, one_by_one};

impl Mover {
    /// True for a file that goes with others.
    pub fn is_bundled(&self, order: &FileTransfer) -> bool {
        let (src, dst) = (&self.cx.src, &self.cx.dst);
        let named = !order.src.key.is_symlink() && !order.to.is_symlink();
        let small = order.src.kind == Kind::File && named && order.src.sized && order.src.size <= SmallFile::MOST;
        // An existing file may be a delta's base, has permissions that stay, and goes to the backup.
        if !small
            || order.replaced.is_some()
            || order.kept != ReplacedFile::No
            || self.backup.is_on()
            || self.allowance.is_some()
        {
            return false;
        }
        let write = &self.job.write;
        let plain = !write.verify_read && !write.drop_cache && write.publish != Publish::InPlace;
        let left = || self.cx.journal.as_ref().is_some_and(|journal| journal.holds(&order.to));
        // Between disks they go without this.
        let apart = !(src.caps().files && dst.caps().files) && src.bundles().is_some() && dst.bundles().is_some();
        plain && apart && !self.job.compare.ignore_size && !left()
    }

    /// Brings files over that all go with others. One answer for each, in the same order; an error of one that is not `Cancelled` says
    /// that it has to go alone.
    pub async fn transfer_bundle(&self, orders: &[FileTransfer]) -> Vec<Result<ArrivedFile>> {
        let bytes = orders.iter().map(|order| order.src.size).sum();
        let _memory = self.budget.memory(bytes).await;
        let answers = match self.fetched(orders).await {
            Ok(files) => tokio::select! {
                biased;
                answers = self.put(orders, files) => Ok(answers),
                // The outcome is unknown: the next run finds out.
                () = self.stopped_long_ago() => Err(cancelled()),
            },
            Err(error) => Err(error),
        };
        let answers = answers.unwrap_or_else(|error| one_by_one::failed(orders.len(), &error));
        let each = orders.iter().zip(answers);
        each.map(|(order, answer)| answer.inspect(|arrived| self.count(order.step, arrived.size as i64))).collect()
    }

    /// Reads the source content of each.
    ///
    /// Errors: all must go alone; `Cancelled`.
    async fn fetched(&self, orders: &[FileTransfer]) -> Result<Vec<Result<Moved>>> {
        let bundles = self.cx.src.bundles().ok_or_else(alone)?;
        let wanted = orders.iter().map(|order| (order.src.key.clone(), order.src.version.clone())).collect();
        let files = tokio::select! {
            biased;
            () = self.cx.cancel.cancelled() => return Err(cancelled()),
            files = bundles.fetch(wanted) => files,
        };
        let each = orders.iter().zip(files).map(|(order, file)| self.moved(order, file?));
        Ok(each.collect())
    }

    async fn put(&self, orders: &[FileTransfer], mut files: Vec<Result<Moved>>) -> Vec<Result<ArrivedFile>> {
        let whole = |(order, file): (&FileTransfer, &mut Result<Moved>)| {
            let Moved { facts, bytes, .. } = file.as_mut().ok()?;
            // Nothing of them is held here while they go.
            let bytes = std::mem::take(bytes);
            Some(SmallFile { key: order.to.clone(), spec: self.spec(order, facts), bytes })
        };
        let small: Vec<SmallFile> = orders.iter().zip(&mut files).filter_map(whole).collect();
        let stored = match self.cx.dst.bundles() {
            Some(bundles) if !small.is_empty() => bundles.put(small).await,
            _ => Vec::new(),
        };
        let mut stored = stored.into_iter();
        let mut files = files.into_iter();
        let each = orders.iter().map(|order| {
            let moved = files.next().unwrap_or_else(|| Err(alone()))?;
            self.there(order, moved, stored.next().unwrap_or_else(|| Err(alone()))?)
        });
        each.collect()
    }

    /// The content read, if it is the source's.
    fn moved(&self, order: &FileTransfer, (mut facts, bytes): (Entry, Bytes)) -> Result<Moved> {
        facts.meta = facts.meta.take().or_else(|| order.src.meta.clone());
        if facts.size != order.src.size {
            return Err(alone());
        }
        let hashes = hash_bytes(&pump::algos(self, &facts), &bytes);
        self.check_moved(&facts, bytes.len() as u64, &hashes)?;
        Ok(Moved { facts, bytes, hashes })
    }

    /// The file that arrived, if it is the one sent.
    fn there(&self, order: &FileTransfer, moved: Moved, stored: StoredFacts) -> Result<ArrivedFile> {
        let Moved { facts, hashes, .. } = moved;
        let size = facts.size;
        let proved = self.check_stored(size, &facts, &hashes, &stored)?;
        Ok(ArrivedFile { proved, ..self.arrived_as(order, facts, size, stored) })
    }
}

/// A small file that was read.
struct Moved {
    facts: Entry,
    bytes: Bytes,
    /// Of the bytes, if the source states them.
    hashes: Hashes,
}

/// It goes another way.
fn alone() -> Error {
    Error::new(ErrorKind::Unsupported, "copy", "this file can't go with others")
}
