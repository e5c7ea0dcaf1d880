//! Reading: the item says which version it is and where its content is, at an address that is good without our token.

use crate::{
    downloads::Address,
    service::{Item, Service},
    version::parts_of,
};
use futures::StreamExt;
use haul_core::{Error, ErrorKind, Key, Result, Version};
use haul_net::Fault;
use haul_oauth::{Call, ServiceError};
use haul_store::{Body, Direction, Read, web};
use http::{Method, StatusCode, header};
use std::{ops::Range, time::Instant};

fn changed(key: &Key) -> Error {
    Error::new(ErrorKind::Changed, "read", "changed since it was listed").with_key(key)
}

/// See [`haul_store::Store::read`].
pub async fn read(service: &Service, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    if key.is_dir() || key.is_root() {
        return Err(Error::new(ErrorKind::NotFound, "read", "no such file").with_key(key));
    }
    let known = service.downloads.get(want, key);
    let is_old = known.is_some();
    let address = match known {
        Some(address) => address,
        None => find(service, key, want).await?,
    };
    match fetch(service, key, address, range.clone()).await {
        // The address may have been good for a time only.
        Err(refused) if is_old && matches!(refused.fault.status, 401 | 403 | 404 | 410) => {
            let address = find(service, key, want).await?;
            fetch(service, key, address, range).await.map_err(|refused| refused.at("read", key))
        }
        other => other.map_err(|refused| refused.at("read", key)),
    }
}

/// Where the content of exactly this version is.
async fn find(service: &Service, key: &Key, want: Option<&Version>) -> Result<Address> {
    let item = match want.and_then(parts_of) {
        Some((id, _)) => match service.item(service.by_id(id, "")).await {
            Ok(item) => item,
            Err(refused) if refused.fault.kind == ErrorKind::NotFound => {
                // Gone, or another file is there now.
                return Err(service.at("read", key).await.map_or_else(|error| error, |_| changed(key)));
            }
            Err(refused) => return Err(refused.at("read", key)),
        },
        None => {
            let item = service.at("read", key).await?;
            let item = service.resolved(item).await.map_err(|refused| refused.at("read", key))?;
            if item.name != service.leaf(key)? {
                return Err(Error::new(ErrorKind::NotFound, "read", "no such file").with_key(key));
            }
            item
        }
    };
    if item.is_folder() {
        return Err(Error::new(ErrorKind::NotFound, "read", "this is a directory").with_key(key));
    }
    let entry = item.entry(key, service.config.hash)?;
    if want.is_some() && want != entry.version.as_ref() {
        return Err(changed(key));
    }
    let url = match item.download().filter(|_| !service.config.av_override) {
        Some(url) => url.to_owned(),
        None => content(service, &item).await.map_err(|refused| refused.at("read", key))?,
    };
    let address = Address { url, entry, since: Instant::now(), tag: None };
    if let Some(version) = &address.entry.version {
        service.downloads.put(version, address.clone());
    }
    Ok(address)
}

/// The address to which the service redirects downloads.
async fn content(service: &Service, item: &Item) -> Result<String, ServiceError> {
    let query = if service.config.av_override { "?AVOverride=1" } else { "" };
    let call = Call::new("content", Method::GET, service.by_id(&item.id, &format!("/content{query}")))
        .accepts(&[StatusCode::FOUND, StatusCode::TEMPORARY_REDIRECT]);
    let reply = service.api.send(&call).await?;
    let to = reply.header("location").map(str::to_owned);
    to.ok_or_else(|| Fault::broken("the service doesn't say where the content is").into())
}

async fn fetch(
    service: &Service,
    key: &Key,
    address: Address,
    range: Option<Range<u64>>,
) -> Result<Read, ServiceError> {
    let Address { url, entry, tag, .. } = address;
    let size = entry.size;
    let empty = |entry| Read { entry, body: Body::Stream(futures::stream::empty().boxed()) };
    if size == 0 || range.as_ref().is_some_and(|range| range.start >= range.end.min(size)) {
        return Ok(empty(entry));
    }
    let mut call = Call::new("download", Method::GET, url).anonymous().going(Direction::Down);
    if let Some(range) = &range {
        call = call.header(header::RANGE, format!("bytes={}-{}", range.start, range.end.min(size) - 1));
    }
    let reply = service.api.send(&call).await?;
    let requested = range.map(|range| range.start..range.end.min(size));
    let (length, whole) = web::carried(&reply, requested.as_ref())?;
    let now = reply.header("etag").map(str::to_owned);
    let same = tag.is_none() || now.is_none() || tag == now;
    if whole != size || !same {
        if let Some(version) = &entry.version {
            service.downloads.drop(version);
        }
        return Err(Fault::new(ErrorKind::Changed, haul_core::Retry::Never, "changed since it was listed").into());
    }
    if let (Some(version), Some(now), None) = (&entry.version, now, tag)
        && let Some(kept) = service.downloads.locked().get_mut(version)
    {
        kept.tag = Some(now);
    }
    let body = web::content(reply, requested.as_ref(), length, key);
    Ok(Read { entry, body: Body::Stream(body) })
}
