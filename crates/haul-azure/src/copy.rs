//! Server-side copies inside the account: of a large blob in parts, which stay invisible until all are there; of others by
//! one request.

use crate::{
    change,
    error::{ServiceError, plain},
    meta::{self, Facts, quoted},
    read,
    service::{self, BlobAddress, Call, Service},
    upload::{self, Blocks},
};
use futures::{StreamExt, TryStreamExt, stream};
use haul_core::{Algo, Error, ErrorKind, Key, Result, Retry, Version};
use haul_net::{Fault, at};
use haul_store::{
    CopyBatch, CopyHow, CopyItem, Direction, LateFacts, LogCopy, Part, SentPart, StoredFacts, Watch, WriteSpec,
    bucket::Root, one_by_one,
};
use http::{HeaderMap, Method};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::time::Instant;

/// Requests of one batch, or parts of a copy, that are begun at once; the lane bounds them in the end.
const AT_ONCE: usize = 64;
/// A copy that the service makes by and by and that stands still for so long is given up.
const STILL: Duration = Duration::from_secs(600);
/// Parts of a copy: large enough that their number is small, small enough that several run at once.
const PART: u64 = 256 << 20;

/// Copies as [`haul_store::Store::copy`] says.
pub async fn copy(service: &Arc<Service>, batch: CopyBatch, watch: Watch) -> Vec<Result<StoredFacts>> {
    let CopyBatch { from, items, .. } = batch;
    let root = match service.root.like(&from) {
        Ok(root) => root,
        Err(error) => return one_by_one::failed(items.len(), &error),
    };
    let (root, watch) = (&root, &watch);
    stream::iter(items.into_iter().enumerate())
        .map(|(number, item)| async move {
            let moved = |bytes| watch.copied(number, bytes);
            let copied = copy_item(service, root, &item, watch.log(number), &moved).await;
            copied.map_err(|error| match error.kind() {
                // The login may not be allowed to read the source; the copy then goes through this machine.
                ErrorKind::Denied | ErrorKind::Unauthenticated => {
                    let why = format!("Azure refuses the copy to this log-in: {}", error.message());
                    Error::new(ErrorKind::Unsupported, "copy", why).with_key(&item.to)
                }
                _ => error,
            })
        })
        .buffered(AT_ONCE)
        .collect()
        .await
}

async fn copy_item(
    service: &Arc<Service>,
    root: &Root,
    item: &CopyItem,
    log: Option<&dyn LogCopy>,
    moved: &(dyn Fn(u64) + Sync),
) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let unsupported = |why: &str| Err(Error::new(ErrorKind::Unsupported, OP, why).with_key(&item.to));
    if item.how != CopyHow::Copy {
        return unsupported("a container has no renames, hard links, devices or attributes");
    }
    if item.spec.meta.is_some() {
        return unsupported("a copy inside the account keeps its source's properties");
    }
    let (from, to) = (service::place(root, &item.from)?, service.place(&item.to)?);
    if from.blob.is_empty() || to.blob.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, OP, "a container can't be copied as a file").with_key(&item.to));
    }
    if from == to {
        return unsupported("it would be copied onto itself");
    }
    let (version, size) = match &item.want {
        Some(version) => (version.clone(), item.size),
        None => {
            let source = read::head(service, &item.from, &from, None).await?;
            (Version::new(source.etag), source.size)
        }
    };
    let copy = Copy { service, item, log, from: &from, to: &to, version, size };
    let in_parts = size > service.config.copy_cutoff && !service.whole_copies.load(Relaxed);
    let stored = match in_parts {
        true => copy.in_parts(moved).await?,
        false => None,
    };
    match stored {
        Some(stored) => Ok(stored),
        None => copy.whole(moved).await,
    }
}

/// One copy.
struct Copy<'a> {
    service: &'a Arc<Service>,
    item: &'a CopyItem,
    log: Option<&'a dyn LogCopy>,
    from: &'a BlobAddress,
    to: &'a BlobAddress,
    /// Of the source.
    version: Version,
    size: u64,
}

