//! Reading: the file's facts say which version it is, and the service where its content is, at an address that is good without our token.

use crate::{
    downloads::{Address, LASTS},
    facts::ids,
    service::Service,
};
use futures::StreamExt;
use haul_core::{Error, ErrorKind, Key, Result, Retry, Version};
use haul_net::{Fault, fault::told_to_wait};
use haul_oauth::{Call, ServiceError, ServiceResult};
use haul_store::{Body, Direction, Read, web};
use http::{Method, StatusCode, header};
use std::{
    ops::Range,
    time::{Duration, Instant},
};

/// When the service says to come back and not when.
const SOON: Duration = Duration::from_secs(5);

fn changed(key: &Key) -> Error {
    Error::new(ErrorKind::Changed, "read", "changed since it was listed").with_key(key)
}

/// See [`haul_store::Store::read`].
pub async fn read(service: &Service, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    if key.is_dir() || key.is_root() {
        return Err(Error::new(ErrorKind::NotFound, "read", "no such file").with_key(key));
    }
    let Some(want) = want else {
        let address = find(service, key, None).await?;
        return fetch(service, key, address, range).await.map_err(|refused| refused.at("read", key));
    };
    let slot = service.downloads.slot(want);
    let known = async |stale: Option<&Address>| -> Result<(Address, bool)> {
        let mut slot = slot.lock().await;
        let is_good = |known: &Address| {
            known.since.elapsed() < LASTS
                && known.entry.key == *key
                && stale.is_none_or(|stale| stale.since != known.since)
        };
        if let Some(known) = slot.as_ref().filter(|known| is_good(known)) {
            return Ok((known.clone(), true));
        }
        let found = find(service, key, Some(want)).await?;
        Ok((slot.insert(found).clone(), false))
    };
    let (address, is_old) = known(None).await?;
    match fetch(service, key, address.clone(), range.clone()).await {
        // The address may have been good for a time only.
        Err(refused) if is_old && matches!(refused.fault.status, 401 | 403 | 404 | 410) => {
            let (address, _) = known(Some(&address)).await?;
            fetch(service, key, address, range).await.map_err(|refused| refused.at("read", key))
        }
        other => other.map_err(|refused| refused.at("read", key)),
    }
}

/// Where the content of exactly this version is. The address is asked for between two looks at the file, of which a listing may be the
/// first: a file that is the same version at both was it in between, for no tag comes twice.
async fn find(service: &Service, key: &Key, want: Option<&Version>) -> Result<Address> {
    let (id, before) = match want {
        Some(want) => (ids(want).ok_or_else(|| changed(key))?.0.to_owned(), Some(want.clone())),
        None => {
            let item = service.at("read", key).await?;
            if !item.is_file() {
                return Err(Error::new(ErrorKind::NotFound, "read", "this is a directory").with_key(key));
            }
            (item.id.clone(), item.version())
        }
    };
    let gone = |refused: ServiceError| match refused.fault.kind {
        ErrorKind::NotFound => changed(key),
        _ => refused.at("read", key),
    };
    let url = content(service, &id).await.map_err(gone)?;
    let item = service.file(&id).await.map_err(gone)?;
    let entry = item.entry(key)?;
    if !item.is_there() || before != entry.version {
        return Err(changed(key));
    }
    Ok(Address { url, entry, since: Instant::now() })
}

/// The address to which the service redirects downloads.
async fn content(service: &Service, id: &str) -> ServiceResult<String> {
    let call = service.call("Content", Method::GET, &format!("/files/{id}/content")).accepts(&[StatusCode::FOUND]);
    let reply = service.api.send(&call).await?;
    if reply.status == StatusCode::ACCEPTED {
        let wait = told_to_wait(&reply.headers).unwrap_or(SOON);
        let why = "Box isn't done with this file yet, which was uploaded just now";
        return Err(Fault::new(ErrorKind::Busy, Retry::after(wait), why).into());
    }
    let to = reply.header("location").map(str::to_owned);
    to.ok_or_else(|| Fault::broken("the service doesn't say where the content is").into())
}

async fn fetch(
    service: &Service,
    key: &Key,
    address: Address,
    range: Option<Range<u64>>,
) -> Result<Read, ServiceError> {
    let Address { url, entry, .. } = address;
    let size = entry.size;
    if size == 0 || range.as_ref().is_some_and(|range| range.start >= range.end.min(size)) {
        return Ok(Read { entry, body: Body::Stream(futures::stream::empty().boxed()) });
    }
    let mut call = Call::new("Download", Method::GET, url).anonymous().going(Direction::Down);
    if let Some(range) = &range {
        call = call.header(header::RANGE, format!("bytes={}-{}", range.start, range.end.min(size) - 1));
    }
    let reply = service.api.send(&call).await?;
    let requested = range.map(|range| range.start..range.end.min(size));
    let (length, whole) = web::carried(&reply, requested.as_ref())?;
    if whole != size {
        return Err(Fault::new(ErrorKind::Changed, Retry::Never, "changed since it was listed").into());
    }
    let body = web::content(reply, requested.as_ref(), length, key);
    Ok(Read { entry, body: Body::Stream(body) })
}
