//! Changes: metadata, deletes, containers.

use crate::{
    error::{ServiceError, plain, refused},
    list,
    meta::{self, Facts, quoted},
    read,
    service::{BlobAddress, Call, Namespace, Service},
    upload,
};
use futures::{StreamExt, stream};
use haul_core::{Entry, Error, ErrorKind, Key, Meta, Mtime, Result, Version};
use haul_net::{Fault, at};
use http::Method;

/// Requests of one batch that are begun at once; the lane bounds them in the end.
const AT_ONCE: usize = 64;
/// Files that one request deletes.
pub const BATCH: usize = 256;

/// See [`haul_store::Store::set_meta`].
pub async fn set_meta(service: &Service, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> Result<()> {
    const OP: &str = "set_meta";
    let place = service.place(key)?;
    if place.blob.is_empty() || key.is_dir() {
        return Err(Error::new(ErrorKind::Unsupported, OP, "a directory has no metadata here").with_key(key));
    }
    let facts = read::head(service, key, &place, None).await?;
    set(service, key, &place, facts, mtime, meta).await.map(|_| ())
}

/// Puts a file into another access tier.
pub async fn set_tier(service: &Service, key: &Key, tier: &str) -> Result<()> {
    const OP: &str = "set the storage class";
    let place = service.place(key)?;
    if place.blob.is_empty() || key.is_dir() {
        return Err(Error::new(ErrorKind::Unsupported, OP, "a directory has no access tier").with_key(key));
    }
    let call = Call::blob("SetBlobTier", Method::PUT, &place).query("comp", "tier").header("x-ms-access-tier", tier);
    plain(service.ask(&call).await).map_err(at(OP, key)).map(|_| ())
}

/// Changes the metadata of the version that the facts are of; gives the one that comes of it.
pub async fn set(
    service: &Service,
    key: &Key,
    place: &BlobAddress,
    facts: Facts,
    mtime: Option<Mtime>,
    meta: Option<&Meta>,
) -> Result<Version> {
    let mut version = Version::new(facts.etag.clone());
    let md5 = facts.md5();
    let own = facts.meta.contains_key(meta::MTIME);
    let kept = mtime.or_else(|| facts.clone().entry(key.clone(), false).mtime.filter(|_| own));
    let headers = meta::user_headers(kept, Some(meta.unwrap_or(&facts.meta))).map_err(|e| e.with_key(key))?;
    let mut calls = vec![Call::blob("SetBlobMetadata", Method::PUT, place).query("comp", "metadata").headers(headers)];
    if let Some(meta) = meta {
        let headers = meta::property_headers(meta, md5.as_deref());
        calls.push(Call::blob("SetBlobProperties", Method::PUT, place).query("comp", "properties").headers(headers));
    }
    for call in calls {
        // A newer version has metadata of its own.
        let answer = service.ask(&call.header("if-match", quoted(&version))).await;
        let (headers, _) = plain(answer).map_err(at("set_meta", key))?;
        version = upload::receipt(&headers).map_err(at("set_meta", key))?;
    }
    Ok(version)
}

/// Deletes as [`haul_store::Store::delete`] says.
pub async fn delete(service: &Service, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
    let at_once = if keys.iter().any(|(key, _)| key.is_dir()) { 1 } else { AT_ONCE };
    let batches: Vec<_> = keys.chunks(BATCH).map(<[_]>::to_vec).collect();
    let answers = stream::iter(batches).map(|keys| async move { delete_some(service, keys).await }).buffered(at_once);
    answers.flat_map(stream::iter).collect().await
}

/// Deletes what one request takes: blobs of one container.
async fn delete_some(service: &Service, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
    let place = |key: &Key| service.place(key).ok().filter(|place| !key.is_root() && !place.blob.ends_with(b"/"));
    let place = |key: &Key| place(key).filter(|place| !place.blob.is_empty());
    let places: Vec<BlobAddress> = keys.iter().map_while(|(key, _)| place(key)).collect();
    let together = places.len() == keys.len() && places.windows(2).all(|two| two[0].container == two[1].container);
    let Some(first) = places.first().filter(|_| together && keys.len() > 1) else {
        return delete_each(service, keys).await;
    };
    let calls = places.iter().zip(&keys).map(|(place, (_, version))| delete_call(service, place, version.as_ref()));
    let calls: Vec<_> = calls.collect();
    match service.ask_several(&first.container, &calls).await {
        Ok(answers) => {
            let each = keys.iter().zip(answers).map(|((key, _), answer)| match answer.status.is_success() {
                true => Ok(()),
                false => deleted(key, Err(refused(answer.status, &answer.headers, &answer.body))),
            });
            each.collect()
        }
        Err(refused) if refused.code == "ContainerNotFound" => keys.iter().map(|_| Ok(())).collect(),
        // Azurite answers so to the whole where one of them isn't done.
        Err(ServiceError { fault, .. }) if fault.kind == ErrorKind::Io => delete_each(service, keys).await,
        Err(ServiceError { fault, .. }) => {
            let error = |key| Error::new(fault.kind, "delete", &*fault.message).with_retry(fault.retry).with_key(key);
            keys.iter().map(|(key, _)| Err(error(key))).collect()
        }
    }
}

async fn delete_each(service: &Service, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
    // In order: a directory comes after its contents.
    let at_once = if keys.iter().any(|(key, _)| key.is_dir()) { 1 } else { AT_ONCE };
    let each =
        stream::iter(keys).map(|(key, version)| async move { delete_one(service, &key, version.as_ref()).await });
    each.buffered(at_once).collect().await
}

fn delete_call(service: &Service, place: &BlobAddress, version: Option<&Version>) -> Call {
    let mut call = Call::blob("DeleteBlob", Method::DELETE, place);
    if let Some(version) = version {
        call = call.header("if-match", quoted(version));
    }
    if !service.config.delete_snapshots.is_empty() {
        call = call.header("x-ms-delete-snapshots", &service.config.delete_snapshots);
    }
    call
}

/// Meaning of the answer to a delete: a missing blob counts as deleted.
fn deleted(key: &Key, answer: Result<(), ServiceError>) -> Result<()> {
    const OP: &str = "delete";
    match answer {
        Err(ServiceError { fault, .. }) if fault.kind.is_missing() => Ok(()),
        Err(ServiceError { fault, .. }) if fault.kind == ErrorKind::Changed => {
            Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key))
        }
        other => plain(other).map_err(at(OP, key)),
    }
}

