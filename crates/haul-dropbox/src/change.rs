//! Changing what is there: folders, deletes in batches, copies and moves inside the service.

use crate::{error, list, read, service::Facts, service::Service, verified_folders::PathState};
use futures::{StreamExt, stream};
use haul_core::{Entry, Error, ErrorKind, Key, Mtime, Result, Retry, Version, plan::Replace};
use haul_net::Fault;
use haul_oauth::ServiceError;
use haul_store::{CopyBatch, CopyHow, CopyItem, Direction, StoredFacts, Watch, one_by_one};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Requests of one batch that are begun at once; the lane bounds them in the end.
const AT_ONCE: usize = 32;
/// Files that one request deletes.
const BATCH: usize = 1000;
/// How often a job is asked for at most: with pauses that grow to two seconds, half an hour.
const CHECKS: u32 = 900;
/// How often what failed for too many writes, or wasn't found though it was just written, is asked for again.
const TRIES: u32 = 6;

fn pause(tried: u32) -> Duration {
    Duration::from_millis((50 << tried.min(6)).min(2000))
}

/// Creates a folder and those above it.
///
/// Errors: `Exists` when one that differs by case only is in its place, or in that of one above it.
pub async fn make_dir(service: &Service, key: &Key) -> Result<()> {
    const OP: &str = "mkdir";
    let path = service.path(key)?;
    if path.is_empty() || service.knows_folder(key) {
        return Ok(());
    }
    service.has_room(OP, key).await?;
    let call = service.ask("files/create_folder_v2", &json!({"path": path, "autorename": false}));
    let turn = service.turn().await;
    let made = service.api.ask(&call).await;
    drop(turn);
    match made {
        Err(refused) if refused.code.ends_with("conflict/folder") => match service.standing(key, true).await? {
            PathState::There => {}
            PathState::Taken(why) => return Err(Error::new(ErrorKind::Exists, OP, why).with_key(key)),
            // It went meanwhile.
            PathState::Missing => return Err(refused.at(OP, key).with_retry(Retry::Backoff)),
        },
        Err(refused) => return Err(refused.at(OP, key)),
        // It is new: nothing is in it.
        Ok(_) => service.seen().add(&path, Instant::now(), [].into_iter()),
    }
    service.claim(key, &path)?;
    service.note_folder(key);
    Ok(())
}

/// Deletes as [`haul_store::Store::delete`] says.
pub async fn delete(service: &Service, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
    let mut answers: Vec<Option<Result<()>>> = keys.iter().map(|_| None).collect();
    let (folders, files): (Vec<_>, Vec<_>) =
        keys.into_iter().enumerate().partition(|(_, (key, _))| key.is_dir() || key.is_root());
    // Which version it is, where nobody says: a folder of the name must not go with all that is in it.
    let pinned: Vec<_> = stream::iter(files)
        .map(|(number, (key, version))| async move { (number, pin(service, &key, version).await, key) })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut batch = Vec::new();
    for (number, pinned, key) in pinned {
        match pinned {
            Ok(Some((path, rev))) => batch.push((number, key, path, rev)),
            Ok(None) => answers[number] = Some(Ok(())),
            Err(error) => answers[number] = Some(Err(error)),
        }
    }
    for batch in batch.chunks(BATCH) {
        for (number, answer) in delete_files(service, batch).await {
            answers[number] = Some(answer);
        }
    }
    // In order, and after the files: a folder comes after what was in it.
    for (number, (key, _)) in folders {
        answers[number] = Some(delete_folder(service, &key).await);
    }
    let missing = || Err(Error::new(ErrorKind::Io, "delete", "the service gave no answer for it"));
    answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
}

/// The path and version of a file that is to go; `None` where there is none.
async fn pin(service: &Service, key: &Key, version: Option<Version>) -> Result<Option<(String, String)>> {
    let path = service.path(key)?;
    if service.is_claimed_otherwise(&path) {
        let message = "it was just written under a name that differs by upper and lower case only, which is the same file to Dropbox";
        return Err(Error::new(ErrorKind::Changed, "delete", message).with_key(key));
    }
    if let Some(version) = version {
        return Ok(Some((path, String::from_utf8_lossy(&version.0).into_owned())));
    }
    let there = match read::facts(service, key, &path).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let is_it = !there.is_folder() && service.differs(key, &path, &there).await?.is_none();
    Ok(is_it.then_some((path, there.rev)))
}

type File = (usize, Key, String, String);

#[derive(Deserialize)]
struct Job {
    #[serde(rename = ".tag")]
    tag: String,
    #[serde(default)]
    async_job_id: String,
    #[serde(default)]
    entries: Vec<Value>,
}

