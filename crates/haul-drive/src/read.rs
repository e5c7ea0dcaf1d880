//! Facts and content of single files.

use crate::{
    documents,
    facts::{File, FileVersion, pinned},
    service::Service,
};
use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Key, Result, Version};
use haul_net::{Fault, at};
use haul_store::{Body, Direction, Read, SpaceUsage, web};
use http::{Method, header};
use serde::Deserialize;
use std::ops::Range;

fn untold(op: &'static str, key: &Key) -> Error {
    let message = "Google tells neither size nor checksum of this file";
    Error::new(ErrorKind::Unsupported, op, message).with_key(key)
}

fn missing(op: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, op, "no such file").with_key(key)
}

/// See [`haul_store::Store::stat`].
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    const OP: &str = "stat";
    if key.is_root() {
        // The known folder may no longer exist.
        service.dirs.forget(key);
        service.dir(key).await?;
        return Ok(Entry::dir(key.clone()));
    }
    if key.is_dir() {
        let parent = service.dir(&key.parent()).await?;
        let found = service.folder_in(&parent, &service.name(key)?, key).await?;
        let folder = found.ok_or_else(|| Error::new(ErrorKind::NotFound, OP, "no such directory").with_key(key))?;
        return folder.entry(key.clone()).ok_or_else(|| untold(OP, key));
    }
    let newest = service.at(key).await?.newest().ok_or_else(|| missing(OP, key))?;
    if newest.is_document() {
        return Ok(documents::content(service, &newest, key, OP, false).await?.0);
    }
    newest.entry(key.clone()).ok_or_else(|| untold(OP, key))
}

/// See [`haul_store::Store::read`].
///
/// Content can't be requested by version, so the file's facts are requested once the content begins to arrive: a file that
/// still has the wanted version then had it before too, for no revision becomes the newest twice.
pub async fn read(service: &Service, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    const OP: &str = "read";
    let changed = || Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key);
    if key.is_dir() || key.is_root() {
        return Err(missing(OP, key));
    }
    let (it, want) = match want {
        Some(want) => (pinned(want).ok_or_else(changed)?, Some(want.clone())),
        None => {
            let newest = service.at(key).await?.newest().ok_or_else(|| missing(OP, key))?;
            let version = newest.version().ok_or_else(|| untold(OP, key))?;
            (FileVersion { id: newest.id, via: newest.via, format: newest.format }, Some(version))
        }
    };
    let now = async || -> Result<File> {
        match service.by_id(&it.id).await {
            Ok(file) => Ok(it.shown(file)),
            Err(refused) if refused.fault.status == 404 => Err(changed()),
            Err(refused) => Err(refused.at(OP, key)),
        }
    };
    let entry = async || -> Result<Entry> {
        let file = now().await?;
        let entry = file.entry(key.clone()).ok_or_else(|| untold(OP, key))?;
        let is_gone = file.trashed && !service.config.trashed_only;
        if is_gone || entry.version != want { Err(changed()) } else { Ok(entry) }
    };
    let nothing = || Body::Stream(futures::stream::empty().boxed());
    if it.format.is_some() {
        let file = now().await?;
        if file.trashed && !service.config.trashed_only || file.version() != want {
            return Err(changed());
        }
        let (entry, bytes) = documents::content(service, &file, key, OP, range.is_none()).await?;
        let end = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let range = range.map_or(0..bytes.len(), |range| end(range.start)..end(range.end).max(end(range.start)));
        let piece = bytes.slice(range);
        return Ok(Read { entry, body: Body::Stream(futures::stream::iter([Ok(piece)]).boxed()) });
    }
    if range.as_ref().is_some_and(|range| range.start >= range.end) {
        return Ok(Read { entry: entry().await?, body: nothing() });
    }
    let abuse = if service.config.acknowledge_abuse { "true" } else { "" };
    let query = [("alt", "media"), ("acknowledgeAbuse", abuse)];
    let call = service.call("GetMedia", Method::GET, &format!("/files/{}", it.id), &query).going(Direction::Down);
    let call = match &range {
        Some(range) => call.header(header::RANGE, format!("bytes={}-{}", range.start, range.end - 1)),
        None => call,
    };
    let reply = match service.api.send(&call).await {
        Ok(reply) => reply,
        // Nothing is behind the end.
        Err(refused) if refused.fault.status == 416 => return Ok(Read { entry: entry().await?, body: nothing() }),
        Err(refused) if refused.fault.status == 404 => return Err(changed()),
        Err(refused) => return Err(refused.at(OP, key)),
    };
    let (length, whole) = web::carried(&reply, range.as_ref()).map_err(at(OP, key))?;
    let entry = entry().await?;
    if entry.size != whole {
        return Err(Fault::broken(format!("{whole} bytes came of a file of {}", entry.size)).at(OP, key));
    }
    Ok(Read { entry, body: Body::Stream(web::content(reply, range.as_ref(), length, key)) })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    storage_quota: Quota,
}

#[derive(Deserialize)]
struct Account {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct User {
    email_address: Option<String>,
    display_name: Option<String>,
}

/// See [`haul_store::Admin::user`].
pub async fn user(service: &Service) -> Result<Vec<(&'static str, String)>> {
    let call = service.call("About", Method::GET, "/about", &[("fields", "user(emailAddress,displayName)")]);
    let account = service.api.json::<Account>(&call).await.map_err(|refused| refused.fault.error("userinfo"))?.user;
    let facts = [("email", account.email_address), ("name", account.display_name)];
    Ok(facts.into_iter().filter_map(|(word, fact)| Some((word, fact?))).collect())
}

/// Numbers, as text.
#[derive(Deserialize)]
struct Quota {
    limit: Option<String>,
    usage: Option<String>,
}

/// See [`haul_store::Admin::about`].
pub async fn about(service: &Service) -> Result<SpaceUsage> {
    if !service.config.team_drive.is_empty() {
        let message = "Google doesn't tell how much space a shared drive has";
        return Err(Error::new(ErrorKind::Unsupported, "about", message));
    }
    let call = service.call("About", Method::GET, "/about", &[("fields", "storageQuota(limit,usage)")]);
    let Quota { limit, usage } =
        service.api.json::<About>(&call).await.map_err(|refused| refused.fault.error("about"))?.storage_quota;
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    let (total, used) = (number(limit), number(usage));
    Ok(SpaceUsage { total, used, free: total.zip(used).map(|(total, used)| total.saturating_sub(used)) })
}