async fn delete_one(service: &Service, key: &Key, version: Option<&Version>) -> Result<()> {
    const OP: &str = "delete";
    if key.is_root() && service.root.bucket.is_none() {
        return Err(Error::new(ErrorKind::Unsupported, OP, "an account isn't deleted").with_key(key));
    }
    let place = service.place(key)?;
    if place.blob.is_empty() {
        return delete_container(service, key, &place.container).await;
    }
    if key.is_dir() || key.is_root() {
        return delete_folder(service, key, place).await;
    }
    deleted(key, service.ask(&delete_call(service, &place, version)).await.map(|_| ()))
}

/// A directory's marker, or a directory of the account's own: only when nothing is in it. Of its own the account sees to that itself.
async fn delete_folder(service: &Service, key: &Key, mut place: BlobAddress) -> Result<()> {
    let folder = list::folder(service, &place.container, &place.blob).await.map_err(at("delete", key))?;
    if folder.is_some()
        && service.namespace(&place.container).await != Namespace::Hierarchical
        && !list::is_empty(service, &place.container, &place.blob).await.map_err(at("delete", key))?
    {
        return Err(Error::new(ErrorKind::Exists, "delete", "the directory is not empty").with_key(key));
    }
    if !key.is_root() {
        match read::head(service, key, &place, None).await {
            Ok(facts) if facts.size > 0 => return Err(haul_store::pages::no_marker(key)),
            Err(error) if error.is_missing() => {}
            looked => {
                looked?;
                deleted(key, service.ask(&delete_call(service, &place, None)).await.map(|_| ()))?;
            }
        }
    }
    match folder {
        Some(facts) => {
            let slash = usize::from(place.blob.ends_with(b"/"));
            place.blob.truncate(place.blob.len() - slash);
            let call = delete_call(service, &place, Some(&Version::new(facts.etag)));
            deleted(key, service.ask(&call).await.map(|_| ()))
        }
        None => Ok(()),
    }
}