impl Copy<'_> {
    fn changed(&self) -> Error {
        Error::new(ErrorKind::Changed, "copy", "changed since it was listed").with_key(&self.item.from)
    }

    /// By one request.
    async fn whole(&self, moved: &(dyn Fn(u64) + Sync)) -> Result<StoredFacts> {
        let Copy { service, item, to, .. } = self;
        let mut call = Call::blob("CopyBlob", Method::PUT, to)
            .going(Direction::Copy)
            .header("x-ms-copy-source", service.source(self.from))
            .header("x-ms-source-if-match", quoted(&self.version))
            .headers(upload::condition(&item.spec.replace));
        if !service.config.access_tier.is_empty() {
            call = call.header("x-ms-access-tier", &service.config.access_tier);
        }
        let (headers, _) = match service.ask_in(&to.container, &call).await {
            Ok(answer) => answer,
            Err(refused) if refused.code == "SourceConditionNotMet" => return Err(self.changed()),
            Err(refused) => return Err(upload::refusal(refused, &item.spec.replace, &item.to)),
        };
        let copied = arrived(service, &item.to, to, &headers).await?;
        if copied.size != self.size {
            let message = format!("the copy has {} bytes and its source {}", copied.size, self.size);
            return Err(Error::new(ErrorKind::Corrupt, "copy", message).with_key(&item.to));
        }
        moved(self.size);
        let mut stored = copied.clone().entry(item.to.clone(), false);
        let kept = copied.meta.contains_key(meta::MTIME).then_some(stored.mtime).flatten();
        if item.spec.mtime.is_some() && item.spec.mtime != kept {
            // Its source has another time, or none but that of its upload.
            stored.version = Some(change::set(service, &item.to, to, copied, item.spec.mtime, None).await?);
        }
        Ok(StoredFacts { version: stored.version, size: stored.size, hashes: stored.hashes, ..StoredFacts::default() })
    }

    /// Copies in parts, which the next try or run resumes; `None` where the service doesn't copy parts.
    async fn in_parts(&self, moved: &(dyn Fn(u64) + Sync)) -> Result<Option<StoredFacts>> {
        let (service, item) = (self.service, self.item);
        let source = read::head(service, &item.from, self.from, Some(&self.version)).await?;
        if source.size != self.size {
            return Err(self.changed());
        }
        let log = self.log;
        let spec = self.spec(source);
        let (blocks, part_size, there) = match self.left(log, &spec).await? {
            Some(left) => left,
            None => {
                let blocks = Blocks::begin(service.clone(), &item.to, spec)?;
                let part_size = PART.min(service.config.copy_cutoff).max(self.size.div_ceil(crate::options::BLOCKS));
                if let Some(log) = log {
                    log.begun(blocks.name(), part_size).await;
                }
                (blocks, part_size, Vec::new())
            }
        };
        let parts: Result<Vec<Part>, ServiceError> = stream::iter(0..self.size.div_ceil(part_size))
            .map(|index| {
                let (blocks, there) = (&blocks, &there);
                async move {
                    let range = index * part_size..((index + 1) * part_size).min(self.size);
                    let known = there.iter().find(|part| part.index == index && part.size == range.end - range.start);
                    if let Some(part) = known {
                        // Parts from an earlier run don't count as moved by this one.
                        return Ok(part.clone());
                    }
                    let bytes = range.end - range.start;
                    let part = blocks.copy_part(index, self.from, &self.version, range).await?;
                    moved(bytes);
                    log.iter().for_each(|log| log.copied(part.clone()));
                    Ok(part)
                }
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await;
        let parts = match parts {
            Ok(parts) => parts,
            Err(refused) if refused.fault.status == 501 => {
                service.whole_copies.store(true, Relaxed);
                log.iter().for_each(|log| log.ended());
                return Ok(None);
            }
            Err(refused) if refused.code == "SourceConditionNotMet" => return Err(self.changed()),
            Err(refused) => return Err(refused.fault.at("copy", &item.to)),
        };
        // One that copies all of the source where a range was asked for answers like any other.
        blocks.are_waiting(&parts).await?;
        let stored = blocks.finish(parts, LateFacts::default()).await?;
        log.iter().for_each(|log| log.ended());
        Ok(Some(stored))
    }

    /// The source's properties, and those requested instead.
    fn spec(&self, source: Facts) -> WriteSpec {
        let mut spec = WriteSpec { size: Some(self.size), ..self.item.spec.clone() };
        if let Some(md5) = source.md5() {
            spec.hashes.set(Algo::Md5, md5);
        }
        let mut meta = source.meta;
        // The account's, or the one that the options name.
        meta.remove("tier");
        spec.meta = Some(Box::new(meta));
        spec
    }

    /// The copy that was begun earlier, its parts' size and those that the service has of it.
    async fn left(&self, log: Option<&dyn LogCopy>, spec: &WriteSpec) -> Result<Option<(Blocks, u64, Vec<Part>)>> {
        let Some((log, left)) = log.and_then(|log| Some((log, log.left()?))) else { return Ok(None) };
        let sent = left.parts.into_iter().map(|part| SentPart { offset: part.index * left.part_size, part, crc64: 0 });
        match upload::again(self.service, &self.item.to, &left.token, sent.collect(), spec.clone()).await {
            Ok((blocks, there)) if left.part_size > 0 => Ok(Some((blocks, left.part_size, there))),
            Err(error) if error.retry() != Retry::Never && !log.untold(&error) => Err(error),
            _ => {
                log.ended();
                Ok(None)
            }
        }
    }
}

/// Waits until the copy is whole, and gives its facts.
async fn arrived(service: &Service, key: &Key, to: &BlobAddress, answer: &HeaderMap) -> Result<Facts> {
    let text = |headers: &HeaderMap, name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned).unwrap_or_default()
    };
    let id = text(answer, "x-ms-copy-id");
    let (mut seen, mut since, mut pause) = (String::new(), Instant::now(), Duration::from_millis(100));
    loop {
        let (headers, _) =
            plain(service.ask(&Call::blob("GetBlobProperties", Method::HEAD, to)).await).map_err(at("copy", key))?;
        let (status, moved) = (text(&headers, "x-ms-copy-status"), text(&headers, "x-ms-copy-progress"));
        let failed = |why: &str| Err(Fault::broken(format!("the copy inside the account {why}")).at("copy", key));
        if text(&headers, "x-ms-copy-id") != id {
            return Err(Error::new(ErrorKind::Changed, "copy", "somebody else has written it").with_key(key));
        }
        match &*status {
            "success" => {
                let size = headers.get("content-length").and_then(|size| size.to_str().ok()?.parse().ok());
                return match size {
                    Some(size) => Ok(Facts::of(&headers, size)),
                    None => failed("has no size"),
                };
            }
            "pending" if moved != seen => (seen, since) = (moved, Instant::now()),
            "pending" if since.elapsed() < STILL => {}
            "pending" => return failed("stands still"),
            other => return failed(&format!("ended: {other}")),
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(Duration::from_secs(5));
    }
}
