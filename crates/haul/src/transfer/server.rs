//! Copies inside a copy domain: whole batches are handed to the destination's store, which answers for each file.

use super::{ArrivedFile, FileTransfer, Mover, meta};
use crate::cx::{Cancel, cancelled};
use haul_core::{Entry, Error, ErrorKind, Hashes, Kind, Meta, Result, attributes::FileAttributes};
use haul_store::{CopyBatch, CopyHow, CopyItem, StoredFacts, Watch, WriteSpec, offered, one_by_one};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Most bytes of one batch: beyond this, files are worth a thread each.
pub const BATCH_BYTES: u64 = 4 << 20;

impl Mover {
    /// Copies a batch. One answer for each order, in the same order; `Unsupported` in an answer means that the file
    /// must go through memory.
    pub async fn copy_by_server(&self, orders: &mut [FileTransfer], how: CopyHow) -> Vec<Result<ArrivedFile>> {
        let (src, dst) = (self.cx.src.caps().domain.as_ref(), self.cx.dst.caps().domain.as_ref());
        let Some((src, dst)) = src.zip(dst) else {
            return orders.iter().map(|_| Err(unsupported())).collect();
        };
        // A file created anew from carried attributes needs no look at the source.
        let carries = src.name != dst.name;
        if carries && orders.iter().any(|order| order.src.kind != Kind::Special) {
            return orders.iter().map(|_| Err(unsupported())).collect();
        }
        let place = if carries { dst.place.clone() } else { src.place.clone() };
        let mut refused: Vec<Option<Error>> = Vec::with_capacity(orders.len());
        for order in orders.iter_mut() {
            refused.push(self.keep_replaced(order).await.err());
        }
        let going: Vec<&FileTransfer> =
            orders.iter().zip(&refused).filter(|(_, r)| r.is_none()).map(|(o, _)| o).collect();
        let metas = futures::future::join_all(going.iter().map(|o| self.server_meta(&o.src))).await;
        let mut items: Vec<CopyItem> = going.iter().zip(metas).map(|(o, meta)| self.item(o, meta, how)).collect();
        if carries {
            match self.carried(&going).await {
                Ok(carried) => items.iter_mut().zip(carried).for_each(|(item, of)| item.spec.carried = Some(of)),
                Err(error) => return one_by_one::failed(orders.len(), &error),
            }
        }
        let counts: Arc<[AtomicU64]> = going.iter().map(|_| AtomicU64::new(0)).collect();
        let links = self.source_links();
        // Stops this batch alone: a copy that has its allowance runs to its end.
        let at_limit = Cancel::default();
        let watch = self.watch(&going, counts.clone(), at_limit.clone());
        let batch = CopyBatch { from: place, items, links };
        let stopped = async {
            tokio::select! {
                () = self.cx.cancel.cancelled() => {}
                () = at_limit.cancelled() => {}
            }
        };
        let answers = tokio::select! {
            biased;
            () = stopped => going.iter().map(|_| Err(cancelled())).collect(),
            answers = self.cx.dst.copy(batch, watch) => answers,
        };
        for ((order, answer), counted) in going.iter().zip(&answers).zip(counts.iter()) {
            let counted = counted.load(Ordering::Relaxed);
            let arrived = answer.as_ref().map_or(0, |stored| stored.size);
            self.count(order.step, arrived as i64 - counted as i64);
        }
        let mut answers = answers.into_iter();
        let each = orders.iter().zip(refused).map(|(order, refused)| {
            let stored = match refused {
                Some(error) => Err(error),
                None => answers.next().unwrap_or_else(|| Err(unsupported())),
            };
            self.arrived(order, stored, how).map_err(|e| if e.key().is_some() { e } else { e.with_key(&order.src.key) })
        });
        let results: Vec<Result<ArrivedFile>> = each.collect();
        // A stopped copy may still arrive.
        let failed = orders.iter_mut().zip(&results).filter(|(_, result)| result.is_err() && !at_limit.is_cancelled());
        for (order, _) in failed {
            self.take_back(order).await;
        }
        results
    }