/// The service would delete a container with all that is in it: it is looked at first, for blobs, for what uploads have sent so far and for
/// what only a restore would show.
async fn delete_container(service: &Service, key: &Key, container: &str) -> Result<()> {
    const OP: &str = "delete";
    for include in ["uncommittedblobs,snapshots", ""] {
        let mut call =
            Call::container("ListBlobs", Method::GET, container).query("comp", "list").query("maxresults", "1");
        if !include.is_empty() {
            call = call.query("include", include);
        }
        let body = match service.ask(&call).await {
            Err(ServiceError { fault, .. }) if fault.kind == ErrorKind::DirNotFound => return Ok(()),
            other => plain(other).map_err(at(OP, key))?.1,
        };
        // Nothing in it, and nothing to come: said, not merely unsaid.
        let (mut blobs, mut next) = (0, None);
        let read = haul_store::xml::walk(&body, |step| match step {
            haul_store::xml::Step::Close("Blob", _) => blobs += 1,
            haul_store::xml::Step::Close("NextMarker", text) => next = Some(text.to_owned()),
            _ => {}
        });
        let next = read.and(next).ok_or_else(|| Fault::broken("the listing can't be read").at(OP, key))?;
        if blobs > 0 || !next.is_empty() {
            let message = format!("container {container} is not empty");
            return Err(Error::new(ErrorKind::Exists, OP, message).with_key(key));
        }
    }
    match service.ask(&Call::container("DeleteContainer", Method::DELETE, container)).await {
        Err(ServiceError { fault, .. }) if fault.kind == ErrorKind::DirNotFound => Ok(()),
        other => {
            service.made.lock().await.remove(container);
            plain(other).map(|_| ()).map_err(at(OP, key))
        }
    }
}

/// See [`haul_store::Store::make_dir`]: containers, and directories of an account that has its own.
pub async fn make_dir(service: &Service, key: &Key) -> Result<()> {
    if key.is_root() && service.root.bucket.is_none() {
        return Ok(());
    }
    let place = service.place(&Entry::dir(key.clone()).key)?;
    if (key.is_root() || place.blob.is_empty()) && !service.config.no_check_container {
        service.create(&place.container).await.map_err(|fault| fault.error("mkdir"))?;
    }
    match place.blob.is_empty() || service.namespace(&place.container).await != Namespace::Hierarchical {
        true => Ok(()),
        false => make_folder(service, key, place).await,
    }
}

/// Creates a directory of the account's own, with those above it; one that is there already stays.
async fn make_folder(service: &Service, key: &Key, mut place: BlobAddress) -> Result<()> {
    let slash = usize::from(place.blob.ends_with(b"/"));
    place.blob.truncate(place.blob.len() - slash);
    let headers = [("x-ms-blob-type", "BlockBlob"), ("x-ms-meta-hdi_isfolder", "true"), ("if-none-match", "*")];
    let call = headers
        .iter()
        .fold(Call::blob("PutBlob", Method::PUT, &place), |call, (name, value)| call.header(name, *value));
    match service.ask_in(&place.container, &call).await {
        Err(refused) if matches!(refused.fault.status, 409 | 412) => {
            match list::folder(service, &place.container, &place.blob).await.map_err(at("mkdir", key))? {
                Some(_) => Ok(()),
                None => Err(refused.fault.at("mkdir", key)),
            }
        }
        other => plain(other).map(|_| ()).map_err(at("mkdir", key)),
    }
}
