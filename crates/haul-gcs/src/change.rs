//! Changes: server-side copies, metadata, deletes, buckets.

use crate::{
    conditions::{condition, generation, refusal},
    error::judge,
    meta::{self, FIELDS, Object},
    parts, read,
    service::{self, ObjectAddress, Service, path},
};
use futures::{StreamExt, stream};
use haul_core::{Entry, Error, ErrorKind, Key, Meta, Mtime, Result, Version};
use haul_net::{Fault, at};
use haul_oauth::{
    ServiceError, ServiceResult,
    google::{FileFacts as _, RELATED, related},
    plain,
};
use haul_store::{
    Cleanup, CopyBatch, CopyHow, CopyItem, Direction, Payload, StoredFacts, UnfinishedWrites, Watch, batch,
    bucket::Root, one_by_one,
};
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Requests of one batch that are begun at once; the lane bounds them in the end.
const AT_ONCE: usize = 64;
/// Files that one request deletes.
pub const BATCH: usize = 100;

/// So many answers in a row without a further byte end a rewrite.
const IDLE: u32 = 5;

/// An answer to a rewrite, which may take several.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rewrite {
    done: bool,
    rewrite_token: Option<String>,
    /// A number, as text.
    total_bytes_rewritten: Option<String>,
    resource: Option<Object>,
}

/// Copies as [`haul_store::Store::copy`] says.
pub async fn copy(service: &Service, batch: CopyBatch, watch: Watch) -> Vec<Result<StoredFacts>> {
    let CopyBatch { from, items, .. } = batch;
    let root = match service.root.like(&from) {
        Ok(root) => root,
        Err(error) => return one_by_one::failed(items.len(), &error),
    };
    let root = &root;
    one_by_one::copied(items, &watch, AT_ONCE, |item| async move { copy_item(service, root, &item).await }).await
}

async fn copy_item(service: &Service, root: &Root, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let unsupported = |why: &str| Err(Error::new(ErrorKind::Unsupported, OP, why).with_key(&item.to));
    if item.how != CopyHow::Copy {
        return unsupported("a bucket has no renames, hard links, devices or attributes");
    }
    let (from, to) = (service::place(root, &item.from)?, service.place(&item.to)?);
    if from.object.is_empty() || to.object.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, OP, "a bucket can't be copied as a file").with_key(&item.to));
    }
    if from == to {
        return unsupported("it would be copied onto itself");
    }
    let source =
        read::facts(service, &item.from, &from, item.want.as_ref()).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound if item.want.is_some() => {
                Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(&item.from)
            }
            _ => error,
        })?;
    let version = source.version();
    // Named fields replace all; unnamed ones come from the source.
    let resource = match (&item.spec.meta, item.spec.mtime) {
        (Some(meta), mtime) => meta::resource(&to.object, mtime.or(source.kept()), Some(meta)),
        (None, Some(mtime)) if source.kept() != Some(mtime) => {
            let entry = source.entry(item.to.clone(), true).and_then(|entry| entry.meta);
            meta::resource(&to.object, Some(mtime), entry.as_deref())
        }
        _ => Map::new(),
    };
    let condition = condition(&item.spec.replace);
    let fields = format!("done,rewriteToken,totalBytesRewritten,resource({FIELDS})");
    let (mut token, mut copied, mut idle) = (String::new(), 0, 0);
    let source_generation = generation(version.as_ref());
    let object = loop {
        let query = [
            ("sourceGeneration", &*source_generation),
            ("ifGenerationMatch", &condition),
            ("destinationPredefinedAcl", &service.config.object_acl),
            ("rewriteToken", &token),
            ("fields", &fields),
        ];
        let place = format!("{}/rewriteTo{}", path(&from), path(&to));
        let send = || async {
            let call = service.call("RewriteObject", Method::POST, &place, &query).going(Direction::Copy);
            service.api.json::<Rewrite>(&call.json(&resource)).await
        };
        let answer = service.in_bucket(&to.bucket, send).await;
        let answer = answer.map_err(|refused| refusal(refused, &item.spec.replace, &item.to))?;
        match (answer.done, answer.resource, answer.rewrite_token) {
            (true, Some(object), _) => break object,
            // Its token may stay the same: that the copy gets on is seen by its bytes.
            (false, _, Some(next)) if !next.is_empty() && idle < IDLE => {
                let now = answer.total_bytes_rewritten.and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or_default();
                idle = if now > copied { 0 } else { idle + 1 };
                (token, copied) = (next, copied.max(now));
            }
            (false, _, _) if idle >= IDLE => {
                return Err(Fault::broken("the copy doesn't get on: Google copies no more bytes").at(OP, &item.to));
            }
            _ => {
                return Err(Fault::broken("the answer to a copy says neither that it is done nor how it goes on")
                    .at(OP, &item.to));
            }
        }
    };
    let (size, hashes) = (object.size(), object.hashes());
    if size.is_none() || size != source.size() || matches!(hashes.agree(&source.hashes()), Some((_, false))) {
        let message = format!("the copy has {size:?} bytes and its source {:?}, or their hashes differ", source.size());
        return Err(Error::new(ErrorKind::Corrupt, OP, message).with_key(&item.to));
    }
    let Some(stored) = object.version() else {
        return Err(Fault::broken("the service gave no receipt (a generation)").at(OP, &item.to));
    };
    Ok(StoredFacts { version: Some(stored), size: size.unwrap_or_default(), hashes, ..StoredFacts::default() })
}

