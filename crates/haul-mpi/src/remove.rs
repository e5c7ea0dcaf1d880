//! Deletes: files of a directory as they are listed, directories when they are empty.

use crate::{
    shared::{HeldLease, Sides},
    work::{DirFindings, LeaseResult, RankMessage, Raw, Verb},
};
use futures::StreamExt as _;
use haul_core::{Error, ErrorKind, Key, Listed, Result};
use haul_store::{Cleanup, ListRequest, UnfinishedWrites, WriteSpec};
use std::{mem, time::Duration};

/// Names that are reported, or deleted, at once.
const NAMES: usize = 1024;

/// Looks at a directory to delete: reports its directories, deletes the rest.
pub async fn look(shared: &HeldLease, root: u16, key: &Key) -> LeaseResult {
    let mut done = LeaseResult::default();
    let sides = &shared.sides[usize::from(root)];
    let mut listing = sides.dst.list(ListRequest { sweep: true, ..ListRequest::dir(key.as_bytes()) });
    let mut found = DirFindings::default();
    let mut files = Vec::new();
    while let Some(listed) = listing.next().await {
        shared.pulse.step();
        match listed {
            Listed::Batch(entries) => {
                for entry in entries {
                    found.files_seen += 1;
                    match entry.is_dir() {
                        true => found.dirs.push((Raw::from(entry.key.as_bytes()), false)),
                        false => files.push(Raw::from(entry.key.as_bytes())),
                    }
                }
            }
            // It made way already for something else of its name.
            Listed::Failed { error, .. } if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => {}
            Listed::Failed { error, .. } => done.problems.push(shared.problem(root, key.as_bytes(), &error)),
            Listed::Vanished(_) | Listed::End => {}
        }
        if files.len() >= NAMES {
            take(&mut done, delete(shared, root, &mem::take(&mut files)).await);
        }
        if found.dirs.len() >= NAMES || done.lines.len() + done.problems.len() >= NAMES {
            let LeaseResult { totals, problems, lines, undone, .. } = mem::take(&mut done);
            done.undone = undone;
            shared.say(RankMessage::Found(
                shared.lease,
                DirFindings { totals, problems, lines, ..mem::take(&mut found) },
            ));
        }
    }
    shared.say(RankMessage::Found(shared.lease, found));
    take(&mut done, delete(shared, root, &files).await);
    done
}

fn take(done: &mut LeaseResult, more: LeaseResult) {
    done.totals += more.totals;
    done.problems.extend(more.problems);
    done.lines.extend(more.lines);
    done.undone |= more.undone;
}

/// Deletes files, and directories that are empty.
pub async fn delete(shared: &HeldLease, root: u16, keys: &[Raw]) -> LeaseResult {
    let mut done = LeaseResult::default();
    let sides = &shared.sides[usize::from(root)];
    shared.pulse.step();
    if !shared.may_go_on() {
        return LeaseResult { undone: true, ..done };
    }
    let shown = |key: &[u8]| shared.dst_path(root, key);
    if shared.job.dry_run {
        done.lines.extend(keys.iter().map(|key| format!("would be deleted: {}", shown(key))));
        done.totals.deleted += keys.len() as u64;
        return done;
    }
    let answers = sides.dst.delete(keys.iter().map(|key| (Key::new(key), None)).collect()).await;
    for (key, answer) in keys.iter().zip(answers) {
        let (answer, hidden) = match answer {
            Err(error) if error.kind() == ErrorKind::Exists => with_hidden(shared, sides, &Key::new(key), error).await,
            answer => (answer, None),
        };
        match answer {
            Ok(()) => {
                done.totals.deleted += 1;
                shared.log("deleted", root, key, 0, None);
                if shared.job.verbose {
                    done.lines.push(format!("deleted: {}", shown(key)));
                }
            }
            Err(error) => {
                let mut problem = shared.problem(root, key, &error);
                problem.line = format!("{}: {}", shown(key), error.message());
                if let Some(hidden) = hidden {
                    let (dir, hidden) = (shown(key), shown(hidden.as_bytes()));
                    let why = "is in it, which a run writes or an interrupted one left";
                    problem.line += &format!(": {hidden} {why} (haul cleanup {dir} removes it when it is a day old)");
                }
                done.problems.push(problem);
            }
        }
    }
    done
}

