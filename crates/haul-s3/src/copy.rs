//! Copying inside the service, and changing metadata, which S3 only does by copying.

use super::{
    address::{self, ObjectAddress},
    error::Fault,
    meta,
    proof::{self, COPIED},
    read, resume,
    service::{Call, Service, at},
    token::{self, Token},
    upload::{self, Receipt},
};
use futures::{StreamExt, TryStreamExt, stream};
use haul_core::{Algo, Error, ErrorKind, Hashes, Key, Meta, Mtime, Result, Retry, Version, plan::Replace};
use haul_store::{
    CopyBatch, CopyHow, CopyItem, LogCopy, Part, StoredFacts, Watch, WriteSpec, bucket::Root, one_by_one,
};
use http::{HeaderMap, Method};
use std::ops::Range;

/// Parts of a copy: large enough that their number is small, small enough that several run at once.
const PART: u64 = 256 << 20;

/// Copies, or parts of one, that are begun at once; how many of them are under way is found out in the lane.
const AT_ONCE: usize = 256;

/// Copies as [`haul_store::Store::copy`] says.
pub async fn copy(service: &Service, batch: CopyBatch, watch: Watch) -> Vec<Result<StoredFacts>> {
    let CopyBatch { from, items, .. } = batch;
    let root = match service.root.like(&from) {
        Ok(root) => root,
        Err(error) => return one_by_one::failed(items.len(), &error),
    };
    let (root, watch) = (&root, &watch);
    stream::iter(items.into_iter().enumerate())
        .map(|(at, item)| async move { copy_item(service, root, at, &item, watch).await })
        .buffered(AT_ONCE)
        .collect()
        .await
}

async fn copy_item(
    service: &Service,
    root: &Root,
    index: usize,
    item: &CopyItem,
    watch: &Watch,
) -> Result<StoredFacts> {
    if item.how != CopyHow::Copy {
        let message = "a bucket has no renames, hard links, devices or attributes";
        return Err(Error::new(ErrorKind::Unsupported, "copy", message).with_key(&item.to));
    }
    let from = address::place(root, &item.from)?;
    let to = service.place(&item.to)?;
    if from.object.is_empty() || to.object.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "copy", "a bucket can't be copied as a file").with_key(&item.to));
    }
    let (want, log) = (item.want.as_ref(), watch.log(index));
    let job = Job { service, key: &item.to, from: &from, to: &to, want, size: item.size, log };
    upload::look_first(service, &item.to, &to, &item.spec.replace).await?;
    let moved = |bytes| watch.copied(index, bytes);
    job.run(&item.spec, &moved).await
}

/// One copy.
struct Job<'a> {
    service: &'a Service,
    key: &'a Key,
    from: &'a ObjectAddress,
    to: &'a ObjectAddress,
    want: Option<&'a Version>,
    size: u64,
    log: Option<&'a dyn LogCopy>,
}