/// See [`haul_store::Store::set_meta`].
pub async fn set_meta(service: &Service, key: &Key, mtime: Option<Mtime>, meta: Option<&Meta>) -> Result<()> {
    let place = service.place(key)?;
    if place.object.is_empty() || key.is_dir() {
        let message = "a directory has no metadata here";
        return Err(Error::new(ErrorKind::Unsupported, "set_meta", message).with_key(key));
    }
    patch(service, key, &place, None, mtime, meta).await
}

/// Changes time and metadata, of this version if one is named.
pub async fn patch(
    service: &Service,
    key: &Key,
    place: &ObjectAddress,
    version: Option<&Version>,
    mtime: Option<Mtime>,
    meta: Option<&Meta>,
) -> Result<()> {
    let resource = match meta {
        None => json!({ "metadata": meta::times(mtime) }),
        Some(meta) => {
            // Unnamed fields stay, so fields to delete are named.
            let before = read::facts(service, key, place, version).await?;
            let mut resource = meta::resource(&place.object, mtime.or(before.kept()), Some(meta));
            if let Some(Value::Object(user)) = resource.get_mut("metadata") {
                for name in before.metadata.keys().filter(|name| !name.is_empty()) {
                    user.entry(name.clone()).or_insert(Value::Null);
                }
            }
            resource.into()
        }
    };
    let generation = generation(version);
    let query = [("ifGenerationMatch", &*generation), ("fields", "generation")];
    let call = service.of_object("PatchObject", Method::PATCH, place, &query).json(&resource);
    plain(service.api.ask(&call).await).map(|_| ()).map_err(at("set_meta", key))
}

/// Deletes as [`haul_store::Store::delete`] says.
pub async fn delete(service: &Service, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
    let batches: Vec<_> = keys.chunks(BATCH).map(<[_]>::to_vec).collect();
    let answers = stream::iter(batches).map(|keys| async move { delete_some(service, keys).await }).buffered(AT_ONCE);
    answers.flat_map(stream::iter).collect().await
}