async fn job(service: &Service, files: &[File]) -> Result<Vec<Value>, ServiceError> {
    let entries: Vec<Value> = files.iter().map(|(_, _, path, rev)| json!({"path": path, "parent_rev": rev})).collect();
    let begun: Job = service.api.json(&service.ask("files/delete_batch", &json!({ "entries": entries }))).await?;
    let (id, mut now) = (begun.async_job_id.clone(), begun);
    let mut checks = 0;
    while matches!(&*now.tag, "async_job_id" | "in_progress") {
        if checks == CHECKS {
            return Err(Fault::timeout("the service hasn't finished a job").into());
        }
        tokio::time::sleep(pause(checks)).await;
        checks += 1;
        now = service.api.json(&service.ask("files/delete_batch/check", &json!({"async_job_id": id}))).await?;
    }
    match now.tag == "complete" && now.entries.len() == files.len() {
        true => Ok(now.entries),
        false => Err(Fault::broken(format!("a job ended as {:?}", now.tag)).into()),
    }
}

async fn delete_files(service: &Service, files: &[File]) -> Vec<(usize, Result<()>)> {
    let (mut files, mut answers) = (files.to_vec(), Vec::new());
    for tried in 1.. {
        let entries = match job(service, &files).await {
            Ok(entries) => entries,
            Err(refused) => {
                let error = refused.fault.error("delete");
                answers
                    .extend(files.into_iter().map(|(number, key, ..)| (number, Err(error.to_report().with_key(&key)))));
                return answers;
            }
        };
        let mut crowded = Vec::new();
        for (file, entry) in files.into_iter().zip(entries) {
            let code = error::code(&entry["failure"]);
            let (kind, retry) = error::meaning(&code);
            let (number, key, path, _) = &file;
            let fails =
                |kind, message: String| Err(Error::new(kind, "delete", message).with_retry(retry).with_key(key));
            let answer = match () {
                () if entry[".tag"] == "success" || code == "path_lookup/not_found" => {
                    service.release(path);
                    Ok(())
                }
                () if kind == ErrorKind::Busy && tried < TRIES => {
                    crowded.push(file);
                    continue;
                }
                () if kind == ErrorKind::Exists => fails(ErrorKind::Changed, "changed since it was listed".into()),
                () => fails(kind, error::words(&code)),
            };
            answers.push((*number, answer));
        }
        if crowded.is_empty() {
            break;
        }
        files = crowded;
        tokio::time::sleep(pause(tried)).await;
    }
    answers
}

async fn delete_folder(service: &Service, key: &Key) -> Result<()> {
    let path = service.path(key)?;
    if path.is_empty() {
        return Err(Error::new(ErrorKind::Unsupported, "delete", "an account isn't deleted").with_key(key));
    }
    // One that is called otherwise is another.
    if service.standing(key, true).await? != PathState::There {
        return Ok(());
    }
    match list::is_empty(service, key).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(false) => return Err(Error::new(ErrorKind::Exists, "delete", "the directory isn't empty").with_key(key)),
        Ok(true) => {}
    }
    service.folders.forget(key);
    service.release(&path);
    match again(service, "files/delete_v2", &json!({ "path": path })).await {
        Err(refused) if refused.code == "path_lookup/not_found" => Ok(()),
        other => other.map(|_| ()).map_err(|refused| refused.at("delete", key)),
    }
}

/// Asks again for what the service has no time for now, or hasn't noticed yet that it is there. When it says how long to wait, that is
/// for whoever repeats requests.
async fn again(service: &Service, name: &'static str, question: &Value) -> Result<Value, ServiceError> {
    let mut tried = 1;
    loop {
        let turn = service.turn().await;
        let answer = service.api.json(&service.ask(name, question).going(Direction::Copy)).await;
        drop(turn);
        match answer {
            Err(refused)
                if tried < TRIES
                    && !matches!(refused.fault.retry, Retry::After(_))
                    && matches!(&*refused.code, "too_many_write_operations" | "from_lookup/not_found") =>
            {
                tokio::time::sleep(pause(tried)).await;
                tried += 1;
            }
            other => return other,
        }
    }
}

/// Copies as [`haul_store::Store::copy`] says.
pub async fn copy(service: &Service, batch: CopyBatch, watch: Watch) -> Vec<Result<StoredFacts>> {
    let CopyBatch { from, items, .. } = batch;
    let root = &*String::from_utf8_lossy(&from);
    one_by_one::copied(items, &watch, AT_ONCE, |item| async move { copy_item(service, root, &item).await }).await
}

async fn copy_item(service: &Service, root: &str, item: &CopyItem) -> Result<StoredFacts> {
    match copy_or_move(service, root, item).await {
        Ok(stored) => {
            service.moves.forget(item);
            Ok(stored)
        }
        Err(error) if error.is_missing() => {
            let stored = service.moves.done(item, read::stat(service, &item.to), |_, _| true).await.ok_or(error)?;
            service.release(&service.path_below(root, &item.from)?);
            if item.how != CopyHow::RenameDir {
                service.note_file(&service.path(&item.to)?);
            }
            Ok(stored)
        }
        failed => failed,
    }
}