impl Job<'_> {
    async fn run(&self, spec: &WriteSpec, moved: &(dyn Fn(u64) + Sync)) -> Result<StoredFacts> {
        let large = self.size > self.service.config.copy_cutoff;
        if !large && spec.mtime.is_none() && spec.meta.is_none() && self.from != self.to {
            return self.whole(None, moved).await;
        }
        let head = read::head(self.service, self.key, self.from, self.want).await?;
        let now = meta::entry(&self.service.config, self.key, &head, self.size);
        if read::size(&head, self.key)? != self.size {
            return Err(Error::new(ErrorKind::Changed, "copy", "the source has another size now").with_key(self.key));
        }
        let same_mtime = spec.mtime.is_none() || spec.mtime == now.mtime;
        if !large && same_mtime && spec.meta.is_none() && self.from != self.to {
            return self.whole(None, moved).await;
        }
        let kept_meta = spec.meta.clone().or_else(|| now.meta.clone().map(|m| Box::new(carried(&m))));
        // Without a stored mtime the source's stays unsaid, as it was.
        let own = head.contains_key("x-amz-meta-mtime").then_some(now.mtime).flatten();
        let md5 = head.get("x-amz-meta-md5chksum").and_then(|v| v.to_str().ok());
        let md5 = md5.and_then(|t| super::body::from_base64(Algo::Md5, t)).or_else(|| {
            let plain = now.hashes.get(Algo::Md5).filter(|_| large && !self.service.config.disable_checksum);
            plain.map(<[u8]>::to_vec)
        });
        let mtime = spec.mtime.or(spec.meta.as_ref().map_or(own, |m| if m.contains_key("mtime") { None } else { own }));
        let kept = meta::MetaFacts { mtime, meta: kept_meta.as_deref(), md5: md5.as_deref() };
        if !large {
            let headers = meta::to_headers(&self.service.config, &self.to.object, &kept)?;
            return self.whole(Some(headers), moved).await;
        }
        let pinned = now.version.as_ref();
        self.in_parts(&kept, pinned, &spec.replace, moved).await
    }

    /// By one CopyObject; with headers they replace the source's metadata.
    async fn whole(&self, replace: Option<HeaderMap>, moved: &(dyn Fn(u64) + Sync)) -> Result<StoredFacts> {
        let config = &self.service.config;
        let directive = if replace.is_some() { "REPLACE" } else { "COPY" };
        let headers = match replace {
            Some(headers) => headers,
            None => {
                let kept = meta::MetaFacts { mtime: None, meta: None, md5: None };
                let mut headers = meta::to_headers(config, &self.to.object, &kept)?;
                headers.remove("content-type");
                headers
            }
        };
        let call = || {
            let call = self.source(Call::object("CopyObject", Method::PUT, self.to), self.want);
            call.headers(headers.clone()).header("x-amz-metadata-directive", directive)
        };
        let answer = self.service.ask_in_bucket(&self.to.bucket, call).await;
        let (_, body) = answer.map_err(at("copy", self.key))?;
        let etag = match proof::done(&body, &COPIED).map_err(at("copy", self.key))?.etag {
            Some(etag) => etag,
            // The copy was made; some servers' answers don't have its version.
            None => {
                let head = read::head(self.service, self.key, self.to, None).await?;
                if read::size(&head, self.key)? != self.size {
                    let message = "size mismatch after copy";
                    return Err(Error::new(ErrorKind::Corrupt, "copy", message).with_key(self.key));
                }
                meta::etag(&head).unwrap_or_default().to_owned()
            }
        };
        moved(self.size);
        let mut hashes = Hashes::default();
        if config.etag_is_md5()
            && let Some(md5) = meta::etag_md5(&etag)
        {
            hashes.set(Algo::Md5, md5);
        }
        Ok(StoredFacts { version: Some(meta::version(&etag)), size: self.size, hashes, ..StoredFacts::default() })
    }

    fn source<'c>(&self, call: Call<'c>, want: Option<&Version>) -> Call<'c> {
        let mut headers = HeaderMap::new();
        meta::customer_key(&self.service.config, "x-amz-copy-source-server-side-encryption-customer-", &mut headers);
        let call = call.header("x-amz-copy-source", self.from.copy_source()).headers(headers);
        match want {
            Some(want) => call.header("x-amz-copy-source-if-match", meta::quoted(want)),
            None => call,
        }
    }

    async fn in_parts(
        &self,
        kept: &meta::MetaFacts<'_>,
        pinned: Option<&Version>,
        replace: &Replace,
        moved: &(dyn Fn(u64) + Sync),
    ) -> Result<StoredFacts> {
        let (service, key) = (self.service, self.key);
        if !service.config.provider.part_copy {
            let message = format!("{} can't copy in parts", service.config.provider.name);
            return Err(Error::new(ErrorKind::Unsupported, "copy", message).with_key(key));
        }
        let begun = token::begun_with(service, self.to, kept, false)?;
        let copy = match self.left(&begun).await? {
            Some(copy) => copy,
            None => self.begin(kept, begun).await?,
        };
        let parts = self.parts(&copy, pinned, moved).await;
        // Somebody may have been faster meanwhile.
        let spec = WriteSpec { replace: replace.clone(), ..WriteSpec::default() };
        let result = match parts {
            Ok(receipts) => self.complete(&copy.id, &receipts, &spec).await,
            Err(error) => Err(error),
        };
        match &result {
            Ok(_) => self.ended(),
            // The next try, or the next run, resumes it.
            Err(error) if self.log.is_some() && error.retry() != Retry::Never => {}
            Err(_) => match upload::abort(service, self.to, &copy.id).await {
                Ok(_) => self.ended(),
                Err(fault) => tracing::debug!(%key, error = fault.message, "an unfinished copy remains"),
            },
        }
        result
    }

    /// Completes the multipart copy, once the server confirms each part's size: one that ignores a range and copies the whole source
    /// answers like any other. A server that can't list the parts is asked for the size of the whole.
    ///
    /// Errors: `Unsupported` when sizes differ, so that the file goes through this machine.
    async fn complete(&self, id: &str, receipts: &[Receipt], spec: &WriteSpec) -> Result<StoredFacts> {
        let (service, key) = (self.service, self.key);
        let token = Token { place: self.to.clone(), id: id.to_owned(), begun: String::from("-") };
        let listed = match resume::parts(service, &token.to_bytes()).await {
            Ok(parts) => Some(parts),
            Err(error) if error.retry() == Retry::Never || error.kind() == ErrorKind::Corrupt => None,
            Err(error) => return Err(error.with_key(key)),
        };
        let ranges_ignored = || {
            let message = "the server doesn't copy the ranges that it is asked for";
            Error::new(ErrorKind::Unsupported, "copy", message).with_key(key)
        };
        if let Some(listed) = &listed {
            let as_told = |part: &Receipt| listed.iter().any(|t| (t.index + 1, t.size) == (part.number, part.size));
            if !receipts.iter().all(as_told) {
                return Err(ranges_ignored());
            }
        }
        let stored = upload::complete(service, key, self.to, id, receipts, spec, false).await?;
        if listed.is_none() {
            let head = read::head(service, key, self.to, stored.version.as_ref()).await?;
            if read::size(&head, key)? != self.size {
                return Err(ranges_ignored());
            }
        }
        Ok(stored)
    }

    fn ended(&self) {
        self.log.iter().for_each(|log| log.ended());
    }

    async fn begin(&self, kept: &meta::MetaFacts<'_>, begun: String) -> Result<UnfinishedCopy> {
        let (service, key) = (self.service, self.key);
        let id = upload::begin(service, key, self.to, kept, false).await?;
        let part_size = part_size(self.size, service.config.copy_cutoff, service.config.max_upload_parts);
        if let Some(log) = self.log {
            log.begun(Token { place: self.to.clone(), id: id.clone(), begun }.to_bytes(), part_size).await;
        }
        Ok(UnfinishedCopy { id, part_size, there: Vec::new() })
    }

    /// The copy that was begun earlier as this one would be, with the parts that the service has of it.
    async fn left(&self, begun: &str) -> Result<Option<UnfinishedCopy>> {
        let Some(left) = self.log.and_then(LogCopy::left) else { return Ok(None) };
        let Some(token) = Token::read(&left.token).filter(|token| token.place == *self.to && left.part_size > 0) else {
            return Ok(None);
        };
        if token.begun != begun {
            upload::abort(self.service, self.to, &token.id).await.map_err(at("copy", self.key))?;
            self.ended();
            return Ok(None);
        }
        match resume::parts(self.service, &left.token).await {
            Ok(mut there) => {
                there.retain(|part| left.parts.iter().any(|known| resume::same(known, part)));
                Ok(Some(UnfinishedCopy { id: token.id, part_size: left.part_size, there }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.ended();
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::Corrupt && self.log.is_some_and(|log| log.untold(&error)) => {
                Ok(None)
            }
            Err(error) => Err(error.with_key(self.key)),
        }
    }

    async fn parts(
        &self,
        copy: &UnfinishedCopy,
        pinned: Option<&Version>,
        moved: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Receipt>> {
        let count = self.size.div_ceil(copy.part_size);
        stream::iter(0..count)
            .map(|index| async move {
                let (first, end) = (index * copy.part_size, ((index + 1) * copy.part_size).min(self.size));
                let known = copy.there.iter().find(|part| part.index == index && part.size == end - first);
                let tag = match known {
                    Some(part) => part.tag.clone(),
                    None => {
                        let tag = self.part(&copy.id, index, first..end, pinned).await?;
                        // Parts from an earlier run don't count as moved by this one.
                        moved(end - first);
                        tag
                    }
                };
                let etag = String::from_utf8_lossy(&tag).split(' ').next().unwrap_or_default().to_owned();
                Ok(Receipt { number: index + 1, size: end - first, etag, crc: None })
            })
            .buffered(self.service.config.upload_concurrency.unwrap_or(AT_ONCE))
            .try_collect()
            .await
    }

    /// Copies one part and gives its receipt.
    async fn part(&self, id: &str, index: u64, range: Range<u64>, pinned: Option<&Version>) -> Result<Vec<u8>> {
        let call = Call::object("UploadPartCopy", Method::PUT, self.to)
            .query("partNumber", (index + 1).to_string())
            .query("uploadId", id)
            .header("x-amz-copy-source-range", format!("bytes={}-{}", range.start, range.end - 1));
        let mut headers = HeaderMap::new();
        meta::customer_key(&self.service.config, "x-amz-server-side-encryption-customer-", &mut headers);
        let call = self.source(call, pinned).headers(headers);
        let (_, body) = self.service.ask(call).await.map_err(at("copy", self.key))?;
        if body.trim_ascii().is_empty() {
            // Not a word of a copy: such a server (rclone's) takes the request for a part without content.
            let message = "the server doesn't copy parts";
            return Err(Error::new(ErrorKind::Unsupported, "copy", message).with_key(self.key));
        }
        let done = proof::done(&body, &COPIED).map_err(at("copy", self.key))?;
        let etag =
            done.etag.ok_or_else(|| Fault::broken("the server gave no receipt for a part").at("copy", self.key))?;
        let tag = upload::receipt(&etag, None);
        if let Some(log) = self.log {
            log.copied(Part { index, size: range.end - range.start, tag: tag.clone() });
        }
        Ok(tag)
    }
}

/// A copy in parts under way.
struct UnfinishedCopy {
    id: String,
    part_size: u64,
    /// Parts that an earlier run or try copied.
    there: Vec<Part>,
}

/// Metadata for a copy: facts that only describe this object's storage are left out.
fn carried(meta: &Meta) -> Meta {
    let own = ["mtime", "btime", "tier"];
    meta.iter().filter(|(name, _)| !own.contains(&name.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn part_size(size: u64, cutoff: u64, most: u64) -> u64 {
    cutoff.clamp(super::options::MIN_PART, PART).max(size.div_ceil(most))
}

/// Changes mtime and metadata (`None` leaves them) by copying an object onto itself. Returns the facts of the new one; `stored`
/// are the known facts of the old one.
pub async fn touch(
    service: &Service,
    key: &Key,
    mtime: Option<Mtime>,
    meta: Option<&Meta>,
    stored: Option<StoredFacts>,
) -> Result<StoredFacts> {
    let place = service.place(key)?;
    let head = read::head(service, key, &place, stored.as_ref().and_then(|s| s.version.as_ref())).await?;
    let now = meta::entry(&service.config, key, &head, read::size(&head, key)?);
    let spec =
        WriteSpec { mtime, meta: meta.cloned().map(Box::new), replace: Replace::Anything, ..WriteSpec::default() };
    let job = Job { service, key, from: &place, to: &place, want: now.version.as_ref(), size: now.size, log: None };
    let mut after = job.run(&spec, &|_| ()).await?;
    if let Some(before) = stored {
        after.hashes.merge(&before.hashes);
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_copy_keep_within_the_limits() {
        const MI: u64 = 1 << 20;
        assert_eq!(part_size(100 * MI, 5 * MI, 10_000), 5 * MI);
        assert_eq!(part_size(6 << 30, 4 << 30, 10_000), PART);
        assert_eq!(part_size(5 << 40, 4 << 30, 10_000), (5u64 << 40).div_ceil(10_000));
    }
}
