//! Reading, and what is known of one key.

use crate::service::{Facts, Service};
use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Key, Result, Version};
use haul_net::{Fault, Reply, at};
use haul_store::{Body, Read, SpaceUsage, web};
use http::header;
use serde_json::{Value, json};
use std::ops::Range;

/// Facts of one key.
pub async fn stat(service: &Service, key: &Key) -> Result<Entry> {
    const OP: &str = "stat";
    match service.ready(OP).await {
        // Such a remote is there, whatever is in it.
        Err(error) if error.kind() == ErrorKind::Unsupported && key.is_root() => return Ok(Entry::dir(Key::new(""))),
        other => other?,
    }
    let path = service.path(key)?;
    if path.is_empty() {
        return Ok(Entry::dir(Key::new("")));
    }
    let found = facts(service, key, &path).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound if key.is_root() => Error::new(ErrorKind::DirNotFound, OP, "no such folder"),
        _ => error,
    })?;
    if found.is_folder() != (key.is_dir() || key.is_root()) {
        let kind = if key.is_root() { ErrorKind::DirNotFound } else { ErrorKind::NotFound };
        return Err(Error::new(kind, OP, "no such file or folder").with_key(key));
    }
    if !key.is_root() && service.differs(key, &path, &found).await?.is_some() {
        return Err(Error::new(ErrorKind::NotFound, OP, "no such file or folder").with_key(key));
    }
    if !found.is_folder() {
        service.note_file(&path);
    }
    entry(&found, key)
}

/// The service's facts about the entry at a path.
pub async fn facts(service: &Service, key: &Key, path: &str) -> Result<Facts> {
    let found = service.api.json(&service.ask("files/get_metadata", &json!({ "path": path }))).await;
    found.map_err(|refused| refused.at("stat", key))
}

fn entry(facts: &Facts, key: &Key) -> Result<Entry> {
    facts.entry(key.clone()).ok_or_else(|| Fault::broken("the service told no size or version of it").at("stat", key))
}

/// The bytes of a key, as [`haul_store::Store::read`] says.
pub async fn read(service: &Service, key: &Key, want: Option<&Version>, range: Option<Range<u64>>) -> Result<Read> {
    const OP: &str = "read";
    if key.is_dir() || key.is_root() {
        return Err(Error::new(ErrorKind::NotFound, OP, "no such file").with_key(key));
    }
    let exactly = |entry: Entry| match want {
        Some(want) if entry.version.as_ref() != Some(want) => {
            Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key))
        }
        _ => Ok(entry),
    };
    let empty = async || {
        let entry = exactly(stat(service, key).await?)?;
        Ok(Read { entry, body: Body::Stream(futures::stream::empty().boxed()) })
    };
    if range.as_ref().is_some_and(|range| range.start >= range.end) {
        return empty().await;
    }
    let path = service.path(key)?;
    let mut call = service.fetch("files/download", &json!({ "path": path }));
    if let Some(range) = &range {
        call = call.header(header::RANGE, format!("bytes={}-{}", range.start, range.end - 1));
    }
    let reply = match service.api.send(&call).await {
        Ok(reply) => reply,
        // Nothing is behind the end.
        Err(refused) if refused.fault.status == 416 => return empty().await,
        Err(refused) => return Err(refused.at(OP, key)),
    };
    let facts = result(&reply).map_err(at(OP, key))?;
    let entry = exactly(entry(&facts, key)?)?;
    if want.is_none() && service.differs(key, &path, &facts).await?.is_some() {
        return Err(Error::new(ErrorKind::NotFound, OP, "no such file").with_key(key));
    }
    let (length, whole) = web::carried(&reply, range.as_ref()).map_err(at(OP, key))?;
    if whole != entry.size {
        return Err(Fault::broken("the service sent content of another size than it says").at(OP, key));
    }
    Ok(Read { entry, body: Body::Stream(web::content(reply, range.as_ref(), length, key)) })
}

/// The facts that come with content.
fn result(reply: &Reply) -> haul_net::FaultResult<Facts> {
    let facts = reply.header("dropbox-api-result").and_then(|text| serde_json::from_str(text).ok());
    facts.ok_or_else(|| Fault::broken("the answer doesn't tell of which file the content is"))
}

/// Whose account it is.
pub async fn user(service: &Service) -> Result<Vec<(&'static str, String)>> {
    let call = service.ask_plainly("users/get_current_account");
    let account: Value = service.api.json(&call).await.map_err(|refused| refused.fault.error("userinfo"))?;
    let facts = [
        ("email", &account["email"]),
        ("name", &account["name"]["display_name"]),
        ("team", &account["team"]["name"]),
        ("account", &account["account_type"][".tag"]),
    ];
    Ok(facts.into_iter().filter_map(|(word, fact)| Some((word, fact.as_str()?.to_owned()))).collect())
}

/// How much space there is.
pub async fn about(service: &Service) -> Result<SpaceUsage> {
    let usage: Value = service
        .api
        .json(&service.ask_plainly("users/get_space_usage"))
        .await
        .map_err(|refused| refused.fault.error("about"))?;
    let (used, total) = (usage["used"].as_u64(), usage["allocation"]["allocated"].as_u64());
    // A team's is shared: what others have used counts.
    let taken = usage["allocation"]["used"].as_u64().or(used);
    let free = total.zip(taken).map(|(total, taken)| total.saturating_sub(taken));
    Ok(SpaceUsage { total, used, free })
}
