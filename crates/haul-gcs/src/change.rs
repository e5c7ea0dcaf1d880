//! Changing what is there: copies inside the service, metadata, deletes, buckets.

use crate::{
    meta::{self, FIELDS, Object},
    read,
    service::{Place, Root, Service, path},
    upload::{condition, generation, refusal},
};
use futures::{StreamExt, stream};
use haul_core::{Entry, Error, ErrorKind, Key, Meta, Mtime, Result, Version};
use haul_net::{Fault, at};
use haul_oauth::{Refusal, google::Shown as _, plain};
use haul_store::{CopyBatch, CopyHow, CopyItem, Direction, Stored};
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Requests of one batch that are begun at once; the lane bounds them in the end.
const AT_ONCE: usize = 64;

/// An answer to a rewrite, which may take several.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rewrite {
    done: bool,
    rewrite_token: Option<String>,
    resource: Option<Object>,
}

/// Copies as [`haul_store::Store::copy`] says.
pub async fn copy(service: &Service, batch: CopyBatch) -> Vec<Result<Stored>> {
    let CopyBatch { from, items, progress, .. } = batch;
    let root = match Root::parse(&from) {
        Ok(root) => root,
        Err(error) => return items.iter().map(|_| Err(error.to_report())).collect(),
    };
    let (root, progress) = (&root, progress.as_ref());
    stream::iter(items.into_iter().enumerate())
        .map(|(number, item)| async move {
            let stored = copy_item(service, root, &item).await?;
            if let Some(progress) = progress {
                (progress.0)(number, stored.size);
            }
            Ok(stored)
        })
        .buffered(AT_ONCE)
        .collect()
        .await
}

async fn copy_item(service: &Service, root: &Root, item: &CopyItem) -> Result<Stored> {
    const OP: &str = "copy";
    let unsupported = |why: &str| Err(Error::new(ErrorKind::Unsupported, OP, why).with_key(&item.to));
    if item.how.needs_inodes() {
        return unsupported("a bucket has no hard links, devices or attributes");
    }
    let (from, to) = (root.place(&item.from)?, service.place(&item.to)?);
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
    // What is named replaces all; what isn't comes with the source.
    let resource = match (&item.spec.meta, item.spec.mtime) {
        (Some(meta), mtime) => meta::resource(&to.object, mtime.or(source.kept()), Some(meta)),
        (None, Some(mtime)) if source.kept() != Some(mtime) => {
            let entry = source.entry(item.to.clone(), true).and_then(|entry| entry.meta);
            meta::resource(&to.object, Some(mtime), entry.as_deref())
        }
        _ => Map::new(),
    };
    let condition = condition(&item.spec.replace);
    let (mut token, fields) = (String::new(), format!("done,rewriteToken,resource({FIELDS})"));
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
            (false, _, Some(next)) if next != token => token = next,
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
    if item.how == CopyHow::Rename {
        remove(service, &from, version.as_ref()).await.map_err(|refused| refused.at("move", &item.from))?;
    }
    Ok(Stored { version: Some(stored), size: size.unwrap_or_default(), hashes, ..Stored::default() })
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
    place: &Place,
    version: Option<&Version>,
    mtime: Option<Mtime>,
    meta: Option<&Meta>,
) -> Result<()> {
    let resource = match meta {
        None => json!({ "metadata": meta::times(mtime) }),
        Some(meta) => {
            // What isn't named stays, so what shall go is named.
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
    stream::iter(keys)
        .map(|(key, version)| async move { delete_one(service, &key, version.as_ref()).await })
        .buffered(AT_ONCE)
        .collect()
        .await
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
    match remove(service, &place, version).await {
        Err(refused) if refused.fault.kind == ErrorKind::Changed => {
            Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key))
        }
        other => plain(other).map_err(at(OP, key)),
    }
}

/// Deletes an object, only this version if one is named: another is refused.
pub async fn remove(service: &Service, place: &Place, version: Option<&Version>) -> Refusal<()> {
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

/// See [`haul_store::Store::make_dir`]: of directories only buckets are made.
pub async fn make_dir(service: &Service, key: &Key) -> Result<()> {
    if key.is_root() && service.root.bucket.is_none() {
        return Ok(());
    }
    let dir = Entry::dir(key.clone()).key;
    let place = service.place(&dir)?;
    if (!key.is_root() && !place.object.is_empty()) || service.config.no_check_bucket {
        return Ok(());
    }
    let created = service.create(&place.bucket).await;
    created.map_err(|refused| refused.fault.error("mkdir"))
}
