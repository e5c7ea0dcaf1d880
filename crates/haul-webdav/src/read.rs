//! Reading: one GET for each answer.

use crate::{Service, list};
use futures::StreamExt;
use haul_core::{Error, ErrorKind, Key, Result, Version};
use haul_net::at;
use haul_store::{
    Body, Direction, Read,
    web::{self, Call, Facts},
};
use http::{Method, header};
use std::ops::Range;

/// See [`haul_store::Store::read`].
pub async fn read(service: &Service, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    let changed = || Error::new(ErrorKind::Changed, "read", "changed since it was listed").with_key(key);
    if key.is_dir() || key.is_root() {
        return Err(Error::new(ErrorKind::NotFound, "read", "no such file").with_key(key));
    }
    if range.as_ref().is_some_and(|range| range.start >= range.end) {
        let entry = list::stat(service, key).await?;
        if want.is_some() && want != entry.version.as_ref() {
            return Err(changed());
        }
        return Ok(Read { entry, body: Body::Stream(futures::stream::empty().boxed()) });
    }
    let mut call = Call::new("GET", Direction::Down, Method::GET, service.web.url(key)?);
    if let Some(range) = &range {
        call = call.header(header::RANGE, format!("bytes={}-{}", range.start, range.end - 1));
    }
    let reply = match service.web.ask(call).await {
        Ok(reply) => reply,
        // Nothing is behind the end.
        Err(fault) if fault.status == 416 => {
            let entry = list::stat(service, key).await?;
            return match want.is_some_and(|want| entry.version.as_ref() != Some(want)) {
                true => Err(changed()),
                false => Ok(Read { entry, body: Body::Stream(futures::stream::empty().boxed()) }),
            };
        }
        // A directory: servers point to its address, refuse, or show a page.
        Err(fault) if fault.status == 405 || (300..400).contains(&fault.status) => {
            return Err(list::stat(service, key).await.err().unwrap_or_else(|| fault.at("read", key)));
        }
        Err(fault) => return Err(fault.at("read", key)),
    };
    let (length, whole) = web::carried(&reply, range.as_ref()).map_err(at("read", key))?;
    let facts = Facts::of(&reply.headers, whole);
    if want.is_some_and(|want| !facts.may_be(want)) {
        return Err(changed());
    }
    let facts = match want {
        Some(want) => facts.dated_as(want),
        None => facts,
    };
    let mut entry = facts.entry(key.clone());
    entry.changed = service.changed(facts.modified);
    if let Some(want) = want {
        entry.version = Some(want.clone());
    }
    let body = web::content(reply, range.as_ref(), length, key);
    Ok(Read { entry, body: Body::Stream(body) })
}