/// A directory that can't be deleted, as it isn't empty, may hold nothing but what interrupted runs left under hidden names. Where all
/// is to go, so do they, but for those of processes that run on this node. One of those that stay.
async fn with_hidden(shared: &HeldLease, sides: &Sides, dir: &Key, error: Error) -> (Result<()>, Option<Key>) {
    let mut listing = sides.dst.list(ListRequest { sweep: true, ..ListRequest::dir(dir.as_bytes()) });
    while let Some(listed) = listing.next().await {
        shared.pulse.step();
        if !matches!(listed, Listed::End) {
            return (Err(error), None);
        }
    }
    let all = Cleanup { older_than: Duration::ZERO, dry_run: true, below: dir.clone() };
    let (Some(admin), Some(resumable)) = (sides.dst.admin(), sides.dst.resumable()) else { return (Err(error), None) };
    let Ok(UnfinishedWrites { found, .. }) = admin.cleanup(all).await else { return (Err(error), None) };
    let all_goes = shared.job.verb == Verb::Delete;
    let here = if all_goes { owner_here(sides, dir).await } else { None };
    let mut stays = None;
    for (hidden, _) in found {
        let theirs = owner(hidden.name()).is_none_or(|owner| here.as_ref().is_some_and(|here| *here != owner));
        let goes = all_goes && theirs && shared.may_go_on();
        if !goes || resumable.discard(&dir.with_suffix("x"), hidden.as_bytes()).await.is_err() {
            stays.get_or_insert(hidden);
        }
    }
    if stays.is_some() {
        return (Err(error), stays);
    }
    (sides.dst.delete(vec![(dir.clone(), None)]).await.into_iter().collect(), None)
}

/// On which node a process writes what has this hidden name; `None` for those with which any run may go on. Listings have removed
/// those of processes that have ended here (`haul-fs`, `hidden`).
fn owner(hidden: &[u8]) -> Option<Vec<u8>> {
    let owner = hidden.get(".haul-0123456789abcdef".len()..)?.strip_prefix(b"-")?;
    Some(owner.get(..16)?.to_vec())
}

/// How names say it of this node.
async fn owner_here(sides: &Sides, dir: &Key) -> Option<Vec<u8>> {
    let upload = sides.dst.write(&dir.with_suffix("x"), WriteSpec::default()).await.ok()?;
    let token = upload.token().await;
    upload.abort().await.ok()?;
    owner(Key::new(token.ok()??).name())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test makes its own files.
mod tests {
    use super::*;
    use crate::shared::tests::{job, rank};
    use haul_store::Upload;

    #[tokio::test]
    async fn what_interrupted_runs_left_goes_where_all_is_to_go() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("dir");
        std::fs::create_dir(&dir).unwrap();
        let (shared, _said) = rank(job(Verb::Delete, temp.path(), temp.path())).await;
        let write = async |resumable| -> Box<dyn Upload> {
            let spec = WriteSpec { size: Some(9), resumable, ..WriteSpec::default() };
            shared.sides[0].dst.write(&Key::new("dir/file"), spec).await.unwrap()
        };
        let remove = async |verb| {
            let (shared, _said) = rank(job(verb, temp.path(), temp.path())).await;
            let done = delete(&HeldLease::new(&shared, 7), 0, &[Raw::from("dir/")]).await;
            (done.totals.deleted, done.problems.into_iter().map(|problem| problem.line).collect::<Vec<_>>())
        };
        let refused = |hidden: &[u8]| {
            let (dir, hidden) = (dir.display(), temp.path().join(std::str::from_utf8(hidden).unwrap()));
            vec![format!(
                "{dir}: the directory isn't empty: {} is in it, which a run writes or an interrupted one left \
                 (haul cleanup {dir} removes it when it is a day old)",
                hidden.display()
            )]
        };
        // One with which a later run could go on, and one that this process writes.
        let left = write(true).await.token().await.unwrap().unwrap();
        assert_eq!(remove(Verb::Sync).await, (0, refused(&left)));
        let writes = write(false).await;
        let hidden = writes.token().await.unwrap().unwrap();
        assert_eq!(remove(Verb::Delete).await, (0, refused(&hidden)));
        let names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(names, [temp.path().join(std::str::from_utf8(&hidden).unwrap())]);
        // A visible file is no reason to look for hidden ones.
        std::fs::write(dir.join("seen"), "").unwrap();
        assert_eq!(remove(Verb::Delete).await, (0, vec![format!("{}: the directory isn't empty", dir.display())]));
        std::fs::remove_file(dir.join("seen")).unwrap();
        writes.abort().await.unwrap();
        drop(write(true).await);
        // Of a process of another node.
        std::fs::write(dir.join(".haul-000000073be526bb-00000000000000070000000a.file.partial"), "").unwrap();
        assert_eq!((remove(Verb::Delete).await, dir.exists()), ((1, vec![]), false));
    }
}
