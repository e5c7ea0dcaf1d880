//! Listing: a whole tree by one recursive question, whose pages come in no order; one level by folder.

use crate::{
    root,
    service::{Facts, Service},
    verified_folders::PathState,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream, stream::BoxStream};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, MissedRange, Result, Retry};
use haul_net::{Fault, Pages};
use haul_oauth::{ServiceError, few};
use haul_store::{
    ListRequest,
    tree::{self, Folders, FoundName, WantedKeys, is_odd},
};
use serde::Deserialize;
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

const PAGE: u32 = 2000;
/// How often a listing begins anew when its cursor has become void.
const ANEW: usize = 3;
/// How often a page is asked for: what came before it would have to be asked for anew.
const TRIES: u32 = 5;
/// Entries of a batch.
const BATCH: usize = 1000;

#[derive(Deserialize)]
struct Page {
    #[serde(deserialize_with = "few")]
    entries: Vec<Facts>,
    cursor: String,
    has_more: bool,
}

/// All that is in a folder, by path in lower case. Complete, or an error.
pub async fn folder(service: &Service, path: &str, recursive: bool) -> Result<BTreeMap<String, Facts>, ServiceError> {
    let mut anew = 0;
    loop {
        match attempt(service, path, recursive).await {
            Err(refused) if refused.code == "reset" && anew < ANEW => anew += 1,
            other => return other,
        }
    }
}

async fn attempt(service: &Service, path: &str, recursive: bool) -> Result<BTreeMap<String, Facts>, ServiceError> {
    let question = json!({"path": path, "recursive": recursive, "limit": PAGE});
    let mut page: Page = service.api.json(&service.ask("files/list_folder", &question)).await?;
    let (mut found, mut pages) = (BTreeMap::new(), Pages::default());
    loop {
        // A log: what comes later is what holds.
        for facts in page.entries {
            pages.is_new(&facts.path_lower);
            if facts.path_lower.is_empty() {
                return Err(Fault::broken("the service listed something without its path").into());
            }
            if facts.tag == "deleted" {
                let below = format!("{}/", facts.path_lower);
                found.retain(|path: &String, _| *path != facts.path_lower && !path.starts_with(&below));
            } else {
                found.insert(facts.path_lower.clone(), facts);
            }
        }
        if !page.has_more {
            return Ok(found);
        }
        pages.next(&page.cursor)?;
        let call = service.ask("files/list_folder/continue", &json!({"cursor": page.cursor}));
        let mut tries = 1;
        let next: Page = loop {
            match service.api.json(&call).await {
                Err(refused) if tries < TRIES && refused.code != "reset" && refused.fault.retry != Retry::Never => {
                    let wait = match refused.fault.retry {
                        Retry::After(wait) => wait,
                        _ => Duration::from_millis(250 << tries),
                    };
                    tries += 1;
                    tokio::time::sleep(wait).await;
                }
                other => break other?,
            }
        };
        page = next;
    }
}

/// Parts of a path.
fn depth(path: &str) -> usize {
    path.matches('/').count()
}

/// Whether `lower` is what the service makes of `path`. How it folds other letters than ASCII's is its own affair.
fn is_of(path: &str, lower: &str) -> bool {
    !path.is_ascii() || path.eq_ignore_ascii_case(lower)
}

/// Whether the last part of a path in lower case is this name's.
fn is_named(lower: &str, name: &str) -> bool {
    is_of(name, lower.rsplit('/').next().unwrap_or_default())
}

/// Entries below `base` in order, of all that is in its folder; and names that can't be told.
fn assemble(service: &Service, base: &Key, path: &str, found: BTreeMap<String, Facts>) -> Result<Vec<FoundName>> {
    let top = depth(path);
    let mut dirs: HashMap<String, Key> = HashMap::new();
    let mut own: Option<String> = None;
    let mut all = Vec::with_capacity(found.len());
    // In this order a folder comes before what is in it.
    for (lower, facts) in found {
        let below = depth(&lower);
        if below <= top {
            // The folder itself.
            continue;
        }
        let above = lower.rsplit_once('/').map_or("", |(above, _)| above);
        let parent = match dirs.get(above) {
            Some(parent) => parent,
            None if below == top + 1 && is_of(path, above) && own.get_or_insert_with(|| above.to_owned()) == above => {
                base
            }
            None => {
                return Err(Fault::broken("the service listed a file without the folder that it is in").error("list"));
            }
        };
        if !is_named(&lower, &facts.name) {
            return Err(Fault::broken("the service listed a file by two names").error("list"));
        }
        let part = service.config.encoding.decode(facts.name.as_bytes());
        let key = Key::new([parent.as_bytes(), &part[..]].concat());
        if is_odd(&part) || part.contains(&b'/') {
            return Err(
                Error::new(ErrorKind::Invalid, "list", "the service listed a name that can't be").with_key(&key)
            );
        }
        let entry = facts.entry(key.clone());
        if facts.is_folder() {
            let dir = key.with_suffix("/");
            service.note_folder(&dir);
            dirs.insert(lower, dir);
        } else if let Ok(path) = service.path(&key) {
            service.note_file(&path);
        }
        all.push(match entry {
            Some(entry) => FoundName::Entry(entry),
            None => {
                let error = Fault::broken("the service told no size or version of it").at("list", &key);
                FoundName::Failed(key, error)
            }
        });
    }
    all.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    match all.windows(2).find(|two| two[0].key() == two[1].key()) {
        Some(two) => {
            Err(Error::new(ErrorKind::Invalid, "list", "two names of Dropbox's are one here").with_key(two[0].key()))
        }
        None => Ok(all),
    }
}