async fn copy_or_move(service: &Service, root: &str, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let fails = |kind, message: &str| Err(Error::new(kind, OP, message).with_key(&item.to));
    if item.how == CopyHow::RenameDir {
        return rename_dir(service, root, item).await;
    }
    if item.how.needs_inodes() {
        return fails(ErrorKind::Unsupported, "Dropbox has no hard links, devices or attributes");
    }
    let (from, to) = (service.path_below(root, &item.from)?, service.path(&item.to)?);
    if from.to_lowercase() == to.to_lowercase() {
        return fails(ErrorKind::Unsupported, "it would be copied onto itself");
    }
    let source = read::facts(service, &item.from, &from).await?;
    let is_named = from.ends_with(&format!("/{}", source.name));
    let changed = || Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(&item.from));
    let entry = match source.entry(item.from.clone()) {
        Some(entry) if entry.has_bytes() && is_named => entry,
        _ if item.want.is_some() => return changed(),
        _ => return fails(ErrorKind::NotFound, "no such file"),
    };
    if item.want.is_some() && item.want != entry.version {
        return changed();
    }
    if item.spec.mtime.is_some_and(|mtime| entry.mtime.map(Mtime::secs) != Some(mtime.secs())) {
        return fails(ErrorKind::Unsupported, "a copy has the time of its source");
    }
    if let Replace::Exactly(_) = item.spec.replace {
        return fails(ErrorKind::Unsupported, "Dropbox copies to where nothing is only");
    }
    service.has_room(OP, &item.to).await?;
    service.claim(&item.to, &to)?;
    let name = if item.how == CopyHow::Copy { "files/copy_v2" } else { "files/move_v2" };
    let question = json!({"from_path": from, "to_path": to, "autorename": false});
    let made = match again(service, name, &question).await {
        Ok(made) => made,
        Err(refused) if refused.code.starts_with("to/conflict") => {
            let absent = item.spec.replace == Replace::Absent;
            let kind = if absent { ErrorKind::Exists } else { ErrorKind::Unsupported };
            return fails(kind, "something is there already");
        }
        Err(refused) => {
            if refused.fault.is_ambiguous() {
                service.moves.note(item, entry);
            }
            return Err(refused.at(OP, &item.to));
        }
    };
    let made: Option<Entry> =
        serde_json::from_value::<Facts>(made["metadata"].clone()).ok().and_then(|facts| facts.entry(item.to.clone()));
    let Some(made) = made else { return Err(Fault::broken("the service gave no receipt (a rev)").at(OP, &item.to)) };
    if made.size != entry.size || matches!(made.hashes.agree(&entry.hashes), Some((_, false))) {
        // It would have its source's size and time. What was moved is the source itself.
        let gone = match item.how {
            CopyHow::Copy => delete(service, vec![(item.to.clone(), made.version)]).await,
            _ => Vec::new(),
        };
        let left = if gone.iter().all(Result::is_ok) { "" } else { "; it could not be removed" };
        return fails(ErrorKind::Corrupt, &format!("size or checksum mismatch after copy{left}"));
    }
    if item.how != CopyHow::Copy {
        service.release(&from);
    }
    service.note_file(&to);
    Ok(StoredFacts { version: made.version, size: made.size, hashes: made.hashes, ..StoredFacts::default() })
}

/// See [`CopyHow::RenameDir`].
async fn rename_dir(service: &Service, root: &str, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    let fails = |kind, message: &str| Err(Error::new(kind, OP, message).with_key(&item.to));
    let (from, to) = (service.path_below(root, &item.from)?, service.path(&item.to)?);
    if from.to_lowercase() == to.to_lowercase() {
        return fails(ErrorKind::Unsupported, "Dropbox has one name for both");
    }
    let there = read::facts(service, &item.from, &from).await?;
    if there.tag != "folder" || !from.ends_with(&format!("/{}", there.name)) {
        return fails(ErrorKind::NotFound, "no such directory");
    }
    service.claim(&item.to, &to)?;
    let question = json!({"from_path": from, "to_path": to, "autorename": false});
    let moved = again(service, "files/move_v2", &question).await;
    service.folders.forget(&item.from);
    service.release(&from);
    match moved {
        Ok(_) => Ok(StoredFacts::default()),
        Err(refused) if refused.code.starts_with("to/conflict") => {
            service.release(&to);
            fails(ErrorKind::Exists, "something is there already")
        }
        Err(refused) => {
            service.release(&to);
            if refused.fault.is_ambiguous() {
                service.moves.note(item, Entry::dir(item.from.clone()));
            }
            Err(refused.at(OP, &item.to))
        }
    }
}