/// Deletes what one request takes.
async fn delete_some(service: &Service, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
    let is_object =
        |key: &Key| !key.is_root() && !key.is_dir() && service.place(key).is_ok_and(|place| !place.object.is_empty());
    if keys.len() < 2 || !keys.iter().all(|(key, _)| is_object(key)) {
        let each =
            stream::iter(keys).map(|(key, version)| async move { delete_one(service, &key, version.as_ref()).await });
        return each.buffered(AT_ONCE).collect().await;
    }
    let requests = keys.iter().filter_map(|(key, version)| {
        let (place, generation) = (service.place(key).ok()?, generation(version.as_ref()));
        Some((service.target(&place, &[("ifGenerationMatch", &*generation)]), HeaderMap::new()))
    });
    let body = Payload::from(batch::deletes(requests));
    let call = service.batch().body(Direction::Meta, batch::TYPE, body);
    let answers = async {
        let reply = service.api.send(&call).await?;
        let (headers, body) = (reply.headers.clone(), reply.bytes().await?);
        let broken = || Fault::broken("the service doesn't say what became of each of several deletes");
        Ok(batch::answers(&headers, &body, keys.len()).ok_or_else(broken)?)
    };
    let answers: Vec<batch::BatchResponse> = match answers.await {
        Ok(answers) => answers,
        Err(refused) => {
            let ServiceError { fault, .. } = refused;
            let error = |key| Error::new(fault.kind, "delete", &*fault.message).with_retry(fault.retry).with_key(key);
            return keys.iter().map(|(key, _)| Err(error(key))).collect();
        }
    };
    let each = keys.iter().zip(answers).map(|((key, _), answer)| match answer.status.is_success() {
        true => Ok(()),
        false => deleted(key, Err(judge(answer.status, &answer.headers, &answer.body))),
    });
    each.collect()
}

async fn delete_one(service: &Service, key: &Key, version: Option<&Version>) -> Result<()> {
    const OP: &str = "delete";
    if key.is_root() && service.root.bucket.is_none() {
        return Err(Error::new(ErrorKind::Unsupported, OP, "a project isn't deleted").with_key(key));
    }
    let place = service.place(key)?;
    if place.object.is_empty() {
        return delete_bucket(service, key, &place.bucket).await;
    }
    if key.is_root() {
        // A prefix of a bucket: there is nothing that could be deleted, or it isn't empty.
        return Ok(());
    }
    if key.is_dir() {
        match read::facts(service, key, &place, None).await {
            Ok(facts) if facts.size().is_none_or(|size| size > 0) => return Err(haul_store::pages::no_marker(key)),
            Err(error) if error.is_missing() => {}
            looked => drop(looked?),
        }
    }
    deleted(key, remove(service, &place, version).await)
}

/// Meaning of the answer to a delete: a missing object counts as deleted.
fn deleted(key: &Key, answer: ServiceResult<()>) -> Result<()> {
    const OP: &str = "delete";
    match answer {
        Err(refused) if refused.fault.status == 404 => Ok(()),
        Err(refused) if refused.fault.kind == ErrorKind::Changed => {
            Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key))
        }
        other => plain(other).map_err(at(OP, key)),
    }
}