/// Errors: of the service; a file is no folder.
async fn entries(service: &Service, dir: &Key, recursive: bool) -> Result<Vec<FoundName>> {
    let path = service.path(dir)?;
    if service.standing(dir, true).await? != PathState::There {
        return Err(Error::new(ErrorKind::NotFound, "list", "no such folder").with_key(dir));
    }
    let asked_at = Instant::now();
    let found = folder(service, &path, recursive).await.map_err(|refused| refused.at("list", dir))?;
    if recursive {
        service.seen().add(&path, asked_at, found.keys());
    }
    assemble(service, dir, &path, found)
}

struct Levels(Arc<Service>);

impl Folders for Levels {
    fn folder(&self, dir: Key, _: WantedKeys) -> BoxFuture<'static, Result<Vec<FoundName>>> {
        let service = self.0.clone();
        async move { entries(&service, &dir, false).await }.boxed()
    }
}

/// See [`haul_store::Store::list`].
pub fn list(service: Arc<Service>, request: ListRequest) -> BoxStream<'static, Listed> {
    let listing = async move {
        let base = MissedRange::from(Key::new(""));
        match service.ready("list").await {
            Err(error) if error.kind() == ErrorKind::Unsupported && !request.recursive && request.prefix.is_empty() => {
                stream::iter(names(&service, &request).await).boxed()
            }
            Err(error) => stream::iter([Listed::Failed { lost: base, error }]).boxed(),
            Ok(()) if !request.recursive => tree::list(Arc::new(Levels(service)), request),
            Ok(()) => stream::iter(whole(&service, &request).await).boxed(),
        }
    };
    stream::once(listing).flatten().boxed()
}

/// The names of all folders that others share.
async fn names(service: &Service, request: &ListRequest) -> Vec<Listed> {
    match root::shared(service).await {
        Ok(found) => {
            let after = |entry: &Entry| request.after.as_ref().is_none_or(|after| entry.key > *after);
            vec![Listed::Batch(found.into_iter().filter(after).collect()), Listed::End]
        }
        Err(error) => vec![Listed::Failed { lost: MissedRange::from(Key::new("")), error }],
    }
}

async fn whole(service: &Service, request: &ListRequest) -> Vec<Listed> {
    let prefix = &request.prefix;
    let base = Key::new(&prefix[..prefix.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)]);
    let fail = |lost: MissedRange, error: Error| vec![Listed::Failed { lost, error }];
    let root_fails = |error: Error| {
        let error = match error.kind() {
            ErrorKind::NotFound => Error::new(ErrorKind::DirNotFound, "list", "no such folder"),
            _ => error,
        };
        fail(MissedRange::from(Key::new("")), error)
    };
    // A name that the service can't have isn't there.
    let impossible = service.path(&base).is_err();
    let found = if impossible { Ok(Vec::new()) } else { entries(service, &base, true).await };
    let found = match found {
        Ok(found) if !impossible => found,
        Err(error) if base.is_root() => return root_fails(error),
        Err(error) if error.kind() != ErrorKind::NotFound => return fail(MissedRange::below(&base), error),
        // Nothing is there, if there is a root.
        _ => match super::read::stat(service, &Key::new("")).await {
            Ok(_) => Vec::new(),
            Err(error) => return root_fails(error),
        },
    };
    let (mut emitted, mut batch, mut out) = (0, Vec::new(), Vec::new());
    let mut pruned: Option<Key> = None;
    for found in found {
        let key = found.key();
        if pruned.as_ref().is_some_and(|dir| key.as_bytes().starts_with(dir.as_bytes())) {
            continue;
        }
        if key.is_dir() && !request.descends(key.as_bytes()) {
            pruned = Some(key.clone());
            continue;
        }
        if !key.as_bytes().starts_with(prefix) || request.after.as_ref().is_some_and(|after| key <= after) {
            continue;
        }
        if request.limit.is_some_and(|limit| emitted >= limit.max(1)) {
            out.push(Listed::Batch(batch));
            return out;
        }
        emitted += 1;
        match found {
            FoundName::Entry(entry) => batch.push(entry),
            FoundName::Vanished(key) => out.push(Listed::Vanished(key)),
            FoundName::Failed(key, error) => {
                out.push(Listed::Batch(std::mem::take(&mut batch)));
                let to = Some(key.with_suffix([0]));
                out.push(Listed::Failed { lost: MissedRange { from: key, to }, error });
            }
        }
        if batch.len() >= BATCH {
            out.push(Listed::Batch(std::mem::take(&mut batch)));
        }
    }
    if !batch.is_empty() {
        out.push(Listed::Batch(batch));
    }
    out.push(Listed::End);
    out
}

/// Whether a folder is empty.
///
/// Errors: of the service.
pub async fn is_empty(service: &Service, key: &Key) -> Result<bool> {
    let question = json!({"path": service.path(key)?, "limit": 1});
    let page: Page = service
        .api
        .json(&service.ask("files/list_folder", &question))
        .await
        .map_err(|refused| refused.at("delete", key))?;
    Ok(page.entries.is_empty() && !page.has_more)
}