    /// The attributes of files that are created anew on another machine.
    ///
    /// Errors: that of the first file that can't be read.
    async fn carried(&self, orders: &[&FileTransfer]) -> Result<Vec<Arc<FileAttributes>>> {
        let inside = self.keep.as_ref().is_some_and(|keep| keep.looks_inside());
        let keys = orders.iter().map(|order| order.src.key.clone()).collect();
        let carried = offered(self.cx.src.inodes(), "copy")?.carry(keys, inside).await;
        carried.into_iter().map(|carried| carried.map(Arc::new)).collect()
    }

    /// Metadata for a copy that the store makes by itself. Without any it keeps the source's own; but
    /// `--metadata-set` on metadata that no listing had would replace all of it, so that is requested first.
    async fn server_meta(&self, src: &Entry) -> Option<Box<Meta>> {
        let job = &self.job;
        if job.attributes.metadata_set.is_empty() || src.meta.is_some() || self.cx.src.caps().files {
            return meta(job, src);
        }
        // A source that can't be asked can't be copied either: the copy says why.
        let mut own = self.cx.src.stat(&src.key).await.ok().and_then(|now| now.meta).unwrap_or_default();
        own.extend(job.attributes.metadata_set.iter().cloned());
        Some(own)
    }

    fn item(&self, order: &FileTransfer, meta: Option<Box<Meta>>, how: CopyHow) -> CopyItem {
        // The source's mtime goes along when it is known. Hashes do to a disk, which proves them before it publishes; another
        // store would keep them, and gives its own in the answer.
        let mut spec = WriteSpec { meta, ..self.spec(order, &order.src) };
        if !self.cx.dst.caps().files || self.job.write.ignore_checksum {
            spec.hashes = Hashes::default();
        }
        CopyItem {
            from: order.src.key.clone(),
            want: order.src.version.clone(),
            size: order.src.size,
            to: order.to.clone(),
            spec,
            how: self.how(order, how),
        }
    }

    /// By which means one file of a batch goes.
    fn how(&self, order: &FileTransfer, how: CopyHow) -> CopyHow {
        let shorter = order.replaced.as_ref().is_some_and(|there| there.size < order.src.size);
        match (how, self.job.existing.append) {
            (CopyHow::Link, _) => how,
            _ if order.src.kind == Kind::Special => CopyHow::Special,
            (CopyHow::Copy, Some(append)) if shorter && !order.src.is_symlink() => {
                CopyHow::Append { verify: append.verify }
            }
            _ => how,
        }
    }

    /// Passes on what a store says of large copies while they run, and has them remembered.
    fn watch(&self, orders: &[&FileTransfer], counts: Arc<[AtomicU64]>, at_limit: Cancel) -> Watch {
        let steps: Vec<(u64, bool)> = orders.iter().map(|o| (o.step, o.stops_at_limit)).collect();
        let mover = self.clone();
        let watch = Watch::new(move |item, bytes| {
            if let (Some((step, stops)), Some(counted)) = (steps.get(item), counts.get(item)) {
                let before = counted.fetch_add(bytes, Ordering::Relaxed);
                mover.count(*step, bytes as i64);
                // Bytes that others have taken, they move. The next run needn't repeat this copy's work.
                if *stops && mover.allowance.as_ref().is_some_and(|allowance| before + bytes >= allowance.left()) {
                    at_limit.cancel();
                }
            }
        });
        watch.with_logs(orders.iter().map(|order| self.copy_log(order)).collect())
    }

    fn arrived(&self, order: &FileTransfer, stored: Result<StoredFacts>, how: CopyHow) -> Result<ArrivedFile> {
        let stored = stored?;
        if stored.size != order.src.size && !self.job.compare.ignore_size {
            let message = format!("it has {} bytes but {} were copied", order.src.size, stored.size);
            return Err(Error::new(ErrorKind::Corrupt, "copy", message));
        }
        let proved = match order.src.hashes.agree(&stored.hashes) {
            Some((algo, false)) if !self.job.write.ignore_checksum => {
                return Err(Error::new(ErrorKind::Corrupt, "copy", format!("checksum mismatch after copy ({algo})")));
            }
            Some((algo, true)) => Some(algo),
            _ => None,
        };
        let (version, unpreserved) = (order.src.version.clone(), stored.unpreserved);
        let renamed = how == CopyHow::Rename && order.src.has_bytes();
        Ok(ArrivedFile {
            size: stored.size,
            proved,
            by_server: true,
            renamed,
            version,
            unpreserved,
            ..ArrivedFile::default()
        })
    }
}

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "copy", "the stores don't copy between themselves")
}