/// Deletes an object, only this version if one is named: another is refused.
pub async fn remove(service: &Service, place: &ObjectAddress, version: Option<&Version>) -> ServiceResult<()> {
    let generation = generation(version);
    let call = service.of_object("DeleteObject", Method::DELETE, place, &[("ifGenerationMatch", &*generation)]);
    match service.api.ask(&call).await {
        Err(refused) if refused.fault.status == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}

/// The service deletes no bucket that isn't empty.
async fn delete_bucket(service: &Service, key: &Key, bucket: &str) -> Result<()> {
    const OP: &str = "delete";
    match service.api.ask(&service.of_bucket("DeleteBucket", Method::DELETE, bucket, "", &[])).await {
        Err(refused) if refused.fault.status == 404 => Ok(()),
        Err(refused) if matches!(refused.fault.status, 409 | 412) => {
            let message = format!("bucket {bucket} is not empty");
            Err(Error::new(ErrorKind::Exists, OP, message).with_key(key))
        }
        other => {
            service.made.lock().await.remove(bucket);
            plain(other).map(|_| ()).map_err(at(OP, key))
        }
    }
}

/// See [`haul_store::Store::make_dir`]: a bucket, or markers where they are asked for.
pub async fn make_dir(service: &Service, key: &Key, mtime: Option<Mtime>) -> Result<()> {
    if key.is_root() && service.root.bucket.is_none() {
        return Ok(());
    }
    let dir = Entry::dir(key.clone()).key;
    let place = service.place(&dir)?;
    if (key.is_root() || place.object.is_empty()) && !service.config.no_check_bucket {
        let created = service.create(&place.bucket).await;
        created.map_err(|refused| refused.fault.error("mkdir"))?;
    }
    if !service.config.directory_markers {
        return Ok(());
    }
    // Those above it come first.
    let ends = place.object.match_indices('/').map(|(at, _)| at + 1);
    let below = service.root.prefix.len();
    for end in ends.filter(|end| key.is_root() || *end > below) {
        let marker = ObjectAddress { bucket: place.bucket.clone(), object: place.object[..end].to_owned() };
        let own = mtime.filter(|_| end == place.object.len());
        put_marker(service, &marker, own).await.map_err(|refused| refused.at("mkdir", &dir))?;
    }
    Ok(())
}

/// A directory as an empty object whose name ends in a slash; one that is there already stays.
async fn put_marker(service: &Service, place: &ObjectAddress, mtime: Option<Mtime>) -> ServiceResult<()> {
    let mut resource = meta::resource(&place.object, mtime, None);
    resource.insert("name".into(), place.object.as_str().into());
    let query = [
        ("uploadType", "multipart"),
        ("name", &*place.object),
        ("ifGenerationMatch", "0"),
        ("predefinedAcl", &service.config.object_acl),
    ];
    let body = related(&Value::from(resource).to_string(), &Payload::default()).await;
    let body = body.map_err(|error| Fault::new(error.kind(), error.retry(), error.message()))?;
    let send = || async {
        let call = service.upload("InsertObject", place, &query);
        service.api.json::<Object>(&call.body(Direction::Up, RELATED, body.clone())).await
    };
    match service.in_bucket(&place.bucket, send).await {
        Err(refused) if refused.fault.status == 412 => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Finds uploads in parts that were never finished, and removes them unless only asked for.
pub async fn cleanup(service: &Service, what: &Cleanup) -> Result<UnfinishedWrites> {
    let Cleanup { older_than, dry_run, below } = what;
    let buckets = match (&service.root.bucket, below.is_root()) {
        (Some(bucket), _) => vec![(bucket.clone(), String::new())],
        (None, false) => vec![(service.place(below)?.bucket, format!("{}/", service.place(below)?.bucket))],
        (None, true) => {
            let all = crate::list::buckets(service).await?;
            let name = |entry: &Entry| String::from_utf8_lossy(entry.key.name()).into_owned();
            all.iter().map(|entry| (name(entry), format!("{}/", name(entry)))).collect()
        }
    };
    let prefix = match below.is_root() {
        true => String::from_utf8_lossy(&service.root.prefix).into_owned(),
        false => service.place(&Entry::dir(below.clone()).key)?.object,
    };
    let before = jiff::Timestamp::now().as_nanosecond() - older_than.as_nanos() as i128;
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (bucket, front) in buckets {
        for begun in parts::unfinished(service, &bucket, &prefix).await? {
            // One whose age is unknown may be under way right now.
            if begun.begun.is_none_or(|at| at.0 > before) {
                continue;
            }
            let Some(key) = begun.object.as_bytes().strip_prefix(&service.root.prefix[..]) else { continue };
            let key = service.config.encoding.map_or_else(|| key.to_vec(), |encoding| encoding.decode_path(key));
            let key = Key::new([front.as_bytes(), &key].concat());
            if !*dry_run {
                let place = ObjectAddress { bucket: bucket.clone(), object: begun.object.clone() };
                if let Err(refused) = parts::abort(service, &place, &begun.id).await {
                    failed.push(refused.at("clean up", &key));
                    continue;
                }
            }
            found.push((key, begun.begun));
        }
    }
    Ok(UnfinishedWrites { found, failed })
}
